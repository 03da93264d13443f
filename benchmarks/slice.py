"""Slice sampling: ReparameterizedSlice within pm.sample and in one program, next to the slice samplers of
PyMC and blackjax and to NUTS; and the cost of a gradient through it.

python -m benchmarks.slice --seconds 10 --out benchmarks/results/NAME-slice

Four chains a row, all on one core, one after another; each density in a process of its own.
"""

import functools
import itertools
import time
from functools import partial
from unittest import mock

import numpy as np

from benchmarks import harness
from benchmarks.models import ModelSpec
from benchmarks.recorder import joined, run_for, setup_times
from benchmarks.samplers import run_pymc, run_sample

CHAINS, TUNE = 4, 1000
SIZE = 2000  # draws of a chain in one call of a compiled program
SIGMAS = 4.0
LIMIT = 900  # seconds for a density in all


# ---------------------------------------------------------------- densities
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
SPREAD = 5.0
# name: (title, width of blackjax's first interval, chosen from 0.3, 1, 3, 10 by a short run)
DENSITIES = {
    "normal": ("standard normal, d = 1", 3),
    "correlated": ("normal with correlations 0.9, d = 10", 3),
    "funnel": ("v ~ Normal(0, 3), x ~ Normal(0, exp(v / 2)), d = 5", 1),
    "kinked": ("eight schools, priors and likelihood all Laplace, d = 9", 10),
    "cauchy": ("Cauchy, d = 3", 3),
    "mixture": ("normals at -3 and 3, d = 1", 10),
}


def model_of(name):
    """None of the variables has a transform."""
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
    """The first two moments of mu and of theta_0.

    Given mu the schools are independent, so that sums over two grids suffice.
    """
    mu, theta = np.linspace(-120, 120, 2401), np.linspace(-200, 200, 8001)
    prior = np.exp(-np.abs(theta - mu[:, None]) / SPREAD)
    marginal = [prior @ np.exp(-np.abs(theta - y) / e) for y, e in zip(SCHOOLS, ERRORS, strict=True)]
    weight = np.exp(-np.abs(mu) / 5) * np.prod(marginal, axis=0)
    weight /= weight.sum()
    likelihood = np.exp(-np.abs(theta - SCHOOLS[0]) / ERRORS[0])
    of_theta = [weight @ (prior @ (likelihood * theta**n) / marginal[0]) for n in (1, 2)]
    return [weight @ mu, weight @ mu**2, *of_theta]


def expectations(name, a):
    """{name of a function: (its values (chains, draws), its exact expectation)}.

    a : {coordinate: (chains, draws)}
    """

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

    title = DENSITIES[name][0]
    return ModelSpec(name=name, title=title, pymc=lambda: (model, None), summaries=summaries, tune=TUNE)


def size_of(model):
    return sum(np.size(v) for v in model.initial_point().values())


# ---------------------------------------------------------------- samplers
# (spec, seed, seconds) -> (summaries {name: (chains, draws)}, seconds of sampling, evaluations per draw,
# further entries of the record)
def ours(pmd, names):
    return pmd.ReparameterizedSlice()


def pymc_slice(pmd, names):
    import pymc as pm

    return pm.Slice()


def evaluations_of_ours(stats, d, sweeps):
    """Log densities evaluated for a draw of ReparameterizedSlice.

    For every coordinate two at the ends of the first interval, and one for each expansion and shrinkage; one
    at the start of every sweep; one for the statistics.
    """
    return sweeps * (d * (2 + stats["slice_expansions"] + stats["slice_shrinkages"]) + 1) + 1


