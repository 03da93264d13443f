"""What the draws themselves say about the sampling."""

import logging
from collections.abc import Iterator

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import from_dict
from pymc.stats.convergence import SamplerWarning, WarningType, log_warnings, run_convergence_checks, warn_divergences, warn_treedepth
from xarray import DataTree

_log = logging.getLogger("pymc.discrete")

SHOWN = 3  # chains that are named one by one
AT_ONCE = 2**24  # numbers: what is on the disk is looked at in parts


def check_convergence(tree: DataTree, model: pm.Model) -> None:
    """PyMC's own warnings (divergences, tree depth, R-hat, few effective draws), and of discrete variables that R-hat cannot judge."""
    found: dict[str, SamplerWarning] = {}
    stuck: list[str] = []
    discrete = {str(v.name) for v in model.discrete_value_vars}
    with np.errstate(divide="ignore", invalid="ignore"):  # R-hat of what never moves
        for part in parts(tree, model):
            whole = bool(part["posterior"].data_vars)
            said = run_convergence_checks(part, model) if whole else [*warn_divergences(part), *warn_treedepth(part)]
            found |= {w.message: w for w in said}
    log_warnings(shortened(list(found.values()), tree["posterior"].sizes["chain"]))
    if tree["posterior"].sizes["draw"] > 1:
        for name in discrete & set(tree["posterior"].data_vars):
            draws = tree["posterior"][name].data
            stuck += complaints(name, *movement(draws), draws.shape[1])
    for text in stuck:
        _log.warning(text)


def parts(tree: DataTree, model: pm.Model) -> Iterator[DataTree]:
    """The tree, or, where its draws are many, trees of some elements of a variable each."""
    posterior = tree["posterior"]
    names = [str(v.name) for v in model.free_RVs if v.name in posterior.data_vars]
    if sum(posterior[name].size for name in names) <= AT_ONCE:
        yield tree
        return
    yield DataTree.from_dict({"posterior": xr.Dataset(), "sample_stats": tree["sample_stats"].to_dataset()})
    for name in names:
        for some in batches(posterior[name].data):
            yield from_dict({"posterior": {name: some}})


def batches(draws: np.ndarray) -> Iterator[np.ndarray]:
    """(chains, draws, some), all elements of an array (chains, draws, ...) in turn."""
    chains, count, *shape = draws.shape
    size, some = int(np.prod(shape, dtype=int)), max(AT_ONCE // (chains * count), 1)
    for first in range(0, size, some):
        where = np.unravel_index(np.arange(first, min(first + some, size)), shape) if shape else (None,)
        yield draws[(slice(None), slice(None), *where)]


def movement(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(chains, elements) which elements never move, and where they start."""
    found = [((some == some[:, :1]).all(axis=1), some[:, 0]) for some in batches(draws)]
    empty = np.zeros((draws.shape[0], 0))
    stands, begin = zip(*found, strict=True) if found else ((empty.astype(bool),), (empty,))
    return np.concatenate(stands, axis=1), np.concatenate(begin, axis=1)


def shortened(warnings: list[SamplerWarning], chains: int) -> list[SamplerWarning]:
    """One line in place of one for every chain."""
    deep = [w for w in warnings if w.kind is WarningType.TREEDEPTH]
    if len(deep) <= SHOWN:
        return warnings
    text = f"{len(deep)} of {chains} chains reached the maximum tree depth. Increase nuts={{'max_treedepth': ...}} or target_accept."
    return [w for w in warnings if w not in deep] + [SamplerWarning(WarningType.TREEDEPTH, text, "warn")]


def complaints(name: str, stands: np.ndarray, begin: np.ndarray, draws: int) -> list[str]:
    """About a discrete variable of which elements (chains, elements) stand still: R-hat is not defined there."""
    if stands.shape[1] == 0:
        return []
    apart = stands.all(axis=0) & (begin != begin[0]).any(axis=0)
    never = np.flatnonzero(stands.all(axis=1))
    elements = f" of its {stands.shape[1]} elements" if stands.shape[1] > 1 else ""
    if apart.any():
        return [
            f"{name!r} disagrees between chains: {apart.sum() if elements else 'it'}{elements} never moved within a chain and "
            "differs from chain to chain. The chains are in different modes, and their shares are not those of the posterior: try "
            "another step (pmd.PathAuxiliary moves many sites together), or more tuning."
        ]
    if len(never) and not stands.all():
        which = ", ".join(map(str, never[:SHOWN])) + (", ..." if len(never) > SHOWN else "")
        return [
            f"{name!r} never moved in {len(never)} of {len(stands)} chains ({which}), and did in others: those chains are stuck. "
            "Run longer, pass other initvals, or try another step."
        ]
    if stands.all() and draws >= 100:
        return [f"{name!r} never moved in any chain, and all agree: either the data leave one value only, or the step cannot move it."]
    return []
