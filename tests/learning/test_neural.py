"""Densities that are networks: their values, differences and first states, and one that is learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pymc as pm
import pytest
from scipy.special import softmax

import pymc_discrete as pmd
from pymc_discrete import learning
from pymc_discrete.kernels import gibbs_with_gradients
from pymc_discrete.learning.samplers import first_states
from tests.tools.enumeration import enumerate_target
from tests.tools.statistics import LARGEST_Z, g_test, z_of_moments, zs_of_proportions

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


@pytest.mark.parametrize("objective", ["likelihood", "pseudo-likelihood"])
@pytest.mark.by_default("likelihood")
def test_a_network_learns(objective):
    """With draws and without; independent sites would be 0.5 off in total variation."""
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
        batch=200 if objective == "likelihood" else None,
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


# ---------------------------------------------------------------- as a prior
def test_potential():
    """In a PyMC model: the density of states one by one and together, and alive differences."""
    model = learning.Neural(NAMES, perceptron(9), base={"x": STATES[:10]})
    density = model.density(model.params)
    each = np.array([float(density.logdensity(x)) for x in STATES[:4]])
    with pm.Model() as of_one:
        x = pm.DiscreteUniform("x", 0, 2, shape=3)
        pm.Potential("prior", model.potential(model.params, {"x": x}))
    with pm.Model() as of_four:
        x = pm.DiscreteUniform("x", 0, 2, shape=(4, 3))
        pm.Potential("prior", model.potential(model.params, {"x": x}))
    target = pmd.target_from_model(of_one, differences="gradient")
    got = [float(target.logdensity(x)) for x in STATES[:4]]
    np.testing.assert_allclose(np.diff(got), np.diff(each), atol=1e-9)
    together = pmd.target_from_model(of_four, differences="gradient")
    a, b = STATES[:4].ravel(), np.concatenate([STATES[:3].ravel(), STATES[9]])
    change = float(together.logdensity(b)) - float(together.logdensity(a))
    want = float(density.logdensity(STATES[9])) - each[3]
    assert change == pytest.approx(want, abs=1e-9)
    np.testing.assert_allclose(
        together.differences(b)[9:], model.target(model.params).differences(STATES[9]), atol=1e-9
    )
    with pytest.raises(ValueError, match=r"'x' has shape \(3,\) in the space, .* has shape \(4,\)"):
        model.potential(model.params, {"x": pm.DiscreteUniform.dist(0, 2, shape=4)})
    with pytest.raises(ValueError, match="potential needs a tensor for each of x; got y"):
        model.potential(model.params, {"y": x})
    for dist, said in (
        (pm.DiscreteUniform.dist(1, 3, shape=3), "'x' is of 0 to 2 here, .* it is of 1 to 3"),
        (pm.Poisson.dist(1.0, shape=3), "'x' is of 0 to 2 here, .* it is of 0 to no limit"),
    ):
        with pytest.raises(ValueError, match=said):
            model.potential(model.params, {"x": dist})
    with pytest.raises(TypeError, match="'x' is of type float64, and values of 'x' are integers"):
        model.potential(model.params, {"x": pm.Uniform.dist(0, 2, shape=3)})


@pytest.mark.parametrize(
    ("d", "layers", "way"), [(64, 3, "gradient"), (64, 0, "brute force"), (12, 3, "brute force")]
)
def test_differences_of_a_potential(d, layers, way):
    """A large network at 64 neighbours costs more than its gradient; at 12, or a small one, it does not."""
    network = eqx.nn.MLP(d, "scalar", 256, layers, jax.nn.swish, key=jax.random.key(0))
    model = learning.Neural(pmd.Space.build({"x": (0, 1)}, shapes={"x": (d,)}), network)
    with pm.Model() as of_one:
        x = pm.Bernoulli("x", 0.5, shape=d)
        pm.Potential("prior", model.potential(model.params, {"x": x}))
    row = pmd.target_from_model(of_one).describe()["x"]
    assert row["way"] == way
    assert "'prior' is dense (JAXOp)" in row["reason"]


@pytest.mark.slow
def test_a_learned_prior_beside_nuts():
    """Two states in noise of unknown strength: the posterior of a network, against enumeration."""
    network = jax.tree.map(lambda a: 3 * a if eqx.is_array(a) else a, perceptron(4))
    model = learning.Neural(BINARY, network)
    seen = np.array([[1, 0, 0, 1], [0, 0, 1, 1]])
    with pm.Model():
        flip = pm.Uniform("flip", 0, 0.5)
        x = pm.Bernoulli("x", 0.5, shape=(2, 4))
        pm.Potential("prior", model.potential(model.params, {"x": x}))
        pm.Bernoulli("y", pm.math.where(pm.math.eq(x, 1), 1 - flip, flip), observed=seen)
        step = pmd.GibbsWithGradients([x], differences="gradient")
        idata = pmd.sample(3000, tune=500, step=step, random_seed=1, progressbar=False)
    states = np.array(np.meshgrid(*[range(2)] * 4, indexing="ij")).reshape(4, -1).T
    prior = np.asarray(jax.vmap(model.density(model.params).logdensity)(jnp.asarray(states)))
    rates = (np.arange(400) + 0.5) / 800
    log_joint = np.zeros((16, 16, 400))
    for n, row in enumerate(seen):
        wrong = (states != row).sum(1)
        of_one = prior[:, None] + wrong[:, None] * np.log(rates) + (4 - wrong[:, None]) * np.log(1 - rates)
        log_joint = log_joint + (of_one[:, None] if n == 0 else of_one[None])
    p = softmax(log_joint)
    pairs = np.array([np.concatenate([a, b]) for a in states for b in states])
    draws = idata.posterior["x"].values.reshape(4, -1, 8)
    assert np.abs(zs_of_proportions(draws, pairs, p.sum(2).ravel())).max() < LARGEST_Z
    mean = p.sum((0, 1)) @ rates
    sd = np.sqrt(p.sum((0, 1)) @ (rates - mean) ** 2)
    assert np.abs(z_of_moments(idata.posterior["flip"].values, mean, sd)).max() < LARGEST_Z


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
