"""The two ways to eliminate a variable: by its best value (max-product) and by all of them (sum-product)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# values: up to so many, the maximum of their arrays is faster than a reduction, which XLA computes in a pass
# of its own
FEW = 8


class Semiring(NamedTuple):
    """How log potentials are combined over the values that are eliminated.

    over : (array, axis) -> array without that axis; -inf where all are -inf
    two : (a, b) -> the same of two arrays
    """

    name: str
    over: Callable[..., Any]
    two: Callable[..., Any]


def over_all(a, axis):
    return jax.scipy.special.logsumexp(a, axis=axis)


def over_best(a, axis):
    if a.shape[axis] > FEW:
        return jnp.max(a, axis=axis)
    return functools.reduce(
        jnp.maximum, [jax.lax.index_in_dim(a, k, axis, keepdims=False) for k in range(a.shape[axis])]
    )


MAX = Semiring("max-product", over_best, jnp.maximum)
SUM = Semiring("sum-product", over_all, jnp.logaddexp)
