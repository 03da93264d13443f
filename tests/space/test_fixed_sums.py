"""Vectors with fixed sums: their space, and differences of two counts that change together, against the
model's own log density.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.parts import in_place
from pymc_discrete.space.constraints import FixedSums
from tests.tools.interpreted import interpreted
from tests.tools.oracle import oracle, possible_states


# ---------------------------------------------------------------- models
def one_vector():
    p = pm.Dirichlet("p", np.ones(4))
    pm.Multinomial("x", 6, p)


def vectors_of_several_sums():
    x = pm.DirichletMultinomial("x", n=np.array([0, 3, 5]), a=np.array([0.5, 2.0, 1.3]), shape=(3, 3))
    pm.Potential("rows", 0.3 * (x[0] * x[1]).sum() - 0.2 * (x[1] * x[2]).sum())


def within_a_vector():
    """Elements of two and of three counts of a vector."""
    x = pm.Multinomial("x", 5, np.array([0.1, 0.2, 0.3, 0.4]))
    pm.Potential("e", 0.3 * x[0] * x[1] - 0.1 * x[1] * x[2] * x[3] + 0.5 * pt.eq(x[0], x[3]))


def only_by_two():
    """A count that is possible with one value of another only: every state between the two is impossible."""
    x = pm.Multinomial("x", 6, np.array([0.3, 0.2, 0.5]), initval=[2, 2, 2])
    pm.Potential("e", pt.switch(pt.eq(x[0], x[1]) | pt.eq(x[0] + x[1], 4), 0.0, -np.inf))


def beside_free_sites():
    x = pm.Multinomial("x", 4, np.array([0.3, 0.2, 0.5]))
    b, k = pm.Bernoulli("b", 0.4, shape=2), pm.Poisson("k", 2.0)
    pm.Potential("e", 0.5 * (b * x[:2]).sum() - 0.1 * k * x[2] + 0.2 * b[0] * x[0] * x[1])


def quadratic():
    r = np.random.default_rng(1)
    x = pm.Multinomial(
        "x", np.array([3, 4]), np.array([[0.1, 0.1, 0.1, 0.3, 0.4], [0.2, 0.2, 0.3, 0.2, 0.1]])
    )
    pm.Normal("y", pt.dot(r.normal(size=(12, 10)), x.flatten()), 1.5, observed=r.normal(size=12))


def linear_map():
    r = np.random.default_rng(2)
    x = pm.Multinomial("x", np.array([3, 4, 2]), np.full((3, 3), 1 / 3))
    pm.Poisson("y", pt.exp(pt.dot(0.1 * r.normal(size=(12, 9)), x.flatten())), observed=r.poisson(2, 12))


def sums_of_columns():
    x = pm.Multinomial("x", np.array([3, 4, 2, 5, 1, 6, 2]), np.full((7, 3), 1 / 3))
    pm.Poisson("y", 0.5 + x.sum(axis=0), observed=[7, 8, 9])


def products_in_a_map():
    """A dense term of elements that two counts of a vector share."""
    r = np.random.default_rng(3)
    x = pm.Multinomial("x", 5, np.full(7, 1 / 7), initval=[1, 1, 1, 1, 0, 1, 0])
    pm.Normal("y", pt.dot(r.normal(size=(10, 6)), x[1:] * x[:-1]), 1.5, observed=r.normal(size=10))


def dense_without_a_map():
    x = pm.Multinomial("x", 5, np.full(6, 1 / 6))
    pm.Potential("e", -pt.log1p(pt.sqr(x).sum()) + 0.1 * pt.max(x))


def large():
    x = pm.Multinomial("x", np.array([900, 700]), np.array([[0.2, 0.3, 0.5], [0.5, 0.4, 0.1]]))
    pm.Normal("y", x[:, 0] - x[:, 1], 5.0, observed=[-80, 60])


MODELS = (
    one_vector,
    vectors_of_several_sums,
    within_a_vector,
    only_by_two,
    beside_free_sites,
    quadratic,
    linear_map,
    sums_of_columns,
    products_in_a_map,
    dense_without_a_map,
    large,
)


@functools.cache
def built(build, window="auto"):
    with pm.Model() as model:
        build()
    names = [str(v.name) for v in model.discrete_value_vars]
    return model, pmd.target_from_model(model, names, differences="exact", window=window)


def moves_of(target, n):
    """Every ordered pair of sites of a set (P, 2), and candidates of the first site relative to it."""
    v = target.space.variables[n]
    pairs = [pair for sites in v.constraint.sites for pair in itertools.permutations(sites, 2)]
    return np.array(pairs)


def differences_of(n):
    """A function (target, sites, values, x) of what joint changes of sites of variable n would change."""
    return interpreted(
        lambda target, sites, values, x: target.joint_differences(n, sites, values, x, target.carried(x))
    )


def check(build, window="auto", made=built):
    model, target = made(build, window)
    logp = oracle(model)
    at, found = possible_states(target, logp)
    n = next(n for n, v in enumerate(target.space.variables) if v.constraint is not None)
    start = target.space.starts[n]
    pairs, steps = moves_of(target, n), np.array([-7, -3, -2, -1, 0, 1, 2, 4])
    differences, live = differences_of(n), 0
    for x in found:
        now = x[start + pairs]
        values = now[:, None] + np.stack([steps, -steps], -1)
        got = differences(at, pairs, values, x)
        base = logp(at.point(x))
        assert np.isclose(
            float(at.logdensity(x)) - float(at.logdensity(found[0])), base - logp(at.point(found[0]))
        )
        for (pair, k), d in np.ndenumerate(got):
            y = x.copy()
            y[start + pairs[pair]] = values[pair, k]
            inside = ((y >= target.space.lower) & (y <= target.space.upper)).all()
            want = logp(at.point(y)) - base if inside else -np.inf
            np.testing.assert_allclose(d, want, atol=1e-9 * (1 + abs(base)), rtol=1e-9, err_msg=f"{x} -> {y}")
            live += np.isfinite(want) and want != 0
    assert live > 10


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
@pytest.mark.by_default("vectors_of_several_sums", "within_a_vector", "products_in_a_map", "quadratic")
def test_differences_of_pairs_are_those_of_the_model(build):
    check(build)


def test_on_stretches():
    check(large, "geometric")


def test_the_check_sees_elements_that_count_twice(monkeypatch):
    """Elements of both sites, as if they were of the second one alone too."""
    monkeypatch.setattr(
        in_place, "counted_once", lambda var, elements, n, *rest: jnp.asarray(elements.mask)[rest[-1].each]
    )
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(within_a_vector, made=built.__wrapped__)


@pytest.mark.parametrize(
    ("build", "mixed"), [(one_vector, False), (within_a_vector, False), (sums_of_columns, True)]
)
def test_the_sum_joins_no_counts(build, mixed):
    """The comparison of the sum with n is left out, so that prior terms have one count each."""
    _, target = built(build)
    assert bool(target.interactions.scanned_sets) == mixed
    assert not target.interactions.colours
    if build is one_vector:
        assert [s.inner for s in target.interactions.coloured_sets] == [False]
        assert not len(target.interactions.pairs)


def splits(n, cells):
    """All vectors of `cells` counts with the sum n."""
    return [c for c in itertools.product(range(n + 1), repeat=cells) if sum(c) == n]


def a_sum_against_another_count():
    x = pm.Multinomial("x", 3, np.array([0.2, 0.3, 0.5]))
    y = pm.Multinomial("y", 4, np.array([0.5, 0.5]))
    pm.Potential("e", -3.0 * pt.neq(x.sum(), y[0]))
    return {x: splits(3, 3), y: splits(4, 2)}


def negative_anywhere(axis):
    x = pm.Multinomial("x", np.array([2, 3]), np.array([0.4, 0.6]), shape=(2, 2))
    b = pm.Bernoulli("b", 0.3)
    pm.Potential("e", pt.switch(pt.any(pt.lt(x, 0), axis=axis), -np.inf, 1.5 * b))
    return {x: [np.stack(rows) for rows in itertools.product(splits(2, 2), splits(3, 2))], b: [0, 1]}


def sorted_against_a_range():
    o, b = pmd.Permutation("o", 3, shape=(2, 3)), pm.Bernoulli("b", 0.3)
    e = pt.switch(pt.any(pt.neq(pt.sort(o, axis=-1), np.arange(3))), -np.inf, 1.5 * b)
    pm.Potential("e", e - pt.any(pt.neq(pt.sort(o, axis=0), np.arange(3))))
    orders = list(itertools.permutations(range(3)))
    return {o: [np.stack(rows) for rows in itertools.product(orders, orders)], b: [0, 1]}


@pytest.mark.parametrize(
    "build",
    [
        a_sum_against_another_count,
        functools.partial(negative_anywhere, None),
        functools.partial(negative_anywhere, 0),
        sorted_against_a_range,
    ],
    ids=["sum", "any", "first axis", "sorted"],
)
@pytest.mark.by_default("sorted")
def test_comparisons_of_the_users_own_stay(build):
    """What looks like the check of a vector's support, in another term than its own log density."""
    with pm.Model() as model:
        values = {rv.name: states for rv, states in build().items()}
    target = pmd.target_from_model(model, list(values))
    logp, start = oracle(model), model.initial_point()
    points = [
        {name: np.asarray(v, start[name].dtype) for name, v in zip(values, state, strict=True)}
        for state in itertools.product(*values.values())
    ]
    found = interpreted(jax.vmap(target.logdensity))(np.array([target.space.ravel(p) for p in points]))
    wanted = np.array([logp(p) for p in points])
    np.testing.assert_allclose(found - found[0], wanted - wanted[0], atol=1e-9)


