"""Functions of integers."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

TABLE = 4096


def log_gamma(n):
    """log Gamma(n) of integers n: looked up where all are below 4096, since a logarithm of a factorial costs ten times as much."""
    n = jnp.asarray(n)
    table = gammaln(np.arange(TABLE))  # +inf at 0, and below it

    def looked_up(n):
        return jnp.asarray(table, jnp.result_type(float)).at[jnp.maximum(n, 0)].get(mode="clip")

    def computed(n):
        return jax.lax.lgamma(jnp.maximum(n, 0).astype(jnp.result_type(float)))

    return jax.lax.cond(jnp.all(n < TABLE), looked_up, computed, n)
