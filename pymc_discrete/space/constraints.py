"""Constraints of sites that cannot change alone: the questions that kernels ask, fixed sums, permutations."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

# Moves: in each of r rows, the m sites (r, m) that change together, counted within their variable, and the C
# tuples of values (r, C, m) that they may go to.
ListedMoves = tuple[np.ndarray, np.ndarray]


class Constraint(ABC):
    """Sets of sites of one variable that cannot change alone: sites of a set change together.

    Attributes
    ----------
    in_pairs : bool
        Whether sites change two at a time (`PairConstraint`), or along vectors (`LinearConstraint`).
    swaps : bool
        Whether two sites of a set can only exchange their values, which is one move of a pair.
    stands_still : str
        What a message says of the sites where the constraint leaves only one state.
    """

    in_pairs: ClassVar[bool]
    swaps: ClassVar[bool] = False
    stands_still: ClassVar[str]

    @property
    @abstractmethod
    def set_of(self) -> np.ndarray:
        """(n,) int, the set that each site belongs to."""

    @property
    @abstractmethod
    def changing(self) -> np.ndarray:
        """(n,) bool, the sites to which the constraint leaves several values; bounds may leave fewer."""

    def tightened(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (n,) of the sites that follow from the bounds of the other sites of the same set."""
        return lower, upper

    @abstractmethod
    def met(self, values: Any) -> Any:
        """(k,) bool, which of the k conditions of the constraint the values (n,) of the variable meet."""

    @abstractmethod
    def kept(self, values: Any, now: Any) -> Any:
        """(r, C) bool, whether the constraint still holds when sites change together to other values.

        Parameters
        ----------
        values : (r, C, m) int
        now : (r, m) int, the current values of these sites, at which the constraint holds
        """

    @abstractmethod
    def refusal(self, name: str, shape: tuple[int, ...], values: np.ndarray) -> str | None:
        """The error message for a start at values (n,) that do not meet the constraint; None if they do.

        Parameters
        ----------
        name, shape : of the variable
        """

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """(n,) int, the values at which a chain starts: near the proposed ones (n,), meeting the constraint.

        The default is the proposed values themselves: PyMC's own starts meet the constraint, and values from
        the user that do not meet it raise an error (`refusal`).
        """
        return values

    @abstractmethod
    def random(self, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n,) int, random values between bounds (n,) that meet the constraint."""

    @abstractmethod
    def random_moves(
        self, values: np.ndarray, lower: np.ndarray, upper: np.ndarray, number: int, rng: np.random.Generator
    ) -> ListedMoves | None:
        """`number` random moves from values (n,) to other values between bounds (n,), one for each row.

        The result is None where no site can change.
        """

    @abstractmethod
    def all_moves(self, values: np.ndarray, alone: np.ndarray, among: int, most: int) -> ListedMoves | None:
        """All moves from values (n,), of pairs or along short vectors, also those beyond bounds.

        The result is None where there are no moves, or more than `most`.

        Parameters
        ----------
        alone : (n, K) int, the candidate values of each site, as if it could change alone
        among : how many moves each pair counts as, where the number of moves is compared with `most`
        """


@dataclass(frozen=True, eq=False)
class PairConstraint(Constraint):
    """Sets of sites of which two change at a time.

    Attributes
    ----------
    sites : (R, c) int
        The sites of each set, counted within the variable. Every site belongs to one set.
    """

    sites: np.ndarray
    in_pairs: ClassVar[bool] = True

    @cached_property
    def set_of(self) -> np.ndarray:
        sets = np.empty(self.sites.size, int)
        sets[self.sites] = np.arange(len(self.sites))[:, None]
        return sets

    @cached_property
    def changing(self) -> np.ndarray:
        return np.full(self.sites.size, self.sites.shape[1] > 1)

    @cached_property
    def pairs(self) -> np.ndarray:
        """(p, 2) int, all pairs of two sites of one set, set after set."""
        one, other = np.triu_indices(self.sites.shape[1], 1)
        return np.stack([self.sites[:, one], self.sites[:, other]], axis=-1).reshape(-1, 2)

    def refusal(self, name: str, shape: tuple[int, ...], values: np.ndarray) -> str | None:
        for n in np.flatnonzero(~self.met(values))[:1]:
            elements = values[self.sites[n]]
            which = f"vector {n}, {elements.tolist()}," if len(shape) > 1 else f"{elements.tolist()}"
            return (
                f"{name!r} starts outside its support: {which} {self.unmet(n, elements)}. "
                f"Pass other initvals={{{name!r}: ...}}, or leave it out of initvals."
            )
        return None

    def random_moves(
        self, values: np.ndarray, lower: np.ndarray, upper: np.ndarray, number: int, rng: np.random.Generator
    ) -> ListedMoves | None:
        if not self.changing.any():
            return None
        pairs = rng.permuted(rng.choice(self.sites, number), axis=1)[:, :2]
        return pairs, self.random_values(values[pairs], lower[pairs], upper[pairs], rng)[:, None]

    def all_moves(self, values: np.ndarray, alone: np.ndarray, among: int, most: int) -> ListedMoves | None:
        R, c = self.sites.shape
        if not 0 < R * (c * (c - 1) // 2) * among <= most:
            return None
        return self.pairs, np.asarray(self.candidates(alone[self.pairs[:, 0]], values[self.pairs]))

    @abstractmethod
    def unmet(self, n: int, values: np.ndarray) -> str:
        """Why the values (c,) of set n do not meet the constraint, as the end of a sentence about them."""

    @abstractmethod
    def candidates(self, first: Any, now: Any) -> Any:
        """(r, C, 2) int, candidate values of two sites of a set at which the constraint holds, also beyond
        bounds.

        Parameters
        ----------
        first : (r, C) int, the candidate values of the first site
        now : (r, 2) int, the current values of both sites
        """

    @abstractmethod
    def random_values(
        self, now: np.ndarray, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """(r, 2) int, random values of two sites of a set at which the constraint stays met.

        Parameters
        ----------
        now : (r, 2) int, the current values of both sites
        lower, upper : (r, 2) int, the bounds of both sites
        """


@dataclass(frozen=True, eq=False)
class FixedSums(PairConstraint):
    """Sets of counts, each with a known sum: what one count of a pair gains, the other loses.

    For a kernel a pair is one site with a single degree of freedom, the value of its first count.

    Attributes
    ----------
    totals : (R,) int
        The sum of each set.
    """

    totals: np.ndarray
    stands_still: ClassVar[str] = "no two counts can change together"

    @classmethod
    def build(
        cls, name: str, totals: Any, shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray
    ) -> "FixedSums":
        """The constraint that each vector of a variable, along its last axis, has a fixed sum.

        Parameters
        ----------
        name : of the variable, for messages
        totals : (...) int, broadcast to the variable's shape without the last axis
        shape : of the variable
        lower, upper : (n,) int, bounds of its sites

        Raises
        ------
        ValueError
            For sums that do not fit the shape or are no integers, and for sums that no values between the
            bounds have.
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

    def random_values(
        self, now: np.ndarray, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        total = now.sum(axis=1)
        least = np.maximum(lower[:, 0], total - upper[:, 1])
        most = np.minimum(upper[:, 0], total - lower[:, 1])
        first = rng.integers(least, most + 1)
        return np.stack([first, total - first], axis=1)


@dataclass(frozen=True, eq=False)
class Permutations(PairConstraint):
    """Sets of c sites, each of which holds 0, ..., c - 1 in some order: two sites exchange their values."""

    swaps: ClassVar[bool] = True
    stands_still: ClassVar[str] = "no two places can exchange their values"

    @classmethod
    def build(cls, name: str, shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray) -> "Permutations":
        """The constraint that each vector of a variable, along its last axis, is a permutation.

        Parameters
        ----------
        name : of the variable, for messages
        shape : of the variable
        lower, upper : (n,) int, bounds of its sites

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
        # To see whether every value occurs takes less time than to sort the values.
        place = jnp.where((each >= 0) & (each < c), each, c)
        return jnp.zeros((R, c), bool).at[np.arange(R)[:, None], place].set(True, mode="drop").all(axis=1)

    def unmet(self, n: int, values: np.ndarray) -> str:
        return f"is no permutation of 0, ..., {len(values) - 1}"

    def kept(self, values: Any, now: Any) -> Any:
        as_now, swapped = (values == both[:, None] for both in (now, now[:, ::-1]))
        return as_now.all(axis=-1) | swapped.all(axis=-1)

    def candidates(self, first: Any, now: Any) -> Any:
        # two elements of a permutation, given all others, can only stay or swap their values
        return jnp.stack([now, now[:, ::-1]], axis=1)

    def random(self, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        values = np.empty_like(lower)
        R, c = self.sites.shape
        values[self.sites] = rng.permuted(np.broadcast_to(np.arange(c), (R, c)), axis=1)
        return values

    def random_values(
        self, now: np.ndarray, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        return now[:, ::-1]


def along_last_axis(shape: tuple[int, ...]) -> np.ndarray:
    """(R, c) int, the sites of every vector along the last axis of an array of this shape."""
    return np.arange(int(np.prod(shape))).reshape(int(np.prod(shape[:-1])), shape[-1])
