"""The knowledge about variables, besides their draws, that a result has in the group `conditionals`."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.runtime.names import untransformed

Groups = Mapping[str, xr.Dataset]  # {name of a group of a result: the group}


def known_of(groups: Groups, name: str, chains: int) -> Leaving | None:
    """The conditional probabilities that a result has for a variable besides its draws; None if it has none.

    The group `conditionals` has the probability that an element changes where the chains ended;
    `probabilities` has the probabilities of all values of summed variables, as means over all draws. A
    probability of 0 may belong to an impossible value, or to a value too improbable for floats, so an element
    has a single possible value only if `probabilities` has no other value for it. The mean for an index of
    models depends on the few draws in which the parameters of another model were near, so for such an index
    the probability where the chains ended is taken.
    """
    found = None
    leaving = _group(groups, "conditionals", name, chains)
    if leaving is not None:
        leaving = np.asarray(leaving, float).reshape(chains, -1)
        facts = groups["conditionals"][name].attrs
        of_each = {}
        for fact in ("several", "certain", "alone", "among_models"):
            a = _group(groups, "conditionals", f"{name} {fact.replace('_', ' ')}:")
            of_each[fact] = None if a is None else np.asarray(a, bool).ravel()
        several = of_each.pop("several")
        several = np.ones(leaving.shape[1], bool) if several is None else several
        found = Leaving(
            several,
            None if np.isnan(leaving).all() else leaving,
            bool(facts.get("joint", False)),
            str(facts.get("together", "")),
            by=tuple(json.loads(facts.get("by", "[]"))),
            unused=tuple(json.loads(facts.get("unused", "[]"))),
            summed=bool(facts.get("summed", False)),
            **of_each,
        )
    p = _group(groups, "probabilities", name, chains)
    if p is None:
        return found
    p = p.reshape(chains, -1, p.shape[-1])
    commonest = np.nansum(p, axis=0).argmax(axis=1)
    leaving = np.maximum(1.0 - p[:, np.arange(p.shape[1]), commonest], 0.0)
    unbounded = _group(groups, "probabilities", f"{name} outside") is not None
    several = np.full(p.shape[1], p.shape[2] > 1 or unbounded)
    if found is None:
        return Leaving(several, leaving, joint=True, summed=True)
    if found.probability is not None:
        leaving = np.where(found.is_among_models, found.probability, leaving)
    return found._replace(several=several & found.several, probability=leaving, joint=True, summed=True)


def conditionals(posterior: Any, known: dict[str, Leaving]) -> xr.Dataset:
    """The group `conditionals`: knowledge about sampled variables besides draws, for `pmd.summary` and the
    plots.

    Returns
    -------
    xarray.Dataset
        For each variable NAME of the posterior an array (chain, <dims>), the probability that an element has
        another value than in the last draw of the chain, given everything else, nan where it is not known;
        and (<dims>) bool "NAME several:", whether it has several possible values, "NAME certain:", whether
        the odds of other values are the same at all values of the other unknowns, "NAME alone:", whether a
        continuous variable enters its conditional only, and "NAME among models:", whether it chooses between
        models that each have parameters of their own. The array NAME has the other fields of `Leaving` as its
        attributes.
    """
    arrays = {}
    for name, of in known.items():
        last = posterior[name].isel(draw=-1, drop=True)
        p = np.full(last.shape, np.nan) if of.probability is None else of.probability.reshape(last.shape)
        arrays[name] = last.copy(data=p).assign_attrs(
            joint=int(of.joint),
            together=of.together,
            by=json.dumps([untransformed(n) for n in of.by]),
            unused=json.dumps(of.unused),
            summed=int(of.summed),
        )
        each = {
            "several": of.several,
            "certain": of.is_certain,
            "alone": of.is_alone,
            "among models": of.is_among_models,
        }
        for fact, a in each.items():
            arrays[f"{name} {fact}:"] = last.isel(chain=0, drop=True).copy(data=a.reshape(last.shape[1:]))
    return xr.Dataset(arrays)


def _group(groups: Groups, group: str, name: str, chains: int | None = None) -> np.ndarray | None:
    """A variable of a group; None if it is missing, or has another number of chains."""
    if group not in groups or name not in groups[group].data_vars:
        return None
    data = groups[group][name].data
    return data if chains is None or len(data) == chains else None
