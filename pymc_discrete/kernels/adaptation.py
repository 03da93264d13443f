"""Tuning of one parameter towards an acceptance probability, during the tuning draws only."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from pymc_discrete.space.space import Space

# The acceptance probability that tuning aims at: it is optimal for locally balanced proposals (Sun, Dai and
# Schuurmans 2022).
TARGET_ACCEPT = 0.574
# A chain is stuck after STUCK_DRAWS tuning draws in a row, in each of which less than the fraction
# STUCK_SHARE of the proposals was accepted, or which ended in the state in which it began.
STUCK_SHARE, STUCK_DRAWS = 0.01, 10


class Tuned(NamedTuple):
    """The parameter of a kernel that adapts; larger values make larger proposals, which are accepted less.

    Attributes
    ----------
    name : the key of the parameter in the kernel's params
    bounds : (space) -> (lower, upper), the bounds of the parameter, both positive
    """

    name: str
    bounds: Callable[[Space], tuple[float, float]]


class Adaptation(NamedTuple):
    """State of the Robbins-Monro algorithm on the logarithm of a parameter.

    Attributes
    ----------
    log_value : logarithm of the value in use while tuning
    mean : mean of log_value over the second half of tuning, in use after tuning
    accept : mean acceptance probability over the second half of tuning
    moves : mean number of moves in a proposal over the second half of tuning
    seen : number of tuning draws so far
    still : number of draws in a row in which the chain hardly moved, in the first half of tuning
    measured : means over the second half of tuning of `Info.measured`, what the kernel's own tuning looks at
    """

    log_value: Any
    mean: Any
    accept: Any
    moves: Any
    seen: Any
    still: Any
    measured: Any = ()

    @property
    def stuck(self) -> bool:
        """Whether the chain has hardly moved for so long that another kernel (`settle`) must bring it to the
        bulk of the target.
        """
        return self.still >= STUCK_DRAWS


def initial_adaptation(value: float, measured: Any = ()) -> Adaptation:
    """The adaptation before the first draw, of a parameter that begins at `value`.

    The argument `measured` holds zeros in place of the means of `Info.measured`, what the kernel's own tuning
    looks at.
    """
    return Adaptation(np.log(value), np.log(value), 0.0, 0.0, 0.0, 0, measured)


def updated_adaptation(
    a: Adaptation,
    accept: Any,
    moves: Any,
    n_changed: Any,
    bounds: tuple[float, float],
    tune: float,
    xp: Any = np,
    measured: Any = (),
) -> Adaptation:
    """The adaptation after one tuning draw.

    In the first half of tuning the step of the Robbins-Monro algorithm is constant, so that the parameter
    follows the chain to the bulk of the target. In the second half the step decreases, and the values of the
    parameter are averaged.

    Parameters
    ----------
    accept : mean acceptance probability of the draw's proposals
    moves : mean number of moves in a proposal
    n_changed : number of sites whose value differs between the beginning and the end of the draw
    bounds : (lower, upper), of the parameter
    tune : number of tuning draws in all; infinite where tuning never ends
    xp : NumPy on the host, `jax.numpy` inside a compiled loop
    measured : the draw's means of `Info.measured`, what the kernel's own tuning looks at
    """
    late = xp.maximum(a.seen - tune / 2, 0.0)
    log_value = a.log_value + (accept - TARGET_ACCEPT) / (1 + late) ** 0.6
    log_value = xp.clip(log_value, *np.log(bounds))
    # The share of the new draw in a mean: 1 in the first half of tuning, so that earlier draws are forgotten,
    # and the means are over the second half only.
    share = 1 / (1 + late)

    def mean(old: Any, new: Any) -> Any:
        return old + share * (new - old)

    still = xp.where(((accept < STUCK_SHARE) | (n_changed == 0)) & (late == 0), a.still + 1, 0)
    return Adaptation(
        log_value,
        mean(a.mean, log_value),
        mean(a.accept, accept),
        mean(a.moves, moves),
        a.seen + 1,
        still,
        jax.tree.map(mean, a.measured, measured),
    )
