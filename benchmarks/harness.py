"""What every benchmark shares: a process for each row, records on disk, tables, and the command line.

A script describes itself by a `Benchmark` and calls `main` with it. In the parent process `rows` lists what
is to be measured. Each row is measured by `measure` in a child process of its own, so that no row profits
from the caches, threads or memory of another. The child is the parent's own command with `--one KEY` added,
so that it reads the same options. It prints its record as JSON, on a line that starts with RESULT. The parent
adds every record to `OUT.jsonl` as it arrives, and at the end prints the tables and writes them to `OUT.md`.

This module imports nothing of the package that is measured.
"""

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np

ROOT = Path(__file__).parents[1]
RESULT = "BENCHMARK-RESULT "  # starts the line of a child's output that holds its record
NO_RESULT = "no result"  # starts the reason of a record whose child exceeded its time limit
PACKAGES = (
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
)
PROVENANCE = ("hardware", "versions", "commit", "date")  # the entries of a record that `environment` makes


class CannotRun(Exception):
    """Raised where a sampler does not support a model, or a library is missing; the message says why."""


@dataclass(frozen=True)
class Row:
    """One row of a table, before it is measured.

    Attributes
    ----------
    key : identifies the row; the record starts with these entries, and `measure` gets them as arguments
    env : environment variables of the child process, in addition to the parent's
    skipped : if not empty, the reason for which the row is recorded without being measured
    """

    key: dict
    env: dict = field(default_factory=dict)
    skipped: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark script.

    Attributes
    ----------
    doc : the script's docstring, shown by --help
    rows : (args, records so far) -> iterable of Row. It is advanced after the row before has been recorded,
        so that it may depend on that record and may hold a context open while a row runs
    measure : (args, **key) -> dict that JSON can hold, called in the child process
    markdown : (args, records) -> text of the tables
    progress : record -> one line on a row that succeeded
    options : adds the script's own options to a parser
    limit : args -> seconds that a child may take
    short : values of options under --short; options given on the command line take precedence
    one_core : whether parent and children are restricted to one core
    packages : further packages whose versions the records hold
    keeps_other_rows : whether a run replaces only its own rows in the file, without --resume too
    """

    doc: str
    rows: Callable
    measure: Callable
    markdown: Callable
    progress: Callable
    options: Callable
    limit: Callable = lambda args: args.limit
    short: dict = field(default_factory=dict)
    one_core: bool = False
    packages: tuple = ()
    keeps_other_rows: bool = False


# ---------------------------------------------------------------- command line
def parser(doc):
    """An argument parser that shows a docstring as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def choice(p, option, names, **options):
    """Add an option that takes some of `names`; all of them by default."""
    metavar = option.removeprefix("--").removesuffix("s").upper()
    defaults = {"default": list(names), "metavar": metavar, "help": f"any of: {'; '.join(names)}"}
    p.add_argument(option, nargs="+", choices=list(names), **(defaults | options))


def main(benchmark):
    """Run a benchmark as the command line asks: the whole of it, or one row in a child process."""
    p = parser(benchmark.doc)
    benchmark.options(p)
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (tables)")
    p.add_argument("--resume", action="store_true", help="keep the records in --out and run what is missing")
    p.add_argument("--short", action="store_true", help="a small run, to see whether everything works")
    p.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.short:
        p.set_defaults(**benchmark.short)
        args = p.parse_args()
    if benchmark.one_core and hasattr(os, "sched_setaffinity"):  # before JAX counts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if args.one is not None:
        print(RESULT + json.dumps(measured(benchmark, args, args.one)), flush=True)
        return
    file = Records(args.out, keep=args.resume or benchmark.keeps_other_rows)
    for row in benchmark.rows(args, file.records):
        if args.resume and file.has(row.key):
            continue
        file.add(row.key, record := record_of(benchmark, args, row))
        name = " ".join(str(value) for value in row.key.values())
        reason = record["status"] != "ok" and f"{record['status']}: {record['reason']}"
        print(f"{name}: {reason or benchmark.progress(record)}", file=sys.stderr, flush=True)
    publish(benchmark.markdown(args, file.records), args.out)


