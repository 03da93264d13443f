"""No random number is used twice: the keys of whole runs, of every sampler, its tuning included."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete import learning
from pymc_discrete.kernels import gibbs_with_gradients, loop
from pymc_discrete.variational import TiltedNormal
from tests.tools.keys import collected
from tests.tools.methods import others
from tests.tools.running import QUIET

DRAWS = 6


def sites():
    """Binary, nominal, bounded and unbounded sites, more colours than are unrolled, and pairs that make a
    cycle.
    """
    x = pm.Bernoulli("x", 0.4, shape=11)
    z = pm.Categorical("z", p=[0.2, 0.5, 0.3], shape=3)
    k = pm.Poisson("k", 2.0, shape=2)
    pm.Potential(
        "e",
        0.3 * (x[:, None] * x[None, :]).sum()
        + 0.5 * pt.eq(z, pt.roll(z, 1)).sum()
        + 0.1 * k[0] * k[1]
        + 0.2 * k[0] * z[0],
    )


def few():
    """As `sites`, a few of them, where no more is asked."""
    x, z, k = pm.Bernoulli("x", 0.4, shape=2), pm.Categorical("z", p=[0.2, 0.5, 0.3]), pm.Poisson("k", 2.0)
    pm.Potential("e", 0.3 * x[0] * x[1] + 0.1 * k * x[1] + 0.2 * k * z)


def dense():
    """Sites that are scanned."""
    x, k = pm.Bernoulli("x", 0.4, shape=4), pm.Poisson("k", 2.0, shape=2)
    pm.Potential("e", pt.softplus(pt.dot(np.ones((3, 6)), pt.concatenate([x, k]))).sum())


def differing():
    """Pairs that prefer different values, which get no bonds."""
    z = pm.Categorical("z", p=[0.2, 0.5, 0.3], shape=5)
    pm.Potential("e", -0.5 * pt.eq(z, pt.roll(z, 1)).sum())


def spins():
    s = 2 * pm.Bernoulli("x", 0.5, shape=(3, 3)) - 1
    pm.Potential("e", 0.3 * (s * pt.roll(s, 1, 0)).sum())


def continuous():
    a, b = pm.Normal("a", shape=3), pm.HalfNormal("b")
    pm.Normal("y", a.sum(), b, observed=1.0)


KERNELS = {
    "pafs": (few, pmd.PathAuxiliary, {}),
    "pafs, no backtrack": (few, pmd.PathAuxiliary, {"backtrack": False}),
    "block gibbs": (sites, pmd.BlockGibbs, {}),
    "a scan": (dense, pmd.BlockGibbs, {}),
    "tree gibbs beside others": (sites, pmd.TreeGibbs, {}),
    "swendsen-wang, clusters in turn": (differing, pmd.SwendsenWang, {}),
    "pmp": (spins, pmd.PerturbAndMaxProduct, {"n_sweeps": 3}),
}
STEPS = {
    "gwg": (few, pmd.GibbsWithGradients, {"n_flips": "adapt"}),
    "slice": (continuous, pmd.ReparameterizedSlice, {"sweeps": 2}),
}
OF_A_RUN = (pmd.DiscreteLangevin,)  # in `test_sample`
OTHERS = {
    name: (few, step, {})
    for name, step in others(
        *OF_A_RUN, *(kind for _, kind, _ in [*KERNELS.values(), *STEPS.values()])
    ).items()
}
KERNELS |= OTHERS


@pytest.mark.filterwarnings("ignore:PerturbAndMaxProduct is approximate")
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.by_default("swendsen-wang, clusters in turn", *OTHERS)
def test_kernels(name):
    """Draws of a few transitions each, of which the kernel makes the keys."""
    build, kind, options = KERNELS[name]
    with pm.Model() as model:
        build()
        step = kind(**options)
    x, target = step.target.at(model.initial_point())

    def draw(state, key):
        return loop(step.kernel, key, state, target, step.params, 3)[0], None

    with collected() as keys:
        run = jax.jit(lambda x, keys: jax.lax.scan(draw, step.kernel.init(x, target), keys)[0].x)
        run(jnp.asarray(x), jax.random.split(jax.random.key(0), DRAWS))
    keys.check(least=3 * DRAWS)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.by_default("slice")
def test_steps(name):
    """Chains of a step, tuning and drawing."""
    build, kind, options = STEPS[name]
    with pm.Model() as model:
        build()
    with collected() as keys:
        step = kind(model=model, **options)
        for chain in range(2):
            step.setup_chain(np.random.default_rng(chain), tune=DRAWS, draws=DRAWS)
            point = model.initial_point()
            for _ in range(DRAWS):
                point, _ = step.step(point)
            step.stop_tuning()
            for _ in range(DRAWS):
                point, _ = step.step(point)
    keys.check(least=4 * DRAWS)


@pytest.mark.slow
def test_settling():
    with pm.Model() as model:
        few()
    with collected() as keys:
        step = pmd.GibbsWithGradients(model=model, transitions=1)
        step.draws_ahead = False  # as beside other steps, draw by draw
        step.setup_chain(np.random.default_rng(0), tune=40, draws=1)
        step.learned = step.learned._replace(adaptation=step.learned.adaptation._replace(still=100))
        point = model.initial_point()
        for _ in range(4):
            point, _ = step.step(point)
            step.learned = step.learned._replace(adaptation=step.learned.adaptation._replace(still=100))
    keys.check(least=50)


@pytest.mark.slow
def test_sample(monkeypatch):
    """Several blocks and chains, tuning with chains that are helped on, thinned and in chunks."""
    monkeypatch.setattr("pymc_discrete.engine.run.TUNING_CHUNK", 5)
    monkeypatch.setattr("pymc_discrete.kernels.adaptation.STUCK_DRAWS", 0)
    with pm.Model():
        few()
        mu, s = pm.Normal("mu"), pm.Normal("s")
        pm.Normal("y", mu + s, 1.0, observed=1.0)
        steps = [pmd.ReparameterizedSlice("s"), pmd.BlockGibbs(["x", "z"]), pmd.DiscreteLangevin("k")]
        with collected() as keys:
            pmd.sample(
                6,
                tune=11,
                chains=3,
                step=steps,
                thin=2,
                chunk=4,
                random_seed=1,
                devices=jax.devices()[:1],
                **QUIET,
            )
    keys.check(least=3 * 23 * 4)


SAMPLERS = {
    "persistent pmp": (learning.PersistentPMP(2), 3),
    "fresh chains": (
        learning.ContrastiveDivergence(*gibbs_with_gradients(), transitions=2, start="uniform"),
        2,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_learning(name):
    """With hidden variables, and some of the data at a time."""
    sampler, chains = SAMPLERS[name]
    data = {"v": np.eye(3, dtype=int)}
    with collected() as keys:
        learning.fit(learning.RBM(3, 2), data, sampler=sampler, iterations=3, chains=chains, batch=2, seed=4)
    keys.check(least=3 * chains)


@pytest.mark.slow
def test_energy_posterior():
    with pm.Model(), collected() as keys:
        pm.Normal("x")
        energy = TiltedNormal(np.zeros(1), 1.0, width=1, depth=0, key=jax.random.key(9))
        fit = pmd.fit_energy_posterior(
            energy=energy, iterations=3, chains=2, n_steps=3, random_seed=1, progressbar=False
        )
        fit.sample(3, tune=3, chains=2, thin=2, random_seed=2)
    keys.check(least=3 * 2 * 3 * 3)


@pytest.mark.slow
def test_differentiable_slice():
    """Of a path that is computed a second time for its gradient, with the keys of the first."""
    with collected() as keys:
        pmd.differentiable_slice_sample(
            jax.random.key(0), lambda p, x: -p * x @ x, 1.0, jnp.ones(2), 7, checkpoint=True
        )
    keys.check(least=21)


def normal_twice(key):
    return jax.random.normal(key), jax.lax.fori_loop(
        0, 3, lambda t, total: total + jax.random.uniform(key), 0.0
    )


def children_of_a_drawn_key(key):
    return jax.random.normal(key), jax.vmap(jax.random.normal)(jax.random.split(key, 3))


@pytest.mark.parametrize(
    ("reuse", "message"),
    [(normal_twice, "were used more than once"), (children_of_a_drawn_key, "keys made of them too")],
)
def test_reuse_is_found(reuse, message):
    with collected() as keys:
        jax.jit(reuse)(jax.random.key(0))
    with pytest.raises(AssertionError, match=message):
        keys.check(least=1)
