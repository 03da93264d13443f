"""The keys of random numbers that a run consumes, collected while it runs."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator

import jax
import numpy as np

from pymc_discrete.kernels import random

# where JAX keeps what its functions of keys are made of, by its version
prng = sys.modules.get("jax._src.random.prng") or sys.modules["jax._src.prng"]
SEQUENTIAL = ("pymc_discrete.learning", "pymc_discrete.variational")


class Keys:
    """What was done with every key.

    Attributes
    ----------
    drawn : {key: how often numbers were drawn with it}
    parents : keys of which others were made
    """

    def __init__(self) -> None:
        self.drawn: Counter[bytes] = Counter()
        self.parents: set[bytes] = set()

    def _each(self, data: np.ndarray) -> Iterator[bytes]:
        yield from (key.tobytes() for key in np.asarray(data).reshape(-1, np.shape(data)[-1]))

    def draw(self, data: np.ndarray) -> None:
        self.drawn.update(self._each(data))

    def derive(self, data: np.ndarray) -> None:
        self.parents.update(self._each(data))

    def check(self, least: int) -> None:
        """Every key was drawn with once, and what keys were made of was not drawn with; there are `least` of
        them.
        """
        jax.effects_barrier()
        assert len(self.drawn) >= least, f"only {len(self.drawn)} keys were seen"
        twice = sum(count > 1 for count in self.drawn.values())
        assert not twice, f"{twice} of {len(self.drawn)} keys were used more than once"
        both = len(self.parents & set(self.drawn))
        assert not both, f"{both} of {len(self.drawn)} keys were drawn with, and keys made of them too"


def one_by_one(f, in_axes=0, out_axes=0, **_):
    """`jax.vmap` as a loop: side by side, what has finished repeats itself until all have, with keys that it
    has used.
    """

    def mapped(*args):
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)

        def one(moving):
            rest = iter(moving)
            return f(*(a if axis is None else next(rest) for a, axis in zip(args, axes, strict=True)))

        return jax.lax.map(one, [a for a, axis in zip(args, axes, strict=True) if axis is not None])

    return mapped


@contextlib.contextmanager
def collected() -> Iterator[Keys]:
    """Collect the keys of all programs that are traced and run inside."""
    keys = Keys()
    bits, split, fold_in, threefry, vmap = (
        prng.random_bits,
        prng.random_split,
        prng.random_fold_in,
        random.threefry_2x32,
        jax.vmap,
    )

    def told(what, key):
        jax.debug.callback(what, jax.random.key_data(key))

    def random_bits(key, *args, **options):
        told(keys.draw, key)
        return bits(key, *args, **options)

    def random_split(key, *args, **options):
        told(keys.derive, key)
        return split(key, *args, **options)

    def random_fold_in(key, *args, **options):
        told(keys.derive, key)
        return fold_in(key, *args, **options)

    def threefry_2x32(words, counts):
        jax.debug.callback(lambda first, second: keys.draw(np.stack([first, second], axis=-1)), *words)
        return threefry(words, counts)

    def mapped(f, *args, **options):
        here = sys._getframe(1).f_globals.get("__name__", "").startswith(SEQUENTIAL)
        return (one_by_one if here else vmap)(f, *args, **options)

    jax.clear_caches()
    prng.random_bits, prng.random_split, prng.random_fold_in = random_bits, random_split, random_fold_in
    random.threefry_2x32, jax.vmap = threefry_2x32, mapped
    try:
        yield keys
        jax.effects_barrier()
    finally:
        prng.random_bits, prng.random_split, prng.random_fold_in = bits, split, fold_in
        random.threefry_2x32, jax.vmap = threefry, vmap
        jax.clear_caches()
