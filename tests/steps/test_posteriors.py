"""pm.sample with GibbsWithGradients against enumeration, and against the same model with its discrete
variable summed out; and AutoStep where it takes the gradient.
"""

import functools

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from tests.posteriors import CASES, probabilities
from tests.tools.running import sample_with_pymc
from tests.tools.statistics import LARGEST_Z, zs_of_proportions

# of these kinds of supports pmd.sample draws, in tests/sampling/test_sample.py
OF_PMD_SAMPLE = ("overdispersed", "categorical", "cut", "support_of_another")
SAMPLED = [case for case in CASES if case.build.__name__ not in OF_PMD_SAMPLE]


@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.build.__name__)
@pytest.mark.by_default("bounded")
def test_against_enumeration(case):
    with pm.Model() as model:
        case.build()
    step = functools.partial(pmd.GibbsWithGradients, support=case.support)
    idata = sample_with_pymc(model, step, draws=2000, tune=200, random_seed=3)
    states, prob = probabilities(model, case.values)
    draws = np.concatenate(
        [idata["posterior"][name].values.reshape(2, 2000, -1) for name in case.values], axis=2
    )
    assert (draws.min((0, 1)) >= states.min(0)).all()
    zs = zs_of_proportions(draws, states, prob)
    assert len(zs) >= states.shape[1]
    assert np.abs(zs).max() < LARGEST_Z


def network():
    """Few states, and yet dear enough for the gradient: 20 moves through dense layers."""
    r = np.random.default_rng(12)
    a, b, c = r.normal(size=(100, 5)), r.normal(size=(100, 100)) / 10, r.normal(size=(100, 100)) / 10
    x = pm.Categorical("x", p=[0.1, 0.2, 0.3, 0.25, 0.15], shape=5)
    pm.Potential("energy", 0.5 * pt.tanh(c @ pt.tanh(b @ pt.tanh(0.3 * a @ (x - 2)))).sum())


@pytest.mark.slow
def test_automatic_choice_by_gradient():
    with pm.Model() as model:
        network()
        step = pmd.AutoStep()
        assert isinstance(step, pmd.DiscreteLangevin)
        assert step.proposal == "dlmc"
        assert step.target.describe()["x"]["way"] == "gradient"
        idata = sample_with_pymc(model, step, draws=2000, tune=500, random_seed=5)
    states, prob = probabilities(model, {"x": [range(5)] * 5})
    zs = zs_of_proportions(idata["posterior"]["x"].values, states, prob)
    assert len(zs) >= 20
    assert np.abs(zs).max() < LARGEST_Z


# ---------------------------------------------------------------- beside NUTS, against the marginalised model
def data():
    r = np.random.default_rng(2)
    return np.array([-2.0, 0.5, 3.0])[r.choice(3, 40, p=[0.3, 0.4, 0.3])] + r.normal(size=40)


WEIGHTS = np.array([0.3, 0.4, 0.3])


def means():
    return pm.Normal(
        "mu", 0, 4, shape=3, transform=pm.distributions.transforms.ordered, initval=[-2.0, 0.0, 2.0]
    )


@pytest.mark.slow
def test_against_the_marginalised_mixture():
    y, found = data(), []
    for summed_out in (False, True):
        with pm.Model() as model:
            mu = means()
            if summed_out:
                pm.NormalMixture("y", w=WEIGHTS, mu=mu, sigma=1, observed=y)
                step = None
            else:
                z = pm.Categorical("z", p=WEIGHTS, shape=len(y))
                pm.Normal("y", mu[z], 1, observed=y)
                step = pmd.GibbsWithGradients()
        idata = sample_with_pymc(model, step, draws=1500, tune=500, random_seed=4, compile_kwargs=None)
        draws = idata["posterior"]["mu"].values
        for statistic in (draws, draws**2):
            ess = np.array([float(az.ess(statistic[..., i], method="mean")) for i in range(3)])
            assert (ess > 100).all()
            found.append((statistic.mean((0, 1)), statistic.var((0, 1)) / ess))
    for (a, var_a), (b, var_b) in zip(found[:2], found[2:], strict=True):
        assert np.abs((a - b) / np.sqrt(var_a + var_b)).max() < LARGEST_Z
