"""Sums along paths, one site after another, for many paths at once.

A message is a table of one site, with a number for each of its values: the logarithm of the sum over all
sites before it. A step takes K x K operations. Halving the path in every stage takes K x K x K for each
site, and is faster on an accelerator, where many small operations one after another are slow.
"""

from typing import Any

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.random import choose

SMALLEST_PRODUCT = 1e-250  # smaller products are summed in logarithms


@jax.custom_vjp
def messages(unary, pairs):
    """The messages that arrive along paths.

    Parameters
    ----------
    unary : (L, B, K) nats, the tables of the L sites of each of B paths
    pairs : (L, B, K, K) nats, those of each site and the next one; the last are of the end of the path

    Returns
    -------
    arriving : (L, B, K) nats, at each of the L sites; 0 at the first
    last : (B, K) nats, at the end
    """
    return _forward(unary, pairs)[0]


def _forward(unary, pairs):
    def step(message, tables):
        own, pair = tables
        terms = (message + own)[:, :, None] + pair
        largest = finite_or_zero(terms.max(1, keepdims=True))
        weights = jnp.exp(terms - largest)
        total = weights.sum(1, keepdims=True)
        possible = total > 0
        some = jnp.where(possible, total, 1.0)
        new = (jnp.where(possible, jnp.log(some), -jnp.inf) + largest)[:, 0]
        return new, (message, weights / some)

    last, (arriving, probabilities) = jax.lax.scan(step, jnp.zeros_like(unary[0]), (unary, pairs))
    return (arriving, last), probabilities


def _backward(probabilities, slopes):
    """The derivatives: `probabilities` (L, B, K, K) are those of each site's values given the next one's."""

    def step(slope, given):
        probability, more = given
        of_pairs = probability * slope[:, None]
        of_site = of_pairs.sum(2)
        return of_site + more, (of_site, of_pairs)

    arriving, last = slopes
    _, found = jax.lax.scan(step, last, (probabilities, arriving), reverse=True)
    return found


messages.defvjp(_forward, _backward)


def sampled_backward(uniforms, weights, pairs, end, common=None):
    """(L, B) int, the index of each site's value, drawn exactly from the end of each path to its start.

    Parameters
    ----------
    uniforms : (L, B)
    weights : (L, B, K) nats, the table of each site plus the message that arrives at it
    pairs, common : as in `messages_in_common`; without `common`, as in `messages`
    end : (B,) int, the index of the value at the end of each path
    """

    def step(after, given):
        uniform, weight, pair = given
        at = pair[jnp.arange(len(after)), :, after] if common is None else pairs[pair].T[after]
        chosen = choose(uniform, weight + at)
        return chosen, chosen

    each = pairs if common is None else jnp.asarray(common)
    index: Any = jax.lax.scan(step, end, (uniforms, weights, each), reverse=True)[1]
    return index


@jax.custom_vjp
def messages_in_common(unary, pairs, common):
    """What `messages` returns, for paths of which all have the same table of a site and the next one at
    each step.

    The sums over the values of a site are then one product of matrices for all paths. Where an entry of the
    product is too small for a float, the step is summed in logarithms, as `messages` does.

    Parameters
    ----------
    unary : (L, B, K) nats
    pairs : (U, K, K) nats, the different tables of pairs
    common : (L,) int, which of them that of each site and the next one is
    """
    return _forward_in_common(unary, pairs, common)[0]


def finite_or_zero(largest):
    """The largest of some numbers, and 0 where all are -inf."""
    return jnp.where(jnp.isfinite(largest), largest, 0.0)


def exponentials(tables):
    """exp(tables - top) (U, K, K), and top (U, K), the largest entry for each value of the second site."""
    top = finite_or_zero(tables.max(1))
    return jnp.exp(tables - top[:, None]), top


def _forward_in_common(unary, pairs, common):
    weights, top = exponentials(pairs)

    def step(message, given):
        own, u = given
        before = message + own
        largest = finite_or_zero(before.max(1, keepdims=True))
        total = jnp.exp(before - largest) @ weights[u]
        positive = total > 0
        product = jnp.where(positive, jnp.log(jnp.where(positive, total, 1.0)), -jnp.inf) + largest + top[u]
        small = total < SMALLEST_PRODUCT

        def lost():
            possible = jnp.asarray(before > -jnp.inf, float) @ jnp.asarray(pairs[u] > -jnp.inf, float)
            return (small & (possible > 0)).any()

        apart = jax.lax.cond(small.any(), lost, lambda: jnp.array(False))
        new = jax.lax.cond(apart, lambda: _forward(before[None], pairs[u][None, None])[0][1], lambda: product)
        return new, (message, apart)

    last, (arriving, apart) = jax.lax.scan(step, jnp.zeros_like(unary[0]), (unary, common))
    return (arriving, last), (unary, pairs, common, arriving, last, apart)


def _backward_in_common(kept, slopes):
    unary, pairs, common, arriving, last, apart = kept
    weights, top = exponentials(pairs)
    slope_arriving, slope_last = slopes

    def step(slope, given):
        before, new, u, one_by_one, more = given
        possible = new > -jnp.inf
        some = jnp.where(possible, new, 0.0)
        slope = jnp.where(possible, slope, 0.0)

        def product():
            largest = finite_or_zero(before.max(1, keepdims=True))
            # divided by the product
            scaled = slope * jnp.exp(jnp.where(possible, largest + top[u] - some, 0.0))
            left = jnp.exp(before - largest)
            return left * (scaled @ weights[u].T), weights[u] * (left.T @ scaled)

        def each():
            of_pairs = jnp.exp(before[:, :, None] + pairs[u] - some[:, None]) * slope[:, None]
            return of_pairs.sum(2), of_pairs.sum(0)

        of_site, of_pairs = jax.lax.cond(one_by_one, each, product)
        return of_site + more, (of_site, of_pairs)

    after = jnp.concatenate([arriving[1:], last[None]])
    given = (unary + arriving, after, common, apart, slope_arriving)
    _, (of_sites, of_pairs) = jax.lax.scan(step, slope_last, given, reverse=True)
    return of_sites, jnp.zeros_like(pairs).at[common].add(of_pairs), None


messages_in_common.defvjp(_forward_in_common, _backward_in_common)
