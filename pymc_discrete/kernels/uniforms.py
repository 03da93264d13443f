"""Random numbers in bulk: 32-bit draws use both words of every block of JAX's generator, where its own use
one.
"""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32


def words(key, shape: tuple[int, ...]):
    """`shape` uint32, uniform."""
    if str(jax.random.key_impl(key)) != "threefry2x32":  # of a key that the user made
        return jax.random.bits(key, shape, "uint32")
    first, second = jax.random.key_data(key)
    return threefry_2x32((first, second), jnp.arange(math.prod(shape), dtype=jnp.uint32)).reshape(shape)


def uniforms(key, shape: tuple[int, ...], dtype=float):
    """`shape` floats in [0, 1), on a grid of 2^-52, or 2^-32 in float32, whose own uniforms have 2^-23."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype == jnp.float64:
        return jax.random.uniform(key, shape, dtype)
    return jnp.minimum(words(key, shape).astype(dtype) * 2.0**-32, 1 - jnp.finfo(dtype).epsneg)
