"""Run models x samplers x seeds, each in a process of its own, and print one table per model.

python -m benchmarks.run --models A C --samplers pymc gwg-1 --seeds 3 --out benchmarks/results/NAME
"""

import argparse
import importlib.metadata
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.models import MODELS
from benchmarks.recorder import CannotRun, Done, Recorder
from benchmarks.samplers import SAMPLERS

ROOT = Path(__file__).parents[1]
PACKAGES = [
    "pymc-discrete",
    "pymc",
    "pytensor",
    "jax",
    "blackjax",
    "numpyro",
    "thrml",
    "pymc-extras",
    "arviz",
    "numpy",
]
RESULT = "BENCHMARK-RESULT "  # what starts the line of a child's output that holds its record


# ---------------------------------------------------------------- one run (in the child process)
def run_one(model, sampler, seed, target, limit, min_seconds):
    """A record of one run, a dict that JSON can hold."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    recorder = Recorder(MODELS[model], target, limit, min_seconds)
    record = {"model": model, "sampler": sampler, "seed": seed, "target": target, "limit": limit}
    try:
        SAMPLERS[sampler].run(MODELS[model], seed, recorder)
    except Done:
        record |= recorder.result()
    except CannotRun as reason:
        record |= {"status": "cannot run", "reason": str(reason)}
    except Exception as error:
        record |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
    return record | environment()


def environment():
    """Hardware and versions: they are part of every record, so that results cannot lose them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    hardware = f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    hardware += f" ({usable} used)" if usable != os.cpu_count() else ""
    if "jax" in sys.modules:
        import jax

        if jax.default_backend() != "cpu":
            hardware += f", {jax.devices()[0].device_kind}"
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "hardware": hardware,
        "versions": versions,
        "commit": commit(ROOT),
        "date": time.strftime("%Y-%m-%d"),
    }


