"""Discrete variables that are summed out at every inverse temperature, and drawn at the posterior."""

import logging

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

import pymc_discrete as pmd
from pymc_discrete.sampling.division import summed_on_path
from pymc_discrete.tempering.path import path
from tests.tools.running import FAST
from tests.tools.running import QUIET as UNSEEDED
from tests.tools.statistics import LARGEST_Z

pytestmark = pytest.mark.shares_programs
Y = np.array([-2.2, 1.9, -1.4, 2.6, 0.7])
PRIOR, SD = 1.5, 1.6
QUIET = UNSEEDED | {"random_seed": 1}


def two_signs() -> pm.Model:
    """Labels whose probability and effect depend on one coefficient, which has two modes."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, PRIOR)
        z = pm.Bernoulli("z", logit_p=0.4 * mu, shape=len(Y))
        pm.Deterministic("up", z.sum())
        pm.Normal("y", pm.math.switch(z, mu, -mu), SD, observed=Y)
    return model


def by_quadrature() -> tuple[np.ndarray, np.ndarray, float]:
    """P(z_i = 1), E(mu z_i) and the log evidence."""
    grid = np.linspace(-12, 12, 4001)[:, None]
    ones = np.log(expit(0.4 * grid)) + stats.norm.logpdf(Y, grid, SD)
    zeros = np.log(expit(-0.4 * grid)) + stats.norm.logpdf(Y, -grid, SD)
    each = np.logaddexp(ones, zeros)
    logs = stats.norm.logpdf(grid[:, 0], 0, PRIOR) + each.sum(axis=1)
    p, of_one = np.exp(logs - logsumexp(logs)), np.exp(ones - each)
    return p @ of_one, p @ (grid * of_one), float(logsumexp(logs) + np.log(grid[1, 0] - grid[0, 0]))


def check_draws(posterior):
    """Labels are those of the coefficient beside which they are recorded."""
    shares, products, _ = by_quadrature()
    z, mu = posterior["z"].values.astype(float), posterior["mu"].values
    for values, exact in ((z, shares), (z * mu[..., None], products)):
        for n, want in enumerate(exact):
            error = values[..., n].std() / np.sqrt(float(az.ess(values[..., n])))
            assert abs(values[..., n].mean() - want) < LARGEST_Z * error
    assert (posterior["up"].values == z.sum(axis=-1)).all()


def test_draws_of_pmd_sample_are_those_of_the_joint_posterior(caplog):
    with two_signs(), caplog.at_level(logging.INFO, "pymc.discrete"):
        idata = pmd.sample(
            1500, 400, 4, temper={"replicas": 4}, initvals={"z": np.ones(5, int)}, chunk=100, **QUIET
        )
    assert "Summed out at every inverse temperature: 'z'" in caplog.text
    check_draws(idata["posterior"])
    shares, _, evidence = by_quadrature()
    found = idata["probabilities"]["z"].sel({"z value": 1}).values
    ess = min(float(az.ess(idata["posterior"]["mu"].values)), 6000)
    assert abs(found.mean(axis=0) - shares).max() < LARGEST_Z * 0.5 / np.sqrt(ess)
    group = idata["tempering"].attrs
    assert abs(group["log_evidence"] - evidence) < 4.5 * group["log_evidence_error"]


@pytest.mark.slow
def test_draws_of_pm_sample_are_those_of_the_joint_posterior(caplog):
    with two_signs(), caplog.at_level(logging.INFO, "pymc.discrete"):
        step = pmd.AutoStep(temper={"replicas": 4})
        idata = pm.sample(1500, tune=400, chains=2, cores=1, step=step, **QUIET, **FAST)
    assert "Summed out at every inverse temperature: 'z'" in caplog.text
    check_draws(idata["posterior"])


@pytest.mark.slow
def test_a_resumed_run_has_the_same_draws(tmp_path):
    def run(draws, **options):
        with two_signs():
            return pmd.sample(draws, 40, 2, temper={"replicas": 4}, chunk=100, **QUIET, **options)

    whole = run(300)
    run(100, checkpoint=tmp_path)
    resumed = run(300, checkpoint=tmp_path)
    for group in ("posterior", "probabilities", "tempering"):
        for name, values in whole[group].data_vars.items():
            np.testing.assert_array_equal(values, resumed[group][name])


@pytest.mark.slow
def test_labels_that_are_drawn_have_a_higher_barrier_and_the_same_evidence():
    """They make the likelihood vary where nothing else does."""
    options = {"temper": {"replicas": 4}, "chunk": 100} | QUIET
    with two_signs():
        summed = pmd.sample(300, 200, 4, **options)["tempering"]
        drawn = pmd.sample(1500, 400, 4, collapse=False, **options)
    group = drawn["tempering"]
    assert (summed["barrier"] < group["barrier"]).all()
    check_draws(drawn["posterior"])
    *_, evidence = by_quadrature()
    assert abs(group.attrs["log_evidence"] - evidence) < 4.5 * group.attrs["log_evidence_error"]


# ---------------------------------------------------------------- what is summed out, and what is not
def counts():
    pm.Poisson("y", pm.Normal("mu") ** 2 + pm.Poisson("n", 3.0), observed=2)


def prior_of_another():
    mu = pm.Normal("mu", pm.Bernoulli("z", 0.3), 1)
    pm.Normal("y", mu, 1, observed=0.3)


def many_joined():
    z = pm.Bernoulli("z", 0.3, shape=30)
    pm.Normal("y", pm.Normal("mu") * z.sum() ** 2, 1, observed=0.3)


def dear():
    z = pm.DiscreteUniform("z", 0, 59, shape=3)
    pm.Normal("y", pm.Normal("mu") * abs(z[0] - z[1]) + z[2], 1, observed=0.3)


def vectors():
    x = pm.Multinomial("x", 3, [0.2, 0.3, 0.5])
    pm.Normal("y", pm.Normal("mu") * x, 1, observed=[0.3, 0.1, 0.2])


def nothing_else():
    pm.Normal("y", pm.Bernoulli("z", 0.3), 1, observed=0.3)


@pytest.mark.parametrize("build", [counts, prior_of_another, many_joined, dear, vectors, nothing_else])
def test_what_is_not_summed_out(build):
    with pm.Model() as model:
        build()
    moved, drawn = path(model, summed_on_path(model, None, "auto"))
    assert drawn is None
    assert {v.name for v in model.free_RVs} < {v.name for v in moved.free_RVs}


def test_what_the_user_says_of_it():
    model = two_signs()
    with model:
        step = pmd.BlockGibbs("z")
        of_mu = pmd.ReparameterizedSlice("mu")
    assert summed_on_path(model, step, "auto") == []
    assert summed_on_path(model, None, False) == []
    for step, collapse in [(None, "auto"), (None, True), (None, [model["z"]]), (of_mu, ["z"])]:
        assert summed_on_path(model, step, collapse) == ["z"]
    assert path(model, ["z"])[1] is not None
