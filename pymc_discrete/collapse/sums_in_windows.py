"""Sums over fixed ranges of values (windows), so that sites with equal tables can share a table.

A stretch (`stretches.py`) is laid at random about the current value of its site. So no two sites are summed
over the same values, and each site needs its own table. A window is chosen once, before the first draw. Sites
that interact, directly or by way of others, are a component. If all sites of a component are within their
windows, they are summed over the windows and drawn from them; otherwise they keep their values. In both cases
no site crosses the border of its window, so that the posterior stays invariant. With some probability a draw
then also draws all sites over stretches, by which they leave their windows and come back.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pymc_discrete.collapse.elements import ElementGroup, Sparse
from pymc_discrete.collapse.elimination import MOST_ENTRIES, Elimination
from pymc_discrete.collapse.sums import Sums, total_draw_and_probabilities
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.sum_of_parts import ContextOfModel


class SumsInWindows(Sums):
    """The sum of a block's density over windows of its sites.

    The argument `stretches` of its methods is x (d,), the current values of the sites.

    Parameters
    ----------
    density : ModelDensity
    counts : (d,) int, the number of values of each window
    most : largest number of entries of all tables
    first : (d,) int, the first value of each window

    Raises
    ------
    NotImplementedError, SumTooLarge
    """

    def __init__(
        self, density: ModelDensity, counts: np.ndarray, first: np.ndarray, most: float = MOST_ENTRIES
    ):
        self.first = first
        super().__init__(density, counts, most, shared=True)

    def _sparse(self) -> Sparse:
        return Sparse(self.density, self.counts, self.first, shared=True)

    @cached_property
    def repeats(self) -> None:
        """None: two components with equal tables may differ, since only a component within its windows is
        summed.
        """
        return None

    @property
    def places(self) -> int:
        return len(self.counts)

    # ------------------------------------------------------------ pure JAX functions
    def outside(self, x: Any, xp: Any = jnp):
        """(..., d) bool, the sites that are not within their windows."""
        first = self.elements.first
        return (x < xp.asarray(first)) | (x >= xp.asarray(first + self.counts))

    def _summed(self, x: Any):
        """(c,) bool, the components that are summed."""
        number = self.elimination.components()
        return jnp.zeros(number.max() + 1, int).at[number].add(self.outside(x)) == 0

    def within(self, stretches: Any):
        return self._summed(stretches)[self.elimination.components()]

    def summed_values(self, stretches: Any = None) -> tuple[Any, Any]:
        return super().summed_values(None)

    def _rest(self, context: ContextOfModel, stretches: Any):
        summed, number = self._summed(stretches), self.elimination.components()
        groups = [g for g in self.elements.groups if isinstance(g, ElementGroup)]
        kept = [
            jnp.where(summed[number[group.sites[:, 0]]], 0.0, values).sum()
            for group, values in zip(groups, self.elements.at(stretches, context), strict=True)
        ]
        return sum(kept, super()._rest(context, stretches))

    def _of(self, function: Callable, tables: list[Any], stretches: Any, *inputs: Any) -> Any:
        apart = function is total_draw_and_probabilities
        elimination = self.apart if apart else self.elimination
        assert elimination is not None
        return function(OfComponents(elimination, self._summed(stretches)), tables, *inputs)

    def _at(self, index, stretches: Any):
        return jnp.where(self.within(stretches), super()._at(index, stretches), stretches)


class OfComponents(NamedTuple):
    """An elimination in which the sums of some components are left out of the total."""

    elimination: Elimination
    counted: Any  # (c,) bool, the components whose sums are a part of the total

    def joined(self, tables: list[Any]) -> tuple[Any, list[list[Any]]]:
        """The logarithm of the sum over the components that are `counted`; and the tables of all components,
        from which `draw` draws the sites.
        """
        _, stages = self.elimination.joined(tables)
        return jnp.where(self.counted, self.elimination.roots(stages), 0.0).sum(), stages

    def draw(self, uniforms: Any, stages: list[list[Any]]) -> Any:
        """(d,) int, the index of each site's value, drawn for all components, `counted` or not."""
        return self.elimination.draw(uniforms, stages)
