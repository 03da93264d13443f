"""Conjugate parameters that are integrated out: against integrals of PyMC's log density, and enumeration."""

import itertools
import warnings

import arviz as az
import jax
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from scipy.special import logsumexp
from scipy.stats import kstest, loggamma, norm

import pymc_discrete as pmd
from pymc_discrete.collapse.integrated import coefficients_to_integrate
from pymc_discrete.differences.parts import by_label
from pymc_discrete.differences.parts.by_label import ByLabel
from pymc_discrete.integrals.conjugate import conjugate_parameters
from pymc_discrete.integrals.families import MULTIVARIATE_NORMAL_PRIOR
from pymc_discrete.integrals.log_gamma import log_gamma_draws
from pymc_discrete.model.described import DescribedModel
from tests.tools.interpreted import interpreted
from tests.tools.running import QUIET, walk
from tests.tools.statistics import LARGEST_Z, zs_of_proportions

pytestmark = pytest.mark.shares_programs

N, K = 4, 2
EACH = np.arange(1.0, N + 1)
COUNTS, REALS, BITS = np.array([0, 3, 1, 5]), np.array([-1.2, 0.4, 3.0, 2.2]), np.array([0, 1, 1, 0])
POSITIVE = np.array([0.3, 1.1, 0.2, 2.5])

# {name: (prior, likelihood given the parameter at the label of each of N elements)}
PAIRS = {
    "beta bernoulli": (
        lambda: pm.Beta("phi", 2, 0.7, shape=K),
        lambda p: pm.Bernoulli("y", p, observed=BITS),
    ),
    "beta binomial": (
        lambda: pm.Beta("phi", [1.0, 3.0], 2.0, shape=K),
        lambda p: pm.Binomial("y", [7, 6, 5, 9], p, observed=COUNTS),
    ),
    "uniform binomial": (
        lambda: pm.Uniform("phi", 0, 1, shape=K),
        lambda p: pm.Binomial("y", 6, p, observed=COUNTS),
    ),
    "beta geometric": (
        lambda: pm.Beta("phi", 2, 3, shape=K),
        lambda p: pm.Geometric("y", p, observed=COUNTS + 1),
    ),
    "beta negative binomial": (
        lambda: pm.Beta("phi", 2, 3, shape=K),
        lambda p: pm.NegativeBinomial("y", n=EACH, p=p, observed=COUNTS),
    ),
    "gamma poisson": (
        lambda: pm.Gamma("phi", 2, 1.5, shape=K),
        lambda p: pm.Poisson("y", p, observed=COUNTS),
    ),
    "gamma poisson with exposures": (
        lambda: pm.Gamma("phi", [2, 0.4], 1.5, shape=K),
        lambda p: pm.Poisson("y", EACH * p / 2, observed=COUNTS),
    ),
    "exponential exponential": (
        lambda: pm.Exponential("phi", 0.7, shape=K),
        lambda p: pm.Exponential("y", p * 2, observed=POSITIVE),
    ),
    "gamma gamma": (
        lambda: pm.Gamma("phi", 2, 1, shape=K),
        lambda p: pm.Gamma("y", EACH, p, observed=POSITIVE),
    ),
    "gamma inverse gamma": (
        lambda: pm.Gamma("phi", 2, 1, shape=K),
        lambda p: pm.InverseGamma("y", EACH, 3 * p, observed=POSITIVE),
    ),
    "gamma pareto": (
        lambda: pm.Gamma("phi", 2, 1, shape=K),
        lambda p: pm.Pareto("y", alpha=p / EACH, m=0.1, observed=POSITIVE),
    ),
    "gamma exponential by its scale": (
        lambda: pm.Gamma("phi", 2, 1, shape=K),
        lambda p: pm.Exponential("y", scale=EACH / p, observed=POSITIVE),
    ),
    "gamma normal": (
        lambda: pm.Gamma("phi", 2, [1, 3], shape=K),
        lambda p: pm.Normal("y", REALS / 2 + 1, tau=p * EACH, observed=REALS),
    ),
    "inverse gamma normal": (
        lambda: pm.InverseGamma("phi", 2, [1, 3], shape=K),
        lambda p: pm.Normal("y", 0.3, EACH * pt.sqrt(p / 2), observed=REALS),
    ),
    "inverse gamma exponential": (
        lambda: pm.InverseGamma("phi", 2, 1, shape=K),
        lambda p: pm.Exponential("y", scale=EACH * p, observed=POSITIVE),
    ),
    "normal normal": (
        lambda: pm.Normal("phi", 1, [2, 0.5], shape=K),
        lambda p: pm.Normal("y", p, EACH, observed=REALS),
    ),
    "normal normal with a slope": (
        lambda: pm.Normal("phi", 1, 2, shape=K),
        lambda p: pm.Normal("y", 1 + p * EACH - 0.5 * REALS, 2, observed=REALS),
    ),
    "dirichlet categorical": (
        lambda: pm.Dirichlet("phi", [0.4, 1.7], shape=(K, 2)),
        lambda p: pm.Categorical("y", p, observed=BITS),
    ),
    "dirichlet multinomial": (
        lambda: pm.Dirichlet("phi", [0.4, 1.7], shape=(K, 2)),
        lambda p: pm.Multinomial("y", COUNTS + BITS, p, observed=np.stack([COUNTS, BITS], 1)),
    ),
}
STATES = np.array(list(itertools.product(range(K), repeat=N)))
# observations of two numbers each, and covariances
PLANE = np.stack([REALS, POSITIVE + 3], axis=1)
NARROW, WIDE = np.array([[1.0, 0.6], [0.6, 2.0]]), np.array([[3.0, -1.0], [-1.0, 1.5]])


