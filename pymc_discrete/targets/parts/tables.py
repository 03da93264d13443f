r"""Exact differences of elements of one or two sites, tabulated once per context.

With finite sites the log density of such elements is a sum of tables,

.. math:: C_{ik} = U_{ik} + \sum_{j \sim i} P_{ij}[k, x_j], \qquad d_{ik} = C_{ik} - C_{i x_i}
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable

from pymc_discrete.targets.float32 import levelled
from pymc_discrete.targets.indexing import picked, take
from pymc_discrete.targets.parts.evaluate import Moves, Reader
from pymc_discrete.targets.parts.in_place import leaves_of
from pymc_discrete.targets.parts.part import Factors, Here, Part
from pymc_discrete.targets.parts.rows import Rows, difference, masked_sum, weighted
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.structure.dependence import Dependence
from pymc_discrete.targets.structure.terms import Term

LARGEST_TABLES = 5_000_000  # entries


# ---------------------------------------------------------------- elements of one site
@dataclass
class Unary:
    """The elements of a term that depend on one site of a finite variable each.

    Attributes
    ----------
    rows : which elements belong to each site
    n : number of the variable
    """

    term: Term
    rows: Rows
    n: int
    dependence: Dependence
    space: Space

    def table(self, state: dict[Variable, Any]):
        """(size, K) nats, what the elements add to the log density at every value of each site."""
        v = self.space.variables[self.n]
        candidates = jnp.asarray(v.lower[self.rows.local][:, None] + np.arange(v.K))
        reader = Reader(self.dependence, state, moves=Moves([self.rows.site], [candidates]))
        values = weighted(reader.read(self.term.var, self.rows.index), self.term, state)
        values = masked_sum(levelled(values), self.rows.mask)
        values = jnp.broadcast_to(values, (len(self.rows.site), v.K))
        return self.rows.add(jnp.zeros((v.size, v.K), values.dtype), values)


# ---------------------------------------------------------------- elements of two sites
class Side(NamedTuple):
    """The pairs of the sites of one of the two variables that a `Pair` joins, padded.

    Attributes
    ----------
    n, other : numbers of the variable and of the one across
    rows : the pairs of each site
    pair : (R, deg) int, the same, one past the last pair for none
    across : (R, deg) int, the site at the other end
    """

    n: int
    other: int
    rows: Rows
    pair: np.ndarray
    across: np.ndarray

    def table_of(self, tables: "TablesOfSide", rows):
        """The table of the rows: (r, deg, K, K across) where they are known at run time only, else (deg, K, K
        across, r).
        """
        if rows is None:
            return tables.rows_last
        return tables.rows_last[..., rows] if isinstance(rows, np.ndarray) else tables.rows_first[rows]


class TablesOfSide(NamedTuple):
    """The tables of every site's pairs, in two layouts.

    All sites at once vectorise over the sites, which must then be neighbours in memory; a few are quicker to
    fetch where each is in one piece.

    Attributes
    ----------
    rows_first : (R, deg, K, K across)
    rows_last : (deg, K, K across, R)
    """

    rows_first: Any
    rows_last: Any


def values_axis(rows) -> int:
    """The axis of K in what `Side.table_of` gives for the rows."""
    return 1 if rows is None or isinstance(rows, np.ndarray) else 2


class Pair:
    """The elements of a term that join a site of one finite variable to a site of another (or the same).

    Parameters
    ----------
    elements : (n,) int, flat indices
    a, b : (n,) int, their sites
    numbers : the two variables

    Attributes
    ----------
    pairs : (E, 2) int, the different pairs of sites, of which each has one table
    """

    def __init__(
        self,
        term: Term,
        elements: np.ndarray,
        a: np.ndarray,
        b: np.ndarray,
        numbers: tuple[int, int],
        dependence: Dependence,
        space: Space,
    ):
        self.term, self.elements, self.a, self.b, self.numbers = term, elements, a, b, numbers
        self.dependence, self.space = dependence, space
        pairs = np.stack([a, b], 1)
        self.pairs, merge = np.unique(pairs, axis=0, return_inverse=True)
        self._merge = merge.reshape(-1)
        self.sides = (self._side(0), self._side(1))

    def _side(self, s: int) -> Side:
        n, other = self.numbers[s], self.numbers[1 - s]
        start, v = self.space.blocks[n]
        rows = Rows.build(self.pairs[:, s], np.arange(len(self.pairs)), start, v.size)
        pair = np.where(rows.mask, rows.index, len(self.pairs))
        return Side(n, other, rows, pair, self.pairs[rows.index, 1 - s])

    @property
    def widths(self) -> tuple[int, int]:
        """The values of a site at either end."""
        a, b = (self.space.variables[n].K for n in self.numbers)
        return a, b

    def tables(self, state: dict[Variable, Any]) -> tuple[Any, tuple[TablesOfSide, TablesOfSide]]:
        """(E, Ka, Kb) nats, the tables of `pairs`; and for both sides those of every site's pairs."""
        (start_a, va), (start_b, vb) = (self.space.blocks[n] for n in self.numbers)
        Ka, Kb = va.K, vb.K
        k = np.arange(Ka * Kb)
        at_a = jnp.asarray(va.lower[self.a - start_a][:, None] + k // Kb)
        at_b = jnp.asarray(vb.lower[self.b - start_b][:, None] + k % Kb)
        reader = Reader(self.dependence, state, moves=Moves([self.a, self.b], [at_a, at_b]))
        values = weighted(reader.read(self.term.var, self.elements[:, None]), self.term, state)[:, 0]
        values = levelled(jnp.broadcast_to(values, (len(self.elements), Ka * Kb)))
        if len(self.pairs) < len(self.elements):
            values = jax.ops.segment_sum(values, self._merge, len(self.pairs))
        elif (self._merge != np.arange(len(self._merge))).any():
            values = values[np.argsort(self._merge)]
        padded = jnp.concatenate([values, jnp.zeros((1, Ka * Kb), values.dtype)]).reshape(-1, Ka, Kb)
        a, b = padded[self.sides[0].pair], padded.transpose(0, 2, 1)[self.sides[1].pair]
        return padded[:-1], (
            TablesOfSide(a, jnp.moveaxis(a, 0, -1)),
            TablesOfSide(b, jnp.moveaxis(b, 0, -1)),
        )

    def log_weights(self, side: Side, table, x, rows=None, without=None):
        """(r, K) nats: sum over a site's pairs of P[k, x across].

        Parameters
        ----------
        table : as `Side.table_of` gives it for `rows`
        without : (d,) bool, sites across whose pairs are left out
        """
        across, (start, v) = picked(side.across, rows), self.space.blocks[side.other]
        static = isinstance(across, np.ndarray)
        across = across.T if static else across
        value = take(x, across) if static else x.at[across].get(mode="promise_in_bounds")
        lower = v.lower[0] if (v.lower == v.lower[0]).all() else picked(v.lower, across - start)
        place = value - lower
        axis = 0 if static else 1
        at_x = entries_at(table, jnp.expand_dims(place, axis + 1 if static else -1), axis + 2)
        if without is not None:
            at_x = jnp.where(jnp.expand_dims(without[across], axis + 1 if static else -1), 0.0, at_x)
        return at_x.sum(axis=0).T if static else at_x.sum(axis=1)


def entries_at(table, place, axis: int):
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


# ---------------------------------------------------------------- the part
class TablesContext(NamedTuple):
    """The tables in a context.

    Attributes
    ----------
    unary : {variable number: (size, K) nats}
    joint : [(E, Ka, Kb) nats], for each `Pair` the tables of its `pairs`
    by_site : [(TablesOfSide, TablesOfSide)], the same by site
    """

    unary: dict[int, Any]
    joint: list[Any]
    by_site: list[tuple[TablesOfSide, TablesOfSide]]


class TableOfRows(NamedTuple):
    """The tables that some sites of a variable have in one of the pairs of variables.

    Attributes
    ----------
    rows : (r,) int, the rows of the side that belong to the sites, -1 for none; None is all
    table : as `Side.table_of` gives it for them, or what is made of it
    """

    pair: Pair
    side: Side
    rows: Any
    table: Any


class TablesOfRows(NamedTuple):
    """The tables of some sites of a variable: (r, K) or None, and those of pairs."""

    unary: Any
    pairs: list[TableOfRows]


class Tables(Part):
    """Elements of one or two sites that are tabulated.

    Parameters
    ----------
    unary, pairs : which elements; several of one variable, or of one pair of variables, add up
    """

    def __init__(self, unary: list[Unary], pairs: list[Pair], dependence: Dependence, space: Space):
        super().__init__(dependence, space)
        self.unary, self.pairs = unary, pairs

    @cached_property
    def sites(self) -> np.ndarray:
        single = [u.rows.site for u in self.unary]
        return np.unique(
            np.concatenate([np.zeros(0, int), *single, *(p.pairs.reshape(-1) for p in self.pairs)])
        )

    @cached_property
    def variables(self) -> set[int]:
        return {u.n for u in self.unary} | {n for p in self.pairs for n in p.numbers}

    @property
    def links(self) -> list[np.ndarray]:
        return [p.pairs for p in self.pairs]

    @property
    def leaves(self) -> list[Variable]:
        return leaves_of([*(u.term for u in self.unary), *(p.term for p in self.pairs)], self.graph.values)

    def context(self, state: dict[Variable, Any]) -> TablesContext:
        unary: dict[int, Any] = {}
        for u in self.unary:
            table = u.table(state)
            unary[u.n] = unary[u.n] + table if u.n in unary else table
        pairs = [p.tables(state) for p in self.pairs]
        return TablesContext(unary, [joint for joint, _ in pairs], [by_site for _, by_site in pairs])

    def context_of(self, n: int, context: TablesContext, rows: Any) -> TablesOfRows:
        unary = context.unary.get(n)
        unary = unary if unary is None or rows is None else unary[rows]
        pairs = []
        for p, of_sides in zip(self.pairs, context.by_site, strict=True):
            for side, tables in zip(p.sides, of_sides, strict=True):
                if side.n == n:
                    own = None if rows is None else side.rows.place(rows, self.space.variables[n].size)
                    pairs.append(TableOfRows(p, side, own, side.table_of(tables, own)))
        return TablesOfRows(unary, pairs)

    def differences(self, n: int, here: Here, at: Any, context: TablesOfRows, rows=None, candidates=None):
        start, v = self.space.blocks[n]
        weights = self._log_weights(n, here.x, context)
        now = here.x[start : start + v.size] if rows is None else here.x[start + rows]
        place = (now - picked(v.lower, rows))[:, None]
        if v.K <= 8:
            current = weights[:, :1]
            for k in range(1, v.K):
                current = jnp.where(place == k, weights[:, k : k + 1], current)
        else:
            current = jnp.take_along_axis(weights, place, axis=1, mode="clip")
        return difference(weights, current)

    def log_weights(self, n: int, here: Here, at: Any, context: TablesOfRows, inside: np.ndarray):
        return self._log_weights(n, here.x, context, inside)

    def _log_weights(self, n: int, x, context: TablesOfRows, without=None):
        """(r, K) nats at each value, or None where every pair is left out: see `log_weights`."""
        total = context.unary
        for pair, side, own, table in context.pairs:
            if isinstance(without, np.ndarray) and without[side.across].all():
                continue
            part = pair.log_weights(side, table, x, own, without)
            if own is None and not side.rows.complete:
                zeros = jnp.zeros((self.space.variables[n].size, part.shape[1]), part.dtype)
                part = zeros.at[side.rows.local].add(part)
            elif not side.rows.complete:
                part = jnp.where((own >= 0)[:, None], part, 0.0)
            total = part if total is None else total + part
        return total

    def logits(self, n: int, rows: Any, context: TablesContext) -> Callable:
        """(x) -> (r, K) log conditional probabilities of sites of a finite variable, up to a constant a site.

        Where every site has two values (r, 1), the log odds of the upper one: their tables are subtracted
        once, not at every x.
        """
        v, of_rows = self.space.variables[n], self.context_of(n, context, rows)
        binary = bool((v.counts == 2).all())
        if binary:
            unary = None if of_rows.unary is None else log_odds(of_rows.unary)
            of_rows = TablesOfRows(
                unary, [t._replace(table=log_odds(t.table, values_axis(t.rows))) for t in of_rows.pairs]
            )
        exists = np.arange(v.K) < v.counts[:, None]

        def at(x):
            weights = self._log_weights(n, x, of_rows)
            if weights is None:
                weights = jnp.zeros((v.size if rows is None else rows.shape[0], 1 if binary else v.K))
            # nan: every value is impossible, and none more than the others
            if binary:
                return jnp.where(jnp.isnan(weights), 0.0, weights)
            weights = jnp.where(jnp.isnan(weights), -jnp.inf, weights)
            weights = jnp.where((weights == -jnp.inf).all(axis=1, keepdims=True), 0.0, weights)
            return weights if exists.all() else jnp.where(picked(exists, rows), weights, -jnp.inf)

        return at

    def factors(self, context: TablesContext, here_at: Callable[[Any], Here]) -> Factors:
        joint = zip(self.pairs, context.joint, strict=True)
        return Factors(context.unary, [(p.pairs, table) for p, table in joint], {})

    # ------------------------------------------------------------ the tables themselves
    @cached_property
    def _merged(self) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """`joined`; which of its pairs every table is of; for each `Pair`, which of its tables are to be
        transposed.
        """
        every = np.concatenate([np.zeros((0, 2), int), *(p.pairs for p in self.pairs)])
        flipped = every[:, 0] > every[:, 1]
        joined, merge = np.unique(np.sort(every, axis=1), axis=0, return_inverse=True)
        ends = np.cumsum([len(p.pairs) for p in self.pairs])[:-1]
        return joined, merge.reshape(-1), np.split(flipped, ends)

    @property
    def joined(self) -> np.ndarray:
        """(E, 2) int, the pairs of sites that have a table, the lower first."""
        return self._merged[0]

    def joint(self, context: TablesContext):
        """(E, K, K) nats, the tables of `joined`, padded with -inf to the widest."""
        joined, merge, flipped = self._merged
        K, whole = max(max(p.widths) for p in self.pairs), []
        for table, flip in zip(context.joint, flipped, strict=True):
            missing = ((0, 0), (0, K - table.shape[1]), (0, K - table.shape[2]))
            wide = jnp.pad(table, missing, constant_values=-jnp.inf)
            transposed = wide.transpose(0, 2, 1)
            whole.append(jnp.where(flip[:, None, None], transposed, wide) if flip.any() else wide)
        tables = jnp.concatenate(whole)
        if np.array_equal(merge, np.arange(len(joined))):
            return tables
        return jax.ops.segment_sum(tables, merge, len(joined))

    # ------------------------------------------------------------ cost
    def cost(self, share: float, values: list[int]) -> float:
        each = 4.0 if share < 1 else 0.5  # a few are gathered, all at once run along vectors
        return share * sum(
            each * side.pair.size * p.widths[0] * p.widths[1] for p in self.pairs for side in p.sides
        )


def log_odds(values, axis: int = 1):
    """Log density at the upper of two values less that at the lower, the axis kept; 0 where both are
    impossible.
    """
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    lower, upper = jnp.split(values, 2, axis=axis)
    return jnp.where(lower == upper, 0.0, upper - lower)
