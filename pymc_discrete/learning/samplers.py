"""Samplers for learning: draws of a factor graph whose log potentials change in every iteration."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from pymc_discrete.checks import check_count, check_switch, check_way
from pymc_discrete.factor_graphs import FactorGraph
from pymc_discrete.factor_graphs.max_product import check_sweeps
from pymc_discrete.factor_graphs.perturb_and_map import check_correlation, pmp
from pymc_discrete.kernels import Kernel, loop


@runtime_checkable
class Sampler(Protocol):
    """A sampler of factor graphs, with a state that it keeps between iterations."""

    def start(self, key: Any, graph: FactorGraph, chains: int) -> Any:
        """The state before the first iteration."""

    def draw(self, key: Any, graph: FactorGraph, kept: Any, chains: int) -> tuple[Any, Any]:
        """Draws x (chains, d), and the new state."""

    def conditional(self, key: Any, graph: FactorGraph) -> Any:
        """x (d,), one draw of a graph with visible sites clamped, without use of the state."""


@dataclass(frozen=True)
class PMP:
    """Perturb-and-max-product with independent draws (Lazaro-Gredilla et al. 2021, Algorithm 1).

    Parameters
    ----------
    n_sweeps, damping : see `pymc_discrete.factor_graphs.run`
    """

    n_sweeps: int = 100
    damping: float = 0.5

    def __post_init__(self) -> None:
        check_sweeps(self.n_sweeps, self.damping)

    def start(self, key: Any, graph: FactorGraph, chains: int) -> None:
        return None

    def draw(self, key: Any, graph: FactorGraph, kept: None, chains: int) -> tuple[Any, None]:
        return jax.vmap(lambda k: self.conditional(k, graph))(jax.random.split(key, chains)), None

    def conditional(self, key: Any, graph: FactorGraph) -> Any:
        return pmp(key, graph, n_sweeps=self.n_sweeps, damping=self.damping).x


@dataclass(frozen=True)
class PersistentPMP:
    """Perturb-and-max-product that starts with the noise and messages of the last iteration (App. A).

    Parameters
    ----------
    n_sweeps, damping : see `pymc_discrete.factor_graphs.run`
    correlation : float in [0, 1], rho of the noise from one iteration to the next
    """

    n_sweeps: int = 10
    damping: float = 0.5
    correlation: float = 0.9

    def __post_init__(self) -> None:
        check_sweeps(self.n_sweeps, self.damping)
        check_correlation(self.correlation)

    def start(self, key: Any, graph: FactorGraph, chains: int) -> Any:
        keys = jax.random.split(key, chains)
        return jax.vmap(lambda k: pmp(k, graph, n_sweeps=self.n_sweeps, damping=self.damping))(keys)

    def draw(self, key: Any, graph: FactorGraph, kept: Any, chains: int) -> tuple[Any, Any]:
        def draw(k: Any, previous: Any) -> Any:
            return pmp(
                k,
                graph,
                n_sweeps=self.n_sweeps,
                damping=self.damping,
                persistent=previous,
                correlation=self.correlation,
            )

        kept = jax.vmap(draw)(jax.random.split(key, chains), kept)
        return kept.x, kept

    def conditional(self, key: Any, graph: FactorGraph) -> Any:
        return pmp(key, graph, n_sweeps=self.n_sweeps, damping=self.damping).x


@dataclass(frozen=True)
class ContrastiveDivergence:
    """Draws by chains of a kernel: persistent contrastive divergence, or new chains in every iteration.

    Parameters
    ----------
    kernel, params : as returned by `pmd.kernels.gibbs_with_gradients()` and the other functions there
    transitions : int, number of transitions in an iteration
    persistent : bool
        Whether the chains continue from the last iteration. Otherwise they start at states drawn uniformly.
    conditional_transitions : int, optional
        Number of transitions, from a uniform state, for the hidden sites given the visible ones; by default
        `transitions`.
    differences : see `FactorGraph.to_target`
    """

    kernel: Kernel
    params: Any
    transitions: int = 1
    persistent: bool = True
    conditional_transitions: int | None = None
    differences: str = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel of pmd.kernels, got {type(self.kernel).__name__}: "
                "ContrastiveDivergence(kernel, params)."
            )
        check_count("transitions", self.transitions, 1)
        check_switch("persistent", self.persistent)
        if self.conditional_transitions is not None:
            check_count("conditional_transitions", self.conditional_transitions, 1)
        check_way(self.differences)

    def start(self, key: Any, graph: FactorGraph, chains: int) -> Any:
        return uniform(key, graph, (chains,))

    def draw(self, key: Any, graph: FactorGraph, kept: Any, chains: int) -> tuple[Any, Any]:
        key_start, key_move = jax.random.split(key)
        start = kept if self.persistent else uniform(key_start, graph, (chains,))
        target = graph.to_target(self.differences)
        x = jax.vmap(lambda k, x: self._run(k, x, target, self.transitions))(
            jax.random.split(key_move, chains), start
        )
        return x, x

    def conditional(self, key: Any, graph: FactorGraph) -> Any:
        key_start, key_move = jax.random.split(key)
        x = uniform(key_start, graph, ())
        start = jnp.where(possible(graph, x), x, most_probable_alone(graph))
        return self._run(
            key_move,
            start,
            graph.to_target(self.differences),
            self.conditional_transitions or self.transitions,
        )

    def _run(self, key: Any, x: Any, target: Any, transitions: int) -> Any:
        """x (d,) after some transitions of the kernel."""
        return loop(self.kernel, key, self.kernel.init(x, target), target, self.params, transitions)[0].x


def uniform(key: Any, graph: FactorGraph, shape: tuple[int, ...]) -> Any:
    """(*shape, d) int, uniform draws of the values of all sites."""
    return jax.random.randint(key, (*shape, graph.space.d), graph.space.lower, graph.space.upper + 1)


def most_probable_alone(graph: FactorGraph) -> Any:
    """(d,) int, for each site the value with the largest unary term; for a clamped site, its value."""
    return jnp.concatenate([u.argmax(axis=0) for u in graph.unary]) + graph.space.lower


def possible(graph: FactorGraph, x: Any) -> Any:
    """(d,) bool, for each site whether its unary terms allow its value in x (d,)."""
    places = [p[None] for p in graph.places(x)]
    return (
        jnp.concatenate(
            [jnp.take_along_axis(u, p, axis=0)[0] for u, p in zip(graph.unary, places, strict=True)]
        )
        > -jnp.inf
    )
