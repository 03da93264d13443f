"""Factorial HMM, N=1000, K=10 (Sun et al. 2022, Fig. 5 and App. B.2; Grathwohl et al. 2021, Fig. 5): burn-in,
and ESS after it.

python -m benchmarks.experiments.factorial_hmm [--short]

Chains start at random states. The log joint density and the reconstruction error |y - xw - b| are followed
over steps and evaluations; ESS is of the second half. The parameters are those of Sun et al.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np

from benchmarks.experiments import baselines, models, report, runner
from benchmarks.experiments.samplers import SAMPLERS, Sampler
from pymc_discrete import target_from_model

NAMES = [
    "RW",
    "Gibbs-1",
    "Gibbs-1-systematic",
    "HB-10-1",
    "HB-time",
    "GWG-1",
    "GWG-3",
    "GWG-10",
    "GWG-adapt",
    "PAFS-3",
    "PAFS-10",
    "PAFS-adapt",
]
NAMES += ["PAS-3", "PAS-10", "PAS-adapt", "NB-10", "NB-adapt", "DMALA", "DLMC", "BlockGibbs", "AutoStep"]
N, K, THIN = 1000, 10, 100
# run with differences from one gradient too, as in the papers; the package's own choice here is exact tables
BY_GRADIENT = ["GWG-1", "GWG-3", "GWG-10", "PAFS-3", "PAFS-10", "DMALA"]

# the block-structured Hamming ball sampler: all factors of one time
SAMPLERS["HB-time"] = Sampler(
    "HB-time",
    lambda model: baselines.hamming_ball(rows=np.arange(model["x"].size.eval()).reshape(-1, K)),
    lambda m, s: 1 + K,
)


def main():
    args = report.arguments(__doc__, NAMES, steps=100_000, chains=4, seconds=60)
    table = report.Table("factorial_hmm", args)
    n = 50 if args.short else N
    w, b, x_true, y = models.fhmm_data(n, K)
    model = models.fhmm(w, b, y)
    exact, gradient = target_from_model(model), target_from_model(model, differences="gradient")
    reference, *starts = runner.random_starts(exact.space, args.chains + 1, args.seed)
    print(f"at the x that made y: log density {float(exact.logdensity(x_true.reshape(-1))):.1f}", flush=True)

    def record(state):
        error = jnp.linalg.norm(y - state.x.reshape(n, K) @ w - b)
        return {"energy": state.logdensity, "error": error, "hamming": (state.x != reference).sum()}

    def row(target, sampler, kernel, params):
        thin = 1 if kernel.sweeper is not None else max(1, min(THIN, args.steps // 50))
        budget = {
            "steps": args.steps,
            "thin": thin,
            "burn_in": args.steps // 4,
            "restart": True,
            "seconds": args.seconds,
            "size": 10,
        }
        result = runner.run(target, kernel, params, np.array(starts), record, seed=args.seed, **budget)
        cost = sampler.evaluations(result.moves, target.space)
        return {
            "final log density": result.records["energy"][:, -1].mean(),
            "final error": result.records["error"][:, -1].mean(),
            **runner.figures(result, sampler, target.space, ["energy", "hamming"], drop=0.5),
            "evaluations per step": cost,
            **curves(result),
        }

    for name in args.samplers:
        table.run(f"N={n} K={K}", name, model, partial(row, exact))
        if name in BY_GRADIENT:
            table.run(f"N={n} K={K}, by gradient", name, model, partial(row, gradient))
    table.write(
        f"Factorial HMM, N={n}, K={K}",
        [
            "P(x_1 = 1) = 0.05, P(stay) = 0.85, sigma^2 = 0.25, w and b standard normal. The chain of every "
            "factor runs over time.",
            "Chains start at random states, after tuning; ESS is of the second half, and says little where "
            "the burn-in is longer than that (see the final log density).",
            "HB-time draws all factors of a random time. Differences are exact tables, by the package's own "
            "choice; by gradient: one gradient (Grathwohl et al. 2021, Eq. 3).",
        ],
    )
    table.figure(draw, columns=4, size=(4.2, 4.5))


def curves(result):
    """The chains' means at some 100 points of the run."""
    energy, error = result.records["energy"].mean(0), result.records["error"].mean(0)
    at = np.unique(np.geomspace(1, len(energy), 100).astype(int)) - 1
    return {"curve steps": (at + 1) * result.thin, "curve energy": energy[at], "curve error": error[at]}


def draw(axes, rows):
    best = max(max(r["curve energy"]) for r in rows)
    for r in rows:
        look = {**report.style(r["sampler"]), "marker": ""}
        if r["setting"].endswith("by gradient"):
            look |= {"label": f"{r['sampler']}, by gradient", "alpha": 0.4, "lw": 2.5}
        steps = np.array(r["curve steps"])
        for ax, t in ((axes[0], steps), (axes[1], steps * r["evaluations per step"])):
            ax.plot(t, best - np.array(r["curve energy"]) + 1, **look)
        for ax, t in ((axes[2], steps), (axes[3], steps * r["evaluations per step"])):
            ax.plot(t, r["curve error"], **look)
    for n, ax in enumerate(axes):
        ax.set(
            xlabel=("steps", "evaluations")[n % 2],
            ylabel=("log density below the best + 1", "reconstruction error")[n // 2],
        )
        ax.set(xscale="log", yscale="log")


if __name__ == "__main__":
    main()
