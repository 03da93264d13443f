"""Max-product beside PGMax: seconds for 100 sweeps on a periodic Ising grid and on RBMs, alone and for a
batch of perturbed unaries.

python -m benchmarks.max_product --out benchmarks/results/NAME-max-product

One core, each row in a process of its own. PGMax is no dependency: `pip install pgmax` beside this package.
"""

import argparse
import importlib.metadata
import json
import os
import sys
import time
import types
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.run import RESULT, environment, keep, origins, publish, record_of

SWEEPS, DAMPING = 100, 0.5
REPEATS, SECONDS = 10, 20.0  # the best of so many runs, or of those that fit into so many seconds
SIDE, COUPLING = 25, 0.4
FEW = 10  # sweeps after which both are compared: after 100 the rounding of float32 has grown to tenths of a nat on the large RBM
CLOSE = 1e-4  # of the largest log odds, by which those of both may differ then


# ---------------------------------------------------------------- models, by arrays alone
class Grid(NamedTuple):
    """Spins -1, 1 on a periodic grid: a coupling for every pair, a field for every site."""

    side: int

    def arrays(self):
        """(2, E) sites of every pair, (2, 2) table, (n, 2) unaries"""
        sites = np.arange(self.side**2).reshape(self.side, self.side)
        pairs = np.stack(
            [np.tile(sites.ravel(), 2), np.concatenate([np.roll(sites, -1, axis).ravel() for axis in (0, 1)])]
        )
        spins = np.array([-1.0, 1.0])
        return (
            pairs,
            COUPLING * np.outer(spins, spins),
            np.random.default_rng(0).normal(size=(self.side**2, 1)) * spins,
        )


class RBM(NamedTuple):
    """Visible and hidden sites 0, 1; a weight for every pair."""

    visible: int
    hidden: int

    def arrays(self):
        """(2, E) sites of every pair, (visible, hidden) weights, (n, 2) unaries; the hidden sites come after
        the visible
        """
        r = np.random.default_rng(0)
        v, h = np.divmod(np.arange(self.visible * self.hidden), self.hidden)
        weights = r.normal(size=(self.visible, self.hidden)) / np.sqrt(self.visible)
        biases = r.normal(size=self.visible + self.hidden)
        return np.stack([v, self.visible + h]), weights, np.stack([np.zeros_like(biases), biases], axis=1)


MODELS = {
    "Ising 25x25": (Grid(SIDE), (1, 100)),
    "RBM 784x25": (RBM(784, 25), (1, 100)),
    "RBM 784x500": (RBM(784, 500), (1, 10, 100)),
}


def perturbed(model, batch):
    """(batch, n, 2) unaries with Gumbel noise"""
    unary = model.arrays()[-1]
    return unary + np.random.default_rng(1).gumbel(size=(batch, *unary.shape))


# ---------------------------------------------------------------- the two: a function of unaries (n, 2), and how beliefs (n, 2) come of it
def ours(model, count):
    import pymc_discrete as pmd
    from pymc_discrete.factor_graphs import Bipartite, FactorGraph, Pairwise, max_product
    from pymc_discrete.factor_graphs.semiring import MAX

    pairs, parameters, unary = model.arrays()
    space = pmd.Space.build({"x": (0, 1)}, shapes={"x": (len(unary),)})
    if isinstance(model, RBM):
        factor = Bipartite(np.arange(model.visible), np.arange(model.visible, len(unary)), parameters)
    else:
        factor = Pairwise(*pairs, parameters)
    graph = FactorGraph(space, [factor])

    def sweeps(unary):
        return max_product.run(
            graph.perturbed([unary.T]), MAX, n_sweeps=count, damping=DAMPING, tolerance=-1.0
        ).messages  # never stops

    def beliefs(unary, messages):
        return max_product.fields(graph.perturbed([unary.T]), messages)[0].value().T

    return sweeps, beliefs


