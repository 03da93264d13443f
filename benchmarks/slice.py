"""Slice sampling: our step within pm.sample and in one program, next to PyMC's, blackjax's and NUTS; and what
a gradient through it costs.

python -m benchmarks.slice --seconds 10 --out benchmarks/results/NAME-slice

Four chains a row, all on one core, one after another; each density in a process of its own.
"""

import argparse
import functools
import itertools
import json
import logging
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.hmm import recorded, told
from benchmarks.models import ModelSpec
from benchmarks.run import RESULT, environment, keep, origins, publish, record_of
from benchmarks.samplers import CHUNKS, run_pymc, run_sample

CHAINS, TUNE = 4, 1000
SIZE = 2000  # draws of a chain between two looks of the host
SIGMAS = 4.0
LIMIT = 900  # seconds for a density in all


# ---------------------------------------------------------------- densities
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
SPREAD = 5.0
DENSITIES = {  # and the width of blackjax's first interval: of 0.3, 1, 3, 10, by a short run
    "normal": ("standard normal, d = 1", 3),
    "correlated": ("normal with correlations 0.9, d = 10", 3),
    "funnel": ("v ~ Normal(0, 3), x ~ Normal(0, exp(v / 2)), d = 5", 1),
    "kinked": ("eight schools, priors and likelihood all Laplace, d = 9", 10),
    "cauchy": ("Cauchy, d = 3", 3),
    "mixture": ("normals at -3 and 3, d = 1", 10),
}


def model_of(name):
    """Only variables without a transform."""
    import pymc as pm

    with pm.Model() as model:
        match name:
            case "normal":
                pm.Normal("x", 0, 1, shape=1)
            case "correlated":
                pm.MvNormal("x", np.zeros(10), np.where(np.eye(10) > 0, 1, 0.9), shape=10)
            case "funnel":
                pm.Normal("x", 0, pm.math.exp(pm.Normal("v", 0, 3) / 2), shape=4)
            case "kinked":
                theta = pm.Laplace("theta", pm.Laplace("mu", 0, 5), SPREAD, shape=len(SCHOOLS))
                pm.Laplace("y", theta, ERRORS, observed=SCHOOLS)
            case "cauchy":
                pm.Cauchy("x", 0, 1, shape=3)
            case "mixture":
                pm.NormalMixture("x", [0.5, 0.5], [-3, 3], 1, shape=1)
    return model


def kinked_moments():
    """Of mu and of theta_0, the first two: given mu the schools are independent, so that sums over two grids
    suffice.
    """
    mu, theta = np.linspace(-120, 120, 2401), np.linspace(-200, 200, 8001)
    prior = np.exp(-np.abs(theta - mu[:, None]) / SPREAD)
    marginal = [prior @ np.exp(-np.abs(theta - y) / e) for y, e in zip(SCHOOLS, ERRORS, strict=True)]
    weight = np.exp(-np.abs(mu) / 5) * np.prod(marginal, axis=0)
    weight /= weight.sum()
    likelihood = np.exp(-np.abs(theta - SCHOOLS[0]) / ERRORS[0])
    of_theta = [weight @ (prior @ (likelihood * theta**n) / marginal[0]) for n in (1, 2)]
    return [weight @ mu, weight @ mu**2, *of_theta]


def known(name, a):
    """{what: (values (chains, draws), its expectation)} of the summaries {coordinate: (chains, draws)}."""

    def moments(what, mean, square):
        return {what: (a[what], mean), f"{what}^2": (a[what] ** 2, square)}

    match name:
        case "normal":
            return moments("x 0", 0, 1)
        case "correlated":
            return moments("x 0", 0, 1) | {"x 0 x 9": (a["x 0"] * a["x 9"], 0.9)}
        case "funnel":
            return moments("v", 0, 9) | {"x 0^2 exp(-v)": (a["x 0"] ** 2 * np.exp(-a["v"]), 1)}
        case "kinked":
            mu, mu2, theta, theta2 = kinked_moments()
            return moments("mu", mu, mu2) | moments("theta 0", theta, theta2)
        case "cauchy":
            return {f"x 0 < {c}": (a["x 0"] < c, 0.5 + np.arctan(c) / np.pi) for c in (-10, -1, 0, 1, 10)}
        case "mixture":
            return moments("x 0", 0, 10)


