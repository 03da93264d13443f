"""A discrete block of a compiled chain, which runs the kernel of a step and tunes it."""

from collections.abc import Hashable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pymc_discrete.diagnostics.known.leaving import Leaving, leaving
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.engine.block import TUNE, BlockOfStep
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.statistic import MEAN, Statistic
from pymc_discrete.engine.storage import on_host
from pymc_discrete.kernels import Kernel, loop
from pymc_discrete.kernels.settle import settle
from pymc_discrete.kernels.tuning import Learned, one_pass
from pymc_discrete.model.identity import key_of_object
from pymc_discrete.runtime.float32 import floats_are_32_bit
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target
from pymc_discrete.starts.possible_start import possible_start
from pymc_discrete.starts.start import check_start, dispersed, solved

# a number that is folded into the key of a draw, for the random numbers of variables that are integrated out
KEY_OF_INTEGRATED = 2**32 - 1


class Drawn(NamedTuple):
    """The results of one draw of a block.

    Attributes
    ----------
    x : (d,) int, the new sites
    integrated : {name: value} of the continuous variables that are integrated out while the sites move
    statistics : {name: value} of the sampler statistics in `STATISTICS_OF_SITES`, and "lp", the log density
        of the model at the new point, in nats
    n_moves : () float, mean number of moves in a proposal
    measured : means over the transitions of `Info.measured`, from which the kernel tunes itself
    """

    x: Any
    integrated: dict[str, Any]
    statistics: dict[str, Any]
    n_moves: Any
    measured: Any


STATISTICS_OF_SITES = {
    "accept": Statistic(float, MEAN),
    "accepted": Statistic(float, MEAN),
    "discrete_n_moved": Statistic(int),
}


def draw_of_block(
    kernel: Kernel, key: Array, x: Array, target: Target, params: Any, transitions: Any
) -> Drawn:
    """A draw of a block, in `pm.sample` and in `pmd.sample`: some transitions of its kernel.

    Parameters
    ----------
    x : (d,) int, the sites before the draw
    target : a target whose context has the values of all other variables
    params : the parameters of the kernel
    """
    # In float32 the log density is centred, that is, reduced by its value at the present state, so that
    # differences lose less to rounding. A kernel with a `sweeper`, whose next state depends on x alone,
    # compares no log densities and needs no centring.
    centred = floats_are_32_bit() and kernel.sweeper is None
    near = target.centred(x) if centred else target
    new, info = loop(kernel, key, kernel.init(x, near), near, params, transitions)
    integrated, of_them = cast(ModelDensity, target.density).draw_integrated(
        jax.random.fold_in(key, KEY_OF_INTEGRATED), new.x, target.context
    )
    of_sites = (target.logdensity(new.x) if centred else new.logdensity) + target.context.untouched
    statistics = {
        "accept": info.accept,
        "accepted": info.accepted,
        "discrete_n_moved": (new.x != x).sum(),
        "lp": of_sites + of_them,
    }
    return Drawn(new.x, integrated, statistics, info.n_moves, info.measured)


