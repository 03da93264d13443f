"""A hidden Markov model: trees and single sites, within pm.sample and all in JAX, next to JAGS and to
marginalisation.

python -m benchmarks.hmm --seconds 30 --out benchmarks/results/NAME-hmm

Four chains a row, all on one core, each row in a process of its own. One model for all: labels are free, and
the start keeps them apart.
"""

import argparse
import json
import logging
import math
import os
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks import jags
from benchmarks.models import ModelSpec
from benchmarks.recorder import Done, Recorder
from benchmarks.run import RESULT, environment, keep, origins, publish, record_of
from benchmarks.samplers import CHUNKS, run_numpyro, run_pymc, run_sample, start_at

CHAINS, TUNE = 4, 1000
T, K = 1000, 5
MEANS, MATRIX = np.linspace(-4, 4, K), np.where(np.eye(K) > 0, 0.9, 0.1 / (K - 1))
SIGMAS = 4.0


# ---------------------------------------------------------------- the model
def data():
    """Observations, and the nearest state of each: from random states the means would fall together, and part
    in any order.
    """
    r = np.random.default_rng(8)
    true = [r.integers(K)]
    for _ in range(T - 1):
        true.append(r.choice(K, p=MATRIX[true[-1]]))
    y = MEANS[true] + r.normal(size=T)
    return y, np.abs(y[:, None] - MEANS).argmin(1)


def hmm():
    import pymc as pm
    import pymc_extras as pmx

    y, nearest = data()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=K, initval=MEANS)
        z = pmx.DiscreteMarkovChain(
            "z", P=MATRIX, init_dist=pm.Categorical.dist(p=np.ones(K) / K), shape=T, initval=nearest
        )
        pm.Normal("y", mu[z], 1, observed=y)
    return model, ["z"]


def marginal(model):
    import pymc_extras
    from pymc_extras.model.marginal import distributions

    if pymc_extras.__version__.startswith(
        "0.12."
    ):  # as in samplers.py: pytensor 3.3 refuses how it inlines its inner graph
        distributions.inline_ofg_outputs = lambda op, inputs: op.fgraph.bind(
            dict(zip(op.inner_inputs, inputs, strict=True))
        )
    model.rvs_to_initial_values.update(dict.fromkeys(model.rvs_to_initial_values))  # it takes none
    return pymc_extras.marginalize(model, ["z"])


def summaries(a):
    found = {f"mean {k}": a["mu"][:, k] for k in range(K)}
    if "z" in a:
        found |= {f"size {k}": (a["z"] == k).sum(1) for k in range(K)}
        found |= {"switches": (a["z"][:, 1:] != a["z"][:, :-1]).sum(1)}
    return found


def draw_z(a, rng):
    """z of every draw, exactly given mu: filtered forward, sampled backward."""
    likelihood = np.exp(-0.5 * (data()[0][:, None, None] - a["mu"]) ** 2)  # (T, draws, K)
    filtered = np.empty_like(likelihood)
    for t in range(T):
        p = likelihood[t] * (filtered[t - 1] @ MATRIX if t else 1)
        filtered[t] = p / p.sum(1, keepdims=True)
    z = np.empty((len(a["mu"]), T), int)
    for t in reversed(range(T)):
        p = (filtered[t] * (MATRIX[:, z[:, t + 1]].T if t < T - 1 else 1)).cumsum(1)
        z[:, t] = (rng.random((len(p), 1)) * p[:, -1:] > p).sum(1)
    return {**a, "z": z}


SPEC = ModelSpec(name="HMM", title="", pymc=hmm, summaries=summaries, start_values={"mu": MEANS}, tune=TUNE)

JAGS = f"""model {{
  for (k in 1:{K}) {{ mu[k] ~ dnorm(0, 1 / 25) }}
  z[1] ~ dcat(w)
  for (t in 2:{T}) {{ z[t] ~ dcat(A[z[t - 1], ]) }}
  for (t in 1:{T}) {{ y[t] ~ dnorm(mu[z[t]], 1) }}
  for (k in 1:{K}) {{ size[k] <- sum(equals(z, k)) }}
  same <- sum(equals(z[2:{T}], z[1:{T - 1}]))
}}"""


def jags_summaries(a):
    sizes = {f"size {k}": a["size"][:, k] for k in range(K)}
    return {f"mean {k}": a["mu"][:, k] for k in range(K)} | sizes | {"switches": T - 1 - a["same"]}


VERSUS = jags.Versus(
    title="",
    pymc=hmm,
    summaries=summaries,
    jags={"": JAGS},
    watched={"mu": (K,), "size": (K,), "same": ()},
    jags_summaries=jags_summaries,
    start=lambda y: {"mu": MEANS, "z": data()[1] + 1},
    data={"w": np.ones(K) / K, "A": MATRIX},
)