def spec_of(name):
    """Every coordinate is a summary; the model is built once."""
    model = model_of(name)

    def summaries(a):
        return {
            f"{v} {i}" if x.ndim > 1 else v: x.T[i] if x.ndim > 1 else x
            for v, x in a.items()
            for i in range(x[0].size)
        }

    return ModelSpec(
        name=name, title=DENSITIES[name][0], pymc=lambda: (model, None), summaries=summaries, tune=TUNE
    )


def size_of(model):
    return sum(np.size(v) for v in model.initial_point().values())


# ---------------------------------------------------------------- samplers: (summaries (chains, draws), seconds, evaluations, what else)
def ours(pmd, names):
    return pmd.ReparameterizedSlice()


def pymc_slice(pmd, names):
    import pymc as pm

    return pm.Slice()


def of_ours(stats, d, sweeps):
    """Evaluations of a draw: two ends of an interval, one at the start of a sweep, one for the statistics."""
    return sweeps * (d * (2 + stats["slice_expansions"] + stats["slice_shrinkages"]) + 1) + 1


def in_pymc(build, spec, seed, seconds):
    """Chains of pm.sample in turn with one step, all cut to the length of the shortest, and so are their
    seconds.
    """
    counts, d = [], size_of(spec.pymc()[0])

    @functools.cache
    def counted(pmd, names):
        step = build(pmd, names)
        plain, sweeps = step.step, getattr(step, "sweeps", 1)

        def stepped(point):
            new, stats = plain(point)
            outs_and_ins = 4 * d + sum(s.get("nstep_out", 0) + s.get("nstep_in", 0) for s in stats)  # PyMC's
            counts.append(of_ours(stats[0], d, sweeps) if build is ours else outs_and_ins)
            return new, stats

        step.step = stepped
        return step

    runs, evaluations = [], []
    for c in range(CHAINS):
        counts.clear()
        runs.append(recorded(run_pymc, spec, CHAINS * seed + c, seconds / CHAINS, step=counted))
        evaluations.append(np.mean(counts[TUNE:]))
    draws = min(r.draws for r in runs)
    chains = [r.summaries() for r in runs]
    joined = {name: np.concatenate([c[name][:, :draws] for c in chains]) for name in chains[0]}
    more = told(runs[0], sum(r.tune_seconds for r in runs))
    return joined, sum(r.seconds / r.draws for r in runs) * draws, float(np.mean(evaluations)), more


def in_jax(build, spec, seed, seconds):
    import pymc_discrete as pmd
    from pymc_discrete.sampling.sample import Progress

    model, _ = spec.pymc()
    counts = []

    class Counting(Progress):
        def advance(self, draws, seconds, stats, tuning):
            if not tuning:
                counts.append(
                    stats["n_steps"].mean() if build is None else of_ours(stats, size_of(model), 1).mean()
                )
            super().advance(draws, seconds, stats, tuning)

    begin = time.perf_counter()
    with model:
        step = build(pmd, None) if build else None
    building = time.perf_counter() - begin
    with (
        mock.patch.dict(CHUNKS, {spec.name: CHAINS * SIZE}),
        mock.patch("pymc_discrete.sampling.sample.Progress", Counting),
    ):
        recorder = recorded(run_sample, spec, seed, seconds, chains=CHAINS, step=step)
    recorder.compile_seconds += building
    return recorder.summaries(), recorder.seconds, float(np.mean(counts)), told(recorder)


