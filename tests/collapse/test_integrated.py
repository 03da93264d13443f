"""Which coefficients `pmd.sample` integrates out where nobody says: under gates, or chosen by few sites."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse import integrated as choice
from pymc_discrete.engine.precision import precision
from pymc_discrete.sampling.division import steps_of

pytestmark = pytest.mark.shares_programs

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


def lines(k, prior=pm.Normal, n=12):
    """Lines that meet at x[k]: at another k other values and slopes are probable."""
    x, y = np.sort(R.normal(size=n)), R.normal(size=n)
    a, b = prior("a"), pm.Normal("b", shape=2)
    after = pt.cast(np.arange(n) > k, "int64")
    pm.Normal("y", a + b[after] * (x - pt.as_tensor(x)[k]), pm.HalfNormal("s", 1.0), observed=y)


def lines_that_meet():
    lines(pm.DiscreteUniform("k", 0, 11))


def lines_at_a_category():
    lines(pm.Categorical("k", np.ones(12) / 12))


def lines_of_any_height():
    """An integral over a flat prior need not exist."""
    lines(pm.DiscreteUniform("k", 0, 11), pm.Flat)


def long_lines():
    """Too dear: the square of 1,000 rows."""
    lines(pm.DiscreteUniform("k", 0, 999), n=1000)


def a_broken_stick():
    """The break enters by its amount, and a sum over it leaves a mode of the line at each."""
    k, b = pm.DiscreteUniform("k", 1, 10), pm.Normal("b", shape=3)
    x = np.arange(12)
    pm.Normal("y", b[0] + b[1] * x + b[2] * pt.maximum(0, x - k), pm.HalfNormal("s", 1.0), observed=Y)


def means():
    """A mean until one time, and another one after it."""
    k, b = pm.DiscreteUniform("k", 0, 11), pm.Normal("b", shape=2)
    pm.Normal("y", pt.switch(k >= np.arange(12), b[0], b[1]), 1.0, observed=Y)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        *((indicators, ["b"]), (counted_too, ["b"]), (labels, []), (logistic, ["b"]), (scales, [])),
        *((lines_that_meet, ["a", "b"]), (lines_at_a_category, ["a", "b"]), (means, ["b"])),
        *((lines_of_any_height, []), (long_lines, []), (a_broken_stick, ["b"])),
    ],
)
@pytest.mark.by_default("labels-wanted2", "long_lines-wanted9", "lines_that_meet-wanted5")
def test_coefficients_that_sites_gate_or_choose(build, wanted, caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        build()
    steps, _ = steps_of(model, None, model.initial_point(), "auto")
    assert [name for s in steps for name in s.integrated] == wanted
    assert any("Integrated out while" in r.getMessage() for r in caplog.records) == bool(wanted)


@pytest.mark.parametrize(
    ("likelihood", "said"),
    [
        (lambda z, mu: pm.Normal("y", mu[z], 1, observed=Y), None),
        (
            lambda z, mu: pm.StudentT("y", 4, mu=mu[z], sigma=1, observed=Y),
            "'mu', since 'y', which reads it, has a likelihood to which its prior is not conjugate.",
        ),
        (
            lambda z, mu: pm.Normal("y", mu[z] + pm.Normal("slope", shape=12)[z] * X[:, 0], 1, observed=Y),
            "'mu', 'slope', since a distribution reads several unknowns.",
        ),
        (
            lambda z, mu: pm.Normal("y", mu[z], pm.HalfNormal("sd", shape=12)[z], observed=Y),
            "'sd', since its prior, HalfNormal, is no conjugate one.",
        ),
    ],
)
def test_why_parameters_of_clusters_are_not_integrated_out(likelihood, said, caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        z = pmd.Partition("z", "crp", concentration=1.0, shape=12)
        likelihood(z, pm.Normal("mu", 0, 5, shape=12))
    steps_of(model, None, model.initial_point(), "auto")
    found = [m for m in caplog.messages if m.startswith("Not integrated out while 'z' moves")]
    assert found == ([] if said is None else [f"Not integrated out while 'z' moves: {said}"])


def said_of_indicators_of_answers(observed, caplog):
    """What the log says of the coefficients of a logistic regression, and what is integrated out."""
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.5, shape=3), pm.Normal("b", 0, 2, shape=3)
        pm.Bernoulli("y", logit_p=X[:, :3] @ (g * b), observed=observed)
    steps, _ = steps_of(model, None, model.initial_point(), "auto")
    said = [m for m in caplog.messages if "ntegrated out while" in m]
    return said, [name for s in steps for name in s.integrated]


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_answers_that_are_missing_hinder_and_the_log_says_so(caplog):
    missing = np.ma.masked_array(np.arange(12) % 2, mask=np.arange(12) < 2)
    said, integrated = said_of_indicators_of_answers(missing, caplog)
    assert said == [
        "Not integrated out while 'g', 'y_unobserved' move: 'b', since 'y_unobserved', on which nothing "
        "depends, depends on what would be integrated out. Leave it out of the model, as missing answers out "
        "of the data, and draw it with pm.sample_posterior_predictive."
    ]
    assert not integrated
    # what has no distribution of what is missing in it
    caplog.clear()
    said, integrated = said_of_indicators_of_answers(np.arange(12) % 2, caplog)
    assert len(said) == 1
    assert integrated == ["b"]


def test_nothing_is_integrated_out_in_32_bits_and_the_log_says_so(caplog):
    with precision("float32"):
        said, integrated = said_of_indicators_of_answers(np.arange(12) % 2, caplog)
    assert said == [
        "Not integrated out while 'g' moves: 'b', since in 32 bits the differences of large quadratic forms "
        'are lost. dtype="float64" allows it.'
    ]
    assert not integrated


def test_not_where_a_step_is_named_or_the_coefficients_have_one(monkeypatch):
    with pm.Model() as model:
        indicators()
        steps = {"g": pmd.BlockGibbs(["g"]), "b": pmd.ReparameterizedSlice(["b"])}
    for step in steps.values():
        given, _ = steps_of(model, step, model.initial_point(), "auto")
        assert not any(getattr(s, "integrated", ()) for s in given)
    monkeypatch.setattr(choice, "MOST_COEFFICIENTS", 3)
    choice._kept.clear()
    given, _ = steps_of(model, None, model.initial_point(), "auto")
    assert not given[0].integrated
    choice._kept.clear()
