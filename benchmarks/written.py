"""Models as users write them, in lists and with a covariance for each class: seconds until the first draw,
effective draws per second.

python -m benchmarks.written --out benchmarks/results/NAME-written [--before CHECKOUT]

Every row in a process of its own. CHECKOUT is a folder with another commit of this repository, whose package
is measured too.
"""

import argparse
import json
import logging
import math
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.run import RESULT, ROOT, commit, environment, keep, origins, publish, record_of

K = 3
MEANS = np.array([-3.0, 0.0, 3.0])
CHAINS, DRAWS, TUNE = 4, 1000, 1000


# ---------------------------------------------------------------- models: (model, names of the block, summaries of a posterior)
def states(T):
    """Observations of a chain of three states, and the states."""
    r = np.random.default_rng(8)
    z = [0]
    for _ in range(T - 1):
        z.append(int(r.choice(K, p=np.where(np.arange(K) == z[-1], 0.8, 0.1))))
    return MEANS[z] + r.normal(size=T), np.array(z)


def hidden_markov(form, T):
    import pymc as pm
    import pytensor.tensor as pt

    y, true = states(T)
    with pm.Model() as model:
        P = pm.Dirichlet("P", np.ones((K, K)) + 4 * np.eye(K))
        mu = pm.Normal("mu", 0, 5, shape=K, initval=MEANS)
        if form == "scalars":
            z = []
            for t in range(T):
                z.append(pm.Categorical(f"z{t}", p=np.ones(K) / K if t == 0 else P[z[-1]], initval=true[t]))
            names, z = [f"z{t}" for t in range(T)], pt.stack(z)
        elif form == "potential":
            z, names = pm.Categorical("z", p=np.ones(K) / K, shape=T, initval=true), ["z"]
            pm.Potential("chain", pt.log(P[z[:-1], z[1:]]).sum())
        else:
            import pymc_extras as pmx

            start = pm.Categorical.dist(p=np.ones(K) / K)
            z, names = pmx.DiscreteMarkovChain("z", P=P, init_dist=start, shape=(T,), initval=true), ["z"]
        pm.Normal("y", mu[z], 1.0, observed=y)

    def summaries(posterior):
        each = np.concatenate(
            [np.asarray(posterior[name]).reshape(*posterior[names[0]].shape[:2], -1) for name in names],
            axis=2,
        )
        found = {f"mu {k}": posterior["mu"][..., k] for k in range(K)} | {
            f"stay {k}": posterior["P"][..., k, k] for k in range(K)
        }
        return (
            found
            | {"switches": (each[..., 1:] != each[..., :-1]).sum(-1)}
            | {f"size {k}": (each == k).sum(-1) for k in range(K)}
        )

    return model, names, summaries


def captures():
    """Cormack-Jolly-Seber: 80 animals, six occasions, a vector of who is alive for each."""
    import pymc as pm

    r = np.random.default_rng(5)
    S, T, phi, p = 80, 6, 0.8, 0.5
    alive = np.cumprod(np.concatenate([np.ones((1, S)), r.random((T - 1, S)) < phi]), axis=0).astype(int)
    seen = alive * (r.random((T, S)) < p)
    known = np.array([[seen[t:, s].any() for s in range(S)] for t in range(T)]).astype(int)
    with pm.Model() as model:
        survival, capture, z = pm.Beta("survival", 1, 1), pm.Beta("capture", 1, 1), []
        for t in range(T):
            z.append(pm.Bernoulli(f"z{t}", 0.99 if t == 0 else z[-1] * survival, shape=S, initval=known[t]))
            pm.Bernoulli(f"y{t}", z[t] * capture, observed=seen[t])
    names = [f"z{t}" for t in range(T)]

    def summaries(posterior):
        return {name: posterior[name] for name in ("survival", "capture")} | {
            "alive at the end": posterior[names[-1]].sum(-1)
        }

    return model, names, summaries


