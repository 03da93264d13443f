"""The options of NUTS in a program of a whole model, and their checks."""

from typing import Any, NamedTuple

from pymc_discrete.runtime.checks import check_count, check_entries, check_switch, is_number

DEFAULTS = {"max_treedepth": 10, "dense": "auto", "pooled": False}


class OfNuts(NamedTuple):
    """Options of NUTS, as described in `pmd.sample`.

    Attributes
    ----------
    target_accept : float
    nuts : {"max_treedepth", "dense", "pooled": value}
    """

    target_accept: float = 0.8
    nuts: dict[str, Any] = DEFAULTS

    @classmethod
    def of_step(cls, target_accept: Any, nuts: Any) -> "OfNuts":
        """The options of NUTS that were given to a step of `pm.sample`.

        Raises
        ------
        ValueError, TypeError
        """
        check_target_accept(target_accept)
        options = nuts_options(nuts)
        if options["pooled"]:
            raise ValueError(
                "nuts={'pooled': True} is for pmd.sample, which runs all chains together: a step of "
                "pm.sample knows one chain. Leave it out, or call pmd.sample."
            )
        return cls(float(target_accept), options)


def check_target_accept(target_accept: Any) -> None:
    """Raise a ValueError unless the acceptance to which NUTS tunes its step size is between 0 and 1."""
    if not is_number(target_accept) or not 0 < float(target_accept) < 1:
        raise ValueError(f"target_accept must be between 0 and 1, got {target_accept!r}.")


def nuts_options(given: dict[str, Any] | None) -> dict[str, Any]:
    """The checked entries of `nuts=`, with defaults for the entries that are not given."""
    check_entries("nuts", given, DEFAULTS)
    options = {**DEFAULTS, **(given or {})}
    check_count("nuts['max_treedepth']", options["max_treedepth"], 1)
    check_switch("nuts['pooled']", options["pooled"])
    dense = options["dense"]
    if not isinstance(dense, bool) and not (isinstance(dense, str) and dense == "auto"):
        raise ValueError(f"nuts['dense'] must be True, False or 'auto', got {dense!r}.")
    return options
