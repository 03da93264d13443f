"""A table of counts with known row sums, seen through noise: our steps, unit transfers by hand, JAGS.

python -m benchmarks.fixed_sums --seconds 30 --out benchmarks/results/NAME-fixed-sums

Four chains a row, all on one core, each row in a process of its own. All rows have the same model: counts as
they are published with noise for privacy, whose row sums are exact, and a softmax regression of them.
"""

import time
from dataclasses import replace
from functools import cache, partial

import numpy as np

from benchmarks import harness
from benchmarks.jags_program import JagsModel, run_jags
from benchmarks.models import ModelSpec
from benchmarks.recorder import joined, run_for, setup_times
from benchmarks.samplers import run_pymc, run_sample
from benchmarks.scores import scored, z_scores

CHAINS, TUNE = 4, 1000
CHUNK = 50  # draws of pmd.sample between two callbacks
ROWS, CELLS, NOISE = 200, 6, 4.0
SIGMAS = 4.0


# ---------------------------------------------------------------- the model
@cache
def data():
    """(z (ROWS,), n (ROWS,), y (ROWS, CELLS), start (ROWS, CELLS) with the sums n)."""
    r = np.random.default_rng(5)
    z, n = r.normal(size=ROWS), r.integers(20, 200, ROWS)
    alpha, beta = r.normal(0, 0.7, CELLS - 1), r.normal(0, 0.5, CELLS - 1)
    eta = np.column_stack([np.zeros(ROWS), alpha + beta * z[:, None]])
    p = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    x = np.array([r.multinomial(*each) for each in zip(n, p, strict=True)])
    start = np.array([r.multinomial(each, np.full(CELLS, 1 / CELLS)) for each in n])
    return z, n, x + NOISE * r.normal(size=x.shape), start


def noisy_table():
    import pymc as pm
    import pytensor.tensor as pt

    z, n, y, start = data()
    with pm.Model() as model:
        alpha, beta = (pm.Normal(name, 0, 1.5, shape=CELLS - 1) for name in ("alpha", "beta"))
        eta = pt.concatenate([pt.zeros((ROWS, 1)), alpha + beta * z[:, None]], axis=1)
        x = pm.Multinomial("x", n, pm.math.softmax(eta, axis=1), shape=(ROWS, CELLS), initval=start)
        pm.Normal("y", x, NOISE, observed=y)
    return model, ["x"]


def summaries(a):
    totals = a["x"].sum(1)
    values = {f"{name} {k}": a[name][:, k] for name in ("alpha", "beta") for k in range(CELLS - 1)}
    return values | {f"total {k}": totals[:, k] for k in range(CELLS)}


SPEC = ModelSpec(name="table", title="", pymc=noisy_table, summaries=summaries, tune=TUNE)

# JAGS does not sample an unobserved dmulti. A Multinomial is a chain of Binomials, and these it does sample.
JAGS = f"""model {{
  for (k in 1:{CELLS - 1}) {{ alpha[k] ~ dnorm(0, 1 / 2.25); beta[k] ~ dnorm(0, 1 / 2.25) }}
  for (i in 1:{ROWS}) {{
    e[i, 1] <- 1
    for (k in 2:{CELLS}) {{ e[i, k] <- exp(alpha[k - 1] + beta[k - 1] * z[i]) }}
    left[i, 1] <- n[i]
    for (k in 1:{CELLS - 1}) {{
      x[i, k] ~ dbin(e[i, k] / sum(e[i, k:{CELLS}]), left[i, k])
      left[i, k + 1] <- left[i, k] - x[i, k]
      y[i, k] ~ dnorm(x[i, k], {1 / NOISE**2})
    }}
    y[i, {CELLS}] ~ dnorm(left[i, {CELLS}], {1 / NOISE**2})
  }}
  for (k in 1:{CELLS - 1}) {{ total[k] <- sum(x[, k]) }}
  total[{CELLS}] <- sum(left[, {CELLS}])
}}"""


def jags_summaries(a):
    values = {f"{name} {k}": a[name][:, k] for name in ("alpha", "beta") for k in range(CELLS - 1)}
    return values | {f"total {k}": a["total"][:, k] for k in range(CELLS)}


