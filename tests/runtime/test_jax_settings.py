"""Settings of JAX that another library changed after the import: programs of this package run within JAX's
own defaults.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.factor_graphs import FactorGraph, Quadratic, marginals, pmp, run
from pymc_discrete.factor_graphs.semiring import SUM
from pymc_discrete.kernels import gibbs_with_gradients, loop
from pymc_discrete.runtime import jax_settings
from pymc_discrete.runtime.reuse import forget
from tests.tools.running import QUIET

CHANGED = {
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_threefry_partitionable": False,
    "jax_default_prng_impl": "rbg",
    "jax_random_seed_offset": 7,
}


@pytest.fixture
def changed():
    """Change settings for the rest of a test."""
    before = {}

    def change(**settings):
        for name, value in settings.items():
            before.setdefault(name, getattr(jax.config, name))
            jax.config.update(name, value)

    yield change
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="module")
def model():
    """A count whose cube leaves 32 bits, labels, and a continuous variable."""
    with pm.Model() as model:
        N = pm.Poisson("N", 1300.0)
        z = pm.Categorical("z", p=[0.2, 0.5, 0.3], shape=4)
        mu = pm.Normal("mu")
        pm.Normal("y", N**3 / 1e9 + 1e-3 * mu, 0.2, observed=[2.3])
        pm.Normal("w", mu + z, 1.0, observed=np.arange(4.0))
    return model


def steps_of(model):
    return [
        pmd.BlockGibbs("N", model=model),
        pmd.ReparameterizedSlice("mu", model=model),
    ]


def by_steps(model, steps=None):
    point, drawn = model.initial_point(), []
    for step in steps or steps_of(model):
        step.setup_chain(np.random.default_rng(1), tune=4, draws=4)
        for _ in range(8):
            point, _ = step.step(point)
            drawn.append(np.concatenate([np.ravel(v) for v in point.values()]))
    return drawn


def by_target(model):
    x, target = pmd.target_from_model(model, "N").at(model.initial_point())
    return [target.logdensity(x), target.differences(x), target.centred(x).logdensity(x + 1)]


def by_sample(model):
    with model:
        posterior = pmd.sample(10, tune=20, chains=2, random_seed=1, **QUIET)["posterior"]
    return [posterior[name].values for name in ("N", "z", "mu")]


def by_energy(model):
    with pm.Model():
        pm.Normal("x")
        fit = pmd.fit_energy_posterior(iterations=5, chains=2, random_seed=1, progressbar=False)
        tree = fit.sample(5, tune=5, chains=2, random_seed=2)
    return [fit.history["gradient_norm"], tree["posterior"]["x"].values]


@pytest.mark.slow
@pytest.mark.parametrize("way", [by_steps, by_target, by_sample, by_energy])
def test_models_do_not_see_the_settings(way, model, changed):
    before, made = way(model), steps_of(model)
    changed(jax_enable_x64=False, **CHANGED)
    forget()
    after = [way(model)] + (
        [by_steps(model, made)] if way is by_steps else []
    )  # steps made after the change, and before
    for found in after:
        for a, b in zip(before, found, strict=True):
            assert np.asarray(b).dtype == np.asarray(a).dtype
            np.testing.assert_array_equal(b, a)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")  # 64 bits are what a graph's casts ask for
@pytest.mark.slow
def test_graphs_and_kernels_see_the_width_only(changed):
    space = pmd.Space.build({"x": (0, 1)}, shapes={"x": (3,)})
    weights = np.array([[0, 1.0, 0], [1.0, 0, -2.0], [0, -2.0, 0]])
    key = jax.random.key(0, impl="threefry2x32")
    kernel, params = gibbs_with_gradients(2)

    def fixed():
        """What draws nothing, a target, and a state of it."""
        graph = FactorGraph(space, [Quadratic(np.arange(3), weights)], {"x": np.eye(3, 2)})
        target, x = (
            graph.clamp({"x": np.ma.masked_array([1, 0, 0], [False, True, True])}).to_target(),
            np.array([1, 0, 1]),
        )
        mmd = pmd.learning.squared_mmd(np.eye(3, dtype=int), np.ones((2, 3), int))
        marginal = marginals(graph, run(graph, SUM, n_sweeps=5))["x"]
        return [graph.logdensity(x), marginal, target.differences(x), mmd], graph, target, x

    def found():
        values, graph, target, x = fixed()
        ising = pmd.learning.Ising(3)
        learned = pmd.learning.fit(ising, {"x": np.eye(3, dtype=int)}, iterations=2, chains=3, batch=2)
        state = loop(kernel, key, kernel.init(x, target), target, params, 3)[0]
        return values, [pmp(key, graph, n_sweeps=5).value, state.logdensity, learned.params["weights"]]

    before = found()
    changed(**CHANGED)
    jax.tree.map(np.testing.assert_array_equal, found(), before)
    changed(jax_enable_x64=False)
    after = fixed()[0]
    assert {a.dtype for a in after} == {np.dtype("float32")}
    for a, b in zip(before[0], after, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5)


def test_a_program_of_another_width_is_refused(model, changed):
    x, target = pmd.target_from_model(model, "N").at(model.initial_point())
    changed(jax_enable_x64=False)
    with pytest.raises(
        ValueError, match=r"traces with jax_enable_x64=False.*64 bits.*Trace it under jax.enable_x64\(True\)"
    ):
        jax.jit(target.logdensity)(x)
    with jax.enable_x64(True):
        assert jax.jit(target.logdensity)(x).dtype == np.float64


@pytest.mark.parametrize(
    ("flags", "unknown", "one_loop"),
    [
        ("", {}, True),
        ("--xla_disable_hlo_passes=algsimp", {}, False),  # the user's own choice of passes stays
        ("", {"xla_no_such_option": ""}, False),  # as an option that another version of XLA lacks
    ],
)
def test_long_sums_are_one_loop(flags, unknown, one_loop, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(jax_settings, "SUMS", jax_settings.SUMS | unknown)
    # without what other tests, or this one, have found
    monkeypatch.setattr(jax_settings, "sums", functools.cache(jax_settings.sums.__wrapped__))
    x = np.linspace(-1, 1, 999)
    compiled = jax_settings.jitted(lambda x: jnp.exp(x).sum()).lower(x).compile()
    np.testing.assert_allclose(compiled(x), np.exp(x).sum(), rtol=1e-14)
    assert ("reduce-window" not in compiled.as_text()) == one_loop
