"""Parts of a graph that is too wide to be summed out at once, each summed out given all other sites."""

import itertools

import arviz as az
import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.stats

import pymc_discrete as pmd
from pymc_discrete.collapse import collapsed, parts
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.collapse.elimination import Elimination
from pymc_discrete.collapse.sums_of_parts import SumsOfParts
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.reuse import Kept
from pymc_discrete.sampling.division import steps_of
from tests.collapse.models import cycles, ordered_changes, thinned
from tests.collapse.transitions import after_transitions, logps_at, run_of_block, starts_of
from tests.tools.interpreted import interpreted
from tests.tools.running import FAST, QUIET, lp_of

pytestmark = pytest.mark.shares_programs


@pytest.fixture
def in_parts(monkeypatch):
    """Sums out parts of every model, in tables of at most 4 entries, or of two sites."""
    monkeypatch.setattr(parts, "LIMITS", [4, 16, 64])
    monkeypatch.setattr(Collapsed, "_kept_sums", lambda self, counts, *_: SumsOfParts(self.density, counts))
    monkeypatch.setattr(collapsed, "_kept", Kept(2))


def lattice(n, m):
    index = np.arange(n * m).reshape(n, m)
    down = np.stack([index[1:].ravel(), index[:-1].ravel()], axis=1)
    right = np.stack([index[:, 1:].ravel(), index[:, :-1].ravel()], axis=1)
    return np.concatenate([down, right])


def crowd(n=24):
    """Every site interacts with all others."""
    i, j = np.triu_indices(n, 1)
    with pm.Model() as model:
        c = pm.Normal("c", 0, 0.1)
        x = pm.Bernoulli("x", 0.5, shape=n)
        pm.Potential("e", c * pt.eq(x[i], x[j]).sum())
    return model


def image():
    """A lattice whose states can be counted, and given which the mean is Normal."""
    y = np.random.default_rng(5).normal([[0.2, 0.4, 1.0], [0.1, 0.9, 1.2], [0.3, 0.5, 1.1]], 0.5)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Bernoulli("x", 0.5, shape=(3, 3), initval=np.ones((3, 3), int))
        same = pt.eq(x[1:], x[:-1]).sum() + pt.eq(x[:, 1:], x[:, :-1]).sum()
        pm.Potential("e", 0.6 * same)
        pm.Normal("y", mu * x, 0.5, observed=y)
    states = np.array(list(itertools.product((0, 1), repeat=9)))
    a, b = np.array(lattice(3, 3)).T
    precision = 1 + states.sum(1) / 0.25
    shift = states @ y.ravel() / 0.25
    logp = 0.6 * (states[:, a] == states[:, b]).sum(1) + 0.5 * (shift**2 / precision - np.log(precision))
    p = np.exp(logp - logp.max())
    p /= p.sum()
    return model, p @ (shift / precision), p @ states


@pytest.mark.parametrize(
    ("pairs", "d", "K", "most"),
    [
        (lattice(20, 30), 600, 3, 3),
        (lattice(4, 5), 20, 40, 3),
        (np.stack(np.triu_indices(24, 1), axis=1), 24, 2, 6),
        (np.stack([np.repeat(np.arange(30), 20), np.tile(np.arange(30, 50), 30)], axis=1), 50, 2, 3),
    ],
    ids=["lattice", "many values", "complete", "bipartite"],
)
def test_parts_reach_every_site_in_small_tables(pairs, d, K, most):
    found = parts.affordable_parts(np.full(d, K), [pairs])
    assert found.any(0).all()
    assert len(found) <= most
    for inside in found:
        joined = [pairs[inside[pairs].all(1)], np.arange(d)[:, None]]
        Elimination(np.where(inside, K, 1), joined)  # does not raise TooDear
    assert parts.affordable_parts(np.full(d, K), [np.zeros((0, 2), int)]).shape == (1, d)


def test_a_part_has_the_sites_that_are_wanted():
    pairs, counts, d = lattice(9, 9), np.full(81, 3), 81
    around, whole = parts.neighbours(d, [pairs]), np.ones(d, bool)
    small, large = (
        parts.affordable_part(counts, around, n, whole, np.random.default_rng(0)) for n in (9, 81)
    )
    assert small.sum() < large.sum() < d
    again = parts.affordable_part(counts, around, 9, ~small, np.random.default_rng(1))
    assert again[~small].mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("build", [cycles, thinned, ordered_changes])
