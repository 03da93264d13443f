"""Log partition functions (PMP, section 5.2): the mean perturbed maximum against exact values.

python -m benchmarks.experiments.log_partition [--short]

Periodic square lattices of spins, log density 0.1 sum over edges of s_i s_j, and fully connected ones, sum
w_ij s_i s_j + sum b_i s_i with w uniform in [-2, 2] and b in [-0.1, 0.1]. An estimate is an upper bound where
max-product finds the maximum.
"""

import itertools
from functools import partial

import jax
import numpy as np
from scipy.special import logsumexp

from benchmarks.experiments import report
from pymc_discrete import FactorGraph, Space
from pymc_discrete.factor_graphs import SUM, Pairwise, Quadratic, bethe_log_partition, pmp, run

SIDES, COUPLING, SWEEPS = (5, 10, 15), 0.1, 200
SIZES, GRAPHS = (5, 10, 15), 100


def main():
    args = report.arguments(__doc__, [], steps=1000, chains=1, seconds=0)
    draws, graphs = (100, 5) if args.short else (args.steps, GRAPHS)
    table = report.Table("log_partition", args)
    for side in SIDES[:2] if args.short else SIDES:
        exact, each = [kaufman(side, side, COUPLING)], [lattice(side)]
        for name, estimate in ESTIMATES.items():
            table.add(f"lattice {side}x{side}", name, partial(measured, estimate, each, exact, draws))
    for n in SIZES[:2] if args.short else SIZES:
        arrays = [connected(n, seed) for seed in range(graphs)]
        exact = [enumerated(w, b) for w, b in arrays]
        each = [spins(n, w, b) for w, b in arrays]
        for name, estimate in {**ESTIMATES, "exact maximum": by_true_maxima}.items():
            models = arrays if estimate is by_true_maxima else each
            make_row = partial(measured, estimate, models, exact, draws)
            table.add(f"fully connected, {n} spins", name, make_row)
    table.write(
        "Log partition functions",
        [
            f"PMP: the mean of the perturbed log density at its maximum as found by {SWEEPS} sweeps, over "
            f"{draws} draws. Bethe: {SWEEPS} sweeps of sum-product. Exact maximum: as PMP, the maxima found "
            "by enumeration.",
            f"Lattices: one model; fully connected: {graphs} models. Exact: Kaufman's formula, and "
            "enumeration.",
            "error: estimate less exact log Z, nats, mean over the models, and its standard deviation over "
            "them; se: Monte Carlo error of the mean. An upper bound has no negative error.",
        ],
    )
    table.figure(draw, columns=2)


# ---------------------------------------------------------------- models
def lattice(side):
    space = Space.build({"x": (0, 1)}, shapes={"x": (side, side)})
    x, alike = space.numbers("x"), COUPLING * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return FactorGraph(space, [Pairwise(x, np.roll(x, 1, axis), alike) for axis in (0, 1)])


def connected(n, seed):
    r = np.random.default_rng(seed)
    return np.triu(r.uniform(-2, 2, size=(n, n)), 1), r.uniform(-0.1, 0.1, size=n)


def spins(n, w, b):
    space = Space.build({"x": (0, 1)}, shapes={"x": (n,)})
    return FactorGraph(
        space, [Quadratic(np.arange(n), w + w.T, values=(-1, 1))], {"x": np.stack([-b, b], axis=1)}
    )


# ---------------------------------------------------------------- exact values
def every(w, b):
    """All states and their log densities."""
    s = np.array(list(itertools.product((-1, 1), repeat=len(b))))
    return s, ((s @ w) * s).sum(1) + s @ b


def enumerated(w, b):
    return logsumexp(every(w, b)[1])


def kaufman(n, m, K):
    """log Z of the periodic n x m lattice with coupling K (Kaufman 1949, Eq. 69)."""
    r = np.arange(2 * n)
    gamma = np.arccosh(np.cosh(2 * K) / np.tanh(2 * K) - np.cos(np.pi * r / n))
    gamma[0] = 2 * K + np.log(np.tanh(K))  # the only one that may be negative
    odd, even = m * gamma[1::2] / 2, m * gamma[::2] / 2
    log_cosh = lambda a: np.log(2 * np.cosh(a)).sum()
    log_sinh = lambda a: np.log(2 * np.abs(np.sinh(a))).sum()
    sign = [1, 1, 1, np.sign(np.sinh(even)).prod()]
    terms = [log_cosh(odd), log_sinh(odd), log_cosh(even), log_sinh(even)]
    return -np.log(2) + n * m / 2 * np.log(2 * np.sinh(2 * K)) + logsumexp(terms, b=sign)


# ---------------------------------------------------------------- estimates
def by_maxima(graphs, draws):
    """(models,) estimates, and their Monte Carlo errors."""

    @jax.jit
    def values(graph, keys):
        return jax.lax.map(lambda key: pmp(key, graph, n_sweeps=SWEEPS).value, keys, batch_size=50)

    keys = [jax.random.split(jax.random.key(n), draws) for n in range(len(graphs))]
    maxima = np.array([values(g, k) for g, k in zip(alike(graphs), keys, strict=True)])
    return maxima.mean(1), maxima.std(1) / np.sqrt(draws)


def by_true_maxima(models, draws):
    """As `by_maxima`, with maxima by enumeration, of models (w, b)."""
    maxima = np.empty((len(models), draws))
    for n, (w, b) in enumerate(models):
        (s, density), r = every(w, b), np.random.default_rng(n)
        gumbel = r.gumbel(-np.euler_gamma, 1, size=(2, len(b), draws))
        on = s > 0
        pairs = zip(gumbel[0].T, gumbel[1].T, strict=True)
        maxima[n] = [np.max(density + on @ g1 + ~on @ g0) for g0, g1 in pairs]
    return maxima.mean(1), maxima.std(1) / np.sqrt(draws)


def by_bethe(graphs, draws):
    value = jax.jit(lambda graph: bethe_log_partition(graph, run(graph, SUM, n_sweeps=SWEEPS)))
    return np.array([value(g) for g in alike(graphs)]), np.zeros(len(graphs))


def alike(graphs):
    """The graphs, all with the tree structure of the first, so that programs are compiled once."""
    tree = jax.tree.structure(graphs[0])
    return [jax.tree.unflatten(tree, jax.tree.leaves(g)) for g in graphs]


ESTIMATES = {"PMP": by_maxima, "Bethe": by_bethe}


def measured(estimate, graphs, exact, draws):
    estimates, se = estimate(graphs, draws)
    error = estimates - np.array(exact)
    return {
        "exact": float(np.mean(exact)),
        "error": error.mean(),
        "sd over models": error.std(),
        "se": np.sqrt((se**2).sum()) / len(se),
        "smallest": error.min(),
        "largest": error.max(),
    }


def draw(axes, rows):
    for ax, kind in zip(axes, ("lattice", "fully"), strict=True):
        for name in (*ESTIMATES, "exact maximum"):
            mine = [r for r in rows if r["setting"].startswith(kind) and r["sampler"] == name]
            if not mine:
                continue
            at = [int("".join(c for c in r["setting"].split("x")[0] if c.isdigit())) for r in mine]
            ax.errorbar(
                at,
                [r["error"] for r in mine],
                [r["sd over models"] for r in mine],
                marker="o",
                ms=4,
                capsize=3,
                label=name,
            )
        ax.axhline(0, color="k", lw=0.6)
        ax.set(
            title="periodic lattice" if kind == "lattice" else "fully connected",
            xlabel="side or spins",
            ylabel="error of log Z, nats",
        )


if __name__ == "__main__":
    main()
