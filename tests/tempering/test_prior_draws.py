"""Draws of the prior in JAX: each distribution against PyMC's own draws, and models of several variables."""

from collections.abc import Callable

import jax
import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_discrete.runtime.compiling import QUICKLY_COMPILED
from pymc_discrete.tempering.prior_draws import CannotDraw, PriorDraws, transformed_value

# every distribution with a version of its own, and some that PyMC makes of others
CONTINUOUS = {
    "Normal": lambda name, **shape: pm.Normal(name, 1.0, 2.0, **shape),
    "HalfNormal": lambda name, **shape: pm.HalfNormal(name, 2.0, **shape),
    "LogNormal": lambda name, **shape: pm.LogNormal(name, 0.3, 0.7, **shape),
    "SkewNormal": lambda name, **shape: pm.SkewNormal(name, mu=1.0, sigma=2.0, alpha=3.0, **shape),
    "TruncatedNormal": lambda name, **shape: pm.TruncatedNormal(
        name, 1.0, 2.0, lower=0.0, upper=4.0, **shape
    ),
    "Uniform": lambda name, **shape: pm.Uniform(name, -1.0, 3.0, **shape),
    "Triangular": lambda name, **shape: pm.Triangular(name, lower=0.0, c=1.0, upper=3.0, **shape),
    "Beta": lambda name, **shape: pm.Beta(name, 2.0, 0.5, **shape),
    "Exponential": lambda name, **shape: pm.Exponential(name, 2.0, **shape),
    "Gamma": lambda name, **shape: pm.Gamma(name, 2.0, 3.0, **shape),
    "Weibull": lambda name, **shape: pm.Weibull(name, 1.5, 2.0, **shape),
    "Wald": lambda name, **shape: pm.Wald(name, 1.5, 2.0, alpha=0.5, **shape),
    "Pareto": lambda name, **shape: pm.Pareto(name, 3.0, 2.0, **shape),
    "Laplace": lambda name, **shape: pm.Laplace(name, 1.0, 2.0, **shape),
    "AsymmetricLaplace": lambda name, **shape: pm.AsymmetricLaplace(name, kappa=2.0, mu=1.0, b=1.5, **shape),
    "Logistic": lambda name, **shape: pm.Logistic(name, 1.0, 2.0, **shape),
    "Gumbel": lambda name, **shape: pm.Gumbel(name, 1.0, 2.0, **shape),
    "Cauchy": lambda name, **shape: pm.Cauchy(name, 1.0, 2.0, **shape),
    "HalfCauchy": lambda name, **shape: pm.HalfCauchy(name, 2.0, **shape),
    "StudentT": lambda name, **shape: pm.StudentT(name, nu=4.0, mu=1.0, sigma=2.0, **shape),
    "Kumaraswamy": lambda name, **shape: pm.Kumaraswamy(name, 2.0, 3.0, **shape),
    "NormalMixture": lambda name, **shape: pm.NormalMixture(
        name, [0.3, 0.7], [-1.0, 2.0], [1.0, 1.0], **shape
    ),
}
DISCRETE = {
    "Bernoulli": lambda name, **shape: pm.Bernoulli(name, 0.3, **shape),
    "Binomial": lambda name, **shape: pm.Binomial(name, 7, 0.4, **shape),
    "NegativeBinomial": lambda name, **shape: pm.NegativeBinomial(name, mu=3.0, alpha=1.5, **shape),
    "Poisson": lambda name, **shape: pm.Poisson(name, 3.0, **shape),
    "Geometric": lambda name, **shape: pm.Geometric(name, 0.3, **shape),
    "Categorical": lambda name, **shape: pm.Categorical(name, [0.5, 0.3, 0.2], **shape),
    "DiscreteUniform": lambda name, **shape: pm.DiscreteUniform(name, -2, 4, **shape),
    "DiscreteWeibull": lambda name, **shape: pm.DiscreteWeibull(name, 0.7, 1.2, **shape),
    "OrderedLogistic": lambda name, **shape: pm.OrderedLogistic(
        name, eta=0.3, cutpoints=[-1.0, 0.5, 2.0], **shape
    ),
}
CHEAP = ("SkewNormal", "Triangular", "Categorical", "DiscreteUniform", "NegativeBinomial", "Poisson")
N = 4000


