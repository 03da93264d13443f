"""`pmd.sample(collapse=...)`: transitions with discrete variables summed out."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import scipy.stats

import pymc_discrete as pmd
from pymc_discrete.collapse import collapsed, stretches
from pymc_discrete.collapse.stretches import Stretches
from tests.collapse.models import counts, labels
from tests.collapse.transitions import after_transitions, logps, logps_at, run_of_block, starts_of
from tests.tools.running import FAST, QUIET, lp_of

pytestmark = pytest.mark.shares_programs


def smallest_p_value(chains=20_000):
    """Of tests that exact draws of counts and their mean are distributed as before after transitions.

    lam ~ Gamma(3, 1), N | lam ~ Poisson(lam): N is negative binomial.
    """
    with pm.Model() as model:
        pm.Poisson("N", pm.Gamma("lam", 3, 1), shape=3)
    r = np.random.default_rng(1)
    lam = r.gamma(3, 1.0, size=chains)
    starts = {"lam_log__": np.log(lam), "N": r.poisson(lam[:, None], size=(chains, 3))}
    after, _ = after_transitions(model, starts)
    lam, N = np.exp(after["lam_log__"]), after["N"]
    assert np.mean(starts["N"] != N) > 0.2
    # lam, the randomised ranks of N given lam, and of one of them without it
    u, of = r.random(N.shape), scipy.stats.poisson
    given = of.cdf(N - 1, lam[:, None]) + u * of.pmf(N, lam[:, None])
    alone = scipy.stats.nbinom.cdf(N[:, 1] - 1, 3, 0.5) + u[:, 1] * scipy.stats.nbinom.pmf(N[:, 1], 3, 0.5)
    ranks = [scipy.stats.gamma(3).cdf(lam), given[:, 0], alone]
    return min(scipy.stats.kstest(rank, "uniform").pvalue for rank in ranks)


def short_stretches(monkeypatch):
    monkeypatch.setattr(collapsed, "SHORTEST_STRETCH", 6)
    monkeypatch.setattr(collapsed, "LONGEST_STRETCH", 6)
    monkeypatch.setattr(stretches, "ELSEWHERE", 0.2)


def test_stretches_leave_the_joint_distribution_invariant(monkeypatch):
    short_stretches(monkeypatch)
    assert smallest_p_value() > 1e-3


def without_weights(right):
    def wrong(*args):
        values, doublings = right(*args)
        return values, 0 * doublings

    return wrong


@pytest.mark.slow
def test_stretches_that_are_wrong_are_noticed(monkeypatch):
    short_stretches(monkeypatch)
    monkeypatch.setattr(Stretches, "drawn", without_weights(Stretches.drawn))
    monkeypatch.setattr(collapsed, "_kept", collapsed.Kept(2))
    assert smallest_p_value() < 1e-6


@pytest.mark.slow
def test_chains_leave_a_start_that_only_the_sum_makes_possible():
    """The first stretches are about the start: cells elsewhere may hold nothing possible."""
    with pm.Model() as model:
        p = pm.Beta("p", 4, 2)
        pm.Binomial("y", pm.Poisson("N", 20, shape=1), p, observed=np.array([45]))
    _, after, lp, _ = run_of_block(model, starts_of(model, chains=400), transitions=1, begins=True)
    assert (after["N"] >= 45).all()
    assert np.isfinite(lp).all()


def test_a_draw_has_the_log_density_that_is_recorded():
    model, _ = counts()
    after, lp = after_transitions(model, starts_of(model))
    np.testing.assert_allclose(lp, logps_at(model, after), rtol=1e-6)


@pytest.mark.slow
def test_a_run_with_a_step_and_other_numbers_beside_the_sum(walks):
    """Only what is named is summed out. Without it a model has other numbers, read beside those of a step."""
    x, z = np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, -30.0])
    with pm.Model() as model:
        p, N = pm.Beta("p", 2, 3), pm.Poisson("N", np.full(3, 9.0))
        pm.Binomial("y", n=N, p=p, observed=[4.0, 6.0, 5.0])
        c, d = pm.Bernoulli("c", 0.4, shape=3), pm.Bernoulli("d", 0.6, shape=3)
        a, b = pm.Normal("a", 0, 10), pm.Normal("b", 0, 10)
        ax, bz = pm.Deterministic("ax", a * x), pm.Deterministic("bz", b * z)
        pm.Normal("ya", ax + c * d, 0.5, observed=5 * x)
        pm.Normal("yb", bz, 0.5, observed=2 * z)
    idata = pmd.sample(4, tune=20, chains=2, model=model, collapse=["N", "c"], random_seed=1, **QUIET)
    posterior = idata["posterior"]
    assert posterior.attrs["steps"].startswith("CollapsedNUTS(p, a, b, N, c); ")
    assert set(idata["probabilities"].data_vars) == {"N", "N outside", "c"}
    np.testing.assert_allclose(lp_of(idata), logps(model, idata), rtol=1e-6)
    for name, of, factor in (("ax", "a", x), ("bz", "b", z)):
        np.testing.assert_allclose(posterior[name], posterior[of].to_numpy()[..., None] * factor)
    # the types that they have without sums
    assert {n: posterior[n].dtype for n in "cdN"} == {"c": np.int8, "d": np.int8, "N": np.int64}


# ---------------------------------------------------------------- posteriors
def means_of_counts():
    """Posterior means of the variables of `counts`, by sums over grids."""
    lam, p, N = np.linspace(0.01, 20, 500)[:, None], np.linspace(0.0025, 0.9975, 200), np.arange(80)
    given_lam = scipy.stats.poisson.pmf(N, lam)
    seen = [
        np.prod([scipy.stats.binom.pmf(k, N[:, None], p) for k in row], axis=0) for row in ((3, 2), (1, 2))
    ]
    of_sites = [given_lam @ s for s in seen]  # (lam, p)
    prior = scipy.stats.gamma.pdf(lam, 3) * scipy.stats.beta.pdf(p, 2, 2)
    w = prior * of_sites[0] * of_sites[1]
    counts = [
        prior * (given_lam @ (N[:, None] * s)) * other for s, other in zip(seen, of_sites[::-1], strict=True)
    ]
    return {"lam": (w * lam).sum() / w.sum(), "p": (w * p).sum() / w.sum(), "N": np.mean(counts) / np.mean(w)}


@pytest.mark.slow
def test_draws_of_pm_sample_have_the_means_of_the_posterior_and_mix_well():
    """Without the sum a draw of `lam` is worth 0.04 independent ones."""
    model, _ = counts()
    with model:
        step = pmd.CollapsedNUTS()
        tree = pm.sample(2000, tune=500, chains=2, cores=1, step=step, random_seed=1, **QUIET, **FAST)
    posterior, means = tree["posterior"], means_of_counts()
    assert set(means) == set(posterior.data_vars)
    for name, mean in means.items():
        draws = posterior[name].to_numpy().astype(float)
        draws = draws.reshape(*draws.shape[:2], -1).mean(-1)
        assert abs(draws.mean() - mean) < 4 * float(az.mcse(draws)), name
    assert float(az.ess(posterior["lam"].to_numpy())) > 0.15 * 4000


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"collapse": "all"},
            ValueError,
            r"'auto' .*True \(all\).*got 'all'. To sum out 'z' alone: collapse=\['z'\]",
        ),
        ({"collapse": 3}, TypeError, "collapse"),
        ({"collapse": ["mu"]}, ValueError, "'mu' is continuous.*leave it out of collapse"),
        ({"collapse": True, "dtype": "float32"}, ValueError, "float64"),
    ],
    ids=["word", "number", "continuous", "float32"],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        pmd.sample(5, tune=5, chains=1, model=labels()[0], **options, **QUIET)


def test_a_model_without_discrete_variables_has_nothing_to_sum_out():
    with pm.Model() as model:
        pm.Normal("x")
    words = "nothing to sum out: the model has no discrete"
    with pytest.raises(ValueError, match=words):
        pmd.sample(5, tune=5, chains=1, model=model, collapse=True, **QUIET)
    with pytest.raises(ValueError, match=words):
        pmd.marginalize(model)


def test_what_has_a_step_is_not_summed_out():
    model, _ = labels()
    with pytest.raises(ValueError, match="has a step"):
        pmd.sample(
            5, tune=5, chains=1, model=model, step=pmd.BlockGibbs("z", model=model), collapse=["z"], **QUIET
        )