def of_precision(z, far=0.0):
    tau = pm.Gamma("tau", [2.0, 3.0], 1.5, shape=K)
    mu = pm.Normal("mu", [0.5 + far, -1.0 + far], tau=0.4 * tau)
    pm.Normal("y", mu[z], tau=tau[z], observed=REALS + far)


def of_variance(z, far=0.0):
    v = pm.InverseGamma("tau", 3, [2.0, 1.0], shape=K)
    mu = pm.Normal("mu", 1 + far, pt.sqrt(v / 0.4))
    pm.Normal("y", mu[z], sigma=pt.sqrt(v[z]), observed=REALS + far)


def of_scales(z):
    """A scale that is written once, of labels with names, and lines through the origin beside known means."""
    sd = pm.Deterministic("sd", 1 / pt.sqrt(pm.Gamma("tau", 3, 2, dims="cluster")))
    mu = pm.Normal("mu", 0.2, 2 * sd)
    pm.Normal("y", 1 + mu[z] * EACH, sd[z] * EACH, observed=REALS)
    pm.Normal("x", mu[z[:2]] - 0.5, sd[z[:2]], observed=REALS[:2])
    pm.Normal("v", 0.3, sd[z], observed=REALS / 2)


def of_vectors(z, far=0.0):
    mu = pm.MvNormal("mu", np.array([1.0, 2.0]) + far, cov=WIDE, shape=(K, 2))
    pm.MvNormal("y", mu[z], cov=NARROW, observed=PLANE + far)


def of_vectors_with_independent_elements(z):
    mu = pm.Normal("mu", [[0.0, 1.0], [2.0, 3.0]], [1.5, 0.7], shape=(K, 2))
    pm.MvNormal("y", 0.5 + mu[z], chol=np.linalg.cholesky(NARROW), observed=PLANE)
    pm.MvNormal("x", mu[z[:2]], chol=np.linalg.cholesky(NARROW), observed=PLANE[:2])


# {what two numbers each label has: (model, the numbers in coordinates (u, v) in which they are about as
# wide everywhere, by how much these stretch an area at v, as a power of exp(v))}
TWO_NUMBERS = {
    "normal gamma": (of_precision, lambda u, v: {"tau_log__": v, "mu": 0.5 + u * np.exp(-v / 2)}, -0.5),
    "normal inverse gamma": (of_variance, lambda u, v: {"tau_log__": v, "mu": 0.5 + u * np.exp(v / 2)}, 0.5),
    "normal gamma by scales": (
        *(of_scales, lambda u, v: {"tau_log__": v, "mu": 0.5 + u * np.exp(-v / 2)}, -0.5),
    ),
    "multivariate normal": (of_vectors, lambda u, v: {"mu": np.stack([u, 2 + v], axis=-1)}, 0.0),
    "multivariate normal of independent ones": (
        *(of_vectors_with_independent_elements, lambda u, v: {"mu": np.stack([u, 2 + v], axis=-1)}, 0.0),
    ),
}


def of_pair(name):
    with pm.Model(coords={"cluster": range(K)}) as model:
        z = pm.Categorical("z", [0.3, 0.7], shape=N)
        if name in PAIRS:
            prior, likelihood = PAIRS[name]
            likelihood(prior()[z])
        else:
            TWO_NUMBERS[name][0](z)
    return model