def covariances(n=300):
    """A Gaussian mixture with a covariance of its own for each of three classes."""
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(6)
    centres = np.array([[-3.0, 0.0], [3.0, 1.0], [0.0, 5.0]])
    factors = np.array([[[1, 0], [0.5, 0.8]], [[0.6, 0], [-0.4, 1.2]], [[1.2, 0], [0, 0.5]]])
    true = r.integers(0, K, n)
    y = centres[true] + np.einsum("nij,nj->ni", factors[true], r.normal(size=(n, 2)))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=(K, 2), initval=centres)
        scale = pm.HalfNormal.dist(2, shape=2)
        chols = pt.stack([pm.LKJCholeskyCov(f"chol{k}", n=2, eta=2, sd_dist=scale)[0] for k in range(K)])
        z = pm.Categorical("z", p=pm.Dirichlet("w", np.ones(K)), shape=n, initval=true)
        pm.MvNormal("y", mu=mu[z], chol=chols[z], observed=y)

    def summaries(posterior):
        found = {f"mu {k} {i}": posterior["mu"][..., k, i] for k in range(K) for i in range(2)}
        found |= {f"chol {k} {i}": posterior[f"chol{k}"][..., i] for k in range(K) for i in range(3)}
        return found | {f"size {k}": (posterior["z"] == k).sum(-1) for k in range(K)}

    return model, ["z"], summaries


MODELS = {
    "hidden Markov, 20 scalars": partial(hidden_markov, "scalars", 20),
    "hidden Markov, 60 scalars": partial(hidden_markov, "scalars", 60),
    "hidden Markov, 150 scalars": partial(hidden_markov, "scalars", 150),
    "hidden Markov, a vector of 150 and a Potential": partial(hidden_markov, "potential", 150),
    "hidden Markov, DiscreteMarkovChain of 150": partial(hidden_markov, "extras", 150),
    "captures, 6 vectors of 80": captures,
    "mixture, a covariance per class": covariances,
}
SAMPLED = [*MODELS][2:]


# ---------------------------------------------------------------- rows (in the child process)
def first_draw(name):
    """Seconds of PyMC for the log density, and of a step's first draw and pmd.sample's, from the finished
    model on.
    """
    import pymc_discrete as pmd

    model, names, _ = MODELS[name]()
    begin = time.perf_counter()
    model.logp(sum=False)
    found = {"logp": time.perf_counter() - begin}
    point = model.initial_point()
    begin = time.perf_counter()
    with model:
        step = pmd.AutoStep(names)
    found |= {"build": time.perf_counter() - begin, "step": type(step).__name__}
    step.setup_chain(np.random.default_rng(1), tune=1, draws=1)
    begin = time.perf_counter()
    step.step(point)
    return found | {"draw": time.perf_counter() - begin}


def first_answer(name):
    """Seconds of a call of pmd.sample for one draw of one chain."""
    import pymc_discrete as pmd

    model, _, _ = MODELS[name]()
    begin = time.perf_counter()
    pmd.sample(
        1, tune=1, chains=1, model=model, progressbar=False, compute_convergence_checks=False, random_seed=1
    )
    return {"answer": time.perf_counter() - begin}


