"""Many data sets of one model: a flow that is trained once, with weights and without, beside sampling each.

python -m benchmarks.flow_amortised --out benchmarks/results/NAME-flow-amortised

Data sets are drawn from the model with their unknowns. In the draws of a right posterior the rank of the true
value is uniform. Each model in a process of its own, on one core.
"""

import time

import numpy as np

from benchmarks import harness

DRAWS = 500  # of the flow, for each data set
RANKS, BINS, SMALLEST_P = 100, 20, 1e-3
CHAINS, TUNE = 4, 200  # of pmd.sample
TRUSTED = 0.7

LEVELS = np.linspace(-4, 4, 9)
RATES = np.geomspace(0.3, 10, 12)
YEARS, POINTS = 40, 12


# ---------------------------------------------------------------- models, all of whose unknowns are discrete
def mixture(y=None):
    """Labels of 12 points of two classes, and the classes' means, on a grid of nine levels."""
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        level = pm.Categorical("level", np.ones(9) / 9, shape=2)
        z = pm.Bernoulli("z", 0.4, shape=POINTS)
        pm.Normal("y", pt.as_tensor(LEVELS)[level][z], 1, observed=np.zeros(POINTS) if y is None else y)
    return model


def mixture_summaries(a):
    first, second = LEVELS[a["level"][:, 0]], LEVELS[a["level"][:, 1]]
    same = (a["z"][:, :1] == a["z"]).sum(1)
    return {"first mean": first, "second mean": second, "with the first point": same, "ones": a["z"].sum(1)}


def changepoint(y=None):
    """When the rate of yearly counts changes, from one of 12 rates to another, in 40 years."""
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        change = pm.DiscreteUniform("change", 0, YEARS - 1)
        before, after = (pm.Categorical(name, np.ones(12) / 12) for name in ("before", "after"))
        rates = pt.as_tensor(RATES)
        rate = pt.switch(np.arange(YEARS) < change, rates[before], rates[after])
        pm.Poisson("y", rate, observed=np.zeros(YEARS, int) if y is None else y)
    return model


def changepoint_summaries(a):
    return {"change": a["change"], "before": a["before"], "after": a["after"]}


MODELS = {"mixture": (mixture, mixture_summaries), "changepoint": (changepoint, changepoint_summaries)}


# ---------------------------------------------------------------- rows
def measure(args, model):
    import pymc as pm

    import pymc_discrete as pmd

    build, summaries = MODELS[model]
    built = build()
    begin = time.process_time()
    flow = pmd.fit_flow(
        built, given=["y"], pairs=args.pairs, iterations=args.iterations, steps=args.steps,
        random_seed=1, progressbar=False,
    )  # fmt: skip
    fit_seconds = time.process_time() - begin
    names = [*flow.flow.names, "y"]
    truths = dict(
        zip(names, pm.draw([built[n] for n in names], draws=args.data_sets, random_seed=2), strict=True)
    )
    r, ranks, khats, shares, seconds = np.random.default_rng(3), {"flow": [], "weighted": []}, [], [], []
    members = flow.flow.space.members
    for n in range(args.data_sets):
        begin = time.process_time()
        found = flow.log_partition({"y": truths["y"][n]}, DRAWS, seed=n)
        seconds.append(time.process_time() - begin)
        p = np.exp(found.log_weights - found.log_weights.max())
        khats.append(found.khat)
        shares.append(found.ess / DRAWS)
        truth = summaries({m.name: truths[m.name][n][None] for m in members})
        for way, weights in (("flow", np.ones(DRAWS)), ("weighted", p)):
            x = found.x[r.choice(DRAWS, RANKS - 1, p=weights / weights.sum())]
            drawn = summaries(
                {m.name: x[:, m.start : m.start + m.size].reshape(-1, *m.shape) for m in members}
            )
            ranks[way].append({k: rank_of(r, v, truth[k][0]) for k, v in drawn.items()})
    return {
        "data_sets": args.data_sets,
        "fit_seconds": fit_seconds,
        "first_seconds": seconds[0],
        "seconds": float(np.median(seconds[1:])),
        "sample_seconds": sampling(args, build, truths["y"]),
        "trusted": float(np.mean(np.array(khats) < TRUSTED)),
        "ess_share": float(np.median(shares)),
        "p": {way: {k: p_of([rank[k] for rank in of]) for k in of[0]} for way, of in ranks.items()},
    }


