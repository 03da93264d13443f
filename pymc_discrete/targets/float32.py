"""Changes of a log density added up summand by summand, where the log density itself would drown them.

In float32 a log density of a million nats is known to a tenth of a nat. Its change is not: most summands
(`sums.all_summands`) stay, and cancel exactly.
"""

from typing import Any

import jax.numpy as jnp


def narrow() -> bool:
    """Whether floats have 32 bits here."""
    return jnp.result_type(float) == jnp.float32


def reference(parts: Any) -> list[Any]:
    """What `change` subtracts: the summands, 0 where they are not finite."""
    parts = [jnp.asarray(p, float) for p in parts]
    return [jnp.where(jnp.isfinite(p), p, 0.0) for p in parts]


def change(parts: Any, since: list[Any]) -> Any:
    """() nats, the sum of the summands less that of the reference, each subtracted from its own."""
    return sum(((jnp.asarray(p, float) - s).sum() for p, s in zip(parts, since, strict=True)), jnp.zeros(()))


def levelled(values):
    """Each element's values over its candidates (..., k), in float32 less their largest: a sum of many would
    drown how they differ.
    """
    if not narrow():
        return values
    top = values.max(axis=-1, keepdims=True)
    return jnp.where(jnp.isfinite(top), values - top, values)
