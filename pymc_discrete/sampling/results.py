"""Converts the draws of a run to a DataTree in the form of `pm.sample`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
from arviz_base import from_dict, make_attrs
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.stats import compute_log_likelihood, compute_log_prior
from xarray import Dataset, DataTree

from pymc_discrete.collapse.log_likelihood import KINDS_OF_LIKELIHOOD, LogLikelihood
from pymc_discrete.collapse.marginalize import block_to_sum_out
from pymc_discrete.runtime.names import shown

# the entries of idata_kwargs
KNOWN = ("coords", "dims", "log_likelihood", "log_prior")
# the entries of idata_kwargs that become groups of the result, computed from the draws of all variables
OF_DRAWS = ("log_likelihood", "log_prior")


def data_tree(
    model: pm.Model,
    draws: dict[str, np.ndarray],
    stats: dict[str, np.ndarray],
    warmup: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None,
    attrs: dict[str, Any],
    options: dict[str, Any],
    more: Callable[..., dict[str, Dataset]] = lambda coords, dims: {},
    log_likelihood: LogLikelihood | None = None,
    axes: tuple[dict[str, Any], dict[str, list[str]]] = ({}, {}),
) -> DataTree:
    """The DataTree of a run.

    Its groups are posterior, sample_stats, observed_data, constant_data, the groups of the blocks and, if
    asked for, the warm-up, the log likelihood and the log prior.

    Parameters
    ----------
    draws, stats : {name: (chains, draws, ...)}
    warmup : the draws and the statistics of tuning, as `draws` and `stats`; None if they are not kept
    attrs : attributes of every sampled group
    options : `idata_kwargs`
    more : (coords, dims) -> {name: further group}
    log_likelihood : the log likelihood with variables summed out, in place of PyMC's own
    axes : coordinates and dims of arrays that are no variables of the model
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    coords |= axes[0] | options.get("coords", {})
    dims |= axes[1] | options.get("dims", {})
    further = more(coords, dims)
    groups = {"posterior": draws, "sample_stats": stats}
    if warmup is not None:
        groups |= {"warmup_posterior": warmup[0], "warmup_sample_stats": warmup[1]}
    attributes = make_attrs(attrs, inference_library=pm)
    fixed = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    groups |= {name: group for name, group in fixed.items() if group}
    dims = {name: axes for name, axes in dims.items() if any(name in group for group in groups.values())}
    tree = from_dict(
        groups,
        coords=coords,
        dims=dims,
        attrs=dict.fromkeys(groups, attributes),
        save_warmup=warmup is not None,
    )
    for name, dataset in further.items():
        tree[name] = DataTree(dataset)
    for group, compute in (("log_likelihood", compute_log_likelihood), ("log_prior", compute_log_prior)):
        asked = options.get(group, False)
        if group == "log_likelihood" and log_likelihood is not None:
            tree[group] = DataTree(log_likelihood.of(tree))
        elif asked:
            names = None if asked is True else asked
            compute(tree, var_names=names, model=model, extend_inferencedata=True, progressbar=False)
    return tree


def log_likelihood_of(
    model: pm.Model, options: dict[str, Any], summed: Sequence[str], var_names: Sequence[str] | None
) -> LogLikelihood | None:
    """The log likelihood with variables summed out that `options` ask for, before anything is sampled.

    Parameters
    ----------
    options : `idata_kwargs`
    summed : the discrete variables that are summed out while sampling; if there are none, all discrete
        variables are summed out
    var_names : the variables that are recorded

    Raises
    ------
    ValueError, NotImplementedError
        For a word that is none of `KINDS_OF_LIKELIHOOD`, sums that are too large, and variables that are not
        recorded.
    """
    way = options.get("log_likelihood")
    if not isinstance(way, str):
        return None
    if way not in KINDS_OF_LIKELIHOOD:
        raise ValueError(
            f"idata_kwargs['log_likelihood'] must be True, a list of observed variables, or one of "
            f"{', '.join(map(repr, KINDS_OF_LIKELIHOOD))}, got {way!r}."
        )
    if not model.discrete_value_vars:
        raise ValueError(
            f"idata_kwargs={{'log_likelihood': {way!r}}} sums out discrete variables, which the model does "
            "not have. Pass True."
        )
    found = LogLikelihood(model, summed or block_to_sum_out(model, None), way)
    missing = [name for name in found.needed if var_names is not None and name not in var_names]
    if missing:
        raise ValueError(
            f"idata_kwargs={{'log_likelihood': {way!r}}} needs the draws of {shown(missing)}: keep them with "
            "var_names=, or leave var_names out."
        )
    return found
