"""The log density of a block as tables: its elements at all values of the few sites that each depends on."""

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Constant, Variable

from pymc_discrete.collapse.derivatives import DifferentiableReader, without_influence
from pymc_discrete.collapse.elimination import take_rows
from pymc_discrete.collapse.labels import Labels, classes, colours
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.parts.evaluate import Moves
from pymc_discrete.differences.sum_of_parts import ContextOfModel
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.terms import Term

# If the block has at most this many states, a term that joins all of its sites is evaluated at each of them.
MOST_STATES = 2**12


class ElementGroup(NamedTuple):
    """Elements of a term that depend on J sites each.

    Attributes
    ----------
    term : Term
    elements : (E,) int, flat indices of the elements
    sites : (E, J) int, the sites of each element
    widths : J numbers of values, of the sites in each column
    tables : (E,) int, which of the U different tables of the group is that of each element
    """

    term: Term
    elements: np.ndarray
    sites: np.ndarray
    widths: tuple[int, ...]
    tables: np.ndarray

    @property
    def first(self) -> np.ndarray:
        """(U,) int, for each of the U different tables the place of the first element that has it."""
        return np.unique(self.tables, return_index=True)[1]

    @property
    def entries(self) -> float:
        """The number of entries of all different tables."""
        return float(len(self.first) * np.prod(self.widths, dtype=float))

    def of(self, rows: np.ndarray) -> "ElementGroup":
        """Some of the elements."""
        tables = np.unique(self.tables[rows], return_inverse=True)[1]
        return self._replace(elements=self.elements[rows], sites=self.sites[rows], tables=tables)


class Whole(NamedTuple):
    """All terms together, as a function of all sites.

    Attributes
    ----------
    sites : (1, d) int
    widths : d numbers of values
    tables : [0]
    """

    sites: np.ndarray
    widths: tuple[int, ...]
    tables: np.ndarray

    @property
    def entries(self) -> float:
        """The number of states."""
        return float(np.prod(self.widths, dtype=float))