def in_jags_spec():
    z, n, y, start = data()
    return JagsModel(
        title="",
        pymc=noisy_table,
        summaries=summaries,
        jags={"": JAGS},
        watched={"alpha": (CELLS - 1,), "beta": (CELLS - 1,), "total": (CELLS,)},
        jags_summaries=jags_summaries,
        start=lambda y: {"x": start[:, :-1]},
        data={"z": z, "n": n, "y": y},
    )


# ---------------------------------------------------------------- by hand
def unit_transfers(proposals):
    """A step for pmd.CustomStep: in every row, one unit goes from one cell to another, `proposals` times.

    Metropolis and Hastings, the two cells at random; all rows together, since they are independent given the
    coefficients.
    """
    import jax
    import jax.numpy as jnp

    z, _, y, _ = data()
    rows = np.arange(ROWS)

    def step(key, point, state):
        seen = jnp.asarray(y)
        eta = jnp.concatenate([jnp.zeros((ROWS, 1)), point["alpha"] + point["beta"] * z[:, None]], axis=1)

        def transfer(t, x):
            key_from, key_to, key_accept = jax.random.split(jax.random.fold_in(key, t), 3)
            a = jax.random.randint(key_from, (ROWS,), 0, CELLS)
            b = (a + jax.random.randint(key_to, (ROWS,), 1, CELLS)) % CELLS
            xa, xb = x[rows, a], x[rows, b]
            # of the Multinomial, prod_k p_k^x_k / x_k!, and of the noise
            change = eta[rows, b] - eta[rows, a] + jnp.log(xa) - jnp.log(xb + 1)
            change += ((2 * (xa - seen[rows, a]) - 1) - (2 * (xb - seen[rows, b]) + 1)) / (2 * NOISE**2)
            unit = (jnp.log(jax.random.uniform(key_accept, (ROWS,))) < change).astype(x.dtype)
            return x.at[rows, a].add(-unit).at[rows, b].add(unit)

        return {"x": jax.lax.fori_loop(0, proposals, transfer, point["x"])}, state

    return step


# ---------------------------------------------------------------- samplers
# (seed, seconds) -> (summaries {name: (chains, draws)}, seconds of sampling, further entries of the record)
def in_pymc(name, options, seed, seconds):
    """Chains of pm.sample in turn, as it draws them on one core; PyMC's NUTS has the coefficients."""
    run = partial(run_pymc, step=lambda pmd, names: getattr(pmd, name)(names, **options))
    return joined([run_for(seconds / CHAINS, run, SPEC, CHAINS * seed + c) for c in range(CHAINS)])


def in_jax(make_step, seed, seconds):
    begin = time.perf_counter()
    model, names = noisy_table()
    with model:
        step = make_step(names)
    building = time.perf_counter() - begin
    spec = replace(SPEC, pymc=lambda: (model, names))
    recorder = run_for(seconds, run_sample, spec, seed, chains=CHAINS, chunk=CHUNK, step=step)
    recorder.compile_seconds += building
    return recorder.summaries(), recorder.seconds, setup_times(recorder)


def ours(name, **options):
    def make_step(names):
        import pymc_discrete as pmd

        return getattr(pmd, name)(names, **options)

    return partial(in_jax, make_step)


def by_hand(proposals):
    def make_step(names):
        import pymc_discrete as pmd

        return pmd.CustomStep(names, unit_transfers(proposals))

    return partial(in_jax, make_step)


def in_jags(seed, seconds):
    values, (busy, _), before, details = run_jags(in_jags_spec(), JAGS, (), seconds, seed, CHAINS, TUNE)
    return values, float(busy), {"tune_seconds": float(before), **details}


SAMPLERS = {
    "pmd.sample, BlockGibbs": ours("BlockGibbs"),
    "pmd.sample, GibbsWithGradients": ours("GibbsWithGradients"),
    'pmd.sample, GibbsWithGradients(n_flips="adapt")': ours("GibbsWithGradients", n_flips="adapt"),
    "pmd.sample, PathAuxiliary": ours("PathAuxiliary"),
    "pmd.sample, PathAuxiliary(path_length=5, recompute=True)": ours(
        "PathAuxiliary", path_length=5, recompute=True
    ),
    "pm.sample, BlockGibbs": partial(in_pymc, "BlockGibbs", {}),
    "pm.sample, PathAuxiliary": partial(in_pymc, "PathAuxiliary", {}),
    "by hand, 6 unit transfers a row": by_hand(6),
    "by hand, 60 unit transfers a row": by_hand(60),
    "JAGS, a chain of Binomials": in_jags,
}


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--seconds", type=float, default=30, help="of sampling, per row")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row in all")
    p.add_argument("--seed", type=int, default=1)


