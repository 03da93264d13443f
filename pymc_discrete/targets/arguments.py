"""Checks of numbers that functions of several layers take."""

from numbers import Real
from typing import Any

import numpy as np


def is_count(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def is_number(value: Any) -> bool:
    """Whether it is one finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))


def check_count(name: str, value: Any, least: int) -> None:
    if not is_count(value, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def check_not_negative(name: str, value: Any) -> None:
    if not is_number(value) or value < 0:
        raise ValueError(
            f"{name} must not be negative, got {value!r}."
            if is_number(value)
            else f"{name} must be a number, got {value!r}."
        )