def pgmax(model, count):
    """As in its examples: pairwise factors, evidence updated within the compiled function."""
    import jax
    from jax.extend.backend import get_backend

    # PGMax 0.6.1 asks for a module that JAX no longer has
    jax.lib.xla_bridge = sys.modules["jax.lib.xla_bridge"] = types.ModuleType("jax.lib.xla_bridge")
    jax.lib.xla_bridge.get_backend = get_backend
    from pgmax import fgraph, fgroup, infer, vgroup

    pairs, parameters, unary = model.arrays()
    if isinstance(model, RBM):
        parameters = np.zeros((pairs.shape[1], 2, 2)) + parameters.reshape(-1, 1, 1) * np.array(
            [[0, 0], [0, 1]]
        )
    sites = vgroup.NDVarArray(num_states=2, shape=(len(unary),))
    graph = fgraph.FactorGraph(variable_groups=sites)
    variables = [sites[i] for i in range(len(unary))]
    graph.add_factors(
        fgroup.PairwiseFactorGroup(
            variables_for_factors=[[variables[i], variables[j]] for i, j in pairs.T],
            log_potential_matrix=parameters,
        )
    )
    inferer = infer.build_inferer(graph.bp_state, backend="bp")

    def sweeps(unary):
        return inferer.run(
            inferer.init(evidence_updates={sites: unary}), num_iters=count, damping=DAMPING, temperature=0.0
        )

    return sweeps, lambda unary, arrays: inferer.get_beliefs(arrays)[sites]


LIBRARIES = {"pymc_discrete": ours, "PGMax": pgmax}


# ---------------------------------------------------------------- one row (in the child process)
def built(name, model, unary, count=SWEEPS):
    """A compiled function of `unary` (batch, n, 2), what makes beliefs of its result, and the seconds to
    build the graph and to compile.
    """
    import jax

    begin = time.perf_counter()
    sweeps, beliefs = LIBRARIES[name](model, count)
    middle = time.perf_counter()
    function = jax.jit(jax.vmap(sweeps) if len(unary) > 1 else lambda u: sweeps(u[0])).lower(unary).compile()
    return function, beliefs, middle - begin, time.perf_counter() - middle


def run_one(model, name, precision, batch):
    import jax

    import pymc_discrete  # noqa: F401  which turns float64 on

    jax.config.update("jax_enable_x64", precision == "float64")
    unary = jax.numpy.asarray(perturbed(MODELS[model][0], batch), precision)
    function, _, build, compiling = built(name, MODELS[model][0], unary)
    messages, taken = jax.block_until_ready(function(unary)), []
    while len(taken) < 2 or (len(taken) < REPEATS and sum(taken) < SECONDS):
        begin = time.perf_counter()
        jax.block_until_ready(function(unary))
        taken.append(time.perf_counter() - begin)
    width = {str(leaf.dtype) for leaf in jax.tree.leaves(messages)}
    if width != {precision}:
        raise RuntimeError(f"messages of {width}, not {precision}")
    record = {
        "status": "ok",
        "build_seconds": build,
        "compile_seconds": compiling,
        "seconds": min(taken),
        "runs": len(taken),
    }
    if name == "PGMax" and batch == 1:
        record |= agreement(MODELS[model][0], unary)
    there = environment()
    there["versions"]["pgmax"] = installed("pgmax")
    return record | there


def agreement(model, unary):
    """How far the log odds of both are apart after the same few sweeps, and how many sites are decoded
    otherwise.
    """
    odds = []
    for name in LIBRARIES:
        function, beliefs, *_ = built(name, model, unary, FEW)
        b = beliefs(unary[0], function(unary))
        odds.append(np.asarray(b[:, 1] - b[:, 0]))
    return {
        "largest_log_odds": float(np.abs(odds[0]).max()),
        "difference": float(np.abs(odds[0] - odds[1]).max()),
        "decoded_otherwise": int(((odds[0] > 0) != (odds[1] > 0)).sum()),
    }


