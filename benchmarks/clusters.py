"""Lattices at and near a phase transition, and one with a field at each site: cluster sweeps beside sweeps of
single sites, and THRML.

python -m benchmarks.clusters --out benchmarks/results/NAME-clusters

Four chains a row, all on one core, each row in a process of its own. pmd.sample makes a transition of the
step per draw, and THRML a sweep; every draw is looked at.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks import harness, lattices, scores
from benchmarks.harness import CannotRun
from benchmarks.many_chains import thrml
from benchmarks.models import MODELS
from benchmarks.recorder import run_for, setup_times
from benchmarks.samplers import run_sample

CHAINS, TUNE = 4, 500
CRITICAL, CRITICAL_POTTS = 0.4407, 1.0986  # log(1 + sqrt(2)) / 2 and log(1 + sqrt(4)), of infinite lattices
SIGNS = np.random.default_rng(0).choice([-1.0, 1.0], (lattices.SIDE, lattices.SIDE))
LARGE = 100
SUMMARIES = ("magnetisation", "energy")


def of_spins(a):
    s = 2.0 * a["x"] - 1.0
    return {"magnetisation": s.mean((-2, -1)), "energy": -lattices.neighbour_sum(s)}


def of_colours(a):
    return {"magnetisation": (a["x"] == 0).mean((-2, -1)), "energy": -lattices.equal_neighbours(a["x"])}


def ising(side, **options):
    """A specification for the samplers; the name is that of a lattice of about this size."""
    pymc, in_thrml = (partial(f, side, **options) for f in (lattices.ising, lattices.ising_thrml))
    like = MODELS["C" if side == lattices.SIDE else "I"]
    return replace(like, pymc=pymc, thrml=in_thrml, summaries=of_spins, sites=side**2, tune=TUNE)


def potts(coupling):
    pymc, in_thrml = (partial(f, coupling) for f in (lattices.potts, lattices.potts_thrml))
    return replace(MODELS["F"], pymc=pymc, thrml=in_thrml, summaries=of_colours, tune=TUNE)


# {name: (specification, draws of pmd.sample between two callbacks)}
LATTICES = {
    "Ising 20x20, coupling 0.4": (ising(lattices.SIDE, coupling=0.4), 5000),
    f"Ising 20x20, {CRITICAL}": (ising(lattices.SIDE, coupling=CRITICAL), 5000),
    f"Ising 100x100, {CRITICAL}": (ising(LARGE, coupling=CRITICAL), 250),
    f"Potts 30x30, 4 colours, {CRITICAL_POTTS}": (potts(CRITICAL_POTTS), 2000),
    f"Ising 20x20, {CRITICAL}, fields": (ising(lattices.SIDE, coupling=CRITICAL, fields=SIGNS), 20_000),
}


# ---------------------------------------------------------------- samplers
def ours(name, spec, chunk, seed, seconds):
    import pymc_discrete as pmd

    model, names = spec.pymc()
    if not hasattr(pmd, name):
        raise CannotRun(f"this commit has no {name}")
    with model:
        step = getattr(pmd, name)(names)
    made = replace(spec, pymc=lambda: (model, names))
    return run_for(seconds, run_sample, made, seed, chains=CHAINS, chunk=chunk, step=step)


def by_thrml(spec, chunk, seed, seconds):
    return run_for(seconds, partial(thrml, chains=CHAINS), spec, seed)


SAMPLERS = {name: partial(ours, name) for name in ("AutoStep", "SwendsenWang", "BlockGibbs")}
SAMPLERS["THRML"] = by_thrml


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--lattices", LATTICES)
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--seconds", type=float, default=20, help="of sampling, per row")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row in all")
    p.add_argument("--seed", type=int, default=1)


SHORT = {"lattices": [next(iter(LATTICES))], "samplers": ["AutoStep", "THRML"], "seconds": 0.5}


def rows(args, records):
    for lattice in args.lattices:
        for name in args.samplers:
            yield harness.Row({"lattice": lattice, "sampler": name, "seed": args.seed})


def measure(args, lattice, sampler, seed):
    with harness.processor_time():
        recorder = SAMPLERS[sampler](*LATTICES[lattice], seed, args.seconds)
    values = recorder.summaries()
    return scores.scored(values, recorder.seconds) | setup_times(recorder)


def speeds(r):
    return [r["summaries"][name]["ess"] / r["seconds"] for name in SUMMARIES]


def progress(r):
    return "; ".join(f"{name} {v:.3g} ESS/s" for name, v in zip(SUMMARIES, speeds(r), strict=True))


# ---------------------------------------------------------------- table
COLUMNS = [
    "lattice", "sampler", "draws per chain", "µs per draw", "ESS/s of the magnetisation", "of the energy",
    "times BlockGibbs", "R-hat", "compile s", "mean energy",
]  # fmt: skip


def markdown(args, records):
    ok = [r for r in records if r["status"] == "ok"]
    gibbs = {r["lattice"]: speeds(r) for r in ok if r["sampler"] == "BlockGibbs"}
    lines = []
    for r in records:
        start = [r["lattice"], harness.label(r["sampler"], r["sampler"] != "THRML")]
        if r["status"] != "ok":
            lines.append([*start, r["reason"][:80]])
            continue
        found, of = speeds(r), r["summaries"]
        base = gibbs.get(r["lattice"])
        times = ", ".join(f"{a / b:.3g}" for a, b in zip(found, base, strict=True)) if base else "-"
        each = f"{1e6 * r['seconds'] / (CHAINS * r['draws']):.3g}"
        cells = [r["draws"], each, *(f"{v:.3g}" for v in found), times]
        energy = f"{of['energy']['mean']:.1f} ± {of['energy']['mcse_mean']:.2g}"
        rhat = max(of[name]["rhat"] for name in SUMMARIES)
        lines.append([*start, *cells, f"{rhat:.3f}", f"{r['compile_seconds']:.1f}", energy])
    title = "# Lattices at a phase transition"
    body = [title, "", *harness.origins(records), "", *harness.table(COLUMNS, lines), "", FOOTNOTE, ""]
    return "\n".join(body)


FOOTNOTE = f"""- {CHAINS} chains on one core, {TUNE} draws of tuning; seconds of the processor, sampling only.
  ESS: ArviZ's bulk ESS of all chains. times BlockGibbs: of the magnetisation, of the energy.
- Spins are ±1, with a free boundary; fields: ±1 nats for each spin, at random. Magnetisation: the mean spin;
  of Potts, the share of one colour. Energy: less the sum of products of neighbours, or the number of equal
  neighbours, which the coupling multiplies.
- Where R-hat is above 1.01, chains have not come to agree, and ESS says little.
- THRML: two-colour block Gibbs, in float32, chains by vmap, every sweep observed."""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            short=SHORT,
            one_core=True,
            packages=("thrml",),
            keeps_other_rows=True,
        )
    )
