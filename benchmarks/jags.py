"""pmd.sample next to JAGS (Linux): the same models, priors and data, two chains each, all on one core.

python -m benchmarks.jags --models B occupancy --seconds 30 --out benchmarks/results/NAME-jags
"""

import time

import numpy as np

from benchmarks import harness
from benchmarks.community_models import answers_by_skills, crossbills, dina, visits_of_crossbills
from benchmarks.count_chains import dail_madsen, reported_cases, sir
from benchmarks.jags_program import JagsModel, run_jags, stacked
from benchmarks.models import (
    logistic_selection,
    logistic_selection_data,
    logistic_selection_summaries,
    mixture,
    mixture_summaries,
    n_mixture,
    n_mixture_summaries,
)
from benchmarks.scores import scored, z_scores

CHAINS, TUNE = 2, 1000
CHUNK = 500  # draws of pmd.sample between two callbacks
SIGMAS = 4.0
OURS = "pmd.sample"


# ---------------------------------------------------------------- mixture and HMM
MIXTURE = """model {{
  for (k in 1:3) {{ mu0[k] ~ dnorm(0, 1 / 25) }}
  mu <- {mu}
  {z}
  for (i in 1:500) {{ y[i] ~ dnorm(mu[z[i]], 1) }}
  s1 <- sum(z)
  s2 <- inprod(z, z)
}}"""


def mixture_in_jags(z):
    """What the two models with means have in common.

    Their means are sorted in the model, as by PyMC's transform; or free, which makes them conjugate, and
    sorted when the draws are read.
    """
    return {
        "summaries": mixture_summaries,
        "jags": {
            "sorted means": MIXTURE.format(mu="sort(mu0)", z=z),
            "free means": MIXTURE.format(mu="mu0", z=z),
        },
        "watched": {"mu": (3,), "s1": (), "s2": ()},
        "jags_summaries": mixture_jags_summaries,
    }


def mixture_jags_summaries(a):
    """Sizes from the sums of z and z^2, which cost JAGS next to nothing.

    The states of free means are relabelled by increasing mean. This does not change the posterior.
    """
    s1, s2 = a["s1"] - 500, a["s2"] - 2 * a["s1"] + 500  # those of z = 0, 1, 2
    sizes = np.stack([500 - 1.5 * s1 + 0.5 * s2, 2 * s1 - s2, (s2 - s1) / 2], axis=1)
    order = a["mu"].argsort(1)
    sizes, means = np.take_along_axis(sizes, order, 1), np.take_along_axis(a["mu"], order, 1)
    return {f"size {k}": sizes[:, k] for k in range(3)} | {f"mean {k}": means[:, k] for k in range(3)}


HMM_MEANS, HMM_MATRIX = np.array([-2.0, 0.0, 2.0]), np.where(np.eye(3) > 0, 0.9, 0.05)


def hmm(T=500):
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(7)
    true = [r.integers(3)]
    for _ in range(T - 1):
        true.append(r.choice(3, p=HMM_MATRIX[true[-1]]))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=3, transform=pm.distributions.transforms.ordered, initval=HMM_MEANS)
        # uniform: the prior of z[0]; for the others it only adds a constant
        z = pm.Categorical("z", p=np.ones(3) / 3, shape=T)
        pm.Potential("transitions", pt.constant(np.log(HMM_MATRIX))[z[:-1], z[1:]].sum())
        pm.Normal("y", mu[z], 1, observed=HMM_MEANS[true] + r.normal(size=T))
    return model, ["z"]


# ---------------------------------------------------------------- counts and occupancy
N_MIXTURE = """model {
  lam ~ dgamma(2, 0.5)
  p ~ dbeta(1, 1)
  for (i in 1:50) {
    N[i] ~ dpois(lam)
    for (j in 1:4) { y[i, j] ~ dbin(p, N[i]) }
  }
  total <- sum(N)
}"""

OCCUPANCY = """model {
  for (k in 1:2) { a[k] ~ dnorm(0, 1 / 1.5^2) }
  for (k in 1:2) { b[k] ~ dnorm(0, 1 / 1.5^2) }
  for (i in 1:200) {
    logit(psi[i]) <- a[1] + a[2] * x[i]
    z[i] ~ dbern(psi[i])
    for (j in 1:5) {
      logit(p[i, j]) <- b[1] + b[2] * w[i, j]
      y[i, j] ~ dbern(z[i] * p[i, j])
    }
  }
  occupied <- sum(z)
}"""


