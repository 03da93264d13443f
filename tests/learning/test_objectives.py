"""What is descended, against enumeration: contrastive divergence, buffers, the pseudo-likelihood, the energy
discrepancy.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp, softmax

from pymc_discrete import learning
from pymc_discrete.kernels import gibbs_with_gradients
from pymc_discrete.learning.data import Batch
from pymc_discrete.learning.objectives import perturbed
from tests.tools.enumeration import enumerate_target, states_of_graph
from tests.tools.interpreted import interpreted
from tests.tools.statistics import g_test
from tests.tools.transition_matrices import gwg_matrix

MODEL = learning.Ising(3)
PARAMS = {
    "weights": np.array([[0, 0.8, -0.5], [0, 0, 0.4], [0, 0, 0]]),
    "bias": np.array([0.5, -0.3, 0.2]),
}
STATES, LOGP = states_of_graph(MODEL.graph(PARAMS))
SPINS = 2 * STATES - 1
# of the data: far from the model
P_DATA = softmax(1.5 * SPINS[:, 0] * SPINS[:, 2] + 0.7 * SPINS[:, 1])


def statistics(p):
    """The means of what the parameters multiply, under probabilities p (8,) of the states."""
    pairs = np.triu((SPINS * p[:, None]).T @ SPINS, 1)
    return {"weights": pairs, "bias": p @ SPINS}


def step_of(sampler=None, **options):
    """The change of the parameters in an iteration of gradient ascent, with all states as weighted data."""
    found = learning.fit(
        MODEL,
        {"x": STATES},
        weights=P_DATA,
        sampler=sampler,
        optimizer=optax.sgd(1.0),
        iterations=1,
        batch=None,
        params=PARAMS,
        progressbar=False,
        **options,
    )
    return jax.tree.map(lambda a, b: np.asarray(a - b), found.params, PARAMS)


def check_step(step, p_draws, n):
    """The step is the statistics of the data less those under p_draws, up to the error of n draws."""
    of_data, of_draws = statistics(P_DATA), statistics(p_draws)
    for name, change in step.items():
        np.testing.assert_allclose(change, of_data[name] - of_draws[name], atol=5 / np.sqrt(n))


def transition_matrix():
    """(8, 8) of a draw of one transition of the kernel: one, or two with probability 1/2."""
    target = MODEL.target(PARAMS, "exact")
    P, _ = gwg_matrix(enumerate_target(target, [range(2)] * 3), 1.0, "sqrt")
    return 0.5 * (P + P @ P)


@pytest.mark.parametrize("start", ["data", "persistent"])
@pytest.mark.by_default("data")
def test_contrastive_divergence(start):
    """The draws are the data, or first states, after the kernel's enumerated transition."""
    n = 100_000
    sampler = learning.ContrastiveDivergence(*gibbs_with_gradients(), start=start)
    first = P_DATA if start == "data" else np.full(8, 1 / 8)
    step = step_of(sampler, chains=n)
    check_step(step, first @ transition_matrix(), n)
    if start == "data":  # it would see chains that begin elsewhere
        with pytest.raises(AssertionError):
            check_step(step, np.full(8, 1 / 8) @ transition_matrix(), n)


def resampled_counts(n):
    x = learning.samplers.resampled(jax.random.key(3), Batch(jnp.asarray(STATES), jnp.asarray(P_DATA)), n)
    return np.bincount(np.asarray(x) @ [4, 2, 1], minlength=8)


def test_chains_begin_at_data_as_often_as_these_weigh():
    """Systematic resampling: never off by a whole chain."""
    assert (np.abs(resampled_counts(1000) - 1000 * P_DATA) < 1).all()
    equal = Batch(jnp.arange(7)[:, None], jnp.full(7, 1 / 7))
    rows = learning.samplers.resampled(jax.random.key(0), equal, 7)
    np.testing.assert_array_equal(np.sort(np.asarray(rows)[:, 0]), np.arange(7))


# ---------------------------------------------------------------- the buffer
def test_a_buffer_holds_draws_of_the_model():
    """After many iterations with a model that does not change."""
    sampler = learning.ReplayBuffer(*gibbs_with_gradients(), transitions=3, size=4000)
    found = learning.fit(
        MODEL,
        {"x": STATES},
        sampler=sampler,
        optimizer=optax.sgd(0.0),
        iterations=60,
        chains=1000,
        params=PARAMS,
        progressbar=False,
    )
    assert g_test(np.bincount(np.asarray(found.kept.x) @ [4, 2, 1], minlength=8), softmax(LOGP)) > 1e-4


def test_a_buffer_moves_as_many_chains_as_are_asked_for():
    sampler = learning.ReplayBuffer(*gibbs_with_gradients(), transitions=5, size=50)
    density = MODEL.density(PARAMS)
    before = sampler.begin(jax.random.key(0), density, 20)
    x, after = interpreted(lambda kept: sampler.draw(jax.random.key(1), density, kept, 20))(before)
    changed = (np.asarray(after.x) != np.asarray(before.x)).any(1)
    assert 10 < changed.sum() <= 20
    assert x.shape == (20, 3)
    # each chain goes back to its own place, and the others stay
    chosen = np.asarray(sampler._chosen(jax.random.split(jax.random.key(1))[0], 20))
    np.testing.assert_array_equal(np.asarray(after.x)[chosen], x)
    assert set(np.flatnonzero(changed)) <= set(chosen)
    with pytest.raises(ValueError, match="buffer holds 50 chains, and an iteration needs 60"):
        sampler.begin(jax.random.key(0), density, 60)


