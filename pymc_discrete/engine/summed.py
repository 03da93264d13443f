"""The block of a compiled chain that draws discrete variables which are summed out while other variables
move.
"""

import logging
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from xarray import Dataset

from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.collapse.probabilities import dataset
from pymc_discrete.collapse.stretches import FarOut
from pymc_discrete.diagnostics.known.held import Conditionals, outside_of
from pymc_discrete.diagnostics.known.leaving import Leaving, leaving_by
from pymc_discrete.engine.block import TUNE, Block
from pymc_discrete.engine.discrete import smallest_types
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.storage import on_host
from pymc_discrete.runtime.names import shown, untransformed
from pymc_discrete.space.target import Target
from pymc_discrete.tempering.tempered import BETA

_log = logging.getLogger("pymc.discrete")


class SummedState(NamedTuple):
    """Statistics of a chain about the sites that are summed out.

    Attributes
    ----------
    usual : (d,) float, means of the values of the sites in tuning, in which later draws weigh more
    probabilities : [(size, K)], sums, since tuning, of the probabilities of the values of the sites of each
        variable
    transitions : (d,) int, the number of transitions since tuning in which the site was summed out, whose
        probabilities are added up
    far_out : for each site, in how many transitions since tuning its value was at the far end of its stretch

    Where every transition sums all sites over all of their values, `usual` and `far_out` have no elements,
    and `transitions` has one, since a million sites would each have the same number.
    """

    usual: Any
    probabilities: list[Any]
    transitions: Any
    far_out: FarOut


