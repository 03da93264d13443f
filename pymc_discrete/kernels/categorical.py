"""Draws from unnormalised weights by one uniform each."""

import jax.numpy as jnp
import numpy as np

BLOCK = 32
PIECE = 64


def draw_categorical(uniforms, weights):
    """Inverse-CDF draws, in blocks: the block first, then the entry within it.

    Parameters
    ----------
    uniforms : (L,) float in [0, 1)
    weights : (n,) float, not negative, with a positive sum

    Returns
    -------
    (L,) int; an entry of weight 0 is never drawn
    """
    n = weights.shape[0]
    blocks = -(-n // BLOCK)
    table = jnp.pad(weights, (0, blocks * BLOCK - n)).reshape(blocks, BLOCK)
    ends = running_sum(table.sum(axis=1))
    t = uniforms * ends[-1]
    which = first_above(ends, t)
    before = jnp.where(which > 0, ends[jnp.maximum(which - 1, 0)], 0.0)
    row = running_sum(table[which])
    # what rounding leaves of t must stay below the block's own sum
    within = first_above(row, jnp.minimum(t - before, jnp.nextafter(row[:, -1], jnp.zeros_like(row[:, -1]))))
    return jnp.minimum(which * BLOCK + within, n - 1)


def pick(u, weights):
    """() int, one entry of `weights` (n,) by one uniform; an entry of weight 0 is never drawn."""
    ends = running_sum(weights)
    t = jnp.minimum(u * ends[-1], jnp.nextafter(ends[-1], jnp.zeros_like(ends[-1])))
    return jnp.minimum((ends <= t).sum(), weights.shape[0] - 1)


def running_sum(a):
    """Cumulative sum along the last axis: triangular products, in pieces of 64."""
    n = a.shape[-1]
    if n <= PIECE:
        return jnp.matmul(a, jnp.asarray(np.triu(np.ones((n, n))), a.dtype), precision="highest")
    padded = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -n % PIECE)])
    within = running_sum(padded.reshape(*a.shape[:-1], -1, PIECE))
    ends = running_sum(within[..., -1])
    before = jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    return (within + before[..., None]).reshape(padded.shape)[..., :n]


def first_above(ends, t):
    """(L,) int, the first entry of each row of increasing `ends` (L, n) or (n,) that exceeds t (L,)."""
    return (ends <= t[:, None]).sum(axis=-1)
