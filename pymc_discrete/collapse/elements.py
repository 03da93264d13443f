"""The log density of a block as tables: each element at all values of the few sites that it depends on."""

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_discrete.collapse.derivatives import DifferentiableReader, differentiable, without_influence
from pymc_discrete.collapse.elimination import take_rows
from pymc_discrete.collapse.labels import Labels, classes, colours
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.parts.evaluate import Moves
from pymc_discrete.differences.sum_of_parts import ContextOfModel
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.terms import Term

# If the sites of a dense term, whose elements each depend on many sites, have at most this many states
# together, the term is evaluated at each of these states.
MOST_STATES = 2**12
MOST_SITES = int(np.log2(MOST_STATES))  # the most sites that can have so few states


class ElementGroup(NamedTuple):
    """E entries of a term's tensor (elements), each of which depends on J sites.

    The values of an element at all values of its sites are a table. Elements that are equal as functions of
    their sites may share a table.

    Attributes
    ----------
    term : Term
    elements : (E,) int, flat indices into the term
    sites : (E, J) int, the sites of each element
    widths : J int, the number of values of the sites in each column of `sites`
    tables : (E,) int, the index of each element's table among the U different tables of the group
    """

    term: Term
    elements: np.ndarray
    sites: np.ndarray
    widths: tuple[int, ...]
    tables: np.ndarray

    @property
    def first(self) -> np.ndarray:
        """(U,) int, for each of the U different tables the index of the first element that has it."""
        return np.unique(self.tables, return_index=True)[1]

    @property
    def entries(self) -> float:
        """The number of entries of all different tables of the group."""
        return float(len(self.first) * np.prod(self.widths, dtype=float))

    def of(self, rows: np.ndarray) -> "ElementGroup":
        """The group of some of the elements, given by their indices."""
        tables = np.unique(self.tables[rows], return_inverse=True)[1]
        return self._replace(elements=self.elements[rows], sites=self.sites[rows], tables=tables)


class Joint(NamedTuple):
    """Terms that are evaluated as a whole, at all values together of the sites that they depend on.

    Attributes
    ----------
    terms : list of Term
    sites : (1, J) int
    widths : J int, the number of values of each site
    tables : (1,) int, 0, the index of the only table
    """

    terms: list[Term]
    sites: np.ndarray
    widths: tuple[int, ...]
    tables: np.ndarray

    @property
    def entries(self) -> float:
        """The number of states of the sites, each of which is an entry of the table."""
        return float(np.prod(self.widths, dtype=float))


def dense_terms(density: ModelDensity) -> list[tuple[list[Term], np.ndarray]]:
    """The dense terms of a density, those with equal sites together, and the sites (J,) of each."""
    plan, space = density.plan, density.space
    dependence = plan.dependence
    if plan.dense and dependence.largest < MOST_SITES:
        dependence = Dependence(dependence.graph, space.starts, space.d, MOST_SITES)
    found: dict[tuple[int, ...], list[Term]] = {}
    for term in plan.dense:
        elements = dependence.of(term.var)
        if elements is None:
            above = set(ancestors([term.var]))
            blocks = zip(dependence.graph.values, space.blocks, strict=True)
            own = [np.arange(start, start + v.size) for var, (start, v) in blocks if var in above]
            sites = np.concatenate(own)
        else:
            sites = np.unique(elements[elements >= 0])
        found.setdefault(tuple(sites.tolist()), []).append(term)
    return [(terms, np.array(sites)) for sites, terms in found.items()]


def refuse_many_states(density: ModelDensity, counts: np.ndarray) -> None:
    """Refuse a term that joins many sites, unless these have few states, which can be summed one by one.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site in its tables, at most those of its support

    Raises
    ------
    NotImplementedError
    """
    for (term, *_), sites in dense_terms(density):
        with np.errstate(
            over="ignore"
        ):  # thousands of sites have so many states that a float becomes infinite
            states = float(np.prod(counts[sites].astype(float)))
        if states <= MOST_STATES:
            continue
        number = f"{states:.2g}" if np.isfinite(states) else "more than 1e308"
        op = density.plan.dependence.cause(term.var)
        why = f", through the Op {op}" if op else ""
        raise NotImplementedError(
            f"{shown(density.names)} cannot be summed out: the term {term.name!r} joins too many of "
            f"their sites{why}, and they have {number} states together, of which at most {MOST_STATES} "
            "would be summed one by one. Sum out fewer variables, write the term as a sum over sites, or "
            "sample these variables by a discrete step."
        )


