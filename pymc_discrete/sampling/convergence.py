"""What the draws themselves say about the sampling."""

import logging

import numpy as np
import pymc as pm
from pymc.stats.convergence import SamplerWarning, WarningType, log_warnings, run_convergence_checks
from xarray import DataTree

_log = logging.getLogger("pymc.discrete")

SHOWN = 3  # chains that are named one by one


def check_convergence(tree: DataTree, model: pm.Model) -> None:
    """PyMC's own warnings (divergences, tree depth, R-hat, few effective draws), and of discrete variables that R-hat cannot judge."""
    with np.errstate(divide="ignore", invalid="ignore"):  # R-hat of what never moves
        found = run_convergence_checks(tree, model)
    log_warnings(shortened(found, tree["posterior"].sizes["chain"]))
    if tree["posterior"].sizes["draw"] < 2:
        return
    for name in (str(v.name) for v in model.discrete_value_vars if v.name in tree["posterior"]):
        for text in complaints(name, np.asarray(tree["posterior"][name])):
            _log.warning(text)


def shortened(warnings: list[SamplerWarning], chains: int) -> list[SamplerWarning]:
    """One line in place of one for every chain."""
    deep = [w for w in warnings if w.kind is WarningType.TREEDEPTH]
    if len(deep) <= SHOWN:
        return warnings
    text = f"{len(deep)} of {chains} chains reached the maximum tree depth. Increase nuts={{'max_treedepth': ...}} or target_accept."
    return [w for w in warnings if w not in deep] + [SamplerWarning(WarningType.TREEDEPTH, text, "warn")]


def complaints(name: str, draws: np.ndarray) -> list[str]:
    """About the draws (chains, draws, ...) of a discrete variable: R-hat is not defined where chains stand still."""
    draws = draws.reshape(*draws.shape[:2], -1)
    if draws.shape[2] == 0:
        return []
    stands = (draws == draws[:, :1]).all(axis=1)  # (chains, elements)
    apart = stands.all(axis=0) & (draws[:, 0] != draws[0, 0]).any(axis=0)
    never = np.flatnonzero(stands.all(axis=1))
    found, elements = [], f" of its {draws.shape[2]} elements" if draws.shape[2] > 1 else ""
    if apart.any():
        found.append(
            f"{name!r} disagrees between chains: {apart.sum() if elements else 'it'}{elements} never moved within a chain and "
            "differs from chain to chain. The chains are in different modes, and their shares are not those of the posterior: try "
            "another step (pmd.PathAuxiliary moves many sites together), or more tuning."
        )
    elif len(never) and not stands.all():
        which = ", ".join(map(str, never[:SHOWN])) + (", ..." if len(never) > SHOWN else "")
        found.append(
            f"{name!r} never moved in {len(never)} of {len(stands)} chains ({which}), and did in others: those chains are stuck. "
            "Run longer, pass other initvals, or try another step."
        )
    elif stands.all() and draws.shape[1] >= 100:
        found.append(
            f"{name!r} never moved in any chain, and all chains agree: either the data leave one value only, or the step cannot move it."
        )
    return found
