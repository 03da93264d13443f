"""Max-product beside PGMax: seconds for 100 sweeps on a periodic Ising grid and on RBMs, for one set of
unaries and for batches of perturbed ones.

python -m benchmarks.max_product --out benchmarks/results/NAME-max-product

One core, each row in a process of its own. PGMax is no dependency: `pip install pgmax` beside this package.
"""

import importlib.util
import sys
import time
import types
from typing import NamedTuple

import numpy as np

from benchmarks import harness

SWEEPS, DAMPING = 100, 0.5
REPEATS, SECONDS = 10, 20.0  # the best of so many runs, or of those that fit into so many seconds
SIDE, COUPLING = 25, 0.4
# Both libraries are compared after COMPARED sweeps: after 100 the rounding errors of float32 have grown to
# tenths of a nat on the large RBM. Their log odds may then differ by TOLERANCE times the largest of them.
COMPARED, TOLERANCE = 10, 1e-4


# ---------------------------------------------------------------- models, by arrays alone
class Grid(NamedTuple):
    """Spins -1, 1 on a periodic grid: a coupling for every pair, a field for every site."""

    side: int

    def arrays(self):
        """(2, E) sites of every pair, (2, 2) table, (n, 2) unaries"""
        sites = np.arange(self.side**2).reshape(self.side, self.side)
        second = np.concatenate([np.roll(sites, -1, axis).ravel() for axis in (0, 1)])
        spins = np.array([-1.0, 1.0])
        unary = np.random.default_rng(0).normal(size=(self.side**2, 1)) * spins
        return np.stack([np.tile(sites.ravel(), 2), second]), COUPLING * np.outer(spins, spins), unary


class RBM(NamedTuple):
    """Visible and hidden sites 0, 1; a weight for every pair."""

    visible: int
    hidden: int

    def arrays(self):
        """(2, E) sites of every pair, (visible, hidden) weights, (n, 2) unaries; visible sites come first"""
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


# ---------------------------------------------------------------- libraries
# (model, largest number of sweeps) -> two functions:
# unaries (n, 2) -> (messages, sweeps that were run), and (unaries, messages) -> beliefs (n, 2)
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
        result = max_product.run(graph.perturbed([unary.T]), MAX, n_sweeps=count, damping=DAMPING)
        return result.messages, result.sweeps

    def beliefs(unary, messages):
        return max_product.fields(graph.perturbed([unary.T]), messages)[0].value().T

    return sweeps, beliefs


def pgmax(model, count):
    """As in its examples: pairwise factors, evidence updated within the compiled function."""
    if importlib.util.find_spec("pgmax") is None:
        raise harness.CannotRun("PGMax is not installed: pip install pgmax")
    import jax
    from jax.extend.backend import get_backend

    # PGMax 0.6.1 asks for a module that JAX no longer has
    jax.lib.xla_bridge = sys.modules["jax.lib.xla_bridge"] = types.ModuleType("jax.lib.xla_bridge")
    jax.lib.xla_bridge.get_backend = get_backend
    from pgmax import fgraph, fgroup, infer, vgroup

    pairs, parameters, unary = model.arrays()
    if isinstance(model, RBM):
        parameters = parameters.reshape(-1, 1, 1) * np.array([[0.0, 0.0], [0.0, 1.0]])
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
        start = inferer.init(evidence_updates={sites: unary})
        return inferer.run(start, num_iters=count, damping=DAMPING, temperature=0.0), count

    return sweeps, lambda unary, arrays: inferer.get_beliefs(arrays)[sites]


LIBRARIES = {"pymc_discrete": ours, "PGMax": pgmax}


# ---------------------------------------------------------------- rows
PRECISIONS = [("pymc_discrete", "float32"), ("pymc_discrete", "float64"), ("PGMax", "float32")]


def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--batches", nargs="+", type=int, help="sizes of batches; by default those of the model")
    p.add_argument("--limit", type=float, default=1800, help="seconds for a row in all")


SHORT = {"models": ["Ising 25x25"], "batches": [1]}


def rows(args, records):
    for model in args.models:
        for batch in args.batches or MODELS[model][1]:
            for library, precision in PRECISIONS:
                key = {"model": model, "library": library, "precision": precision, "batch": batch}
                yield harness.Row(key)


def compiled(library, model, unary, count=SWEEPS):
    """A compiled function of unaries (batch, n, 2), the function from its result to beliefs, and seconds.

    The seconds are those of building the graph and those of compiling.
    """
    import jax

    begin = time.perf_counter()
    sweeps, beliefs = LIBRARIES[library](model, count)
    built = time.perf_counter()
    function = jax.jit(jax.vmap(sweeps) if len(unary) > 1 else lambda u: sweeps(u[0])).lower(unary).compile()
    return function, beliefs, built - begin, time.perf_counter() - built


