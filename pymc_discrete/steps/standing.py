"""Discrete variables that never move, and whether that indicates a problem.

A site that never moves may have only one possible value, or other values so improbable that none of them was
to be expected in this number of draws, or other values that the step cannot reach. If the conditional of the
site is exact, it distinguishes the first two cases from the third.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pymc.blocking import PointType
from scipy.special import logsumexp, softmax

from pymc_discrete.targets.target import Target

# fewest draws of a chain for which a variable that never moved is reported
FEWEST = 100
# if all other values together have a smaller probability, given everything else, a variable counts as fixed
RARE = 1e-9
# if more moves than this are expected, a chain without any is no coincidence: its probability is below e^-7,
# or 1 in 1,100
CHANCE = 7.0
# if fewer moves than this are expected in a chain where a variable never moves, and it moves in other chains,
# the chain is in another mode than those
FEW = 1e-3
# number of random states whose conditionals are compared, to find out whether they depend on other sites
TRIED = 4
SAME = 1e-4  # conditionals whose probabilities differ by no more than this count as equal


class Leaving(NamedTuple):
    """How probable it is that the sites of a variable have another value, given everything else.

    Attributes
    ----------
    several : (elements,) bool, whether a site has more than one value
    probability : (chains, elements), at the end of each chain; None where conditionals are estimates
    joint : whether the sites are drawn from their joint distribution given all continuous variables, so that
        no other site can keep them from moving
    """

    several: np.ndarray
    probability: np.ndarray | None
    joint: bool


def leaving(target: Target, points: Sequence[PointType], joint: bool, complete: bool) -> dict[str, Leaving]:
    """{variable: Leaving}: the probability of other values at a point of each chain.

    Of windowed sites, only the other values within the window are counted.

    Parameters
    ----------
    points : the model's point, for each chain
    joint : whether the step draws the sites of the target jointly, and not each given the others; the two are
        the same for a variable whose sites depend on no other site
    complete : whether the target contains all discrete variables of the model; a discrete variable of another
        step can keep those of this one from moving
    """
    space = target.space
    # what two sites that change together may become is not in the differences of single ones
    several = (space.lower < space.upper) & ~space.constrained
    probability = np.stack([another_value(target, point) for point in points]) if target.exact else None
    by_variable = {}
    for m in space.members:
        sites = slice(m.start, m.start + m.size)
        jointly = complete and target.exact and (joint or depends_on_no_site(target, points[0], sites))
        of_sites = None if probability is None else probability[:, sites]
        by_variable[m.name] = Leaving(several[sites], of_sites, jointly)
    return by_variable


def another_value(target: Target, point: PointType) -> np.ndarray:
    """(d,) float, the probability that a site has another value than at `point`, given all other sites."""
    x, target = target.at(point)
    values, _ = (np.asarray(a) for a in target.space.neighbours(x))
    differences = np.asarray(target.differences(x), float)
    log_odds = logsumexp(np.where(values != x[:, None], differences, -np.inf), axis=1)
    return np.exp(log_odds - np.logaddexp(0.0, log_odds))


def depends_on_no_site(target: Target, point: PointType, sites: slice) -> bool:
    """Whether the conditionals of these sites are the same at a few random states of all sites.

    False if any site of the target has a window.
    """
    (x, target), rng = target.at(point), np.random.default_rng(0)
    space = target.space
    if space.windowed.any():
        return False
    states = [x, *(rng.integers(space.lower, space.upper + 1).astype(x.dtype) for _ in range(TRIED))]
    with np.errstate(invalid="ignore"):
        conditionals = [softmax(np.asarray(target.differences(y), float)[sites], axis=1) for y in states]
    return all(bool((np.abs(c - conditionals[0]) <= SAME).all()) for c in conditionals)


def by_chance(probability: float, draws: int, least: float) -> bool:
    """Whether `draws` draws without a move are plausible, given the probability of a move in one draw.

    False if that probability is below `least`, where a variable counts as fixed.
    """
    return probability >= least and probability * draws < CHANCE


def held(probability: float | None, joint: bool, draws: int) -> str | None:
    """The reason why a variable never moved in a chain, as part of a message; None if it is no problem.

    Parameters
    ----------
    probability : that any of its sites has another value, given everything else; None where it is not known
    joint : see `Leaving`
    draws : number of draws of the chain
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
