"""Differences against the log density where terms of 1e8 nats cancel: rounding is no error, and an error is
found all the same. The graphs of `test_dense.py` are analysed there.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pymc_discrete as pmd
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.engine.precision import precision
from pymc_discrete.factor_graphs import FactorGraph
from pymc_discrete.runtime import compiled
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.starts.start import check_start
from pymc_discrete.structure.rounding import ROUNDINGS

MEAN = 1e7


def changepoint():
    return pm.DiscreteUniform("k", 0, 20, initval=7)


def binomial():
    pm.Binomial("y", 10**6, pm.math.sigmoid(-1 + 1e-3 * changepoint()), observed=270_500)


def poisson():
    pm.Poisson("y", MEAN * pt.exp(1e-5 * changepoint()), observed=10**7)


def negative_binomial():
    pm.NegativeBinomial("y", mu=MEAN * pt.exp(1e-5 * changepoint()), alpha=MEAN, observed=10**7)


def gamma():
    pm.Gamma("y", MEAN * pt.exp(1e-5 * changepoint()), 1.0, observed=MEAN)


def beta():
    k = changepoint()
    pm.Beta("y", 1e6 + k, 1e6 - k, observed=0.5001)


def beta_binomial():
    pm.BetaBinomial("y", 2.0 + changepoint(), 3.0, 10**7, observed=4 * 10**6)


def latent():
    pm.Binomial("y", pm.Poisson("N", MEAN), 0.3, observed=3 * 10**6)


LARGE = [binomial, poisson, negative_binomial, gamma, beta, beta_binomial, latent]


def checked(build, dtype="float64"):
    with pm.Model() as model:
        build()
    with precision(dtype):
        step, point = pmd.BlockGibbs(model=model), model.initial_point()
        check_start(step.target, point, step.target.space.ravel(point))
    return step, point


def off_by(error):
    """All differences wrong by so many nats."""
    right = ModelDensity.differences

    def wrong(self, x, context):
        d = right(self, x, context)
        return d + error * (d != 0)

    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("build", LARGE, ids=lambda build: build.__name__)
def test_large_counts_raise_no_alarm(build):
    step, point = checked(build)
    # the analysis bounds the error that single precision shows, and by no more than what is to be found here
    error = step.density.rounding(point)
    assert ROUNDINGS * np.finfo(float).eps * error < 5e-4
    with precision("float32"):
        x, target = step.fresh_target().at(point)
        narrow = float(target.logdensity(x))
    wide = float(step.target.at(point)[1].logdensity(x))
    assert abs(narrow - wide) < ROUNDINGS * np.finfo(np.float32).eps * error


@pytest.mark.slow
def test_errors_of_large_counts_are_found(monkeypatch):
    monkeypatch.setattr(ModelDensity, "differences", off_by(1e-3))
    with pytest.raises(SamplingError, match=r"miss the log density by 0.001 nats. This is a bug"):
        checked(beta)


@pytest.mark.parametrize("build", [binomial, gamma, beta_binomial], ids=lambda build: build.__name__)
@pytest.mark.by_default("beta_binomial")
def test_large_counts_raise_no_alarm_in_float32(build):
    checked(build, "float32")


def test_what_32_bits_cannot_hold_is_said(monkeypatch):
    # compiled, since an interpreter rounds a density and its differences in the same way, and XLA does not
    monkeypatch.setattr(compiled, "jitted", jitted)
    with pytest.warns(
        UserWarning, match=r"Floats of 32 bits are too short .*'k': terms that cancel .* Pass dtype='float64'"
    ):
        checked(poisson, "float32")


@pytest.mark.parametrize("error", [1e-6, -1e-6])
def test_small_errors_of_small_terms_are_found(error, monkeypatch):
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.3, shape=50)
        mu = pm.Normal("mu", 0, 1, shape=2)
        pm.Normal("y", mu[x], 1.0, observed=np.linspace(-3, 3, 50))
    monkeypatch.setattr(ModelDensity, "differences", off_by(error))
    step, point = pmd.BlockGibbs("x", model=model), model.initial_point()
    with pytest.raises(SamplingError, match=r"miss the log density by 1e-06 nats"):
        check_start(step.target, point, step.target.space.ravel(point))


@pytest.mark.slow
def test_factors_of_terms_that_cancel():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.4, shape=6)
        form = np.triu(np.full((6, 6), 1e9 / 7), 1) + 1e-2 * np.eye(6, k=1)
        pm.Potential(
            "e", 2 * pt.dot(x, pt.dot(form, x)) + 1e9 / 7 * x.sum() - pt.sqr(np.sqrt(1e9 / 7) * x.sum())
        )
    graph = FactorGraph.from_model(model)
    target = pmd.target_from_model(model)
    states = (np.zeros(6, int), np.ones(6, int))
    differ = [float(f(states[1])) - float(f(states[0])) for f in (graph.logdensity, target.logdensity)]
    assert abs(differ[0] - differ[1]) < 1e-5  # roundings of 1e10 nats
