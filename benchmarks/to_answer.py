"""Seconds from the call to the first draw, and until every summary has 1,000 effective draws: ours and peers.

python -m benchmarks.to_answer --out benchmarks/results/NAME-to-answer [--before CHECKOUT]
python -m benchmarks.to_answer --models A C --samplers cold warm JAGS

Every row has a process of its own. Of pmd.sample there are up to six for each model: one finds how many
draws are enough; one, "before", has the package of CHECKOUT, a folder with another commit of this repository;
"cold" begins without compiled programs on disk; "warm" has those that the one before left there. The last
three call pmd.sample three times: at first, again, and with other data of the same shapes. Two more, "short,
cold" and "short, warm", make three calls of 20 + 20 draws, which are shown in units of the time that a fresh
process takes to import PyMC; with --before so do two with the other commit's package.

Of a peer the draws of a short run are measured; the seconds to 1,000 effective draws are those before its
first draw, and those that so many draws take at its rate.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import harness, scores
from benchmarks.answers import IN_JAGS, SPECS
from benchmarks.recorder import run_for

WANTED = 1000  # effective draws
CHAINS = 4
MOST = 2**17  # draws per chain that are tried
DRAWS = 1000  # of pm.sample, per chain
SECONDS = 10  # of sampling, of JAGS and NumPyro
SHORT = {"draws": 20, "tune": 20}
CALLS = ("first", "again", "other data")
IMPORTS = (  # prints the seconds that importing PyMC takes, and then this package with what its calls need
    "import time; a = time.perf_counter(); import pymc; b = time.perf_counter(); "
    "import pymc_discrete as pmd; pmd.sample; import jax; print(b - a, time.perf_counter() - b)"
)
SIGMAS = 5.0


# ---------------------------------------------------------------- pmd.sample
def summaries_of(spec, tree):
    """{summary: (chains, draws)} of a tree of draws."""
    posterior = tree["posterior"]
    names = list(posterior.data_vars)
    chains = [spec.summaries({n: posterior[n].values[c] for n in names}) for c in range(CHAINS)]
    return {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}


def sample(spec, model, draws, **options):
    import pymc_discrete as pmd

    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    return pmd.sample(draws, tune=spec.tune, chains=CHAINS, model=model, **quiet, **options)


def enough(spec):
    """The number of draws per chain, a power of two, that have enough effective draws."""
    model, _ = spec.pymc()
    draws = 256
    while draws < MOST:
        ess = min(scores.bulk_ess(summaries_of(spec, sample(spec, model, draws))).values())
        if ess >= WANTED:
            break
        # not all at once, as the estimate from few effective draws is poor
        draws *= 2 ** min(3, max(1, int(np.floor(np.log2(WANTED / max(ess, 1))))))
    return {"draws": int(min(draws, MOST)), "ess": ess}


def with_other_data(spec, seed):
    """The model with the last axis of its observed values permuted, and of start values of the same length.

    Everything of one length is permuted alike, so that start values remain possible.
    """
    import pytensor.tensor as pt

    def permuted(a):
        return a[..., np.random.default_rng(seed).permutation(a.shape[-1])]

    model, _ = spec.pymc()
    lengths = set()
    for rv in model.observed_RVs:
        old = model.rvs_to_values[rv]
        lengths.add(old.data.shape[-1])
        new = pt.constant(permuted(old.data), name=old.name)
        model.rvs_to_values[rv] = new
        model.values_to_rvs[new] = model.values_to_rvs.pop(old)
    for rv, start in model.rvs_to_initial_values.items():
        if isinstance(start, np.ndarray) and start.ndim and start.shape[-1] in lengths:
            model.rvs_to_initial_values[rv] = permuted(start)
    return model


def calls(spec, draws):
    """Seconds to the first draw and to the last one, and programs compiled, of the three calls.

    The moments of the first call's draws are kept, for the comparison with peers.
    """
    import jax

    import pymc_discrete as pmd

    _ = pmd.sample  # imported when it is first used, and not in the first call
    record, compiled = {}, []

    def note(event, *_, **__):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    jax.monitoring.register_event_duration_secs_listener(note)
    model, _ = spec.pymc()
    for call, of_call in zip(CALLS, (model, model, with_other_data(spec, 1)), strict=True):
        compiled.clear()
        begin, chunks = time.perf_counter(), []
        tree = sample(spec, of_call, draws, callback=lambda *_, to=chunks: to.append(time.perf_counter()))
        end = time.perf_counter()
        found = scores.scored(summaries_of(spec, tree), end - begin)
        record[call] = {
            "first_draw": chunks[0] - begin,
            "seconds": end - begin,
            "compiled": len(compiled),
            "ess": found["min_ess"],
        }
        if call == "first":
            record["summaries"] = found["summaries"]
    return record


def short_calls(spec):
    """Seconds of three calls of few draws in this process, and of imports in a fresh one."""
    import pymc_discrete as pmd

    sample = pmd.sample  # imported when it is first used, and not in the first call
    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    model, _ = spec.pymc()
    record = {}
    for call, of_call in zip(CALLS, (model, model, with_other_data(spec, 1)), strict=True):
        begin = time.perf_counter()
        sample(**SHORT, chains=CHAINS, model=of_call, **quiet)
        record[call] = {"seconds": time.perf_counter() - begin}
    printed = [
        subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, check=True) for _ in range(3)
    ]
    seconds = np.array([line.stdout.split() for line in printed], float)
    return record | {"pymc_seconds": seconds[:, 0].min(), "import_seconds": seconds[:, 1].min()}


# ---------------------------------------------------------------- peers
# each: spec -> (seconds before the first draw, {summary: (chains, draws)}, seconds of their sampling)
def in_pymc(spec, step=lambda: None):
    """pm.sample with its defaults, which draws as many chains at a time as there are cores."""
    import pymc as pm

    model, _ = spec.pymc()
    ends = {}  # of a chain: time of its first and of its last draw

    def callback(trace, draw):
        if not draw.tuning:
            now = time.perf_counter()
            ends[draw.chain] = (ends.get(draw.chain, (now,))[0], now)

    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    with model:
        begin = time.perf_counter()
        tree = pm.sample(DRAWS, tune=spec.tune, chains=CHAINS, step=step(), callback=callback, **quiet)
        whole = time.perf_counter() - begin
    together = min(CHAINS, os.cpu_count())
    sampling = sum(last - first for first, last in ends.values()) / together
    return whole - sampling, summaries_of(spec, tree), sampling


def with_autostep(spec):
    import pymc_discrete as pmd

    return in_pymc(spec, pmd.AutoStep)


def in_jags(name, modules=()):
    from benchmarks.jags_program import run_jags

    spec = IN_JAGS[name]()
    (text,) = spec.jags.values()
    summaries, (busy, _), before, _ = run_jags(spec, text, modules, SECONDS, 1, CHAINS, SPECS[name].tune)
    return float(before), summaries, float(busy)


def in_numpyro(spec):
    """Its Gibbs kernel for discrete variables around NUTS, the chains vectorised, as the kernel requires."""
    from benchmarks.samplers import discrete_gibbs

    recorder = run_for(SECONDS, discrete_gibbs(), spec, 1, chains=CHAINS)
    return recorder.compile_seconds + recorder.tune_seconds, recorder.summaries(), recorder.seconds


PEERS = {
    "pm.sample, AutoStep": lambda name: with_autostep(SPECS[name]),
    "pm.sample": lambda name: in_pymc(SPECS[name]),
    "JAGS": in_jags,
    "JAGS, glm": lambda name: in_jags(name, ("glm",)),
    "NumPyro": lambda name: in_numpyro(SPECS[name]),
}
SHORT_ROWS = ("short, cold", "short, warm")
BEFORE = "before, "  # of the names of rows in which the package is that of another commit


def answer(before, summaries, sampling):
    """The record of a peer."""
    found = scores.scored(summaries, sampling)
    seconds = before + WANTED / found["speed"] if found["speed"] > 0 else float("inf")
    return {
        "first_draw": before,
        "seconds": seconds,
        **{k: found[k] for k in ("min_ess", "summaries")},
    }


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", SPECS)
    harness.choice(p, "--samplers", (*SHORT_ROWS, "cold", "warm", *PEERS))
    p.add_argument("--before", type=Path, help="a folder with another commit of this repository")
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def rows(args, records):
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder, harness.empty_pytensor_cache() as env:
            for before in ("", BEFORE) if args.before else ("",):
                with harness.empty_pytensor_cache() as own:
                    for stage in SHORT_ROWS:
                        if stage in args.samplers:
                            yield harness.Row(
                                {"model": model, "sampler": before + stage, "draws": SHORT["draws"]},
                                own | used(folder, before + "short"),
                            )
            yield from ours(args, records, model, env | used(folder, "long"))
            for peer in PEERS:
                if peer in args.samplers:
                    yield harness.Row({"model": model, "sampler": peer, "draws": 0}, env)


def used(folder, name):
    """The environment in which compiled programs are kept in a folder of their own."""
    return {"PYMC_DISCRETE_CACHE": os.path.join(folder, name)}


def ours(args, records, model, env):
    """The rows of pmd.sample; PyTensor's cache is that of the row "cold" for those after it too."""
    if not {"cold", "warm"} & set(args.samplers):
        return
    with harness.empty_pytensor_cache() as other:
        yield harness.Row({"model": model, "sampler": "enough", "draws": 0}, other)
    enough_draws = [r["enough"] for r in records if r["model"] == model and "enough" in r]
    draws = enough_draws[-1] if enough_draws else DRAWS
    if args.before:
        with harness.empty_pytensor_cache() as other:
            yield harness.Row({"model": model, "sampler": "before", "draws": draws}, other)
    for stage in ("cold", "warm"):
        if stage in args.samplers:
            yield harness.Row({"model": model, "sampler": stage, "draws": draws}, env)


