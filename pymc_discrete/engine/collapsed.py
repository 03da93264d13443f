"""The block of a compiled chain that moves continuous variables with discrete ones summed out."""

import logging
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from xarray import Dataset

from pymc_discrete.collapse.collapsed import STRETCH_VARIABLE, Collapsed
from pymc_discrete.collapse.probabilities import dataset
from pymc_discrete.collapse.stretches import FarOut
from pymc_discrete.diagnostics.known.held import Conditionals
from pymc_discrete.diagnostics.known.leaving import Leaving, leaving_by
from pymc_discrete.engine.block import TUNE, Block
from pymc_discrete.engine.discrete import smallest_types
from pymc_discrete.engine.nuts import NutsBlock, NutsState
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.storage import on_host
from pymc_discrete.runtime.names import shown, untransformed
from pymc_discrete.space.target import Target
from pymc_discrete.starts.possible_start import possible_start
from pymc_discrete.starts.start import check_support

_log = logging.getLogger("pymc.discrete")


class CollapsedState(NamedTuple):
    """The adaptation state of a chain.

    Attributes
    ----------
    nuts : NutsState
    usual : (d,) float, the means of the sites in tuning
    probabilities : [(size, K)], sums of the probabilities of values of the sites of each variable since then
    transitions : (d,) int, how many transitions these are the sums of, those in which the site was summed out
    far_out : FarOut, after the transitions since then
    """

    nuts: NutsState
    usual: Any
    probabilities: list[Any]
    transitions: Any
    far_out: FarOut


