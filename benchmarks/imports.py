"""Seconds that importing takes in fresh processes: PyMC, then this package, then its names at first use.

python -m benchmarks.imports --out benchmarks/results/NAME-imports
"""

import itertools
import time

from benchmarks import harness

RUNS = 5
STAGES = ("import pymc", "import pymc_discrete", "pmd.BlockGibbs", "pmd.sample")


def options(p):
    p.add_argument("--runs", type=int, default=RUNS)
    p.add_argument("--limit", type=float, default=120, help="seconds for a run")


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        # the first one writes bytecode, and reads the files from the disk
        for run in range(-1, args.runs):
            yield harness.Row({"run": run}, env)


def measure(args, run):
    moments = []

    def note():
        moments.append((time.perf_counter(), time.process_time()))

    note()
    import pymc  # noqa: F401

    note()
    import pymc_discrete as pmd

    note()
    _ = pmd.BlockGibbs
    note()
    _ = pmd.sample
    note()
    clock, processor = (
        [after - before for before, after in itertools.pairwise(times)]
        for times in zip(*moments, strict=True)
    )
    return {
        "seconds": dict(zip(STAGES, clock, strict=True)),
        "processor": dict(zip(STAGES, processor, strict=True)),
    }


def progress(r):
    return ", ".join(f"{stage} {s:.2f} s" for stage, s in r["seconds"].items())


def markdown(args, records):
    ok = [r for r in records if r["status"] == "ok" and r["run"] >= 0]
    both = ("seconds", "processor")
    cells = [[stage, *(harness.spread([r[kind][stage] for r in ok]) for kind in both)] for stage in STAGES]
    after = [harness.spread([sum(list(r[kind].values())[1:]) for r in ok]) for kind in both]
    cells += [["all after import pymc", *after]]
    lines = ["# Importing", "", *harness.origins(records), ""]
    columns = ["step", f"seconds: median of {len(ok)} processes (range)", "seconds of the processor"]
    lines += harness.table(columns, cells)
    notes = ["", "- In this order, in one process each. A public name is imported when it is first used.", ""]
    return "\n".join([*lines, *notes])


if __name__ == "__main__":
    harness.main(harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short={"runs": 1}))
