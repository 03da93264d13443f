"""Samplers for learning: draws of a density that changes in every iteration."""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs import FactorGraph
from pymc_discrete.factor_graphs.max_product import check_sweeps
from pymc_discrete.factor_graphs.perturb_and_map import check_correlation, pmp
from pymc_discrete.kernels import Kernel, loop
from pymc_discrete.kernels.tuning import Learned, Tuner
from pymc_discrete.learning.data import Batch
from pymc_discrete.learning.models import Unnormalised
from pymc_discrete.learning.neural import NeuralDensity
from pymc_discrete.runtime.checks import check_choice, check_count, check_way
from pymc_discrete.space.space import Space

CHAIN_STARTS = ("data", "persistent", "uniform")


@runtime_checkable
class Sampler(Protocol):
    """A sampler of densities, with a state that it keeps between iterations."""

    def begin(self, key: Any, density: Any, chains: int) -> Any:
        """The state before the first iteration."""

    def draw(self, key: Any, density: Any, kept: Any, chains: int, batch: Any) -> tuple[Any, Any]:
        """Draws x (chains, d), and the new state; `batch` are the observations of the iteration."""

    def conditional(self, key: Any, graph: FactorGraph, kept: Any) -> Any:
        """x (d,), one draw of a graph with visible sites clamped; the sampler's state does not change."""


# ---------------------------------------------------------------- perturb-and-max-product
@dataclass(frozen=True)
class PMP:
    """Perturb-and-max-product with independent draws (Lazaro-Gredilla et al. 2021, Algorithm 1).

    Parameters
    ----------
    n_sweeps : int, the largest number of sweeps of max-product
    damping : float in [0, 1), the weight of the old message in its average with the new message
    """

    n_sweeps: int = 100
    damping: float = 0.5

    def __post_init__(self) -> None:
        check_sweeps(self.n_sweeps, self.damping)

    def begin(self, key: Any, density: FactorGraph, chains: int) -> None:
        check_graph(density)

    def draw(
        self, key: Any, density: FactorGraph, kept: None, chains: int, batch: Batch | None = None
    ) -> tuple[Any, None]:
        return jax.vmap(lambda k: self.conditional(k, density))(jax.random.split(key, chains)), None

    def conditional(self, key: Any, graph: FactorGraph, kept: None = None) -> Any:
        return pmp(key, graph, n_sweeps=self.n_sweeps, damping=self.damping).x


@dataclass(frozen=True)
class PersistentPMP:
    """Perturb-and-max-product that starts with the noise and messages of the previous iteration of learning.

    Lazaro-Gredilla et al. 2021, App. A.

    Parameters
    ----------
    n_sweeps : int, the largest number of sweeps of max-product
    damping : float in [0, 1), the weight of the old message in its average with the new message
    correlation : float in [0, 1], the correlation rho of the noise in successive iterations
    """

    n_sweeps: int = 10
    damping: float = 0.5
    correlation: float = 0.9

    def __post_init__(self) -> None:
        check_sweeps(self.n_sweeps, self.damping)
        check_correlation(self.correlation)

    def begin(self, key: Any, density: FactorGraph, chains: int) -> Any:
        check_graph(density)
        keys = jax.random.split(key, chains)
        return jax.vmap(lambda k: pmp(k, density, n_sweeps=self.n_sweeps, damping=self.damping))(keys)

    def draw(
        self, key: Any, density: FactorGraph, kept: Any, chains: int, batch: Batch | None = None
    ) -> tuple[Any, Any]:
        def draw(k: Any, previous: Any) -> Any:
            return pmp(
                k,
                density,
                n_sweeps=self.n_sweeps,
                damping=self.damping,
                persistent=previous,
                correlation=self.correlation,
            )

        kept = jax.vmap(draw)(jax.random.split(key, chains), kept)
        return kept.x, kept

    def conditional(self, key: Any, graph: FactorGraph, kept: Any = None) -> Any:
        return pmp(key, graph, n_sweeps=self.n_sweeps, damping=self.damping).x


def check_graph(density: Any) -> None:
    """Raise a TypeError unless the density is a factor graph."""
    if not isinstance(density, FactorGraph):
        raise TypeError(
            "Perturb-and-max-product draws from factor graphs, and the model has a "
            f"{type(density).__name__}. Use pmd.learning.ContrastiveDivergence or ReplayBuffer with a "
            "kernel of pmd.kernels."
        )


