"""Tempered runs of both samplers against enumeration; resumed runs; what is refused."""

import itertools
import logging

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete.tempering.report import Report
from pymc_discrete.tempering.swaps import Traffic
from tests.tools.running import FAST
from tests.tools.statistics import LARGEST_Z

pytestmark = pytest.mark.shares_programs
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


def two_modes(barrier: float = 8.0) -> pm.Model:
    """Six spins that agree, of which both sides are far apart for single flips."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", [0.4, 0.5, 0.5, 0.5, 0.5, 0.5])
        pm.Potential("agree", barrier * (pt.eq(z[1:], z[:-1]).sum() + pt.eq(z[0], z[5])))
        pm.Deterministic("up", z.sum())
    return model


def z_of_shares(z: np.ndarray, p: np.ndarray) -> np.ndarray:
    """How many standard errors the shares of 1 (chains, draws, sites) are from their probabilities."""
    ess = [float(az.ess(z[..., n].astype(float))) for n in range(z.shape[-1])]
    return (z.mean(axis=(0, 1)) - p) / np.sqrt(p * (1 - p) / ess)


def exact(model: pm.Model) -> tuple[np.ndarray, float]:
    """The probabilities of 1, and the log evidence, over all states."""
    logp = model.compile_logp(mode="FAST_COMPILE")
    states = np.array([*itertools.product([0, 1], repeat=6)])
    logs = np.array([logp({"z": z}) for z in states])
    return np.exp(logs - logsumexp(logs)) @ states, float(logsumexp(logs))


def test_modes_and_evidence_of_pmd_sample_are_those_of_enumeration():
    model = two_modes()
    p, evidence = exact(model)
    with model:
        step = pmd.GibbsWithGradients()
        idata = pmd.sample(800, 300, 4, temper={"replicas": 6}, step=step, **QUIET)
    z, group = idata["posterior"]["z"].values, idata["tempering"]
    assert np.abs(z_of_shares(z, p)).max() < LARGEST_Z
    assert (idata["posterior"]["up"].values == z.sum(axis=-1)).all()
    assert abs(group.attrs["log_evidence"] - evidence) < 4.5 * group.attrs["log_evidence_error"]
    assert group.attrs["iterations"] == 800
    assert group["inverse_temperature"].shape == (4, 6)
    assert (group["inverse_temperature"].values[:, [0, -1]] == [0, 1]).all()
    assert (group["round_trips"] > 10).all()
    rates = group["rejection_rate"].values[:, :-1]
    np.testing.assert_allclose(rates.sum(axis=1), group["barrier"])


@pytest.mark.slow
def test_modes_of_pm_sample_are_those_of_enumeration(caplog):
    model = two_modes()
    p, _ = exact(model)
    with model, caplog.at_level(logging.INFO, "pymc.discrete"):
        step = pmd.AutoStep(temper={"replicas": 6})
        idata = pm.sample(1500, tune=500, chains=2, cores=1, step=step, **QUIET, **FAST)
    z = idata["posterior"]["z"].values
    assert np.abs(z_of_shares(z, p)).max() < LARGEST_Z
    assert caplog.text.count("Tempering: 6 replicas a chain") == 2


def test_a_resumed_run_has_the_same_draws_and_the_same_report(tmp_path):
    def run(draws, **options):
        with two_modes():
            step = pmd.BlockGibbs()
            return pmd.sample(draws, 40, 2, temper=True, chunk=10, step=step, **QUIET, **options)

    whole = run(30)
    run(10, checkpoint=tmp_path)
    resumed = run(30, checkpoint=tmp_path)
    for group in ("posterior", "tempering"):
        for name, values in whole[group].data_vars.items():
            np.testing.assert_array_equal(values, resumed[group][name])


def test_without_draws_of_the_prior_there_is_no_evidence(caplog):
    """The log likelihood is -inf for most of the prior, to which the replica at it then hardly comes."""
    with pm.Model(), caplog.at_level(logging.INFO, "pymc.discrete"):
        pm.HyperGeometric("h", N=10, k=4, n=3)
        n = pm.Poisson("n", 3.0)
        pm.Binomial("y", n=n, p=0.5, observed=4)
        idata = pmd.sample(800, 200, 4, temper={"replicas": 3}, step=pmd.BlockGibbs(), **QUIET)
    assert np.isnan(idata["tempering"]["log_evidence"]).all()
    assert "no draws of the prior of 'h'" in caplog.text
    assert "log evidence" not in caplog.text
    k = np.arange(4, 60)
    p = stats.poisson.pmf(k, 3.0) * stats.binom.pmf(4, k, 0.5)
    draws = idata["posterior"]["n"].values
    error = draws.std() / np.sqrt(float(az.ess(draws.astype(float))))
    assert abs(draws.mean() - k @ p / p.sum()) < LARGEST_Z * error


def test_draws_of_the_prior_that_are_out_of_order_stay_there():
    with pm.Model():
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0.0, 2.0, shape=2, transform=ordered, initval=[-1.0, 1.0])
        z = pm.Categorical("z", [0.5, 0.5], shape=4)
        pm.Normal("y", mu[z], 1.0, observed=[-0.5, 0.3, 0.9, 1.4])
        idata = pmd.sample(300, 0, 2, collapse=False, temper={"replicas": 4}, **QUIET)
    assert (np.diff(idata["posterior"]["mu"].values, axis=-1) > 0).all()
    assert np.isfinite(idata["tempering"]["log_evidence"]).all()  # without tuning draws, too


def test_the_number_of_replicas_is_chosen_by_the_barrier():
    with two_modes(1.0):
        step = pmd.BlockGibbs()
        easy = pmd.sample(20, 200, 1, temper=True, step=step, **QUIET)["tempering"]
    with two_modes(30.0):
        step = pmd.BlockGibbs()
        hard = pmd.sample(20, 200, 1, temper=True, step=step, **QUIET)["tempering"]
    assert easy.sizes["rung"] < hard.sizes["rung"]
    assert easy["barrier"].item() < hard["barrier"].item()


def test_few_round_trips_are_warned_of():
    traffic = Traffic.fresh(3)._replace(iterations=np.array([50, 50]), rejections=np.full((2, 2), 25.0))
    traffic = traffic._replace(round_trips=np.array([3, 20]), up=np.zeros((2, 2)), down=np.zeros((2, 2)))
    betas = np.array([[0.0, 0.5, 1.0]] * 2)
    report = Report.of(betas, np.array([3, 3]), traffic)
    (warning,) = report.warnings()
    assert "3 round trips" in warning
    assert "temper={'replicas': 6}" in warning
    assert "3 replicas a chain" in report.said()
    np.testing.assert_allclose(report.limits, [[1 / 6] * 2, [1 / 4] * 2])


# ---------------------------------------------------------------- what is refused
REFUSED = [
    ({"temper": "yes"}, TypeError, "temper must be True, False or a dictionary"),
    ({"temper": {"replica": 3}}, ValueError, "Did you mean 'replicas'"),
    ({"temper": {"replicas": 1}}, ValueError, "an integer of at least 2"),
    ({"temper": True, "dtype": "float32"}, ValueError, 'needs dtype="float64"'),
    ({"temper": True, "nuts": {"pooled": True}}, ValueError, "does not go with temper="),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED)
def test_options_are_refused(options, error, message):
    with two_modes(), pytest.raises(error, match=message):
        pmd.sample(10, 10, progressbar=False, **options)


def test_models_and_steps_are_refused():
    with pm.Model():
        pm.Normal("y", pm.Flat("a") + pm.Bernoulli("z", 0.4), observed=0.3)
        with pytest.raises(ValueError, match="prior of 'a' is improper"):
            pmd.sample(10, 10, temper=True, progressbar=False)
    with pm.Model():
        pm.Bernoulli("z", 0.4)
        with pytest.raises(ValueError, match="no observed variable and no potential"):
            pmd.sample(10, 10, temper=True, progressbar=False)
    of_another = pmd.BlockGibbs(model=two_modes())
    with two_modes():
        step = pmd.CustomStep("z", lambda key, point, state: (point, state))
        with pytest.raises(ValueError, match="Leave out temper=, or the step"):
            pmd.sample(10, 10, temper=True, step=step, progressbar=False)
        with pytest.raises(ValueError, match="made for another model"):
            pmd.sample(10, 10, temper=True, step=of_another, progressbar=False)
        with pytest.raises(ValueError, match="needs the whole model in one JAX program"):
            pmd.AutoStep(["z"], temper=True, blocked=False)