SHORT = {"samplers": ["pmd.sample, BlockGibbs", "by hand, 6 unit transfers a row"], "seconds": 1}


def rows(args, records):
    return [harness.Row({"sampler": name, "seed": args.seed}) for name in args.samplers]


def measure(args, sampler, seed):
    with harness.processor_time():
        values, seconds, details = SAMPLERS[sampler](seed, args.seconds)
    return {"chains": CHAINS} | scored(values, seconds) | details


def progress(r):
    return f"{r['draws']} draws, {r['speed']:.3g} ESS/s ({r['worst']}), {r['seconds']:.0f} s"


# ---------------------------------------------------------------- table
COLUMNS = [
    "sampler", "seconds", "compile s", "tune s", "draws per chain", "min ESS/s of coefficients",
    "min ESS/s of totals", "slowest summary", "largest \\|z-score\\|",
]  # fmt: skip


def least(r, of_totals):
    ess = [a["ess"] for name, a in r["summaries"].items() if name.startswith("total") == of_totals]
    return min(ess) / r["seconds"]


def markdown(args, records):
    ok = [r for r in records if r["status"] == "ok"]
    reference = max(ok, key=lambda r: min(a["ess"] for a in r["summaries"].values()), default=None)
    lines, notes = [], []
    for r in records:
        label = harness.label(r["sampler"], r["sampler"].startswith("p"))
        if r["status"] != "ok":
            lines.append([label, r["status"]])
            notes.append(f"- {r['sampler']}: {r['reason']}")
            continue
        z = {name: v for (name, of), v in z_scores(r, reference).items() if of == "mean"}
        off = [
            f"{name} (z = {v:.1f})" for name, v in z.items() if r is not reference and not abs(v) <= SIGMAS
        ]
        if off:
            notes.append(f"- {r['sampler']} and {reference['sampler']} **disagree**: {', '.join(off)}")
        compiling = f"{r['compile_seconds']:.1f}" if "compile_seconds" in r else "-"
        cells = [label, f"{r['seconds']:.1f}", compiling, f"{r['tune_seconds']:.1f}", r["draws"]]
        cells += [f"{least(r, of_totals):.3g}" for of_totals in (False, True)]
        largest = "longest" if r is reference else f"{max(map(abs, z.values())):.1f}"
        lines.append([*cells, r["worst"], largest])
    return "\n".join(
        [
            f"## A {ROWS} x {CELLS} table of counts with known row sums, seen through noise",
            "",
            *harness.origins(records),
            "",
            *harness.table(COLUMNS, lines),
            "",
            *notes,
            FOOTNOTE,
        ]
    )


FOOTNOTE = f"""- x[i] ~ Multinomial(n[i], softmax(0, alpha + beta z[i])), n from 20 to 199.
  y ~ Normal(x, {NOISE:g}), alpha and beta have priors Normal(0, 1.5). Starts: the same random table for all.
- {CHAINS} chains on one core, {TUNE} draws of tuning each. The coefficients are drawn by NUTS, in JAGS by its
  samplers of single nodes.
- by hand: `pmd.CustomStep` with Metropolis, in each draw and each row so many proposals to move one unit from
  a random cell to another, all rows at once; what is programmed is the log density of this model alone.
- JAGS does not sample an unobserved `dmulti`; its rows are written as a chain of `dbin`.
- Seconds are of the processor. seconds: after compiling and tuning. compile s: of pm.sample, those of its
  first chain. tune s: of all chains; JAGS: compiling, `adapt {TUNE}` and `update {TUNE}`.
- ESS: ArviZ's bulk ESS of all chains together, the least of the {2 * (CELLS - 1)} coefficients, and of the
  {CELLS} column totals of x.
- z-score: difference of posterior means from those of the run with most ESS, in Monte Carlo errors of both.
  More than {SIGMAS:.0f} would be listed.
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT, one_core=True)
    )
