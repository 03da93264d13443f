"""Simulation-based calibration of collapsed samplers: 500 data sets from the prior, ranks of what made them.

python -m benchmarks.calibration --out benchmarks/results/NAME-calibration

Parameters and data are drawn from the model, and the ranks of the parameters among draws of the posterior
must be uniform (Talts et al. 2018). All regressions run one compiled program; the N-mixtures are parts of one
model that have nothing in common. Every model has a row with an error that is planted in the package, which
must be found.
"""

import contextlib
import time
from unittest import mock

import numpy as np

from benchmarks import harness

N, P = 30, 6
SITES, VISITS = 8, 3
TUNE, THIN, RANKS = 400, 6, 100  # 99 draws are kept, so that there are 100 ranks
BINS = 20
SMALLEST_P = 1e-3  # of all summaries of a row together


# ---------------------------------------------------------------- the models
# each function: (random numbers, number of data sets) -> iterator of (draws, truth), two {summary: array}


def regressions(r, replicates):
    """Spike-and-slab regressions whose noise and inclusion probability are unknown."""
    import pymc as pm
    import pytensor.tensor as pt

    import pymc_discrete as pmd

    X = np.random.default_rng(3).normal(size=(N, P)) + np.random.default_rng(4).normal(size=(N, 1))
    for _ in range(replicates):
        true = {"s": abs(r.normal(0, 1.0)), "w": r.beta(2, 3), "b": r.normal(0, 1.5, P)}
        true["g"] = (r.random(P) < true["w"]).astype(int)
        y = X @ (true["g"] * true["b"]) + true["s"] * r.normal(size=N)
        with pm.Model() as model:
            s, w = pm.HalfNormal("s", 1.0), pm.Beta("w", 2, 3)
            g, b = pm.Bernoulli("g", w, shape=P), pm.Normal("b", 0, 1.5, shape=P)
            pm.Normal("y", pt.dot(X, g * b), s, observed=y)
        draws = sampled(model, step=pmd.BlockGibbs(["g"], integrate=["b"], model=model))
        yield regression_summaries(draws), regression_summaries(true)


def regression_summaries(a):
    return {
        "s": a["s"],
        "w": a["w"],
        "number active": a["g"].sum(-1),
        "first indicator": a["g"][..., 0],
        "first effect": a["g"][..., 0] * a["b"][..., 0],
        "sum of effects": (a["g"] * a["b"]).sum(-1),
    }


def mixtures_of_counts(r, replicates):
    """N-mixtures, the counts summed out."""
    import pymc as pm

    true = {"lam": r.gamma(4.0, 1.0, replicates), "p": r.beta(3, 3, replicates)}
    true["N"] = r.poisson(true["lam"][:, None], (replicates, SITES))
    y = r.binomial(true["N"][..., None], true["p"][:, None, None], size=(replicates, SITES, VISITS))
    with pm.Model() as model:
        lam, p = pm.Gamma("lam", 4, 1, shape=replicates), pm.Beta("p", 3, 3, shape=replicates)
        counts = pm.Poisson("N", lam[:, None], shape=(replicates, SITES), initval=y.max(2) + 1)
        pm.Binomial("y", counts[..., None], p[:, None, None], observed=y)
    draws = count_summaries({k: np.moveaxis(v, 0, -1) for k, v in sampled(model, collapse=True).items()})
    truth = count_summaries(true)
    for n in range(replicates):
        yield {k: v[n] for k, v in draws.items()}, {k: v[n] for k, v in truth.items()}


def count_summaries(a):
    return {"lam": a["lam"], "p": a["p"], "total N": a["N"].sum(1), "N of a site": a["N"][:, 0]}


def sampled(model, **options):
    """{variable: its draws}"""
    import pymc_discrete as pmd

    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    tree = pmd.sample((RANKS - 1) * THIN, tune=TUNE, chains=1, model=model, thin=THIN, **quiet, **options)
    return {v: a.values[0] for v, a in tree["posterior"].data_vars.items()}


