"""Integers of many values: drawn from all of a bounded support, or from stretches of values, as counted costs
allow.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.op import RandomVariable
from scipy import stats

import pymc_discrete as pmd
from pymc_discrete.model.support import bounds_of, deviation, known, parameters, rule
from tests.posteriors import probabilities
from tests.tools.oracle import compare
from tests.tools.running import FAST, draws_of, sample_with_pymc
from tests.tools.statistics import LARGEST_Z, zs_of_proportions

pytestmark = pytest.mark.shares_programs

QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


def tanks():
    """Goodman 1952: how many tanks there are, of the serial numbers of four."""
    with pm.Model() as model:
        N = pm.DiscreteUniform("N", 256, 2560)
        pm.DiscreteUniform("y", 1, N, observed=[10, 256, 202, 97])
    return model


def many(n, top=1000):
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, top, shape=n)
        pm.Normal("y", k, 5.0, observed=np.linspace(10, top - 10, n))
    return model


def variable(model, **options):
    (v,) = pmd.target_from_model(model, **options).space.variables
    return v


@pytest.mark.slow
def test_a_bounded_support_is_looked_at_whole_where_that_is_cheap():
    target, *_ = compare(tanks())
    assert target.space.K == 2305
    assert variable(many(3)).finite
    wide = variable(many(3000))
    assert not wide.finite
    assert wide.stretches[0] == 8


def test_a_window_that_is_asked_for_is_kept():
    assert list(variable(tanks(), window=2).offsets) == [-2, -1, 1, 2]
    assert not variable(tanks(), window="geometric").finite


def counts(n, mu):
    with pm.Model() as model:
        k = pm.Poisson("k", mu, shape=n)
        pm.Normal("y", k, 5.0, observed=np.full(n, mu))
    return model


def test_stretches_are_as_wide_as_is_cheap_and_no_wider_than_the_distribution():
    assert variable(counts(2, 1e4)).stretches[0] == 128  # two standard deviations, to a power of 2
    assert variable(counts(2, 3.0)).stretches[0] == 8
    assert variable(counts(5000, 1e4)).stretches[0] == 8
    assert variable(counts(2, 1e4)).offsets.max() == 128


def test_offsets_reach_as_far_as_a_heavy_tail():
    with pm.Model() as model:
        pm.NegativeBinomial("k", mu=300, alpha=0.05)
    assert variable(model).offsets.max() > 4 * 6000  # the tail falls by a factor e in 6000
    with pm.Model() as model:
        alpha = pm.HalfNormal("alpha", 1.0)
        pm.ZeroInflatedNegativeBinomial("k", psi=0.3, mu=300, alpha=alpha, shape=2)
    assert variable(model).offsets.max() > 1000  # with alpha where it starts


def test_a_gradient_is_asked_about_near_values_only():
    assert list(variable(counts(4, 300.0), differences="gradient").offsets) == [-1, 1]


# ---------------------------------------------------------------- draws
@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["pm.sample", "pmd.sample"])
def test_tanks(sampler):
    """Independent draws of the exact posterior."""
    with tanks():
        if sampler == "pm.sample":
            idata = pm.sample(1000, tune=100, chains=4, cores=1, step=pmd.AutoStep(), **QUIET, **FAST)
        else:
            idata = pmd.sample(1000, tune=100, chains=4, **QUIET)
    draws = idata["posterior"]["N"].values
    assert float(az.ess(draws)) > 3500
    values = np.arange(256, 2561)
    p = values**-4.0 / (values**-4.0).sum()
    ends = np.quantile(np.repeat(values, np.round(1e6 * p).astype(int)), np.linspace(0.1, 0.9, 9))
    bins = np.searchsorted(ends, values)
    want = np.bincount(bins, p) * draws.size
    got = np.bincount(np.searchsorted(ends, draws.reshape(-1)), minlength=len(want))
    assert stats.chi2.sf(((got - want) ** 2 / want).sum(), len(want) - 1) > 1e-4


@pytest.mark.slow
def test_a_support_beyond_32_bits():
    with pm.Model():
        k = pm.DiscreteUniform("k", 0, 4 * 10**9)
        pm.Normal("y", k / 1e9, 0.01, observed=3.0)
        idata = pmd.sample(1000, tune=500, chains=4, **QUIET)
    draws = idata["posterior"]["k"].values.astype(float)
    z = (draws.mean() - 3e9) / (1e7 / np.sqrt(float(az.ess(draws, method="mean"))))
    assert abs(z) < 5
    assert 0.9e7 < draws.std() < 1.1e7


@pytest.mark.slow
def test_a_heavy_tail():
    with pm.Model():
        k = pm.NegativeBinomial("k", mu=300, alpha=0.05)
        pm.Deterministic("none", pt.eq(k, 0) * 1)
        idata = pmd.sample(4000, tune=500, chains=4, **QUIET)
    none = idata["posterior"]["none"].values.astype(float)
    p = stats.nbinom.pmf(0, 0.05, 0.05 / 300.05)
    assert abs(none.mean() - p) < 5 * np.sqrt(p * (1 - p) / float(az.ess(none, method="mean")))
    # the mean of what is cut off at its 99.9 % quantile, beyond which a few draws would decide
    top = stats.nbinom.ppf(0.999, 0.05, 0.05 / 300.05)
    draws = np.minimum(idata["posterior"]["k"].values, top)
    grid = np.arange(top)
    mean = stats.nbinom.sf(grid, 0.05, 0.05 / 300.05).sum()
    assert abs(draws.mean() - mean) < 5 * draws.std() / np.sqrt(float(az.ess(draws, method="mean")))


# ---------------------------------------------------------------- distributions of others
class ShiftedPoissonRV(RandomVariable):
    name = "shifted_poisson"
    signature = "(),()->()"
    dtype = "int64"
    _print_name = ("ShiftedPoisson", "\\operatorname{ShiftedPoisson}")

    @classmethod
    def rng_fn(cls, rng, mu, shift, size):
        return shift + rng.poisson(mu, size)


class ShiftedPoisson(pm.Discrete):
    """A Poisson count plus a known integer."""

    rv_op = ShiftedPoissonRV()

    @classmethod
    def dist(cls, mu, shift, **options):
        return super().dist([pt.as_tensor(mu), pt.as_tensor(shift)], **options)

    def support_point(rv, size, mu, shift):
        return pt.zeros_like(rv) + shift + pt.floor(mu).astype("int64")

    def logp(value, mu, shift):
        return pm.logp(pm.Poisson.dist(mu), value - shift)


@rule(ShiftedPoissonRV)
def _(rv):
    _, shift = parameters(rv)
    return known(shift), None


@deviation(ShiftedPoissonRV)
def _(rv):
    mu, _ = parameters(rv)
    return pt.sqrt(mu)


def shifted():
    with pm.Model() as model:
        k = ShiftedPoisson("k", 1.5, np.array([2, -1]), shape=2)
        pm.Normal("y", k[0] - k[1] * k[0], 1.0, observed=1.3)
    return model


def test_the_bounds_of_a_distribution_of_the_user():
    low, high = bounds_of(ShiftedPoisson.dist(1.5, [2, -1]))
    assert list(low) == [2, -1]
    assert high is None
    assert bounds_of(ShiftedPoisson.dist(1.5, pm.Poisson.dist(2.0))) == (None, None)
    compare(shifted())


def test_offsets_reach_as_far_as_the_distribution_of_the_user():
    with pm.Model() as model:
        ShiftedPoisson("k", 1e4, -10_000, shape=2)  # of which the value at the start, 0, says nothing
    assert variable(model).offsets.max() == 128


@pytest.mark.slow
def test_a_distribution_of_the_user_against_enumeration():
    model = shifted()
    draws = draws_of(sample_with_pymc(model, pmd.AutoStep, draws=2000, tune=200))["k"]
    states, prob = probabilities(model, {"k": [range(2, 16), range(-1, 13)]})
    assert (draws.min((0, 1)) >= states.min(0)).all()
    zs = zs_of_proportions(draws, states, prob)
    assert len(zs) >= 5
    assert np.abs(zs).max() < LARGEST_Z


@pytest.mark.slow
def test_a_distribution_of_pymc_extras_against_enumeration():
    discrete = pytest.importorskip("pymc_extras.distributions.discrete")
    with pm.Model() as model:
        discrete.GeneralizedPoisson("k", 1e4, 0.0, initval=0)
    assert variable(model).offsets.max() == 128
    with pm.Model() as model:
        k = discrete.GeneralizedPoisson("k", 1.5, 0.2, shape=2)
        pm.Normal("y", k[0] - 2 * k[1], 1.0, observed=0.7)
    draws = draws_of(sample_with_pymc(model, pmd.AutoStep, draws=2000, tune=200))["k"]
    states, prob = probabilities(model, {"k": [range(25)] * 2})
    zs = zs_of_proportions(draws, states, prob)
    assert len(zs) >= 5
    assert np.abs(zs).max() < LARGEST_Z
