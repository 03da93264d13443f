"""The facts of a run, from which findings are made: each fact is computed once, and changes no other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import from_dict
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    run_convergence_checks,
    warn_divergences,
    warn_treedepth,
)
from xarray import DataTree

from pymc_discrete.diagnostics.draws import some_elements
from pymc_discrete.diagnostics.judge import Judge, Judged
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.known.stored import conditionals
from pymc_discrete.diagnostics.labels.agreement import orders_of_draws
from pymc_discrete.diagnostics.labels.components import components_in_order
from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.diagnostics.thresholds import ENOUGH_DRAWS, FEWEST_DRAWS
from pymc_discrete.diagnostics.verdicts import effective_per_chain
from pymc_discrete.model.of_labels import selected_by
from pymc_discrete.model.support import partitions_of

# how many numbers are read into memory at once, since the draws of a checkpoint are on the disk
NUMBERS_IN_MEMORY = 2**24


class Switched(NamedTuple):
    """Variables whose labels are switched.

    Attributes
    ----------
    between : {variables that share labels: (chains, K) permutations}, of labels that chains order differently
    within : variables whose labels change their order within chains
    """

    between: dict[tuple[str, ...], np.ndarray]
    within: list[str]

    @property
    def names(self) -> list[str]:
        """The names of all variables whose labels are switched, between chains or within them."""
        return [*(name for group in self.between for name in group), *self.within]


class OfPyMC(NamedTuple):
    """The results of PyMC's own checks.

    Attributes
    ----------
    warnings : PyMC's warnings about divergences, tree depth, R-hat and few effective draws
    per_chain : {continuous variable: (elements,)}, effective draws per chain where PyMC warns of R-hat or few
        effective draws, see `verdicts.effective_per_chain`; infinite elsewhere
    """

    warnings: list[SamplerWarning]
    per_chain: dict[str, np.ndarray]


class Facts:
    """Facts about a run, from its draws and its model; each is computed when it is first asked for.

    Parameters
    ----------
    tree : DataTree with the groups posterior and sample_stats
    model : pm.Model
    leaving : () -> {discrete variable: Leaving}, how probable it is that sites change where the chains ended
    used : {discrete variable: a line about the step that draws it or the block that sums it out}
    """

    def __init__(
        self,
        tree: DataTree,
        model: pm.Model,
        leaving: Callable[[], dict[str, Leaving]] | None = None,
        used: Mapping[str, str] | None = None,
    ):
        self.tree, self.model, self._leaving = tree, model, leaving
        self.posterior = tree["posterior"].to_dataset()
        self.chains, self.draws = self.posterior.sizes["chain"], self.posterior.sizes["draw"]
        self.remedies = Remedies(model, used or {})

    @cached_property
    def free(self) -> list[str]:
        """The variables that are drawn."""
        return [str(rv.name) for rv in self.model.free_RVs if rv.name in self.posterior.data_vars]

    @cached_property
    def discrete(self) -> list[str]:
        """The discrete variables that are drawn.

        `Judge` judges these variables, since PyMC's own checks would treat the codes of categories as
        measurements.
        """
        kinds = {str(rv.name): rv.dtype for rv in self.model.free_RVs}
        return [name for name in self.free if kinds[name].startswith(("int", "uint", "bool"))]

    @cached_property
    def lp(self) -> np.ndarray:
        """(chains, draws) float, log densities, nats."""
        return np.asarray(self.tree["sample_stats"]["lp"].data)

    @property
    def compared(self) -> bool:
        """Whether there are enough draws and chains to find that something mixes slowly."""
        return self.chains > 1 and self.draws >= ENOUGH_DRAWS

    # ------------------------------------------------------------ discrete variables
    @cached_property
    def judge(self) -> Judge:
        """The object that finds the facts of single variables."""
        return Judge(self.tree, self._judged_names, partitions=self.partitions)

    @cached_property
    def partitions(self) -> list[str]:
        """The partitions, variables whose labels are names that mean nothing; none if draws are too few."""
        enough = self.draws >= FEWEST_DRAWS
        return [name for name in partitions_of(self.model) if enough and name in self.discrete]

    @cached_property
    def of_clusters(self) -> list[str]:
        """Continuous variables with an element for each label of a partition."""
        return [name for name in selected_by(self.model, self.partitions) if name in self.free]

    @property
    def _judged_names(self) -> list[str]:
        enough = self.draws >= FEWEST_DRAWS
        return [name for name in self.discrete if enough and self.posterior[name].size]

    @cached_property
    def conditionals(self) -> xr.Dataset | None:
        """The group `conditionals` of the result, the probabilities that elements change, if draws leave some
        element unclear; otherwise None.
        """
        names = [name for name in self._judged_names if name not in self.partitions]
        unclear = any(self.judge.measured(name).unclear for name in names)
        if self._leaving is None or not unclear:
            return None
        known = {name: of for name, of in self._leaving().items() if name in self.posterior.data_vars}
        return conditionals(self.posterior, known) if known else None

    @cached_property
    def judged(self) -> dict[str, Judged]:
        """{discrete variable: its facts}, the same facts that `pmd.summary` and the plots read."""
        return {name: self.judge.of(name, self.conditionals) for name in self._judged_names}

    # ------------------------------------------------------------ labels
    @cached_property
    def switched(self) -> Switched:
        """The variables whose labels are switched, between chains or within them."""
        found: dict[int, tuple[list[str], np.ndarray]] = {}
        for name, of in self.judged.items():
            if of.orders is not None:  # variables that share labels have the same array `orders`
                found.setdefault(id(of.orders), ([], of.orders))[0].append(name)
        between = {tuple(names): orders for names, orders in found.values()}
        return Switched(between, [name for name, of in self.judged.items() if of.switch])

    @cached_property
    def in_one_order(self) -> dict[str, np.ndarray]:
        """{continuous variable: its draws with labels in one order}, for parameters of labels that are
        switched.
        """
        if self.draws < ENOUGH_DRAWS:
            return {}
        to_new = [orders[:, None] for orders in self.switched.between.values()]
        to_new += [orders_of_draws(self.posterior[name].data) for name in self.switched.within]
        found = {}
        for name in self.free if to_new else ():
            draws = self.posterior[name].data
            if name not in self.discrete and 0 < draws.size <= NUMBERS_IN_MEMORY:
                permuted = components_in_order(draws, to_new)
                if permuted is not draws:
                    found[name] = permuted
        return found

    # ------------------------------------------------------------ mixing
    @cached_property
    def of_pymc(self) -> OfPyMC:
        """The results of PyMC's own checks for draws with the labels in one order."""
        posterior = self.posterior.assign(
            {name: (self.posterior[name].dims, x) for name, x in self.in_one_order.items()}
        )
        by_message: dict[str, SamplerWarning] = {}
        per_chain: dict[str, list[np.ndarray]] = {}
        # R-hat of an element that never moves divides 0 by 0, of which NumPy would warn
        with np.errstate(divide="ignore", invalid="ignore"):
            left_out = [*self.discrete, *self.of_clusters]
            for part in parts(posterior, self.tree["sample_stats"].to_dataset(), self.free, left_out):
                variables = part["posterior"].data_vars
                if variables:
                    warnings = run_convergence_checks(part, self.model)
                else:
                    warnings = [*warn_divergences(part), *warn_treedepth(part)]
                by_message |= {w.message: w for w in warnings}
                for name in map(str, variables):
                    of_part = warned_of(warnings, name, variables[name].shape[2:], self.chains)
                    per_chain.setdefault(name, []).append(of_part)
        return OfPyMC(
            list(by_message.values()), {name: np.concatenate(each) for name, each in per_chain.items()}
        )

    @cached_property
    def per_chain(self) -> dict[str, np.ndarray]:
        """{variable: (elements,)}, effective draws per chain, see `verdicts.effective_per_chain`.

        For continuous variables they come from PyMC's checks, and for discrete variables they are effective
        draws of categories.
        """
        of_categories = {
            name: effective_per_chain(found.columns["ess"], found.columns["rhat"], self.chains)
            for name, found in self.judged.items()
        }
        return self.of_pymc.per_chain | of_categories


