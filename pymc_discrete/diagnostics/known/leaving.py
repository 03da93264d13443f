"""The probability that elements of a discrete variable have another value, given everything else.

A site that never moves may have only one possible value, or other values so improbable that none of them is
expected in the draws of a run, or other values that the step cannot reach. If the conditional of the site is
exact, it distinguishes the first two cases from the third.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
from pymc.blocking import PointType
from pytensor.tensor.random.op import RandomVariable

from pymc_discrete.diagnostics.known.held import Conditionals, Held, held, outside_of
from pymc_discrete.diagnostics.thresholds import HARDLY_MOVES, IMPROBABLE
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.model.support import known, parameters
from pymc_discrete.runtime.names import element_of
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

MOST_JOINT_MOVES = 2**14  # the most moves of several sites together that are evaluated for a probability
LARGEST_PRIOR_SUPPORT = 64  # the prior of a site is computed if it has at most this many values


class Leaving(NamedTuple):
    """The probability that the sites of a variable have another value, given everything else.

    Attributes
    ----------
    several : (elements,) bool, whether a site has more than one value
    probability : (chains, elements), the probability at the end of each chain; None where conditionals are
        estimates
    joint : whether the sites are drawn from their joint distribution given all continuous variables, so that
        no other site can keep them from moving
    together : for sites that change only together, the reason why they may not move, as part of a message
    certain : (elements,) bool, whether the odds of other values are the same at all values of the other
        unknowns
    alone : (elements,) bool, whether a continuous variable enters the conditional of this site only, so that
        the site and the variable may hold each other
    by : names of the continuous variables that enter the conditionals of the variable's sites; empty unless a
        site hardly moves
    unused : names of elements of continuous variables that do not enter the likelihood where a chain ended,
        but enter it if a site has another value
    summed : whether the variable is summed out, and drawn exactly given the others
    among_models : (elements,) bool, whether a site chooses between models that each have a parameter which
        the other model lacks
    """

    several: np.ndarray
    probability: np.ndarray | None
    joint: bool
    together: str = ""
    certain: np.ndarray | None = None
    alone: np.ndarray | None = None
    by: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    summed: bool = False
    among_models: np.ndarray | None = None

    @property
    def least(self) -> np.ndarray:
        """(elements,) float, the smallest probability of another value in any chain; infinite if unknown.

        The smallest is taken, since other unknowns may have left an element free for a moment where one chain
        ended.
        """
        if self.probability is None:
            return np.full(len(self.several), np.inf)
        return np.where(np.isnan(self.probability), np.inf, self.probability).min(axis=0)

    @property
    def is_certain(self) -> np.ndarray:
        """(elements,) bool, `certain`: whether the odds of other values are the same at all values of the
        other unknowns; False where this is not known.
        """
        return np.zeros(len(self.several), bool) if self.certain is None else self.certain

    @property
    def is_alone(self) -> np.ndarray:
        """(elements,) bool, `alone`: whether a continuous variable enters the conditional of the site only;
        False where this is not known.
        """
        return np.zeros(len(self.several), bool) if self.alone is None else self.alone

    @property
    def is_among_models(self) -> np.ndarray:
        """(elements,) bool, `among_models`: whether the site chooses between models with parameters of their
        own; False where this is not known.
        """
        return np.zeros(len(self.several), bool) if self.among_models is None else self.among_models


def leaving(
    target: Target,
    model: pm.Model,
    points: Sequence[PointType],
    joint: bool,
    complete: bool,
    one_by_one: bool = True,
) -> dict[str, Leaving]:
    """{variable: Leaving}, the probability of other values at a point of each chain.

    For windowed sites, only the other values within the window are counted.

    Parameters
    ----------
    points : a point of the model for each chain
    joint : whether the step draws the sites of the target jointly, and not each given the others
    one_by_one : whether the step draws each site from its conditional given the others, which is a joint draw
        if no site depends on another
    complete : whether the target contains all discrete variables of the model; otherwise a discrete variable
        of another step can keep the variables of this step from moving
    """
    graph = cast(ModelDensity, target.density).graph
    read = [name for v in graph.read for name in graph.groups[v]]
    continuous = [str(v.name) for v in model.continuous_value_vars]
    outside, known_else = outside_of(read, points[0], continuous)
    own = [name for v in graph.read_by_block_alone for name in graph.groups[v]]
    conditionals = Conditionals(target.space, target.at, outside, known_else, own)
    return leaving_by(conditionals, model, points, joint, complete, one_by_one=one_by_one)


def leaving_by(
    conditionals: Conditionals,
    model: pm.Model,
    points: Sequence[PointType],
    joint: bool,
    complete: bool,
    summed: bool = False,
    one_by_one: bool = True,
) -> dict[str, Leaving]:
    """{variable: Leaving}, the probability of other values at a point of each chain, given conditionals.

    Parameters
    ----------
    conditionals : the conditionals of the sites at any point of the model
    points, joint, complete, one_by_one : as in `leaving`
    summed : whether the variables are summed out
    """
    space, target = conditionals.space, conditionals.at(points[0])[1]
    several = several_values(space)
    probability, rest = None, Held.nothing(space.d)
    if target.exact:
        probability = np.stack([another_value(*conditionals.at(point)) for point in points])
        rare = (np.nan_to_num(probability, nan=1.0) < HARDLY_MOVES) & several
        if rare.any():
            rest = held(conditionals, points, rare, IMPROBABLE)
    free = ~target.density.interactions.linked
    by_variable = {}
    for m in space.members:
        sites = slice(m.start, m.start + m.size)
        constraint = next((v.constraint for a, v in space.blocks if a <= m.start < a + v.size), None)
        together = "" if constraint is None else constraint.stands_still
        # `alone`: whether a draw takes every site by itself and may give it any of its values; a site with
        # a window reaches only some of its values.
        alone = one_by_one and bool((free & ~space.windowed)[sites].all())
        jointly = not together and complete and target.exact and (joint or alone)
        of_sites = None if probability is None else probability[:, sites]
        if of_sites is not None and np.isnan(of_sites).any():
            of_sites = None
        single = several[sites]
        if of_sites is not None and (never := single & (of_sites == 0).all(axis=0)).any():
            bounds = m.shape, space.lower[sites], space.upper[sites]
            single = single & ~(never & impossible_by_prior(model, m.name, *bounds))
        by_variable[m.name] = Leaving(
            single,
            of_sites,
            jointly,
            together,
            rest.certain[sites],
            rest.alone[sites],
            tuple(dict.fromkeys(name for names in rest.by[sites] for name in names)),
            tuple(
                element_of(model, name, np.shape(points[0][name]), i)
                for name, i in dict.fromkeys(one for of_site in rest.unused[sites] for one in of_site)
            ),
            summed,
            rest.among_models[sites],
        )
    return by_variable


def impossible_by_prior(
    model: pm.Model, name: str, shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """(elements,) bool, whether the prior allows each element only one value between its bounds.

    An example is an edge of a network whose probability is 0. All are False if parameters of the prior are
    unknown, or if an element has more than `LARGEST_PRIOR_SUPPORT` values.
    """
    none = np.zeros(lower.size, bool)
    rv = next((rv for rv in model.free_RVs if model.rvs_to_values[rv].name == name), None)
    if rv is None:
        return none
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp or (upper - lower).max() >= LARGEST_PRIOR_SUPPORT:
        return none
    if any(known(parameter) is None for parameter in parameters(rv)):
        return none
    values = lower + np.arange((upper - lower).max() + 1)[:, None]
    stacked = np.minimum(values, upper).reshape(-1, *shape)
    logp = np.stack([pm.logp(rv, a, warn_rvs=False).eval(mode="FAST_COMPILE") for a in stacked])
    return ((logp.reshape(values.shape) > -np.inf) & (values <= upper)).sum(axis=0) == 1


def several_values(space: Space) -> np.ndarray:
    """(d,) bool, whether a site has several values between its bounds that known sums allow."""
    several = space.lower < space.upper
    for start, v in space.blocks:
        if v.constraint is not None:
            several[start : start + v.size] &= v.constraint.changing
    return several


def another_value(x: np.ndarray, target: Target) -> np.ndarray:
    """(d,) float, the probability that a site has another value than in x (d,), given all other sites.

    For sites that change only together it is the probability that a pair changes, or that sites change along
    a vector that keeps their sums, given all other sites: a mean over all pairs or vectors that the site is
    in, and nan if there are too many of them.
    """
    space = target.space
    values, _ = (np.asarray(a) for a in space.neighbours(x))
    differences = np.asarray(target.differences(x), float)
    changed = chance(np.where(values != x[:, None], differences, -np.inf))
    if not space.constrained.any():
        return changed
    changed[space.constrained] = np.nan
    moves = {}
    for n, (start, v) in enumerate(space.blocks):
        if v.constraint is not None:
            own = slice(start, start + v.size)
            found = v.constraint.all_moves(x[own], values[own, : v.K], v.drawn_among + 1, MOST_JOINT_MOVES)
            if found is not None:
                moves[n] = found
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
    """(n,) float, the probability that the value changes, from the `differences` (n, K), in nats, of the log
    density at each other value.
    """
    log_odds = np.logaddexp.reduce(differences, axis=1)
    return np.exp(log_odds - np.logaddexp(0.0, log_odds))
