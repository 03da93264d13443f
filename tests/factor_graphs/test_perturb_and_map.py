"""Perturb-and-max-product against the exact distribution where it is exact, its noise, and its
step in PyMC.
"""

import functools

import arviz as az
import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax

import pymc_discrete as pmd
from pymc_discrete.engine.nuts import NutsBlock
from pymc_discrete.factor_graphs import FactorGraph, LogicalOr, Pairwise, pmp
from pymc_discrete.factor_graphs.perturb_and_map import gumbel
from tests.factor_graphs.models import ising, neural
from tests.models import hidden_markov
from tests.tools.enumeration import states_of_graph
from tests.tools.interpreted import interpreted
from tests.tools.running import FAST
from tests.tools.walk import walk

pytestmark = pytest.mark.shares_programs

N = 40_000


@functools.cache
def space():
    return pmd.Space.build({"x": (0, 1), "k": (1, [3, 4, 2])}, shapes={"x": (3,), "k": (3,)})


def unaries(seed=0):
    r = np.random.default_rng(seed)
    return {"x": r.normal(size=(3, 2)), "k": 2 * r.normal(size=(3, 4))}


@functools.partial(jax.jit, static_argnames="n_sweeps")
def drawn(keys, graph, n_sweeps):
    """Compiled once for all graphs that differ in what is clamped."""
    return jax.vmap(lambda key: pmp(key, graph, n_sweeps=n_sweeps))(keys)


def draws(graph, n=N, seed=0, n_sweeps=30):
    """Draw (n,) of `pmp`."""
    return drawn(jax.random.split(jax.random.key(seed), n), graph, n_sweeps)


def g_test(x, p) -> float:
    """p-value of values 0..K-1 against probabilities."""
    seen = np.bincount(x, minlength=len(p))
    assert (seen[p == 0] == 0).all()
    used = p > 0
    return stats.power_divergence(seen[used], p[used] * len(x), lambda_="log-likelihood").pvalue


