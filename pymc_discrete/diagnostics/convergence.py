"""Convergence checks of draws: label switching, R-hat and ESS, variables that never moved, ties."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

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

from pymc_discrete.diagnostics import switched as labels
from pymc_discrete.diagnostics.draws import some_elements
from pymc_discrete.diagnostics.orders import as_probable, effective_share, orders_of_draws
from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.diagnostics.standing import FEWEST, Leaving, held_outside, of_models, remarkable, why_still
from pymc_discrete.diagnostics.summary import Judge, Judged, labels_in_draws
from pymc_discrete.diagnostics.tied import Slow, tied
from pymc_discrete.diagnostics.ties import called
from pymc_discrete.diagnostics.verdicts import MODES, conditionals, stuck_chains, too_few_moves
from pymc_discrete.model.support import is_nominal
from pymc_discrete.runtime.names import element, shown

_log = logging.getLogger("pymc.discrete")

# how many numbers are read into memory together, because the draws of a checkpoint are on the disk
AT_ONCE = 2**24
SHORTEST = 4  # fewest draws of a chain of which something is said
INFINITE = 1e100  # no quantity of a model is as large
SHOWN = 3  # largest number of chains that a message names one by one


class Run:
    """The draws of a run, and quantities that several checks use, each computed once.

    Parameters
    ----------
    tree : DataTree with the groups posterior and sample_stats
    leaving, used : see `check_convergence`
    """

    def __init__(
        self,
        tree: DataTree,
        model: pm.Model,
        leaving: Callable[[], dict[str, Leaving]] | None = None,
        used: Mapping[str, str] | None = None,
    ):
        self.tree, self.model, self.leaving = tree, model, leaving
        self.remedies = Remedies(model, used or {})

    @cached_property
    def discrete(self) -> list[str]:
        """The discrete variables, of which PyMC's own checks would compare the codes."""
        posterior = self.tree["posterior"]
        names = [str(rv.name) for rv in self.model.free_RVs if rv.dtype.startswith(("int", "uint", "bool"))]
        return [name for name in names if name in posterior.data_vars]

    @cached_property
    def judged(self) -> dict[str, Judged]:
        """{discrete variable: its statistics and verdicts}, the same as in `pmd.summary` and the plots.

        The group `conditionals` is added to the tree first, if some element stood still or moved rarely, or
        chains are in different modes.
        """
        posterior = self.tree["posterior"]
        names = [name for name in self.discrete if posterior[name].size]
        if posterior.sizes["draw"] < SHORTEST:
            return {}
        judge = Judge(self.tree, names)
        if self.leaving is not None:
            measured = [judge.measured(name) for name in names]
            if any(m.movement.seldom.any() or (m.columns["rhat"] > MODES).any() for m in measured):
                known = {name: of for name, of in self.leaving().items() if name in posterior.data_vars}
                if known:
                    self.tree["conditionals"] = DataTree(conditionals(posterior, known))
        return {name: judge.of(name) for name in names}

    @cached_property
    def warnings_of_pymc(self) -> list[SamplerWarning]:
        """The warnings of PyMC's own checks: divergences, tree depth, R-hat, few effective draws."""
        by_message: dict[str, SamplerWarning] = {}
        # R-hat of an element that never moves divides 0 by 0
        with np.errstate(divide="ignore", invalid="ignore"):
            for part in parts(self.tree, self.in_order, self.model, self.discrete):
                if part["posterior"].data_vars:
                    warnings = run_convergence_checks(part, self.model)
                else:
                    warnings = [*warn_divergences(part), *warn_treedepth(part)]
                by_message |= {w.message: w for w in warnings}
                self._slow.note(warnings, part)
        warnings = with_tree_depth_in_one(list(by_message.values()), self.tree["posterior"].sizes["chain"])
        untuned = self.tree["posterior"].attrs.get("tuning_steps") == 0
        return [asking_for_tuning(w) for w in warnings] if untuned else warnings

    @property
    def orders(self) -> dict[tuple[str, ...], np.ndarray]:
        """{variables that share labels: permutations}, of labels that are switched between chains."""
        found: dict[int, tuple[list[str], np.ndarray]] = {}
        for name, of in self.judged.items():
            if of.orders is not None:  # variables that share labels have the same permutations
                found.setdefault(id(of.orders), ([], of.orders))[0].append(name)
        return {tuple(names): orders for names, orders in found.values()}

    @property
    def within(self) -> list[str]:
        """The variables whose labels change within chains."""
        return [name for name, of in self.judged.items() if of.switch]

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
            if name not in self.discrete and 0 < draws.size <= AT_ONCE:
                permuted = labels.in_order(draws, to_new)
                if permuted is not draws:
                    found[name] = permuted
        return found

    @property
    def in_order(self) -> xr.Dataset:
        """The posterior, with what belongs to labels that are switched in one order."""
        posterior = self.tree["posterior"].to_dataset()
        return posterior.assign({name: (posterior[name].dims, x) for name, x in self.of_labels.items()})

    def sum_out(self, names: Iterable[str]) -> str:
        """The end of a sentence: to sum out those of these variables that are counts, if that is possible."""
        known = {name: self.judged[name].known for name in names}
        sampled = [name for name, of in known.items() if of is None or not of.summed]
        counts = [name for name in sampled if not is_nominal(self.model, name)]
        if not counts or not self.remedies.can_be_summed_out(counts):
            return ""
        them = "it" if len(counts) == 1 else "them"
        return f", or sum {them} out while NUTS moves: pmd.sample(collapse=[{shown(counts)}])"

    @cached_property
    def _slow(self) -> Slow:
        return Slow()

    @property
    def slow(self) -> Slow:
        """The elements that mix slowly by the checks of R-hat and ESS, which are run first."""
        _ = self.warnings_of_pymc
        sizes = self.tree["posterior"].sizes
        if sizes["draw"] >= FEWEST and sizes["chain"] > 1:
            for name, found in self.judged.items():
                ess, rhat = (found.columns[c] for c in ("ess", "rhat"))
                self._slow.add(name, ess / sizes["chain"], rhat)
        return self._slow