def commit(folder):
    """The commit that is checked out in a folder."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True
    )
    return git.stdout.strip() or "unknown"


# ---------------------------------------------------------------- all runs (in the parent)
def record_of(what, command, timeout, env=None):
    """What a module, started in a new process, prints as its record; or why there is none. `what` it is the
    record of is in both.
    """
    command = [sys.executable, "-m", *command]
    try:
        child = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return (
            what
            | {"status": "failed", "reason": f"no result in {timeout:.0f} s with compiling and tuning"}
            | environment()
        )
    for line in child.stdout.splitlines():
        if line.startswith(RESULT):
            return what | json.loads(line.removeprefix(RESULT))
    tail = (child.stderr.strip().splitlines() or ["nothing on stderr"])[-1][:300]
    return what | {"status": "failed", "reason": f"exit status {child.returncode}: {tail}"} | environment()


def run_in_child(args, model, sampler, seed):
    """Start a run in a new process; kill it when it takes far too long to compile and tune."""
    with tempfile.TemporaryDirectory() as scratch:
        env = dict(os.environ)
        if args.cold:
            env["PYTENSOR_FLAGS"] = f"{env.get('PYTENSOR_FLAGS', '')},base_compiledir={scratch}".lstrip(",")
        command = ["benchmarks.run", "--one", model, sampler, str(seed)]
        for option in ("target", "limit", "min_seconds"):
            command += [f"--{option.replace('_', '-')}", str(getattr(args, option))]
        timeout = 2 * args.limit + args.setup_limit  # a run may overshoot its limit by one chunk
        return record_of({"model": model, "sampler": sampler, "seed": seed}, command, timeout, env)


def run_all(args, path):
    """Run what is asked for, appending every record to `path` as it comes; return all records in it."""
    if path and not args.resume:
        path.unlink(missing_ok=True)
    records = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    have = {(r["model"], r["sampler"], r["seed"]) for r in records}
    for model in args.models:
        for name in args.samplers:
            if model not in SAMPLERS[name].models:
                continue
            for seed in range(args.seeds):
                if (model, name, seed) in have:
                    continue
                record = run_in_child(args, model, name, seed)
                records.append(record)
                print(progress_line(record), file=sys.stderr, flush=True)
                if path:
                    with path.open("a") as file:
                        file.write(json.dumps(record) + "\n")
                if record["status"] == "cannot run":
                    break
    return records


def progress_line(r):
    head = f"{r['model']} {r['sampler']} seed {r['seed']}: "
    if r["status"] != "ok":
        return head + f"{r['status']}: {r['reason']}"
    return head + (
        f"compile {r['compile_seconds']:.1f} s, tune {r['tune_seconds']:.1f} s, {r['draws']} draws in "
        f"{r['sampling_seconds']:.1f} s, min ESS {r['min_ess']:.0f} ({r['worst']})"
    )


# ---------------------------------------------------------------- tables
def markdown(records):
    """One table per model."""
    out = []
    for model in sorted({r["model"] for r in records}):
        mine = [r for r in records if r["model"] == model]
        out += [f"## {model}: {MODELS[model].title}", "", *header(mine), "", *table(mine), ""]
        out += [f"- {line}" for line in footnotes(mine)] + [""]
    return "\n".join(out)


def origins(records):
    """Hardware, date, versions; several lines where records differ."""
    lines = {}
    for r in records:
        versions = ", ".join(f"{k} {v}" for k, v in r["versions"].items())
        lines[f"{r['hardware']}; {r['date']}; commit {r['commit']}; {versions}"] = None
    return list(lines)


def header(records):
    goal = {f"to ESS {r['target']:.0f} or {r['limit']:.0f} s" for r in records if "target" in r}
    return [
        *origins(records),
        f"One chain per run, {' / '.join(sorted(goal))}; median and (range) over seeds.",
    ]


def spread(values):
    """median (min-max), three digits; nothing of nothing"""
    if not values:
        return ""
    middle, low, high = (f"{v:.3g}" if v < 1000 else f"{v:.0f}" for v in np.quantile(values, [0.5, 0, 1]))
    return f"{middle} ({low}-{high})" if len(values) > 1 else middle


COLUMNS = [
    "sampler", "compile s", "tune s", "ms per draw", "NUTS share", "min ESS", "min ESS/s", "ratio to best peer",
    "slowest summary", "seeds at target",
]  # fmt: skip


def table(records):
    names = list(dict.fromkeys(r["sampler"] for r in records))
    ok = {name: [r for r in records if r["sampler"] == name and r["status"] == "ok"] for name in names}
    speed = {name: np.median([r["min_ess_per_second"] for r in ok[name]]) for name in names if ok[name]}
    best_peer = max((speed[name] for name in speed if not SAMPLERS[name].ours), default=0.0)
    rows = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for name in sorted(names, key=lambda name: (not SAMPLERS[name].ours, -speed.get(name, -1.0))):
        runs = ok[name]
        label = f"**{name}**" if SAMPLERS[name].ours else name
        if not runs:
            bad = next(r for r in records if r["sampler"] == name)
            rows.append(f"| {label} | {bad['status']} |" + " |" * (len(COLUMNS) - 2))
            continue
        ratio = f"{speed[name] / best_peer:.2g}" if best_peer > 0 else "no peer"
        worst = ", ".join(dict.fromkeys(r["worst"] for r in runs))
        reached = f"{sum(r['reached'] for r in runs)} of {sum(r['sampler'] == name for r in records)}"
        measured = (
            "compile_seconds",
            "tune_seconds",
            "ms_per_draw",
            "nuts_share",
            "min_ess",
            "min_ess_per_second",
        )
        cells = [
            label,
            *(spread([r[key] for r in runs if r.get(key) is not None]) for key in measured),
            ratio,
            worst,
            reached,
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


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


def disagreements(records, sigmas=5.0):
    """Means that differ by more than `sigmas` Monte Carlo errors from those of the run with the most ESS."""
    ok = [r for r in records if r["status"] == "ok"]
    for summary in ok[0]["summaries"] if ok else []:
        reference = max(ok, key=lambda r: r["summaries"][summary]["ess"])
        a = reference["summaries"][summary]
        for r in ok:
            b = r["summaries"][summary]
            error = np.sqrt(a["sd"] ** 2 / max(a["ess"], 1) + b["sd"] ** 2 / max(b["ess"], 1))
            if min(b["ess"], a["ess"]) >= 50 and abs(a["mean"] - b["mean"]) > sigmas * error:
                yield (
                    f"means differ: {summary} is {b['mean']:.4g} by {r['sampler']} seed {r['seed']}, "
                    f"{a['mean']:.4g} by {reference['sampler']} seed {reference['seed']}"
                )


def publish(text, out):
    """Print the table, and keep it where a path without suffix is given."""
    print(text)
    if out:
        out.with_name(out.name + ".md").write_text(text)


def keep(records, out):
    """The records so far, where a path without suffix is given."""
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.with_name(out.name + ".jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    p.add_argument(
        "--samplers",
        nargs="+",
        default=list(SAMPLERS),
        choices=list(SAMPLERS),
        metavar="NAME",
        help=f"any of: {', '.join(SAMPLERS)}",
    )
    p.add_argument("--seeds", type=int, default=3, help="number of seeds")
    p.add_argument("--target", type=float, default=400, help="minimum ESS to stop at")
    p.add_argument("--limit", type=float, default=600, help="seconds of sampling after tuning to stop at")
    p.add_argument("--setup-limit", type=float, default=600, help="seconds for compiling and tuning")
    p.add_argument("--min-seconds", type=float, default=20, help="sample at least this long, to time it well")
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (tables)")
    p.add_argument("--resume", action="store_true", help="keep the records in --out and run what is missing")
    p.add_argument("--cold", action="store_true", help="an empty PyTensor compile cache for every run")
    p.add_argument("--one", nargs=3, metavar=("MODEL", "SAMPLER", "SEED"), help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        model, name, seed = args.one
        record = run_one(model, name, int(seed), args.target, args.limit, args.min_seconds)
        print(RESULT + json.dumps(record), flush=True)
        return
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    records = run_all(args, args.out.with_name(args.out.name + ".jsonl") if args.out else None)
    publish(markdown(records), args.out)


if __name__ == "__main__":
    main()