def measure(args, model, sampler, draws):
    if sampler in PEERS:
        return answer(*PEERS[sampler](model))
    if sampler.startswith("before"):
        sys.path.insert(0, str(args.before))
    if sampler.endswith(SHORT_ROWS):
        return short_calls(SPECS[model])
    if sampler == "enough":
        found = enough(SPECS[model])
        return {"enough": found["draws"], "ess": found["ess"]}
    return calls(SPECS[model], draws)


def progress(r):
    if r["sampler"] == "enough":
        return f"{r['enough']} draws per chain"
    if r["sampler"] in PEERS:
        return f"first draw {r['first_draw']:.2f} s, all {r['seconds']:.2f} s, ESS {r['min_ess']:.0f}"
    if r["sampler"].endswith(SHORT_ROWS):
        return ", ".join(f"{call}: {r[call]['seconds']:.2f} s" for call in CALLS)
    return "; ".join(f"{call}: {r[call]['first_draw']:.2f}, {r[call]['seconds']:.2f} s" for call in CALLS)


# ---------------------------------------------------------------- tables
OWN = ("before", "cold", "warm", "again", "other data")


def seconds_of(records):
    """{column: {"first_draw", "seconds"}} of the records of one model."""
    ok = {r["sampler"]: r for r in records if r["status"] == "ok"}
    found = {name: ok[name]["first"] for name in OWN[:3] if name in ok}
    if "cold" in ok:
        found |= {call: ok["cold"][call] for call in CALLS[1:]}
    both = [ok[name] for name in ("JAGS", "JAGS, glm") if name in ok]
    if both:
        found["JAGS"] = min(both, key=lambda r: r["seconds"])
    return found | {name: ok[name] for name in PEERS if name in ok and not name.startswith("JAGS")}