def infinite_draws(run: Run) -> list[str]:
    """A warning of variables whose draws went to infinity, where only a flat prior says anything of them."""
    posterior = run.tree["posterior"]
    names = [str(rv.name) for rv in run.model.free_RVs if rv.name in posterior.data_vars]
    continuous = [name for name in names if posterior[name].dtype.kind == "f"]
    gone = [
        name
        for name in continuous
        if any((np.abs(part) > INFINITE).any() for part in some_elements(posterior[name].data, AT_ONCE))
    ]
    if not gone:
        return []
    return [
        f"Draws of {shown(gone)} are infinite, or next to it: the posterior cannot be normalised, and no "
        "draws are right. A flat prior needs data that bound the variable whatever the other unknowns are, "
        "and a state or component to which no observation belongs has none. Give a proper prior."
    ]


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


def ties(run: Run) -> list[str]:
    """Warnings of ties between variables, which may be the cause of few effective draws."""
    return tied(run.tree, run.model, run.slow, run.remedies) if run.slow.checked else []


def warnings_of_pymc(run: Run) -> list[SamplerWarning]:
    """The warnings of PyMC's own checks, with those about the same matter in several chains in one line."""
    return run.warnings_of_pymc


def slowest_by_name(run: Run) -> list[str]:
    """Which elements PyMC's checks mean, whose messages name none."""
    posterior = run.tree["posterior"]
    names = [str(name) for name in posterior.data_vars if str(name) not in run.discrete]
    slow = sorted((score, name, i) for name in names for score, i in run.slow.worst(name))[:SHOWN]
    if not slow:
        return []
    which = ", ".join(called(name, labels_in_draws(posterior.dataset[name]), i) for _, name, i in slow)
    remedy = run.remedies.slow(list(dict.fromkeys(name for _, name, _ in slow)))
    text = f"Slow, the slowest first: {which}. pmd.summary and az.summary have a row for each element."
    return [text + remedy]


def slow_elements(run: Run) -> list[str]:
    """Warnings of elements of discrete variables that mix slowly, or are in different modes in the chains."""
    sizes = run.tree["posterior"].sizes
    if sizes["draw"] < FEWEST or sizes["chain"] < 2:
        return []
    bad, few = {}, []
    for name, found in run.judged.items():
        moved = (found.movement.moves > 0).any(axis=0)
        rare = moved & too_few_moves(found.movement, found.known) & np.isin(found.verdict, ("slow", "apart"))
        slow = moved & ~rare & np.isin(found.verdict, ("slow", "apart"))
        if slow.any():
            bad[name] = (found.columns["ess"], found.columns["rhat"], slow)
        if rare.any():
            few.append(changed_a_few_times(run, name, rare))
    if not bad:
        return few
    count = sum(int(slow.sum()) for _, _, slow in bad.values())
    of = sum(slow.size for _, _, slow in bad.values())
    least = min(float(np.nanmin(ess[slow])) for ess, _, slow in bad.values()) / sizes["chain"]
    largest = max(float(np.nanmax(rhat[slow])) for _, rhat, slow in bad.values())
    some = f"{count} of the {of}" if count < of else f"All {of}"
    which = f"{some} elements of {shown(bad)}" if of > len(bad) or count < of else shown(bad)
    elements = f"{which} {'mix' if of > 1 else 'mixes'}"
    remedy = f"Draw more{run.sum_out(bad)}"
    if largest > MODES:
        modes = [name for name, (_, rhat, slow) in bad.items() if (rhat[slow] > MODES).any()]
        remedy = f"The chains seem to be in different modes. {of_modes(run, modes, of > 1)}"
    return [
        *few,
        f"{elements} slowly: of a category of the worst there are {least:.0f} effective draws per chain, and "
        f"R-hat is up to {largest:.2f}. {remedy}; pmd.summary has a row for each element.",
    ]


