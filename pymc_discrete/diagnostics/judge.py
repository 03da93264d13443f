"""The facts of each discrete variable of a result: statistics, knowledge besides draws, labels, verdicts.

The table, the log and the plots all read these facts, so that they cannot contradict one another.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.draws import (
    DISCRETE_ATTRIBUTE,
    batches,
    checked_draws,
    counted,
    lp_of,
    posterior_of,
)
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.known.stored import known_of
from pymc_discrete.diagnostics.labels.agreement import in_one_order, orders_of, relabelled
from pymc_discrete.diagnostics.labels.clusters import (
    first_sites,
    number_name,
    recorded_partitions,
    without_names,
)
from pymc_discrete.diagnostics.registration import import_files
from pymc_discrete.diagnostics.statistics.batch import SUMMARY_COLUMNS, BatchOfElements
from pymc_discrete.diagnostics.statistics.movement import Movement, moves_of, stretches_of
from pymc_discrete.diagnostics.statistics.rhat import categorical_rhat
from pymc_discrete.diagnostics.thresholds import SHARE_THAT_MIXES
from pymc_discrete.diagnostics.verdicts import (
    Decided,
    decide,
    effective_per_chain,
    few_stays,
    in_modes,
    seldom,
    slow,
    too_few_moves,
)
from pymc_discrete.runtime.names import grouped_by_pattern

import_files("pymc_discrete.diagnostics.columns")

# A variable with at most FEW values, all of them from -8 to 8, has a column of `pmd.summary` for each
# value. Any other variable is taken for a count, which has no such columns.
FEW = 8


class Measured(NamedTuple):
    """Statistics of the draws of one variable.

    Attributes
    ----------
    columns : {column of `summary`: (elements,)}
    movement : how the elements moved
    """

    columns: dict[str, np.ndarray]
    movement: Movement

    def judged_also_by(self, other: "Measured", movement: Movement) -> "Measured":
        """The statistics, with the smaller effective draws and the larger R-hat of this and another variable.

        Parameters
        ----------
        other : the statistics of the other variable, whose elements belong to the same sites
        movement : Movement in which an element moves whenever it moves in one of the two variables
        """
        worse = {"ess": np.fmin, "rhat": np.fmax}
        columns = {c: of(self.columns[c], other.columns[c]) for c, of in worse.items()}
        moved = movement.moves.mean(axis=0) / max(movement.draws - 1, 1)
        return Measured({**self.columns, **columns, "moved": moved}, movement)

    @property
    def unclear(self) -> bool:
        """Whether knowledge besides the draws can change the verdict on some element."""
        few = seldom(self.movement) | few_stays(self.movement)
        return bool((few | in_modes(self.columns["rhat"])).any())


class Judged(NamedTuple):
    """All facts of one variable.

    Attributes
    ----------
    columns : {column of `summary`: (elements,)}, the verdict among them
    movement : how the elements moved
    decided : the verdicts on the elements, and what they follow from
    known : what the result has besides its draws, such as conditional probabilities
    orders : (chains, K) int, the label in chain 0 that corresponds to each label of a chain, if chains differ
        by the names of labels only
    switch : whether labels are permuted within chains
    """

    columns: dict[str, np.ndarray]
    movement: Movement
    decided: Decided
    known: Leaving | None = None
    orders: np.ndarray | None = None
    switch: bool = False


class Judge:
    """Finds the facts of discrete variables.

    Parameters
    ----------
    idata : DataTree with a group posterior, or Dataset
    names : the names of all discrete variables that are drawn; by default the ones that `posterior_of` finds
    columns : {variable: the values whose probabilities have a column, or None for a count}; by default as in
        a table of this variable alone
    partitions : the variables that are partitions, which are judged by the sizes of their clusters, and by
        which sites are together; by default the ones that the result records
    """

    def __init__(
        self,
        idata: Any,
        names: list[str] | None = None,
        columns: Mapping[str, np.ndarray | None] | None = None,
        partitions: list[str] | None = None,
    ):
        tree = idata if isinstance(idata, xr.DataTree) else None
        drawn = idata if tree is None else tree["posterior"].to_dataset()
        self.partitions = recorded_partitions(drawn) if partitions is None else partitions
        self.all, self._labels = without_names(drawn, self.partitions), drawn[self.partitions]
        self.groups = {} if tree is None else {str(n): tree[n].to_dataset() for n in tree.children}
        self.names, self._columns = names, columns or {}
        lp = None if tree is None else lp_of(tree)
        self.lp = np.zeros((self.all.sizes["chain"], 1)) if lp is None else lp
        self._measured: dict[str, Measured] = {}
        self._orders: dict[tuple[str, ...], np.ndarray | None] = {}

    def draws(self, name: str) -> xr.DataArray:
        """(chain, draw, ...), the draws of a variable."""
        return self.all[name].transpose("chain", "draw", ...)

    def measured(self, name: str) -> Measured:
        """The statistics of a variable's draws alone, without anything else that the result has."""
        if name not in self._measured:
            draws = self.draws(name)
            there = name in self._columns
            values = (self._columns if there else values_with_columns(draws.to_dataset(name=name)))[name]
            found = measured(checked_draws(draws.data), values)
            if name in self.partitions and draws.size:
                together = first_sites(self._labels[name].transpose("chain", "draw", ...).data)
                # One integer for each site encodes the size of its cluster and the first site of the cluster,
                # so that a change of either counts as a move.
                moving = movement_of(draws.data * draws.sizes[draws.dims[-1]] + together)
                found = found.judged_also_by(measured(together, None), moving)
            self._measured[name] = found
        return self._measured[name]

    def of(self, name: str, conditionals: xr.Dataset | None = None) -> Judged:
        """The facts of a variable.

        Parameters
        ----------
        conditionals : replaces the group `conditionals` of the result
        """
        columns, movement = self.measured(name)
        if not columns:  # the variable has no elements
            return Judged(columns, movement, decide(movement, np.zeros(0), np.zeros(0)))
        groups = self.groups if conditionals is None else {**self.groups, "conditionals": conditionals}
        # a partition is judged by the sizes of its clusters, of which the probabilities of labels say nothing
        known = None if name in self.partitions else known_of(groups, name, self.all.sizes["chain"])
        # If the share of a value depends on a few moves, its standard error means nothing and becomes nan.
        few = too_few_moves(movement, known)
        unsure = {c: np.where(few, np.nan, a) for c, a in columns.items() if c.startswith("mcse")}
        ess = np.where(few, np.fmin(columns["ess"], movement.stretches.sum(axis=0)), columns["ess"])
        facts = movement, columns["rhat"], ess, known
        observed, orders, switch = self.observed(name), None, False
        found = decide(*facts, observed=observed)
        if np.isin(found.verdict, ("apart", "stuck", "slow")).any():
            orders, switch = self.labels(name)
            agree = None
            if orders is not None:
                same = relabelled(orders, movement.begin)
                agree = (same == same[0]).all(axis=0)
            found = decide(*facts, agree, switch, observed)
        columns = {**columns, **unsure, "ess": ess, "verdict": found.verdict}
        return Judged(columns, movement, found, known, orders, switch)

    def labels(self, name: str) -> tuple[np.ndarray | None, bool]:
        """Permutations that make the labels of all chains agree, and whether labels switch within chains.

        The sizes and the number of clusters, by which a partition is judged, are no labels: the answer for
        them is (None, False).
        """
        if name in self.partitions or name in map(number_name, self.partitions):
            return None, False
        orders, data = self.orders(name), self.draws(name).data
        return orders, orders is None and data.ndim > 2 and labels_switch(data, self.lp)

    def orders(self, name: str) -> np.ndarray | None:
        """(chains, K) int, permutations that make the labels of all chains agree; None if none do.

        Scalars with similar names (`z0`, `z1`, ...) share their labels.
        """
        group: tuple[str, ...] = (name,)
        if self.draws(name).ndim == 2:
            scalars = [n for n in self.discrete if self.all[n].ndim == 2]
            group = next((tuple(names) for names in grouped_by_pattern(scalars) if name in names), group)
        if group not in self._orders:
            self._orders[group] = orders_of([self.draws(n).data for n in group], self.lp)
        return self._orders[group]

    @property
    def discrete(self) -> list[str]:
        """The discrete variables that are drawn."""
        if self.names is not None:
            return self.names
        recorded = self.all.attrs.get(DISCRETE_ATTRIBUTE)
        return json.loads(recorded) if recorded else [str(n) for n in posterior_of(self.all).data_vars]

    def observed(self, name: str) -> np.ndarray | None:
        """(elements,) bool, the elements that are data; None unless only a part of the variable was observed.

        PyMC draws the missing elements as a variable of its own, named `NAME_unobserved`.
        """
        missing = f"{name}_unobserved"
        if missing not in self.all:
            return None
        data = self.groups.get("observed_data", xr.Dataset()).get(f"{name}_observed")
        whole, drawn = self.measured(name).movement, self.measured(missing).movement
        return in_between(whole, drawn, None if data is None else data.data.ravel())


