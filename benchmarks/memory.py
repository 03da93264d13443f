"""Memory of pmd.sample.

python -m benchmarks.memory --out benchmarks/results/NAME-memory
python -m benchmarks.memory --draws 1000 4000 --chains 4
"""

import resource
import tempfile
import time
from pathlib import Path

from benchmarks import harness
from benchmarks.models import MODELS

MODEL = "I"
CHUNK = 50  # what pmd.sample chooses for 1000 draws; every size of a chunk is compiled separately


# ---------------------------------------------------------------- measurements
def memory(draws, chains, checkpoint, checks):
    """Largest resident memory of the process, before and after a call of pmd.sample."""
    import pymc_discrete as pmd

    model, _ = MODELS[MODEL].pymc()
    quiet = {"model": model, "random_seed": 0, "progressbar": False}
    pmd.sample(2, tune=2, chains=chains, compute_convergence_checks=False, **quiet)
    before, start = most_resident(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        idata = pmd.sample(
            draws,
            tune=2,
            chains=chains,
            checkpoint=Path(folder) / "run" if checkpoint else None,
            compute_convergence_checks=checks,
            **quiet,
        )
        kept = idata.posterior["x"].nbytes
        seconds, most = time.perf_counter() - start, most_resident()
    return {"before_bytes": before, "most_bytes": most, "draws_bytes": int(kept), "seconds": seconds}


def most_resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kB


# ---------------------------------------------------------------- rows
def options(p):
    p.add_argument("--draws", nargs="+", type=int, default=[1000, 4000, 16_000])
    p.add_argument("--chains", nargs="+", type=int, default=[4, 64])
    p.add_argument("--checks", action="store_true", help="with convergence checks, as by default: slow")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")


SHORT = {"draws": [100], "chains": [2]}


def rows(args, records):
    for draws in args.draws:
        for chains in args.chains:
            for checkpoint in (False, True):
                size = {"draws": draws, "chains": chains, "checkpoint": checkpoint}
                yield harness.Row({**size, "checks": args.checks})


def measure(args, **key):
    return memory(**key)


def progress(r):
    return f"{(r['most_bytes'] - r['before_bytes']) / 2**20:.0f} MB more, {r['seconds']:.1f} s"


# ---------------------------------------------------------------- tables
COLUMNS = [
    "draws", "chains", "draws themselves, MB", "checkpoint", "MB before", "MB at most",
    "MB more per MB of draws", "s",
]  # fmt: skip


def markdown(args, records):
    checks = "with" if records[0]["checks"] else "without"
    lines = []
    for r in records:
        if r["status"] != "ok":
            lines.append([r["draws"], r["chains"], f"{r['status']}: {r['reason']}"])
            continue
        draws, before, most = (r[key] / 2**20 for key in ("draws_bytes", "before_bytes", "most_bytes"))
        memory = [f"{before:.0f}", f"{most:.0f}", f"{(most - before) / draws:.2f}"]
        checkpoint = "yes" if r["checkpoint"] else "no"
        lines.append([r["draws"], r["chains"], f"{draws:.0f}", checkpoint, *memory, f"{r['seconds']:.1f}"])
    text = [
        f"## Memory of pmd.sample, {MODELS[MODEL].title}",
        "",
        *harness.origins(records),
        f"Largest resident memory, {checks} convergence checks; before: after a run of two draws.",
        "",
        *harness.table(COLUMNS, lines),
        "",
    ]
    return "\n".join(text)


if __name__ == "__main__":
    harness.main(harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT))
