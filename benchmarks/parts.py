"""Graphs that are too wide to be summed out at once: parts of them summed out in turn, or nothing.

python -m benchmarks.parts --out benchmarks/results/NAME-parts

Lattice: an image of 24 x 24 pixels of two kinds, whose means and noise are unknown; the coupling is given,
since its normalising constant is unknown. Blocks: 40 nodes of two groups, with unknown rates of edges within
and between them. Crossed: 30 rows and 24 columns, switched on or off, whose products have an unknown effect
on a Normal response.
"""

import time

import numpy as np

from benchmarks import harness, scores

CHAINS = 4
DRAWS = 500


def lattice():
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(0)
    z = np.add.outer(np.sin(np.arange(24) / 3), np.cos(np.arange(24) / 4)) > 0
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", [0.0, 1.0], 0.5), pm.HalfNormal("sd", 1)
        x = pm.Bernoulli("x", 0.5, shape=(24, 24))
        same = pt.eq(x[1:], x[:-1]).sum() + pt.eq(x[:, 1:], x[:, :-1]).sum()
        pm.Potential("e", 0.6 * same)
        pm.Normal("y", mu[x], sd, observed=z + 0.7 * r.normal(size=z.shape))
    return model


def blocks():
    import pymc as pm

    r = np.random.default_rng(1)
    z = np.arange(40) % 2
    i, j = np.triu_indices(40, 1)
    edges = r.random(len(i)) < np.where(z[i] == z[j], 0.3, 0.15)
    with pm.Model() as model:
        within, between = pm.Beta("within", 1, 1), pm.Beta("between", 1, 1)
        x = pm.Bernoulli("x", 0.5, shape=40)
        same = pm.math.eq(x[i], x[j])
        pm.Bernoulli("edge", pm.math.switch(same, within, between), observed=edges.astype(int))
    return model


def crossed():
    import pymc as pm

    r = np.random.default_rng(2)
    u, v = r.random(30) < 0.5, r.random(24) < 0.5
    with pm.Model() as model:
        a, sd = pm.Normal("a", 0, 2), pm.HalfNormal("sd", 1)
        u_, v_ = pm.Bernoulli("u", 0.5, shape=30), pm.Bernoulli("v", 0.5, shape=24)
        y = np.outer(u, v) + 1.5 * r.normal(size=(30, 24))
        pm.Normal("y", a * u_[:, None] * v_[None, :], sd, observed=y)
    return model


MODELS = {"lattice": lattice, "blocks": blocks, "crossed": crossed}
SAMPLERS = {"parts": True, "as it is": False}


def measure(args, model, sampler):
    import pymc_discrete as pmd

    chunks = []
    begin = time.process_time()
    tree = pmd.sample(
        DRAWS,
        tune=args.tune,
        chains=CHAINS,
        model=MODELS[model](),
        collapse=SAMPLERS[sampler],
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
        callback=lambda *_: chunks.append(time.process_time()),
    )
    seconds = (chunks[-1] - chunks[0]) * len(chunks) / (len(chunks) - 1)
    posterior = tree["posterior"]
    a = {
        f"{name} {n}": values[..., n]
        for name, v in posterior.data_vars.items()
        if v.dtype.kind == "f"
        for values in [v.values.reshape(CHAINS, DRAWS, -1)]
        for n in range(values.shape[-1])
    }
    found = scores.scored(a, seconds)
    steps = float(tree["sample_stats"]["n_steps"].mean())
    return found | {"before": chunks[0] - begin, "steps": steps, "ms": 1e3 * seconds / (CHAINS * DRAWS)}


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            for sampler in args.samplers:
                yield harness.Row({"model": model, "sampler": sampler}, env)


def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--tune", type=int, default=300)
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")


def progress(r):
    return f"{r['speed']:.3g} ESS/s, {r['min_ess'] / (CHAINS * r['draws']):.2g} a draw, {r['ms']:.2g} ms"


def markdown(args, records):
    lines = []
    for r in records:
        start = [r["model"], harness.label(r["sampler"], True)]
        if r["status"] != "ok":
            lines.append([*start, r["reason"][:80]])
            continue
        per_draw = f"{r['min_ess'] / (CHAINS * r['draws']):.2g}"
        found = [f"{r['before']:.0f}", f"{r['ms']:.2g}", f"{r['steps']:.1f}", f"{r['speed']:.3g}", per_draw]
        lines.append([*start, *found, r["worst"]])
    columns = [
        "model",
        "sampler",
        "s before sampling",
        "ms per draw",
        "gradients per draw",
        "ESS/s",
        "ESS per draw",
        "slowest summary",
    ]
    return "\n".join(
        [
            "# Parts of graphs summed out in turn",
            "",
            *harness.origins(records),
            "",
            *harness.table(columns, lines),
            "",
            FOOTNOTE,
            "",
        ]
    )


FOOTNOTE = f"""- {CHAINS} chains, one core; seconds of the processor. s before sampling: until tuning ends.
  ESS: ArviZ's bulk ESS of the continuous variables, the least of them. The machine was shared
  with other programs.
- parts: collapse=True, on graphs that are too wide to be summed out at once; as it is: collapse=False."""


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
            short={"models": ["crossed"], "samplers": ["as it is"], "tune": 50},
            keeps_other_rows=True,
        )
    )
