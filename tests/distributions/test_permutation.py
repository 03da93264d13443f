"""The distribution of permutations: its log density, draws, support point, shapes and what it refuses."""

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln

import pymc_discrete as pmd
from pymc_discrete.distributions import permutation
from tests.tools.statistics import g_test

W = np.random.default_rng(2).normal(0, 1, (4, 4))
ORDERS = np.array(list(itertools.permutations(range(4))))
FAST = {"mode": "FAST_COMPILE"}


def logp_of(rv, value):
    return pm.logp(rv, np.asarray(value)).eval(**FAST)


# ---------------------------------------------------------------- log density
def test_log_density():
    uniform, weighted = pmd.Permutation.dist(4), pmd.Permutation.dist(4, W)
    np.testing.assert_allclose([logp_of(uniform, x) for x in ORDERS], -gammaln(5))
    np.testing.assert_allclose([logp_of(weighted, x) for x in ORDERS], W[np.arange(4), ORDERS].sum(axis=1))
    for none in ([0, 1, 2, 2], [1, 2, 3, 4], [-1, 0, 1, 2]):
        assert logp_of(uniform, none) == logp_of(weighted, none) == -np.inf


def test_log_density_of_many():
    both = np.stack([W, 2 * W])
    x = np.stack([ORDERS[3], ORDERS[17]])
    np.testing.assert_allclose(logp_of(pmd.Permutation.dist(4, shape=(2, 4)), x), [-gammaln(5)] * 2)
    want = [w[np.arange(4), order].sum() for w, order in zip(both, x, strict=True)]
    np.testing.assert_allclose(logp_of(pmd.Permutation.dist(4, both), x), want)
    same = [W[np.arange(4), order].sum() for order in x]
    np.testing.assert_allclose(logp_of(pmd.Permutation.dist(4, W, shape=(2, 4)), x), same)
    assert logp_of(pmd.Permutation.dist(4, both), [ORDERS[0], [0, 0, 1, 2]])[1] == -np.inf


# ---------------------------------------------------------------- draws
def number_of(draws):
    return np.argmax((draws[:, None] == ORDERS).all(axis=-1), axis=1)


@pytest.mark.parametrize("weights", [None, W], ids=["uniform", "weighted"])
def test_draws(weights):
    rv = pmd.Permutation.dist(4, weights, shape=(5000, 4))
    draws = pm.draw(rv, random_seed=1, **FAST)
    assert draws.dtype == np.int64
    density = np.exp(0 if weights is None else weights[np.arange(4), ORDERS].sum(axis=1)) * np.ones(24)
    assert g_test(np.bincount(number_of(draws), minlength=24), density / density.sum()) > 1e-3


def test_the_sum_over_all_orders_is_the_permanent():
    total = permutation.log_sums(W.tobytes(), 4)[0]
    np.testing.assert_allclose(total, np.log(np.exp(W[np.arange(4), ORDERS].sum(axis=1)).sum()))


def test_draws_of_a_batch_of_weights():
    """Weights that leave one order."""
    sure = 100.0 * np.eye(3)[np.array([[2, 0, 1], [1, 2, 0]])]
    rv = pmd.Permutation.dist(3, sure)
    assert pm.draw(rv, 2, random_seed=1, **FAST).tolist() == [[[2, 0, 1], [1, 2, 0]]] * 2


def test_long_weighted_permutations_are_not_drawn():
    rv = pmd.Permutation.dist(17, np.zeros((17, 17)))
    with pytest.raises(ValueError, match=r"17 values cannot be drawn.*16 at most.*pmd.sample"):
        rv.eval(**FAST)


