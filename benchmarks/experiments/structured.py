"""Learning structured Ising models (PMP, section 5.4): quality of samples over the sweeps in training and
sampling.

python -m benchmarks.experiments.structured [--short]

There are two true models: a random graph of 200 spins with 4 neighbours on average and weights from N(0,
0.25), and a periodic 25x25 lattice with weights -0.1. Weights count twice, as in Grathwohl et al. 2021. A
general Ising model is learned from 2000 draws of each by Gibbs sampling, with an l1 penalty of 0.01; chains
start anew in every iteration. One sweep is as many updates of single sites as there are sites. A step of
DMALA, which proposes all sites at once, counts as one sweep.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report
from pymc_discrete import kernels, learning
from pymc_discrete.factor_graphs import FactorGraph, Pairwise

SWEEPS, DATA, DRAWS, AT_ONCE = (1, 3, 10, 30), 2000, 500, 50
CHAINS, ITERATIONS, RATE, L1 = {"ER": 100, "lattice": 20}, {"ER": 300, "lattice": 150}, 0.003, 0.01
LONGEST = {("lattice", "GWG"): 10}  # sweeps; 30 would take an hour
STEP_SIZE = 0.2  # of DMALA; its acceptance here is 0.7


def sampler(name, sweeps, n):
    # the log density is linear in every spin, so that the gradient gives exact differences
    options = {"start": "uniform", "differences": "gradient"}
    if name == "PMP":
        return learning.PMP(n_sweeps=sweeps)
    if name == "Gibbs":
        return learning.ContrastiveDivergence(*kernels.block_gibbs(), sweeps, start="uniform")
    if name == "GWG":
        return learning.ContrastiveDivergence(*kernels.gibbs_with_gradients(), sweeps * n, **options)
    return learning.ContrastiveDivergence(*kernels.discrete_langevin(step_size=STEP_SIZE), sweeps, **options)


NAMES = ("Gibbs", "GWG", "DMALA", "PMP")


def main():
    args = report.arguments(__doc__, [], steps=1000, chains=0, seconds=0)
    table = report.Table("structured", args)
    for kind, (weights, bias) in {"ER": erdos_renyi(), "lattice": lattice(5 if args.short else 25)}.items():
        data = draws_of(weights, bias, args.steps)
        floor = log_mmd(draws_of(weights, bias, args.steps, seed=1)[:DRAWS], data)
        for sweeps in SWEEPS[:2] if args.short else SWEEPS:
            for name in NAMES:
                if sweeps <= LONGEST.get((kind, name), sweeps):
                    iterations = 5 if args.short else ITERATIONS[kind]
                    make_row = partial(learned, name, sweeps, iterations, CHAINS[kind], weights, data, floor)
                    table.add(f"{kind}, {sweeps} sweeps", name, make_row)
    table.write(
        "Learning structured Ising models",
        [
            f"log MMD^2 of {DRAWS} draws of what was learned, by the same sampler with as many sweeps, to "
            f"the {DATA} it was learned from; floor: of as many draws of the truth. RMSE of all weights.",
            f"{report.listed(CHAINS)} chains; Adam with rates from {RATE} down to 0; "
            f"{report.listed(ITERATIONS)} iterations (the paper: 1000, rate 0.001).",
            "train s, draw s: seconds of learning and of drawing, compiling included and excluded.",
        ],
    )
    table.figure(draw, columns=4, size=(4.0, 4.0))


# ---------------------------------------------------------------- true models
def erdos_renyi(n=200, neighbours=4):
    r = np.random.default_rng(0)
    on = np.triu(r.random((n, n)) < neighbours / (n - 1), 1)
    upper = np.where(on, r.normal(0, 0.5, size=(n, n)), 0.0)
    return upper + upper.T, np.full(n, 0.1)


def lattice(side, theta=-0.1):
    number = np.arange(side * side).reshape(side, side)
    weights = np.zeros((side * side, side * side))
    for axis in (0, 1):
        weights[number.ravel(), np.roll(number, 1, axis).ravel()] = theta
    return weights + weights.T, np.zeros(side * side)


def draws_of(weights, bias, sweeps, seed=0):
    """(DATA, n) int, the last states of chains of Gibbs sampling with log density s'Ws + b's."""
    n = len(bias)
    a, b = np.nonzero(np.triu(weights, 1))
    tables = 2 * weights[a, b][:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    graph = FactorGraph(
        learning.Ising(n).space, [Pairwise(a, b, tables)], {"x": np.stack([-bias, bias], axis=1)}
    )
    chains = learning.ContrastiveDivergence(*kernels.block_gibbs(), sweeps, start="uniform")
    kept = chains.begin(jax.random.key(seed), graph, DATA)
    return jax.jit(lambda key: chains.draw(key, graph, kept, DATA)[0])(jax.random.key(seed))


# ---------------------------------------------------------------- learning
def learned(name, sweeps, iterations, many, weights, data, floor):
    """A row; `many` chains in learning."""
    n = len(weights)
    model, chains = learning.Ising(n), sampler(name, sweeps, n)
    rate = optax.cosine_decay_schedule(RATE, iterations)
    zeros = jax.tree.map(jnp.zeros_like, model.start(jax.random.key(0)))
    begin = time.perf_counter()
    options = {"iterations": iterations, "chains": many, "batch": DATA // 10, "l1": L1, "params": zeros}
    fit = jax.block_until_ready(
        learning.fit(model, {"x": np.asarray(data)}, sampler=chains, optimizer=optax.adam(rate), **options)
    )
    train = time.perf_counter() - begin
    x, seconds = timed_draws(chains, model.graph(fit.params))
    rmse = np.sqrt(np.mean((np.asarray(model.matrix(fit.params)) / 2 - weights) ** 2))
    return {
        "log MMD^2": log_mmd(x, data),
        "floor": floor,
        "RMSE": rmse,
        "train s": train,
        "draw s": seconds,
        "sweeps": sweeps,
    }


def timed_draws(chains, graph, draws=DRAWS):
    """(draws, n) int, and the seconds of drawing."""

    def some(key, graph):
        return chains.draw(key, graph, chains.begin(key, graph, AT_ONCE), AT_ONCE)[0]

    def draw(key, graph):
        return jnp.concatenate(jax.lax.map(lambda k: some(k, graph), jax.random.split(key, draws // AT_ONCE)))

    draw = jax.jit(draw).lower(jax.random.key(0), graph).compile()
    begin = time.perf_counter()
    x = jax.block_until_ready(draw(jax.random.key(1), graph))
    return x, time.perf_counter() - begin


def log_mmd(x, data):
    return float(np.log(learning.squared_mmd(x, data)))


def draw(axes, rows):
    for n, kind in enumerate(("ER", "lattice")):
        for ax, what in zip(axes[2 * n :], ("log MMD^2", "RMSE"), strict=False):
            for name in NAMES:
                mine = [r for r in rows if r["setting"].startswith(kind) and r["sampler"] == name]
                if mine:
                    ax.plot([r["sweeps"] for r in mine], [r[what] for r in mine], "o-", ms=4, label=name)
                    if what == "log MMD^2":
                        ax.axhline(mine[0]["floor"], color="k", ls=":", lw=0.8)
            ax.set(title=kind, xscale="log", xlabel="sweeps", ylabel=what)


if __name__ == "__main__":
    main()
