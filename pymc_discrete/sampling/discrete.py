"""A discrete block of a compiled chain: a step's kernel, its tuning included."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels import adaptation, loop, spread
from pymc_discrete.kernels.settle import settle
from pymc_discrete.sampling.points import Points
from pymc_discrete.sampling.storage import on_host
from pymc_discrete.steps.standing import Leaving, leaving
from pymc_discrete.steps.start import check_start, check_support
from pymc_discrete.steps.step import DiscreteStep
from pymc_discrete.targets.from_model import ModelDensity
from pymc_discrete.targets.summands import narrow
from pymc_discrete.targets.target import Target


class DiscreteState(NamedTuple):
    """What a chain knows of a block besides the point.

    Attributes
    ----------
    adaptation : Adaptation
    sums, scale : what `spread` keeps; () where the kernel has no unit of distance
    """

    adaptation: Any
    sums: Any
    scale: Any


class DiscreteBlock:
    """A step of `pymc_discrete` inside a compiled chain.

    Parameters
    ----------
    step : its target, kernel and options
    tune : number of tuning draws
    points : how a chain holds its values

    Attributes
    ----------
    stats : {name of a statistic: its type}
    """

    def __init__(self, step: DiscreteStep, tune: int, points: Points):
        target = (
            step.fresh_target() if narrow() else step.target
        )  # what it keeps has the width of its first use
        self.density = cast(ModelDensity, target.density)
        self.density.untouched.check_in_jax()
        self.step, self.target, self.kernel, self.tune, self.points = step, target, step.kernel, tune, points
        self.params = dict(step.params)
        tuned = self.kernel.tuned
        self.bounds = (1.0, 1.0) if tuned is None else tuned.bounds(self.target.space)
        self.one_pass = step.expected_moves()
        self.stats = {
            "accept": float,
            "accepted": float,
            "discrete_n_moved": int,
            "lp": float,
            **dict.fromkeys(step.reported, float),
        }
        self.scaled = self.kernel.scaled(self.target.space)

    def described(self) -> str:
        """The step, its variables and its options, in a line."""
        return (
            f"{type(self.step).__name__}({', '.join(v.name for v in self.step.vars)}; "
            f"{', '.join(self.step.told_options())})"
        )

    def named(self) -> str:
        """What it is and its variables, for a message."""
        return self.step.named()

    def start(self) -> DiscreteState:
        """The state before the first draw, of one chain."""
        tuned = self.kernel.tuned
        a = adaptation.start(1.0 if tuned is None else float(np.clip(self.params[tuned.name], *self.bounds)))
        a = jax.tree.map(lambda v: np.asarray(v, float), a)
        if not self.scaled:
            return DiscreteState(a, (), ())
        return DiscreteState(a, spread.no_sums(self.target.space), np.asarray(self.params["scale"]))

    def _params(self, state: DiscreteState, t) -> dict[str, Any]:
        params, tuned = dict(self.params), self.kernel.tuned
        if self.scaled:
            params["scale"] = state.scale
        if tuned is not None:
            params[tuned.name] = jnp.exp(
                jnp.where(t < self.tune, state.adaptation.log_value, state.adaptation.mean)
            )
        return params

    def _transitions(self, a: adaptation.Adaptation):
        if self.step.asked_transitions != "auto":
            return int(self.step.asked_transitions)
        moves = jnp.where(a.seen > 0, a.moves, self.one_pass)
        return jnp.ceil(self.target.space.d / jnp.maximum(moves, 1.0)).astype(int)

    def split(self, point: dict[str, Any]):
        """(x (d,), the target in the context of the point's other values)."""
        x = jnp.concatenate([point[v.name].reshape(-1).astype(int) for v in self.target.space.variables])
        values = self.points.by_name(point)
        return x, Target(self.density).with_inputs([values[v.name] for v in self.density.graph.others])

    def join(self, x, point: dict[str, Any]) -> dict[str, Any]:
        new = dict(point)
        for start, v in self.target.space.blocks:
            new[v.name] = x[start : start + v.size].reshape(point[v.name].shape).astype(point[v.name].dtype)
        return new

    def logdensity(self, point: dict[str, Any]):
        """() float, nats, of the whole model."""
        x, target = self.split({name: jnp.asarray(value) for name, value in point.items()})
        return target.logdensity(x) + target.context["untouched"]

    def draw(self, key, t, point: dict[str, Any], state: DiscreteState):
        """(point, state, statistics) after draw t."""
        x, whole = self.split(point)
        centred = narrow() and self.kernel.sweeper is None  # a sweep compares no log densities
        target = whole.centred(x) if centred else whole
        params, a = self._params(state, t), state.adaptation
        there, info = loop(
            self.kernel, key, self.kernel.init(x, target), target, params, self._transitions(a)
        )
        moved = (there.x != x).sum()

        def learn(state: DiscreteState) -> DiscreteState:
            new = adaptation.update(
                a, info.accept, info.n_moves.astype(float), moved, self.bounds, self.tune, jnp
            )
            new = jax.tree.map(lambda v: jnp.asarray(v, float), new)
            if not self.scaled:
                return state._replace(adaptation=new)
            sums, scale = spread.update(
                state.sums, state.scale, there.x, new.seen, self.tune, self.target.space, jnp
            )
            return DiscreteState(new, sums, scale)

        state = jax.lax.cond(t < self.tune, learn, lambda state: state, state)
        stats = {
            "accept": info.accept,
            "accepted": info.accepted,
            "discrete_n_moved": moved,
            "lp": (whole.logdensity(there.x) if centred else there.logdensity) + whole.context["untouched"],
            **{stat: params[name] for stat, name in self.step.reported.items()},
        }
        return self.join(there.x, point), state, stats

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:
        for point in points:
            check_support(self.target.space, self.density.split(point)[0])
        check_start(self.target, points[0], self.target.at(points[0])[0])

    def complaints(self, state: DiscreteState) -> list[list[str]]:
        learned = jax.tree.map(on_host, state.adaptation)
        chains = [jax.tree.map(lambda a, n=n: float(a[n]), learned) for n in range(len(learned.accept))]
        return [self.step.complaints(one, self.tune) for one in chains]

    def conclusions(self, state: Any, points: dict[str, np.ndarray], transitions: int) -> list[str]:
        return []  # their draws say it

    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        return leaving(self.target, points, self.step.joint, self.step.complete)

    def settled(self, key, point: dict[str, Any], state: DiscreteState) -> dict[str, Any]:
        """The point, nearer to the bulk where the chain stands still."""
        x, target = self.split(point)
        return self.join(jnp.where(state.adaptation.stuck, settle(key, x, target), x), point)