def refuse_many_states(density: ModelDensity, counts: np.ndarray) -> None:
    """Refuse to sum all states where a term joins many sites.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site

    Raises
    ------
    NotImplementedError
    """
    dense = density.plan.dense
    with np.errstate(over="ignore"):  # of thousands of sites
        states = float(np.prod(counts.astype(float)))
    if dense and states > MOST_STATES:
        number = f"{states:.2g}" if np.isfinite(states) else "more than 1e308"
        op = density.plan.dependence.cause(dense[0].var)
        why = f", through the Op {op}" if op else ""
        raise NotImplementedError(
            f"{shown(density.names)} cannot be summed out: the term {dense[0].name!r} joins too many of "
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
        The first value of each site in its tables, which then hold as many consecutive values. By default
        tables hold the whole support, or, where it is longer, any values.
    shared : bool
        Whether one table stands for all elements with the same one.

    Attributes
    ----------
    groups : list of Elements, or of one `Whole`
    fixed : list of Elements that depend on no site
    first : (d,) int, the first value of each site in its tables, where it is not moving
    moving : (d,) bool, the sites with more values than are in a table, which may hold any of them
    longest : int, the largest number of values of a site, 0 where none is moving

    Raises
    ------
    NotImplementedError
        Where an element depends on too many sites, and the block has too many states.
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
        self.groups: list[ElementGroup | Whole] = []
        if plan.dense:
            refuse_many_states(density, self.counts)
            states = tuple(self.counts.tolist())
            self.groups.append(Whole(np.arange(len(self.counts))[None], states, np.zeros(1, int)))
        self.fixed: list[ElementGroup] = []
        for term in [] if plan.dense else plan.sparse:
            for group in self._groups(term, plan.dependence.sparse(term.var)):
                (self.groups if group.widths else self.fixed).append(group)
        if shared:
            self.groups = self._shared()

    def alike(self) -> np.ndarray:
        """(d,) int, the same number for sites that have the same values in their tables, and bounds."""
        space, d = self.density.space, len(self.counts)
        own = np.where(self.moving, np.arange(d), -1)
        return classes([np.stack([self.first, self.counts, space.lower, space.upper, own], 1)], d)

    def _shared(self) -> list[ElementGroup | Whole]:
        """The groups, in which elements that are equal as functions of their sites have the same table.

        Elements are computed alike where that is so of sites with the same colour. No two sites of an element
        have the same one, so that colours also tell which of the sites is which.
        """
        space, dependence = self.density.space, self.density.plan.dependence
        colour = colours(len(self.counts), [g.sites for g in self.groups])
        of_sites = classes([np.stack([colour, self.alike()], 1)], len(self.counts))
        blocks = zip(dependence.graph.values, space.blocks, strict=True)
        labels = Labels(dependence, {v: of_sites[start : start + b.size] for v, (start, b) in blocks})
        found: list[ElementGroup | Whole] = []
        for group in self.groups:
            if isinstance(group, ElementGroup):
                of_elements = labels.of(group.term.var)[group.elements]
                tables = classes([of_elements[:, None], of_sites[group.sites]], len(of_elements))
                group = group._replace(tables=tables)
            found.append(group)
        return found

    def _groups(self, term: Term, sites: np.ndarray) -> Iterable[ElementGroup]:
        """The elements of a term, those of as many sites with as many values each in one group."""
        each = (sites >= 0).sum(1)
        for J in np.unique(each):
            index = np.flatnonzero(each == J)
            of_these = sites[index, :J]
            counts, which = np.unique(self.counts[of_these], axis=0, return_inverse=True)
            for n, combination in enumerate(counts):
                here = which.reshape(-1) == n
                widths = tuple(combination.tolist())
                yield ElementGroup(term, index[here], of_these[here], widths, np.arange(here.sum()))

    def alone(self) -> "Sparse":
        """The tables of one site each."""
        some = copy.copy(self)
        some.groups = [g for g in self.groups if len(g.widths) == 1]
        return some

    def of_sites(self, kept: np.ndarray) -> "Sparse":
        """The tables of some of the sites (d,) bool, which no table joins with others."""
        some = copy.copy(self)
        some.groups = [
            g.of(rows)
            for g in self.groups
            if isinstance(g, ElementGroup) and (rows := kept[g.sites[:, 0]]).any()
        ]
        return some

    # ------------------------------------------------------------ pure JAX functions
    def constant(self, context: ContextOfModel):
        """() nats, what the tables and the log density differ by; it does not depend on the sites."""
        if self.density.plan.dense:  # the tables hold the log density
            return jnp.zeros(())
        arrays = self.density.arrays(jnp.asarray(self.density.space.lower), context)
        values = [
            jnp.asarray(v.data if isinstance(v, Constant) else arrays[v], float).reshape(())
            for v in self.density.plan.constant
        ]
        reader = DifferentiableReader(self.density.plan.dependence, arrays)
        values += [self._values(group, reader, arrays).sum() for group in self.fixed]
        return sum(values, jnp.zeros(()))

    def at(self, x: Any, context: ContextOfModel) -> list[Any]:
        """[(E,) nats], the elements of the `groups` at the sites x (d,)."""
        arrays = self.density.arrays(x, context)
        reader = DifferentiableReader(self.density.plan.dependence, arrays)
        each = [g._replace(widths=()) for g in self.groups if isinstance(g, ElementGroup)]
        return [self._values(group, reader, arrays)[:, 0] for group in each]

    @staticmethod
    def _values(group: ElementGroup, reader: DifferentiableReader, arrays: dict[Variable, Any]):
        """(E, S) nats, the elements of a group at all S combinations of the values of their sites."""
        logp = jnp.asarray(reader.read(group.term.var, group.elements[:, None]), float)[:, 0]
        weight = group.term.weight
        if weight is not None:
            weight = weight.data if hasattr(weight, "data") else arrays[weight].reshape(())
            logp = without_influence(jnp.multiply)(logp, jnp.asarray(weight, float))
        logp = jnp.broadcast_to(logp, (len(group.elements), int(np.prod(group.widths))))
        return jnp.where(jnp.isnan(logp), -jnp.inf, logp)

    def tables(self, context: ContextOfModel, values: Any) -> list[Any]:
        """[(U, K1, ..., KJ) nats] of the `groups`; entries outside of the support are undefined.

        Parameters
        ----------
        context : of the density, also without its parts
        values : (d, K) int, the values of each site in its tables; consecutive ones from `first`, where it is
            not `moving`
        """
        arrays = self.density.arrays(jnp.asarray(self.density.space.lower), context)
        found = []
        for group in self.groups:
            steps = np.indices(group.widths).reshape(len(group.widths), -1)
            if isinstance(group, Whole):
                found.append(self._at_all(context, values, steps).reshape(1, *group.widths))
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
        """(E, S) int, the values of a site of each element in its table; (1, S) where all have the same.

        What is computed from values that are the same for all elements is then computed once.
        """
        lower, upper = (
            bound[sites][:, None] for bound in (self.density.space.lower, self.density.space.upper)
        )
        if self.moving[sites].any():
            every = np.array_equal(step, np.arange(len(step)))
            rows = take_rows(jnp.asarray(values), sites)
            return jnp.clip(rows[:, : len(step)] if every else rows[:, step], lower, upper)
        fixed = np.clip(self.first[sites][:, None] + step, lower, upper)
        return fixed[:1] if (fixed == fixed[:1]).all() else fixed

    def _at_all(self, context: ContextOfModel, values: Any, steps: np.ndarray):
        """(S,) nats, the log density at S states."""
        lower, upper = self.density.space.lower, self.density.space.upper

        def at(step):
            x = jnp.take_along_axis(jnp.asarray(values), step[:, None], axis=1)[:, 0]
            logp = self.density.logdensity(jnp.clip(x, lower, upper), context)
            return jnp.where(jnp.isnan(logp), -jnp.inf, logp)

        return jax.vmap(at)(jnp.asarray(steps.T))
