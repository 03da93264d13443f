"""Draws of q(z) ∝ exp(-energy(z)) by exact slice sampling, as values of the variables of a model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.program import recorded
from pymc_discrete.engine.recorder import Recorder, shapes_of
from pymc_discrete.kernels import slice as slices
from pymc_discrete.kernels.random import key_of
from pymc_discrete.sampling.results import data_tree


def draws_of_q(
    model: pm.Model,
    density: ContinuousDensity,
    energy: Callable,
    starts: np.ndarray,
    draws: int,
    tune: int,
    chains: int,
    thin: int,
    seed: int | None,
) -> DataTree:
    """The result of `EnergyPosterior.sample`, a DataTree.

    Parameters
    ----------
    starts : (n, d) float, points; each chain starts at a random one
    draws : number of draws per chain
    tune : number of sweeps per chain in which the widths of the slices are tuned
    chains : number of chains
    thin : number of sweeps per draw kept
    seed : int or None
    """
    rng = np.random.default_rng(seed)
    params, static = eqx.partition(energy, eqx.is_inexact_array)
    d = density.size

    def chain(params, key, z):
        def logdensity(z):
            return -jnp.asarray(eqx.combine(params, static)(z), float)

        def move(n, carried):
            z, widths = carried
            key_now = jax.random.fold_in(key, n)
            due = slices.renewal_due(n, tune)
            z, widths, _ = slices.slice_draw(key_now, z, logdensity, widths, n < tune, due, 1)
            return z, widths

        def record(carried, n):
            carried = jax.lax.fori_loop(tune + n * thin, tune + (n + 1) * thin, move, carried)
            return carried, carried[0]

        tuned = jax.lax.fori_loop(0, tune, move, (z, jax.tree.map(jnp.asarray, slices.initial_widths(d))))
        return jax.lax.scan(record, tuned, jnp.arange(draws))[1]

    keys = jax.random.split(key_of(int(rng.integers(2**31))), chains)
    begin = jnp.asarray(starts[rng.integers(len(starts), size=chains)])
    z = jax.jit(lambda params: jax.lax.map(lambda a: chain(params, *a), (keys, begin)))(params)
    target = density.differentiable(begin[0], [])

    def compare(z):
        """log p(z), log q(z) up to a constant, and the gradient of log p - log q, at z (d,)."""
        lp, gradient_p = jax.value_and_grad(target)(z)
        log_q, gradient_q = jax.value_and_grad(lambda z: -jnp.asarray(energy(z), float))(z)
        return lp + density.rest([]), log_q, gradient_p - gradient_q

    outputs = recorded(model, None)
    recorder, names = Recorder(model, outputs, Points([]), {}, shapes_of(model)), density.names
    flat = z.reshape(-1, d)
    lp, log_q, gap = jax.jit(lambda z: jax.lax.map(compare, z))(flat)
    values = jax.jit(jax.vmap(lambda z: recorder(dict(zip(names, density.parts(z), strict=True)))))(flat)
    covariance = jnp.cov(flat.T).reshape(d, d)
    score_gap = jnp.einsum("ni,ij,nj->n", gap, covariance, gap) / d

    def by_chain(a: Any) -> np.ndarray:
        return np.asarray(a).reshape(chains, draws, *a.shape[1:])

    kept = recorder.on_host({str(v.name): by_chain(values[str(v.name)]) for v in outputs})
    stats = {"lp": by_chain(lp), "log_q": by_chain(log_q), "score_gap": by_chain(score_gap)}
    return data_tree(
        model, kept, stats, None, {"sampler": "pymc_discrete.fit_energy_posterior", "thin": thin}, {}
    )
