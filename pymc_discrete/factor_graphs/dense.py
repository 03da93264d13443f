"""Factors of two-valued sites in which every pair may interact, with a matrix of weights.

A message is one number, the log odds :math:`n_{i \\to j}`, and a sweep is a few passes over the matrix
(Lazaro-Gredilla, Dedieu and George 2021, App. C.1 and C.2).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs.factor import Fields, site_numbers
from pymc_discrete.factor_graphs.semiring import MAX, Semiring


class Quadratic:
    r"""A quadratic form of values: Ising models and Boltzmann machines.

    .. math:: \tfrac12 v^\top W v, \qquad v_i \in \{\mathrm{values}_0, \mathrm{values}_1\}

    Parameters
    ----------
    sites : (n,) int
    weights : (n, n) nats, symmetric; the diagonal is not read
    values : (2,) float, v of the lower and of the upper value of a site: (0, 1), or (-1, 1) for spins
    """

    binary: ClassVar[bool] = True
    hard = False

    def __init__(self, sites: Any, weights: Any, values: tuple[float, float] = (0.0, 1.0)):
        self.sites = [site_numbers("Quadratic", sites).reshape(-1)]
        self.parameters = {"weights": weights}
        self.values = two_values("Quadratic", values)

    def check(self, widths: list[int]) -> None:
        weights, n = self.parameters["weights"], len(self.sites[0])
        if np.shape(weights) != (n, n):
            raise ValueError(
                f"Quadratic of {n} sites has weights of shape {np.shape(weights)}; give {(n, n)}."
            )
        check_finite_weights("Quadratic", weights)
        if len(np.unique(self.sites[0])) < n:
            raise ValueError("Quadratic names a site twice. Add up the weights of the two.")
        if not isinstance(weights, jax.core.Tracer) and not np.allclose(weights, np.transpose(weights)):
            raise ValueError(
                "The weights of Quadratic are not symmetric. Pass (W + W.T) / 2, which is the same form."
            )

    def degrees(self) -> list[int]:
        return [len(self.sites[0]) - 1]

    def _weights(self, parameters: dict[str, Any], xp: Any = jnp):
        """(n, n), the matrix of weights, with a diagonal of 0."""
        return xp.where(np.eye(len(self.sites[0]), dtype=bool), 0.0, parameters["weights"])

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        v = valued(places[0], self.values)
        return 0.5 * xp.dot(v, xp.dot(self._weights(parameters, xp), v))

    def start(self, parameters: dict[str, Any], widths: list[int]):
        """Uniform messages N (n, n), whose entry n_ij is the message from i to j."""
        return jnp.zeros((len(self.sites[0]),) * 2)

    def received(self, parameters: dict[str, Any], messages) -> list[Any]:
        return [two(messages.sum(axis=0) + self._offset(self._weights(parameters)))]

    def _offset(self, weights):
        """(n,) the log odds of each site if all other sites have their lower value."""
        low, high = self.values
        return (high - low) * low * weights.sum(axis=1)

    def _pairs(self, parameters: dict[str, Any]):
        """(n, n) nats, the weights of pairs of sites, for sites whose two values are written as 0 and 1."""
        return (self.values[1] - self.values[0]) ** 2 * self._weights(parameters)

    def update(self, parameters, fields: list[Fields], messages, semiring: Semiring):
        # Lazaro-Gredilla et al. 2021, Eq. 6: P = N^T 1 1^T - N^T + b 1^T and N = max(0, P + W) - max(0, P),
        # with a diagonal of 0 in N
        return sent(field_log_odds(fields[0])[:, None] - messages.T, self._pairs(parameters), semiring)

    def log_partition(self, parameters, fields: list[Fields], messages):
        value = fields[0].value()
        of_pairs = pair_partition(
            value[:, :, None], value[:, None], messages, messages.T, self._pairs(parameters)
        )
        total = jnp.triu(of_pairs, 1).sum()
        return total + 0.5 * self.values[0] ** 2 * self._weights(parameters).sum()


class Bipartite:
    r"""A bilinear form of values, :math:`v_a^\top W v_b`: restricted Boltzmann machines.

    Parameters
    ----------
    a, b : (A,), (B,) int, sites
    weights : (A, B) nats
    values : (2,) float, v of the lower and of the upper value of a site: (0, 1), or (-1, 1) for spins
    """

    binary: ClassVar[bool] = True
    hard = False

    def __init__(self, a: Any, b: Any, weights: Any, values: tuple[float, float] = (0.0, 1.0)):
        self.sites = [site_numbers("Bipartite", s).reshape(-1) for s in (a, b)]
        self.parameters = {"weights": weights}
        self.values = two_values("Bipartite", values)

    def check(self, widths: list[int]) -> None:
        weights, want = self.parameters["weights"], tuple(map(len, self.sites))
        shape = np.shape(weights)
        if shape != want:
            raise ValueError(
                f"Bipartite of {want[0]} and {want[1]} sites has weights of shape {shape}; give {want}."
            )
        check_finite_weights("Bipartite", weights)
        together = np.concatenate(self.sites)
        if len(np.unique(together)) < len(together):
            raise ValueError(
                "Bipartite names a site twice. Its two sides must have no site in common, and each site once."
            )

    def degrees(self) -> list[int]:
        return [len(s) for s in self.sites[::-1]]

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        a, b = (valued(p, self.values) for p in places)
        return xp.dot(a, xp.dot(parameters["weights"], b))

    def start(self, parameters: dict[str, Any], widths: list[int]):
        """Uniform messages: (A, B) from the sites a to the sites b, and (A, B) from b to a."""
        shape = tuple(map(len, self.sites))
        return jnp.zeros(shape), jnp.zeros(shape)

    def received(self, parameters: dict[str, Any], messages) -> list[Any]:
        to_b, to_a = messages
        weights, (low, high) = parameters["weights"], self.values
        offsets = [(high - low) * low * weights.sum(axis=1 - side) for side in (0, 1)]
        return [two(to_a.sum(axis=1) + offsets[0]), two(to_b.sum(axis=0) + offsets[1])]

    def _pairs(self, parameters: dict[str, Any]):
        """(A, B), the weights of pairs of sites, for sites whose two values are written as 0 and 1."""
        return (self.values[1] - self.values[0]) ** 2 * parameters["weights"]

    def update(self, parameters, fields: list[Fields], messages, semiring: Semiring):
        # Lazaro-Gredilla et al. 2021, App. C.2, has the messages from the hidden to the visible sites; those
        # from the visible to the hidden sites are alike.
        to_b, to_a = messages
        w, (a, b) = self._pairs(parameters), map(field_log_odds, fields)
        return sent(a[:, None] - to_a, w, semiring), sent(b[None] - to_b, w, semiring)

    def log_partition(self, parameters, fields: list[Fields], messages):
        a, b = (f.value() for f in fields)
        to_b, to_a = messages
        of_pairs = pair_partition(a[:, :, None], b[:, None], to_b, to_a, self._pairs(parameters))
        return of_pairs.sum() + self.values[0] ** 2 * parameters["weights"].sum()


def two_values(kind: str, values: Any) -> tuple[float, float]:
    """The lower and the upper value of the sites of a factor of this `kind`, checked."""
    pair = np.asarray(values, float)
    if pair.shape != (2,) or not np.isfinite(pair).all() or pair[0] == pair[1]:
        raise ValueError(
            f"values of {kind} must be two different numbers, such as (0, 1) or (-1, 1), got {values!r}."
        )
    return float(pair[0]), float(pair[1])


def check_finite_weights(kind: str, weights: Any) -> None:
    """Refuse weights that are not finite, unless they are traced."""
    if not isinstance(weights, jax.core.Tracer) and not np.isfinite(weights).all():
        raise ValueError(
            f"The weights of {kind} must be finite. Say what two sites may not be together by Pairwise, with "
            "-inf in its table."
        )


def valued(places, values: tuple[float, float]):
    """The values v of sites at places 0 and 1 of their support."""
    return values[0] + (values[1] - values[0]) * places


def two(odds):
    """(2, E) nats, messages with the log odds (E,)."""
    return jnp.stack([jnp.zeros_like(odds), odds])


def field_log_odds(field: Fields):
    """(E,) log odds of a field; infinite where one value is impossible, 0 where both are."""
    off, on = field.value()
    return jnp.where((off == -jnp.inf) & (on == -jnp.inf), 0.0, on - off)


def sent(p, w, semiring: Semiring):
    """The log odds that each site sends to its partner in a pair: max(0, p + w) - max(0, p).

    Here p are the sender's log odds without the partner, and w the weights of the pairs. For `SUM`,
    log(1 + e^x) takes the place of max(0, x). The messages are finite also where p is infinite.
    """
    if semiring is MAX:
        return jnp.sign(w) * jnp.clip(p + jnp.maximum(w, 0.0), 0.0, jnp.abs(w))
    # log(1 + e^(p + w)) - log(1 + e^p), with the arguments of both logarithms divided by e^max(0, p), so that
    # neither overflows
    return jnp.logaddexp(-jnp.maximum(p, 0.0), jnp.minimum(p, 0.0) + w) - jax.nn.softplus(-jnp.abs(p))


def pair_partition(a, b, to_b, to_a, w):
    """(A, B) nats, for each pair of sites the log of the sum of e^s over the values of both sites, with s the
    pair's log potential plus the fields of both sites without the pair's own messages.

    Parameters
    ----------
    a, b : (2, A, 1), (2, 1, B) nats, fields
    to_b, to_a : (A, B) log odds, the messages of the pair, which the fields contain
    w : (A, B) nats, weights
    """
    a_on, b_on = a[1] - to_a, b[1] - to_b
    one = jnp.logaddexp(a[0] + b_on, a_on + b[0])
    return jnp.logaddexp(jnp.logaddexp(a[0] + b[0], one), a_on + b_on + w)
