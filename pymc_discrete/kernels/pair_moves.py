"""Moves of spaces in which some sites change only together: transfers between counts, swaps, single sites.

All moves of a space are numbered from 0, and the meaning of a number does not depend on the state: one count
gives a fixed number of units to another, two elements of a permutation swap their values, or a site that may
change alone makes a cyclic shift or changes by an offset. Every move therefore has one inverse. Transfers and
moves of single sites commute; swaps do not, and a sequence of moves is undone by the inverse moves in reverse
order.
"""

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import LARGEST_DIFFERENCE, log_weights
from pymc_discrete.kernels.kernel import State
from pymc_discrete.kernels.local_moves import SingleSites, Weights, scaled, updated
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.constraints import PairConstraint
from pymc_discrete.space.indexing import picked
from pymc_discrete.space.space import SMALLEST, Space, Variable

# A change of one site alone may be impossible although it is possible together with a change of another site.
# In the table of `PairMoves.table` such a change lowers the log density by this many nats, and not by
# infinitely many.
IMPOSSIBLE_PENALTY = 5.0


class MoveGroup(ABC):
    """The R C moves of one variable: each of R rows of sites, pairs or single sites, changes in one of C
    ways.

    A way to change is a number of units, a shift or an offset.

    Parameters
    ----------
    n, start, v : the index of the variable in the space, its first site, and the variable

    Attributes
    ----------
    sites : (R, J) int, the sites of each row, counted within the variable; J is 2 for pairs, else 1
    C : int, the number of ways
    """

    sites: np.ndarray
    C: int

    def __init__(self, n: int, start: int, v: Variable):
        self.n, self.start, self.v = n, start, v

    @property
    def size(self) -> int:
        return len(self.sites) * self.C

    @property
    def rows_of(self) -> np.ndarray:
        """(size of the variable, m) int, the m rows that hold each site."""
        return (np.argsort(self.sites.reshape(-1), kind="stable") // self.sites.shape[1]).reshape(
            self.v.size, -1
        )

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest number of moves of which no two change the same site."""

    @abstractmethod
    def moved(self, now: Any, row: Any, way: Any) -> Any:
        """(..., J) int, the values of the sites of a row after they changed in one of the C ways; `now` are
        the old values.
        """

    @abstractmethod
    def inverse(self, row: Any, way: Any) -> Any:
        """The one of the C ways that undoes the change `way` of a row."""

    @abstractmethod
    def differences(self, target: Any, x: Any, carried: Any, rows: Any = None) -> Any:
        """(r, C) nats, the changes of the log density by each move of some rows (None: all rows) from x (d,).

        Parameters
        ----------
        carried : `target.carried(x)`, by which differences take less time; None if it was not computed
        """

    @abstractmethod
    def estimates(self, table: Any, x: Any, z: Any, rows: Any = None) -> Any:
        """(r, C) nats, estimates of the differences of moves from z (d,): sums of the changes by single
        sites.

        The argument `table` (size, K) has the changes of the log density if a site alone changes at x (d,). A
        site that goes from value a to b adds table[b] - table[a]. For a site with a window the table has only
        the offsets from the value in x: if the site has another value in z, its moves count as impossible.
        """


class FreeSites(MoveGroup):
    """Single sites: cyclic shifts by 1, ..., K - 1 on finite supports, else the offsets of the window."""

    def __init__(self, n: int, start: int, v: Variable):
        super().__init__(n, start, v)
        self.sites, self.C = np.arange(v.size)[:, None], v.moves

    @property
    def longest(self) -> int:
        return self.v.size

    def moved(self, now, row, way):
        if not self.v.finite:
            return now + jnp.asarray(self.v.offsets)[way][..., None]
        lower, counts = jnp.asarray(self.v.lower)[row], jnp.asarray(self.v.counts)[row]
        return lower[..., None] + jnp.remainder(
            now - lower[..., None] + way[..., None] + 1, counts[..., None]
        )

    def inverse(self, row, way):
        return jnp.asarray(self.v.counts)[row] - 2 - way if self.v.finite else self.C - 1 - way

    def differences(self, target, x, carried, rows=None):
        if rows is None:
            table = target.differences(x)[self.start : self.start + self.v.size, : self.v.K]
        else:
            table = target.rows(self.n, rows)(x)
        return self._by_move(table, x, x, rows)

    def estimates(self, table, x, z, rows=None):
        return self._by_move(table if rows is None else table[rows], x, z, rows)

    def _by_move(self, table, x, z, rows):
        """(r, C) nats, the change of the log density by each move of some rows from z, as estimated from the
        `table` (r, K) of changes of single sites at x.
        """
        sites = self.start + (np.arange(self.v.size) if rows is None else rows)
        if not self.v.finite:
            return jnp.where((z == x)[sites][:, None], table, -jnp.inf)
        index = (z[sites] - picked(self.v.lower, rows))[:, None]
        counts = picked(self.v.counts, rows)[:, None]
        shift = np.arange(1, self.v.K)
        then = jnp.take_along_axis(table, jnp.remainder(index + shift, counts), axis=1)
        return jnp.where(shift < counts, then - jnp.take_along_axis(table, index, axis=1), -jnp.inf)


class PairsOfSites(MoveGroup):
    """All pairs of sites of each set; the two sites of a pair change together."""

    def __init__(self, n: int, start: int, v: Variable):
        super().__init__(n, start, v)
        assert isinstance(v.constraint, PairConstraint)
        self.sets, self.sites = v.constraint.sites, v.constraint.pairs

    @property
    def longest(self) -> int:
        sets, c = self.sets.shape
        return sets * (c // 2)

    def differences(self, target, x, carried, rows=None):
        pairs = self.sites if rows is None else jnp.asarray(self.sites)[rows]
        rows = np.arange(len(self.sites)) if rows is None else rows
        values = self.moved(x[self.start + pairs][:, None], rows[:, None], np.arange(self.C)[None])
        return target.joint_differences(self.n, pairs, values, x, carried)


class Transfers(PairsOfSites):
    """Transfers of units between counts with a fixed sum: of 1, 2, 4, ... units, or by the offsets of the
    window.

    The first count of a pair gains what the second loses, or the other way round.
    """

    def __init__(self, n: int, start: int, v: Variable):
        super().__init__(n, start, v)
        self.units = units_of(v)
        self.C = len(self.units)

    def moved(self, now, row, way):
        gain = jnp.asarray(self.units, now.dtype)[way]
        return now + jnp.stack([gain, -gain], axis=-1)

    def inverse(self, row, way):
        return self.C - 1 - way

    def estimates(self, table, x, z, rows=None):
        pairs = self.sites if rows is None else jnp.asarray(self.sites)[rows]
        gains = self._gains(table, x, z, pairs)
        return gains[:, 0] + gains[:, 1, ::-1]

    def _gains(self, table, x, z, sites):
        """(r, J, C) nats, the change of the log density if one of `sites` (r, J) alone gains the units of a
        move, read from the `table` of changes by single sites.
        """
        now = z[self.start + sites][..., None]
        if not self.v.finite:  # the table has offsets from the value in x only, not from another value in z
            return jnp.where(now == x[self.start + sites][..., None], table[sites], -jnp.inf)
        lower, upper = (jnp.asarray(bound)[sites][..., None] for bound in (self.v.lower, self.v.upper))
        then, row = now + self.units, sites[..., None]
        gain = table[row, then - lower] - table[row, now - lower]
        return jnp.where((then >= lower) & (then <= upper), gain, -jnp.inf)


class Swaps(PairsOfSites):
    """Swaps: two elements of a permutation exchange their values."""

    C = 1

    def moved(self, now, row, way):
        return now[..., ::-1]

    def inverse(self, row, way):
        return way

    def estimates(self, table, x, z, rows=None):
        if rows is None:
            return jax.vmap(self._of_set)(table[self.sets], z[self.start + self.sets]).reshape(-1, 1)
        pairs = jnp.asarray(self.sites)[rows]
        now = z[self.start + pairs]
        gain = table[pairs, now[:, ::-1]] - table[pairs, now]
        return gain.sum(axis=1, keepdims=True)

    def _of_set(self, table, now):
        """(c (c - 1) / 2,) nats, estimates of the changes of the log density by all swaps of a permutation.

        `now` (c,) are the values of the permutation, and `table` (c, K) has the changes of the log density if
        an element alone takes another value.
        """
        # `gain[j, i]` is the change of the log density if element i takes the value of element j. Rows of the
        # table are gathered as a whole, which takes less time than to gather single elements.
        gain = table.T[now] - table[np.arange(len(now)), now]
        return (gain + gain.T)[np.triu_indices(len(now), 1)]


def units_of(v: Variable) -> np.ndarray:
    """(C,) int, the numbers of units that a count may gain in one move; a negative number is a loss.

    For counts with a window the numbers are the offsets of the window. Else they are 1, 2, 4, ... and their
    negatives, up to `SMALLEST` or to a quarter of the largest range, whichever is more. A quarter of 250
    units is about four standard deviations of a Poisson variable of mean 250.
    """
    if not v.finite:
        return np.asarray(v.offsets)
    widest = int((v.upper - v.lower).max(initial=0))
    reach = min(widest, max(SMALLEST, widest / 4))
    units = 2 ** np.arange(int(np.log2(reach)) + 1) if reach >= 1 else np.zeros(0, int)
    return np.concatenate([-units[::-1], units])


class PairMoves:
    """All moves of a space in which some sites change only together, numbered group by group.

    Within a group, move r C + c changes the sites of row r in the way c. The methods that kernels use are
    those of `SingleSites`; the methods about tables and estimates are for `path_auxiliary` only.

    Attributes
    ----------
    groups : list of (number of its first move, MoveGroup)
    size : the number of all moves
    longest : the largest number of moves of which no two change the same site
    """

    def __init__(self, space: Space):
        kinds: dict[bool | None, Any] = {None: FreeSites, False: Transfers, True: Swaps}
        groups = [
            kinds[None if v.constraint is None else v.constraint.swaps](n, start, v)
            for n, (start, v) in enumerate(space.blocks)
        ]
        groups = [group for group in groups if group.size]
        ends = np.cumsum([group.size for group in groups]).tolist()
        self.space, self.groups = space, list(zip([0, *ends], groups, strict=False))
        self.size, self.longest = ends[-1] if ends else 0, sum(group.longest for group in groups)

    def _each(self, move):
        """For each group: the group; whether the moves (...) belong to it; and the rows and the ways of these
        moves.
        """
        for first, group in self.groups:
            own = jnp.clip(move - first, 0, group.size - 1)
            yield group, (move >= first) & (move < first + group.size), own // group.C, own % group.C

    def _joined(self, arrays: list):
        """(size,) float, log weights or differences of all moves, concatenated from the arrays of
        the groups."""
        # A space without moves gets one element, of weight 0: a move that is never chosen.
        return jnp.concatenate([a.reshape(-1) for a in arrays]) if arrays else jnp.full(1, -jnp.inf)

    # ------------------------------------------------------------ moves
    def after(self, x, move):
        """(d,) int, x after a move ()."""
        for group, own, row, way in self._each(move):
            sites = group.start + jnp.asarray(group.sites)[row]
            x = x.at[sites].set(jnp.where(own, group.moved(x[sites], row, way), x[sites]).astype(x.dtype))
        return x

    def inverse(self, moves):
        """(...) int, the moves that undo the moves `moves` (...)."""
        back = moves
        for group, own, row, way in self._each(moves):
            back = jnp.where(own, moves - way + group.inverse(row, way), back)
        return back

    def made(self, x, moves, active):
        """(d,) int, x after those of `moves` (L,) that are `active` (L,), the first ones; and (L,) int, the
        inverse of each move.
        """
        if moves.shape[0] == 1:
            return self.after(x, moves[0]), self.inverse(moves)
        y = jax.lax.fori_loop(0, active.sum(), lambda t, y: self.after(y, moves[t]), x)
        return y, self.inverse(moves)

    def sites_of(self, moves):
        """(L, 2) int, the sites that `moves` (L,) change, padded with d."""
        sites = jnp.full((*moves.shape, 2), self.space.d)
        for group, own, row, _ in self._each(moves):
            of_row = group.start + jnp.asarray(group.sites)[row]
            sites = sites.at[..., : of_row.shape[-1]].set(
                jnp.where(own[..., None], of_row, sites[..., : of_row.shape[-1]])
            )
        return sites

    def visit(self, visited, move):
        """`visited` (d,) bool, with the sites of a move () marked as well."""
        return visited.at[self.sites_of(move)].set(True, mode="drop")

    def of_visited(self, visited):
        """(size,) bool, the moves that change a site for which `visited` (d,) is true."""
        of_rows = [
            jnp.repeat(visited[g.start + g.sites].any(axis=1), g.C, total_repeat_length=g.size)
            for _, g in self.groups
        ]
        return jnp.concatenate(of_rows) if of_rows else jnp.zeros(1, bool)

    # ------------------------------------------------------------ exact differences
    def at(self, x, target):
        """The log density at x (d,), and the differences (size,) of all moves from x, nats."""
        return target.logdensity(x), self.differences(x, target)

    def differences(self, x, target):
        """(size,) float, nats, the exact differences of all moves from x (d,).

        Raises
        ------
        ValueError
            Where the target has no exact differences of two sites that change together.
        """
        refuse_estimates(target)
        carried = target.carried(x)
        return self._joined([group.differences(target, x, carried) for _, group in self.groups])

    def weights(self, x, differences, balancing: str) -> Weights:
        """The weights of all moves from x (d,), computed from their differences."""
        return scaled(log_weights(differences, False, balancing))

    def arrive(self, target, before: State, y, moves, active, balancing: str, logdensity=None) -> State:
        """The state at y, where `moves`, of which some are `active`, have led from the state `before`.

        Only the differences that the active moves may have changed are computed again.
        """
        logdensity, touched = target.logdensity(y) if logdensity is None else logdensity, None
        if target.local:
            sites = jnp.where(active[:, None], self.sites_of(moves), self.space.d).reshape(-1)
            touched = self.rows_with(target.touched(sites).reshape(-1))
        rows = sum(len(group.sites) for _, group in self.groups)
        if touched is None or 2 * sum(of_group.shape[0] for of_group in touched) > rows:
            differences = self.differences(y, target)
            return State(y, logdensity, differences, self.weights(y, differences, balancing))
        new = self._joined(
            [
                group.differences(target, y, None, jnp.minimum(of_group, len(group.sites) - 1))
                for (_, group), of_group in zip(self.groups, touched, strict=True)
            ]
        )
        where = self.numbers(touched)
        differences = before.differences.at[where].set(new, mode="drop")
        weights = updated(
            before.carry,
            where,
            log_weights(new, False, balancing),
            lambda: log_weights(differences, False, balancing),
        )
        return State(y, logdensity, differences, weights)

    def rows_with(self, sites) -> list:
        """[(m,) int], for each group the rows that hold any of `sites` (l,), padded with the number of rows.

        The number d in `sites` stands for no site.
        """
        rows = []
        for _, group in self.groups:
            own = sites - group.start
            inside = (own >= 0) & (own < group.v.size)
            of_sites = jnp.asarray(group.rows_of)[jnp.clip(own, 0, group.v.size - 1)]
            rows.append(jnp.where(inside[:, None], of_sites, len(group.sites)).reshape(-1))
        return rows

    def numbers(self, rows: list):
        """(m,) int, the indices of the moves of some rows of each group; `size` for rows that are padding."""
        numbers = [np.full(0, self.size)]
        for (first, group), of_group in zip(self.groups, rows, strict=True):
            moves = first + of_group[:, None] * group.C + np.arange(group.C)
            numbers.append(jnp.where((of_group < len(group.sites))[:, None], moves, self.size).reshape(-1))
        return jnp.concatenate(numbers)

    # ------------------------------------------------------------ estimates
    def by_table(self, x, target):
        """The log density at x (d,), and a pair of arrays.

        The pair is the changes (d, K) of the log density if single sites change, and the estimates (size,)
        that these changes give of the differences of all moves.
        """
        table = self.table(x, target)
        return target.logdensity(x), (table, self.estimates(table, x, x))

    def table(self, x, target):
        """(d, K) float, nats, the change of the log density if each site alone changes, without the
        constraints.
        """
        d = jnp.minimum(target.differences_alone(x), LARGEST_DIFFERENCE)
        _, inside = self.space.neighbours(x, alone=True)
        together = self.space.constrained[:, None] & inside & jnp.isneginf(d)
        return jnp.where(together, -IMPOSSIBLE_PENALTY, d)

    def estimates(self, table, x, z, rows: list | None = None):
        """(size,) nats, estimates of the differences of all moves from z, from a table that was computed at
        x.

        Parameters
        ----------
        table : (d, K) nats, the change of the log density if each site alone changes at x (d,)
        z : (d,) int
        rows : for each group the rows whose moves are wanted; None for all moves
        """
        of_groups = []
        for k, (_, group) in enumerate(self.groups):
            of_variable = table[group.start : group.start + group.v.size, : group.v.K]
            some = None if rows is None else jnp.minimum(rows[k], len(group.sites) - 1)
            of_groups.append(group.estimates(of_variable, x, z, some))
        return self._joined(of_groups)


def moves_of_space(space: Space) -> Any:
    """The moves of a space: moves of single sites, or `PairMoves` if some sites change only together.

    Raises
    ------
    ValueError
        For sites that are tied by linear equations.
    """
    if len(space.tied):
        raise ValueError(
            "This kernel changes two sites at most, and linear equations tie "
            f"{shown(space.names_at(space.tied))}. Use block_gibbs, the kernel of pmd.BlockGibbs, which "
            "moves them along lines."
        )
    return PairMoves(space) if space.constrained.any() else SingleSites(space)


def refuse_estimates(target) -> None:
    """Refuse a target that has only estimates of the differences of sites that change together.

    Raises
    ------
    ValueError
    """
    descriptions, space = target.describe(), target.space
    for name in space.names_at(np.flatnonzero(space.constrained)):
        if not descriptions[name]["exact"]:
            raise ValueError(
                f"Two values of {name!r} change together, and their moves are weighted by exact differences, "
                f"which {name!r} does not have: {descriptions[name]['reason']}. Pass differences='exact' to "
                "pay for them, or use pmd.PathAuxiliary with recompute=False, which takes estimates."
            )
