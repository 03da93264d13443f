"""`pmd.sample(collapse=...)`: transitions with discrete variables summed out."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
import scipy.stats

import pymc_discrete as pmd
from pymc_discrete.collapse import collapsed, stretches
from pymc_discrete.collapse.stretches import Stretches
from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.sampling.division import steps_of
from tests.collapse.models import captures, counts, labels
from tests.tools.running import QUIET, lp_of

pytestmark = pytest.mark.shares_programs


def prior_of_counts():
    """lam ~ Gamma(3, 0.5), N | lam ~ Poisson(lam): N is negative binomial."""
    with pm.Model() as model:
        lam = pm.Gamma("lam", 3, 0.5)
        pm.Poisson("N", lam, shape=3, initval=[4, 4, 4])
    return model


def after_transitions(model, starts, transitions=3, seed=0):
    """The points of chains after transitions that no longer tune.

    starts : {value variable: (chains, ...)}
    """
    with model_settings():
        point = model.initial_point()
        steps, summed = steps_of(model, None, point, True)
        assert summed is not None
        (block,), _ = blocks_of(model, steps, point, 0, 0.8, NUTS, summed)
        state = block.start({name: value[0] for name, value in starts.items()})

        def chain(key, one):
            def move(n, values):
                point = {**values, **block.numbers, **block.settings}
                new, _, _ = block.draw(jax.random.fold_in(key, n), jnp.asarray(10**6), point, state)
                return {name: new[name] for name in values}

            return jax.lax.fori_loop(0, transitions, move, one)

        chains = len(next(iter(starts.values())))
        keys = jax.random.split(jax.random.key(seed), chains)
        packed = {name: jnp.asarray(value) for name, value in starts.items()}
        return jax.tree.map(np.asarray, jax.jit(lambda *a: jax.lax.map(lambda b: chain(*b), a))(keys, packed))


NUTS = {"max_treedepth": 3, "dense": False, "pooled": False}


def logps(model, idata):
    """(chains, draws) PyMC's log density at the draws, at the values of its value variables."""
    f = model.compile_logp(mode="FAST_COMPILE")
    of = {rv: (model.rvs_to_transforms[rv], model.rvs_to_values[rv].name) for rv in model.free_RVs}
    values = {}
    for rv, (transform, value) in of.items():
        draws = idata["posterior"][rv.name].values
        values[value] = draws if transform is None else transform.forward(draws, *rv.owner.inputs).eval()
    out = np.empty(lp_of(idata).shape)
    for at in np.ndindex(out.shape):
        out[at] = f({name: draws[at] for name, draws in values.items()})
    return out


@pytest.mark.parametrize("length", [2, 3, 8])
@pytest.mark.by_default("3")
def test_stretches_of_every_length_leave_the_joint_distribution_invariant(length, monkeypatch):
    monkeypatch.setattr(collapsed, "SHORTEST_STRETCH", length)
    monkeypatch.setattr(collapsed, "LONGEST_STRETCH", length)
    monkeypatch.setattr(stretches, "ELSEWHERE", 0.5)
    r, chains = np.random.default_rng(1), 20_000
    lam = r.gamma(3, 2.0, size=chains)
    starts = {"lam_log__": np.log(lam), "N": r.poisson(lam[:, None], size=(chains, 3))}
    after = after_transitions(prior_of_counts(), starts)
    lam, N = np.exp(after["lam_log__"]), after["N"]
    assert np.mean(starts["N"] != N) > 0.2
    assert scipy.stats.kstest(lam, scipy.stats.gamma(3, scale=2.0).cdf).pvalue > 1e-3
    # N given lam, by its randomised rank, and the sum of the three
    u = r.random(N.shape)
    below, at = scipy.stats.poisson.cdf(N - 1, lam[:, None]), scipy.stats.poisson.pmf(N, lam[:, None])
    assert scipy.stats.kstest((below + u * at)[:, 0], "uniform").pvalue > 1e-3
    below, at = scipy.stats.nbinom.cdf(N[:, 1] - 1, 3, 1 / 3), scipy.stats.nbinom.pmf(N[:, 1], 3, 1 / 3)
    assert scipy.stats.kstest(below + u[:, 1] * at, "uniform").pvalue > 1e-3


def moved_into_the_support(right):
    def wrong(*args):
        values, doublings = right(*args)
        return values - jnp.minimum(values.min(1, keepdims=True), 0), doublings

    return wrong


