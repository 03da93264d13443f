"""Many chains at once, ours and others': total ESS per second of wall time, and sweeps per second of the
lattices.

python -m benchmarks.many_chains --out benchmarks/results/many-chains-NAME
python -m benchmarks.many_chains --models C I --chains 1 4 --samplers sample thrml --seconds 2

All cores are used. ESS is ArviZ's bulk ESS of all chains together, of the model's worst summary.
"""

import argparse
import json
import logging
import math
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import lattices
from benchmarks.models import MODELS
from benchmarks.recorder import CannotRun, Done, Recorder
from benchmarks.run import RESULT, disagreements, environment, origins, record_of, spread
from benchmarks.samplers import CHUNKS, SMALLEST_CHUNK, SWEEPS_PER_DRAW, discrete_gibbs, run_sample

PM_CHAINS, PM_CORES, PM_DRAWS = 4, 2, 2000
STATE_BYTES = {"sample": 8, "sample-32": 4, "thrml": 1}  # of a site, as the chains hold it


# ---------------------------------------------------------------- samplers; `recorder.sweeps` are those per draw of a chain
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
    begun, tuned, ended = (
        {},
        {},
        {},
    )  # by chain: the clock at the first draw, at the last of tuning, at the last

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
    recorder.limit = 0.0  # this is all
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
    run = (
        jax.jit(jax.vmap(lambda key, state: sample_states(key, program, schedule, state, [], blocks)))
        .lower(keys(0), states)
        .compile()
    )
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
    "numpyro": "DiscreteHMCGibbs(NUTS) under jax.vmap, since its Gibbs kernels take no 'vectorized'; on C, F and I its DiscreteGibbs "
    "alone, on D without the two missing counts",
    "thrml": "two-colour block Gibbs, vmap over chains, every sweep observed",
}
OURS = {"sample", "sample-32", "pm.sample"}


# ---------------------------------------------------------------- one row (in the child process)
def run_one(model, sampler, chains, args):
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    spec = MODELS[model] if args.tune is None else replace(MODELS[model], tune=args.tune)
    recorder = Recorder(spec, math.inf, args.seconds, math.inf, args.draws)
    recorder.sweeps = None
    start = time.perf_counter()
    record = {"tune": spec.tune}
    try:
        SAMPLERS[sampler](spec, args.seed, recorder, chains)
    except Done:
        record |= {"total_seconds": time.perf_counter() - start} | recorder.result()
        record |= speed(spec, recorder, chains)
    except CannotRun as reason:
        record |= {"status": "cannot run", "reason": str(reason)}
    except Exception as error:
        record |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
    return record | environment()


def speed(spec, recorder, chains):
    """Of all chains together, but for `us_per_draw`."""
    draws_per_second = recorder.draws * chains / recorder.seconds
    found = {"us_per_draw": 1e6 / draws_per_second}
    if spec.sites:
        found |= {"sweeps_per_second": recorder.sweeps * draws_per_second}
        found |= {"site_updates_per_second": recorder.sweeps * spec.sites * draws_per_second}
    return found


# ---------------------------------------------------------------- all rows (in the parent)
def rows(args):
    """(model, sampler, chains) of what is asked for; one chain alone on the lattices."""
    for model in args.models:
        for sampler in args.samplers:
            if sampler == "thrml" and MODELS[model].thrml is None:
                continue
            alone = [1] if MODELS[model].sites and sampler in STATE_BYTES else []
            for chains in sorted({*alone, *args.chains}):
                yield model, sampler, chains


def run_row(model, sampler, chains, args, records):
    what = {"model": model, "sampler": sampler, "chains": chains, "seed": args.seed}
    if sampler == "pm.sample" and chains != PM_CHAINS:
        return what | {"status": "not run", "reason": "more chains would take hours"} | environment()
    slow = [
        r
        for r in records
        if (r["model"], r["sampler"]) == (model, sampler) and r.get("reason", "").startswith("no result")
    ]
    if slow:
        return (
            what
            | {"status": "not run", "reason": f"{slow[0]['chains']} chains already took too long"}
            | environment()
        )
    command = ["benchmarks.many_chains", "--one", model, sampler, str(chains), "--seed", str(args.seed)]
    command += ["--seconds", str(args.seconds), "--draws", str(args.draws)]
    command += [] if args.tune is None else ["--tune", str(args.tune)]
    return record_of(what, command, args.limit)


