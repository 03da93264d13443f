"""A hidden Markov model: trees and single sites, within pm.sample and all in JAX, next to JAGS and to
marginalisation.

python -m benchmarks.hmm --seconds 30 --out benchmarks/results/NAME-hmm

Four chains a row, all on one core, each row in a process of its own. All rows have the same model. Its labels
are free; the start keeps them apart.
"""

import math
import time
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks import harness
from benchmarks.jags_program import JagsModel, run_jags
from benchmarks.models import ModelSpec
from benchmarks.recorder import joined, run_for, setup_times
from benchmarks.samplers import marginalized, run_numpyro, run_pymc, run_sample, start_at
from benchmarks.scores import scored, z_scores

CHAINS, TUNE = 4, 1000
CHUNK = 250  # draws of pmd.sample between two callbacks
T, K = 1000, 5
MEANS, MATRIX = np.linspace(-4, 4, K), np.where(np.eye(K) > 0, 0.9, 0.1 / (K - 1))
SIGMAS = 4.0


# ---------------------------------------------------------------- the model
def data():
    """Observations, and the state whose mean is nearest to each.

    These states are the start: from random states the means would coincide at first, and separate in any
    order.
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


def summaries(a):
    values = {f"mean {k}": a["mu"][:, k] for k in range(K)}
    if "z" in a:
        values |= {f"size {k}": (a["z"] == k).sum(1) for k in range(K)}
        values |= {"switches": (a["z"][:, 1:] != a["z"][:, :-1]).sum(1)}
    return values


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


IN_JAGS = JagsModel(
    title="",
    pymc=hmm,
    summaries=summaries,
    jags={"": JAGS},
    watched={"mu": (K,), "size": (K,), "same": ()},
    jags_summaries=jags_summaries,
    start=lambda y: {"mu": MEANS, "z": data()[1] + 1},
    data={"w": np.ones(K) / K, "A": MATRIX},
)


# ---------------------------------------------------------------- samplers
# (seed, seconds) -> (summaries {name: (chains, draws)}, seconds of sampling, further entries of the record)
def one_by_one(run, seed, seconds):
    """Chains of pm.sample in turn, as it draws them on one core."""
    return joined([run_for(seconds / CHAINS, run, SPEC, CHAINS * seed + c) for c in range(CHAINS)])


def in_pymc(name, seed, seconds):
    return one_by_one(partial(run_pymc, step=lambda pmd, names: getattr(pmd, name)(names)), seed, seconds)


def marginalised(seed, seconds, complete=None):
    run = partial(run_pymc, change=marginalized, complete=complete, initvals=SPEC.start_values)
    return one_by_one(run, seed, seconds)


def in_jax(name, seed, seconds):
    import pymc_discrete as pmd

    begin = time.perf_counter()
    model, names = hmm()
    with model:
        step = getattr(pmd, name)(names)
    building = time.perf_counter() - begin
    spec = replace(SPEC, pymc=lambda: (model, names))
    recorder = run_for(seconds, run_sample, spec, seed, chains=CHAINS, chunk=CHUNK, step=step)
    recorder.compile_seconds += building
    return recorder.summaries(), recorder.seconds, setup_times(recorder)


def in_jags(seed, seconds):
    values, (busy, _), before, details = run_jags(IN_JAGS, JAGS, (), seconds, seed, CHAINS, TUNE)
    return values, float(busy), {"tune_seconds": float(before), **details}


def in_numpyro(seed, seconds):
    """NumPyro's NUTS on the marginal density that PyMC computes."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS
    from pymc.sampling.jax import get_jaxified_logp

    jax.config.update("jax_enable_x64", True)
    # its option `negative_logp` means the opposite of its name; the default is the log density
    logp = get_jaxified_logp(marginalized(hmm()[0]))

    def density():
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real_vector, (), (K,)))
        numpyro.factor("logp", logp([mu]))

    spec = replace(SPEC, numpyro=lambda: density)
    kernel = lambda model: NUTS(model, **start_at(spec))
    recorder = run_for(seconds, run_numpyro, spec, seed, kernel=kernel, chains=CHAINS)
    return recorder.summaries(), recorder.seconds, setup_times(recorder)


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


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--seconds", type=float, default=30, help="of sampling, per row")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row in all")
    p.add_argument("--seed", type=int, default=1)


SHORT = {"samplers": ["pmd.sample, TreeGibbs", "JAGS", "marginalised, NUTS of NumPyro"], "seconds": 1}


def rows(args, records):
    return [harness.Row({"sampler": name, "seed": args.seed}) for name in args.samplers]


