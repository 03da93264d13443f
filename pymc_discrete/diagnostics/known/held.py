"""Whether a site that never moved is certain, or is held at its value by the current values of other
unknowns.

A site whose other values are improbable at the last draws of the chains is certain only if these values stay
improbable whatever values the other unknowns have. To find out, the other unknowns get values at random, and
the conditionals of the site are compared.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from pymc.blocking import PointType

from pymc_discrete.diagnostics.thresholds import EQUAL_ODDS, EQUAL_ODDS_SHARE, POSSIBLE_IN_ONE_OF
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

# The conditionals of a site are compared at CONTEXTS random states of the other unknowns, or, if that is
# more, at EACH states for each value that the site may have (CONTEXTS values at most).
CONTEXTS, EACH = 32, 16
LARGEST_WORK = 2**33  # the largest number of operations to compare the conditionals of a block, a few seconds
# the distances by which variables outside of the block are moved, in units of their size, for one random
# state after another
DISTANCES = (0.0, 0.1, 1.0, 3.0, 10.0, 100.0)
# The largest number of passes. In each pass, the sites found certain so far keep their values while others
# are moved at random, so that more sites may turn out to be certain.
ROUNDS = 32
# Up to MOST_MOVED_ALONE elements outside of the block are moved one at a time, to see which hold a site; of
# more, a whole variable at a time.
MOST_MOVED_ALONE = 64
# the number of values on each side of the current one whose probability is computed for a site with a window
BESIDE = 64


class Conditionals(NamedTuple):
    """The conditionals of a block's sites, at any point of the model.

    Attributes
    ----------
    space : Space
    at : point -> (x (d,), target), as `Target.at`
    outside : names of the continuous variables that the block's log density reads
    complete : whether the model has no unknowns but those in `outside` and the block
    own : the variables in `outside` that nothing reads but their own priors and the block's log density, and
        that no prior of a variable of the block reads
    """

    space: Space
    at: Callable[[PointType], tuple[np.ndarray, Target]]
    outside: Sequence[str]
    complete: bool
    own: Sequence[str]


class Held(NamedTuple):
    """The unknowns on which the conditionals of sites depend, and which may hold sites at their values.

    Attributes
    ----------
    certain : (d,) bool, whether the odds of other values are the same whatever the other unknowns are
    alone : (d,) bool, whether a variable outside of the block enters the conditional of this site only, so
        that the site and the variable may hold each other
    by : for each site the names of the variables outside of the block that enter its conditional
    unused : for each site [(name, flat index, or None for a whole variable)], the elements outside of the
        block that enter the conditional of this site only and, where a chain ended, no term except their
        prior: these are parameters of another model, which another value of the site chooses
    among_models : (d,) bool, whether a site chooses between models that each have a parameter which the other
        model lacks: after the site changes, the parameters of the model that it left wander over their prior
    """

    certain: np.ndarray
    alone: np.ndarray
    by: list[tuple[str, ...]]
    unused: list[tuple[tuple[str, int | None], ...]]
    among_models: np.ndarray

    @classmethod
    def nothing(cls, d: int) -> "Held":
        """The `Held` of d sites that were not examined: none is certain, and no variable holds any."""
        return cls(np.zeros(d, bool), np.zeros(d, bool), [()] * d, [()] * d, np.zeros(d, bool))


def held(of: Conditionals, points: Sequence[PointType], improbable: np.ndarray, rare: float) -> Held:
    """Whether sites that never moved are certain, and the variables that may hold the other sites.

    Parameters
    ----------
    points : the model's point at the end of each chain
    improbable : (chains, d) bool, whether all other values of a site are improbable where a chain ended. If
        this holds in no chain the site is not examined, and only if it holds in all chains can the site be
        `certain` or `alone`.
    rare : a site with a window is `certain` only if the values around its current one, also those outside of
        the window, together have less than this probability
    """
    space, rng = of.space, np.random.default_rng(0)
    d, certain, sites = space.d, np.zeros(space.d, bool), improbable.all(axis=0)
    if of.complete and not space.constrained.any() and sites.any():
        contexts = max(CONTEXTS, EACH * min(space.K, CONTEXTS))
        work = contexts * cast(ModelDensity, of.at(points[0])[1].density).cost(one_site=False)
        for _ in range(int(min(LARGEST_WORK // work, ROUNDS))):
            found = sites & ~certain & same_everywhere(of, points, certain, contexts, rng)
            certain |= found
            if not found.any():
                break
        if (windowed := certain & space.windowed).any():
            certain &= ~windowed | (beyond_the_window(of, points[0], windowed) < rare)
    if not (improbable.any(axis=0) & ~certain).any():
        return Held.nothing(d)._replace(certain=certain)
    found = what_holds(of, different_ends(of, points))
    return found._replace(certain=certain, alone=found.alone & sites)


def same_everywhere(
    of: Conditionals, points: Sequence[PointType], fixed: np.ndarray, contexts: int, rng: np.random.Generator
) -> np.ndarray:
    """(d,) bool, whether the log odds of each other value are the same in random contexts.

    In each context about half of the sites that are not `fixed` (d,) have other values than at the first
    point, and variables outside of the block are moved. For a site that was moved, the difference back to its
    first value is minus the log odds of the new value, which are infinite if that value is impossible. A
    context in which the first value, or all values of the site, are impossible is left out.
    """
    space, rows = of.space, np.arange(of.space.d)
    first = of.at(points[0])[0]
    values, inside = (np.asarray(a) for a in space.neighbours(first))
    other = inside & (values != first[:, None])
    low, high = np.full(values.shape, np.inf), np.full(values.shape, -np.inf)
    shown, tried = np.zeros(space.d, int), np.zeros(space.d, int)
    for n in range(contexts):
        k = np.where(other, rng.random(values.shape), -1.0).argmax(axis=1)
        moved = other[rows, k] & ~fixed & (rng.random(space.d) < 0.5)
        y = np.where(moved, values[rows, k], first)
        point = elsewhere(points[n % len(points)], of.outside, DISTANCES[n % len(DISTANCES)], rng)
        lp, differences = (np.asarray(a, float) for a in of.at(point)[1].logdensity_and_differences(y))
        # at an impossible state, a difference of 0 says nothing, since both values may be impossible
        says = (differences != 0) | (lp > -np.inf)
        still = ~moved[:, None] & other & says
        low[still] = np.minimum(low[still], differences[still])
        high[still] = np.maximum(high[still], differences[still])
        now, there = (np.asarray(a) for a in space.neighbours(y))
        back = np.where(there & (now == first[:, None]) & says, differences, -np.inf).max(axis=1)
        possible = moved & (back > -np.inf)
        i, of_value = rows[possible], k[possible]
        low[i, of_value] = np.minimum(low[i, of_value], -back[possible])
        high[i, of_value] = np.maximum(high[i, of_value], -back[possible])
        shown, tried = shown + possible, tried + moved
    with np.errstate(invalid="ignore"):
        equal = (high == low) | (high - low <= EQUAL_ODDS + EQUAL_ODDS_SHARE * np.abs(high))
    return (
        (~other | (equal & (high < np.inf))).all(axis=1) & (shown > 0) & (POSSIBLE_IN_ONE_OF * shown >= tried)
    )


def elsewhere(point: PointType, names: Sequence[str], far: float, rng: np.random.Generator) -> PointType:
    """The point with some variables moved at random by `far` times their size, which is taken as 1
    at least."""
    moved = {}
    for name in names:
        a = np.asarray(point[name])
        moved[name] = (a + far * np.maximum(np.abs(a), 1.0) * rng.normal(size=a.shape)).astype(a.dtype)
    return {**point, **moved}


def beyond_the_window(of: Conditionals, point: PointType, sites: np.ndarray) -> np.ndarray:
    """(d,) float, the probability, given all else, of the `BESIDE` values on either side of the current value
    of a site, most of which its window leaves out; 0 for other sites than `sites` (d,).
    """
    x, target = of.at(point)
    steps = np.r_[-BESIDE:0, 1 : BESIDE + 1]
    moves = {}
    for n, (start, v) in enumerate(of.space.blocks):
        if len(chosen := np.flatnonzero(sites[start : start + v.size])):
            moves[n] = (chosen[:, None], (x[start + chosen][:, None] + steps)[..., None])
    p = np.zeros(of.space.d)
    for n, d in target.differences_jointly(x, moves).items():
        log_odds = np.logaddexp.reduce(np.asarray(d, float), axis=1)
        p[of.space.starts[n] + moves[n][0][:, 0]] = np.exp(log_odds - np.logaddexp(0.0, log_odds))
    return p


def different_ends(of: Conditionals, points: Sequence[PointType]) -> list[PointType]:
    """The first of the points, and others at which the block is in other states, as many as `LARGEST_WORK`
    operations are enough for.
    """
    density = cast(ModelDensity, of.at(points[0])[1].density)
    work = density.cost(one_site=False) * len(elements_outside(of, points[0]))
    by_state: dict[bytes, PointType] = {}
    for point in points:
        by_state.setdefault(of.at(point)[0].tobytes(), point)
    return list(by_state.values())[: max(1, int(LARGEST_WORK // max(work, 1)))]


def elements_outside(of: Conditionals, point: PointType) -> list[tuple[str, int | None]]:
    """(name, flat index) of each element that is moved alone outside of the block; index None for a whole
    variable.
    """
    each = sum(np.size(point[name]) for name in of.outside) <= MOST_MOVED_ALONE
    return [(name, i) for name in of.outside for i in (range(np.size(point[name])) if each else (None,))]


def what_holds(of: Conditionals, points: Sequence[PointType]) -> Held:
    """Which unknowns may hold sites: the attributes of `Held` except `certain`, found by moving elements
    outside of the block one at a time.
    """
    found = Held.nothing(of.space.d)
    by, unused = ([dict[Any, None]() for _ in range(of.space.d)] for _ in range(2))
    for point in points:
        x, target = of.at(point)
        lp, differences = (np.asarray(a, float) for a in target.logdensity_and_differences(x))
        possible = differences > -np.inf
        # for each other value of each site, whether after a change to this value the likelihood begins, or
        # ceases, to depend on some element outside of the block
        begins, ends = np.zeros(differences.shape, bool), np.zeros(differences.shape, bool)
        for name, i in elements_outside(of, point):
            moved, which = np.array(point[name], order="C"), slice(None) if i is None else i
            moved.reshape(-1)[which] += 0.5 * np.abs(moved.reshape(-1)[which]).clip(1.0)
            there = of.at({**point, name: moved})[1].logdensity_and_differences(x)
            lp_there, differences_there = (np.asarray(a, float) for a in there)
            changed = ~np.isclose(differences, differences_there, rtol=1e-6, atol=1e-6)
            sites = np.flatnonzero(changed.any(axis=1))
            for site in sites:
                by[site][name] = None
            if len(sites) != 1:
                continue
            found.alone[sites] = True
            if name not in of.own:
                continue
            if np.isclose(lp, lp_there, rtol=1e-9, atol=1e-9):
                unused[sites[0]][name, i] = None
                begins |= changed
            else:
                of_value, of_value_there = lp + differences, lp_there + differences_there
                ends |= possible & np.isclose(of_value, of_value_there, rtol=1e-6, atol=1e-6)
        found.among_models[:] |= (begins & ends).any(axis=1)
    return found._replace(by=[tuple(names) for names in by], unused=[tuple(one) for one in unused])


def outside_of(
    names: Sequence[str], point: Mapping[str, Any], continuous: Sequence[str]
) -> tuple[list[str], bool]:
    """The ones among some continuous variables that a log density reads, and whether the log density has no
    unknowns besides them.

    Parameters
    ----------
    names : the inputs of the log density, numbers among them
    continuous : names of the model's continuous variables
    """
    unknown = [name for name in names if name in point]
    return [name for name in unknown if name in continuous], set(unknown) <= set(continuous)
