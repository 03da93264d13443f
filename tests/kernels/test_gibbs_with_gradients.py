"""Kernels against enumeration: what is proposed, what is stationary, and that the compiled step does just
that.
"""

import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import gibbs_with_gradients, loop, path_auxiliary
from tests.models import (
    SMALL,
    bounded,
    five,
    hidden_markov,
    ising,
    mixed,
    mixture,
    n_mixture,
)
from tests.tools.enumeration import check_matrix, check_runs, enumerate_target, run_steps, small
from tests.tools.interpreted import interpreted
from tests.tools.oracle import assert_close
from tests.tools.statistics import g_test
from tests.tools.transition_matrices import gwg_matrix

N_FLIPS = (1, 2.5)
BALANCINGS = ("sqrt", "barker", "min", "max")
CASES = list(itertools.product(SMALL, ("exact", "gradient")))
IDS = [f"{b.__name__}-{how}" for b, how in CASES]


@pytest.mark.parametrize(("build", "how"), CASES, ids=IDS)
@pytest.mark.by_default(
    "mixed-exact",
    "mixed-gradient",
    "windowed-gradient",
    "bounded-gradient",
    "binary-exact",
    "geometric-gradient",
)
def test_matrix(build, how):
    """The balancings in turn: each kind of site has all of them, and each number of flips, too."""
    e, case = small(build, how), CASES.index((build, how))
    assert e.target.exact == (how == "exact")
    first = case // 2 + 2 * (case % 2)
    for n, n_flips in enumerate(N_FLIPS, first):
        P, proposed = gwg_matrix(e, n_flips, BALANCINGS[n % 4])
        check_matrix(P, e.pi, proposed)


@pytest.mark.parametrize("build", SMALL)
@pytest.mark.by_default("windowed", "bounded")
def test_the_checks_see_a_missing_proposal_ratio(build):
    e = small(build, "gradient")
    P, proposed = gwg_matrix(e, 2, "sqrt", proposal_ratio=False)
    with pytest.raises(AssertionError):
        check_matrix(P, e.pi, proposed)


# Each way in which one move and several are compiled, on sites of every kind; bounds, and estimates. The
# matrices above are of other combinations.
CHOSEN = [
    (mixed, "exact", 2.5, "sqrt"),
    (mixed, "exact", 1, "max"),
    (bounded, "gradient", 3, "barker"),
]


@pytest.mark.parametrize(
    ("build", "how", "n_flips", "balancing"),
    CHOSEN,
    ids=[f"{c[0].__name__}-{'-'.join(map(str, c[1:]))}" for c in CHOSEN],
)
@pytest.mark.by_default("mixed-exact-2.5-sqrt")
def test_compiled_steps_do_what_was_enumerated(build, how, n_flips, balancing):
    e = small(build, how)
    case = CHOSEN.index((build, how, n_flips, balancing))
    ends = run_steps(e, *gibbs_with_gradients(n_flips, balancing), runs=20_000, seed=case)
    P, proposed = gwg_matrix(e, n_flips, balancing)
    check_matrix(P, e.pi, proposed)
    check_runs(ends, P)
    if n_flips > 1:  # and the test sees a missing proposal ratio
        with pytest.raises(AssertionError, match="row"):
            check_runs(ends, gwg_matrix(e, n_flips, balancing, proposal_ratio=False)[0])


def test_bounds_of_a_tuned_number_of_flips():
    """How it is drawn is tested in test_path_length.py."""
    kernel, _ = gibbs_with_gradients("adapt")
    assert kernel.tuned.bounds(small(five, "exact").target.space) == (1.5, 2.5)


