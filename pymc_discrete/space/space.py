"""The discrete space of a block: its sites, their supports and their neighbours."""

import functools
import math
import operator
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from pymc_discrete.runtime.names import made_name
from pymc_discrete.space.constraints import Constraint, FixedSums, Permutations
from pymc_discrete.space.indexing import picked
from pymc_discrete.space.linear_constraint import LinearConstraint, Lines

# In a support of at most this many values, all values are neighbours. In a wider one the neighbours are given
# by offsets from the current value, except for variables in the argument `whole` of `Space.build`.
LARGEST_SUPPORT = 256
# stands for a missing bound; a bound that the user gives may be larger, up to LARGEST_BOUND
UNBOUNDED = np.iinfo(np.int32).max
LARGEST_BOUND = 2**62
WIDTH = 8  # the number of values besides the current one in a stretch, by default
SMALLEST = 8.0  # the offsets ±1, ±2, ±4, ... of a window go at least up to this number


@dataclass(frozen=True, eq=False)
class Variable:
    """The sites of one variable.

    Attributes
    ----------
    name : str
    shape : tuple of int
    lower, upper : (n,) int
        Bounds of every site, inclusive; -/+ UNBOUNDED where there is none.
    offsets : (K,) int
        Neighbours relative to the current value, symmetric, without 0; None if every value of the support is
        a neighbour.
    nominal : bool
        Whether values are labels without an order.
    width : int
        Where the offsets are geometric (1, 2, 4, ...), Gibbs sampling draws from a stretch: width + 1 equally
        spaced values, laid at random such that one is the current value. Of labels without an order it draws
        from the current one and `width` others, taken anywhere.
    constraint : Constraint, optional
        Which sites change only together, and how; None where every site may change alone.
    lines : Lines, optional
        Directions in which sites may change together, in addition to changing alone.
    partition : bool
        Whether values name the clusters of a partition of the sites, which may be split and merged.
    """

    name: str
    shape: tuple[int, ...]
    lower: np.ndarray
    upper: np.ndarray
    offsets: np.ndarray | None
    nominal: bool = False
    width: int = WIDTH
    constraint: Constraint | None = None
    lines: Lines | None = None
    partition: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def kind(self) -> Hashable:
        """A key that is equal for variables whose sites can be joined into one variable.

        The key has K, whether values have an order, and the offsets. A partition is joined with no other
        variable, since the sites of another variable cannot be in its clusters.
        """
        offsets = None if self.offsets is None else self.offsets.tobytes()
        return (self.K, self.nominal, offsets, self.name if self.partition else None)

    @property
    def stretches(self) -> tuple[int, np.ndarray]:
        """(w, strides): Gibbs sampling draws a site from w + 1 equally spaced values, whose spacing is one of
        `strides`.

        One of the w + 1 values is the current value of the site. With the largest spacing the values extend
        as far as the offsets.
        """
        offsets = np.asarray(self.offsets)
        steps = offsets[offsets > 0]
        if len(steps) == steps[-1]:  # the positive offsets are 1, 2, ..., w
            return len(steps), np.ones(1, int)
        return self.width, steps[steps * self.width <= max(steps[-1], self.width)]

    @property
    def finite(self) -> bool:
        """Whether every value of the support is a neighbour."""
        return self.offsets is None

    @property
    def counts(self) -> np.ndarray:
        """(n,) int, the number of values in the support of each site of a finite variable."""
        return self.upper - self.lower + 1

    @property
    def K(self) -> int:
        """The number of neighbours of each site; in a finite support, the current value is counted as one."""
        return int(self.counts.max(initial=1)) if self.offsets is None else len(self.offsets)

    @property
    def moves(self) -> int:
        """The largest number of values, other than the current one, to which a site can move."""
        return self.K - 1 if self.finite else self.K

    @property
    def swaps(self) -> bool:
        """Whether sites change only in pairs that exchange their values, as in a permutation."""
        return self.constraint is not None and self.constraint.swaps

    @property
    def drawn_among(self) -> int:
        """How many values of a site, other than the current one, Gibbs sampling looks at in one draw."""
        if self.swaps:
            return 1
        return self.moves if self.finite else self.stretches[0]


