"""Posteriors of several modes: replicas at inverse temperatures, the default, and a fitted flow.

python -m benchmarks.tempering --out benchmarks/results/NAME-tempering [--models A B]

Two calls of pmd.sample with 4 chains from dispersed starts, each row in a process of its own and on one core.
Effective draws a second are of the second call, for which everything is compiled: its tuning counts. The
seconds of the first call, compilation included, are beside it. Where a flow is fitted, its draws and its
training count.
"""

import itertools
import time
from functools import cache

import numpy as np

from benchmarks import flow_step, harness, scores
from benchmarks.flow_step import FLOW, INTEGRATED

CHAINS = 4
TEMPERED, DEFAULT = "temper=True", "default"
SAMPLERS = (TEMPERED, DEFAULT, FLOW)


# ---------------------------------------------------------------- a stochastic block model
@cache
def network(n=60, groups=3, inside=0.35, between=0.12):
    """The adjacency (n (n - 1) / 2,) of a random graph, pair by pair, and the pairs."""
    r = np.random.default_rng(4)
    group = r.integers(groups, size=n)
    pairs = np.triu_indices(n, 1)
    p = np.where(group[pairs[0]] == group[pairs[1]], inside, between)
    return (r.random(len(p)) < p).astype(int), pairs


def block_model(n=60, groups=3):
    import pymc as pm
    import pytensor.tensor as pt

    edges, (i, j) = network(n, groups)
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.full(groups, 2.0))
        inside, between = pm.Beta("inside", 2, 2), pm.Beta("between", 2, 5)
        z = pm.Categorical("z", share, shape=n)
        pm.Bernoulli("edges", pt.switch(pt.eq(z[i], z[j]), inside, between), observed=edges)
    return model, ["z"]


def block_summaries(a):
    z = a["z"]
    first = {f"mode: group {k}": 1.0 * (z[:, 0] == k) for k in range(3)}
    return first | {"pairs together": (z[:, :, None] == z[:, None, :]).sum((1, 2))}


# ---------------------------------------------------------------- directed acyclic graphs
NODES = 4
EDGES = [(a, b) for a in range(NODES) for b in range(NODES) if a != b]


@cache
def family_scores(n=60):
    """(nodes, 2^4) float, nats: the score (BIC) of each node with each set of parents, as bits."""
    r = np.random.default_rng(7)
    x = r.normal(size=(n, NODES))
    for child, parent, weight in [(1, 0, 1.2), (2, 1, 1.2), (3, 2, 0.8)]:
        x[:, child] += weight * x[:, parent]
    table = np.full((NODES, 2**NODES), -np.inf)
    for node in range(NODES):
        for bits in range(2**NODES):
            parents = [k for k in range(NODES) if bits >> k & 1]
            if node in parents:
                continue
            X = np.column_stack([np.ones(n), x[:, parents]])
            residual = x[:, node] - X @ np.linalg.lstsq(X, x[:, node], rcond=None)[0]
            table[node, bits] = -n / 2 * np.log((residual**2).sum()) - len(parents) / 2 * np.log(n)
    return table


def graphs():
    import pymc as pm
    import pytensor.tensor as pt

    table = family_scores()
    table = np.where(np.isfinite(table), table - np.nanmax(np.where(np.isfinite(table), table, np.nan)), 0.0)
    with pm.Model() as model:
        edge = pm.Bernoulli("edge", 0.5, shape=len(EDGES))
        A = pt.zeros((NODES, NODES), dtype="int64")
        A = pt.set_subtensor(A[[a for a, _ in EDGES], [b for _, b in EDGES]], edge)
        walks = A
        cycles = 0
        for _ in range(NODES - 1):
            walks = pt.dot(walks, A)
            cycles = cycles + pt.diagonal(walks).sum()
        pm.Potential("acyclic", pt.switch(pt.eq(cycles, 0), 0.0, -np.inf))
        bits = (A * (2 ** np.arange(NODES))[:, None]).sum(axis=0)
        pm.Potential("score", pt.constant(table)[np.arange(NODES), bits].sum())
    return model, ["edge"]


