"""The order of seven baseball teams in 1987, where the better of two teams wins with the same probability.

The order is an unknown of the model, a permutation, beside the probability that the better team wins, which
NUTS draws. Seven teams have 5040 orders, few enough to add up over all of them: the draws are compared with
these sums. (Games of the Eastern Division of the American League: Agresti 2002, Categorical Data Analysis,
2nd edition, section 10.6.)

    python examples/baseball.py [--draws 4000] [--short]
"""

import argparse
import itertools
import time
from pathlib import Path

import matplotlib
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_discrete as pmd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
TEAMS = ["Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"]
WINS = np.array(  # of the row's team over the column's, in 13 games
    [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ]
)
BETTER, WORSE = np.triu_indices(len(TEAMS), 1)  # all pairs of places


def ranking() -> pm.Model:
    with pm.Model(coords={"place": np.arange(1, len(TEAMS) + 1)}) as model:
        order = pmd.Permutation("order", len(TEAMS), dims="place")  # the team in each place
        p = pm.Uniform("p", 0.5, 1.0)
        as_expected = pt.as_tensor(WINS)[order[BETTER], order[WORSE]].sum()
        pm.Potential("games", as_expected * pt.log(p) + (WINS.sum() - as_expected) * pt.log1p(-p))
    return model


def by_sums() -> tuple[np.ndarray, float]:
    """(places, teams), the probability of each team in each place, and the mean of p, over all orders."""
    orders = np.array(list(itertools.permutations(range(len(TEAMS)))))
    as_expected = WINS[orders[:, BETTER], orders[:, WORSE]].sum(axis=1)[:, None]
    p = np.linspace(0.5, 1.0, 2001)[1:-1]
    logp = as_expected * np.log(p) + (WINS.sum() - as_expected) * np.log1p(-p)
    weight = np.exp(logp - logp.max())
    weight /= weight.sum()
    places = [[weight[orders[:, i] == k].sum() for k in range(len(TEAMS))] for i in range(len(TEAMS))]
    return np.array(places), float((weight * p).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4000, help="draws per chain")
    parser.add_argument("--short", action="store_true", help="few draws, for a test run")
    parser.add_argument("--figure", type=Path, default=HERE / "baseball.png")
    args = parser.parse_args()
    draws = 300 if args.short else args.draws

    begin = time.perf_counter()
    with ranking():
        # a draw tries each of the 21 pairs of places once
        idata = pmd.sample(draws, tune=500, chains=4, random_seed=1, progressbar=False)
    print(f"{4 * draws} draws in {time.perf_counter() - begin:.0f} s")
    order = idata["posterior"]["order"].values
    share = np.array([(order == k).mean(axis=(0, 1)) for k in range(len(TEAMS))]).T
    exact, mean = by_sums()
    print(f"the better team wins: {idata['posterior']['p'].values.mean():.3f}, by sums {mean:.3f}")
    off = np.abs(share - exact).max()
    print(f"probabilities of places: at most {off:.3f} from those by sums over all orders")
    print(pmd.summary(idata, "order")[["mode", "P(mode)", "ess", "rhat", "verdict"]])

    figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
    image = ax.imshow(share.T, cmap="Blues", vmin=0.0)
    for k, i in np.ndindex(share.T.shape):
        dark = share[i, k] > 0.6 * share.max()
        ax.text(i, k, f"{share[i, k]:.2f}", ha="center", va="center", color="w" if dark else "k", fontsize=8)
    ax.set_xticks(range(len(TEAMS)), np.arange(1, len(TEAMS) + 1))
    ax.set_yticks(range(len(TEAMS)), TEAMS)
    ax.set(xlabel="place", title="Probability of each place")
    figure.colorbar(image, ax=ax)
    figure.savefig(args.figure, dpi=110)
    print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