def integrals(model, point, density, states):
    """(S,) nats, PyMC's log density of each state of z integrated over the two elements of phi.

    Given z they are independent, so that two integrals over lines through a point are enough. The trapezoid
    rule is exact to rounding for what vanishes at both ends.
    """
    name = model.rvs_to_values[model["phi"]].name
    shape = np.shape(point[name])
    far = 60 if model.rvs_to_transforms[model["phi"]] else 20
    grid = np.linspace(-far, far, 401)
    # two lines of points that meet at zero, which is the one in the middle of each
    points = np.concatenate([np.multiply.outer(grid, e) for e in np.eye(K)]).reshape(-1, *shape)
    found = []
    for z in states:
        logp = density(z, {name: points})
        logp = np.where(np.isnan(logp), -np.inf, logp)  # where a probability is rounded to 1
        lines = logsumexp(logp.reshape(K, -1), axis=1) + np.log(grid[1] - grid[0])
        found.append(lines.sum() - (K - 1) * logp[len(grid) // 2])
    return np.array(found)


def at_many_points(model):
    """A function of z and of many values {name: (n, ...)} of the others: PyMC's log density (n,) of each."""
    z, others = model.rvs_to_values[model["z"]], [w for w in model.value_vars if w.name != "z"]
    inputs = {w.name: w.type.clone(shape=(None, *w.type.shape))() for w in others}
    logp = vectorize_graph(model.logp(), {w: inputs[w.name] for w in others})
    f = pytensor.function([z, *inputs.values()], logp, mode="FAST_COMPILE")
    return lambda z, points: f(z, *(points[name] for name in inputs))


def integrals_in_planes(density, states, numbers, log_stretch):
    """As `integrals`, where each label has two numbers, by the trapezoid rule in a plane for each label.

    Parameters
    ----------
    numbers : (u, v) -> the values {value variable: array} of one label
    log_stretch : by how much that stretches an area at v, as a power of exp(v)
    """
    line = np.linspace(-10.5, 10.5, 85 if log_stretch else 64)
    u, v = np.meshgrid(line, line, indexing="ij")
    grid = numbers(u.ravel(), v.ravel())
    stretch = log_stretch * v.ravel()
    rest = {name: np.stack([a[0]] * K) for name, a in numbers(np.zeros(1), np.zeros(1)).items()}
    found = []
    for z in states:
        total = -(K - 1) * density(z, {name: a[None] for name, a in rest.items()})[0]
        for k in range(K):
            points = {name: np.stack([a] * u.size) for name, a in rest.items()}
            for name, a in points.items():
                a[:, k] = grid[name]
            total += logsumexp(density(z, points) + stretch) + 2 * np.log(u[1, 0] - u[0, 0])
        found.append(total)
    return np.array(found)


def check_draws(point, density, target, x):
    """Draws given labels x have the density that is said: that of the model without that of the labels.

    Parameters
    ----------
    point : of the model, whose values those have that are not drawn
    density : what `at_many_points` makes of the model
    """
    with target.density.running(traced=False):
        draw = interpreted(lambda key: target.density.draw_integrated(key, x, target.ready()))
        for seed in range(3):
            values, logdensity = draw(jax.random.key_data(jax.random.key(seed)))
            (expected,) = density(x, {name: a[None] for name, a in {**point, **values}.items()})
            assert float(target.total(x) + logdensity) == pytest.approx(float(expected), abs=2e-6)


@pytest.mark.parametrize("name", [*PAIRS, *TWO_NUMBERS])
def test_the_integral_and_draws_are_those_of_pymcs_log_density(name):
    model = of_pair(name)
    point, density = model.initial_point(), at_many_points(model)
    target = pmd.target_from_model(model, ["z"], integrate=["phi"] if name in PAIRS else "auto")
    # a precision and the mean that reads it are chosen together
    assert {*(c.name for c in target.density.graph.conjugate), "z"} == set(point)
    x = np.array([0, 1, 0, 1])
    states = np.stack([x, *(x ^ e for e in np.eye(N, dtype=int))])
    if name in PAIRS:
        expected = integrals(model, point, density, states)
    else:
        expected = integrals_in_planes(density, states, *TWO_NUMBERS[name][1:])
    assert float(target.total(x)) == pytest.approx(expected[0], abs=2e-6)  # PyMC's constants are of 32 bits
    differences = np.asarray(target.differences(x))[np.arange(N), 1 - x]
    np.testing.assert_allclose(differences, expected[1:] - expected[0], atol=2e-6)
    check_draws(point, density, target, np.array([0, 1, 1, 0]))


@pytest.mark.parametrize("shape", [0.02, 0.9, 1.0, 40.0])
def test_logarithms_of_gamma_draws(shape):
    draws = np.asarray(log_gamma_draws(jax.random.key(3), np.full(4000, shape)))
    assert kstest(draws, lambda v: loggamma.cdf(v, shape)).pvalue > 1e-4


def test_draws_of_vectors():
    mean, sd = np.tile([1.0, -2.0], (4000, 1)), np.array([0.5, 3.0])
    draws, _ = MULTIVARIATE_NORMAL_PRIOR.draw(jax.random.key(3), mean, sd, NARROW)
    coordinates = (np.asarray(draws) @ np.linalg.inv(NARROW).T - mean) / sd
    for one in (*coordinates.T, coordinates.sum(1) / np.sqrt(2)):
        assert kstest(one, norm.cdf).pvalue > 1e-4


# ---------------------------------------------------------------- differences of sums by label
def poisson_with_exposures_by_group():
    """What an element adds depends on its label, too."""
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=6)
        rate = pm.Gamma("phi", 2, 1, shape=3)
        pm.Poisson("y", rate[z] * pt.constant([0.5, 1.0, 2.0])[z], observed=[0, 3, 1, 5, 2, 2])
    return model


def block_model():
    """A site enters several elements, and an element depends on two sites."""
    i, j = np.triu_indices(5, 1)
    with pm.Model() as model:
        z = pm.Categorical("z", pm.Dirichlet("w", [0.5, 1, 2]), shape=5)
        pm.Bernoulli("y", pm.Beta("phi", 1, 2, shape=(3, 3))[z[i], z[j]], observed=(i * j) % 2)
    return model


def topics():
    """Rows of one parameter by data, of another by unknowns; some words in two places."""
    words = np.array([0, 1, 1, 2, 0, 3])
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", [0.3, 0.4, 0.5], shape=(2, 3))
        z = pm.Categorical("z", theta[[0, 0, 0, 1, 1, 1]], shape=6)
        pm.Categorical("y", pm.Dirichlet("phi", np.full(4, 0.2), shape=(3, 4))[z], observed=words)
    return model


def some_sites():
    """Some sites have no element that they label."""
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=8)
        words = np.array([0, 1, 1, 2, 0, 3])
        pm.Categorical("y", pm.Dirichlet("phi", np.full(4, 0.2), shape=(3, 4))[z[1:7]], observed=words)
    return model


