"""Measures of samples, chains and couplings."""

from functools import partial

import arviz as az
import jax
import numpy as np
import pytest

from pymc_discrete import learning

RNG = np.random.default_rng


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("kernel", ["hamming", "rbf"])
def test_squared_mmd(kernel, unbiased):
    """Against sums over all pairs."""
    r = RNG(0)
    x, y = r.integers(0, 3, size=(40, 7)), r.integers(0, 3, size=(30, 7))
    if kernel == "rbf":
        x, y = r.normal(size=(40, 2)), r.normal(size=(30, 2))
        k = lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * 0.5**2))
        options = {"scale": 0.5}
    else:
        k, options = lambda a, b: np.exp(-(a[:, None] != b[None]).mean(-1)), {}

    def within(a):
        pairs = k(a, a)
        if not unbiased:
            return pairs.mean()
        return (pairs.sum() - np.trace(pairs)) / (len(a) * (len(a) - 1))

    got = float(learning.squared_mmd(x, y, kernel=kernel, unbiased=unbiased, **options))
    assert got == pytest.approx(within(x) + within(y) - 2 * k(x, y).mean(), abs=1e-12)


def test_the_unbiased_one_is_0_in_the_mean():
    """Of pairs of samples of one distribution; that with the diagonal is not."""
    r = RNG(1)
    x, y = r.integers(0, 2, size=(2, 300, 10, 5))
    for unbiased, far in ((True, False), (False, True)):
        of_pairs = jax.jit(jax.vmap(partial(learning.squared_mmd, unbiased=unbiased)))
        values = np.asarray(of_pairs(x, y))
        z = values.mean() / (values.std() / np.sqrt(len(values)))
        assert (abs(z) > 5) == far


def test_hamming_distance_ess():
    draws, reference = RNG(2).integers(0, 2, size=(4, 200, 9)), RNG(3).integers(0, 2, size=9)
    want = az.ess((draws != reference).sum(-1).astype(float))
    assert learning.hamming_distance_ess(draws, reference) == pytest.approx(float(want))


def test_contacts():
    """Pairs in the order of their norms: a contact, none, a contact, none."""
    tables = np.zeros((4, 2, 2))
    tables[:, 0, 0], tables[:, 1, 0] = [0.3, 3.0, 0.6, 0.4], [0.4, 4.0, 0.8, 0.3]
    strengths = learning.coupling_strengths(tables)
    np.testing.assert_allclose(strengths, [0.5, 5.0, 1.0, 0.5])
    recall = learning.recall_of_contacts(strengths, np.array([True, True, False, False]))
    np.testing.assert_allclose(recall, [0.5, 0.5, 1.0, 1.0])
    assert learning.coupling_rmse([[0, 1], [1, 0]], [[0, 3], [1, 0]]) == pytest.approx(1.0)


REFUSED = {
    "other sites": (
        lambda: learning.squared_mmd(np.zeros((3, 4)), np.zeros((3, 5))),
        r"compares samples \(N, d\) and \(M, d\) of the same sites",
    ),
    "one row": (
        lambda: learning.squared_mmd(np.eye(3)[:1], np.eye(3)),
        "one row says nothing .* got 1 and 3",
    ),
    "no columns": (
        lambda: learning.squared_mmd(np.zeros((2, 0)), np.zeros((2, 0))),
        r"of the same sites, got arrays of shapes \(2, 0\)",
    ),
    "a kernel": (
        lambda: learning.squared_mmd(np.eye(3), np.eye(3), kernel="laplace"),
        "kernel must be one of 'hamming', 'rbf', got 'laplace'",
    ),
    "no scale": (lambda: learning.squared_mmd(np.eye(3), np.eye(3), kernel="rbf"), "'rbf' needs a scale"),
    "a scale of 0": (
        lambda: learning.squared_mmd(np.eye(3), np.eye(3), scale=0),
        "scale must be a positive number, got 0",
    ),
    "one chain": (
        lambda: learning.hamming_distance_ess(np.zeros((5, 4), int), np.zeros(4, int)),
        r"draws \(chains, n, d\) and a reference \(d,\), got arrays of shapes \(5, 4\)",
    ),
    "no contact": (
        lambda: learning.recall_of_contacts(np.ones(3), np.zeros(3, bool)),
        "with one at least, .* of which 0 are",
    ),
    "another shape": (lambda: learning.coupling_rmse(np.eye(2), np.eye(3)), "two matrices of one shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()
