"""float32: in a process of its own, since PyTensor fixes the width when it is imported, and in pmd.sample
beside float64.
"""

import itertools

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine.discrete import DiscreteBlock
from pymc_discrete.engine.nuts import NutsBlock
from pymc_discrete.engine.nuts_options import DEFAULTS
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.precision import precision
from pymc_discrete.engine.program import Program, recorded
from tests.models import DENSE, binary, labels_and_count, mixed, visited
from tests.tools.enumeration import evaluate
from tests.tools.interpreted import interpreted
from tests.tools.processes import run_python
from tests.tools.running import QUIET
from tests.tools.statistics import LARGEST_Z, z_of_moments

pytestmark = pytest.mark.shares_programs

SCRIPT = """
import itertools, logging
import numpy as np, jax, pymc as pm, pytensor.tensor as pt
from scipy import stats
import pymc_discrete as pmd

logging.getLogger("pymc").setLevel(logging.ERROR)
with pm.Model() as model:
    x = pm.Bernoulli("x", [0.3, 0.6, 0.5], shape=3)
    c = pm.Categorical("c", p=[0.2, 0.5, 0.3])
    pm.Potential("e", 1.1 * x[0] * x[1] - 0.9 * pt.eq(x[2], x[1]) + 0.5 * c * x[2])
    step = pmd.GibbsWithGradients(n_flips=2)
states = np.array(list(itertools.product(range(2), range(2), range(2), range(3))))
logp = np.array([
    np.log([0.7, 0.3])[a] + np.log([0.4, 0.6])[b] + np.log(0.5) + np.log([0.2, 0.5, 0.3])[k]
    + 1.1 * a * b - 0.9 * (d == b) + 0.5 * k * d
    for a, b, d, k in states
])
prob = np.exp(logp) / np.exp(logp).sum()
_, target = step.target.at(model.initial_point())
assert target.differences(states[0]).dtype == np.float32, "float64 in a float32 process"
# a few roundings of numbers near 1
assert np.allclose([float(target.logdensity(s)) for s in states] - logp, 0, atol=2e-6)
N = 50_000
start = np.random.default_rng(0).choice(len(prob), N, p=prob)
kernel = step.kernel
run = jax.vmap(lambda key, x: kernel.step(key, kernel.init(x, target), target, step.params)[0].x)
end = np.asarray(jax.jit(run)(jax.random.split(jax.random.key(1), N), states[start]))
observed = np.bincount(np.ravel_multi_index(end.T, (2, 2, 2, 3)), minlength=len(prob))
assert stats.chisquare(observed, prob * N).pvalue > 1e-4
assert (end != states[start]).any(axis=1).mean() > 0.2
point = model.initial_point()
for _ in range(20):
    point, stat = step.step(point)
held = stat[0]["accept"] > 0
with pm.Model() as cube:
    N = pm.Poisson("N", 1300.0)
    pm.Normal("y", N**3 / 1e9, 0.2, observed=2.3)
jax.config.update("jax_enable_x64", True)  # as another library may
x, target = pmd.target_from_model(cube).at({"N": np.array(1300)})
changes = np.array([float(target.centred(x).logdensity(x + n)) for n in (-10, 10)])
want = stats.poisson.logpmf(x + [-10, 10], 1300) - stats.poisson.logpmf(x, 1300)
want -= ((((x + [-10, 10]) ** 3 / 1e9 - 2.3) ** 2 - (x**3 / 1e9 - 2.3) ** 2) / 0.08)
assert target.logdensity(x).dtype == np.float32
assert np.allclose(changes, want, 0, atol=5e-3), (changes, want)  # terms of 9,000 nats
print("held", held)
"""


@pytest.mark.slow
def test_float32():
    assert "held True" in run_python(SCRIPT, PYTENSOR_FLAGS="floatX=float32")


# ---------------------------------------------------------------- pmd.sample(dtype="float32")
def test_a_model_of_one_variable():
    """Nothing enters its density from outside, so that nothing of it is traced before its sites."""
    with pm.Model():
        pm.Categorical("z", p=[0.2, 0.8])
        tree = pmd.sample(200, tune=10, chains=4, random_seed=1, dtype="float32", **QUIET)
    assert abs(tree["posterior"]["z"].values.mean() - 0.8) < 5 * 0.4 / np.sqrt(tree["posterior"]["z"].size)


