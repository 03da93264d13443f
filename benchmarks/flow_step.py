"""Posteriors of several modes: a flow fitted to draws of dispersed chains, as a step beside a local one.

python -m benchmarks.flow_step --out benchmarks/results/NAME-flow-step

Four chains a row, all on one core, each row in a process of its own. The probability of each mode is known by
symmetry (the lattice, the mixture), or close to 1/2 (the columns). A chain that stays in one mode has an
effective sample size of 0 for it.
"""

import time
from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks import harness
from benchmarks.models import ModelSpec
from benchmarks.recorder import run_for, setup_times
from benchmarks.samplers import run_sample
from benchmarks.scores import scored

CHAINS, TUNE, CHUNK = 4, 500, 50
FIT_CHAINS, FIT_DRAWS = 16, 500  # of the local step, from dispersed starts, to which the flow is fitted


# ---------------------------------------------------------------- two groups of columns
GROUP = 5  # columns in a group


@cache
def columns(n=100, p=50, correlation=0.98):
    """X (n, p) and y (n,): the sum of the first group and that of the second are so correlated."""
    r = np.random.default_rng(1)
    X, ones = r.normal(size=(n, p)), np.full(GROUP, GROUP**-0.5)
    first, second = X[:, :GROUP] @ ones, X[:, GROUP : 2 * GROUP] @ ones
    wanted = correlation * first + np.sqrt(1 - correlation**2) * r.normal(size=n)
    X[:, GROUP : 2 * GROUP] += np.outer(wanted - second, ones)
    return X, first + wanted + r.normal(size=n)


def selection():
    import pymc as pm
    import pytensor.tensor as pt

    X, y = columns()
    with pm.Model() as model:
        g = pm.Bernoulli("g", 0.1, shape=X.shape[1])
        b = pm.Normal("b", 0, 1, shape=X.shape[1])
        pm.Normal("y", pt.dot(X, g * b), 1, observed=y)
    return model, ["g"]


def selection_summaries(a):
    first = a["g"][:, :GROUP].sum(1) > a["g"][:, GROUP : 2 * GROUP].sum(1)
    return {"mode": first.astype(float), "number active": a["g"].sum(1)}


# ---------------------------------------------------------------- a cold lattice
def ising(n=12, coupling=0.6):
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        s = 2 * pm.Bernoulli("x", 0.5, shape=(n, n)) - 1
        pm.Potential("energy", coupling * (s * (pt.roll(s, 1, 0) + pt.roll(s, 1, 1))).sum())
    return model, ["x"]


def ising_summaries(a):
    s = 2.0 * a["x"] - 1
    energy = (s * (np.roll(s, 1, 1) + np.roll(s, 1, 2))).sum((1, 2))
    return {"mode": (s.mean((1, 2)) > 0).astype(float), "energy": energy}


# ---------------------------------------------------------------- swapped labels
SIZES = (16, 14, 10)


def mixture():
    import pymc as pm

    r = np.random.default_rng(2)
    y = np.repeat([-4.0, 0.0, 4.0], SIZES) + r.normal(size=sum(SIZES))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=3)
        z = pm.Categorical("z", np.ones(3) / 3, shape=len(y))
        pm.Normal("y", mu[z], 1, observed=y)
    return model, ["z"]


def mixture_summaries(a):
    z = a["z"]
    together = (z[:, :, None] == z[:, None, :]).sum((1, 2))
    first, last = (1.0 * (z[:, i] == 0) for i in (0, -1))
    return {"mode": first, "mode of another": last, "pairs together": together}


MODELS = {
    "columns": ModelSpec("columns", "", selection, selection_summaries, tune=TUNE),
    "lattice": ModelSpec("lattice", "", ising, ising_summaries, tune=TUNE),
    "mixture": ModelSpec("mixture", "", mixture, mixture_summaries, tune=TUNE),
}
INTEGRATED = {"columns": ["b"], "mixture": ["mu"]}
TRUTH = {"lattice": {"mode": 1 / 2}, "mixture": {"mode": 1 / 3, "mode of another": 1 / 3}}
SAMPLERS = {
    "FlowStep and BlockGibbs": "BlockGibbs",
    "BlockGibbs": "BlockGibbs",
    "PathAuxiliary": "PathAuxiliary",
    "TreeGibbs": "TreeGibbs",
    "collapse": "",
}
FLOW, COLLAPSED = "FlowStep and BlockGibbs", "collapse"


# ---------------------------------------------------------------- rows
def fitted(args, model, names, local):
    """A flow, and the seconds of its draws and of its training."""
    import pymc_discrete as pmd

    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 7}
    begin = time.perf_counter()
    draws = pmd.sample(args.fit_draws, tune=TUNE, chains=FIT_CHAINS, model=model, step=local, **quiet)
    drawn = time.perf_counter()
    flow = pmd.fit_flow(
        model, names, draws=draws, iterations=args.iterations, random_seed=args.seed, progressbar=False
    )
    return flow, {"draw_seconds": drawn - begin, "fit_seconds": time.perf_counter() - drawn}


