"""Log partition functions against enumeration: both directions, each with planted errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete import learning
from pymc_discrete.evidence.annealed import Annealed, base_of
from pymc_discrete.evidence.estimate import LogZ, backward_estimate, forward_estimate, mean_of
from pymc_discrete.factor_graphs import FactorGraph, Pairwise
from pymc_discrete.kernels import (
    block_gibbs,
    gibbs_with_gradients,
    tree_gibbs,
)
from pymc_discrete.learning import log_partition
from tests.tools.enumeration import check_kernel, enumerate_target, states_of_graph

pytestmark = pytest.mark.shares_programs

LARGEST_Z = 4.5


def z_of(estimate, exact: float) -> float:
    """How many standard errors an estimate is from the exact value."""
    return abs(estimate.value - exact) / estimate.error


def rbm(visible: int, hidden: int, scale: float):
    """An RBM whose sites depend on one another; the states of its hidden units, and their log weights."""
    r = np.random.default_rng(0)
    model = learning.RBM(visible, hidden)
    params = {
        "weights": scale * r.normal(size=(visible, hidden)),
        "v": r.normal(size=visible),
        "h": r.normal(size=hidden),
    }
    h = (np.arange(2**hidden)[:, None] >> np.arange(hidden)) & 1
    # the visible units summed out: sum_v exp(v (W h + c)) = prod (1 + exp(W h + c))
    logp = h @ params["h"] + np.logaddexp(0.0, h @ params["weights"].T + params["v"]).sum(axis=1)
    return model, params, h, logp


def exact_draws(n: int, params, h, logp) -> np.ndarray:
    """(n, visible + hidden) int, exact draws of an RBM."""
    r = np.random.default_rng(1)
    chosen = h[r.choice(len(h), n, p=np.exp(logp - logsumexp(logp)))]
    odds = chosen @ params["weights"].T + params["v"]
    return np.concatenate([r.random(odds.shape) < 1 / (1 + np.exp(-odds)), chosen], axis=1).astype(int)


def check_both(found, exact: float) -> None:
    """Both estimates within their errors, and the logarithms of single weights on the two sides of log Z."""
    assert z_of(found.forward, exact) < LARGEST_Z
    assert z_of(found.backward, exact) < LARGEST_Z
    # Jensen: each weight is an estimate of its own, of which the logarithm is too low, or back too high
    for side, logs in ((-1, found.forward.log_weights), (1, -found.backward.log_weights)):
        bias = side * (logs.mean() - exact)
        assert bias > 4 * logs.std() / np.sqrt(len(logs))


@pytest.fixture(scope="module")
def small():
    model, params, h, logp = rbm(6, 4, 1.0)
    target = model.graph(params).to_target()
    _, all_logp = states_of_graph(model.graph(params))
    assert logsumexp(all_logp) == pytest.approx(logsumexp(logp))
    return target, exact_draws(4000, params, h, logp), float(logsumexp(logp))


def test_rbm_both_ways(small):
    """From a base that is not uniform."""
    target, draws, exact = small
    base = {"v": np.tile([0.3, 0.7], (6, 1))}
    check_both(log_partition(target, base=base, temperatures=6, chains=4000, draws=draws, exact=True), exact)


def test_states_of_density_zero():
    """A third of the base's states are impossible: chains that go back never come there."""
    space = pmd.Space.build({"a": (0, 2), "b": (0, 1)}, shapes={"a": (), "b": ()})
    target = pmd.target_from_logdensity(
        lambda x: jnp.where(x[0] == x[1], -jnp.inf, 0.5 * x[0] - 0.2 * x[1]), space
    )
    states = np.array([(a, b) for a in range(3) for b in range(2) if a != b])
    w = np.exp(states @ [0.5, -0.2])
    draws = states[np.random.default_rng(0).choice(len(states), 2000, p=w / w.sum())]
    found = log_partition(target, temperatures=20, chains=2000, draws=draws, exact=True)
    for estimate in (found.forward, found.backward):
        assert z_of(estimate, np.log(w.sum())) < LARGEST_Z
        assert estimate.error < 0.05
    with pytest.raises(ValueError, match=r"density is 0 at all but 0 of 200 draws of the base.*Pass base="):
        log_partition(pmd.target_from_logdensity(lambda x: -jnp.inf + 0.0 * x[0], space), chains=2)


# ---------------------------------------------------------------- the densities between base and target
def of_function():
    r = np.random.default_rng(2)
    table, couplings = jnp.asarray(r.normal(size=(3, 3))), r.normal(size=(3, 3))

    def logdensity(x):
        return table[np.arange(3), x.astype(int)].sum() + 0.5 * x @ couplings @ x

    space = pmd.Space.build({"x": (0, 2)}, shapes={"x": (3,)})
    return pmd.target_from_logdensity(logdensity, space, differences="exact")


def of_graph():
    r = np.random.default_rng(3)
    space = pmd.Space.build({"x": (0, 2), "y": (0, 1)}, shapes={"x": (3,), "y": (1,)}, nominal=["x"])
    pairs = [
        Pairwise(np.arange(2), np.arange(1, 3), r.normal(size=(3, 3))),
        Pairwise(np.array([1]), np.array([3]), r.normal(size=(3, 2))),
    ]
    return FactorGraph(space, pairs, {"x": r.normal(size=(3, 3))}).to_target()


