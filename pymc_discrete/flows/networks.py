"""Networks of flows: from the values of all sites and the time to logits of the values at time 1."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.runtime.checks import check_count

FREQUENCIES = 8  # the number of frequencies of the sines and cosines of the time


def of_time(t: Any) -> Any:
    """(2 FREQUENCIES,) float32, sines and cosines of the time, of one to `FREQUENCIES` quarter periods."""
    turns = 0.5 * np.pi * jnp.arange(1, FREQUENCIES + 1, dtype=jnp.float32) * jnp.asarray(t, jnp.float32)
    return jnp.concatenate([jnp.sin(turns), jnp.cos(turns)])


class Perceptron(eqx.Module):
    """Hidden layers of equal width on the one-hot values of all sites, the time and further features.

    Parameters
    ----------
    d, K : int, the number of sites, and the largest number of values of a site
    features : int, number of further inputs, such as data
    width, depth : int, the width of the hidden layers, and their number
    key : JAX key
    """

    layers: eqx.nn.MLP

    def __init__(self, d: int, K: int, features: int = 0, width: int = 256, depth: int = 3, *, key: Any):
        for name, value in (("d", d), ("K", K), ("width", width), ("depth", depth)):
            check_count(name, value, 1)
        size = d * (K + 1) + 2 * FREQUENCIES + features
        self.layers = eqx.nn.MLP(size, d * K, width, depth, jax.nn.swish, key=key, dtype=jnp.float32)

    def __call__(self, encoded: Any, t: Any, features: Any = ()) -> Any:
        """(d K,) float32, the logits, from the one-hot values (d, K + 1), the time () and features (n,)."""
        parts = [encoded.reshape(-1), of_time(t), jnp.asarray(features).reshape(-1)]
        return self.layers(jnp.concatenate([a.astype(jnp.float32) for a in parts]))


class Convolutional(eqx.Module):
    """Residual blocks of convolutions on a cyclic lattice, for sites in the order of its rows.

    Parameters
    ----------
    rows, columns : int, the numbers of rows and columns of the lattice
    K : int, number of values of a site
    maps, blocks : int, number of maps of a convolution, and number of blocks, each of two convolutions
    key : JAX key
    """

    shape: tuple[int, int] = eqx.field(static=True)
    first: eqx.nn.Conv2d
    times: list[eqx.nn.Linear]
    pairs: list[tuple[eqx.nn.Conv2d, eqx.nn.Conv2d]]
    last: eqx.nn.Conv2d

    def __init__(self, rows: int, columns: int, K: int, maps: int = 32, blocks: int = 3, *, key: Any):
        for name, value in (("rows", rows), ("columns", columns), ("K", K), ("maps", maps)):
            check_count(name, value, 1)
        check_count("blocks", blocks, 0)
        self.shape = (rows, columns)
        keys = iter(jax.random.split(key, 3 * blocks + 2))

        def convolution(before: int, after: int, size: int) -> eqx.nn.Conv2d:
            return eqx.nn.Conv2d(
                before,
                after,
                size,
                padding=size // 2,
                padding_mode="CIRCULAR",
                key=next(keys),
                dtype=jnp.float32,
            )

        self.first = convolution(K + 1, maps, 3)
        self.times = [
            eqx.nn.Linear(2 * FREQUENCIES, maps, key=next(keys), dtype=jnp.float32) for _ in range(blocks)
        ]
        self.pairs = [(convolution(maps, maps, 3), convolution(maps, maps, 3)) for _ in range(blocks)]
        self.last = convolution(maps, K, 1)

    def __call__(self, encoded: Any, t: Any) -> Any:
        """(d K,) float32, the logits, from the one-hot values (d, K + 1) and the time ()."""
        maps = self.first(jnp.moveaxis(encoded.astype(jnp.float32).reshape(*self.shape, -1), 2, 0))
        for time, (one, other) in zip(self.times, self.pairs, strict=True):
            shifted = maps + time(of_time(t))[:, None, None]
            maps = maps + other(jax.nn.swish(one(jax.nn.swish(shifted))))
        return jnp.moveaxis(self.last(jax.nn.swish(maps)), 0, 2)