# ---------------------------------------------------------------- errors to be found
@contextlib.contextmanager
def prior_of_the_wrong_sign():
    """The normaliser of the coefficients' prior has the wrong sign in the log odds of their indicators."""
    import jax.numpy as jnp

    from pymc_discrete.differences.parts import swept
    from pymc_discrete.engine import discrete

    gain = swept.gain

    def wrong(tableau, gates, prior):
        of_prior = 0.5 * (prior.linear**2 / prior.precision - jnp.log(prior.precision))
        return gain(tableau, gates, prior) + 2 * jnp.where(gates != 0, of_prior, 0.0).sum()

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(swept, "gain", wrong))
        # which would find the error before the first draw
        patches.enter_context(mock.patch.object(discrete, "check_start"))
        yield


def without_a_value():
    """One value of each site is left out of the sum."""
    import jax.numpy as jnp

    from pymc_discrete.collapse.sums import Sums

    tables = Sums.tables

    def wrong(self, context, stretches=None):
        *others, inside = tables(self, context, stretches)
        values, _ = self.summed_values(stretches)
        return [*others, jnp.where(values == 5, -jnp.inf, inside)]

    return mock.patch.object(Sums, "tables", wrong)


MODELS = {
    "spike-and-slab": (regressions, prior_of_the_wrong_sign),
    "N-mixture": (mixtures_of_counts, without_a_value),
}


# ---------------------------------------------------------------- rows
def measure(args, model, planted):
    data_sets, error = MODELS[model]
    r, ranks, begin = np.random.default_rng(7), [], time.perf_counter()
    with error() if planted else contextlib.nullcontext():
        for draws, true in data_sets(r, args.replicates):
            below = {k: np.count_nonzero(v < true[k]) for k, v in draws.items()}
            # of draws that are equal to the truth, each number below it is equally likely
            ties = {k: np.count_nonzero(v == true[k]) for k, v in draws.items()}
            ranks.append({k: int(below[k] + r.integers(ties[k] + 1)) for k in draws})
    values = {k: np.array([rank[k] for rank in ranks]) for k in ranks[0]}
    return {
        "replicates": args.replicates,
        "seconds": time.perf_counter() - begin,
        "p": {k: p_of(v) for k, v in values.items()},
        "mean rank": {k: float(v.mean()) for k, v in values.items()},
    }


def p_of(ranks):
    """The p value of uniform ranks 0..99, by a chi-squared test in bins of equal size."""
    from scipy import stats

    found = np.bincount(ranks * BINS // RANKS, minlength=BINS)
    return float(stats.chisquare(found).pvalue)


def rows(args, records):
    for model in args.models:
        for planted in (False, True):
            yield harness.Row({"model": model, "planted": planted})


def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--replicates", type=int, default=500)
    p.add_argument("--limit", type=float, default=1800, help="seconds for a row")


def verdict(record):
    """Whether uniform ranks are refused at a level of 1e-3 for all summaries of a row together."""
    return min(record["p"].values()) * len(record["p"]) < SMALLEST_P


def progress(r):
    return f"{'not uniform' if verdict(r) else 'uniform'}, {r['seconds']:.0f} s, {r['p']}"


def markdown(args, records):
    lines = []
    for r in records:
        what = MODELS[r["model"]][1].__doc__.splitlines()[0] if r["planted"] else "none"
        if r["status"] != "ok":
            lines.append([r["model"], what, r["reason"][:80]])
            continue
        worst = min(r["p"], key=r["p"].get)
        found = "not uniform" if verdict(r) else "uniform"
        lines.append([r["model"], what, r["replicates"], found, f"{r['p'][worst]:.2g}", worst])
    columns = ["model", "planted error", "replicates", "ranks", "smallest p", "of"]
    return "\n".join(
        ["# Calibration", "", *harness.origins(records), "", *harness.table(columns, lines), "", FOOTNOTE, ""]
    )


FOOTNOTE = f"""- {RANKS - 1} draws after thinning by {THIN}, {TUNE} of tuning; chi-squared, {BINS} bins.
  Not uniform: the smallest p times the number of summaries is below {SMALLEST_P:g}."""


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__, rows, measure, markdown, progress, options, short={"replicates": 20, "limit": 300}
        )
    )
