"""Sources: the distributions from which a flow starts at time 0.

Sites have the values 0, ..., K - 1, counted from the lower bounds of their supports; K is the mask, which is
no value.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.space.space import Space


class SourceDistribution(ABC):
    """A distribution of the values of all sites, from which a flow starts at time 0."""

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise a ValueError unless the source is a distribution over the given space."""

    @abstractmethod
    def draw(self, key: Any, space: Space) -> Any:
        """(d,) int, one draw of the source."""


class Factorised(SourceDistribution):
    """A source of independent sites, whose probabilities are known."""

    @abstractmethod
    def probabilities(self, space: Space) -> np.ndarray:
        """(d, K + 1) float, the probabilities of every value and of the mask."""

    def check(self, space: Space) -> None:
        pass

    def draw(self, key: Any, space: Space) -> Any:
        return jax.random.categorical(key, jnp.log(jnp.asarray(self.probabilities(space))))


@dataclass(frozen=True)
class Mask(Factorised):
    """The source in which every site is masked."""

    def probabilities(self, space: Space) -> np.ndarray:
        return np.broadcast_to(np.arange(space.K + 1) == space.K, (space.d, space.K + 1)).astype(float)


@dataclass(frozen=True)
class Uniform(Factorised):
    """Independent sites, at which all values are equally probable."""

    def probabilities(self, space: Space) -> np.ndarray:
        return np.pad(uniform(space), ((0, 0), (0, 1)))


@dataclass(frozen=True, eq=False)
class Independent(Factorised):
    """Independent sites of given probabilities.

    Parameters
    ----------
    p : (d, K) float, the probabilities of the values of each site, which are positive in its support and 0
        beyond
    """

    p: np.ndarray

    def check(self, space: Space) -> None:
        p, exists = np.asarray(self.p, float), space.exists
        if p.shape != (space.d, space.K):
            raise ValueError(
                f"The probabilities of the source have shape {p.shape}, and the space has {space.d} sites of "
                f"up to {space.K} values: give {(space.d, space.K)}."
            )
        if (p[exists] <= 0).any() or (p[~exists] != 0).any() or not np.allclose(p.sum(axis=1), 1):
            raise ValueError(
                "The probabilities of the source must be positive for every value of a site, 0 beyond its "
                "support, and add up to 1. Mix them with a little of a uniform distribution."
            )

    def probabilities(self, space: Space) -> np.ndarray:
        p = np.asarray(self.p, float)
        return np.pad(p / p.sum(axis=1, keepdims=True), ((0, 0), (0, 1)))


@dataclass(frozen=True, eq=False)
class Empirical(SourceDistribution):
    """Draws with replacement from data. Since their probabilities are unknown, a flow can only be sampled.

    Parameters
    ----------
    x : (N, d) int, values counted from the lower bounds
    """

    x: np.ndarray

    def check(self, space: Space) -> None:
        x = np.asarray(self.x)
        if x.ndim != 2 or x.shape[1] != space.d or x.dtype.kind not in "iu" or not len(x):
            raise ValueError(
                f"The data of the source must be integers (N, {space.d}), got {x.dtype} of shape {x.shape}."
            )
        if (x < 0).any() or (x > space.upper - space.lower).any():
            raise ValueError(
                "The data of the source leave the supports of the sites. Count values from the lower bounds."
            )

    def draw(self, key: Any, space: Space) -> Any:
        return jnp.asarray(self.x)[jax.random.randint(key, (), 0, len(self.x))]


SOURCES = {"mask": Mask(), "uniform": Uniform()}


def uniform(space: Space) -> np.ndarray:
    """(d, K) float, the probabilities of the values of each site if all its values are equally probable."""
    return space.exists / space.exists.sum(axis=1, keepdims=True)
