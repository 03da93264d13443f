"""float32, in a process of its own: PyTensor fixes the width when it is imported."""

import os
import subprocess
import sys

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
    np.log([0.7, 0.3])[a] + np.log([0.4, 0.6])[b] + np.log(0.5) + np.log([0.2, 0.5, 0.3])[k] + 1.1 * a * b - 0.9 * (d == b) + 0.5 * k * d
    for a, b, d, k in states
])
prob = np.exp(logp) / np.exp(logp).sum()
_, target = step.target.at(model.initial_point())
assert target.differences(states[0]).dtype == np.float32, "float64 in a float32 process"
assert np.allclose([float(target.logdensity(s)) for s in states] - logp, 0, atol=2e-6)  # a few roundings of numbers near 1
N = 50_000
start = np.random.default_rng(0).choice(len(prob), N, p=prob)
run = jax.jit(jax.vmap(lambda key, x: step.kernel.step(key, step.kernel.init(x, target), target, step.params)[0].x))
end = np.asarray(run(jax.random.split(jax.random.key(1), N), states[start]))
observed = np.bincount(np.ravel_multi_index(end.T, (2, 2, 2, 3)), minlength=len(prob))
assert stats.chisquare(observed, prob * N).pvalue > 1e-4
assert (end != states[start]).any(axis=1).mean() > 0.2
point = model.initial_point()
for _ in range(20):
    point, stat = step.step(point)
print("held", stat[0]["accept"] > 0)
"""


def test_float32():
    env = {**os.environ, "PYTENSOR_FLAGS": "floatX=float32"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "held True" in done.stdout
