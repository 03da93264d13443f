"""Which edges meet in which site: flat index arrays, made once."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np

PADDING = 4  # a table of edges per site may be so many times as long as the list of edges


@dataclass(frozen=True, eq=False)
class Slot:
    """One argument of all factors of a kind: an edge for each, all to sites of one variable.

    Attributes
    ----------
    variable : int, its number in the space
    index : (E,) int, sites counted within it
    size : int, number of its sites
    """

    variable: int
    index: np.ndarray
    size: int

    @cached_property
    def _identity(self) -> bool:
        return len(self.index) == self.size and bool((self.index == np.arange(self.size)).all())

    @cached_property
    def _edges(self) -> np.ndarray | None:
        """(width, n) int, the edges of every site, E where there are no more; None where that would be mostly padding."""
        counts = np.bincount(self.index, minlength=self.size)
        width = int(counts.max(initial=0))
        if width * self.size > PADDING * len(self.index) + self.size:
            return None
        order = np.argsort(self.index, kind="stable")
        starts = np.cumsum(counts) - counts
        table = np.full((width, self.size), len(self.index))
        table[np.arange(len(order)) - starts[self.index[order]], self.index[order]] = order
        return table

    def spread(self, field):
        """(K, E) of the (K, n) of the sites."""
        return field if self._identity else taken(field, self.index)

    def gather(self, messages):
        """(K, n), the sum over the edges (K, E) of every site."""
        if self._identity:
            return messages
        if self._edges is None:
            return jnp.zeros((messages.shape[0], self.size), messages.dtype).at[:, self.index].add(messages)
        if (self._edges == len(self.index)).any():
            messages = jnp.pad(messages, ((0, 0), (0, 1)))
        if not len(self._edges):
            return jnp.zeros((messages.shape[0], self.size), messages.dtype)
        return sum(taken(messages, row) for row in self._edges)


def taken(array, columns):
    """array[:, columns], which are in range: to check them costs as much again."""
    return array.at[:, columns].get(mode="promise_in_bounds")
