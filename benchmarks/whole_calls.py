"""Seconds of whole calls, a process's first and second: pmd.sample, pm.sample with our steps and without.

python -m benchmarks.whole_calls --out benchmarks/results/NAME-whole-calls [--models A occupancy]

4 chains of 1,000 tuning draws and 1,000 draws, with PyMC's default number of cores. Every row has a process
of its own, which begins without compiled programs on disk. The second call is for the same model with another
seed. ESS is the smallest bulk ESS of the model's summaries in the second call.
"""

import time

from benchmarks import harness, scores
from benchmarks.answers import SPECS
from benchmarks.to_answer import summaries_of

QUIET = {"progressbar": False, "compute_convergence_checks": False}


def samplers():
    import pymc as pm

    import pymc_discrete as pmd

    return {
        "pmd.sample": lambda **options: pmd.sample(**options),
        "pm.sample, AutoStep": lambda **options: pm.sample(step=pmd.AutoStep(), **options),
        "pm.sample, GibbsWithGradients": lambda **options: pm.sample(
            step=pmd.GibbsWithGradients(), **options
        ),
        "pm.sample": lambda **options: pm.sample(**options),
    }


SAMPLERS = ("pmd.sample", "pm.sample, AutoStep", "pm.sample, GibbsWithGradients", "pm.sample")


def options(p):
    harness.choice(p, "--models", SPECS)
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def rows(args, records):
    for model in args.models:
        for sampler in args.samplers:
            with harness.empty_pytensor_cache() as env:
                yield harness.Row({"model": model, "sampler": sampler}, env)


def measure(args, model, sampler):
    spec, sample = SPECS[model], samplers()[sampler]
    built, _ = spec.pymc()
    seconds = []
    for seed in (1, 2):
        begin = time.perf_counter()
        with built:
            tree = sample(draws=1000, tune=1000, chains=4, random_seed=seed, **QUIET)
        seconds.append(time.perf_counter() - begin)
    found = scores.scored(summaries_of(spec, tree), seconds[1])
    return {
        "first": seconds[0],
        "second": seconds[1],
        "min_ess": found["min_ess"],
        "summaries": found["summaries"],
    }


def progress(record):
    return f"first {record['first']:.1f} s, second {record['second']:.1f} s, ESS {record['min_ess']:.0f}"


def markdown(args, records):
    columns = ["model", "sampler", "first call, s", "second call, s", "ESS", "ESS per second, second call"]
    cells = [
        [r["model"], r["sampler"], f"{r['first']:.1f}", f"{r['second']:.1f}", f"{r['min_ess']:,.0f}",
         f"{r['min_ess'] / r['second']:,.0f}"]
        if r["status"] == "ok" else [r["model"], r["sampler"], r.get("reason", r["status"]), "-", "-", "-"]
        for r in records
    ]  # fmt: skip
    return "\n".join(
        ["# Whole calls", "", *harness.origins(records), "", *harness.table(columns, cells), "", FOOTNOTE, ""]
    )


FOOTNOTE = """\
- 4 chains of 1,000 tuning draws and 1,000 draws, with PyMC's default number of cores, which on two CPUs is
  one: chains of pm.sample are handed out one after another, and ours are made beside one another.
- The first call begins without compiled programs on disk; the second is for the same model with another seed.
- ESS: the smallest bulk ESS of the model's summaries, second call."""


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short={"models": ["points"]})
    )
