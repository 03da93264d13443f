"""What the draws themselves say about the sampling."""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import from_dict
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    run_convergence_checks,
    warn_divergences,
    warn_treedepth,
)
from xarray import DataTree

from pymc_discrete.sampling import labels
from pymc_discrete.sampling.tied import Slow, tied
from pymc_discrete.steps.standing import FEW, FEWEST, Leaving, by_chance, held
from pymc_discrete.targets.names import shown

_log = logging.getLogger("pymc.discrete")

SHOWN = 3  # chains that are named one by one
AT_ONCE = 2**24  # numbers: what is on the disk is looked at in parts


def check_convergence(
    tree: DataTree, model: pm.Model, leaving: Callable[[], dict[str, Leaving]] | None = None
) -> None:
    """What the draws of a run say, each in a line of the log.

    Labels that chains have in another order, which explains what follows; PyMC's own warnings (divergences,
    tree depth, R-hat, few effective draws); discrete variables that R-hat cannot judge, since they stand
    still; ties, which explain few effective draws.

    Parameters
    ----------
    leaving : () -> {discrete variable: how probable another value of its sites is, where the chains end}
    """
    if tree["posterior"].sizes["draw"] > 1:
        orders = labels.switched(tree, model)
        for names, order in orders.items():
            _log.warning(labels.message(names, order))
    by_message: dict[str, SamplerWarning] = {}
    slow = Slow()
    with np.errstate(divide="ignore", invalid="ignore"):  # R-hat of what never moves
        for part in parts(tree, model):
            whole = bool(part["posterior"].data_vars)
            said = (
                run_convergence_checks(part, model)
                if whole
                else [*warn_divergences(part), *warn_treedepth(part)]
            )
            by_message |= {w.message: w for w in said}
            slow.note(said, part)
    log_warnings(shortened(list(by_message.values()), tree["posterior"].sizes["chain"]))
    if tree["posterior"].sizes["draw"] > 1:
        for text in [
            *standing(tree, model, orders, leaving),
            *(tied(tree, model, slow) if slow.checked else []),
        ]:
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
    each = [((some == some[:, :1]).all(axis=1), some[:, 0]) for some in batches(draws)]
    empty = np.zeros((draws.shape[0], 0))
    stands, begin = zip(*each, strict=True) if each else ((empty.astype(bool),), (empty,))
    return np.concatenate(stands, axis=1), np.concatenate(begin, axis=1)


def shortened(warnings: list[SamplerWarning], chains: int) -> list[SamplerWarning]:
    """One line in place of one for every chain."""
    deep = [w for w in warnings if w.kind is WarningType.TREEDEPTH]
    if len(deep) <= SHOWN:
        return warnings
    text = (
        f"{len(deep)} of {chains} chains reached the maximum tree depth. Increase "
        f"nuts={{'max_treedepth': ...}} or target_accept."
    )
    return [w for w in warnings if w not in deep] + [SamplerWarning(WarningType.TREEDEPTH, text, "warn")]


# ---------------------------------------------------------------- variables that stand still
def standing(
    tree: DataTree,
    model: pm.Model,
    orders: dict[tuple[str, ...], np.ndarray],
    leaving: Callable[[], dict[str, Leaving]] | None,
) -> list[str]:
    """What to say of the discrete variables that never moved, those of which the same is to be
    said together.
    """
    findings: dict[Finding, list[str]] = {}
    known: dict[str, Leaving] | None = None
    for name in [str(v.name) for v in model.discrete_value_vars if v.name in tree["posterior"].data_vars]:
        draws = tree["posterior"][name].data
        stands, begin = movement(draws)
        order = labels.order_of(name, orders)
        alike = begin if order is None else labels.renamed(order, begin)
        judged = stands.all(axis=1).any() or (draws.shape[1] < FEWEST and stands.all(axis=0).any())
        if known is None and leaving is not None and judged:
            known = leaving()
        result = finding(stands, begin, draws.shape[1], (known or {}).get(name), alike)
        if result is not None:
            findings.setdefault(result, []).append(name)
    return [worded(names, result) for result, names in findings.items()]