def sampled(name, sampler, limit):
    """Effective draws per second of sampling, and of the call as a whole."""
    import arviz as az
    import pymc as pm

    import pymc_discrete as pmd

    model, _, summaries = MODELS[name]()
    options = {
        "tune": TUNE,
        "chains": CHAINS,
        "random_seed": 1,
        "progressbar": False,
        "compute_convergence_checks": False,
    }
    begin, clock = time.perf_counter(), {}

    def note(trace, draw):  # the beginning of sampling after tuning, chain by chain
        if draw.draw_idx == TUNE:
            clock.setdefault(draw.chain, time.perf_counter())
        if draw.draw_idx == TUNE + DRAWS - 1:
            clock["busy"] = clock.get("busy", 0.0) + time.perf_counter() - clock[draw.chain]
        if time.perf_counter() - begin > limit:
            raise KeyboardInterrupt

    with model:
        if sampler == "pmd.sample":
            done = []
            idata = pmd.sample(
                DRAWS,
                callback=lambda draws, n: done.append((n, time.perf_counter())),
                initvals=starts(model),
                **options,
            )
            busy = (done[-1][1] - done[0][1]) * DRAWS / (DRAWS - done[0][0])
        else:
            step = pmd.AutoStep() if "AutoStep" in sampler else None
            compile_kwargs = {"mode": "JAX"} if "JAX" in sampler else None
            idata = pm.sample(
                DRAWS, step=step, cores=1, callback=note, compile_kwargs=compile_kwargs, **options
            )
            busy = clock["busy"]
    seconds = time.perf_counter() - begin
    posterior = {k: v.values for k, v in idata["posterior"].data_vars.items()}
    values = summaries(posterior)
    ess = {k: float(az.ess(np.asarray(v, float))) if np.ptp(v) else 0.0 for k, v in values.items()}
    rhat = max(float(az.rhat(np.asarray(v, float))) for v in values.values() if np.ptp(v))
    draws = next(iter(values.values())).size
    means = {
        k: (float(np.mean(v)), float(np.std(v) / math.sqrt(max(ess[k], 1.0)))) for k, v in values.items()
    }
    return {"seconds": seconds, "busy": busy, "ess": ess, "rhat": rhat, "draws": draws, "means": means}


def starts(model):
    """Where the model says that its variables start, for all chains alike."""
    return {rv.name: value for rv, value in model.rvs_to_initial_values.items() if value is not None}


SAMPLERS = (
    "pm.sample, AutoStep",
    "pm.sample, AutoStep, PyMC's part in JAX",
    "pmd.sample",
    "pm.sample, its own steps",
)


def run_one(kind, name, sampler, folder, limit):
    sys.path.insert(0, folder)
    import pymc_discrete

    assert Path(pymc_discrete.__file__).is_relative_to(folder), (
        f"pymc_discrete of {pymc_discrete.__file__}, not of {folder}"
    )
    for logger in ("pymc", "pymc.discrete"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    try:
        found = (
            sampled(name, sampler, limit)
            if kind == "sampled"
            else first_draw(name)
            if kind == "draw"
            else first_answer(name)
        )
    except (Exception, KeyboardInterrupt) as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:300]} | environment()
    return {"status": "ok"} | found | environment()


# ---------------------------------------------------------------- tables (in the parent)
def cell(r, key):
    if r is None:
        return ""
    return f"{r[key]:.1f}" if r["status"] == "ok" else "none" if "no result" in r["reason"] else "failed"


