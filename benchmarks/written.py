"""Models as users write them, in lists and with a covariance for each class: seconds until the first draw,
and effective draws per second.

python -m benchmarks.written --out benchmarks/results/NAME-written [--before CHECKOUT]

Every row in a process of its own. CHECKOUT is a folder with another commit of this repository, whose package
is measured too.
"""

import math
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.scores import bulk_ess

K = 3
MEANS = np.array([-3.0, 0.0, 3.0])
CHAINS, DRAWS, TUNE = 4, 1000, 1000


# ---------------------------------------------------------------- models
# () -> (model, names of the discrete variables, function from a posterior to summaries); a posterior is
# {variable: (chains, draws, ...)}, summaries are {name: (chains, draws)}
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
        shape = (*posterior[names[0]].shape[:2], -1)
        each = np.concatenate([np.asarray(posterior[name]).reshape(shape) for name in names], axis=2)
        return {
            **{f"mu {k}": posterior["mu"][..., k] for k in range(K)},
            **{f"stay {k}": posterior["P"][..., k, k] for k in range(K)},
            "switches": (each[..., 1:] != each[..., :-1]).sum(-1),
            **{f"size {k}": (each == k).sum(-1) for k in range(K)},
        }

    return model, names, summaries


def captures():
    """Cormack-Jolly-Seber: 80 animals, six occasions, each with a vector of which animals are alive."""
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
        return {
            **{f"mu {k} {i}": posterior["mu"][..., k, i] for k in range(K) for i in range(2)},
            **{f"chol {k} {i}": posterior[f"chol{k}"][..., i] for k in range(K) for i in range(3)},
            **{f"size {k}": (posterior["z"] == k).sum(-1) for k in range(K)},
        }

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


# ---------------------------------------------------------------- measurements
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


def first_draw(name):
    """Seconds of PyMC for the log density, of building a step, and of its first draw."""
    import pymc_discrete as pmd

    model, names, _ = MODELS[name]()
    begin = time.perf_counter()
    model.logp(sum=False)
    logp = time.perf_counter() - begin
    point = model.initial_point()
    begin = time.perf_counter()
    with model:
        step = pmd.AutoStep(names)
    build = time.perf_counter() - begin
    step.setup_chain(np.random.default_rng(1), tune=1, draws=1)
    begin = time.perf_counter()
    step.step(point)
    draw = time.perf_counter() - begin
    return {"logp": logp, "build": build, "step": type(step).__name__, "draw": draw}


def first_answer(name):
    """Seconds of a call of pmd.sample for one draw of one chain."""
    import pymc_discrete as pmd

    model, _, _ = MODELS[name]()
    begin = time.perf_counter()
    pmd.sample(1, tune=1, chains=1, model=model, **QUIET)
    return {"answer": time.perf_counter() - begin}


def sampled(name, sampler, limit):
    """Effective draws per second of sampling, and of the call as a whole."""
    import arviz as az
    import pymc as pm

    import pymc_discrete as pmd

    model, _, summaries = MODELS[name]()
    options = {"tune": TUNE, "chains": CHAINS, **QUIET}
    begin, tuned, chain_seconds = time.perf_counter(), {}, {}  # the latter two by chain

    def callback(trace, draw):
        now = time.perf_counter()
        if draw.draw_idx == TUNE:
            tuned.setdefault(draw.chain, now)
        if draw.draw_idx == TUNE + DRAWS - 1:
            chain_seconds[draw.chain] = now - tuned[draw.chain]
        if now - begin > limit:
            raise TimeoutError(f"no end in {limit:.0f} s")

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
                DRAWS, step=step, cores=1, callback=callback, compile_kwargs=compile_kwargs, **options
            )
            busy = sum(chain_seconds.values())
    seconds = time.perf_counter() - begin
    posterior = {k: v.values for k, v in idata["posterior"].data_vars.items()}
    values = {name: np.asarray(v, float) for name, v in summaries(posterior).items()}
    ess = bulk_ess(values)
    errors = {name: float(np.std(v) / math.sqrt(max(ess[name], 1.0))) for name, v in values.items()}
    return {
        "seconds": seconds,
        "busy": busy,
        "ess": ess,
        "rhat": max(float(az.rhat(v)) for v in values.values() if np.ptp(v)),
        "draws": next(iter(values.values())).size,
        "means": {name: (float(np.mean(v)), errors[name]) for name, v in values.items()},
    }


def starts(model):
    """The start values that the model sets, the same for all chains."""
    return {rv.name: value for rv, value in model.rvs_to_initial_values.items() if value is not None}


SAMPLERS = (
    "pm.sample, AutoStep",
    "pm.sample, AutoStep, PyMC's part in JAX",
    "pmd.sample",
    "pm.sample, its own steps",
)


# ---------------------------------------------------------------- rows
def options(p):
    p.add_argument("--before", type=Path, help="a folder with another commit of this repository")
    harness.choice(p, "--models", MODELS)
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


SHORT = {"models": ["captures, 6 vectors of 80"], "limit": 60}


