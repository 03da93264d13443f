"""All random numbers of the kernels: keys, uniforms, and draws by weight.

A draw by weight inverts the cumulative distribution: it finds the first of the running sums of the weights
that exceeds t, a uniform share of their total. An entry of weight 0 is never drawn, even if t is rounded.

======================  ====================================================================================
`pick`                  one entry of one list of weights
`draw_categorical`      many entries of one list, in two levels, so that no draw looks at the whole list
`entry_and_rest`        an entry, and t less the weights before it: one level of a `weight_tree.Sites`
`choose_or_stay`        an entry of each row of a matrix of weights, or none of them
`choose`                an entry of each row of a matrix of log weights
`winners`               entries without replacement, in order
======================  ====================================================================================

All of these but `choose` and `winners` share their steps, and need weights with a positive sum. `choose` has
its own code for speed, because block Gibbs spends most of its time in it: up to 8 weights are added one by
one, which compiles to one loop without a matrix product. `choose` also reports a row in which nothing is
possible. `winners` needs no running sums.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

GENERATOR = "threefry2x32"
BLOCK = 32  # the number of weights in a block of `draw_categorical`
# JAX's own running sums are used for rows longer than `PIECE` if there are at most this many rows
FEW_ROWS = 4
PIECE = 64  # number of entries that `running_sum` adds up in one triangular matrix product
ONE_BY_ONE = 8  # largest row whose weights `choose` adds one by one


# ---------------------------------------------------------------- keys
def key_of(seed: int):
    """The key that `jax.random.key(seed)` is under JAX's default settings.

    It depends neither on the default generator that is set nor on `jax_random_seed_offset`, so that a seed
    gives the same draws in every process.
    """
    return key_of_words(np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32))


def key_of_words(words):
    """The JAX key whose data are `words` (2,) uint32."""
    return jax.random.wrap_key_data(words, impl=GENERATOR)


# ---------------------------------------------------------------- uniforms
def words(key, shape: tuple[int, ...]):
    """Uniform uint32 numbers of the given shape.

    Both words of every block of the generator are used, where JAX's own 32-bit draws use only one.
    """
    if str(jax.random.key_impl(key)) != GENERATOR:  # the key may be a user's, of another generator
        return jax.random.bits(key, shape, "uint32")
    first, second = jax.random.key_data(key)
    return threefry_2x32((first, second), jnp.arange(math.prod(shape), dtype=jnp.uint32)).reshape(shape)


def uniforms(key, shape: tuple[int, ...], dtype=float):
    """Uniform floats in [0, 1) of the given shape.

    They are multiples of 2^-52 in float64 and of 2^-32 in float32, where JAX's own are multiples of 2^-23.
    """
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype == jnp.float64:
        return jax.random.uniform(key, shape, dtype)
    return jnp.minimum(words(key, shape).astype(dtype) * 2.0**-32, 1 - jnp.finfo(dtype).epsneg)


# ---------------------------------------------------------------- running sums
def running_sum(a):
    """Cumulative sums along the last axis, by products of up to `PIECE` elements with a triangular matrix.

    Only a few rows of more than `PIECE` elements are summed by JAX's own cumulative sum.
    """
    n = a.shape[-1]
    if n <= PIECE:
        return jnp.matmul(a, jnp.asarray(np.triu(np.ones((n, n))), a.dtype), precision="highest")
    if a.size <= FEW_ROWS * n:  # matrix products of few rows take several times as long as `cumsum` on a CPU
        return jnp.cumsum(a, axis=-1)
    padded = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -n % PIECE)])
    within = running_sum(padded.reshape(*a.shape[:-1], -1, PIECE))
    ends = running_sum(within[..., -1])
    before = jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    return (within + before[..., None]).reshape(padded.shape)[..., :n]


def first_above(ends, t):
    """(...) int, the first entry of increasing `ends` (..., n) that exceeds t (...); n where none does."""
    return (ends <= t[..., None]).sum(axis=-1)


def entry_at(ends, t):
    """The element whose interval of the running sums `ends` (..., n) contains t (...), and t.

    A t that rounding has put at or above the total is lowered to just below it.
    """
    t = jnp.minimum(t, jnp.nextafter(ends[..., -1], jnp.zeros_like(ends[..., -1])))
    return jnp.minimum(first_above(ends, t), ends.shape[-1] - 1), t


def entry_and_rest(ends, t):
    """The element whose interval of the running sums `ends` (n,) contains t (...), and t less the start of
    the interval.
    """
    entry, t = entry_at(ends, t)
    return entry, t - jnp.where(entry > 0, ends[jnp.maximum(entry - 1, 0)], 0.0)


# ---------------------------------------------------------------- draws by weight
def pick(u, weights):
    """() int, an entry drawn with probability proportional to `weights` (n,) by a uniform u ()."""
    ends = running_sum(weights)
    return entry_at(ends, u * ends[-1])[0]


def draw_categorical(uniforms, weights):
    """(L,) int, entries of one list: each draw first chooses a block of `BLOCK` entries, then one of these.

    Parameters
    ----------
    uniforms : (L,) float in [0, 1)
    weights : (n,) float, not negative, with a positive sum
    """
    n = weights.shape[0]
    blocks = -(-n // BLOCK)
    table = jnp.pad(weights, (0, blocks * BLOCK - n)).reshape(blocks, BLOCK)
    ends = running_sum(table.sum(axis=1))
    block, rest = entry_and_rest(ends, uniforms * ends[-1])
    within, _ = entry_at(running_sum(table[block]), rest)
    return jnp.minimum(block * BLOCK + within, n - 1)


def choose_or_stay(uniforms, weights, total):
    """(r,) int, an element of each row of `weights` (r, K); or K for none of them, whose weight is `total`
    (r,) less the sum of the row.
    """
    t = uniforms * total
    if weights.shape[1] == 1:
        return jnp.where(t < weights[:, 0], 0, 1)
    return first_above(running_sum(weights), t)


def choose(uniforms, log_weights):
    """(r,) int, an entry of each row of `log_weights` (r, K); K where all of them are impossible."""
    K = log_weights.shape[1]
    if K > ONE_BY_ONE:  # the barrier keeps XLA from computing the weights twice, for their maximum and again
        log_weights = jax.lax.optimization_barrier(log_weights)
    # A log density of +inf is an error of the model. Drawing that value lets a later check report it.
    log_weights = jnp.minimum(log_weights, jnp.finfo(log_weights.dtype).max)
    w = jnp.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    if K > ONE_BY_ONE:
        ends = running_sum(w)
        chosen = (ends > (uniforms * ends[:, -1])[:, None]) & (w > 0)
        return jnp.where(chosen, np.arange(K), K).min(axis=1)
    total = sum(w[:, k] for k in range(K))
    t, end, chosen = uniforms * total, jnp.zeros_like(total), jnp.full(uniforms.shape, K)
    for k in range(K):
        end = end + w[:, k]
        chosen = jnp.where((chosen == K) & (end > t) & (w[:, k] > 0), k, chosen)
    return chosen


def winners(key, weights, most: int):
    """(most,) int, an ordered draw of entries without replacement (Gumbel top-k).

    Every entry gets an exponential arrival time whose rate is its weight; the entries with the earliest times
    are taken, in their order.

    Parameters
    ----------
    weights : (d,) float, not negative; entries of weight 0 come last

    Notes
    -----
    The times are compared in single precision, from uniforms that have the finest resolution at early times.
    Times closer than 1 part in 1e7 count as equal, which changes probabilities by as much.
    """
    bits = words(key, weights.shape)
    u = (bits.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)
    time = jnp.log(-jnp.log1p(-jnp.minimum(u, jnp.float32(1 - 2.0**-24))))
    race = jnp.where(weights > 0, jnp.log(weights).astype(jnp.float32) - time, -jnp.inf)
    return jax.lax.top_k(race, most)[1]
