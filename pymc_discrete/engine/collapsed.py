"""The block of a compiled chain in which NUTS moves continuous variables while discrete ones are
summed out."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from xarray import Dataset

from pymc_discrete.collapse.collapsed import STRETCH_VARIABLE, Collapsed
from pymc_discrete.collapse.stretches import FarOut
from pymc_discrete.engine.nuts import NutsBlock, NutsState
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.storage import on_host
from pymc_discrete.engine.summed import SummedBlock, SummedState
from pymc_discrete.runtime.names import shown, untransformed
from pymc_discrete.starts.possible_start import possible_start


class CollapsedState(NamedTuple):
    """The adaptation state of a chain in which a `CollapsedBlock` moves.

    Attributes
    ----------
    nuts : NutsState, of the continuous variables
    summed : SummedState, of the discrete variables that are summed out
    """

    nuts: NutsState
    summed: SummedState


class CollapsedBlock(SummedBlock):
    """NUTS for the continuous variables with discrete variables summed out, and then a draw of the discrete
    ones.

    Parameters
    ----------
    collapsed : the model with its discrete variables summed out, and the sums by which they are drawn
    names : the value variables that NUTS moves
    point : {value variable: array}, a point that gives the shapes of the variables
    points : which of its discrete variables a chain keeps together in one vector
    tune : number of tuning draws
    target_accept : acceptance that the step size is tuned to
    nuts : further arguments of `NutsBlock`, such as `max_treedepth`
    alone : whether no other block moves variables of the model
    """

    start_program = False
    stats = NutsBlock.stats

    def __init__(
        self,
        collapsed: Collapsed,
        names: list[str],
        point: dict[str, np.ndarray],
        points: Points,
        tune: int,
        target_accept: float,
        alone: bool = False,
        **nuts: Any,
    ):
        super().__init__(collapsed, points, point)
        rest = {name: value for name, value in point.items() if name not in collapsed.density.names}
        rest[STRETCH_VARIABLE] = np.zeros(collapsed.sums.places, np.int64)
        # Variables without bounds are summed over stretches of values, which each draw chooses anew. A new
        # stretch changes the density in which NUTS moves, so that NUTS cannot begin a draw with the gradient
        # at the end of the previous draw, as it does if `alone` is true.
        nuts["alone"] = alone and not collapsed.sums.places
        self.nuts = NutsBlock(collapsed.model, names, rest, points, tune, target_accept, **nuts)
        self.density, self.knows_point = self.nuts.density, self.nuts.knows_point
        self.numbers = self.nuts.numbers | collapsed.density.numbers
        self.settings = self.nuts.settings
        self.pooled, self.shared_ends = self.nuts.pooled, self.nuts.shared_ends

    @property
    def key(self) -> Hashable:
        return (type(self), self.nuts.key, self.collapsed)

    def described(self) -> str:
        names = [*self.density.names, *self.collapsed.density.names]
        return f"CollapsedNUTS({', '.join(map(untransformed, names))})"

    def named(self) -> str:
        summed = shown(self.collapsed.density.names)
        return f"{self.nuts.named()}, with {summed} summed out"

    def _stretches(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """{STRETCH_VARIABLE: (..., n)}, stretches whose middle is the current value of each site, on the
        host.
        """
        return {STRETCH_VARIABLE: self.collapsed.middle(x)}

    # ------------------------------------------------------------ before the chains begin
    def start(self, point: dict[str, np.ndarray]) -> CollapsedState:
        return CollapsedState(self.nuts.start(point), self.nothing_seen(point))

    def moved_to(self, point: dict[str, np.ndarray], state: CollapsedState) -> CollapsedState:
        return state._replace(
            nuts=self.nuts.moved_to(point | self._stretches(self._on_host(point)), state.nuts)
        )

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        return self.nuts.logdensity(point | self._stretches(self._on_host(point)))

    def gradient_is_finite(self, point: dict[str, np.ndarray]) -> bool:
        return self.nuts.gradient_is_finite(point | self._stretches(self._on_host(point)))

    def possible(self, point: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        # A sum over stretches that is positive is enough for a start, even if the present values of the
        # discrete variables, the middles of the stretches, have probability zero.
        if self.logdensity(point) > -np.inf:
            return point
        density = self.collapsed.density
        x = possible_start(density, density.space.ravel(point), self._inputs(point), rng)
        return point | {
            name: value.astype(point[name].dtype) for name, value in density.space.unravel(x).items()
        }

    def check_first(self, states: CollapsedState) -> None:
        self.nuts.check_first(states.nuts)

    # ------------------------------------------------------------ while a chain runs
    def draw(self, key, t, point: dict[str, Any], state: CollapsedState):
        key_stretch, key_nuts, key_sites = jax.random.split(key, 3)
        stretches = self.collapsed.drawn_stretches(key_stretch, self._x(point), state.summed.usual, t == 0)
        new, nuts, stats = self.nuts.draw(key_nuts, t, point | {STRETCH_VARIABLE: stretches}, state.nuts)
        del new[STRETCH_VARIABLE]
        new, summed, total, logdensity = self.drawn(key_sites, t, new, point, state.summed, stretches)
        stats["lp"] = jnp.where(total > -jnp.inf, stats["lp"] - total + logdensity, -jnp.inf)
        return new, CollapsedState(nuts, summed), stats

    def shared(self, states: CollapsedState, ends: bool) -> CollapsedState:
        return states._replace(nuts=self.nuts.shared(states.nuts, ends))

    def conclusions(
        self, states: CollapsedState, points: dict[str, np.ndarray], transitions: int
    ) -> list[str]:
        packed = {name: on_host(value) for name, value in points.items()}
        said = self.nuts.conclusions(
            states.nuts, packed | self._stretches(self._x(packed, 1, np)), transitions
        )
        each = FarOut(*map(on_host, states.summed.far_out))
        far_out = FarOut(each.draws.sum(0), each.run.max(0), each.longest.max(0))
        short = self.collapsed.too_short(far_out, transitions)
        return said if short is None else [*said, short]

    def groups(
        self, states: CollapsedState, coords: Mapping[str, Any], dims: Mapping[str, Any]
    ) -> dict[str, Dataset]:
        return super().groups(states.summed, coords, dims)