def measure(args, model, sampler, seed):
    import pymc_discrete as pmd

    spec, integrated, training = MODELS[model], INTEGRATED.get(model), {}
    if sampler == COLLAPSED and model != "mixture":
        raise harness.CannotRun(
            "only where NUTS moves the rest of the model, here the mixture, can it sum out"
        )
    if sampler == "TreeGibbs" and model != "lattice":
        raise harness.CannotRun("no pairs of sites: it is BlockGibbs there")
    with harness.processor_time():
        built, names = spec.pymc()
        options = {"integrate": integrated} if integrated else {}
        with built:
            if sampler == COLLAPSED:
                run = {"collapse": names}
            else:
                local = getattr(pmd, SAMPLERS[sampler])(names, **options)
                run = {"step": local}
            if sampler == FLOW:
                flow, training = fitted(args, built, names, local)
                run = {"step": [pmd.FlowStep(flow, **options), local]}
        spec = replace(spec, pymc=lambda: (built, names))
        recorder = run_for(args.seconds, run_sample, spec, seed, chains=CHAINS, chunk=CHUNK, **run)
    return (
        {"chains": CHAINS} | scored(recorder.summaries(), recorder.seconds) | setup_times(recorder) | training
    )


def rows(args, records):
    keys = [(model, sampler) for model in args.models for sampler in args.samplers]
    return [harness.Row({"model": m, "sampler": s, "seed": args.seed}) for m, s in keys]


def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--seconds", type=float, default=20, help="of sampling, per row")
    p.add_argument("--limit", type=float, default=600, help="seconds for a row in all")
    p.add_argument("--fit-draws", type=int, default=FIT_DRAWS)
    p.add_argument("--iterations", type=int, default=3000, help="of the fit of the flow")
    p.add_argument("--seed", type=int, default=1)


SHORT = {"models": ["mixture"], "samplers": [FLOW, "BlockGibbs"], "seconds": 1, "iterations": 200}


# ---------------------------------------------------------------- tables
def ess_of_mode(r):
    return min(a["ess"] for name, a in r["summaries"].items() if name.startswith("mode"))


def ess_of_rest(r):
    return min(a["ess"] for name, a in r["summaries"].items() if not name.startswith("mode"))


def whole(r):
    """Seconds in all, but for compiling: draws to fit the flow to, its training, tuning and sampling."""
    return r["seconds"] + r["tune_seconds"] + r.get("draw_seconds", 0.0) + r.get("fit_seconds", 0.0)


def progress(r):
    return f"{r['draws']} draws, mode {ess_of_mode(r) / r['seconds']:.3g} ESS/s, worst {r['worst']}"


COLUMNS = [
    "model", "sampler", "s of draws and fit", "sampling s", "mode ESS/s", "with training", "other ESS/s",
    "share of a mode", "known",
]  # fmt: skip


def markdown(args, records):
    lines, notes = [], []
    for r in records:
        label = harness.label(r["sampler"], r["sampler"] == FLOW)
        if r["status"] != "ok":
            lines.append([r["model"], label, r["status"]])
            notes.append(f"- {r['model']}, {r['sampler']}: {r['reason']}")
            continue
        mode = r["summaries"]["mode"]
        error = mode["mcse_mean"] if mode["ess"] else float("nan")
        known = TRUTH.get(r["model"], {}).get("mode")
        lines.append(
            [
                r["model"],
                label,
                f"{r['draw_seconds']:.0f} + {r['fit_seconds']:.0f}" if "fit_seconds" in r else "-",
                f"{r['seconds']:.0f}",
                f"{ess_of_mode(r) / r['seconds']:.3g}",
                f"{ess_of_mode(r) / whole(r):.3g}",
                f"{ess_of_rest(r) / r['seconds']:.3g}",
                f"{mode['mean']:.3f}" + (f" ± {error:.3f}" if np.isfinite(error) else ""),
                "" if known is None else f"{known:.3f}",
            ]
        )
    return "\n".join(
        [
            "## Posteriors of several modes: a flow beside a local step",
            "",
            *harness.origins(records),
            "",
            *harness.table(COLUMNS, lines),
            "",
            *notes,
            FOOTNOTE,
        ]
    )


FOOTNOTE = f"""- columns: 50 indicators of a regression of 100 rows. The sums of two groups of {GROUP} columns
  are correlated 0.98, and either group explains the data. The coefficients are integrated out.
- lattice: Ising, 12 x 12, coupling 0.6, a torus. mixture: 40 labels of three classes, whose means are
  integrated out.
- {CHAINS} chains of pmd.sample on one core, {TUNE} draws of tuning each. The flow is fitted to {FIT_CHAINS}
  chains of {FIT_DRAWS} draws of BlockGibbs, from dispersed starts.
- Seconds are of the processor, sampling s after compiling and tuning. s of draws and fit: of those draws,
  and of the training of the flow, compiling included.
- ESS: ArviZ's bulk ESS of all chains together, 0 where a chain never leaves a mode. mode: of the indicators
  of modes, the least. with training: the seconds of draws, fit and tuning included. other: of the other
  summaries.
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT, one_core=True)
    )
