"""Each statistic on chains whose answer is known, and against ArviZ's where it has the same one."""

from importlib import import_module

import arviz_stats
import numpy as np
import pytest
import xarray as xr
from arviz_base import from_dict
from scipy.stats import chi2

from pymc_discrete import diagnostics
from pymc_discrete.diagnostics.statistics import effective
from pymc_discrete.diagnostics.statistics.movement import MovementOfChain, moves_of, stretches_of
from tests.diagnostics.chains import dar, following_theta, markov, rotation, two_states, walk


@pytest.fixture
def rng():
    return np.random.default_rng(1)


# ---------------------------------------------------------------- effective numbers of draws
@pytest.mark.parametrize("rho", [0.0, 0.8, -0.5])
def test_ess_of_two_states_is_that_of_their_autocorrelation(rng, rho):
    draws = markov(rng, two_states(rho), 30, 4, 1000)
    known = 4000 * (1 - rho) / (1 + rho)
    assert np.mean(diagnostics.categorical_ess(draws)) == pytest.approx(known, rel=0.1)
    assert diagnostics.hamming_ess(draws) == pytest.approx(known, rel=0.1)


@pytest.mark.parametrize("draws", [12, 301, 400])
@pytest.mark.parametrize("phi", [0.0, 0.7])
def test_ess_and_rhat_are_those_of_arviz(rng, draws, phi):
    z = markov(rng, dar(phi, [0.5, 0.3, 0.2]), 4, 3, draws)
    ess, rhat = diagnostics.categorical_ess(z), diagnostics.categorical_rhat(z)
    for i in range(4):
        indicators = [z[..., i] == k for k in range(3) if 0.05 <= (z[..., i] == k).mean() <= 0.95]
        assert ess[i] == pytest.approx(min(arviz_stats.ess(y, method="mean") for y in indicators), rel=1e-3)
        with np.errstate(divide="ignore"):
            theirs = max(arviz_stats.rhat(y, method="split") for y in indicators)
        assert rhat[i] == pytest.approx(theirs)


def test_ess_of_rare_values_is_that_of_the_commonest_and_of_the_median(rng):
    z = np.where(rng.random((4, 500, 1)) < 0.98, 3, rng.integers(0, 6, (4, 500, 1)))
    both = [arviz_stats.ess(z[..., 0] == 3, method="mean"), arviz_stats.ess(z[..., 0] <= 3, method="mean")]
    assert diagnostics.categorical_ess(z)[0] == pytest.approx(min(both), rel=1e-3)


def test_hamming_ess_of_a_scalar_is_that_of_its_indicator(rng):
    z = markov(rng, two_states(0.6), 1, 4, 400)
    assert diagnostics.hamming_ess(z) == pytest.approx(diagnostics.categorical_ess(z)[0], rel=1e-3)
    constant = np.zeros((4, 400, 3), int)
    together = np.concatenate([z, constant], axis=2)
    assert diagnostics.hamming_ess(together) == pytest.approx(diagnostics.hamming_ess(z))
    assert np.isnan(diagnostics.hamming_ess(constant))


def test_many_values_are_read_a_site_at_a_time(rng):
    z = rng.integers(0, 10**6, (2, 101, 3))
    z[:, :, 1] //= 10**4
    for y, ess in zip(np.moveaxis(z, 2, 0), diagnostics.categorical_ess(z), strict=True):
        values, counts = np.unique(y, return_counts=True)
        both = y == values[counts.argmax()], y <= np.median(y)
        assert ess == pytest.approx(min(arviz_stats.ess(i, method="mean") for i in both), rel=1e-3)


def test_the_checks_see_an_ess_of_single_chains(rng, monkeypatch):
    """Without the variance between chains."""
    right = effective.effective
    monkeypatch.setattr(effective, "effective", lambda c, between, chains: right(c, 0 * between, chains))
    with pytest.raises(AssertionError):
        test_ess_and_rhat_are_those_of_arviz(rng, draws=301, phi=0.7)


def test_the_checks_see_chains_that_are_not_split(rng, monkeypatch):
    monkeypatch.setattr(effective, "in_halves", lambda y: y)
    with pytest.raises(AssertionError):
        test_ess_and_rhat_are_those_of_arviz(rng, draws=301, phi=0.7)