def in_pymc(build, spec, seed, seconds):
    """Chains of pm.sample in turn, all with one step."""
    counts, d = [], size_of(spec.pymc()[0])

    @functools.cache
    def counted(pmd, names):
        step = build(pmd, names)
        plain, sweeps = step.step, getattr(step, "sweeps", 1)

        def count_and_step(point):
            new, stats = plain(point)
            if build is ours:
                counts.append(evaluations_of_ours(stats[0], d, sweeps))
            else:  # PyMC's statistics
                counts.append(4 * d + sum(s.get("nstep_out", 0) + s.get("nstep_in", 0) for s in stats))
            return new, stats

        step.step = count_and_step
        return step

    runs, evaluations = [], []
    for c in range(CHAINS):
        counts.clear()
        runs.append(run_for(seconds / CHAINS, run_pymc, spec, CHAINS * seed + c, step=counted))
        evaluations.append(np.mean(counts[TUNE:]))
    summaries, busy, details = joined(runs)
    return summaries, busy, float(np.mean(evaluations)), details


def in_jax(build, spec, seed, seconds):
    """Chains of pmd.sample, with the step that `build` makes or with NUTS where it is None."""
    import pymc_discrete as pmd
    from pymc_discrete.sampling.sample import Progress

    model, _ = spec.pymc()
    counts = []

    class Counting(Progress):
        def advance(self, draws, seconds, stats, tuning):
            if not tuning:
                nuts = build is None
                count = stats["n_steps"] if nuts else evaluations_of_ours(stats, size_of(model), 1)
                counts.append(count.mean())
            super().advance(draws, seconds, stats, tuning)

    begin = time.perf_counter()
    with model:
        step = build(pmd, None) if build else None
    building = time.perf_counter() - begin
    with mock.patch("pymc_discrete.sampling.sample.Progress", Counting):
        recorder = run_for(seconds, run_sample, spec, seed, chains=CHAINS, chunk=SIZE, step=step)
    recorder.compile_seconds += building
    return recorder.summaries(), recorder.seconds, float(np.mean(counts)), setup_times(recorder)


def run_blackjax(spec, seed, recorder, kernel, updates, counts):
    """A blackjax kernel with `updates` steps a draw, chains in turn, on the log density that our step takes.

    counts : list to which the mean number of shrinkages per draw is appended after every call
    """
    import jax
    import jax.numpy as jnp

    from pymc_discrete.differences.continuous import ContinuousDensity

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
    jitter = jax.random.uniform(key, (CHAINS, target.size), minval=-1.0)  # as PyMC's
    q = target.ravel(model.initial_point()) + jitter
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
        draws = {name: np.asarray(a) for name, a in zip(target.names, parts, strict=True)}
        recorder.add_chains(draws, seconds)


def in_blackjax(coordinate, spec, seed, seconds):
    import blackjax

    d, counts = size_of(spec.pymc()[0]), []
    width = DENSITIES[spec.name][1]
    if coordinate:
        kernel, updates = partial(blackjax.coordinate_slice, initial_widths=width), 1
    else:
        kernel, updates = partial(blackjax.slice_sampling, width=width), d
    options = {"kernel": kernel, "updates": updates, "counts": counts}
    recorder = run_for(seconds, run_blackjax, spec, seed, **options)
    return recorder.summaries(), recorder.seconds, 22 * d + float(np.mean(counts)), setup_times(recorder)


SAMPLERS = {
    "pm.sample, ReparameterizedSlice": partial(in_pymc, ours),
    "pmd.sample, ReparameterizedSlice": partial(in_jax, ours),
    "pm.sample, pm.Slice": partial(in_pymc, pymc_slice),
    "blackjax, slice_sampling": partial(in_blackjax, False),
    "blackjax, coordinate_slice": partial(in_blackjax, True),
    "pmd.sample, NUTS": partial(in_jax, None),
}


