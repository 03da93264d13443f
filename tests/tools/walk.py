"""A random walk that stands for NUTS in compiled chains, where a test is not about NUTS."""

import jax
import jax.numpy as jnp

STEPS, SCALE = 4, 0.8


def walk(nuts, key, t, point, state):
    """As `NutsBlock.draw`, a few steps of Metropolis on the same density, and zeros as statistics.

    They leave the same distribution as it is. Without the gradient and the tree of NUTS a chain is compiled
    in half of the time or less.
    """
    density = nuts.density
    others, start = density.others(point), density.ravel(point)

    def step(n, carried):
        """The first step stays, and finds the log density there: so its program is in the loop alone."""
        q, logp = carried
        key_of_step, key_of_coin = jax.random.split(jax.random.fold_in(key, n))
        new = q + jnp.where(n == 0, 0.0, SCALE) * jax.random.normal(key_of_step, q.shape)
        there = density.block(new, others)
        accept = (n == 0) | (jnp.log(jax.random.uniform(key_of_coin)) < there - logp)
        return jnp.where(accept, new, q), jnp.where(accept, there, logp)

    q, logp = jax.lax.fori_loop(0, STEPS + 1, step, (start, jnp.asarray(-jnp.inf)))
    stats = {name: jnp.zeros((), statistic.type) for name, statistic in nuts.stats.items()}
    return density.joined(q, point), state, stats | {"lp": logp + density.rest(others)}