def markdown(records):
    lines = [
        "## Models as users write them",
        "",
        *origins(records),
        "",
        "### Seconds until the first draw",
        "",
    ]
    lines += [
        "| model | package | step | PyMC's logp | building the step | its first draw | pmd.sample, one draw "
        "|",
        "|---" * 7 + "|",
    ]
    of = {(r["kind"], r["model"], r["sampler"], r["package"]): r for r in records}
    packages = list(dict.fromkeys(r["package"] for r in records))
    notes = []
    for name in MODELS:
        for package in packages:
            draw, answer = of.get(("draw", name, "", package)), of.get(("answer", name, "", package))
            if draw or answer:
                cells = [
                    name,
                    package,
                    (draw or {}).get("step", ""),
                    cell(draw, "logp"),
                    cell(draw, "build"),
                    cell(draw, "draw"),
                ]
                lines.append("| " + " | ".join([*cells, cell(answer, "answer")]) + " |")
                notes += [
                    f"- {name}, {package}: {r['reason']}" for r in (draw, answer) if r and r["status"] != "ok"
                ]
    lines += ["", "### Effective draws", ""]
    columns = [
        "model",
        "sampler",
        "ESS/s",
        "ESS/s of the whole call",
        "seconds of the call",
        "min ESS",
        "slowest",
        "R-hat",
        "largest \\|z\\|",
    ]
    lines += ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name in SAMPLED:
        alike = [
            r
            for r in records
            if r["kind"] == "sampled" and r["status"] == "ok" and family(r["model"]) == family(name)
        ]
        best = max(alike, key=lambda r: min(r["ess"].values()), default=None)
        for sampler in SAMPLERS:
            r = next(
                (r for r in records if (r["kind"], r["model"], r["sampler"]) == ("sampled", name, sampler)),
                None,
            )
            if r is None:
                continue
            if r["status"] != "ok":
                lines.append(f"| {name} | {sampler} | failed |" + " |" * (len(columns) - 3))
                notes.append(f"- {name}, {sampler}: {r['reason']}")
                continue
            worst = min(r["ess"], key=r["ess"].get)
            z = (
                max(
                    abs(m - best["means"][k][0]) / math.hypot(se, best["means"][k][1])
                    for k, (m, se) in r["means"].items()
                )
                if r is not best
                else 0
            )
            speeds = [r["ess"][worst] / r[key] for key in ("busy", "seconds")]
            cells = [
                name,
                sampler,
                *(f"{s:.3g}" for s in speeds),
                f"{r['seconds']:.1f}",
                f"{r['ess'][worst]:.0f}",
                worst,
                f"{r['rhat']:.3f}",
            ]
            lines.append("| " + " | ".join([*cells, f"{z:.1f}" if r is not best else "best"]) + " |")
    return "\n".join([*lines, "", *notes, FOOTNOTE])


def family(name):
    """Models that have one posterior."""
    return "hidden Markov" if name.startswith("hidden Markov") else name


FOOTNOTE = f"""- Seconds are of the clock, from the finished `pm.Model` on, without imports. Building the step contains PyMC's logp.
- none: no result within the limit.
- {CHAINS} chains, {TUNE} + {DRAWS} draws, started where the models say; pm.sample draws its chains one after another (cores=1).
- ESS/s: bulk ESS of the slowest summary (ArviZ, all chains) per second of sampling after tuning; of the whole call: with compilation and
  tuning.
- PyMC's part in JAX: `compile_kwargs={{"mode": "JAX"}}`, measured with other work on the second core and with a limit of 450 s.
- z: difference of posterior means from the run of the same posterior with most ESS, in Monte Carlo errors of both.
"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--before", type=Path, help="a folder with another commit of this repository")
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (tables)")
    p.add_argument("--one", nargs=4, metavar=("KIND", "MODEL", "SAMPLER", "CHECKOUT"), help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        print(RESULT + json.dumps(run_one(*args.one, args.limit)), flush=True)
        return
    rows = [
        (kind, name, "", folder)
        for name in args.models
        for folder in ([args.before] if args.before else []) + [ROOT]
        for kind in ("draw", "answer")
    ]
    rows += [
        ("sampled", name, sampler, ROOT) for name in args.models if name in SAMPLED for sampler in SAMPLERS
    ]
    records = []
    for kind, name, sampler, folder in rows:
        package = "now" if folder == ROOT else f"before, {commit(folder)}"
        command = [
            "benchmarks.written",
            "--one",
            kind,
            name,
            sampler,
            str(folder.resolve()),
            "--limit",
            str(args.limit),
        ]
        r = record_of(
            {"kind": kind, "model": name, "sampler": sampler, "package": package}, command, 1.5 * args.limit
        )
        records.append(r)
        shown = {k: round(v, 1) for k, v in r.items() if isinstance(v, float)}
        print(f"{kind} {name} {sampler} {package}: {r.get('reason') or shown}", file=sys.stderr, flush=True)
        keep(records, args.out)
    publish(markdown(records), args.out)


if __name__ == "__main__":
    main()
