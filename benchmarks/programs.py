"""The programs that pmd.sample compiles: how many instructions they have, and the seconds that each takes.

python -m benchmarks.programs --out benchmarks/results/NAME-programs [--before CHECKOUT]
python -m benchmarks.programs --models A C

Every row has a process of its own, with empty caches, which calls pmd.sample once. One row counts
instructions, in what XLA writes of each program before and after it has optimised it; as writing takes time,
another one measures the seconds. --before adds the package of CHECKOUT, a folder with another commit of this
repository.
"""

import collections
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import harness
from benchmarks.answers import SPECS

WHAT = ("instructions", "seconds")
SMALL = 100  # a program of fewer instructions is not listed by itself
CHAINS, DRAWS = 4, 50
PACKAGES = ("now", "before")
EVENTS = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "compile",
}
COUNTS = ("lowered", "optimised")
INSTRUCTION = re.compile(r"^\s+(ROOT )?%?[\w.\-]+ = ", re.MULTILINE)
WRITTEN = re.compile(r"module_\d+\.(?P<name>.+)\.(?P<stage>before|cpu_after)_optimizations\.txt")


def sample(name):
    """pmd.sample of a model; the seconds until its first draw."""
    import pymc_discrete as pmd

    spec = SPECS[name]
    model, _ = spec.pymc()
    first, begin = [], time.perf_counter()
    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    pmd.sample(
        DRAWS,
        tune=spec.tune,
        chains=CHAINS,
        model=model,
        callback=lambda *_: first.append(time.perf_counter()),
        **quiet,
    )
    return first[0] - begin


def instructions(name):
    """{program: {"lowered", "optimised": number of instructions}}, those of programs of one name added up."""
    with tempfile.TemporaryDirectory() as folder:
        # XLA reads its flags when it starts
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
        sample(name)
        found = collections.defaultdict(lambda: dict.fromkeys(("programs", *COUNTS), 0))
        for path in Path(folder).iterdir():
            if match := WRITTEN.fullmatch(path.name):
                of_program = found[plain(match["name"])]
                stage = COUNTS[match["stage"] == "cpu_after"]
                of_program[stage] += len(INSTRUCTION.findall(path.read_text()))
                of_program["programs"] += stage == "lowered"
    return dict(found)


def seconds(name):
    """{program: {"trace", "lower", "compile": seconds}}, and those until the first draw."""
    import jax

    found = collections.defaultdict(lambda: dict.fromkeys(EVENTS.values(), 0.0))

    def note(event, duration, **details):
        stage = EVENTS.get(event.split("/")[-1])
        if stage:
            found[plain(str(details.get("fun_name")))][stage] += duration

    jax.monitoring.register_event_duration_secs_listener(note)
    first_draw = sample(name)
    # what is traced inside of another program is counted there
    return {program: s for program, s in found.items() if s["compile"]}, first_draw


def plain(name):
    """The name of a function, from that of its program."""
    return re.sub(r"^jit[_(](.*?)\)?$", r"\1", name)


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", SPECS)
    p.add_argument("--before", type=Path, help="a folder with another commit of this repository")
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def rows(args, records):
    for model in args.models:
        for package in PACKAGES[: 2 if args.before else 1]:
            for what in WHAT:
                with harness.empty_pytensor_cache() as env:
                    yield harness.Row({"model": model, "package": package, "what": what}, env)


def measure(args, model, package, what):
    if package == "before":
        sys.path.insert(0, str(args.before))
    if what == "instructions":
        record = {"programs": instructions(model)}
    else:
        programs, first_draw = seconds(model)
        record = {"programs": programs, "first_draw": first_draw}
    import pymc_discrete

    return record | {"package_commit": harness.commit(Path(pymc_discrete.__file__).parent)}


def progress(r):
    key = "optimised" if r["what"] == "instructions" else "compile"
    return f"{len(r['programs'])} programs, {sum(p[key] for p in r['programs'].values()):.6g} {key}"


# ---------------------------------------------------------------- tables
def merged(records):
    """{(model, package): {program: counts and seconds}} and {(model, package): seconds to the first draw}."""
    programs, first = collections.defaultdict(lambda: collections.defaultdict(dict)), {}
    for r in records:
        if r["status"] == "ok":
            key = r["model"], r["package"]
            for name, values in r["programs"].items():
                programs[key][name] |= values
            first |= {key: r["first_draw"]} if "first_draw" in r else {}
    return programs, first


def total(programs, key):
    return sum(p.get(key, 0) for p in programs.values())


def cells(values):
    """The cells of a program, or of a sum of programs."""
    counts = [f"{values.get(k, 0):,}" for k in COUNTS]
    return counts + [f"{values.get(k, 0):.2f}" for k in EVENTS.values()]


def markdown(args, records):
    programs, first = merged(records)
    packages = [p for p in PACKAGES if any(package == p for _, package in programs)]
    models = list(dict.fromkeys(model for model, _ in programs))
    stages = ["instructions lowered", "optimised", "trace s", "lower s", "compile s"]
    lines = ["# Compiled programs", "", *harness.origins(records), ""]
    commits = {r["package"]: r["package_commit"] for r in records if r["status"] == "ok"}
    lines += [f"Package {package}: commit {commits[package]}." for package in packages]
    sums = [
        [
            model,
            package,
            total(of, "programs"),
            *cells({k: total(of, k) for k in (*COUNTS, *EVENTS.values())}),
            f"{first.get((model, package), float('nan')):.2f}",
        ]
        for model in models
        for package in packages
        for of in [programs[model, package]]
    ]
    columns = ["model", "package", "programs", *stages, "first draw s"]
    lines += ["", "## All programs of a call", "", *harness.table(columns, sums), ""]
    each = [
        row
        for model in models
        for package in packages
        for row in listed(model, package, programs[model, package])
    ]
    lines += ["## Each program", "", *harness.table(["model", "package", "program", *stages], each), ""]
    failed = [f"- {r['model']}, {r['package']}: {r['reason']}" for r in records if r["status"] != "ok"]
    return "\n".join([*failed, *lines, FOOTNOTE, ""])


def listed(model, package, of):
    """A row for each large program, the largest first, and one for all others."""
    large = {name: p for name, p in of.items() if p.get("lowered", 0) >= SMALL}
    for name in sorted(large, key=lambda name: -large[name]["lowered"]):
        yield [model, package, name, *cells(large[name])]
    small = {name: p for name, p in of.items() if name not in large}
    sums = {k: total(small, k) for k in (*COUNTS, *EVENTS.values())}
    yield [model, package, f"{total(small, 'programs')} others", *cells(sums)]


FOOTNOTE = f"""- One call of pmd.sample with {CHAINS} chains and {DRAWS} draws, in a fresh process with empty
  caches.
- Instructions: those of all computations of the program, before and after XLA's optimisation. Seconds of the
  clock, of tracing, lowering to XLA's language and compiling. The largest program is compiled in a thread
  beside others, so that their seconds overlap.
- now: the checkout that this benchmark is part of. Programs of one name are added up; those of fewer than
  {SMALL} instructions are in the last row of a model."""


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short={"models": ["points"]})
    )
