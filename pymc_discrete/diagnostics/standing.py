"""Discrete variables that never move, and whether that indicates a problem.

A site that never moves may have only one possible value, or other values so improbable that none of them was
to be expected in this number of draws, or other values that the step cannot reach. If the conditional of the
site is exact, it distinguishes the first two cases from the third.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
from pymc.blocking import PointType
from pytensor.tensor.random.op import RandomVariable
from scipy.special import logsumexp

from pymc_discrete.diagnostics.held import Conditionals, Held, held, outside_of
from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.model.support import known, parameters
from pymc_discrete.runtime.names import element_of, shown
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

# fewest draws of a chain for which a variable that never moved is reported
FEWEST = 100
# if all other values together have a smaller probability, given everything else, a variable counts as fixed
RARE = 1e-9
# if more moves than this are expected, a chain without any is no coincidence: its probability is below e^-7,
# or 1 in 1,100
CHANCE = 7.0
# if fewer moves than this are expected in a chain, a site that did move did so while the other unknowns had
# other values than now
FEW = 1e-3
MOST = 2**14  # most moves of sites that change together which are evaluated
LARGEST_SUPPORT = 64  # most values of a site for which its prior is looked at


class Leaving(NamedTuple):
    """How probable it is that the sites of a variable have another value, given everything else.

    Attributes
    ----------
    several : (elements,) bool, whether a site has more than one value
    probability : (chains, elements), at the end of each chain; None where conditionals are estimates
    joint : whether the sites are drawn from their joint distribution given all continuous variables, so that
        no other site can keep them from moving
    together : of sites that change only together, what keeps them from moving, as part of a message
    certain : (elements,) bool, whether the odds of other values are the same wherever the rest of the model
        is
    alone : (elements,) bool, whether a continuous variable enters the conditional of this site only, so that
        each may hold the other
    by : names of the continuous variables that enter the conditionals of those sites
    unused : names of elements of these that do not enter the likelihood where the chain ended, and do where a
        site has another value
    summed : whether the variable is summed out, and drawn exactly given the others
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

    @property
    def least(self) -> np.ndarray:
        """(elements,) float, the least probability of another value of all chains, infinite if unknown.

        The rest of the model may have left an element free for a moment where one of the chains ended.
        """
        if self.probability is None:
            return np.full(len(self.several), np.inf)
        return np.where(np.isnan(self.probability), np.inf, self.probability).min(axis=0)

    @property
    def is_certain(self) -> np.ndarray:
        """`certain`, False where it is not known."""
        return np.zeros(len(self.several), bool) if self.certain is None else self.certain

    @property
    def is_alone(self) -> np.ndarray:
        """`alone`, False where it is not known."""
        return np.zeros(len(self.several), bool) if self.alone is None else self.alone


def leaving(
    target: Target,
    model: pm.Model,
    points: Sequence[PointType],
    joint: bool,
    complete: bool,
    one_by_one: bool = True,
) -> dict[str, Leaving]:
    """{variable: Leaving}: the probability of other values at a point of each chain.

    Of windowed sites, only the other values within the window are counted.

    Parameters
    ----------
    points : the model's point, for each chain
    joint : whether the step draws the sites of the target jointly, and not each given the others
    one_by_one : whether it draws each from its conditional given the others, which is the same for a variable
        whose sites depend on no other site
    complete : whether the target contains all discrete variables of the model; a discrete variable of another
        step can keep those of this one from moving
    """
    read = [str(v.name) for v in cast(ModelDensity, target.density).graph.others]
    continuous = [str(v.name) for v in model.continuous_value_vars]
    outside, known_else = outside_of(read, points[0], continuous)
    conditionals = Conditionals(target.space, target.at, outside, known_else)
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
    """As `leaving`, with the target of `conditionals`; `summed` says that its variables are summed out."""
    space, target = conditionals.space, conditionals.at(points[0])[1]
    several = several_values(space)
    probability, rest = None, Held(np.zeros(space.d, bool), np.zeros(space.d, bool), [()] * space.d, [])
    if target.exact:
        probability = np.stack([another_value(*conditionals.at(point)) for point in points])
        rare = (np.nan_to_num(probability, nan=1.0) < FEW).all(axis=0) & several
        if rare.any():
            rest = held(conditionals, points, rare, RARE)
    free = ~target.density.interactions.linked
    by_variable = {}
    for m in space.members:
        sites = slice(m.start, m.start + m.size)
        constraint = next((v.constraint for a, v in space.blocks if a <= m.start < a + v.size), None)
        together = "" if constraint is None else constraint.stands_still
        # of a site with a window a draw sees a part of the values only
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
            tuple(element_of(model, name, np.shape(points[0][name]), i) for name, i in rest.unused),
            summed,
        )
    return by_variable


