r"""Exact differences of sparse terms: unary and pairwise tables, and single elements evaluated at every
candidate.

A sparse term is a tensor whose elements depend on a few sites each; the log density is a sum over them, a
factor graph. With finite sites, elements of one or two sites are tabulated once per context:

.. math:: C_{ik} = U_{ik} + \sum_{j \sim i} P_{ij}[k, x_j], \qquad d_{ik} = C_{ik} - C_{i x_i}

Everything else is evaluated in place, at the moves of each site.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable

from pymc_discrete.targets.dependence import Dependence
from pymc_discrete.targets.elements import Moves, Reader, take
from pymc_discrete.targets.space import Space, picked
from pymc_discrete.targets.space import Variable as SpaceVariable
from pymc_discrete.targets.summands import narrow

LARGEST_TABLES = 5_000_000  # entries


@dataclass
class SparseTerm:
    """`weight * var.sum()`; `weight` a scalar of the context or None for 1."""

    name: str
    var: Variable
    weight: Variable | None


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


@dataclass
class Unary:
    """Table U (n, K) of one finite variable: what its elements add to the log density at every value."""

    term: SparseTerm
    rows: Rows
    start: int
    v: SpaceVariable

    def table(self, reader_state, dependence: Dependence):
        candidates = jnp.asarray(self.v.lower[self.rows.local][:, None] + np.arange(self.v.K))
        reader = Reader(dependence, reader_state, moves=Moves([self.rows.site], [candidates]))
        values = masked_sum(
            levelled(weighted(reader.read(self.term.var, self.rows.index), self.term, reader_state)),
            self.rows.mask,
        )
        return self.rows.add(
            jnp.zeros((self.v.size, self.v.K), values.dtype),
            jnp.broadcast_to(values, (len(self.rows.site), self.v.K)),
        )


@dataclass
class Pair:
    """Tables P (E, Ka, Kb) of the elements that join a site of one finite variable to a site of another (or
    the same).
    """

    term: SparseTerm
    elements: np.ndarray
    a: np.ndarray
    b: np.ndarray
    va: SpaceVariable
    vb: SpaceVariable
    start_a: int
    start_b: int

    def __post_init__(self):
        pairs = np.stack([self.a, self.b], 1)
        self.pairs, self.merge = np.unique(pairs, axis=0, return_inverse=True)
        self.merge = self.merge.reshape(-1)
        self.sides = [self._side(0), self._side(1)]

    def _side(self, s: int) -> dict[str, Any]:
        """For every site on one side its pairs, padded: the pair (or one past the end) and the
        site across.
        """
        start, v = (self.start_a, self.va) if s == 0 else (self.start_b, self.vb)
        rows = Rows.build(self.pairs[:, s], np.arange(len(self.pairs)), start, v.size)
        pair = np.where(rows.mask, rows.index, len(self.pairs))
        across = self.pairs[rows.index, 1 - s]
        return {"rows": rows, "pair": pair, "across": across}

    def tables(self, reader_state, dependence: Dependence):
        """P (E, Ka, Kb), and for both sides the tables of every site's pairs.

        These are (R, deg, K, K across) for some, (deg, K, K across, R) for all. All at once vectorises over
        sites, which must then be neighbours in memory; a few are quicker to fetch where each is in one piece.
        """
        Ka, Kb = self.va.K, self.vb.K
        k = np.arange(Ka * Kb)
        at_a = jnp.asarray(self.va.lower[self.a - self.start_a][:, None] + k // Kb)
        at_b = jnp.asarray(self.vb.lower[self.b - self.start_b][:, None] + k % Kb)
        reader = Reader(dependence, reader_state, moves=Moves([self.a, self.b], [at_a, at_b]))
        values = weighted(reader.read(self.term.var, self.elements[:, None]), self.term, reader_state)[:, 0]
        values = levelled(jnp.broadcast_to(values, (len(self.elements), Ka * Kb)))
        if len(self.pairs) < len(self.elements):
            values = jax.ops.segment_sum(values, self.merge, len(self.pairs))
        elif (self.merge != np.arange(len(self.merge))).any():
            values = values[np.argsort(self.merge)]
        padded = jnp.concatenate([values, jnp.zeros((1, Ka * Kb), values.dtype)]).reshape(-1, Ka, Kb)
        by_site = [padded[self.sides[0]["pair"]], padded.transpose(0, 2, 1)[self.sides[1]["pair"]]]
        return padded[:-1], [{"some": t, "all": jnp.moveaxis(t, 0, -1)} for t in by_site]

    @staticmethod
    def table_of(tables, rows):
        """The table of the rows: (r, deg, K, K across) where they are known at run time only, else (deg, K, K
        across, r).
        """
        if rows is None:
            return tables["all"]
        return tables["all"][..., rows] if isinstance(rows, np.ndarray) else tables["some"][rows]

    @staticmethod
    def values_axis(rows) -> int:
        """The axis of K in the table of the rows."""
        return 1 if rows is None or isinstance(rows, np.ndarray) else 2

    def fields(self, side: int, table, x, rows=None, without=None):
        """(r, K): sum over a site's pairs of P[k, x across], `table` being that of the rows; not over those
        `without` (d,) bool across.
        """
        across, v = picked(self.sides[side]["across"], rows), (self.vb, self.va)[side]
        start = (self.start_b, self.start_a)[side]
        static = isinstance(across, np.ndarray)
        across = across.T if static else across
        value = take(x, across) if static else x.at[across].get(mode="promise_in_bounds")
        lower = v.lower[0] if (v.lower == v.lower[0]).all() else picked(v.lower, across - start)
        place = value - lower
        axis = 0 if static else 1
        found = selected(table, jnp.expand_dims(place, axis + 1 if static else -1), axis + 2)
        if without is not None:
            found = jnp.where(jnp.expand_dims(without[across], axis + 1 if static else -1), 0.0, found)
        return found.sum(axis=0).T if static else found.sum(axis=1)


def selected(table, place, axis: int):
    """`table[..., place, ...]` along one axis; `place` lacks it."""
    L = table.shape[axis]
    if L <= 8:  # a chain of selects vectorises, a gather does not
        parts = [jax.lax.index_in_dim(table, value, axis, keepdims=False) for value in range(L)]
        out = parts[0]
        for value in range(1, L):
            out = jnp.where(place == value, parts[value], out)
        return out
    return jnp.take_along_axis(
        table, jnp.expand_dims(place, axis), axis=axis, mode="promise_in_bounds"
    ).squeeze(axis)


@dataclass
class Pointwise:
    """Elements of one term, evaluated at the moves of one variable's sites.

    `elementwise` names an array (the gradient of the rest) that weighs each element, for the first-order
    estimate; `linear` says that the rest is linear in the elements, so that the estimate is none.
    """

    term: SparseTerm
    rows: Rows
    start: int
    v: SpaceVariable
    elementwise: Any = None
    linear: bool = True

    def moves(self, x, space: Space, dependence: Dependence, reader_state, rows=None, candidates=None):
        """(r, moves) nats; `candidates` (r, moves) are values to go to instead of the neighbours."""
        if candidates is None:
            complete = self.rows.complete and rows is None
            candidates = space.values_of(
                x, self.start, self.v, None if complete else picked(self.rows.local, rows)
            )
        index, var = self.rows.index, self.term.var
        now = Reader(dependence, reader_state, rows).read(var, index)
        then = Reader(dependence, reader_state, rows, Moves([self.rows.site], [candidates])).read(var, index)
        if self.elementwise is not None:
            # Grathwohl et al. 2021, Eq. 3 and 4: the gradient times the step
            slope = Reader(dependence, {self.elementwise: reader_state[self.elementwise]}, rows).read(
                self.elementwise, index
            )
            change = jnp.where(slope == 0, 0.0, slope * (then.astype(slope.dtype) - now.astype(slope.dtype)))
            if not self.linear:
                # at an edge of the density's domain the slope is no number, and weight 0 would make what lies
                # beyond unreachable
                change = jnp.where(jnp.isfinite(change), change, 0.0)
        else:
            change = difference(
                weighted(then, self.term, reader_state), weighted(now, self.term, reader_state)
            )
        mask = self.rows.mask
        if rows is not None and not mask.all():
            mask = picked(mask, rows)
        n = len(self.rows.site) if rows is None else rows.shape[0]
        return jnp.broadcast_to(masked_sum(change, mask), (n, candidates.shape[1]))


def weighted(values, term: SparseTerm, state):
    values = values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(jnp.result_type(float))
    if term.weight is None:
        return values
    weight = term.weight.data if hasattr(term.weight, "data") else state[term.weight]
    return values * jnp.asarray(weight).reshape(())


def levelled(values):
    """Each element's values over its candidates (..., k), in float32 less their largest: a sum of many would
    drown how they differ.
    """
    if not narrow():
        return values
    top = values.max(axis=-1, keepdims=True)
    return jnp.where(jnp.isfinite(top), values - top, values)


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