def of_model():
    r = np.random.default_rng(4)
    with pm.Model() as model:
        g = pm.Bernoulli("g", 0.4, shape=3)
        k = pm.Binomial("k", n=2, p=0.4)
        pm.Normal("y", r.normal(size=(7, 3)) @ (1.5 * g) + 0.4 * k, 1.0, observed=r.normal(size=7))
    return pmd.target_from_model(model)


def of_network():
    space = pmd.Space.build({"x": (0, 2)}, shapes={"x": (3,)}, nominal=["x"])
    layers = [eqx.nn.Lambda(jnp.ravel), eqx.nn.MLP(9, "scalar", 8, 1, key=jax.random.key(0))]
    model = learning.Neural(space, eqx.nn.Sequential(layers))
    return model.target(model.params)


CASES = {
    "graph, trees": (of_graph, tree_gibbs),
    "model": (of_model, block_gibbs),
    "function": (of_function, None),  # whose kernels read what is compared with brute force alone
    "network": (of_network, gibbs_with_gradients),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.by_default("graph, trees")
def test_kernels_leave_annealed_densities_invariant(name):
    """The density is beta f + (1 - beta) log p0, differences are those of brute force, kernels keep it."""
    build, kernel = CASES[name]
    target, beta = build(), 0.4
    space, r = target.space, np.random.default_rng(5)
    of_each = {m.name: r.uniform(0.2, 1.0, size=(*m.shape, int(v.K))) for m, v in members(space)}
    base = base_of(space, of_each)
    annealed = Annealed(target.density).at(target, beta, jnp.asarray(base))
    e = enumerate_target(annealed, [range(a, b + 1) for a, b in zip(space.lower, space.upper, strict=True)])
    f = np.asarray(jax.jit(jax.vmap(target.logdensity))(e.states))
    p0 = np.take_along_axis(base[None], (e.states - space.lower)[..., None], axis=2).sum(axis=(1, 2))
    assert logsumexp(p0) == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(e.logp, beta * f + (1 - beta) * p0, atol=1e-10)
    if target.exact:
        for i in range(space.d):
            for c in range(space.K):
                y = e.states.copy()
                y[:, i] = e.values[:, i, c]
                there = e.index(y)
                want = np.where(there >= 0, e.logp[there] - e.logp, -np.inf)
                got = e.differences[:, i, c]
                np.testing.assert_allclose(got[e.inside[:, i, c]], want[e.inside[:, i, c]], atol=1e-10)
    if kernel:
        check_kernel(e, *kernel())


def members(space):
    """Each named array of a space, with the variable that holds it."""
    return [(m, v) for m in space.members for start, v in space.blocks if start <= m.start < start + v.size]


# ---------------------------------------------------------------- estimates
def test_estimates_of_known_weights():
    r = np.random.default_rng(6)
    logs = r.normal(-0.5, 1.0, size=100_000)  # weights of mean 1
    found = forward_estimate(logs)
    assert abs(found.value) < 4 * found.error
    assert found.error == pytest.approx(np.sqrt((np.e - 1) / 1e5), rel=0.1)
    assert found.ess == pytest.approx(1e5 / np.e, rel=0.1)
    assert backward_estimate(logs).value == -found.value
    assert forward_estimate(logs, share=0.5).value == pytest.approx(found.value + np.log(0.5))
    assert forward_estimate(np.array([-np.inf, 0.0])).value == pytest.approx(np.log(0.5))
    assert mean_of(np.full(3, -np.inf)).log == -np.inf


def test_a_result_says_what_its_bounds_are(caplog):
    logs = np.zeros(20)
    one = LogZ(forward_estimate(logs), None, False, np.linspace(0, 1, 4))
    assert "forward" in repr(one)
    assert "backward" not in repr(one)
    assert (one.value, one.error) == (one.forward.value, one.forward.error)
    assert "a check, no bound" in repr(
        LogZ(forward_estimate(logs), backward_estimate(logs), False, one.temperatures)
    )
    assert "from exact draws" in repr(
        LogZ(forward_estimate(logs), backward_estimate(logs), True, one.temperatures)
    )
    one.complain()
    assert not caplog.records
    few = np.where(np.arange(20) == 0, 0.0, -20.0)
    LogZ(
        forward_estimate(few), backward_estimate(logs - 10.0 + 0.1 * np.arange(20)), False, one.temperatures
    ).complain()
    assert "rests on 1.0 effective chains of 20" in caplog.text
    assert "nats apart" in caplog.text


def test_bad_inputs(small):
    target, draws, _ = small
    cases = [
        ({"base": {"w": np.ones(2)}}, "no variable of the target"),
        ({"base": {"v": np.ones((6, 3))}}, "must have the shape"),
        ({"base": {"v": np.tile([0.0, 1.0], (6, 1))}}, "positive probability"),
        ({"temperatures": [0, 0.5, 0.5, 1]}, "increase from 0 to 1"),
        ({"temperatures": 0}, "at least 1"),
        ({"chains": 0}, "chains must be"),
        ({"kernel": block_gibbs}, "kernel must be"),
        ({"draws": draws[:, 1:]}, "a row for each draw"),
        ({"draws": draws + 1}, "outside of the target's support"),
        ({"draws": {"v": draws}}, "draws lacks 'h'"),
    ]
    for options, message in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            log_partition(target, **options)
    with pytest.raises(TypeError, match="target must be a Target"):
        log_partition(lambda x: x.sum())
    wide = pmd.target_from_logdensity(lambda x: -1.0 * (x**2).sum(), pmd.Space.build({"k": (0, None)}))
    with pytest.raises(ValueError, match=r"pmd\.log_evidence"):
        log_partition(wide)
