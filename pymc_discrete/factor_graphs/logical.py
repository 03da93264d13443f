"""Factors of two-valued sites whose messages cost as much as they have sites: OR, AND, and how many are on.

Messages are log odds here, n = log m(1) - log m(0), as in App. C of Lazaro-Gredilla, Dedieu and George 2021
(PMP).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs.factor import Edges, impossible, refuse_twice, site_numbers
from pymc_discrete.factor_graphs.semiring import MAX, SUM, Semiring


class LogicalOr(Edges):
    r"""Sites that are on if and only if one of their parents is: 0 nats where this holds, :math:`-\infty`
    elsewhere.

    Parameters
    ----------
    parents : (F, n) int, or a list of F arrays of any lengths
    child : (F,) int

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, App. C.3; the sum-product messages are derived here in
    the same way.
    """

    binary: ClassVar[bool] = True
    hard = True
    on = True  # the value of a parent that decides

    def __init__(self, parents: Any, child: Any):
        kind = type(self).__name__
        if not np.iterable(parents):
            raise TypeError(
                f"{kind} takes a list of parents for each factor, and an array of children, got parents "
                f"{parents!r}."
            )
        if isinstance(parents, np.ndarray) and parents.ndim == 2:  # quickly: there may be millions
            self.lengths, flat = (
                np.full(len(parents), parents.shape[1]),
                site_numbers(kind, parents).reshape(-1),
            )
        else:
            rows = [site_numbers(kind, p).reshape(-1) for p in parents]
            self.lengths, flat = (
                np.array([len(row) for row in rows], int),
                np.concatenate([np.arange(0), *rows]),
            )
        self.width, self.factors = int(self.lengths.max(initial=0)), len(self.lengths)
        self._factor = np.repeat(np.arange(self.factors), self.lengths)
        first = np.cumsum(self.lengths) - self.lengths
        # edges in rows of equal width: flat places of the real ones
        self._place = self._factor * self.width + np.arange(len(flat)) - first[self._factor]
        self.sites = [flat, site_numbers(kind, child).reshape(-1)]
        self.parameters: dict[str, Any] = {}

    def check(self, widths: list[int]) -> None:
        kind = type(self).__name__
        if len(self.sites[1]) != self.factors:
            raise ValueError(f"{kind} has {self.factors} lists of parents and {len(self.sites[1])} children.")
        if 0 in self.lengths:
            raise ValueError(
                f"Factor {int(self.lengths.argmin())} of {kind} has no parents. Clamp its child, or leave "
                "the factor out."
            )
        refuse_twice(
            kind, np.concatenate([self._factor, np.arange(self.factors)]), np.concatenate(self.sites)
        )

    def _rows(self, edges, padding):
        """(F, n) from (E,), with `padding` where a factor has fewer parents."""
        if self.factors * self.width == len(self._place):
            return edges.reshape(self.factors, self.width)
        full = jnp.full(self.factors * self.width, padding, edges.dtype).at[self._place].set(edges)
        return full.reshape(self.factors, self.width)

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        starts = np.cumsum(self.lengths) - self.lengths
        # a parent more than once changes nothing
        rows = starts[:, None] + np.minimum(np.arange(self.width), self.lengths[:, None] - 1)
        parents = places[0][rows]
        decided = parents.max(axis=1) if self.on else parents.min(axis=1)
        return xp.where(abs(decided - places[1]) > 0, -np.inf, 0.0).sum()

    def send(self, parameters: dict[str, Any], cavities: list[Any], semiring: Semiring) -> list[Any]:
        tops, bottom = (self._odds(c) for c in cavities)
        tops = self._rows(tops, -jnp.inf)
        to_tops, to_bottom = (or_by_best if semiring is MAX else or_by_all)(tops, bottom)
        return [self._message(to_tops.reshape(-1)[self._place]), self._message(to_bottom)]

    def total(self, parameters: dict[str, Any], cavities: list[Any]):
        parents, child = (c if self.on else c[::-1] for c in cavities)
        off, both = (
            self._rows(parents[0], 0.0).sum(axis=1),
            self._rows(jnp.logaddexp(*parents), 0.0).sum(axis=1),
        )
        possible = parents[0] > -jnp.inf
        odds = self._rows(
            jnp.where(possible, parents[1] - jnp.where(possible, parents[0], 0.0), 0.0), -jnp.inf
        )
        one = jax.lax.associative_scan(either, odds, axis=1)[:, -1]
        some = jnp.where(off > -jnp.inf, off + one, both)  # at least one is on
        return jnp.logaddexp(child[0] + off, child[1] + some).sum()

    def _odds(self, message):
        """(E,) log odds of the value that decides, from (2, E); 0 where both are impossible."""
        odds = message[1] - message[0] if self.on else message[0] - message[1]
        return jnp.where(jnp.isnan(odds), 0.0, odds)

    def _message(self, odds):
        """(2, E) with the larger entry 0."""
        off, on = jnp.minimum(-odds, 0.0), jnp.minimum(odds, 0.0)
        return jnp.stack([off, on] if self.on else [on, off])


class LogicalAnd(LogicalOr):
    r"""Sites that are on if and only if all of their parents are: an OR of what is off.

    Parameters
    ----------
    parents : (F, n) int, or a list of F arrays of any lengths
    child : (F,) int
    """

    on = False


def or_by_best(tops, bottom):
    """(F, n), (F,) log odds to the parents and to the child, from theirs (F, n), (F,); App. C.3."""
    n = tops.shape[1]
    first = tops.argmax(axis=1)
    best = tops.max(axis=1)
    is_first = np.arange(n) == first[:, None]
    second = jnp.where(is_first, -jnp.inf, tops).max(axis=1)
    gains = jnp.maximum(tops, 0.0)
    all_gains = gains.sum(axis=1)
    others = sums_of_others(gains)
    rival = jnp.where(is_first, second[:, None], best[:, None])
    # a parent that is off costs what the best of the others loses by being on in its place
    to_tops = jnp.minimum(bottom[:, None] + others, jnp.maximum(0.0, -rival))
    # at least one is on: all that gain, or the one that loses least
    return to_tops, all_gains + jnp.minimum(best, 0.0)


def or_by_all(tops, bottom):
    """The same with sums for maxima: :math:`m_{f \\to b}(1) = \\prod_j (1 + e^{n_j}) - 1`, and of the other
    parents :math:`e^L`.
    """
    before, after = (jax.lax.associative_scan(either, tops, axis=1, reverse=back) for back in (False, True))
    none = jnp.full((len(tops), 1), -jnp.inf)
    others = either(
        jnp.concatenate([none, before[:, :-1]], axis=1), jnp.concatenate([after[:, 1:], none], axis=1)
    )
    b, some = bottom[:, None], jnp.isfinite(others)
    # e^b (1 + e^L) / (1 + e^(b + L))
    odds = jax.nn.softplus(-others) - jax.nn.softplus(-(b + jnp.where(some, others, 0.0)))
    # nobody else is on, or somebody surely is and this parent does not matter
    return jnp.where(some, odds, jnp.where(others < 0, b, 0.0)), before[:, -1]


def either(a, b):
    """log(e^a + e^b + e^(a + b)): log odds that one of two is on, or both."""
    both = jnp.where((a == -jnp.inf) | (b == -jnp.inf), -jnp.inf, a + b)
    return jnp.logaddexp(jnp.logaddexp(a, b), both)


def sums_of_others(a):
    """(F, n), the sum of each row without its own entry; infinite entries counted, not subtracted."""
    infinite = jnp.isinf(a)
    finite = jnp.where(infinite, 0.0, a)
    left = infinite.sum(axis=1, keepdims=True) - infinite
    return jnp.where(left > 0, jnp.inf, finite.sum(axis=1, keepdims=True) - finite)


class Cardinality(Edges):
    r"""How many of n two-valued sites are on, :math:`\log\phi_f(x) = w_f[\sum_i x_{fi}]`.

    Parameters
    ----------
    sites : (F, n) int
    weights : (n + 1,) nats by the number that are on, or (F, n + 1); -inf where impossible
    """

    binary: ClassVar[bool] = True

    def __init__(self, sites: Any, weights: Any):
        self.shape = np.shape(sites)
        if len(self.shape) != 2:
            raise ValueError(
                f"Cardinality takes sites (F, n), a row for each factor, got the shape {self.shape}."
            )
        if self.shape[1] == 0:
            raise ValueError(
                "Cardinality counts no sites. A term of none is a constant, which changes nothing: leave it "
                "out."
            )
        self.sites = [site_numbers("Cardinality", sites).reshape(-1)]
        self.parameters = {"weights": weights}
        self.hard = impossible(weights)

    def check(self, widths: list[int]) -> None:
        factors, n = self.shape
        refuse_twice("Cardinality", np.repeat(np.arange(factors), n), self.sites[0])
        shape = np.shape(self.parameters["weights"])
        if shape not in ((n + 1,), (factors, n + 1)):
            raise ValueError(
                f"Cardinality of {factors} x {n} sites has weights of shape {shape}; give {(n + 1,)} or "
                f"{(factors, n + 1)}."
            )

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        count, weights = places[0].reshape(self.shape).sum(axis=1), parameters["weights"]
        return (weights[np.arange(self.shape[0]), count] if weights.ndim == 2 else weights[count]).sum()

    def send(self, parameters: dict[str, Any], cavities: list[Any], semiring: Semiring) -> list[Any]:
        """As a chain of counts (Swersky et al. 2012): forward what the sites before add, backward what those
        after and the weights do.
        """
        each = cavities[0].reshape(2, *self.shape)
        weights = jnp.broadcast_to(parameters["weights"], (self.shape[0], self.shape[1] + 1)).astype(
            each.dtype
        )

        def shifted(a, by):
            """(F, n + 1) with `by` more on."""
            pad = jnp.full((a.shape[0], 1), -jnp.inf)
            return jnp.concatenate([pad, a[:, :-1]] if by > 0 else [a[:, 1:], pad], axis=1)

        def forward(counts, site):
            return semiring.two(counts + site[0][:, None], shifted(counts, 1) + site[1][:, None]), counts

        def backward(rest, site):
            return semiring.two(rest + site[0][:, None], shifted(rest, -1) + site[1][:, None]), rest

        along = jnp.moveaxis(each, 2, 0)  # (n, 2, F)
        none = jnp.where(np.arange(self.shape[1] + 1) == 0, 0.0, -jnp.inf)
        _, before = jax.lax.scan(forward, jnp.broadcast_to(none, weights.shape).astype(each.dtype), along)
        _, after = jax.lax.scan(backward, weights, along, reverse=True)
        off, on = (
            semiring.over(before + (after if by == 0 else jax.vmap(lambda a: shifted(a, -1))(after)), axis=2)
            for by in (0, 1)
        )
        return [jnp.stack([off, on]).transpose(0, 2, 1).reshape(2, -1)]

    def total(self, parameters: dict[str, Any], cavities: list[Any]):
        (message,) = self.send(parameters, cavities, SUM)
        return SUM.over((message + cavities[0]).reshape(2, *self.shape)[:, :, 0], axis=0).sum()
