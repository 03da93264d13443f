"""Sampler statistics: their types, and what is recorded of several values."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Reduction(NamedTuple):
    """How the values of a statistic in the transitions between two recorded draws are reduced to one.

    Attributes
    ----------
    add : (accumulated, value) -> accumulated
        The accumulated value with that of one more transition; it starts at 0.
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
    """{name: (type, shape)}, as a step of PyMC declares numbers, and the log density of the model."""
    of_numpy = {float: np.float64, int: np.int64, bool: np.bool_}
    declared: dict[str, Any] = {name: (of_numpy[s.type], []) for name, s in statistics.items()}
    return {**declared, "model_logp": (np.float64, [])}
