"""Who was admitted, if only margins are known? Ecological inference on applications to Berkeley, 1973.

Of each of six departments it is known how many men and how many women applied, and how many were admitted in
all. How many of these were women is unknown: a table of two by two, of which the margins are given. The cells
are latent counts with a known sum, which `BlockGibbs` draws along the lines that the sums leave free, while
NUTS moves the rest. Rates of men and women differ by a gap that departments share, and scatter around it
(King, Rosen and Tanner 1999, Binomial-beta hierarchical models for ecological inference). In this case the
cells were published, so that the answer can be looked up (Bickel, Hammel and O'Connell 1975, Sex bias in
graduate admissions: data from Berkeley).

    python examples/ecological_inference.py [--draws 2000] [--short]
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
DEPARTMENTS, SEXES = list("ABCDEF"), ["men", "women"]
APPLIED = np.array([[825, 108], [560, 25], [325, 593], [417, 375], [191, 393], [373, 341]])
# what nobody would know, but for its sums
ADMITTED = np.array([[512, 89], [353, 17], [120, 202], [138, 131], [53, 94], [22, 24]])


def admissions(total: np.ndarray) -> pm.Model:
    """The model, given how many were admitted to each department."""
    with pm.Model(coords={"department": DEPARTMENTS, "sex": SEXES}) as model:
        level = pm.Normal("level", 0, 1.5, dims="department")
        gap = pm.Normal("gap", 0, 0.5)
        rate = pm.math.invlogit(level[:, None] + np.array([-0.5, 0.5]) * gap)
        alike = pm.Gamma("alike", 4, 0.1)  # the larger, the less the rates of one department scatter
        admitted = pm.BetaBinomial(
            "admitted", n=APPLIED, alpha=alike * rate, beta=alike * (1 - rate), dims=("department", "sex")
        )
        pm.Potential("total", pt.switch(pt.all(pt.eq(admitted.sum(axis=1), total)), 0.0, -np.inf))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws per chain")
    parser.add_argument("--short", action="store_true", help="few draws, for a test run")
    parser.add_argument("--figure", type=Path, default=HERE / "ecological_inference.png")
    args = parser.parse_args()
    draws = 200 if args.short else args.draws

    total = ADMITTED.sum(axis=1)
    begin = time.perf_counter()
    idata = pmd.sample(
        draws,
        tune=min(draws, 1000),
        chains=2 if args.short else 4,
        model=admissions(total),
        random_seed=1,
        progressbar=False,
    )
    women = idata["posterior"]["admitted"].sel(sex="women")
    print(f"{women[..., 0].size} draws in {time.perf_counter() - begin:.0f} s")
    print(az.summary(idata, var_names=["gap", "alike", "admitted"]))

    # what the margins alone say: no more women than applied, nor than leaves enough men
    least = np.maximum(0, total - APPLIED[:, 0])
    most = np.minimum(total, APPLIED[:, 1])
    low, middle, high = np.quantile(women, [0.05, 0.5, 0.95], axis=(0, 1))
    print("\nwomen admitted          applied  admitted  by the margins  posterior (90 %)    in truth")
    for d, name in enumerate(DEPARTMENTS):
        interval = f"{middle[d]:.0f} ({low[d]:.0f} to {high[d]:.0f})"
        bounds = f"{least[d]} to {most[d]}"
        print(
            f"department {name}  {APPLIED[d, 1]:4d} of {APPLIED[d].sum():4d}  {total[d]:8d}  {bounds:>14}"
            f"  {interval:>16}  {ADMITTED[d, 1]:10d}"
        )

    figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
    place = np.arange(len(DEPARTMENTS))
    of = APPLIED[:, 1]
    ax.hlines(place, least / of, most / of, color="0.85", lw=9, label="possible, by the margins")
    ax.hlines(place, low / of, high / of, color="C0", lw=3, label="posterior, 90 %")
    ax.plot(middle / of, place, "o", color="C0", label="median")
    ax.plot(ADMITTED[:, 1] / of, place, "kx", label="in truth")
    ax.set(
        yticks=place,
        yticklabels=DEPARTMENTS,
        xlabel="women admitted / women who applied",
        ylabel="department",
    )
    ax.invert_yaxis()
    ax.legend(loc="lower right", fontsize=8)
    figure.savefig(args.figure, dpi=110)
    print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
