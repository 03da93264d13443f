"""The option `temper`, checked."""

from typing import Any

import numpy as np

from pymc_discrete.runtime.checks import check_entries, is_integer_from, is_word


def replicas_of(temper: Any) -> int | str | None:
    """The number of replicas that `temper` asks for, or "auto"; None without tempering.

    Raises
    ------
    TypeError, ValueError
        For an argument that is neither True, False nor a dictionary with a number of replicas.
    """
    if isinstance(temper, bool | np.bool_):
        return "auto" if temper else None
    if not isinstance(temper, dict):
        raise TypeError(f"temper must be True, False or a dictionary {{'replicas': 12}}, got {temper!r}.")
    check_entries("temper", temper, ("replicas",))
    replicas = temper.get("replicas", "auto")
    if not is_word(replicas, "auto") and not is_integer_from(replicas, 2):
        raise ValueError(
            "temper['replicas'] must be 'auto' or an integer of at least 2, the number of inverse "
            f"temperatures from 0 to 1, got {replicas!r}."
        )
    return replicas if isinstance(replicas, str) else int(replicas)