def graph_summaries(a):
    e = a["edge"]
    return {f"mode: {p} to {c}": 1.0 * e[:, EDGES.index((p, c))] for p, c in [(0, 1), (1, 0), (2, 1)]} | {
        "edges": e.sum(axis=1)
    }


@cache
def exact_graphs():
    """{summary: probability} over all acyclic graphs, and how many there are."""
    table, total, found, count = family_scores(), 0.0, {}, 0
    shift = sum(table[k][np.isfinite(table[k])].max() for k in range(NODES))
    for chosen in itertools.product([0, 1], repeat=len(EDGES)):
        A = np.zeros((NODES, NODES), int)
        for (a, b), on in zip(EDGES, chosen, strict=True):
            A[a, b] = on
        if any(np.trace(np.linalg.matrix_power(A, k)) for k in range(2, NODES + 1)):
            continue
        count += 1
        parents = (A * (2 ** np.arange(NODES))[:, None]).sum(axis=0)
        w = np.exp(sum(table[k, parents[k]] for k in range(NODES)) - shift)
        total += w
        for name, value in graph_summaries({"edge": np.array([chosen])}).items():
            found[name] = found.get(name, 0.0) + w * float(value[0])
    return {name: value / total for name, value in found.items()}, count


# ---------------------------------------------------------------- which of two equal models
def index():
    """Poisson counts of one rate, which one of two variables has: nothing tells which."""
    import pymc as pm

    y = np.random.default_rng(0).poisson(3.0, 30)
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5)
        a, b = pm.Normal("a", 0, 3), pm.Normal("b", 0, 3)
        pm.Poisson("y", pm.math.exp(pm.math.switch(k, a, b)), observed=y)
    return model, ["k"]


MODELS = {
    **{name: (spec.pymc, spec.summaries) for name, spec in flow_step.MODELS.items()},
    "blocks": (block_model, block_summaries),
    "graphs": (graphs, graph_summaries),
    "index": (index, lambda a: {"mode": 1.0 * a["k"]}),
}


def known(model):
    """The probability of the first mode, where it is known."""
    if model == "graphs":
        return exact_graphs()[0]["mode: 0 to 1"]
    return {"lattice": 1 / 2, "mixture": 1 / 3, "blocks": 1 / 3, "index": 1 / 2}.get(model)


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--draws", type=int, default=2000)
    p.add_argument("--tune", type=int, default=1000)
    p.add_argument("--fit-draws", type=int, default=flow_step.FIT_DRAWS)
    p.add_argument("--iterations", type=int, default=3000, help="of the fit of the flow")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")


def rows(args, records):
    for model in args.models:
        for sampler in args.samplers:
            yield harness.Row({"model": model, "sampler": sampler})


def measure(args, model, sampler):
    import pymc_discrete as pmd

    if sampler == FLOW and model not in flow_step.MODELS:
        raise harness.CannotRun("a flow is fitted to the models of benchmarks/flow_step.py only")
    build, summaries = MODELS[model]
    found = {}
    with harness.processor_time():
        built, names = build()
        how = {"temper": True} if sampler == TEMPERED else {}
        if sampler == FLOW:
            integrate = {"integrate": INTEGRATED[model]} if model in INTEGRATED else {}
            with built:
                local = pmd.BlockGibbs(names, **integrate)
                flow, found = flow_step.fitted(args, built, names, local)
                how = {"step": [pmd.FlowStep(flow, **integrate), local]}
        seconds = []
        for number in range(2):
            begin = time.perf_counter()
            idata = pmd.sample(
                args.draws,
                args.tune,
                CHAINS,
                model=built,
                random_seed=args.seed + number,
                progressbar=False,
                compute_convergence_checks=False,
                **how,
            )
            seconds.append(time.perf_counter() - begin)
    draws = {name: idata["posterior"][name].values for name in names}
    flat = {name: a.reshape(-1, *a.shape[2:]) for name, a in draws.items()}
    of_chains = {n: np.reshape(v, (CHAINS, -1)).astype(float) for n, v in summaries(flat).items()}
    group = idata.children.get("tempering")
    if group is not None:
        found |= {
            "replicas": float(np.isfinite(group["inverse_temperature"]).sum("rung").mean()),
            "barrier": float(group["barrier"].mean()),
            "round_trips": int(group["round_trips"].sum()),
            "limit": float((group["limit_of_any_schedule"] * args.draws).sum()),
            "log_evidence": [group.attrs["log_evidence"], group.attrs["log_evidence_error"]],
        }
    return found | {
        "first_call": seconds[0],
        "seconds": seconds[1],
        "summaries": scores.scored(of_chains, seconds[1])["summaries"],
    }


