"""The edges between factors and sites as flat index arrays, computed once."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np

PADDING = 4  # A padded table of edges is used if it is at most this many times as large as the list of edges.


@dataclass(frozen=True, eq=False)
class Slot:
    """One argument of all factors of a kind, functions of several sites: an edge to a site for each factor.

    The sites are of one variable, or of several with the same number of values.

    Attributes
    ----------
    variables : indices in the space of the variables to which the sites belong
    sizes : the number of sites of each of these variables
    index : (E,) int, the site of each edge, as an index into the concatenated sites of these variables
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
        """(width, n) int, the edges of every site, padded with the number of edges E; None if the table would
        be mostly padding.
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
        """(K, E) or (E,), for each edge the entries of its site in `fields` [(K, n)] or [(n,)]."""
        parts = [fields[v] for v in self.variables]
        field = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)
        if self._identity:
            return field
        return taken(field, self.index) if xp is jnp else field[..., self.index]

    def gather(self, messages):
        """[(variable, (K, n))], for every site the sum of the messages (K, E) over its edges."""
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
        return sum(taken(messages, edges) for edges in self._edges)


def taken(array, columns):
    """array[..., columns] without a check of bounds, since the check would double the cost."""
    return array.at[..., columns].get(mode="promise_in_bounds")