def without_weights(right):
    def wrong(*args):
        values, doublings = right(*args)
        return values, 0 * doublings

    return wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "length", "elsewhere", "mean"),
    [(moved_into_the_support, 3, 1.0, 0.5), (without_weights, 8, 0.1, 2.0)],
)
def test_stretches_that_are_wrong_are_noticed(planted, length, elsewhere, mean, monkeypatch):
    monkeypatch.setattr(collapsed, "SHORTEST_STRETCH", length)
    monkeypatch.setattr(collapsed, "LONGEST_STRETCH", length)
    monkeypatch.setattr(stretches, "ELSEWHERE", elsewhere)
    monkeypatch.setattr(Stretches, "drawn", planted(Stretches.drawn))
    monkeypatch.setattr(collapsed, "_kept", collapsed.Kept(2))
    r, chains = np.random.default_rng(1), 20_000
    lam = r.gamma(3, mean, size=chains)
    with pm.Model() as model:
        pm.Poisson("N", pm.Gamma("lam", 3, 1 / mean), shape=3)
    starts = {"lam_log__": np.log(lam), "N": r.poisson(lam[:, None], size=(chains, 3))}
    after = after_transitions(model, starts, transitions=10)
    lam, N = np.exp(after["lam_log__"]), after["N"]
    below, at = scipy.stats.poisson.cdf(N - 1, lam[:, None]), scipy.stats.poisson.pmf(N, lam[:, None])
    assert scipy.stats.kstest((below + r.random(N.shape) * at).ravel(), "uniform").pvalue < 1e-6


@pytest.mark.slow
def test_chains_leave_a_start_that_only_the_sum_makes_possible():
    """The first stretches are about the start: cells elsewhere may hold nothing possible."""
    with pm.Model() as model:
        p = pm.Beta("p", 4, 2)
        pm.Binomial("y", pm.Poisson("N", 20, shape=1), p, observed=np.array([45]))
    idata = pmd.sample(101, tune=10, chains=100, model=model, random_seed=0, collapse=True, **QUIET)
    assert (idata["posterior"]["N"] >= 45).all()
    assert np.isfinite(lp_of(idata)).all()


@pytest.mark.slow
def test_the_draws_have_the_log_density_that_is_recorded():
    for build in (labels, captures, counts):
        model, _ = build()
        idata = pmd.sample(4, tune=20, chains=2, model=model, collapse=True, random_seed=1, **QUIET)
        np.testing.assert_allclose(lp_of(idata), logps(model, idata), rtol=1e-6)


@pytest.mark.slow
def test_each_part_of_a_program_has_its_own_data():
    """Without the counts a model has other numbers, read beside those of Deterministics and steps."""
    x, z = np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, -30.0])
    with pm.Model() as model:
        p, N = pm.Beta("p", 2, 3), pm.Poisson("N", np.full(3, 9.0))
        pm.Binomial("y", n=N, p=p, observed=[4.0, 6.0, 5.0])
        a, b = pm.Normal("a", 0, 10), pm.Normal("b", 0, 10)
        ax, bz = pm.Deterministic("ax", a * x), pm.Deterministic("bz", b * z)
        pm.Normal("ya", ax, 0.5, observed=5 * x)
        pm.Normal("yb", bz, 0.5, observed=2 * z)
    idata = pmd.sample(4, tune=20, chains=2, model=model, random_seed=1, **QUIET)
    assert set(idata["probabilities"].data_vars) == {"N", "N outside"}
    np.testing.assert_allclose(lp_of(idata), logps(model, idata), rtol=1e-6)
    for name, of, factor in (("ax", "a", x), ("bz", "b", z)):
        expected = idata["posterior"][of].to_numpy()[..., None] * factor
        np.testing.assert_allclose(idata["posterior"][name], expected)


@pytest.mark.slow
def test_collapsed_and_other_draws_agree():
    model, _ = counts()
    draws = [
        pmd.sample(4000, chains=4, model=model, collapse=collapse, random_seed=3, **QUIET)
        for collapse in (False, True)
    ]
    import arviz as az

    for name in ("lam", "p"):
        a, b = (np.asarray(d["posterior"][name]) for d in draws)
        error = np.hypot(*(float(az.mcse(v)) for v in (a, b)))
        assert abs(a.mean() - b.mean()) < 4 * error
    effective = [float(az.ess(np.asarray(d["posterior"]["lam"]))) for d in draws]
    assert effective[1] > 2 * effective[0]


@pytest.mark.slow
def test_only_named_variables_are_summed_out():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2, shape=2)
        a, b = pm.Bernoulli("a", 0.4, shape=3), pm.Bernoulli("b", 0.6, shape=3)
        pm.Normal("y", mu[a] + mu[b], 1.0, observed=[0.1, -1.0, 2.0])
    idata = pmd.sample(4, tune=20, chains=2, model=model, collapse=["a"], random_seed=1, **QUIET)
    assert idata["posterior"].attrs["steps"].startswith("CollapsedNUTS(mu, a); ")
    np.testing.assert_allclose(lp_of(idata), logps(model, idata), rtol=1e-6)


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


@pytest.mark.slow
def test_what_is_summed_out_has_the_types_that_it_has_without():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        pm.Bernoulli("z", p, shape=3)
        pm.Binomial("y", n=pm.Poisson("N", 300), p=p, observed=130)
    types = [
        {
            name: pmd.sample(4, tune=4, chains=1, model=model, collapse=c, random_seed=1, **QUIET)
            .posterior[name]
            .dtype
            for name in ("z", "N")
        }
        for c in (True, False)
    ]
    assert types[0] == types[1] == {"z": np.int8, "N": np.int64}


def test_what_has_a_step_is_not_summed_out():
    model, _ = labels()
    with pytest.raises(ValueError, match="has a step"):
        pmd.sample(
            5, tune=5, chains=1, model=model, step=pmd.BlockGibbs("z", model=model), collapse=["z"], **QUIET
        )
