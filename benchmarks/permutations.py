"""Weighted permutations: BlockGibbs in pmd.sample beside a hand-written Metropolis of random swaps, in JAX.

python -m benchmarks.permutations --out benchmarks/results/NAME-permutations

The log density is the sum of W[i, x_i] over the places i, with independent normal weights W. A draw of
BlockGibbs is a sweep, in which all places are matched in pairs, and a draw of the Metropolis is n/2
proposals, each to swap two places, one after another. The summary is the log density.
"""

import time

import numpy as np

from benchmarks import harness, scores

CHAINS = 4
SIZES = (10, 100, 1000)
SAMPLERS = ("pmd.sample", "Metropolis")


def weights(n):
    return np.random.default_rng(n).normal(size=(n, n))


def by_package(args, W):
    """(chains, draws) log densities, and the seconds of the draws after tuning."""
    import pymc as pm

    import pymc_discrete as pmd

    chunks = []
    with pm.Model():
        pmd.Permutation("x", len(W), W)
        tree = pmd.sample(
            args.draws,
            tune=args.tune,
            chains=CHAINS,
            step=pmd.BlockGibbs(),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            callback=lambda *_: chunks.append(time.process_time()),
        )
    x = tree["posterior"]["x"].values
    seconds = (chunks[-1] - chunks[0]) * len(chunks) / (len(chunks) - 1)
    return W[np.arange(len(W)), x].sum(axis=-1), seconds


def by_hand(args, W):
    """As `by_package`."""
    import jax
    import jax.numpy as jnp

    n, table = len(W), jnp.asarray(W)

    def swap(carried, key):
        x, logp = carried
        key_places, key_accept = jax.random.split(key)
        i, shift = jax.random.randint(key_places, (2,), 0, jnp.array([n, n - 1]))
        j = (i + 1 + shift) % n
        change = table[i, x[j]] + table[j, x[i]] - table[i, x[i]] - table[j, x[j]]
        accept = jnp.log(jax.random.uniform(key_accept)) < change
        first, second = x[i], x[j]
        x = x.at[i].set(jnp.where(accept, second, first)).at[j].set(jnp.where(accept, first, second))
        return (x, logp + jnp.where(accept, change, 0.0)), None

    def draw(carried, key):
        carried, _ = jax.lax.scan(swap, carried, jax.random.split(key, n // 2))
        return carried, carried[1]

    @jax.jit
    def chain(key, x):
        start = table[jnp.arange(n), x].sum()
        return jax.lax.scan(draw, (x, start), jax.random.split(key, args.tune + args.draws))[1]

    rng = np.random.default_rng(1)
    starts = [rng.permutation(n) for _ in range(CHAINS)]
    chain(jax.random.key(0), starts[0]).block_until_ready()  # compiles
    begin = time.process_time()
    found = [np.asarray(chain(jax.random.key(1 + c), x)) for c, x in enumerate(starts)]
    seconds = (time.process_time() - begin) * args.draws / (args.tune + args.draws)
    return np.stack(found)[:, args.tune :], seconds


def measure(args, n, sampler):
    begin = time.perf_counter()
    energies, seconds = (by_package if sampler == "pmd.sample" else by_hand)(args, weights(n))
    return scores.scored({"log density": energies}, seconds) | {"whole": time.perf_counter() - begin}


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for n in args.sizes:
            for sampler in args.samplers:
                yield harness.Row({"n": n, "sampler": sampler}, env)


def options(p):
    p.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--draws", type=int, default=4000)
    p.add_argument("--tune", type=int, default=1000)
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")


def progress(r):
    return f"{r['speed']:.3g} ESS/s, {r['min_ess'] / (CHAINS * r['draws']):.2g} a draw"


def markdown(args, records):
    lines = []
    for r in records:
        start = [r["n"], harness.label(r["sampler"], r["sampler"] == "pmd.sample")]
        if r["status"] != "ok":
            lines.append([*start, r["reason"][:80]])
            continue
        of = r["summaries"]["log density"]
        per_draw = f"{r['min_ess'] / (CHAINS * r['draws']):.2g}"
        time_of_draw = f"{1e6 * r['seconds'] / (CHAINS * r['draws']):.3g}"
        mean = f"{of['mean']:.2f} ± {of['mcse_mean']:.2g}"
        lines.append([*start, f"{r['speed']:.3g}", per_draw, time_of_draw, mean, f"{of['rhat']:.3f}"])
    columns = ["n", "sampler", "ESS/s", "ESS per draw", "µs per draw", "mean log density", "R-hat"]
    return "\n".join(
        [
            "# Weighted permutations",
            "",
            *harness.origins(records),
            "",
            *harness.table(columns, lines),
            "",
            FOOTNOTE,
            "",
        ]
    )


FOOTNOTE = f"""- {CHAINS} chains, one core; seconds of the processor, of sampling only. ESS: ArviZ's bulk ESS
  of the log density.
- The weights are independent standard normals. A draw of **pmd.sample** matches all places in pairs, each
  of which keeps or swaps its values with its conditional probabilities; a draw of the Metropolis, written in
  JAX, is n/2 proposals of random swaps, one after another."""


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            one_core=True,
            short={"sizes": [10], "draws": 200, "tune": 50},
            keeps_other_rows=True,
        )
    )