def number(value):
    return "inf" if np.isinf(value) else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def markdown(args, records):
    columns = ["model", *OWN, *(name for name in PEERS if name != "JAGS, glm")]
    models = list(dict.fromkeys(r["model"] for r in records))
    of = {model: [r for r in records if r["model"] == model] for model in models}
    titles = {"first_draw": "Seconds to the first draw", "seconds": f"Seconds to {WANTED:,} effective draws"}
    lines = ["# From the call to the answer", "", *harness.origins(records), ""]
    short = [row for model in models for row in in_units(model, of[model])]
    if not any(seconds_of(of[model]) for model in models):  # only short calls were made
        titles = {}
    for key, title in titles.items():
        cells = [
            [model, *(number(found[c][key]) if c in found else "-" for c in columns[1:])]
            for model in models
            for found in [seconds_of(of[model])]
        ]
        lines += [f"## {title}", "", *harness.table(columns, cells), ""]
    if titles:
        lines += ["## Draws", ""]
        lines += [*harness.table(DRAWS_COLUMNS, list(filter(None, map(draws_of, of.values())))), ""]
    lines += [line for model in models for line in notes(model, of[model])]
    lines += ["", FOOTNOTE] if titles else []
    if short:
        lines += ["", f"## Calls of {SHORT['tune']} + {SHORT['draws']} draws, in units of `import pymc`", ""]
        lines += [*harness.table(UNIT_COLUMNS, short), "", FOOTNOTE_OF_UNITS]
    return "\n".join([*lines, ""])


UNIT_COLUMNS = [
    "model", "import pymc, s", "cold", "second process", "of which imports", "again", "other data",
    "before: cold", "second process", "again", "other data",
]  # fmt: skip