class Member(NamedTuple):
    """A named array of a space: its sites are `start`, `start + 1`, ..."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Linear(NamedTuple):
    """A map of states x to states: some sites become integer linear combinations of sites, the others stay.

    Attributes
    ----------
    sites : (n,) int, the sites that get new values
    read : (n, m) int, the m sites of which each new value is computed
    coefficients : (n, m) int, of the sites read
    """

    sites: np.ndarray
    read: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def of_arrays(cls, forms: Mapping[str, Mapping[str, int]], members: Collection[Member]) -> "Linear":
        """The map that replaces each element of some arrays by a linear combination of the same element of
        others.

        Parameters
        ----------
        forms : {array that is replaced: {array: coefficient}}, arrays of the same shape
        members : the arrays that `forms` names, with their places in the space
        """
        start = {m.name: m.start for m in members}
        size = {m.name: m.size for m in members}
        most = max(len(form) for form in forms.values())
        sites, read, coefficients = [], [], []
        for name, form in forms.items():
            own = start[name] + np.arange(size[name])
            padded = [*form.items(), *[(name, 0)] * (most - len(form))]
            sites.append(own)
            read.append(np.stack([own - start[name] + start[n] for n, _ in padded], axis=1))
            coefficients.append(np.broadcast_to([c for _, c in padded], read[-1].shape))
        return cls(np.concatenate(sites), np.concatenate(read), np.concatenate(coefficients))

    def of(self, x: Any, xp: Any = np) -> Any:
        """(..., d) int, the sites after the map is applied to x (..., d); `xp` is the array library."""
        new = (x[..., self.read] * self.coefficients).sum(-1).astype(x.dtype)
        if xp is not np:
            return x.at[..., self.sites].set(new)
        x = np.array(x)
        x[..., self.sites] = new
        return x


class Support(NamedTuple):
    """The bounds of the sites of one variable.

    Attributes
    ----------
    shape : of the variable
    lower, upper : (n,) int, inclusive
    unbounded : whether a bound is missing
    """

    shape: tuple[int, ...]
    lower: np.ndarray
    upper: np.ndarray
    unbounded: bool

    @classmethod
    def given(cls, name: str, support: Any, shapes: Mapping[str, tuple[int, ...] | int] | None) -> "Support":
        """The support of a variable as `Space.build` is given it.

        Raises
        ------
        ValueError
            For a support that is no pair of bounds, bounds that do not fit its shape, and an empty support.
        """
        if not (isinstance(support, tuple | list) and len(support) == 2):
            raise ValueError(
                f"The support of {name!r} must be (lower, upper), both inclusive, got {support!r}."
            )
        infinite = lambda b: np.asarray(b).dtype.kind == "f" and bool(np.isinf(b).any())
        unbounded = any(b is None or infinite(b) for b in support)
        low, high = bound_of(name, support[0], -UNBOUNDED), bound_of(name, support[1], UNBOUNDED)
        shape = (
            np.broadcast_shapes(low.shape, high.shape)
            if shapes is None
            else shape_of(name, shapes.get(name, ()))
        )
        try:
            lower, upper = (np.broadcast_to(b, shape).reshape(-1).astype(np.int64) for b in (low, high))
        except ValueError:
            raise ValueError(
                f"The support of {name!r} has bounds of shapes {low.shape} and {high.shape}, which do "
                f"not fit its shape {shape}."
            ) from None
        if (lower > upper).any():
            bad = int(np.flatnonzero(lower > upper)[0])
            raise ValueError(
                f"The support of {name!r} is empty at element {bad}: lower bound {lower[bad]} is above "
                f"upper bound {upper[bad]}. Mend the bounds of its distribution or of support=."
            )
        return cls(shape, lower, upper, unbounded)

    @classmethod
    def joined(cls, parts: list["Support"]) -> "Support":
        """The supports of several variables as one, one after another."""
        lower, upper = np.concatenate([p.lower for p in parts]), np.concatenate([p.upper for p in parts])
        shape = parts[0].shape if len(parts) == 1 else lower.shape
        return cls(shape, lower, upper, any(p.unbounded for p in parts))

    @property
    def widest(self) -> int:
        """The largest number of values of a site."""
        return int((self.upper - self.lower).max(initial=0)) + 1


class ByTotals(NamedTuple):
    """The map between the sites of a space and the values of a model, where some sites are sums of values.

    Attributes
    ----------
    to_sites, to_values : maps from the values to the sites, and from the sites to the values
    lower, upper : (d,) int, bounds of the values, one array after another
    """

    to_sites: Linear
    to_values: Linear
    lower: np.ndarray
    upper: np.ndarray


class Space:
    """The product space of a block of discrete variables, ravelled into `d` sites.

    Parameters
    ----------
    variables : list of Variable
    members : list of Member, optional
        The named arrays in the order of their sites, if some variables are made of several arrays; by default
        one for each variable.

    Attributes
    ----------
    d : int
        The number of sites.
    K : int
        The largest number of neighbours of a site.
    lower, upper : (d,) int
        Bounds of each site, inclusive.
    windowed : (d,) bool
        Sites whose neighbours are given by offsets.
    nominal : (d,) bool
        Sites whose values have no order.
    constrained : (d,) bool
        Sites that change only together with another one, see `Variable.constraint`. The method
        `neighbours` marks all values of a constrained site but the current one as outside the support, since
        the site cannot go to them alone.
    column : (d, K) int
        For each neighbour its offset, or its value less the lower bound where the variable is finite.
    exists : (d, K) bool
        Whether site i has a k-th neighbour; a site with fewer than K neighbours has padding in `column`.
    opposite : (d, K) int
        For each neighbour that is given by an offset, the column of the negated offset, which undoes the
        move.
    totals : ByTotals, optional
        The map between the sites and the values of a model's variables, where some sites are sums of values,
        which move more easily; None where every site is a value.
    """

    totals: ByTotals | None = None

    def __init__(self, variables: list[Variable], members: list[Member] | None = None):
        self.variables = list(variables)
        if not self.variables:
            raise ValueError("A space needs at least one variable: pmd.Space.build({name: (lower, upper)}).")
        sizes = [v.size for v in variables]
        self.d = sum(sizes)
        self.starts = [sum(sizes[:n]) for n in range(len(sizes))]
        self.K = max((v.K for v in variables), default=0)
        self.members = (
            [Member(v.name, v.shape, start) for start, v in self.blocks] if members is None else list(members)
        )
        self.lower = np.concatenate([v.lower for v in variables]).astype(np.int64)
        self.upper = np.concatenate([v.upper for v in variables]).astype(np.int64)
        self.windowed = np.concatenate([np.full(v.size, not v.finite) for v in variables])
        self.nominal = np.concatenate([np.full(v.size, v.nominal) for v in variables])
        self.constrained = np.concatenate([np.full(v.size, v.constraint is not None) for v in variables])

    # The tables of neighbours are made when they are read: of millions of sites that are summed out, none is.
    @cached_property
    def column(self) -> np.ndarray:
        found = np.zeros((self.d, self.K), np.int64)
        for a, v in self.blocks:
            found[a : a + v.size, : v.K] = np.arange(v.K) if v.offsets is None else v.offsets
        return found

    @cached_property
    def exists(self) -> np.ndarray:
        found = np.zeros((self.d, self.K), bool)
        for a, v in self.blocks:
            found[a : a + v.size, : v.K] = v.offsets is not None or np.arange(v.K) < v.counts[:, None]
        return found

    @cached_property
    def opposite(self) -> np.ndarray:
        found = np.zeros((self.d, self.K), np.int64)
        for a, v in self.blocks:
            if v.offsets is not None:
                found[a : a + v.size, : v.K] = [int(np.flatnonzero(v.offsets == -o)[0]) for o in v.offsets]
        return found

    @classmethod
    def build(
        cls,
        supports: dict[str, tuple[Any, Any]],
        shapes: Mapping[str, tuple[int, ...] | int] | None = None,
        window: Any = "auto",
        scale: dict[str, float] | None = None,
        nominal: Collection[str] = (),
        whole: Collection[str] = (),
        widths: Mapping[str, int] | None = None,
        sums: Mapping[str, Any] | None = None,
        permutations: Collection[str] = (),
        equations: Mapping[tuple[str, ...], tuple[Any, ...]] | None = None,
        lines: Mapping[tuple[str, ...], Lines] | None = None,
        partitions: Collection[str] = (),
    ) -> "Space":
        """A space from supports.

        Parameters
        ----------
        supports : {name: (lower, upper)}
            Inclusive bounds, scalars or arrays of the variable's shape; None or +-inf where unbounded.
        shapes : {name: shape}, optional
            The shape of each variable, () for names that are left out. By default a variable has the shape of
            its bounds.
        window : "auto", "geometric", int or {name: one of these}
            The neighbours of sites with more than 256 values: the offsets ±1, ±2, ±4, ..., or -w, ..., w for
            an integer w.
        scale : {name: float}, optional
            The standard deviation of a variable, or a similar scale: the offsets of an unbounded variable
            reach twice as far.
        nominal : collection of str
            Names of variables whose values have no order.
        whole : collection of str
            Names of variables with a bounded support of which every value is a neighbour, however many.
        widths : {name: int}, optional
            How many values besides the current one Gibbs sampling looks at, where it draws from a stretch.
        sums : {name: int or array}, optional
            Variables whose vectors, along the last axis, have fixed sums: one sum for all vectors, or an
            array of the variable's shape without its last axis.
        permutations : collection of str
            Names of variables whose vectors, along the last axis, are permutations of 0, ..., n - 1, the
            values of their support.
        equations : {names: (A, y)}, optional
            Linear equations A x = y between the elements x (n,) of some variables, one after another in the
            order of the names: A (m, n) and y (m,), integers. Names for messages, one for each equation, may
            follow. The variables become one variable of the space.
        lines : {names: Lines}, optional
            Directions in which sites may change together, in addition to changing alone; of variables that
            are in no equation, and become one variable of the space.
        partitions : collection of str
            Names of variables whose values name the clusters of a partition, see `Variable.partition`.

        Raises
        ------
        TypeError, ValueError
            For arguments that do not fit together, with the name of the variable.
        """
        if not isinstance(supports, Mapping):
            raise TypeError(f"supports must be a dictionary {{name: (lower, upper)}}, got {supports!r}.")
        equations, lines, sums = equations or {}, lines or {}, sums or {}
        scale, widths = scale or {}, widths or {}
        collections = {"nominal": nominal, "permutations": permutations, "partitions": partitions}
        mappings = {"window": window, "shapes": shapes, "sums": sums}
        refuse_other_names(supports, collections, mappings, equations)
        given = {name: Support.given(name, support, shapes) for name, support in supports.items()}
        joined = {name: names for names in [*equations, *lines] for name in names}
        variables: list[Variable] = []
        members: list[Member] = []
        start = 0
        for names in dict.fromkeys(joined.get(name, (name,)) for name in given):
            for name in names:
                members.append(Member(name, given[name].shape, start))
                start += members[-1].size
            support = Support.joined([given[n] for n in names])
            support, constraint = constrained(names, support, equations, sums, permutations)
            name = names[0]
            every_value = name in permutations or all(n in whole for n in names)
            variables.append(
                Variable(
                    made_name(names),
                    support.shape,
                    support.lower,
                    support.upper,
                    offsets_for(names, support, window, scale, every_value),
                    any(n in nominal for n in names),
                    max(widths.get(n, WIDTH) for n in names),
                    constraint,
                    lines.get(names),
                    name in partitions,
                )
            )
        return cls(variables, members)

    def grouped(self, groups: list[list[str]], names: list[str]) -> "Space":
        """A space of the sites of this space, in which some variables of one kind are joined into one.

        Parameters
        ----------
        groups : list of lists of str
            The names of the arrays in each group: the arrays of one variable with a constraint, or arrays of
            variables with the same `Variable.kind`.
        names : list of str
            The name of the variable that takes the place of each group.
        """
        by_name, shapes = {v.name: v for v in self.variables}, {m.name: m.shape for m in self.members}
        variables, members, start = [], [], 0
        for group, name in zip(groups, names, strict=True):
            whole = by_name.get(made_name(group))
            parts = [by_name[n] for n in group] if whole is None else [whole]
            for n in group:
                members.append(Member(n, shapes[n], start))
                start += members[-1].size
            lower, upper = (np.concatenate([getattr(v, end) for v in parts]) for end in ("lower", "upper"))
            first = replace(parts[0], name=name)
            alone = len(parts) == 1
            variables.append(
                first if alone else replace(first, shape=(len(lower),), lower=lower, upper=upper)
            )
        return Space(variables, members)

    def ravel(self, point: Mapping[str, Any], xp: Any = np) -> Any:
        """(d,) int, the sites x at a point {name: array}; `xp` is the array library."""
        values = [xp.asarray(point[m.name]).reshape(-1).astype(int) for m in self.members]
        return self.of_values(xp.concatenate(values), xp)

    def of_values(self, values: Any, xp: Any = np) -> Any:
        """(..., d) int, the sites x that belong to the values (..., d) of all arrays, one array after
        another.
        """
        return values if self.totals is None else self.totals.to_sites.of(values, xp)

    def values_at(self, x: Any, xp: Any = np) -> Any:
        """(..., d) int, the values of all arrays, one array after another, that belong to the sites x (...,
        d).
        """
        return x if self.totals is None else self.totals.to_values.of(x, xp)

    @cached_property
    def sites(self) -> list[tuple[str, int]]:
        """For each site the name of the array that holds the site, and its flat index in that array."""
        return [(m.name, i) for m in self.members for i in range(m.size)]

    @property
    def names(self) -> np.ndarray:
        """(d,) str, the name of the array that holds each site."""
        return np.repeat(np.array([m.name for m in self.members], object), [m.size for m in self.members])

    def site(self, i: int) -> tuple[str, int]:
        """The name of the array that holds site i, and the flat index of the site in that array."""
        m = next(m for m in self.members if m.start <= i < m.start + m.size)
        return m.name, int(i) - m.start

    def names_at(self, sites: Sequence[int] | np.ndarray) -> list[str]:
        """The names of the arrays that hold the given sites (n,) int."""
        return list(dict.fromkeys(self.names[np.asarray(sites, int)].tolist()))

    def unravel(self, x: Any) -> dict[str, Any]:
        """{name: array}, the arrays that belong to the sites x (d,)."""
        values = self.values_at(x, np if isinstance(x, np.ndarray) else jnp)
        return {m.name: values[m.start : m.start + m.size].reshape(m.shape) for m in self.members}

    @property
    def blocks(self) -> list[tuple[int, Variable]]:
        """For each variable the first of its sites, and the variable."""
        return list(zip(self.starts, self.variables, strict=True))

    def numbers(self, name: str) -> np.ndarray:
        """The indices in x of the sites of a named array, int, in the shape of the array."""
        for m in self.members:
            if m.name == name:
                return m.start + np.arange(m.size).reshape(m.shape)
        raise ValueError(
            f"The space has no variable {name!r}; it has {', '.join(m.name for m in self.members)}."
        )

    def values_of(self, x: Array, start: int, v: Variable, rows: Any = None) -> Array:
        """(r, moves) int, the values that sites of one variable have after each of their moves.

        The moves are the cyclic shifts by 1, ..., K - 1 in a finite support, and the offsets for a site with
        a window.
        """
        lower, counts = v.lower, v.counts
        if rows is not None:
            lower, counts = picked(lower, rows), picked(counts, rows)
            now = x[start + rows]
        else:
            now = x[start : start + v.size]
        if v.offsets is not None:
            return now[:, None] + jnp.asarray(v.offsets, x.dtype)
        if v.K == 2:  # a site of two values has one move, to the other value
            return (2 * lower + 1 - now)[:, None]
        shift = np.arange(1, v.K)
        return lower[:, None] + jnp.remainder(now[:, None] - lower[:, None] + shift, counts[:, None])

    def by_value(
        self, x: Array, n: int, moves: Array, rows: Any = None, candidates: Array | None = None
    ) -> Array:
        """Differences (r, K) with a column for each neighbour, made from differences with a column for each
        move.

        The column of the current value is 0. For a variable with a window, and if `candidates` are given,
        `moves` is returned as it is.

        Parameters
        ----------
        x : (d,) int
        n : int
            The number of the variable.
        moves : (r, moves) float
            Differences in the order of `values_of`.
        rows : (r,) int
            Sites, counted within the variable; None means all.
        candidates : (r, moves) int
            The values to which the columns of `moves` belong, where `values_of` gives other values.
        """
        start, v = self.blocks[n]
        if not v.finite or candidates is not None:
            return moves
        lower, counts = picked(v.lower, rows), picked(v.counts, rows)
        now = x[start : start + v.size] if rows is None else x[start + rows]
        index = (now - lower)[:, None]
        if v.K == 2:
            return jnp.where(np.arange(2) == index, 0.0, moves)
        shift = jnp.remainder(np.arange(v.K) - index, counts[:, None])
        padded = jnp.concatenate([jnp.zeros_like(moves[:, :1]), moves], axis=1)
        return jnp.take_along_axis(padded, shift, axis=1, mode="clip")

    def neighbours(self, x: Array | np.ndarray, sites: Any = None, alone: bool = False) -> tuple[Any, Any]:
        """The neighbours of sites.

        Parameters
        ----------
        x : (d,) int
        sites : (m,) int
            Numbers of sites; None means all.
        alone : bool
            Whether to ignore that some sites change only together.

        Returns
        -------
        values : (m, K) int
        inside : (m, K) bool
            Whether the value is in the support; False in the columns that pad a site with fewer neighbours.
        """
        # on the host NumPy is faster than JAX, which compiles each operation
        xp = np if isinstance(x, np.ndarray) and sites is None else jnp
        arrays = (self.column, self.exists, self.lower, self.upper, self.windowed, self.constrained)
        if sites is not None:
            x = jnp.asarray(x)[sites]
            arrays = tuple(jnp.asarray(a)[sites] for a in arrays)
        column, exists, lower, upper, windowed, constrained = arrays
        values = xp.where(windowed[:, None], x[:, None], lower[:, None]) + column
        inside = exists & (values >= lower[:, None]) & (values <= upper[:, None])
        if self.constrained.any() and not alone:
            inside = inside & (~constrained[:, None] | (values == x[:, None]))
        return values, inside

    def neighbours_of(
        self, x: Array, n: int, rows: Any = None, candidates: Array | None = None
    ) -> tuple[Any, Any, Array]:
        """The neighbours of sites of one variable, with as many columns as the variable has.

        Parameters
        ----------
        x : (d,) int
        n : int
            The number of the variable.
        rows : (r,) int
            Sites, counted within the variable; None means all.
        candidates : (r, K) int
            Values that take the place of the neighbours.

        Returns
        -------
        values : (r, K) int
        inside : (r, K) bool
            Whether the value is in the support; only the current value is, if the site cannot change alone.
        now : (r,) int
            The current values.
        """
        start, v = self.blocks[n]
        now = x[start : start + v.size] if rows is None else x[start + rows]
        lower, upper = picked(v.lower, rows)[:, None], picked(v.upper, rows)[:, None]
        if candidates is not None:
            values = candidates
        elif v.finite:
            values = lower + np.arange(v.K)
        else:
            values = now[:, None] + jnp.asarray(v.offsets, x.dtype)
        inside = (values >= lower) & (values <= upper)
        return values, inside if v.constraint is None else inside & (values == now[:, None]), now

    def contains(self, x: np.ndarray) -> np.ndarray:
        """(d,) bool, which sites of x are between their bounds."""
        return (x >= self.lower) & (x <= self.upper)

    def in_supports(self, x: Any) -> Any:
        """() bool, whether every site of x is in its support.

        A site without bounds is always in its support, however large its value, though moves stay between -/+
        `UNBOUNDED`. The method may be called inside a traced program.
        """
        above, below = x > self.upper, x < self.lower
        return ~(above & (self.upper < UNBOUNDED) | below & (self.lower > -UNBOUNDED)).any()

    # ------------------------------------------------------------ sites that change together
    @cached_property
    def set_of(self) -> np.ndarray:
        """(d,) int, the index of the set that each constrained site belongs to, -1 for the other sites."""
        sets = np.full(self.d, -1)
        for start, v in self.blocks:
            if v.constraint is not None:
                sets[start : start + v.size] = sets.max(initial=-1) + 1 + v.constraint.set_of
        return sets

    @cached_property
    def drawn_with(self) -> np.ndarray:
        """(d,) int, the index of the set of sites in which each site is drawn; -1 for sites in no set.

        Sets are tied by a constraint (see `set_of`), or joined by lines (see `Variable.lines`).
        """
        sets, last = self.set_of.copy(), self.set_of.max(initial=-1) + 1
        for start, v in self.blocks:
            if v.lines is not None:
                of_lines = v.lines.set_of(v.size)
                sets[start : start + v.size][of_lines >= 0] = last + of_lines[of_lines >= 0]
                last += len(v.lines.number)
        return sets

    @cached_property
    def swapped(self) -> np.ndarray:
        """(m,) int, the sites that can only exchange their values with others."""
        return self._sites_of(lambda v: v.swaps)

    @cached_property
    def tied(self) -> np.ndarray:
        """(m,) int, the sites that linear equations tie, of which more than two may have to change
        together."""
        return self._sites_of(lambda v: v.constraint is not None and not v.constraint.in_pairs)

    def _sites_of(self, which: Callable[[Variable], bool]) -> np.ndarray:
        """(m,) int, the sites of the variables for which the function `which` is true."""
        return np.flatnonzero(np.repeat([which(v) for v in self.variables], [v.size for v in self.variables]))

    def meets_constraints(self, x: Any) -> Any:
        """() bool, whether all sets of sites meet their constraints."""
        met = [v.constraint.met(x[a : a + v.size]).all() for a, v in self.blocks if v.constraint is not None]
        return functools.reduce(operator.and_, met, True)

    def inside_jointly(self, n: int, sites: Any, values: Any, now: Any) -> Any:
        """(r, C) bool, whether all sites of a row are between their bounds and meet their constraint.

        Parameters
        ----------
        n : int
            The number of the variable.
        sites : (r, m) int
            Sites of one set in each row, counted within the variable.
        values : (r, C, m) int
            The values that they would take.
        now : (r, m) int
            The current values of the sites.
        """
        v = self.variables[n]
        lower, upper = (jnp.asarray(bound)[sites][:, None] for bound in (v.lower, v.upper))
        inside = ((values >= lower) & (values <= upper)).all(axis=-1)
        return inside if v.constraint is None else inside & v.constraint.kept(values, now)


def masked_differences(d: Array, values: Array, inside: Array, now: Array) -> Array:
    """(r, K) differences, 0 at the current values and -inf where they are nan or outside the support.

    Parameters
    ----------
    d : (r, K) float
        Differences, nats.
    values : (r, K) int
        The values that the sites would take.
    inside : (r, K) bool
        Whether the values are in the support.
    now : (r,) int
        The current values.
    """
    d = jnp.where(inside & ~jnp.isnan(d), d, -jnp.inf)
    return jnp.where(inside & (values == now[:, None]), 0.0, d)


def refuse_other_names(
    supports: Mapping[str, Any],
    collections: Mapping[str, Any],
    mappings: Mapping[str, Any],
    equations: Mapping[tuple[str, ...], Any],
) -> None:
    """Raise an error for names of variables that a space does not have, in arguments of `Space.build`.

    Parameters
    ----------
    collections : {argument: names}
    mappings : {argument: {name: value}}; another value than a dictionary is for all variables

    Raises
    ------
    TypeError, ValueError
    """
    for argument, names in collections.items():
        if isinstance(names, str):
            raise TypeError(f"{argument} must be a list of names, got {names!r}. One name is [{names!r}].")
    given = [(argument, value) for argument, value in mappings.items() if isinstance(value, Mapping)]
    in_equations = [name for names in equations for name in names]
    for argument, names in [*given, *collections.items(), ("equations", in_equations)]:
        for name in names:
            if name not in supports:
                raise ValueError(
                    f"{argument} names {name!r}, which is no variable of the block: {', '.join(supports)}."
                )


def constrained(
    names: tuple[str, ...],
    support: Support,
    equations: Mapping[tuple[str, ...], tuple[Any, ...]],
    sums: Mapping[str, Any],
    permutations: Collection[str],
) -> tuple[Support, Constraint | None]:
    """The constraint of variables that are joined into one, and a support as narrow as the constraint makes
    it.

    Parameters
    ----------
    names : of the variables
    equations : {names: (A, y)}, linear equations A x = y between variables
    sums : {name: fixed sums of its vectors}
    permutations : names of variables whose vectors are permutations
    """
    name = names[0]
    if names in equations:
        matrix, totals, *labels = equations[names]
        linear = LinearConstraint.build(
            made_name(names), matrix, totals, support.lower, support.upper, *labels
        )
        ends = np.maximum(-linear.lower, linear.upper)
        support = support._replace(unbounded=bool((ends >= UNBOUNDED).any()))
        constraint: Constraint = linear
    elif name in sums:
        constraint = FixedSums.build(name, sums[name], support.shape, support.lower, support.upper)
    elif name in permutations:
        constraint = Permutations.build(name, support.shape, support.lower, support.upper)
    else:
        return support, None
    lower, upper = constraint.tightened(support.lower, support.upper)
    return support._replace(lower=lower, upper=upper), constraint


def offsets_for(
    names: tuple[str, ...], support: Support, window: Any, scale: Mapping[str, float], every_value: bool
) -> np.ndarray | None:
    """(K,) int, the offsets of a variable of the space; None where every value is a neighbour.

    Parameters
    ----------
    names : of the model's variables that are joined into this variable
    window : the user's choice of the offsets, as `Space.build` takes it
    scale : {name: the standard deviation, or a similar scale}, which sets how far the offsets reach
    every_value : whether every value of a bounded support is a neighbour, however many
    """
    window = window.get(names[0], "auto") if isinstance(window, dict) else window
    reach = 2.0 * max(scale.get(n, 0.0) for n in names) if support.unbounded else support.widest / 4
    # Offsets are computed for finite variables too, so that an invalid window always raises an error.
    offsets = offsets_of(names[0], window, max(SMALLEST, reach))
    finite = support.widest <= LARGEST_SUPPORT or (every_value and not support.unbounded)
    return None if finite else offsets


def shape_of(name: str, shape: Any) -> tuple[int, ...]:
    """A shape as a tuple; raises ValueError for one that is invalid."""
    sizes = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in sizes):
        raise ValueError(f"The shape of {name!r} must be integers that are not negative, got {shape!r}.")
    return tuple(int(n) for n in sizes)


def bound_of(name: str, value: Any, missing: int) -> np.ndarray:
    """A bound as an integer array: None becomes `missing`, and infinite values become -/+ UNBOUNDED."""
    array = np.asarray(missing if value is None else value)
    if array.dtype.kind == "f":
        if np.isnan(array).any():
            raise ValueError(
                f"The support of {name!r} has a bound that is nan. Give integers, or None where there is no "
                "bound."
            )
        array = np.clip(
            np.where(np.isinf(array), np.sign(array) * UNBOUNDED, array), -LARGEST_BOUND, LARGEST_BOUND
        )
        if (array != np.floor(array)).any():
            raise ValueError(f"The support of {name!r} has a bound that is no integer: {value!r}.")
    elif array.dtype.kind not in "iu":
        raise ValueError(
            f"The support of {name!r} has a bound that is no number: {value!r}. Give (lower, upper), both "
            "inclusive."
        )
    return array.astype(np.int64)


def offsets_of(name: str, window: Any, reach: float) -> np.ndarray:
    """(K,) int, the symmetric offsets of a window.

    Grathwohl et al. 2021, footnote 1, use the offsets ±1 only, the neighbours x - 1 and x + 1.
    """
    if isinstance(window, str) and window in ("auto", "geometric"):
        # short moves explore locally, long moves cross the support
        steps = 2 ** np.arange(int(np.log2(reach)) + 1)
    elif isinstance(window, int | np.integer) and not isinstance(window, bool) and window >= 1:
        steps = np.arange(1, int(window) + 1)
    else:
        raise ValueError(
            f"window for {name!r} must be 'auto', 'geometric' or an integer of at least 1 (neighbours "
            f"x-w..x+w), got {window!r}."
        )
    return np.concatenate([-steps[::-1], steps]).astype(np.int64)