def modes(r):
    return {name: s for name, s in r["summaries"].items() if name.startswith("mode")}


def ess_of_mode(r):
    return min(s["ess"] for s in modes(r).values())


def rhat_of_mode(r):
    return max(s["rhat"] for s in modes(r).values())


def whole(r):
    """Seconds of the second call, and of the draws and the training of a flow."""
    return r["seconds"] + r.get("draw_seconds", 0.0) + r.get("fit_seconds", 0.0)


def progress(r):
    rhat = rhat_of_mode(r)
    return f"{ess_of_mode(r):.0f} effective draws of the mode in {r['seconds']:.1f} s, R-hat {rhat:.3f}"


SHORT = {"models": ["index"], "samplers": [TEMPERED], "draws": 200, "tune": 100}
COLUMNS = ["model", "sampler", "s, first call", "s, second call", "mode: ESS", "a second", "R-hat"]
COLUMNS += ["share of a mode", "known", "replicas", "Lambda", "round trips", "limit", "log evidence"]


def markdown(args, records):
    lines = []
    for r in records:
        start = [r["model"], harness.label(r["sampler"], r["sampler"] == TEMPERED)]
        if r["status"] != "ok":
            lines.append([*start, r["status"]])
            continue
        first = next(iter(modes(r).values()))
        truth = known(r["model"])
        line = [
            *start,
            f"{r['first_call'] + whole(r) - r['seconds']:.1f}",
            f"{r['seconds']:.1f}",
            f"{ess_of_mode(r):.0f}",
            f"{ess_of_mode(r) / whole(r):.3g}",
            f"{rhat_of_mode(r):.3f}",
            f"{first['mean']:.3f}",
            "" if truth is None else f"{truth:.3f}",
        ]
        if "replicas" in r:
            value, error = r["log_evidence"]
            line += [f"{r['replicas']:.0f}", f"{r['barrier']:.2f}", str(r["round_trips"])]
            line += [f"{r['limit']:.0f}", f"{value:.2f} ± {error:.2f}"]
        lines.append(line)
    return "\n".join(["# Posteriors of several modes", "", *harness.origins(records), "",
                      *harness.table(COLUMNS, lines), "", FOOTNOTE, ""])  # fmt: skip


FOOTNOTE = f"""- {CHAINS} chains of 1,000 tuning draws and 2,000 draws from dispersed starts, one core,
  seconds of the processor. First call: with all compilation, and for a flow with its draws and its training.
  ESS: the least bulk ESS of the indicators of modes, all chains together, 0 where no chain leaves its mode;
  a second of the second call, tuning counted, and for a flow draws and training.
- columns, lattice, mixture: see benchmarks/flow_step.py. blocks: 60 nodes in three groups. graphs: acyclic
  graphs of four nodes, of which all 543 are enumerated. index: which of two equal models.
- limit: round trips that these chains could make at most, whatever the schedule, 1 / (2 + 2 Lambda) an
  iteration (Syed et al. 2022).
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT, one_core=True)
    )
