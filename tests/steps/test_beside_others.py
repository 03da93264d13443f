"""Steps that make their draws ahead, beside steps of PyMC: models whose posteriors are computed by hand,
the discrete unknowns enumerated, and the continuous ones integrated in closed form or on a grid.
"""

import itertools

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import pymc_discrete as pmd
from tests.tools.running import draws_of, sample_with_pymc

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

LARGEST_Z = 4.0
DRAWS = 1200


# ---------------------------------------------------------------- models, and what is expected of their draws
# Each gives {what: (a function of the draws {variable: (chain, draw, ...)}, its exact mean)}.
X = np.array([[1.0, 0.2, -0.5], [0.3, -1.0, 0.8], [-0.7, 0.5, 1.1], [1.4, 0.9, 0.1], [-0.2, -1.2, -0.9]])
RESPONSE = np.array([1.1, -0.2, 0.3, 1.9, -0.9])
INCLUDED = np.array([0.4, 0.5, 0.3])


def inclusion():
    with pm.Model() as model:
        z, b = pm.Bernoulli("z", INCLUDED), pm.Normal("b", 0, 1.5, shape=3)
        pm.Normal("y", pt.dot(X, z * b), 1.0, observed=RESPONSE)
    states = np.array([*itertools.product([0, 1], repeat=3)])
    logp, means = [], []
    for z in states:
        covariance = np.eye(5) + 2.25 * (X * z) @ (X * z).T
        prior = np.log(np.where(z, INCLUDED, 1 - INCLUDED)).sum()
        logp.append(prior + stats.multivariate_normal(np.zeros(5), covariance).logpdf(RESPONSE))
        means.append(2.25 * (X * z).T @ np.linalg.solve(covariance, RESPONSE))
    p = np.exp(logp - logsumexp(logp))
    return model, {
        "z": (lambda d: d["z"], p @ states),
        "b": (lambda d: d["b"], p @ means),
        "bz": (lambda d: d["b"] * d["z"], p @ (means * states)),
    }


HITS, HEIGHTS = np.array([2, 3, 2]), np.array([1.6, 2.1])


def bounded():
    """Two bounded counts, with a probability and a scale, both of which are transformed."""
    with pm.Model() as model:
        n, u = pm.Binomial("n", 8, 0.6), pm.DiscreteUniform("u", -2, 2)
        q, s = pm.Beta("q", 2, 3), pm.HalfNormal("s", 1.0)
        pm.Binomial("y", n, q, observed=HITS)
        pm.Normal("w", 0.3 * n + u, s + 0.5, observed=HEIGHTS)
    n, u = np.meshgrid(range(3, 9), range(-2, 3), indexing="ij")
    q, s = np.linspace(0.0005, 0.9995, 1000), np.linspace(0.0005, 7, 3000)
    of_q = stats.beta.logpdf(q, 2, 3) + sum(stats.binom.logpmf(y, n[..., None], q) for y in HITS)
    of_s = stats.halfnorm.logpdf(s)
    of_s = of_s + sum(stats.norm.logpdf(w, (0.3 * n + u)[..., None], s + 0.5) for w in HEIGHTS)
    logp = stats.binom.logpmf(n, 8, 0.6) + logsumexp(of_q, -1) + logsumexp(of_s, -1)
    p = np.exp(logp - logsumexp(logp))
    mean_q = np.exp(of_q - logsumexp(of_q, -1, keepdims=True)) @ q
    mean_s = np.exp(of_s - logsumexp(of_s, -1, keepdims=True)) @ s
    return model, {
        "n": (lambda d: d["n"][..., None] == range(3, 9), p.sum(1)),
        "u": (lambda d: d["u"][..., None] == range(-2, 3), p.sum(0)),
        "q": (lambda d: d["q"], (p * mean_q).sum()),
        "s": (lambda d: d["s"], (p * mean_s).sum()),
        "q n": (lambda d: d["q"] * d["n"], (p * mean_q * n).sum()),
    }


NOISY = np.array([1.2, 3.4])