def run_blackjax(spec, seed, recorder, kernel, updates, counts):
    """A scan of `updates` steps a draw, chains in turn, on the log density that our step takes."""
    import jax
    import jax.numpy as jnp

    from pymc_discrete.targets.continuous import ContinuousDensity

    jax.config.update("jax_enable_x64", True)
    clock = time.perf_counter
    start = clock()
    model, _ = spec.pymc()
    target = ContinuousDensity(model, [v.name for v in model.value_vars], model.initial_point())
    sampler = kernel(lambda q: target.block(q, []))

    def draw(state, key):
        def body(i, carried):
            state, shrinkages = carried
            state, info = sampler.step(jax.random.fold_in(key, i), state)
            return state, shrinkages + info.num_shrink

        state, shrinkages = jax.lax.fori_loop(0, updates, body, (state, 0))
        return state, (state.position, shrinkages)

    def chain(carried):
        key, state = carried
        return jax.lax.scan(draw, state, jax.random.split(key, SIZE))

    key = jax.random.key(seed)
    q = target.ravel(model.initial_point()) + jax.random.uniform(
        key, (CHAINS, target.size), minval=-1.0
    )  # PyMC's jitter
    states = jax.jit(jax.vmap(sampler.init))(q)
    keys = jax.random.split(key, CHAINS)
    loop = jax.jit(lambda keys, states: jax.lax.map(chain, (keys, states))).lower(keys, states).compile()
    compiled = clock()
    states, _ = jax.block_until_ready(loop(keys, states))
    recorder.ready(compiled - start, clock() - compiled)
    n = 0
    while True:
        begin = clock()
        n += 1
        states, (q, shrinkages) = loop(jax.vmap(partial(jax.random.fold_in, data=n))(keys), states)
        q = np.asarray(q)
        seconds = clock() - begin
        counts.append(float(jnp.mean(shrinkages)))
        parts = jax.vmap(jax.vmap(target.parts))(q)
        recorder.add_chains(
            {name: np.asarray(a) for name, a in zip(target.names, parts, strict=True)}, seconds
        )


def in_blackjax(coordinate, spec, seed, seconds):
    import blackjax

    d, counts = size_of(spec.pymc()[0]), []
    make, option = (
        (blackjax.coordinate_slice, "initial_widths") if coordinate else (blackjax.slice_sampling, "width")
    )
    kernel = partial(make, **{option: DENSITIES[spec.name][1]})
    recorder = recorded(
        run_blackjax, spec, seed, seconds, kernel=kernel, updates=1 if coordinate else d, counts=counts
    )
    return recorder.summaries(), recorder.seconds, 22 * d + float(np.mean(counts)), told(recorder)


SAMPLERS = {
    "pm.sample, ReparameterizedSlice": partial(in_pymc, ours),
    "pmd.sample, ReparameterizedSlice": partial(in_jax, ours),
    "pm.sample, pm.Slice": partial(in_pymc, pymc_slice),
    "blackjax, slice_sampling": partial(in_blackjax, False),
    "blackjax, coordinate_slice": partial(in_blackjax, True),
    "pmd.sample, NUTS": partial(in_jax, None),
}