def test_sets_that_interact_have_different_colours():
    _, target = built(vectors_of_several_sums)
    assert [(s.sets.tolist(), s.inner) for s in target.interactions.coloured_sets] == [
        ([0, 2], False),
        ([1], False),
    ]
    _, target = built(within_a_vector)
    assert [(s.sets.tolist(), s.inner) for s in target.interactions.coloured_sets] == [([0], True)]


def test_single_changes_leave_the_support():
    """`differences` and `logdensity` are those of the model: a change of one count has density zero."""
    _, target = built(beside_free_sites)
    x, at = target.at(target.density.start)
    d, (values, _) = np.asarray(at.differences(x)), target.space.neighbours(x)
    first, v = target.space.blocks[[m.name for m in target.space.members].index("x")]
    sites = np.arange(first, first + v.size)
    assert (d[sites][values[sites] == x[sites, None]] == 0).all()
    assert (d[sites][values[sites] != x[sites, None]] == -np.inf).all()
    y = x.copy()
    y[sites[0]] += 1
    assert float(at.logdensity(y)) == -np.inf
    assert np.isfinite(d[~target.space.constrained]).any(axis=1).all()


# ---------------------------------------------------------------- the space
def test_bounds_follow_from_the_sum():
    space = pmd.Space.build({"x": (np.array([0, 1, 0]), np.array([9, 2, 3]))}, sums={"x": 6})
    assert space.lower.tolist() == [1, 1, 0]
    assert space.upper.tolist() == [5, 2, 3]
    assert space.constrained.all()
    assert space.meets_constraints(np.array([3, 1, 2]))
    assert not space.meets_constraints(np.array([3, 1, 1]))


