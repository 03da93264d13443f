"""Elimination: sums a product of tables over all of its sites, and draws the sites given the tables.

Sites are summed out in stages. The sites of a stage share no table, so that they are summed out at once; each
leaves a table of its neighbours. The order is found once, from what the tables join: next come the sites
whose sums are smallest. A chain is halved in every stage; a tree loses its leaves.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.random import choose

LARGEST = 2**20  # largest number of entries of the table of a site and its neighbours
DEAREST = 2**27  # largest number of entries of all of them
# A site is summed out in a stage if its table has at most this many times as many entries as the smallest:
# more work than one after another, but at once.
PATIENCE = 64


class TooDear(Exception):
    """A sum over sites would take too many operations.

    Attributes
    ----------
    sites : the sites in the table that is too large
    entries : its number of entries
    """

    def __init__(self, sites: Sequence[int], entries: float):
        super().__init__(f"a table of {entries:.2g} entries")
        self.sites, self.entries = list(sites), entries


class Source(NamedTuple):
    """Tables of one array that are added to the tables of a group of sites and their neighbours.

    Attributes
    ----------
    batch : the number of the array of tables
    rows : (r,) int, the tables in it
    into : (r,) int, the members of the group that get them
    axes : for each axis of a table, the axis of the group's tables that it becomes
    """

    batch: int
    rows: np.ndarray
    into: np.ndarray
    axes: tuple[int, ...]


class Group(NamedTuple):
    """Sites that are summed out at once, with as many neighbours each, of as many values.

    Attributes
    ----------
    sites : (G, 1 + m) int, each site and its neighbours
    shape : the number of values of each, (1 + m,)
    sources : what the tables (G, *shape) are the sums of
    """

    sites: np.ndarray
    shape: tuple[int, ...]
    sources: list[Source]


class Elimination:
    """The order in which sites are summed out, and the sums.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site
    scopes : a list of (E, J) int, the sites of the tables of each array

    Attributes
    ----------
    entries : the number of entries of all tables

    Raises
    ------
    TooDear
    """

    def __init__(self, counts: np.ndarray, scopes: Sequence[np.ndarray]):
        self.counts, self.scopes = np.asarray(counts), [np.asarray(s) for s in scopes]
        self.entries = 0
        self.stages: list[list[Group]] = []
        self._arrays = len(scopes)  # the number of arrays of tables; each group adds one
        # the tables that are left: {site: {(array, row)}}
        self._tables: dict[int, set[tuple[int, int]]] = {i: set() for i in range(len(self.counts))}
        self._scope: dict[tuple[int, int], tuple[int, ...]] = {}
        for array, sites in enumerate(self.scopes):
            for row, scope in enumerate(sites.tolist()):
                self._keep((array, row), tuple(scope))
        while self._tables:
            self.stages.append(self._stage())

    def _keep(self, table: tuple[int, int], scope: tuple[int, ...]) -> None:
        self._scope[table] = scope
        for i in scope:
            self._tables[i].add(table)

    def _neighbours(self, i: int) -> list[int]:
        return sorted({j for table in self._tables[i] for j in self._scope[table]} - {i})

    def _stage(self) -> list[Group]:
        """Choose the sites of the next stage, and what their sums are made of."""
        around = {i: self._neighbours(i) for i in self._tables}
        size = {i: math.prod(map(int, self.counts[[i, *near]])) for i, near in around.items()}
        order = sorted(size, key=lambda i: (size[i], i))
        limit = max(size[order[0]] * PATIENCE, 1)
        chosen: list[int] = []
        blocked: set[int] = set()
        for i in order:
            if size[i] > limit:
                break
            if i not in blocked:
                chosen.append(i)
                blocked.update(around[i])
        groups: dict[Any, list[int]] = defaultdict(list)
        for i in chosen:
            groups[tuple(self.counts[[i, *around[i]]].tolist())].append(i)
        return [self._group(shape, sites, around) for shape, sites in groups.items()]

    def _group(self, shape: tuple[int, ...], sites: list[int], around: dict[int, list[int]]) -> Group:
        self.entries += len(sites) * math.prod(shape)
        if math.prod(shape) > LARGEST or self.entries > DEAREST:
            raise TooDear([sites[0], *around[sites[0]]], max(float(self.entries), math.prod(shape)))
        found: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = defaultdict(list)
        for n, i in enumerate(sites):
            place = {j: axis for axis, j in enumerate([i, *around[i]])}
            for table in sorted(self._tables[i]):
                array, row = table
                scope = self._scope.pop(table)
                found[array, tuple(place[j] for j in scope)].append((row, n))
                for j in scope:
                    if j != i:
                        self._tables[j].discard(table)
        for n, i in enumerate(sites):
            del self._tables[i]
            if around[i]:
                self._keep((self._arrays, n), tuple(around[i]))
        self._arrays += 1
        sources = []
        for (array, axes), pairs in found.items():
            rows, into = np.array(pairs).T
            sources.append(Source(array, rows, into, axes))
        return Group(np.array([[i, *around[i]] for i in sites]), shape, sources)

    # ------------------------------------------------------------ pure JAX functions
    def joined(self, tables: Sequence[Any]) -> tuple[Any, list[list[Any]]]:
        """The logarithm of the sum over all sites.

        Parameters
        ----------
        tables : [(E, K1, ..., KJ) nats], one for each of `scopes`

        Returns
        -------
        () nats, and the tables of every group of every stage, which `draw` reads
        """
        arrays, total, stages = list(tables), jnp.zeros(()), []
        for stage in self.stages:
            stages.append([self._of_group(group, arrays) for group in stage])
            for group, table in zip(stage, stages[-1], strict=True):
                summed = log_sum(table, 1)
                arrays.append(summed)
                if len(group.shape) == 1:
                    total = total + summed.sum()
        return total, stages

    def _of_group(self, group: Group, arrays: list[Any]):
        table = jnp.zeros((len(group.sites), *group.shape))
        for source in group.sources:
            more = rows_of(arrays[source.batch], source.rows)
            order = np.argsort(source.axes)
            more = more.transpose(0, *(1 + order))
            # the widest array has a column for every value of any of its sites
            more = more[(slice(None), *(slice(group.shape[a]) for a in sorted(source.axes)))]
            missing = [a for a in range(len(group.shape)) if a not in source.axes]
            more = jnp.expand_dims(more, [1 + a for a in missing])
            if np.array_equal(source.into, np.arange(len(group.sites))):
                table = table + more
            else:
                table = table + sums_by(
                    jnp.broadcast_to(more, (len(more), *group.shape)), source.into, len(table)
                )
        return table

    def draw(self, uniforms, stages: list[list[Any]]):
        """(d,) int, the index of each site's value, drawn exactly given the tables.

        Parameters
        ----------
        uniforms : (d,)
        stages : what `joined` returns
        """
        index = jnp.zeros(len(self.counts), int)
        for groups, tables in zip(self.stages[::-1], stages[::-1], strict=True):
            for group, table in zip(groups, tables, strict=True):
                near = [index[column] for column in group.sites[:, 1:].T]
                weights = table[
                    (np.arange(len(table))[:, None], np.arange(group.shape[0]), *(k[:, None] for k in near))
                ]
                index = index.at[group.sites[:, 0]].set(choose(uniforms[group.sites[:, 0]], weights))
        return index


def rows_of(a, rows: np.ndarray):
    """The rows (r,) of an array; by a slice where they are evenly spaced, as XLA is slow in gathers."""
    steps = np.diff(rows)
    step = int(steps[0]) if len(steps) else 1
    if step > 0 and (steps == step).all():
        return jax.lax.slice_in_dim(a, int(rows[0]), int(rows[-1]) + 1, step)
    return a[rows]


def sums_by(a, member: np.ndarray, members: int):
    """(members, ...) the sums of the rows of a (r, ...) that belong to each member."""
    each = np.bincount(member, minlength=members)
    if each.min() != each.max():
        return jnp.zeros((members, *a.shape[1:])).at[member].add(a)
    if (np.diff(member) < 0).any():
        a = a[np.argsort(member, kind="stable")]
    return a.reshape(members, each[0], *a.shape[1:]).sum(1)


def log_sum(a, axis: int):
    """log of the sum of exp(a) along an axis; -inf, with gradient 0, where all are -inf."""
    largest = a.max(axis, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    total = jnp.exp(a - largest).sum(axis)
    possible = total > 0
    return jnp.where(possible, jnp.log(jnp.where(possible, total, 1.0)), -jnp.inf) + largest.squeeze(axis)