def means_and_precisions():
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=6)
        tau = pm.Gamma("tau", [1.0, 2.0, 3.0], 2, shape=3)
        mu = pm.Normal("mu", pm.Normal("m"), tau=0.5 * tau)
        pm.Normal("y", mu[z], tau=tau[z], observed=[-0.5, 3.0, 1.0, 5.0, 2.5, 2.0])
    return model


def means_with_one_variance():
    """The term is no sum over labels, but a function of two such sums."""
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=6)
        v = pm.InverseGamma("tau", 3, 2)
        mu = pm.Normal("mu", 1, 2 * pt.sqrt(v), shape=3)
        pm.Normal("y", mu[z], pt.sqrt(v), observed=[-0.5, 3.0, 1.0, 5.0, 2.5, 2.0])
    return model


def precisions_around_means():
    """What an element adds depends on its label, whose mean has a value."""
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=6)
        mean = pm.Normal("mean", [0, 1, 2], shape=3)
        tau = pm.Gamma("tau", 2, 1, shape=3)
        pm.Normal("y", mean[z], tau=tau[z], observed=[-0.5, 3.0, 1.0, 5.0, 2.5, 2.0])
    return model


def vectors():
    x = np.stack([np.tile(REALS, 2)[:6], np.arange(6.0)], axis=1)
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=6)
        mu = pm.MvNormal("mu", pm.Normal("m", shape=2), cov=WIDE, shape=(3, 2))
        pm.MvNormal("y", mu[z], cov=NARROW, observed=x)
    return model


def means_of_unknown_spread():
    """All elements add the same, which is unknown, to the precisions of labels."""
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=12)
        y = np.concatenate([REALS, REALS + 1, -REALS])
        pm.Normal("y", pm.Normal("phi", 1, 2, shape=3)[z], pm.HalfNormal("sd", 2), observed=y)
    return model


MODELS = [some_sites, poisson_with_exposures_by_group, block_model, topics, means_of_unknown_spread]
MODELS += [means_and_precisions, means_with_one_variance, precisions_around_means, vectors]
NAMES = {"phi", "w", "theta", "tau", "mu"}  # of what is integrated out in these
# By default changes are read from tables, or found for a few elements of a site; else for "many" elements.
CASES = [("many", build) for build in MODELS]
OF_ONE_KIND = {means_with_one_variance, precisions_around_means}  # with others in what they have by default
CASES += [("default", build) for build in MODELS if build not in OF_ONE_KIND]