def measure(args, sampler, seed):
    with harness.processor_time():
        values, seconds, details = SAMPLERS[sampler](seed, args.seconds)
    means = np.stack([values[f"mean {k}"] for k in range(K)])
    in_order = bool((np.diff(means, axis=0) > 0).all())
    return {"chains": CHAINS, "sorted": in_order} | scored(values, seconds) | details


def progress(r):
    return f"{r['draws']} draws, {r['speed']:.3g} ESS/s ({r['worst']}), {r['seconds']:.0f} s"


# ---------------------------------------------------------------- table
COLUMNS = [
    "sampler", "seconds", "compile s", "tune s", "draws per chain", "min ESS/s of mu", "min ESS/s of z",
    "slowest summary", "largest \\|z-score\\| of mu", "of z", "labels kept",
]  # fmt: skip


def smallest_ess(r, of_mu):
    """Of the means, or of the summaries of z; nan where there are none."""
    ess = [a["ess"] for name, a in r["summaries"].items() if name.startswith("mean") == of_mu]
    return min(ess, default=math.nan)


def compared(r, reference, of_mu):
    """(cell with the largest z-score, z-scores), of the means or of the summaries of z."""
    both = [name for name in r["summaries"] if name in reference["summaries"]]
    names = [name for name in both if name.startswith("mean") == of_mu]
    if not names:
        return "-", {}
    if r is reference:
        return "longest", {}
    scores = z_scores({"summaries": {name: r["summaries"][name] for name in names}}, reference)
    z = {name: scores[name, "mean"] for name in names}
    return f"{np.abs(list(z.values())).max():.1f}", z


def markdown(args, records):
    ok = [r for r in records if r["status"] == "ok"]
    references = {
        of_mu: max(ok, key=lambda r, of_mu=of_mu: np.nan_to_num(smallest_ess(r, of_mu)), default=None)
        for of_mu in (True, False)
    }
    lines, notes = [], []
    for r in records:
        label = harness.label(r["sampler"], r["sampler"].startswith("p"))
        if r["status"] != "ok":
            lines.append([label, r["status"]])
            notes.append(f"- {r['sampler']}: {r['reason']}")
            continue
        scores = []
        for of_mu, reference in references.items():
            cell, z = compared(r, reference, of_mu)
            scores.append(cell)
            off = [f"{name} (z = {v:.1f})" for name, v in z.items() if not abs(v) <= SIGMAS]
            if off:
                notes.append(f"- {r['sampler']} and {reference['sampler']} **disagree**: {', '.join(off)}")
        speeds = [smallest_ess(r, of_mu) / r["seconds"] for of_mu in (True, False)]
        compiling = f"{r['compile_seconds']:.1f}" if "compile_seconds" in r else "-"
        cells = [label, f"{r['seconds']:.1f}", compiling, f"{r['tune_seconds']:.1f}", r["draws"]]
        cells += ["-" if math.isnan(v) else f"{v:.3g}" for v in speeds]
        lines.append([*cells, r["worst"], *scores, "yes" if r["sorted"] else "no"])
    return "\n".join(
        [
            f"## Hidden Markov model: {T} times, {K} states with unknown means, known transitions",
            "",
            *harness.origins(records),
            "",
            *harness.table(COLUMNS, lines),
            "",
            *notes,
            FOOTNOTE,
        ]
    )


FOOTNOTE = f"""- True means {", ".join(f"{m:g}" for m in MEANS)}, sd 1 known, prior Normal(0, 5); {
    MATRIX[0, 0]
} to stay, the rest uniform.
- {CHAINS} chains on one core, started at the true means (PyMC and pmd.sample jitter them) and at each point's
  nearest state; {TUNE} draws of tuning each. Labels kept: the means are in this order in every draw of every
  chain.
- Seconds are of the processor, so that others on the machine do not count. seconds: after compiling and
  tuning. compile s: of pm.sample, those of its first chain; what PyTensor compiled in earlier runs is on
  disk. tune s: of all chains; JAGS: compiling, `adapt {TUNE}` and `update {TUNE}`.
- pm.sample draws its chains one after another, the others together.
- ESS: ArviZ's bulk ESS of all chains together; of mu the least of the {K} means, of z the least of the {K}
  sizes and the switches.
- z-score: difference of posterior means from those of the run with most ESS, in Monte Carlo errors of both,
  the largest of the means and of the summaries of z. More than {SIGMAS:.0f} would be listed.
- marginalised: `pymc_extras.marginalize`. z drawn: exactly given mu, in NumPy, inside the clock.
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT, one_core=True)
    )
