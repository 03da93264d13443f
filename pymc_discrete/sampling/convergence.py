"""Convergence checks of draws: label switching, R-hat and ESS, variables that never moved, ties."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

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

SHOWN = 3  # largest number of chains that a message names one by one
# how many numbers are read into memory together, because the draws of a checkpoint are on the disk
AT_ONCE = 2**24


class Run:
    """The draws of a run, and quantities that several checks use, each computed once.

    Parameters
    ----------
    tree : DataTree with the groups posterior and sample_stats
    leaving : see `check_convergence`
    """

    def __init__(
        self, tree: DataTree, model: pm.Model, leaving: Callable[[], dict[str, Leaving]] | None = None
    ):
        self.tree, self.model, self.leaving = tree, model, leaving

    @cached_property
    def orders(self) -> dict[tuple[str, ...], np.ndarray]:
        """{variables that share labels: permutations}, of labels that are switched between chains."""
        return labels.switched(self.tree, self.model)

    @cached_property
    def warnings_of_pymc(self) -> list[SamplerWarning]:
        """The warnings of PyMC's own checks: divergences, tree depth, R-hat, few effective draws."""
        by_message: dict[str, SamplerWarning] = {}
        # R-hat of an element that never moves divides 0 by 0
        with np.errstate(divide="ignore", invalid="ignore"):
            for part in parts(self.tree, self.model):
                if part["posterior"].data_vars:
                    warnings = run_convergence_checks(part, self.model)
                else:
                    warnings = [*warn_divergences(part), *warn_treedepth(part)]
                by_message |= {w.message: w for w in warnings}
                self._slow.note(warnings, part)
        warnings = with_tree_depth_in_one(list(by_message.values()), self.tree["posterior"].sizes["chain"])
        untuned = self.tree["posterior"].attrs.get("tuning_steps") == 0
        return [asking_for_tuning(w) for w in warnings] if untuned else warnings

    @cached_property
    def _slow(self) -> Slow:
        return Slow()

    @property
    def slow(self) -> Slow:
        """The elements that mix slowly by PyMC's checks, which are run first."""
        _ = self.warnings_of_pymc
        return self._slow


def switched_labels(run: Run) -> list[str]:
    """Warnings of labels that chains have in another order, which may be the cause of later warnings."""
    return [labels.message(names, order) for names, order in run.orders.items()]


def never_moved(run: Run) -> list[str]:
    """Warnings of discrete variables that never moved, for which R-hat is not defined."""
    return immobile_variables(run.tree, run.model, run.orders, run.leaving)


def ties(run: Run) -> list[str]:
    """Warnings of ties between variables, which may be the cause of few effective draws."""
    return tied(run.tree, run.model, run.slow) if run.slow.checked else []


def warnings_of_pymc(run: Run) -> list[SamplerWarning]:
    """The warnings of PyMC's own checks, with those about the same matter in several chains in one line."""
    return run.warnings_of_pymc


# The checks are made in this order, so that a finding comes before the warnings that it may explain. To add a
# check, write a function of a `Run` and list it here.
CHECKS: tuple[Callable[[Run], Sequence[str | SamplerWarning]], ...] = (
    switched_labels,
    warnings_of_pymc,
    never_moved,
    ties,
)
OF_ONE_DRAW = (warnings_of_pymc,)  # the checks that a single draw of each chain allows


def check_convergence(
    tree: DataTree, model: pm.Model, leaving: Callable[[], dict[str, Leaving]] | None = None
) -> None:
    """Log the warnings that the draws of a run give cause for, one line each.

    Parameters
    ----------
    leaving : () -> {discrete variable: Leaving}, optional
        How probable it is that its sites change, at the last points of the chains. Called only if needed.
    """
    run = Run(tree, model, leaving)
    for check in CHECKS if tree["posterior"].sizes["draw"] > 1 else OF_ONE_DRAW:
        for warning in check(run):
            if isinstance(warning, SamplerWarning):
                log_warnings([warning])
            else:
                _log.warning(warning)


