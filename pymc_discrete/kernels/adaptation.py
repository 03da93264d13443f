"""Tuning of one parameter towards an acceptance probability, during the tuning draws only."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_discrete.targets.space import Space

TARGET_ACCEPT = 0.574  # Sun, Dai and Schuurmans 2022: optimal for locally balanced proposals


class Tuned(NamedTuple):
    """The parameter of a kernel that adapts: larger means bolder.

    Attributes
    ----------
    name : its key in the kernel's params
    bounds : (space) -> (lower, upper), both positive
    """

    name: str
    bounds: Callable[[Space], tuple[float, float]]


class Adaptation(NamedTuple):
    """Robbins-Monro on the logarithm of a value: plain numbers, on the host.

    Attributes
    ----------
    log_value : the value in use while tuning
    mean : of log_value over the second half of tuning, which is what stays
    accept : mean acceptance probability over the same draws
    seen : tuning draws so far
    """

    log_value: Any
    mean: Any
    accept: Any
    seen: Any


def start(value: float) -> Adaptation:
    return Adaptation(np.log(value), np.log(value), 0.0, 0.0)


def update(a: Adaptation, accept: Any, lower: float, upper: float, tune: int) -> Adaptation:
    """After one tuning draw with mean acceptance probability `accept`, of `tune` in all.

    The first half follows the chain to where it belongs, the second converges and averages.
    """
    late = np.maximum(a.seen - tune / 2, 0.0)
    log_value = a.log_value + (accept - TARGET_ACCEPT) / (1 + late) ** 0.6
    log_value = np.minimum(np.maximum(log_value, np.log(lower)), np.log(upper))
    share = 1 / (1 + late)  # restarts the means when the second half begins
    return Adaptation(log_value, a.mean + share * (log_value - a.mean), a.accept + share * (accept - a.accept), a.seen + 1)
