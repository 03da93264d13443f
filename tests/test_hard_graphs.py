"""Graphs in which a change of a site is not what it seems: each was once wrong here, and exact
means exact.
"""

import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
from scipy import sparse
from targets_against_pymc import compare
from test_targets import model_of

import pymc_discrete as pmd
from pymc_discrete.targets.parts import incremental

R = np.random.default_rng(0)
X = R.normal(size=(7, 20))
BAND = np.tri(20, 20, 1, bool) & ~np.tri(20, 20, -1, bool)
COUNTS = R.integers(0, 3, size=(7, 20))
SPARSE = sparse.csr_matrix(
    np.where(BAND, R.normal(size=(20, 20)), 0) * (np.arange(20) != 3)[:, None]
)  # a row of zeros
FULL = sparse.csr_matrix(np.tile(X, 4))
binary = lambda n=20: pm.Bernoulli("x", 0.4, shape=n)
add = lambda term: pm.Potential("p", term)
as_float = lambda v: pt.cast(v, "float64")

GRAPHS = {
    "booleans add by OR": lambda x: 2.0 * as_float(pt.eq(x[0], 1) + pt.eq(x[1], 1) + pt.eq(x[2], 1)),
    "narrow integers wrap": lambda x: 0.01 * as_float(sum(pt.cast(x[i] * 90, "int8") for i in range(3))),
    "a dot of booleans is an OR": lambda x: 1.3 * as_float(pt.dot(pt.constant(np.ones((2, 20), bool)), pt.eq(x, 1))).sum(),
    "a sparse dot of booleans": lambda x: as_float(pt.dot(pt.constant(BAND), pt.eq(x, 1))).sum(),
    "a dot of bytes wraps": lambda x: as_float(pt.dot(pt.constant(np.full((2, 20), 40, "uint8")), pt.cast(x, "uint8"))).sum() * 0.1,
    "an integer map, squared": lambda x: -0.5 * pt.sqr(pt.dot(pt.constant(COUNTS), x) - 3.0).sum(),
    "a map cast to integers": lambda x: as_float(pt.cast(pt.dot(pt.constant(X), x), "int64")).sum(),
    "a map cast to booleans": lambda x: -as_float(pt.cast(pt.dot(pt.constant(COUNTS * 1.0), x), "bool")).sum(),
    "an infinite source": lambda x: 3 * pt.sigmoid(pt.log(as_float(x)).sum() + 2),
    "a source that spans 20 orders": lambda x: pt.log(pt.dot(pt.constant(np.r_[1e17, np.ones(19)]), x) + 1),
    "a matrix of sites": lambda x: pt.tanh(pt.dot(pt.constant(X[:, :10]), x.reshape((10, 2)))).sum(),
    "a map of part of the source": lambda x: pt.softplus(pt.dot(pt.constant(X), pt.concatenate([[1.0], x[1:]]))).sum(),
    "a map of each of two parts": lambda x: -pt.sqr(pt.dot(pt.constant(X[:, :10]), x[:10]) - pt.dot(pt.constant(X[:, 10:]), x[10:])).sum(),
    "log Gamma of large integers": lambda x: pt.sqrt(1 + pt.gammaln(1 + 3000 * x.sum())),
    "a log of a sum of exponentials": lambda x: pm.math.logsumexp(x * X[0]),
    "a sparse matrix": lambda x: pt.tanh(ps.structured_dot(SPARSE, as_float(x)[:, None])).sum(),
    "a sparse matrix of integers, from the right": lambda x: -pt.sqr(ps.dot(x[None], SPARSE.astype(int).T) - 1.0).sum(),
    "a sparse matrix with full rows": lambda x: pt.softplus(ps.structured_dot(FULL, pt.tile(as_float(x), 4)[:, None])).sum(),
    "a sparse matrix of logarithms": lambda x: pt.exp(ps.structured_dot(abs(SPARSE), pt.log(as_float(x))[:, None])).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_exact(name):
    target, *_ = compare(model_of(lambda: add(GRAPHS[name](binary()))))
    assert target.exact


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_log_gamma_of_narrow_integers(dtype):
    term = lambda x: as_float(pt.gammaln(pt.cast(x, dtype) * np.array(40, dtype) + np.array(2, dtype)).sum())
    compare(model_of(lambda: add(term(binary()))), tolerance=1e-6)  # PyTensor computes them in float32


def test_large_differences_beside_small_ones():
    def build():
        x = pm.Binomial("x", 20, 0.3, shape=6)
        add(pt.log(pt.sum(pt.constant(np.arange(1.0, 7.0)) * pt.exp(2.0 * x))))

    target, *_ = compare(model_of(build))
    assert target.exact


def test_in_batches(monkeypatch):
    # the rows of a dense term under a memory cap
    build = model_of(lambda: add(pt.softplus(pt.dot(pt.constant(X), binary())).sum()))
    x = np.arange(20) % 2
    whole = np.asarray(pmd.target_from_model(build).differences(x))
    monkeypatch.setattr(incremental, "MEMORY_CAP", 2000)
    parts = np.asarray(pmd.target_from_model(build).differences(x))
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_quadratic_with_a_free_scale():
    def build():
        sigma = pm.HalfNormal("sigma", 1)
        x, z = binary(8), pm.Poisson("z", 2.0, shape=3)
        mu = pt.dot(X[:, :8], x) + pt.dot(X[:, 8:11], z)
        pm.Normal("y", mu, sigma, observed=X[:, 12])

    target, *_ = compare(model_of(build))
    assert target.exact


def test_a_sparse_matrix_beside_a_map():
    def build():
        b, x = pm.Normal("b", shape=20), binary()
        add(pt.softplus(pt.dot(pt.constant(X), x * ps.structured_dot(SPARSE, b[:, None])[:, 0])).sum())

    target, *_ = compare(model_of(build))
    assert target.exact