def occupancy_data(sites=200, visits=5):
    r = np.random.default_rng(6)
    x, w = r.normal(size=sites), r.normal(size=(sites, visits))
    z = r.random(sites) < 1 / (1 + np.exp(-x))
    return {"x": x, "w": w, "y": (z[:, None] & (r.random(w.shape) < 1 / (1 + np.exp(1.0 - w)))).astype(int)}


def occupancy():
    import pymc as pm

    data = occupancy_data()
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1.5, shape=2), pm.Normal("b", 0, 1.5, shape=2)
        z = pm.Bernoulli("z", logit_p=a[0] + a[1] * data["x"])
        pm.Bernoulli("y", p=z[:, None] * pm.math.invlogit(b[0] + b[1] * data["w"]), observed=data["y"])
    return model, ["z"]


def coefficients(a):
    return {f"{name}{k}": a[name][:, k] for name in "ab" for k in range(2)}


# ---------------------------------------------------------------- open population
OPEN_POPULATION = """model {
  initial ~ dnorm(0, 1 / 100) T(0, )
  gamma ~ dnorm(0, 1 / 25) T(0, )
  phi ~ dbeta(1, 1)
  p ~ dbeta(1, 1)
  for (i in 1:100) {
    first[i] ~ dpois(initial)
    N[1, i] <- first[i]
    for (t in 1:4) {
      alive[t, i] ~ dbin(phi, N[t, i])
      new[t, i] ~ dpois(gamma)
      N[t + 1, i] <- alive[t, i] + new[t, i]
    }
    for (t in 1:5) { y[t, i] ~ dbin(p, N[t, i]) }
  }
}"""
RATES = ("initial", "gamma", "phi", "p")


def rates(a):
    return {name: a[name] for name in RATES}


# ---------------------------------------------------------------- epidemic
EPIDEMIC = """model {
  beta ~ dnorm(0, 1 / 4) T(0, )
  gamma ~ dbeta(5, 5)
  reported ~ dbeta(6, 4)
  well[1] <- 495
  ill[1] <- 5
  for (t in 1:20) {
    infections[t] ~ dbin(1 - exp(-beta * ill[t] / 500), well[t])
    removals[t] ~ dbin(gamma, ill[t])
    y[t] ~ dbin(reported, infections[t])
    well[t + 1] <- well[t] - infections[t]
    ill[t + 1] <- ill[t] + infections[t] - removals[t]
  }
}"""
RATES_OF_EPIDEMIC = ("beta", "gamma", "reported")


def rates_of_epidemic(a):
    return {name: a[name] for name in RATES_OF_EPIDEMIC}


# ---------------------------------------------------------------- logistic regression with indicators
LOGISTIC_SELECTION = """model {
  w ~ dbeta(1, 9)
  tau ~ dnorm(0, 1) T(0, )
  a ~ dnorm(0, 1 / 4)
  for (j in 1:100) {
    gamma[j] ~ dbern(w)
    beta[j] ~ dnorm(0, 1 / (tau * tau))
    effect[j] <- gamma[j] * beta[j]
  }
  for (i in 1:500) {
    logit(q[i]) <- a + inprod(X[i,], effect)
    y[i] ~ dbern(q[i])
  }
}"""


# ---------------------------------------------------------------- occupancy of squares, days as they are
CROSSBILLS = """model {
  for (k in 1:4) { b[k] ~ dnorm(0, 1 / 4) }
  for (k in 1:2) { a[k] ~ dnorm(0, 1 / 4) }
  for (i in 1:267) {
    logit(psi[i]) <- b[1] + b[2] * forest[i] + b[3] * elevation[i] + b[4] * elevation[i] * elevation[i]
    z[i] ~ dbern(psi[i])
  }
  for (j in 1:length(y)) {
    logit(p[j]) <- a[1] + a[2] * day[j]
    y[j] ~ dbern(z[square[j]] * p[j])
  }
}"""