# ---------------------------------------------------------------- objectives without draws
def test_pseudo_likelihood():
    """Its gradient is that of the conditional probabilities by enumeration, of sites of three values."""
    model = learning.Potts(3, 3)
    params = jax.tree.map(lambda a: 5.0 * a, model.start(jax.random.key(7)))
    x, _ = states_of_graph(model.graph(params))
    data = x[np.random.default_rng(0).integers(len(x), size=6)]
    number = {tuple(row): n for n, row in enumerate(x)}
    neighbours = np.array(
        [
            [[number[tuple(np.where(np.arange(3) == i, k, row))] for k in range(3)] for i in range(3)]
            for row in data
        ]
    )
    own = np.array([number[tuple(row)] for row in data])

    def exact(params):
        logp = jax.vmap(model.graph(params).logdensity)(jnp.asarray(x))
        others = jax.scipy.special.logsumexp(logp[neighbours], axis=-1)
        return (logp[own][:, None] - others).sum(axis=1).mean()

    found = learning.fit(
        model,
        {"x": data},
        objective="pseudo-likelihood",
        optimizer=optax.sgd(1.0),
        iterations=1,
        batch=None,
        params=params,
        progressbar=False,
    )
    step = jax.tree.map(lambda a, b: np.asarray(a - b), found.params, params)
    wanted, slopes = interpreted(jax.value_and_grad(exact))(params)
    for got, want in zip(jax.tree.leaves(step), jax.tree.leaves(slopes), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-10)
    value = interpreted(lambda q: learning.log_pseudo_likelihoods(model, q, jnp.asarray(data)).mean())(params)
    assert float(value) == pytest.approx(float(wanted), abs=1e-10)


@pytest.mark.parametrize("n", [4, 12])
def test_the_pseudo_likelihood_leaves_parameters_of_0(n):
    """From zeros, where all conditional probabilities are equal, as from elsewhere: tables and a product."""
    model, x = learning.Ising(n), jnp.asarray(np.random.default_rng(0).integers(0, 2, (5, n)))
    start = model.start(jax.random.key(0))
    for params in (start, jax.tree.map(jnp.zeros_like, start)):
        s = 2.0 * x - 1

        def by_hand(q, s=s):
            return jax.nn.log_sigmoid(2 * s * (s @ model.matrix(q) + q["bias"])).sum()

        found = interpreted(jax.grad(lambda q: learning.log_pseudo_likelihoods(model, q, x).sum()))(params)
        wanted = interpreted(jax.grad(by_hand))(params)
        for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)


class FreshEach(learning.EnergyDiscrepancy):
    """An inconsistent estimate: each negative has a first perturbation of its own."""

    def perturbed_twice(self, key, space, x):
        many = jnp.broadcast_to(x[:, None], (len(x), self.negatives, space.d))
        key_once, key_again = jax.random.split(key)
        return perturbed(key_again, space, perturbed(key_once, space, many, self.noise), self.noise)


def exact_discrepancy(noise) -> float:
    """E_p[E(x)] - E_p E_q[E_q(y)] by enumeration, with E_q(y) = -log sum_x' q(y | x') exp(-E(x'))."""
    different = (STATES[:, None] != STATES[None]).sum(-1)
    q = noise**different * (1 - noise) ** (3 - different)
    contrastive = -logsumexp(LOGP[:, None], axis=0, b=q)
    return float(-(P_DATA @ LOGP) - P_DATA @ q @ contrastive)


def test_energy_discrepancy():
    """The estimate, of many perturbations, against its enumerated limit; fresh perturbations are off."""
    noise, keys = 0.3, jax.random.split(jax.random.key(0), 16)
    x = resampled_rows = np.repeat(STATES, resampled_counts(300), axis=0)
    batch = Batch(jnp.asarray(resampled_rows), jnp.full(len(x), 1 / len(x)))
    zs = []
    for kind in (learning.EnergyDiscrepancy, FreshEach):
        objective = kind(noise, negatives=100, w=0.0)
        value = lambda key, o=objective: o.loss(key, MODEL, PARAMS, batch, None)[0](PARAMS)
        values = np.asarray(jax.jit(jax.vmap(value))(keys))
        zs.append((values.mean() - exact_discrepancy(noise)) / (values.std() / np.sqrt(len(values))))
    assert abs(zs[0]) < 5 < abs(zs[1])


def test_perturbations_go_both_ways_alike():
    """q(y | x) of three values: the noise is shared by the other two."""
    space = learning.Potts(2, 3).space
    x = np.array(list(itertools.product(range(3), repeat=2)))
    n = 20_000
    y = perturbed(jax.random.key(0), space, jnp.repeat(jnp.asarray(x), n, axis=0), 0.3)
    got = np.asarray(y).reshape(len(x), n, 2) @ [3, 1]
    for row, states in zip(x, got, strict=True):
        q = np.prod(np.where(row == x, 0.7, 0.15), axis=1)
        assert g_test(np.bincount(states, minlength=9), q) > 1e-4