def measured(draws: np.ndarray, values: np.ndarray | None) -> Measured:
    """The statistics of draws (chains, draws, ...), with a column for each value in `values`, if any."""
    columns: dict[str, list[np.ndarray]] = {}
    for x in batches(draws):
        batch = BatchOfElements(x, values)
        for column in SUMMARY_COLUMNS:
            for name, of_sites in column.values(batch).items():
                columns.setdefault(name, []).append(of_sites)
    of_all = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Measured(of_all, movement_of(draws))


def movement_of(draws: np.ndarray) -> Movement:
    """The first values of the elements of draws (chains, draws, ...), and how the elements move."""
    nothing = np.zeros((0, len(draws)), int)
    begin, moves, stretches = [nothing], [nothing], [nothing]
    for x in batches(draws):
        begin.append(x[..., 0])
        moves.append(moves_of(x))
        stretches.append(stretches_of(x))
    of_all = [np.concatenate(a).T for a in (begin, moves, stretches)]
    return Movement(of_all[0], of_all[1], of_all[2], draws.shape[1])


def in_between(whole: Movement, drawn: Movement, data: np.ndarray | None) -> np.ndarray | None:
    """(elements,) bool, the elements of a variable that are data: the ones that are not among the drawn
    elements.

    Parameters
    ----------
    whole : Movement of all elements of the variable
    drawn : Movement of the elements that are drawn
    data : the values of the elements that are not drawn, in their order, if they are known

    Returns
    -------
    None if the drawn elements cannot be found, in their order, among all elements.
    """
    of_whole, of_drawn = (np.concatenate([m.begin, m.moves]).T for m in (whole, drawn))
    still = whole.still
    # The drawn elements are matched with all elements of the variable in order. reached[i] has a key u for
    # each number of drawn elements that may be among the first i elements; its value says whether element
    # i - 1 can then be a drawn one.
    reached: list[dict[int, bool]] = [{0: False}]
    for i, element_of_whole in enumerate(of_whole):
        after: dict[int, bool] = {}
        for u in reached[-1]:
            if u < len(of_drawn) and (element_of_whole == of_drawn[u]).all():
                after[u + 1] = True
            if still[i] and (data is None or (i - u < len(data) and whole.begin[0, i] == data[i - u])):
                after.setdefault(u, False)
        reached.append(after)
    u = len(of_drawn)
    if u not in reached[-1]:
        return None
    observed = np.ones(len(of_whole), bool)
    for i in range(len(of_whole), 0, -1):
        # An element that fits both as a drawn element and as data counts as drawn, if the remaining drawn
        # elements can be matched with the elements before it.
        if reached[i][u] and u - 1 in reached[i - 1]:
            observed[i - 1], u = False, u - 1
    return observed


