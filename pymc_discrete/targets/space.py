"""The discrete space of a block: its sites, their supports and their neighbours."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pymc_discrete.targets.indexing import picked

# A support of at most this many values is enumerated; a wider one is walked by offsets, unless all of it is
# asked for
LARGEST_SUPPORT = 256
UNBOUNDED = np.iinfo(
    np.int32
).max  # stands for a bound that there is not; a bound that there is may lie beyond it
LARGEST_BOUND = 2**62
WIDTH = 8  # steps between the ends of a stretch of a geometric window


@dataclass(frozen=True, eq=False)
class Variable:
    """The sites of one variable.

    Attributes
    ----------
    name : str
    shape : tuple of int
    lower, upper : (n,) int, bounds of every site, inclusive; -/+ UNBOUNDED where there is none
    offsets : None where every value of the support is a neighbour, else (K,) int, symmetric, without 0
    nominal : bool, whether values are names, without an order
    width : steps between the ends of a stretch of values that Gibbs sampling draws from, where offsets are
        geometric
    """

    name: str
    shape: tuple[int, ...]
    lower: np.ndarray
    upper: np.ndarray
    offsets: np.ndarray | None
    nominal: bool = False
    width: int = WIDTH

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def kind(self) -> Hashable:
        """What two variables share that can be parts of one: the width of their tables, and what their values
        are.
        """
        return (self.K, self.nominal, None if self.offsets is None else self.offsets.tobytes())

    @property
    def stretches(self) -> tuple[int, np.ndarray]:
        """(w, strides) with which w + 1 equally spaced values, one of them the current one, reach as far as
        the offsets do.
        """
        offsets = np.asarray(self.offsets)
        steps = offsets[offsets > 0]
        if len(steps) == steps[-1]:  # all of 1..w
            return len(steps), np.ones(1, int)
        return self.width, steps[steps * self.width <= max(steps[-1], self.width)]

    @property
    def finite(self) -> bool:
        return self.offsets is None

    @property
    def counts(self) -> np.ndarray:
        """(n,) int, values in the support of each site (finite variables)."""
        return self.upper - self.lower + 1

    @property
    def K(self) -> int:
        """Neighbours per site."""
        return int(self.counts.max(initial=1)) if self.offsets is None else len(self.offsets)

    @property
    def moves(self) -> int:
        """Neighbours per site other than the current value."""
        return self.K - 1 if self.finite else self.K


class Member(NamedTuple):
    """A named array of a space: its sites are `start`, `start + 1`, ..."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class Space:
    """The product space of a block of discrete variables, ravelled into `d` sites.

    Parameters
    ----------
    variables : list of `Variable`
    members : list of `Member`, the named arrays in the order of their sites, where some variables are made of
        several

    Attributes
    ----------
    d, K : int, number of sites and of neighbours of the widest one
    sites : list of (value variable name, flat index), length d
    lower, upper : (d,) int, bounds of each site, inclusive
    windowed : (d,) bool, sites whose neighbours are offsets
    nominal : (d,) bool, sites whose values have no order
    """

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
        self.sites = [(m.name, i) for m in self.members for i in range(m.size)]
        self.lower = np.concatenate([v.lower for v in variables]).astype(np.int64)
        self.upper = np.concatenate([v.upper for v in variables]).astype(np.int64)
        self.windowed = np.concatenate([np.full(v.size, not v.finite) for v in variables])
        self.nominal = np.concatenate([np.full(v.size, v.nominal) for v in variables])
        # per site and column: the offset (windowed) or the place in the support (finite), and whether the
        # column exists
        self.column = np.zeros((self.d, self.K), np.int64)
        self.exists = np.zeros((self.d, self.K), bool)
        self.opposite = np.zeros((self.d, self.K), np.int64)  # column of the negated offset
        for a, v in self.blocks:
            b = a + v.size
            if v.offsets is None:
                self.column[a:b, : v.K] = np.arange(v.K)
                self.exists[a:b, : v.K] = np.arange(v.K) < v.counts[:, None]
            else:
                self.column[a:b, : v.K] = v.offsets
                self.exists[a:b, : v.K] = True
                self.opposite[a:b, : v.K] = [int(np.flatnonzero(v.offsets == -o)[0]) for o in v.offsets]

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
    ) -> "Space":
        """A space from supports.

        Parameters
        ----------
        supports : {name: (lower, upper)}, inclusive, scalars or arrays of the variable's shape; None or +-inf
            where unbounded
        shapes : {name: shape}, () where one is left out; by default the shapes of the bounds
        window : "auto", "geometric", an int w for -w..w, or {name: one of these}, for sites with more than
            256 values
        scale : {name: how far apart its values lie}, which "auto" widens the window of an unbounded variable
            by
        nominal : names of variables whose values have no order
        whole : names of variables of which every value is a neighbour, however wide their bounded support
        widths : {name: steps between the ends of a stretch of values that Gibbs sampling draws from}
        """
        variables = []
        if not isinstance(supports, Mapping):
            raise TypeError(f"supports must be a dictionary {{name: (lower, upper)}}, got {supports!r}.")
        if isinstance(nominal, str):
            raise TypeError(f"nominal must be a list of names, got {nominal!r}. One name is [{nominal!r}].")
        for what, given in (("window", window), ("shapes", shapes), ("nominal", dict.fromkeys(nominal))):
            for name in given if isinstance(given, Mapping) else ():
                if name not in supports:
                    raise ValueError(
                        f"{what} names {name!r}, which is no variable of the block: {', '.join(supports)}."
                    )
        for name, given in supports.items():
            if not (isinstance(given, tuple | list) and len(given) == 2):
                raise ValueError(
                    f"The support of {name!r} must be (lower, upper), both inclusive, got {given!r}."
                )
            low, high = given
            endless = any(
                b is None or (np.asarray(b).dtype.kind == "f" and np.isinf(b).any()) for b in (low, high)
            )
            low, high = bound(name, low, -UNBOUNDED), bound(name, high, UNBOUNDED)
            shape = (
                np.broadcast_shapes(low.shape, high.shape)
                if shapes is None
                else shape_of(name, shapes.get(name, ()))
            )
            try:
                np.broadcast_to(low, shape), np.broadcast_to(high, shape)
            except ValueError:
                raise ValueError(
                    f"The support of {name!r} has bounds of shapes {low.shape} and {high.shape}, which do "
                    f"not fit its shape {shape}."
                ) from None
            lower = np.broadcast_to(low, shape).reshape(-1).astype(np.int64)
            upper = np.broadcast_to(high, shape).reshape(-1).astype(np.int64)
            if (lower > upper).any():
                bad = int(np.flatnonzero(lower > upper)[0])
                raise ValueError(
                    f"The support of {name!r} is empty at element {bad}: lower bound {lower[bad]} is above "
                    f"upper bound {upper[bad]}. Mend the bounds of its distribution or of support=."
                )
            asked = window.get(name, "auto") if isinstance(window, dict) else window
            widest = int((upper - lower).max(initial=0)) + 1
            reach = 2.0 * (scale or {}).get(name, 0.0) if endless else widest / 4
            offsets = offsets_of(name, asked, max(8.0, reach))  # checked even where none is needed
            finite = widest <= LARGEST_SUPPORT or (name in whole and not endless)
            width = (widths or {}).get(name, WIDTH)
            variables.append(
                Variable(name, shape, lower, upper, None if finite else offsets, name in nominal, width)
            )
        return cls(variables)

    def grouped(self, groups: list[list[str]], names: list[str]) -> "Space":
        """The same sites with one variable, called `names`, in place of each of the `groups` of variables of
        one kind.
        """
        own, variables, members, start = {v.name: v for v in self.variables}, [], [], 0
        for group, name in zip(groups, names, strict=True):
            parts = [own[n] for n in group]
            for v in parts:
                members.append(Member(v.name, v.shape, start))
                start += v.size
            lower, upper = (np.concatenate([getattr(v, end) for v in parts]) for end in ("lower", "upper"))
            first = parts[0]
            alone = len(parts) == 1
            variables.append(
                first if alone else replace(first, name=name, shape=(len(lower),), lower=lower, upper=upper)
            )
        return Space(variables, members)

    def ravel(self, point: Mapping[str, Any], xp: Any = np) -> Any:
        """(d,) int, the sites at a point {name: array}; `xp` is the array library."""
        return xp.concatenate([xp.asarray(point[m.name]).reshape(-1).astype(int) for m in self.members])

    def unravel(self, x: Any) -> dict[str, Any]:
        """{name: array} of the sites x (d,)."""
        return {m.name: x[m.start : m.start + m.size].reshape(m.shape) for m in self.members}

    @property
    def blocks(self) -> list[tuple[int, Variable]]:
        """(first site, variable) of every variable."""
        return list(zip(self.starts, self.variables, strict=True))

    def numbers(self, name: str) -> np.ndarray:
        """int array of the variable's shape, the numbers of its sites."""
        for m in self.members:
            if m.name == name:
                return m.start + np.arange(m.size).reshape(m.shape)
        raise ValueError(
            f"The space has no variable {name!r}; it has {', '.join(m.name for m in self.members)}."
        )

    def values_of(self, x, start: int, v: Variable, rows=None):
        """(n, moves) values of the other neighbours of one variable's sites, cyclic shifts 1..K-1 on finite
        sites.
        """
        lower, counts = v.lower, v.counts
        if rows is not None:
            lower, counts = picked(lower, rows), picked(counts, rows)
            now = x[start + rows]
        else:
            now = x[start : start + v.size]
        if v.offsets is not None:
            return now[:, None] + jnp.asarray(v.offsets, x.dtype)
        if v.K == 2:  # a flip
            return (2 * lower + 1 - now)[:, None]
        shift = np.arange(1, v.K)
        return lower[:, None] + jnp.remainder(now[:, None] - lower[:, None] + shift, counts[:, None])

    def by_value(self, x, n: int, moves, rows=None):
        """(r, moves) nats of the moves of one variable's sites `rows` -> (r, K) by neighbour, 0 for the
        current value.
        """
        start, v = self.blocks[n]
        if not v.finite:
            return moves
        lower, counts = picked(v.lower, rows), picked(v.counts, rows)
        now = x[start : start + v.size] if rows is None else x[start + rows]
        place = (now - lower)[:, None]
        if v.K == 2:
            return jnp.where(np.arange(2) == place, 0.0, moves)
        shift = jnp.remainder(np.arange(v.K) - place, counts[:, None])
        padded = jnp.concatenate([jnp.zeros_like(moves[:, :1]), moves], axis=1)
        return jnp.take_along_axis(padded, shift, axis=1, mode="clip")

    def neighbours(self, x, sites=None):
        """Neighbours of every site.

        Parameters
        ----------
        x : (d,) int
        sites : (m,) int, the sites wanted; None is all

        Returns
        -------
        values : (d, K) int
        inside : (d, K) bool, False beyond the support and in columns that a site does not have
        """
        x = jnp.asarray(x)
        if sites is None:
            column, exists, lower, upper, windowed = (
                self.column,
                self.exists,
                self.lower,
                self.upper,
                self.windowed,
            )
        else:
            arrays = (self.column, self.exists, self.lower, self.upper, self.windowed)
            column, exists, lower, upper, windowed = (jnp.asarray(a)[sites] for a in arrays)
            x = x[sites]
        values = jnp.where(windowed[:, None], x[:, None], lower[:, None]) + column
        inside = exists & (values >= lower[:, None]) & (values <= upper[:, None])
        return values, inside

    def neighbours_of(self, x, n: int, rows=None, candidates=None):
        """`neighbours` of one variable's sites `rows`, counted within it, no wider than it needs: values,
        inside (r, K), and now (r,).

        `candidates` (r, K) are values to look at instead of the window's.
        """
        start, v = self.blocks[n]
        now = x[start : start + v.size] if rows is None else x[start + rows]
        lower, upper = picked(v.lower, rows)[:, None], picked(v.upper, rows)[:, None]
        if v.finite:
            values = lower + np.arange(v.K)
            return values, values <= upper, now
        values = now[:, None] + jnp.asarray(v.offsets, x.dtype) if candidates is None else candidates
        return values, (values >= lower) & (values <= upper), now

    def contains(self, x: np.ndarray) -> np.ndarray:
        """(d,) bool, which sites of x lie in their support."""
        return (x >= self.lower) & (x <= self.upper)


def shape_of(name: str, given: Any) -> tuple[int, ...]:
    sizes = (given,) if np.ndim(given) == 0 else tuple(given)
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in sizes):
        raise ValueError(f"The shape of {name!r} must be integers that are not negative, got {given!r}.")
    return tuple(int(n) for n in sizes)


def bound(name: str, value: Any, missing: int) -> np.ndarray:
    """A bound as an integer array."""
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
    """Symmetric offsets of a window (the {x - 1, x + 1} of Grathwohl et al. 2021, footnote 1,
    generalised).
    """
    if isinstance(window, str) and window in ("auto", "geometric"):
        steps = 2 ** np.arange(int(np.log2(reach)) + 1)  # local steps to mix, long ones to travel
    elif isinstance(window, int | np.integer) and not isinstance(window, bool) and window >= 1:
        steps = np.arange(1, int(window) + 1)
    else:
        raise ValueError(
            f"window for {name!r} must be 'auto', 'geometric' or an integer of at least 1 (neighbours "
            f"x-w..x+w), got {window!r}."
        )
    return np.concatenate([-steps[::-1], steps]).astype(np.int64)
