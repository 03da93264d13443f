"""Many chains at once, of this package and of its peers: total ESS per second of wall time, and sweeps per
second of the lattices.

python -m benchmarks.many_chains --out benchmarks/results/many-chains-NAME
python -m benchmarks.many_chains --models C I --chains 1 4 --samplers sample thrml --seconds 2

All cores are used. ESS is ArviZ's bulk ESS of all chains together, of the model's worst summary.
"""

import contextlib
import math
import time
from dataclasses import replace

import numpy as np

from benchmarks import harness, lattices
from benchmarks.harness import CannotRun
from benchmarks.models import MODELS
from benchmarks.recorder import Done, Recorder
from benchmarks.samplers import CHUNKS, SMALLEST_CHUNK, SWEEPS_PER_DRAW, discrete_gibbs, run_sample
from benchmarks.scores import disagreements

PM_CHAINS, PM_CORES, PM_DRAWS = 4, 2, 2000
STATE_BYTES = {"sample": 8, "sample-32": 4, "thrml": 1}  # of a site in the memory of a chain


# ---------------------------------------------------------------- samplers
# Each sets `recorder.sweeps`, the number of sweeps over all sites that one draw of a chain takes.
def sample(spec, seed, recorder, chains, **options):
    recorder.sweeps = SWEEPS_PER_DRAW
    run_sample(spec, seed, recorder, chains, **options)


def sample_in_float32(spec, seed, recorder, chains):
    recorder.precision = "float32"
    sample(spec, seed, recorder, chains, dtype="float32")


def numpyro(spec, seed, recorder, chains):
    recorder.sweeps = 1
    discrete_gibbs()(spec, seed, recorder, chains)


def pm_sample(spec, seed, recorder, chains):
    """Chains of pm.sample over its worker processes, a fixed number of draws.

    A worker tunes and samples its chains in turn, so each phase's seconds are those of all chains over the
    number of workers.
    """
    import pymc as pm

    import pymc_discrete as pmd

    model, names = spec.pymc()
    begun, tuned, ended = {}, {}, {}  # times by chain: of the first draw, the last of tuning, the last

    def callback(trace, draw):
        now = time.perf_counter()
        begun.setdefault(draw.chain, now)
        (tuned if draw.tuning else ended)[draw.chain] = now

    with model:
        start = time.perf_counter()
        step = pmd.AutoStep(names)
        trace = pm.sample(
            PM_DRAWS,
            tune=spec.tune,
            chains=chains,
            cores=PM_CORES,
            mp_ctx="forkserver",
            step=step,
            random_seed=seed,
            callback=callback,
            progressbar=False,
            compute_convergence_checks=False,
            return_inferencedata=False,
        )
    recorder.sweeps = step.transitions
    recorder.ready(min(begun.values()) - start, sum(tuned[c] - begun[c] for c in begun) / PM_CORES)
    arrays = {v.name: np.stack(trace.get_values(v.name, combine=False)) for v in model.free_RVs}
    recorder.limit = 0.0  # all draws are there: end the run
    recorder.add_chains(arrays, sum(ended[c] - tuned[c] for c in begun) / PM_CORES)