def test_a_sum_over_a_part_is_that_over_its_states(build, in_parts, monkeypatch):
    """Also its gradient and its probabilities, at values of the other sites drawn at random."""
    monkeypatch.setattr(collapsed, "SUMMED_WHOLE", 4)  # some are summed over stretches
    monkeypatch.setattr(collapsed, "AFFORDABLE", 0)
    monkeypatch.setattr(collapsed, "SHORTEST_STRETCH", 3)
    monkeypatch.setattr(collapsed, "LONGEST_STRETCH", 3)
    model, bounds = build()
    with model_settings():
        summed = Collapsed(model, list(bounds))
        sums, space = summed.sums, summed.density.space
        assert isinstance(sums, SumsOfParts)
        start = model.initial_point()
        names = [str(v.name) for v in model.value_vars if v.name not in bounds]
        x0, r = np.concatenate([np.ravel(start[v.name]) for v in space.variables]), np.random.default_rng(2)

        def at(q, x):
            point = {n: start[n] + 0.1 * q for n in names} | summed.density.numbers
            return summed.density.logdensity(x, summed.context(point))

        def together(q, stretches):
            point = {n: start[n] + 0.1 * q for n in names} | summed.density.numbers
            return sums.logdensity(summed.context(point), stretches)

        def probabilities(q, stretches):
            point = {n: start[n] + 0.1 * q for n in names} | summed.density.numbers
            return sums.total_draw_and_probabilities(jax.random.key(0), summed.context(point), stretches)

        together = interpreted(jax.value_and_grad(together))
        every = interpreted(lambda q, states: jax.vmap(lambda x: jax.value_and_grad(at)(q, x))(states))
        drawn = interpreted(lambda n, *args: summed.drawn_stretches(jax.random.key(n), *args))
        probabilities = interpreted(probabilities)
        for n in range(len(sums.parts)):
            seed = 100 * n
            while int((stretches := drawn(seed, x0, x0 + r.normal(size=space.d)))[-1]) != n:
                seed += 1
            inside = sums.parts[n]
            values, doublings = map(np.asarray, sums.summed_values(stretches))
            values = np.where(inside[:, None], values, x0[:, None])
            each = [np.arange(k if here else 1) for k, here in zip(sums.counts, inside, strict=True)]
            columns = np.array(list(itertools.product(*each)))
            states, weights = (
                values[range(space.d), columns],
                2.0 ** doublings[range(space.d), columns].sum(1),
            )
            possible = ((states >= space.lower) & (states <= space.upper)).all(1)
            states, weights = states[possible], weights[possible]
            logp, slopes = map(np.asarray, every(0.3, states))
            total = np.logaddexp.reduce(logp + np.log(weights))
            p = weights * np.exp(logp - total)
            value, slope = together(0.3, stretches)
            assert float(value) == pytest.approx(total, rel=1e-10)
            assert float(slope) == pytest.approx(p @ np.where(p > 0, slopes, 0.0), rel=1e-6)
            again, x, found = map(np.asarray, probabilities(0.3, stretches))
            assert float(again) == pytest.approx(total, rel=1e-10)
            np.testing.assert_array_equal(x[~inside], x0[~inside])
            for i in np.flatnonzero(inside):
                for k in range(sums.counts[i]):
                    assert found[i, k] == pytest.approx(p[states[:, i] == values[i, k]].sum(), abs=1e-9)


# ---------------------------------------------------------------- invariance
def growth():
    """Sites of a lattice, each given those above and to the left of it, tied by their parameter."""
    with pm.Model() as model:
        theta, x = pm.Normal("theta", 0, 1), pm.Bernoulli("x", 0.5, shape=(2, 3))
        edge = np.zeros((2, 3))
        logit = theta * (0.5 + pt.set_subtensor(pt.as_tensor(edge)[1:], x[:-1]))
        logit = logit + theta * pt.set_subtensor(pt.as_tensor(edge)[:, 1:], x[:, :-1])
        pm.Potential("given", (x * logit - pt.softplus(logit)).sum())
    return model


def counts_in_a_ring():
    """Counts without a bound, all of which interact."""
    with pm.Model() as model:
        lam, N = pm.Gamma("lam", 3, 1), []
        for n in range(3):
            N.append(pm.Poisson(f"N{n}", lam + 0.4 * sum(N), initval=2))
    return model