def rows(args, records):
    packages = ([f"before, {harness.commit(args.before)}"] if args.before else []) + ["now"]
    for model in args.models:
        for package in packages:
            for kind in ("draw", "answer"):
                key = {"kind": kind, "model": model, "sampler": "", "package": package}
                yield harness.Row(key)
    for model in args.models:
        if model in SAMPLED:
            for sampler in SAMPLERS:
                key = {"kind": "sampled", "model": model, "sampler": sampler, "package": "now"}
                yield harness.Row(key)


def measure(args, kind, model, sampler, package):
    folder = harness.ROOT if package == "now" else args.before.resolve()
    sys.path.insert(0, str(folder))
    import pymc_discrete

    if not Path(pymc_discrete.__file__).is_relative_to(folder):
        raise ImportError(f"pymc_discrete of {pymc_discrete.__file__}, not of {folder}")
    if kind == "sampled":
        return sampled(model, sampler, args.limit)
    return first_draw(model) if kind == "draw" else first_answer(model)


def progress(r):
    return ", ".join(f"{key} {value:.1f}" for key, value in r.items() if isinstance(value, float))


# ---------------------------------------------------------------- tables
FIRST_COLUMNS = [
    "model", "package", "step", "PyMC's logp", "building the step", "its first draw", "pmd.sample, one draw",
]  # fmt: skip
SAMPLED_COLUMNS = [
    "model", "sampler", "ESS/s", "ESS/s of the whole call", "seconds of the call", "min ESS", "slowest",
    "R-hat", "largest \\|z\\|",
]  # fmt: skip


def markdown(args, records):
    notes = []
    first, sampled = first_rows(records, notes), sampled_rows(records, notes)
    lines = ["## Models as users write them", "", *harness.origins(records), ""]
    lines += ["### Seconds until the first draw", "", *harness.table(FIRST_COLUMNS, first), ""]
    lines += ["### Effective draws", "", *harness.table(SAMPLED_COLUMNS, sampled), ""]
    return "\n".join([*lines, *notes, FOOTNOTE])


def first_rows(records, notes):
    """Rows of the first table; reasons for which rows failed are appended to `notes`."""
    by_key = {(r["kind"], r["model"], r["package"]): r for r in records if r["kind"] != "sampled"}
    packages = dict.fromkeys(r["package"] for r in records)
    lines = []
    for name in MODELS:
        for package in packages:
            draw, answer = (by_key.get((kind, name, package)) for kind in ("draw", "answer"))
            if draw or answer:
                seconds = [cell(draw, key) for key in ("logp", "build", "draw")]
                lines.append([name, package, (draw or {}).get("step", ""), *seconds, cell(answer, "answer")])
                failed = [r for r in (draw, answer) if r and r["status"] != "ok"]
                notes += [f"- {name}, {package}: {r['reason']}" for r in failed]
    return lines


def cell(r, key):
    if r is None:
        return ""
    if r["status"] == "ok":
        return f"{r[key]:.1f}"
    return "none" if r["reason"].startswith(harness.NO_RESULT) else "failed"


def sampled_rows(records, notes):
    """Rows of the second table; reasons for which rows failed are appended to `notes`."""
    records = [r for r in records if r["kind"] == "sampled"]
    order = [(name, sampler) for name in SAMPLED for sampler in SAMPLERS]
    lines = []
    for r in sorted(records, key=lambda r: order.index((r["model"], r["sampler"]))):
        start = [r["model"], r["sampler"]]
        if r["status"] != "ok":
            lines.append([*start, "failed"])
            notes.append(f"- {r['model']}, {r['sampler']}: {r['reason']}")
            continue
        same = [s for s in records if s["status"] == "ok" and family(s["model"]) == family(r["model"])]
        best = max(same, key=lambda s: min(s["ess"].values()))
        worst = min(r["ess"], key=r["ess"].get)
        speeds = [f"{r['ess'][worst] / r[key]:.3g}" for key in ("busy", "seconds")]
        cells = [*start, *speeds, f"{r['seconds']:.1f}", f"{r['ess'][worst]:.0f}", worst, f"{r['rhat']:.3f}"]
        lines.append([*cells, "best" if r is best else f"{largest_z(r, best):.1f}"])
    return lines


def largest_z(r, reference):
    """The largest difference of means, in Monte Carlo errors of both."""
    return max(
        abs(mean - reference["means"][name][0]) / math.hypot(error, reference["means"][name][1])
        for name, (mean, error) in r["means"].items()
    )


def family(name):
    """The same for models that have the same posterior."""
    return "hidden Markov" if name.startswith("hidden Markov") else name


FOOTNOTE = f"""- Seconds are of the clock, from the finished `pm.Model` on, without imports. Building the step
  contains PyMC's logp.
- none: no result within the limit.
- {CHAINS} chains, {TUNE} + {DRAWS} draws, started where the models say; pm.sample draws its chains one after
  another (cores=1).
- ESS/s: bulk ESS of the slowest summary (ArviZ, all chains) per second of sampling after tuning; of the whole
  call: with compilation and tuning.
- PyMC's part in JAX: `compile_kwargs={{"mode": "JAX"}}`, measured with other work on the second core and with
  a limit of 450 s.
- z: difference of posterior means from the run of the same posterior with most ESS, in Monte Carlo errors of
  both.
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
            limit=lambda args: 1.5 * args.limit,
            short=SHORT,
        )
    )
