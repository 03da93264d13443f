"""Which edges meet in which site: flat index arrays, made once."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np

PADDING = 4  # a table of edges per site may be so many times as long as the list of edges


@dataclass(frozen=True, eq=False)
class Slot:
    """One argument of all factors of a kind: an edge for each, to sites of one variable or of several with as
    many values.

    Attributes
    ----------
    variables : their numbers in the space
    sizes : how many sites each has
    index : (E,) int, sites counted through these variables
    """

    variables: tuple[int, ...]
    sizes: tuple[int, ...]
    index: np.ndarray

    @cached_property
    def size(self) -> int:
        return sum(self.sizes)

    @cached_property
    def _identity(self) -> bool:
        return len(self.index) == self.size and bool((self.index == np.arange(self.size)).all())

    @cached_property
    def _edges(self) -> np.ndarray | None:
        """(width, n) int, the edges of every site, E where there are no more; None where that would be mostly
        padding.
        """
        counts = np.bincount(self.index, minlength=self.size)
        width = int(counts.max(initial=0))
        if width * self.size > PADDING * len(self.index) + self.size:
            return None
        order = np.argsort(self.index, kind="stable")
        starts = np.cumsum(counts) - counts
        table = np.full((width, self.size), len(self.index))
        table[np.arange(len(order)) - starts[self.index[order]], self.index[order]] = order
        return table

    def spread(self, fields, xp=jnp):
        """(K, E) or (E,), from [(K, n)] or [(n,)] of all variables of the space."""
        mine = [fields[v] for v in self.variables]
        field = mine[0] if len(mine) == 1 else xp.concatenate(mine, axis=-1)
        if self._identity:
            return field
        return taken(field, self.index) if xp is jnp else field[..., self.index]

    def gather(self, messages):
        """[(variable, (K, n))], the sum over the edges (K, E) of every site."""
        parts = jnp.split(self._gathered(messages), np.cumsum(self.sizes)[:-1], axis=1)
        return list(zip(self.variables, parts, strict=True))

    def _gathered(self, messages):
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
    """array[..., columns], which are in range: to check them costs as much again."""
    return array.at[..., columns].get(mode="promise_in_bounds")