def test_random_vectors_have_the_sums():
    rng = np.random.default_rng(0)
    lower, upper = np.zeros(6, int), np.array([2, 5, 1, 9, 0, 9])
    sums = FixedSums.build("x", [4, 11], (2, 3), lower, upper)
    lower, upper = sums.tightened(lower, upper)
    for _ in range(50):
        x = sums.random(lower, upper, rng)
        assert sums.met(x).all()
        assert ((x >= lower) & (x <= upper)).all()


@pytest.mark.parametrize(
    ("bounds", "sums", "message"),
    [
        ((0, 3), {"x": 2}, "'x' is a scalar"),
        ((np.zeros(3), np.ones(3)), {"x": 4}, "'x' cannot have the sum 4.*sums from 0 to 3"),
        ((np.zeros((2, 3)), np.ones((2, 3))), {"x": [1, 2, 3]}, r"sums of 'x' have the shape \(3,\).*\(2,\)"),
        ((np.zeros(3), np.ones(3)), {"x": 1.5}, "sums of 'x' must be integers"),
        ((np.zeros(3), np.ones(3)), {"y": 1}, "sums names 'y', which is no variable"),
    ],
)
def test_bad_sums(bounds, sums, message):
    with pytest.raises(ValueError, match=message):
        pmd.Space.build({"x": bounds}, sums=sums)
