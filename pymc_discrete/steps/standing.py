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

from pymc_discrete.targets.linear_constraint import LinearConstraint
from pymc_discrete.targets.space import Space
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
MOST = 2**14  # most moves of sites that change together which are evaluated
STEPS = 8  # farthest that sites are followed along a vector, in either direction


class Leaving(NamedTuple):
    """How probable it is that the sites of a variable have another value, given everything else.

    Attributes
    ----------
    several : (elements,) bool, whether a site has more than one value
    probability : (chains, elements), at the end of each chain; None where conditionals are estimates
    joint : whether the sites are drawn from their joint distribution given all continuous variables, so that
        no other site can keep them from moving
    together : of sites that change only together, what keeps them from moving, as part of a message
    """

    several: np.ndarray
    probability: np.ndarray | None
    joint: bool
    together: str = ""


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
    several = several_values(space)
    probability = np.stack([another_value(target, point) for point in points]) if target.exact else None
    by_variable = {}
    for m in space.members:
        sites = slice(m.start, m.start + m.size)
        constraint = next((v.constraint for a, v in space.blocks if a <= m.start < a + v.size), None)
        together = "" if constraint is None else constraint.stands_still
        jointly = (
            not together
            and complete
            and target.exact
            and (joint or depends_on_no_site(target, points[0], sites))
        )
        of_sites = None if probability is None else probability[:, sites]
        if of_sites is not None and np.isnan(of_sites).any():
            of_sites = None
        by_variable[m.name] = Leaving(several[sites], of_sites, jointly, together)
    return by_variable


def several_values(space: Space) -> np.ndarray:
    """(d,) bool, whether a site has more than one value between its bounds, and along known sums."""
    several = space.lower < space.upper
    for start, v in space.blocks:
        if isinstance(v.constraint, LinearConstraint):
            for sites, basis in zip(v.constraint.sites, v.constraint.bases, strict=True):
                several[start + sites] &= (basis != 0).any(axis=0)
    return several


def another_value(target: Target, point: PointType) -> np.ndarray:
    """(d,) float, the probability that a site has another value than at `point`, given all other sites.

    For sites that change only together it is that of a pair, or of a vector that keeps their sums, given all
    others, in the mean over those that the site belongs to; nan where these are too many.
    """
    x, target = target.at(point)
    space = target.space
    values, _ = (np.asarray(a) for a in space.neighbours(x))
    differences = np.asarray(target.differences(x), float)
    changed = chance(np.where(values != x[:, None], differences, -np.inf))
    if not space.constrained.any():
        return changed
    changed[space.constrained] = np.nan
    moves = {n: m for n in range(len(space.variables)) if (m := joint_moves(space, n, x)) is not None}
    if not moves:
        return changed
    for n, d in target.differences_jointly(x, moves).items():
        (sites, values), (start, v) = moves[n], space.blocks[n]
        now = x[start + sites][:, None]
        of_rows = chance(np.where((values != now).any(axis=-1), np.asarray(d, float), -np.inf))
        belongs = np.zeros((len(sites), v.size), bool)
        belongs[np.arange(len(sites))[:, None], sites] = True
        changed[start : start + v.size] = of_rows @ belongs / np.maximum(belongs.sum(axis=0), 1)
    return changed


def chance(differences: np.ndarray) -> np.ndarray:
    """(n,) float, the probability of any of the other values, with `differences` (n, K) in nats to them."""
    log_odds = logsumexp(differences, axis=1)
    return np.exp(log_odds - np.logaddexp(0.0, log_odds))


def joint_moves(space: Space, n: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(sites (r, m), values (r, C, m)), the moves from x (d,) of sites of a variable that change together.

    All pairs, or all short vectors that keep known sums; None if there are none, or more than `MOST`.

    Parameters
    ----------
    n : number of the variable
    """
    start, v = space.blocks[n]
    if isinstance(v.constraint, LinearConstraint):
        lines = v.constraint.lines(v.constraint.moving)
        real = np.arange(lines.sites.shape[1]) < lines.number[:, None]
        sites, steps = lines.sites[real], lines.steps[real]
        t = np.arange(-STEPS, STEPS + 1)
        if not 0 < len(sites) * len(t) <= MOST:
            return None
        return sites, x[start + sites][:, None] + t[:, None] * steps[:, None]
    if v.constraint is None:
        return None
    sets, c = v.constraint.sites.shape
    if not 0 < sets * (c * (c - 1) // 2) * (v.drawn_among + 1) <= MOST:
        return None
    sites = v.constraint.pairs
    now = x[start + sites]
    first = v.lower[sites[:, :1]] + np.arange(v.K) if v.finite else now[:, :1] + np.asarray(v.offsets)
    return sites, np.asarray(v.constraint.candidates(first, now))


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


def held(probability: float | None, joint: bool, draws: int, together: str = "") -> str | None:
    """The reason why a variable never moved in a chain, as part of a message; None if it is no problem.

    Parameters
    ----------
    probability : that any of its sites has another value, given everything else; None where it is not known
    joint, together : see `Leaving`
    draws : number of draws of the chain
    """
    if probability is None:
        return "either the data leave one value only, or the step cannot move it"
    if by_chance(probability, draws, RARE) or (joint and probability < RARE):
        return None
    if probability < RARE and together:
        return (
            f"given everything else, {together} (with a probability of {RARE:g} or more). Either the data "
            "leave one value only, or more must change at once: see whether other initvals= end elsewhere. "
            "Write hard conditions as known sums, which draws keep (docs/linear_constraints.md), or, where "
            "they are none, as a soft likelihood"
        )
    if probability < RARE:
        return (
            f"given everything else, other values have a probability below {RARE:g}. Either the data leave "
            "one value only, or several sites must change together: see whether other initvals= end "
            "elsewhere. pmd.BlockGibbs moves sites along known sums (docs/linear_constraints.md), and paths "
            "of several moves change more at once: pmd.PathAuxiliary(path_length=5, recompute=True)"
        )
    return (
        "though given everything else other values are probable: the step cannot move it. Try "
        "pmd.BlockGibbs, or differences='exact'"
    )
