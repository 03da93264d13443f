"""Flows that answer for any data of a model."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete.flows.block import space_of
from pymc_discrete.flows.joint import joint_target, prior_pairs
from pymc_discrete.flows.weights import khat

LEVELS = np.array([-1.0, 0.5, 2.0])
NEW = {"y": np.array([1.4, 0.2]), "c": np.array([3, 1, 2])}


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.5, 0.3], shape=2)
        k = pm.DiscreteUniform("k", 1, 3)
        shift = pm.Data("shift", 0.5)
        pm.Normal("y", pt.as_tensor(LEVELS)[z] + shift, 1.0, observed=np.zeros(2))
        pm.Poisson("c", 1.0 * k + z[0], observed=pm.Data("counts", [1, 1, 1]))
    return model


@pytest.fixture(scope="module")
def fitted(model):
    options = {"pairs": 2000, "iterations": 150, "batch": 64, "steps": 8, "progressbar": False}
    return pmd.fit_flow(model, given=["y", "c"], random_seed=1, **options)


def exact(data):
    """(S, 3) states of z and k, and (S,) the log density of them and the data, written by hand."""
    states = np.array(list(itertools.product(range(3), range(3), range(1, 4))))
    p = np.log([0.2, 0.5, 0.3])
    logp = [
        p[a]
        + p[b]
        - np.log(3)
        + stats.norm.logpdf(data["y"], LEVELS[[a, b]] + 0.5).sum()
        + stats.poisson.logpmf(data["c"], k + a).sum()
        for a, b, k in states
    ]
    return states, np.array(logp)


def test_the_joint_density_is_the_models(model):
    target = joint_target(model, space_of(model, None), ["y", "c"])
    for data in ({"y": np.zeros(2), "c": np.ones(3, int)}, NEW):
        states, logp = exact(data)
        found = [float(target.with_inputs((data["y"], data["c"])).logdensity(x)) for x in states[::7]]
        np.testing.assert_allclose(found, logp[::7], rtol=1e-12)


def test_data_that_depend_on_data():
    """The density of one observed variable is given the new values of the other, and so are its draws."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3)
        u = pm.Normal("u", 1.5 * z, 1.0, observed=0.2)
        pm.Normal("v", u - z, 0.5, observed=[0.1, 0.4])
    space, u, v = space_of(model, None), 2.5, np.array([1.0, -0.3])
    target = joint_target(model, space, ["v", "u"]).with_inputs((v, np.asarray(u)))
    for z, p in enumerate((0.7, 0.3)):
        logp = np.log(p) + stats.norm.logpdf(u, 1.5 * z) + stats.norm.logpdf(v, u - z, 0.5).sum()
        np.testing.assert_allclose(float(target.logdensity(np.array([z]))), logp, rtol=1e-12)
    unknowns, data = prior_pairs(model, space, ["v", "u"], 400, 1)
    noise = data["v"] - (data["u"] - unknowns["z"])[:, None]
    assert abs(noise.std() - 0.5) < 4.5 * 0.5 / np.sqrt(2 * noise.size)


def test_weighted_draws_are_the_posterior(fitted):
    """Hardly trained, and exact none the less."""
    states, logp = exact(NEW)
    found = fitted.log_partition(NEW, 4000, seed=2)
    assert found.ess > 200
    assert abs(found.value - logsumexp(logp)) < 5 * found.error
    tree = fitted.posterior(NEW, draws=2000, random_seed=3)
    assert abs(tree.attrs["log_evidence"] - logsumexp(logp)) < 5 * tree.attrs["log_evidence_error"]
    p = np.exp(logp - logsumexp(logp))
    z, k = (tree["posterior"][name].values[0] for name in ("z", "k"))
    assert z.shape == (2000, 2)
    ess = min(tree.attrs["ess"], 2000) / 2  # drawn by weights, and resampled
    for value in range(3):
        for drawn, column in ((z[:, 0], 0), (z[:, 1], 1), (k - 1, 2)):
            share = p[states[:, column] - (column == 2) == value].sum()
            assert abs((drawn == value).mean() - share) < 5 * np.sqrt(share * (1 - share) / ess)


def test_weights_that_forget_the_prior_are_found(fitted):
    """The density of the data alone, in the place of that of unknowns and data."""
    states, logp = exact(NEW)
    found = fitted.log_partition(NEW, 4000, seed=2)
    p = np.log([0.2, 0.5, 0.3])
    of_prior = p[found.x[:, 0]] + p[found.x[:, 1]] - np.log(3)
    wrong = logsumexp(found.log_weights - of_prior) - np.log(4000)
    assert abs(wrong - logsumexp(logp)) > 20 * found.error
    assert len(states) == 27


@pytest.mark.parametrize("shape", [0.2, 0.9])
def test_khat_is_the_shape_of_the_large_weights(shape):
    """Of Pareto weights, and not of their inverses, which are bounded."""
    logs = shape * np.random.default_rng(1).exponential(size=20_000)
    # a Pareto tail of 3 sqrt(20,000) = 424 weights has the standard error (1 + k) / sqrt(424)
    assert abs(khat(logs) - shape) < 3 * (1 + shape) / np.sqrt(424)


@pytest.mark.parametrize(
    ("logs", "trusted"),
    [
        (np.zeros(10), False),  # too few to tell
        (np.full(1000, -np.inf), False),
        (np.append(np.zeros(3999), 730.0), False),  # one weight is all
        (500 * np.random.default_rng(0).normal(size=4000), False),
        (np.full(4000, -1e6), True),
    ],
)
def test_khat_of_extreme_weights(logs, trusted):
    assert (khat(logs) < 0.7) == trusted


def test_the_flow_of_some_data(fitted, model):
    flow = fitted.given(NEW)
    assert flow.names == ["z", "k"]
    assert flow.sample(5)["z"].shape == (5, 2)
    with model:
        assert pmd.FlowStep(flow).target.space.d == 3


def test_data_that_are_read_twice_are_refused():
    with pm.Model() as model:
        seen = pm.Data("seen", np.zeros(2))
        pm.Normal("y", pm.Bernoulli("z", 0.5) + seen.mean(), 1.0, observed=seen)
    with pytest.raises(ValueError, match=r"The data 'seen' of 'y' are read elsewhere, too"):
        pmd.fit_flow(model, given=["y"])


WRONG = [
    ({"y": NEW["y"]}, ValueError, r"data must have 'y', 'c', got 'y'"),
    ({**NEW, "y": np.zeros(3)}, ValueError, r"data of 'y' have shape \(3,\), and \(2,\) in the model"),
    ({**NEW, "y": np.array([0.0, np.nan])}, ValueError, r"data of 'y' must be numbers, and none of them nan"),
    ({**NEW, "c": np.array([1.5, 0, 0])}, ValueError, r"data of 'c' must be whole numbers.* got 1.5"),
    ({**NEW, "c": np.ma.masked_equal(NEW["c"], 2)}, ValueError, r"data of 'c' have masked values"),
    (NEW["y"], TypeError, r"data must be a dictionary"),
]


@pytest.mark.parametrize(("data", "error", "message"), WRONG)
def test_data_that_do_not_fit_are_refused(data, error, message, fitted):
    with pytest.raises(error, match=message):
        fitted.log_partition(data)


def test_covariates_that_changed_are_refused(fitted, model):
    pm.set_data({"shift": 0.6}, model=model)
    try:
        with pytest.raises(ValueError, match=r"'shift' of the model has another value than when the flow"):
            fitted.log_partition(NEW)
    finally:
        pm.set_data({"shift": 0.5}, model=model)
