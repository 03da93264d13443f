r"""Exact differences of elements of one or two sites, tabulated once per context.

Where sites have finitely many values, let :math:`U_i` be the sum of the elements that depend on site i alone,
and :math:`P_{ij}` of those that depend on sites i and j, as tables over their values. The sum of all elements
with site i at its k-th value is, up to what does not depend on site i,

.. math:: C_{ik} = U_{ik} + \sum_{j \sim i} P_{ij}[k, x_j], \qquad d_{ik} = C_{ik} - C_{i x_i}
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable

from pymc_discrete.differences.parts.elements import (
    SiteElements,
    TermElements,
    difference,
    leaves_of,
    masked_sum,
    weighted_values,
)
from pymc_discrete.differences.parts.evaluate import JointMoves, Moves, Reader
from pymc_discrete.differences.parts.part import BlockState, Factors, Part
from pymc_discrete.runtime.float32 import relative_to_largest
from pymc_discrete.space.density import log_odds
from pymc_discrete.space.indexing import picked, take, unique_pairs
from pymc_discrete.space.space import Space
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.terms import Term

# the largest number of elements of the tables that a term has for one variable, or for a pair of variables
LARGEST_TABLES = 5_000_000


# ---------------------------------------------------------------- elements of one site
class Unary(TermElements):
    """The elements of a term that depend on one site of a finite variable each."""

    def table(self, arrays: dict[Variable, Any]):
        """(size, K) nats, the sum of the elements of each site, at each of its values."""
        v = self.space.variables[self.n]
        candidates = jnp.asarray(v.lower[self.elements.local][:, None] + np.arange(v.K))
        reader = Reader(self.dependence, arrays, moves=Moves([self.elements.site], [candidates]))
        values = weighted_values(reader.read(self.term.var, self.elements.index), self.term, arrays)
        values = masked_sum(relative_to_largest(values), self.elements.mask)
        values = jnp.broadcast_to(values, (len(self.elements.site), v.K))
        return self.elements.add(jnp.zeros((v.size, v.K), values.dtype), values)


# ---------------------------------------------------------------- elements of two sites
class Side(NamedTuple):
    """One of the two variables that a `Pair` joins, with the pairs of each of its sites.

    Attributes
    ----------
    n, other : int
        The indices of this variable and of the variable at the other end of the pairs.
    site_pairs : SiteElements
        The pairs that each site belongs to, for R sites with up to deg pairs each.
    pair : (R, deg) int
        The index of each pair of each site; padding is the number of all pairs, one more than the last index.
    across : (R, deg) int
        The site at the other end of each pair.
    """

    n: int
    other: int
    site_pairs: SiteElements
    pair: np.ndarray
    across: np.ndarray

    def table_of(self, tables: "TablesOfSide", positions):
        """The tables of the pairs that some sites on this side belong to.

        Parameters
        ----------
        tables : TablesOfSide
        positions : (r,) int
            The rows of `site_pairs` for these sites; None means all.

        Returns
        -------
        (deg, K, K across, r) nats
            For each of r sites the tables of up to deg pairs: over the K values of the site, and those of the
            site at the other end. The shape is (r, deg, K, K across) where the positions are known at run
            time only.
        """
        if positions is None:
            return tables.sites_last
        static = isinstance(positions, np.ndarray)
        return tables.sites_last[..., positions] if static else tables.sites_first[positions]


class TablesOfSide(NamedTuple):
    """The tables of the pairs of every site, in two layouts.

    Code for all sites at once is vectorised over the sites, which must then be adjacent in memory. The tables
    of a few sites, known at run time only, are fetched faster if the tables of each site are contiguous.

    There are R sites with up to deg pairs each; a table is over the K values of the site and the "K across"
    values of the site at the other end of the pair.

    Attributes
    ----------
    sites_first : (R, deg, K, K across) nats
    sites_last : (deg, K, K across, R) nats
    """

    sites_first: Any
    sites_last: Any


def values_axis(positions) -> int:
    """The axis of the K values of a site in the tables that `Side.table_of` returns for these positions."""
    return 1 if positions is None or isinstance(positions, np.ndarray) else 2


class Pair:
    """The elements of a term that depend on two sites, each of a finite variable.

    The two sites of every element belong to the same two variables, or to one.

    Parameters
    ----------
    term : Term
    elements : (n,) int
        Flat indices of the elements.
    a, b : (n,) int
        The two sites of each element.
    numbers : (int, int)
        The indices of the variables that the sites in `a` and in `b` belong to.

    Attributes
    ----------
    pairs : (E, 2) int
        The distinct pairs of sites; each has one table, the sum over its elements.
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
        self.pairs, self._merge = unique_pairs(pairs)
        self.sides = (self._side(0), self._side(1))

    def _side(self, s: int) -> Side:
        n, other = self.numbers[s], self.numbers[1 - s]
        start, v = self.space.blocks[n]
        site_pairs = SiteElements.build(self.pairs[:, s], np.arange(len(self.pairs)), start, v.size)
        pair = np.where(site_pairs.mask, site_pairs.index, len(self.pairs))
        return Side(n, other, site_pairs, pair, self.pairs[site_pairs.index, 1 - s])

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of values, Ka and Kb, of the sites at either end of the pairs."""
        a, b = (self.space.variables[n].K for n in self.numbers)
        return a, b

    def tables(self, arrays: dict[Variable, Any]) -> tuple[Any, tuple[TablesOfSide, TablesOfSide]]:
        """(E, Ka, Kb) nats, the tables of `pairs`, and for both sides the tables arranged by site."""
        (start_a, va), (start_b, vb) = (self.space.blocks[n] for n in self.numbers)
        Ka, Kb = va.K, vb.K
        k = np.arange(Ka * Kb)
        at_a = jnp.asarray(va.lower[self.a - start_a][:, None] + k // Kb)
        at_b = jnp.asarray(vb.lower[self.b - start_b][:, None] + k % Kb)
        reader = Reader(self.dependence, arrays, moves=Moves([self.a, self.b], [at_a, at_b]))
        values = weighted_values(reader.read(self.term.var, self.elements[:, None]), self.term, arrays)[:, 0]
        values = relative_to_largest(jnp.broadcast_to(values, (len(self.elements), Ka * Kb)))
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

    def log_weights(self, side: Side, table, x, positions=None, without=None):
        """(r, K) nats, for each value of a site, the sum of its pairs' tables at x of their other sites.

        Parameters
        ----------
        side : Side
            The side of the pairs that the sites are on.
        table : the tables of the pairs, from `Side.table_of`; or, for sites of two values, the tables of the
            upper value less those of the lower
        x : (d,) int
        positions : (r,) int
            Entries of `side.site_pairs`, one for each site; None means all.
        without : (d,) bool
            The sites whose pairs with the evaluated sites are left out.
        """
        across, (start, v) = picked(side.across, positions), self.space.blocks[side.other]
        static = isinstance(across, np.ndarray)
        across = across.T if static else across
        value = take(x, across) if static else x.at[across].get(mode="promise_in_bounds")
        lower = v.lower[0] if (v.lower == v.lower[0]).all() else picked(v.lower, across - start)
        index = value - lower
        axis = 0 if static else 1
        at_x = entries_at(table, jnp.expand_dims(index, axis + 1 if static else -1), axis + 2)
        if without is not None:
            at_x = jnp.where(jnp.expand_dims(without[across], axis + 1 if static else -1), 0.0, at_x)
        return at_x.sum(axis=0).T if static else at_x.sum(axis=1)


def entries_at(table, index, axis: int):
    """The elements of `table` at the positions `index` along one axis; `index` has all axes but this one."""
    length = table.shape[axis]
    if length <= 8:  # for few values: selects one after another vectorise, and a gather does not
        slices = [jax.lax.index_in_dim(table, value, axis, keepdims=False) for value in range(length)]
        out = slices[0]
        for value in range(1, length):
            out = jnp.where(index == value, slices[value], out)
        return out
    return jnp.take_along_axis(
        table, jnp.expand_dims(index, axis), axis=axis, mode="promise_in_bounds"
    ).squeeze(axis)


# ---------------------------------------------------------------- the part
class TablesContext(NamedTuple):
    """The values of all tables, given a context.

    Attributes
    ----------
    unary : {variable number: (size, K) nats}
    joint : [(E, Ka, Kb) nats]
        For each `Pair` the tables of its `pairs`.
    by_site : [(TablesOfSide, TablesOfSide)]
        For each `Pair` the tables of its `pairs`, arranged by the sites of its two sides.
    """

    unary: dict[int, Any]
    joint: list[Any]
    by_site: list[tuple[TablesOfSide, TablesOfSide]]


class PairTable(NamedTuple):
    """The tables of some sites of a variable in one `Pair`.

    Attributes
    ----------
    positions : (r,) int
        The entries of `side.site_pairs` that belong to the sites, -1 for none; None means all.
    table : array
        The tables of the sites' pairs, from `Side.table_of`; or, for sites of two values, the tables of the
        upper value less those of the lower.
    """

    pair: Pair
    side: Side
    positions: Any
    table: Any


class SiteTables(NamedTuple):
    """The tables of some sites of a variable: the table of single sites, (r, K) or None, and the tables of
    pairs.
    """

    unary: Any
    pairs: list[PairTable]


class Tables(Part):
    """Elements of one or two sites that are tabulated.

    Parameters
    ----------
    unary : list of Unary
        The elements of one site each; several items for one variable are added up.
    pairs : list of Pair
        The elements of two sites each; several items for one pair of variables are added up.
    """

    def __init__(self, unary: list[Unary], pairs: list[Pair], dependence: Dependence, space: Space):
        super().__init__(dependence, space)
        self.unary, self.pairs = unary, pairs

    @cached_property
    def sites(self) -> np.ndarray:
        single = [u.elements.site for u in self.unary]
        return np.unique(
            np.concatenate([np.zeros(0, int), *single, *(p.pairs.reshape(-1) for p in self.pairs)])
        )

    @property
    def leaves(self) -> list[Variable]:
        return leaves_of([*(u.term for u in self.unary), *(p.term for p in self.pairs)], self.graph.values)

    def context(self, arrays: dict[Variable, Any]) -> TablesContext:
        unary: dict[int, Any] = {}
        for u in self.unary:
            table = u.table(arrays)
            unary[u.n] = unary[u.n] + table if u.n in unary else table
        pairs = [p.tables(arrays) for p in self.pairs]
        return TablesContext(unary, [joint for joint, _ in pairs], [by_site for _, by_site in pairs])

    def context_of(self, n: int, context: TablesContext, rows: Any) -> SiteTables:
        unary = context.unary.get(n)
        unary = unary if unary is None or rows is None else unary[rows]
        pairs = []
        for p, of_sides in zip(self.pairs, context.by_site, strict=True):
            for side, tables in zip(p.sides, of_sides, strict=True):
                if side.n == n:
                    size = self.space.variables[n].size
                    positions = None if rows is None else side.site_pairs.positions(rows, size)
                    pairs.append(PairTable(p, side, positions, side.table_of(tables, positions)))
        return SiteTables(unary, pairs)

    def differences(
        self, n: int, state: BlockState, at: Any, context: SiteTables, rows=None, candidates=None
    ):
        start, v = self.space.blocks[n]
        weights = self._log_weights(n, state.x, context)
        now = state.x[start : start + v.size] if rows is None else state.x[start + rows]
        index = (now - picked(v.lower, rows))[:, None]
        if v.K <= 8:
            current = weights[:, :1]
            for k in range(1, v.K):
                current = jnp.where(index == k, weights[:, k : k + 1], current)
        else:
            current = jnp.take_along_axis(weights, index, axis=1, mode="clip")
        if candidates is not None:
            columns = candidates - picked(v.lower, rows)[:, None]
            weights = jnp.take_along_axis(weights, columns, axis=1, mode="clip")
        return difference(weights, current)

    def joint_differences(
        self, n: int, state: BlockState, at: Any, context: TablesContext, moves: JointMoves
    ):
        # No table joins two sites of one set (see `Plan`), so the changes of all sites of the set add up.
        (start, v), sites = self.space.blocks[n], moves.each
        # If there are more moves than sites, the log weights of each site at all values are computed once,
        # and read for each of its moves.
        many = len(sites) > v.size
        weights = self._log_weights(n, state.x, self.context_of(n, context, None if many else sites))
        row = (sites if many else np.arange(len(sites)))[:, None]
        lower, now = picked(v.lower, sites)[:, None], state.x[start + sites][:, None]
        change = difference(*(weights[row, at - lower] for at in (moves.values_of_each, now)))
        return moves.summed(jnp.where(moves.first[:, None], change, 0.0))

    def log_weights(self, n: int, state: BlockState, at: Any, context: SiteTables, inside: np.ndarray):
        return self._log_weights(n, state.x, context, inside)

    def _log_weights(self, n: int, x, context: SiteTables, without=None):
        """(r, K) nats, the sum of the tables at each value of some sites of variable n, or for tables of log
        odds (r, 1); None if there is no table of single sites and `without` leaves out all pairs.
        """
        total = context.unary
        for pair, side, positions, table in context.pairs:
            if isinstance(without, np.ndarray) and without[side.across].all():
                continue
            part = pair.log_weights(side, table, x, positions, without)
            if positions is None and not side.site_pairs.complete:
                zeros = jnp.zeros((self.space.variables[n].size, part.shape[1]), part.dtype)
                part = zeros.at[side.site_pairs.local].add(part)
            elif not side.site_pairs.complete:
                part = jnp.where((positions >= 0)[:, None], part, 0.0)
            total = part if total is None else total + part
        return total

    def logits(self, n: int, rows: Any, context: TablesContext) -> Callable:
        """The log conditional probabilities of sites of a finite variable, as a function of x.

        Returns
        -------
        callable
            (x) -> (r, K), up to a constant for each site. If every site has two values, the shape is (r, 1),
            and the result is the log odds of the upper value: the tables of the two values are subtracted
            once, not at every x.
        """
        v, tables = self.space.variables[n], self.context_of(n, context, rows)
        binary = bool((v.counts == 2).all())
        if binary:
            unary = None if tables.unary is None else log_odds(tables.unary)
            tables = SiteTables(
                unary, [t._replace(table=log_odds(t.table, values_axis(t.positions))) for t in tables.pairs]
            )
        exists = np.arange(v.K) < v.counts[:, None]

        def logits_at(x):
            weights = self._log_weights(n, x, tables)
            if weights is None:
                weights = jnp.zeros((v.size if rows is None else rows.shape[0], 1 if binary else v.K))
            # Where no value of a site is possible, all count as equally likely. The log odds of two
            # impossible values are nan.
            if binary:
                return jnp.where(jnp.isnan(weights), 0.0, weights)
            weights = jnp.where(jnp.isnan(weights), -jnp.inf, weights)
            weights = jnp.where((weights == -jnp.inf).all(axis=1, keepdims=True), 0.0, weights)
            return weights if exists.all() else jnp.where(picked(exists, rows), weights, -jnp.inf)

        return logits_at

    def factors(self, context: TablesContext, state_at: Callable[[Any], BlockState]) -> Factors:
        joint = zip(self.pairs, context.joint, strict=True)
        return Factors(context.unary, [(p.pairs, table) for p, table in joint], {})

    # ------------------------------------------------------------ the tables themselves
    @cached_property
    def _merged(self) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """The pairs of sites that have a table, and how the tables of all `Pair`s add up to one for each.

        Returns
        -------
        joined : (E, 2) int
        merge : (n,) int
            For each of the n tables the pair in `joined` that it belongs to.
        flipped : list of (n,) bool
            For each `Pair` whether each of its tables must be transposed, so that the lower site comes first.
        """
        pairs = np.concatenate([np.zeros((0, 2), int), *(p.pairs for p in self.pairs)])
        flipped = pairs[:, 0] > pairs[:, 1]
        joined, merge = unique_pairs(np.sort(pairs, axis=1))
        ends = np.cumsum([len(p.pairs) for p in self.pairs])[:-1]
        return joined, merge, np.split(flipped, ends)

    @property
    def joined(self) -> np.ndarray:
        """(E, 2) int, the pairs of sites that have a table, the lower site first."""
        return self._merged[0]

    def joint(self, context: TablesContext):
        """(E, K, K) nats, the table of each pair of sites in `joined`, padded with -inf to the largest K."""
        joined, merge, flipped = self._merged
        K, padded = max(max(p.widths) for p in self.pairs), []
        for table, flip in zip(context.joint, flipped, strict=True):
            missing = ((0, 0), (0, K - table.shape[1]), (0, K - table.shape[2]))
            wide = jnp.pad(table, missing, constant_values=-jnp.inf)
            transposed = wide.transpose(0, 2, 1)
            padded.append(jnp.where(flip[:, None, None], transposed, wide) if flip.any() else wide)
        tables = jnp.concatenate(padded)
        if np.array_equal(merge, np.arange(len(joined))):
            return tables
        return jax.ops.segment_sum(tables, merge, len(joined))

    # ------------------------------------------------------------ cost
    def cost(self, share: float, values: list[int]) -> float:
        # The operations counted for each element of a table are more if only some sites are evaluated: their
        # tables are fetched by index, which takes longer than to read the tables of all sites in order.
        each = 4.0 if share < 1 else 0.5
        return share * sum(
            each * side.pair.size * p.widths[0] * p.widths[1] for p in self.pairs for side in p.sides
        )
