"""A step of the user's own in `pmd.sample`: it draws what it should, and its mistakes are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import SamplingError
from scipy import stats

import pymc_discrete as pmd
from tests.tools.running import QUIET

pytestmark = pytest.mark.shares_programs

Y = np.array([0.3, 1.9, 1.1, 4.2, 3.8, 5.1])
SD = 3.0  # of the prior of mu


def a_model():
    """Two groups with unknown labels: mu is the mean of the second, that of the first is 0."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, SD)
        z = pm.Bernoulli("z", 0.4, shape=len(Y))
        pm.Normal("y", z * mu, 1.0, observed=Y)
    return model


def conjugate(key, point, state):
    """mu given z: normal, of precision 1 / SD^2 + n and mean (sum of y in the group) / precision."""
    precision = 1 / SD**2 + point["z"].sum()
    mean = (point["z"] * Y).sum() / precision
    return {"mu": mean + jax.random.normal(key) / jnp.sqrt(precision)}, state


def exact():
    """The posterior's mean and standard deviation of mu, and the means of z, by enumeration of z."""
    zs = np.array(np.meshgrid(*[[0, 1]] * len(Y))).reshape(len(Y), -1).T
    logp, means, variances = [], [], []
    for z in zs:
        cov = np.eye(len(Y)) + SD**2 * np.outer(z, z)
        logp.append(
            stats.multivariate_normal(np.zeros(len(Y)), cov).logpdf(Y) + stats.bernoulli(0.4).logpmf(z).sum()
        )
        precision = 1 / SD**2 + z.sum()
        means.append((z * Y).sum() / precision)
        variances.append(1 / precision)
    weight = np.exp(np.array(logp) - np.max(logp))
    weight /= weight.sum()
    mean = weight @ means
    return mean, np.sqrt(weight @ (np.array(variances) + np.array(means) ** 2) - mean**2), weight @ zs


@pytest.mark.slow
def test_a_conjugate_update_beside_block_gibbs():
    model = a_model()
    step = [pmd.CustomStep("mu", conjugate, model=model), pmd.BlockGibbs("z", model=model)]
    tree = pmd.sample(4000, tune=200, chains=4, model=model, step=step, random_seed=1, **QUIET)
    draws, (mean, sd, labels) = tree["posterior"], exact()
    ess = 4 * 4000 / 10  # no less than a tenth of the draws
    assert abs(draws["mu"].mean() - mean) < 4 * sd / np.sqrt(ess)
    assert abs(draws["mu"].std() / sd - 1) < 4 / np.sqrt(ess)
    error = 4 * np.sqrt(labels * (1 - labels) / ess)
    assert (np.abs(draws["z"].mean(("chain", "draw")) - labels) < error).all()
    logp = model.compile_logp(mode="FAST_COMPILE")
    for n in (0, 3999):
        point = {"mu": draws["mu"][2, n].values, "z": draws["z"][2, n].values.astype(int)}
        assert np.isclose(tree["sample_stats"]["lp"][2, n], logp(point))


def test_a_wrong_update_is_seen():
    """The check above fails for a mean that is off by half of its standard deviation."""

    def wrong(key, point, state):
        moved, state = conjugate(key, point, state)
        return {"mu": moved["mu"] + 0.5 / jnp.sqrt(1 / SD**2 + point["z"].sum())}, state

    model = a_model()
    tree = pmd.sample(
        4000, tune=200, model=model, step=pmd.CustomStep("mu", wrong, model=model), random_seed=1, **QUIET
    )
    mean, sd, _ = exact()
    assert abs(tree["posterior"]["mu"].mean() - mean) > 4 * sd / np.sqrt(1600)


@pytest.mark.slow
def test_transforms_and_state():
    """Variables come and go as the user sees them, also where one is the bound of another; with a state."""
    with pm.Model() as model:
        top = pm.HalfNormal("top", 2.0)
        x = pm.Uniform("x", 0.0, top)
        w = pm.Dirichlet("w", np.array([2.0, 3.0, 4.0]))
        pm.Normal("free", 0.0, 1.0)

    def step(key, point, count):
        one, two, three = jax.random.split(key, 3)
        top = 2.0 * jnp.abs(jax.random.normal(one))
        moved = {
            "top": top,
            "x": top * jax.random.uniform(two),
            "w": jax.random.dirichlet(three, jnp.array([2.0, 3.0, 4.0])),
        }
        return {**point, **moved}, count + 1

    own = pmd.CustomStep([top, x, w], step, init=lambda point: jnp.zeros((), int), model=model)
    draws = pmd.sample(4000, tune=100, chains=2, model=model, step=own, random_seed=1, **QUIET)["posterior"]
    for name, exact_draws in (("top", stats.halfnorm(scale=2)), ("free", stats.norm())):
        assert stats.kstest(draws[name].values.ravel()[::5], exact_draws.cdf).pvalue > 1e-3
    share = (draws["x"] / draws["top"]).values.ravel()
    assert stats.kstest(share, "uniform").pvalue > 1e-3
    assert stats.kstest(draws["w"].values[..., 0].ravel(), stats.beta(2, 7).cdf).pvalue > 1e-3


