"""Discrete variables that never move, and whether that says something.

A site that never moves may have one possible value, or others so rare that none was to be expected in so many
draws, or values that the step cannot reach. Its conditional, where it is exact, tells the first two from the
third.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pymc.blocking import PointType
from scipy.special import logsumexp, softmax

from pymc_discrete.targets.target import Target

FEWEST = 100  # draws below which standing still says nothing
RARE = 1e-9  # probability of any other value, below which a variable counts as held fast
CHANCE = 7.0  # moves to be expected, of which none is made by chance once in e^7 = 1,100 cases
# moves to be expected, below which a chain that stands still where others move is in a mode of its own
FEW = 1e-3
TRIED = 4  # states of the other sites at which a site's conditional is compared
SAME = 1e-4  # difference of probabilities up to which it is the same


class Leaving(NamedTuple):
    """How probable it is that the sites of a variable have another value, given everything else.

    Attributes
    ----------
    several : (elements,) bool, whether a site has more than one value
    probability : (chains, elements), at the end of each chain; None where conditionals are estimates
    joint : whether the sites are drawn from their joint distribution given all continuous variables, so that
        no other
        site can hold them where they are
    """

    several: np.ndarray
    probability: np.ndarray | None
    joint: bool


def leaving(target: Target, points: Sequence[PointType], joint: bool, complete: bool) -> dict[str, Leaving]:
    """{variable: Leaving} at a point of each chain; of windowed sites, that of another value in the window.

    Parameters
    ----------
    joint : whether the step draws the sites of the target jointly, and not each given the others (which is
        the same
        for a variable whose sites depend on no other)
    complete : whether the target has all discrete variables of the model; one that is drawn at another time
        may hold these
    """
    space = target.space
    several = space.lower < space.upper
    each = np.stack([another_value(target, point) for point in points]) if target.exact else None
    each_variable = {}
    for m in space.members:
        own = slice(m.start, m.start + m.size)
        together = complete and target.exact and (joint or depends_on_no_site(target, points[0], own))
        each_variable[m.name] = Leaving(several[own], None if each is None else each[:, own], together)
    return each_variable


def another_value(target: Target, point: PointType) -> np.ndarray:
    """(d,) the probability that a site has another value than at a point, given all others."""
    x, target = target.at(point)
    values, _ = (np.asarray(a) for a in target.space.neighbours(x))
    away = logsumexp(
        np.where(values != x[:, None], np.asarray(target.differences(x), float), -np.inf), axis=1
    )
    return np.exp(away - np.logaddexp(0.0, away))


def depends_on_no_site(target: Target, point: PointType, own: slice) -> bool:
    """Whether the conditionals of some sites with finite supports are the same at random states
    of all sites.
    """
    (x, target), rng = target.at(point), np.random.default_rng(0)
    space = target.space
    if space.windowed.any():
        return False
    states = [x, *(rng.integers(space.lower, space.upper + 1).astype(x.dtype) for _ in range(TRIED))]
    with np.errstate(invalid="ignore"):
        conditionals = [softmax(np.asarray(target.differences(y), float)[own], axis=1) for y in states]
    return all(bool((np.abs(c - conditionals[0]) <= SAME).all()) for c in conditionals)


def by_chance(probability: float, draws: int, least: float) -> bool:
    """Whether so many draws without a move are what the probability of any other value, at least `least`,
    lets expect.
    """
    return probability >= least and probability * draws < CHANCE


def held(probability: float | None, joint: bool, draws: int) -> str | None:
    """Why a variable stood still throughout, in all of so many draws: a phrase; None where nothing is odd
    about it.

    Parameters
    ----------
    probability : of another value of any of its sites, given everything else; None where it is not known
    joint : see `Leaving`
    """
    if probability is None:
        return "either the data leave one value only, or the step cannot move it"
    if by_chance(probability, draws, RARE) or (joint and probability < RARE):
        return None
    if probability < RARE:
        return (
            f"given everything else, other values have a probability below {RARE:g}. Either the data leave "
            "one value only, or several sites must change together: see whether other initvals= end "
            "elsewhere, and try pmd.PathAuxiliary(path_length=5, recompute=True)"
        )
    return (
        "though given everything else other values are probable: the step cannot move it. Try "
        "pmd.BlockGibbs, or differences='exact'"
    )