def run_all(args, path):
    if path and not args.resume:
        path.unlink(missing_ok=True)
    records = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    have = {(r["model"], r["sampler"], r["chains"]) for r in records}
    for row in rows(args):
        if row in have:
            continue
        records.append(record := run_row(*row, args, records))
        told = (
            record.get("reason")
            or f"{record['us_per_draw']:.3g} us per draw, {record['min_ess_per_second']:.3g} ESS/s"
        )
        print(*row, told, file=sys.stderr, flush=True)
        if path:
            with path.open("a") as file:
                file.write(json.dumps(record) + "\n")
    return records


# ---------------------------------------------------------------- tables
COLUMNS = [
    "chains", "sampler", "compile s", "tune s", "draws per chain", "sampling s", "us per draw", "min ESS", "min ESS/s",
    "ratio to best peer", "slowest summary", "sweeps/s", "site updates/s",
]  # fmt: skip
MEASURED = [
    "compile_seconds",
    "tune_seconds",
    "draws",
    "sampling_seconds",
    "us_per_draw",
    "min_ess",
    "min_ess_per_second",
]


def markdown(records, copy=None):
    out = []
    for model in dict.fromkeys(r["model"] for r in records):
        mine = [r for r in records if r["model"] == model]
        out += [f"## {model}: {MODELS[model].title}", "", *origins(mine), "", *table(mine), ""]
        out += [f"- {line}" for line in footnotes(mine)] + [""]
    return "\n".join(out + (bytes_moved(records, copy) if copy else []))


def table(records):
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for chains in sorted({r["chains"] for r in records}):
        here = [r for r in records if r["chains"] == chains]
        peers = [r["min_ess_per_second"] for r in here if r["status"] == "ok" and r["sampler"] not in OURS]
        for r in here:
            label = f"**{r['sampler']}**" if r["sampler"] in OURS else r["sampler"]
            if r["status"] != "ok":
                lines.append(f"| {chains} | {label} | {r['status']} |" + " |" * (len(COLUMNS) - 3))
                continue
            ratio = f"{r['min_ess_per_second'] / max(peers):.2g}" if any(peers) else "no peer"
            of_sites = [
                f"{r[key]:.3g}" if r.get(key) else ""
                for key in ("sweeps_per_second", "site_updates_per_second")
            ]
            cells = [
                str(chains),
                label,
                *(spread([r[key]]) for key in MEASURED),
                ratio,
                r["worst"],
                *of_sites,
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def footnotes(records):
    yield f"{records[0].get('tune', 'no')} draws of tuning; us per draw: of one chain, all chains' seconds over all their draws"
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


def bytes_moved(records, copy):
    """What the sweeps read and write of the state at least, beside what a copy does."""
    import jax

    lines = [
        f"## Bytes per second on {jax.devices()[0].device_kind}",
        "",
        f"A copy reads and writes {copy / 1e9:.3g} GB/s.",
        "",
    ]
    lines += ["| model | chains | sampler | GB/s of state | share of a copy |", "|---|---|---|---|---|"]
    for r in records:
        if r.get("sweeps_per_second") and r["sampler"] in STATE_BYTES:
            moved = 2 * STATE_BYTES[r["sampler"]] * r["site_updates_per_second"]
            lines.append(
                f"| {r['model']} | {r['chains']} | {r['sampler']} | {moved / 1e9:.3g} | {moved / copy:.2g} |"
            )
    return [*lines, ""]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    p.add_argument(
        "--samplers", nargs="+", default=[s for s in SAMPLERS if s != "sample-32"], choices=list(SAMPLERS)
    )
    p.add_argument("--chains", nargs="+", type=int, default=[4, 64, 1024], help="and 1 on the lattices")
    p.add_argument("--seconds", type=float, default=20, help="sample at least this long")
    p.add_argument("--draws", type=int, default=100, help="draws per chain at least")
    p.add_argument("--tune", type=int, help="draws of tuning; by default the model's")
    p.add_argument("--limit", type=float, default=1800, help="seconds for a row in all")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (tables)")
    p.add_argument("--resume", action="store_true", help="keep the records in --out and run what is missing")
    p.add_argument(
        "--bandwidth",
        type=int,
        metavar="MB",
        help="compare the sweeps' traffic with that of a copy of so many MB",
    )
    p.add_argument("--one", nargs=3, metavar=("MODEL", "SAMPLER", "CHAINS"), help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        model, sampler, chains = args.one
        print(RESULT + json.dumps(run_one(model, sampler, int(chains), args)), flush=True)
        return
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    records = run_all(args, args.out.with_name(args.out.name + ".jsonl") if args.out else None)
    text = markdown(records, bandwidth(args.bandwidth) if args.bandwidth else None)
    print(text)
    if args.out:
        args.out.with_name(args.out.name + ".md").write_text(text)


if __name__ == "__main__":
    main()