@pytest.mark.parametrize("draws", [7, 101, 137])
def test_movement_counted_draw_by_draw_is_that_of_all_draws(rng, draws):
    z = rng.integers(0, 2, (3, draws)) * (rng.random((3, draws)) < 0.1)
    counted = MovementOfChain(z[:, 0], draws)
    for x in z.T[1:]:
        counted.note(x)
    found = counted.counted()
    assert found.begin.tolist() == [z[:, 0].tolist()]
    assert found.moves.tolist() == moves_of(z[:, None]).T.tolist()
    assert found.stretches.tolist() == stretches_of(z[:, None]).T.tolist()


# ---------------------------------------------------------------- R-hat
def test_rhat_of_a_vector_hides_its_worst_site(rng):
    z = rng.integers(0, 2, (4, 500, 500))
    z[..., 7] = np.array([0, 0, 1, 1])[:, None]
    of_vector, of_worst = diagnostics.hamming_rhat(z)
    assert of_vector == pytest.approx(1.0014, abs=4e-4)
    assert of_worst == np.inf
    assert diagnostics.categorical_rhat(z)[7] == np.inf


def test_rhat_of_chains_that_stand_still():
    z = np.zeros((4, 100, 2), int)
    assert diagnostics.hamming_rhat(z) == (1.0, 1.0)
    assert np.isnan(diagnostics.categorical_rhat(z)).all()
    z[1] = 1
    assert diagnostics.hamming_rhat(z) == (np.inf, np.inf)


def test_rhat_of_permuted_labels(rng):
    z = rng.choice(3, size=(2, 500, 20), p=[0.7, 0.2, 0.1])
    assert max(diagnostics.hamming_rhat(z)) < 1.01
    z[1] = np.array([1, 2, 0])[z[1]]
    assert min(diagnostics.hamming_rhat(z)) > 1.2


def test_nested_rhat_is_that_of_arviz(rng):
    tree = from_dict({"posterior": {"z": rng.integers(0, 2, (4, 50, 2))}})
    assert diagnostics.nested_rhat(tree, [0, 0, 1, 1], "z")["z"].shape == (2,)


def test_r_star_is_1_of_mixed_chains_and_their_number_of_chains_apart(rng):
    z = rng.integers(0, 3, (4, 200, 3))
    tree = from_dict({"posterior": {"z": z, "mu": rng.normal(size=(4, 200))}})
    judged = 4 * 200 * 0.3
    error = np.sqrt(8 * 7 / judged)  # of 8 times a share of 1 / 8
    assert diagnostics.r_star(tree, random_seed=1) == pytest.approx(1.0, abs=4 * error)
    tree["posterior"]["mu"] += 10 * np.arange(4)[:, None]
    # the halves of a chain cannot be told from one another
    assert diagnostics.r_star(tree, random_seed=1) == pytest.approx(4.0, abs=4 * np.sqrt(16 / judged))
    assert diagnostics.r_star(tree, "z", random_seed=1) == pytest.approx(1.0, abs=4 * error)


def test_r_star_sees_pairs_of_elements_that_chains_couple_in_another_way(rng):
    z = rng.integers(0, 2, (4, 500, 2))
    z[0, :, 1] = z[0, :, 0]
    tree = from_dict({"posterior": {"z": z}})
    assert np.nanmax(diagnostics.categorical_rhat(z)) < 1.03
    assert diagnostics.r_star(tree, random_seed=1) > 1.25


def test_r_star_of_bad_input():
    tree = from_dict({"posterior": {"z": np.zeros((2, 8), int)}})
    with pytest.raises(ValueError, match="has no 'y'"):
        diagnostics.r_star(tree, ["y"])
    with pytest.raises(ValueError, match="At least 10 draws of each chain are needed, got 8"):
        diagnostics.r_star(tree)


