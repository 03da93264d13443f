"""Draws without replacement: every site runs an exponential race at its weight, and the first to arrive are taken in order."""

import jax
import jax.numpy as jnp


def winners(key, log_weights, most: int):
    """(most,) int, sites in the order of an ordered draw without replacement (Gumbel top-k).

    Parameters
    ----------
    log_weights : (d,) float; -inf comes last

    Notes
    -----
    The order is decided in single precision, from uniforms that are finest where winners come from: times closer than 1 part in 1e7
    count as equal, which changes probabilities by as much.
    """
    bits = jax.random.bits(key, log_weights.shape, "uint32")
    u = (bits.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)
    race = log_weights.astype(jnp.float32) - jnp.log(-jnp.log1p(-jnp.minimum(u, jnp.float32(1 - 2.0**-24))))
    return jax.lax.top_k(race, most)[1]


def log_sum_of_rest(log_weights, taken):
    """() float, log of the summed weights of all sites but the `taken` (L,); a site past the end is none."""
    rest = log_weights.at[taken].set(-jnp.inf, mode="drop")
    return jax.nn.logsumexp(rest)


def log_suffix_sums(log_weights):
    """(L,) float, log of the sums from each entry to the last: only sums, so that a small remainder keeps its digits."""
    return jax.lax.cumlogsumexp(log_weights, reverse=True)
