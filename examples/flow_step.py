"""Two sets of columns that explain the same: a posterior with two modes, ten changes apart.

Of 50 columns five explain the outcome together, and five others do as well: the sums of the two sets are
correlated 0.98. On the way from one set to the other lie selections that are 20 nats less probable, so that a
chain of local moves stays where it begins. A discrete flow, fitted to draws of chains from dispersed starts,
proposes whole selections, of which each is accepted or rejected exactly.

    python examples/flow_step.py [--draws 2000] [--short]
"""

import argparse
import logging
import time

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_discrete as pmd

SIZE = 5  # columns of a set


def columns(n: int = 100, p: int = 50, correlation: float = 0.98) -> tuple[np.ndarray, np.ndarray]:
    """The columns (n, p), of which the first two sets have sums that are correlated, and the outcome (n,)."""
    r = np.random.default_rng(1)
    X, ones = r.normal(size=(n, p)), np.full(SIZE, SIZE**-0.5)
    first, second = X[:, :SIZE] @ ones, X[:, SIZE : 2 * SIZE] @ ones
    wanted = correlation * first + np.sqrt(1 - correlation**2) * r.normal(size=n)
    X[:, SIZE : 2 * SIZE] += np.outer(wanted - second, ones)
    return X, first + wanted + r.normal(size=n)


def selection(X: np.ndarray, y: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        counts = pm.Bernoulli("counts", 0.1, shape=X.shape[1])
        effect = pm.Normal("effect", 0, 1, shape=X.shape[1])
        pm.Normal("y", pt.dot(X, counts * effect), 1, observed=y)
    return model


def report(what: str, idata, seconds: float) -> None:
    """The share of the first set in each chain, and the effective draws of it."""
    counts = idata["posterior"]["counts"].values
    first = 1.0 * (counts[..., :SIZE].sum(-1) > counts[..., SIZE : 2 * SIZE].sum(-1))
    moved = np.ptp(first, axis=1).any()
    ess = float(az.ess(first, method="mean")) if moved else 0.0
    shares = ", ".join(f"{share:.2f}" for share in first.mean(1))
    print(f"{what:28s} {shares}   {ess:7.0f} effective draws   {seconds:5.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws per chain")
    parser.add_argument("--short", action="store_true", help="few draws and iterations, for a test run")
    args = parser.parse_args()
    draws, iterations = (100, 200) if args.short else (args.draws, 3000)
    logging.getLogger("pymc.discrete").setLevel(logging.ERROR)  # what is said of chains that stay apart
    quiet = {"progressbar": False, "compute_convergence_checks": False}

    print(f"{'':28s} share of the first set in each chain")
    with selection(*columns()):
        local = pmd.BlockGibbs(["counts"], integrate=["effect"])
        begin = time.perf_counter()
        fitted_to = pmd.sample(draws, tune=draws // 2, chains=8, step=local, random_seed=1, **quiet)
        report("BlockGibbs, 8 chains", fitted_to, time.perf_counter() - begin)

        begin = time.perf_counter()
        flow = pmd.fit_flow(
            vars=["counts"], draws=fitted_to, iterations=iterations, random_seed=1, progressbar=False
        )
        print(f"fit of the flow              {time.perf_counter() - begin:.0f} s")

        begin = time.perf_counter()
        steps = [pmd.FlowStep(flow, integrate=["effect"]), local]
        idata = pmd.sample(draws, tune=draws // 2, chains=4, step=steps, random_seed=2, **quiet)
        report("FlowStep and BlockGibbs", idata, time.perf_counter() - begin)
    print(
        f"share of the flow's proposals that were accepted: {idata['sample_stats']['flow_accept'].mean():.2f}"
    )


if __name__ == "__main__":
    main()