def labels_switch(data: np.ndarray, lp: np.ndarray) -> bool:
    """Whether the draws (chains, draws, ...) mix once the labels of each draw are permuted to agree.

    The argument `lp` (chains, draws) has the log densities in nats.
    """
    permuted = in_one_order(data, lp)
    if permuted is None:
        return False
    rhat = categorical_rhat(permuted)
    moving = ~np.isnan(rhat)  # R-hat is nan for an element that has the same value in all permuted draws
    mixes = ~slow(effective_per_chain(np.inf, rhat[moving], len(data)))
    return bool(mixes.sum() >= SHARE_THAT_MIXES * moving.sum())


def values_with_columns(posterior: xr.Dataset) -> dict[str, np.ndarray | None]:
    """{variable: the values whose probabilities have a column}; None for a count.

    A Deterministic with other values than the drawn variables, such as a sum, has no such columns either,
    since columns of its values would be nan in all other rows of the table.
    """
    found = {
        str(name): values_in_draws(checked_draws(draws.data)) for name, draws in posterior.data_vars.items()
    }
    few = {name: v for name, v in found.items() if len(v) <= FEW and (abs(v) <= FEW).all()}
    drawn = (
        set(json.loads(posterior.attrs[DISCRETE_ATTRIBUTE]))
        if DISCRETE_ATTRIBUTE in posterior.attrs
        else set(found)
    )
    of_drawn = [v for name, v in few.items() if name in drawn]
    if of_drawn:
        usual = np.unique(np.concatenate([[0, 1], *of_drawn]))
        few = {name: v for name, v in few.items() if name in drawn or np.isin(v, usual).all()}
    return {name: few.get(name) for name in found}


def values_in_draws(data: np.ndarray) -> np.ndarray:
    """The values in draws (chains, draws, ...), ascending; if they are more than `FEW`, some may be
    missing."""
    values = np.zeros(0, int)
    for x in batches(data):
        values = np.union1d(values, counted(x).values)
        if len(values) > FEW:
            break
    return values