def installed(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


# ---------------------------------------------------------------- table (in the parent)
COLUMNS = ["batch", "library", "precision", "ms for 100 sweeps", "ours faster by", "compile s", "build s"]


def markdown(records):
    lines = [f"## Max-product: {SWEEPS} sweeps, damping {DAMPING}, one core", "", *origins(records), ""]
    notes = []
    for model in dict.fromkeys(r["model"] for r in records):
        lines += [f"### {model}", "", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        mine = [r for r in records if r["model"] == model]
        theirs = {r["batch"]: r["seconds"] for r in mine if r["library"] == "PGMax" and r["status"] == "ok"}
        for r in mine:
            label = [
                str(r["batch"]),
                r["library"] if r["library"] == "PGMax" else f"**{r['library']}**",
                r["precision"],
            ]
            if r["status"] != "ok":
                lines.append("| " + " | ".join([*label, r["status"]]) + " |" + " |" * (len(COLUMNS) - 4))
                notes.append(f"- {model}, batch {r['batch']}, {r['library']}: {r['reason']}")
                continue
            ratio = (
                f"{theirs[r['batch']] / r['seconds']:.2g}x"
                if r["library"] != "PGMax" and r["batch"] in theirs
                else ""
            )
            cells = [
                f"{1e3 * r['seconds']:.3g}",
                ratio,
                f"{r['compile_seconds']:.2g}",
                f"{r['build_seconds']:.2g}",
            ]
            lines.append("| " + " | ".join([*label, *cells]) + " |")
            if "difference" in r:
                same = r["difference"] <= CLOSE * r["largest_log_odds"]
                notes.append(
                    f"- {model}: after {FEW} sweeps log odds of both differ by at most {r['difference']:.2g} "
                    f"nats, the largest being {r['largest_log_odds']:.3g}; {r['decoded_otherwise']} sites "
                    "are decoded otherwise"
                    + ("." if same and not r["decoded_otherwise"] else ": **they disagree**.")
                )
        lines.append("")
    return "\n".join([*lines, *notes, FOOTNOTE])


FOOTNOTE = f"""- Grid: spins, coupling {COUPLING}, fields Normal(0, 1). RBM: weights Normal(0, variance 1 / visible), biases Normal(0, 1).
  Every element of a batch has Gumbel noise of its own on its unaries.
- PGMax: `PairwiseFactorGroup` of all pairs, `build_inferer(backend="bp")`, evidence updated inside the compiled function,
  vmapped. Ours: `Pairwise` on the grid, `Bipartite` on the RBMs. Both update all messages at once, and as much of the old stays.
- ms: best of up to {REPEATS} runs, after compiling. PGMax computes in float32 unless told otherwise, and so it does here; what ours is
  faster by is against that, in either precision.
- Ours would stop at an exact fixed point, and is told not to. build s: making the graph, in Python.
"""

ROWS = [("pymc_discrete", "float32"), ("pymc_discrete", "float64"), ("PGMax", "float32")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--models",
        nargs="+",
        default=list(MODELS),
        choices=list(MODELS),
        metavar="NAME",
        help=", ".join(MODELS),
    )
    p.add_argument("--limit", type=float, default=1800, help="seconds for a row in all")
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (table)")
    p.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = p.parse_args()
    if hasattr(os, "sched_setaffinity"):  # before JAX counts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if args.one:
        *what, batch = args.one
        print(RESULT + json.dumps(run_one(*what, int(batch))), flush=True)
        return
    records = []
    for model in args.models:
        for batch in MODELS[model][1]:
            for name, precision in ROWS:
                what = {"model": model, "library": name, "precision": precision, "batch": batch}
                command = ["benchmarks.max_product", "--one", model, name, precision, str(batch)]
                records.append(r := record_of(what, command, args.limit))
                print(
                    ", ".join(map(str, what.values())),
                    r.get("reason") or f"{1e3 * r['seconds']:.3g} ms",
                    file=sys.stderr,
                    flush=True,
                )
                keep(records, args.out)
    publish(markdown(records), args.out)


if __name__ == "__main__":
    main()