def thrml(spec, seed, recorder, chains):
    """Two-colour block Gibbs of THRML, every sweep observed; chains by vmap, `size` sweeps in a compiled
    call.
    """
    import jax
    from thrml import SamplingSchedule, SpinNode, sample_states

    if spec.thrml is None:
        raise CannotRun("THRML samples discrete energy-based models")
    recorder.precision, recorder.sweeps = "float32", 1
    start = time.perf_counter()
    program, blocks = spec.thrml()
    values, dtype = (2, "bool") if blocks[0].node_type is SpinNode else (lattices.COLOURS, "uint8")
    size = max(CHUNKS[spec.name] // chains, SMALLEST_CHUNK)
    schedule = SamplingSchedule(n_warmup=1, n_samples=size, steps_per_sample=1)

    def keys(n):
        return jax.random.split(jax.random.fold_in(jax.random.key(seed), n), chains)

    states = [
        jax.random.randint(jax.random.key(seed + n), (chains, len(b)), 0, values).astype(dtype)
        for n, b in enumerate(blocks)
    ]
    sweeps = jax.vmap(lambda key, state: sample_states(key, program, schedule, state, [], blocks))
    run = jax.jit(sweeps).lower(keys(0), states).compile()
    compiled = time.perf_counter()
    burn_in = math.ceil(spec.tune / size)
    for n in range(burn_in):
        states = [a[:, -1] for a in jax.block_until_ready(run(keys(n), states))]
    recorder.ready(compiled - start, time.perf_counter() - compiled)
    while True:
        n, begin = n + 1, time.perf_counter()
        observed = run(keys(n), states)
        states = [a[:, -1] for a in observed]
        observed = [np.asarray(a) for a in observed]
        seconds = time.perf_counter() - begin
        recorder.add_chains({"x": lattice(observed, spec.sites)}, seconds)


def lattice(colours, sites):
    """(chains, draws, side, side) of the values of both colours."""
    x = np.empty((*colours[0].shape[:2], sites), np.int8)
    side = math.isqrt(sites)
    for mine, values in zip(lattices.chessboard(side), colours, strict=True):
        x[..., mine] = values
    return x.reshape(*x.shape[:2], side, side)


SAMPLERS = {
    "sample": sample,
    "sample-32": sample_in_float32,
    "pm.sample": pm_sample,
    "numpyro": numpyro,
    "thrml": thrml,
}
NOTES = {
    "sample": "pmd.sample, all chains in one program",
    "sample-32": "the same with dtype='float32'",
    "pm.sample": f"pm.sample with pmd.AutoStep(), {PM_CORES} worker processes, {PM_DRAWS} draws",
    "numpyro": "DiscreteHMCGibbs(NUTS) under jax.vmap, since its Gibbs kernels take no 'vectorized'; on C, F "
    "and I its DiscreteGibbs alone, on D without the two missing counts",
    "thrml": "two-colour block Gibbs, vmap over chains, every sweep observed",
}
OURS = {"sample", "sample-32", "pm.sample"}


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--samplers", SAMPLERS, default=[name for name in SAMPLERS if name != "sample-32"])
    p.add_argument("--chains", nargs="+", type=int, default=[1, 4, 64, 1024], help="1 on the lattices only")
    p.add_argument("--seconds", type=float, default=20, help="sample at least this long")
    p.add_argument("--draws", type=int, default=100, help="draws per chain at least")
    p.add_argument("--tune", type=int, help="draws of tuning; by default the model's")
    p.add_argument("--limit", type=float, default=1800, help="seconds for a row in all")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--bandwidth",
        type=int,
        metavar="MB",
        help="compare the memory traffic of the sweeps with that of a copy of so many MB",
    )


SHORT = {
    "models": ["C"],
    "samplers": ["sample", "numpyro", "thrml"],
    "chains": [4],
    "seconds": 0.5,
    "draws": 25,
    "tune": 50,
    "bandwidth": 64,
}


def rows(args, records):
    """Every model, sampler and number of chains that is asked for; one chain alone on the lattices only."""
    for model in args.models:
        for sampler in args.samplers:
            if sampler == "thrml" and MODELS[model].thrml is None:
                continue
            alone = MODELS[model].sites and sampler in STATE_BYTES
            for chains in sorted(c for c in args.chains if c > 1 or alone):
                key = {"model": model, "sampler": sampler, "chains": chains, "seed": args.seed}
                yield harness.Row(key, skipped=reason_to_skip(model, sampler, chains, records))


def reason_to_skip(model, sampler, chains, records):
    """Empty where the row is to be run."""
    if sampler == "pm.sample" and chains != PM_CHAINS:
        return "more chains would take hours"
    for r in records:
        too_long = r.get("reason", "").startswith(harness.NO_RESULT)
        if (r["model"], r["sampler"]) == (model, sampler) and too_long:
            return f"{r['chains']} chains already took too long"
    return ""


def measure(args, model, sampler, chains, seed):
    spec = MODELS[model] if args.tune is None else replace(MODELS[model], tune=args.tune)
    recorder = Recorder(spec, math.inf, args.seconds, math.inf, args.draws)
    recorder.sweeps = None
    start = time.perf_counter()
    with contextlib.suppress(Done):
        SAMPLERS[sampler](spec, seed, recorder, chains)
    total = {"tune": spec.tune, "total_seconds": time.perf_counter() - start}
    return total | recorder.result() | speed(spec, recorder, chains)


