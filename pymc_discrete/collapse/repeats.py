"""Sums that occur many times, such as the sum of the same word in one document, or of animals with one
history.

Sites that tables connect are a component; the components of a block are summed separately. Two components
have equal sums if their tables are equal, which is read off the graph: elements of a tensor are equal if the
same operations compute them from equal constants, from the same elements of other variables, and from sites
with the same index within their components. One of several equal components is summed, and its sum is
multiplied by the number of these components.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Sum
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pymc_discrete.collapse.derivatives import differentiable
from pymc_discrete.collapse.elements import ElementGroup, Sparse
from pymc_discrete.collapse.elimination import Elimination, equal_sequences
from pymc_discrete.collapse.labels import Labels, classes, first_alike
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.numbers import NeedsValues, Number
from pymc_discrete.structure.reads import Entries

# equal components are summed once if the number of different components is at most 1 / FEWER of the number of
# all
FEWER = 2
# If data are a part of the program, more components may be equal, but other data need another program. Data
# are made a part of it if at most 1 / MUCH_FEWER of the components are then different, and there are at least
# MANY components.
MUCH_FEWER, MANY = 8, 256
# at most this many nested Ops are copied to compute some elements of a tensor without the others
DEEPEST_COPY = 50


def components_of(elements: Sparse) -> np.ndarray:
    """(d,) int, the component of each site: sites that tables connect have the same number."""
    joined = [group.sites[:, [0, n]] for group in elements.groups for n in range(1, group.sites.shape[1])]
    pairs = np.concatenate([np.zeros((0, 2), int), *joined])
    d = len(elements.counts)
    return connected_components(coo_array((np.ones(len(pairs)), pairs.T), shape=(d, d)), directed=False)[1]


def equal_components(elements: Sparse, components: np.ndarray, by_value: bool = False) -> np.ndarray:
    """(c,) int, the same number for components whose sums are equal.

    Parameters
    ----------
    components : (d,) int, the component of each site, from 0 to c - 1
    by_value : whether data are compared by their present values, as constants are
    """
    space, dependence, d = elements.density.space, elements.density.plan.dependence, len(components)
    order = np.argsort(components, kind="stable")
    place = np.empty(d, int)
    place[order] = np.arange(d) - np.searchsorted(components[order], components[order])
    of_sites = classes([np.stack([place, space.lower, space.upper, elements.counts], 1)], d)
    variables = {
        v: of_sites[start : start + space.variables[n].size]
        for n, (v, start) in enumerate(zip(dependence.graph.values, space.starts, strict=True))
    }
    labels = Labels(dependence, variables, by_value)
    rows = [np.stack([components, np.full(d, -1), of_sites], 1)]
    for n, group in enumerate(elements.groups):
        assert isinstance(group, ElementGroup)
        of_group = labels.of(group.term.var)[group.elements]
        rows.append(np.stack([components[group.sites[:, 0]], np.full(len(of_group), n), of_group], 1))
    table = np.concatenate(rows)
    component, *rest = table[np.lexsort(table.T[::-1])].T
    return equal_sequences(np.searchsorted(component, np.arange(component[-1] + 2)), *rest)


class Repeats:
    """A sum over sites, in which only one of several equal components is computed.

    Parameters
    ----------
    elements : Sparse, the elements of the terms and the sites of each
    components : (d,) int, the component of each site
    chosen, times : (c,) int, one component of each class of equal ones, and the size of the class
    """

    def __init__(self, elements: Sparse, components: np.ndarray, chosen: np.ndarray, times: np.ndarray):
        self.density = elements.density
        self.sites = np.flatnonzero(np.isin(components, chosen))
        place = np.full(len(components), -1)
        place[self.sites] = np.arange(len(self.sites))
        self.elements = elements.of_sites(place >= 0)
        scopes = [*(place[g.sites] for g in self.elements.groups), np.arange(len(self.sites))[:, None]]
        tables = [*(g.tables for g in self.elements.groups), first_alike(elements.alike()[self.sites])]
        self.elimination = Elimination(elements.counts[self.sites], scopes, tables=tables)
        of_component = np.zeros(components.max() + 1, int)
        of_component[chosen] = times
        self._times = of_component[components[self.sites]]
        self._read = self._read_of_leaves()
        labels = Labels(self.density.plan.dependence, {})
        parts = [elements_at(leaf, index, labels) for leaf, index in self._read.items()]
        self._values_of_leaves = jaxify(self.density.graph.others, parts, differentiable)

    @classmethod
    def of(cls, elements: Sparse) -> "Repeats | None":
        """The sum over the sites of the given elements, in which equal connected components of the
        interaction graph are summed once; None if few components are equal, or if the values over which a
        site is summed change from draw to draw.

        Raises
        ------
        NeedsValues
            If so many components are equal for the present data that a program for these data alone pays.
        """
        if elements.density.plan.dense or elements.moving.any():
            return None
        components = components_of(elements)
        _, chosen, times = np.unique(
            equal_components(elements, components), return_index=True, return_counts=True
        )
        numbers = {str(v.name) for v in elements.density.graph.others if isinstance(v, Number)}
        if numbers and times.sum() >= MANY and MUCH_FEWER * len(chosen) > times.sum():
            by_value = equal_components(elements, components, by_value=True)
            if MUCH_FEWER * len(np.unique(by_value)) <= times.sum():
                raise NeedsValues(numbers)
        return cls(elements, components, chosen, times) if FEWER * len(chosen) <= times.sum() else None

    def _read_of_leaves(self) -> dict[Variable, np.ndarray]:
        """{leaf of the graph: flat indices of the elements that the tables of the chosen components read}."""
        plan, graph, leaves = self.density.plan, self.density.graph, self.density.leaves
        read: dict[Variable, list[np.ndarray]] = defaultdict(list)
        groups = [g for g in (*self.elements.groups, *self.elements.fixed) if isinstance(g, ElementGroup)]
        for group in groups:
            read[group.term.var].append(group.elements[group.first])
        for whole in (*plan.constant, *(g.term.weight for g in groups)):
            if whole is not None:
                read[whole].append(np.arange(graph.size(whole)))
        for node in reversed(list(toposort([*read], blockers=[*leaves, *graph.values]))):
            rule = plan.dependence.rule(node)
            for n, out in enumerate(node.outputs):
                if out not in read or out in leaves:
                    continue
                # An Op has no rule if it is not known which elements of its inputs it reads. If sites entered
                # such an Op, its term would join all sites, and `of` would have returned None.
                assert rule is not None
                index = np.unique(np.concatenate(read[out]))
                rows = rule.entry[n][index] if isinstance(rule, Entries) else index
                for reads, i in zip(rule.reads, node.inputs, strict=True):
                    if reads is None:
                        whole = np.arange(graph.size(i)) if hasattr(i.type, "ndim") else np.zeros(1, int)
                        read[i].append(whole)
                    elif reads.shape[1]:
                        # the index -1 says that nothing is read; the first element is taken in its place
                        read[i].append(np.maximum(reads[rows], 0).reshape(-1))
        return {leaf: np.unique(np.concatenate(read[leaf])) for leaf in leaves if leaf in read}

    @cached_property
    def times(self) -> np.ndarray:
        """(c,) int, the number of components that each summed component stands for, in the order of
        `Elimination.roots`.
        """
        roots = self.elimination.components()
        times = np.zeros(roots.max() + 1, int)
        times[roots] = self._times
        return times

    @property
    def entries(self) -> float:
        """The number of entries of all tables of the elimination."""
        return self.elimination.order.entries

    # ------------------------------------------------------------ pure JAX functions
    def logdensity(self, inputs: Sequence[Any]):
        """() nats, the logarithm of the sum of the block's density over its sites, given values of the
        variables outside of the block.
        """
        context = self.density.without_parts(inputs, self._leaves)
        space, counts = self.density.space, self.elements.counts
        candidates = space.lower[:, None] + np.arange(counts.max(initial=1))
        support = np.where(candidates <= space.upper[:, None], 0.0, -np.inf)[self.sites]
        tables = [*self.elements.tables(context, candidates), jnp.asarray(support)]
        _, stages = self.elimination.joined(tables)
        return (self.elimination.roots(stages) * self.times).sum() + self.elements.constant(context)

    def _leaves(self, *inputs: Any) -> tuple[Any, ...]:
        """The values of the leaves of the graph as flat arrays, with 0 for elements that are not read."""
        values = dict(zip(self._read, self._values_of_leaves(*inputs), strict=True))
        found = []
        for var in self.density.leaves:
            n, index = self.density.graph.size(var), self._read.get(var, np.zeros(0, int))
            if len(index) < n:
                zeros = jnp.zeros(n, jax.dtypes.canonicalize_dtype(var.type.dtype))
                found.append(zeros.at[index].set(values[var], unique_indices=True) if len(index) else zeros)
            else:
                found.append(values[var])
        return tuple(found)


def elements_at(var: Variable, index: np.ndarray, labels: Labels, depth: int = 0) -> Variable:
    """(m,) elements of a tensor with given flat indices; other elements are computed only where an Op needs
    all of its inputs.
    """
    graph, node = labels.dependence.graph, var.owner
    n = graph.size(var)
    whole = pt.reshape(var, (n,))
    if n > 1 and np.array_equal(index, np.arange(n)):
        return whole
    if isinstance(var, Constant):
        return pt.constant(np.asarray(var.data).reshape(-1)[index])
    if node is None or depth == DEEPEST_COPY:
        return whole[index]
    if isinstance(node.op, Elemwise) and len(node.outputs) == 1:
        inputs = []
        for i in node.inputs:
            ids = np.broadcast_to(np.arange(graph.size(i)).reshape(graph.shape(i)), graph.shape(var))
            one = np.zeros(1, int) if graph.size(i) == 1 else ids.reshape(-1)[index]
            inputs.append(elements_at(i, one, labels, depth + 1))
        return node.op(*inputs)
    rule = labels.dependence.rule(node)
    if rule is None or isinstance(rule, Entries):
        return whole[index]
    if isinstance(node.op, CAReduce) and rule.reads[0] is not None:
        groups = rule.reads[0][index]
        if isinstance(node.op, Sum) and len(groups) == 1:
            _, first, times = np.unique(
                labels.of(node.inputs[0])[groups[0]], return_index=True, return_counts=True
            )
            different = elements_at(node.inputs[0], groups[0, first], labels, depth + 1)
            return pt.sum(different * times, keepdims=True).astype(var.type.dtype)
        each = elements_at(node.inputs[0], groups.reshape(-1), labels, depth + 1)
        return node.op.clone(axis=(1,))(each.reshape(groups.shape))
    if rule.passes:
        pairs = zip(node.inputs, rule.reads, strict=True)
        sources = [(i, reads) for i, reads in pairs if reads is None or reads.shape[1]]
        source, reads = sources[0]
        # This Op only copies elements of its input, so that the copied elements of the input are taken, and
        # the Op is left out.
        if len(sources) == 1 and reads is not None and (reads[index] >= 0).all():
            return elements_at(source, reads[index, 0], labels, depth + 1)
    return whole[index]
