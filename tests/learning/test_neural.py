"""Densities that are networks: their values, differences and first states, and one that is learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import softmax

import pymc_discrete as pmd
from pymc_discrete import learning
from pymc_discrete.kernels import gibbs_with_gradients
from pymc_discrete.learning.samplers import first_states
from tests.tools.enumeration import enumerate_target
from tests.tools.statistics import g_test

RNG = np.random.default_rng
NAMES = pmd.Space.build({"x": (0, 2)}, shapes={"x": (3,)}, nominal=["x"])
BINARY = pmd.Space.build({"x": (0, 1)}, shapes={"x": (4,)})
MIXED = pmd.Space.build({"a": (0, 1), "b": (2, 4)}, shapes={"a": (2,), "b": (2,)})


def perceptron(size, seed=0, width=16):
    """Of the flattened input."""
    mlp = eqx.nn.MLP(size, "scalar", width, 2, jax.nn.swish, key=jax.random.key(seed))
    return eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), mlp])


@pytest.mark.parametrize("space", [BINARY, MIXED], ids=["binary", "mixed"])
def test_density(space):
    """The network of the encoded values plus the base; differences of a linear network are exact."""
    size = space.d if space is BINARY else space.d * space.K
    network = eqx.nn.Sequential(
        [eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(size, "scalar", key=jax.random.key(0))]
    )
    r = RNG(0)
    data = {v.name: r.integers(v.lower, v.upper + 1, size=(20, v.size)) for v in space.variables}
    model = learning.Neural(space, network, base=data)
    params = model.start(jax.random.key(1))
    x = r.integers(space.lower, space.upper + 1)
    encoded = x.astype(float) if space is BINARY else np.eye(space.K)[x - space.lower]
    base = 0.0
    for i, (name, number) in enumerate(space.sites):
        share = (data[name][:, number] == x[i]).mean()
        count = space.upper[i] - space.lower[i] + 1
        base += np.log(0.98 * share + 0.02 / count)
    want = float(network(jnp.asarray(encoded))) + base
    assert float(model.density(params).logdensity(x)) == pytest.approx(want, abs=1e-12)
    target, exact = model.target(params), model.target(params, "exact")
    assert {row["way"] for row in target.describe().values()} == {"gradient"}
    assert float(target.logdensity(x)) == pytest.approx(want, abs=1e-12)
    np.testing.assert_allclose(target.differences(x), exact.differences(x), atol=1e-12)


def test_chains_begin_at_draws_of_the_base():
    data = {"x": RNG(1).integers(0, 2, size=(30, 3))}  # 2 never occurs
    model = learning.Neural(NAMES, perceptron(9), base=data)
    x = np.asarray(first_states(model.density(model.params), jax.random.key(0), (20_000,)))
    for site in range(3):
        p = np.exp(model.log_base[site])
        assert p[2] == pytest.approx(0.02 / 3)
        assert g_test(np.bincount(x[:, site], minlength=3), p) > 1e-4


# a joint distribution in which no two sites tell anything, and three do
STATES = np.array(np.meshgrid(*[range(3)] * 3, indexing="ij")).reshape(3, -1).T
P_DATA = softmax(np.where(STATES.sum(1) % 3 == 0, 2.5, 0.0))


@pytest.mark.parametrize(
    "objective",
    ["likelihood", "pseudo-likelihood", learning.EnergyDiscrepancy(0.3, 32)],
    ids=["likelihood", "pseudo-likelihood", "energy discrepancy"],
)
@pytest.mark.by_default("likelihood")
def test_a_network_learns(objective):
    """By every objective; independent sites would be 0.5 off in total variation."""
    model = learning.Neural(NAMES, perceptron(9, width=32), base={"x": STATES})
    sampler = learning.ReplayBuffer(*gibbs_with_gradients("adapt"), transitions=5, size=1000)
    found = learning.fit(
        model,
        {"x": STATES},
        weights=P_DATA,
        objective=objective,
        sampler=sampler if objective == "likelihood" else None,
        optimizer=optax.adam(0.005),
        iterations=600,
        chains=200,
        batch=200,
        ema=0.98,
        progressbar=False,
    )
    p = enumerate_target(model.target(found.params), [range(3)] * 3).pi
    assert 0.5 * np.abs(p - P_DATA).sum() < 0.1
    independent = np.full(27, 1 / 27)
    assert 0.5 * np.abs(independent - P_DATA).sum() > 0.4


def test_embedding():
    """A vector for every value, shared by the sites."""
    embedding = learning.Embedding(3, 2, key=jax.random.key(0))
    network = eqx.nn.Sequential([embedding, *perceptron(6).layers])
    model = learning.Neural(NAMES, network)
    x = np.array([2, 0, 1])
    want = perceptron(6)(jnp.asarray(embedding.table)[x])
    assert float(model.density(model.params).logdensity(x)) == pytest.approx(
        float(want) + 3 * np.log(1 / 3), abs=1e-12
    )


REFUSED = {
    "a window": (
        lambda: learning.Neural(pmd.Space.build({"k": (0, None)}), perceptron(1)),
        "space must be a Space of finite supports",
    ),
    "no weights": (
        lambda: learning.Neural(BINARY, jnp.sum),
        "network must be an equinox.Module with weights",
    ),
    "two outputs": (
        lambda: learning.Neural(BINARY, eqx.nn.Linear(4, 2, key=jax.random.key(0))),
        r"network must return one float for an input of shape \(4,\)",
    ),
    "half a base": (
        lambda: learning.Neural(MIXED, perceptron(12), base={"a": np.zeros((3, 2), int)}),
        "base must hold data of every variable; b is missing",
    ),
    "perturb-and-max-product": (
        lambda: learning.fit(learning.Neural(BINARY, perceptron(4)), {"x": np.zeros((3, 4), int)}),
        "draws from factor graphs, and the model has a NeuralDensity",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=message):
        make()
