"""Graphs in which a change of a site is not what it seems: each was once wrong here, and exact
means exact.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.parts import incremental
from tests.models import model_of
from tests.structure.terms import GRAPHS, SPARSE, X, add, as_float, binary
from tests.tools.oracle import compare, densities_and_differences


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.by_default(
    "a log of a sum of exponentials",
    "an infinite source",
    "a sparse matrix",
    "the order of each column",
    "narrow integers wrap",
    "a map of each of two parts",
    "log Gamma of large integers",
    "a source that spans 20 orders",
    "a sparse matrix of logarithms",
    "counts of values",
    "a sparse matrix of integers, from the right",
)
def test_exact(name):
    """The differences; and the analysis of rounding knows every Op of these graphs, and what it finds is no
    less than one rounding of the result, and no more than some hundred.
    """
    model = model_of(lambda: add(GRAPHS[name](binary())))
    target, *_ = compare(model)
    assert target.exact
    x, at = target.at(model.initial_point())
    (logp,), _ = densities_and_differences(at, x)
    assert abs(logp) <= at.density.rounding(at.point(x)) < 500


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


@pytest.mark.parametrize("matrix", [SPARSE, pytensor.shared(SPARSE)], ids=["constant", "shared"])
def test_a_sparse_matrix_beside_a_map(matrix):
    def build():
        b, x = pm.Normal("b", shape=20), binary()
        add(pt.softplus(pt.dot(pt.constant(X), x * ps.structured_dot(matrix, b[:, None])[:, 0])).sum())

    target, *_ = compare(model_of(build))
    assert target.exact
