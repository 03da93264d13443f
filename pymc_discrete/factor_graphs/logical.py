"""Logical factors and cardinality factors of two-valued sites.

Messages take time linear in the number of sites (quadratic for cardinality), and not exponential as with
tables. In this file messages are log odds, n = log m(1) - log m(0), as in App. C of Lazaro-Gredilla, Dedieu
and George 2021 (PMP).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs.factor import Edges, has_impossible, refuse_repeated_sites, site_numbers
from pymc_discrete.factor_graphs.semiring import MAX, SUM, Semiring


class LogicalOr(Edges):
    r"""Sites that are on if and only if at least one of their parents is on.

    The log potential is 0 where this holds, and :math:`-\infty` elsewhere.

    Parameters
    ----------
    parents : (F, n) int, or a list of F arrays of any lengths
    child : (F,) int

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, App. C.3, for max-product; the messages of sum-product are
    derived in the same way.
    """

    binary: ClassVar[bool] = True
    hard = True
    # If a parent has the value `on`, the child has it too, whatever the other parents are.
    on = True

    def __init__(self, parents: Any, child: Any):
        kind = type(self).__name__
        if not np.iterable(parents):
            raise TypeError(
                f"{kind} takes a list of parents for each factor, and an array of children, got parents "
                f"{parents!r}."
            )
        # An array is not split into lists, since it may hold millions of factors.
        if isinstance(parents, np.ndarray) and parents.ndim == 2:
            self.lengths = np.full(len(parents), parents.shape[1])
            flat = site_numbers(kind, parents).reshape(-1)
        else:
            lists = [site_numbers(kind, p).reshape(-1) for p in parents]
            self.lengths = np.array([len(sites) for sites in lists], int)
            flat = np.concatenate([np.arange(0), *lists])
        self.width, self.factors = int(self.lengths.max(initial=0)), len(self.lengths)
        self._factor = np.repeat(np.arange(self.factors), self.lengths)
        first = np.cumsum(self.lengths) - self.lengths
        # the index of each parent in a table (factors, width), padded to the largest number of parents
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
        refuse_repeated_sites(
            kind, np.concatenate([self._factor, np.arange(self.factors)]), np.concatenate(self.sites)
        )

    def _padded(self, edges, padding):
        """Arrange values of the E edges to parents, (E,), as a table (F, n) with one row for each factor.

        Rows of factors with fewer than n parents are filled up with `padding`.
        """
        if self.factors * self.width == len(self._place):
            return edges.reshape(self.factors, self.width)
        full = jnp.full(self.factors * self.width, padding, edges.dtype).at[self._place].set(edges)
        return full.reshape(self.factors, self.width)

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        starts = np.cumsum(self.lengths) - self.lengths
        # The table is padded with the last parent, since a repeated parent does not change the result.
        edges = starts[:, None] + np.minimum(np.arange(self.width), self.lengths[:, None] - 1)
        parents = places[0][edges]
        decided = parents.max(axis=1) if self.on else parents.min(axis=1)
        return xp.where(abs(decided - places[1]) > 0, -np.inf, 0.0).sum()

    def send(self, parameters: dict[str, Any], cavities: list[Any], semiring: Semiring) -> list[Any]:
        parents, child = (self._odds(c) for c in cavities)
        parents = self._padded(parents, -jnp.inf)
        to_parents, to_child = (or_max_product if semiring is MAX else or_sum_product)(parents, child)
        return [self._message(to_parents.reshape(-1)[self._place]), self._message(to_child)]

    def total(self, parameters: dict[str, Any], cavities: list[Any]):
        parents, child = (c if self.on else c[::-1] for c in cavities)
        all_off = self._padded(parents[0], 0.0).sum(axis=1)
        any_values = self._padded(jnp.logaddexp(*parents), 0.0).sum(axis=1)
        possible = parents[0] > -jnp.inf
        odds = self._padded(
            jnp.where(possible, parents[1] - jnp.where(possible, parents[0], 0.0), 0.0), -jnp.inf
        )
        odds_some_on = jax.lax.associative_scan(either, odds, axis=1)[:, -1]
        some_on = jnp.where(all_off > -jnp.inf, all_off + odds_some_on, any_values)
        return jnp.logaddexp(child[0] + all_off, child[1] + some_on).sum()

    def _odds(self, message):
        """(E,) log odds of the value `self.on`, from (2, E) nats; 0 where both values are impossible."""
        odds = message[1] - message[0] if self.on else message[0] - message[1]
        return jnp.where(jnp.isnan(odds), 0.0, odds)

    def _message(self, odds):
        """(2, E) nats, the message with log odds (E,); its larger entry is 0."""
        off, on = jnp.minimum(-odds, 0.0), jnp.minimum(odds, 0.0)
        return jnp.stack([off, on] if self.on else [on, off])


class LogicalAnd(LogicalOr):
    r"""Sites that are on if and only if all of their parents are: an OR of negated sites.

    Parameters
    ----------
    parents : (F, n) int, or a list of F arrays of any lengths
    child : (F,) int
    """

    on = False


def or_max_product(parents, child):
    """Max-product messages of an OR (Lazaro-Gredilla et al. 2021, App. C.3).

    Parameters
    ----------
    parents, child : (F, n), (F,) log odds, the messages from the parents and from the child

    Returns
    -------
    to_parents, to_child : (F, n), (F,) log odds
    """
    n = parents.shape[1]
    first = parents.argmax(axis=1)
    best = parents.max(axis=1)
    is_first = np.arange(n) == first[:, None]
    second = jnp.where(is_first, -jnp.inf, parents).max(axis=1)
    gains = jnp.maximum(parents, 0.0)
    all_gains = gains.sum(axis=1)
    gains_of_others = sums_of_other_entries(gains)
    best_of_others = jnp.where(is_first, second[:, None], best[:, None])
    # If the child is on and this parent is off, another parent must be on: the parent with the largest odds.
    to_parents = jnp.minimum(child[:, None] + gains_of_others, jnp.maximum(0.0, -best_of_others))
    # If the child is on, every parent with positive odds is on, or else the parent with the largest odds.
    return to_parents, all_gains + jnp.minimum(best, 0.0)


def or_sum_product(parents, child):
    """Sum-product messages of an OR; see `or_max_product`.

    The message to the child is :math:`m_{f \\to b}(1) = \\prod_j (1 + e^{n_j}) - 1`. In a message to a
    parent, :math:`e^L` is :math:`\\prod_j (1 + e^{n_j}) - 1` over the other parents.
    """
    before, after = (
        jax.lax.associative_scan(either, parents, axis=1, reverse=back) for back in (False, True)
    )
    none = jnp.full((len(parents), 1), -jnp.inf)
    others = either(
        jnp.concatenate([none, before[:, :-1]], axis=1), jnp.concatenate([after[:, 1:], none], axis=1)
    )
    b, finite = child[:, None], jnp.isfinite(others)
    # The odds sent to a parent are (1 + e^L) e^b / (1 + e^(b + L)), with b the log odds of the child, and L
    # the log odds that another parent is on.
    odds = jax.nn.softplus(-others) - jax.nn.softplus(-(b + jnp.where(finite, others, 0.0)))
    # Where no other parent can be on, the log odds of the others are -inf, and the parent must equal the
    # child; where these log odds are inf, another parent is surely on, and the parent is free.
    return jnp.where(finite, odds, jnp.where(others < 0, b, 0.0)), before[:, -1]


def either(a, b):
    """log(e^a + e^b + e^(a + b)): log odds that at least one of two sites with log odds a and b is on."""
    both = jnp.where((a == -jnp.inf) | (b == -jnp.inf), -jnp.inf, a + b)
    return jnp.logaddexp(jnp.logaddexp(a, b), both)


def sums_of_other_entries(a):
    """(F, n), for each entry of a (F, n) the sum of the other entries of its factor, which may be inf."""
    infinite = jnp.isinf(a)
    finite = jnp.where(infinite, 0.0, a)
    infinite_others = infinite.sum(axis=1, keepdims=True) - infinite
    return jnp.where(infinite_others > 0, jnp.inf, finite.sum(axis=1, keepdims=True) - finite)


class Cardinality(Edges):
    r"""A function of the number of n two-valued sites that are on, :math:`\log\phi_f(x) = w_f[\sum_i
    x_{fi}]`.

    Parameters
    ----------
    sites : (F, n) int
    weights : (n + 1,) nats, or (F, n + 1)
        The entries are indexed by the number of sites that are on; -inf if a number is impossible.
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
        self.hard = has_impossible(weights)

    def check(self, widths: list[int]) -> None:
        factors, n = self.shape
        refuse_repeated_sites("Cardinality", np.repeat(np.arange(factors), n), self.sites[0])
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
        """Messages by dynamic programming over the number of sites that are on (Swersky et al. 2012).

        For each site, the forward pass gives the log sum (or maximum) for each count of the sites before it,
        and the backward pass for each count of the sites after it, with the weights.
        """
        each = cavities[0].reshape(2, *self.shape)
        weights = jnp.broadcast_to(parameters["weights"], (self.shape[0], self.shape[1] + 1)).astype(
            each.dtype
        )

        def shifted(a, by):
            """(F, n + 1), entries a (F, n + 1) for each count of sites that are on, moved to the next count
            (`by` 1) or to the one before (-1).
            """
            pad = jnp.full((a.shape[0], 1), -jnp.inf)
            return jnp.concatenate([pad, a[:, :-1]] if by > 0 else [a[:, 1:], pad], axis=1)

        def forward(counts, site):
            return semiring.two(counts + site[0][:, None], shifted(counts, 1) + site[1][:, None]), counts

        def backward(rest, site):
            return semiring.two(rest + site[0][:, None], shifted(rest, -1) + site[1][:, None]), rest

        along = jnp.moveaxis(each, 2, 0)  # the shape (n, 2, F)
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
