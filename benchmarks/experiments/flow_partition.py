"""Log Z of discrete blocks: weighted draws of a flow, annealed importance sampling and exact sums.

python -m benchmarks.experiments.flow_partition [--only lattice] [--short]

A flow is fitted to draws of the posterior. Annealed importance sampling gets as many temperatures as fit into
the time in which the flow's draws are weighed, and into that time and the time of the flow's training.
"""

import itertools
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, logsumexp

import pymc_discrete as pmd
from benchmarks.experiments import report
from benchmarks.experiments.log_partition import kaufman
from pymc_discrete import learning

SIDE, COUPLING = 8, 0.6
COLUMNS, ROWS, INCLUDED = 14, 60, 0.2
YEARS, CHANGE, SHAPE, RATE = 40, 0.05, 2.0, 0.5
CHAINS, DRAWS, ITERATIONS, WEIGHED = 16, 500, 3000, 1000
RUNS, LONG_RUNS = 20, 4  # estimates of a row; of rows that take as long as the training
PILOT = 200  # temperatures of the run that is timed


def main():
    args = report.arguments(__doc__, [], steps=WEIGHED, chains=CHAINS, seconds=0)
    if args.short:
        args.only = args.only or ["changepoints"]
    table = report.Table("flow_partition", args)
    for name, build in MODELS.items():
        if args.only and name not in args.only:
            continue
        model, names, base, integrated, exact = build()
        target = pmd.target_from_model(model, names, integrate=integrated)
        exact = exact(target)
        flow, seconds = fitted(args, model, names, integrated)
        weigh = partial(by_flow, flow, target, args.steps)
        each = timed(weigh)
        row = partial(measured, exact, RUNS)
        table.add(name, "flow", partial(row, weigh, {"training s": seconds}))
        anneal = partial(by_annealing, target, base)
        pilot = timed(partial(anneal, PILOT))
        for way, runs, given in (
            ("annealed", RUNS, each),
            ("annealed, training's time too", LONG_RUNS, each + seconds),
        ):
            steps = max(int(PILOT * given / pilot), 2)
            table.add(name, way, partial(measured, exact, runs, partial(anneal, steps), {"steps": steps}))
    table.write(
        "Log Z of discrete blocks",
        [
            f"lattice: Ising, {SIDE} x {SIDE}, coupling {COUPLING}, Kaufman's formula. inclusion: "
            f"{COLUMNS} indicators of a regression whose coefficients are integrated out, two groups of "
            f"columns correlated, enumeration. changepoints: the years of {YEARS} in which a rate changes, "
            "rates integrated out by hand, a sum by forward recursion.",
            f"flow: {args.steps} weighted draws, fitted to {CHAINS} chains of {DRAWS} draws of BlockGibbs, "
            f"{ITERATIONS} iterations. annealed: 100 chains from the prior, BlockGibbs, steps as many as "
            "take the time of the weighted draws, or of these, the chains and the training.",
            f"error: root of the mean squared error of log Z over {RUNS} runs ({LONG_RUNS} of the longest); "
            "stated: their mean standard error, as reported. Seconds of the processor, of one estimate, "
            "compiling not counted; of training with it.",
        ],
    )


# ---------------------------------------------------------------- models
def lattice():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        s = 2 * pm.Bernoulli("x", 0.5, shape=(SIDE, SIDE)) - 1
        pm.Potential("energy", COUPLING * (s * (pt.roll(s, 1, 0) + pt.roll(s, 1, 1))).sum())
    log_z = kaufman(SIDE, SIDE, COUPLING) - SIDE**2 * np.log(2)
    return model, ["x"], None, None, lambda target: log_z


def inclusion():
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(3)
    X = r.normal(size=(ROWS, COLUMNS))
    X[:, 3:6] = X[:, :3] + 0.2 * r.normal(size=(ROWS, 3))
    y = X[:, :3].sum(1) + r.normal(size=ROWS)
    with pm.Model() as model:
        g = pm.Bernoulli("g", INCLUDED, shape=COLUMNS)
        b = pm.Normal("b", 0, 1, shape=COLUMNS)
        pm.Normal("y", pt.dot(X, g * b), 1, observed=y)
    return model, ["g"], {"g": [[1 - INCLUDED, INCLUDED]] * COLUMNS}, ["b"], enumerated