def speed(spec, recorder, chains):
    """Rates of all chains together; `us_per_draw` is all seconds over all draws."""
    draws_per_second = recorder.draws * chains / recorder.seconds
    rates = {"us_per_draw": 1e6 / draws_per_second}
    if spec.sites:
        rates |= {"sweeps_per_second": recorder.sweeps * draws_per_second}
        rates |= {"site_updates_per_second": recorder.sweeps * spec.sites * draws_per_second}
    return rates


def progress(r):
    return f"{r['us_per_draw']:.3g} us per draw, {r['min_ess_per_second']:.3g} ESS/s"


# ---------------------------------------------------------------- tables
COLUMNS = [
    "chains", "sampler", "compile s", "tune s", "draws per chain", "sampling s", "us per draw", "min ESS",
    "min ESS/s", "ratio to best peer", "slowest summary", "sweeps/s", "site updates/s",
]  # fmt: skip
MEASURED = [
    "compile_seconds", "tune_seconds", "draws", "sampling_seconds", "us_per_draw", "min_ess",
    "min_ess_per_second",
]  # fmt: skip


def markdown(args, records):
    out = []
    for model in dict.fromkeys(r["model"] for r in records):
        mine = [r for r in records if r["model"] == model]
        out += [f"## {model}: {MODELS[model].title}", "", *harness.origins(mine), "", *table(mine), ""]
        out += [f"- {line}" for line in footnotes(mine)] + [""]
    return "\n".join(out + (traffic(records, bandwidth(args.bandwidth)) if args.bandwidth else []))


def table(records):
    lines = []
    for chains in sorted({r["chains"] for r in records}):
        here = [r for r in records if r["chains"] == chains]
        peers = [r["min_ess_per_second"] for r in here if r["status"] == "ok" and r["sampler"] not in OURS]
        for r in here:
            label = harness.label(r["sampler"], r["sampler"] in OURS)
            if r["status"] != "ok":
                lines.append([chains, label, r["status"]])
                continue
            ratio = f"{r['min_ess_per_second'] / max(peers):.2g}" if any(peers) else "no peer"
            rates = [r.get("sweeps_per_second"), r.get("site_updates_per_second")]
            cells = [chains, label, *(harness.spread([r[key]]) for key in MEASURED), ratio, r["worst"]]
            lines.append([*cells, *(f"{rate:.3g}" if rate else "" for rate in rates)])
    return harness.table(COLUMNS, lines)


def footnotes(records):
    yield (
        f"{records[0].get('tune', 'no')} draws of tuning; us per draw: of one chain, all chains' seconds "
        "over all their draws"
    )
    for name in dict.fromkeys(r["sampler"] for r in records):
        mine = [r for r in records if r["sampler"] == name]
        precision = " and ".join(sorted({r["precision"] for r in mine if r["status"] == "ok"}))
        bad = [f"{r['chains']} chains {r['status']}: {r['reason']}" for r in mine if r["status"] != "ok"]
        yield "; ".join([f"{name}: {NOTES[name]}", *([precision] if precision else []), *bad])
    yield from disagreements([r | {"sampler": f"{r['sampler']} with {r['chains']} chains"} for r in records])


# ---------------------------------------------------------------- memory traffic
def bandwidth(megabytes, repeats=20):
    """Bytes per second of the device's memory: an array read and another one written."""
    import jax
    import jax.numpy as jnp

    add = jax.jit(lambda a: a + 1)
    a, seconds = jnp.zeros(megabytes * 2**18, jnp.float32), []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(add(a))
        seconds.append(time.perf_counter() - begin)
    return 2 * a.nbytes / min(seconds)


def traffic(records, copy):
    """Bytes per second of state that the sweeps read and write at least, and of a copy, which is `copy`."""
    import jax

    lines = []
    for r in records:
        if r.get("sweeps_per_second") and r["sampler"] in STATE_BYTES:
            state = 2 * STATE_BYTES[r["sampler"]] * r["site_updates_per_second"]
            lines.append([r["model"], r["chains"], r["sampler"], f"{state / 1e9:.3g}", f"{state / copy:.2g}"])
    return [
        f"## Bytes per second on {jax.devices()[0].device_kind}",
        "",
        f"A copy reads and writes {copy / 1e9:.3g} GB/s.",
        "",
        *harness.table(["model", "chains", "sampler", "GB/s of state", "share of a copy"], lines),
        "",
    ]


if __name__ == "__main__":
    harness.main(harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT))
