"""PAS and PAFS against enumeration over all paths."""

import functools
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
from tests.tools.interpreted import interpreted
from tests.tools.transition_matrices import count_probabilities, path_matrix

BALANCINGS = ("sqrt", "barker", "min", "max")
WAYS = list(itertools.product((False, True), (True, False)))  # recompute, backtrack
# enumeration is over (moves)^L paths: what a kind of site can bear
LENGTHS = {
    binary: (1, 2, 2.5, 3),
    categorical: (1, 2, 2.5, 3),
    bounded: (1, 2, 2.5),
    windowed: (1, 2),
    geometric: (1, 2),
    mixed: (1, 2),
}
# (differences, recompute, backtrack), all eight, in pairs that share nothing: each kind of site has a pair or
# two, and so both values of each of the three
OPPOSITE = [
    [("exact", False, True), ("gradient", True, False)],
    [("gradient", True, True), ("exact", False, False)],
    [("exact", True, True), ("gradient", False, False)],
    [("gradient", False, True), ("exact", True, False)],
]
PAIRS = {binary: (0, 1), categorical: (2,), bounded: (0, 1), windowed: (3,), geometric: (3,), mixed: (2,)}
CASES = [(b, *options) for b in SMALL for n in PAIRS[b] for options in OPPOSITE[n]]


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
    e, case = small(build, how), CASES.index((build, how, recompute, backtrack))
    first = case // 2 + 2 * (case % 2)  # so that a pair of cases has all balancings with two lengths
    for n, length in enumerate(LENGTHS[build], first):
        P, proposed = matrix(e, length, recompute, backtrack, BALANCINGS[n % 4])
        check(e, P, proposed, backtrack)


# Every way of making paths on sites of every kind; two values alone, which are drawn in a way of their own;
# and windows alone, with estimates. The matrices above are of other combinations.
CHOSEN = [
    (binary, "exact", False, True, 3, "sqrt"),
    (mixed, "exact", False, True, 2, "max"),
    (mixed, "exact", False, False, 2, "sqrt"),
    (windowed, "gradient", True, True, 2, "sqrt"),
    (mixed, "exact", True, False, 2, "barker"),
]


@pytest.mark.parametrize(
    ("build", "how", "recompute", "backtrack", "length", "balancing"),
    CHOSEN,
    ids=[f"{name(*c[:4])}-{c[4]}-{c[5]}" for c in CHOSEN],
)
@pytest.mark.by_default("binary-exact-PAFS-3-sqrt")
def test_compiled_steps_do_what_was_enumerated(build, how, recompute, backtrack, length, balancing):
    e = small(build, how)
    case = CHOSEN.index((build, how, recompute, backtrack, length, balancing))
    ends = run_steps(e, *path_auxiliary(length, recompute, backtrack, balancing), 20_000, case)
    P, proposed = matrix(e, length, recompute, backtrack, balancing)
    check(e, P, proposed, backtrack)
    check_runs(ends, P)
    if not (recompute and how == "exact"):
        with pytest.raises(AssertionError):
            check_runs(ends, matrix(e, length, recompute, backtrack, balancing, ratio=False)[0])


def test_bounds_of_a_tuned_length():
    for way in WAYS:
        assert path_auxiliary("adapt", *way)[0].tuned.bounds(small(five, "exact").target.space) == (1.5, 2.5)


@pytest.mark.slow
def test_property_1():
    """Along any path the acceptance of PAS is Z(x) / Z(y) (Sun et al. 2022, Eq. 4)."""
    kernel, _ = path_auxiliary(4, recompute=True, balancing="barker")
    e = small(mixed, "exact")

    @interpreted
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def run(seed, x, target):
        state = kernel.init(x, target)
        new, info = kernel.step(jax.random.key(seed), state, target, {"path_length": 4.0})
        return info.accept, info.accepted, state.carry.log_scale, new.carry.log_scale

    accept, accepted, here, there = run(np.arange(len(e.states)), e.states, e.target)
    assert accepted.sum() > 10
    np.testing.assert_allclose(accept[accepted], np.minimum(1, np.exp(here - there))[accepted], atol=1e-10)


def test_parity():
    """PAS leaves the low state in O(1) steps where one flip needs about exp(U) (Sun et al. 2022, section
    5.2).
    """
    space = pmd.Space.build({"x": (np.zeros(8), np.ones(8))})
    target = pmd.target_from_logdensity(lambda x: -8.0 * (x.sum() % 2), space)

    def moved(kernel, params):
        def one(key, x):
            def body(state, key):
                new, _ = kernel.step(key, state, target, params)
                return new, (new.x != state.x).any()

            return jax.lax.scan(body, kernel.init(x, target), jax.random.split(key, 12))[1]

        run = interpreted(lambda x: jax.vmap(one, (0, None))(jax.random.split(jax.random.key(0), 8), x))
        return run(np.zeros(8, int)).mean()

    # paths of even length, which is 1 of 3 at a mean of 2, lead to another low state and are accepted
    assert moved(*path_auxiliary(2, recompute=True)) > 0.25
    assert moved(*pmd.kernels.gibbs_with_gradients(1)) < 0.01


def lattice():
    x = pm.Bernoulli("x", np.full((8, 8), 0.5), shape=(8, 8))
    s = 2 * x - 1
    pm.Potential("e", 0.4 * ((s[:, 1:] * s[:, :-1]).sum() + (s[1:] * s[:-1]).sum()))


def counts():
    r = np.random.default_rng(3)
    y = r.binomial(r.poisson(6.0, 8)[:, None], 0.45, size=(8, 3))
    N = pm.Poisson("N", 6.0, shape=8, initval=y.max(1) + 3)
    c = pm.Categorical("c", p=[0.2, 0.5, 0.3], shape=8)
    pm.Binomial("y", n=N[:, None], p=pt.as_tensor([0.3, 0.45, 0.6])[c][:, None], observed=y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "recompute", "backtrack", "transitions"),
    [(lattice, True, False, 4), (counts, False, True, 10)],
)
def test_no_stale_cache(build, recompute, backtrack, transitions):
    with pm.Model() as model:
        build()
    x, target = pmd.target_from_model(model).at(model.initial_point())
    x = np.random.default_rng(0).integers(2, size=x.shape) if build is lattice else x
    kernel, params = path_auxiliary(3, recompute, backtrack)

    @interpreted
    def run(seed, target):
        start, key = kernel.init(x, target), jax.random.key(seed)
        state = pmd.kernels.loop(kernel, key, start, target, params, transitions)[0]
        return state, kernel.refresh(state, target)

    state, fresh = run(0, target)
    assert (state.x != x).sum() > 3
    np.testing.assert_allclose(state.logdensity, fresh.logdensity, rtol=1e-10)
    finite = np.isfinite(fresh.differences)
    np.testing.assert_array_equal(finite, np.isfinite(state.differences))
    np.testing.assert_allclose(state.differences[finite], fresh.differences[finite], rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- differences beyond what floats can hold
@pytest.mark.parametrize(
    ("cliff", "recompute", "backtrack"),
    [
        (800.0, False, False),
        (5000.0, True, True),
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

    @interpreted
    def run(x):
        start = kernel.init(x, target)
        step = lambda key: kernel.step(key, start, target, params)[0].x
        return jax.vmap(step)(jax.random.split(jax.random.key(0), 60))

    assert (run(np.zeros(3, int)) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("cliff", [1500.0])
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
