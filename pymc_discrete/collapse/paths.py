"""Sums along paths, one site after another, for many paths at once.

A message is a table of one site: the log of the sum over all sites before it. The work is that of K x K
entries for each site, where halving a path takes K x K x K; on an accelerator, where many small operations
one after another are slow, halving is faster.
"""

from typing import Any

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.random import choose


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
        largest = terms.max(1, keepdims=True)
        largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
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


def drawn(uniforms, weights, pairs, end):
    """(L, B) int, the index of each site's value, drawn exactly from the end of each path to its start.

    Parameters
    ----------
    uniforms : (L, B)
    weights : (L, B, K) nats, the table of each site plus the message that arrives at it
    pairs : as in `messages`
    end : (B,) int, the index of the value at the end of each path
    """

    def step(after, given):
        uniform, weight, pair = given
        chosen = choose(uniform, weight + pair[jnp.arange(len(after)), :, after])
        return chosen, chosen

    index: Any = jax.lax.scan(step, end, (uniforms, weights, pairs), reverse=True)[1]
    return index