# ---------------------------------------------------------------- Markov chains with kernels
class PersistentChains(NamedTuple):
    """The state of Markov chains that is kept between iterations.

    Attributes
    ----------
    x : (n, d) int, the states
    learned : Learned, the tuning of the kernel's parameter
    """

    x: Any
    learned: Learned


@dataclass(frozen=True)
class MarkovChains:
    """The base class of samplers by chains of a kernel: moves, and tuning while the model changes."""

    kernel: Kernel
    params: Any
    transitions: int = 1
    conditional_transitions: int | None = None
    differences: str = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel of pmd.kernels, got {type(self.kernel).__name__}: "
                f"{type(self).__name__}(kernel, params)."
            )
        check_count("transitions", self.transitions, 1)
        if self.conditional_transitions is not None:
            check_count("conditional_transitions", self.conditional_transitions, 1)
        check_way(self.differences)

    def tuner(self, space: Space) -> Tuner:
        return Tuner.of(self.kernel, self.params, space)

    def tuned(self, space: Space, kept: PersistentChains) -> dict[str, Any]:
        """{name: value}, the current values of the kernel's tuned parameters."""
        return self.tuner(space).tuned(kept.learned, True, jnp)

    def new_chains(self, key: Any, density: Unnormalised, n: int) -> PersistentChains:
        """n chains before their first transition."""
        learned = jax.tree.map(jnp.asarray, self.tuner(density.space).start())
        return PersistentChains(first_states(density, key, (n,)), learned)

    def move(self, key: Any, density: Unnormalised, kept: PersistentChains) -> PersistentChains:
        """All chains after `transitions` of the kernel, whose tuned parameter follows the acceptance.

        The tuning never ends, since the density goes on changing: its steps have a constant size, and use the
        mean over the chains.
        """
        target, tuner = density.to_target(self.differences), self.tuner(density.space)
        params = tuner.tuned(kept.learned, True, jnp)
        keys = jax.random.split(key, len(kept.x))
        x, info = jax.vmap(lambda k, x: self._run(k, x, target, params, self.transitions))(keys, kept.x)
        changed = (x != kept.x).sum(axis=1).mean()
        means = jax.tree.map(jnp.mean, info)
        learned = tuner.update(
            kept.learned, x, means.accept, means.n_moves, changed, np.inf, jnp, means.measured
        )
        return PersistentChains(x, learned)

    def conditional(self, key: Any, graph: FactorGraph, kept: PersistentChains) -> Any:
        """x (d,), one draw by a new chain, given the visible sites, which are clamped in `graph`."""
        key_start, key_move = jax.random.split(key)
        x = first_states(graph, key_start, ())
        start = jnp.where(possible(graph, x), x, most_probable_alone(graph))
        count = self.conditional_transitions or self.transitions
        target = graph.to_target(self.differences)
        return self._run(key_move, start, target, self.tuned(graph.space, kept), count)[0]

    def _run(self, key: Any, x: Any, target: Any, params: Any, count: int) -> tuple[Any, Any]:
        """x (d,) after some transitions of the kernel, and the means of their `Info`."""
        state, info = loop(self.kernel, key, self.kernel.init(x, target), target, params, count)
        return state.x, info