@pytest.mark.parametrize(("by", "build"), CASES)
def test_differences_are_those_of_the_density_at_a_state_and_after_moves(by, build, monkeypatch):
    if by == "many":
        monkeypatch.setattr(by_label, "FEW_ELEMENTS", 0)
        monkeypatch.setattr(by_label.ByLabel, "_tables", lambda self: [])
    model = build()
    names = sorted(NAMES & set(model.named_vars))
    target = pmd.target_from_model(model, None, integrate=names, differences="exact")
    assert any(isinstance(p, ByLabel) for p in target.density.parts)
    low, high = target.space.lower, target.space.upper
    xs = np.random.default_rng(2).integers(low, high + 1, (3, len(low)))
    changes = np.array([(i, k) for i in range(len(low)) for k in range(low[i], high[i] + 1)])
    sites, values = changes.T
    there = np.where(np.arange(len(low)) == sites[:, None], values[:, None], xs[:, None])
    logdensity = interpreted(jax.vmap(target.logdensity))
    with target.density.running(traced=False):
        change = logdensity(there.reshape(-1, len(low))).reshape(3, -1) - logdensity(xs)[:, None]
    differences = np.array([target.differences(x) for x in xs])
    np.testing.assert_allclose(differences[:, sites, values], change, rtol=0, atol=1e-9)
    y, rows = after_moves(target, xs[0])
    np.testing.assert_allclose(rows, target.differences(y), atol=1e-9)


def after_moves(target, x):
    """The state after some moves of single sites, and differences there, which are carried along."""
    r = np.random.default_rng(3)
    sites, values = r.integers(0, target.space.d, 5), r.integers(0, 3, 5)

    @interpreted
    def moved(x, sites, values):
        def move(t, state):
            x, carried = state
            carried = target.carried_after(0, sites[t], values[t], x, carried)
            return x.at[sites[t]].set(values[t]), carried

        x, carried = jax.lax.fori_loop(0, len(sites), move, (x, target.carried(x)))
        row = lambda site: target.row(0, site, x, carried)[0]
        return x, jax.lax.map(row, jax.numpy.arange(target.space.d))

    with target.density.running(traced=False):
        y, rows = moved(x, sites, values)
    return y, rows


@pytest.mark.parametrize("build", [of_precision, of_variance, of_vectors])
def test_no_digits_are_lost_far_from_zero(build):
    """What is added to all observations and to the means of priors leaves the integral as it is."""
    totals = []
    for far in (0.0, 1e8):
        with pm.Model() as model:
            build(pm.Categorical("z", [0.3, 0.7], shape=N), far)
        target = pmd.target_from_model(model, ["z"], integrate="auto")
        totals.append([float(target.total(z)) for z in STATES[[0, 3, 10]]])
    np.testing.assert_allclose(*totals, rtol=0, atol=1e-6)


def test_differences_of_sites_that_change_together():
    with pm.Model() as model:
        order = pmd.Permutation("order", 7)
        index, each = order % 3, np.arange(1.0, 8.0)
        sums = pt.inc_subtensor(pt.zeros(3)[index], each)
        several = pt.inc_subtensor(pt.zeros(4)[(order[1:] + order[:-1]) % 4], 1.0)  # of two sites each
        pm.Potential(
            "c", pt.gammaln(sums + 0.5).sum() + pt.log(pt.sum(several > 1) + 1) + (several**1.5).sum()
        )
    target = pmd.BlockGibbs(["order"], model=model).target
    assert any(isinstance(p, ByLabel) for p in target.density.parts)
    x = np.random.default_rng(1).permutation(7)
    pairs = np.array(list(itertools.combinations(range(7), 2)))
    found = np.asarray(target.differences_jointly(x, {0: (pairs, x[pairs[:, ::-1]][:, None])})[0])[:, 0]
    for (i, j), difference in zip(pairs, found, strict=True):
        y = x.copy()
        y[[i, j]] = x[[j, i]]
        assert difference == pytest.approx(float(target.total(y)) - float(target.total(x)), abs=1e-9)


# ---------------------------------------------------------------- draws
@pytest.mark.parametrize("build", [means_with_one_variance, precisions_around_means, vectors])
def test_a_draw_has_the_density_that_is_said(build):
    model = build()
    target = pmd.target_from_model(model, ["z"], integrate=sorted(NAMES & set(model.named_vars)))
    check_draws(model.initial_point(), at_many_points(model), target, np.array([0, 1, 1, 0, 1, 1]))