def test_all_variables_and_a_constrained_vector():
    """Counts with a fixed sum, all drawn anew. Without another block, `lp` is that of the move."""
    with pm.Model() as model:
        pm.Multinomial("n", 5, np.array([0.2, 0.3, 0.5]))

    def step(key, point, state):
        cells = jax.random.choice(key, 3, (5,), p=jnp.array([0.2, 0.3, 0.5]))
        return {"n": jnp.bincount(cells, length=3)}, state

    own = pmd.CustomStep("n", step, model=model)
    tree = pmd.sample(2000, tune=0, chains=2, model=model, step=own, random_seed=1, **QUIET)
    draws = tree["posterior"]["n"]
    assert (draws.sum("n_dim_0") == 5).all()
    assert np.allclose(draws.mean(("chain", "draw")), [1.0, 1.5, 2.5], atol=4 * 1.2 / np.sqrt(4000))
    expected = stats.multinomial(5, [0.2, 0.3, 0.5]).logpmf(draws.values[0])
    assert np.allclose(tree["sample_stats"]["lp"].values[0], expected)


# ---------------------------------------------------------------- what is refused
def shaped(key, point, state):
    return {"mu": jnp.zeros(2)}, state


@pytest.mark.parametrize(
    ("vars", "step", "error", "message"),
    [
        ("mu", lambda key, point, state: point, TypeError, r"must return \(point, state\).*got dict"),
        ("mu", lambda key, point, state: ({}, state), ValueError, "returned no value for 'mu'"),
        ("mu", shaped, ValueError, r"'mu' of shape \(2,\); the variable has the shape \(\)"),
        ("mu", lambda key, point, s: ({"mu": 0.0, "q": 1}, s), ValueError, "'q', which is no free variable"),
        (
            "mu",
            lambda key, point, s: ({**point, "mu": 0.0, "z": 1 - point["z"]}, s),
            ValueError,
            "changed 'z', which is not among its variables",
        ),
        (
            "z",
            lambda key, point, s: ({"z": 0.5 * point["z"]}, s),
            TypeError,
            "'z' as float64; .* is discrete",
        ),
        ("mu", lambda key, point, s: ({"mu": 0.0}, 1), TypeError, "state of another structure.*Pass init="),
        ("mu", lambda key, point, s: ({"mu": jnp.nan}, s), SamplingError, "made 'mu' nan or infinite"),
        (
            "z",
            lambda key, point, s: ({"z": point["z"] + 2}, s),
            SamplingError,
            "'z' out of its support: it is",
        ),
    ],
    ids=["no pair", "missing", "shape", "unknown", "another", "floats", "state", "nan", "support"],
)
def test_what_a_function_returns_is_checked(vars, step, error, message):
    model = a_model()
    with pytest.raises(error, match=message):
        pmd.sample(10, tune=10, model=model, step=pmd.CustomStep(vars, step, model=model), **QUIET)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("mu", None), TypeError, "step must be a JAX function"),
        (("mu", 3), TypeError, "step must be a function, got 3"),
        (("mu", conjugate, 0.0), TypeError, "init must be a function, got 0.0"),
        (("nu", conjugate), ValueError, "The model has no variable 'nu'"),
        (("y", conjugate), ValueError, "'y' is observed"),
        ((["mu", "mu"], conjugate), ValueError, "'mu' is named twice"),
        (([], conjugate), TypeError, "vars must be a free variable"),
        ((3, conjugate), TypeError, "vars must be a free variable"),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    with a_model(), pytest.raises(error, match=message):
        pmd.CustomStep(*arguments)


def test_a_variable_of_another_model():
    other = a_model()
    with a_model(), pytest.raises(ValueError, match="'mu' belongs to another model"):
        pmd.CustomStep(other["mu"], conjugate)


def test_it_is_not_for_pm_sample():
    with a_model(), pytest.raises(ValueError, match=r"Step should be a Step.*CustomStep"):
        pm.sample(10, tune=10, step=pmd.CustomStep("mu", conjugate), **QUIET)


def test_two_steps_for_one_variable():
    model = a_model()
    steps = [pmd.CustomStep("z", conjugate, model=model), pmd.BlockGibbs("z", model=model)]
    with pytest.raises(ValueError, match="'z' belongs to two steps"):
        pmd.sample(10, model=model, step=steps, **QUIET)
