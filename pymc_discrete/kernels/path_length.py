"""Random numbers of moves with a given mean."""

from typing import Any

import jax.numpy as jnp
import numpy as np

LARGEST_MEAN = 10_000  # a proposal holds twice as many draws


def largest_count(mean: float) -> int:
    """The most moves that a proposal with the given mean makes."""
    return 2 * int(np.ceil(mean)) - 1


def draw_count(u, v, mean):
    """A number of moves with the given mean: L ~ Uniform{1..2X-1}, X the mean rounded up or down at random.

    One move keeps a probability of at least 1/(2 mean - 1), so that no parity of the moves is conserved.
    """
    low = jnp.floor(mean)
    X = low + (u < mean - low)
    return 1 + jnp.floor(v * (2 * X - 1)).astype(int)


def check_mean(name: str, mean: Any) -> None:
    number = isinstance(mean, int | float | np.integer | np.floating) and not isinstance(mean, bool)
    if not (number and 1 <= mean <= LARGEST_MEAN):
        raise ValueError(
            f"{name} must be 'adapt' or a number of at least 1 (and at most {LARGEST_MEAN}), the mean number of moves in a proposal, "
            f"got {mean!r}."
        )
