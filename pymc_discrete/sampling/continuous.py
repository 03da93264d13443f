"""The continuous block of a compiled chain: NUTS and its staged warm-up, both from blackjax."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.exceptions import SamplingError
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable

from pymc_discrete.sampling.selections import selected
from pymc_discrete.targets.graph import logp_graph, mark_dependent
from pymc_discrete.targets.jaxify import jaxify
from pymc_discrete.targets.summands import change, narrow, reference, summands

OPTIONS = {"max_treedepth": 10, "dense": False, "pooled": False}


class NutsState(NamedTuple):
    """What a chain knows of the block besides the point.

    Attributes
    ----------
    step_size : blackjax's dual averaging state
    mass : blackjax's mass matrix adaptation state
    """

    step_size: Any
    mass: Any


class NutsBlock:
    """NUTS for the continuous value variables of a model.

    Parameters
    ----------
    model : pm.Model
    names : value variables
    point : their shapes
    tune : number of tuning draws
    target_accept : acceptance that the step size is tuned to
    max_treedepth, dense, pooled : as `nuts` of `sample`

    Attributes
    ----------
    shared_ends : tuning draws after which pooled chains share a mass matrix
    stats : {name of a statistic: its type}
    """

    stats: ClassVar[dict[str, type]] = {
        "acceptance_rate": float,
        "diverging": bool,
        "energy": float,
        "lp": float,
        "n_steps": int,
        "reached_max_treedepth": bool,
        "step_size": float,
        "step_size_bar": float,
        "tree_depth": int,
    }

    def __init__(self, model: pm.Model, names: list[str], point: dict[str, np.ndarray], tune: int, target_accept: float, *,
                 max_treedepth: int, dense: bool, pooled: bool):  # fmt: skip
        # importing blackjax starts JAX, which must not happen before a run
        from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
        from blackjax.adaptation.staged_adaptation import build_schedule
        from blackjax.adaptation.step_size import dual_averaging_adaptation
        from blackjax.mcmc import nuts

        self.names, self.tune, self.max_treedepth, self.dense, self.pooled = names, tune, max_treedepth, dense, pooled
        self.graph = logp_graph(model, names, point, dict.fromkeys(names, (None, None)))
        self._terms = selected([t for _, t in self.graph.terms], self.graph)
        total = pt.add(pt.constant(0.0), *(t.sum() for t in self._terms))
        mark_dependent(total, self.graph)
        rest = pt.add(pt.constant(0.0), *(t.sum() for _, t in self.graph.untouched))
        self._inputs = [*self.graph.values, *self.graph.others]
        self._slopes = gradient(total, self.graph.values)
        self._total, self._rest = jaxify(self._inputs, [total]), jaxify(self.graph.others, [rest])
        self._with_slopes = jaxify(self._inputs, [total, *self._slopes])
        self._shapes = [np.shape(point[v.name]) for v in self.graph.values]
        self.size = int(sum(np.prod(s, dtype=int) for s in self._shapes))
        self._init, self._kernel = nuts.init, nuts.build_kernel()
        self._accept_init, self._accept_update, self._accept_final = dual_averaging_adaptation(target_accept)
        self._mass_init, self._mass_update, self._mass_final = mass_matrix_adaptation(not dense)
        self._schedule = np.asarray(build_schedule(tune)).reshape(-1, 2) if tune else np.zeros((1, 2), int)
        self.shared_ends = (1 + np.flatnonzero(self._schedule[:, 1])).tolist() if pooled else []

    def described(self) -> str:
        """The block in a line."""
        return f"NUTS({', '.join(self.names)})"

    def start(self) -> NutsState:
        state = NutsState(self._accept_init(1.0), self._mass_init(self.size))
        return jax.tree.map(lambda a: np.asarray(a, float if np.asarray(a).dtype.kind == "f" else None), state)

    @functools.cached_property
    def _summands(self):
        """Tensors whose elements add to the log density, and its gradient."""
        return jaxify(self._inputs, [*(p for t in self._terms for p in summands(t, self.graph)), *self._slopes])

    def logdensity(self, point: dict[str, Any]):
        """() float, nats, of the whole model."""
        others = [jnp.asarray(point[v.name]) for v in self.graph.others]
        return self._total(*(jnp.asarray(point[v.name]) for v in self.graph.values), *others)[0] + self._rest(*others)[0]

    def check_start(self, point: dict[str, Any]) -> None:
        """Refuse a start where NUTS would stand still."""
        slopes = jax.jit(self._with_slopes)(*(jnp.asarray(point[v.name]) for v in self._inputs))[1:]
        bad = [repr(v.name) for v, slope in zip(self.graph.values, slopes, strict=True) if not np.isfinite(np.asarray(slope)).all()]
        if bad:
            raise SamplingError(
                f"The gradient of the log density by {', '.join(bad)} is not finite at the start of a chain, and NUTS cannot move. Look "
                "for what is on the edge of its domain (sqrt(0), log(0)), pass initvals= away from it, or use pm.sample with pm.Slice."
            )

    def draw(self, key, t, point: dict[str, Any], state: NutsState):
        """(point, state, statistics) after draw t."""
        others = [point[v.name] for v in self.graph.others]
        q = jnp.concatenate([point[v.name].reshape(-1) for v in self.graph.values])
        logdensity = self._density(q, others)
        tuning = t < self.tune
        step_size = jnp.exp(jnp.where(tuning, state.step_size.log_step_size, state.step_size.log_step_size_avg))
        here = self._init(q, logdensity)
        there, info = self._kernel(key, here, logdensity, step_size, state.mass.inverse_mass_matrix, self.max_treedepth)
        state = jax.lax.cond(tuning, self._learn, lambda state, *_: state, state, t, there.position, info.acceptance_rate)
        lp = self._total(*self._parts(there.position), *others)[0] if narrow() else there.logdensity
        rest = self._rest(*others)[0]
        stats = {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "energy": info.energy + there.logdensity - lp - rest,
            "lp": lp + rest,
            "n_steps": info.num_integration_steps,
            "reached_max_treedepth": info.num_trajectory_expansions >= self.max_treedepth,
            "step_size": step_size,
            "step_size_bar": jnp.exp(state.step_size.log_step_size_avg),
            "tree_depth": info.num_trajectory_expansions,
        }
        new = dict(point)
        for v, part in zip(self.graph.values, self._parts(there.position), strict=True):
            new[v.name] = part
        return new, state, stats

    def _density(self, start, others: list[Any]) -> Callable:
        """The log density of the block (size,) given the other variables, with PyTensor's gradient; in float32 counted from `start`.

        JAX's own gradient is nan wherever a switch keeps an impossible value away.
        """
        n = len(self._slopes)
        since = reference(self._summands(*self._parts(start), *others)[:-n]) if narrow() else None

        def both(q, others, since):
            found = (self._with_slopes if since is None else self._summands)(*self._parts(q), *others)
            value = found[0] if since is None else change(found[:-n], since)
            return jnp.asarray(value).reshape(()), jnp.concatenate([jnp.reshape(s, -1) for s in found[-n:]]).astype(q.dtype)

        def forward(q, others, since):
            value, slope = both(q, others, since)
            return value, (slope, jax.tree.map(nothing, (others, since)))

        @jax.custom_vjp
        def logdensity(q, others, since):
            return both(q, others, since)[0]

        logdensity.defvjp(forward, lambda kept, weight: (weight * kept[0], *kept[1]))
        return lambda q: logdensity(q, others, since)

    def _parts(self, q) -> list[Any]:
        ends = np.cumsum([np.prod(s, dtype=int) for s in self._shapes])
        return [q[end - int(np.prod(s, dtype=int)) : end].reshape(s) for end, s in zip(ends, self._shapes, strict=True)]

    def _learn(self, state: NutsState, t, q, accept) -> NutsState:
        """Stan's warm-up: step size always, mass matrix in windows that double, a fresh step size after each."""
        slow, ends = jnp.asarray(self._schedule)[t]
        step_size = self._accept_update(state.step_size, accept)
        mass = jax.lax.cond(slow == 1, self._mass_update, lambda mass, q: mass, state.mass, q)

        if not self.pooled:
            step_size, mass = jax.lax.cond(ends == 1, self._window_end, lambda *both: both, step_size, mass)
        return self._as_before(NutsState(step_size, mass), state)

    def _window_end(self, step_size, mass):
        return self._accept_init(self._accept_final(step_size)), self._mass_final(mass)

    def _as_before(self, new: NutsState, old: NutsState) -> NutsState:
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new, old)

    def shared(self, states: NutsState, ends: bool) -> NutsState:
        """The states of all chains (chains, ...) with the mean of their step sizes and, where a window ends, one mass matrix."""
        average = states.step_size.log_step_size_avg
        step_size = states.step_size._replace(log_step_size_avg=jnp.broadcast_to(average.mean(), average.shape))
        if not ends:
            return states._replace(step_size=step_size)
        seen = states.mass.wc_state
        # Chan, Golub and LeVeque 1983, Eq. 1.5: sums of squares about the mean of everything
        share = seen.sample_size / seen.sample_size.sum()
        mean = share @ seen.mean
        away = seen.mean - mean
        weights = seen.sample_size.astype(away.dtype)
        between = jnp.einsum("c,ci,cj->ij", weights, away, away) if self.dense else weights @ away**2
        every = type(seen)(mean, seen.m2.sum(0) + between, seen.sample_size.sum())
        chains = len(average)
        every = jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), every)
        new = NutsState(*jax.vmap(self._window_end)(step_size, states.mass._replace(wc_state=every)))
        return self._as_before(new, states)


def gradient(total: Variable, values: list[Variable]) -> list[Variable]:
    """Of a log density, by its values."""
    try:
        return pytensor.grad(total, values, disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError) as error:
        names = ", ".join(repr(v.name) for v in values)
        why = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"NUTS needs the gradient of the log density by {names}, and PyTensor has none: {why}. Use pm.sample, with pm.Slice or "
            "pm.DEMetropolisZ for what has no gradient."
        ) from error


def nothing(a: Any) -> Any:
    """The gradient by what is held."""
    return jnp.zeros_like(a) if jnp.issubdtype(a.dtype, jnp.floating) else np.zeros(a.shape, jax.dtypes.float0)
