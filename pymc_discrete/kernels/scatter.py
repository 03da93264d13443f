"""Sums and minima of values by an index: few of them element after element on a CPU.

A program for a CPU that has a scatter of XLA in a branch is slower by some microseconds a draw also where the
branch is not taken. With a loop it is not. When it runs, a loop takes about as long for few elements, and
longer for many.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

IN_TURN_UP_TO = 1000


def added_at(index: Any, values: Any, n: int) -> Any:
    """(n, ...) sums of those values (m, ...) whose index (m,) is equal; an index of n is left out."""
    zeros = jnp.zeros((n + 1, *values.shape[1:]), values.dtype)
    return combined_at(zeros, index, values, jnp.add, lambda: zeros.at[index].add(values))[:n]


def lowest_at(start: Any, index: Any, values: Any) -> Any:
    """(n,) where element i is the minimum of `start[i]` and of those values (m,) whose index (m,) is i."""
    return combined_at(start, index, values, jnp.minimum, lambda: start.at[index].min(values))


def combined_at(start: Any, index: Any, values: Any, combine: Callable, scatter: Callable) -> Any:
    """`start` combined at each index with each value, in turn or by a scatter."""
    index = jnp.asarray(index)

    def in_turn():
        def body(t, total):
            at = index[t]
            return total.at[at].set(combine(total[at], values[t]), mode="promise_in_bounds")

        return jax.lax.fori_loop(0, len(index), body, start)

    few = len(index) <= IN_TURN_UP_TO
    return jax.lax.platform_dependent(cpu=in_turn, default=scatter) if few else scatter()