@pytest.mark.slow
def test_no_64_bits_in_the_program():
    with labels_and_count() as model, precision("float32"):
        w = pm.Bernoulli("w", 0.3, shape=3)
        pm.Normal("v", pt.exp(0.1 * pt.dot(np.arange(6.0).reshape(2, 3), w)), 0.5, observed=[1.0, 1.2])
        point = model.initial_point()
        blocks = [NutsBlock(model, ["mu"], point, Points([]), 10, 0.8, **DEFAULTS)]
        blocks += [
            DiscreteBlock(s, 10, Points([])) for s in (pmd.BlockGibbs(["z", "w"]), pmd.DiscreteLangevin("n"))
        ]
        program = Program(model, blocks, Points([]), recorded(model, None), jax.devices()[:1])
        states = program.layout.put(program.start([point]), program.layout.of_chains)
        chains = program.identities(1, np.arange(1))
        run = lambda s: program.run(chains, s, program.numbers, 0, 2, 1, size=2)
        jaxpr = str(jax.make_jaxpr(run)(states))
    assert "f32[" in jaxpr
    assert "f64[" not in jaxpr
    assert "i64[" not in jaxpr


MOST_STATES = 16
SITES = [binary, mixed, *DENSE, visited]


@interpreted
def changes_from(target, start, states):
    return jax.vmap(target.centred(start).logdensity)(states)


@pytest.mark.slow
@pytest.mark.parametrize("build", SITES, ids=lambda build: build.__name__)
def test_differences_of_every_kind_of_site(build):
    with pm.Model() as model:
        ranges, options = build()
    # few enough to be interpreted: that the states do what they must is tested in 64 bits elsewhere
    x = np.array(list(itertools.product(*ranges)))
    x = np.random.default_rng(0).permutation(x)[:MOST_STATES]
    found = {}
    for dtype in ("float64", "float32"):
        with precision(dtype):
            target = pmd.target_from_model(model, **options)
            _, target = target.at(model.initial_point())
            states = x.astype(dtype.replace("float", "int"))  # the interpreter takes those of the program
            densities, differences, *_ = evaluate(target, states)
            possible = densities > -np.inf
            start = states[possible][possible.sum() // 2]
            changes = changes_from(target, start, states)
            found[dtype] = densities, changes[possible], differences[possible]
    densities, changes, _ = found["float64"]
    np.testing.assert_allclose(changes, densities[possible] - densities[(x == start).all(1)], atol=1e-10)
    for wide, narrow in zip(found["float64"], found["float32"], strict=True):
        assert narrow.dtype == np.float32
        # a rounding is 6e-8 of the numbers that are added, here up to some tens
        np.testing.assert_allclose(
            narrow, wide, rtol=1e-5, atol=2e-6 * max(np.abs(wide[np.isfinite(wide)]).max(), 1.0)
        )


def million(n=10_000):
    """A log density of a million nats, and the data."""
    y = 13.6 * np.random.default_rng(0).normal(size=n) + 0.3
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        z = pm.Bernoulli("z", 0.5, shape=2)
        pm.Normal("y", mu + 1e-2 * z[0] - 2e-2 * z[1], 1.0, observed=y)
    return model, y


@pytest.mark.slow
def test_changes_of_a_large_log_density():
    model, _ = million()
    at, other = np.array([0, 0]), np.array([1, 1])
    found = {}
    for dtype in ("float64", "float32"):
        with precision(dtype):
            x, target = pmd.target_from_model(model, "z").at({**model.initial_point(), "z": at})
            naive = float(target.logdensity(other)) - float(target.logdensity(x))
            centred = float(target.centred(x).logdensity(other))
            found[dtype] = naive, centred, np.asarray(target.differences(x)), float(target.logdensity(x))
    exact, _, differences, logp = found["float64"]
    assert logp < -9e5
    naive, centred, claimed, _ = found["float32"]
    assert abs(centred - exact) < 1e-3 * abs(exact)
    assert abs(naive - exact) > 5 * abs(centred - exact)
    np.testing.assert_allclose(claimed, differences, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_posterior_of_a_large_log_density():
    model, y = million()
    with model:
        idata = pmd.sample(
            1000, tune=500, chains=2, random_seed=4, dtype="float32", initvals={"z": [0, 0]}, **QUIET
        )
    post = idata["posterior"]
    assert post["mu"].dtype == np.float32
    # given z, mu is normal about mean(y) less what z adds
    shifted = (
        post["mu"].values.astype(float) + 1e-2 * post["z"].values[..., 0] - 2e-2 * post["z"].values[..., 1]
    )
    precision_of_mu = 1 / 100 + len(y)
    assert np.abs(z_of_moments(shifted, y.sum() / precision_of_mu, precision_of_mu**-0.5)).max() < LARGEST_Z