def of_all_families():
    """Labels with a prior, means, rates, ..., all integrated out, and a parameter of a prior."""
    with pm.Model() as model:
        spread = pm.Gamma("spread", 3, 2)
        z = pm.Categorical("z", pm.Dirichlet("w", [1.0, 2.0]), shape=N)
        pm.Normal("x", pm.Normal("mean", 1, spread, shape=2)[z], 1.5, observed=REALS)
        pm.Poisson("y", pm.Gamma("rate", 2, 3, shape=2)[z] * EACH, observed=COUNTS)
        pm.Binomial("k", 7, pm.Uniform("share", 0, 1, shape=2)[z], observed=COUNTS)
        pm.Categorical("v", pm.Dirichlet("word", np.full(3, 0.5), shape=(2, 3))[z], observed=BITS * 2)
        tau = pm.Gamma("tau", 3, 2, shape=2)
        pm.Normal("u", pm.Normal("mu", 1, tau=0.5 * tau)[z], tau=tau[z], observed=REALS)
        variance = pm.InverseGamma("variance", 4, 3, shape=2)
        pm.Normal("t", 0.5, pt.sqrt(variance[z]), observed=POSITIVE)
        place = pm.MvNormal("place", [1.0, 2.0], cov=WIDE, shape=(2, 2))
        pm.MvNormal("s", place[z], cov=4 * NARROW, observed=PLANE)
    return model


PARAMETERS = ["w", "mean", "rate", "share", "word", "tau", "mu", "variance", "place"]


def means_given(z, spread):
    """{parameter: its means given the labels}, by hand."""
    means = {name: [] for name in PARAMETERS}
    for k in range(2):
        own = z == k
        precision = 1 / spread**2 + own.sum() / 1.5**2
        means["w"].append((k + 1 + own.sum()) / (3 + N))
        means["mean"].append((1 / spread**2 + REALS[own].sum() / 1.5**2) / precision)
        means["rate"].append((2 + COUNTS[own].sum()) / (3 + EACH[own].sum()))
        means["share"].append((1 + COUNTS[own].sum()) / (2 + 7 * own.sum()))
        means["word"].append((0.5 + np.bincount(BITS[own] * 2, minlength=3)) / (1.5 + own.sum()))
        n, centre = own.sum(), REALS[own].mean() if own.any() else 0.0
        squares = ((REALS[own] - centre) ** 2).sum() + 0.5 * n / (0.5 + n) * (centre - 1) ** 2
        means["tau"].append((3 + n / 2) / (2 + squares / 2))
        means["mu"].append((0.5 * 1 + n * centre) / (0.5 + n))
        means["variance"].append((3 + ((POSITIVE[own] - 0.5) ** 2).sum() / 2) / (4 + n / 2 - 1))
        precision = np.linalg.inv(WIDE) + n * np.linalg.inv(4 * NARROW)
        linear = np.linalg.solve(WIDE, [1.0, 2.0]) + np.linalg.solve(4 * NARROW, PLANE[own].sum(0))
        means["place"].append(np.linalg.solve(precision, linear))
    return {name: np.array(m) for name, m in means.items()}


@pytest.mark.slow
def test_draws_have_the_posterior(walks):
    model = of_all_families()
    target = pmd.target_from_model(model, ["z"], integrate=PARAMETERS)
    logs = np.linspace(-4, 2.5, 14)  # of the spread, by the trapezoid rule
    points = ({**model.initial_point(), "spread_log__": np.array(s)} for s in logs)
    given = [target.at(point)[1] for point in points]
    logdensity = np.array([[float(at.total(z)) for at in given] for z in STATES])
    p = np.exp(logdensity - logdensity.max())
    p /= p.sum()
    expected = {
        name: sum(
            p[i, j] * means_given(z, np.exp(s))[name]
            for i, z in enumerate(STATES)
            for j, s in enumerate(logs)
        )
        for name in PARAMETERS
    }
    with model:
        step = pmd.BlockGibbs(["z"], integrate="auto")
        assert set(step.integrated) == {str(model.rvs_to_values[model[n]].name) for n in PARAMETERS}
        posterior = pmd.sample(3000, tune=500, chains=2, random_seed=4, step=step, **QUIET).posterior
    assert np.abs(zs_of_proportions(posterior["z"].values, STATES, p.sum(1))).max() < LARGEST_Z
    for name in PARAMETERS:
        draws = posterior[name].values.reshape(2, 3000, -1)
        for n, mean in enumerate(expected[name].ravel()):
            error = draws[..., n].std() / np.sqrt(float(az.ess(draws[..., n], method="mean")))
            assert abs(draws[..., n].mean() - mean) / error < LARGEST_Z
    spread = (p.sum(0) * np.exp(logs)).sum()
    error = float(az.mcse(posterior["spread"].values, method="mean"))
    assert abs(float(posterior["spread"].mean()) - spread) / error < LARGEST_Z


