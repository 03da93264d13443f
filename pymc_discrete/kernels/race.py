"""Draws without replacement: every site runs an exponential race at its weight, and the first to arrive are
taken in order.
"""

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.uniforms import words


def winners(key, weights, most: int):
    """(most,) int, sites in the order of an ordered draw without replacement (Gumbel top-k).

    Parameters
    ----------
    weights : (d,) float, not negative; 0 comes last

    Notes
    -----
    The order is decided in single precision, from uniforms that are finest where winners come from:
    times closer than 1 part in 1e7 count as equal, which changes probabilities by as much.
    """
    bits = words(key, weights.shape)
    u = (bits.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)
    time = jnp.log(-jnp.log1p(-jnp.minimum(u, jnp.float32(1 - 2.0**-24))))
    race = jnp.where(weights > 0, jnp.log(weights).astype(jnp.float32) - time, -jnp.inf)
    return jax.lax.top_k(race, most)[1]