# ---------------------------------------------------------------- in a model
def test_support_points():
    with pm.Model() as model:
        pmd.Permutation("plain", 4)
        pmd.Permutation("many", 4, shape=(2, 3, 4))
        pmd.Permutation("best", 4, W)
        pmd.Permutation("each", 4, np.stack([W, -W]))
        pmd.Permutation("same", 4, W, shape=(2, 4))
        pmd.Permutation("given", 4, initval=[3, 2, 1, 0])
    point = model.initial_point()
    assert point["plain"].tolist() == [0, 1, 2, 3]
    assert point["many"].tolist() == [[[0, 1, 2, 3]] * 3] * 2
    best = ORDERS[W[np.arange(4), ORDERS].sum(axis=1).argmax()].tolist()
    worst = ORDERS[W[np.arange(4), ORDERS].sum(axis=1).argmin()].tolist()
    assert point["best"].tolist() == best
    assert point["each"].tolist() == [best, worst]
    assert point["same"].tolist() == [best] * 2
    assert point["given"].tolist() == [3, 2, 1, 0]


def test_dims_and_data():
    """Weights that are data may change; those of another shape are an error."""
    with pm.Model(coords={"race": ["a", "b"], "place": [1, 2, 3, 4]}) as model:
        w = pm.Data("w", W)
        x = pmd.Permutation("x", 4, w, dims=("race", "place"))
    assert x.eval(**FAST).shape == (2, 4)
    logp = model.compile_logp(**FAST)
    at = {"x": ORDERS[[3, 17]]}
    before = logp(at)
    w.set_value(2 * W)
    assert logp(at) == pytest.approx(2 * before)
    w.set_value(np.zeros((3, 3)))
    with pytest.raises(AssertionError):
        logp(at)


def test_observed():
    with pm.Model() as model:
        pmd.Permutation("x", 4, observed=ORDERS[[3, 17]])
    want = -2 * np.log(24)
    assert model.compile_logp(**FAST)({}) == pytest.approx(want)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 0}, ValueError, "'x' needs at least one value, got n = 0"),
        ({"n": 3.0}, TypeError, "n of 'x' is the number of its values, an integer, got 3.0"),
        ({"n": 3, "weights": W}, ValueError, r"weights of 'x' have the shape \(4, 4\).*\(..., 3, 3\)"),
        ({"n": 3, "weights": np.zeros(3)}, ValueError, r"weights of 'x' have the shape \(3,\)"),
        ({"n": 2, "weights": [[0, np.nan], [1, 2]]}, ValueError, r"must be finite, got nan at \(0, 1\)"),
        ({"n": 2, "weights": [[0, 1], [1, -np.inf]]}, ValueError, r"got -inf at \(1, 1\).*pm.Potential"),
        ({"n": 3, "shape": (2, 4)}, ValueError, "has its 3 values, and its shape or dims give it 4"),
        ({"n": 3, "dims": "four"}, ValueError, "has its 3 values, and its shape or dims give it 4"),
        ({"n": 3, "observed": [0, np.nan, 1]}, ValueError, "'x' is observed in part.*initval=.*pm.Potential"),
        ({"n": 2, "weights": np.eye(2), "observed": [0, 1]}, ValueError, "lacks the normalising constant"),
        (
            {"n": 4, "observed": [0, 1, 2, 2]},
            ValueError,
            "'x' is observed as .* 2 more than once, 3 not at all",
        ),
        (
            {"n": 3, "observed": [[2, 0, 1], [1, 2, 3]]},
            ValueError,
            r"at \(1,\) .* 3 from outside, 0 not at all",
        ),
        (
            {"n": 3, "observed": [0, 1]},
            ValueError,
            r"observed values of 'x' have the shape \(2,\).*\(..., 3\)",
        ),
    ],
)
def test_refused(arguments, error, message):
    with pm.Model(coords={"four": range(4)}), pytest.raises(error, match=message):
        pmd.Permutation("x", **arguments)


def test_random_weights_are_refused():
    with pm.Model():
        scale = pm.HalfNormal("scale")
        with pytest.raises(ValueError, match=r"weights of 'x' depend on other random variables.*permanent"):
            pmd.Permutation("x", 4, scale * W)
