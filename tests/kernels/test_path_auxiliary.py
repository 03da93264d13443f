"""PAS and PAFS against enumeration over all paths."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_discrete as pmd
from pymc_discrete.kernels import path_auxiliary
from tests.models import SMALL, binary, bounded, categorical, five, geometric, mixed, windowed
from tests.tools.enumeration import check_matrix, check_runs, run_steps, small
from tests.tools.transition_matrices import count_probabilities, path_matrix

BALANCINGS = ("sqrt", "barker", "min", "max")
WAYS = list(itertools.product((False, True), (True, False)))  # recompute, backtrack
# enumeration is over (moves)^L paths: what a kind of site can bear
LENGTHS = {
    binary: (1, 2, 2.5, 3, 4),
    categorical: (1, 2, 2.5, 3),
    bounded: (1, 2, 2.5),
    windowed: (1, 2),
    geometric: (1, 2),
    mixed: (1, 2),
}
CASES = [(b, how, *way) for b in SMALL for how in ("exact", "gradient") for way in WAYS]


def name(b, how, recompute, backtrack):
    return f"{b.__name__}-{how}-{'PAS' if recompute else 'PAFS'}{'' if backtrack else '-NB'}"


def matrix(e, length, recompute, backtrack, balancing, ratio=True):
    return path_matrix(e, count_probabilities(length), recompute, backtrack, balancing, ratio)


def check(e, P, proposed, backtrack):
    may_run_out = not backtrack or e.target.space.windowed.any()  # of sites to visit: then it stays
    assert proposed.max() <= 1 + 1e-12
    check_matrix(P, e.pi, np.ones(len(P)) if may_run_out else proposed)


@pytest.mark.parametrize(("build", "how", "recompute", "backtrack"), CASES, ids=[name(*c) for c in CASES])
@pytest.mark.by_default(
    "binary-gradient-PAS", "binary-exact-PAFS", "bounded-exact-PAFS", "bounded-gradient-PAS"
)
def test_matrix(build, how, recompute, backtrack):
    """Every length, the balancings in turn; --runslow of the next test adds what is compiled."""
    e = small(build, how)
    for n, length in enumerate(LENGTHS[build]):
        for balancing in BALANCINGS if length <= 2 else [BALANCINGS[n % 4]]:
            P, proposed = matrix(e, length, recompute, backtrack, balancing)
            check(e, P, proposed, backtrack)


CHOSEN = [
    (binary, "exact", False, True, 3, "sqrt"),
    (categorical, "gradient", False, True, 2.5, "barker"),
    (mixed, "exact", False, True, 2, "max"),
    (bounded, "gradient", False, False, 2, "min"),
    (mixed, "exact", False, False, 2, "sqrt"),
    (windowed, "gradient", True, True, 2, "sqrt"),
    (categorical, "exact", True, False, 2, "barker"),
]
# With these, paths and ways that are compiled differently come once each: two values and several, windows
# alone and beside other sites. The matrices above are of every combination.
ALL = [
    *CHOSEN,
    (geometric, "exact", False, True, 2, "sqrt"),
    (windowed, "gradient", True, False, 2, "min"),
    (mixed, "exact", True, True, 2, "max"),
]


@pytest.mark.parametrize(
    ("build", "how", "recompute", "backtrack", "length", "balancing"),
    ALL,
    ids=[f"{name(*c[:4])}-{c[4]}-{c[5]}" for c in ALL],
)
@pytest.mark.by_default("binary-exact-PAFS-3-sqrt")
def test_compiled_steps_do_what_was_enumerated(build, how, recompute, backtrack, length, balancing):
    e = small(build, how)
    case = ALL.index((build, how, recompute, backtrack, length, balancing))
    ends = run_steps(e, *path_auxiliary(length, recompute, backtrack, balancing), seed=case)
    check_runs(ends, matrix(e, length, recompute, backtrack, balancing)[0])
    if length > 1 and case < len(CHOSEN) and not (recompute and how == "exact"):
        with pytest.raises(AssertionError):
            check_runs(ends, matrix(e, length, recompute, backtrack, balancing, ratio=False)[0])


@pytest.mark.slow
def test_a_range_of_lengths():
    """L in {3, 4}, and 1 once in 6 times."""
    e = small(binary, "exact")
    pmf = {1: 1 / 6, 3: 5 / 12, 4: 5 / 12}
    P, proposed = path_matrix(e, pmf, False, True, "sqrt")
    check(e, P, proposed, True)
    check_runs(run_steps(e, *path_auxiliary((3, 4)), seed=1), P)


@pytest.mark.slow
def test_a_tuned_length():
    """A kernel made to adapt, at the upper bound of its lengths."""
    e, (recompute, backtrack) = small(five, "exact"), (True, False)
    for way in WAYS:
        assert path_auxiliary("adapt", *way)[0].tuned.bounds(e.target.space) == (1.5, 2.5)
    kernel, params = path_auxiliary("adapt", recompute, backtrack)
    P, proposed = matrix(e, 2.5, recompute, backtrack, "sqrt")
    check(e, P, proposed, backtrack)
    check_runs(run_steps(e, kernel, {**params, "path_length": 2.5}, seed=2), P)


@pytest.mark.slow
@pytest.mark.parametrize("balancing", ["barker", "max"])
def test_property_1(balancing):
    """Along any path the acceptance of PAS is Z(x) / Z(y) (Sun et al. 2022, Eq. 4)."""
    kernel, _ = path_auxiliary(4, recompute=True, balancing=balancing)
    e = small(mixed, "exact")

    @jax.jit
    def run(key, x, target):
        state = kernel.init(x, target)
        new, info = kernel.step(key, state, target, {"path_length": 4.0})
        return info.accept, info.accepted, state.carry.log_scale, new.carry.log_scale

    seen = 0
    for n, x in enumerate(np.repeat(e.states, 10, axis=0)):
        accept, accepted, here, there = run(jax.random.key(n), x, e.target)
        if accepted:
            seen += 1
            assert abs(min(1.0, float(jnp.exp(here - there))) - float(accept)) < 1e-10
    assert seen > 100


def test_parity():
    """PAS leaves the low state in O(1) steps where one flip needs about exp(U) (Sun et al. 2022, section
    5.2).
    """
    space = pmd.Space.build({"x": (np.zeros(20), np.ones(20))})
    target = pmd.target_from_logdensity(lambda x: -8.0 * (x.sum() % 2), space)

    def moved(kernel, params):
        @jax.jit
        def run(keys):
            def one(key):
                def body(state, key):
                    new, _ = kernel.step(key, state, target, params)
                    return new, (new.x != state.x).any()

                return jax.lax.scan(body, kernel.init(jnp.zeros(20, int), target), jax.random.split(key, 50))[
                    1
                ]

            return jax.vmap(one)(keys)

        return float(np.asarray(run(jax.random.split(jax.random.key(0), 20))).mean())

    # paths of even length, which is 1 of 3 at a mean of 2, lead to another low state and are accepted
    assert moved(*path_auxiliary(2, recompute=True)) > 0.25
    assert moved(*pmd.kernels.gibbs_with_gradients(1)) < 0.01


def lattice():
    x = pm.Bernoulli("x", np.full((8, 8), 0.5), shape=(8, 8))
    s = 2 * x - 1
    pm.Potential("e", 0.4 * ((s[:, 1:] * s[:, :-1]).sum() + (s[1:] * s[:-1]).sum()))


def counts():
    r = np.random.default_rng(3)
    y = r.binomial(r.poisson(6.0, 26)[:, None], 0.45, size=(26, 3))
    N = pm.Poisson("N", 6.0, shape=26, initval=y.max(1) + 3)
    c = pm.Categorical("c", p=[0.2, 0.5, 0.3], shape=26)
    pm.Binomial("y", n=N[:, None], p=pt.as_tensor([0.3, 0.45, 0.6])[c][:, None], observed=y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "recompute", "backtrack"),
    [(lattice, True, False), (lattice, False, True), (counts, False, True)],
)
def test_no_stale_cache(build, recompute, backtrack):
    with pm.Model() as model:
        build()
    x, target = pmd.target_from_model(model).at(model.initial_point())
    kernel, params = path_auxiliary(3, recompute, backtrack)
    state = jax.jit(lambda k, t: pmd.kernels.loop(kernel, k, kernel.init(x, t), t, params, 100))(
        jax.random.key(0), target
    )[0]
    assert (np.asarray(state.x) != x).sum() > 3
    np.testing.assert_allclose(state.logdensity, target.logdensity(state.x), rtol=1e-10)
    fresh = np.asarray(target.differences(state.x))
    np.testing.assert_array_equal(np.isfinite(fresh), np.isfinite(state.differences))
    np.testing.assert_allclose(
        np.asarray(state.differences)[np.isfinite(fresh)], fresh[np.isfinite(fresh)], rtol=1e-9, atol=1e-9
    )


# ---------------------------------------------------------------- differences beyond what floats can hold
@pytest.mark.parametrize(
    ("cliff", "recompute", "backtrack"),
    [
        (800.0, False, False),
        (5000.0, True, True),
        (50.0, False, True),
        (5000.0, False, True),
        (800.0, True, False),
    ],
)
@pytest.mark.by_default("800.0-False-False", "5000.0-True-True")
def test_cliffs_are_not_climbed(cliff, recompute, backtrack):
    """Where every flip from the mode costs more than a float can tell from nothing, nothing may leave the
    mode.
    """
    space = pmd.Space.build({"x": (np.zeros(3), np.ones(3))})
    target = pmd.target_from_logdensity(lambda x: -cliff * x.sum(), space)
    kernel, params = path_auxiliary(3.0, recompute, backtrack)
    run = jax.jit(
        jax.vmap(lambda key: kernel.step(key, kernel.init(jnp.zeros(3, int), target), target, params)[0].x)
    )
    assert (np.asarray(run(jax.random.split(jax.random.key(0), 2000))) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("cliff", [200.0, 1500.0])
def test_paths_across_a_cliff(cliff):
    """A path without backtracking whose way home runs out of weight."""
    table = np.full((2, 2, 2), -2 * cliff)
    table[0, 0, 0], table[1, 0, 0], table[1, 1, 0], table[1, 1, 1] = 0.0, -cliff, 0.0, -0.5
    space = pmd.Space.build({"x": (np.zeros(3), np.ones(3))})
    target = pmd.target_from_logdensity(lambda x: jnp.asarray(table)[x[0], x[1], x[2]], space)
    modes = np.array([[0, 0, 0], [1, 1, 0], [1, 1, 1]])
    p = np.exp([0.0, 0.0, -0.5])
    n = 20_000
    start = np.random.default_rng(0).choice(3, n, p=p / p.sum())
    kernel, params = path_auxiliary(3.0, True, False)
    run = jax.jit(jax.vmap(lambda key, x: kernel.step(key, kernel.init(x, target), target, params)[0].x))
    end = np.asarray(run(jax.random.split(jax.random.key(1), n), modes[start]))
    counts = [(end == m).all(1).sum() for m in modes]
    assert sum(counts) == n
    assert stats.chisquare(counts, n * p / p.sum()).pvalue > 1e-4
