"""Whether a site that never moved is certain, or kept at its value by the current values of other unknowns.

A site whose other values are improbable at the last draws of the chains is certain only if they are so at
all values that the other unknowns may have. Here these are given other values at random, and the conditionals
of the site are compared.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from pymc.blocking import PointType

from pymc_discrete.diagnostics.thresholds import EQUAL_ODDS, EQUAL_ODDS_SHARE, POSSIBLE_IN_ONE_OF
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

# The conditionals of a site are compared at this many random states of the other unknowns, or, if that is
# more, at EACH states for each value that a site may have (of CONTEXTS values at most).
CONTEXTS, EACH = 32, 16
LARGEST_WORK = 2**33  # most operations that are spent on this comparison, a few seconds
# how far variables outside of the block are moved, in units of their size
DISTANCES = (0.0, 0.1, 1.0, 3.0, 10.0, 100.0)
# Largest number of passes. In each, the sites found certain so far keep their values while others are moved
# at random, so that more sites may turn out to be certain.
ROUNDS = 32
MOST_MOVED_ALONE = 64  # with more elements outside of the block, they are moved a variable at a time
BESIDE = 64  # how many values below and above the current one are looked at, of a site with a window


class Conditionals(NamedTuple):
    """The conditionals of a block's sites, at any point of the model.

    Attributes
    ----------
    space : Space
    at : point -> (x (d,), target), as `Target.at`
    outside : names of the continuous variables that the block's log density reads
    complete : whether nothing else is unknown but these and the block
    """

    space: Space
    at: Callable[[PointType], tuple[np.ndarray, Target]]
    outside: Sequence[str]
    complete: bool


class Held(NamedTuple):
    """Which other unknowns the conditionals of sites depend on, and so may keep sites at their values.

    Attributes
    ----------
    certain : (d,) bool, whether the odds of other values are the same whatever the other unknowns are
    alone : (d,) bool, whether a variable outside of the block enters the conditional of this site only, so
        that each may keep the other at its value
    by : for each site the names of the variables outside of the block that enter its conditional
    unused : (name, flat index, or None for a whole variable) of elements outside of
        the block that do not enter its log density at the state, and do where a site has another value
    """

    certain: np.ndarray
    alone: np.ndarray
    by: list[tuple[str, ...]]
    unused: list[tuple[str, int | None]]


def held(of: Conditionals, points: Sequence[PointType], sites: np.ndarray, rare: float) -> Held:
    """Whether sites that never moved are certain, and which variables may keep the others at their values.

    Parameters
    ----------
    points : the model's point at the end of each chain
    sites : (d,) bool, those that never moved; of others the result says nothing
    rare : values of a windowed site that its window leaves out must have a smaller probability in all
    """
    space, rng = of.space, np.random.default_rng(0)
    d, certain = space.d, np.zeros(space.d, bool)
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
    if not (sites & ~certain).any():
        return Held(certain, np.zeros(d, bool), [()] * d, [])
    return Held(certain, *what_holds(of, points[0]))


def same_everywhere(
    of: Conditionals, points: Sequence[PointType], fixed: np.ndarray, contexts: int, rng: np.random.Generator
) -> np.ndarray:
    """(d,) bool, whether the log odds of each other value are the same in random contexts.

    In each context about half of the sites that are not `fixed` (d,) have other values than at the first
    point, and variables outside of the block are moved. Of a site that was moved, the difference back to its
    first value is minus the log odds of the new one, which are infinite where that is impossible; a context
    in which the first value, or all values of the site, are impossible is left out.
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
        # at an impossible state a difference of 0 says nothing: both values may be impossible
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
    """The point with some variables moved at random, `far` times their size, which counts as 1 at least."""
    moved = {}
    for name in names:
        a = np.asarray(point[name])
        moved[name] = (a + far * np.maximum(np.abs(a), 1.0) * rng.normal(size=a.shape)).astype(a.dtype)
    return {**point, **moved}


def beyond_the_window(of: Conditionals, point: PointType, sites: np.ndarray) -> np.ndarray:
    """(d,) float, the probability of the `BESIDE` values to either side of windowed sites, given all else."""
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


def what_holds(
    of: Conditionals, point: PointType
) -> tuple[np.ndarray, list[tuple[str, ...]], list[tuple[str, int | None]]]:
    """`alone`, `by` and `unused` of `Held`, found by moving elements outside of the block one at a time."""
    x, target = of.at(point)
    lp, differences = (np.asarray(a, float) for a in target.logdensity_and_differences(x))
    alone, by, unused = np.zeros(len(x), bool), [dict[str, None]() for _ in x], list[tuple[str, int | None]]()
    each = sum(np.size(point[name]) for name in of.outside) <= MOST_MOVED_ALONE
    for name in of.outside:
        size = np.abs(point[name]).clip(1.0)
        for i in range(np.size(point[name])) if each else (None,):
            moved = np.array(point[name])
            which = slice(None) if i is None else i
            moved.reshape(-1)[which] += 0.5 * size.reshape(-1)[which].astype(moved.dtype)
            there = of.at({**point, name: moved})[1].logdensity_and_differences(x)
            changed = ~np.isclose(differences, np.asarray(there[1]), rtol=1e-6, atol=1e-6).all(axis=1)
            if changed.any() and np.isclose(lp, float(there[0]), rtol=1e-9, atol=1e-9):
                unused.append((name, i))
            if changed.sum() == 1:
                alone |= changed
            for site in np.flatnonzero(changed):
                by[site][name] = None
    return alone, [tuple(names) for names in by], unused


def outside_of(
    names: Sequence[str], point: Mapping[str, Any], continuous: Sequence[str]
) -> tuple[list[str], bool]:
    """The continuous variables among some that a log density reads, and whether all unknown ones are.

    Parameters
    ----------
    names : the inputs of the log density, numbers among them
    continuous : names of the model's continuous variables
    """
    unknown = [name for name in names if name in point]
    return [name for name in unknown if name in continuous], set(unknown) <= set(continuous)
