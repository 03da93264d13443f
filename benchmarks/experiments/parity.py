"""The parity model (Sun et al. 2022, Fig. 1): error of the mean estimate, and steps needed to leave a low
state.

python -m benchmarks.experiments.parity [--short]

x has 100 binary sites and log density -U if it holds an odd number of ones. From an even ("low") state every
move of a single site leads to an odd one, so that a sampler of single sites leaves it once in some e^U steps.
"""

import numpy as np

from benchmarks.experiments import models, report, runner
from pymc_discrete import target_from_model

SAMPLERS = [
    "RW",
    "Gibbs-1",
    "Gibbs-2",
    "HB-10-1",
    "LB",
    "GWG-1",
    "GWG-2",
    "GWG-3",
    "GWG-5",
    "GWG-adapt",
    "PAFS-2",
    "PAFS-3",
    "PAFS-5",
]
SAMPLERS += [
    "PAFS-adapt",
    "PAS-2",
    "PAS-3",
    "PAS-5",
    "PAS-adapt",
    "NB-3",
    "NB-adapt",
    "DMALA",
    "DLMC",
    "BlockGibbs",
    "AutoStep",
]
HEIGHTS, SITES = (1, 3, 5), 100


def main():
    args = report.arguments(__doc__, SAMPLERS, steps=20_000, chains=5, seconds=60)
    table = report.Table("parity", args)
    for U in HEIGHTS[1:2] if args.short else HEIGHTS:
        setting = f"U={U}"
        model = models.parity(SITES, U)
        target = target_from_model(model)
        starts = np.ones((args.chains, SITES), int)  # as in the authors' code

        def row(sampler, kernel, params, target=target, starts=starts):
            budget = {"steps": args.steps, "burn_in": 2000, "restart": True, "seconds": args.seconds}
            result = runner.run(
                target,
                kernel,
                params,
                starts,
                lambda state: {"x": state.x.astype("uint8")},
                seed=args.seed,
                **budget,
            )
            return measured(result)

        for name in args.samplers:
            table.run(setting, name, model, row)
    table.write(
        "Parity, 100 sites",
        [
            "error: |mean of the chain - 1/2| over all sites, Euclidean, from the all-ones state; mean and "
            "sd over chains. Independent draws have 5 / sqrt(steps).",
            "steps to leave: steps spent in even states per departure from one; inf where there was none.",
            "Differences are exact: parity has no gradient that says anything, so that GWG-1 makes the "
            "transitions of LB.",
            "Chains start anew after tuning.",
        ],
    )
    table.figure(draw, columns=len(HEIGHTS), size=(4.5, 4.5))


def measured(result):
    """A row of the table."""
    x = result.records["x"]  # (chains, steps, sites)
    low = x.sum(-1) % 2 == 0
    left = (x[:, 1:] != x[:, :-1]).any(-1) & low[:, :-1]
    at = np.unique(np.geomspace(10, x.shape[1], 60).astype(int))
    errors = np.array([[np.linalg.norm(c[:n].mean(0) - 0.5) for n in at] for c in x])
    return {
        "steps": result.steps,
        "chains": len(x),
        "error": errors[:, -1].mean(),
        "sd of error": errors[:, -1].std(),
        "steps to leave": low[:, :-1].sum() / left.sum() if left.any() else np.inf,
        "accept": result.accept,
        "moves": result.moves,
        "steps per s": len(x) * result.steps / result.seconds,
        "params": ", ".join(f"{k}={v:.3g}" for k, v in result.params.items()),
        "curve steps": at,
        "curve error": errors.mean(0),
    }


def draw(axes, rows):
    for ax, U in zip(axes, HEIGHTS, strict=True):
        mine = [r for r in rows if r["setting"] == f"U={U}"]
        for r in mine:
            ax.plot(r["curve steps"], r["curve error"], **{**report.style(r["sampler"]), "marker": ""})
        if not mine:
            continue
        ax.set(title=f"U = {U}", xlabel="steps", ylabel="error of the mean", xscale="log", yscale="log")


if __name__ == "__main__":
    main()