def poisson():
    """Two latent counts of one rate."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        pm.Normal("y", pm.Poisson("n", rate, shape=2), 1.2, observed=NOISY)
    n, m = np.meshgrid(range(40), range(40), indexing="ij")
    shape = 2 + n + m
    logp = gammaln(shape) - shape * np.log(3) - gammaln(n + 1) - gammaln(m + 1)
    logp = logp + stats.norm.logpdf(NOISY[0], n, 1.2) + stats.norm.logpdf(NOISY[1], m, 1.2)
    p = np.exp(logp - logsumexp(logp))
    return model, {
        "n0": (lambda d: d["n"][..., :1] == range(5), p.sum(1)[:5]),
        "n1": (lambda d: d["n"][..., 1:] == range(7), p.sum(0)[:7]),
        "rate": (lambda d: d["rate"], (p * shape / 3).sum()),
        "rate n0": (lambda d: d["rate"] * d["n"][..., 0], (p * shape / 3 * n).sum()),
    }


def worth(draws):
    """The number of independent draws that have the Monte Carlo error of these."""
    return float(np.nan_to_num(az.ess(np.atleast_2d(draws), method="mean"), nan=1.0))


def furthest(idata, expected):
    """The largest |z| of the means of draws, and of the products of two chains, and what it belongs to.

    Probabilities are left out that too few draws bear on.
    """
    found, draws = {}, draws_of(idata)
    for what, (of, wanted) in expected.items():
        values = np.asarray(of(draws), float).reshape(2, -1, np.size(wanted))
        for n, exact in enumerate(np.ravel(wanted)):
            one = values[..., n]
            is_share = np.isin(one, (0, 1)).all()
            variance = exact * (1 - exact) if is_share else one.var()
            if is_share and variance * worth(one) < 15:
                continue
            found[what, n] = abs(one.mean() - exact) / np.sqrt(variance / worth(one))
            a, b = one - one.mean(1, keepdims=True)  # chains of different random numbers
            found[f"{what} of two chains", n] = abs((a * b).mean()) / np.sqrt((a * b).var() / worth(a * b))
    assert len(found) >= 2 * len(expected)
    return max((z, what) for what, z in found.items())


# ---------------------------------------------------------------- combinations
# {name: (model, steps in the order in which they move, number of tuning draws)}
CASES = {
    "poisson, all variables": (poisson, lambda m: [pmd.BlockGibbs(), pm.Metropolis()], 300),
    "inclusion, integrated out": (inclusion, lambda m: [pm.Slice([m["b"]]), pmd.AutoStep()], 300),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_against_exact_posteriors(case):
    """Steps of PyMC that are given variables by name, or none; all of the variables, or some."""
    build, steps, tune = CASES[case]
    model, expected = build()
    idata = sample_with_pymc(model, lambda: steps(model), DRAWS, tune, random_seed=3)
    z, what = furthest(idata, expected)
    assert z < LARGEST_Z, what
    if case != "poisson, all variables":  # where the other step moves the discrete variables, too
        assert_moved_as_recorded(idata)


def assert_moved_as_recorded(idata):
    """Each draw differs from the one before in as many sites as its statistic says."""
    moved = np.zeros(idata["sample_stats"]["lp"].shape[:2], int)[:, 1:]
    for draws in draws_of(idata).values():
        if draws.dtype.kind == "i":
            moved += (np.diff(draws, axis=1) != 0).reshape(*moved.shape, -1).sum(-1)
    assert (idata["sample_stats"]["discrete_n_moved"].values[:, 1:] == moved).all()


@pytest.mark.slow
def test_what_is_said_and_recorded(caplog):
    """One line for all chains says what is left to the other step; statistics are called as in PyMC's."""
    model, expected = poisson()
    with caplog.at_level("INFO", "pymc.discrete"):
        idata = sample_with_pymc(model, lambda: [pm.Slice([model["rate"]]), pmd.BlockGibbs()], 150, 30)
    left = [text for text in caplog.messages if "another" in text]
    assert left == ["BlockGibbs leaves 'rate' to another step, which moves it as well."]
    of_nuts = {
        "tree_depth",
        "step_size",
        "step_size_bar",
        "acceptance_rate",
        "n_steps",
        "energy",
        "diverging",
    }
    of_others = {"nstep_in", "nstep_out", "accept", "accepted", "discrete_n_moved", "lp"}
    found = {name: values.values for name, values in idata["sample_stats"].data_vars.items()}
    assert {*found} == {*of_nuts, *of_others, "divergences", "reached_max_treedepth"}
    assert not any(found[name].any() for name in of_nuts)  # NUTS has nothing left to move
    assert (found["accept"] == 1).all()  # conditionals
    assert_moved_as_recorded(idata)
    draws, logp = draws_of(idata), model.compile_logp(mode="FAST_COMPILE")
    for n, rate, lp in zip(draws["n"][0], draws["rate"][0], found["lp"][0], strict=True):
        assert lp == pytest.approx(float(logp({"n": n, "rate_log__": np.log(rate)})), rel=1e-9)
    assert furthest(idata, expected)[0] < LARGEST_Z


@pytest.mark.slow
def test_nothing_is_summed_out_where_another_step_takes_all_that_is_continuous(caplog):
    """PyMC was told of no statistics of the steps that then draw what would have been summed out."""
    model, expected = bounded()
    with caplog.at_level("INFO", "pymc.discrete"):
        steps = lambda: [pmd.AutoStep(), pm.Slice([model["q"], model["s"]])]
        idata = sample_with_pymc(model, steps, 100, 20)
    left = [text for text in caplog.messages if "another" in text]
    assert left == ["AutoStep leaves 'q', 's' to another step, which moves them as well."]
    assert furthest(idata, expected)[0] < LARGEST_Z
    assert (draws_of(idata)["n"].std(1) > 0).all()