def prior_of_counts(r, chains):
    lam, N = r.gamma(3, 1.0, size=chains), []
    for _ in range(3):
        N.append(r.poisson(lam + 0.4 * sum(N)))
    return {"lam_log__": np.log(lam)} | {f"N{n}": v for n, v in enumerate(N)}


def score_of_counts(draws):
    lam, N = np.exp(draws["lam_log__"]), [draws[f"N{n}"] for n in range(3)]
    return sum(N[n] / (lam + 0.4 * sum(N[:n])) - 1 for n in range(3))


def deviations(seed=1, chains=4000):
    """How many standard errors the mean score, and its product with the parameter, are from 0, after
    transitions that start at exact draws of the prior; and the p-value of the parameter.
    """
    starts = prior_of_counts(np.random.default_rng(seed), chains)
    after, _ = after_transitions(counts_in_a_ring(), starts, seed=seed)
    moved = [np.mean(after[n] != starts[n]) for n in starts]
    assert min(moved) > 0.1
    scores = score_of_counts(after)
    found = [scores, scores * after["lam_log__"]]
    zs = [float(s.mean() / (s.std() / np.sqrt(chains))) for s in found]
    return max(map(abs, zs)), scipy.stats.kstest(after["lam_log__"], scipy.stats.loggamma(3).cdf).pvalue


@pytest.mark.slow
def test_parts_leave_the_joint_distribution_invariant(in_parts, monkeypatch):
    """Of counts; of labels an enumerated distribution is left as it is, below."""
    monkeypatch.setattr(collapsed, "SHORTEST_STRETCH", 3)
    monkeypatch.setattr(collapsed, "LONGEST_STRETCH", 3)
    z, p = deviations()
    assert z < 4
    assert p > 1e-3


def after_moves(*in_parts):
    """How far an enumerated distribution of (theta, x) is from what two moves make of it: theta with a part
    summed out, and then the part `in_part(n, parts)` of x given theta, where n is the part that was summed
    out. For each of some functions `in_part`.

    theta has five values, with weights; the sums are those that are sampled with.
    """
    model, grid = growth(), np.linspace(-1.5, 1.5, 5)
    prior = -0.5 * grid[:, None] ** 2
    states = np.array(list(itertools.product((0, 1), repeat=6)))
    with model_settings():
        summed = Collapsed(model, ["x"])
        sums, density = summed.sums, summed.density

        def context(theta):
            return summed.context({"theta": theta} | density.numbers)

        def over(function, *of):
            return interpreted(
                lambda grid, *of: jax.vmap(lambda t: jax.vmap(lambda *a: function(t, *a))(*of))(grid)
            )(grid, *of)

        joint = prior + over(lambda t, x: density.logdensity(x, context(t)), states)
        joint = np.exp(joint - np.logaddexp.reduce(joint, axis=None))  # (theta, x)
        worst, number = [0.0] * len(in_parts), len(sums.parts)
        for n in range(number):
            given_part = np.concatenate([states, np.full((64, 1), n)], axis=1)
            collapsed_ = prior + over(lambda t, s: sums.logdensity(context(t), s), given_part)
            to_theta = np.exp(collapsed_ - np.logaddexp.reduce(collapsed_, axis=0))  # (new theta, x)
            moved = to_theta * joint.sum(0)
            for k, in_part in enumerate(in_parts):
                outside = states[:, ~sums.parts[in_part(n, number)]]
                same = (outside[:, None] == outside[None]).all(-1)
                given = joint[:, None] * same  # (theta, x, new x)
                given /= given.sum(-1, keepdims=True)
                after = np.einsum("tx,txy->ty", moved, given)
                worst[k] = max(worst[k], np.abs(after - joint).max() / joint.max())
    return worst


def test_a_part_that_is_drawn_after_the_parameter_leaves_an_enumerated_distribution_as_it_is(in_parts):
    """And the invalid order is noticed: the part that was summed out keeps its old values, and another one
    is drawn.
    """
    right, wrong = after_moves(lambda n, parts: n, lambda n, parts: (n + 1) % parts)
    assert right < 1e-12
    assert wrong > 1e-3