class CollapsedBlock(Block):
    """NUTS for the continuous variables with discrete variables summed out, and then a draw of these.

    Parameters
    ----------
    collapsed : Collapsed
    names : the value variables that NUTS moves
    point : {value variable: array}, which tells their shapes
    points, tune, target_accept, nuts : as in `NutsBlock`
    """

    leaves_impossible = False
    stats = NutsBlock.stats

    def __init__(
        self,
        collapsed: Collapsed,
        names: list[str],
        point: dict[str, np.ndarray],
        points: Points,
        tune: int,
        target_accept: float,
        **nuts: Any,
    ):
        self.collapsed, self.points = collapsed, points
        rest = {name: value for name, value in point.items() if name not in collapsed.density.names}
        rest[STRETCH_VARIABLE] = np.zeros(collapsed.sums.places, np.int64)
        self.nuts = NutsBlock(collapsed.model, names, rest, points, tune, target_accept, **nuts)
        self.density, self.space = self.nuts.density, collapsed.density.space
        self.numbers = self.nuts.numbers | collapsed.density.numbers
        self.settings = self.nuts.settings
        self.pooled, self.shared_ends = self.nuts.pooled, self.nuts.shared_ends

    @property
    def key(self) -> Hashable:
        return (type(self), self.nuts.key, self.collapsed)

    @property
    def with_probabilities(self) -> list[str]:  # type: ignore[override]
        return self.collapsed.density.names if self.collapsed.gives_probabilities else []

    @property
    def dtypes(self) -> dict[str, Any]:
        """{finite variable that is summed out: the smallest signed integer type that holds its support}."""
        space = self.collapsed.density.space
        return {} if space.totals is not None else smallest_types(space)

    def described(self) -> str:
        names = [*self.density.names, *self.collapsed.density.names]
        return f"CollapsedNUTS({', '.join(map(untransformed, names))})"

    def named(self) -> str:
        summed = shown(self.collapsed.density.names)
        return f"{self.nuts.named()}, with {summed} summed out"

    # ------------------------------------------------------------ points
    def _x(self, point: dict[str, Any], lead: int = 0, xp: Any = jnp):
        """(..., d) int, the sites that are summed out, of packed points with `lead` leading axes."""
        arrays = [xp.asarray(point[v.name]) for v in self.collapsed.density.space.variables]
        values = xp.concatenate([a.reshape(*a.shape[:lead], -1).astype(int) for a in arrays], axis=-1)
        return self.collapsed.density.space.of_values(values, xp)

    def _stretches(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """{STRETCHES: (..., n)} of stretches whose middle is the current value of each site, on the host."""
        return {STRETCH_VARIABLE: self.collapsed.middle(x)}

    def _on_host(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """(d,) int, the sites that are summed out, at a point {variable: value}."""
        return self._x(self.points.packed(point), 0, np)

    def _inputs(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The inputs of the context of what is summed out, at a point {variable: value}."""
        return [
            np.asarray(a)
            for a in self.collapsed.inputs(self.points.by_name(self.points.packed(point) | self.numbers))
        ]

    # ------------------------------------------------------------ before the chains begin
    def start(self, point: dict[str, np.ndarray]) -> CollapsedState:
        usual = self._on_host(point).astype(float)
        zeros = self.collapsed.no_probabilities()
        nothing = np.zeros(usual.shape, int)
        far_out = FarOut(nothing, nothing, nothing)
        return CollapsedState(self.nuts.start(point), usual, zeros, nothing, far_out)

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        return self.nuts.logdensity(point | self._stretches(self._on_host(point)))

    def gradient_is_finite(self, point: dict[str, np.ndarray]) -> bool:
        return self.nuts.gradient_is_finite(point | self._stretches(self._on_host(point)))

    def possible(self, point: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        if self.logdensity(point) > -np.inf:  # possible, even if the value in the middle of a stretch is not
            return point
        density = self.collapsed.density
        check_support(density.space, self._on_host(point))
        x = possible_start(density, density.space.ravel(point), self._inputs(point), rng)
        return point | {
            name: value.astype(point[name].dtype) for name, value in density.space.unravel(x).items()
        }

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:
        for point in points:
            check_support(self.collapsed.density.space, self._on_host(point))

    def check_first(self, states: CollapsedState) -> None:
        self.nuts.check_first(states.nuts)

    # ------------------------------------------------------------ while a chain runs
    def draw(self, key, t, point: dict[str, Any], state: CollapsedState):
        key_stretch, key_nuts, key_sites = jax.random.split(key, 3)
        now = self._x(point)
        stretches = self.collapsed.drawn_stretches(key_stretch, now, state.usual, t == 0)
        new, nuts, stats = self.nuts.draw(key_nuts, t, point | {STRETCH_VARIABLE: stretches}, state.nuts)
        del new[STRETCH_VARIABLE]
        context = self.collapsed.context(self.points.by_name(new))
        p = None
        if self.collapsed.gives_probabilities:
            draw = self.collapsed.total_draw_and_probabilities
            total, x, p = draw(key_sites, context, stretches, state.usual)
        else:
            total, x = self.collapsed.total_and_draw(key_sites, context, stretches, state.usual)
        # At an impossible start no value of the stretches may be possible. Then the chain stays where it is.
        possible = total > -jnp.inf
        new = {name: jnp.where(possible, value, point[name]) for name, value in new.items()}
        x = jnp.where(possible, x, now)
        values = self.collapsed.density.space.values_at(x, jnp)
        for start, v in self.collapsed.density.space.blocks:
            of_v = values[start : start + v.size]
            new[v.name] = of_v.reshape(point[v.name].shape).astype(point[v.name].dtype)
        lp = stats["lp"] - total + self.collapsed.density.logdensity(x, context)
        stats["lp"] = jnp.where(possible, lp, -jnp.inf)
        # a mean in which later draws of tuning weigh more; with it the windows of the sums are fixed
        weight = jnp.where(t < point[TUNE], 4.0 / (t + 4.0), 0.0)
        usual = state.usual + weight * (x - state.usual)
        counted = (t >= point[TUNE]) & self.collapsed.sums.within(stretches)
        sums = state.probabilities
        if p is not None:
            p = jnp.where(counted[:, None], p, 0.0)
            window = self.collapsed.window(state.usual)
            sums = self.collapsed.with_probabilities(sums, p, stretches, window)
        out = (t >= point[TUNE]) & self.collapsed.far_out(x, state.usual)
        transitions, far_out = state.transitions + counted, state.far_out.after(out)
        return new, CollapsedState(nuts, usual, sums, transitions, far_out), stats

    def shared(self, states: CollapsedState, ends: bool) -> CollapsedState:
        return states._replace(nuts=self.nuts.shared(states.nuts, ends))

    def conclusions(
        self, states: CollapsedState, points: dict[str, np.ndarray], transitions: int
    ) -> list[str]:
        packed = {name: on_host(value) for name, value in points.items()}
        said = self.nuts.conclusions(
            states.nuts, packed | self._stretches(self._x(packed, 1, np)), transitions
        )
        each = FarOut(*map(on_host, states.far_out))
        far_out = FarOut(each.draws.sum(0), each.run.max(0), each.longest.max(0))
        short = self.collapsed.too_short(far_out, transitions)
        return said if short is None else [*said, short]

    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        density, model = self.collapsed.density, self.collapsed.model
        target = Target(density)

        def at(point: dict[str, np.ndarray]) -> tuple[np.ndarray, Target]:
            return density.space.ravel(point), target.given(self._inputs(point))

        outside = [str(v.name) for v in model.continuous_value_vars if v.name in points[0]]
        others = [v for v in model.discrete_value_vars if v.name != STRETCH_VARIABLE]
        conditionals = Conditionals(density.space, at, outside, not others)
        return leaving_by(conditionals, model, points, joint=True, complete=True, summed=True)

    def groups(
        self, states: CollapsedState, coords: Mapping[str, Any], dims: Mapping[str, Any]
    ) -> dict[str, Dataset]:
        if not self.collapsed.gives_probabilities:
            return {}
        transitions = on_host(states.transitions)
        space, partial = self.collapsed.density.space, self.collapsed.stretched
        if missing := int((transitions == 0).any(axis=0).sum()):
            _log.info(
                f"The group probabilities has nan for {missing} of the {space.d} sites of "
                f"{shown(self.collapsed.density.names)} in some chain: in none of its draws were they in the "
                "part that is summed out. Draw more."
            )
        first = self.collapsed.window(on_host(states.usual), np)
        often = np.where(transitions > 0, transitions, np.nan)[..., None]
        means = [
            on_host(sums) / often[:, start : start + v.size]
            for sums, (start, v) in zip(states.probabilities, space.blocks, strict=True)
        ]
        return {"probabilities": dataset(space, first, means, partial, coords, dims)}
