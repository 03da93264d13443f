"""The evidence of models against exact values, by enumeration, conjugacy and quadrature."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict
from pymc.exceptions import SamplingError
from scipy import integrate, stats
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete.evidence.log_evidence import PILOT_TUNE, points_of
from pymc_discrete.evidence.population import Population
from pymc_discrete.tempering.tempered import BETA, LIKELIHOOD, tempered

pytestmark = pytest.mark.shares_programs

LARGEST_Z = 4.5


def largest_z(found, exact: float) -> float:
    """How many standard errors the worse of both estimates is from the exact value."""
    return max(abs(e.value - exact) / e.error for e in (found.forward, found.backward))


def check(found, exact: float, exact_draws: bool = False) -> None:
    """Both estimates within their errors; from draws of chains the second is a check only."""
    assert largest_z(found, exact) < LARGEST_Z, found
    assert found.exact is exact_draws
    for estimate in (found.forward, found.backward):
        assert estimate.ess > 0.2 * len(estimate.log_weights), found


# ---------------------------------------------------------------- models and their exact evidence
HEIGHTS = np.array([-2.1, -1.6, -1.9, 0.4, 2.3, 2.8, 3.1])


def mixture() -> pm.Model:
    with pm.Model() as model:
        mu, z = pm.Normal("mu", 0.0, 3.0, shape=2), pm.Categorical("z", [0.5, 0.5], shape=len(HEIGHTS))
        pm.Normal("y", mu[z], 0.7, observed=HEIGHTS)
    return model


def of_mixture() -> float:
    """All assignments of the data to two components, whose means are integrated out."""

    def of_component(y: np.ndarray) -> float:
        cov = 0.7**2 * np.eye(len(y)) + 3.0**2
        return float(stats.multivariate_normal(np.zeros(len(y)), cov).logpdf(y)) if len(y) else 0.0

    subsets = {
        tuple(s): of_component(HEIGHTS[list(s)])
        for n in range(len(HEIGHTS) + 1)
        for s in itertools.combinations(range(len(HEIGHTS)), n)
    }
    labels = itertools.product(range(2), repeat=len(HEIGHTS))
    logs = [sum(subsets[tuple(np.flatnonzero(np.equal(z, k)))] for k in (0, 1)) for z in labels]
    return float(logsumexp(logs) - len(HEIGHTS) * np.log(2))


def numbers(text: str) -> np.ndarray:
    return np.array(text.split(), float)


# strength of 42 specimens of pine by density, and by density adjusted for resin (Williams 1959)
STRENGTH = numbers("""
    3040 2470 3610 3480 3810 2330 1800 3110 3160 2310 4360 1880 3670 1740 2250 2650 4970 2620 2900 1670
    2540 3840 3800 4600 1900 2530 2920 4990 1670 3310 3450 3600 2850 1590 3770 3850 2480 3570 2620 1890
    3030 3030
""")
DENSITY = numbers("""
    29.2 24.7 32.3 31.3 31.5 24.5 19.9 27.3 27.1 24.0 33.8 21.5 32.2 22.5 27.5 25.6 34.5 26.2 26.7 21.1
    24.1 30.7 32.7 32.6 22.1 25.3 30.8 38.9 22.1 29.2 30.1 31.4 26.7 22.1 30.3 32.0 23.2 30.3 29.9 20.8
    33.2 28.2
""")
ADJUSTED = numbers("""
    25.4 22.2 32.2 31.0 30.9 23.9 19.2 27.2 26.3 23.9 33.2 21.0 29.0 22.0 23.8 25.3 34.2 25.7 26.4 20.0
    23.9 30.7 32.6 32.5 20.8 23.1 29.8 38.1 21.3 28.5 29.2 31.4 25.9 21.4 29.8 30.6 22.6 30.3 23.8 18.4
    29.4 28.2
""")


def pines(x: np.ndarray) -> pm.Model:
    """Carlin and Chib 1995, their priors."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 3000, 1000), pm.Normal("b", 185, 100)
        variance = pm.InverseGamma("variance", 3, 2 * 300**2)
        pm.Normal("y", a + b * (x - x.mean()), pt.sqrt(variance), observed=STRENGTH)
    return model


