"""Sites that cannot change alone: sets of counts, each with a known sum."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, eq=False)
class FixedSums:
    """Sets of sites of one variable, each with a known sum.

    A change of one site breaks the sum, so two sites of a set change together: what one gains, the other
    loses. A kernel reads the two as one site with a single degree of freedom, whose value is that of the
    first.

    Attributes
    ----------
    sites : (R, c) int
        The sites of each set, counted within the variable. Every site belongs to one set.
    totals : (R,) int
        The sum of each set.
    """

    sites: np.ndarray
    totals: np.ndarray

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
        sites = np.arange(int(np.prod(shape))).reshape(int(np.prod(shape[:-1])), shape[-1])
        totals = totals.reshape(-1).astype(np.int64)
        least, most = lower[sites].sum(axis=1), upper[sites].sum(axis=1)
        for row in np.flatnonzero((totals < least) | (totals > most))[:1]:
            raise ValueError(
                f"Vector {row} of {name!r} cannot have the sum {totals[row]}: the bounds of its counts allow "
                f"sums from {least[row]} to {most[row]}. Mend the sum, or the bounds of support=."
            )
        return cls(sites, totals)

    def tightened(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (n,) of the sites, given that the other sites of a set are within theirs."""
        least, most = lower[self.sites], upper[self.sites]
        highest = self.totals[:, None] - (least.sum(axis=1, keepdims=True) - least)
        lowest = self.totals[:, None] - (most.sum(axis=1, keepdims=True) - most)
        low, high = lower.copy(), upper.copy()
        low[self.sites], high[self.sites] = np.maximum(least, lowest), np.minimum(most, highest)
        return low, high

    @cached_property
    def set_of(self) -> np.ndarray:
        """(n,) int, the set that each site belongs to."""
        sets = np.empty(self.sites.size, int)
        sets[self.sites] = np.arange(len(self.sites))[:, None]
        return sets

    def met(self, values: Any) -> Any:
        """(R,) bool, which sets of the variable's values (n,) have their sum."""
        return values[self.sites].sum(axis=1) == self.totals

    def together(self, first: Any, now: Any) -> Any:
        """(r, C, 2) int, the values of two sites of a set where the first has the values `first`.

        Parameters
        ----------
        first : (r, C) int
        now : (r, 2) int, their current values
        """
        return jnp.stack([first, now.sum(axis=1, keepdims=True) - first], axis=-1)

    def random(self, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n,) int, random values between bounds (n,) that have the sums."""
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
