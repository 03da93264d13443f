"""Draws and probabilities of discrete variables that were summed out."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.model import modelcontext
from pytensor.graph.traversal import ancestors
from xarray import DataTree

from pymc_discrete.collapse.marginalize import density_to_sum, refuse_unbounded, without_transforms
from pymc_discrete.collapse.probabilities import dataset, named_dims
from pymc_discrete.collapse.sums import Sums
from pymc_discrete.targets.blocks import block_of
from pymc_discrete.targets.density import ModelDensity
from pymc_discrete.targets.graph.support import support_of
from pymc_discrete.targets.model_settings import model_settings
from pymc_discrete.targets.names import shown

_log = logging.getLogger("pymc.discrete")

ENDS = 8  # the number of values at each end from which the probability beyond is estimated
TOLERATED = 1e-6  # largest probability that a truncated sum may leave out without a warning


def recover(
    idata: DataTree,
    model: pm.Model | None = None,
    vars: Any = None,
    *,
    truncate: dict[str, tuple] | None = None,
    random_seed: Any = None,
) -> DataTree:
    r"""Add draws of the discrete variables that `marginalize` has summed out, and their probabilities.

    Every draw of the other variables gets a draw of :math:`p(z \mid \theta)`, exactly, and deterministics
    that depend on it. The mean of :math:`p(z_i = k \mid \theta)` over the draws of a chain, its Rao-Blackwell
    estimate, is the group ``probabilities``: it varies less than the share of the draws with z_i = k.

    Parameters
    ----------
    idata : DataTree
        Draws of the marginalised model, by any sampler, with a group ``posterior``.
    model : pm.Model, optional
        The model before it was marginalised; by default that of the context.
    vars, truncate
        As they were given to `marginalize`.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    DataTree
        A copy with the variables (chain, draw, ...) in ``posterior``, and in ``probabilities`` arrays
        (chain, ..., value), whose coordinate ``NAME value`` holds the values.

    Raises
    ------
    ValueError
        If the posterior lacks a variable that the summed variables depend on.

    Warns
    -----
    A message is logged where a truncated sum leaves out more than a probability of 1e-6 in some draw, with
    the bound to take.

    Examples
    --------
    >>> with pmd.marginalize(model):  # doctest: +SKIP
    ...     idata = pm.sample(cores=1)
    >>> idata = pmd.recover(idata, model)  # doctest: +SKIP
    """
    model = modelcontext(model)
    names = block_of(model, vars)
    plain = without_transforms(model)
    density = density_to_sum(plain, names, truncate)
    refuse_unbounded(density)
    posterior = idata["posterior"]
    needed = [str(v.name) for v in density.graph.others]
    missing = [name for name in needed if name not in posterior]
    if missing:
        raise ValueError(
            f"The posterior has no {shown(missing)}, on which {shown(names)} depends. Pass the draws of the "
            "marginalised model, with all of its variables."
        )
    with model_settings():
        sums = Sums(density)
        ordered = [posterior[name].transpose("chain", "draw", ...) for name in needed]
        inputs = [jnp.asarray(values.values) for values in ordered]
        chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
        seed = np.random.default_rng(random_seed).integers(2**63)
        keys = jax.random.split(jax.random.key(seed), (chains, draws))
        x, probabilities, tails, possible = jax.jit(lambda *a: of_chains(sums, *a))(keys, inputs)
    refuse_impossible(density, np.asarray(possible), bool(truncate))
    warn_of_tails(density, plain, np.asarray(tails))
    return with_draws(idata, model, density, np.asarray(x), np.asarray(probabilities))


def of_chains(sums: Sums, keys, inputs: list[Any]):
    """Draws, mean probabilities and the largest tails, of inputs (chains, draws, ...).

    Returns
    -------
    x : (chains, draws, d) int
    probabilities : (chains, d, K)
    tails : (2, d), estimates of the largest probability in any draw below and above the values of the sum
    possible : (chains, draws) bool, whether any value is possible
    """
    space, K = sums.density.space, int(sums.counts.max(initial=1))
    last = jnp.asarray(space.upper - space.lower)[:, None]
    steps = np.arange(min(ENDS, max(K // 2, 1)))

    def at_ends(p, first, sign):
        """The probability of the last values, and of as many before them."""
        near, far = first + sign * steps, first + sign * (steps + len(steps))
        both = [
            jnp.where((k >= 0) & (k <= last), jnp.take_along_axis(p, jnp.clip(k, 0, K - 1), axis=1), 0.0)
            for k in (near, far)
        ]
        return [b.sum(axis=1) for b in both]

    def chain(key, inputs):
        def draw(carried, one):
            total, tails = carried
            context = sums.density.without_parts(one[1:])
            logp, x, p = sums.total_draw_and_probabilities(one[0], context)
            # If the probabilities a, b of the last values and of as many before them are the start of a
            # series that falls by a / b each time, what follows is a (a / b) / (1 - a / b).
            ends = [at_ends(p, 0 * last, 1), at_ends(p, last, -1)]
            found = [jnp.where(a < b, a * a / jnp.maximum(b - a, 1e-300), 1.0) for a, b in ends]
            found = [
                jnp.where(a > 0, jnp.minimum(tail, 1.0), 0.0)
                for (a, _), tail in zip(ends, found, strict=True)
            ]
            return (total + p, jnp.maximum(tails, jnp.stack(found))), (x, jnp.isfinite(logp))

        zeros = (jnp.zeros((space.d, K)), jnp.zeros((2, space.d)))
        (total, tails), (x, possible) = jax.lax.scan(draw, zeros, (key, *inputs))
        return x, total / len(key), tails, possible

    x, probabilities, tails, possible = jax.lax.map(lambda a: chain(a[0], a[1:]), (keys, *inputs))
    return x, probabilities, tails.max(0), possible


def refuse_impossible(density: ModelDensity, possible: np.ndarray, truncated: bool) -> None:
    """Refuse draws of the other variables for which no state of the summed variables is possible.

    Parameters
    ----------
    possible : (chains, draws) bool
    truncated : whether the sum leaves out values

    Raises
    ------
    ValueError
    """
    if possible.all():
        return
    chain, draw = np.argwhere(~possible)[0]
    remedy = "Take wider bounds in truncate=." if truncated else "Look at the draws: are some nan?"
    raise ValueError(
        f"No value of {shown(density.names)} is possible in {(~possible).sum()} of {possible.size} draws of "
        f"the other variables, first in draw {draw} of chain {chain}. {remedy}"
    )


def warn_of_tails(density: ModelDensity, plain: pm.Model, tails: np.ndarray) -> None:
    """Log a warning for variables of which a truncated sum leaves out too much."""
    space = density.space
    for m in space.members:
        limits = support_of(plain, m.name, None)
        here = slice(m.start, m.start + m.size)
        for side, (limit, bounds) in enumerate(zip(limits, (space.lower, space.upper), strict=True)):
            cut = (
                np.ones(m.size, bool)
                if limit is None
                else bounds[here] != np.broadcast_to(limit, m.shape).ravel()
            )
            left_out = float(tails[side, here][cut].max(initial=0))
            if left_out > TOLERATED:
                what, end = ("below", bounds[here].min()) if side == 0 else ("above", bounds[here].max())
                wider = "lower" if side == 0 else "higher"
                _log.warning(
                    f"truncate leaves out about {left_out:.1g} of the probability of {m.name!r} {what} {end} "
                    f"in some draw. Take a {wider} bound, such as {end - 50 if side == 0 else 2 * end}."
                )


def with_draws(
    idata: DataTree, model: pm.Model, density: ModelDensity, x: np.ndarray, probabilities: np.ndarray
) -> DataTree:
    """A copy of the draws with those of the summed variables, of deterministics, and the probabilities.

    Parameters
    ----------
    x : (chains, draws, d) int
    probabilities : (chains, d, K), of the values from the lower bound of each site
    """
    found, space = idata.copy(), density.space
    posterior = idata["posterior"].to_dataset()
    coords, dims = coords_and_dims_for_inferencedata(model)
    for m in space.members:
        here = slice(m.start, m.start + m.size)
        names = named_dims(m.name, m.shape, dims)
        posterior[m.name] = (["chain", "draw", *names], x[:, :, here].reshape(*x.shape[:2], *m.shape))
        posterior = posterior.assign_coords({n: list(coords[n]) for n in names if coords.get(n) is not None})
    drawn = {m.name for m in space.members}
    of_old = [str(d.name) for d in model.deterministics if {str(v.name) for v in ancestors([d])} & drawn]
    posterior = posterior.drop_vars([name for name in of_old if name in posterior])
    left_out = [str(d.name) for d in model.deterministics if d.name not in posterior]
    if left_out:
        posterior = posterior.merge(
            pm.compute_deterministics(posterior, model=model, var_names=left_out, progressbar=False)
        )
    found["posterior"] = DataTree(posterior)
    first = np.broadcast_to(space.lower, probabilities.shape[:2])
    means = [probabilities[:, start : start + v.size] for start, v in space.blocks]
    partial = np.zeros(space.d, bool)
    found["probabilities"] = DataTree(dataset(space, first, means, partial, coords, dims))
    return found
