"""The group `probabilities`: means of the probabilities of all values given the rest."""

import itertools

import arviz_base
import numpy as np
import pymc as pm
import pytest
import scipy.stats

import pymc_discrete as pmd
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.collapse.probabilities import on_one_axis
from tests.collapse.models import counts, occupancy
from tests.tools.running import QUIET, assert_same_draws, stop_after

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("interpreted_sums")]


def bounds_by_site():
    """Sites of one variable with different bounds, two of which interact, given a continuous variable."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.5, 1.0)
        z = pm.DiscreteUniform("z", lower=[0, 2, -1], upper=[1, 5, 0], shape=3)
        pm.Potential("tie", -0.3 * (z[0] - z[1]) ** 2 + 0.2 * mu * z[2])
        pm.Normal("y", z, 0.9, observed=[0.4, 3.1, -0.5])
    return model


def test_each_site_has_the_probabilities_of_its_own_values():
    model, mu = bounds_by_site(), np.array([[-0.4, 0.9, 2.0]])
    p = pmd.recover(arviz_base.from_dict({"posterior": {"mu": mu}}), model)["probabilities"]["z"]
    assert p["z value"].values.tolist() == [-1, 0, 1, 2, 3, 4, 5]
    logp, states = (
        model.compile_logp(mode="FAST_COMPILE"),
        [*itertools.product((0, 1), (2, 3, 4, 5), (-1, 0))],
    )
    want = np.zeros((3, 7))
    for value in mu[0]:
        terms = np.array([logp({"mu": value, "z": np.array(state)}) for state in states])
        weights = np.exp(terms - np.logaddexp.reduce(terms)) / mu.size
        for state, weight in zip(states, weights, strict=True):
            want[np.arange(3), np.array(state) + 1] += weight
    np.testing.assert_allclose(p.values[0], want, atol=1e-12)


@pytest.mark.slow
def test_the_running_mean_is_that_of_the_draws_with_thin_and_after_a_restart(walks, tmp_path):
    model, _ = occupancy()
    options = {"tune": 20, "chains": 3, "model": model, "collapse": True, "random_seed": 4, **QUIET}
    idata = pmd.sample(24, **options)
    p = idata["probabilities"]["z"]
    assert p.dims == ("chain", "site", "z value")
    assert list(p.coords["site"].values) == list("abcd")
    # the same theta, and the sums of single draws
    np.testing.assert_allclose(p, pmd.recover(idata, model)["probabilities"]["z"], atol=1e-12)
    # draws that are not kept count too
    thinned = pmd.sample(8, thin=3, var_names=["psi"], **options)
    np.testing.assert_array_equal(p, thinned["probabilities"]["z"])
    with pytest.raises(ValueError, match="cut off"):
        pmd.sample(24, chunk=8, checkpoint=tmp_path, callback=stop_after(8), **options)
    resumed = pmd.sample(24, chunk=8, checkpoint=tmp_path, **options)
    assert_same_draws(idata, resumed)
    np.testing.assert_array_equal(p, resumed["probabilities"]["z"])
    again = pmd.sample(24, chunk=8, checkpoint=tmp_path, **options)
    np.testing.assert_array_equal(p, again["probabilities"]["z"])


def test_probabilities_of_a_stretch_are_added_to_their_values():
    model, _ = counts()
    collapsed, r = Collapsed.of(model, ["N"]), np.random.default_rng(1)
    (K, *_), d = collapsed.sums.counts, collapsed.density.space.d
    first = np.array([5, 40])
    values = first[:, None] - K // 4 + np.stack([r.permutation(3 * K)[:K] for _ in range(d)])
    p, stretches = r.random((d, K)), np.stack([values, 0 * values]).ravel()
    (got,) = collapsed.with_probabilities(collapsed.no_probabilities(), p, stretches, first)
    want = np.zeros(got.shape)
    for i, k in np.ndindex(d, K):
        if 0 <= values[i, k] - first[i] < want.shape[1]:
            want[i, values[i, k] - first[i]] = p[i, k]
    np.testing.assert_array_equal(got, want)
    assert collapsed.window(np.array([2.0, 700.0]), np).tolist() == [0, 700 - K]


def test_values_of_different_sites_on_one_axis():
    first, p = np.array([[0, 3], [1, 3]]), np.array([[[0.4, 0.6], [1.0, 0.0]], [[0.2, 0.8], [0.5, 0.5]]])
    axis, placed = on_one_axis(first, p, np.array([True, False]), (0, 6))
    assert axis.tolist() == [0, 1, 2, 3, 4]
    unknown = (
        np.nan
    )  # other values of the first site may have some probability, those of the second are impossible
    np.testing.assert_array_equal(placed[1], [[unknown, 0.2, 0.8, unknown, unknown], [0, 0, 0, 0.5, 0.5]])
    np.testing.assert_array_equal(placed[0], [[0.4, 0.6, unknown, unknown, unknown], [0, 0, 0, 1.0, 0]])
    axis, placed = on_one_axis(first, p, np.array([False, False]), (0, 6))
    assert axis.tolist() == [*range(7)]
    np.testing.assert_array_equal(placed.sum(-1), 1.0)


@pytest.mark.slow
def test_probabilities_of_counts_without_a_bound_are_right_and_vary_less_than_counted_draws(walks):
    with pm.Model() as model:  # N is negative binomial
        pm.Poisson("N", pm.Gamma("lam", 3, 0.5), shape=2)
    idata = pmd.sample(2000, tune=500, chains=8, model=model, collapse=True, random_seed=3, **QUIET)
    p, outside = (idata["probabilities"][name] for name in ("N", "N outside"))
    np.testing.assert_allclose(p.sum("N value") + outside, 1.0, atol=1e-12)
    values = p["N value"].values
    want = scipy.stats.nbinom.pmf(values, 3, 1 / 3)
    share = np.stack([(idata["posterior"]["N"] == k).mean("draw") for k in values], -1)
    often = want > 0.01
    z = (p.mean("chain") - want)[:, often] / (p.std("chain", ddof=1)[:, often] / np.sqrt(8))
    assert abs(z).max() < 5
    assert np.sqrt(np.mean((p - want) ** 2)) < np.sqrt(np.mean((share - want) ** 2))
