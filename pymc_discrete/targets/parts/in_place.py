"""Exact differences of elements of a few sites, evaluated at the moves of each site."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort

from pymc_discrete.targets.graph.analysis import Depends
from pymc_discrete.targets.graph.rebuild import context_inputs
from pymc_discrete.targets.indexing import picked
from pymc_discrete.targets.parts.evaluate import Moves, Reader
from pymc_discrete.targets.parts.part import Factors, Here, Part
from pymc_discrete.targets.parts.rows import Rows, difference, masked_sum, rows_per_variable, weighted
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.structure.costs import of_scalar_op
from pymc_discrete.targets.structure.degree import Degree
from pymc_discrete.targets.structure.dependence import Dependence
from pymc_discrete.targets.structure.reads import Elements, Entries
from pymc_discrete.targets.structure.terms import Term


class Joined(NamedTuple):
    """Elements of one term, and the sites that each depends on.

    Attributes
    ----------
    term : Term
    elements : (n,) int, flat indices
    sites : (n, J) int, -1 for none
    """

    term: Term
    elements: np.ndarray
    sites: np.ndarray


class Group(NamedTuple):
    """Elements of a term that depend on as many sites, of the same variables.

    Attributes
    ----------
    sites : (E, J) int
    variables : the numbers of the J variables that the columns of sites are of
    pairwise : whether a sum over pairs of these sites says it all
    """

    term: Term
    elements: np.ndarray
    sites: np.ndarray
    variables: tuple[int, ...]
    pairwise: bool


@dataclass
class Pointwise:
    """Elements of one term, evaluated at the moves of one variable's sites.

    Attributes
    ----------
    term : Term
    rows : which elements belong to each site
    n : number of the variable
    """

    term: Term
    rows: Rows
    n: int
    dependence: Dependence
    space: Space

    def moves(self, here: Here, rows=None, candidates=None):
        """(r, moves) nats, what the elements change when a site moves.

        Parameters
        ----------
        rows : (r,) int, sites counted within the variable; None is all
        candidates : (r, moves) int, values to go to; None is the neighbours
        """
        v, own = self.space.variables[self.n], self.rows
        moves = v.moves if candidates is None else candidates.shape[1]
        if rows is not None and own.unique:
            at = own.place(rows, v.size)
            change = self._moves_of_rows(here, at, candidates)
            return change if own.complete else jnp.where((at >= 0)[:, None], change, 0.0)
        if isinstance(rows, np.ndarray):  # several rows to a site: those of the sites wanted, added up
            mine = np.flatnonzero(np.isin(own.local, rows))
            order = np.argsort(rows)
            where = order[np.searchsorted(rows, own.local[mine], sorter=order)]
            change = self._moves_of_rows(here, mine, None if candidates is None else candidates[where])
            return jnp.zeros((len(rows), moves), change.dtype).at[where].add(change)
        if candidates is not None:
            if rows is not None:
                candidates = jnp.zeros((v.size, moves), candidates.dtype).at[rows].set(candidates)
            candidates = candidates[own.local]
        change = self._moves_of_rows(here, None, candidates)
        change = change if own.complete else own.add(jnp.zeros((v.size, moves), change.dtype), change)
        return change if rows is None else change[rows]

    def _moves_of_rows(self, here: Here, rows, candidates):
        """(r, moves) nats, of some rows of the table `self.rows`; None is all."""
        if candidates is None:
            start, v = self.space.blocks[self.n]
            complete = self.rows.complete and rows is None
            sites = None if complete else picked(self.rows.local, rows)
            candidates = self.space.values_of(here.x, start, v, sites)
        index, var = self.rows.index, self.term.var
        now = Reader(self.dependence, here.state, rows).read(var, index)
        moves = Moves([self.rows.site], [candidates])
        then = Reader(self.dependence, here.state, rows, moves).read(var, index)
        change = self.change(then, now, here, rows)
        mask = self.rows.mask
        if rows is not None and not mask.all():
            mask = picked(mask, rows)
        n = len(self.rows.site) if rows is None else rows.shape[0]
        return jnp.broadcast_to(masked_sum(change, mask), (n, candidates.shape[1]))

    def change(self, then, now, here: Here, rows):
        """(r, m, moves) nats, what elements that go from `now` to `then` add to the log density."""
        return difference(weighted(then, self.term, here.state), weighted(now, self.term, here.state))

    @cached_property
    def cost_of_value(self) -> float:
        """Counted operations of evaluating all elements once, at one value of every site.

        Of every tensor on the way, what these elements read of it and what their site changes.
        """
        graph = self.dependence.graph
        var, site = self.term.var, graph.values[self.n]
        moving = Depends([site])
        nodes = [node for node in toposort([var], blockers=[site]) if node.outputs[0] in moving]
        passed = [site, var, *(out for node in nodes for out in node.outputs)]
        read = {v: np.zeros(graph.size(v), bool) for v in passed}
        read[var][self.rows.index] = True
        total = 0.0
        for node in reversed(nodes):
            rule = self.dependence.rule(node)
            assert rule is not None  # no element of a dense tensor is evaluated in place
            read_of_outputs = [entries_of(rule, n, read[o]) for n, o in enumerate(node.outputs) if o in read]
            elements = np.unique(np.concatenate(read_of_outputs))
            each = of_scalar_op(node)
            for i, reads in zip(node.inputs, rule.reads, strict=True):
                if i in moving and reads is not None:
                    read[i][np.maximum(reads[elements], 0)] = True
                    each = max(each, reads.shape[1] ** (1.5 if isinstance(rule, Entries) else 1.0))
            total += each * len(elements)
        return self.rows.index.size * (5.0 + total / float(read[var].sum()))


def entries_of(rule: Elements | Entries, n: int, elements: np.ndarray) -> np.ndarray:
    """Which rows of the rule's tables the elements (n_out,) bool of output n are computed from."""
    return rule.entry[n][elements] if isinstance(rule, Entries) else np.flatnonzero(elements)


