"""Energy-based models, of which some are factor graphs whose log potentials are learned.

The models are given by log densities; the energy is minus the log density.
"""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs import Bipartite, FactorGraph, Pairwise, Quadratic
from pymc_discrete.runtime.checks import check_count, check_not_negative
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

# the standard deviation of the initial parameters: Lazaro-Gredilla et al. 2021, Algorithm 1 (variance 0.01)
SPREAD = 0.1


class Unnormalised(Protocol):
    """A log density up to its normalising constant, for samplers and objectives; `FactorGraph` is an example.

    Attributes
    ----------
    space : Space
    """

    @property
    def space(self) -> Space: ...

    def logdensity(self, x: Any) -> Any:
        """() float, nats, the log density of x (d,) int, up to a constant."""

    def to_target(self, differences: str = "auto") -> Target:
        """The target for the kernels of `pmd.kernels`."""


class Learnable(ABC):
    """The interface of a model for `fit`: parameters, and a space of states whose density they determine.

    Attributes
    ----------
    space : Space, of visible and hidden variables
    """

    space: Space

    @abstractmethod
    def start(self, key: Any) -> Any:
        """Initial parameters, a pytree of arrays."""

    def interactions(self, params: Any) -> Any:
        """The parameters that penalties apply to, a pytree; by default none."""
        return ()


class Model(Learnable):
    """An energy-based model: parameters that define a density."""

    @abstractmethod
    def density(self, params: Any) -> Unnormalised:
        """The density that the parameters define; traceable."""

    def target(self, params: Any, differences: str = "auto") -> Target:
        """The target of the density, for the kernels of `pmd.kernels`; see `pmd.target_from_logdensity`."""
        return self.density(params).to_target(differences)


class GraphModel(Model):
    """A model whose density is a factor graph; some of its variables may be hidden."""

    @abstractmethod
    def graph(self, params: Any) -> FactorGraph:
        """The factor graph, whose log potentials are linear in the parameters; traceable."""

    def density(self, params: Any) -> FactorGraph:
        return self.graph(params)


class Ising(GraphModel):
    r"""An Ising model in which every pair of spins may interact.

    .. math:: \log p(x) = \tfrac12 s^\top W s + b^\top s - \log Z

    with the spins s = -1 or 1 for x = 0 or 1.

    Parameters
    ----------
    n : int, number of spins
    spread : float, standard deviation of the parameters at the start

    Attributes
    ----------
    space : one variable "x" (n,)
    """

    def __init__(self, n: int, spread: float = SPREAD):
        check_count("n", n, 1)
        check_not_negative("spread", spread)
        self.n, self.spread = n, spread
        self.space = Space.build({"x": (0, 1)}, shapes={"x": (n,)})

    def start(self, key: Any) -> dict[str, Any]:
        """{"weights": (n, n), of which only the part above the diagonal is used; "bias": (n,)}, nats."""
        key_weights, key_bias = jax.random.split(key)
        weights = self.spread * jax.random.normal(key_weights, (self.n, self.n))
        return {"weights": jnp.triu(weights, 1), "bias": self.spread * jax.random.normal(key_bias, (self.n,))}

    def matrix(self, params: dict[str, Any]) -> Any:
        """The matrix W (n, n) of the interactions, symmetric."""
        upper = jnp.triu(params["weights"], 1)
        return upper + upper.T

    def graph(self, params: dict[str, Any]) -> FactorGraph:
        bias = params["bias"]
        return FactorGraph(
            self.space,
            [Quadratic(np.arange(self.n), self.matrix(params), (-1, 1))],
            {"x": jnp.stack([-bias, bias], axis=1)},
        )

    def interactions(self, params: dict[str, Any]) -> Any:
        return jnp.triu(params["weights"], 1)