def of_pines(x: np.ndarray) -> float:
    """The coefficients are integrated out, the variance by quadrature."""
    X = np.stack([np.ones(len(x)), x - x.mean()], axis=1)
    prior = X @ np.diag([1000.0**2, 100.0**2]) @ X.T
    mean = X @ [3000, 185]

    def log_joint(variance: float) -> float:
        given = stats.multivariate_normal(mean, prior + variance * np.eye(len(x))).logpdf(STRENGTH)
        return float(given + stats.invgamma(3, scale=2 * 300**2).logpdf(variance))

    logs = np.log(np.array([2e4, 1e6]))
    top = max(log_joint(v) + np.log(v) for v in np.exp(np.linspace(*logs, 200)))
    area, _ = integrate.quad(lambda u: np.exp(log_joint(np.exp(u)) + u - top), *logs, epsrel=1e-10)
    return float(np.log(area) + top)


CASES = {
    "2 components": (mixture, of_mixture),
    "2 components, summed out": (lambda: pmd.marginalize(mixture()), of_mixture),
    "pines, adjusted": (lambda: pines(ADJUSTED), lambda: of_pines(ADJUSTED)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.by_default("2 components")
def test_against_exact_evidence(name):
    build, exact = CASES[name]
    found = pmd.log_evidence(build(), chains=100, temperatures=150, random_seed=1, progressbar=False)
    check(found, exact())


def test_bayes_factor_of_the_pines_is_that_of_the_literature():
    """4862: Green and O'Hagan 1998, by quadrature."""
    assert np.exp(of_pines(ADJUSTED) - of_pines(DENSITY)) == pytest.approx(4862, rel=1e-3)


# ---------------------------------------------------------------- discrete models, quick to compile
def captured() -> pm.Model:
    """Counts of which 3 and 4 were seen: half of the prior's draws are impossible."""
    with pm.Model() as model:
        n = pm.Poisson("n", 6.0, shape=2)
        pm.Binomial("seen", n=n, p=0.6, observed=[3, 4])
    return model


def test_impossible_draws_of_the_prior_and_exact_draws():
    """Restricted to possible draws, and from exact draws: log Z between the means of the single estimates."""
    exact = float(stats.poisson(6.0 * 0.6).logpmf([3, 4]).sum())
    r = np.random.default_rng(0)
    draws = {"n": np.array([3, 4]) + r.poisson(6.0 * 0.4, size=(600, 2))}
    found = pmd.log_evidence(
        captured(), chains=600, temperatures=4, draws=draws, exact=True, random_seed=2, progressbar=False
    )
    check(found, exact, exact_draws=True)
    share = stats.poisson(6.0).sf([2, 3]).prod()
    for side, logs in ((-1, found.forward.log_weights), (1, -found.backward.log_weights)):
        bias = side * (logs.mean() + np.log(share) - exact)
        assert bias > 3 * logs.std() / np.sqrt(len(logs))


def test_draws_of_the_prior_that_round_to_an_end_of_its_support():
    """A quarter of the draws of Beta(0.02, 0.02) round to 1, where the likelihood is largest."""
    with pm.Model() as model:
        p = pm.Beta("p", 0.02, 0.02)
        z = pm.Bernoulli("z", 0.5)
        pm.Bernoulli("y", p, observed=[1, 1, 1])
        pm.Normal("x", z, 1.0, observed=0.3)
    mean = [0.02 + k for k in range(3)]
    exact = np.log(np.prod(mean) / np.prod([0.04 + k for k in range(3)]))
    exact += np.log(stats.norm.pdf(0.3, [0, 1]).mean())
    check(pmd.log_evidence(model, chains=100, temperatures=50, random_seed=1, progressbar=False), exact)


def test_counts_of_known_sums():
    """Along the path they move with their sums: by single counts no chain could leave its start."""
    A, totals, weights = np.array([[1, 1, 1, 0], [0, 0, 1, 1]]), [3, 3], np.array([1.0, -1.0, 2.0, 0.5])
    with pm.Model() as model:
        x = pm.Binomial("x", 3, 0.4, shape=4)
        pm.DiracDelta("totals", A @ x, observed=totals)
        pm.Normal("y", x @ weights, 0.5, observed=4.0)
    values = np.array(list(itertools.product(range(4), repeat=4)))
    values = values[(values @ A.T == totals).all(axis=1)]
    assert len(values) == 10
    logs = stats.binom(3, 0.4).logpmf(values).sum(1) + stats.norm(values @ weights, 0.5).logpdf(4.0)
    check(pmd.log_evidence(model, temperatures=20, random_seed=1, progressbar=False), float(logsumexp(logs)))


def test_kernels_of_weighed_chains_do_not_adapt(monkeypatch):
    """Their transitions are counted from the end of tuning on, and those of the pilots are not."""
    counted, walk = [], Population.walk

    def counting(self, seed, states, first, path):
        if np.ptp(path):
            counted.append(first)
        return walk(self, seed, states, first, path)

    monkeypatch.setattr(Population, "walk", counting)
    pmd.log_evidence(captured(), chains=4, temperatures=4, random_seed=1, progressbar=False)
    assert len(counted) >= 2
    assert min(counted) >= PILOT_TUNE


def test_draws_of_a_result():
    tree = from_dict({"posterior": {"n": np.arange(12).reshape(2, 3, 2)}})
    assert [draw["n"].tolist() for draw in points_of(tree, ["n"])] == np.arange(12).reshape(6, 2).tolist()


def lattice() -> pm.Model:
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.4, shape=5)
        pm.Potential("pairs", 0.9 * pt.eq(x[1:], x[:-1]))
        pm.Normal("y", x.sum(), 1.0, observed=3.2)
    return model


def of_lattice() -> float:
    x = np.array(list(itertools.product((0, 1), repeat=5)))
    logp = stats.bernoulli(0.4).logpmf(x).sum(1) + 0.9 * (x[:, 1:] == x[:, :-1]).sum(1)
    return float(logsumexp(logp + stats.norm(x.sum(1), 1.0).logpdf(3.2)))


OPTIONS = {"chains": 1500, "temperatures": 5, "random_seed": 3, "progressbar": False}


def test_potentials():
    check(pmd.log_evidence(lattice(), **OPTIONS), of_lattice())


def test_a_likelihood_that_depends_on_nothing():
    with pm.Model() as model:
        pm.Bernoulli("unused", 0.5)
        pm.Normal("y", 0, 1, observed=[0.5, 0.1])
    found = pmd.log_evidence(model, chains=16, random_seed=1, progressbar=False)
    exact = stats.norm.logpdf([0.5, 0.1]).sum()
    assert found.forward.value == pytest.approx(exact)
    assert found.backward.value == pytest.approx(exact)


# ---------------------------------------------------------------- the tempered model
def transformed():
    with pm.Model(coords={"i": range(3)}) as model:
        data = pm.Data("data", [0.3, 1.2, 2.0], dims="i")
        s = pm.HalfNormal("s", 1.0)
        p = pm.Dirichlet("p", np.ones(3))
        z = pm.Categorical("z", p, dims="i")
        twice = pm.Deterministic("twice", 2 * s)
        pm.Normal("y", p[z], twice, observed=data, dims="i")
        pm.Potential("e", -0.5 * s * z)
    return model


def test_tempered_density():
    """The log density is that of the prior, plus the power times that of the likelihood."""
    model = transformed()
    new = tempered(model)
    assert {str(v.name) for v in new.value_vars} == {"s_log__", "p_simplex__", "z", BETA}
    assert LIKELIHOOD in {str(v.name) for v in new.deterministics}
    point = {"s_log__": np.array(0.2), "p_simplex__": np.array([0.4, -0.3]), "z": np.array([2, 0, 1])}
    terms = [float(t.sum()) for t in model.compile_logp(sum=False, mode="FAST_COMPILE")(point)]
    prior, likelihood = sum(terms[: len(model.free_RVs)]), sum(terms[len(model.free_RVs) :])
    logp = new.compile_logp(mode="FAST_COMPILE")
    for beta in (0.0, 0.3, 1.0):
        assert logp(point | {BETA: np.array(beta)}) == pytest.approx(prior + beta * likelihood)


def test_refusals():
    with pm.Model() as flat:
        pm.Normal("y", pm.Flat("a"), 1.0, observed=0.0)
    with pm.Model() as nothing:
        pm.Bernoulli("x", 0.5)
    with pm.Model() as impossible:
        pm.Binomial("y", n=pm.Poisson("n", 0.5), p=0.5, observed=15)
    for model, error, message in (
        (flat, ValueError, "prior of 'a' cannot be drawn from"),
        (nothing, ValueError, "no observed variable"),
        (impossible, SamplingError, "likelihood is 0 at all but 0 of .* prior of 'n'"),
    ):
        with pytest.raises(error, match=message):
            pmd.log_evidence(model, chains=2, progressbar=False)
    for options, message in (
        ({"chains": 1}, "chains must be"),
        ({"temperatures": "many"}, "temperatures must be"),
        ({"step": "gibbs"}, "step must be a function"),
        ({"exact": True}, "pass them"),
        ({"draws": {"m": np.zeros(3)}}, "draws lacks 'n'"),
        ({"draws": [1, 2]}, "draws must be"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            pmd.log_evidence(captured(), progressbar=False, **options)
