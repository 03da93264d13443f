"""The discrete space of a block: its sites, their supports and their neighbours."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

# A support of at most this many values is enumerated; a wider one is walked by offsets
LARGEST_SUPPORT = 256
UNBOUNDED = np.iinfo(np.int32).max


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
    """

    name: str
    shape: tuple[int, ...]
    lower: np.ndarray
    upper: np.ndarray
    offsets: np.ndarray | None
    nominal: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

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


class Space:
    """The product space of a block of discrete variables, ravelled into `d` sites.

    Parameters
    ----------
    variables : list of `Variable`

    Attributes
    ----------
    d, K : int, number of sites and of neighbours of the widest one
    sites : list of (value variable name, flat index), length d
    lower, upper : (d,) int, bounds of each site, inclusive
    windowed : (d,) bool, sites whose neighbours are offsets
    nominal : (d,) bool, sites whose values have no order
    """

    def __init__(self, variables: list[Variable]):
        self.variables = list(variables)
        if not self.variables:
            raise ValueError("A space needs at least one variable: pmd.Space.build({name: (lower, upper)}).")
        sizes = [v.size for v in variables]
        self.d = sum(sizes)
        self.starts = [sum(sizes[:n]) for n in range(len(sizes))]
        self.K = max((v.K for v in variables), default=0)
        self.sites = [(v.name, i) for v in variables for i in range(v.size)]
        self.lower = np.concatenate([v.lower for v in variables]).astype(np.int64)
        self.upper = np.concatenate([v.upper for v in variables]).astype(np.int64)
        self.windowed = np.concatenate([np.full(v.size, not v.finite) for v in variables])
        self.nominal = np.concatenate([np.full(v.size, v.nominal) for v in variables])
        # per site and column: the offset (windowed) or the place in the support (finite), and whether the column exists
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
    ) -> "Space":
        """A space from supports.

        Parameters
        ----------
        supports : {name: (lower, upper)}, inclusive, scalars or arrays of the variable's shape; None or +-inf where unbounded
        shapes : {name: shape}, () where one is left out; by default the shapes of the bounds
        window : "auto", "geometric", an int w for -w..w, or {name: one of these}, for sites with more than 256 values
        scale : {name: typical size of a value}, which "auto" widens the window by
        nominal : names of variables whose values have no order
        """
        variables = []
        if not isinstance(supports, Mapping):
            raise TypeError(f"supports must be a dictionary {{name: (lower, upper)}}, got {supports!r}.")
        if isinstance(nominal, str):
            raise TypeError(f"nominal must be a list of names, got {nominal!r}. One name is [{nominal!r}].")
        for what, given in (("window", window), ("shapes", shapes), ("nominal", dict.fromkeys(nominal))):
            for name in given if isinstance(given, Mapping) else ():
                if name not in supports:
                    raise ValueError(f"{what} names {name!r}, which is no variable of the block: {', '.join(supports)}.")
        for name, given in supports.items():
            if not (isinstance(given, tuple | list) and len(given) == 2):
                raise ValueError(f"The support of {name!r} must be (lower, upper), both inclusive, got {given!r}.")
            low, high = given
            low, high = bound(name, low, -UNBOUNDED), bound(name, high, UNBOUNDED)
            shape = np.broadcast_shapes(low.shape, high.shape) if shapes is None else shape_of(name, shapes.get(name, ()))
            try:
                np.broadcast_to(low, shape), np.broadcast_to(high, shape)
            except ValueError:
                raise ValueError(
                    f"The support of {name!r} has bounds of shapes {low.shape} and {high.shape}, which do not fit its shape {shape}."
                ) from None
            lower = np.broadcast_to(low, shape).reshape(-1).astype(np.int64)
            upper = np.broadcast_to(high, shape).reshape(-1).astype(np.int64)
            if (lower > upper).any():
                bad = int(np.flatnonzero(lower > upper)[0])
                raise ValueError(
                    f"The support of {name!r} is empty at element {bad}: lower bound {lower[bad]} is above upper bound "
                    f"{upper[bad]}. Mend the bounds of its distribution or of support=."
                )
            asked = window.get(name, "auto") if isinstance(window, dict) else window
            widest = int((upper - lower).max(initial=0)) + 1
            endless = bool((upper >= UNBOUNDED).any() or (lower <= -UNBOUNDED).any())
            reach = 2.0 * np.sqrt(abs((scale or {}).get(name, 0.0))) if endless else widest / 4
            offsets = offsets_of(name, asked, max(8.0, reach))  # checked even where none is needed
            finite = widest <= LARGEST_SUPPORT
            variables.append(Variable(name, shape, lower, upper, None if finite else offsets, name in nominal))
        return cls(variables)

    @property
    def blocks(self) -> list[tuple[int, Variable]]:
        """(first site, variable) of every variable."""
        return list(zip(self.starts, self.variables, strict=True))

    def numbers(self, name: str) -> np.ndarray:
        """int array of the variable's shape, the numbers of its sites."""
        for start, v in self.blocks:
            if v.name == name:
                return start + np.arange(v.size).reshape(v.shape)
        raise ValueError(f"The space has no variable {name!r}; it has {', '.join(v.name for v in self.variables)}.")

    def values_of(self, x, start: int, v: Variable, rows=None):
        """(n, moves) values of the other neighbours of one variable's sites, cyclic shifts 1..K-1 on finite sites."""
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
            column, exists, lower, upper, windowed = self.column, self.exists, self.lower, self.upper, self.windowed
        else:
            arrays = (self.column, self.exists, self.lower, self.upper, self.windowed)
            column, exists, lower, upper, windowed = (jnp.asarray(a)[sites] for a in arrays)
            x = x[sites]
        values = jnp.where(windowed[:, None], x[:, None], lower[:, None]) + column
        inside = exists & (values >= lower[:, None]) & (values <= upper[:, None])
        return values, inside

    def neighbours_of(self, x, n: int, rows=None, candidates=None):
        """`neighbours` of one variable's sites `rows`, counted within it, no wider than it needs: values, inside (r, K), and now (r,).

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


def picked(array: np.ndarray, rows):
    """`array[rows]`: static where `rows` is, everything where it is None."""
    if rows is None or isinstance(rows, np.ndarray):
        return array if rows is None else array[rows]
    return jnp.asarray(array)[rows]


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
            raise ValueError(f"The support of {name!r} has a bound that is nan. Give integers, or None where there is no bound.")
        array = np.clip(np.where(np.isinf(array), np.sign(array) * UNBOUNDED, array), -UNBOUNDED, UNBOUNDED)
        if (array != np.floor(array)).any():
            raise ValueError(f"The support of {name!r} has a bound that is no integer: {value!r}.")
    elif array.dtype.kind not in "iu":
        raise ValueError(f"The support of {name!r} has a bound that is no number: {value!r}. Give (lower, upper), both inclusive.")
    return array.astype(np.int64)


def offsets_of(name: str, window: Any, reach: float) -> np.ndarray:
    """Symmetric offsets of a window (the {x - 1, x + 1} of Grathwohl et al. 2021, footnote 1, generalised)."""
    if isinstance(window, str) and window in ("auto", "geometric"):
        steps = 2 ** np.arange(int(np.log2(reach)) + 1)  # local steps to mix, long ones to travel
    elif isinstance(window, int | np.integer) and not isinstance(window, bool) and window >= 1:
        steps = np.arange(1, int(window) + 1)
    else:
        raise ValueError(
            f"window for {name!r} must be 'auto', 'geometric' or an integer of at least 1 (neighbours x-w..x+w), got {window!r}."
        )
    return np.concatenate([-steps[::-1], steps]).astype(np.int64)
