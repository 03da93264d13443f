"""How flows are trained: objectives whose gradients are those of the marginal ones, and what comes of it."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp

from pymc_discrete import Space, learning, target_from_logdensity
from pymc_discrete.flows.model import FlowModel, grid
from pymc_discrete.flows.networks import Convolutional, Perceptron
from pymc_discrete.flows.objectives import CVM, DFM
from pymc_discrete.flows.paths import FROM_TARGET, PATHS
from pymc_discrete.flows.simulate import forward_table
from pymc_discrete.runtime.jax_settings import default_settings
from tests.flows.test_exact import conditional, marginals
from tests.tools.interpreted import interpreted

K, SITES = 3, 2
SPACE = Space.build({"x": (0, K - 1)}, shapes={"x": (SITES,)})


@pytest.fixture(autouse=True)
def in_double_precision():
    with default_settings(wide=True):
        yield


class Table(eqx.Module):
    """Logits for every state, whatever the time: a network whose gradient shows each of them."""

    logits: jax.Array

    def __call__(self, encoded, t):
        place = (encoded.argmax(axis=1) * jnp.array([K + 1, 1])).sum()
        return self.logits[place]


def table():
    return Table(jnp.asarray(np.random.default_rng(0).normal(size=((K + 1) ** SITES, SITES, K))))


def source_of(name):
    return np.eye(K + 1)[K] if name == "mask" else np.append(np.full(K, 1 / K), 0.0)


@pytest.mark.parametrize("objective", [DFM(), DFM(bound=True), CVM()], ids=repr)
@pytest.mark.parametrize("source", ["mask", "uniform"])
@pytest.mark.parametrize("path", ["cubic", "noise"])
def test_gradients_given_ends_are_those_of_the_marginal_objective(path, source, objective):
    """Propositions 1 and 3 of the thesis, by enumeration, at one time."""
    t, p1 = 0.6, np.random.default_rng(5).dirichlet(np.ones(K**SITES)).reshape(K, K)
    model = FlowModel(SPACE, table(), path, source)
    p0 = source_of(source)
    states, p, posterior = marginals(PATHS[path], p0, p1, t)

    def of_states(params):
        return jax.vmap(lambda x: model.posterior(params, x, t))(jnp.asarray(states))

    def given_ends(params):
        log_p, total = of_states(params), 0.0
        for ends in itertools.product(range(K), repeat=SITES):
            parts = [conditional(PATHS[path], p0, k, t)[states[:, i]] for i, k in enumerate(ends)]
            each = jax.vmap(lambda a, e=ends: objective.of_sites(model, a, jnp.array(e), t))(log_p)
            total += p1[ends] * (np.prod(parts, axis=0) @ each.sum(1))
        return total

    def marginal(params):
        log_p, a = of_states(params), model.path.velocity(t)[0][FROM_TARGET]
        if isinstance(objective, CVM):
            error = (jnp.exp(log_p) - posterior) ** 2
            return p @ ((1 - t) * a**2 * error.sum((1, 2)))
        rate = a if objective.bound else 1.0
        return -rate * p @ (posterior * log_p).sum((1, 2))

    one, other = (jax.grad(f)(model.params).logits for f in (given_ends, marginal))
    np.testing.assert_allclose(one, other, atol=1e-12)
    assert np.abs(one).max() > 1e-3


@pytest.mark.parametrize("source", ["mask", "uniform"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.by_default("noise-mask", "quadratic-uniform")
def test_values_on_the_way_have_the_distribution_of_the_path(path, source):
    model, x1, t, n = FlowModel(SPACE, table(), path, source), jnp.array([2, 0]), 0.6, 4000
    x_t, hidden = jax.vmap(lambda key: model.noised(key, x1, t))(jax.random.split(jax.random.key(0), n))
    for i in range(SITES):
        wanted = conditional(PATHS[path], source_of(source), int(x1[i]), t)
        found = np.bincount(np.asarray(x_t[:, i]), minlength=K + 1) / n
        assert (np.abs(found - wanted) <= 4.5 * np.sqrt(wanted * (1 - wanted) / n)).all()
    if source == "mask" and path != "noise":
        assert (np.asarray(hidden) == (np.asarray(x_t) == K)).all()
    else:
        assert np.asarray(hidden).all()


def test_weights_make_the_target_of_a_density():
    """Draws of q with the weights exp(f) / q are those of exp(f); with the sign of f turned they are not."""
    r = np.random.default_rng(1)
    f, q = r.normal(size=K**SITES), r.dirichlet(np.ones(K**SITES))
    states = np.array(list(itertools.product(range(K), repeat=SITES)))
    model, objective = FlowModel(SPACE, table(), "linear", "uniform"), DFM()

    def gradient(weights):
        loss = objective.loss(jax.random.key(0), model, model.params, learning_batch(states, weights), None)
        return interpreted(jax.grad(loss[0]))(model.params).logits

    p = np.exp(f) / np.exp(f).sum()
    weighted = q * np.exp(f) / q
    np.testing.assert_allclose(gradient(p), gradient(weighted / weighted.sum()), atol=1e-12)
    wrong = q * np.exp(-f) / q
    assert np.abs(gradient(p) - gradient(wrong / wrong.sum())).max() > 1e-3


def learning_batch(states, weights):
    from pymc_discrete.learning.data import Batch

    return Batch(jnp.asarray(states), jnp.asarray(weights))


def test_networks_have_the_shapes_they_say():
    key = jax.random.key(0)
    for network in (Perceptron(6, K, width=8, depth=1, key=key), Convolutional(2, 3, K, 4, 1, key=key)):
        space = Space.build({"x": (0, K - 1)}, shapes={"x": (6,)})
        model = FlowModel(space, network)
        log_p = interpreted(lambda x, of=model: of.posterior(of.params, x, 0.3))(np.array([0, 1, 2, 3, 3, 3]))
        np.testing.assert_allclose(np.exp(log_p).sum(1), 1, atol=1e-12)
    with pytest.raises(ValueError, match="path must be 'linear', 'quadratic', 'cubic', 'noise', or a Path"):
        FlowModel(space, network, "straight")


def distribution(flow):
    """(2^d,) the probabilities with which a flow draws the states of d = 6 bits, summed over all its ways."""
    every = np.array(list(itertools.product(range(3), repeat=6)))  # the values of a bit, and the mask
    x, times = jnp.asarray(every), jnp.asarray(flow.times)
    of_half = jax.vmap(lambda p: jnp.einsum("a,b,c->abc", *p).reshape(-1))  # (3, 3) -> (27,)

    def move(k, p):
        table = jnp.exp(jax.vmap(lambda x: forward_table(flow, x, times[k], times[k + 1]))(x))
        # given the state, sites move independently of one another
        return (of_half(table[:, :3]).T @ (p[:, None] * of_half(table[:, 3:]))).reshape(-1)

    start = jnp.asarray((every == 2).all(axis=1), float)
    end = jax.jit(lambda p: jax.lax.fori_loop(0, len(flow.times) - 1, move, p))(start)
    return np.asarray(end)[(every < 2).all(axis=1)]


@pytest.mark.slow
def test_a_trained_flow_draws_what_it_was_trained_on():
    """Six bits in a ring, in two modes: total variation without Monte Carlo error, and k-hat."""
    d = 6
    states = np.array(list(itertools.product(range(2), repeat=d)))
    spins = 2 * states - 1
    f = 1.2 * (spins * np.roll(spins, 1, axis=1)).sum(1) + spins @ (0.3 * np.cos(np.arange(d)))
    p = np.exp(f - logsumexp(f))
    assert p[0] > 0.4
    assert p[-1] > 0.4
    space = Space.build({"x": (0, 1)}, shapes={"x": (d,)})
    with default_settings(wide=False):
        network = Perceptron(d, 2, width=32, depth=2, key=jax.random.key(1))
        model = FlowModel(space, network, "quadratic", "mask")
        fitted = learning.fit(
            model,
            {"x": states},
            weights=p,
            objective=DFM(bound=True),
            optimizer=optax.adam(optax.cosine_decay_schedule(0.02, 1500)),
            iterations=1500,
            batch=512,
            ema=0.99,
            progressbar=False,
        )
        flow = model.flow(fitted.params, grid(128))
        drawn = distribution(flow)
        assert abs(drawn.sum() - 1) < 1e-4
        assert np.abs(drawn - p).sum() / 2 < 0.02
        number, log_p = 2 ** np.arange(d)[::-1], jnp.log(jnp.asarray(p))
        target = target_from_logdensity(lambda x: log_p[(x * number).sum()], space)
        found = flow.log_partition(target, 2000, seed=2)
    assert found.khat < 0.7
    assert abs(found.value) < 4.5 * found.error + 1e-4