class SummedBlock(Block):
    """Exact draws of discrete variables given all others, which have moved with the discrete ones summed out.

    Used alone, the block serves the replicas of a tempered model that no longer has these variables, with
    sums over their whole supports (`Collapsed.whole`).

    Parameters
    ----------
    collapsed : the model with these variables summed out, and the sums by which they are drawn
    points : which of its discrete variables a chain keeps together in one vector
    first : {variable: array}, the values of these variables before the first draw
    """

    leaves_impossible = False
    start_program = True
    stats: Mapping[str, Any] = {}

    def __init__(self, collapsed: Collapsed, points: Points, first: Mapping[str, np.ndarray]):
        self.collapsed, self.points = collapsed, points
        self.density, self.space = collapsed.density, collapsed.density.space
        self.numbers = collapsed.density.numbers
        self._first = {name: first[name] for name in self.density.names if name in first}

    @property
    def key(self) -> Hashable:
        return (type(self), self.collapsed)

    @property
    def with_probabilities(self) -> list[str]:  # type: ignore[override]
        return self.collapsed.density.names if self.collapsed.gives_probabilities else []

    @property
    def dtypes(self) -> dict[str, Any]:
        """{finite variable that is summed out: the smallest signed integer type that holds its support}."""
        space = self.collapsed.density.space
        return {} if space.totals is not None else smallest_types(space)

    def described(self) -> str:
        return f"SummedOut({', '.join(map(untransformed, self.collapsed.density.names))})"

    def named(self) -> str:
        return f"draws of {shown(self.collapsed.density.names)}"

    # ------------------------------------------------------------ points
    def _x(self, point: Mapping[str, Any], lead: int = 0, xp: Any = jnp):
        """(..., d) int, the summed sites at points {variable or vector: array} with `lead` leading axes."""
        arrays = [xp.asarray(point[v.name]) for v in self.collapsed.density.space.variables]
        values = xp.concatenate([a.reshape(*a.shape[:lead], -1).astype(int) for a in arrays], axis=-1)
        return self.collapsed.density.space.of_values(values, xp)

    def _on_host(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """(d,) int, the summed sites at a point {variable: value}."""
        return self._x(self.points.packed(point), 0, np)

    def _inputs(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The inputs of the context of the collapsed density, at a point {variable: value}."""
        return [
            np.asarray(a)
            for a in self.collapsed.inputs(self.points.by_name(self.points.packed(point) | self.numbers))
        ]

    # ------------------------------------------------------------ before the chains begin
    def start(self, point: dict[str, np.ndarray]) -> Any:
        return self.nothing_seen(point)

    def nothing_seen(self, point: dict[str, np.ndarray]) -> SummedState:
        """The state of a chain before its first draw, which starts at a point {variable: value}."""
        usual = self._on_host(point).astype(float)[: 0 if self.collapsed.whole else None]
        no_draws = np.zeros(usual.shape, np.int32)
        transitions = np.zeros(1, np.int32) if self.collapsed.whole else no_draws
        return SummedState(
            usual, self.collapsed.no_probabilities(), transitions, FarOut(no_draws, no_draws, no_draws)
        )

    def dispersed(
        self, point: dict[str, np.ndarray], given: set[str], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """The point, in which summed variables without a value get one that the first transition replaces."""
        return {**point, **{name: value for name, value in self._first.items() if name not in point}}

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        target = Target(self.collapsed.density).given(self._inputs(point))
        return target.total(self.collapsed.density.space.ravel(point))

    # ------------------------------------------------------------ while a chain runs
    def draw(self, key, t, point: dict[str, Any], state: Any):
        def drawn() -> Any:
            new, seen, _, _ = self.drawn(key, t, point, point, state, jnp.zeros(0, int))
            return new, seen

        # In a tempered chain, only replicas at inverse temperature 1 draw the summed variables: there they
        # are recorded, and no block reads them at any temperature.
        return *jax.lax.cond(point[BETA] == 1.0, drawn, lambda: (dict(point), state)), {}

    def drawn(self, key, t, new: dict[str, Any], old: dict[str, Any], state: SummedState, stretches: Any):
        """The point `new` {variable or vector: array}, with a draw of the summed sites given all others.

        Parameters
        ----------
        old : the point before the other variables have moved, to which the chain returns if no state is
            possible
        stretches : the values of each site that are summed, from `Collapsed.drawn_stretches`

        Returns
        -------
        point, state
        total : () float, nats, the logarithm of the sum over the sites; -inf if no state is possible
        logdensity : () float, nats, the log density of the summed terms at the sites that were drawn
        """
        now = self._x(old)
        context = self.collapsed.context(self.points.by_name(new))
        p = None
        if self.collapsed.gives_probabilities:
            draw = self.collapsed.total_draw_and_probabilities
            total, x, p = draw(key, context, stretches, state.usual)
        else:
            total, x = self.collapsed.total_and_draw(key, context, stretches, state.usual)
        # At an impossible start, no value of the stretches may be possible. The chain then stays as it is.
        possible = total > -jnp.inf
        new = {name: jnp.where(possible, value, old[name]) for name, value in new.items()}
        x = jnp.where(possible, x, now)
        values = self.collapsed.density.space.values_at(x, jnp)
        for start, v in self.collapsed.density.space.blocks:
            of_v = values[start : start + v.size]
            new[v.name] = of_v.reshape(old[v.name].shape).astype(old[v.name].dtype)
        logdensity = self.collapsed.density.logdensity(x, context)
        usual, far_out, counted = state.usual, state.far_out, jnp.expand_dims(t >= old[TUNE], 0)
        if not self.collapsed.whole:
            # The mean `usual` gives later tuning draws more weight. Once tuning ends, the windows of values
            # whose probabilities are added up are laid about this mean.
            weight = jnp.where(t < old[TUNE], 4.0 / (t + 4.0), 0.0)
            usual = usual + weight * (x - usual)
            far_out = far_out.after(counted & self.collapsed.far_out(x, state.usual))
            counted = counted & self.collapsed.sums.within(stretches)
        sums = state.probabilities
        if p is not None:
            p = jnp.where(counted[:, None], p, 0.0)
            window = self.collapsed.window(state.usual)
            sums = self.collapsed.with_probabilities(sums, p, stretches, window)
        return new, SummedState(usual, sums, state.transitions + counted, far_out), total, logdensity

    # ------------------------------------------------------------ results
    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        density, model = self.collapsed.density, self.collapsed.model
        target = Target(density)

        def at(point: dict[str, np.ndarray]) -> tuple[np.ndarray, Target]:
            return density.space.ravel(point), target.given(self._inputs(point))

        continuous = [str(v.name) for v in model.continuous_value_vars]
        outside, known_else = outside_of(self.collapsed.behind(density.graph.read), points[0], continuous)
        own = self.collapsed.behind(density.graph.read_by_block_alone)
        conditionals = Conditionals(density.space, at, outside, known_else, own)
        return leaving_by(conditionals, model, points, joint=True, complete=True, summed=True)

    def groups(self, states: Any, coords: Mapping[str, Any], dims: Mapping[str, Any]) -> dict[str, Dataset]:
        if not self.collapsed.gives_probabilities:
            return {}
        space, partial = self.collapsed.density.space, self.collapsed.stretched
        transitions = on_host(states.transitions)
        transitions = np.broadcast_to(transitions, (len(transitions), space.d))
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
