"""Exact differences of elements of a few sites, evaluated at the moves of each site."""

import itertools
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from pymc_discrete.differences.parts.elements import (
    TermElements,
    after_joint_moves,
    counted_once,
    difference,
    elements_per_variable,
    leaves_of,
    masked_sum,
    sum_in_order,
    weighted_values,
)
from pymc_discrete.differences.parts.evaluate import JointMoves, Moves, Reader
from pymc_discrete.differences.parts.part import BlockState, Factors, Part
from pymc_discrete.space.indexing import picked
from pymc_discrete.space.space import Space
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.costs import of_scalar_op
from pymc_discrete.structure.degree import Degree
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.reads import Elements, Entries
from pymc_discrete.structure.terms import Term


class Joined(NamedTuple):
    """Elements of one term, and the sites that each element depends on.

    Attributes
    ----------
    term : Term
    elements : (n,) int
        Flat indices of the elements.
    sites : (n, J) int
        The sites of each element, padded with -1.
    """

    term: Term
    elements: np.ndarray
    sites: np.ndarray


class Group(NamedTuple):
    """Elements of a term that depend on J sites each.

    For each j, the j-th sites of all elements belong to one variable.

    Attributes
    ----------
    term : Term
    elements : (E,) int
        Flat indices of the elements.
    sites : (E, J) int
        The sites of each element.
    variables : tuple of J int
        The number of the variable that the sites of each column belong to.
    pairwise : bool
        Whether each element is a sum of functions of at most two of its sites.
    """

    term: Term
    elements: np.ndarray
    sites: np.ndarray
    variables: tuple[int, ...]
    pairwise: bool


class Pointwise(TermElements):
    """Elements of one term, evaluated at the moves of the sites of one variable."""

    def moves(self, state: BlockState, rows=None, candidates=None):
        """(r, moves) nats, for each move of a site the change of the sum of the elements that depend on it.

        Parameters
        ----------
        state : BlockState
        rows : (r,) int
            Sites, counted within the variable; None means all.
        candidates : (r, moves) int
            The values to move to; None means the neighbours.
        """
        v, elements = self.space.variables[self.n], self.elements
        moves = v.moves if candidates is None else candidates.shape[1]
        if rows is not None and elements.unique:
            positions = elements.positions(rows, v.size)
            change = self._moves_at(state, positions, candidates)
            return change if elements.complete else jnp.where((positions >= 0)[:, None], change, 0.0)
        if isinstance(rows, np.ndarray):
            # `self.elements` may have several entries for one site. All entries of the sites in `rows` are
            # evaluated, and the results of the entries of a site are added up.
            positions = np.flatnonzero(np.isin(elements.local, rows))
            order = np.argsort(rows)
            where = order[np.searchsorted(rows, elements.local[positions], sorter=order)]
            change = self._moves_at(state, positions, None if candidates is None else candidates[where])
            return jnp.zeros((len(rows), moves), change.dtype).at[where].add(change)
        if candidates is not None:
            if rows is not None:
                candidates = jnp.zeros((v.size, moves), candidates.dtype).at[rows].set(candidates)
            candidates = candidates[elements.local]
        change = self._moves_at(state, None, candidates)
        change = (
            change if elements.complete else elements.add(jnp.zeros((v.size, moves), change.dtype), change)
        )
        return change if rows is None else change[rows]

    def _moves_at(self, state: BlockState, positions, candidates):
        """(r, moves) nats, for some rows of the table `self.elements` the change of the sum of the row's
        elements, at each move of the row's site; None means all rows.
        """
        if candidates is None:
            start, v = self.space.blocks[self.n]
            complete = self.elements.complete and positions is None
            sites = None if complete else picked(self.elements.local, positions)
            candidates = self.space.values_of(state.x, start, v, sites)
        index, var = self.elements.index, self.term.var
        now = Reader(self.dependence, state.arrays, positions).read(var, index)
        moves = Moves([self.elements.site], [candidates])
        then = Reader(self.dependence, state.arrays, positions, moves).read(var, index)
        change = self.change(then, now, state, positions)
        mask = self.elements.mask
        if positions is not None and not mask.all():
            mask = picked(mask, positions)
        n = len(self.elements.site) if positions is None else positions.shape[0]
        return jnp.broadcast_to(masked_sum(change, mask), (n, candidates.shape[1]))

    def change(self, then, now, state: BlockState, positions):
        """(r, m, moves) nats, the change of the log density when elements go from `now` to `then`."""
        return difference(
            weighted_values(then, self.term, state.arrays), weighted_values(now, self.term, state.arrays)
        )

    def joint_moves(self, state: BlockState, moves: JointMoves):
        """(r, C) nats, the change of the sum of the elements of all sites that move together.

        An element that depends on several of the sites is counted once.
        """
        graph = (self.term.var, self.elements, self.n)
        now = Reader(self.dependence, state.arrays, moves.each).read(self.term.var, self.elements.index)
        then = after_joint_moves(*graph, state, self.dependence, self.space, moves)
        change = self.change(then, now, state, moves.each)
        total = masked_sum(change, counted_once(*graph, self.dependence, self.space, moves))
        return moves.summed(jnp.broadcast_to(total, (moves.sites.size, moves.values.shape[1])))

    @cached_property
    def cost_of_value(self) -> float:
        """Counted operations of evaluating all elements once, at one value of every site.

        Of a tensor between the site and the term, only those elements are counted that depend on the site and
        are read for the term's elements.
        """
        graph = self.dependence.graph
        var, site = self.term.var, graph.values[self.n]
        moving = Depends([site])
        nodes = [node for node in toposort([var], blockers=[site]) if node.outputs[0] in moving]
        passed = [site, var, *(out for node in nodes for out in node.outputs)]
        read = {v: np.zeros(graph.size(v), bool) for v in passed}
        read[var][self.elements.index] = True
        total = 0.0
        for node in reversed(nodes):
            rule = self.dependence.rule(node)
            assert rule is not None  # a term with an Op that has no rule is dense, and not in this part
            read_of_outputs = [entries_of(rule, n, read[o]) for n, o in enumerate(node.outputs) if o in read]
            elements = np.unique(np.concatenate(read_of_outputs))
            each = of_scalar_op(node)
            for i, reads in zip(node.inputs, rule.reads, strict=True):
                if i in moving and reads is not None:
                    read[i][np.maximum(reads[elements], 0)] = True
                    each = max(each, reads.shape[1] ** (1.5 if isinstance(rule, Entries) else 1.0))
            total += each * len(elements)
        return self.elements.index.size * (5.0 + total / float(read[var].sum()))


