"""Which coefficients `pmd.sample` integrates out where nobody says."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.sampling.assembly import steps_of
from pymc_discrete.targets.integrals import choice

R = np.random.default_rng(3)
X, Y = R.normal(size=(12, 4)), R.normal(size=12)


def indicators():
    g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", 0, 2, shape=4)
    pm.Normal("y", X @ (g * b), pm.HalfNormal("s", 1.0), observed=Y)


def counted_too():
    """Another discrete variable moves in the same step."""
    indicators()
    pm.Poisson("k", 2.0)


def labels():
    z, mu = pm.Categorical("z", [0.4, 0.6], shape=12), pm.Normal("mu", shape=2)
    pm.Normal("y", mu[z], 1.0, observed=Y)


def logistic():
    """No quadratic form."""
    g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", 0, 2, shape=4)
    pm.Bernoulli("y", logit_p=X @ (g * b), observed=Y > 0)


def scales():
    """Sites choose the prior's scale, so that coefficients are never out of the model."""
    g = pm.Bernoulli("g", 0.3, shape=4)
    b = pm.Normal("b", 0, pt.switch(g, 2.0, 0.1), shape=4)
    pm.Normal("y", X @ b, 1.0, observed=Y)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [(indicators, ["b"]), (counted_too, ["b"]), (labels, []), (logistic, []), (scales, [])],
)
def test_coefficients_under_gates(build, wanted, caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        build()
    steps, _ = steps_of(model, None, model.initial_point(), "auto")
    assert [name for s in steps for name in s.integrated] == wanted
    assert any("Integrated out while" in r.getMessage() for r in caplog.records) == bool(wanted)


def test_not_where_a_step_is_named_or_the_coefficients_have_one(monkeypatch):
    with pm.Model() as model:
        indicators()
        steps = {"g": pmd.BlockGibbs(["g"]), "b": pmd.ReparameterizedSlice(["b"])}
    for step in steps.values():
        given, _ = steps_of(model, step, model.initial_point(), "auto")
        assert not any(getattr(s, "integrated", ()) for s in given)
    monkeypatch.setattr(choice, "MOST", 3)
    choice._kept.clear()
    given, _ = steps_of(model, None, model.initial_point(), "auto")
    assert not given[0].integrated
    choice._kept.clear()