def warned_of(
    warnings: Sequence[SamplerWarning], name: str, shape: tuple[int, ...], chains: int
) -> np.ndarray:
    """(elements,) float, effective draws per chain from PyMC's warnings about a variable; infinite without a
    warning.
    """
    found = np.full(int(np.prod(shape, dtype=int)), np.inf)
    for w in warnings:
        if w.kind is WarningType.CONVERGENCE and w.extra is not None and name in w.extra:
            values = np.asarray(w.extra[name], float).reshape(-1)
            ess, rhat = (np.nan, values) if w.message.startswith("The rhat") else (values, np.nan)
            found = np.fmin(found, effective_per_chain(ess, rhat, chains))
    return found


def parts(
    posterior: xr.Dataset, stats: xr.Dataset, free: Sequence[str], left_out: Sequence[str]
) -> Iterator[DataTree]:
    """The results that PyMC's checks are applied to: the statistics of a run, and parts of its posterior.

    Left out are discrete variables, which `Judge` judges, and parameters that belong to labels without a
    meaning. If there are too many draws, the statistics come first and then trees of a few elements each. If
    all variables are left out, a constant stands in their place, so that PyMC can still warn that chains are
    too few or too short.
    """
    others = [name for name in free if name not in left_out]
    if free and not others:
        constant = np.zeros((posterior.sizes["chain"], posterior.sizes["draw"]))
        yield DataTree.from_dict(
            {
                "posterior": xr.Dataset({free[0]: (("chain", "draw"), constant)}, posterior.coords),
                "sample_stats": stats,
            }
        )
        return
    if sum(posterior[name].size for name in others) <= NUMBERS_IN_MEMORY:
        yield DataTree.from_dict({"posterior": posterior[others], "sample_stats": stats})
        return
    yield DataTree.from_dict({"posterior": xr.Dataset(), "sample_stats": stats})
    for name in others:
        for batch in some_elements(posterior[name].data, NUMBERS_IN_MEMORY):
            yield from_dict({"posterior": {name: batch}})
