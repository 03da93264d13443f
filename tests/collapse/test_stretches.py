"""The values of a site that are summed in a transition: exact, by enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
import scipy.stats

from pymc_discrete.collapse.marginalize import density_to_sum
from pymc_discrete.collapse.stretches import STRIDES, FarOut, Stretches
from pymc_discrete.collapse.sums import Sums
from pymc_discrete.runtime.model_settings import model_settings

pytestmark = pytest.mark.shares_programs

LOWER, UPPER = 2, 61


def stretches_of(length, lower=LOWER, upper=UPPER):
    return Stretches(*(np.array([v]) for v in (length, True, lower, upper)))


def distribution():
    """(S,) a distribution on LOWER..UPPER with a long tail."""
    p = scipy.stats.nbinom.pmf(np.arange(UPPER - LOWER + 1), 1.5, 0.15)
    return p / p.sum()


def after_a_move(holding, p):
    """(S,) the distribution of a site that is drawn from its stretch, of states with the distribution p.

    holding : (u, x) -> values, doublings, of one u and one x
    """
    states, grid = np.arange(LOWER, UPPER + 1), (np.arange(2**10) + 0.5) / 2**10
    over_states = jax.vmap(holding, in_axes=(None, 0))
    values, doublings = jax.jit(jax.vmap(over_states, in_axes=(0, None)))(grid[:, None], states[:, None])
    values, doublings = np.asarray(values)[:, :, 0], np.asarray(doublings)[:, :, 0]
    assert (values == states[:, None]).any(-1).all()  # the current value is among them
    possible = (values >= LOWER) & (values <= UPPER)
    index = np.where(possible, values - LOWER, 0)
    weights = np.where(possible, 2.0**doublings * p[index], 0.0)
    weights *= p[:, None] / weights.sum(-1, keepdims=True) / len(grid)
    return np.bincount(index.ravel(), weights.ravel(), minlength=len(p))


@pytest.mark.parametrize("usual", [2.0, 9.4, 30.0, 61.0, 200.0])
@pytest.mark.parametrize("length", [2, 3, 8, 9])
def test_a_move_within_a_stretch_leaves_a_distribution_as_it_is(length, usual):
    stretches, p = stretches_of(length), distribution()
    after = after_a_move(lambda u, x: stretches.about(u, x, jnp.array([usual])), p)
    np.testing.assert_allclose(after, p, atol=1e-12)


@pytest.mark.parametrize("stride", STRIDES)
def test_a_move_within_a_cell_that_is_laid_at_random_leaves_a_distribution_as_it_is(stride):
    stretches, p = stretches_of(8), distribution()

    def holding(u, x):
        values = stretches.anywhere(u, x, stride)
        return values, 0 * values

    np.testing.assert_allclose(after_a_move(holding, p), p, atol=1e-12)


def test_weights_that_are_left_out_are_noticed():
    stretches, p = stretches_of(8), distribution()

    def holding(u, x):
        values, doublings = stretches.about(u, x, jnp.array([9.0]))
        return values, 0 * doublings

    assert np.abs(after_a_move(holding, p) - p).max() > 1e-3


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 2**31), (-(2**31), 2**31), (0, 40), (-30, 9), (-(2**31), 9)]
)
@pytest.mark.parametrize("usual", [0.0, 8.7])
def test_intervals_adjoin_and_reach_the_bounds_that_are_near(lower, upper, usual):
    first, doublings = stretches_of(24, lower, upper).intervals(np.array([usual]), np)
    first, width = first[0], 2 ** doublings[0]
    order = np.argsort(first)
    np.testing.assert_array_equal((first + width)[order][:-1], first[order][1:])
    single = first[width == 1]
    assert single.min() <= max(usual - 3, lower)
    assert single.max() >= min(usual + 3, upper)
    half = 2 * 3 + 4 * 3 + 8 * 2  # of the 16 intervals
    assert first.min() <= max(lower, usual - half)
    assert (first + width).max() > min(upper, usual + half)


def test_runs_at_the_far_end_are_counted():
    out, zero = np.array([[0, 1, 1, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0, 1]], bool), np.zeros(2, int)
    far_out = FarOut(zero, zero, zero)
    for now in out.T:
        far_out = far_out.after(now, np)
    assert [a.tolist() for a in far_out] == [[5, 1], [0, 1], [3, 1]]


def test_the_far_end():
    stretches = stretches_of(24, 0, 2**31)
    first, doublings = stretches.intervals(np.array([100.0]), np)
    low, high = first.min(), (first + 2**doublings).max()
    for x, far in ((low, True), (high - 1, True), (high + 500, True), (100, False), (low + 12, False)):
        assert stretches.far_out(np.array([x]), np.array([100.0]), np).tolist() == [far]
    assert not stretches.far_out(np.array([0]), np.array([3.0]), np).any()  # at its bound


# ---------------------------------------------------------------- tables wider than a site's support
def test_values_beyond_a_bound_have_no_part_in_a_sum():
    with pm.Model() as model:
        a, b = pm.DiscreteUniform("a", 2, 3), pm.DiscreteUniform("b", 0, 2)
        pm.Potential("p", 0.7 * a * b - 0.2 * b)
    want = {(i, j): np.exp(0.7 * i * j - 0.2 * j) / 6 for i in (2, 3) for j in (0, 1, 2)}
    with model_settings():
        density = density_to_sum(model, ["a", "b"], None)
        sums, context = Sums(density, np.array([3, 3])), density.without_parts([])
        keys = jax.random.split(jax.random.key(1), 50)
        total, x = jax.vmap(lambda key: sums.total_and_draw(key, context))(keys)
    np.testing.assert_allclose(total, np.log(sum(want.values())))
    assert {tuple(row) for row in np.asarray(x).tolist()} <= set(want)