# ---------------------------------------------------------------- samplers: (summaries (chains, draws), seconds, what else is told)
def recorded(run, spec, seed, seconds, **options):
    """The recorder of a run of so many seconds."""
    recorder = Recorder(spec, math.inf, seconds, math.inf)
    try:
        run(spec, seed, recorder, **options)
    except Done:
        return recorder
    raise RuntimeError("the sampler ended by itself")


def told(recorder, tune_seconds=None):
    return {
        "compile_seconds": recorder.compile_seconds,
        "tune_seconds": tune_seconds or recorder.tune_seconds,
    }


def one_by_one(run, seed, seconds):
    """Chains of pm.sample in turn, as it draws them on one core; all are cut to the length of the shortest,
    and so are their seconds.
    """
    runs = [recorded(run, SPEC, CHAINS * seed + c, seconds / CHAINS) for c in range(CHAINS)]
    draws = min(r.draws for r in runs)
    chains = [r.summaries() for r in runs]
    joined = {name: np.concatenate([c[name][:, :draws] for c in chains]) for name in chains[0]}
    tune_seconds = sum(r.tune_seconds for r in runs)
    return joined, sum(r.seconds / r.draws for r in runs) * draws, told(runs[0], tune_seconds)


def in_pymc(name, seed, seconds):
    return one_by_one(partial(run_pymc, step=lambda pmd, names: getattr(pmd, name)(names)), seed, seconds)


def marginalised(seed, seconds, complete=None):
    return one_by_one(
        partial(run_pymc, change=marginal, complete=complete, initvals=SPEC.start_values), seed, seconds
    )


def in_jax(name, seed, seconds):
    import pymc_discrete as pmd

    begin = time.perf_counter()
    model, names = hmm()
    with model:
        step = getattr(pmd, name)(names)
    building = time.perf_counter() - begin
    with mock.patch.dict(CHUNKS, {SPEC.name: 1000}):
        recorder = recorded(
            run_sample, replace(SPEC, pymc=lambda: (model, names)), seed, seconds, chains=CHAINS, step=step
        )
    recorder.compile_seconds += building
    return recorder.summaries(), recorder.seconds, told(recorder)


def in_jags(seed, seconds):
    with mock.patch.object(jags, "CHAINS", CHAINS):
        found, (busy, _), before, more = jags.run_jags(VERSUS, JAGS, (), seconds, seed)
    return found, busy, {"tune_seconds": before, **more}