# ---------------------------------------------------------------- estimates at the edges of every support
EDGES = {
    "Bernoulli": lambda: pm.Bernoulli("a", 0.3),
    "Categorical": lambda: pm.Categorical("a", p=[0.2, 0.0, 0.5, 0.3]),
    "DiscreteUniform": lambda: pm.DiscreteUniform("a", -2, 3),
    "Binomial": lambda: pm.Binomial("a", n=5, p=0.4),
    "BetaBinomial": lambda: pm.BetaBinomial("a", alpha=0.7, beta=1.4, n=5),
    "Poisson": lambda: pm.Poisson("a", 2.0),
    "NegativeBinomial": lambda: pm.NegativeBinomial("a", mu=2.0, alpha=0.8),
    "Geometric": lambda: pm.Geometric("a", 0.4),
    "HyperGeometric": lambda: pm.HyperGeometric("a", N=12, k=5, n=6),
    "DiscreteWeibull": lambda: pm.DiscreteWeibull("a", q=0.7, beta=1.3),
    "ZeroInflatedPoisson": lambda: pm.ZeroInflatedPoisson("a", 0.6, 3.0),
    "ZeroInflatedBinomial": lambda: pm.ZeroInflatedBinomial("a", psi=0.6, n=5, p=0.5),
    "ZeroInflatedNegativeBinomial": lambda: pm.ZeroInflatedNegativeBinomial("a", psi=0.6, mu=2.0, alpha=1.5),
    "HurdlePoisson": lambda: pm.HurdlePoisson("a", psi=0.6, mu=2.0),
    "HurdleNegativeBinomial": lambda: pm.HurdleNegativeBinomial("a", psi=0.6, mu=2.0, alpha=1.5),
    "OrderedLogistic": lambda: pm.OrderedLogistic("a", eta=0.2, cutpoints=[-1.0, 0.0, 1.0]),
    "OrderedProbit": lambda: pm.OrderedProbit("a", eta=0.2, cutpoints=[-1.0, 0.0, 1.0]),
    "Mixture": lambda: pm.Mixture(
        "a", w=[0.3, 0.7], comp_dists=[pm.Poisson.dist(1.0), pm.Binomial.dist(n=4, p=0.8)]
    ),
    "Truncated": lambda: pm.Truncated("a", pm.Poisson.dist(2.0), lower=1, upper=5),
    "Censored": lambda: pm.Censored("a", pm.Poisson.dist(2.0), lower=1, upper=4),
    "a power": lambda: pm.Potential("root", pt.sqrt(pm.DiscreteUniform("a", 0, 4))),
    "a logarithm": lambda: pm.Potential("log", 0.5 * pt.log1p(pt.log1p(pm.DiscreteUniform("a", 0, 4)))),
}


# of those without an upper bound some values from the lowest, by name
LOWEST = {"Geometric": 1} | dict.fromkeys(
    (
        "Poisson",
        "NegativeBinomial",
        "DiscreteWeibull",
        "ZeroInflatedPoisson",
        "ZeroInflatedNegativeBinomial",
        "HurdlePoisson",
        "HurdleNegativeBinomial",
        "Mixture",
    ),
    0,
)


@functools.cache
def at_the_edges(name):
    with pm.Model() as model:
        EDGES[name]()
        b = pm.Bernoulli("b", 0.6)
        pm.Normal("y", model["a"] - 2 * b, 1.2, observed=0.7)
    support = {"a": (LOWEST[name], LOWEST[name] + 6)} if name in LOWEST else {}
    target = pmd.target_from_model(model, ["a", "b"], differences="gradient", support=support)
    assert not target.space.windowed.any()
    ranges = [
        range(lower, upper + 1) for lower, upper in zip(target.space.lower, target.space.upper, strict=True)
    ]
    return enumerate_target(target, ranges)


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.by_default("a power", "a logarithm", "Poisson")
def test_estimates_leave_no_state_unreachable(name):
    """Where a slope is no number (a gamma function at 0, a mixture with a point mass), the states beyond keep
    a weight.
    """
    e = at_the_edges(name)
    assert not e.target.exact
    for n_flips in (1, 2):
        P, proposed = gwg_matrix(e, n_flips, "sqrt")
        check_matrix(P, e.pi, proposed)


# ---------------------------------------------------------------- many values
# PAS draws its moves as Gibbs-With-Gradients does, PAFS sites before their values
ONE_MOVE = {"GWG": gibbs_with_gradients(1), "PAFS": path_auxiliary(1)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_MOVE)
def test_one_move_among_2070(name):
    """Independent sites, as sums over all moves go through several pieces: one row of the matrix, the same
    for all that make one move.
    """
    r = np.random.default_rng(9)
    d, K = 30, 70
    table, x = r.normal(size=(d, K)), r.integers(0, K, d)
    with pm.Model() as model:
        pm.Categorical("x", logit_p=table, shape=d)
    target = pmd.target_from_model(model).at(model.initial_point())[1]
    # g = sqrt: weights exp((table[i, k] - table[i, x_i]) / 2), and the acceptance is Z(x) / Z(y)
    root = np.exp(table / 2)
    of = root.sum(1, keepdims=True) / root - 1  # each site's part of Z, by its value
    now = np.arange(d), x
    Z = of[now].sum()
    row = root / root[now][:, None] / Z * np.minimum(1, Z / (Z - of[now][:, None] + of))
    row[now] = 0.0
    kernel, params = ONE_MOVE[name]
    run = jax.jit(jax.vmap(lambda key: kernel.step(key, kernel.init(x, target), target, params)[0].x))
    ends = np.concatenate([run(keys) for keys in jax.random.split(jax.random.key(4), (4, 5_000))])
    s, i = np.nonzero(ends != x)
    assert len(s) == len(set(s))  # one site at a time
    got = np.zeros((d, K))
    np.add.at(got, (i, ends[s, i]), 1)
    stayed = len(ends) - len(s)
    assert g_test(np.append(got, stayed), np.append(row, 1 - row.sum())) > 1e-4


