"""Tuning of one parameter towards an acceptance probability, during the tuning draws only."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_discrete.targets.space import Space

TARGET_ACCEPT = 0.574  # Sun, Dai and Schuurmans 2022: optimal for locally balanced proposals
# A chain stands still that accepts less than this share, or ends where it began, in so many tuning draws in a
# row
STILL, PATIENCE = 0.01, 10


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
    """Robbins-Monro on the logarithm of a value.

    Attributes
    ----------
    log_value : the value in use while tuning
    mean : of log_value over the second half of tuning, which is what stays
    accept, moves : mean acceptance probability and moves in a proposal over the same draws
    seen : tuning draws so far
    still : draws in a row without progress, in the first half of tuning
    """

    log_value: Any
    mean: Any
    accept: Any
    moves: Any
    seen: Any
    still: Any

    @property
    def stuck(self) -> bool:
        """Whether the chain needs another kernel to get to where it belongs (see `settle`)."""
        return self.still >= PATIENCE


def start(value: float) -> Adaptation:
    return Adaptation(np.log(value), np.log(value), 0.0, 0.0, 0.0, 0)


def update(
    a: Adaptation, accept: Any, moves: Any, moved: Any, bounds: tuple[float, float], tune: int, xp: Any = np
) -> Adaptation:
    """After one tuning draw, of `tune` in all; `xp` is NumPy on the host and JAX's NumPy inside a compiled
    loop.

    Its mean acceptance probability was `accept`, a proposal had `moves` moves, and `moved` sites ended at
    another value.

    The first half follows the chain to where it belongs, the second converges and averages.
    """
    late = xp.maximum(a.seen - tune / 2, 0.0)
    log_value = a.log_value + (accept - TARGET_ACCEPT) / (1 + late) ** 0.6
    log_value = xp.clip(log_value, *np.log(bounds))
    share = 1 / (1 + late)  # restarts the means when the second half begins

    def mean(old: Any, new: Any) -> Any:
        return old + share * (new - old)

    still = xp.where(((accept < STILL) | (moved == 0)) & (late == 0), a.still + 1, 0)
    return Adaptation(
        log_value, mean(a.mean, log_value), mean(a.accept, accept), mean(a.moves, moves), a.seen + 1, still
    )