def enumerated(target):
    """log Z of a target over binary sites, by the sum over all of their states."""
    states = jnp.array(list(itertools.product((0, 1), repeat=target.space.d)))
    with target.density.running(traced=False):
        log_f = jax.jit(lambda x: jax.lax.map(target.logdensity, x, batch_size=1024))(states)
    return float(logsumexp(np.asarray(log_f)))


def changepoints():
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(4)
    y = r.poisson(np.repeat([6.0, 2.0, 5.0], [15, 13, 12]))
    with pm.Model() as model:
        change = pm.Bernoulli("change", CHANGE, shape=YEARS - 1)
        number = pt.concatenate([[0], pt.cumsum(change)])
        within = pt.eq(number[:, None], np.arange(YEARS))
        sums, sizes = y @ within, within.sum(0)
        log_m = pt.gammaln(sums + SHAPE) - (sums + SHAPE) * pt.log(sizes + RATE)
        pm.Potential("counts", (log_m + SHAPE * np.log(RATE) - gammaln(SHAPE)).sum())
    log_z = forward_sum(y)
    return model, ["change"], {"change": [[1 - CHANGE, CHANGE]] * (YEARS - 1)}, None, lambda target: log_z


def forward_sum(y):
    """The log of the sum over all sets of changes: over the last change before each year."""
    sums = np.concatenate([[0], np.cumsum(y)])
    log_until = np.full(len(y) + 1, -np.inf)
    log_until[0] = 0.0
    for end in range(1, len(y) + 1):
        begins = np.arange(end)
        n, total = end - begins, sums[end] - sums[begins]
        log_m = gammaln(total + SHAPE) - (total + SHAPE) * np.log(n + RATE)
        log_m += SHAPE * np.log(RATE) - gammaln(SHAPE) + (n - 1) * np.log1p(-CHANGE)
        log_m += np.where(begins > 0, np.log(CHANGE), 0.0)
        log_until[end] = logsumexp(log_until[begins] + log_m)
    return log_until[-1]


MODELS = {"lattice": lattice, "inclusion": inclusion, "changepoints": changepoints}


# ---------------------------------------------------------------- estimates
def fitted(args, model, names, integrated):
    """A flow, and the processor seconds of its draws and of its training."""
    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": args.seed}
    options = {"integrate": integrated} if integrated else {}
    begin = time.process_time()
    with model:
        step = pmd.BlockGibbs(names, **options)
        draws = pmd.sample(20 if args.short else DRAWS, tune=DRAWS, chains=args.chains, step=step, **quiet)
        iterations = 100 if args.short else ITERATIONS
        flow = pmd.fit_flow(
            vars=names, draws=draws, iterations=iterations, random_seed=args.seed, progressbar=False
        )
    return flow, time.process_time() - begin


def by_flow(flow, target, draws, seed):
    found = flow.log_partition(target, draws, seed=seed)
    return found.value, found.error


def by_annealing(target, base, steps, seed):
    found = learning.log_partition(target, base=base, temperatures=steps, seed=seed)
    return found.forward.value, found.forward.error


def timed(estimate):
    """Processor seconds of an estimate, compiling not counted."""
    estimate(seed=0)
    begin = time.process_time()
    estimate(seed=0)
    return time.process_time() - begin


def measured(exact, runs, estimate, more):
    """A row of estimates by `runs` seeds."""
    estimate(seed=0)
    begin = time.process_time()
    values, errors = np.array([estimate(seed=1 + n) for n in range(runs)]).T
    seconds = (time.process_time() - begin) / runs
    error = np.sqrt(((values - exact) ** 2).mean())
    return {"exact": exact, "error": error, "stated": errors.mean(), "seconds": seconds} | more


if __name__ == "__main__":
    main()