# ---------------------------------------------------------------- parity and supports
def walk(target, n_flips, x, steps=400, chains=4, program=jax.jit):
    """(chains, steps, d) states of the step in a program, compiled or interpreted."""
    kernel, params = gibbs_with_gradients(n_flips)

    @program
    def run(seed, target):
        def one(key):
            def body(state, key):
                state, _ = kernel.step(key, state, target, params)
                return state, state.x

            return jax.lax.scan(body, kernel.init(jnp.asarray(x), target), jax.random.split(key, steps))[1]

        return jax.vmap(one)(jax.random.split(jax.random.key(seed), chains))

    return np.asarray(run(1, target))


def test_both_parities_are_reached():
    """A fixed even number of flips would keep the parity of sum(x); 400 transitions leave each of two
    parities about half the time.
    """
    space = pmd.Space.build({"x": (np.zeros(6), np.ones(6))})
    target = pmd.target_from_logdensity(lambda x: 0.3 * (x * jnp.arange(6)).sum() / 6, space)
    odd = walk(target, 2, np.zeros(6, int)).sum(-1) % 2
    # the true share is 0.497; 0.1 is five standard errors of 400 draws with an autocorrelation time of 4
    assert (np.abs(odd.mean(1) - 0.5) < 0.1).all()


def test_draws_of_a_flat_target_reach_both_parities():
    """With one flip a transition, always accepted, the parity alternates; what a draw returns must not
    inherit that.
    """
    with pm.Model() as model:
        pm.Bernoulli("x", np.full(2, 0.5), shape=2)
        step = pmd.GibbsWithGradients(transitions=2)
    step.setup_chain(np.random.default_rng(0), tune=0, draws=40)
    point, odd = model.initial_point(), []
    for _ in range(40):
        point, _ = step.step(point)
        odd.append(point["x"].sum() % 2)
    assert 5 <= sum(odd) <= 35


def test_supports_that_the_density_does_not_know_are_kept():
    """300 values are walked by a window, and two moves of one site may add up to more than either."""
    space = pmd.Space.build({"x": (np.zeros(2), np.full(2, 300))}, window=2)
    target = pmd.target_from_logdensity(lambda x: 0.05 * x.sum(), space)
    x = walk(target, 3, np.full(2, 298))
    assert x.max() == 300


def test_nowhere_to_go():
    with pm.Model() as model:
        pm.DiscreteUniform("k", 3, 3)
    target = pmd.target_from_model(model)
    for n_flips in (1, 2):
        assert (walk(target, n_flips, [3], 5, 1, interpreted) == 3).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "impossible"),
    [
        (3, lambda x: pt.switch(x < 3, -np.inf, 0.0).sum()),
        (3, lambda x: pt.switch(x.sum() < 8, -np.inf, 0.0)),
        (2, lambda x: pt.switch(x < 3, -np.inf, 0.0).sum()),
    ],
    ids=["site by site", "all together", "pair"],
)
def test_an_impossible_start_is_left(sites, impossible):
    with pm.Model() as model:
        x = pm.DiscreteUniform("x", 0, 4, shape=sites)
        pm.Potential("e", impossible(x))
    target = pmd.target_from_model(model).at(model.initial_point())[1]
    x = walk(target, 2, np.zeros(sites, int), 100, 2, interpreted)
    possible = interpreted(jax.vmap(jax.vmap(target.logdensity)))(x) > -np.inf
    assert possible[:, -1].all()
    assert (np.diff(possible.astype(int), axis=1) >= 0).all()  # and never entered again


# ---------------------------------------------------------------- caches


def potts():
    x = pm.Categorical("x", logit_p=np.random.default_rng(0).normal(size=(5, 6, 3)), shape=(5, 6))
    pm.Potential("e", 0.7 * (pt.eq(x[:, 1:], x[:, :-1]).sum() + pt.eq(x[1:], x[:-1]).sum()))


def mixed_local():
    """Pairs of different kinds, elements of three sites, counts, and a scalar that no element joins to the
    rest.
    """
    r = np.random.default_rng(4)
    b = pm.Bernoulli("b", 0.4, shape=10)
    c = pm.Categorical("c", p=[0.2, 0.5, 0.3], shape=10)
    k = pm.NegativeBinomial("k", mu=3.0, alpha=2.0, shape=10)
    pm.DiscreteUniform("alone", 2, 9)
    pm.Normal("y", 1.3 * b * k + pt.as_tensor([-1.0, 0.5, 2.0])[c], 1.5, observed=r.normal(3, 2, 10))


