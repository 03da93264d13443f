"""Sites that cannot change alone: sets of counts, each with a known sum, and permutations."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, eq=False)
class Constraint(ABC):
    """Sets of sites of one variable that cannot change alone: two sites of a set change together.

    Attributes
    ----------
    sites : (R, c) int
        The sites of each set, counted within the variable. Every site belongs to one set.
    swaps : bool
        Whether two sites of a set can only exchange their values, which is one move of a pair.
    stands_still : str
        For messages, what is so where nothing moves.
    """

    sites: np.ndarray
    swaps: ClassVar[bool]
    stands_still: ClassVar[str]

    @cached_property
    def set_of(self) -> np.ndarray:
        """(n,) int, the set that each site belongs to."""
        sets = np.empty(self.sites.size, int)
        sets[self.sites] = np.arange(len(self.sites))[:, None]
        return sets

    @cached_property
    def pairs(self) -> np.ndarray:
        """(p, 2) int, all pairs of two sites of one set, set after set."""
        one, other = np.triu_indices(self.sites.shape[1], 1)
        return np.stack([self.sites[:, one], self.sites[:, other]], axis=-1).reshape(-1, 2)

    def tightened(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (n,) of the sites, given that the other sites of a set are within theirs."""
        return lower, upper

    @abstractmethod
    def met(self, values: Any) -> Any:
        """(R,) bool, which sets of the variable's values (n,) meet the constraint."""

    @abstractmethod
    def unmet(self, n: int, values: np.ndarray) -> str:
        """Why the values (c,) of set n do not meet the constraint, as the end of a sentence about them."""

    @abstractmethod
    def kept(self, values: Any, now: Any) -> Any:
        """(r, C) bool, at which values of two sites of a set the constraint stays met.

        Parameters
        ----------
        values : (r, C, 2) int
        now : (r, 2) int, their current values, at which it is met
        """

    @abstractmethod
    def candidates(self, first: Any, now: Any) -> Any:
        """(r, C, 2) int, values of two sites of a set at which the constraint stays met.

        Bounds are not looked at.

        Parameters
        ----------
        first : (r, C) int, the values of the first site that are looked at, as if it could change alone
        now : (r, 2) int, their current values
        """

    @abstractmethod
    def random(self, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n,) int, random values between bounds (n,) that meet the constraint."""

    @abstractmethod
    def random_moves(
        self, now: np.ndarray, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """(r, 2) int, random values of two sites of a set at which the constraint stays met.

        Parameters
        ----------
        now : (r, 2) int, their current values
        lower, upper : (r, 2) int, their bounds
        """


@dataclass(frozen=True, eq=False)
class FixedSums(Constraint):
    """Sets of counts, each with a known sum: what one count of a pair gains, the other loses.

    A kernel reads the two as one site with a single degree of freedom, whose value is that of the first.

    Attributes
    ----------
    totals : (R,) int
        The sum of each set.
    """

    totals: np.ndarray
    swaps: ClassVar[bool] = False
    stands_still: ClassVar[str] = "no two counts can change together"

    @classmethod
    def build(
        cls, name: str, totals: Any, shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray
    ) -> "FixedSums":
        """The sets that a variable has along its last axis.

        Parameters
        ----------
        name : of the variable, for messages
        totals : (...) int, broadcast to the variable's shape without the last axis
        shape : of the variable
        lower, upper : (n,) int, bounds of its sites

        Raises
        ------
        ValueError
            For sums that do not fit the shape, are no integers, or that no values between the bounds have.
        """
        totals = np.asarray(totals)
        if not shape:
            raise ValueError(f"{name!r} is a scalar, and only the counts of a vector can have a fixed sum.")
        try:
            totals = np.broadcast_to(totals, shape[:-1])
        except ValueError:
            raise ValueError(
                f"The sums of {name!r} have the shape {totals.shape}, and its vectors, along the last axis, "
                f"the shape {shape[:-1]}. Give one number, or one for each vector."
            ) from None
        if totals.dtype.kind not in "iuf" or not (np.isfinite(totals) & (totals == np.floor(totals))).all():
            raise ValueError(f"The sums of {name!r} must be integers, got {totals!r}.")
        sites = along_last_axis(shape)
        totals = totals.reshape(-1).astype(np.int64)
        least, most = lower[sites].sum(axis=1), upper[sites].sum(axis=1)
        for row in np.flatnonzero((totals < least) | (totals > most))[:1]:
            raise ValueError(
                f"Vector {row} of {name!r} cannot have the sum {totals[row]}: the bounds of its counts allow "
                f"sums from {least[row]} to {most[row]}. Mend the sum, or the bounds of support=."
            )
        return cls(sites, totals)

    def tightened(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        least, most = lower[self.sites], upper[self.sites]
        highest = self.totals[:, None] - (least.sum(axis=1, keepdims=True) - least)
        lowest = self.totals[:, None] - (most.sum(axis=1, keepdims=True) - most)
        low, high = lower.copy(), upper.copy()
        low[self.sites], high[self.sites] = np.maximum(least, lowest), np.minimum(most, highest)
        return low, high

    def met(self, values: Any) -> Any:
        return values[self.sites].sum(axis=1) == self.totals

    def unmet(self, n: int, values: np.ndarray) -> str:
        return f"adds up to {values.sum()}, and n is {self.totals[n]}"

    def kept(self, values: Any, now: Any) -> Any:
        return values.sum(axis=-1) == now.sum(axis=-1)[:, None]

    def candidates(self, first: Any, now: Any) -> Any:
        return jnp.stack([first, now.sum(axis=1, keepdims=True) - first], axis=-1)

    def random(self, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        values = lower.copy()
        for sites, total in zip(self.sites, self.totals, strict=True):
            left = total - values[sites].sum()
            shares = rng.dirichlet(np.ones(len(sites)))
            while left > 0:
                room = upper[sites] - values[sites]
                weights = np.where(room > 0, shares + 1e-9, 0.0)
                given = np.minimum(rng.multinomial(left, weights / weights.sum()), room)
                values[sites] += given
                left -= given.sum()
        return values

    def random_moves(
        self, now: np.ndarray, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        total = now.sum(axis=1)
        least = np.maximum(lower[:, 0], total - upper[:, 1])
        most = np.minimum(upper[:, 0], total - lower[:, 1])
        first = rng.integers(least, most + 1)
        return np.stack([first, total - first], axis=1)


@dataclass(frozen=True, eq=False)
class Permutations(Constraint):
    """Sets of c sites, each of which holds 0, ..., c - 1 in some order: two sites exchange their values."""

    swaps: ClassVar[bool] = True
    stands_still: ClassVar[str] = "no two places can exchange their values"

    @classmethod
    def build(cls, name: str, shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray) -> "Permutations":
        """The permutations that a variable has along its last axis; parameters as of `FixedSums.build`.

        Raises
        ------
        ValueError
            For a scalar, vectors without elements, and bounds that are not those of a permutation.
        """
        if not shape or not shape[-1]:
            raise ValueError(f"{name!r} has the shape {shape}, and a permutation needs at least one element.")
        last = shape[-1] - 1
        for site in np.flatnonzero((lower != 0) | (upper != last))[:1]:
            raise ValueError(
                f"{name!r} holds permutations of 0, ..., {last}, and its support is [{lower[site]}, "
                f"{upper[site]}]. Leave support= out; pm.Potential can say which orders are possible."
            )
        return cls(along_last_axis(shape))

    def met(self, values: Any) -> Any:
        R, c = self.sites.shape
        each = values[self.sites]
        if isinstance(values, np.ndarray):
            return (np.sort(each, axis=1) == np.arange(c)).all(axis=1)
        # whether each value is there, which takes less time than to sort them
        place = jnp.where((each >= 0) & (each < c), each, c)
        return jnp.zeros((R, c), bool).at[np.arange(R)[:, None], place].set(True, mode="drop").all(axis=1)

    def unmet(self, n: int, values: np.ndarray) -> str:
        return f"is no permutation of 0, ..., {len(values) - 1}"

    def kept(self, values: Any, now: Any) -> Any:
        as_now, swapped = (values == both[:, None] for both in (now, now[:, ::-1]))
        return as_now.all(axis=-1) | swapped.all(axis=-1)

    def candidates(self, first: Any, now: Any) -> Any:
        # of all values of the first site, the other sites leave the two that the pair holds
        return jnp.stack([now, now[:, ::-1]], axis=1)

    def random(self, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        values = np.empty_like(lower)
        R, c = self.sites.shape
        values[self.sites] = rng.permuted(np.broadcast_to(np.arange(c), (R, c)), axis=1)
        return values

    def random_moves(
        self, now: np.ndarray, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        return now[:, ::-1]


def along_last_axis(shape: tuple[int, ...]) -> np.ndarray:
    """(R, c) int, the sites of every vector along the last axis of an array of this shape."""
    return np.arange(int(np.prod(shape))).reshape(int(np.prod(shape[:-1])), shape[-1])
