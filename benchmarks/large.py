"""Seconds and memory of whole calls for large models: up to a million rows.

python -m benchmarks.large --out benchmarks/results/NAME-large [--models mixture --sizes 10000 100000]

4 chains of 500 tuning draws and 500 draws, everything else as it is by default. A pass is NumPy's evaluation
of the model's log density once, with the labels summed out where `pmd.sample` sums them out. Every row has a
process of its own, without compiled programs on disk.
"""

import os
import resource
import time

import numpy as np

from benchmarks import harness

DRAWS = {"draws": 500, "tune": 500, "chains": 4}


# ---------------------------------------------------------------- models
def mixture(n):
    """Mixture of three normal distributions, means and weights unknown."""
    import pymc as pm

    rng = np.random.default_rng(1)
    centre = np.array([-3.0, 0.0, 3.5])
    y = rng.normal(centre[rng.choice(3, n, p=[0.3, 0.5, 0.2])], 1.0)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", 0, 5, shape=3, initval=centre)
        z = pm.Categorical("z", p=w, shape=n)
        pm.Normal("y", mu[z], 1.0, observed=y)

    def one_pass():
        return np.log(np.exp(-0.5 * (y[:, None] - centre) ** 2) @ np.array([0.3, 0.5, 0.2])).sum()

    return model, one_pass


def occupancy(n):
    """Site occupancy with a covariate, four visits to each site."""
    import pymc as pm

    rng = np.random.default_rng(2)
    x = rng.normal(size=n)
    z = rng.random(n) < 1 / (1 + np.exp(-(0.3 + 0.8 * x)))
    y = rng.binomial(4, 0.4 * z)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1.5)
        b = pm.Normal("b", 0, 1.5)
        p = pm.Beta("p", 1, 1)
        occupied = pm.Bernoulli("occupied", logit_p=a + b * x, shape=n)
        pm.Binomial("y", n=4, p=p * occupied, observed=y)

    def one_pass():
        psi = 1 / (1 + np.exp(-(0.3 + 0.8 * x)))
        return np.log(psi * 0.4**y * 0.6 ** (4 - y) + (1 - psi) * (y == 0)).sum()

    return model, one_pass


def ising(n):
    """Spins on a square lattice of n sites, coupling 0.3."""
    import pymc as pm

    side = round(n**0.5)
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(side, side))
        s = 2 * x - 1
        pm.Potential("energy", 0.3 * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()))

    s = 2 * np.random.default_rng(3).integers(0, 2, (side, side)) - 1

    def one_pass():
        return 0.3 * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum())

    return model, one_pass


def hidden_markov(n):
    """Hidden Markov chain of n steps with three states, means and transition probabilities unknown."""
    import pymc as pm

    rng = np.random.default_rng(4)
    p = np.array([[0.9, 0.07, 0.03], [0.05, 0.9, 0.05], [0.02, 0.08, 0.9]])
    uniform, z = rng.random(n), np.zeros(n, int)
    steps = p.cumsum(1)
    for t in range(1, n):
        z[t] = np.searchsorted(steps[z[t - 1]], uniform[t])
    centre = np.array([-2.0, 0.0, 2.5])
    y = rng.normal(centre[z], 1.0)
    with pm.Model() as model:
        rows = pm.Dirichlet("rows", np.ones((3, 3)))
        mu = pm.Normal("mu", 0, 5, shape=3, initval=centre)
        states = pm.Categorical("states", p=np.ones(3) / 3, shape=n)
        pm.Potential("transitions", pm.math.log(rows[states[:-1], states[1:]]).sum())
        pm.Normal("y", mu[states], 1.0, observed=y)

    f = np.exp(-0.5 * (y[:, None] - centre) ** 2)

    def one_pass():
        total, a = 0.0, f[0] / 3
        for row in f[1:]:
            a = (a @ p) * row
            size = a.sum()
            total += np.log(size)
            a = a / size
        return total

    return model, one_pass