def imputed():
    r = np.random.default_rng(5)
    cov = pm.Bernoulli(
        "cov",
        0.4,
        observed=np.ma.masked_invalid(
            np.where(r.random(60) < 0.5, np.nan, r.integers(0, 2, 60).astype(float))
        ),
    )
    a = pm.Normal("a", 0, 2, shape=2)
    pm.Bernoulli("y", logit_p=a[0] + a[1] * cov, observed=r.integers(0, 2, 60))


def dense():
    """Linear maps, a sum over everything, and differences of which none is local."""
    r = np.random.default_rng(6)
    g = pm.Bernoulli("g", 0.3, shape=26)
    pm.Normal("y", pt.dot(r.normal(size=(15, 26)), g), 1.0, observed=r.normal(size=15))
    pm.Potential("total", -0.1 * pt.sqr(g.sum() - 5))


LOCAL = (ising, potts, hidden_markov, mixture, n_mixture, mixed_local, imputed)


@functools.cache
def target_of(build, how="auto"):
    """(target in a context of its own, a start of positive density)."""
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's own, where it imputes
        build()
    r = np.random.default_rng(7)
    point = {
        k: v + 0.3 * r.normal(size=v.shape) if v.dtype.kind == "f" else v
        for k, v in model.initial_point().items()
    }
    x, target = pmd.target_from_model(model, [v.name for v in model.discrete_value_vars], differences=how).at(
        point
    )
    assert target.local == (build in LOCAL and how == "auto")
    return target, x


# what the kernel does with updates; that they are right is tested below for all of them
CACHES = [
    (potts, "auto", 1),
    (imputed, "auto", 1),
    (mixed_local, "auto", 2),
    (dense, "auto", 1),
    (dense, "gradient", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "how", "n_flips"), CACHES, ids=[f"{b.__name__}-{how}-{n}" for b, how, n in CACHES]
)
def test_no_stale_cache(build, how, n_flips):
    """After 30 transitions everything that the state carries equals what is computed afresh."""
    target, x = target_of(build, how)
    kernel, params = gibbs_with_gradients(n_flips)

    @interpreted
    def run(seed, target):
        state, info = loop(kernel, jax.random.key(seed), kernel.init(x, target), target, params, 30)
        return state, kernel.refresh(state, target), info

    state, fresh, info = run(3, target)
    assert (np.asarray(state.x) != x).sum() > 1
    assert float(info.accepted) > 0.05
    for part in ("x", "logdensity", "differences"):
        assert_close(getattr(state, part), getattr(fresh, part))
    assert_close(state.carry.log_scale, fresh.carry.log_scale)
    for s in (state, fresh):  # the weights' scale is free
        np.testing.assert_allclose(s.carry.total, s.carry.weights.sum(), rtol=1e-12)
    assert_close(*(s.carry.weights / s.carry.total for s in (state, fresh)))


@pytest.mark.parametrize("build", [potts, hidden_markov, n_mixture, mixed_local, imputed])
@pytest.mark.by_default("hidden_markov", "potts")
def test_update_equals_differences(build):
    """Every site in turn, changed to a random neighbour, from a random state."""
    target, x = target_of(build)
    r = np.random.default_rng(8)
    values, inside = target.space.neighbours(x)
    x = np.array(
        [r.choice(v[i & (v >= n)]) for v, i, n in zip(values, inside, x, strict=True)]
    )  # upwards: N stays above the data
    values, inside = target.space.neighbours(x)
    to = np.array([r.choice(v[i & (v != n)]) for v, i, n in zip(values, inside, x, strict=True)])

    @interpreted
    def both(x, to, target):
        before = target.differences(x)

        def one(site):
            y = jnp.asarray(x).at[site].set(to[site])
            return target.update(y, before, site), target.differences(y)

        return jax.vmap(one)(jnp.arange(target.space.d))

    assert_close(*both(x, to, target))


@pytest.mark.parametrize("build", [ising, potts])
def test_differences_keep_their_accuracy_beside_a_large_density(build):
    """A constant of 1e9 nats leaves no digit of a lattice difference below 1e-7 to brute force; tables do not
    see it.
    """
    with pm.Model() as model:
        build()
        x = model["x"]
        pm.Potential("large", 1e9 + 0.0 * x.sum())
    large = pmd.target_from_model(model, ["x"])
    target, start = target_of(build)
    of = interpreted(lambda target, x: target.differences(x))
    assert_close(of(large.at(model.initial_point())[1], start), of(target, start))
