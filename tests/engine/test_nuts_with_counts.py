"""NUTS that moves counts along with continuous variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.special
import scipy.stats

import pymc_discrete as pmd
from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.nuts_with_counts import NutsWithCounts
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.sampling.division import steps_of
from tests.tools.running import QUIET, lp_of
from tests.tools.statistics import p_of_pairs

EXTRA = scipy.special.softmax(-0.05 * (np.arange(10) - 2.0) ** 2)
NUTS = {"max_treedepth": 4, "dense": True, "pooled": False}


def population():
    """Of which some survive, as a vector and as scalars; nothing of it is data."""
    with pm.Model() as model:
        p = pm.Beta("p", 4, 4)
        lam = pm.Gamma("lam", 4, 2)
        before = pm.Poisson("N", lam, shape=2)
        for i in range(2):
            pm.Binomial(f"alive_{i}", before[i], p)
        # its bounds are those that are told to the step
        logp = lambda value: -0.05 * (value - 2.0) ** 2
        pm.CustomDist("extra", logp=logp, dtype="int64", shape=2, initval=[4, 4])
    return model


def from_the_prior(chains, seed):
    r = np.random.default_rng(seed)
    p, lam = r.beta(4, 4, chains), r.gamma(4, 0.5, chains)
    N = r.poisson(lam[:, None], (chains, 2))
    alive = r.binomial(N, p[:, None])
    extra = r.choice(10, (chains, 2), p=EXTRA)
    return {"p": p, "lam": lam, "N": N, "alive": alive, "extra": extra}


def block_of(model):
    point = model.initial_point()
    names = [v.name for v in model.discrete_value_vars]
    step = pmd.AutoStep(names, support={"extra": (0, 9)}, model=model)
    steps, _ = steps_of(model, step, point, False)
    blocks, points = blocks_of(model, steps, point, 0, 0.8, NUTS)
    (block,) = [b for b in blocks if isinstance(b, NutsWithCounts)]
    return block, points


def after_transitions(model, drawn, transitions=6, step_size=0.8):
    """{variable: (chains, ...)} of chains after transitions of NUTS alone, which no longer tunes.

    drawn : {variable: (chains, ...)}, where they begin
    """
    values = {
        "p_logodds__": scipy.special.logit(drawn["p"]),
        "lam_log__": np.log(drawn["lam"]),
        **{name: drawn[name] for name in ("N", "extra")},
        **{f"alive_{i}": drawn["alive"][:, i] for i in range(2)},
    }
    with model_settings():
        block, points = block_of(model)
        state = block.start({name: value[0] for name, value in values.items()})
        scale = np.where(block.smooth.ravel(points.packed(model.initial_point())) % 1 == 0, 2.0, 0.3)
        nuts = state.nuts._replace(
            mass=state.nuts.mass._replace(inverse_mass_matrix=jnp.diag(jnp.asarray(scale))),
            step_size=state.nuts.step_size._replace(log_step_size_avg=jnp.log(step_size)),
        )
        state = state._replace(nuts=nuts, moved=jnp.ones(block.smooth.size, bool))

        given = jax.tree.map(jnp.asarray, block.numbers | dict(block.settings))

        def chain(key, one):
            def move(n, values):
                at = {**values, **given}
                new, _, _ = block.draw(jax.random.fold_in(key, n), jnp.asarray(10**6), at, state)
                return {name: new[name] for name in values}

            return jax.lax.fori_loop(0, transitions, move, one)

        packed = [
            points.packed({name: value[c] for name, value in values.items()}) for c in range(len(drawn["p"]))
        ]
        packed = jax.tree.map(lambda *a: np.stack(a), *packed)
        keys = jax.random.split(jax.random.key(0), len(drawn["p"]))
        moved = jax.jit(lambda *a: jax.lax.map(lambda b: chain(*b), a))(keys, packed)
        after = points.unpacked(jax.tree.map(np.asarray, moved), lead=1)
    return {
        "p": scipy.special.expit(after["p_logodds__"]),
        "lam": np.exp(after["lam_log__"]),
        **{name: after[name] for name in ("N", "extra")},
        "alive": np.stack([after[f"alive_{i}"] for i in range(2)], 1),
    }


def smallest_p_value(model, chains=20_000):
    """Of tests that points from the prior are from the prior after transitions, too."""
    before, fresh = from_the_prior(chains, 1), from_the_prior(chains, 2)
    after = after_transitions(model, before)
    for name in ("N", "alive", "extra"):
        assert np.mean(before[name] != after[name]) > 0.2
    found = [
        scipy.stats.kstest(after["p"], scipy.stats.beta(4, 4).cdf).pvalue,
        scipy.stats.kstest(after["lam"], scipy.stats.gamma(4, scale=0.5).cdf).pvalue,
        scipy.stats.chisquare(np.bincount(after["extra"].ravel(), minlength=10), 2 * chains * EXTRA).pvalue,
    ]
    cuts = {"N": [0, 1, 2, 3, 4, 6, 99], "alive": [0, 1, 2, 3, 5, 99], "lam": [0, 1, 1.5, 2, 2.5, 3.5, 99]}
    cuts["p"] = [0, 0.35, 0.45, 0.5, 0.55, 0.65, 1]
    first = {name: lambda a, name=name: a[name] if a[name].ndim == 1 else a[name][:, 0] for name in cuts}
    for one, other in (("N", "alive"), ("lam", "N"), ("p", "alive")):
        pairs = [(first[one](a), first[other](a)) for a in (after, fresh)]
        found.append(p_of_pairs(*pairs, [cuts[one], cuts[other]]))
    return min(found)


@pytest.mark.slow
def test_the_joint_distribution_is_invariant():
    assert smallest_p_value(population()) > 1e-4


# ---------------------------------------------------------------- what is moved along
def epidemic():
    """Infections are reported in part, removals are not seen: no sum holds both."""
    with pm.Model() as model:
        beta, reported = pm.HalfNormal("beta", 2), pm.Beta("reported", 6, 4)
        well, ill = 120, 20
        for t, cases in enumerate([5, 7, 9]):
            infections = pm.Binomial(f"infections_{t}", well, 1 - pt.exp(-beta * ill / 140))
            removals = pm.Binomial(f"removals_{t}", ill, 0.4)
            pm.Binomial(f"cases_{t}", infections, reported, observed=cases)
            well, ill = well - infections, ill + infections - removals
    return model


def are_moved_along(model, step=None):
    """Whether NUTS takes counts along in `pmd.sample(step=step, collapse=False)`."""
    with model_settings():
        point = model.initial_point()
        steps, _ = steps_of(model, step, point, False)
        blocks, _ = blocks_of(model, steps, point, 0, 0.8, NUTS)
    return any(isinstance(block, NutsWithCounts) for block in blocks)


def test_counts_that_no_sum_holds_are_moved_along(caplog, monkeypatch):
    """As `pmd.sample` chooses by itself; nothing is compiled."""

    class Chosen(Exception):
        pass

    def stop(*args):
        raise Chosen

    monkeypatch.setattr("pymc_discrete.sampling.sample.Program", stop)
    with caplog.at_level("INFO", logger="pymc.discrete"), pytest.raises(Chosen):
        pmd.sample(10, tune=10, chains=1, model=epidemic(), random_seed=1, **QUIET)
    assert any("NUTS also moves 'beta', 'reported' together" in r.message for r in caplog.records)


@pytest.mark.slow
def test_lp_is_that_of_the_draw_whichever_block_is_the_last():
    with pm.Model() as model:
        p = pm.Beta("p", 4, 4)
        N = pm.Poisson("N", pm.Gamma("lam", 40, 2), shape=2)
        pm.Binomial("y", pm.Binomial("alive", N, p), 0.3, observed=[3, 4])
    assert not are_moved_along(model, pmd.BlockGibbs(model=model))  # a named step does what it says
    assert are_moved_along(model)
    tree = pmd.sample(20, tune=100, chains=1, model=model, collapse=False, random_seed=1, **QUIET)
    draws = {name: a.to_numpy()[0] for name, a in tree.posterior.data_vars.items()}
    values = {name: draws[name] for name in ("N", "alive")}
    values |= {"p_logodds__": scipy.special.logit(draws["p"]), "lam_log__": np.log(draws["lam"])}
    logp = model.compile_logp(mode="FAST_COMPILE")
    each = [logp({name: value[n] for name, value in values.items()}) for n in range(20)]
    np.testing.assert_allclose(lp_of(tree)[0], each, rtol=1e-6)


def test_counts_that_do_not_limit_each_other_are_left_to_their_step():
    with pm.Model() as model:
        pm.Binomial("y", pm.Poisson("N", 9, shape=2), pm.Beta("p", 2, 2), observed=[3, 4])
    assert not are_moved_along(model)


def test_counts_that_are_an_index_stay():
    table = pt.as_tensor(np.linspace(0.2, 0.8, 40))
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        N = pm.Poisson("N", 9, shape=2)
        alive = pm.Binomial("alive", N, p * table[pt.clip(N, 0, 39)], shape=2)
        pm.Binomial("y", alive, p, observed=[1, 2])
    assert not are_moved_along(model)


@pytest.mark.slow
def test_counts_that_have_no_slope_stay():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        N = pm.Poisson("N", 8, shape=3)
        alive = pm.Binomial("alive", N, p, shape=3)
        pm.Binomial("y", alive, p, observed=[3, 4, 2])
        pm.Potential("by gammainc", pt.log(pt.gammainc(N + 1, 5 * p + 0.1)).sum())
    assert not are_moved_along(model)


@pytest.mark.slow
def test_numbers_of_the_two_densities_have_names_of_their_own():
    r = np.random.default_rng(0)
    with pm.Model() as model:
        b, g = pm.Normal("b", shape=3), pm.Normal("g", shape=2)
        N = pm.Poisson("N", pt.exp(2 + pt.dot(pm.Data("X", r.normal(size=(4, 3)) / 5), b)))
        seen_of = pm.math.invlogit(pt.dot(pm.Data("Z", r.normal(size=(4, 2))), g))
        alive = pm.Binomial("alive", N, seen_of)
        pm.Binomial("y", alive, seen_of, observed=[2, 3, 1, 2])
        pm.Normal("w", pt.dot(pm.Data("Q", r.normal(size=(5, 4))), N) * 0.1 + g[0], 3, observed=np.zeros(5))
    logp = model.compile_logp(mode="FAST_COMPILE")
    with model_settings():
        point = model.initial_point() | {"alive": np.array([3, 4, 2, 3]), "N": np.array([6, 7, 5, 6])}
        steps, _ = steps_of(model, None, point, False)
        for block in blocks_of(model, steps, point, 0, 0.8, NUTS)[0][:2]:
            np.testing.assert_allclose(block.logdensity(point), logp(point), rtol=1e-6)
            assert block.gradient_is_finite(point)


@pytest.mark.slow
def test_counts_of_which_rounding_changes_much_stay():
    model = population()
    with model_settings():
        block, _ = block_of(model)
    squares, variances = np.full(block.smooth.size, 6.0), np.full(block.smooth.size, 4.0)
    counts = block.smooth.slices
    first = counts["N/alive_0/alive_1"].start
    squares[first] = 13.0  # changes by more than 1; the others by .5
    variances[first + 1] = 0.5
    means = np.full(block.smooth.size, 4.0)
    means[counts["extra"].start] = 2.0  # within two standard deviations of its lower bound
    moved = np.asarray(block.chosen(*map(jnp.asarray, (squares, means, variances))))
    continuous = [counts[name].start for name in ("p_logodds__", "lam_log__")]
    assert moved[continuous].all()
    assert not moved[[first, first + 1, counts["extra"].start]].any()
    assert moved.sum() == 2 + 3


@pytest.mark.slow
def test_the_smooth_function_is_the_formula_of_the_log_density():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        N = pm.Poisson("N", 9.0, shape=2)
        total = pt.cumsum(N)[-1] + pt.stack([N[0], 3 * N[1]]).sum()
        pm.Binomial("y", total, p, observed=8)
    point = model.initial_point() | {"N": np.array([5, 6])}
    with model_settings():
        density, numbers = ContinuousDensity.of(model, ["p_logodds__"], point, counts=[["N"]])
        at = {name: jnp.asarray(a) for name, a in (point | numbers).items()}
        q = density.ravel(at) + jnp.array([0.1, 0.3, -0.4])
        value, slope = jax.jit(density.value_and_slope(q, density.others(at)))(q)

    def formula(q):
        logit_p, *N = q
        n, k = 2 * N[0] + 4 * N[1], 8
        log_p, log_1p = jax.nn.log_sigmoid(logit_p), jax.nn.log_sigmoid(-logit_p)
        lgamma = jax.lax.lgamma
        binomial = lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) + k * log_p + (n - k) * log_1p
        poisson = sum(x * np.log(9.0) - 9.0 - lgamma(x + 1.0) for x in N)
        return binomial + poisson + 2 * log_p + 2 * log_1p + np.log(6.0)

    with model_settings():
        np.testing.assert_allclose(value, formula(q), rtol=1e-9)
        np.testing.assert_allclose(slope, jax.grad(formula)(q), rtol=1e-6)
