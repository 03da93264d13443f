"""Draws and probabilities of discrete variables that were summed out."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import xarray
from arviz_base import from_dict
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pytensor.graph.traversal import ancestors
from xarray import DataTree

from pymc_discrete.collapse.log_likelihood import KINDS_OF_LIKELIHOOD, LogLikelihood
from pymc_discrete.collapse.marginalize import (
    block_to_sum_out,
    check_truncate,
    density_to_sum,
    refuse_unbounded,
    without_transforms,
)
from pymc_discrete.collapse.probabilities import dataset, named_dims
from pymc_discrete.collapse.ranges import NamedBounds, Ranges, tails
from pymc_discrete.collapse.sums import Sums
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.model.blocks import DISCRETE, free, model_of
from pymc_discrete.runtime.checks import check_choice, check_result
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.space.space import Space


@watched("Recovering what was summed out")
def recover(
    idata: DataTree,
    model: pm.Model | None = None,
    vars: Any = None,
    *,
    truncate: dict[str, tuple[int, int]] | None = None,
    log_likelihood: str | None = None,
    random_seed: Any = None,
) -> DataTree:
    r"""Add draws, probabilities and the log likelihood of summed variables to draws of the other variables.

    Every draw of the other variables gets an exact draw of :math:`p(z \mid \theta)`, and the deterministics
    that depend on z, unless the posterior has these already, as after `pmd.sample(collapse=True)` or
    `pm.sample(step=pmd.CollapsedNUTS())`. The mean of :math:`p(z_i = k \mid \theta)` over the draws of a
    chain, its Rao-Blackwell estimate, is the group ``probabilities``: this mean has a smaller variance than
    the share of the draws with z_i = k.

    Parameters
    ----------
    idata : DataTree
        Draws of the model, or of the marginalised model, by any sampler, with a group ``posterior``.
    model : pm.Model, optional
        The model before it was marginalised; by default the model of the `with` block.
    vars, truncate
        The arguments that were given to `marginalize`. Without `truncate`, a variable without bounds is
        summed over a range about its draws, which is widened until it leaves out less than 1e-12.
    log_likelihood : {"marginal", "component"}, optional
        Add the group ``log_likelihood`` with the variables summed out: the log likelihood of each observation
        given the other observations, or of each component of connected sites given all others.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    DataTree
        A copy with the variables (chain, draw, ...) in ``posterior``, in ``probabilities`` arrays (chain,
        ..., value), whose coordinate ``NAME value`` holds the values, and in ``log_likelihood`` arrays
        (chain, draw, ...) of the observed variables, nats, or ``components`` (chain, draw, component). The
        groups of observed values and of data are added if they are missing, as in draws of a marginalised
        model.

    Raises
    ------
    TypeError
        If `idata` is no DataTree with a group ``posterior``, or `model` no model.
    ValueError
        If the posterior lacks a variable that the summed variables depend on.

    Warns
    -----
    A message is logged if a sum leaves out more than a probability of 1e-6 in some draw. The message names a
    sufficient bound.

    Examples
    --------
    >>> with pmd.marginalize(model):  # doctest: +SKIP
    ...     idata = pm.sample(cores=1)
    >>> idata = pmd.recover(idata, model)  # doctest: +SKIP
    """
    check_result(idata, "pmd.recover(idata, model)")
    check_truncate(truncate)
    seed = jax_seed(random_seed)
    model = model_of(model, vars)
    names = variables_to_recover(model, vars, "recover")
    if log_likelihood is not None:
        check_choice("log_likelihood", log_likelihood, KINDS_OF_LIKELIHOOD)
        likelihood = LogLikelihood(model, names, log_likelihood, truncate)

    def drawn(sums: Sums, key: Any, context: Any) -> tuple[Any, Any, Any]:
        return sums.total_draw_and_probabilities(key, context)

    density, x, probabilities = of_draws(
        model, names, idata["posterior"].to_dataset(), drawn, truncate, seed=seed
    )
    found = with_data(with_draws(idata, model, density, x), model)
    found["probabilities"] = DataTree(group_of(model, density, probabilities))
    if log_likelihood is not None:
        found["log_likelihood"] = DataTree(likelihood.of(found))
    return found


def variables_to_recover(model: pm.Model, vars: Any, what: str) -> list[str]:
    """The names by which a log density knows `vars`; by default all discrete variables that can be summed
    out.

    Parameters
    ----------
    what : what is done with the variables, for the error if there are none

    Raises
    ------
    ValueError
    """
    if vars is None and not free(model, DISCRETE):
        raise ValueError(
            f"model has no discrete free variable to {what}. Pass the model as it was before pmd.marginalize."
        )
    return block_to_sum_out(model, vars)


def of_draws(
    model: pm.Model,
    names: list[str],
    posterior: xarray.Dataset,
    each: Callable[[Sums, Any, Any], tuple[Any, Any, Any]],
    truncate: dict[str, tuple[int, int]] | None,
    given: xarray.Dataset | None = None,
    seed: int = 0,
) -> tuple[ModelDensity, Any, np.ndarray]:
    """For each draw of the other variables, results of a function of the sums over the discrete variables.

    Parameters
    ----------
    names : the variables to sum out
    each : (sums, key, context) -> (() nats, the logarithm of the sum; results to keep; (d, K) the probability
        of each site's values), for one draw of the other variables, which is in `context`
    truncate : {name: (lower, upper)}, the values, inclusive, that a variable without bounds is summed over
    given : draws of the other variables, by default the draws of the posterior

    Returns
    -------
    density : the density of the variables that are summed out
    kept : the results to keep of all draws, with the axes (chains, draws) first
    probabilities : (chains, d, K), the means of the probabilities over draws

    Raises
    ------
    ValueError
        If a variable is missing on which the summed variables depend, a sum has no bounds, or no state is
        possible.
    """
    plain, given = without_transforms(model), posterior if given is None else given
    ranges = Ranges(plain, names, truncate)
    known = all(name in posterior for name in ranges.open)
    wider: NamedBounds | None = ranges.about(posterior) if known else {}
    while wider is not None:
        chosen = wider
        density = density_to_sum(plain, names, {**(truncate or {}), **chosen})
        refuse_unbounded(density, plain)
        needed = [str(v.name) for v in density.graph.others]
        missing = [name for name in needed if name not in given]
        if missing:
            raise ValueError(
                f"The posterior has no {shown(missing)}, on which {shown(names)} depends. Pass the draws of "
                "the marginalised model, with all of its variables."
            )
        with model_settings():
            sums = Sums(density)
            ordered = [given[name].transpose("chain", "draw", ...) for name in needed]
            inputs = [jnp.asarray(values.values) for values in ordered]
            keys = jax.random.split(jax.random.key(seed), (given.sizes["chain"], given.sizes["draw"]))
            results = jax.jit(lambda *a, sums=sums: of_chains(sums, each, *a))(keys, inputs)
        kept, probabilities, left_out, usually, possible = jax.tree.map(np.asarray, results)
        wider = ranges.wider(chosen, density.space, left_out)
    refuse_impossible(density, possible, bool(truncate))
    ranges.warn(density.space, left_out, "truncate" if truncate else "The sum", usually)
    return density, kept, probabilities


def jax_seed(random_seed: Any) -> int:
    """A seed for JAX, from the user's `random_seed`."""
    try:
        return int(np.random.default_rng(random_seed).integers(2**63))
    except (TypeError, ValueError) as error:
        raise type(error)(
            "random_seed must be an integer of at least 0, a numpy.random.Generator or None, got "
            f"{random_seed!r}."
        ) from error


def of_chains(
    sums: Sums, each: Callable[[Sums, Any, Any], tuple[Any, Any, Any]], keys: Any, inputs: list[Any]
) -> tuple[Any, jax.Array, jax.Array, jax.Array, jax.Array]:
    """The results of the function `each`, which gets the sums over the discrete variables, a key and one draw
    of the other variables, for every draw in the inputs (chains, draws, ...).

    Returns
    -------
    kept : the results to keep, with the axes (chains, draws) first
    probabilities : (chains, d, K), the mean over draws of the probability of each site's values
    left_out : (2, d), estimates of the largest probability in any draw below and above the values of the sum
    usually : (2, d), the estimates as means over draws in place of the largest
    possible : (chains, draws) bool, whether any state of the summed variables is possible
    """
    space, K = sums.density.space, int(sums.counts.max(initial=1))
    last = jnp.asarray(space.upper - space.lower)[:, None]

    def chain(key: Any, inputs: Any) -> tuple[Any, ...]:
        def draw(carried: Any, one: Any) -> tuple[Any, Any]:
            total, left_out, usually = carried
            logp, kept, p = each(sums, one[0], sums.density.without_parts(one[1:]))
            beyond = tails(p, last)
            carried = (total + p, jnp.maximum(left_out, beyond), usually + beyond)
            return carried, (kept, jnp.isfinite(logp))

        zeros = (jnp.zeros((space.d, K)), jnp.zeros((2, space.d)), jnp.zeros((2, space.d)))
        (total, left_out, usually), (kept, possible) = jax.lax.scan(draw, zeros, (key, *inputs))
        return kept, total / len(key), left_out, usually / len(key), possible

    found = jax.lax.map(lambda a: chain(a[0], a[1:]), (keys, *inputs))
    kept, probabilities, left_out, usually, possible = found
    return kept, probabilities, left_out.max(0), usually.mean(0), possible


def refuse_impossible(density: ModelDensity, possible: np.ndarray, truncated: bool) -> None:
    """Refuse draws of the other variables for which no state of the summed variables is possible.

    Parameters
    ----------
    possible : (chains, draws) bool, whether any state is possible given the draw
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


def with_draws(idata: DataTree, model: pm.Model, density: ModelDensity, x: np.ndarray) -> DataTree:
    """A copy of `idata` with draws of the summed variables (chains, draws, d), and of deterministics.

    If `idata` has draws of all summed variables, these stay as they are.
    """
    found, space = idata.copy(), density.space
    posterior = idata["posterior"].to_dataset()
    if all(m.name in posterior for m in space.members):
        return found
    states = arrays_of_states(space, x, model)
    posterior = posterior.assign(states.data_vars).assign_coords(states.coords)
    drawn = {m.name for m in space.members}
    of_old = [str(d.name) for d in model.deterministics if {str(v.name) for v in ancestors([d])} & drawn]
    posterior = posterior.drop_vars([name for name in of_old if name in posterior])
    left_out = [str(d.name) for d in model.deterministics if d.name not in posterior]
    if left_out:
        posterior = posterior.merge(
            pm.compute_deterministics(posterior, model=model, var_names=left_out, progressbar=False)
        )
    found["posterior"] = DataTree(posterior)
    return found


def arrays_of_states(space: Space, x: np.ndarray, model: pm.Model) -> xarray.Dataset:
    """States x (chains, draws, d) as arrays (chain, draw, ...), with the coordinates of the model."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    arrays: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for m in space.members:
        names = named_dims(m.name, m.shape, dims)
        values = x[:, :, m.start : m.start + m.size].reshape(*x.shape[:2], *m.shape)
        arrays[m.name] = (["chain", "draw", *names], values)
        known |= {n: list(coords[n]) for n in names if coords.get(n) is not None}
    return xarray.Dataset(arrays, known)


def with_data(found: DataTree, model: pm.Model) -> DataTree:
    """The draws, with the groups of observed values and of data from the model, where the draws lack these
    groups.

    In a marginalised model the observed values are a part of a potential.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    groups = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    for name, values in groups.items():
        if all(name in found.children and v in found[name].data_vars for v in values):
            continue
        group = from_dict({name: values}, coords=coords, dims={v: d for v, d in dims.items() if v in values})
        found[name] = group[name]
    return found


def group_of(model: pm.Model, density: ModelDensity, probabilities: np.ndarray) -> xarray.Dataset:
    """The group `probabilities`, from the probabilities (chains, d, K) of K consecutive values of each site,
    which begin at its lower bound.
    """
    space = density.space
    first = np.broadcast_to(space.lower, probabilities.shape[:2])
    means = [probabilities[:, start : start + v.size] for start, v in space.blocks]
    return dataset(space, first, means, np.zeros(space.d, bool), *coords_and_dims_for_inferencedata(model))
