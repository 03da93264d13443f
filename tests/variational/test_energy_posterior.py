"""fit_energy_posterior: posteriors known in closed form, its gradient, its sampler and diagnostics, and what
it refuses.
"""

import copy

import arviz as az
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pymc as pm
import pytest
from scipy import stats

import pymc_discrete as pmd
from pymc_discrete.variational import TiltedNormal

QUIET = {"progressbar": False, "random_seed": 1}


class Normal(eqx.Module):
    """The energy of a normal by its mean and a factor of its precision, unit lower triangular
    times diagonal.
    """

    mean: jax.Array
    lower: jax.Array
    log_scale: jax.Array

    def __init__(self, mean, covariance=None):
        self.mean = jnp.asarray(mean, float)
        d = len(self.mean)
        unit = np.linalg.inv(np.linalg.cholesky(np.eye(d) if covariance is None else covariance))
        self.log_scale = jnp.asarray(-np.log(np.diag(unit)))
        self.lower = jnp.asarray(np.tril(unit / np.diag(unit), -1))

    @property
    def factor(self):
        """(d, d), of the precision, its transpose first."""
        return (jnp.tril(self.lower, -1) + jnp.eye(len(self.mean))) * jnp.exp(-self.log_scale)

    def __call__(self, z):
        return 0.5 * jnp.sum((self.factor @ (z - self.mean)) ** 2)