def in_numpyro(seed, seconds):
    """Its NUTS on PyMC's marginal density; the loop is ours, so that compiling is told apart."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS
    from pymc.sampling.jax import get_jaxified_logp

    jax.config.update("jax_enable_x64", True)
    logp = get_jaxified_logp(marginal(hmm()[0]))  # of its sign the option `negative_logp` says the opposite

    def density():
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real_vector, (), (K,)))
        numpyro.factor("logp", logp([mu]))

    spec = replace(SPEC, numpyro=lambda: density)
    recorder = recorded(
        run_numpyro, spec, seed, seconds, kernel=lambda m: NUTS(m, **start_at(spec)), chains=CHAINS
    )
    return recorder.summaries(), recorder.seconds, told(recorder)


SAMPLERS = {
    "pm.sample, TreeGibbs": partial(in_pymc, "TreeGibbs"),
    "pm.sample, BlockGibbs": partial(in_pymc, "BlockGibbs"),
    "pmd.sample, TreeGibbs": partial(in_jax, "TreeGibbs"),
    "pmd.sample, BlockGibbs": partial(in_jax, "BlockGibbs"),
    "JAGS": in_jags,
    "marginalised, NUTS of PyMC": marginalised,
    "marginalised, NUTS of PyMC, z drawn": partial(marginalised, complete=draw_z),
    "marginalised, NUTS of NumPyro": in_numpyro,
}


# ---------------------------------------------------------------- one row (in the child process)
def run_one(name, seed, seconds):
    for logger in ("pymc", "pymc.discrete"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    try:
        with mock.patch(
            "time.perf_counter", time.process_time
        ):  # on one core the same, but for what others on the machine take
            found, busy, more = SAMPLERS[name](seed, seconds)
    except Exception as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]} | environment()
    means = np.stack([found[f"mean {k}"] for k in range(K)])
    record = jags.scored("HMM", name, found, (busy, math.nan), more["tune_seconds"], more)
    del record["clock_seconds"]
    return {"status": "ok", "chains": CHAINS, "sorted": bool((np.diff(means, axis=0) > 0).all())} | record


# ---------------------------------------------------------------- table (in the parent)
COLUMNS = [
    "sampler", "seconds", "compile s", "tune s", "draws per chain", "min ESS/s of mu", "min ESS/s of z", "slowest summary",
    "largest \\|z-score\\| of mu", "of z", "labels kept",
]  # fmt: skip


def slowest(r, of_mu):
    ess = [a["ess"] for name, a in r["summaries"].items() if name.startswith("mean") == of_mu]
    return min(ess, default=math.nan)


def markdown(records):
    ok = [r for r in records if r["status"] == "ok"]
    lines = [
        f"## Hidden Markov model: {T} times, {K} states with unknown means, known transitions",
        "",
        *origins(records),
        "",
    ]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    notes = []
    reference = {
        of_mu: max(ok, key=lambda r: np.nan_to_num(slowest(r, of_mu)), default=None)
        for of_mu in (True, False)
    }
    for r in records:
        label = f"**{r['sampler']}**" if r["sampler"].startswith("p") else r["sampler"]
        if r["status"] != "ok":
            lines.append(f"| {label} | {r['status']} |" + " |" * (len(COLUMNS) - 2))
            notes.append(f"- {r['sampler']}: {r['reason']}")
            continue
        scores = []
        for of_mu, other in reference.items():
            names = [
                name
                for name in r["summaries"]
                if name in other["summaries"] and name.startswith("mean") == of_mu
            ]
            z = (
                {name: jags.deviations(r, other)[name, "mean"] for name in names}
                if r is not other and names
                else {}
            )
            scores.append(f"{np.abs(list(z.values())).max():.1f}" if z else "longest" if names else "-")
            off = [f"{name} (z = {v:.1f})" for name, v in z.items() if not abs(v) <= SIGMAS]
            notes += (
                [f"- {r['sampler']} and {other['sampler']} **disagree**: {', '.join(off)}"] if off else []
            )
        speeds = [slowest(r, of_mu) / r["seconds"] for of_mu in (True, False)]
        cells = [
            label,
            f"{r['seconds']:.1f}",
            f"{r['compile_seconds']:.1f}" if "compile_seconds" in r else "-",
            f"{r['tune_seconds']:.1f}",
        ]
        cells += [
            str(r["draws"]),
            *("-" if math.isnan(v) else f"{v:.3g}" for v in speeds),
            r["worst"],
            *scores,
        ]
        lines.append("| " + " | ".join([*cells, "yes" if r["sorted"] else "no"]) + " |")
    return "\n".join([*lines, "", *notes, FOOTNOTE])


FOOTNOTE = f"""- True means {", ".join(f"{m:g}" for m in MEANS)}, sd 1 known, prior Normal(0, 5); {MATRIX[0, 0]} to stay, the rest uniform.
- {CHAINS} chains on one core, started at the true means (PyMC and pmd.sample jitter them) and at each point's nearest state; {TUNE} draws
  of tuning each. Labels kept: the means are in this order in every draw of every chain.
- Seconds are of the processor, so that others on the machine do not count. seconds: after compiling and tuning. compile s: of pm.sample,
  those of its first chain; what PyTensor compiled in earlier runs is on disk. tune s: of all chains; JAGS: compiling, `adapt {TUNE}` and
  `update {TUNE}`.
- pm.sample draws its chains one after another, the others together.
- ESS: ArviZ's bulk ESS of all chains together; of mu the least of the {K} means, of z the least of the {K} sizes and the switches.
- z-score: difference of posterior means from those of the run with most ESS, in Monte Carlo errors of both, the largest of the means and
  of the summaries of z. More than {SIGMAS:.0f} would be listed.
- marginalised: `pymc_extras.marginalize`. z drawn: exactly given mu, in NumPy, inside the clock.
"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--samplers",
        nargs="+",
        default=list(SAMPLERS),
        choices=list(SAMPLERS),
        metavar="NAME",
        help=", ".join(SAMPLERS),
    )
    p.add_argument("--seconds", type=float, default=30, help="of sampling, per row")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row in all")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (table)")
    p.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    args = p.parse_args()
    if hasattr(os, "sched_setaffinity"):  # before JAX counts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if args.one:
        print(RESULT + json.dumps(run_one(args.one, args.seed, args.seconds)), flush=True)
        return
    records = []
    for name in args.samplers:
        command = ["benchmarks.hmm", "--one", name, "--seed", str(args.seed), "--seconds", str(args.seconds)]
        records.append(r := record_of({"sampler": name, "seed": args.seed}, command, args.limit))
        said = (
            r.get("reason")
            or f"{r['draws']} draws, {r['speed']:.3g} ESS/s ({r['worst']}), {r['seconds']:.0f} s"
        )
        print(f"{name}: {said}", file=sys.stderr, flush=True)
        keep(records, args.out)
    publish(markdown(records), args.out)


if __name__ == "__main__":
    main()