# ---------------------------------------------------------------- chi-square
def test_chi_square_of_independent_draws_is_that_of_their_table(rng):
    z = rng.choice(3, size=(4, 2000, 1), p=[0.5, 0.3, 0.2])
    statistic, df, c, p = diagnostics.chi_square(z)[0]
    counts = np.stack([(z[..., 0] == k).sum(axis=1) for k in range(3)])
    of_table = ((counts - counts.mean(axis=1, keepdims=True)) ** 2 / counts.mean(axis=1, keepdims=True)).sum()
    assert c == pytest.approx(1.0, abs=0.1)
    assert df == pytest.approx(6, abs=0.2)
    assert statistic == pytest.approx(of_table, rel=0.15)
    assert p == pytest.approx(chi2.sf(statistic, df))


def test_the_correction_is_the_autocorrelation_time(rng):
    z = markov(rng, two_states(0.6), 40, 4, 2000)
    assert diagnostics.chi_square(z)[:, 2].mean() == pytest.approx(1.6 / 0.4, rel=0.05)
    assert diagnostics.chi_square(z, method="weiss")[:, 2].mean() == pytest.approx(1.6 / 0.4, rel=0.05)


def test_degrees_of_freedom_of_a_walk_are_those_of_its_eigenvalues(rng):
    z = markov(rng, walk(), 30, 4, 2000)
    modes = np.cos(np.pi * np.arange(1, 5) / 5)
    deltas = (1 + modes) / (1 - modes)
    _, df, c, _ = diagnostics.chi_square(z).mean(axis=0)
    assert c == pytest.approx(deltas.mean(), rel=0.1)
    assert df == pytest.approx(3 * deltas.sum() ** 2 / (deltas**2).sum(), rel=0.1)


def with_wrong_traces(monkeypatch, wrong):
    """Plant an error in the long-run covariance; wrong : (tr D, number of categories) -> tr D, tr D^2"""
    module = import_module("pymc_discrete.diagnostics.statistics.chi_square")
    right = module.long_run
    monkeypatch.setattr(module, "long_run", lambda y, p: wrong(right(y, p)[0], (p > 0).sum(axis=1)))


def test_the_check_sees_covariances_at_positive_lags_only(rng, monkeypatch):
    with_wrong_traces(monkeypatch, lambda trace, m: ((trace + m - 1) / 2, (trace + m - 1) ** 2 / 4 / (m - 1)))
    with pytest.raises(AssertionError):
        test_the_correction_is_the_autocorrelation_time(rng)


def test_the_check_sees_eigenvalues_that_are_taken_for_equal(rng, monkeypatch):
    with_wrong_traces(monkeypatch, lambda trace, m: (trace, trace**2 / (m - 1)))
    with pytest.raises(AssertionError):
        test_degrees_of_freedom_of_a_walk_are_those_of_its_eigenvalues(rng)


def test_chains_frozen_apart_are_rejected_and_not_by_weiss():
    z = np.tile(np.array([0, 0, 1, 1])[:, None, None], (1, 500, 1))
    assert diagnostics.chi_square(z)[0, 3] < 1e-100
    # Weiss's correction is as large as numbers are, and leaves too few effective draws for a p-value
    assert diagnostics.chi_square(z, method="weiss")[0, 0] < 1e-6
    assert np.isnan(diagnostics.chi_square(z, method="weiss")[0, 3])


def test_a_drift_is_rejected_between_stretches_only(rng):
    z = rng.random((4, 2000, 1)) < np.where(np.arange(2000) < 1000, 0.45, 0.55)[:, None]
    assert diagnostics.chi_square(z, compare="stretches")[0, 3] < 1e-3


def test_too_few_and_constant_have_no_p_value(rng):
    slow = markov(rng, two_states(0.99), 1, 4, 1000)
    assert np.isfinite(diagnostics.chi_square(slow)[0, :3]).all()
    assert np.isnan(diagnostics.chi_square(slow)[0, 3])
    assert np.isnan(diagnostics.chi_square(np.zeros((4, 100, 1), int))).all()


def test_rare_categories_are_merged(rng):
    z = rng.choice(5, size=(4, 1000, 1), p=[0.6, 0.397, 0.001, 0.001, 0.001])
    assert np.isfinite(diagnostics.chi_square(z)[0, 3])
    assert diagnostics.chi_square(z)[0, 1] <= 2 * 3 + 0.1
    assert diagnostics.chi_square(rng.poisson(30, (4, 1000, 1)))[0, 1] == pytest.approx(27, abs=1)