def regression():
    """A posterior that is normal in the logarithms of a positive variable; (model, mean, covariance)."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)) @ np.array([[1.0, 0.8, 0], [0, 1, 0], [0, 0, 3]]), rng.normal(size=30)
    with pm.Model() as model:
        s = pm.LogNormal("s", 0.0, 2.0, shape=3)
        b = pm.Deterministic("b", pm.math.log(s))
        pm.Normal("y", X @ b, 0.7, observed=y)
    covariance = np.linalg.inv(X.T @ X / 0.49 + np.eye(3) / 4)
    return model, covariance @ X.T @ y / 0.49, covariance


@pytest.fixture(scope="module")
def fitted():
    model, mean, covariance = regression()
    fit = pmd.fit_energy_posterior(model, Normal(np.zeros(3)), iterations=500, chains=16, **QUIET)
    return fit, mean, covariance


@pytest.mark.slow
def test_normal_posterior_is_found(fitted):
    fit, mean, covariance = fitted
    assert fit.names == ["s_log__"]
    sd = np.sqrt(np.diag(covariance))
    found = np.linalg.inv(fit.energy.factor.T @ fit.energy.factor)
    # where q is the posterior the gradient of every draw is 0, so that the last iterates hardly move
    np.testing.assert_allclose((fit.energy.mean - mean) / sd, 0, atol=0.01)
    np.testing.assert_allclose(found / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.01)
    assert (fit.history["accepted"] > 0.999).all()  # log-concave
    assert not fit.history["skipped"].any()
    assert fit.history["log_ratio_variance"][-100:].mean() < 1e-3


def test_no_gradient_where_q_is_the_posterior():
    """Of every draw, and not only in the mean (Roeder et al. 2017)."""
    model, mean, covariance = regression()
    fit = pmd.fit_energy_posterior(
        model, Normal(mean, covariance), iterations=3, chains=4, n_steps=3, optimizer=optax.sgd(1e-9), **QUIET
    )
    assert (fit.history["gradient_norm"] < 1e-6).all()
    assert (fit.history["log_ratio_variance"] < 1e-12).all()


@pytest.mark.slow
def test_draws_and_diagnostics_of_a_normal_beside_the_truth(fitted):
    """q one standard deviation off in one of three coordinates: Fisher divergence 1/3 per coordinate."""
    fit, mean, covariance = fitted
    fit = copy.copy(fit)
    off = mean + np.linalg.cholesky(covariance)[:, 0]
    fit.energy = Normal(off, covariance)
    with pytest.raises(ValueError, match="draws must be an integer of at least 1"):
        fit.sample(0)
    tree = fit.sample(2000, thin=2, random_seed=2)
    draws = tree["posterior"]["b"].values
    assert draws.shape == (4, 2000, 3)
    np.testing.assert_allclose(tree["posterior"]["s"].values, np.exp(draws))
    for k in range(3):
        own, sd = draws[..., k], np.sqrt(covariance[k, k])
        assert abs(own.mean() - off[k]) / (sd / np.sqrt(float(az.ess(own, method="mean")))) < 4.5
    np.testing.assert_allclose(
        tree["sample_stats"]["lp"].values[0, 0],
        fit.model.compile_logp(mode="FAST_COMPILE")({"s_log__": draws[0, 0]}),
    )
    told = fit.diagnostics(tree)
    covered = np.cov(draws.reshape(-1, 3).T)
    gap = np.linalg.solve(covariance, off - mean)
    np.testing.assert_allclose(told["fisher_divergence"], gap @ covered @ gap / 3, rtol=1e-6)
    np.testing.assert_allclose(told["fisher_divergence"], 1 / 3, rtol=0.1)
    np.testing.assert_allclose(told["log_ratio_sd"], 1.0, rtol=0.1)  # log p - log q = -w - 1/2, w ~ N(0, 1)
    assert told["khat"] < 0.7
    np.testing.assert_allclose(
        told["ess_share"], np.exp(-1.0), rtol=0.35
    )  # E[w]^2 / E[w^2] of lognormal weights


@pytest.mark.slow
def test_bounded_and_bimodal():
    """A posterior of two modes of a bounded variable."""
    with pm.Model() as model:
        s = pm.LogNormal("s", 0.0, 2.0)
        pm.Normal("y", pm.math.log(s) ** 2, 0.8, observed=1.5)
    energy = TiltedNormal(np.zeros(1), 1.0, width=16, depth=1, key=jax.random.key(0))
    fit = pmd.fit_energy_posterior(model, energy, iterations=400, chains=16, **QUIET)
    # the sizes of s on a logarithmic scale, whose distribution functions are sums over a grid
    x = np.linspace(-6, 6, 2401)
    q = np.exp(-np.asarray(jax.vmap(fit.energy)(x[:, None])))
    q /= q.sum()
    # how the mass is divided between the pieces of a slice is what the gradient leaves out
    assert abs(q[x > 0].sum() - 0.5) < 0.15
    p = stats.norm.pdf(x, 0, 2) * stats.norm.pdf(1.5, x**2, 0.8)
    p /= p.sum()
    both_sides = [(w + w[::-1])[1200:] / 2 for w in (q, p)]
    # the largest distance of the distribution functions of |log s|: of a fit that is no more than good
    assert np.abs(np.subtract(*map(np.cumsum, both_sides))).max() < 0.05


def test_tilted_normal_starts_as_a_normal():
    energy = TiltedNormal(np.array([1.0, -2.0]), np.array([0.5, 3.0]), key=jax.random.key(0))
    z = np.array([1.3, 0.4])
    want = -stats.norm.logpdf(z, [1.0, -2.0], [0.5, 3.0]).sum() - np.log(0.5 * 3.0) - np.log(2 * np.pi)
    np.testing.assert_allclose(energy(z), want)


# ---------------------------------------------------------------- refusals
class Flat(eqx.Module):
    a: jax.Array

    def __call__(self, z):
        return self.a * jnp.exp(-jnp.sum(z**2))


class Rising(eqx.Module):
    a: jax.Array

    def __call__(self, z):
        return -jnp.exp(self.a) * jnp.sum(z**2)


class Vector(Flat):
    def __call__(self, z):
        return self.a * z


class Infinite(Flat):
    def __call__(self, z):
        return self.a / jnp.sum(z) ** 2


def one():
    pm.Normal("x")


def discrete():
    pm.Normal("x")
    pm.Bernoulli("b", 0.5)
    pm.Poisson("k", 2.0)


def simplex():
    pm.Dirichlet("w", np.ones(3), default_transform=None)


def nothing():
    pm.Normal("y", 0.0, 1.0, observed=0.0)


A = np.ones(())


@pytest.mark.parametrize(
    ("build", "energy", "options", "error", "message"),
    [
        (discrete, None, {}, ValueError, "discrete variables 'b', 'k'.*pmd.marginalize.*pmd.sample"),
        (simplex, None, {}, ValueError, "without its transform"),
        (nothing, None, {}, ValueError, "no continuous free variable"),
        (one, 3.0, {}, TypeError, r"energy must be callable.*3\.0"),
        (one, jnp.sum, {}, TypeError, "no parameters to fit"),
        (one, Vector(A), {}, ValueError, r"one float for z of shape \(1,\) \(x in this order\)"),
        (one, Infinite(A), {}, ValueError, "energy is inf at the model's initial point"),
        (one, None, {"iterations": 0}, ValueError, "iterations must be an integer of at least 1"),
        (one, None, {"chains": 1}, ValueError, "chains must be an integer of at least 2"),
        (one, None, {"n_steps": 2.5}, ValueError, "n_steps must be an integer of at least 1"),
    ],
)
def test_refusals(build, energy, options, error, message):
    with pm.Model() as model:
        build()
    with pytest.raises(error, match=message):
        pmd.fit_energy_posterior(model, energy, **QUIET, **options)


@pytest.mark.slow
def test_an_energy_that_is_not_integrable_is_refused():
    with pm.Model() as model:
        one()
    with pytest.raises(FloatingPointError, match="integrable"):
        pmd.fit_energy_posterior(model, Rising(A), iterations=20, **QUIET)


@pytest.mark.parametrize(
    ("mean", "options", "message"),
    [
        (0.0, {}, r"mean must be of shape \(d,\).* got shape \(\)"),
        ([], {}, r"mean must be of shape \(d,\).* got shape \(0,\)"),
        ([0.0], {"scale": -1.0}, "scale must hold positive numbers, standard deviations, got -1.0"),
        ([0.0], {"width": 0}, "width must be an integer of at least 1, got 0"),
        ([0.0], {"depth": -1}, "depth must be an integer of at least 0, got -1"),
    ],
)
def test_an_energy_refused_when_made(mean, options, message):
    with pytest.raises(ValueError, match=message):
        TiltedNormal(mean, **{"scale": 1.0, "key": jax.random.key(0), **options})
