"""The two ways to eliminate a variable: by its best value (max-product) and by all of them (sum-product)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


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
    return jnp.max(a, axis=axis)


MAX = Semiring("max-product", over_best, jnp.maximum)
SUM = Semiring("sum-product", over_all, jnp.logaddexp)
