"""Elements of a tensor, sorted by the sites that they depend on."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from pymc_discrete.targets.indexing import picked
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.structure.terms import Term


@dataclass
class Rows:
    """Elements that belong to each site of one variable.

    Attributes
    ----------
    site : (R,) int, global site of each row
    local : (R,) int, the same counted within the variable
    index : (R, m) int, flat elements of the term
    mask : (R, m) bool, False where `index` is padding
    complete : row r is the variable's site r
    unique : no site has two rows
    """

    site: np.ndarray
    local: np.ndarray
    index: np.ndarray
    mask: np.ndarray
    complete: bool
    unique: bool

    @classmethod
    def build(
        cls, sites: np.ndarray, elements: np.ndarray, start: int, size: int, pad: bool = False
    ) -> "Rows":
        order = np.lexsort((elements, sites))
        sites, elements = sites[order], elements[order]
        owner, first, counts = np.unique(sites, return_index=True, return_counts=True)
        m = int(counts.max())
        if pad:  # a row for every site, however uneven
            present, owner = owner - start, np.arange(start, start + size)
            first, counts = (np.bincount(present, a, size).astype(int) for a in (first, counts))
        elif len(owner) * m > 4 * len(sites) + 64:  # too uneven to pad: one row per element
            everything = np.ones((len(sites), 1), bool)
            return cls(sites, sites - start, elements[:, None], everything, False, False)
        mask = np.arange(m) < counts[:, None]
        place = np.minimum(first[:, None] + np.arange(m), len(sites) - 1)
        index = np.where(mask, elements[place], elements[first][:, None])
        return cls(owner, owner - start, index, mask, len(owner) == size, True)

    def place(self, rows, size: int):
        """(r,) which row belongs to each local site `rows`, -1 for none; static where `rows` is. Not where a
        site has two rows.
        """
        if self.complete:
            return rows
        where = np.full(size + 1, -1)
        where[self.local] = np.arange(len(self.local))
        return picked(where, rows)

    def add(self, total, values):
        """Add (R, k) values to the (n, k) total of the variable."""
        if self.complete:
            return total + values
        return total.at[self.local].add(values, unique_indices=self.unique, indices_are_sorted=True)


def rows_per_variable(sites: np.ndarray, space: Space, elements=None, pad: bool = False) -> dict[int, Rows]:
    """{variable number: the elements that belong to each of its sites} from the sites (n, J) of
    `elements`.
    """
    elements = np.arange(len(sites)) if elements is None else elements
    owner, element = sites[sites >= 0], np.repeat(elements, (sites >= 0).sum(1))
    found = {}
    for n, (start, v) in enumerate(space.blocks):
        mine = (owner >= start) & (owner < start + v.size)
        if mine.any():
            found[n] = Rows.build(owner[mine], element[mine], start, v.size, pad)
    return found


def weighted(values, term: Term, state):
    values = values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(jnp.result_type(float))
    if term.weight is None:
        return values
    weight = term.weight.data if hasattr(term.weight, "data") else state[term.weight]
    return values * jnp.asarray(weight).reshape(())


def masked_sum(values, mask):
    """Sum of (r, m, k) over m where `mask` (r, m)."""
    if not (isinstance(mask, np.ndarray) and mask.all()):
        values = jnp.where(mask[..., None], values, 0.0)
    elif values.shape[1] < mask.shape[1]:
        values = jnp.broadcast_to(values, (*values.shape[:1], mask.shape[1], values.shape[2]))
    return values.sum(axis=1)


def difference(then, now):
    """Change of a log density; impossible stays impossible, and nan counts as impossible."""
    then = jnp.where(jnp.isnan(then), -jnp.inf, then)
    change = jnp.where(then == now, 0.0, then - now)
    return jnp.where(jnp.isneginf(then), jnp.where(jnp.isneginf(now), 0.0, -jnp.inf), change)
