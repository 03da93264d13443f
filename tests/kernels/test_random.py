"""Choices by weight, and the random numbers that make them, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.link.jax.dispatch  # noqa: F401  # sets JAX to 64 bits, as a model does
import pytest
from scipy import stats

from pymc_discrete.kernels.random import choose, draw_categorical, pick, running_sum, uniforms, words
from pymc_discrete.kernels.weight_tree import Sites

SIZES = (1, 2, 8, 9, 64, 65, 700, 4100)
SMALLEST = 1e-3  # Kolmogorov-Smirnov and chi-square p values below it would come once in a thousand seeds


def weights(n, seed=0):
    """Of very different sizes, a third of them 0, at the ends too where there is room."""
    r = np.random.default_rng(seed)
    w = np.exp(r.normal(0, 3, n)) * (r.random(n) > 1 / 3)
    w[n // 2] = 1.0
    if n > 4:
        w[[0, -1]] = 0.0
    return w


def by_tree(u, w):
    return jax.vmap(Sites.of(w).draw)(u)


def by_log_weights(u, w):
    return choose(u, jnp.broadcast_to(jnp.log(w), (len(u), len(w))))


WAYS = {
    "draw_categorical": draw_categorical,
    "pick": jax.vmap(pick, (0, None)),
    "Sites": by_tree,
    "choose": by_log_weights,
}


@pytest.mark.parametrize("way", WAYS)
def test_inverse_of_the_cumulative_distribution(way):
    u, lists = np.linspace(0, 1, 3001)[:-1], [weights(n) for n in SIZES]
    of_all = jax.jit(lambda u, lists: [WAYS[way](u, w) for w in lists])
    for w, drawn in zip(lists, of_all(u, lists), strict=True):
        ends = np.cumsum(w) / w.sum()
        # where u is within rounding of an end, either neighbour is right
        below, above = (
            np.searchsorted(ends, np.clip(u + d, 0, 1 - 1e-12), side="right") for d in (-1e-12, 1e-12)
        )
        assert ((below <= drawn) & (drawn <= above)).all(), len(w)


@pytest.mark.parametrize(
    ("way", "dtype"), [*((way, "float32") for way in WAYS), ("draw_categorical", "float64")]
)
def test_weight_0_is_never_drawn(way, dtype):
    u = jnp.asarray([0.0, 1e-30, 0.5, 1 - np.finfo(dtype).epsneg], dtype)
    draw = jax.vmap(WAYS[way], (None, 0))
    of_all = jax.jit(lambda u, lists: [draw(u, w) for w in lists])
    lists = [np.array([weights(n, seed) for seed in range(5)]).astype(dtype) for n in (1, 9, 65, 4100)]
    for w, drawn in zip(lists, of_all(u, lists), strict=True):
        assert (np.take_along_axis(w, np.asarray(drawn), axis=1) > 0).all()


def test_running_sum():
    rows = [np.stack([a, a[::-1]]) for a in map(weights, SIZES)]
    of_all = jax.jit(lambda rows: [running_sum(a) for a in rows])
    for a, got in zip(rows, of_all(rows), strict=True):
        np.testing.assert_allclose(got, np.cumsum(a, axis=1), rtol=1e-12)


def test_tree_after_changes_is_the_tree_of_the_changed_weights():
    w, r = weights(40), np.random.default_rng(1)
    of, put = jax.jit(Sites.of), jax.jit(Sites.put)
    tree = of(w)
    for site in [0, 39, *r.integers(40, size=60)]:
        w[site] = r.choice([0.0, r.exponential()])
        tree = put(tree, site, w[site])
    for mine, fresh in zip(tree, of(w), strict=True):
        np.testing.assert_allclose(mine, fresh, rtol=1e-14)


# ---------------------------------------------------------------- numbers
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_shapes_and_range(impl):
    shapes = [(), (0,), (1,), (3, 0), (7,), (3, 5), (2, 3, 4)]
    cases = [(shape, dtype) for shape in shapes for dtype in ("float32", "float64")]

    @jax.jit
    def run(key):
        return [uniforms(key, *case) for case in cases], [words(key, shape) for shape in shapes]

    numbers, bits = run(jax.random.key(3, impl=impl))
    for u, (shape, dtype) in zip(numbers, cases, strict=True):
        assert (u.shape, u.dtype) == (shape, dtype)
        assert ((u >= 0) & (u < 1)).all()
    for b, shape in zip(bits, shapes, strict=True):
        assert (b.shape, b.dtype) == (shape, np.uint32)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_words_are_uniform_and_independent(impl):
    """Every bit, neighbours within a call, the same place under successive keys, and one call's halves."""
    keys = jax.random.split(jax.random.key(0, impl=impl), 400)
    bits = np.asarray(jax.jit(jax.vmap(lambda key: words(key, (250,))))(keys))
    assert len(np.unique(bits)) > bits.size - 20  # 1.2 pairs of 100,000 are expected to be equal
    ones = np.unpackbits(bits.reshape(-1, 1).view(np.uint8), axis=1).sum(0)
    z = (ones - bits.size / 2) / np.sqrt(bits.size / 4)
    assert stats.chi2.sf((z**2).sum(), 32) > SMALLEST
    u = bits / 2.0**32
    assert stats.kstest(u.ravel(), "uniform").pvalue > SMALLEST
    for a, b in ((u[:, 1:], u[:, :-1]), (u[1:], u[:-1]), (u[:, :125], u[:, 125:])):
        assert stats.pearsonr(a.ravel(), b.ravel()).pvalue > SMALLEST


def test_the_largest_word_is_below_one_in_float32(monkeypatch):
    monkeypatch.setattr(
        "pymc_discrete.kernels.random.words", lambda key, shape: jnp.full(shape, 2**32 - 1, jnp.uint32)
    )
    assert (uniforms(jax.random.key(0), (3,), "float32") < 1).all()