def test_a_step_returns_parameters_with_the_labels_given_which_they_are_drawn():
    """Beside another variable, which another step of `pm.sample` would move; the log density is PyMC's."""
    model = means_of_unknown_spread()
    step, logp = pmd.BlockGibbs(["z"], integrate="auto", model=model), model.compile_logp(mode="FAST_COMPILE")
    draws = walk(step, model.initial_point())
    for point, stats in draws:
        assert stats["model_logp"] == pytest.approx(float(logp(point)), abs=2e-6)
    assert len({point["phi"].tobytes() for point, _ in draws}) == len(draws)


# ---------------------------------------------------------------- what is not conjugate
def read_by(likelihood, prior=lambda: pm.Beta("phi", 1, 1, shape=K)):
    with pm.Model() as model:
        z = pm.Categorical("z", [0.3, 0.7], shape=N)
        likelihood(prior(), z)
    return model


def with_potential(p, z):
    pm.Bernoulli("y", p[z], observed=BITS)
    pm.Potential("more", -p.sum())


def mean_with_a_prior_of_its_own(tau, z):
    pm.Normal("y", pm.Normal("mu", 0, 2, shape=K)[z], tau=tau[z], observed=REALS)


def mean_at_other_labels(tau, z):
    pm.Normal("y", pm.Normal("mu", 0, tau=tau)[z], tau=tau[1 - z], observed=REALS)


def mean_of_other_precisions(tau, z):
    pm.Normal("y", pm.Normal("mu", 0, tau=tau[::-1])[z], tau=tau[z], observed=REALS)


def means_read_together(tau, z):
    mu, shift = pm.Normal("mu", 0, tau=tau), pm.Normal("shift", 0, tau=tau)
    pm.Normal("y", mu[z] + shift[z], tau=tau[z], observed=REALS)


def mean_read_alone(tau, z):
    mu = pm.Normal("mu", 0, tau=tau)
    pm.Normal("y", mu[z], tau=tau[z], observed=REALS)
    pm.Normal("x", mu[z], 1.0, observed=REALS)


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        (mean_with_a_prior_of_its_own, "together with 'mu': a distribution reads both"),
        (mean_at_other_labels, "'y' reads it at other labels than 'mu'"),
        (mean_of_other_precisions, "'mu' reads it at other labels than its own"),
        (mean_read_alone, "'x' reads 'mu' and not it"),
        (means_read_together, "'y' reads 'mu'(,| and) 'shift'"),
        (lambda p, z: pm.Normal("y", 0, tau=p[z] ** 2, observed=REALS), "'y' reads a function of it"),
        (lambda p, z: pm.Normal("y", 0, p[z], observed=REALS), "'y' reads a function of it"),
        (lambda p, z: pm.Normal("y", 0, tau=p[z] + 1, observed=REALS), "'y' reads a function of it"),
        (lambda p, z: pm.Normal("y", p[z], tau=p[z], observed=REALS), "another parameter of 'y' reads it"),
    ],
)
def test_why_a_precision_is_not_integrated_out(likelihood, words):
    with read_by(likelihood, lambda: pm.Gamma("phi", 2, 1, shape=K)) as model:
        names = [name for name in ("phi", "mu", "shift") if name in model.named_vars]
        with pytest.raises(ValueError, match=f"'phi.*' cannot be integrated out.*{words}"):
            pmd.BlockGibbs(["z"], integrate=names)


@pytest.mark.parametrize("of", [pt.abs, lambda p: pt.sqrt(p**2), lambda p: 1 / (p + 1), pt.sqrt])
def test_a_function_of_a_mean_is_no_multiple_of_it(of):
    model = read_by(
        lambda p, z: pm.Normal("y", of(p[z]), 1, observed=REALS), lambda: pm.Normal("phi", 2, shape=K)
    )
    assert conjugate_parameters(model, model.initial_point())["phi"] == "'y' reads a function of it"


def test_a_precision_is_not_integrated_out_while_nuts_moves_the_mean_that_reads_it():
    with of_pair("normal gamma"):
        with pytest.raises(ValueError, match=r"'tau' cannot be .* and 'mu', which reads it, NUTS moves"):
            pmd.BlockGibbs(["z"], integrate=["tau"])
        assert pmd.BlockGibbs(["z"], integrate=["mu"]).integrated == ("mu",)


@pytest.mark.parametrize("first", ["mu", "phi"])
def test_of_a_mean_and_a_precision_that_are_independent_the_mean_is_integrated_out(first):
    with pm.Model():
        z = pm.Categorical("z", [0.3, 0.7], shape=N)
        make = {"mu": lambda: pm.Normal("mu", shape=K), "phi": lambda: pm.Gamma("phi", 2, 1, shape=K)}
        of = {name: make[name]() for name in sorted(make, key=lambda name: name != first)}
        pm.Normal("y", of["mu"][z], tau=of["phi"][z], observed=REALS)
        assert pmd.BlockGibbs(["z"], integrate="auto").integrated == ("mu",)