def crossbills_in_jags():
    data = visits_of_crossbills()
    return data | {"square": data["square"] + 1}


def coefficients_of_crossbills(a):
    occupancy, detection = (a["occupancy"], a["detection"]) if "occupancy" in a else (a["b"], a["a"])
    return {f"occupancy{k}": occupancy[:, k] for k in range(4)} | {
        f"detection{k}": detection[:, k] for k in range(2)
    }


# ---------------------------------------------------------------- cognitive diagnosis
DINA = """model {
  for (k in 1:5) {
    slope[k] ~ dlnorm(0, 4)
    place[k] ~ dnorm(0, 1 / 2.25)
  }
  for (j in 1:20) {
    s[j] ~ dbeta(1, 4)
    g[j] ~ dbeta(1, 4)
  }
  for (i in 1:500) {
    theta[i] ~ dnorm(0, 1)
    for (k in 1:5) {
      logit(p[i, k]) <- slope[k] * (theta[i] - place[k])
      has[i, k] ~ dbern(p[i, k])
    }
    for (j in 1:20) {
      for (k in 1:5) { enough[i, j, k] <- pow(has[i, k], Q[j, k]) }
      able[i, j] <- prod(enough[i, j, ])
      y[i, j] ~ dbern(able[i, j] * (1 - s[j]) + (1 - able[i, j]) * g[j])
    }
  }
}"""
OF_DINA = {"slope": (5,), "place": (5,), "s": (20,), "g": (20,)}


def parameters_of_dina(a):
    return {f"{name}{k}": a[name][:, k] for name, (n,) in OF_DINA.items() for k in range(n)}


MODELS = {
    "B": JagsModel(
        title="Gaussian mixture, 500 points, 3 ordered means",
        pymc=mixture,
        start=lambda y: {"mu0": np.array([-3.0, 0.0, 3.5])},
        data={"w": np.full(3, 1 / 3)},
        **mixture_in_jags("for (i in 1:500) { z[i] ~ dcat(w) }"),
    ),
    "E": JagsModel(
        title="N-mixture, 50 sites, 4 visits",
        pymc=n_mixture,
        summaries=n_mixture_summaries,
        jags={"": N_MIXTURE},
        watched={"total": (), "lam": (), "p": ()},
        jags_summaries=lambda a: {"total N": a["total"], "lam": a["lam"], "p": a["p"]},
        start=lambda y: {"N": y.max(1) + 3},
    ),
    "occupancy": JagsModel(
        title="occupancy, 200 sites, 5 visits, a covariate on each level",
        pymc=occupancy,
        summaries=lambda a: {"occupied": a["z"].sum(1)} | coefficients(a),
        jags={"": OCCUPANCY},
        watched={"occupied": (), "a": (2,), "b": (2,)},
        jags_summaries=lambda a: {"occupied": a["occupied"]} | coefficients(a),
        start=lambda y: {"z": y.max(1)},
        data={name: value for name, value in occupancy_data().items() if name != "y"},
    ),
    "HMM": JagsModel(
        title="HMM, 500 times, 3 states with ordered means, known transitions",
        pymc=hmm,
        start=lambda y: {"mu0": HMM_MEANS},
        data={"w": np.full(3, 1 / 3), "A": HMM_MATRIX},
        **mixture_in_jags("z[1] ~ dcat(w)\n  for (t in 2:500) { z[t] ~ dcat(A[z[t - 1], ]) }"),
    ),
    "open population": JagsModel(
        title="open population (Dail and Madsen), 100 sites, 5 years",
        pymc=lambda: (dail_madsen(), ["N_1"]),
        summaries=rates,
        jags={"": OPEN_POPULATION},
        watched=dict.fromkeys(RATES, ()),
        jags_summaries=rates,
        start=lambda y: {"first": 2 * y[0] + 3, "new": 2 * y[1:] + 3, "alive": 0 * y[1:]},
    ),
    "logistic selection": JagsModel(
        title="logistic regression with indicators, 500 rows, 100 columns",
        pymc=logistic_selection,
        summaries=logistic_selection_summaries,
        jags={"": LOGISTIC_SELECTION},
        watched={"gamma": (100,), "w": (), "tau": (), "a": ()},
        jags_summaries=logistic_selection_summaries,
        start=lambda y: {"gamma": np.zeros(100), "beta": np.zeros(100), "tau": 1.0, "w": 0.1},
        data={"X": logistic_selection_data()[0]},
    ),
    "epidemic": JagsModel(
        title="chain binomial of an epidemic, 20 weeks, 500 persons; infections are reported in part",
        pymc=lambda: (sir(20), ["infections_0"]),
        summaries=rates_of_epidemic,
        jags={"": EPIDEMIC},
        watched=dict.fromkeys(RATES_OF_EPIDEMIC, ()),
        jags_summaries=rates_of_epidemic,
        start=lambda y: {"infections": y + 1, "removals": 0 * y},
        data={"y": reported_cases(20)},
    ),
    "crossbills": JagsModel(
        title="occupancy of 267 squares by crossbills, the day of a visit not standardised",
        pymc=lambda: (crossbills(), ["z"]),
        summaries=coefficients_of_crossbills,
        jags={"": CROSSBILLS},
        watched={"b": (4,), "a": (2,)},
        jags_summaries=coefficients_of_crossbills,
        start=lambda y: {"z": np.ones(267)},
        data=crossbills_in_jags(),
    ),
    "dina": JagsModel(
        title="cognitive diagnosis (DINA), 500 persons, 20 items, 5 skills that depend on one ability",
        pymc=lambda: (dina(), ["has"]),
        summaries=parameters_of_dina,
        jags={"": DINA},
        watched=OF_DINA,
        jags_summaries=parameters_of_dina,
        start=lambda y: {"s": np.full(20, 0.2), "g": np.full(20, 0.2)},
        data=answers_by_skills(),
    ),
}


