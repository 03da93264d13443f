"""Variational inference with an energy: a posterior that mean-field ADVI gets wrong.

Only the product of two unknowns was measured, as of a factor and its loading: the posterior lies along the
two branches of a hyperbola. Mean-field ADVI lays one round normal between them. `pmd.fit_energy_posterior`
fits q(z) proportional to exp(-energy(z)), whose normalising constant nobody knows, by differentiating the
path of a slice sampler (Zoltowski, Cai and Adams 2021).

    python examples/energy_posterior.py [--iterations 2000] [--figure energy_posterior.png] [--short]
"""

import argparse
import logging
import time
from pathlib import Path

import matplotlib
import numpy as np
import pymc as pm

import pymc_discrete as pmd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
SEEN, NOISE, PRIOR = 1.0, 0.4, 1.5
SIDE = np.linspace(-5, 5, 501)


def product() -> pm.Model:
    with pm.Model() as model:
        loading, factor = pm.Normal("loading", 0, PRIOR), pm.Normal("factor", 0, PRIOR)
        pm.Normal("y", loading * factor, NOISE, observed=SEEN)
    return model


def exact() -> np.ndarray:
    """The posterior (501, 501) on a grid."""
    a, b = np.meshgrid(SIDE, SIDE, indexing="ij")
    log = -0.5 * (a**2 + b**2) / PRIOR**2 - 0.5 * ((a * b - SEEN) / NOISE) ** 2
    p = np.exp(log - log.max())
    return p / p.sum()


def summary(loading: np.ndarray, factor: np.ndarray, weight: np.ndarray | None = None) -> list[float]:
    """Share of the positive branch, standard deviation of the loading, mean of its absolute value,
    probability that it exceeds 2.
    """
    mean = lambda a: float(np.average(a, weights=weight))
    return [
        mean(loading > 0),
        np.sqrt(mean(loading**2) - mean(loading) ** 2),
        mean(np.abs(loading)),
        mean(np.abs(loading) > 2),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--short", action="store_true", help="few iterations, for a test run")
    parser.add_argument("--figure", type=Path, default=HERE / "energy_posterior.png")
    args = parser.parse_args()
    if args.short:
        args.iterations = 50
    logging.getLogger("pymc").setLevel(logging.ERROR)

    model, p, found = product(), exact(), {}
    begin = time.perf_counter()
    fit = pmd.fit_energy_posterior(model, iterations=args.iterations, random_seed=1)
    seconds = {"energy": time.perf_counter() - begin}
    tree = fit.sample(2000, thin=4, random_seed=2)
    found["energy"] = tree.posterior
    begin = time.perf_counter()
    with model:
        advi = pm.fit(20_000, method="advi", random_seed=1, progressbar=False)
        seconds["mean-field ADVI"] = time.perf_counter() - begin
        found["mean-field ADVI"] = advi.sample(8000, random_seed=2).posterior
    draws = {
        name: [posterior[v].values.ravel() for v in ("loading", "factor")]
        for name, posterior in found.items()
    }

    print(f"{'':18}{'loading > 0':>12}{'sd':>8}{'mean |.|':>10}{'|.| > 2':>9}{'seconds':>9}")
    grid = [g.ravel() for g in np.meshgrid(SIDE, SIDE, indexing="ij")]
    rows = {"exact": (summary(*grid, p.ravel()), None)} | {
        name: (summary(*own), seconds[name]) for name, own in draws.items()
    }
    for name, (numbers, took) in rows.items():
        print(
            f"{name:18}"
            + "".join(f"{n:{w}.3f}" for n, w in zip(numbers, (12, 8, 10, 9), strict=True))
            + (f"{took:9.0f}" if took else "")
        )
    print(
        "without the normalising constant:",
        ", ".join(f"{name} {value:.3f}" for name, value in fit.diagnostics(tree).items()),
    )

    figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True)
    for ax, (name, (loading, factor)) in zip(axes, draws.items(), strict=True):
        ax.contour(
            SIDE, SIDE, p.T, levels=p.max() * np.array([0.01, 0.1, 0.4, 0.8]), colors="0.6", linewidths=0.8
        )
        ax.plot(loading[:2000], factor[:2000], ".", markersize=2, alpha=0.5)
        ax.set(title=name, xlabel="loading", ylabel="factor", xlim=(-4, 4), ylim=(-4, 4))
    axes[1].set_ylabel("")
    figure.savefig(args.figure, dpi=110, bbox_inches="tight")
    print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
