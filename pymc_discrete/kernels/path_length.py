"""Random numbers of moves."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pymc_discrete.checks import is_count, is_number, is_word
from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.targets.space import Space

LARGEST_MEAN = 10_000  # a proposal holds twice as many draws
SMALLEST_TUNED = 1.5  # where one move alone is never accepted (parity), more are still tried
START = 3.0


class PathLength:
    """The number L of moves in a proposal: random, never a function of x, and 1 with a probability of at
    least 1/(2 mean - 1), so that no parity of the moves is conserved.

    Parameters
    ----------
    name : the parameter's name
    asked : "adapt", the mean X of L ~ Uniform{1..2X-1}, or the range (lower, upper) of L, which is 1 once in
        `lower + upper - 1` times
    tuned_most : the largest mean that "adapt" may take
    """

    def __init__(self, name: str, asked: Any, tuned_most: int):
        self.range: tuple[int, int] | None = None
        self.adapt = is_word(asked, "adapt")
        self.tuned_most = tuned_most
        if isinstance(asked, tuple | list):
            self.range = check_range(name, asked)
            self.mean = sum(self.range) / 2
        elif not self.adapt:
            self.mean = check_mean(name, asked)
        self.tuned = Tuned(name, self._bounds) if self.adapt else None

    @property
    def start(self) -> float:
        return START if self.adapt else self.mean

    def _largest_mean(self, space: Space) -> float:
        return float(np.clip(space.d / 2, 1, self.tuned_most)) if self.adapt else self.mean

    def _bounds(self, space: Space) -> tuple[float, float]:
        largest = self._largest_mean(space)
        return min(SMALLEST_TUNED, largest), largest

    def most(self, space: Space) -> int:
        """The largest L."""
        return self.range[1] if self.range else 2 * int(np.ceil(self._largest_mean(space))) - 1

    def draw(self, u, v, mean):
        """() int, L from two uniforms; X is the mean rounded up or down at random."""
        if self.range:
            lower, upper = self.range
            inside = lower + jnp.floor(v * (upper - lower + 1)).astype(int)
            return jnp.where(u < 1 / (lower + upper - 1), 1, inside)
        low = jnp.floor(mean)
        X = low + (u < mean - low)
        return 1 + jnp.floor(v * (2 * X - 1)).astype(int)


def check_mean(name: str, mean: Any) -> float:
    if not (is_number(mean) and 1 <= mean <= LARGEST_MEAN):
        raise ValueError(
            f"{name} must be 'adapt' or a number of at least 1 (and at most {LARGEST_MEAN}), the mean number "
            f"of moves in a proposal, got {mean!r}."
        )
    return float(mean)


def check_range(name: str, asked: Any) -> tuple[int, int]:
    counts = len(asked) == 2 and all(is_count(end, 1) for end in asked)
    if not (counts and asked[0] <= asked[1] <= 2 * LARGEST_MEAN):
        raise ValueError(
            f"{name} must be a range (lower, upper) of integers with 1 <= lower <= upper, got {asked!r}."
        )
    return int(asked[0]), int(asked[1])