def drawn(model: pm.Model, n: int = N) -> dict[str, np.ndarray]:
    names = [str(v.name) for v in model.value_vars]
    draws, numbers = PriorDraws.of(model, names)
    keys = jax.random.split(jax.random.key(7), n)
    found = jax.jit(lambda keys: jax.lax.map(lambda key: draws(key, numbers), keys, batch_size=500))(keys)
    return {name: np.asarray(a) for name, a in found.items()}


def compare(named: dict[str, Callable]) -> None:
    """Our draws beside those of PyMC, of variables that do not depend on one another."""
    with pm.Model() as model:
        for name, variable in named.items():
            variable(name)
    with pm.Model() as many:
        for name, variable in named.items():
            variable(name, shape=20_000)
    values = [transformed_value(many, rv) for rv in many.free_RVs]
    theirs = pm.draw(values, random_seed=3, mode=QUICKLY_COMPILED)
    ours, rvs = drawn(model), model.free_RVs
    for rv, of_pymc in zip(rvs, theirs, strict=True):
        x = ours[str(model.rvs_to_values[rv].name)]
        if rv.name in CONTINUOUS:
            p = stats.ks_2samp(x, of_pymc).pvalue
        else:
            seen = np.unique(np.concatenate([x, of_pymc]))
            table = np.array([[(x == v).sum(), (of_pymc == v).sum()] for v in seen])
            p = stats.chi2_contingency(table[table.sum(axis=1) > 20]).pvalue
        assert p > 1e-3 / len(rvs), (rv.name, p)


def test_draws_are_those_of_pymc():
    compare({name: (CONTINUOUS | DISCRETE)[name] for name in CHEAP})


@pytest.mark.slow
def test_draws_of_every_other_distribution_are_those_of_pymc():
    compare({name: of for name, of in (CONTINUOUS | DISCRETE).items() if name not in CHEAP})


def test_draws_of_a_vector_depend_on_other_variables_and_on_data():
    with pm.Model() as model:
        p = pm.Dirichlet("p", [1.0, 2.0, 3.0])
        pm.Categorical("z", p, shape=(2,))
        n = pm.Poisson("n", pm.Data("rate", [2.0, 9.0]))
        pm.Binomial("k", n=n, p=0.5)
        pm.Multinomial("m", n=6, p=[0.2, 0.5, 0.3])
        pm.MvNormal("v", [1.0, 2.0], cov=[[2.0, 0.9], [0.9, 1.0]])
        low = pm.Normal("low")
        pm.Uniform("u", low, low + 1.0)
    x = drawn(model)
    error = 4.0 / np.sqrt(N)
    assert (x["k"] <= x["n"]).all()
    assert (x["m"].sum(axis=1) == 6).all()
    assert np.abs(x["m"].mean(axis=0) / 6 - [0.2, 0.5, 0.3]).max() < error / 2
    assert np.abs(x["n"].mean(axis=0) - [2.0, 9.0]).max() < 3 * error
    assert np.abs(np.cov(x["v"].T) - [[2.0, 0.9], [0.9, 1.0]]).max() < 3 * error
    assert np.abs((x["z"] == 2).mean() - 0.5) < error
    assert x["p_simplex__"].shape == (N, 2)
    assert stats.kstest(1 / (1 + np.exp(-x["u_interval__"])), "uniform").pvalue > 1e-3


def test_a_draw_at_the_end_of_its_support_has_a_finite_value():
    with pm.Model() as model:
        pm.Beta("x", 0.001, 0.001)
    assert np.isfinite(drawn(model, 500)["x_logodds__"]).all()


def test_what_has_no_version_for_jax_is_named():
    with pm.Model() as model:
        pm.Moyal("x", 0.0, 1.0)
    with pytest.raises(CannotDraw, match="no draws of the prior of 'x'"):
        PriorDraws.of(model, ["x"])
    with pm.Model() as model:
        pm.Truncated("x", pm.Poisson.dist(3.0), lower=1, upper=6)
    with pytest.raises(CannotDraw, match="no draws of the prior of 'x'"):
        PriorDraws.of(model, ["x"])
