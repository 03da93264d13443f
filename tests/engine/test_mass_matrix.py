"""The choice of a dense mass matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine.mass_matrix import condition, inverse_mass_matrix
from pymc_discrete.engine.nuts import NutsBlock
from pymc_discrete.engine.nuts_options import DEFAULTS
from pymc_discrete.engine.points import Points

pytestmark = pytest.mark.shares_programs


def gaussian(covariance, draws, seed=0):
    """(estimated covariance, sum of outer products of gradients), of draws from a Gaussian."""
    x = np.random.default_rng(seed).multivariate_normal(np.zeros(len(covariance)), covariance, size=draws)
    slopes = -x @ np.linalg.inv(covariance)
    return np.cov(x.T), slopes.T @ slopes


def correlated(r, d=2):
    return np.full((d, d), r) + (1 - r) * np.eye(d)


@pytest.mark.parametrize(
    ("covariance", "draws", "dense"),
    [
        (correlated(0.9), 100, True),
        (np.diag([100.0, 1.0]) @ correlated(-0.9) @ np.diag([100.0, 1.0]), 100, True),
        (correlated(0.2), 100, False),
        (np.diag([1.0, 1e6]), 100, False),  # scales alone are what a diagonal matrix is for
        (np.eye(20), 100, False),  # correlations by chance
        (correlated(0.9, 20), 400, True),
        (correlated(0.9, 20), 10, False),  # too few draws for a covariance
    ],
)
def test_a_dense_matrix_where_the_draws_and_the_gradients_ask_for_it(covariance, draws, dense):
    estimate, scores = gaussian(covariance, draws)
    got = np.asarray(inverse_mass_matrix(jnp.asarray(estimate), jnp.asarray(scores)))
    np.testing.assert_allclose(got, estimate if dense else np.diag(np.diag(estimate)))


def test_the_condition_number_is_that_of_the_product():
    r = np.random.default_rng(1)
    a, b = (m @ m.T for m in r.normal(size=(2, 4, 4)))
    values = np.sort(np.linalg.eigvals(a @ b).real)
    assert float(condition(jnp.asarray(a), jnp.asarray(b))) == pytest.approx(values[-1] / values[0], rel=1e-2)
    assert float(condition(jnp.asarray(a), jnp.zeros((4, 4)))) == np.inf


def test_a_ridge_of_the_draws_that_the_density_has_not():
    """Two coordinates that follow the same third variable, and are independent given it."""
    r = np.random.default_rng(2)
    centre = r.normal(size=500)
    noise = r.normal(0, 0.1, size=(500, 2))
    slopes = -noise / 0.1**2
    got = inverse_mass_matrix(
        jnp.asarray(np.cov((centre[:, None] + noise).T)), jnp.asarray(slopes.T @ slopes)
    )
    assert got[0, 1] == 0


@pytest.mark.parametrize("pooled", [False, True])
def test_at_the_end_of_a_window(pooled):
    covariance = np.array([[1.0, -1.9], [-1.9, 4.0]])
    with pm.Model() as model:
        pm.MvNormal("a", np.zeros(2), cov=covariance)
        options = {**DEFAULTS, "pooled": pooled}
        block = NutsBlock(model, ["a"], model.initial_point(), Points([]), 200, 0.8, **options)
    draws = np.random.default_rng(3).multivariate_normal(np.zeros(2), covariance, size=(2, 100))
    states = [block.start({}) for _ in draws]

    class Drawn:
        def __init__(self, q):
            self.position, self.logdensity_grad = jnp.asarray(q), -np.linalg.inv(covariance) @ q

    for n, own in enumerate(draws):
        for q in own:
            states[n] = block._in_window(states[n], Drawn(q))
    together = jax.tree.map(lambda *a: np.stack(a), *states)
    end = block.shared(together, True) if pooled else jax.vmap(block._window_end)(together)
    want = [np.cov(draws.reshape(-1, 2).T)] * 2 if pooled else [np.cov(own.T) for own in draws]
    np.testing.assert_allclose(end.mass.inverse_mass_matrix, np.array(want), rtol=0.1)
    assert (np.asarray(end.scores) == 0).all()


@pytest.mark.slow
def test_an_abundance_and_its_detection_probability():
    """Summed out, the counts leave a ridge, along which a diagonal matrix takes 6.8 steps on average."""
    rng = np.random.default_rng(4)
    y = rng.binomial(rng.poisson(6, size=(30, 1)), 0.4, size=(30, 4))
    with pm.Model():
        lam, p = pm.Gamma("lam", 2, 0.5), pm.Beta("p", 1, 1)
        N = pm.Poisson("N", lam, shape=30, initval=y.max(1))
        pm.Binomial("y", N[:, None], p, observed=y)
        options = {"chains": 2, "random_seed": 5, "progressbar": False, "compute_convergence_checks": False}
        idata = pmd.sample(500, collapse=True, **options)
    assert idata.sample_stats.n_steps.mean() < 0.75 * 6.8