# ---------------------------------------------------------------- for users
def test_a_graph_that_is_too_wide_is_summed_out_in_parts(caplog):
    caplog.set_level("INFO", "pymc.discrete")
    model = crowd()
    with model:
        pmd.CollapsedNUTS()
    line = (
        "All 24 sites of 'x' together are too many to sum out: each draw sums out one of 6 parts, chosen at "
        "random, of 4 sites, in tables of up to 4 sites"
    )
    assert any(r.getMessage().startswith(line) for r in caplog.records)
    caplog.clear()
    _, summed = steps_of(model, None, model.initial_point(), ["x"])
    assert summed.sums.parts.any(0).all()
    assert any(r.getMessage().startswith(line) for r in caplog.records)
    caplog.clear()
    steps_of(model, pmd.CollapsedNUTS(model=model), model.initial_point(), "auto")
    assert sum(r.getMessage().startswith(line) for r in caplog.records) == 1


def test_a_draw_has_the_log_density_that_is_recorded(in_parts, caplog):
    """And sites that were in no part have no probabilities."""
    caplog.set_level("INFO", "pymc.discrete")
    model, _ = cycles()
    block, after, lp, states = run_of_block(model, starts_of(model, chains=2), transitions=1)
    np.testing.assert_allclose(lp, logps_at(model, after), rtol=1e-6)
    probabilities, unknown = block.groups(states, {}, {})["probabilities"], 0
    for name in (v.name for v in model.discrete_value_vars):
        total = probabilities[name].transpose("chain", ..., f"{name} value").to_numpy().sum(-1)
        assert (np.isnan(total) | np.isclose(total, 1.0)).all()
        unknown += np.isnan(total).any(0).sum()
    (said,) = [r.getMessage() for r in caplog.records if "has nan" in r.getMessage()]
    assert f"has nan for {unknown} of the" in said
    assert unknown > 0


def test_what_needs_the_sum_over_all_sites_is_refused():
    model = crowd()
    with pytest.raises(ValueError, match=r"'x' cannot be summed out: .* entries"):
        pmd.marginalize(model)
    with model:
        pm.Normal("y", model["c"] + model["x"][0], 1.0, observed=0.3)
    options = {"collapse": ["x"], "idata_kwargs": {"log_likelihood": "marginal"}}
    with pytest.raises(ValueError, match=r"cannot be summed out"):
        pmd.sample(5, tune=5, chains=1, model=model, **options, **QUIET)


@pytest.mark.slow
def test_interactions_of_too_many_are_refused():
    with crowd(140), pytest.raises(ValueError, match="no 8 parts of them"):
        pmd.CollapsedNUTS()


@pytest.mark.slow
def test_posterior_of_pmd_sample_against_all_states(in_parts, walks):
    model, mean, p = image()
    idata = pmd.sample(2000, chains=4, model=model, collapse=["x"], random_seed=2, **QUIET)
    check_image(idata, mean, p)
    # the mean over the draws in which a site was in the part, beside the share of the draws
    probabilities = idata["probabilities"]["x"].sel({"x value": 1})
    error = np.hypot(0.004, probabilities.std("chain").to_numpy() / 2)
    assert (np.abs(probabilities.mean("chain").to_numpy() - p.reshape(3, 3)) < 4 * error).all()


@pytest.mark.slow
def test_posterior_of_pm_sample_against_all_states(in_parts, walks):
    model, mean, p = image()
    with model:
        step = pmd.CollapsedNUTS()
        idata = pm.sample(1000, tune=500, chains=1, step=step, random_seed=2, **QUIET, **FAST)
    check_image(idata, mean, p)
    logp = model.compile_logp(mode="FAST_COMPILE")
    for n in range(3):
        draw = {name: idata["posterior"][name].to_numpy()[0, n] for name in ("mu", "x")}
        assert float(logp(draw)) == pytest.approx(float(lp_of(idata)[0, n]), rel=1e-6)


def check_image(idata, mean, p):
    posterior = idata["posterior"]
    assert abs(float(posterior["mu"].mean()) - mean) < 4 * float(az.mcse(posterior["mu"].to_numpy()))
    x = posterior["x"].to_numpy().reshape(*posterior["x"].shape[:2], 9).astype(float)
    for i in range(9):
        assert abs(x[..., i].mean() - p[i]) < 4.5 * float(az.mcse(x[..., i])), i