def impossible_by_prior(
    model: pm.Model, name: str, shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """(elements,) bool, whether the prior of a variable allows a single value between the bounds of each.

    Such as an edge of a network whose probability is 0. None where the prior's parameters are unknown, or an
    element has more than `LARGEST_SUPPORT` values.
    """
    none = np.zeros(lower.size, bool)
    rv = next((rv for rv in model.free_RVs if model.rvs_to_values[rv].name == name), None)
    if rv is None:
        return none
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp or (upper - lower).max() >= LARGEST_SUPPORT:
        return none
    if any(known(parameter) is None for parameter in parameters(rv)):
        return none
    values = lower + np.arange((upper - lower).max() + 1)[:, None]
    stacked = np.minimum(values, upper).reshape(-1, *shape)
    logp = np.stack([pm.logp(rv, a, warn_rvs=False).eval(mode="FAST_COMPILE") for a in stacked])
    return ((logp.reshape(values.shape) > -np.inf) & (values <= upper)).sum(axis=0) == 1


def several_values(space: Space) -> np.ndarray:
    """(d,) bool, whether a site has more than one value between its bounds, and along known sums."""
    several = space.lower < space.upper
    for start, v in space.blocks:
        if v.constraint is not None:
            several[start : start + v.size] &= v.constraint.changing
    return several


def another_value(x: np.ndarray, target: Target) -> np.ndarray:
    """(d,) float, the probability that a site has another value than in x (d,), given all other sites.

    For sites that change only together it is that of a pair, or of a vector that keeps their sums, given all
    others, in the mean over those that the site belongs to; nan where these are too many.
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
            found = v.constraint.all_moves(x[own], values[own, : v.K], v.drawn_among + 1, MOST)
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
    """(n,) float, the probability of any of the other values, with `differences` (n, K) in nats to them."""
    log_odds = logsumexp(differences, axis=1)
    return np.exp(log_odds - np.logaddexp(0.0, log_odds))


def by_chance(probability: float, draws: int, least: float) -> bool:
    """Whether `draws` draws without a move are plausible, given the probability of a move in one draw.

    False if that probability is below `least`, where a variable counts as fixed.
    """
    return probability >= least and probability * draws < CHANCE


# ---------------------------------------------------------------- verdicts on elements that never moved
def words_of_still(known: Leaving | None, still: np.ndarray, draws: int) -> np.ndarray:
    """A word for each element that has the same value in all draws; see `diagnostics.verdicts.verdicts`.

    Parameters
    ----------
    known : of the variable, where it is known
    still : (elements,) bool, which elements these are; the words of others mean nothing
    draws : number of draws of a chain

    Returns
    -------
    (elements,) of "fixed", "certain", "stuck" and "constant"
    """
    found = np.full(len(still), "constant", object)
    if known is None:
        return found
    if known.probability is not None:
        judged = ~np.isnan(known.probability).all(axis=0)
        expected = np.where(judged, known.least, 0.0) * len(known.probability) * draws
        found[judged & known.is_certain] = "certain"
        several = known.several & judged
        # of many elements that are each expected to move rarely, some should have moved
        together = still[known.several].all() and expected[several].sum() >= CHANCE
        found[several & (expected >= (FEW if together else CHANCE))] = "stuck"
    found[~known.several] = "fixed"
    return found


def remarkable(known: Leaving | None, words: np.ndarray, draws: int) -> np.ndarray:
    """(elements,) bool, which constant elements may have other values that were not seen for a reason.

    Parameters
    ----------
    words : (elements,), as `words_of_still` gives them
    draws : number of draws of all chains
    """
    constant = words == "constant"
    if known is None or known.probability is None:
        return constant & (known is None or not known.summed)
    p = np.nanmean(np.where(np.isnan(known.probability), 1.0, known.probability), axis=0)
    rare = (p >= RARE) & (known.least * draws < CHANCE)  # so that none was to be expected
    return constant & (known.is_alone | ~(rare | known.joint))


def why_still(
    name: str, known: Leaving | None, words: np.ndarray, draws: int, remedies: Remedies
) -> str | None:
    """Why a variable has the same values in all draws, as part of a message; None if it is no problem.

    Parameters
    ----------
    words : (elements,), as `words_of_still` gives them
    draws : number of draws of all chains
    remedies : Remedies
    """
    if (words == "stuck").any():
        try_this = remedies.by_site([name]) or "a longer run, or other initvals="
        return (
            f"though given everything else other values are probable: the step cannot move it. Try {try_this}"
        )
    odd = remarkable(known, words, draws)
    if not odd.any() or known is None:
        return None if not odd.any() else "either the data leave one value only, or the step cannot move it"
    if known.probability is None:
        return "either the data leave one value only, or the step cannot move it"
    if (known.is_alone & odd).any():
        return held_outside(repr(name), known)
    if known.together:
        return (
            f"given everything else, {known.together} (with a probability of {RARE:g} or more). Either the "
            "data leave one value only, or more must change at once: see whether other initvals= end "
            "elsewhere. Write hard conditions as known sums, which draws keep "
            "(docs/linear_constraints.md), or, where they are none, as a soft likelihood"
        )
    return (
        f"given everything else, other values have a probability below {RARE:g}. Either the data leave "
        "one value only, or several sites must change together: see whether other initvals= end "
        f"elsewhere. {remedies.along_sums([name])}; to change more at once, try "
        f"{remedies.several_sites([name])}"
    )


def held_outside(name: str, known: Leaving) -> str:
    """The message about a variable that continuous ones keep at its value, as it keeps them at theirs."""
    by = shown(known.by)
    is_at, holds, stands = ("are", "hold", "stand") if len(known.by) > 1 else ("is", "holds", "stands")
    return (
        f"given where {by} {is_at}, other values are improbable, but {name} need not be certain: {by} "
        f"{holds} it there, and {stands} where {name} has it. {of_models(name, known)}"
    )


def of_models(name: str, known: Leaving) -> str:
    """The remedy where a discrete variable and continuous ones keep each other where they are."""
    unused = ""
    if known.unused:
        several = len(known.unused) > 1
        does, wanders = ("do", "wander over their priors") if several else ("does", "wanders over its prior")
        unused = (
            f"{shown(known.unused)} {does} not enter the likelihood where a chain ended and {wanders}: "
            f"{name} chooses among models. "
        )
    return (
        f"{unused}How probable its values are, pmd.log_evidence tells, of the model with each of them: "
        f"pmd.log_evidence(pm.observe(model, {{{name}: value}}))"
    )
