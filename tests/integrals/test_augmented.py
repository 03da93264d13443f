"""Likelihoods that are quadratic forms given further variables: the forms, and draws of models with them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import expit, gammaln, logsumexp

import pymc_discrete as pmd
from pymc_discrete.collapse.integrated import coefficients_to_integrate
from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.nuts_options import DEFAULTS
from pymc_discrete.integrals import logistic
from pymc_discrete.integrals.augmented import augmented
from pymc_discrete.integrals.probit import normal_between
from pymc_discrete.model.described import DescribedModel
from tests.tools.running import FAST, QUIET, assert_same_draws
from tests.tools.statistics import LARGEST_Z, z_of_moments

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

R = np.random.default_rng(7)
X = R.normal(size=(9, 2))
TRIALS = np.array([3, 0, 5, 1, 2, 4, 0, 1, 6])
COUNTS = np.array([0, 3, 0, 1, 7, 0, 2, 0, 1])


def bernoulli(eta):
    pm.Bernoulli("y", logit_p=eta, observed=COUNTS > 0)


def by_probability(eta):
    p = pm.Deterministic("p", pm.math.invlogit(eta))
    pm.Bernoulli("y", p=p, observed=COUNTS > 0)


def written_out(eta):
    pm.Bernoulli("y", p=1 / (1 + pt.exp(-eta)), observed=COUNTS > 0)


def of_elements(eta):
    pm.Bernoulli("y", p=pm.math.sigmoid(eta)[np.array([8, 0, 1, 1, 3])], observed=[1, 0, 0, 1, 1])


def failures(eta):
    pm.Bernoulli("y", p=1 - pm.math.sigmoid(eta), observed=COUNTS > 0)


def binomial(eta):
    pm.Binomial("y", n=TRIALS, logit_p=eta, observed=np.minimum(TRIALS, COUNTS))


def negative_binomial(eta):
    pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=0.7, observed=COUNTS)


def negative_binomial_by_p(eta):
    pm.NegativeBinomial("y", n=2.5, p=pm.math.sigmoid(eta), observed=COUNTS)


def with_exposure(eta):
    pm.NegativeBinomial("y", mu=pm.math.exp(eta) * np.arange(1.0, 10.0), alpha=3.0, observed=COUNTS)


def geometric(eta):
    pm.Geometric("y", p=pm.math.sigmoid(eta), observed=COUNTS + 1)


LIKELIHOODS = {
    f.__name__: f
    for f in (
        bernoulli,
        by_probability,
        written_out,
        of_elements,
        failures,
        binomial,
        negative_binomial,
        negative_binomial_by_p,
        with_exposure,
        geometric,
    )
}


def with_gates(likelihood):
    """Two gates, an intercept, normal priors."""
    with pm.Model() as model:
        g = pm.Bernoulli("g", 0.4, shape=2)
        b, a = pm.Normal("b", 0.3, 1.2, shape=2), pm.Normal("a", 0.0, 1.0)
        likelihood(a + X @ (g * b))
    return model


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.by_default("of_elements", "negative_binomial")
def test_the_quadratic_form_integrates_to_the_likelihood(name):
    # The integral over PG(b, 0) of exp(-omega eta^2 / 2) is cosh(eta / 2)^-b.
    model = with_gates(LIKELIHOODS[name])
    given = augmented(model)
    (of,) = given.likelihoods
    named = given.model.named_vars
    read = [given.model[n] for n in ("g", "b", "a")]
    values = [given.model.rvs_to_values[rv] for rv in read]
    precision, more = of.variables[logistic.PRECISION], of.variables.get(logistic.SUCCESSES)
    omega = given.model.rvs_to_values[named[precision]]
    shift = [given.model.rvs_to_values[named[more]]] if more else []
    outputs = ("y", of.read[logistic.LOG_ODDS], of.read[logistic.TRIALS])
    graphs = given.model.replace_rvs_by_values([named[n] for n in outputs])
    augmented_values = pytensor.function([*values, omega, *shift], graphs, mode="FAST_COMPILE")
    loglike = pytensor.function(
        [model.rvs_to_values[model[n]] for n in ("g", "b", "a")],
        model.logp(vars=model["y"], sum=False),
        mode="FAST_COMPILE",
    )
    r, found = np.random.default_rng(1), []
    for _ in range(5):
        point = [r.integers(2, size=2), r.normal(size=2), np.asarray(r.normal())]
        w = r.uniform(0.1, 1.0, of.shape)
        s = [np.zeros(w.shape) for _ in shift]
        form, eta, trials = augmented_values(*point, w, *s)
        assert (trials >= 1).all() == (more is None)
        if shift:  # what a further success adds
            shifted, *_ = augmented_values(*point, w, s[0] + 0.5)
            np.testing.assert_allclose(shifted - form, 0.5 * eta, atol=1e-12)
        linear = form + w * eta**2 / 2
        found.append(loglike(*point)[0] - linear + trials * np.log(np.cosh(eta / 2)))
    np.testing.assert_allclose(found, np.broadcast_to(found[0], np.shape(found)), atol=1e-9)


def probit(eta):
    pm.Bernoulli("y", p=pm.math.invprobit(eta), observed=COUNTS > 0)


ANSWERS = np.array([0, 2, 1, 1, 2, 0, 1, 2, 2])
LOWER, UPPER = np.array([-np.inf, -0.6, 0.5])[ANSWERS], np.array([-0.6, 0.5, np.inf])[ANSWERS]


def ordered(eta):
    pm.OrderedProbit("y", eta=eta, cutpoints=[-0.6, 0.5], compute_p=False, observed=ANSWERS)


def ordered_of_unknown_cutpoints(eta):
    cutpoints = pm.Normal("c", [-1.0, 1.0], transform=pm.distributions.transforms.ordered)
    pm.OrderedProbit("y", eta=eta, cutpoints=cutpoints, sigma=pm.HalfNormal("s"), observed=ANSWERS)


def ordered_of_rows(eta):
    cutpoints = np.linspace(-1.0, 0.0, 9)[:, None] + np.array([0.0, 0.8])
    scales = np.linspace(0.5, 2.0, 9)
    pm.OrderedProbit("y", eta, cutpoints, scales, compute_p=False, observed=ANSWERS)


@pytest.mark.parametrize("likelihood", [probit, ordered, ordered_of_unknown_cutpoints, ordered_of_rows])
def test_latent_variables_are_between_bounds_with_the_probability_of_the_answers(likelihood):
    model = with_gates(likelihood)
    given = augmented(model)
    (of,) = given.likelihoods
    assert set(of.beside) == {n for n in model.initial_point() if n not in ("g", "b", "a")}
    named = given.model.named_vars
    inputs = [given.model.rvs_to_values[rv] for rv in given.model.free_RVs]
    outputs = [named["y"], *(named[of.read[role]] for role in ("predictor", "lower bound", "upper bound"))]
    graphs = given.model.replace_rvs_by_values(outputs)
    evaluated = pytensor.function(inputs, graphs, mode="FAST_COMPILE", on_unused_input="ignore")
    loglike = model.compile_logp(vars=model["y"], sum=False, mode="FAST_COMPILE")
    r, u = np.random.default_rng(1), np.linspace(-1, 1, 9)
    for _ in range(5):
        # a transformed scale and transformed cutpoints may have any value
        point = {v: r.normal(size=np.shape(at)) for v, at in model.initial_point().items()}
        point["g"] = r.integers(2, size=2)
        latent = {name: u for name in of.variables.values()}
        form, eta, lower, upper = evaluated(*(({**point, **latent})[v.name] for v in inputs))
        np.testing.assert_allclose(form, u * eta - eta**2 / 2, atol=1e-12)
        probability = stats.norm.cdf(upper - eta) - stats.norm.cdf(lower - eta)
        # PyMC divides by sqrt(2) in 32 bits
        np.testing.assert_allclose(np.log(probability), loglike(point)[0], rtol=1e-5)


def test_an_answer_that_there_is_not_is_impossible():
    with pm.Model() as model:
        pm.OrderedProbit("y", eta=pm.Normal("b"), cutpoints=[-0.6, 0.5], observed=[0, 3])
    made = augmented(model).model
    assert made.compile_logp(mode="FAST_COMPILE")(made.initial_point()) == -np.inf


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_draws_of_normal_variables_between_bounds(dtype):
    mean, ends, size = 0.5, [-80.0, -40.0, -36.5, -12.0, -3.0, -0.5, 0.0, 0.7, 9.0, 50.0, 50.01], 4000
    low, high = np.array(
        [(-np.inf, b) for b in ends] + [(a, np.inf) for a in ends] + [*itertools.pairwise(ends)], dtype
    ).T
    with jax.enable_x64(dtype is np.float64):
        bounds = (jnp.repeat(jnp.asarray(bound), size) for bound in (low, high))
        drawn = normal_between(jax.random.key(3), jnp.full(size * len(low), mean, dtype), *bounds)
    assert drawn.dtype == dtype
    drawn = np.asarray(drawn, float).reshape(-1, size)
    for a, b, draws in zip(low.astype(float) - mean, high.astype(float) - mean, drawn - mean, strict=True):
        if a > 0:  # in the tail in which probabilities are exact
            a, b, draws = -b, -a, -draws
        # in the tails log probabilities, of which there are differences
        least, most = (stats.norm.logcdf(end) for end in (a, b))
        at = stats.norm.logcdf(draws)
        uniform = np.expm1(np.minimum(at - most, 0.0)) / -np.expm1(least - most) + 1
        assert stats.kstest(uniform, "uniform").pvalue > 1e-4, (a, b)


def test_what_is_no_such_likelihood_stays():
    with pm.Model() as model:
        a, g = pm.Normal("a"), pm.Bernoulli("g", 0.5)
        pm.Bernoulli("clipped", p=pt.clip(pm.math.sigmoid(a * g), 0.01, 0.9), observed=[0, 1])
        pm.Bernoulli("latent", logit_p=a)
        y = pm.Bernoulli("read", logit_p=a, observed=[0, 1])
        pm.Potential("reads", y.sum() * a)
        pm.Bernoulli("constant", logit_p=0.3, observed=[0, 1])
    assert augmented(model) is None


def test_discrete_unknowns_in_the_trials_are_not_moved_by_a_form_without_them():
    with pm.Model() as model:
        n, z, b = pm.Poisson("n", 5.0, shape=9), pm.Bernoulli("z", 0.5), pm.Normal("b")
        pm.Binomial("x", n, logit_p=b * X[:, 0], observed=np.minimum(COUNTS, 1))
        pm.NegativeBinomial("y", mu=pt.exp(b * X[:, 1]), alpha=pt.stack([0.5, 2.0])[z], observed=COUNTS)
        assert augmented(model) is None
        with pytest.raises(ValueError, match="is none"):
            pmd.BlockGibbs(["n"], integrate=["b"])


def test_many_effects_without_a_gate_are_left_to_nuts():
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.4, shape=2), pm.Normal("b", shape=2)
        a, effects = pm.Normal("a"), pm.Normal("effects", 0.0, pm.HalfNormal("scale"), shape=30)
        eta = a + X @ (g * b) + effects[np.arange(9)]
        pm.Bernoulli("y", logit_p=eta, observed=COUNTS > 0)
    moved = ["b", "a", "effects", "scale_log__"]
    assert coefficients_to_integrate(DescribedModel(model), ["g"], moved) == ["b", "a"]


def test_further_successes_and_polya_gamma_variables_are_independent():
    # few elements, of which a draw makes as many proposals as there are uniforms for successes
    n, draws = 30, 4000
    values = {logistic.LOG_ODDS: jnp.zeros(n), logistic.TRIALS: jnp.full(n, 0.3)}
    draw = jax.jit(jax.vmap(lambda key: logistic.LOGISTIC.draw(key, values, (0.3, 0.3))))
    found = draw(jax.random.split(jax.random.key(0), draws))
    w, s = (np.asarray(found[name]).ravel() for name in (logistic.PRECISION, logistic.SUCCESSES))
    assert abs(np.corrcoef(w, s)[0, 1]) * np.sqrt(w.size) < LARGEST_Z


def test_impossible_data_stay_impossible():
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Binomial("y", n=2, logit_p=X @ b, observed=COUNTS)
    made = augmented(model).model
    assert made.compile_logp(mode="FAST_COMPILE")(made.initial_point()) == -np.inf


# ---------------------------------------------------------------- draws against quadrature
def moments(weights, values):
    """Means and standard deviations of `values` {name: array} under the log weights of points."""
    w = np.exp(weights - logsumexp(weights))
    means = {name: (w * v).sum() for name, v in values.items()}
    return {name: (means[name], np.sqrt((w * (v - means[name]) ** 2).sum())) for name, v in values.items()}


def of_gates(logp):
    """Moments of `with_gates`, by the midpoint rule.

    Parameters
    ----------
    logp : log odds (..., 9) -> log probabilities of the data (..., 9)
    """
    axis, g = np.linspace(-5.0, 5.5, 30), np.array([0, 1])  # errors below 1e-4 standard deviations
    points = np.stack(np.meshgrid(g, g, axis, axis, axis, indexing="ij"), -1)
    gates, b, a = points[..., :2], points[..., 2:4], points[..., 4]
    prior = stats.bernoulli.logpmf(gates, 0.4).sum(-1) + stats.norm.logpdf(b, 0.3, 1.2).sum(-1)
    weights = prior + stats.norm.logpdf(a) + logp(a[..., None] + (gates * b) @ X.T).sum(-1)
    values = {f"g{j}": gates[..., j] for j in range(2)} | {f"b{j}": (gates * b)[..., j] for j in range(2)}
    return moments(weights, {**values, "a": a})


def of_bernoulli():
    return of_gates(lambda eta: stats.bernoulli.logpmf(COUNTS > 0, expit(eta)))


def columns(posterior):
    """{name: (chain, draw)} of gates, effective coefficients, and all else."""
    g, b = (np.atleast_3d(posterior[n].values) for n in ("g", "b"))
    found = {f"g{j}": g[..., j].astype(float) for j in range(g.shape[-1])}
    found |= {f"b{j}": (g * b)[..., j] for j in range(g.shape[-1])}
    return found | {str(n): v.values for n, v in posterior.items() if n not in ("g", "b", "p")}


def check(posterior, exact):
    for name, draws in columns(posterior).items():
        assert np.abs(z_of_moments(draws, *exact[name])).max() < LARGEST_Z, name


@pytest.mark.slow
def test_draws_are_those_of_the_posterior(caplog):
    with with_gates(bernoulli), caplog.at_level("INFO", "pymc.discrete"):
        idata = pmd.sample(draws=8000, tune=200, random_seed=5, **QUIET)
    assert "given Polya-Gamma variables of 'y': 'b', 'a'" in caplog.text
    check(idata.posterior, of_bernoulli())


def with_unknown_size():
    """A gate, a count of unknown size, and a prior of unknown scale."""
    with pm.Model() as model:
        g, tau = pm.Bernoulli("g", 0.4), pm.HalfNormal("tau", 1.5)
        b, a = pm.Normal("b", 0.0, tau), pm.Normal("a", 0.0, 1.0)
        r = pm.Gamma("r", 2.0, 2.0)
        pm.NegativeBinomial("y", mu=pt.exp(a + X[:, 0] * (g * b)), alpha=r, observed=COUNTS)
    return model


def of_unknown_size():
    """Moments of `with_unknown_size`, by the midpoint rule."""
    axis, sizes, scales = np.linspace(-6.0, 6.0, 81), np.linspace(0.02, 7.0, 60), np.linspace(0.04, 7.0, 88)
    g, b, a, r = np.meshgrid([0, 1], axis, axis, sizes, indexing="ij")
    log_mean, size = a[..., None] + (g * b)[..., None] * X[:, 0], r[..., None]
    terms = stats.bernoulli.logpmf(g, 0.4) + stats.norm.logpdf(a) + stats.gamma.logpdf(r, 2.0, scale=0.5)
    # the negative binomial distribution, what depends on the size alone once for each size
    of_size = gammaln(COUNTS + sizes[:, None]) - gammaln(sizes[:, None]) - gammaln(COUNTS + 1)
    terms += (of_size + sizes[:, None] * np.log(sizes[:, None])).sum(-1)
    terms += (COUNTS * log_mean - (size + COUNTS) * np.log(size + np.exp(log_mean))).sum(-1)
    # the data say nothing of the scale but by way of b
    over_b = logsumexp(terms, axis=(0, 2, 3))
    of_scale = stats.halfnorm.logpdf(scales, 0, 1.5) + stats.norm.logpdf(axis[:, None], 0, scales)
    prior = logsumexp(of_scale, axis=1)[:, None, None]
    return moments(terms + prior, {"g0": g, "b0": g * b, "a": a, "r": r}) | moments(
        over_b[:, None] + of_scale, {"tau": np.broadcast_to(scales, of_scale.shape)}
    )


@pytest.mark.slow
def test_draws_with_unknown_cutpoints(caplog):
    with pm.Model(), caplog.at_level("INFO", "pymc.discrete"):
        g, b = pm.Bernoulli("g", 0.4), pm.Normal("b", 0.0, 1.2)
        c = pm.Normal("c", [-1.0, 1.0], transform=pm.distributions.transforms.ordered)
        pm.OrderedProbit("y", eta=X[:, 0] * (g * b), cutpoints=c, observed=ANSWERS, compute_p=False)
        posterior = pmd.sample(draws=8000, tune=400, random_seed=5, **QUIET).posterior.to_dataset()
    assert "given latent variables of 'y': 'b'" in caplog.text
    axis = np.linspace(-4.5, 4.5, 40)  # errors below 1e-3 standard deviations
    g, b, low, high = np.meshgrid([0, 1], axis, axis, axis, indexing="ij")
    eta, ends = (g * b)[..., None] * X[:, 0], np.stack([np.full_like(low, -np.inf), low, high, -low + np.inf])
    bounds = stats.norm.cdf(np.moveaxis(ends, 0, -1)[..., [ANSWERS, ANSWERS + 1]] - eta[..., None, :])
    likelihood = np.log(np.maximum(bounds[..., 1, :] - bounds[..., 0, :], 1e-300)).sum(-1)
    prior = stats.bernoulli.logpmf(g, 0.4) + stats.norm.logpdf(b, 0.0, 1.2)
    prior += stats.norm.logpdf(low, -1.0) + stats.norm.logpdf(high, 1.0)
    weights = np.where(low < high, prior + likelihood, -np.inf)
    exact = moments(weights, {"g0": g, "b0": g * b, "c0": low, "c1": high})
    draws = columns(posterior[["g", "b"]]) | {f"c{k}": posterior["c"].values[..., k] for k in range(2)}
    for name, (mean, sd) in exact.items():
        assert np.abs(z_of_moments(draws[name], mean, sd)).max() < LARGEST_Z, name


def test_a_model_without_other_continuous_variables_in_pm_sample():
    with with_gates(bernoulli):
        options = {"chains": 1, "cores": 1, "random_seed": 5, **QUIET, **FAST}
        idata = pm.sample(step=pmd.AutoStep(), draws=3, tune=3, **options)
    assert np.isfinite(idata.sample_stats["lp"]).all()


@pytest.mark.slow
def test_draws_with_a_size_and_a_scale_that_are_unknown():
    with with_unknown_size():
        idata = pmd.sample(draws=8000, tune=400, random_seed=5, **QUIET)
    check(idata.posterior, of_unknown_size())


def test_the_log_density_is_that_of_the_model_and_a_run_is_resumed_to_the_last_bit(tmp_path):
    options = {"tune": 4, "chains": 1, "random_seed": 5, **QUIET}
    with with_unknown_size() as model:
        whole = pmd.sample(draws=8, **options)
        pmd.sample(draws=3, checkpoint=tmp_path, **options)
        resumed = pmd.sample(draws=8, checkpoint=tmp_path, **options)
    assert_same_draws(whole, resumed)
    logp = model.compile_logp(mode="FAST_COMPILE")
    for draw in range(8):
        at = {n: v.values[0, draw] for n, v in whole.posterior.items()}
        point = {"g": at["g"].astype(int), "b": at["b"], "a": at["a"]}
        point |= {"tau_log__": np.log(at["tau"]), "r_log__": np.log(at["r"])}
        # PyMC keeps constants such as 1.5 in single precision
        np.testing.assert_allclose(whole.sample_stats["lp"].values[0, draw], logp(point), rtol=1e-8)


def test_a_gate_that_never_moves_is_judged_given_drawn_variables(caplog):
    """Given the further variables with which a chain starts, other values would often be probable."""
    with pm.Model():
        g, b = pm.Bernoulli("g", 0.5, shape=1), pm.Normal("b", 0.0, 1.0, shape=1)
        eta = (g * b) * np.repeat([-1.5, 1.5], 40)
        pm.Bernoulli("y", logit_p=eta, observed=np.repeat([0, 1], 40))
        caplog.set_level("INFO", "pymc.discrete")
        tree = pmd.sample(draws=150, tune=50, chains=2, random_seed=5, progressbar=False)
    # a product of a gate and a coefficient alone, which is read twice: by itself and squared
    assert "Integrated out while 'g' moves" in caplog.text
    assert (tree.posterior["g"] == 1).all()
    assert "other values have a probability below" in caplog.text
    assert "cannot move it" not in caplog.text


def test_a_chain_that_tuning_settles_has_drawn_variables():
    model = with_gates(ordered)
    point, step = model.initial_point(), pmd.BlockGibbs(["g"], integrate="auto", model=model)
    (block, *_), packing = blocks_of(model, [step], point, 10, 0.8, DEFAULTS)
    settled = block.settled(jax.random.key(0), packing.packed(point) | block.numbers, ())
    (latent,) = block.given.start
    # they start at 0, which is no possible value for most answers
    assert ((settled[latent] > LOWER) & (settled[latent] < UPPER)).all()


def test_a_step_that_does_not_move_all_refuses():
    with with_gates(bernoulli) as model:
        with pytest.raises(ValueError, match="only a program that moves all of the model draws"):
            pmd.target_from_model(integrate=["b", "a"])
        assert pmd.BlockGibbs(["g"], integrate="auto").integrated == ("b", "a")
        steps = [pmd.BlockGibbs(["g"], integrate=["b"]), pm.Slice([model["a"]], **FAST)]
        with pytest.raises(ValueError, match="only a program that moves all of the model draws"):
            pm.sample(step=steps, draws=2, tune=2, chains=1, **QUIET, **FAST)


def test_a_predictor_that_is_not_linear_is_named():
    def squared(eta):
        pm.Bernoulli("y", logit_p=eta**2, observed=COUNTS > 0)

    with with_gates(squared), pytest.raises(ValueError, match="and 'y' is none"):
        pmd.BlockGibbs(["g"], integrate=["b"])


def test_a_likelihood_that_no_site_of_the_block_enters_stays_as_it_is():
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 8)
        means, slope = pm.Normal("means", 0.0, 5.0, shape=2), pm.Normal("slope")
        pm.Normal("x", pt.switch(np.arange(9) < k, means[0], means[1]), 1.0, observed=X[:, 0])
        pm.Bernoulli("y", logit_p=slope * X[:, 1], observed=COUNTS > 0)
    described = DescribedModel(model)
    assert coefficients_to_integrate(described, ["k"], ["means", "slope"]) == ["means"]
    assert augmented(model, ["k"]) is None
