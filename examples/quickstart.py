"""Coal-mining disasters, 1851-1961: when did the rate change, and what were the two missing counts?

The switchpoint (111 years) and the two missing counts are discrete, the two rates continuous. AutoStep finds
the step for the first three, and NUTS takes the rates, in one compiled program: pm.sample draws from it in
its own loop, pmd.sample without one. PyMC's default steppers run on the same model for comparison.

    python examples/quickstart.py [--draws 2000] [--short]
"""

import argparse
import time
import warnings
from pathlib import Path

import arviz as az
import matplotlib
import numpy as np
import pymc as pm

import pymc_discrete as pmd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
# summed over all switchpoints and missing counts, the rates integrated out
EXACT = {"switchpoint": 1889.784, "early": 3.087, "late": 0.932}


def coal_mining(years: np.ndarray, disasters: np.ndarray) -> pm.Model:
    """Years up to and including the switchpoint have the early rate; missing counts are nan."""
    with pm.Model() as model:
        switchpoint = pm.DiscreteUniform("switchpoint", years.min(), years.max())
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        rate = pm.math.switch(switchpoint >= years, early, late)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".*missing values", category=pm.exceptions.ImputationWarning
            )
            pm.Poisson(
                "disasters", rate, observed=np.ma.masked_array(np.nan_to_num(disasters), np.isnan(disasters))
            )
    return model


def timed(sample, draws: int, **options):
    """Draws, the seconds the call took in all, and those spent sampling."""
    start = time.perf_counter()
    idata = sample(draws, tune=1000, chains=4, random_seed=1851, progressbar=False, **options)
    return idata, time.perf_counter() - start, idata["sample_stats"].attrs["sampling_time"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws per chain")
    parser.add_argument("--short", action="store_true", help="few draws, for a test run")
    parser.add_argument("--figure", type=Path, default=HERE / "coal_mining_switchpoint.png")
    args = parser.parse_args()
    draws = 500 if args.short else args.draws

    years, disasters = np.genfromtxt(
        HERE / "data" / "coal_mining_disasters.csv", delimiter=",", skip_header=1, unpack=True
    )
    model = coal_mining(years.astype(int), disasters)

    with model:
        idata, total, sampling = timed(pm.sample, draws, step=pmd.AutoStep())
    names = ["switchpoint", "disasters_unobserved", "early", "late"]
    print(az.summary(idata, var_names=names, round_to=3).to_string())

    print("\nAgainst the exact posterior:")
    for name, exact in EXACT.items():
        estimate = float(idata["posterior"][name].mean())
        mcse = float(az.mcse(idata, var_names=[name])[name])
        print(
            f"  {name:12s} {estimate:9.3f}   exact {exact:9.3f}   {abs(estimate - exact) / mcse:.1f} Monte "
            "Carlo standard errors away"
        )

    print("\nThe same model with PyMC's default steppers, and in one program:")
    with model:
        peer, peer_total, peer_sampling = timed(pm.sample, draws)
        whole, whole_total, whole_sampling = timed(pmd.sample, draws)
    print(
        f"  {'':26s} {'seconds':>8s} {'sampling':>9s} {'ESS of the switchpoint':>23s} {'ESS per second':>15s}"
    )
    for label, data, seconds, drawn in (
        ("pm.sample, AutoStep", idata, total, sampling),
        ("pm.sample, PyMC's steps", peer, peer_total, peer_sampling),
        ("pmd.sample", whole, whole_total, whole_sampling),
    ):
        ess = float(az.ess(data, var_names=["switchpoint"])["switchpoint"])
        print(f"  {label:26s} {seconds:8.1f} {drawn:9.1f} {ess:23.0f} {ess / drawn:15.0f}")

    plot(idata, years, disasters, args.figure)
    print(f"\nFigure: {args.figure.name}")


def plot(idata, years: np.ndarray, disasters: np.ndarray, path: Path) -> None:
    """The counts with their rate, and below them when the rate may have changed."""
    posterior = az.extract(idata)
    switchpoint, early, late = (posterior[name].to_numpy() for name in ("switchpoint", "early", "late"))
    missing = np.isnan(disasters)
    imputed = posterior["disasters_unobserved"].mean("sample")
    rate = np.where(switchpoint >= years[:, None], early, late)  # (years, draws)
    low, high = np.quantile(rate, [0.05, 0.95], axis=1)

    fig, (counts, when) = plt.subplots(
        2, sharex=True, figsize=(9, 5), layout="constrained", height_ratios=(2, 1)
    )
    counts.bar(years, np.nan_to_num(disasters), color="0.8", label="disasters in a year")
    counts.plot(years[missing], imputed, "D", color="C3", label="missing count, mean")
    counts.plot(years, rate.mean(axis=1), color="C0", label="rate, mean and 90 % interval")
    counts.fill_between(years, low, high, color="C0", alpha=0.25, lw=0)
    counts.set(ylabel="disasters", title="British coal mines, 1851-1961: when did the rate change?")
    counts.legend(frameon=False)
    values, times = np.unique(switchpoint, return_counts=True)
    when.bar(values, times / times.sum(), color="C0")
    when.set(xlabel="year", ylabel="probability")
    when.set_title("the last year of the early rate", loc="left", fontsize="medium")
    for ax in (counts, when):
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=120)
    plt.close(fig)


if __name__ == "__main__":
    main()
