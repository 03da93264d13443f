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
    accept, moves : mean acceptance probability and moves in a proposal over the same draws
    seen : tuning draws so far
    """

    log_value: Any
    mean: Any
    accept: Any
    moves: Any
    seen: Any


def start(value: float) -> Adaptation:
    return Adaptation(np.log(value), np.log(value), 0.0, 0.0, 0.0)


def update(a: Adaptation, accept: Any, moves: Any, bounds: tuple[float, float], tune: int) -> Adaptation:
    """After one tuning draw, of `tune` in all, with mean acceptance probability `accept` and `moves` in a proposal.

    The first half follows the chain to where it belongs, the second converges and averages.
    """
    late = np.maximum(a.seen - tune / 2, 0.0)
    log_value = a.log_value + (accept - TARGET_ACCEPT) / (1 + late) ** 0.6
    log_value = np.clip(log_value, *np.log(bounds))
    share = 1 / (1 + late)  # restarts the means when the second half begins

    def mean(old: Any, new: Any) -> Any:
        return old + share * (new - old)

    return Adaptation(log_value, mean(a.mean, log_value), mean(a.accept, accept), mean(a.moves, moves), a.seen + 1)