def compared(name, spec, seed, seconds):
    """The record of one sampler on one density, within that of the density."""
    import arviz as az

    try:
        with harness.processor_time():
            values, busy, evaluations, details = SAMPLERS[name](spec, seed, seconds)
    except Exception as error:
        return {"sampler": name, "status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
    methods = ("bulk", "mean")
    z = {
        function: float((np.mean(v) - exact) / az.mcse(v * 1.0, method="mean"))
        for function, (v, exact) in expectations(spec.name, values).items()
    }
    return {
        "sampler": name,
        "status": "ok",
        "seconds": busy,
        "evaluations": evaluations,
        "draws": next(iter(values.values())).shape[1],
        "ess": {m: min(float(az.ess(v, method=m)) for v in values.values()) for m in methods},
        "rhat": max(float(az.rhat(v)) for v in values.values()),
        "z": z,
        **details,
    }


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

    mlp = eqx.nn.MLP(D, "scalar", 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    weights, static = eqx.partition(mlp, eqx.is_array)

    def network(weights, x):
        return eqx.combine(weights, static)(x) - 0.5 * jnp.sum(x**2)

    root = jnp.eye(D)[np.tril_indices(D)]
    return {
        "normal, 65 parameters": (normal, {"mean": jnp.zeros(D), "root": root}),
        "MLP 10-32-32-1": (network, weights),
    }


def gradients():
    """{"times": rows of seconds, "memory": rows of bytes that the reverse pass needs}"""
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
        """Medians over calls in turn, as the speed of a machine changes with time."""
        times = []
        while len(times) < 5 or (np.sum(times) < 2 and len(times) < 200):
            marks = [clock()]
            for run in runs:
                jax.block_until_ready(run())
                marks.append(clock())
            times.append(np.diff(marks))
        return [float(v) for v in np.median(times, axis=0)]

    times, memory = [], []
    for name, energy in energies().items():
        for n in (1, 10, 100):
            (forward, *_), (both, _, compiling) = (compiled(*energy, n, reverse) for reverse in (False, True))
            medians = dict(zip(("forward", "both"), seconds(forward, both), strict=True))
            times.append({"energy": name, "n_steps": n, "compile_seconds": compiling, **medians})
    for n, checkpoint in itertools.product((10, 100, 1000), (False, True)):
        both, program, _ = compiled(*energies()["normal, 65 parameters"], n, True, checkpoint)
        temporary = program.memory_analysis().temp_size_in_bytes
        row = {"n_steps": n, "checkpoint": checkpoint, "bytes": temporary, "both": seconds(both)[0]}
        memory.append(row)
    return {"times": times, "memory": memory}


# ---------------------------------------------------------------- rows
PARTS = [*DENSITIES, "gradients"]


def options(p):
    harness.choice(p, "--only", PARTS, metavar="NAME")
    p.add_argument("--seconds", type=float, default=10, help="of sampling, per sampler")
    p.add_argument("--seed", type=int, default=1)


SHORT = {"only": ["normal"], "seconds": 1}


def rows(args, records):
    return [harness.Row({"density": name}) for name in args.only]


def measure(args, density):
    if density == "gradients":
        return gradients()
    import pymc_discrete  # noqa: F401  importing is not compiling

    spec = spec_of(density)
    return {"rows": [compared(name, spec, args.seed, args.seconds) for name in SAMPLERS]}


def progress(r):
    if r["density"] == "gradients":
        return "ok"
    return ", ".join(f"{s['sampler']} {s['status']}" for s in r["rows"])


# ---------------------------------------------------------------- tables
COLUMNS = [
    "sampler", "min ESS/s, bulk", "min ESS/s, mean", "R-hat", "seconds", "compile s", "tune s",
    "draws per chain", "microseconds per draw", "evaluations per draw", "min ESS per 1000 evaluations",
    "largest \\|z-score\\|",
]  # fmt: skip


def of_density(record):
    lines, notes = [], []
    for r in record["rows"]:
        label = harness.label(r["sampler"], "Reparameterized" in r["sampler"])
        if r["status"] != "ok":
            lines.append([label, r["status"]])
            notes.append(f"- {r['sampler']}: {r['reason']}")
            continue
        total = r["draws"] * CHAINS
        off = [f"{what} (z = {z:.1f})" for what, z in r["z"].items() if not abs(z) <= SIGMAS]
        notes += [f"- {r['sampler']} is **off** the truth: {', '.join(off)}"] if off else []
        cells = [
            label,
            *(f"{r['ess'][method] / r['seconds']:.3g}" for method in ("bulk", "mean")),
            f"{r['rhat']:.3f}",
            *(f"{r[key]:.1f}" for key in ("seconds", "compile_seconds", "tune_seconds")),
            r["draws"],
            f"{1e6 * r['seconds'] / total:.3g}",
            f"{r['evaluations']:.0f}",
            f"{1000 * r['ess']['bulk'] / total / r['evaluations']:.3g}",
            f"{max(map(abs, r['z'].values())):.1f}",
        ]
        lines.append(cells)
    return [*harness.table(COLUMNS, lines), "", *notes]


def of_gradients(record):
    times = [
        [
            r["energy"],
            r["n_steps"],
            *(f"{1e3 * r[key]:.3g}" for key in ("forward", "both")),
            f"{r['both'] / r['forward']:.2g}",
            f"{r['compile_seconds']:.1f}",
        ]
        for r in record["times"]
    ]
    memory = []
    for r in record["memory"]:
        path = 2 * 8 * SIDE_BY_SIDE * D * r["n_steps"]
        numbers = (r["bytes"] / 1e6, path / 1e6, 1e3 * r["both"])
        memory.append([r["n_steps"], r["checkpoint"], *(f"{v:.3g}" for v in numbers)])
    return [
        *harness.table(
            ["energy", "steps", "forward ms", "forward and reverse ms", "ratio", "compile s"], times
        ),
        "",
        *harness.table(
            ["steps", "checkpoint", "MB of the reverse pass", "of which the path and its cotangent", "ms"],
            memory,
        ),
    ]


def markdown(args, records):
    lines = ["## Slice sampling", "", *harness.origins(records), ""]
    titles = {name: title for name, (title, _) in DENSITIES.items()}
    titles["gradients"] = f"differentiable_slice_sample, {SIDE_BY_SIDE} chains, d = {D}"
    for r in sorted(records, key=lambda r: PARTS.index(r["density"])):
        body = of_gradients if r["density"] == "gradients" else of_density
        text = body(r) if r["status"] == "ok" else [f"{r['status']}: {r['reason']}"]
        lines += [f"### {r['density']}: {titles[r['density']]}", "", *text, ""]
    return "\n".join([*lines, FOOTNOTE])


WIDTHS = ", ".join(f"{name} {width:g}" for name, (_, width) in DENSITIES.items())
FOOTNOTE = f"""- {CHAINS} chains on one core, {TUNE} draws of tuning each (blackjax: {SIZE}, in which nothing
  is learned), float64. pm.sample draws its chains one after another, the others theirs in stretches of {SIZE}
  draws.
- Seconds are of the processor, after compiling and tuning. compile s: of pm.sample those of its first chain;
  rows of a density share a process, so that later ones find some of JAX compiled. tune s: of all chains.
- ESS: ArviZ's, all chains together, the least of the coordinates: bulk, and of the mean (which a Cauchy has
  not). R-hat: the largest.
- evaluations: of the log density, counted from the samplers' own statistics; NUTS: gradients; blackjax:
  without those of its acceptance test for doubling, so the true number is larger.
- z-score: estimate less the exact expectation, in Monte Carlo errors; the largest of two to four expectations
  (first and second moments; cauchy: probabilities of intervals; kinked: by sums over a grid). More than
  {SIGMAS:.0f} is listed.
- blackjax: defaults (doubling) but for the width, one of 0.3, 1, 3, 10 by a short run of both: {WIDTHS}.
  slice_sampling: as many random directions a draw as coordinates; coordinate_slice: one sweep. On the log
  density that our step takes.
- gradients: of the mean of |x|^2 after the last step by all parameters. MB: XLA's temporary buffers, for all
  chains; the path that is returned, and its cotangent, are as long as it is with any checkpoint.
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            limit=lambda args: LIMIT,
            short=SHORT,
            one_core=True,
            keeps_other_rows=True,
        )
    )