def test_share_rejected():
    assert diagnostics.share_rejected([0.001, 0.02, 0.9, np.nan]) == pytest.approx(2 / 3)
    assert diagnostics.share_rejected([0.5, 0.9]) == 0
    assert np.isnan(diagnostics.share_rejected([np.nan]))


@pytest.mark.slow
@pytest.mark.parametrize("compare", ["chains", "stretches"])
@pytest.mark.parametrize("kind", ["independent", "dar", "theta", "walk", "antithetic", "rotation"])
def test_rejection_rates(rng, kind, compare):
    """Of 500 simulated runs without any fault, about 5 % are rejected at 5 %.

    Fewer are of antithetic chains, and hardly any of chains that go around a circle, not reversible.
    """
    z = {
        "independent": lambda: markov(rng, dar(0.0, [0.5, 0.3, 0.2]), 500, 4, 2000),
        "dar": lambda: markov(rng, dar(0.8, [0.5, 0.3, 0.2]), 500, 4, 2000),
        "theta": lambda: following_theta(rng, 0.9, 500, 4, 2000),
        "walk": lambda: markov(rng, walk(), 500, 4, 2000),
        "antithetic": lambda: markov(rng, two_states(-0.8), 500, 4, 2000),
        "rotation": lambda: markov(rng, rotation(), 500, 4, 2000),
    }[kind]()
    p = diagnostics.chi_square(z, compare=compare)[:, 3]
    share = (p[~np.isnan(p)] < 0.05).mean()
    assert share < (0.01 if kind == "rotation" else 0.09)  # four standard errors above 5 %
    if kind not in ("antithetic", "rotation"):
        assert share > 0.015
    if kind in ("theta", "walk"):
        assert (diagnostics.chi_square(z, method="weiss", compare=compare)[:, 3] < 0.05).mean() > 0.4


# ---------------------------------------------------------------- what they take and give
def test_coords_and_dims_are_kept(rng):
    z = rng.integers(0, 3, (2, 100, 2, 3))
    tree = from_dict(
        {"posterior": {"z": z, "b": z[..., 0, 0] > 0, "mu": rng.normal(size=(2, 100))}},
        coords={"who": ["a", "b"], "when": [1, 2, 3]},
        dims={"z": ["who", "when"]},
    )
    ess = diagnostics.categorical_ess(tree)
    assert set(ess.data_vars) == {"z", "b"}
    assert ess["z"].dims == ("who", "when")
    assert ess["z"].sel(who="b", when=3) == pytest.approx(diagnostics.categorical_ess(z)[1, 2])
    one = diagnostics.moved(tree["posterior"]["z"].transpose("when", "draw", "who", "chain"))
    assert isinstance(one, xr.DataArray)
    assert one.sel(who="b", when=3) == pytest.approx((z[:, 1:, 1, 2] != z[:, :-1, 1, 2]).mean())
    assert diagnostics.chi_square(tree, "z")["z"].dims == ("who", "when", "quantity")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: diagnostics.chi_square(np.zeros((2, 9), int), method="geyer"),
            "method must be 'covariance' or",
        ),
        (
            lambda: diagnostics.chi_square(np.zeros((2, 9), int), compare="ends"),
            "compare must be 'chains' or",
        ),
        (lambda: diagnostics.categorical_ess(np.zeros((2, 9))), "of integers, got float64"),
        (lambda: diagnostics.hamming_rhat(np.zeros((2, 3), int)), "At least 4 draws .* got 3"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_batches_of_many_sizes_agree(rng, monkeypatch):
    z = rng.integers(0, 4, (2, 60, 11))
    at_once = diagnostics.categorical_ess(z), diagnostics.hamming_ess(z), diagnostics.chi_square(z)
    monkeypatch.setattr("pymc_discrete.diagnostics.draws.DRAWS_OF_BATCH", 300)
    monkeypatch.setattr(effective, "DRAWS_OF_BATCH", 300)
    again = diagnostics.categorical_ess(z), diagnostics.hamming_ess(z), diagnostics.chi_square(z)
    for a, b in zip(at_once, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