def rank_of(r, drawn, true):
    """The rank of the truth among draws; of draws that are equal to it, each number below is as likely."""
    return int((drawn < true).sum() + r.integers((drawn == true).sum() + 1))


def p_of(ranks):
    """The p value of uniform ranks 0..99, by a chi-squared test in bins of equal size."""
    from scipy import stats

    return float(stats.chisquare(np.bincount(np.array(ranks) * BINS // RANKS, minlength=BINS)).pvalue)


def sampling(args, build, data):
    """Median seconds of pmd.sample for one data set after the first, which compiles."""
    import pymc_discrete as pmd

    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    seconds = []
    for y in data[: args.sampled]:
        model = build(y)
        begin = time.process_time()
        pmd.sample(DRAWS, tune=TUNE, chains=CHAINS, model=model, **quiet)
        seconds.append(time.process_time() - begin)
    return float(np.median(seconds[1:]))


def rows(args, records):
    return [harness.Row({"model": model}) for model in args.models]


def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--data-sets", type=int, default=200)
    p.add_argument("--pairs", type=int, default=20_000)
    p.add_argument("--iterations", type=int, default=5000)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--sampled", type=int, default=6, help="data sets that are sampled, too")
    p.add_argument("--limit", type=float, default=600, help="seconds for a row")


def progress(r):
    return (
        f"k-hat below {TRUSTED} for {r['trusted']:.0%}, {1e3 * r['seconds']:.0f} ms a data set, "
        f"{r['sample_seconds']:.2f} s by pmd.sample"
    )


# ---------------------------------------------------------------- table
COLUMNS = [
    "model", "data sets", "fit s", "s a data set", "s by pmd.sample", "k-hat below 0.7", "ESS share",
    "ranks of the flow", "ranks of weighted draws",
]  # fmt: skip


def verdict(p):
    """Whether uniform ranks are refused at a level of 1e-3 for all summaries together, and the smallest p."""
    worst = min(p, key=p.get)
    uniform = "uniform" if p[worst] * len(p) >= SMALLEST_P else "not uniform"
    return f"{uniform} (p = {p[worst]:.2g}, {worst})"


def markdown(args, records):
    lines, notes = [], []
    for r in records:
        if r["status"] != "ok":
            lines.append([r["model"], r["status"]])
            notes.append(f"- {r['model']}: {r['reason']}")
            continue
        lines.append(
            [
                r["model"],
                r["data_sets"],
                f"{r['fit_seconds']:.0f}",
                f"{r['seconds']:.3f}",
                f"{r['sample_seconds']:.2f}",
                f"{r['trusted']:.0%}",
                f"{r['ess_share']:.2f}",
                verdict(r["p"]["flow"]),
                verdict(r["p"]["weighted"]),
            ]
        )
    return "\n".join(
        [
            "## Many data sets of one model: an amortised flow",
            "",
            *harness.origins(records),
            "",
            *harness.table(COLUMNS, lines),
            "",
            *notes,
            FOOTNOTE,
        ]
    )


FOOTNOTE = f"""- mixture: labels of {POINTS} points of two classes, and the classes' means, on a grid of nine.
  changepoint: the year in which the rate of counts of {YEARS} years changes, and both rates, on a grid of 12.
- s a data set: {DRAWS} draws of the flow with their weights, the median after the first, which compiles.
  s by pmd.sample: {CHAINS} chains of {DRAWS} draws and {TUNE} of tuning, the same.
- ranks: of the true value among {RANKS - 1} draws, as the flow makes them and resampled by their weights;
  chi-squared in {BINS} bins. Not uniform: the smallest p times the number of summaries is below
  {SMALLEST_P:g}.
"""

if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__, rows, measure, markdown, progress, options, one_core=True,
            short={"data_sets": 12, "pairs": 500, "iterations": 50, "sampled": 2},
        )
    )  # fmt: skip