def n_mixture(n):
    """Counts of animals at n sites in three visits, abundance with a covariate."""
    import pymc as pm

    rng = np.random.default_rng(5)
    x = rng.normal(size=n)
    abundance = rng.poisson(np.exp(1 + 0.5 * x))
    y = rng.binomial(abundance[:, None], 0.4, (n, 3))
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1.5)
        b = pm.Normal("b", 0, 1.5)
        p = pm.Beta("p", 1, 1)
        abundances = pm.Poisson("abundances", pm.math.exp(a + b * x), shape=n)
        pm.Binomial("y", n=abundances[:, None], p=p, observed=y)

    from scipy.stats import binom, poisson

    def one_pass():
        return (
            poisson.logpmf(abundance, np.exp(1 + 0.5 * x)).sum()
            + binom.logpmf(y, abundance[:, None], 0.4).sum()
        )

    return model, one_pass


MODELS = {
    "mixture": (mixture, (10_000, 100_000, 1_000_000)),
    "occupancy": (occupancy, (10_000, 100_000, 1_000_000)),
    "ising": (ising, (10_000, 100_000, 1_000_000)),
    "hidden_markov": (hidden_markov, (10_000, 100_000, 1_000_000)),
    "n_mixture": (n_mixture, (1_000, 10_000, 100_000)),
}


# ---------------------------------------------------------------- measurements
def most_resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kB


def measure(args, model, size):
    import pymc_discrete as pmd

    built, one_pass = MODELS[model][0](size)
    before, begin = most_resident(), time.perf_counter()
    firsts = []

    def first(draws, done):
        firsts.append(time.perf_counter())

    with built:
        tree = pmd.sample(**DRAWS, random_seed=1, progressbar=False, callback=first)
    seconds, most = time.perf_counter() - begin, most_resident()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        one_pass()
        times.append(time.perf_counter() - start)
    return {
        "seconds": seconds,
        "sampling": tree["posterior"].attrs["sampling_time"],
        "after": begin + seconds - firsts[-1],
        "before_bytes": before,
        "most_bytes": most,
        "draws_bytes": int(tree["posterior"].nbytes),
        "result_bytes": int(tree.nbytes),
        "pass": min(times),
        "cores": len(os.sched_getaffinity(0)),
        "steps": tree["posterior"].attrs["steps"],
        "n_steps": float(tree["sample_stats"]["n_steps"].mean()) if "n_steps" in tree["sample_stats"] else 0,
    }


def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--sizes", nargs="+", type=int, help="rows or sites, in place of the models' own")
    p.add_argument("--limit", type=float, default=1800, help="seconds for a row")


def rows(args, records):
    for model in args.models:
        for size in args.sizes or MODELS[model][1]:
            with harness.empty_pytensor_cache() as env:
                yield harness.Row({"model": model, "size": size}, env)


def progress(r):
    return f"{r['seconds']:.0f} s, {r['most_bytes'] / 2**20:,.0f} MB"


# ---------------------------------------------------------------- tables
COLUMNS = [
    "model", "rows", "s in all", "sampling", "after it", "MB at most", "MB of draws", "one pass, ms",
    "evaluations a transition", "passes an evaluation",
]  # fmt: skip


def markdown(args, records):
    lines = []
    for r in records:
        if r["status"] != "ok":
            lines.append([r["model"], f"{r['size']:,}", f"{r['status']}: {r['reason']}"])
            continue
        sizes = [f"{r[key] / 2**20:,.0f}" for key in ("most_bytes", "draws_bytes")]
        evaluations = max(r["n_steps"], 1.0)
        transitions = DRAWS["chains"] * (DRAWS["draws"] + DRAWS["tune"])
        each = r["cores"] * r["sampling"] / (transitions * evaluations) / r["pass"]
        seconds = [f"{r[key]:.1f}" for key in ("seconds", "sampling", "after")]
        last = [f"{1000 * r['pass']:.2g}", f"{evaluations:.1f}", f"{each:.1f}"]
        lines.append([r["model"], f"{r['size']:,}", *seconds, *sizes, *last])
    return "\n".join(
        [
            "## Large models, whole calls of pmd.sample",
            "",
            *harness.origins(records),
            "4 chains of 500 + 500 draws by default. Sampling: what the log says, tuning included. An",
            "evaluation is that of the log density with its gradient in NUTS, else the moves of a draw; the",
            "draw of the discrete unknowns counts with it. Passes an evaluation: processor seconds of one in",
            "those of NumPy's pass.",
            "",
            *harness.table(COLUMNS, lines),
            "",
        ]
    )


SHORT = {"sizes": [500]}

if __name__ == "__main__":
    harness.main(harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT))