class Sparse:
    """The terms of a block as tables of a few sites each.

    Parameters
    ----------
    density : ModelDensity
    counts : (d,) int, the number of values of each site
    first : (d,) int, optional
        The first value of each site in its tables, which then hold `counts` consecutive values. By default
        tables hold the whole support of a site, or, where that has more values than `counts`, values that are
        given when the tables are computed.
    shared : bool
        Whether elements that are equal as functions of their sites share a table.

    Attributes
    ----------
    groups : list of ElementGroup, and of `Joint` for dense terms
    fixed : list of ElementGroup, the elements that depend on no site
    moving : (d,) bool, the sites whose values in a table are given when the table is computed
    first : (d,) int, the first value, in its tables, of each site that is not `moving`
    longest : int, the largest of `counts`; 0 where no site is `moving`

    Raises
    ------
    NotImplementedError
        Where an element depends on too many sites, which have too many states.
    """

    def __init__(
        self,
        density: ModelDensity,
        counts: np.ndarray,
        first: np.ndarray | None = None,
        shared: bool = False,
    ):
        self.density, self.counts, space = density, np.asarray(counts), density.space
        self.first = space.lower if first is None else first
        self.moving = (space.upper - space.lower >= self.counts) & (first is None)
        self.longest = int(self.counts.max(initial=1)) if self.moving.any() else 0
        plan = density.plan
        refuse_many_states(density, self.counts)
        self.groups: list[ElementGroup | Joint] = [
            Joint(terms, sites[None], tuple(self.counts[sites].tolist()), np.zeros(1, int))
            for terms, sites in dense_terms(density)
        ]
        self.fixed: list[ElementGroup] = []
        for term in plan.sparse:
            for group in self._groups(term, plan.dependence.sparse(term.var)):
                (self.groups if group.widths else self.fixed).append(group)
        if shared:
            self.groups = self.with_shared_tables()

    def alike(self) -> np.ndarray:
        """(d,) int, the same number for sites with the same bounds and the same values in their tables."""
        space, d = self.density.space, len(self.counts)
        own = np.where(self.moving, np.arange(d), -1)
        return classes([np.stack([self.first, self.counts, space.lower, space.upper, own], 1)], d)

    @property
    def entries(self) -> float:
        """The number of entries of all different tables."""
        return sum(group.entries for group in self.groups)

    def with_shared_tables(self, by_value: bool = False) -> list[ElementGroup | Joint]:
        """The groups, with one table for all elements that are equal as functions of their sites.

        Two elements are equal in this way if the same operations compute them, and if the sites that take the
        same role in these operations have the same values and bounds. The roles of sites are told apart by
        colours: no two sites of an element have the same colour, so that a colour identifies one site of an
        element.

        Parameters
        ----------
        by_value : whether data are compared by their present values, as constants are
        """
        space, dependence = self.density.space, self.density.plan.dependence
        colour = colours(len(self.counts), [g.sites for g in self.groups])
        of_sites = classes([np.stack([colour, self.alike()], 1)], len(self.counts))
        blocks = zip(dependence.graph.values, space.blocks, strict=True)
        of_variables = {v: of_sites[start : start + b.size] for v, (start, b) in blocks}
        labels = Labels(dependence, of_variables, by_value)
        found: list[ElementGroup | Joint] = []
        for group in self.groups:
            if isinstance(group, ElementGroup):
                of_elements = labels.of(group.term.var)[group.elements]
                tables = classes([of_elements[:, None], of_sites[group.sites]], len(of_elements))
                group = group._replace(tables=tables)
            found.append(group)
        return found

    def _groups(self, term: Term, sites: np.ndarray) -> Iterable[ElementGroup]:
        """The elements of a term in groups; in a group, corresponding sites have the same numbers
        of values."""
        each = (sites >= 0).sum(1)
        for J in np.unique(each):
            index = np.flatnonzero(each == J)
            of_these = sites[index, :J]
            which = classes([self.counts[of_these]], len(of_these))
            for n, row in enumerate(np.unique(which, return_index=True)[1]):
                here = which == n
                widths = tuple(self.counts[of_these[row]].tolist())
                yield ElementGroup(term, index[here], of_these[here], widths, np.arange(here.sum()))

    def alone(self) -> "Sparse":
        """A copy that has the tables of single sites only."""
        some = copy.copy(self)
        some.groups = [g for g in self.groups if len(g.widths) == 1]
        return some

    def of_sites(self, kept: np.ndarray) -> "Sparse":
        """A copy that has only the tables of some sites (d,) bool; no table may join one of these with
        another site.
        """
        some = copy.copy(self)
        some.groups = [
            g.of(rows)
            for g in self.groups
            if isinstance(g, ElementGroup) and (rows := kept[g.sites[:, 0]]).any()
        ]
        return some

    # ------------------------------------------------------------ pure JAX functions
    def constant(self, context: ContextOfModel):
        """() nats, the part of the log density that is in no table; it does not depend on the sites."""
        arrays = self.density.arrays(jnp.asarray(self.density.space.lower), context)
        values = [
            jnp.asarray(v.data if isinstance(v, Constant) else arrays[v], float).reshape(())
            for v in self.density.plan.constant
        ]
        reader = DifferentiableReader(self.density.plan.dependence, arrays)
        values += [self._values(group, reader, arrays).sum() for group in self.fixed]
        return sum(values, jnp.zeros(()))

    def at(self, x: Any, context: ContextOfModel) -> list[Any]:
        """[(E,) nats], for each group the values of its elements at the sites x (d,)."""
        arrays = self.density.arrays(x, context)
        reader = DifferentiableReader(self.density.plan.dependence, arrays)
        each = [g._replace(widths=()) for g in self.groups if isinstance(g, ElementGroup)]
        return [self._values(group, reader, arrays)[:, 0] for group in each]

    @staticmethod
    def _values(group: ElementGroup, reader: DifferentiableReader, arrays: dict[Variable, Any]):
        """(E, S) nats, the elements of a group at S combinations of values of their sites, which `reader`
        puts in the place of the sites.
        """
        logp = jnp.asarray(reader.read(group.term.var, group.elements[:, None]), float)[:, 0]
        weight = group.term.weight
        if weight is not None:
            weight = weight.data if hasattr(weight, "data") else arrays[weight].reshape(())
            logp = without_influence(jnp.multiply)(logp, jnp.asarray(weight, float))
        logp = jnp.broadcast_to(logp, (len(group.elements), int(np.prod(group.widths))))
        return jnp.where(jnp.isnan(logp), -jnp.inf, logp)

    def tables(self, context: ContextOfModel, values: Any) -> list[Any]:
        """[(U, K1, ..., KJ) nats], the tables of each group; entries outside of the support are undefined.

        Parameters
        ----------
        context : a context of the density; the contexts of its parts, which only differences need, may be
            missing
        values : (d, K) int, the values of each site in its tables; only those of `moving` sites are read
        """
        arrays = self.density.arrays(jnp.asarray(self.density.space.lower), context)
        found = []
        for group in self.groups:
            steps = np.indices(group.widths).reshape(len(group.widths), -1)
            if isinstance(group, Joint):
                found.append(self._at_all(group, context, values, steps).reshape(1, *group.widths))
                continue
            group = group.of(group.first)
            columns = group.sites.T
            candidates = [
                self._candidates(sites, step, values) for sites, step in zip(columns, steps, strict=True)
            ]
            moves = Moves([*columns], candidates)
            reader = DifferentiableReader(self.density.plan.dependence, arrays, moves=moves)
            found.append(self._values(group, reader, arrays).reshape(-1, *group.widths))
        return found

    def _candidates(self, sites: np.ndarray, step: np.ndarray, values: Any):
        """(E, S) int, the values of one site of each element at the S entries of its table.

        The shape is (1, S) where the values are the same for all elements, so that functions of them are
        computed once.

        Parameters
        ----------
        sites : (E,) int
        step : (S,) int, the index of the site's value at each entry
        values : (d, K) int, K values of each site; only those of `moving` sites are read
        """
        lower, upper = (
            bound[sites][:, None] for bound in (self.density.space.lower, self.density.space.upper)
        )
        if self.moving[sites].any():
            every = np.array_equal(step, np.arange(len(step)))
            rows = take_rows(jnp.asarray(values), sites)
            return jnp.clip(rows[:, : len(step)] if every else rows[:, step], lower, upper)
        fixed = np.clip(self.first[sites][:, None] + step, lower, upper)
        # a copy, since a view would keep the whole array
        return fixed[:1].copy() if (fixed == fixed[:1]).all() else fixed

    def _at_all(self, group: Joint, context: ContextOfModel, values: Any, steps: np.ndarray):
        """(S,) nats, the terms of a group at S states of its sites.

        Parameters
        ----------
        values : (d, K) int, K values of each site
        steps : (J, S) int, the index of the value that each of the group's sites has in each state
        """
        sites, space = group.sites[0], self.density.space
        own = take_rows(jnp.asarray(values), sites)
        lowest = jnp.asarray(space.lower)  # of the sites that the terms do not depend on
        logp_at = self.density.value_of(group.terms, differentiable)

        def at(step):
            chosen = jnp.take_along_axis(own, step[:, None], axis=1)[:, 0]
            x = lowest.at[sites].set(jnp.clip(chosen, space.lower[sites], space.upper[sites]))
            logp = logp_at(x, context)
            return jnp.where(jnp.isnan(logp), -jnp.inf, logp)

        return jax.vmap(at)(jnp.asarray(steps.T))