def measure(args, model, library, precision, batch):
    import jax

    import pymc_discrete  # noqa: F401  its import turns float64 on

    jax.config.update("jax_enable_x64", precision == "float64")
    model, _ = MODELS[model]
    unary = jax.numpy.asarray(perturbed(model, batch), precision)
    function, _, build, compiling = compiled(library, model, unary)
    (messages, sweeps), seconds = jax.block_until_ready(function(unary)), []
    while len(seconds) < 2 or (len(seconds) < REPEATS and sum(seconds) < SECONDS):
        begin = time.perf_counter()
        jax.block_until_ready(function(unary))
        seconds.append(time.perf_counter() - begin)
    dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(messages)}
    if dtypes != {precision}:
        raise RuntimeError(f"messages of {dtypes}, not {precision}")
    return {
        "build_seconds": build,
        "compile_seconds": compiling,
        "seconds": min(seconds),
        "runs": len(seconds),
        "sweeps": int(np.max(sweeps)),
        **(agreement(model, unary) if library == "PGMax" and batch == 1 else {}),
    }


def agreement(model, unary):
    """The largest difference of the libraries' log odds after the same sweeps, and how many sites they decode
    differently.
    """
    odds = []
    for library in LIBRARIES:
        function, beliefs, *_ = compiled(library, model, unary, COMPARED)
        messages, _ = function(unary)
        b = beliefs(unary[0], messages)
        odds.append(np.asarray(b[:, 1] - b[:, 0]))
    return {
        "largest_log_odds": float(np.abs(odds[0]).max()),
        "difference": float(np.abs(odds[0] - odds[1]).max()),
        "decoded_otherwise": int(((odds[0] > 0) != (odds[1] > 0)).sum()),
    }


def progress(r):
    return f"{1e3 * r['seconds']:.3g} ms"


# ---------------------------------------------------------------- tables
COLUMNS = ["batch", "library", "precision", "ms for 100 sweeps", "ours faster by", "compile s", "build s"]


def markdown(args, records):
    lines = [f"## Max-product: {SWEEPS} sweeps, damping {DAMPING}, one core", ""]
    lines += [*harness.origins(records), ""]
    notes = []
    for model in dict.fromkeys(r["model"] for r in records):
        mine = [r for r in records if r["model"] == model]
        lines += [f"### {model}", "", *table(mine), ""]
        notes += footnotes(mine)
    return "\n".join([*lines, *notes, FOOTNOTE])


def table(records):
    """Of one model."""
    peers = {r["batch"]: r["seconds"] for r in records if r["library"] == "PGMax" and r["status"] == "ok"}
    lines = []
    for r in records:
        ours = r["library"] != "PGMax"
        cells = [r["batch"], harness.label(r["library"], ours), r["precision"]]
        if r["status"] != "ok":
            lines.append([*cells, r["status"]])
            continue
        ratio = f"{peers[r['batch']] / r['seconds']:.2g}x" if ours and r["batch"] in peers else ""
        setup = [f"{r[key]:.2g}" for key in ("compile_seconds", "build_seconds")]
        lines.append([*cells, f"{1e3 * r['seconds']:.3g}", ratio, *setup])
    return harness.table(COLUMNS, lines)


def footnotes(records):
    for r in records:
        if r["status"] != "ok":
            yield f"- {r['model']}, batch {r['batch']}, {r['library']}: {r['reason']}"
            continue
        if r.get("sweeps", SWEEPS) < SWEEPS:
            yield f"- {r['model']}, batch {r['batch']}, {r['precision']}: stopped after {r['sweeps']} sweeps."
        if "difference" in r:
            close = r["difference"] <= TOLERANCE * r["largest_log_odds"] and not r["decoded_otherwise"]
            yield (
                f"- {r['model']}: after {COMPARED} sweeps log odds of both differ by at most "
                f"{r['difference']:.2g} nats, the largest being {r['largest_log_odds']:.3g}; "
                f"{r['decoded_otherwise']} sites are decoded otherwise"
                + ("." if close else ": **they disagree**.")
            )


FOOTNOTE = f"""- Grid: spins, coupling {COUPLING}, fields Normal(0, 1). RBM: weights Normal(0, variance 1 /
  visible), biases Normal(0, 1). Every element of a batch has Gumbel noise of its own on its unaries.
- PGMax: `PairwiseFactorGroup` of all pairs, `build_inferer(backend="bp")`, evidence updated inside the
  compiled function, vmapped. Ours: `Pairwise` on the grid, `Bipartite` on the RBMs. Both update all messages
  at once, and as much of the old stays.
- ms: best of up to {REPEATS} runs, after compiling. PGMax computes in float32 unless told otherwise, and so
  it does here; what ours is faster by is against that, in either precision.
- Ours stops at an exact fixed point; a line above says where it did. build s: making the graph, in Python.
"""

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
            packages=("pgmax",),
        )
    )
