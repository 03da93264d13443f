"""Permutations: their space, and differences of two places that exchange their values, against the model's
own log density.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.parts import in_place
from pymc_discrete.space.constraints import Permutations
from tests.space.test_fixed_sums import differences_of
from tests.tools.oracle import oracle, possible_states

RNG = np.random.default_rng(4)
W = RNG.normal(0, 1.5, (5, 5))
X = RNG.normal(size=(9, 5))


# ---------------------------------------------------------------- models
def uniform():
    pmd.Permutation("x", 4)


def weighted():
    pmd.Permutation("x", 5, W)


def weighted_batch():
    """Weights for each of two permutations, and data that join them."""
    x = pmd.Permutation("x", 5, np.stack([W, -W]), shape=(2, 5))
    pm.Normal("y", x[0] * x[1], 2.0, observed=np.arange(5.0))


def indexed():
    """Parameters of the items, read in their order."""
    x, mu = pmd.Permutation("x", 5), pm.Normal("mu", 0, 1, shape=5, initval=W[0])
    pm.Normal("y", mu[x], 0.7, observed=W[1])


def neighbours_in_the_order():
    """Elements of two places that stand beside each other, as of a tour."""
    x = pmd.Permutation("x", 5)
    pm.Potential("e", pt.as_tensor(W)[x, pt.roll(x, 1)].sum())


def pairwise():
    """Every two places."""
    x = pmd.Permutation("x", 5)
    i, j = np.triu_indices(5, 1)
    pm.Potential("e", pt.as_tensor(W)[x[i], x[j]].sum())


def three_places():
    x = pmd.Permutation("x", 5)
    pm.Potential("e", 0.3 * x[0] * x[1] - 0.1 * x[1] * x[2] * x[3] + 0.5 * pt.gt(x[0], x[4]))


def of_two_at_once():
    """Possible are orders with an even sum of the first two, so that most swaps are impossible."""
    x = pmd.Permutation("x", 5, initval=[0, 2, 1, 3, 4])
    pm.Potential("e", pt.switch(pt.eq((x[0] + x[1]) % 2, 0), 0.1 * x[0], -np.inf))


def plackett_luce():
    """A dense term: each choice among all that are left."""
    x = pmd.Permutation("x", 5)
    theta = pt.as_tensor(W[0])[x]
    left = pt.log(pt.cumsum(pt.exp(theta)[::-1]))[::-1]
    pm.Potential("e", (theta - left).sum())


def linear_map():
    x = pmd.Permutation("x", 5)
    pm.Normal("y", pt.dot(X, pt.as_tensor(W[1])[x]), 1.5, observed=X[:, 0])


def inverse():
    """Where each value stands."""
    x = pmd.Permutation("x", 5)
    pm.Normal("y", pt.argsort(x) * 1.0, 1.5, observed=W[2])


def beside_others():
    x, b = pmd.Permutation("x", 5), pm.Bernoulli("b", 0.4, shape=2)
    k, c = pm.Poisson("k", 2.0), pm.Multinomial("c", 4, np.array([0.3, 0.2, 0.5]))
    pm.Potential("e", 0.5 * (b * x[:2]).sum() - 0.1 * k * x[2] + 0.2 * (c * x[:3]).sum())


MODELS = (
    uniform,
    weighted,
    weighted_batch,
    indexed,
    neighbours_in_the_order,
    pairwise,
    three_places,
    of_two_at_once,
    plackett_luce,
    linear_map,
    inverse,
    beside_others,
)


@functools.cache
def built(build):
    with pm.Model() as model:
        build()
    names = [str(v.name) for v in model.discrete_value_vars]
    return model, pmd.target_from_model(model, names, differences="exact")


def check(build, made=built):
    """Of each pair of places: as they are, swapped, and two values that no permutation allows."""
    model, target = made(build)
    logp = oracle(model)
    at, found = possible_states(target, logp)
    n = next(n for n, v in enumerate(target.space.variables) if v.swaps)
    start, v = target.space.blocks[n]
    pairs = np.array([p for sites in v.constraint.sites for p in itertools.permutations(sites, 2)])
    differences, live = differences_of(n), 0
    for x in found:
        now = x[start + pairs]
        values = np.stack([now, now[:, ::-1], now[:, [0, 0]], (now + 1) % len(v.constraint.sites[0])], axis=1)
        got = differences(at, pairs, values, x)
        base = logp(at.point(x))
        for (pair, k), d in np.ndenumerate(got):
            y = x.copy()
            y[start + pairs[pair]] = values[pair, k]
            want = logp(at.point(y)) - base
            np.testing.assert_allclose(d, want, atol=1e-9 * (1 + abs(base)), rtol=1e-9, err_msg=f"{x} -> {y}")
            live += np.isfinite(want) and want != 0
    assert live > 10 or build is uniform


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
@pytest.mark.by_default("weighted_batch", "pairwise", "plackett_luce", "beside_others")
def test_differences_of_swaps_are_those_of_the_model(build):
    check(build)


def test_the_check_sees_elements_that_count_twice(monkeypatch):
    """Elements of both places, as if they were of the second one alone too."""
    monkeypatch.setattr(
        in_place, "counted_once", lambda var, elements, n, *rest: jnp.asarray(elements.mask)[rest[-1].each]
    )
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(three_places, made=built.__wrapped__)


def test_the_support_joins_no_places():
    """That the values differ is left out, so that the prior has one place per element."""
    for build in (uniform, weighted, indexed):
        _, target = built(build)
        assert not target.interactions.scanned_sets
        assert [s.inner for s in target.interactions.coloured_sets] == [False]
    assert [s.inner for s in built(pairwise)[1].interactions.coloured_sets] == [True]
    assert built(plackett_luce)[1].interactions.scanned_sets


def test_a_comparison_with_something_else_is_no_check():
    """Only `sort(x) != 0, ..., n - 1` says that x is no permutation."""
    with pm.Model() as model:
        x = pmd.Permutation("x", 3)
        pm.Potential("e", pt.switch(pt.any(pt.neq(pt.sort(x), np.array([0, 1, 1]))), -2.0, 0.0))
    target = pmd.target_from_model(model, "x")
    assert float(target.logdensity(np.array([1, 0, 2]))) == -2.0


def test_single_changes_leave_the_support():
    _, target = built(beside_others)
    x, at = target.at(target.density.start)
    d = np.asarray(at.differences(x))
    sites = target.space.numbers("x")
    now = np.arange(target.space.K) == x[sites, None]
    assert (d[sites][now] == 0).all()
    assert (d[sites][~now] == -np.inf).all()
    y = x.copy()
    y[sites[0]] = y[sites[1]]
    assert float(at.logdensity(y)) == -np.inf


# ---------------------------------------------------------------- the space
def test_the_space_of_long_permutations_has_all_values():
    """More values than those that a window is for."""
    space = pmd.Space.build({"x": (np.zeros(300), 299)}, permutations=["x"])
    assert space.K == 300
    assert not space.windowed.any()
    assert space.swapped.tolist() == list(range(300))
    assert space.meets_constraints(np.arange(300)[::-1])
    assert not space.meets_constraints(np.zeros(300, int))


def test_random_permutations():
    rng, of_two = np.random.default_rng(0), Permutations.build("x", (2, 3), np.zeros(6, int), np.full(6, 2))
    drawn = np.array([of_two.random(np.zeros(6, int), np.full(6, 2), rng) for _ in range(500)])
    assert all(of_two.met(x).all() for x in drawn)
    for x in ([0, 1, 2, 2, 1, 0], [0, 1, -1, 2, 2, 1], [0, 1, 3, 2, 2, 1]):
        want = [sorted(x[:3]) == [0, 1, 2], sorted(x[3:]) == [0, 1, 2]]
        assert of_two.met(np.array(x)).tolist() == of_two.met(jnp.array(x)).tolist() == want
    assert len(np.unique(drawn, axis=0)) == 36
    assert of_two.set_of.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("bounds", "names", "error", "message"),
    [
        ((0, 3), ["x"], ValueError, r"'x' has the shape \(\), and a permutation needs"),
        (
            (np.zeros(3), 3),
            ["x"],
            ValueError,
            r"'x' holds permutations of 0, ..., 2, and its support is \[0, 3\]",
        ),
        ((np.zeros(3), 2), ["y"], ValueError, "permutations names 'y', which is no variable"),
        ((np.zeros(3), 2), "x", TypeError, r"permutations must be a list of names, got 'x'"),
    ],
)
def test_bad_permutations(bounds, names, error, message):
    with pytest.raises(error, match=message):
        pmd.Space.build({"x": bounds}, permutations=names)