def entries_of(rule: Elements | Entries, n: int, elements: np.ndarray) -> np.ndarray:
    """(m,) int, which entries an Op's rule computes to get some elements of the Op's output n.

    An entry is a group of elements that the Op computes together, or else a single element.

    Parameters
    ----------
    elements : (n_out,) bool, True for the elements
    """
    return rule.entry[n][elements] if isinstance(rule, Entries) else np.flatnonzero(elements)


class InPlace(Part):
    """Elements of terms, evaluated at the moves of each of their sites.

    Parameters
    ----------
    joined : list of Joined
        The elements.
    """

    def __init__(self, joined: list[Joined], dependence: Dependence, space: Space):
        super().__init__(dependence, space)
        self.joined = joined
        self.pointwise = [
            Pointwise(term, of_sites, n, dependence, space)
            for term, elements, sites in joined
            for n, of_sites in elements_per_variable(sites, space, elements).items()
        ]

    @cached_property
    def sites(self) -> np.ndarray:
        return np.unique(np.concatenate([np.zeros(0, int), *(p.elements.site for p in self.pointwise)]))

    @property
    def links(self) -> list[np.ndarray]:
        """A list of arrays (n, J) int: row i has the sites that element i depends on, padded with -1."""
        return [sites for *_, sites in self.joined]

    @property
    def leaves(self) -> list[Variable]:
        return leaves_of([term for term, *_ in self.joined], self.graph.values)

    @property
    def padded(self) -> bool:
        """Whether each site has only one entry in the tables `SiteElements`, padded to a common length.

        If so, the differences of a few sites can be computed without the differences of the others.
        """
        return all(p.elements.unique for p in self.pointwise)

    def differences(self, n: int, state: BlockState, at: Any, context: Any, rows=None, candidates=None):
        total = sum_in_order(p.moves(state, rows, candidates) for p in self.pointwise if p.n == n)
        return self.space.by_value(state.x, n, total, rows, candidates)

    def joint_differences(self, n: int, state: BlockState, at: Any, context: Any, moves: JointMoves):
        return sum_in_order(p.joint_moves(state, moves) for p in self.pointwise if p.n == n)

    # ------------------------------------------------------------ factors
    @cached_property
    def groups(self) -> list[Group]:
        """The elements, grouped by which variables their sites belong to."""
        degree = Degree(self.dependence)
        number = np.repeat(np.arange(len(self.space.variables)), [v.size for v in self.space.variables])
        groups = []
        for term, elements, sites in self.joined:
            pairwise = bool((sites >= 0).sum(axis=1).max() < 3 or degree.of(term.var) <= 2)
            by_variables: dict[tuple[int, ...], list[int]] = {}
            for e, joined_sites in enumerate(sites):
                variables = tuple(number[joined_sites[joined_sites >= 0]].tolist())
                by_variables.setdefault(variables, []).append(e)
            for variables, members in by_variables.items():
                if variables:
                    packed = np.stack([sites[e][sites[e] >= 0] for e in members])
                    groups.append(Group(term, elements[members], packed, variables, pairwise))
        return groups

    def factors(self, context: Any, state_at: Callable[[Any], BlockState]) -> Factors:
        """The elements as factors: a table of each element over the values of its sites, or a table for each
        pair of its sites if the element is a sum over these pairs.
        """
        arrays = state_at(jnp.asarray(self.space.lower)).arrays
        unary: dict[int, Any] = {}
        tables: list[tuple[np.ndarray, Any]] = []
        for group in self.groups:
            if len(group.variables) == 2 or not group.pairwise:
                tables.append((group.sites, self._table(group, arrays)))
                continue
            alone, together = self._in_pairs(group, arrays)
            for n, sites, table in zip(group.variables, group.sites.T, alone, strict=True):
                start, v = self.space.blocks[n]
                unary[n] = unary.get(n, jnp.zeros((v.size, v.K))).at[sites - start].add(table)
            tables += [(group.sites[:, [j, k]], table) for (j, k), table in together.items()]
        return Factors(unary, tables, {})

    def _at(self, group: Group, arrays: dict[Variable, Any], values: np.ndarray):
        """(E, C) nats, the elements of a group at C combinations of values of the J sites of each element.

        Parameters
        ----------
        values : (J, C) int
            The value of each of the J sites, less its lowest value.
        """
        candidates = [
            jnp.asarray(self.space.lower[sites, None] + value)
            for sites, value in zip(group.sites.T, values, strict=True)
        ]
        reader = Reader(self.dependence, arrays, moves=Moves(list(group.sites.T), candidates))
        logp = weighted_values(reader.read(group.term.var, group.elements[:, None]), group.term, arrays)[:, 0]
        return jnp.broadcast_to(logp, (len(group.elements), values.shape[1]))

    def _table(self, group: Group, arrays: dict[Variable, Any]):
        """(E, K1, ..., KJ) nats, the elements of a group at all values of the J sites of each element."""
        widths = [self.space.variables[n].K for n in group.variables]
        values = np.indices(widths).reshape(len(widths), -1)
        return self._at(group, arrays, values).reshape(-1, *widths)

    def _in_pairs(
        self, group: Group, arrays: dict[Variable, Any]
    ) -> tuple[list[Any], dict[tuple[int, int], Any]]:
        """The elements as sums of functions of one and of two of their sites.

        Returns
        -------
        alone : [(E, K) nats], for each site the elements with the other sites at their lowest values
        together : {(j, k): (E, Kj, Kk) nats}, the interaction of sites j and k: what is added to the items of
            `alone` for j and k
        """
        widths = [self.space.variables[n].K for n in group.variables]
        alone = []
        for j, width in enumerate(widths):
            values = np.zeros((len(widths), width), int)
            values[j] = np.arange(width)
            alone.append(self._at(group, arrays, values))
        together, lowest = {}, alone[0][:, :1]
        for j, k in itertools.combinations(range(len(widths)), 2):
            values = np.zeros((len(widths), widths[j] * widths[k]), int)
            values[[j, k]] = np.indices((widths[j], widths[k])).reshape(2, -1)
            table = self._at(group, arrays, values).reshape(-1, widths[j], widths[k])
            together[j, k] = table - alone[j][:, :, None] - alone[k][:, None] + lowest[:, :, None]
        return alone, together

    # ------------------------------------------------------------ cost
    def cost(self, share: float, values: list[int]) -> float:
        return share * sum((values[p.n] + 1) * p.cost_of_value for p in self.pointwise)

    def cost_of_value(self, n: int) -> float:
        return sum(p.cost_of_value for p in self.pointwise if p.n == n)
