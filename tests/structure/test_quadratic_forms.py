"""Quadratic forms of constant matrices with few entries are sums of pairs, and so trees where they are."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.structure import quadratic_forms
from tests.tools.oracle import compare

R = np.random.default_rng(3)
W = np.diag(R.normal(size=6), 1)  # a chain of 7 sites; not symmetric
H = R.normal(size=7)
FORMS = {
    "products": lambda c, s: c * pt.dot(s, pt.dot(W, s)),
    "operators": lambda c, s: 0.5 * (s @ W @ s) * c,
    "sum": lambda c, s: (c * s * (W @ s)).sum(),
    "other side": lambda c, s: c * (pt.dot(s, W) * s).sum(),
    "integers": lambda c, s: c * pt.dot(s, pt.dot(np.diag([1, 2, -1, 3, 1, 1], 1), s)),
    "field": lambda c, s: pt.dot(W @ s, H) + c * pt.dot(s[1:], s[:-1]),
    "rows": lambda c, s: pt.dot(c * s[:, None].T, pt.dot(W, s[:, None])).sum(),
}


def model_of(form):
    with pm.Model() as model:
        c = pm.Normal("c", 0.3, 1.0, initval=0.7)
        s = 2 * pm.Bernoulli("b", np.float64(0.4), shape=7) - 1
        pm.Potential("e", FORMS[form](c, s))
    return model


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.by_default("sum", "integers", "field")
def test_a_chain_is_a_tree_however_it_is_written(form):
    model = model_of(form)
    compare(model, ["b"])
    with model:
        step = pmd.AutoStep(["b"])
    assert isinstance(step, pmd.TreeGibbs)
    assert step.target.describe()["b"]["way"] == "exact"


def test_a_transposed_matrix_is_noticed(monkeypatch):
    found = quadratic_forms.matrix_and_vector

    def transposed(v, moving):
        pair = found(v, moving)
        return pair and (pair[0].T, pair[1])

    monkeypatch.setattr(quadratic_forms, "matrix_and_vector", transposed)
    with pm.Model() as model:
        s = pm.Bernoulli("b", np.float64(0.4), shape=7)
        pm.Potential("e", pt.dot(H * s, pt.dot(W, s)))
    with pytest.raises(AssertionError):
        compare(model, ["b"])
