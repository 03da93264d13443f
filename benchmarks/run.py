"""Run models x samplers x seeds, each in a process of its own, and print one table per model.

python -m benchmarks.run --models A C --samplers pymc gwg-1 --seeds 3 --out benchmarks/results/NAME
"""

import contextlib

import numpy as np

from benchmarks import harness
from benchmarks.models import MODELS
from benchmarks.recorder import Done, Recorder
from benchmarks.samplers import SAMPLERS
from benchmarks.scores import disagreements


def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--seeds", type=int, default=3, help="number of seeds")
    p.add_argument("--target", type=float, default=400, help="minimum ESS to stop at")
    p.add_argument("--limit", type=float, default=600, help="seconds of sampling after tuning to stop at")
    p.add_argument("--setup-limit", type=float, default=600, help="seconds for compiling and tuning")
    p.add_argument("--min-seconds", type=float, default=20, help="sample at least this long, to time it well")
    p.add_argument("--cold", action="store_true", help="an empty PyTensor compile cache for every run")


SHORT = {
    "models": ["C"],
    "samplers": ["gwg-1", "sample", "numpyro-by-hand"],
    "seeds": 1,
    "target": 20,
    "limit": 2,
    "min_seconds": 0.5,
}


def rows(args, records):
    for model in args.models:
        for sampler in args.samplers:
            if model not in SAMPLERS[sampler].models:
                continue
            for seed in range(args.seeds):
                with harness.empty_pytensor_cache() if args.cold else contextlib.nullcontext({}) as env:
                    yield harness.Row({"model": model, "sampler": sampler, "seed": seed}, env)
                runs = [r for r in records if (r["model"], r["sampler"]) == (model, sampler)]
                if any(r["status"] == "cannot run" for r in runs):
                    break


def measure(args, model, sampler, seed):
    recorder = Recorder(MODELS[model], args.target, args.limit, args.min_seconds)
    with contextlib.suppress(Done):
        SAMPLERS[sampler].run(MODELS[model], seed, recorder)
    return {"target": args.target, "limit": args.limit} | recorder.result()


def progress(r):
    return (
        f"compile {r['compile_seconds']:.1f} s, tune {r['tune_seconds']:.1f} s, {r['draws']} draws in "
        f"{r['sampling_seconds']:.1f} s, min ESS {r['min_ess']:.0f} ({r['worst']})"
    )


# ---------------------------------------------------------------- tables
def markdown(args, records):
    """One table per model."""
    out = []
    for model in sorted({r["model"] for r in records}):
        mine = [r for r in records if r["model"] == model]
        out += [f"## {model}: {MODELS[model].title}", "", *header(mine), "", *table(mine), ""]
        out += [f"- {line}" for line in footnotes(mine)] + [""]
    return "\n".join(out)


def header(records):
    goals = {f"to ESS {r['target']:.0f} or {r['limit']:.0f} s" for r in records if "target" in r}
    return [
        *harness.origins(records),
        f"One chain per run, {' / '.join(sorted(goals))}; median and (range) over seeds.",
    ]


COLUMNS = [
    "sampler", "compile s", "tune s", "ms per draw", "NUTS share", "min ESS", "min ESS/s",
    "ratio to best peer", "slowest summary", "seeds at target",
]  # fmt: skip
MEASURED = ["compile_seconds", "tune_seconds", "ms_per_draw", "nuts_share", "min_ess", "min_ess_per_second"]


def table(records):
    names = list(dict.fromkeys(r["sampler"] for r in records))
    ok = {name: [r for r in records if r["sampler"] == name and r["status"] == "ok"] for name in names}
    speed = {name: np.median([r["min_ess_per_second"] for r in ok[name]]) for name in names if ok[name]}
    best_peer = max((speed[name] for name in speed if not SAMPLERS[name].ours), default=0.0)
    lines = []
    for name in sorted(names, key=lambda name: (not SAMPLERS[name].ours, -speed.get(name, -1.0))):
        mine = [r for r in records if r["sampler"] == name]
        label = harness.label(name, SAMPLERS[name].ours)
        if not ok[name]:
            lines.append([label, mine[0]["status"]])
            continue
        values = [[r[key] for r in ok[name] if r.get(key) is not None] for key in MEASURED]
        ratio = f"{speed[name] / best_peer:.2g}" if best_peer > 0 else "no peer"
        slowest = ", ".join(dict.fromkeys(r["worst"] for r in ok[name]))
        reached = f"{sum(r['reached'] for r in ok[name])} of {len(mine)}"
        lines.append([label, *map(harness.spread, values), ratio, slowest, reached])
    return harness.table(COLUMNS, lines)


def footnotes(records):
    """What the samplers are, why some have no numbers, and where two of them disagree."""
    for name in dict.fromkeys(r["sampler"] for r in records):
        mine = [r for r in records if r["sampler"] == name]
        ok = [r for r in mine if r["status"] == "ok"]
        text = [SAMPLERS[name].note] if SAMPLERS[name].note else []
        if ok:
            text.append(" and ".join(sorted({r["precision"] for r in ok})))
        text += dict.fromkeys(f"{r['status']}: {r['reason']}" for r in mine if r["status"] != "ok")
        stuck = sorted({s for r in ok for s, values in r["summaries"].items() if values["sd"] == 0})
        text += [f"'{summary}' never moved in at least one run (its ESS counts as 0)" for summary in stuck]
        yield f"{name}: {'; '.join(text)}"
    yield from disagreements(records)


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            # a run may exceed its limit by the time of one chunk of draws
            limit=lambda args: 2 * args.limit + args.setup_limit,
            short=SHORT,
        )
    )
