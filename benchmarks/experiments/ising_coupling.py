"""Lattice Ising over coupling (Grathwohl et al. 2021, Fig. 4): ESS per 100,000 steps and per second.

python -m benchmarks.experiments.ising_coupling [--only "10x10 theta=0.1" ...] [--short]

The paper's samplers and number of chains: --samplers GWG-1 Gibbs-1 Gibbs-2 HB-10-1 --chains 32.

The summary is the Hamming distance to a random state, as in the paper (App. F.1), and the energy beside it.
"""

import numpy as np

from benchmarks.experiments import models, report, runner
from pymc_discrete import target_from_model

SAMPLERS = [
    "RW",
    "Gibbs-1",
    "Gibbs-1-systematic",
    "Gibbs-2",
    "HB-10-1",
    "LB",
    "GWG-1",
    "GWG-3",
    "GWG-adapt",
    "PAFS-3",
    "PAFS-adapt",
]
SAMPLERS += ["PAS-3", "PAS-adapt", "NB-adapt", "DMALA", "DLMC", "BlockGibbs", "AutoStep"]
SIZES, THETAS = (10, 40), (0.05, 0.1, 0.15, 0.2, 0.25)  # critical at 0.2203


def main():
    args = report.arguments(__doc__, SAMPLERS, steps=100_000, chains=4, seconds=20)
    table = report.Table("ising_coupling", args)
    for p in SIZES:
        for theta in THETAS[1:2] if args.short else THETAS:
            setting = f"{p}x{p} theta={theta:g}"
            if args.only and setting not in args.only:
                continue
            model = models.ising_coupling(p, theta)
            target = target_from_model(model)
            reference, *starts = runner.random_starts(target.space, args.chains + 1, args.seed)

            def record(state, reference=reference):
                return {"hamming": (state.x != reference).sum(), "energy": state.logdensity}

            def row(sampler, kernel, params, target=target, starts=starts, record=record):
                thin = 1 if kernel.sweeper is not None else 10
                budget = {
                    "steps": args.steps,
                    "thin": thin,
                    "burn_in": args.steps // 2,
                    "seconds": args.seconds,
                }
                result = runner.run(
                    target, kernel, params, np.array(starts), record, seed=args.seed, **budget
                )
                return runner.figures(result, sampler, target.space, ["hamming", "energy"])

            for name in args.samplers:
                table.run(setting, name, model, row)
    table.write(
        "Lattice Ising over coupling",
        [
            "log p = theta s'Js, cyclic; every edge counts twice, so that the usual coupling is 2 theta, "
            "critical at theta = 0.2203.",
            "ESS (bulk, ArviZ) is per chain, of all chains together: chains in different phases bring it "
            "down, as they should.",
            "Recorded every 10 steps (sweeps: every step): ESS per 100,000 steps cannot exceed some 10,000 "
            "for single moves.",
            "Half as many steps of burn-in and tuning are not counted. ESS/s and per evaluation: of the "
            "worse summary.",
        ],
    )
    table.figure(draw, columns=4, size=(4.2, 4.5))


def draw(axes, rows):
    for n, p in enumerate(SIZES):
        for m, what in enumerate(("ESS hamming per 1e5 steps", "ESS/s")):
            ax, present = axes[2 * n + m], [r for r in rows if r["setting"].startswith(f"{p}x")]
            if not present:
                continue
            for name in dict.fromkeys(r["sampler"] for r in present):
                mine = [r for r in present if r["sampler"] == name]
                ax.plot(
                    [float(r["setting"].split("=")[1]) for r in mine],
                    [max(r[what], 1e-2) for r in mine],
                    **report.style(name),
                )
            ax.set(title=f"{p}x{p}", xlabel="theta", ylabel=what, yscale="log")


if __name__ == "__main__":
    main()
