"""The block of a compiled chain that runs blackjax's NUTS, with Stan's staged warm-up."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pytensor.tensor.random.basic import CategoricalRV, MultinomialRV

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine import mass_matrix, warm_up
from pymc_discrete.engine.block import TUNE, Block, GradientNotFinite
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.statistic import ANY, MEAN, SUM, Statistic
from pymc_discrete.engine.storage import on_host
from pymc_discrete.engine.warm_up import Mass, StepSize
from pymc_discrete.runtime.float32 import floats_are_32_bit
from pymc_discrete.runtime.names import shown, untransformed
from pymc_discrete.starts.not_finite import terms_at

# a warning is given if more than the share EDGE of the trajectories diverges at points of log density -inf
EDGE = 0.01
SIMPLEX = (CategoricalRV, MultinomialRV)  # distributions whose parameter p must sum to 1


# the keys of settings of the run, see `Block.settings`
TARGET = "/target acceptance of NUTS"  # the target acceptance, () float
# (at least TUNE, 2) int: for each draw whether the mass matrix is estimated from it, and whether the estimate
# ends with it
SCHEDULE = "/schedule of NUTS"


class Edge(NamedTuple):
    """Trajectories after tuning that diverged at a point of log density -inf.

    Attributes
    ----------
    count : () int, the number of such trajectories
    q : (size,) float, the point at which the last of them diverged
    """

    count: Any
    q: Any


class Here(NamedTuple):
    """The log density and its gradient at the point of a chain.

    Attributes
    ----------
    logdensity : () float, nats, of the terms that depend on the block's variables
    slope : (size,) float, the gradient of `logdensity` by these variables
    """

    logdensity: Any
    slope: Any


class NutsState(NamedTuple):
    """The adaptation state of NUTS in a chain.

    Attributes
    ----------
    step_size : StepSize, of the adaptation of the step size
    mass : Mass, of the adaptation of the mass matrix
    scores : (size, size) float
        The sum of the outer products of the gradients in the current adaptation window; None if the kind of
        the mass matrix is given.
    undefined : (size,) bool, where the gradient was not finite at the start of the chain
    edge : Edge, the trajectories after tuning that left the support
    here : Here, or None if other blocks move variables that the density depends on
    """

    step_size: StepSize
    mass: Mass
    scores: Any
    undefined: Any
    edge: Edge
    here: Here | None = None


class OfBlackjax(NamedTuple):
    """The functions of blackjax that a transition uses.

    Attributes
    ----------
    init : (point, log density) -> state of NUTS
    state : (point, its log density, the gradient there) -> state of NUTS
    kernel : a transition of NUTS
    step_size : target acceptance -> the functions (init, update, final) that adapt the step size
    mass_update, mass_final : the functions that adapt the mass matrix
    """

    init: Callable
    state: Callable
    kernel: Callable
    step_size: Callable
    mass_update: Callable
    mass_final: Callable


class NutsBlock(Block):
    """NUTS for the continuous value variables of a model.

    Parameters
    ----------
    model : pm.Model
    names : the value variables to move
    point : {value variable: array}, a point that gives the shapes of the variables
    points : which of its discrete variables a chain keeps together in one vector
    tune : number of tuning draws
    target_accept : acceptance that the step size is tuned to
    max_treedepth : the largest depth of the tree of a trajectory
    dense : whether the mass matrix is dense; "auto" if tuning chooses
    pooled : whether the chains share one step size and mass matrix
    integrate : names of value variables that are integrated out, and drawn by another block
    alone : whether the density depends on no variable that another block moves; the gradient at the start of
        a draw is then the gradient at the end of the previous draw, and is not computed again

    Attributes
    ----------
    shared_ends : tuning draws after which pooled chains update their common mass matrix
    """

    leaves_impossible = False
    start_program = True
    stats: Mapping[str, Statistic] = {
        "acceptance_rate": Statistic(float, MEAN),
        "diverging": Statistic(bool, ANY),
        "energy": Statistic(float),
        "lp": Statistic(float),
        "n_steps": Statistic(int, SUM),
        "reached_max_treedepth": Statistic(bool, ANY),
        "step_size": Statistic(float),
        "step_size_bar": Statistic(float),
        "tree_depth": Statistic(int),
    }

    def __init__(
        self,
        model: pm.Model,
        names: list[str],
        point: dict[str, np.ndarray],
        points: Points,
        tune: int,
        target_accept: float,
        *,
        max_treedepth: int,
        dense: bool | str,
        pooled: bool,
        integrate: Sequence[str] = (),
        alone: bool = False,
    ):
        self.points, self.max_treedepth, self.pooled, self.knows_point = points, max_treedepth, pooled, alone
        self.density, self.numbers = ContinuousDensity.of(
            model, names, point, points.names, integrate=integrate
        )
        self.density.untouched.check_in_jax()
        # If tuning chooses between a diagonal and a dense mass matrix, a diagonal one is stored with all
        # elements, too: to compile NUTS a second time, for diagonal matrices, would take longer than the
        # products with zeros.
        self.choosing = dense == "auto" and 1 < self.density.size <= mass_matrix.LARGEST_CHOICE
        self.dense = self.choosing or dense is True
        self._simplex = {str(rv.name) for rv in model.basic_RVs if isinstance(rv.owner.op, SIMPLEX)}
        # the schedule has one length for most numbers of tuning draws, so that their runs share a program
        schedule = np.zeros((max(1024, 1 << (tune - 1).bit_length()), 2), int)
        schedule[:tune] = warm_up.schedule(tune)
        self.settings = {TUNE: np.asarray(tune), TARGET: np.asarray(target_accept), SCHEDULE: schedule}
        self.shared_ends = (1 + np.flatnonzero(schedule[:, 1])).tolist() if pooled else []

    @cached_property
    def _blackjax(self) -> OfBlackjax:
        """The functions of blackjax for this block; the import of blackjax takes long, and starts JAX."""
        from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
        from blackjax.adaptation.step_size import dual_averaging_adaptation
        from blackjax.mcmc import nuts
        from blackjax.mcmc.hmc import HMCState

        _, update, final = mass_matrix_adaptation(not self.dense)
        return OfBlackjax(nuts.init, HMCState, nuts.build_kernel(), dual_averaging_adaptation, update, final)

    @property
    def key(self) -> Hashable:
        options = (self.max_treedepth, self.dense, self.choosing, self.pooled, self.knows_point)
        return (type(self), self.density, *options)

    def described(self) -> str:
        return f"NUTS({', '.join(map(untransformed, self.density.names))})"

    def named(self) -> str:
        return f"NUTS for {shown(self.density.names)}"

    def start(self, point: dict[str, np.ndarray]) -> NutsState:
        size = self.density.size
        scores = np.zeros((size, size)) if self.choosing else None
        return NutsState(
            warm_up.first_step_size(),
            warm_up.first_mass(size, self.dense),
            scores,
            np.zeros(size, bool),
            Edge(np.asarray(0), np.zeros(size)),
            Here(np.zeros(()), np.zeros(size)) if self.knows_point else None,
        )

    def moved_to(self, point: dict[str, np.ndarray], state: NutsState) -> NutsState:
        if not self.knows_point:
            return state
        return state._replace(here=Here(*self.density.at(self.points.packed(point) | self.numbers)))

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        return float(self.density.value_and_slopes(self.points.packed(point) | self.numbers)[0])

    def gradient_is_finite(self, point: dict[str, np.ndarray]) -> bool:
        _, slopes = self.density.value_and_slopes(self.points.packed(point) | self.numbers)
        return all(np.isfinite(slope).all() for slope in slopes.values())

    def check_first(self, states: NutsState) -> None:
        """Raise an error if the gradient was not finite at the start of a chain.

        Raises
        ------
        GradientNotFinite
        """
        flat = self.density.parts(on_host(states.undefined).any(axis=0))
        bad = [str(v.name) for v, part in zip(self.density.graph.values, flat, strict=True) if part.any()]
        if bad:
            raise GradientNotFinite(
                f"The gradient of the log density by {shown(bad)} is not finite at the start of a chain, and "
                "NUTS cannot move. Look for what is on the edge of its domain (sqrt(0), log(0)), and pass "
                "initvals= away from it, or step=pmd.ReparameterizedSlice([...]), which needs no gradient."
            )

    def draw(self, key, t, point: dict[str, Any], state: NutsState):
        others, q = self.density.others(point), self.density.ravel(point)
        logdensity = self.density.differentiable(q, others)
        tuning = t < point[TUNE]
        step_size = jnp.exp(
            jnp.where(tuning, state.step_size.log_step_size, state.step_size.log_step_size_avg)
        )
        if state.here is not None:
            # In float32 `logdensity` returns the difference from the log density at q, the start of the draw,
            # and so 0 at q.
            value = jnp.zeros_like(state.here.logdensity) if floats_are_32_bit() else state.here.logdensity
            begin = self._blackjax.state(q, value, state.here.slope)
        else:
            begin = self._blackjax.init(q, logdensity)
        new, info = self._blackjax.kernel(
            key,
            begin,
            logdensity,
            step_size,
            state.mass.inverse_mass_matrix,
            self.max_treedepth,
        )
        state = jax.lax.cond(
            tuning, self._learn, lambda state, *_: state, state, t, new, info.acceptance_rate, point
        )
        state = state._replace(edge=jax.lax.cond(tuning, lambda edge, _: edge, edge_after, state.edge, info))
        undefined = jnp.where(t == 0, ~jnp.isfinite(begin.logdensity_grad), state.undefined)
        state = state._replace(undefined=undefined)
        if state.here is not None:
            state = state._replace(here=Here(new.logdensity, new.logdensity_grad))
        lp = self.density.block(new.position, others) if floats_are_32_bit() else new.logdensity
        rest = self.density.rest(others)
        stats = {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "energy": info.energy + new.logdensity - lp - rest,
            "lp": lp + rest,
            "n_steps": info.num_integration_steps,
            "reached_max_treedepth": info.num_trajectory_expansions >= self.max_treedepth,
            "step_size": step_size,
            "step_size_bar": jnp.exp(state.step_size.log_step_size_avg),
            "tree_depth": info.num_trajectory_expansions,
        }
        return self.density.joined(new.position, point), state, stats

    def conclusions(self, state: NutsState, points: dict[str, np.ndarray], transitions: int) -> list[str]:
        count, q = on_host(state.edge.count), on_host(state.edge.q)
        if count.sum() <= EDGE * transitions:
            return []
        chain = int(count.argmax())
        point = {name: on_host(value)[chain] for name, value in points.items()} | self.numbers
        terms = terms_at(self.density.graph, self.density.joined(q[chain], point)).get("-inf", [])
        made_of = self.density.graph.written_as_one
        simplex = [t for t in terms if self._simplex.intersection(made_of.get(t, [t]))]
        remedy = (
            f"The p of {shown(simplex)} must sum to 1 within 1e-5 and is further off there: divide it by its "
            "sum, or make it by pm.Dirichlet or a softmax."
            if simplex
            else "Write the model without it: bounds by a distribution (pm.Uniform, "
            "pm.HalfNormal) and not by a Potential or a check that is -inf; or give these variables to "
            "step=pmd.ReparameterizedSlice([...])."
        )
        return [
            f"{count.sum()} of {transitions} trajectories of NUTS diverged since they stepped to where the "
            f"log density is -inf, through {shown(terms) or 'one of its terms'}: the density has an edge "
            f"inside the space of {shown(self.density.names)}. {remedy}"
        ]

    def _learn(self, state: NutsState, t, new, accept, settings, last=True) -> NutsState:
        """Adapt the step size and the mass matrix as in Stan's warm-up, after a transition to `new`.

        The step size is updated after every transition and the mass matrix in windows of doubling length,
        after each of which the adaptation of the step size starts again. A window can end only after the
        `last` transition of a draw.
        """
        slow, ends = settings[SCHEDULE][t]
        _, update, _ = self._blackjax.step_size(settings[TARGET])
        learned = state._replace(step_size=StepSize(*update(state.step_size, accept)))
        learned = jax.lax.cond(slow == 1, self._in_window, lambda learned, _: learned, learned, new)
        if not self.pooled:
            learned = jax.lax.cond((ends == 1) & last, self._window_end, lambda learned: learned, learned)
        return self._with_dtypes_of(learned, state)

    def _in_window(self, state: NutsState, new) -> NutsState:
        mass = Mass.of(*self._blackjax.mass_update(state.mass, new.position))
        scores = state.scores + mass_matrix.outer(new.logdensity_grad) if self.choosing else None
        return self._with_dtypes_of(state._replace(mass=mass, scores=scores), state)

    def _window_end(self, state: NutsState) -> NutsState:
        mass, scores = Mass.of(*self._blackjax.mass_final(state.mass)), state.scores
        if self.choosing:
            mass = mass._replace(
                inverse_mass_matrix=mass_matrix.inverse_mass_matrix(mass.inverse_mass_matrix, scores)
            )
            scores = jnp.zeros_like(scores)
        # blackjax wants a target acceptance to make the functions (init, update, final). Only `update` reads
        # it, and is not used at the end of a window, so that 0.5 stands for any value.
        begin, _, end = self._blackjax.step_size(0.5)
        step_size = StepSize(*begin(end(state.step_size)))
        new = state._replace(step_size=step_size, mass=mass, scores=scores)
        return self._with_dtypes_of(new, state)

    def _with_dtypes_of(self, new: NutsState, old: NutsState) -> NutsState:
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new, old)

    def shared(self, states: NutsState, ends: bool) -> NutsState:
        """The states of all chains after they have shared what they adapted.

        All chains get the mean of their log step sizes. At the end of an adaptation window they also get one
        mass matrix, estimated from the draws of all chains.
        """
        if not self.pooled:
            return states
        average = states.step_size.log_step_size_avg
        step_size = states.step_size._replace(
            log_step_size_avg=jnp.broadcast_to(average.mean(), average.shape)
        )
        if not ends:
            return states._replace(step_size=step_size)
        welford = states.mass.wc_state
        # Chan, Golub and LeVeque 1983: sums of squares about the mean of all chains
        share = welford.sample_size / welford.sample_size.sum()
        mean = share @ welford.mean
        offsets = welford.mean - mean
        weights = welford.sample_size.astype(offsets.dtype)
        between = jnp.einsum("c,ci,cj->ij", weights, offsets, offsets) if self.dense else weights @ offsets**2
        pooled = type(welford)(mean, welford.m2.sum(0) + between, welford.sample_size.sum())
        chains = len(average)
        pooled = jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), pooled)
        states = states._replace(step_size=step_size, mass=states.mass._replace(wc_state=pooled))
        if self.choosing:
            scores = states.scores.sum(0)
            states = states._replace(scores=jnp.broadcast_to(scores, states.scores.shape))
        return jax.vmap(self._window_end)(states)


def edge_after(edge: Edge, info) -> Edge:
    """The `Edge` after one more transition, with blackjax's `info` about it."""
    ends = info.trajectory_leftmost_state, info.trajectory_rightmost_state
    left, right = (info.is_divergent & (end.logdensity == -jnp.inf) for end in ends)
    q = jnp.where(left, ends[0].position, jnp.where(right, ends[1].position, edge.q))
    return Edge(edge.count + (left | right), q)