@dataclass(frozen=True)
class ContrastiveDivergence(MarkovChains):
    """Draws by chains of a kernel that begin at the data, or go on from iteration to iteration.

    Parameters
    ----------
    kernel, params : the result of `pmd.kernels.gibbs_with_gradients()` or of another function of
        `pmd.kernels`
        A parameter that the kernel tunes follows the acceptance probability while the model is learned.
    transitions : int
        Number of transitions in an iteration; a kernel that accepts or rejects makes one more with
        probability 1/2, so that the parity of the sites may change (`pmd.kernels.loop`).
    conditional_transitions : int, optional
        Number of transitions, from a uniform state, for the hidden sites given the visible ones; by default
        `transitions`.
    differences : {"auto", "exact", "gradient"}
        Where the differences come from; "auto" estimates those of a `Neural` by a gradient.
    start : {"persistent", "data", "uniform"}
        Where the chains begin in an iteration: where they ended in the last one (persistent contrastive
        divergence), at observations of the iteration's batch (contrastive divergence), or at states drawn
        uniformly, or from the base distribution of a `Neural`.

    References
    ----------
    Hinton 2002, Training Products of Experts by Minimizing Contrastive Divergence. Tieleman 2008, Training
    Restricted Boltzmann Machines Using Approximations to the Likelihood Gradient.
    """

    start: str = "persistent"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("start", self.start, CHAIN_STARTS)

    def begin(self, key: Any, density: Unnormalised, chains: int) -> PersistentChains:
        return self.new_chains(key, density, chains)

    def draw(
        self, key: Any, density: Unnormalised, kept: PersistentChains, chains: int, batch: Batch | None = None
    ) -> tuple[Any, PersistentChains]:
        key_start, key_move = jax.random.split(key)
        x = kept.x
        if self.start == "data":
            if batch is None:
                raise ValueError("start='data' needs observations: draw(key, density, kept, chains, batch).")
            x = resampled(key_start, batch, chains)
        elif self.start == "uniform":
            x = first_states(density, key_start, (chains,))
        kept = self.move(key_move, density, kept._replace(x=x))
        return kept.x, kept


@dataclass(frozen=True)
class ReplayBuffer(MarkovChains):
    """Draws by persistent chains; a random part of the chains moves in each iteration.

    Parameters
    ----------
    kernel, params, transitions, conditional_transitions, differences
        The kernel of the chains, its numbers of transitions, and where differences come from, as for
        `ContrastiveDivergence`.
    size : int, number of chains
        An iteration takes as many chains as it needs without replacement, moves them, and writes them back.
        No chain is ever begun anew.

    Raises
    ------
    ValueError
        If `fit` asks for more chains than there are.

    References
    ----------
    Du and Mordatch 2019, Implicit Generation and Modeling with Energy-Based Models. Grathwohl et al. 2021,
    App. I.2, where chains are not begun anew.
    """

    size: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("size", self.size, 1)

    def begin(self, key: Any, density: Unnormalised, chains: int) -> PersistentChains:
        if chains > self.size:
            raise ValueError(
                f"The buffer holds {self.size} chains, and an iteration needs {chains}: "
                "ReplayBuffer(..., size=) must be at least fit(..., chains=)."
            )
        return self.new_chains(key, density, self.size)

    def draw(
        self, key: Any, density: Unnormalised, kept: PersistentChains, chains: int, batch: Batch | None = None
    ) -> tuple[Any, PersistentChains]:
        key_choice, key_move = jax.random.split(key)
        chosen = self._chosen(key_choice, chains)
        moved = self.move(key_move, density, kept._replace(x=kept.x[chosen]))
        return moved.x, moved._replace(x=kept.x.at[chosen].set(moved.x))

    def _chosen(self, key: Any, n: int) -> Any:
        """(n,) int, the indices of the chains that move in an iteration, all different."""
        return jax.random.choice(key, self.size, (n,), replace=False)


def resampled(key: Any, batch: Batch, n: int) -> Any:
    """(n, d) int, rows of a batch, resampled systematically: a row is drawn about n times its weight times.

    With equal weights and as many draws as there are rows, each row is drawn once.
    """
    ends = jnp.cumsum(batch.weights)
    points = (jnp.arange(n) + jax.random.uniform(key)) / n * ends[-1]
    return batch.x[jnp.minimum(jnp.searchsorted(ends, points), len(ends) - 1)]


# ---------------------------------------------------------------- states in which chains begin
@singledispatch
def first_states(density: Any, key: Any, shape: tuple[int, ...]) -> Any:
    """(*shape, d) int, states in which chains begin: uniform draws of the values of all sites."""
    space = density.space
    return jax.random.randint(key, (*shape, space.d), space.lower, space.upper + 1)


@first_states.register
def _(density: NeuralDensity, key: Any, shape: tuple[int, ...]) -> Any:
    """The initial states of chains of a `Neural` density: draws of the base distribution."""
    space, log_base = density.space, jnp.asarray(density.model.log_base)
    return space.lower + jax.random.categorical(key, log_base, shape=(*shape, space.d))


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
