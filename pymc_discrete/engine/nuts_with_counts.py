"""NUTS that moves counts together with the continuous variables that they depend on strongly."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine import warm_up
from pymc_discrete.engine.block import TUNE
from pymc_discrete.engine.nuts import SCHEDULE, Edge, NutsBlock, NutsState
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.statistic import Statistic
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.space import Space

# NUTS moves counts as real numbers and rounds them, which changes the log density by a random amount. This is
# the largest variance of the amount, in squared nats, as tuning estimates it: if all counts together exceed
# it, NUTS does not move those that the density determines most precisely.
MOST_ROUNDING = 2.0
LARGEST_DENSE_MASS = 100  # up to this number of coordinates, the mass matrix is dense
# the number of trajectories in a draw: more trajectories give more effective draws, and take longer
TRANSITIONS = 3
# If a trajectory of NUTS leaves the support, the adaptation takes the step size for the cause, and lowers it,
# only if the step size is larger than LARGE.
LARGE = 0.25
DEEPEST_WITH_COUNTS = 7  # the largest tree depth; most trajectories end at bounds of counts before they turn
# NUTS moves a count if the variance of its draws is at least LEAST_VARIANCE, and their mean is at least
# FROM_BOUNDS standard deviations away from the smallest and the largest value of the count.
LEAST_VARIANCE, FROM_BOUNDS = 1.0, 1.5


class WithCountsState(NamedTuple):
    """The adaptation state of a chain in which NUTS moves counts and continuous variables together.

    Attributes
    ----------
    nuts : NutsState, of the step size and the mass matrix of all coordinates
    moved : (size,) bool, the coordinates that NUTS moves now
    squares : (size,) float, the sum of the squared slopes of the smooth log density, at the ends of the
        trajectories of the current adaptation window
    number : () int, the number of trajectories in `squares`
    """

    nuts: NutsState
    moved: Any
    squares: Any
    number: Any


class NutsWithCounts(NutsBlock):
    r"""NUTS for continuous variables and counts together, after a NUTS for the continuous variables alone.

    At the start of each trajectory, a count n is replaced by a real number x, uniform between n - 1/2 and n +
    1/2. NUTS moves all x and the continuous variables q, and rounds x. The density on which it moves is
    :math:`p(q, \lfloor x + 1/2 \rfloor)`, which has steps. The force of the leapfrog integrator is the slope
    of a smooth function instead: the formula of the log density with x in place of n. With any force that is
    a function of the position the integrator conserves volume and is reversible, so that NUTS, which weighs
    the states of a trajectory by the exact density, leaves the exact distribution invariant.

    A draw has `TRANSITIONS` trajectories, each with a random share of the adapted step size. Rounding changes
    the log density by some :math:`g^2 / 12` squared nats for each count, with g the slope. Counts are moved
    as long as the sum of these variances is below `MOST_ROUNDING`; a count that is known up to one or two, or
    is near its bounds, stays. All counts are also drawn by their own step. The step size is adapted to the
    smooth function.

    Parameters
    ----------
    model, names, point, points, tune, target_accept, dense : passed to `NutsBlock`
    space : the space of the discrete variables
    counts : names of the variables of `space` that NUTS also moves

    References
    ----------
    Nishimura, Dunson and Lu 2020, Discontinuous Hamiltonian Monte Carlo for discrete parameters and
    discontinuous likelihoods, which embeds counts likewise; Neal 2011, MCMC using Hamiltonian dynamics,
    section 5.5, on forces of an approximate density.
    """

    stats: Mapping[str, Statistic] = {}

    def __init__(
        self,
        model: pm.Model,
        names: list[str],
        point: dict[str, np.ndarray],
        points: Points,
        tune: int,
        target_accept: float,
        space: Space,
        counts: Sequence[str],
        *,
        dense: bool | str,
    ):
        blocks = [(start, v) for start, v in space.blocks if v.name in counts]
        members = [points.names.get(v.name, [v.name]) for _, v in blocks]
        self.of_counts = [name for of in members for name in of]
        packed = points.packed(point)
        vectors = {name: parts for name, parts in points.names.items() if name not in counts}
        together = point | {v.name: packed[v.name] for _, v in blocks}
        self.smooth, numbers = ContinuousDensity.of(model, names, together, vectors, counts=members)
        super().__init__(
            model,
            names,
            point,
            points,
            tune,
            target_accept,
            max_treedepth=DEEPEST_WITH_COUNTS,
            dense=self.smooth.size <= LARGEST_DENSE_MASS if dense == "auto" else dense,
            pooled=False,
        )
        self.numbers = self.numbers | numbers
        lower, upper = np.full(self.smooth.size, np.nan), np.full(self.smooth.size, np.nan)
        for s, v in blocks:
            of = self.smooth.slices[v.name]
            lower[of], upper[of] = space.lower[s : s + v.size], space.upper[s : s + v.size]
        self._is_count, self._lower, self._upper = ~np.isnan(lower), lower, upper

    @property
    def key(self) -> Hashable:
        bounds = self._lower.tobytes(), self._upper.tobytes()
        return (super().key, self.smooth, bounds)

    def described(self) -> str:
        return f"{super().described()[:-1]}; along with {shown(self.of_counts)})"

    def named(self) -> str:
        return f"{super().named()}, with {shown(self.of_counts)} along"

    def start(self, point: dict[str, np.ndarray]) -> Any:
        size = self.smooth.size
        nuts = super().start(point)
        nuts = nuts._replace(mass=warm_up.first_mass(size, self.dense), edge=Edge(np.asarray(0), np.zeros(1)))
        return WithCountsState(nuts, ~self._is_count, np.zeros(size), np.zeros((), int))

    # The methods from `check_first` to `shared` do nothing, since another block, NUTS for the continuous
    # variables alone, makes the checks.
    def check_first(self, states: Any) -> None:
        pass

    def gradient_is_finite(self, point: dict[str, np.ndarray]) -> bool:
        return True

    def conclusions(self, state: Any, points: dict[str, np.ndarray], transitions: int) -> list[str]:
        return []

    def shared(self, states: Any, ends: bool) -> Any:
        return states

    # ------------------------------------------------------------ while a chain runs
    def rounded(self, q):
        """q (size,) with the coordinates of counts rounded to integers; the others are unchanged."""
        return jnp.where(self._is_count, jnp.floor(q + 0.5), q)

    def exact(self, q, point: dict[str, Any]):
        """() float, the log density of the model at the counts that q (size,) is rounded to."""
        whole = self.rounded(q)
        there = self.smooth.joined(whole, point)
        value = self.density.block(self.density.ravel(there), self.density.others(there))
        value = value + self.density.rest(self.density.others(there))
        outside = self._is_count & ((whole < self._lower) | (whole > self._upper))
        return jnp.where(outside.any() | jnp.isnan(value), -jnp.inf, value)

    def draw(self, key, t, point: dict[str, Any], state: Any):
        names = [str(v.name) for v in self.smooth.graph.values]

        def transition(k, carried):
            values, state = carried
            new, state = self._transition(jax.random.fold_in(key, k), t, k, point | values, state)
            return {name: new[name] for name in names}, state

        # If tuning found no count to move, no transition is made: the block before this one, NUTS for the
        # continuous variables alone, has moved all that this block would move.
        some = (t < point[TUNE]) | (state.moved & self._is_count).any()
        begin = ({name: jnp.asarray(point[name]) for name in names}, state)
        values, state = jax.lax.fori_loop(0, jnp.where(some, TRANSITIONS, 0), transition, begin)
        return point | values, state, {}

    def _transition(self, key, t, k, point: dict[str, Any], state: WithCountsState):
        """The point and the state after transition k of draw t."""
        key_place, key_nuts, key_step = jax.random.split(key, 3)
        others, tuning = self.smooth.others(point), t < point[TUNE]
        places = jax.random.uniform(key_place, (self.smooth.size,), minval=-0.5, maxval=0.5)
        moved = state.moved
        start = self.smooth.ravel(point) + jnp.where(self._is_count & moved, places, 0.0)
        smooth = jax.jit(self.smooth.value_and_slope(start, others))

        def force(q):
            slope = smooth(q)[1]
            return jnp.where(jnp.isfinite(slope) & moved, slope, 0.0)

        @jax.custom_vjp
        def logdensity(q):
            return self.exact(q, point)

        logdensity.defvjp(
            lambda q: (self.exact(q, point), force(q)), lambda slope, cotangent: (cotangent * slope,)
        )
        adapted = state.nuts.step_size
        step_size = jnp.exp(jnp.where(tuning, adapted.log_step_size, adapted.log_step_size_avg))
        # Near bounds of counts, steps of the adapted size fail. So the step size is random: one in 16 is
        # below a quarter of the adapted size.
        step_size = step_size * jnp.sqrt(jax.random.uniform(key_step))
        metric = self.metric(state.nuts.mass.inverse_mass_matrix, moved)
        begin = self._blackjax.init(start, logdensity)
        new, info = self._blackjax.kernel(key_nuts, begin, logdensity, step_size, metric, self.max_treedepth)

        def learned(state: WithCountsState) -> WithCountsState:
            accept = self.accept_of_smooth(smooth, start, info, metric, step_size)
            return self._learned(state, t, k, new, smooth(start)[1], accept, point)

        state = jax.lax.cond(tuning, learned, lambda state: state, state)
        return self.smooth.joined(self.rounded(new.position), point), state

    def metric(self, inverse, moved):
        """blackjax's metric, in which counts that NUTS does not move have no momentum and do not enter the
        U-turn criterion.
        """
        from blackjax.mcmc.metrics import gaussian_euclidean  # this import is late, because it takes long

        inverse = jnp.where(moved if inverse.ndim == 1 else moved[:, None] & moved, inverse, 0.0)
        inverse = inverse + (~moved if inverse.ndim == 1 else jnp.diag(~moved))
        metric = gaussian_euclidean(inverse)

        def momentum(key, position):
            return jnp.where(moved, metric.sample_momentum(key, position), 0.0)

        return metric._replace(sample_momentum=momentum)

    def accept_of_smooth(self, smooth, start, info, metric, step_size):
        """() float, the probability with which the ends of a trajectory would be accepted if the density were
        smooth.

        The probability is nan if it is not known: if the smooth formula has no value at the beginning of the
        trajectory, which may lie between a bound and the nearest count, or at its ends, most of which are
        then beyond a bound of counts. Ends without a value count as rejected if the step size is larger than
        `LARGE`; with smaller steps, trajectories leave the support whatever the step size is.
        """

        def energy(q, momentum):
            return metric.kinetic_energy(momentum) - smooth(q)[0]

        before = energy(start, info.momentum)
        changes = jnp.stack(
            [
                energy(end.position, end.momentum) - before
                for end in (info.trajectory_leftmost_state, info.trajectory_rightmost_state)
            ]
        )
        without_value = jnp.where(step_size > LARGE, 0.0, jnp.nan)
        accept = jnp.where(jnp.isfinite(changes), jnp.minimum(1.0, jnp.exp(-changes)), without_value)
        return jnp.where(jnp.isfinite(before), jnp.nanmean(accept), jnp.nan)

    def _learned(self, state: WithCountsState, t, k, new, slope, accept, settings) -> WithCountsState:
        """Adapt the step size and the mass matrix, and at the end of a window the choice of counts that are
        moved.
        """
        last = k == TRANSITIONS - 1
        slow, ends = settings[SCHEDULE][t]
        ends = (ends == 1) & last
        nuts = self._learn(state.nuts, t, new, jnp.nan_to_num(accept), settings, last)
        adapted = jax.tree.map(
            lambda new, old: jnp.where(jnp.isnan(accept) & ~ends, old, new),
            nuts.step_size,
            state.nuts.step_size,
        )
        nuts = nuts._replace(step_size=adapted)
        weight = slow.astype(float)
        squares = state.squares + weight * jnp.where(jnp.isfinite(slope), slope, 0.0) ** 2
        number = state.number + slow
        seen = state.nuts.mass.wc_state
        variances = (jnp.diag(seen.m2) if self.dense else seen.m2) / jnp.maximum(seen.sample_size, 1)
        chosen = self.chosen(squares / jnp.maximum(number, 1), seen.mean, variances)
        return WithCountsState(
            nuts,
            jnp.where(ends, chosen, state.moved),
            jnp.where(ends, jnp.zeros_like(squares), squares),
            jnp.where(ends, jnp.zeros_like(number), number),
        )

    def chosen(self, squares, means, variances):
        """(size,) bool, the coordinates that NUTS moves: all continuous ones, and counts.

        Counts are added, the least certain ones first, as long as the variance that rounding them gives the
        log density is at most `MOST_ROUNDING`.

        Parameters
        ----------
        squares, means, variances : (size,) float, the mean squares of slopes, and the means and variances of
            draws
        """
        reach = FROM_BOUNDS * jnp.sqrt(variances)
        near = (means - reach < self._lower) | (means + reach > self._upper)
        stays = self._is_count & ((variances < LEAST_VARIANCE) | near)
        change = jnp.where(stays, jnp.inf, jnp.where(self._is_count, squares / 12, 0.0))
        order = jnp.argsort(change)
        within = jnp.cumsum(change[order]) <= MOST_ROUNDING
        return jnp.zeros(len(change), bool).at[order].set(within) | ~self._is_count
