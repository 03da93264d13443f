"""The random number of moves in a proposal."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.runtime.checks import is_integer_from, is_number, is_word
from pymc_discrete.space.space import Space

# the largest mean length of a path; a compiled proposal has arrays for twice as many moves
LARGEST_MEAN = 10_000
# Lower bound of a tuned mean. Single moves may never be accepted, as under a parity constraint; with this
# bound paths of several moves are still tried.
SMALLEST_TUNED = 1.5
INITIAL_MEAN = 3.0  # the tuned mean before the first draw


class PathLength:
    """The distribution of the number L of moves in a proposal.

    L is random and independent of x. It is 1 with a probability of at least 1/(2 mean - 1). If L were always
    even, for example, binary states with an odd number of changed sites would never be reached.

    Parameters
    ----------
    name : name of the kernel's parameter
    option : "adapt", float or (lower, upper)
        A float is the mean X of L ~ Uniform{1..2X-1}. A range is the range of L; in addition L is 1 with
        probability 1/(lower + upper - 1).
    largest_tuned : the largest mean that "adapt" may take

    Raises
    ------
    ValueError
        For any other option.
    """

    def __init__(self, name: str, option: Any, largest_tuned: int):
        self.range: tuple[int, int] | None = None
        self.adapt = is_word(option, "adapt")
        self.largest_tuned = largest_tuned
        if isinstance(option, tuple | list):
            self.range = range_of_lengths(name, option)
            self.mean = sum(self.range) / 2
        elif not self.adapt:
            self.mean = check_mean(name, option)
        self.tuned = Tuned(name, self._bounds) if self.adapt else None

    @property
    def start(self) -> float:
        """The mean number of moves in a proposal before the first draw."""
        return INITIAL_MEAN if self.adapt else self.mean

    def _largest_mean(self, space: Space) -> float:
        return float(np.clip(space.d / 2, 1, self.largest_tuned)) if self.adapt else self.mean

    def _bounds(self, space: Space) -> tuple[float, float]:
        largest = self._largest_mean(space)
        return min(SMALLEST_TUNED, largest), largest

    def most(self, space: Space) -> int:
        """The largest possible number L of moves in a proposal."""
        return self.range[1] if self.range else 2 * int(np.ceil(self._largest_mean(space))) - 1

    def draw(self, u, v, mean):
        """() int, the number L of moves in a proposal, by two uniforms u and v.

        Without a range, L ~ Uniform{1..2X-1}, where X is `mean`, rounded up or down at random.
        """
        if self.range:
            lower, upper = self.range
            inside = lower + jnp.floor(v * (upper - lower + 1)).astype(int)
            return jnp.where(u < 1 / (lower + upper - 1), 1, inside)
        rounded_down = jnp.floor(mean)
        X = rounded_down + (u < mean - rounded_down)
        return 1 + jnp.floor(v * (2 * X - 1)).astype(int)


def check_mean(name: str, mean: Any) -> float:
    """`mean` as a float; a ValueError unless it is a number between 1 and `LARGEST_MEAN`."""
    if not (is_number(mean) and 1 <= mean <= LARGEST_MEAN):
        raise ValueError(
            f"{name} must be 'adapt' or a number of at least 1 (and at most {LARGEST_MEAN}), the mean number "
            f"of moves in a proposal, got {mean!r}."
        )
    return float(mean)


def range_of_lengths(name: str, option: Any) -> tuple[int, int]:
    """`option` as a range (lower, upper) of path lengths; a ValueError unless it is one."""
    counts = len(option) == 2 and all(is_integer_from(end, 1) for end in option)
    if not (counts and option[0] <= option[1] <= 2 * LARGEST_MEAN):
        raise ValueError(
            f"{name} must be a range (lower, upper) of integers with 1 <= lower <= upper, got {option!r}."
        )
    return int(option[0]), int(option[1])
