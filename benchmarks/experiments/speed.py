"""Time of a transition beside that of the differences and random numbers it needs, and memory, for d = 100,
2500 and 40,000.

python -m benchmarks.experiments.speed [--only 50x50 ...] [--short]
PYTENSOR_FLAGS=floatX=float32 python -m benchmarks.experiments.speed

Ising lattices with a free boundary, coupling 0.5 and a random field, one chain, all steps inside one compiled
loop; kernels that tune are tuned first. From a draw of block Gibbs.
"""

import resource
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments import models, report, runner, tuning
from pymc_discrete import target_from_model

SAMPLERS = ["GWG-1", "GWG-adapt", "PAFS-5", "PAFS-adapt", "NB-adapt", "PAS-5", "DMALA", "DLMC", "BlockGibbs"]
SIDES = {"10x10": 10, "50x50": 50, "200x200": 200}
RECORDS, SWEEPS, REPEATS = 64, 300, 5


def lattice(p):
    return models.ising_in_field(np.random.default_rng(0).normal(size=(p, p)), coupling=0.5)


SETTINGS = {name: lambda p=p: lattice(p) for name, p in SIDES.items()} | {"RBM 784x25": tuning.rbm}


def main():
    args = report.arguments(__doc__, SAMPLERS, steps=300, chains=1, seconds=4)
    table = report.Table("speed", args)
    for setting, make in SETTINGS.items():
        if setting not in (args.only or (["10x10"] if args.short else SETTINGS)):
            continue
        model = make()
        target = target_from_model(model)
        key = jax.random.key(args.seed)
        at = runner.approximate_draw(target, runner.random_starts(target.space, 1, args.seed)[0], key, SWEEPS)
        needed = costs(target, at)
        for name in args.samplers:
            make_row = partial(measured, target=target, x=at, needed=needed, args=args)
            table.run(setting, name, model, make_row)
    table.write(
        "Speed of a transition",
        [
            "us: of one transition, the fastest of five runs. value: what was tuned.",
            "differences, numbers: of all differences at a point, and of one uniform a site, in loops of "
            "their own; GWG, PAFS and NB evaluate the differences of few sites only and need fewer numbers.",
            "by need: us by the sum of the two.",
            "ESS/s energy: of the log density, every transition recorded. GB: the largest resident memory "
            "of the process so far.",
        ],
    )


def per_call(function, start, calls):
    """Microseconds of `function` (n, carried) -> carried, in a compiled loop."""
    run = jax.jit(lambda carried, calls: jax.lax.fori_loop(0, calls, function, carried))
    jax.block_until_ready(run(start, 1))
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(run(start, calls))
        times.append(time.perf_counter() - begin)
    return min(times) / calls * 1e6


def costs(target, x):
    """Microseconds of all differences, and of one uniform random number for each site."""
    d, calls = target.space.d, max(2_000_000 // target.space.d, 10)

    def evaluate(n, carried):
        x, differences = carried
        return x.at[0].set(jnp.where(differences[0, 0] > 0, x[0], 1 - x[0])), target.differences(x)

    def draw(n, total):
        return total + jax.random.uniform(jax.random.fold_in(jax.random.key(0), n), (d,))

    start = jnp.asarray(x), target.differences(x)  # this call also makes constants, outside the loop
    return per_call(evaluate, start, calls), per_call(draw, jnp.zeros(d), calls)


def measured(sampler, kernel, params, *, target, x, needed, args):
    key, row = jax.random.key(args.seed), {}
    if kernel.tuned is not None:
        tune = runner.tuner(kernel, params, target, tuning.TRANSITIONS)
        value, row["accept"] = tune(key, x, params[kernel.tuned.name], args.steps)
        params = {**params, kernel.tuned.name: value}
        row["value"] = value

    @jax.jit
    def many(key, state, target):
        def body(state, key):
            state, _ = kernel.step(key, state, target, params)
            return state, state.logdensity

        return jax.lax.scan(body, state, jax.random.split(key, RECORDS))

    state, kept, times = kernel.init(jnp.asarray(x), target), [], []
    jax.block_until_ready(many(key, state, target))
    while sum(times) < args.seconds:
        begin = time.perf_counter()
        state, energy = jax.block_until_ready(many(jax.random.fold_in(key, len(times)), state, target))
        times.append(time.perf_counter() - begin)
        kept.append(np.asarray(energy))
    us, speed = min(times) / RECORDS * 1e6, RECORDS * len(times) / sum(times)
    differences, numbers = needed
    row |= {"us": us, "steps/s": speed, "differences": differences, "numbers": numbers}
    row["by need"] = us / (differences + numbers)
    energy = np.concatenate(kept)
    row["ESS/s energy"] = runner.ess(energy[None]) / sum(times)
    return row | {"GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


if __name__ == "__main__":
    main()
