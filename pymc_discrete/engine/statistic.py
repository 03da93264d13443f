"""Sampler statistics: their types, and how several values are reduced to a recorded one."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Reduction(NamedTuple):
    """The way in which the values of a statistic between two recorded draws are reduced to one value.

    Attributes
    ----------
    add : (accumulated, value) -> accumulated
        The accumulated value after one more transition; the first accumulated value is 0.
    finish : (accumulated, number of transitions) -> the value that is recorded
    """

    add: Callable[[Any, Any], Any]
    finish: Callable[[Any, Any], Any] = lambda accumulated, count: accumulated


MEAN = Reduction(operator.add, lambda accumulated, count: (accumulated / count).astype(accumulated.dtype))
SUM = Reduction(operator.add)
ANY = Reduction(operator.or_)
LAST = Reduction(lambda accumulated, value: value)


class Statistic(NamedTuple):
    """A sampler statistic: its type, and how the values of several transitions are reduced."""

    type: type
    reduction: Reduction = LAST


def as_pymc_declares(statistics: Mapping[str, Statistic]) -> dict[str, Any]:
    """{name: (type, shape)} of some statistics and of the log density, as PyMC's steps declare statistics."""
    of_numpy = {float: np.float64, int: np.int64, bool: np.bool_}
    declared: dict[str, Any] = {name: (of_numpy[s.type], []) for name, s in statistics.items()}
    return {**declared, "model_logp": (np.float64, [])}