# ---------------------------------------------------------------- samplers
def run_ours(spec, seconds, seed):
    """As `run_jags`: (summaries (chains, draws), seconds of sampling, seconds before, details).

    The first chunk of draws counts as what precedes sampling: its end is the first time known after compiling
    and tuning.
    """
    import pymc_discrete as pmd

    model, _ = spec.pymc()
    times = []

    def callback(draws, done):
        times.append(np.array([time.process_time(), time.perf_counter()]))
        if times[-1][0] - times[0][0] >= seconds:
            raise KeyboardInterrupt  # as Ctrl-C: pmd.sample returns the draws so far

    options = {"progressbar": False, "compute_convergence_checks": False, "chunk": CHUNK}
    start = time.process_time()
    tree = pmd.sample(10**7, TUNE, CHAINS, model=model, random_seed=seed, callback=callback, **options)
    a = {name: values.to_numpy()[:, CHUNK:] for name, values in tree.posterior.data_vars.items()}
    summaries = stacked([spec.summaries({name: v[c] for name, v in a.items()}) for c in range(CHAINS)])
    stats = tree.sample_stats.isel(draw=slice(CHUNK, None))
    details = {
        "n_steps": float(stats["n_steps"].mean()),
        "step_size": stats["step_size"].isel(draw=-1).to_numpy().tolist(),
        "diverging": float(stats["diverging"].mean()),
    }
    return summaries, times[-1] - times[0], times[0][0] - start, details


def variants(spec):
    """{sampler: (text of the model, modules)} of JAGS: every form of the model, with and without `glm`."""
    return {
        ", ".join(["JAGS", *filter(None, [form]), *modules]): (text, modules)
        for form, text in spec.jags.items()
        for modules in ((), ("glm",))
    }


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--seconds", type=float, default=30, help="of sampling, per row")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row in all")
    p.add_argument("--seed", type=int, default=1)


SHORT = {"models": ["E"], "seconds": 1}


def rows(args, records):
    for name in args.models:
        for sampler in (OURS, *variants(MODELS[name])):
            yield harness.Row({"model": name, "sampler": sampler})


def measure(args, model, sampler):
    spec = MODELS[model]
    if sampler == OURS:
        summaries, sampling, before, details = run_ours(spec, args.seconds, args.seed)
    else:
        text, modules = variants(spec)[sampler]
        summaries, sampling, before, details = run_jags(
            spec, text, modules, args.seconds, args.seed, CHAINS, TUNE
        )
    seconds, clock_seconds = map(float, sampling)
    times = {"clock_seconds": clock_seconds, "before": float(before)}
    return scored(summaries, seconds) | times | details


