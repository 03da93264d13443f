"""Differences of a log density in float32, added up summand by summand.

In float32 a log density of a million nats is rounded to about a tenth of a nat, too coarse for an accept or
reject step. If each summand (`sums.all_summands`) is subtracted from its own earlier value first, the
summands that do not change cancel exactly and only the changes are rounded.
"""

from typing import Any

import jax.numpy as jnp


def floats_are_32_bit() -> bool:
    """Whether JAX's default float is float32 where this is called."""
    return jnp.result_type(float) == jnp.float32


def reference(summands: Any) -> list[Any]:
    """The values of the summands at a state, which `change` subtracts from later values; 0 where a value is
    not finite.
    """
    summands = [jnp.asarray(s, float) for s in summands]
    return [jnp.where(jnp.isfinite(s), s, 0.0) for s in summands]


def change(summands: Any, since: list[Any]) -> Any:
    """() nats, the sum of the summands less the sum of their earlier values `since`; each earlier value is
    subtracted from its summand before the results are added up.
    """
    pairs = zip(summands, since, strict=True)
    return sum(((jnp.asarray(now, float) - then).sum() for now, then in pairs), jnp.zeros(()))


def relative_to_largest(values):
    """In float32, the values at the candidates (..., k) of each element less the largest of the k values.

    A constant for each element does not matter where only differences between candidates are used. A large
    constant would make the rounding of a sum over many elements hide how the candidates differ.
    """
    if not floats_are_32_bit():
        return values
    largest = values.max(axis=-1, keepdims=True)
    return jnp.where(jnp.isfinite(largest), values - largest, values)
