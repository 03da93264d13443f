"""Factors of two-valued sites whose every pair may interact, kept as a matrix.

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
    r"""A quadratic form of values, :math:`\tfrac12 v^\top W v` with :math:`v_i` one of `values`: Ising models
    and Boltzmann machines.

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
        check_finite("Quadratic", weights)
        if len(np.unique(self.sites[0])) < n:
            raise ValueError("Quadratic names a site twice. Add up the weights of the two.")
        if not isinstance(weights, jax.core.Tracer) and not np.allclose(weights, np.transpose(weights)):
            raise ValueError(
                "The weights of Quadratic are not symmetric. Pass (W + W.T) / 2, which is the same form."
            )

    def degrees(self) -> list[int]:
        return [len(self.sites[0]) - 1]

    def _weights(self, parameters: dict[str, Any], xp: Any = jnp):
        """(n, n) without a diagonal."""
        return xp.where(np.eye(len(self.sites[0]), dtype=bool), 0.0, parameters["weights"])

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        v = valued(places[0], self.values)
        return 0.5 * xp.dot(v, xp.dot(self._weights(parameters, xp), v))

    def start(self, parameters: dict[str, Any], widths: list[int]):
        """N (n, n), n_ij from i to j."""
        return jnp.zeros((len(self.sites[0]),) * 2)

    def received(self, parameters: dict[str, Any], messages) -> list[Any]:
        return [two(messages.sum(axis=0) + self._alone(self._weights(parameters)))]

    def _alone(self, weights):
        """(n,) log odds of a site where all others have their lower value."""
        low, high = self.values
        return (high - low) * low * weights.sum(axis=1)

    def _pairs(self, parameters: dict[str, Any]):
        return (self.values[1] - self.values[0]) ** 2 * self._weights(parameters)

    def update(self, parameters, fields: list[Fields], messages, semiring: Semiring):
        # Eq. 6: P = N^T 1 1^T - N^T + b 1^T, N = max(0, P + W) - max(0, P), the diagonal 0
        return sent(log_odds(fields[0])[:, None] - messages.T, self._pairs(parameters), semiring)

    def log_partition(self, parameters, fields: list[Fields], messages):
        value = fields[0].value()
        every = pair_partition(
            value[:, :, None], value[:, None], messages, messages.T, self._pairs(parameters)
        )
        once = jnp.triu(every, 1).sum()
        return once + 0.5 * self.values[0] ** 2 * self._weights(parameters).sum()


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
        check_finite("Bipartite", weights)
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
        """(A, B) from a to b, and (A, B) from b to a."""
        shape = tuple(map(len, self.sites))
        return jnp.zeros(shape), jnp.zeros(shape)

    def received(self, parameters: dict[str, Any], messages) -> list[Any]:
        to_b, to_a = messages
        weights, (low, high) = parameters["weights"], self.values
        alone = [(high - low) * low * weights.sum(axis=1 - side) for side in (0, 1)]
        return [two(to_a.sum(axis=1) + alone[0]), two(to_b.sum(axis=0) + alone[1])]

    def _pairs(self, parameters: dict[str, Any]):
        return (self.values[1] - self.values[0]) ** 2 * parameters["weights"]

    def update(self, parameters, fields: list[Fields], messages, semiring: Semiring):
        # App. C.2, and the same from the visible to the hidden sites
        to_b, to_a = messages
        w, (a, b) = self._pairs(parameters), map(log_odds, fields)
        return sent(a[:, None] - to_a, w, semiring), sent(b[None] - to_b, w, semiring)

    def log_partition(self, parameters, fields: list[Fields], messages):
        a, b = (f.value() for f in fields)
        to_b, to_a = messages
        every = pair_partition(a[:, :, None], b[:, None], to_b, to_a, self._pairs(parameters))
        return every.sum() + self.values[0] ** 2 * parameters["weights"].sum()


def two_values(kind: str, values: Any) -> tuple[float, float]:
    found = np.asarray(values, float)
    if found.shape != (2,) or not np.isfinite(found).all() or found[0] == found[1]:
        raise ValueError(
            f"values of {kind} must be two different numbers, such as (0, 1) or (-1, 1), got {values!r}."
        )
    return float(found[0]), float(found[1])


def check_finite(kind: str, weights: Any) -> None:
    if not isinstance(weights, jax.core.Tracer) and not np.isfinite(weights).all():
        raise ValueError(
            f"The weights of {kind} must be finite. Say what two sites may not be together by Pairwise, with "
            "-inf in its table."
        )


def valued(places, values: tuple[float, float]):
    """v of places 0 and 1."""
    return values[0] + (values[1] - values[0]) * places


def two(odds):
    """(2, E) nats of log odds (E,)."""
    return jnp.stack([jnp.zeros_like(odds), odds])


def log_odds(field: Fields):
    """(E,), infinite where one value is impossible; 0 where both are."""
    off, on = field.value()
    return jnp.where((off == -jnp.inf) & (on == -jnp.inf), 0.0, on - off)


def sent(p, w, semiring: Semiring):
    """max(0, P + W) - max(0, P), or with log(1 + e^.) for the maximum; finite also where P is not."""
    if semiring is MAX:
        return jnp.sign(w) * jnp.clip(p + jnp.maximum(w, 0.0), 0.0, jnp.abs(w))
    # both exponentials divided by e^max(0, p)
    return jnp.logaddexp(-jnp.maximum(p, 0.0), jnp.minimum(p, 0.0) + w) - jax.nn.softplus(-jnp.abs(p))


def pair_partition(a, b, to_b, to_a, w):
    """(A, B) nats, the log of the sum over both sites of a pair; a (2, A, 1), b (2, 1, B) are fields, to_b
    and to_a their messages.
    """
    a_on, b_on = a[1] - to_a, b[1] - to_b
    one = jnp.logaddexp(a[0] + b_on, a_on + b[0])
    return jnp.logaddexp(jnp.logaddexp(a[0] + b[0], one), a_on + b_on + w)
