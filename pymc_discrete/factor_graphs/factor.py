"""What a factor is, and those that send a message along each of their edges."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs.semiring import MAX, Semiring


class Fields(NamedTuple):
    """Sums of what sites receive, with the impossible counted apart where a message may be -inf, so that it
    can be taken out again.

    finite : (K, E) nats, the sum of all that is counted here
    blocked : (K, E) int, how many are -inf; None where no message is
    """

    finite: Any
    blocked: Any

    def value(self):
        return self.finite if self.blocked is None else jnp.where(self.blocked > 0, -jnp.inf, self.finite)

    def without(self, message):
        """(K, E) nats, the sum of all but `message`."""
        if self.blocked is None:
            return self.finite - message
        ruled_out = message == -jnp.inf
        return jnp.where(
            self.blocked - ruled_out > 0, -jnp.inf, self.finite - jnp.where(ruled_out, 0.0, message)
        )


@runtime_checkable
class Factor(Protocol):
    """A kind of factor, many of it at once.

    Attributes
    ----------
    sites : [(E,) int], of every argument; an edge is a place in one of these
    parameters : {name: array}, log potentials in nats
    binary : whether the sites, and all others of their variables, must have two values
    hard : whether a message may be -inf
    """

    sites: list[np.ndarray]
    parameters: dict[str, Any]
    binary: ClassVar[bool]
    hard: bool

    def degrees(self) -> list[int]:
        """How many factors each edge of an argument stands for."""

    def check(self, widths: list[int]) -> None:
        """Refuse parameters that do not fit the arguments, given how many values the variable of each has."""

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        """() nats, at the places (E,) of the sites' values in their supports; by `jax.numpy` or
        `pytensor.tensor`.
        """

    def start(self, parameters: dict[str, Any], widths: list[int]) -> Any:
        """Messages that say nothing."""

    def received(self, parameters: dict[str, Any], messages: Any) -> list[Any]:
        """[(K, E)] nats, what the factors add to the field of the site at each edge."""

    def update(
        self, parameters: dict[str, Any], fields: list[Fields], messages: Any, semiring: Semiring
    ) -> Any:
        """The messages, given all that the sites receive."""

    def log_partition(self, parameters: dict[str, Any], fields: list[Fields], messages: Any):
        """() nats, of each factor with what its sites receive from elsewhere, summed over the factors (the
        first term of Bethe's).
        """


class Edges(ABC):
    """A factor that sends a message along each edge; a subclass gives `send` and `total`."""

    binary: ClassVar[bool] = False
    sites: list[np.ndarray]
    parameters: dict[str, Any]
    hard: bool

    def degrees(self) -> list[int]:
        return [1] * len(self.sites)

    def start(self, parameters: dict[str, Any], widths: list[int]) -> list[Any]:
        return [jnp.zeros((k, len(s)), float) for s, k in zip(self.sites, widths, strict=True)]

    def received(self, parameters: dict[str, Any], messages: list[Any]) -> list[Any]:
        return messages

    def update(self, parameters, fields: list[Fields], messages: list[Any], semiring: Semiring) -> list[Any]:
        return [normalised(m) for m in self.send(parameters, cavities(fields, messages), semiring)]

    def log_partition(self, parameters, fields: list[Fields], messages: list[Any]):
        return self.total(parameters, cavities(fields, messages))

    @abstractmethod
    def send(self, parameters: dict[str, Any], cavities: list[Any], semiring: Semiring) -> list[Any]:
        """[(K, E)] nats, the messages to the sites from what these receive from elsewhere."""

    @abstractmethod
    def total(self, parameters: dict[str, Any], cavities: list[Any]):
        """() nats, the logs of the sums over all values, added up."""


def site_numbers(kind: str, given: Any) -> np.ndarray:
    """Numbers of sites, in the shape they came in."""
    sites = np.asarray(given)
    if sites.size and sites.dtype.kind not in "iu":
        shown = repr(given) if sites.ndim == 0 else f"an array of {sites.dtype}"
        raise TypeError(
            f"{kind} takes the numbers of sites, integers as space.numbers(name) gives them, got {shown}."
        )
    return sites.astype(int)


def refuse_twice(kind: str, factors: np.ndarray, sites: np.ndarray) -> None:
    """Refuse a factor that names a site twice; the edges are of `factors` (E,) to `sites` (E,)."""
    order = np.lexsort((sites, factors))
    f, i = factors[order], sites[order]
    again = np.flatnonzero((f[1:] == f[:-1]) & (i[1:] == i[:-1]))
    if len(again):
        bad = f[again[0]]
        raise ValueError(
            f"Factor {bad} of {kind} names a site twice: {sites[factors == bad].tolist()}. Write it as a "
            "factor of its different sites."
        )


def impossible(array: Any) -> bool:
    """Whether log potentials hold -inf, as far as can be known."""
    return isinstance(array, jax.core.Tracer) or bool(np.isneginf(array).any())


def cavities(fields: list[Fields], messages: list[Any]) -> list[Any]:
    return [f.without(m) for f, m in zip(fields, messages, strict=True)]


def normalised(message):
    """(K, E), the largest entry 0, where there is one."""
    message = jax.lax.optimization_barrier(message)  # or XLA computes all its values again for each
    largest = MAX.over(message, axis=0)
    return message - jnp.where(jnp.isfinite(largest), largest, 0.0)
