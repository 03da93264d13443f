"""Exact Gibbs for A, B and C as an expert would write it for NumPyro: what a general sampler is measured against.

In HMCGibbs(NUTS) for A and B; C has nothing continuous, so its kernel stands alone.
"""

from collections import namedtuple

import jax
import jax.numpy as jnp
from numpyro.infer import NUTS, HMCGibbs
from numpyro.infer.mcmc import MCMCKernel

from benchmarks import lattices, models


def spike_and_slab(model, **options):
    """Indicator after indicator, with the residual carried, and all random numbers drawn beforehand."""
    X, y = map(jnp.asarray, models.spike_and_slab_data())
    columns, squares = X.T, (X**2).sum(0)
    prior = jnp.log(0.1) - jnp.log(0.9)

    def gibbs(rng_key, gibbs_sites, hmc_sites):
        gamma, beta = gibbs_sites["gamma"], hmc_sites["beta"]
        noise = jax.random.logistic(rng_key, gamma.shape)

        def site(residual, own):
            column, beta, square, old, noise = own
            # log odds given the others: r0 c - c c / 2, where r0 = r + old c
            log_odds = prior + beta * (residual @ column) + (old - 0.5) * beta**2 * square
            new = (log_odds > noise).astype(old.dtype)
            residual = jax.lax.cond(new == old, lambda r: r, lambda r: r + (old - new) * beta * column, residual)
            return residual, new

        start = y - X @ (gamma * beta)
        return {"gamma": jax.lax.scan(site, start, (columns, beta, squares, gamma, noise))[1]}

    return HMCGibbs(NUTS(model, **options), gibbs_fn=gibbs, gibbs_sites=["gamma"])


def mixture(model, **options):
    """All labels in one go, by inverse CDF."""
    y = jnp.asarray(models.mixture_data())

    def gibbs(rng_key, gibbs_sites, hmc_sites):
        z, mu = gibbs_sites["z"], hmc_sites["mu"]
        ends = jnp.cumsum(jax.nn.softmax(-0.5 * (y - mu[:, None]) ** 2, axis=0), axis=0)
        above = jax.random.uniform(rng_key, y.shape) > ends[:-1]
        return {"z": above.sum(0).astype(z.dtype)}

    return HMCGibbs(NUTS(model, **options), gibbs_fn=gibbs, gibbs_sites=["z"])


class Checkerboard(MCMCKernel):
    """Both colours of the Ising lattice in turn; a sweep needs one random number per site."""

    State = namedtuple("State", ["z", "rng_key"])
    sample_field = "z"

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        rng_key, key = jax.random.split(rng_key)
        return self.State({"x": jax.random.bernoulli(key, shape=(lattices.SIDE, lattices.SIDE)).astype(int)}, rng_key)

    def sample(self, state, model_args, model_kwargs):
        rng_key, key = jax.random.split(state.rng_key)
        x = state.z["x"]
        # P(s = 1) = 1 / (1 + exp(-2 J sum of neighbours))
        noise = jax.random.logistic(key, x.shape) / (2 * lattices.COUPLING)
        for colour in (0, 1):
            s = jnp.pad(2 * x - 1, 1)
            field = s[:-2, 1:-1] + s[2:, 1:-1] + s[1:-1, :-2] + s[1:-1, 2:]
            mine = jnp.indices(x.shape).sum(0) % 2 == colour
            x = jnp.where(mine, (field > noise).astype(x.dtype), x)
        return self.State({"x": x}, rng_key)


KERNELS = {"A": spike_and_slab, "B": mixture, "C": lambda model: Checkerboard()}