def row(name, spec, seed, seconds):
    """What is known of one sampler on one density."""
    import arviz as az

    try:
        with mock.patch(
            "time.perf_counter", time.process_time
        ):  # on one core the same, but for what others on the machine take
            found, busy, evaluations, more = SAMPLERS[name](spec, seed, seconds)
    except Exception as error:
        return {"sampler": name, "status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
    ess = {
        method: min(float(az.ess(v, method=method)) for v in found.values()) for method in ("bulk", "mean")
    }
    z = {
        what: float((np.mean(v) - truth) / az.mcse(v * 1.0, method="mean"))
        for what, (v, truth) in known(spec.name, found).items()
    }
    out = {
        "sampler": name,
        "status": "ok",
        "seconds": busy,
        "evaluations": evaluations,
        "draws": next(iter(found.values())).shape[1],
    }
    return out | {"ess": ess, "rhat": max(float(az.rhat(v)) for v in found.values()), "z": z, **more}


# ---------------------------------------------------------------- gradients
D, SIDE_BY_SIDE = 10, 64


def energies():
    """{name: (log density, parameters)}"""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    def normal(params, x):
        root = jnp.zeros((D, D)).at[np.tril_indices(D)].set(params["root"])  # of the precision
        return -0.5 * jnp.sum((root.T @ (x - params["mean"])) ** 2)

    weights, static = eqx.partition(
        eqx.nn.MLP(D, "scalar", 32, 2, activation=jnp.tanh, key=jax.random.key(0)), eqx.is_array
    )

    def network(weights, x):
        return eqx.combine(weights, static)(x) - 0.5 * jnp.sum(x**2)

    root = jnp.eye(D)[np.tril_indices(D)]
    return {
        "normal, 65 parameters": (normal, {"mean": jnp.zeros(D), "root": root}),
        "MLP 10-32-32-1": (network, weights),
    }


def gradients():
    """Rows of seconds, and of bytes that the reverse pass needs."""
    import jax
    import jax.numpy as jnp

    import pymc_discrete as pmd

    jax.config.update("jax_enable_x64", True)
    clock = time.process_time

    def compiled(logdensity, params, n_steps, reverse, checkpoint=False):
        keys, x = jax.random.split(jax.random.key(1), SIDE_BY_SIDE), jnp.zeros((SIDE_BY_SIDE, D))

        def last(params):
            run = partial(pmd.differentiable_slice_sample, n_steps=n_steps, checkpoint=checkpoint)
            x_n = jax.vmap(lambda key, x: run(key, logdensity, params, x).x[-1])(keys, x)
            return jnp.mean(jnp.sum(x_n**2, axis=1))

        begin = clock()
        program = jax.jit(jax.value_and_grad(last) if reverse else last).lower(params).compile()
        return partial(program, params), program, clock() - begin

    def seconds(*runs):
        """Medians, of calls in turn: the speed of a machine wanders."""
        took = []
        while len(took) < 5 or (np.sum(took) < 2 and len(took) < 200):
            marks = [clock()]
            for run in runs:
                jax.block_until_ready(run())
                marks.append(clock())
            took.append(np.diff(marks))
        return [float(v) for v in np.median(took, axis=0)]

    times, memory = [], []
    for name, energy in energies().items():
        for n in (1, 10, 100):
            (forward, *_), (both, _, compiling) = (compiled(*energy, n, reverse) for reverse in (False, True))
            found = dict(zip(("forward", "both"), seconds(forward, both), strict=True))
            times.append({"energy": name, "n_steps": n, "compile_seconds": compiling, **found})
    for n, checkpoint in itertools.product((10, 100, 1000), (False, True)):
        both, program, _ = compiled(*energies()["normal, 65 parameters"], n, True, checkpoint)
        memory.append(
            {
                "n_steps": n,
                "checkpoint": checkpoint,
                "bytes": program.memory_analysis().temp_size_in_bytes,
                "both": seconds(both)[0],
            }
        )
    return {"times": times, "memory": memory}


# ---------------------------------------------------------------- one density (in the child process)
def run_one(name, seed, seconds):
    for logger in ("pymc", "pymc.discrete"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    if name == "gradients":
        return {"status": "ok", **gradients(), **environment()}
    import pymc_discrete  # noqa: F401  importing is not compiling

    spec = spec_of(name)
    return {"status": "ok", "rows": [row(s, spec, seed, seconds) for s in SAMPLERS], **environment()}


# ---------------------------------------------------------------- tables (in the parent)
COLUMNS = [
    "sampler", "min ESS/s, bulk", "min ESS/s, mean", "R-hat", "seconds", "compile s", "tune s", "draws per chain", "microseconds per draw",
    "evaluations per draw", "min ESS per 1000 evaluations", "largest \\|z-score\\|",
]  # fmt: skip


def table(columns, rows):
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]


def of_density(r):
    lines, notes = [], []
    for s in r["rows"]:
        label = f"**{s['sampler']}**" if "Reparameterized" in s["sampler"] else s["sampler"]
        if s["status"] != "ok":
            lines.append([label, s["status"], *[""] * (len(COLUMNS) - 2)])
            notes.append(f"- {s['sampler']}: {s['reason']}")
            continue
        total = s["draws"] * CHAINS
        off = [f"{what} (z = {z:.1f})" for what, z in s["z"].items() if not abs(z) <= SIGMAS]
        notes += [f"- {s['sampler']} is **off** the truth: {', '.join(off)}"] if off else []
        cells = [
            label,
            *(f"{s['ess'][m] / s['seconds']:.3g}" for m in ("bulk", "mean")),
            f"{s['rhat']:.3f}",
            f"{s['seconds']:.1f}",
        ]
        cells += [
            f"{s['compile_seconds']:.1f}",
            f"{s['tune_seconds']:.1f}",
            str(s["draws"]),
            f"{1e6 * s['seconds'] / total:.3g}",
        ]
        worst = max(map(abs, s["z"].values()))
        cells += [
            f"{s['evaluations']:.0f}",
            f"{1000 * s['ess']['bulk'] / total / s['evaluations']:.3g}",
            f"{worst:.1f}",
        ]
        lines.append(cells)
    return [*table(COLUMNS, lines), "", *notes]


def of_gradients(r):
    columns = ["energy", "steps", "forward ms", "forward and reverse ms", "ratio", "compile s"]
    rows = []
    for t in r["times"]:
        both = [f"{1e3 * t[what]:.3g}" for what in ("forward", "both")]
        rows.append(
            [
                t["energy"],
                str(t["n_steps"]),
                *both,
                f"{t['both'] / t['forward']:.2g}",
                f"{t['compile_seconds']:.1f}",
            ]
        )
    lines = [*table(columns, rows), ""]
    rows = []
    for m in r["memory"]:
        path = 2 * 8 * SIDE_BY_SIDE * D * m["n_steps"]
        numbers = (m["bytes"] / 1e6, path / 1e6, 1e3 * m["both"])
        rows.append([str(m["n_steps"]), str(m["checkpoint"]), *(f"{v:.3g}" for v in numbers)])
    return [
        *lines,
        *table(
            ["steps", "checkpoint", "MB of the reverse pass", "of which the path and its cotangent", "ms"],
            rows,
        ),
    ]


def markdown(records):
    lines = ["## Slice sampling", "", *origins(records), ""]
    titles = {name: title for name, (title, _) in DENSITIES.items()}
    titles["gradients"] = f"differentiable_slice_sample, {SIDE_BY_SIDE} chains, d = {D}"
    for r in records:
        body = of_gradients if r["density"] == "gradients" else of_density
        said = body(r) if r["status"] == "ok" else [f"{r['status']}: {r['reason']}"]
        lines += [f"### {r['density']}: {titles[r['density']]}", "", *said, ""]
    return "\n".join([*lines, FOOTNOTE])


WIDTHS = ", ".join(f"{name} {width:g}" for name, (_, width) in DENSITIES.items())
FOOTNOTE = f"""- {CHAINS} chains on one core, {TUNE} draws of tuning each (blackjax: {SIZE}, in which nothing is learned), float64.
  pm.sample draws its chains one after another, the others theirs in stretches of {SIZE} draws.
- Seconds are of the processor, after compiling and tuning. compile s: of pm.sample those of its first chain; rows of a density share a
  process, so that later ones find some of JAX compiled. tune s: of all chains.
- ESS: ArviZ's, all chains together, the least of the coordinates: bulk, and of the mean (which a Cauchy has not). R-hat: the largest.
- evaluations: of the log density, counted from the samplers' own statistics; NUTS: gradients; blackjax: without those of its acceptance
  test for doubling, so the true number is larger.
- z-score: estimate less the exact expectation, in Monte Carlo errors; the largest of two to four expectations (first and second moments;
  cauchy: probabilities of intervals; kinked: by sums over a grid). More than {SIGMAS:.0f} is listed.
- blackjax: defaults (doubling) but for the width, one of 0.3, 1, 3, 10 by a short run of both: {WIDTHS}.
  slice_sampling: as many random directions a draw as coordinates; coordinate_slice: one sweep. On the log density that our step takes.
- gradients: of the mean of |x|^2 after the last step by all parameters. MB: XLA's temporary buffers, for all chains; the path that is
  returned, and its cotangent, are as long as it is with any checkpoint.
"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = [*DENSITIES, "gradients"]
    p.add_argument("--only", nargs="+", default=parts, choices=parts, metavar="NAME", help=", ".join(parts))
    p.add_argument("--seconds", type=float, default=10, help="of sampling, per row")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (tables)")
    p.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    args = p.parse_args()
    if hasattr(os, "sched_setaffinity"):  # before JAX counts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if args.one:
        print(RESULT + json.dumps(run_one(args.one, args.seed, args.seconds)), flush=True)
        return
    path = args.out and args.out.with_name(args.out.name + ".jsonl")
    old = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    records = {r["density"]: r for r in old}  # what is not run again stays
    for name in args.only:
        command = [
            "benchmarks.slice",
            "--one",
            name,
            "--seed",
            str(args.seed),
            "--seconds",
            str(args.seconds),
        ]
        begin = time.perf_counter()
        r = records[name] = record_of({"density": name}, command, LIMIT)
        print(
            f"{name}: {r.get('reason', 'ok')}, {time.perf_counter() - begin:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        keep([records[part] for part in parts if part in records], args.out)
    publish(markdown([records[part] for part in parts if part in records]), args.out)


if __name__ == "__main__":
    main()