@pytest.mark.parametrize(
    ("prior", "likelihood"),
    [
        ("known", lambda mu, z: pm.MvNormal("y", mu[z], cov=pm.Gamma("s", 2, 1) * NARROW, observed=PLANE)),
        ("known", lambda mu, z: pm.MvNormal("y", mu[z], cov=EACH[:, None, None] * NARROW, observed=PLANE)),
        ("known", lambda mu, z: pm.MvNormal("y", 2 * mu[z], cov=NARROW, observed=PLANE)),
        ("known", lambda mu, z: pm.MvNormal("y", mu[z][:, ::-1], cov=NARROW, observed=PLANE)),
        ("unknown", lambda mu, z: pm.MvNormal("y", mu[z], cov=NARROW, observed=PLANE)),
    ],
    ids=["unknown", "several", "multiple", "elements selected", "unknown prior"],
)
def test_vectors_are_left_to_the_integral_over_all_where_coordinates_are_not_independent(prior, likelihood):
    with pm.Model():
        z = pm.Categorical("z", [0.3, 0.7], shape=N)
        covariance = WIDE if prior == "known" else pm.Gamma("c", 2, 1) * WIDE
        likelihood(pm.MvNormal("mu", [1.0, 2.0], cov=covariance, shape=(K, 2)), z)
        step = pmd.BlockGibbs(["z"], integrate=["mu"])
        assert not step.density.graph.conjugate
        assert step.density.graph.integral is not None


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            lambda: read_by(lambda p, z: pm.Bernoulli("y", p[z] ** 2, observed=BITS)),
            "'y' reads a function of it",
        ),
        (
            lambda: read_by(lambda p, z: pm.Bernoulli("y", logit_p=p[z], observed=BITS)),
            "'y' reads a function",
        ),
        (
            lambda: read_by(lambda p, z: pm.Poisson("y", p[z], observed=BITS)),
            "'y', which reads it, has a like",
        ),
        (lambda: read_by(with_potential), "a Potential reads it"),
        (
            lambda: read_by(lambda p, z: pm.Normal("x", p[z], 1, shape=N)),
            "'y'|'x', which reads it, NUTS moves",
        ),
        (lambda: read_by(lambda p, z: None), "nothing reads it"),
        (
            lambda: read_by(
                lambda p, z: pm.Bernoulli("y", p[z], observed=BITS),
                lambda: pm.Uniform("phi", 0, 0.5, shape=K),
            ),
            "its prior is no conjugate one",
        ),
        (
            lambda: read_by(
                lambda p, z: pm.Categorical("y", p[:, z].T, observed=BITS),
                lambda: pm.Dirichlet("phi", np.ones(K), shape=(2, K)),
            ),
            "'y' reads a function of it",
        ),
    ],
    ids=["square", "logits", "likelihood", "potential", "unknown", "unread", "prior", "categories selected"],
)
def test_why_a_parameter_is_not_integrated_out(model, words):
    with model() as model, pytest.raises(ValueError, match=f"'phi' cannot be integrated out: .*({words})"):
        pmd.BlockGibbs(["z"], integrate=["phi"])


def test_two_rates_of_one_count_are_not_integrated_out_together():
    with pm.Model() as model:
        z = pm.Categorical("z", [0.3, 0.7], shape=N)
        pm.Poisson("y", pm.Gamma("a", 1, 1, shape=K)[z] * pm.Gamma("b", 1, 1), observed=COUNTS)
    with model, pytest.raises(ValueError, match="'a_log__' cannot be integrated out together with 'b'"):
        pmd.BlockGibbs(["z"], integrate=["a", "b"])
    assert pmd.BlockGibbs(["z"], integrate="auto", model=model).integrated == ("a_log__",)


@pytest.mark.parametrize("missing", [True, False])
def test_missing_counts_leave_a_parameter_to_nuts(missing):
    with pm.Model() as model:
        z = pmd.Partition("z", "crp", concentration=1.0, shape=N)
        counts = np.ma.masked_array(COUNTS, missing & (COUNTS == 5))
        with warnings.catch_warnings():  # PyMC says that it imputes
            warnings.simplefilter("ignore")
            pm.Poisson("y", pm.Gamma("rate", 2, 1, shape=N)[z], observed=counts)
    chosen = coefficients_to_integrate(DescribedModel(model), ["z"], ["rate_log__"])
    assert chosen == ([] if missing else ["rate_log__"])