def parts(tree: DataTree, model: pm.Model) -> Iterator[DataTree]:
    """The tree; or, if it has too many draws, its statistics first and then trees of a few elements each."""
    posterior = tree["posterior"]
    names = [str(v.name) for v in model.free_RVs if v.name in posterior.data_vars]
    if sum(posterior[name].size for name in names) <= AT_ONCE:
        yield tree
        return
    yield DataTree.from_dict({"posterior": xr.Dataset(), "sample_stats": tree["sample_stats"].to_dataset()})
    for name in names:
        for batch in batches(posterior[name].data):
            yield from_dict({"posterior": {name: batch}})


def batches(draws: np.ndarray, at_once: int = AT_ONCE) -> Iterator[np.ndarray]:
    """The elements of an array (chains, draws, ...), in arrays (chains, draws, n) of bounded size."""
    chains, count, *shape = draws.shape
    size, n = int(np.prod(shape, dtype=int)), max(at_once // (chains * count), 1)
    for first in range(0, size, n):
        index = np.unravel_index(np.arange(first, min(first + n, size)), shape) if shape else (None,)
        yield draws[(slice(None), slice(None), *index)]


def movement(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(chains, elements) bool, which elements never move, and (chains, elements), their first values."""
    each = [((batch == batch[:, :1]).all(axis=1), batch[:, 0]) for batch in batches(draws)]
    empty = np.zeros((draws.shape[0], 0))
    immobile, begin = zip(*each, strict=True) if each else ((empty.astype(bool),), (empty,))
    return np.concatenate(immobile, axis=1), np.concatenate(begin, axis=1)


def with_tree_depth_in_one(warnings: list[SamplerWarning], chains: int) -> list[SamplerWarning]:
    """The warnings, those of many chains about their tree depth replaced by a single one."""
    deep = [w for w in warnings if w.kind is WarningType.TREEDEPTH]
    if len(deep) <= SHOWN:
        return warnings
    text = (
        f"{len(deep)} of {chains} chains reached the maximum tree depth. Increase "
        f"nuts={{'max_treedepth': ...}} or target_accept."
    )
    return [w for w in warnings if w not in deep] + [SamplerWarning(WarningType.TREEDEPTH, text, "warn")]


def asking_for_tuning(warning: SamplerWarning) -> SamplerWarning:
    """The warning, with tuning for a remedy where it is about trajectories of NUTS."""
    if warning.kind not in (WarningType.DIVERGENCES, WarningType.TREEDEPTH):
        return warning
    found = warning.message.split(" Increase")[0]
    text = f"{found} Nothing was tuned, neither step size nor mass matrix: pass tune=1000 in place of tune=0."
    return SamplerWarning(warning.kind, text, warning.level)


# ---------------------------------------------------------------- variables that never moved
def immobile_variables(
    tree: DataTree,
    model: pm.Model,
    orders: dict[tuple[str, ...], np.ndarray],
    leaving: Callable[[], dict[str, Leaving]] | None,
) -> list[str]:
    """Warnings about the discrete variables that never moved; variables with the same finding share one.

    Parameters
    ----------
    orders : {variables that share labels: permutations}, as `labels.switched` returns them
    leaving : see `check_convergence`
    """
    findings: dict[Finding, list[str]] = {}
    known: dict[str, Leaving] | None = None
    for name in [str(v.name) for v in model.discrete_value_vars if v.name in tree["posterior"].data_vars]:
        draws = tree["posterior"][name].data
        immobile, begin = movement(draws)
        order = labels.order_of(name, orders)
        relabelled = begin if order is None else labels.relabelled(order, begin)
        needs_leaving = immobile.all(axis=1).any() or (draws.shape[1] < FEWEST and immobile.all(axis=0).any())
        if known is None and leaving is not None and needs_leaving:
            known = leaving()
        finding = find(immobile, begin, draws.shape[1], (known or {}).get(name), relabelled)
        if finding is not None and finding.kind == "apart" and not finding.why and leaving is not None:
            known = leaving() if known is None else known
            if name not in known or known[name].joint:  # summed out, or drawn as a whole
                finding = finding._replace(why="modes", lp=mean_lp(tree))
        if finding is not None:
            findings.setdefault(finding, []).append(name)
    return [message(names, finding) for finding, names in findings.items()]


def mean_lp(tree: DataTree) -> tuple[float, ...]:
    """The mean of the log density over the draws of each chain, nats."""
    return tuple(np.asarray(tree["sample_stats"]["lp"].data).mean(axis=1).tolist())


def complaints(
    name: str, immobile: np.ndarray, begin: np.ndarray, draws: int, leaving: Leaving | None = None
) -> list[str]:
    """The warnings about one discrete variable, given what `movement` returns for its draws."""
    finding = find(immobile, begin, draws, leaving, begin)
    return [] if finding is None else [message([name], finding)]


class Finding(NamedTuple):
    """What is wrong with a discrete variable that did not move.

    Attributes
    ----------
    kind
        "apart" if elements never moved in any chain and differ between chains, "some" if some chains never
        moved, "all" if no chain moved and all have the same values.
    elements : number of elements that have more than one possible value
    differing : number of elements that differ between chains, for "apart"
    chains : (the chains that never moved, the number of all chains), for "some"
    why : the explanation: "labels", "modes" or nothing for "apart", text for "all"
    lp : mean log density of each chain, for "modes"
    """

    kind: Literal["apart", "some", "all"]
    elements: int = 1
    differing: int = 1
    chains: tuple[tuple[int, ...], int] = ((), 0)
    why: str = ""
    lp: tuple[float, ...] = ()


def find(
    immobile: np.ndarray, begin: np.ndarray, draws: int, leaving: Leaving | None, relabelled: np.ndarray
) -> Finding | None:
    """What is wrong with one discrete variable, or None.

    Parameters
    ----------
    immobile : (chains, elements) bool, elements that never moved
    begin : (chains, elements) int, the first values
    draws : number of draws of a chain
    leaving : how probable it is that the elements change, at the last points of the chains, if known
    relabelled : (chains, elements) int, `begin` in the labels of chain 0
    """
    if leaving is not None:
        immobile, begin, relabelled = (a[:, leaving.several] for a in (immobile, begin, relabelled))
    chains, elements = immobile.shape
    if elements == 0:
        return None
    known = leaving is not None and leaving.probability is not None
    probability = leaving.probability[:, leaving.several] if known else None  # type: ignore[union-attr, index]
    apart = immobile.all(axis=0) & (begin != begin[0]).any(axis=0)
    if probability is not None and draws < FEWEST:
        apart &= [
            not all(by_chance(p, draws, FEW / draws) for p in of_element) for of_element in probability.T
        ]
    if apart.any():
        by_labels = not (immobile.all(axis=0) & (relabelled != relabelled[0]).any(axis=0)).any()
        return Finding("apart", elements, int(apart.sum()), why="labels" if by_labels else "")
    of_chain = None if probability is None else probability.sum(axis=1)
    if immobile.all():
        total, n_draws = (None, draws) if of_chain is None else (float(of_chain.mean()), chains * draws)
        why = held(total, leaving is not None and leaving.joint, n_draws) if draws >= FEWEST else None
        return None if why is None else Finding("all", why=why)
    never = np.flatnonzero(immobile.all(axis=1))
    if of_chain is not None:
        # other chains moved, so other values are possible: chains that stayed by chance are not reported
        never = never[[not by_chance(float(of_chain[n]), draws, FEW / draws) for n in never]]
    return Finding("some", chains=(tuple(never.tolist()), chains)) if len(never) else None


def message(names: list[str], finding: Finding) -> str:
    """The warning for a finding that one or several variables share."""
    one = len(names) == 1
    if finding.kind == "apart":
        several = finding.elements > 1
        they = (
            f"{finding.differing} of {'its' if one else 'their'} {finding.elements} elements"
            if several
            else "it"
            if one
            else "they"
        )
        differ = "differs" if (finding.differing == 1 if several else one) else "differ"
        disagree = "disagrees" if one else "disagree"
        text = (
            f"{shown(names)} {disagree} between chains: {they} never moved within a chain and {differ} from "
            "chain to chain"
        )
        if finding.why == "labels":
            return f"{text}, as labels do that are switched: with the labels of chain 0 all agree."
        if finding.why == "modes":
            means = ", ".join(f"{lp:.1f}" for lp in finding.lp)
            return (
                f"{text}. The chains are in different modes of the variables beside {shown(names)}, which "
                f"{'is' if one else 'are'} drawn exactly given these, so that no other step helps. The mean "
                f"lp of each chain: {means}. Pass initvals= of the continuous variables in the mode with the "
                "highest, or, if modes differ by the order of states only, constrain it (transform=pm."
                "distributions.transforms.ordered)."
            )
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