def complaints(
    name: str, stands: np.ndarray, begin: np.ndarray, draws: int, leaving: Leaving | None = None
) -> list[str]:
    """What to say of one discrete variable, of which elements (chains, elements) stand still where they
    began.
    """
    result = finding(stands, begin, draws, leaving, begin)
    return [] if result is None else [worded([name], result)]


class Finding(NamedTuple):
    """What is to be said of a variable.

    Attributes
    ----------
    kind : "apart" where elements stand still at different values, "some" where some chains stand still, "all"
    elements : how many it has
    away : of them that stand apart
    chains : that stand still, and how many there are
    why : they stand still, or, of "apart", what explains it
    """

    kind: str
    elements: int = 1
    away: int = 1
    chains: tuple[tuple[int, ...], int] = ((), 0)
    why: str = ""


def finding(
    stands: np.ndarray, begin: np.ndarray, draws: int, leaving: Leaving | None, alike: np.ndarray
) -> Finding | None:
    """Of elements (chains, elements) that stand still where they began.

    `alike` are the beginnings with the labels as chain 0 calls them.
    """
    if leaving is not None:
        stands, begin, alike = (a[:, leaving.several] for a in (stands, begin, alike))
    chains, elements = stands.shape
    if elements == 0:
        return None
    known = leaving is not None and leaving.probability is not None
    probability = leaving.probability[:, leaving.several] if known else None  # type: ignore[union-attr, index]
    apart = stands.all(axis=0) & (begin != begin[0]).any(axis=0)
    if probability is not None and draws < FEWEST:
        apart &= [not all(by_chance(p, draws, FEW / draws) for p in own) for own in probability.T]
    if apart.any():
        by_labels = not (stands.all(axis=0) & (alike != alike[0]).any(axis=0)).any()
        return Finding("apart", elements, int(apart.sum()), why="labels" if by_labels else "")
    each = None if probability is None else probability.sum(axis=1)
    if stands.all():
        total, every = (None, draws) if each is None else (float(each.mean()), chains * draws)
        why = held(total, leaving is not None and leaving.joint, every) if draws >= FEWEST else None
        return None if why is None else Finding("all", why=why)
    never = np.flatnonzero(stands.all(axis=1))
    if each is not None:  # of the others, which moved, so that other values are possible
        never = never[[not by_chance(float(each[n]), draws, FEW / draws) for n in never]]
    return Finding("some", chains=(tuple(never.tolist()), chains)) if len(never) else None


def worded(names: list[str], finding: Finding) -> str:
    """The finding, of one variable or several."""
    one = len(names) == 1
    if finding.kind == "apart":
        several = finding.elements > 1
        they = (
            f"{finding.away} of {'its' if one else 'their'} {finding.elements} elements"
            if several
            else "it"
            if one
            else "they"
        )
        differ = "differs" if (finding.away == 1 if several else one) else "differ"
        disagree = "disagrees" if one else "disagree"
        text = (
            f"{shown(names)} {disagree} between chains: {they} never moved within a chain and {differ} from "
            "chain to chain"
        )
        if finding.why == "labels":
            return f"{text}, as labels do that are switched: with the labels of chain 0 all agree."
        return (
            f"{text}. The chains are in different modes, and their shares are not those of the posterior: "
            "try another step (pmd.PathAuxiliary moves many sites together), or more tuning."
        )
    if finding.kind == "some":
        never, chains = finding.chains
        which = ", ".join(map(str, never[:SHOWN])) + (", ..." if len(never) > SHOWN else "")
        return (
            f"{shown(names)} never moved in {len(never)} of {chains} chains ({which}), and did in others: "
            f"{'that chain is' if len(never) == 1 else 'those chains are'} stuck. Run longer, pass other "
            "initvals, or try another step."
        )
    return f"{shown(names)} never moved in any chain, and all agree: {finding.why}."
