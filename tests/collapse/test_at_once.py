"""Blocks whose sites interact in cycles are drawn at once where that is cheap, exactly."""

import itertools

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse import at_once
from pymc_discrete.collapse.at_once import WORTH_SWEEPS, sums_at_once
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.model.described import DescribedModel
from tests.tools.interpreted import interpreted
from tests.tools.statistics import g_test

pytestmark = pytest.mark.shares_programs

R = np.random.default_rng(0)


def network():
    """Lauritzen and Spiegelhalter's tests and diseases: two ways from smoking to an observed symptom."""
    smoking = pm.Bernoulli("smoking", 0.5)
    tuberculosis = pm.Bernoulli("tuberculosis", 0.05)
    lung = pm.Bernoulli("lung", pt.as_tensor([0.01, 0.1])[smoking])
    bronchitis = pm.Bernoulli("bronchitis", pt.as_tensor([0.3, 0.6])[smoking])
    either = pt.maximum(tuberculosis, lung)
    pm.Bernoulli("xray", pt.as_tensor([0.05, 0.98])[either])
    pm.Bernoulli("dyspnoea", pt.as_tensor([[0.1, 0.8], [0.7, 0.9]])[either, bronchitis], observed=1)
    return [2] * 5


def coupled():
    """Two chains, of two and three values, that see each other; and a site beside them."""
    a, b = pm.Bernoulli("a", 0.4, shape=4), pm.DiscreteUniform("b", 1, 3, shape=3)
    pm.Potential("a along", 1.2 * pt.eq(a[1:], a[:-1]).sum())
    pm.Potential("b along", -0.8 * pt.eq(b[1:], b[:-1]).sum())
    pm.Potential("between", (0.7 * a[:3] * b).sum())
    pm.Bernoulli("alone", 0.2)
    return [2] * 4 + [3] * 3 + [2]


def code():
    """Seven bits in which three sums must be even, and two sites that pairs join with one of them."""
    a, bits = pm.Bernoulli("a", 0.3, shape=2), pm.Bernoulli("bits", [0.2, 0.6, 0.4, 0.7, 0.1, 0.3, 0.5])
    checks = np.array([[1, 0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 1]])
    even = pt.all(pt.eq(pt.mod(pt.dot(checks, bits), 2), 0))
    pm.Potential("parity", pt.switch(even, 0.4 * bits.sum(), -np.inf))
    pm.Potential("between", 0.9 * a[0] * bits[6] + 0.8 * pt.eq(a[0], a[1]))
    return [2] * 9


@pytest.mark.slow
@pytest.mark.parametrize("build", [network, coupled, code])
def test_draws_are_exact(build):
    """Draws from one start, each a single transition of the compiled kernel, against all states."""
    with pm.Model() as model:
        counts = build()
        step = pmd.AutoStep()
    assert isinstance(step, pmd.TreeGibbs)
    assert step.joint
    x, target = step.target.at(model.initial_point())
    states = np.array([*itertools.product(*map(range, counts))]) + target.space.lower
    with step.density.running(traced=False):
        logp = np.asarray(jax.vmap(target.logdensity)(states))
        keys = jax.random.split(jax.random.key(1), 100_000)
        draws = jax.jit(jax.vmap(lambda key: step.kernel.sweeper(target)(key, x, step.params)[0]))(keys)
    index = np.ravel_multi_index((np.asarray(draws) - target.space.lower).T, counts)
    p = np.exp(logp - logp.max())
    assert g_test(np.bincount(index, minlength=len(p)), p / p.sum()) > 1e-4


@pytest.mark.slow
def test_an_impossible_start_stays():
    with pm.Model() as model:
        k, z = pm.Normal("k"), pm.Bernoulli("z", 0.5, shape=3)
        cycle = pt.eq(z, pt.roll(z, 1)).sum()
        pm.Potential("e", pt.switch(k > 0, cycle, -np.inf))
        step = pmd.TreeGibbs()
    x, target = step.target.at({**model.initial_point(), "k": np.array(-1.0)})

    @interpreted
    def sweep(words, x):
        return step.kernel.sweeper(target)(jax.random.wrap_key_data(words), x, step.params)[0]

    with step.density.running(traced=False):
        new = sweep(np.zeros(2, np.uint32), x + 1)
    np.testing.assert_array_equal(new, x + 1)