class InPlace(Part):
    """Elements of terms that are evaluated at the moves of each of their sites.

    Parameters
    ----------
    joined : the elements
    """

    def __init__(self, joined: list[Joined], dependence: Dependence, space: Space):
        super().__init__(dependence, space)
        self.joined = joined
        self.pointwise = [
            Pointwise(term, rows, n, dependence, space)
            for term, elements, sites in joined
            for n, rows in rows_per_variable(sites, space, elements).items()
        ]

    @cached_property
    def sites(self) -> np.ndarray:
        return np.unique(np.concatenate([np.zeros(0, int), *(p.rows.site for p in self.pointwise)]))

    @cached_property
    def variables(self) -> set[int]:
        return {p.n for p in self.pointwise}

    @property
    def links(self) -> list[np.ndarray]:
        return [sites for *_, sites in self.joined]

    @property
    def leaves(self) -> list[Variable]:
        return leaves_of([term for term, *_ in self.joined], self.graph.values)

    @property
    def padded(self) -> bool:
        """Whether the elements of every site stand in one row."""
        return all(p.rows.unique for p in self.pointwise)

    def differences(self, n: int, here: Here, at: Any, context: Any, rows=None, candidates=None):
        total = sum_of(p.moves(here, rows, candidates) for p in self.pointwise if p.n == n)
        return self.space.by_value(here.x, n, total, rows)

    # ------------------------------------------------------------ factors
    @cached_property
    def groups(self) -> list[Group]:
        """The elements, sorted by the variables of their sites."""
        degree = Degree(self.dependence)
        number = np.repeat(np.arange(len(self.space.variables)), [v.size for v in self.space.variables])
        groups = []
        for term, elements, sites in self.joined:
            pairwise = bool((sites >= 0).sum(axis=1).max() < 3 or degree.of(term.var) <= 2)
            rows: dict[tuple[int, ...], list[int]] = {}
            for e, row in enumerate(sites):
                rows.setdefault(tuple(number[row[row >= 0]].tolist()), []).append(e)
            for key, own in rows.items():
                if key:
                    packed = np.stack([sites[e][sites[e] >= 0] for e in own])
                    groups.append(Group(term, elements[own], packed, key, pairwise))
        return groups

    def factors(self, context: Any, here_at: Callable[[Any], Here]) -> Factors:
        """Elements of three and more sites that are sums over pairs of them come as tables of pairs."""
        state = here_at(jnp.asarray(self.space.lower)).state
        unary: dict[int, Any] = {}
        tables: list[tuple[np.ndarray, Any]] = []
        for group in self.groups:
            if len(group.variables) == 2 or not group.pairwise:
                tables.append((group.sites, self._table(group, state)))
                continue
            alone, together = self._in_pairs(group, state)
            for n, sites, table in zip(group.variables, group.sites.T, alone, strict=True):
                start, v = self.space.blocks[n]
                unary[n] = unary.get(n, jnp.zeros((v.size, v.K))).at[sites - start].add(table)
            tables += [(group.sites[:, [j, k]], table) for (j, k), table in together.items()]
        return Factors(unary, tables, {})

    def _at(self, group: Group, state: dict[Variable, Any], places: np.ndarray):
        """(E, C) nats, the elements with their sites at `places` (J, C), counted from the lowest values."""
        candidates = [
            jnp.asarray(self.space.lower[sites, None] + own)
            for sites, own in zip(group.sites.T, places, strict=True)
        ]
        reader = Reader(self.dependence, state, moves=Moves(list(group.sites.T), candidates))
        values = weighted(reader.read(group.term.var, group.elements[:, None]), group.term, state)[:, 0]
        return jnp.broadcast_to(values, (len(group.elements), places.shape[1]))

    def _table(self, group: Group, state: dict[Variable, Any]):
        """(E, K1, ..., KJ) nats, the elements at all values of their sites."""
        widths = [self.space.variables[n].K for n in group.variables]
        places = np.indices(widths).reshape(len(widths), -1)
        return self._at(group, state, places).reshape(-1, *widths)

    def _in_pairs(
        self, group: Group, state: dict[Variable, Any]
    ) -> tuple[list[Any], dict[tuple[int, int], Any]]:
        """[(E, K)] of each site with the others at their lowest values, and {(j, k): (E, Kj, Kk)} what two of
        them add to that.
        """
        widths = [self.space.variables[n].K for n in group.variables]
        alone = []
        for j, width in enumerate(widths):
            places = np.zeros((len(widths), width), int)
            places[j] = np.arange(width)
            alone.append(self._at(group, state, places))
        together, lowest = {}, alone[0][:, :1]
        for j, k in itertools.combinations(range(len(widths)), 2):
            places = np.zeros((len(widths), widths[j] * widths[k]), int)
            places[[j, k]] = np.indices((widths[j], widths[k])).reshape(2, -1)
            table = self._at(group, state, places).reshape(-1, widths[j], widths[k])
            together[j, k] = table - alone[j][:, :, None] - alone[k][:, None] + lowest[:, :, None]
        return alone, together

    # ------------------------------------------------------------ cost
    def cost(self, share: float, values: list[int]) -> float:
        return share * sum((values[p.n] + 1) * p.cost_of_value for p in self.pointwise)

    def cost_of_value(self, n: int) -> float:
        return sum(p.cost_of_value for p in self.pointwise if p.n == n)


def sum_of(arrays):
    """The sum of one or more arrays, added in their order."""
    first, *others = arrays
    return sum(others, first)


def leaves_of(terms: list[Term], values: list[Variable]) -> list[Variable]:
    """What sparse terms read that does not depend on the block's values."""
    weights = [t.weight for t in terms if t.weight is not None and not isinstance(t.weight, Constant)]
    return [*weights, *context_inputs([t.var for t in terms], values)] if terms else []