def in_units(model, records):
    """The row of a model in the table of short calls."""
    ok = {r["sampler"]: r for r in records if r["status"] == "ok"}
    if not set(SHORT_ROWS) <= set(ok):
        return
    unit = min(ok[name]["pymc_seconds"] for name in SHORT_ROWS)
    (first, second, importing), later = short_seconds([ok[name] for name in SHORT_ROWS])
    cells = [*(f"{s / unit:.1f}" for s in (first, second, importing)), *(f"{s / unit:.2f}" for s in later)]
    earlier = [ok[BEFORE + name] for name in SHORT_ROWS if BEFORE + name in ok]
    if len(earlier) == len(SHORT_ROWS):
        (first, second, _), later = short_seconds(earlier)
        cells += [*(f"{s / unit:.1f}" for s in (first, second)), *(f"{s / unit:.2f}" for s in later)]
    else:
        cells += ["-"] * (len(UNIT_COLUMNS) - len(cells) - 2)
    yield [model, f"{unit:.2f}", *cells]


def short_seconds(both):
    """(cold, in a second process, of which imports), (again, with other data), in seconds."""
    importing = min(r["import_seconds"] for r in both)
    later = [both[1][call]["seconds"] for call in CALLS[1:]]
    return (*(importing + r["first"]["seconds"] for r in both), importing), later


DRAWS_COLUMNS = [
    "model", "draws per chain", "least ESS", "programs compiled: cold", "warm", "again", "other data",
    "effective draws of pm.sample, AutoStep", "of pm.sample", "of NumPyro",
]  # fmt: skip


def draws_of(records):
    ok = {r["sampler"]: r for r in records if r["status"] == "ok"}
    if not {"cold", "warm"} <= set(ok):
        return None
    cold, warm = ok["cold"], ok["warm"]
    compiled = [cold["first"], warm["first"], cold["again"], cold["other data"]]
    least = min(r["first"]["ess"] for r in (cold, warm))
    peers = [
        f"{ok[p]['min_ess']:.0f}" if p in ok else "-" for p in ("pm.sample, AutoStep", "pm.sample", "NumPyro")
    ]
    return [cold["model"], cold["draws"], f"{least:.0f}", *(c["compiled"] for c in compiled), *peers]


def notes(model, records):
    yield f"- {model}: {SPECS[model].title}."
    ok = {r["sampler"]: r for r in records if r["status"] == "ok"}
    for r in records:
        if r["status"] != "ok":
            yield f"- {model}, {r['sampler']}: {r['reason']}"
        elif r["sampler"] in PEERS and "cold" in ok and r["min_ess"] > 50:
            z = scores.z_scores(r, ok["cold"])
            off = [f"{what} of {name} (z = {v:.1f})" for (name, what), v in z.items() if not abs(v) <= SIGMAS]
            if off:
                yield f"- {model}: ours and {r['sampler']} **disagree**: {', '.join(off)}"


FOOTNOTE = f"""- {CHAINS} chains each; tuning as in the other benchmarks. Until all summaries have {WANTED:,}
  effective draws (ArviZ's bulk ESS of all chains), the summaries being those of the other benchmarks.
- before, cold, warm: the first call of a fresh process; before: the package of another commit, its caches
  empty; cold: empty caches; warm: compiled programs on disk. again: the second call of the cold process.
  other data: its third, with permuted observations. The calls have a number of draws, a power of two, of
  which there are enough; what they have in excess is counted.
- Peers: seconds before the first draw (compiling, tuning), and those in which {WANTED:,} effective draws are
  made at the rate of a run of {DRAWS:,} draws (pm.sample) or of {SECONDS} s (JAGS, NumPyro). Where such a run
  has few effective draws its rate is a rough guess, most often an optimistic one.
- pm.sample draws as many chains at a time as there are cores; JAGS, in one process, one after another;
  NumPyro, with DiscreteHMCGibbs, all in one vectorised program, in float32.
- JAGS: the better of with and without its module glm; processor seconds, without the output of draws.
- Importing is not counted, but in the table of short calls."""

FOOTNOTE_OF_UNITS = """- "cold" and "second process" with what this package imports after PyMC; all until the
  return.
- The unit is the shortest of six imports in fresh processes, as is what is imported after it."""


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        harness.main(
            harness.Benchmark(
                __doc__, rows, measure, markdown, progress, options, short={"models": ["points"]}
            )
        )
