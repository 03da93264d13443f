"""Weighted permutations (Sun et al. 2022, Eq. 9 and Fig. 2): energies from a random start, and their ESS.

python -m benchmarks.experiments.permutations [--short]

The log density of a permutation rho of 100 places is -sum_i w[i, rho(i)], w ~ Normal(0, sigma^2). A move
swaps two places. The paper's "LB", the locally balanced sampler, is PAS with paths of one move.
"""

import jax.numpy as jnp
import numpy as np
import pymc as pm
from scipy.optimize import linear_sum_assignment

from benchmarks.experiments import report, runner
from pymc_discrete import Permutation, target_from_model

SIGMAS, PLACES = (3, 5, 10), 100
SAMPLERS = ["PAS-1", "PAS-2", "PAS-3", "PAS-5", "PAS-10", "PAS-adapt", "GWG-adapt", "PAFS-5", "PAFS-20"]
SAMPLERS += ["PAFS-adapt", "NB-adapt", "BlockGibbs"]
DROPPED = 0.2  # share of the steps that the ESS leaves out


def weighted_permutation(w):
    """The model with weights w (p, p)."""
    with pm.Model() as model:
        Permutation("rho", len(w), weights=-w)
    return model


def main():
    args = report.arguments(__doc__, SAMPLERS, steps=20_000, chains=5, seconds=60)
    table = report.Table("permutations", args)
    for sigma in SIGMAS[1:2] if args.short else SIGMAS:
        r = np.random.default_rng(args.seed)
        w = sigma * r.normal(size=(PLACES, PLACES))
        model = weighted_permutation(w)
        target = target_from_model(model, ["rho"])
        starts = np.array([r.permutation(PLACES) for _ in range(args.chains)])
        least = w[linear_sum_assignment(w)].sum()

        def row(sampler, kernel, params, target=target, starts=starts, w=w, least=least):
            result = runner.run(
                target,
                kernel,
                params,
                starts,
                lambda state: {"energy": jnp.asarray(w)[np.arange(PLACES), state.x].sum()},
                steps=args.steps,
                burn_in=2000,
                restart=True,
                seconds=args.seconds,
                seed=args.seed,
            )
            return measured(result, sampler, target.space, least)

        for name in args.samplers:
            table.run(f"sigma={sigma}", name, model, row)
    table.write(
        f"Weighted permutations of {PLACES} places",
        [
            "From random permutations; chains start anew after tuning. A step is one proposal, or one sweep "
            "of BlockGibbs. PAS-1 is the locally balanced sampler of the paper.",
            "after 100, after 1000: energy above the least one (by linear_sum_assignment), mean of the "
            "chains.",
            "last half: mean and sd over chains of the mean energy above the least one.",
        ],
    )
    table.figure(draw, columns=len(SIGMAS), size=(4.5, 4.5))


def measured(result, sampler, space, least):
    """A row of the table."""
    energy = result.records["energy"] - least  # (chains, steps)
    at = np.unique(np.geomspace(1, energy.shape[1], 80).astype(int)) - 1
    halves = energy[:, energy.shape[1] // 2 :].mean(1)
    figures = runner.figures(result, sampler, space, ["energy"], DROPPED)
    return {
        "after 100": energy[:, min(99, energy.shape[1] - 1)].mean(),
        "after 1000": energy[:, min(999, energy.shape[1] - 1)].mean(),
        "last half": halves.mean(),
        "sd of it": halves.std(),
        **{k: v for k, v in figures.items() if k != "ESS per 1e5 evaluations"},
        "curve steps": at + 1,
        "curve energy": energy[:, at].mean(0),
    }


def draw(axes, rows):
    for ax, sigma in zip(axes, SIGMAS, strict=True):
        mine = [r for r in rows if r["setting"] == f"sigma={sigma}"]
        for r in mine:
            ax.plot(r["curve steps"], r["curve energy"], markevery=12, **report.style(r["sampler"]))
        if mine:
            ax.set(title=f"sigma = {sigma}", xlabel="steps", ylabel="energy above the least", xscale="log")
            ax.set_yscale("symlog", linthresh=10)
            ax.set_ylim(bottom=0)


if __name__ == "__main__":
    main()