def changed_a_few_times(run: Run, name: str, rare: np.ndarray) -> str:
    """The warning that elements (elements,) of a variable changed too rarely for their shares to be known."""
    found = run.judged[name]
    times = int(found.movement.moves[:, rare].sum(axis=0).max())
    which = names_of(run, name, rare)
    cannot = ""
    if found.known is not None and found.known.probability is not None and found.known.is_alone.any():
        cannot = f", and where they ended {'it cannot' if rare.sum() == 1 else 'they cannot'}"
    often = f"{times} time{'s' * (times > 1)} in all chains{cannot}"
    return (
        f"{which} changed only {often}: whatever R-hat and ESS are, the shares of the values are not those "
        f"of the posterior. {of_modes(run, [name], bool(len(rare) > 1))}."
    )


def names_of(run: Run, name: str, which: np.ndarray) -> str:
    """Some elements (elements,) bool of a variable in a message, as `pmd.summary` names them."""
    draws = run.tree["posterior"].dataset[name]
    axes, shape = labels_in_draws(draws), draws.shape[2:]
    places = [np.unravel_index(i, shape) if shape else () for i in np.flatnonzero(which)]
    if len(places) > SHOWN:
        return f"{len(places)} of the {len(which)} elements of {name!r}"
    return shown(element(name, axes, place) for place in places)


def of_modes(run: Run, names: list[str], several: bool) -> str:
    """What to do about variables whose chains are in different modes.

    Parameters
    ----------
    several : whether they have several sites, which might change together
    """
    lp = np.asarray(run.tree["sample_stats"]["lp"].data)
    means = ", ".join(f"{mean:.1f}" for mean in lp.mean(axis=1))
    alike = equally_probable(lp)
    if alike:
        text = (
            f"All chains have the same mean lp up to its Monte Carlo error ({means}): no mode is better, and "
            "their shares are those of the starts and not of the posterior. "
        )
    else:
        text = (
            f"The mean lp of each chain: {means}. The shares of the modes are those of the starts and not of "
            "the posterior. "
        )
    known = [run.judged[name].known for name in names]
    held = [(name, of) for name, of in zip(names, known, strict=True) if of is not None and of.is_alone.any()]
    if held:
        return text + of_models(repr(held[0][0]), held[0][1])
    if all(of is not None and (of.joint or of.summed) for of in known):
        best = "" if alike else "Pass initvals= of the continuous variables in the mode with the highest. "
        is_drawn = "is" if len(names) == 1 else "are"
        return (
            f"{text}The chains are in different modes of the variables beside {shown(names)}, which "
            f"{is_drawn} drawn exactly given these, so that no other step helps. {best}If modes differ by "
            "the order of states only, constrain it (transform=pm.distributions.transforms.ordered, with an "
            "initval= in increasing order)"
        )
    if not several:
        return f"{text}Draw more{run.sum_out(names)}"
    step = run.remedies.several_sites(names)
    if not step.startswith("pmd.FlowStep"):
        step = (
            f"another step, that moves sites together ({step}), or pmd.FlowStep, whose flow is fitted to "
            "these draws"
        )
    return f"{text}If more draws do not join them, try {step}"


def equally_probable(lp: np.ndarray) -> bool:
    """Whether the means of lp (chains, draws), nats, of all chains differ by chance."""
    share = effective_share(lp)
    lowest, highest = lp[lp.mean(axis=1).argmin()], lp[lp.mean(axis=1).argmax()]
    return as_probable(lowest, highest, share)