def test_unaries_alone_are_exact():
    """Section 2.2: the Gibbs distribution, and the mean of the largest perturbed log density is log Z."""
    given = unaries()
    graph = FactorGraph(space(), unary=given)
    found = draws(graph, n_sweeps=1)
    x, logp = np.asarray(found.x), 0.0
    for site in range(6):
        name, i = ("x", site) if site < 3 else ("k", site - 3)
        own = given[name][i][: space().variables[site // 3].counts[i]]
        logp += logsumexp(own)
        assert g_test(x[:, site] - space().lower[site], softmax(own)) > 1e-4
    both = np.unique(x[:, [0, 4]] @ [10, 1], return_inverse=True)[1]
    joint = np.outer(softmax(given["x"][0]), softmax(given["k"][1])).reshape(-1)
    assert g_test(both, joint) > 1e-4
    value = np.asarray(found.value)
    assert abs(value.mean() - logp) < 5 * value.std() / np.sqrt(N)


@pytest.mark.slow
def test_clamped_sites_are_held_and_what_is_left_is_exact():
    given = unaries(1)
    x = space().numbers("x")
    graph = FactorGraph(space(), [Pairwise(x[0], x[1:], np.array([[0.0, 1.0], [-1.0, 2.0]]))], given)
    clamped = graph.clamp({"x": np.ma.masked_array([1, 0, 0], mask=[False, True, True])})
    found = np.asarray(draws(clamped, N // 4).x)
    assert (found[:, 0] == 1).all()
    for i in (1, 2):
        assert g_test(found[:, i], softmax(given["x"][i] + [-1.0, 2.0])) > 1e-4


def test_noise_is_gumbel_with_mean_0_whatever_the_correlation():
    """App. A: the marginal distribution of every iteration."""
    graph = FactorGraph(space(), unary=unaries())
    first = draws(graph, n_sweeps=1)
    after = jax.jit(
        jax.vmap(lambda key, before: pmp(key, graph, n_sweeps=1, persistent=before, correlation=0.8))
    )
    second = after(jax.random.split(jax.random.key(1), N), first)
    for found in (first, second):
        noise = np.asarray(gumbel(found.normals[0])).reshape(-1)
        assert stats.kstest(noise, stats.gumbel_r(loc=-np.euler_gamma).cdf).pvalue > 1e-4
    correlation = np.corrcoef(np.ravel(first.normals[0]), np.ravel(second.normals[0]))[0, 1]
    assert correlation == pytest.approx(np.sqrt(0.8), abs=0.01)


def test_persistent_messages_find_what_many_sweeps_find():
    """The same noise, with the messages of the draw before: a few sweeps do."""
    x = space().numbers("x")
    graph = FactorGraph(space(), [Pairwise(x, np.roll(x, 1), np.array([[0.5, 0.0], [0.0, 0.5]]))], unaries(2))

    @interpreted
    def both(words):
        first, second = jax.random.wrap_key_data(words)
        before = pmp(first, graph, n_sweeps=100)
        return before.x, pmp(second, graph, n_sweeps=2, persistent=before, correlation=1.0)

    before, again = both(np.array([[0, 0], [0, 1]], np.uint32))
    np.testing.assert_array_equal(again.x, before)
    assert float(again.change) < 1e-9


def test_bias_of_an_attractive_pair():
    """Not the Gibbs distribution: the best of noisy configurations agrees too rarely (two spins, exact
    integral).
    """
    coupled = pmd.Space.build({"x": (0, 1)}, shapes={"x": (2,)})
    graph = FactorGraph(coupled, [Pairwise(0, 1, np.array([[1.0, 0.0], [0.0, 1.0]]))])
    x = np.asarray(draws(graph, n_sweeps=60).x)
    # the difference of two Gumbels is logistic: they agree where |a + b| > |a - b| - 2
    a, b = np.random.default_rng(0).logistic(size=(2, 2_000_000))
    want = np.mean(np.maximum(1.0 + np.abs(a + b) / 2, np.abs(a - b) / 2) == 1.0 + np.abs(a + b) / 2)
    agree = (x[:, 0] == x[:, 1]).mean()
    assert agree == pytest.approx(want, abs=5 * np.sqrt(want * (1 - want) / N))
    assert abs(agree - np.e / (1 + np.e)) > 0.01


# ---------------------------------------------------------------- the step
def step(**options):
    with pytest.warns(UserWarning, match="PerturbAndMaxProduct is approximate: its draws are biased"):
        return pmd.PerturbAndMaxProduct(**options)


QUIET = {"progressbar": False, "random_seed": 1, "compute_convergence_checks": False}


def test_in_pm_sample():
    with pm.Model() as model:
        ising()
        idata = pm.sample(20, tune=20, chains=2, cores=1, step=step(), **QUIET, **FAST)
    name = model.discrete_value_vars[0].name
    assert set(np.unique(idata.sample_stats["discrete_approximate"])) == {1.0}
    assert (idata.sample_stats["accepted"] == 1).all()
    assert idata.posterior[name].std(("chain", "draw")).mean() > 0.1


def test_in_pmd_sample():
    with pm.Model():
        ising()
        idata = pmd.sample(20, tune=20, chains=2, step=step(), progressbar=False, random_seed=1)
    assert set(np.unique(idata.sample_stats["discrete_approximate"])) == {1.0}


@pytest.mark.slow
def test_mixture_is_exact_given_the_rest(monkeypatch):
    """Labels do not interact: their draws are exact, and the means have the posterior of the marginalised
    model, by sums over a grid.
    """
    monkeypatch.setattr(NutsBlock, "draw", walk)
    r = np.random.default_rng(2)
    y = np.array([-2.0, 2.0])[r.integers(0, 2, 40)] + r.normal(size=40)
    with pm.Model():
        z = pm.Bernoulli("z", 0.5, shape=40)
        mu = pm.Normal(
            "mu", 0, 3, shape=2, transform=pm.distributions.transforms.ordered, initval=[-1.0, 1.0]
        )
        pm.Normal("y", mu[z], 1.0, observed=y)
        idata = pmd.sample(4000, tune=500, chains=2, step=step(), progressbar=False, random_seed=3)
    grid = np.linspace(-5, 5, 401)
    lower, upper = np.meshgrid(grid, grid, indexing="ij")
    logp = stats.norm.logpdf(lower, 0, 3) + stats.norm.logpdf(upper, 0, 3)
    each = stats.norm.logpdf(y[:, None], grid)
    logp = logp + sum(np.logaddexp(of[:, None], of) - np.log(2) for of in each)
    p = np.where(lower < upper, np.exp(logp - logp.max()), 0.0)
    p /= p.sum()
    for k, of in enumerate((lower, upper)):
        own, mean = idata.posterior["mu"].values[..., k], (p * of).sum()
        assert abs(own.mean() - mean) / float(az.mcse(own)) < 4
        assert own.std() == pytest.approx(np.sqrt((p * (of - mean) ** 2).sum()), rel=0.1)


def test_configurations_that_the_model_excludes_are_left_out(caplog):
    """Max-product on hard constraints with cycles may end at none: the draw is the one before, and the user
    is told.
    """
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(3, 3))
        pm.Potential(
            "apart", pt.switch(pt.eq(x + pt.roll(x, 1, 0), 1), 0.0, -np.inf).sum()
        )  # no such state of an odd cycle
    graph = FactorGraph.from_model(model)
    assert not len(states_of_graph(graph)[0])
    with model:
        made = step()
    kernel, params = made.kernel, made.params

    @interpreted
    def move(words, x):
        key = jax.random.wrap_key_data(words)
        state, info = kernel.step(key, kernel.init(x, made.target), made.target, params)
        return state.x, info.accepted

    x, accepted = move(np.zeros(2, np.uint32), np.zeros(9, int))
    assert not x.any()
    assert accepted == 0
    (complaint,) = made.complaints(
        made.learned._replace(adaptation=made.learned.adaptation._replace(accept=0.2)), 500
    )
    assert "80% of the draws of 'x' were configurations that the model excludes" in complaint


def test_refused():
    with pm.Model():
        neural()
        with pytest.raises(ValueError, match="'network' is no factor graph"):
            pmd.PerturbAndMaxProduct()
    with pm.Model():
        ising()
        for options, message in (
            ({"n_sweeps": 0}, "n_sweeps must be a positive integer, got 0"),
            ({"damping": 1.0}, "damping must be at least 0 and below 1, got 1.0"),
            ({"differences": "gradient"}, "and no gradient. Leave differences out"),
        ):
            with pytest.raises(ValueError, match=message):
                pmd.PerturbAndMaxProduct(**options)


def test_auto_step_never_chooses_it():
    for build in (ising, hidden_markov):
        with pm.Model():
            build()
            assert not isinstance(pmd.AutoStep(), pmd.PerturbAndMaxProduct)


def test_hard_gates():
    """An OR of clamped and free sites: what follows from the clamped is found."""
    s = pmd.Space.build({"x": (0, 1)}, shapes={"x": (4,)})
    graph = FactorGraph(s, [LogicalOr([[0, 1, 2]], [3])], {"x": np.zeros((4, 2))})
    x = np.asarray(draws(graph.clamp({"x": np.ma.masked_array([0, 0, 0, 0], mask=[1, 1, 1, 0])}), 500).x)
    assert not x.any()
    x = np.asarray(draws(graph.clamp({"x": np.ma.masked_array([0, 0, 0, 1], mask=[1, 1, 1, 0])}), 500).x)
    assert (x[:, :3].sum(axis=1) > 0).all()
    assert (x[:, 3] == 1).all()
