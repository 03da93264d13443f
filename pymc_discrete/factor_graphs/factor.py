"""The interface of factors, and a base class for factors that send a message along each edge."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs.semiring import MAX, Semiring


class Fields(NamedTuple):
    """The fields of sites: sums of their unary terms and of the messages that they receive.

    Terms of -inf are counted and not added, so that a message can be subtracted from the sum again.

    Attributes
    ----------
    finite : (K, E) nats, the sum of the terms that are finite
    blocked : (K, E) int, the number of terms that are -inf; None if none can be
    """

    finite: Any
    blocked: Any

    def value(self):
        """(K, E) nats, the sum of all unary terms and messages of each site."""
        return self.finite if self.blocked is None else jnp.where(self.blocked > 0, -jnp.inf, self.finite)

    def without(self, message):
        """(K, E) nats, the sum of all unary terms and messages of each site except `message`."""
        if self.blocked is None:
            return self.finite - message
        ruled_out = message == -jnp.inf
        return jnp.where(
            self.blocked - ruled_out > 0, -jnp.inf, self.finite - jnp.where(ruled_out, 0.0, message)
        )


@runtime_checkable
class Factor(Protocol):
    """Many factors of one kind: functions of the values of sites, with the same number of arguments.

    Attributes
    ----------
    sites : [(E,) int], for each argument of the functions its sites; each entry is an edge from a factor to a
        site
    parameters : {name: array}, log potentials in nats
    binary : whether all sites of the variables must have two values
    hard : whether a message may be -inf
    """

    sites: list[np.ndarray]
    parameters: dict[str, Any]
    binary: ClassVar[bool]
    hard: bool

    def degrees(self) -> list[int]:
        """For each argument, how many factors of a site an edge of the argument stands for.

        `bethe_log_partition` counts the factors of each site. An edge stands for one factor with most kinds,
        and for more with a quadratic form, which is a factor for every pair of its sites.
        """

    def check(self, widths: list[int]) -> None:
        """Refuse parameters that do not fit the arguments, whose sites have `widths` values."""

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        """() nats, the sum of all factors.

        Parameters
        ----------
        places : [(E,) int], for each argument the indices of the sites' values in their supports
        xp : `jax.numpy` or `pytensor.tensor`
        """

    def start(self, parameters: dict[str, Any], widths: list[int]) -> Any:
        """Uniform messages, with which every value is equally likely."""

    def received(self, parameters: dict[str, Any], messages: Any) -> list[Any]:
        """[(K, E)] nats, for each argument the amounts that the factors add to the fields of its sites."""

    def update(
        self, parameters: dict[str, Any], fields: list[Fields], messages: Any, semiring: Semiring
    ) -> Any:
        """The new messages, given the fields of the sites and the old messages."""

    def log_partition(self, parameters: dict[str, Any], fields: list[Fields], messages: Any):
        """() nats, the sum of log Z_f, the first term of Bethe's approximation.

        Z_f sums, over all values of a factor's sites, the factor times the messages that these sites receive
        from other factors.
        """


class Edges(ABC):
    """Base class of factors that send a message along each edge; subclasses define `send` and `total`."""

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
        return [
            normalised_messages(m) for m in self.send(parameters, cavity_fields(fields, messages), semiring)
        ]

    def log_partition(self, parameters, fields: list[Fields], messages: list[Any]):
        return self.total(parameters, cavity_fields(fields, messages))

    @abstractmethod
    def send(self, parameters: dict[str, Any], cavities: list[Any], semiring: Semiring) -> list[Any]:
        """[(K, E)] nats, the messages from the factors to their sites.

        Parameters
        ----------
        cavities : [(K, E)] nats, for each edge the field of its site without the message along this edge
        """

    @abstractmethod
    def total(self, parameters: dict[str, Any], cavities: list[Any]):
        """() nats, the sum of log Z_f over the factors, see `Factor.log_partition`.

        Parameters
        ----------
        cavities : [(K, E)] nats, for each edge the field of its site without the message along this edge
        """


def site_numbers(kind: str, given: Any) -> np.ndarray:
    """Site numbers as an integer array of the same shape; `kind` is the kind of the factor, for errors."""
    sites = np.asarray(given)
    if sites.size and sites.dtype.kind not in "iu":
        shown = repr(given) if sites.ndim == 0 else f"an array of {sites.dtype}"
        raise TypeError(
            f"{kind} takes the numbers of sites, integers as space.numbers(name) gives them, got {shown}."
        )
    return sites.astype(int)


def refuse_repeated_sites(kind: str, factors: np.ndarray, sites: np.ndarray) -> None:
    """Refuse factors that name a site twice; edge e joins factor `factors[e]` and site `sites[e]`."""
    order = np.lexsort((sites, factors))
    f, i = factors[order], sites[order]
    again = np.flatnonzero((f[1:] == f[:-1]) & (i[1:] == i[:-1]))
    if len(again):
        bad = f[again[0]]
        raise ValueError(
            f"Factor {bad} of {kind} names a site twice: {sites[factors == bad].tolist()}. Write it as a "
            "factor of its different sites."
        )


def has_impossible(array: Any) -> bool:
    """Whether log potentials hold -inf; True for traced ones, whose values are unknown."""
    return isinstance(array, jax.core.Tracer) or bool(np.isneginf(array).any())


def cavity_fields(fields: list[Fields], messages: list[Any]) -> list[Any]:
    """[(K, E)] nats, the fields without the message that came along the same edge."""
    return [f.without(m) for f, m in zip(fields, messages, strict=True)]


def normalised_messages(message):
    """(K, E), shifted so that the largest entry of each message is 0, unless all are -inf."""
    # Without the barrier, XLA computes the whole message again for each entry of the message.
    message = jax.lax.optimization_barrier(message)
    largest = MAX.over(message, axis=0)
    return message - jnp.where(jnp.isfinite(largest), largest, 0.0)
