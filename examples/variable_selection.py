"""Which measurements foretell the course of diabetes? Variable selection with spikes and slabs.

442 patients, ten measurements at the start of a year, and how far the disease had gone at its end (Efron,
Hastie, Johnstone and Tibshirani 2004, Least angle regression; the data come with scikit-learn). With squares
and products of the measurements there are 64 columns, many of them alike. Each has an indicator, whether it
counts at all. The coefficients are integrated out while the indicators move, and drawn exactly in the end.

    python examples/variable_selection.py [--draws 2000] [--short]
"""

import argparse
import itertools
import time

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from sklearn.datasets import load_diabetes

import pymc_discrete as pmd

NAMES = {"bp": "blood pressure", "s1": "total cholesterol", "s2": "ldl", "s3": "hdl", "s4": "total / hdl"}
NAMES |= {"s5": "triglycerides (log)", "s6": "glucose"}


def columns() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Standardised measurements, their squares and products, and the outcome; names of the columns."""
    data = load_diabetes(scaled=False)
    first = standardised(data.data)
    names = [NAMES.get(name, name) for name in data.feature_names]
    pairs = itertools.combinations_with_replacement(range(len(names)), 2)
    pairs = [(i, j) for i, j in pairs if not i == j == names.index("sex")]  # its square is constant
    second = standardised(np.stack([first[:, i] * first[:, j] for i, j in pairs], axis=1))
    labels = names + [f"{names[i]} x {names[j]}" if i != j else f"{names[i]}²" for i, j in pairs]
    return np.hstack([first, second]), standardised(data.target), labels


def standardised(a: np.ndarray) -> np.ndarray:
    return (a - a.mean(0)) / a.std(0)


def selection(X: np.ndarray, y: np.ndarray, labels: list[str]) -> pm.Model:
    with pm.Model(coords={"column": labels}) as model:
        share = pm.Beta("share", 1, 9)  # of the columns that count
        slab, noise = pm.HalfNormal("slab", 0.5), pm.HalfNormal("noise", 1.0)
        counts = pm.Bernoulli("counts", share, dims="column")
        effect = pm.Normal("effect", 0, slab, dims="column")
        pm.Normal("y", pt.dot(X, counts * effect), noise, observed=y)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws per chain")
    parser.add_argument("--short", action="store_true", help="few draws, for a test run")
    args = parser.parse_args()
    draws = 200 if args.short else args.draws

    X, y, labels = columns()
    begin = time.perf_counter()
    with selection(X, y, labels):
        step = pmd.BlockGibbs(["counts"], integrate=["effect"])
        idata = pmd.sample(draws, tune=draws, chains=4, step=step, random_seed=1, progressbar=False)
    print(f"{4 * draws} draws in {time.perf_counter() - begin:.0f} s")
    print(az.summary(idata, var_names=["share", "slab", "noise"]))

    posterior = idata["posterior"].ds.stack(draw_of_any_chain=("chain", "draw"))
    counts, effect = (posterior[name].transpose(..., "column").values for name in ("counts", "effect"))
    print(f"\n{len(labels)} columns, of which {counts.sum(1).mean():.1f} count. The first twelve:")
    print(f"{'column':34s} probability   effect where it counts (5 % to 95 %)")
    for n in np.argsort(-counts.mean(0))[:12]:
        low, middle, high = np.quantile(effect[counts[:, n] == 1, n], [0.05, 0.5, 0.95])
        print(f"{labels[n]:34s} {counts[:, n].mean():11.2f}   {middle:+.2f} ({low:+.2f} to {high:+.2f})")

    # columns that stand in for one another: a model with either is likely, and one with both is not
    alike = np.corrcoef(X, rowvar=False)
    print("\nPairs of columns of which mostly one counts (probability of one or both, and of both):")
    for i, j in itertools.combinations(range(10), 2):
        one, both = (counts[:, i] | counts[:, j]).mean(), (counts[:, i] & counts[:, j]).mean()
        if one > 0.4 and both < 0.5 * min(counts[:, i].mean(), counts[:, j].mean()):
            print(f"{labels[i]}, {labels[j]} (correlation {alike[i, j]:.2f}): {one:.2f}, {both:.2f}")


if __name__ == "__main__":
    main()
