"""A hundred data sets of one model in a loop, as in simulation-based calibration, with the programs compiled.

python -m benchmarks.data_sets --out benchmarks/results/NAME-data-sets

Each data set is simulated from parameters that are drawn from the prior, and put into a new model with the
same names. The rank of the parameter among draws of its posterior is uniform if the draws are right (Talts et
al. 2018); a chi-square statistic of the ranks shows it. A process for each model begins with empty caches.
"""

import time

import numpy as np

from benchmarks import harness

CHAINS, TUNE, DRAWS, BINS = 2, 500, 250, 10


# ---------------------------------------------------------------- models: rng -> (model, {name: true value})
def n_mixture(rng):
    """Counts at 30 sites, 3 visits each."""
    import pymc as pm

    rate, p = rng.gamma(4, 2), rng.beta(4, 4)
    N = rng.poisson(rate, 30)
    y = rng.binomial(N[:, None], p, (30, 3))
    with pm.Model() as model:
        rate_, p_ = pm.Gamma("rate", 4, 0.5), pm.Beta("p", 4, 4)
        N_ = pm.Poisson("N", rate_, shape=30, initval=y.max(1) + 1)
        pm.Binomial("y", n=N_[:, None], p=p_, observed=y)
    return model, {"rate": rate, "p": p}


def mixture(rng):
    """A Gaussian mixture of 100 points with two ordered means."""
    import pymc as pm

    mu = np.sort(rng.normal(0, 2, 2))
    y = mu[rng.integers(2, size=100)] + rng.normal(size=100)
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        mu_ = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=[-1.0, 1.0])
        z = pm.Bernoulli("z", 0.5, shape=100)
        pm.Normal("y", mu_[z], 1, observed=y)
    return model, {"mu": mu}


MODELS = {"N-mixture": n_mixture, "mixture": mixture}


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--data-sets", type=int, default=100)
    p.add_argument("--limit", type=float, default=1200, help="seconds for a row")


def rows(args, records):
    for model in args.models:
        with harness.empty_pytensor_cache() as env:
            yield harness.Row({"model": model}, env)


def measure(args, model):
    import jax

    import pymc_discrete as pmd

    compiled, seconds, programs, ranks = [], [], [], []

    def note(event, *_, **__):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    jax.monitoring.register_event_duration_secs_listener(note)
    rng, ties = np.random.default_rng(1), np.random.default_rng(2)
    processor = time.process_time()
    for n in range(args.data_sets):
        compiled.clear()
        begin = time.perf_counter()
        of_data, true = MODELS[model](rng)
        quiet = {"progressbar": False, "compute_convergence_checks": False}
        tree = pmd.sample(DRAWS, tune=TUNE, chains=CHAINS, model=of_data, random_seed=n, **quiet)
        seconds.append(time.perf_counter() - begin)
        programs.append(len(compiled))
        for name, value in true.items():
            draws = tree["posterior"][name].values[:, ::10]
            below, count = np.atleast_1d((draws < value).sum((0, 1))), np.prod(draws.shape[:2])
            # a uniform number makes the rank continuous
            ranks.extend(((below + ties.random(len(below))) / (count + 1)).tolist())
    counts = np.histogram(ranks, np.linspace(0, 1, BINS + 1))[0]
    expected = len(ranks) / BINS
    return {
        "seconds": seconds,
        "processor_seconds": time.process_time() - processor,
        "programs": programs,
        "chi_square": float(((counts - expected) ** 2 / expected).sum()),
    }


def progress(r):
    return f"{sum(r['seconds']):.1f} s, programs {r['programs'][0]} and then {sum(r['programs'][1:])}"


def markdown(args, records):
    columns = [
        "model", "data sets", "seconds in all", "of the first", "median of the others", "processor seconds",
        "programs: first data set", "all others", f"chi-square of ranks ({BINS - 1} degrees of freedom)",
    ]  # fmt: skip
    cells = [
        [
            r["model"],
            len(r["seconds"]),
            f"{sum(r['seconds']):.1f}",
            f"{r['seconds'][0]:.2f}",
            harness.spread(r["seconds"][1:]),
            f"{r['processor_seconds']:.1f}",
            r["programs"][0],
            sum(r["programs"][1:]),
            f"{r['chi_square']:.1f}",
        ]
        for r in records
        if r["status"] == "ok"
    ]
    failed = [f"- {r['model']}: {r['reason']}" for r in records if r["status"] != "ok"]
    lines = ["# Many data sets of one model", "", *harness.origins(records), ""]
    notes = [
        "",
        f"- pmd.sample with {CHAINS} chains, {TUNE} tuning draws and {DRAWS} draws of each data set, a new",
        "  model each time. Seconds include the simulation of the data and the making of the model.",
        "",
    ]
    return "\n".join([*lines, *harness.table(columns, cells), *notes, *failed])


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            short={"models": ["mixture"], "data_sets": 3},
        )
    )