def progress(r):
    return f"{r['draws']} draws, {r['speed']:.3g} ESS/s, {r['clock_seconds']:.0f} s"


# ---------------------------------------------------------------- tables
COLUMNS = [
    "model", "sampler", "draws", "seconds", "min ESS", "ESS/s", "worst summary", "ours / JAGS",
    "s before sampling", "largest \\|z\\|",
]  # fmt: skip


def markdown(args, records):
    jags = next((r["jags"] for r in records if "jags" in r), "not run")
    heads = harness.origins([r | {"versions": r["versions"] | {"JAGS": jags}} for r in records])
    lines, notes = [], []
    for model in dict.fromkeys(r["model"] for r in records):
        mine = [r for r in records if r["model"] == model]
        lines += cells(mine)
        notes += footnotes(mine)
    return "\n".join(["# Beside JAGS", "", *heads, "", *harness.table(COLUMNS, lines), "", *notes, FOOTNOTE])


def of_one_model(records):
    """(record of ours or None, records of JAGS, the fastest of them or None), of those that succeeded."""
    ok = [r for r in records if r.get("status", "ok") == "ok"]
    ours = next((r for r in ok if name_of(r) == OURS), None)
    peers = [r for r in ok if name_of(r) != OURS]
    return ours, peers, max(peers, key=lambda r: r["speed"], default=None)


def name_of(r):
    return r["sampler"].strip("*")  # older records hold the name in bold


def cells(records):
    ours, _, best = of_one_model(records)
    for r in records:
        start = [r["model"], harness.label(name_of(r), name_of(r) == OURS)]
        if r.get("status", "ok") != "ok":
            yield [*start, r["status"]]
            continue
        ratio = largest = ""
        if ours and r is not ours:
            ratio = harness.label(f"{ours['speed'] / r['speed']:.2g}", r is best)
            largest = f"{np.abs(list(z_scores(r, ours).values())).max():.1f}"
        ess = [f"{r['min_ess']:.0f}", f"{r['speed']:.3g}", r["worst"]]
        yield [*start, r["draws"], f"{r['seconds']:.1f}", *ess, ratio, f"{r['before']:.1f}", largest]


def footnotes(records):
    ours, peers, best = of_one_model(records)
    model = records[0]["model"]
    text = f"- {model}: {MODELS[model].title}."
    if ours:
        text += (
            f" Ours: {ours['n_steps']:.1f} leapfrog steps a draw, {ours['diverging']:.1%} of draws diverge."
        )
    if best:
        text += f" The best JAGS: {', '.join(best['samplers'])}."
    yield text
    for r in records:
        if r.get("status", "ok") != "ok":
            yield f"- {model}, {name_of(r)}: {r['reason']}"
    for r in peers if ours else []:
        z = z_scores(r, ours)
        off = [f"{what} of {name} (z = {v:.1f})" for (name, what), v in z.items() if not abs(v) <= SIGMAS]
        if off:
            yield f"- {model}: ours and {r['sampler']} **disagree**: {', '.join(off)}"


FOOTNOTE = f"""- Ours: `pmd.sample` with its defaults (NUTS, `AutoStep`, float64). All chains run one after
  another on one core.
- Seconds are of the processor, so that others on the machine do not count. Ours: between the ends of the
  first chunk ({CHUNK} draws) and of the last. JAGS: its `update` commands, without the output of draws; it
  monitors sums, where ours records every variable.
- s before sampling: compiling, tuning ({TUNE} draws; JAGS: `adapt {TUNE}` and `update {TUNE}`), and the first
  few draws, which are dropped.
- Draws are per chain, none is thinned. ESS: ArviZ's bulk ESS of both chains together, the least of all
  summaries.
- JAGS runs with and without its module glm; the ratio to its best is bold. Sorted means: `sort()` in the
  model. Free means: without it they are conjugate; labels are sorted afterwards.
- z: difference of a mean or an sd from ours, in Monte Carlo errors of both. More than {SIGMAS:.0f} would be
  listed.
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT, one_core=True)
    )
