"""Sums over a part of the sites given all others, if all sites together are too many.

The parts are chosen once; the index of the part that is summed out is an input of the sums. The tables of the
elements are made for all sites. Each part has its own elimination, whose tables are the slices of these
tables at the current values of the sites outside the part.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.collapse.elimination import MOST_ENTRIES, Elimination, Paths, TooDear, take_rows
from pymc_discrete.collapse.parts import MOST_PARTS, affordable_parts
from pymc_discrete.collapse.sums import Sums, SumTooLarge
from pymc_discrete.runtime.names import shown


class Given(NamedTuple):
    """Tables of one array in which the same axes belong to sites of a part; the values of all other sites are
    given.

    Attributes
    ----------
    array : the index of the array
    rows : (r,) int, the indices of the tables in the array
    sites : (r, J) int, the sites of each table
    inner : for each column of `sites`, whether its sites are in the part
    shape : the number of values of each site in the part
    """

    array: int
    rows: np.ndarray
    sites: np.ndarray
    inner: tuple[bool, ...]
    shape: tuple[int, ...]


class SumsOfParts(Sums):
    """The sum of a block's density over a part of its sites, given the values of all other sites.

    The argument `stretches` of the methods says over which values each site would be summed, and has d + 1
    more integers: the current values of all sites, and the index of the part. Sites outside the part have
    only their current value.

    Parameters
    ----------
    density : ModelDensity
    counts : (d,) int, the number of values of each site that are summed

    Attributes
    ----------
    parts : (V, d) bool, the sites of each part; each site is in at least one
    eliminations : list of V Elimination

    Raises
    ------
    NotImplementedError, SumTooLarge
    """

    def _arrange(self) -> None:
        groups = self.elements.groups
        entries = sum(len(g.sites) * np.prod(g.widths, dtype=float) for g in groups)
        parts = affordable_parts(self.counts, [g.sites for g in groups]) if entries <= MOST_ENTRIES else None
        if parts is None:
            raise self._refusal()
        self.parts = parts
        self._given = [self._split(inside) for inside in parts]
        try:
            self.eliminations = [self._elimination(*of) for of in zip(parts, self._given, strict=True)]
        except TooDear:
            raise self._refusal() from None

    def _refusal(self) -> SumTooLarge:
        return SumTooLarge(
            f"{shown(self.density.names)} cannot be summed out: their sites interact with so many others "
            f"that no {MOST_PARTS} parts of them, each summed out given the rest, hold all. Sum out fewer "
            "variables, and sample the others by a discrete step."
        )

    def _split(self, inside: np.ndarray) -> list[Given]:
        """All tables of the model, grouped by which of their axes belong to sites of the part in `inside`."""
        found = []
        for array, group in enumerate(self.elements.groups):
            patterns, which = np.unique(inside[group.sites], axis=0, return_inverse=True)
            for n, inner in enumerate(patterns.tolist()):
                rows = np.flatnonzero(which.reshape(-1) == n)
                shape = tuple(k for k, here in zip(group.widths, inner, strict=True) if here)
                found.append(Given(array, rows, group.sites[rows], tuple(inner), shape))
        return found

    @staticmethod
    def _by_shape(given: list[Given]) -> list[list[Given]]:
        """The tables that join several sites of the part, in groups of equal shape, each of which becomes one
        array.
        """
        shapes = dict.fromkeys(g.shape for g in given if len(g.shape) > 1)
        return [[g for g in given if g.shape == shape] for shape in shapes]

    def _elimination(self, inside: np.ndarray, given: list[Given]) -> Elimination:
        """The elimination of the sites of a part, in which all other sites have one value."""
        scopes = [np.concatenate([g.sites[:, g.inner] for g in same]) for same in self._by_shape(given)]
        scopes.append(np.arange(len(self.counts))[:, None])
        return Elimination(np.where(inside, self.counts, 1), scopes, compact=True)

    @property
    def gives_probabilities(self) -> bool:
        return True

    @cached_property
    def repeats(self) -> None:
        """None: groups of sites hardly ever have equal sums, since the given sites next to them differ in
        value.
        """
        return None

    @property
    def entries(self) -> float:
        return max(e.order.entries for e in self.eliminations)

    @property
    def places(self) -> int:
        return super().places + len(self.counts) + 1

    @property
    def widest(self) -> int:
        """The largest number of sites in one table of the eliminations."""
        groups = [g for e in self.eliminations for stage in e.order.stages for g in stage]
        return max(1 + g.ends.shape[1] if isinstance(g, Paths) else len(g.shape) for g in groups)

    # ------------------------------------------------------------ pure JAX functions
    def within(self, stretches: Any):
        return jnp.asarray(self.parts)[stretches[-1]]

    def _current(self, stretches: Any):
        """(d,) int, the current values of the sites."""
        return stretches[-1 - len(self.counts) : -1]

    def _at(self, index, stretches: Any):
        return jnp.where(self.within(stretches), super()._at(index, stretches), self._current(stretches))

    def _of(self, function: Callable, tables: list[Any], stretches: Any, *inputs: Any) -> Any:
        values, _ = self.summed_values(stretches)
        # For each site the place of its current value on the axis of its tables, where they are read if the
        # site is outside of the part; the values on this axis are then consecutive.
        index = self._current(stretches) - values[:, 0]

        def of_part(part: int) -> Callable:
            return lambda tables, index, *inputs: function(
                self.eliminations[part], self._given_others(part, tables, index), *inputs
            )

        branches = [of_part(part) for part in range(len(self.parts))]
        return jax.lax.switch(stretches[-1], branches, tables, index, *inputs)

    def _given_others(self, part: int, tables: list[Any], index) -> list[Any]:
        """The tables of all terms that remain when sites outside of a part have their current values.

        The first results are the arrays of tables that join several sites of the part. The last one is (d,
        K), for each site the sum of the tables of this site alone.
        """
        *tables, support = tables

        def values(given: Given):
            if all(given.inner):
                return take_rows(tables[given.array], given.rows)
            columns = zip(given.inner, given.sites.T, strict=True)
            at = (slice(None) if here else index[sites] for here, sites in columns)
            return tables[given.array][(given.rows, *at)]

        own = jnp.take_along_axis(support, index[:, None], axis=1)
        alone = jnp.where(self.parts[part][:, None], support, own)
        for given in self._given[part]:
            if len(given.shape) == 1:
                alone = alone.at[given.sites[:, given.inner.index(True)], : given.shape[0]].add(values(given))
            # This table has no site of the part, and so one entry. The entry is added to the table of one of
            # its sites, which has one value.
            elif not given.shape:
                alone = alone.at[given.sites[:, 0], 0].add(values(given))
        joining = [jnp.concatenate([values(g) for g in same]) for same in self._by_shape(self._given[part])]
        return [*joining, alone]