def lattice(rows, columns):
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(rows, columns))
        pm.Potential("down", 0.3 * pt.eq(x[1:], x[:-1]).sum())
        pm.Potential("across", 0.3 * pt.eq(x[:, 1:], x[:, :-1]).sum())
    return pmd.target_from_model(model).density


@pytest.mark.parametrize(
    ("shape", "at_once"), [((40, 3), True), ((5, 5), True), ((20, 20), False), ((1, 9), False)]
)
def test_only_where_it_is_cheap(shape, at_once):
    sums = sums_at_once(lattice(*shape))
    assert (sums is not None) == at_once  # a single row is a tree, for which there is less work
    if sums is not None:
        sweep = 2 * 2 * 2 * np.prod(shape)
        assert sums.entries <= WORTH_SWEEPS * (1000 + sweep)


def test_no_gain_or_no_sums():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=5)
        pm.Normal("y", z, 1, observed=np.zeros(5))
    assert sums_at_once(pmd.target_from_model(model).density) is None  # nothing interacts
    with pm.Model() as model:
        z = pm.Poisson("z", 3, shape=3)
        pm.Potential("e", -0.1 * pt.abs(z - pt.roll(z, 1)).sum())
    assert sums_at_once(pmd.target_from_model(model).density) is None  # no bound
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=12), pm.Normal("b", shape=12)
        pm.Potential("cycle", 0.5 * pt.eq(g, pt.roll(g, 1)).sum())
        pm.Normal("y", pt.dot(R.normal(size=(6, 12)), g * b), 1, observed=np.zeros(6))
    assert sums_at_once(pmd.target_from_model(model, "g").density) is None  # sites meet in a dense term
    assert sums_at_once(pmd.target_from_model(model, "g", integrate="b").density) is None  # or an integral


@pytest.mark.parametrize(
    ("sites", "strength", "at_once"),
    [(5, 1.0, True), (12, 1.0, False), (12, -np.inf, True), (13, -np.inf, False)],
)
def test_dense_terms_at_once(sites, strength, at_once):
    """All states of a dense term are evaluated where they are few, and more where it excludes states."""
    with pm.Model() as model:
        z, alone = pm.Bernoulli("z", 0.3, shape=sites), pm.Bernoulli("alone", 0.3, shape=9)
        odd = pt.eq(pt.mod(z.sum(), 2), 1)
        excluded = pt.switch(odd, 0.0, -np.inf) if np.isinf(strength) else strength * odd
        work = pt.tanh(pt.dot(R.normal(size=(30, sites)), z)).sum()
        pm.Potential("odd", excluded + work)
        pm.Potential("b", pt.eq(alone[1:], alone[:-1]).sum())
    target = pmd.target_from_model(model, differences="exact")
    assert target.density.plan.dense
    assert (sums_at_once(target.density) is not None) == at_once


def test_a_large_lattice_is_refused_by_a_part_of_it(monkeypatch):
    """So that a million sites are not taken apart one by one; long narrow lattices are not refused."""
    monkeypatch.setattr(at_once, "SITES_TRIED", 400)

    def lattice(rows, columns):
        with pm.Model() as model:
            x = pm.Bernoulli("x", 0.5, shape=(rows, columns))
            pm.Potential("along", 0.4 * pt.eq(x[1:], x[:-1]).sum() + 0.4 * pt.eq(x[:, 1:], x[:, :-1]).sum())
        return target_of(DescribedModel(model), ["x"], with_numbers=True).density

    tried = []
    check = at_once.check_about_one_site
    monkeypatch.setattr(at_once, "check_about_one_site", lambda *a: tried.append(a) or check(*a))
    monkeypatch.setattr(at_once, "Sums", lambda *a: pytest.fail("all sites were looked at"))
    assert sums_at_once(lattice(40, 40)) is None
    assert tried
    monkeypatch.undo()
    monkeypatch.setattr(at_once, "SITES_TRIED", 400)
    assert sums_at_once(lattice(401, 2)) is not None