class Potts(GraphModel):
    r"""A Potts model: sites of K values on a graph.

    .. math:: \log p(x) = \sum_i b_i[x_i] + \sum_{(i, j)} T_{ij}[x_i, x_j] - \log Z

    Parameters
    ----------
    n, K : int, the number of sites, and the number of values of each site, at least two
    pairs : (E, 2) int, the edges; by default all pairs of sites
    spread : float, standard deviation of the parameters at the start

    Attributes
    ----------
    space : one variable "x" (n,)
    """

    def __init__(self, n: int, K: int, pairs: Any = None, spread: float = SPREAD):
        check_count("n", n, 1)
        check_count("K", K, 2)
        check_not_negative("spread", spread)
        self.n, self.K, self.spread = n, K, spread
        self.pairs = np.stack(np.triu_indices(n, 1), axis=1) if pairs is None else checked_pairs(pairs)
        self.space = Space.build({"x": (0, K - 1)}, shapes={"x": (n,)}, nominal=["x"])
        # Building a graph raises an error for edges and K that a factor graph does not take.
        FactorGraph(self.space, [Pairwise(self.pairs[:, 0], self.pairs[:, 1], np.zeros((K, K)))])

    def start(self, key: Any) -> dict[str, Any]:
        """{"tables": (E, K, K), "bias": (n, K)}, nats."""
        key_tables, key_bias = jax.random.split(key)
        tables = self.spread * jax.random.normal(key_tables, (len(self.pairs), self.K, self.K))
        return {"tables": tables, "bias": self.spread * jax.random.normal(key_bias, (self.n, self.K))}

    def graph(self, params: dict[str, Any]) -> FactorGraph:
        return FactorGraph(
            self.space,
            [Pairwise(self.pairs[:, 0], self.pairs[:, 1], params["tables"])],
            {"x": params["bias"]},
        )

    def interactions(self, params: dict[str, Any]) -> Any:
        return params["tables"]


class RBM(GraphModel):
    r"""A restricted Boltzmann machine of values 0 and 1.

    .. math:: \log p(v, h) = v^\top W h + c^\top v + b^\top h - \log Z

    Parameters
    ----------
    visible, hidden : int, numbers of visible and hidden sites
    spread : float, standard deviation of W at the start

    Attributes
    ----------
    space : variables "v" (visible,) and "h" (hidden,)
    """

    def __init__(self, visible: int, hidden: int, spread: float = SPREAD):
        check_count("visible", visible, 1)
        check_count("hidden", hidden, 1)
        check_not_negative("spread", spread)
        self.shape, self.spread = (visible, hidden), spread
        self.space = Space.build({"v": (0, 1), "h": (0, 1)}, shapes={"v": (visible,), "h": (hidden,)})

    def start(self, key: Any) -> dict[str, Any]:
        """{"weights": (visible, hidden), "v": (visible,), "h": (hidden,)}, nats.

        The biases are drawn from N(0, 1) (Lazaro-Gredilla et al. 2021, section 5.5).
        """
        keys = jax.random.split(key, 3)
        return {
            "weights": self.spread * jax.random.normal(keys[0], self.shape),
            "v": jax.random.normal(keys[1], self.shape[:1]),
            "h": jax.random.normal(keys[2], self.shape[1:]),
        }

    def graph(self, params: dict[str, Any]) -> FactorGraph:
        block = Bipartite(self.space.numbers("v"), self.space.numbers("h"), params["weights"])
        return FactorGraph(
            self.space,
            [block],
            {n: jnp.stack([jnp.zeros_like(params[n]), params[n]], axis=1) for n in ("v", "h")},
        )

    def interactions(self, params: dict[str, Any]) -> Any:
        return params["weights"]


def checked_pairs(pairs: Any) -> np.ndarray:
    """The edges as an array (E, 2) int, after a check."""
    edges = np.asarray(pairs)
    if edges.ndim != 2 or edges.shape[1] != 2 or (edges.size and edges.dtype.kind not in "iu"):
        raise ValueError(
            f"pairs must be integers (E, 2), the two sites of each edge, got an array of {edges.dtype} of "
            f"shape {edges.shape}."
        )
    return edges.astype(int)
