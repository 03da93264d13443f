"""Two ways to eliminate a variable: by its maximum (max-product) and by its sum (sum-product)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# For at most ONE_BY_ONE_VALUES values, an element-wise maximum of one array per value is faster than a
# reduction over the axis, which XLA computes in a separate pass.
ONE_BY_ONE_VALUES = 8


class Semiring(NamedTuple):
    """How log potentials are combined over the values of a variable that is eliminated.

    Attributes
    ----------
    name : str
    over : (array, axis) -> array without that axis, the maximum or the log of the sum of exponentials along
        it; -inf where all entries are -inf
    two : (a, b) -> the maximum, or the log of the sum of exponentials, of two arrays, element by element
    """

    name: str
    over: Callable[..., Any]
    two: Callable[..., Any]


def over_all(a, axis):
    return jax.scipy.special.logsumexp(a, axis=axis)


def over_best(a, axis):
    if a.shape[axis] > ONE_BY_ONE_VALUES:
        return jnp.max(a, axis=axis)
    return functools.reduce(
        jnp.maximum, [jax.lax.index_in_dim(a, k, axis, keepdims=False) for k in range(a.shape[axis])]
    )


MAX = Semiring("max-product", over_best, jnp.maximum)
SUM = Semiring("sum-product", over_all, jnp.logaddexp)
