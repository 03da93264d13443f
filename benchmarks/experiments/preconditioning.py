"""How much the discrete Langevin proposal gains on ordered values from a unit of distance for each site.

python -m benchmarks.experiments.preconditioning [--short]

`pmd.DiscreteLangevin` uses the standard deviation of each site over the first half of tuning as its unit;
here it is that of a run of block Gibbs.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from benchmarks import models as examples
from benchmarks.experiments import report, runner, tuning
from pymc_discrete import target_from_model
from pymc_discrete.kernels import block_gibbs

RECORDS, SWEEPS = 256, 2000


def unequal(sites=100):
    """Counts whose rates run from 1 to 1000, each seen through noise."""
    r = np.random.default_rng(0)
    rate = np.geomspace(1, 1000, sites)
    with pm.Model() as model:
        n = pm.Poisson("n", rate, shape=sites)
        pm.Normal("y", n, np.sqrt(rate), observed=r.poisson(rate) + np.sqrt(rate) * r.normal(size=sites))
    return model, None


def grades(sites=200, values=10):
    """Ordered grades, some known well and some badly."""
    r = np.random.default_rng(0)
    noise = np.geomspace(0.3, 5, sites)
    with pm.Model() as model:
        z = pm.DiscreteUniform("z", 0, values - 1, shape=sites)
        pm.Normal("y", z, noise, observed=r.integers(0, values, sites) + noise * r.normal(size=sites))
    return model, None


def n_mixture():
    """Benchmark E, its rates fixed at the initial point."""
    model, names = examples.MODELS["E"].pymc()
    return model, names


SETTINGS = {"counts 1 to 1000": unequal, "grades": grades, "E given the rates": n_mixture}


def main():
    args = report.arguments(__doc__, ["DMALA"], steps=1000, chains=1, seconds=4)
    table = report.Table("preconditioning", args)
    for setting, make in SETTINGS.items():
        model, names = make()
        target = target_from_model(model, names)
        x = np.concatenate([np.ravel(target.density.start[v.name]) for v in target.space.variables])
        sd, at = spread(target, x, jax.random.key(args.seed))
        table.run(setting, "DMALA", model, partial(measured, target=target, x=at, sd=sd, args=args))
    table.write(
        "Preconditioning of the discrete Langevin proposal",
        [
            "unit 1: every site's unit of distance is 1. unit sd: its standard deviation, at least 0.5. "
            "alpha tuned for each.",
            "ESS/s: bulk ESS of the slowest of about 25 sites per second, one chain, thinned to some 10,000 "
            "draws.",
        ],
    )


def spread(target, x, key):
    """((d,) standard deviations, (d,) the last state) of a run of block Gibbs from x."""
    kernel, params = block_gibbs()

    @jax.jit
    def run(key, state, target):
        def body(state, key):
            state, _ = kernel.step(key, state, target, params)
            return state, state.x

        return jax.lax.scan(body, state, jax.random.split(key, SWEEPS))

    state, draws = run(key, kernel.init(jnp.asarray(x), target), target)
    return np.maximum(np.asarray(draws)[SWEEPS // 2 :].std(0), 0.5), np.asarray(state.x)


def measured(sampler, kernel, params, *, target, x, sd, args):
    row = {}
    for name, unit in {"unit 1": np.ones(len(sd)), "unit sd": sd}.items():
        key = jax.random.key(args.seed)
        scaled = {**params, "scale": jnp.asarray(unit)}
        tune = runner.tuner(kernel, scaled, target, tuning.TRANSITIONS)
        alpha, accept = tune(key, x, params["step_size"], args.steps)

        @jax.jit
        def many(key, state, target, alpha, scaled=scaled):
            def body(state, key):
                state, _ = kernel.step(key, state, target, {**scaled, "step_size": alpha})
                return state, state.x

            return jax.lax.scan(body, state, jax.random.split(key, RECORDS))

        state, kept, spent = kernel.init(jnp.asarray(x), target), [], 0.0
        jax.block_until_ready(many(key, state, target, alpha))
        while spent < args.seconds:
            begin = time.perf_counter()
            key_call = jax.random.fold_in(key, len(kept))
            state, draws = jax.block_until_ready(many(key_call, state, target, alpha))
            spent += time.perf_counter() - begin
            kept.append(np.asarray(draws))
        thinned = np.concatenate(kept)[:: max(len(kept) // 40, 1)]
        sites = range(0, len(sd), max(len(sd) // 25, 1))
        slowest = min(runner.ess(thinned[None, :, i].astype(float)) for i in sites)
        row |= {f"alpha, {name}": alpha, f"accept, {name}": accept, f"ESS/s, {name}": slowest / spent}
    return row


if __name__ == "__main__":
    main()
