"""Major earthquakes of the world, 1900-2006: a hidden Markov model whose states are drawn as a whole.

Each year is in one of three states with a rate each; rates, and probabilities to stay or to change, are
unknown. TreeGibbs draws all 107 states at once, given the rest, and NUTS the rest. (Counts of magnitude 7 or
more: Zucchini, MacDonald and Langrock 2016, Hidden Markov Models for Time Series, Table 1.1, whose most
likely rates with three states are 13.1, 19.7 and 29.7.)

    python examples/earthquakes.py [--draws 2000] [--short]
"""

import argparse
import time
from pathlib import Path

import arviz as az
import matplotlib
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_discrete as pmd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
STATES = 3


def earthquakes(counts: np.ndarray) -> pm.Model:
    start = np.quantile(counts, [0.2, 0.5, 0.9])
    with pm.Model() as model:
        # in order, or the states could swap their names
        rate = pm.Gamma(
            "rate", 4, 0.2, shape=STATES, transform=pm.distributions.transforms.ordered, initval=start
        )
        change = pm.Dirichlet("change", np.ones((STATES, STATES)) + 4 * np.eye(STATES))
        nearest = np.abs(counts[:, None] - start).argmin(axis=1)
        state = pm.Categorical("state", p=np.full(STATES, 1 / STATES), shape=len(counts), initval=nearest)
        # the prior of a state is uniform, so that the chain's own probabilities are all that is left
        pm.Potential("chain", pt.log(change)[state[:-1], state[1:]].sum())
        pm.Poisson("earthquakes", rate[state], observed=counts)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws per chain")
    parser.add_argument("--short", action="store_true", help="few draws, for a test run")
    parser.add_argument("--figure", type=Path, default=HERE / "earthquakes.png")
    args = parser.parse_args()
    draws = 200 if args.short else args.draws

    years, counts = np.genfromtxt(
        HERE / "data" / "earthquakes.csv", delimiter=",", skip_header=1, unpack=True, dtype=int
    )
    begin = time.perf_counter()
    with earthquakes(counts):
        idata = pmd.sample(
            draws, tune=draws, chains=4, step=pmd.TreeGibbs(), random_seed=1, progressbar=False
        )
    print(f"{4 * draws} draws in {time.perf_counter() - begin:.0f} s")
    print(az.summary(idata, var_names=["rate", "change"]))

    posterior = idata["posterior"]
    level = posterior["rate"].values[..., None, :].repeat(len(years), axis=-2)
    level = np.take_along_axis(level, posterior["state"].values[..., None], axis=-1)[..., 0]
    low, middle, high = np.quantile(level, [0.05, 0.5, 0.95], axis=(0, 1))
    figure, ax = plt.subplots(figsize=(9, 3.5), layout="constrained")
    ax.plot(years, counts, ".", color="0.4", label="earthquakes of magnitude 7 or more")
    ax.step(years, middle, where="mid", label="rate, median")
    ax.fill_between(years, low, high, step="mid", alpha=0.25, label="5 % to 95 %")
    ax.set(xlabel="year", ylabel="per year")
    ax.legend(loc="upper right", fontsize=8)
    figure.savefig(args.figure, dpi=110)
    print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