class DiscreteBlock(BlockOfStep):
    """A step of `pymc_discrete` inside a compiled chain.

    Parameters
    ----------
    step : a `steps.discrete.DiscreteStep`: its target, kernel and options
    tune : number of tuning draws
    points : which of its discrete variables a chain keeps together in one vector
    """

    def __init__(self, step: Any, tune: int, points: Points):
        if step.integrated and floats_are_32_bit():
            raise ValueError(
                f"{step.named()} integrates coefficients out, which loses small differences in "
                'float32. Pass dtype="float64", or a step that integrates nothing, as step=pmd.BlockGibbs().'
            )
        # A target keeps functions compiled for the precision of its first use, so float32 needs a new one.
        target = step.fresh_target() if floats_are_32_bit() else step.target
        self.density = cast(ModelDensity, target.density)
        self.density.untouched.check_in_jax()
        self.step, self.target, self.kernel, self.tune, self.points = step, target, step.kernel, tune, points
        self.space, self.pieces = target.space, points.pieces(target.space)
        self.numbers, self.settings = self.density.numbers, {TUNE: np.asarray(tune)}
        self.tuner = step.tuner_for(target)
        self.stats = {**step.statistics, "lp": Statistic(float)}

    @property
    def key(self) -> Hashable:
        # the tuner's initial scale is no part of the key, since programs read the scale from a chain's state
        params = {
            name: value
            for name, value in self.tuner.params.items()
            if name != "scale" or not self.tuner.scaled
        }
        return (
            type(self),
            self.density,
            self.described(),
            key_of_object(params),
            self.tuner.bounds,
        )

    def start(self, point: dict[str, np.ndarray]) -> Learned:
        return self.tuner.start()

    def _transitions(self, learned: Learned):
        """() int, transitions of the kernel per draw."""
        if self.step.asked_transitions != "auto":
            return int(self.step.asked_transitions)
        measured = learned.adaptation
        n_moves = jnp.where(measured.seen > 0, measured.moves, self.step.expected_moves())
        return one_pass(self.target.space.d, n_moves, jnp)

    def split(self, point: dict[str, Any]):
        """The block's sites x (d,) at a point, and the target given all other values of the point."""
        values = self.points.by_name(point)
        x = jnp.concatenate([values[piece.name].reshape(-1).astype(int) for piece in self.pieces])
        return x, Target(self.density).with_inputs([values[v.name] for v in self.density.graph.others])

    def join(self, x, point: dict[str, Any]) -> dict[str, Any]:
        """The point {variable or vector: array} with x (d,) as the values of the block's variables."""
        joined = dict(point)
        for piece in self.pieces:
            joined = self.points.replaced(joined, piece.name, x[piece.start : piece.start + piece.size])
        return joined

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        x, target = self.target.at(point)
        return target.total(x)

    def draw(self, key, t, point: dict[str, Any], state: Learned):
        x, target = self.split(point)
        tuning = t < point[TUNE]
        params = self.tuner.tuned(state, tuning, jnp)
        new = draw_of_block(self.kernel, key, x, target, params, self._transitions(state))

        def learn(state: Learned) -> Learned:
            accept, n_changed = new.statistics["accept"], new.statistics["discrete_n_moved"]
            n_moves = new.n_moves.astype(float)
            return self.tuner.update(state, new.x, accept, n_moves, n_changed, point[TUNE], jnp, new.measured)

        state = jax.lax.cond(tuning, learn, lambda state: state, state)
        step = self.step
        stats = {step.named_here(name): value for name, value in new.statistics.items()}
        stats |= {stat: params[name] for stat, name in step.method.reported.items()}
        joined = self.join(new.x, point)
        joined.update({name: value.astype(point[name].dtype) for name, value in new.integrated.items()})
        return joined, state, stats

    @property
    def dtypes(self) -> dict[str, Any]:
        """{variable with a finite support: the smallest signed integer type that holds the support}."""
        return smallest_types(self.target.space)

    def dispersed(
        self, point: dict[str, np.ndarray], given: set[str], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """The point with the block's variables at random values of their supports that the density allows."""
        x, target = self.target.at(point)
        y = dispersed(x, target, rng)
        for m in target.space.members:
            if m.name in given:
                y[m.start : m.start + m.size] = x[m.start : m.start + m.size]
        return target.point(solved(target.space, y))

    def possible(self, point: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        x, target = self.target.at(point)
        _, inputs, _ = self.density.split(point)
        return target.point(possible_start(self.density, solved(target.space, x), inputs, rng))

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:
        check_start(self.target, points[0], self.target.at(points[0])[0])

    def _of_each_chain(self, state: Learned) -> list[Learned]:
        """What tuning has learned of each chain, with only the field `adaptation` separated by chains."""
        chains = len(state.adaptation.seen)
        measured = jax.tree.map(on_host, state.adaptation)
        each = [jax.tree.map(lambda a, n=n: float(a[n]), measured) for n in range(chains)]
        return [state._replace(adaptation=one) for one in each]

    def complaints(self, state: Learned) -> list[list[str]]:
        return [self.step.complaints(one, self.tune) for one in self._of_each_chain(state)]

    def remarks(self, state: Learned) -> list[str | None]:
        return [self.step.remark(one) for one in self._of_each_chain(state)]

    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        if self.step.shared:
            return {}
        step = self.step
        return leaving(self.target, step.model, points, step.joint, step.complete, step.method.one_by_one)

    def stuck(self, states: Learned) -> np.ndarray:
        if self.step.shared:
            return super().stuck(states)
        return jax.tree.map(on_host, states.adaptation).stuck

    def settled(self, key, point: dict[str, Any], state: Learned) -> dict[str, Any]:
        if self.step.shared:
            return point
        x, target = self.split(point)
        return self.join(jnp.where(state.adaptation.stuck, settle(key, x, target), x), point)


def smallest_types(space: Space) -> dict[str, Any]:
    """{variable with a finite support: the smallest signed integer type that holds the support}."""
    finite = [v for v in space.variables if v.size and v.finite]
    return {v.name: smallest_type(v.lower.min(), v.upper.max()) for v in finite}


def smallest_type(low: int, high: int) -> type:
    """The smallest signed integer type that holds the integers from `low` to `high`."""
    types = (np.int8, np.int16, np.int32, np.int64)
    return next(t for t in types if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
