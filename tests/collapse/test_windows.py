"""Sums over windows, with totals in the place of counts: transitions, what is recorded, what is chosen."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.stats

import pymc_discrete as pmd
from pymc_discrete.collapse import collapsed
from pymc_discrete.collapse.collapsed import STRETCH_VARIABLE, Collapsed
from pymc_discrete.collapse.sums_in_windows import SumsInWindows
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.space.space import Space
from tests.collapse.transitions import after_transitions, logps_at, starts_of
from tests.tools.interpreted import interpreted
from tests.tools.running import QUIET
from tests.tools.statistics import p_of_pairs

pytestmark = pytest.mark.shares_programs


def without_stretches(monkeypatch):
    """Never draw over stretches, by which chains leave windows."""
    monkeypatch.setattr(Collapsed, "_drawn_again", lambda self, key, context, x, usual: x)


def without_data(by_head=False):
    """An open population, of which nothing was seen: all counts are Poisson, given lam."""
    with pm.Model() as model:
        lam = pm.Gamma("lam", 3, 1.5)
        N = pm.Poisson("N", lam, shape=2, initval=[2, 2])
        alive = pm.Binomial("alive", N, 0.6, shape=2, initval=[1, 1])
        new = pm.Poisson("new", 0.25 * N + 0.1 if by_head else 0.5 * lam, shape=2, initval=[1, 1])
        pm.Binomial("later", alive + new, 0.5, shape=2, initval=[1, 1])
    return model


def observed(sites=6, years=4, mean=3.0):
    r = np.random.default_rng(1)
    N = [r.poisson(mean, sites)]
    for _ in range(years - 1):
        N.append(r.binomial(N[-1], 0.7) + r.poisson(0.3 * mean, sites))
    counts = r.binomial(np.stack(N), 0.5)
    with pm.Model() as model:
        initial, gamma = pm.HalfNormal("initial", 2 * mean), pm.HalfNormal("gamma", mean)
        phi, p = pm.Beta("phi", 2, 2), pm.Beta("p", 4, 4)
        here = pm.Poisson("N", initial, shape=sites)
        each = [here]
        for t in range(1, years):
            alive = pm.Binomial(f"alive_{t}", each[-1], phi, shape=sites)
            each.append(pm.Deterministic(f"N_{t}", alive + pm.Poisson(f"new_{t}", gamma, shape=sites)))
        pm.Binomial("seen", pt.stack(each), p, observed=counts)
    return model


def in_windows(monkeypatch, length=4):
    """Take windows of this length, which chains leave, wherever that can be done."""
    monkeypatch.setattr(collapsed, "SHORTEST_STRETCH", length)
    monkeypatch.setattr(collapsed, "LONGEST_STRETCH", length)
    monkeypatch.setattr(collapsed, "LESS", 0)
    monkeypatch.setattr(
        Collapsed, "_reach", lambda self, plain, elements: np.zeros(self.density.space.d, int)
    )
    for kept in ("_kept", "_sums"):
        monkeypatch.setattr(collapsed, kept, collapsed.Kept(2))


def from_the_prior(chains, seed=1):
    r = np.random.default_rng(seed)
    lam = r.gamma(3, 1 / 1.5, size=chains)
    N = r.poisson(lam[:, None], size=(chains, 2))
    alive = r.binomial(N, 0.6)
    new = r.poisson(0.25 * N + 0.1)
    later = r.binomial(alive + new, 0.5)
    return {"lam_log__": np.log(lam), "N": N, "alive": alive, "new": new, "later": later}


def smallest_p_value(chains=8000):
    """Of tests that points from the prior are from the prior after transitions, too."""
    starts = from_the_prior(chains)
    after, _ = after_transitions(without_data(by_head=True), starts)
    assert np.mean(starts["N"] != after["N"]) > 0.2
    lam, r = np.exp(after["lam_log__"])[:, None], np.random.default_rng(0)
    found = [scipy.stats.kstest(lam[:, 0], scipy.stats.gamma(3, scale=1 / 1.5).cdf).pvalue]
    for name, rate in (("N", lam), ("alive", 0.6 * lam)):
        below, at = (
            f(after[name] - s, rate) for f, s in ((scipy.stats.poisson.cdf, 1), (scipy.stats.poisson.pmf, 0))
        )
        ranks = (below + r.random(below.shape) * at)[:, 0]
        found.append(scipy.stats.kstest(ranks, "uniform").pvalue)
    # pairs of counts have the frequencies of another sample from the prior
    fresh = from_the_prior(chains, seed=2)
    for one, other in (("N", "alive"), ("N", "new"), ("alive", "new"), ("new", "later")):
        pairs = [(a[one][:, 0], a[other][:, 0]) for a in (after, fresh)]
        found.append(p_of_pairs(*pairs, [[0, 1, 2, 3, 4, 6, 99]] * 2))
    return min(found)


@pytest.mark.slow
def test_windows_leave_the_joint_distribution_invariant(monkeypatch):
    in_windows(monkeypatch)
    made = Collapsed.of(without_data(by_head=True), ["N", "alive", "new", "later"])
    assert isinstance(made.sums, SumsInWindows)
    # as both depend on the population before, either total may take the place of a part
    assert len(made.density.totals) == 1
    assert smallest_p_value() > 1e-4


def bounded():
    """Of a population of at most nine, which may be more than a window holds."""
    with pm.Model() as model:
        lam = pm.Gamma("lam", 3, 1.5)
        N = pm.DiscreteUniform("N", 0, 9, shape=2)
        alive = pm.Binomial("alive", N, 0.9, shape=2)
        pm.Binomial("later", alive + pm.Poisson("new", lam, shape=2), 0.5, shape=2)
    return model


def share_of_many_survivors(chains=400):
    """Of chains that begin with none, that survivors are more than the window of a total, and its error."""
    starts = {name: np.zeros((chains, 2), int) for name in ("N", "alive", "new", "later")}
    after, _ = after_transitions(bounded(), {"lam_log__": np.zeros(chains), **starts}, transitions=40)
    exact = np.mean([scipy.stats.binom.sf(3, n, 0.9) for n in range(10)])
    return (after["alive"][:, 0] >= 4).mean(), exact, np.sqrt(exact * (1 - exact) / chains)


@pytest.mark.slow
def test_chains_reach_what_is_beyond_windows(monkeypatch):
    in_windows(monkeypatch)
    monkeypatch.setattr(collapsed, "AGAIN", 0.5)
    made = Collapsed.of(bounded(), ["N", "alive", "new", "later"])
    assert isinstance(made.sums, SumsInWindows)
    assert made.stretched.any()
    assert not made.stretched.all()
    share, exact, error = share_of_many_survivors()
    assert abs(share - exact) < 4 * error


@pytest.mark.slow
def test_windows_are_not_taken_where_more_may_be_probable():
    """Counts beyond the longest window, which no shorter one would hold.

    Without them this model has windows: `test_they_are_chosen_for_open_populations`.
    """
    with observed(sites=40) as model:
        pm.Binomial("many", model["N"][:1], 0.9, observed=[260])
    assert Collapsed.of(model, [str(v.name) for v in model.discrete_value_vars]).windows is None


@pytest.mark.parametrize("value", [-3, -1])
def test_a_start_outside_of_the_support_is_named_as_it_is(value):
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        a, b = pm.Poisson("a", 1.3), pm.Poisson("b", 2.0)
        pm.Binomial("y", a + b, p, observed=2)
    with pytest.raises(pm.exceptions.SamplingError, match=rf"'b' starts outside .* is {value}, the support"):
        pmd.sample(2, tune=2, model=model, collapse=True, initvals={"a": 4, "b": value}, **QUIET)


@pytest.mark.slow
def test_windows_that_are_wrong_are_noticed(monkeypatch):
    in_windows(monkeypatch)
    without_stretches(monkeypatch)
    right = SumsInWindows._summed
    monkeypatch.setattr(SumsInWindows, "_summed", lambda self, x: right(self, x) | True)
    assert smallest_p_value(2500) < 1e-6


@pytest.mark.slow
def test_totals_that_are_wrong_are_noticed(monkeypatch):
    in_windows(monkeypatch)
    without_stretches(monkeypatch)
    monkeypatch.setattr(Space, "values_at", lambda self, x, xp=np: x)
    assert smallest_p_value(2500) < 1e-6


def test_a_draw_has_the_log_density_that_is_recorded(monkeypatch):
    """Also where a population begins beyond its window."""
    in_windows(monkeypatch)
    model = without_data()
    starts = starts_of(model, chains=4)
    starts["N"][2:, 0] += 12
    after, lp = after_transitions(model, starts, transitions=2)
    np.testing.assert_allclose(lp, logps_at(model, after), atol=1e-6)
    beyond = (after["N"] >= 4) | (after["alive"] + after["new"] >= 4)
    assert beyond.any()
    assert not beyond.all()
    made = Collapsed.of(model, ["N", "alive", "new", "later"])
    assert set(made.density.totals) == {"new"}
    assert not made.gives_probabilities


def test_the_sum_is_that_over_all_states():
    """Of two populations with few states, of each of which the sum is taken by brute force."""
    with pm.Model() as model:
        phi = pm.Beta("phi", 2, 2)
        N = pm.Binomial("N", 3, 0.6, shape=2)
        alive = pm.Binomial("alive", N, phi)
        pm.Binomial("seen", alive + pm.Binomial("new", 2, 0.3, shape=2), 0.5, observed=[1, 2])
    made = Collapsed.of(model, ["N", "alive", "new"])
    assert set(made.density.totals) == {"new"}
    logp = model.compile_logp(mode="FAST_COMPILE", jacobian=False)
    point = {"phi_logodds__": np.array(0.3)}

    def at(first, second):
        return logp(point | dict(zip(("N", "alive", "new"), np.transpose([first, second]), strict=True)))

    # given phi they are independent: the sum is the product of those over one with the other at a state
    state, states = (3, 2, 0), list(np.ndindex(4, 4, 3))
    each = [
        np.logaddexp.reduce([at(s, state) for s in states]),
        np.logaddexp.reduce([at(state, s) for s in states]),
    ]
    with model_settings():
        inputs = [np.asarray(i) for i in made.inputs({**point, **made.density.numbers})]
        got = interpreted(made.sums.logdensity_of)(inputs)
    prior = float(pm.logp(pm.Beta.dist(2, 2), 1 / (1 + np.exp(-0.3))).eval(mode="FAST_COMPILE"))
    assert float(got) == pytest.approx(sum(each) - at(state, state) - prior, abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted_sums")
def test_sums_have_gradients_where_a_part_is_a_mixture():
    """PyMC's log density of a zero-inflated count has none below 0, where no total may take it."""
    with pm.Model() as model:
        theta, p = pm.Gamma("theta", 2, 1), pm.Beta("p", 2, 2)
        total = pm.ZeroInflatedPoisson("a", psi=p, mu=1.3) + pm.ZeroInflatedPoisson("b", psi=p, mu=theta)
        pm.Binomial("y", total, 0.5, observed=2)
    made = Collapsed.of(model, ["a", "b"])
    assert len(made.density.totals) == 1
    point = (
        made.model.initial_point() | made.density.numbers | {STRETCH_VARIABLE: made.middle(np.array([1, 3]))}
    )
    slope = made.model.compile_dlogp(mode="FAST_COMPILE")
    slopes = slope({str(v.name): point[str(v.name)] for v in made.model.value_vars})
    assert np.isfinite(slopes).all()
    assert np.abs(slopes).min() > 1e-3


def test_they_are_chosen_for_open_populations(caplog):
    caplog.set_level(logging.INFO, logger="pymc.discrete")
    model = observed(sites=40)
    made = Collapsed.of(model, [str(v.name) for v in model.discrete_value_vars])
    assert isinstance(made.sums, SumsInWindows)
    shared = [len(g.first) for g in made.sums.elements.groups if len(g.widths) > 1]
    assert max(shared) <= 12
