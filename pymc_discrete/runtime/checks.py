"""Checks of arguments, for every layer: an error names the argument, what it must be, and what it is."""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from xarray import Dataset, DataTree


def is_integer_from(value: Any, least: int) -> bool:
    """Whether `value` is an integer of at least `least`; True and False do not count as integers."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether `value` is a finite real number; True and False do not count as numbers."""
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))


def is_word(value: Any, word: str) -> bool:
    """Whether `value` is the string `word`; safe for arrays, whose comparison would be elementwise."""
    return isinstance(value, str) and value == word


def check_count(name: str, value: Any, least: int) -> None:
    """Raise a ValueError unless `value` is an integer of at least `least`."""
    if not is_integer_from(value, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def check_auto_or_count(name: str, value: Any, unit: str) -> None:
    """Raise a ValueError unless `value` is "auto" or a positive integer; `unit` is what it counts."""
    if not is_word(value, "auto") and not is_integer_from(value, 1):
        meant = suggested(value, ["auto"])
        raise ValueError(f"{name} must be 'auto' or an integer of at least 1, {unit}, got {value!r}.{meant}")


def check_not_negative(name: str, value: Any) -> None:
    """Raise a ValueError unless `value` is a finite number of at least 0."""
    if not is_number(value) or value < 0:
        raise ValueError(
            f"{name} must not be negative, got {value!r}."
            if is_number(value)
            else f"{name} must be a number, got {value!r}."
        )


def suggested(given: Any, known: Iterable[str]) -> str:
    """The end of a message that names the one of the `known` words that was probably meant; "" if none is
    similar.
    """
    words = {word.lower(): word for word in known}
    near = get_close_matches(given.lower(), words, 1) if isinstance(given, str) else []
    return f" Did you mean {words[near[0]]!r}?" if near else ""


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise a ValueError unless `value` is one of the strings `choices`."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        meant = suggested(value, choices)
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.{meant}")


def check_switch(name: str, value: Any) -> None:
    """Raise a ValueError unless `value` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}.")


def check_entries(name: str, given: Any, known: Iterable[str]) -> None:
    """Raise an error unless `given` is a dictionary whose keys are all `known`, or None.

    Raises
    ------
    TypeError
        If `given` is neither a dictionary nor None.
    ValueError
        For the first unknown key.
    """
    known = tuple(known)
    if given is not None and not isinstance(given, dict):
        raise TypeError(f"{name} must be a dictionary with some of {', '.join(known)}, got {given!r}.")
    for key in given or {}:
        if key not in known:
            meant = suggested(key, known)
            raise ValueError(f"{name} has no entry {key!r}; it has {', '.join(known)}.{meant}")


def check_options(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError for the first of the `given` options that is not `known`; `name` is the object with
    options.
    """
    known = tuple(known)
    for option in given:
        if option not in known and not option.startswith("_"):
            raise TypeError(
                f"{name} has no option {option!r}; it has {', '.join(known)}.{suggested(option, known)}"
            )


# the ways to find differences that a user may ask for
DIFFERENCES = ("auto", "exact", "gradient")


def check_way(differences: Any) -> None:
    """Raise a ValueError unless a value of the option `differences` is one of `DIFFERENCES`."""
    check_choice("differences", differences, DIFFERENCES)


def check_result(idata: Any, call: str) -> None:
    """Raise a TypeError unless `idata` is a DataTree with draws; `call` is an example for the message."""
    if isinstance(idata, DataTree) and "posterior" in idata.children:
        return
    if isinstance(idata, DataTree | Dataset):
        names = [*getattr(idata, "children", ()), *map(str, idata.data_vars)]
        holds = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5) or "nothing"
        got = f"a {type(idata).__name__} of {holds}. Pass the whole DataTree, not a group of it"
    else:
        got = f"a {type(idata).__name__}"
    raise TypeError(
        "idata must be a DataTree with a group 'posterior', as pm.sample and pmd.sample return it, got "
        f"{got}: {call}."
    )
