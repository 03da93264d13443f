"""Convergence checks of draws: label switching, R-hat and ESS, variables that never moved, ties."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

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

from pymc_discrete.diagnostics.draws import some_elements
from pymc_discrete.diagnostics.effective import categorical_ess
from pymc_discrete.diagnostics.orders import orders_of_draws, relabelled
from pymc_discrete.diagnostics.rhat import categorical_rhat
from pymc_discrete.diagnostics.summary import labels_switch, moved
from pymc_discrete.sampling import labels
from pymc_discrete.sampling.labels import LARGEST_RHAT, LEAST
from pymc_discrete.sampling.tied import Slow, tied
from pymc_discrete.steps.standing import FEW, FEWEST, Leaving, by_chance, held
from pymc_discrete.steps.ties import called
from pymc_discrete.targets.names import shown

_log = logging.getLogger("pymc.discrete")

# how many numbers are read into memory together, because the draws of a checkpoint are on the disk
AT_ONCE = 2**24
APART = 1.5  # R-hat from which chains are taken to be in different modes
SHOWN = 3  # largest number of chains that a message names one by one


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
    def known(self) -> dict[str, Leaving]:
        """{variable: how probable it is that its elements change}, of those that are sampled."""
        return {} if self.leaving is None else self.leaving()

    @cached_property
    def categories(self) -> list[str]:
        """The variables whose values are categories, of which PyMC's own checks would compare the codes."""
        return labels.categories(self.tree["posterior"], self.model)

    @cached_property
    def warnings_of_pymc(self) -> list[SamplerWarning]:
        """The warnings of PyMC's own checks: divergences, tree depth, R-hat, few effective draws."""
        by_message: dict[str, SamplerWarning] = {}
        # R-hat of an element that never moves divides 0 by 0
        with np.errstate(divide="ignore", invalid="ignore"):
            for part in parts(self.tree, self.in_order, self.model, self.categories):
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
    def mixing(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """{variable: (elements,) the ESS and the R-hat of categories}, where there are enough draws."""
        posterior = self.tree["posterior"]
        if posterior.sizes["draw"] < FEWEST or posterior.sizes["chain"] < 2:
            return {}
        draws = {name: posterior[name].data for name in self.categories if posterior[name].size}
        found = {name: (categorical_ess(x).ravel(), categorical_rhat(x).ravel()) for name, x in draws.items()}
        for name, (ess, rhat) in found.items():
            self._slow.add(name, ess / posterior.sizes["chain"], rhat)
        return found

    @cached_property
    def within(self) -> list[str]:
        """The variables of categories that mix slowly, and well once the labels of draws are permuted."""
        posterior, lp = self.tree["posterior"], np.asarray(self.tree["sample_stats"]["lp"])
        return [
            name
            for name, slow in self.slow_categories.items()
            if slow.any() and posterior[name].ndim > 2 and labels_switch(posterior[name].data, lp)
        ]

    @cached_property
    def slow_categories(self) -> dict[str, np.ndarray]:
        """{variable: (elements,) bool, which mix slowly}, of labels that all chains have in one order."""
        chains = self.tree["posterior"].sizes["chain"]
        return {
            # an element whose R-hat is infinite never moved, of which another check speaks
            name: ((ess < LEAST * chains) | (rhat > LARGEST_RHAT)) & ~np.isinf(rhat)
            for name, (ess, rhat) in self.mixing.items()
            if labels.order_of(name, self.orders) is None
        }

    @cached_property
    def of_labels(self) -> dict[str, np.ndarray]:
        """{variable: draws} of what belongs to labels that are switched, with these in one order."""
        posterior = self.tree["posterior"]
        if posterior.sizes["draw"] < FEWEST:
            return {}
        to_new = [orders[:, None] for orders in self.orders.values()]
        to_new += [orders_of_draws(posterior[name].data) for name in self.within]
        found = {}
        for name in [str(v.name) for v in self.model.free_RVs if to_new and v.name in posterior.data_vars]:
            draws = posterior[name].data
            if name not in self.categories and 0 < draws.size <= AT_ONCE:
                permuted = labels.in_order(draws, to_new)
                if permuted is not draws:
                    found[name] = permuted
        return found

    @property
    def in_order(self) -> xr.Dataset:
        """The posterior, with what belongs to labels that are switched in one order."""
        posterior = self.tree["posterior"].to_dataset()
        return posterior.assign({name: (posterior[name].dims, x) for name, x in self.of_labels.items()})

    @cached_property
    def _slow(self) -> Slow:
        return Slow()

    @property
    def slow(self) -> Slow:
        """The elements that mix slowly by the checks of R-hat and ESS, which are run first."""
        _ = self.warnings_of_pymc, self.mixing
        return self._slow


def still_trajectories(run: Run) -> list[str]:
    """A warning of chains in which NUTS never moved, since each of its transitions diverged at once."""
    stats, posterior = run.tree["sample_stats"], run.tree["posterior"]
    if "diverging" not in stats.data_vars:
        return []
    still = np.asarray(stats["diverging"].data, bool).reshape(stats.sizes["chain"], -1).all(axis=1)
    for name in [str(v.name) for v in run.model.free_RVs if v.name in posterior.data_vars]:
        if still.any() and posterior[name].dtype.kind == "f":
            draws = posterior[name].data
            still[still] = [bool((draws[chain] == draws[chain, :1]).all()) for chain in np.flatnonzero(still)]
    which = np.flatnonzero(still)
    if not len(which):
        return []
    names = ", ".join(map(str, which[:SHOWN])) + (", ..." if len(which) > SHOWN else "")
    return [
        f"NUTS never moved in {len(which)} of {len(still)} chains ({names}): all its transitions diverged. "
        "Their draws say nothing. Most often the gradient of the log density is not finite where they are: "
        "look at model.compile_dlogp() there, pass other initvals=, or, where variables are summed out, "
        "collapse=False."
    ]


def switched_labels(run: Run) -> list[str]:
    """One warning of all labels that are in another order, in other chains or within them.

    Later checks are of draws with the labels in one order.
    """
    if not run.orders and not run.within:
        return []
    return [labels.message(run.orders, run.within, list(run.of_labels))]


def never_moved(run: Run) -> list[str]:
    """Warnings of discrete variables that never moved, for which R-hat is not defined."""
    return immobile_variables(run)


def ties(run: Run) -> list[str]:
    """Warnings of ties between variables, which may be the cause of few effective draws."""
    return tied(run.tree, run.model, run.slow) if run.slow.checked else []


def warnings_of_pymc(run: Run) -> list[SamplerWarning]:
    """The warnings of PyMC's own checks, with those about the same matter in several chains in one line."""
    return run.warnings_of_pymc


def slowest_by_name(run: Run) -> list[str]:
    """Which elements PyMC's checks mean, whose messages name none."""
    posterior = run.tree["posterior"]
    names = [str(name) for name in posterior.data_vars if str(name) not in run.categories]
    slow = sorted((score, name, i) for name in names for score, i in run.slow.worst(name))[:SHOWN]
    if not slow:
        return []
    which = ", ".join(called(name, posterior[name].shape[2:], i) for _, name, i in slow)
    return [f"Slow, the slowest first: {which}. pmd.summary and az.summary have a row for each element."]


def slow_categories(run: Run) -> list[str]:
    """A warning of categories whose indicators mix slowly, other than since labels change."""
    chains = run.tree["posterior"].sizes["chain"]
    bad = {
        name: (*run.mixing[name], slow)
        for name, slow in run.slow_categories.items()
        if slow.any() and name not in run.within
    }
    if not bad:
        return []
    count = sum(int(slow.sum()) for _, _, slow in bad.values())
    of = sum(slow.size for _, _, slow in bad.values())
    least = min(float(np.nanmin(ess[slow])) for ess, _, slow in bad.values()) / chains
    largest = max(float(np.nanmax(rhat[slow])) for _, rhat, slow in bad.values())
    elements = f"{count} of the {of} elements of {shown(bad)} mix" if of > 1 else f"{shown(bad)} mixes"
    remedy = "Draw more"
    if largest > APART:
        remedy = (
            "The chains seem to be in different modes: if more draws do not join them, take a step that "
            "moves sites together (pmd.PathAuxiliary), or pmd.FlowStep, whose flow is fitted to these draws"
        )
    return [
        f"{elements} slowly: of a category of the worst there are {least:.0f} effective draws per chain, and "
        f"R-hat is up to {largest:.2f}. {remedy}; pmd.summary has a row for each element.",
    ]


# The checks are made in this order, so that a finding comes before the warnings that it may explain. To add a
# check, write a function of a `Run` and list it here.
CHECKS: tuple[Callable[[Run], Sequence[str | SamplerWarning]], ...] = (
    still_trajectories,
    switched_labels,
    warnings_of_pymc,
    slowest_by_name,
    slow_categories,
    never_moved,
    ties,
)
OF_ONE_DRAW = (warnings_of_pymc,)  # the checks that a single draw of each chain allows


def check_convergence(
    tree: DataTree,
    model: pm.Model,
    leaving: Callable[[], dict[str, Leaving]] | None = None,
    finished: bool = False,
) -> None:
    """Log the warnings that the draws of a run give cause for, one line each.

    Parameters
    ----------
    tree : DataTree, to which the group `conditionals` is added if `leaving` was called
    leaving : () -> {discrete variable: Leaving}, optional
        How probable it is that its sites change, at the last points of the chains. Called only if some
        element never moved.
    finished
        Whether the draws are read from the folder of a run that had ended, which said already at length that
        labels are switched.
    """
    run = Run(tree, model, leaving)
    for check in CHECKS if tree["posterior"].sizes["draw"] > 1 else OF_ONE_DRAW:
        if finished and check is switched_labels:
            if switched := [*(name for group in run.orders for name in group), *run.within]:
                _log.info(
                    f"The labels of {shown(switched)} are switched: pmd.relabel puts them in one order."
                )
            continue
        for warning in check(run):
            if isinstance(warning, SamplerWarning):
                log_warnings([warning])
            else:
                _log.warning(warning)
    if "known" in vars(run) and run.known:
        tree["conditionals"] = DataTree(conditionals(tree["posterior"], run.known))


def conditionals(posterior: Any, known: dict[str, Leaving]) -> xr.Dataset:
    """The probabilities, given everything else, that elements of sampled variables have another value.

    `pmd.summary` reads them, to tell an element whose value is certain from one that is stuck.

    Returns
    -------
    xarray.Dataset
        For each variable NAME of the posterior an array (chain, <dims>), the probability that an element has
        another value than in the last draw of the chain, given everything else, nan where it is not known and
        for an element that moved and is drawn jointly with others; and "NAME several" (<dims>) bool, whether
        it has several possible values.
    """
    arrays = {}
    for name, of_variable in known.items():
        if name in posterior.data_vars:
            draws = posterior[name]
            last = draws.isel(draw=-1, drop=True)
            p = of_variable.probability
            p = np.full(last.shape, np.nan) if p is None else p.reshape(last.shape)
            if of_variable.joint:
                # The other sites are drawn together with it. What they allow at the last draw, they need not
                # allow at others, so it says nothing of chains that happened not to move.
                p = np.where(moved(draws).data > 0, np.nan, p)
            arrays[name] = last.copy(data=p).assign_attrs(joint=int(of_variable.joint))
            arrays[f"{name} several"] = last.isel(chain=0, drop=True).copy(
                data=of_variable.several.reshape(last.shape[1:])
            )
    return xr.Dataset(arrays)


def parts(
    tree: DataTree, posterior: xr.Dataset, model: pm.Model, categories: Sequence[str]
) -> Iterator[DataTree]:
    """What PyMC's checks are to look at: the statistics of a tree, and a posterior without categories.

    If it has too many draws, its statistics come first and then trees of a few elements each. PyMC also says
    when chains are too few or too short: where there are categories only, a constant stands for them.
    """
    stats = tree["sample_stats"].to_dataset()
    names = [str(v.name) for v in model.free_RVs if v.name in posterior.data_vars]
    others = [name for name in names if name not in categories]
    if names and not others:
        constant = np.zeros((posterior.sizes["chain"], posterior.sizes["draw"]))
        yield DataTree.from_dict(
            {
                "posterior": xr.Dataset({names[0]: (("chain", "draw"), constant)}, posterior.coords),
                "sample_stats": stats,
            }
        )
        return
    if sum(posterior[name].size for name in others) <= AT_ONCE:
        yield DataTree.from_dict({"posterior": posterior[others], "sample_stats": stats})
        return
    yield DataTree.from_dict({"posterior": xr.Dataset(), "sample_stats": stats})
    for name in others:
        for batch in some_elements(posterior[name].data, AT_ONCE):
            yield from_dict({"posterior": {name: batch}})


def movement(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(chains, elements) bool, which elements never move, and (chains, elements), their first values."""
    each = [((batch == batch[:, :1]).all(axis=1), batch[:, 0]) for batch in some_elements(draws, AT_ONCE)]
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
def immobile_variables(run: Run) -> list[str]:
    """Warnings about the discrete variables that never moved; variables with the same finding share one."""
    findings: dict[Finding, list[str]] = {}
    posterior = run.tree["posterior"]
    for name in [str(v.name) for v in run.model.discrete_value_vars if v.name in posterior.data_vars]:
        draws = posterior[name].data
        immobile, begin = movement(draws)
        order = labels.order_of(name, run.orders)
        in_order = begin if order is None else relabelled(order, begin)
        stands_still = immobile.all(axis=0).any() or immobile.all(axis=1).any()
        known = run.known.get(name) if stands_still else None
        finding = find(immobile, begin, draws.shape[1], known, in_order)
        # of labels that chains have in another order `switched_labels` speaks
        if finding is None or finding.why == "labels":
            continue
        if finding.kind == "apart" and not finding.why and run.leaving is not None:
            exact = name not in run.known or run.known[name].joint  # summed out, or drawn as a whole
            finding = finding._replace(why="modes", lp=mean_lp(run.tree)) if exact else finding
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
    why : the explanation: "labels", "modes" or nothing for "apart", text for "all"; "labels" is not reported
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
        joint, together = (False, "") if leaving is None else (leaving.joint, leaving.together)
        why = held(total, joint, n_draws, together) if draws >= FEWEST else None
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
