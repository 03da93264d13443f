"""Keys of one generator, whatever JAX's default is: a seed gives the same draws under every setting of the
process.
"""

import jax
import numpy as np

GENERATOR = "threefry2x32"


def key_of(seed: int):
    """The key that `jax.random.key(seed)` is by default, without what `jax_random_seed_offset` adds to it."""
    return key_of_words(np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32))


def key_of_words(words):
    """The key that is made of two words (2,) uint32."""
    return jax.random.wrap_key_data(words, impl=GENERATOR)
