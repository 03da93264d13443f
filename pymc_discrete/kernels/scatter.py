"""Sums and minima of values grouped by an index: in a loop for few values on a CPU, else by a scatter.

A program for a CPU with a scatter of XLA in one branch is slower by some microseconds a draw even if the
branch is not taken. With a loop in the branch it is not slower. A loop that runs takes about as long as a
scatter for few elements, and longer for many.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

IN_TURN_UP_TO = 1000


def added_at(index: Any, values: Any, n: int) -> Any:
    """(n, ...), whose element i is the sum of the values (m, ...) that have the index i in `index` (m,).

    Values with the index n are left out.
    """
    zeros = jnp.zeros((n + 1, *values.shape[1:]), values.dtype)
    return combined_at(zeros, index, values, jnp.add, lambda: zeros.at[index].add(values))[:n]


def lowest_at(start: Any, index: Any, values: Any) -> Any:
    """(n,), whose element i is the minimum of `start[i]` and of the values (m,) that have index i."""
    return combined_at(start, index, values, jnp.minimum, lambda: start.at[index].min(values))


def combined_at(start: Any, index: Any, values: Any, combine: Callable, scatter: Callable) -> Any:
    """The array `start`, combined with each value at the index of the value, in a loop or by a scatter."""
    index = jnp.asarray(index)

    def in_turn():
        def body(t, total):
            at = index[t]
            return total.at[at].set(combine(total[at], values[t]), mode="promise_in_bounds")

        return jax.lax.fori_loop(0, len(index), body, start)

    few = len(index) <= IN_TURN_UP_TO
    return jax.lax.platform_dependent(cpu=in_turn, default=scatter) if few else scatter()