def never_moved(run: Run) -> list[str]:
    """Warnings of elements that never moved, in no chain or in some."""
    said: dict[str, list[str]] = {}
    for name, found in run.judged.items():
        for text in still_elements(run, name, found):
            said.setdefault(text, []).append(name)
    return [f"{shown(names)} {text}" for text, names in said.items()]


def still_elements(run: Run, name: str, found: Judged) -> list[str]:
    """What is said of elements of one variable that never moved, without its name."""
    words, moves, known = found.verdict, found.movement.moves, found.known
    draws = found.movement.draws * len(moves)
    there = (words != "fixed") & (words != "observed")
    said = []
    apart = (moves == 0).all(axis=0) & (found.movement.begin != found.movement.begin[0]).any(axis=0)
    if (apart & (words == "apart")).any():  # of labels that are switched `switched_labels` speaks
        count, of = int(apart.sum()), int(there.sum())
        they = f"{count} of its {of} elements" if of > 1 else "it"
        differ = "differs" if count == 1 else "differ"
        said.append(
            f"disagrees between chains: {they} never moved within a chain and {differ} from chain to chain. "
            f"{of_modes(run, [name], of > 1)}."
        )
    in_chains = stuck_chains(found.movement, found.known) & (words == "stuck")
    if in_chains.any():
        never = np.flatnonzero(in_chains.any(axis=1))
        which = ", ".join(map(str, never[:SHOWN])) + (", ..." if len(never) > SHOWN else "")
        count, of = int(in_chains.any(axis=0).sum()), int(there.sum())
        they = f"is stuck: {count} of its {of} elements" if of > 1 and count < of else "is stuck: it"
        said.append(
            f"{they} never moved in {len(never)} of {len(moves)} chains ({which}), and moved too often in "
            "others for that to be chance. Run longer, pass other initvals, or try another step."
        )
    still = found.movement.still
    if found.movement.draws < FEWEST or not there.any():
        return said
    odd = remarkable(known, words, draws)
    if still[there].all() and (
        why := why_still(name, known, np.where(there, words, "fixed"), draws, run.remedies)
    ):
        stands = (
            "has the same value in all draws"
            if known is not None and known.summed
            else "never moved in any chain, and all agree"
        )
        said.append(f"{stands}: {why}.")
    elif (probable := still & (words == "stuck")).any():
        said.append(
            f"has elements that never moved in any chain, {names_of(run, name, probable)}: "
            f"{why_still(name, known, np.where(probable, words, 'fixed'), draws, run.remedies)}."
        )
    elif known is not None and (held := odd & known.is_alone).any():
        said.append(
            f"has elements that never moved, {names_of(run, name, held)}: {held_outside(repr(name), known)}."
        )
    return said


# The checks are made in this order, so that a finding comes before the warnings that it may explain. To add a
# check, write a function of a `Run` and list it here.
CHECKS: tuple[Callable[[Run], Sequence[str | SamplerWarning]], ...] = (
    infinite_draws,
    still_trajectories,
    switched_labels,
    warnings_of_pymc,
    slowest_by_name,
    slow_elements,
    never_moved,
    ties,
)
OF_ONE_DRAW = (warnings_of_pymc,)  # the checks that a single draw of each chain allows


def check_convergence(
    tree: DataTree,
    model: pm.Model,
    leaving: Callable[[], dict[str, Leaving]] | None = None,
    finished: bool = False,
    used: Mapping[str, str] | None = None,
) -> None:
    """Log the warnings that the draws of a run give cause for, one line each.

    Parameters
    ----------
    tree : DataTree, to which the group `conditionals` is added if `leaving` was called
    leaving : () -> {discrete variable: Leaving}, optional
        How probable it is that its sites change, at the last points of the chains. Called only if some
        element stood still or moved rarely, or chains are in different modes.
    finished
        Whether the draws are read from the folder of a run that had ended, which said already at length that
        labels are switched.
    used : {discrete variable: the step that draws it, as `JaxStep.described` has it}
    """
    run = Run(tree, model, leaving, used)
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


def parts(
    tree: DataTree, posterior: xr.Dataset, model: pm.Model, discrete: Sequence[str]
) -> Iterator[DataTree]:
    """What PyMC's checks are to look at: the statistics of a tree, and its posterior without discrete ones.

    Of these `Judge` judges. If there are too many draws, the statistics come first and then trees of a few
    elements each. PyMC also says when chains are too few or too short: where all variables are discrete, a
    constant stands for them.
    """
    stats = tree["sample_stats"].to_dataset()
    names = [str(v.name) for v in model.free_RVs if v.name in posterior.data_vars]
    others = [name for name in names if name not in discrete]
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