# ---------------------------------------------------------------- one row
def quiet():
    """No warnings, and of PyMC's log only errors."""
    for logger in ("pymc", "pymc.discrete"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")


def measured(benchmark, args, key):
    """In the child process: the record of a row, also where measuring it fails."""
    quiet()
    try:
        record = {"status": "ok"} | benchmark.measure(args, **key)
    except CannotRun as reason:
        record = {"status": "cannot run", "reason": str(reason)}
    except Exception as error:
        record = {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
    return key | record | environment(benchmark.packages)


def record_of(benchmark, args, row):
    """In the parent process: the record of a row, measured by a child."""
    if row.skipped:
        return row.key | {"status": "not run", "reason": row.skipped} | environment(benchmark.packages)
    module = sys.modules["__main__"].__spec__.name
    command = [sys.executable, "-m", module, *sys.argv[1:], "--one", json.dumps(row.key)]
    # Imported modules are kept as bytecode, also where a variable says otherwise: pip installs them so.
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": ""} | row.env
    try:
        return result_of(command, benchmark.limit(args), env=env)
    except NoResult as reason:
        return row.key | {"status": "failed", "reason": str(reason)} | environment(benchmark.packages)


class NoResult(Exception):
    """Raised where a child process ends without a result, or takes too long; the message says which."""

    def __init__(self, reason, stderr=""):
        super().__init__(reason)
        self.stderr = stderr


def result_of(command, timeout, *, env=None, cwd=None):
    """What a child process prints after RESULT, read from JSON."""
    try:
        child = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise NoResult(f"{NO_RESULT} in {timeout:.0f} s with compiling and tuning") from None
    for line in child.stdout.splitlines():
        if line.startswith(RESULT):
            return json.loads(line.removeprefix(RESULT))
    last = (child.stderr.strip().splitlines() or ["nothing on stderr"])[-1][:300]
    raise NoResult(f"exit status {child.returncode}: {last}", child.stderr)


@contextlib.contextmanager
def empty_pytensor_cache() -> Iterator[dict]:
    """Environment variables that give a child no functions that PyTensor or JAX compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={folder}"
        yield {"PYTENSOR_FLAGS": flags.lstrip(","), "PYMC_DISCRETE_CACHE": "off"}


def processor_time():
    """A context in which `time.perf_counter` counts the seconds of the processor.

    On one core they are the seconds of the clock without those that other programs on the machine take.
    """
    return mock.patch("time.perf_counter", time.process_time)


# ---------------------------------------------------------------- provenance
def environment(packages=()):
    """Hardware, versions, commit and date: part of every record, so that results cannot lose them."""
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
    for name in (*PACKAGES, *packages):
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
    command = ["git", "describe", "--always", "--dirty"]
    git = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def origins(records):
    """Lines with hardware, date, commit and versions; more than one where the records differ."""
    lines = {}
    for r in records:
        versions = ", ".join(f"{k} {v}" for k, v in r["versions"].items())
        lines[f"{r['hardware']}; {r['date']}; commit {r['commit']}; {versions}"] = None
    return list(lines)


# ---------------------------------------------------------------- records on disk
class Records:
    """The records of a benchmark, also in a file of JSON lines where there is one.

    out : path without suffix, or None
    keep : whether records that the file already holds stay
    """

    def __init__(self, out, keep=False):
        self.path = with_suffix(out, ".jsonl") if out else None
        exists = keep and self.path and self.path.exists()
        self.records = read(self.path) if exists else []

    def has(self, key):
        return any(self._matches(record, key) for record in self.records)

    def add(self, key, record):
        """Add the record of a row, in the place of an earlier one of the same key."""
        same = [n for n, other in enumerate(self.records) if self._matches(other, key)]
        if same:
            self.records[same[0]] = record
        else:
            self.records.append(record)
        if self.path:
            write(self.path, self.records)

    @staticmethod
    def _matches(record, key):
        return all(record.get(name) == value for name, value in key.items())


def with_suffix(out, suffix):
    """`out` with a suffix appended; dots within its name are not taken for one."""
    return out.with_name(out.name + suffix)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def publish(text, out):
    """Print the tables, and write them to `out`.md where `out` is a path."""
    print(text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        with_suffix(out, ".md").write_text(text)


# ---------------------------------------------------------------- tables
def table(columns, rows):
    """Lines of a Markdown table. A row of fewer cells than columns is filled up with empty ones."""

    def line(cells):
        return "| " + " | ".join(map(str, cells)) + " |" + " |" * (len(columns) - len(cells))

    return [line(columns), "|---" * len(columns) + "|", *(line(list(row)) for row in rows)]


def label(name, ours):
    """The name of a sampler in a table: in bold if it is one of this package."""
    return f"**{name}**" if ours else name


def spread(values):
    """Median and, of several values, (smallest-largest), with three digits; empty for no values."""
    if not values:
        return ""
    middle, low, high = (f"{v:.3g}" if v < 1000 else f"{v:.0f}" for v in np.quantile(values, [0.5, 0, 1]))
    return f"{middle} ({low}-{high})" if len(values) > 1 else middle
