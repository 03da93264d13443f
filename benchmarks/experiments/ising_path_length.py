"""Ising lattices with a field against path length (Sun et al. 2022, Fig. 3, 4, 9): ESS per step, per
evaluation, per second.

python -m benchmarks.experiments.ising_path_length [--only 50x50] [--short]

The summaries are the energy, as in the authors' code, and the Hamming distance to a random state.
"""

from functools import partial

from benchmarks.experiments import models, report, runner
from benchmarks.experiments.samplers import SAMPLERS
from pymc_discrete import target_from_model

FAMILIES = {
    "GWG": (1, 2, 3, 5, 10, 20),
    "PAFS": (1, 2, 3, 5, 10, 20),
    "PAS": (1, 2, 3, 5, 10, 20),
    "NB": (1, 2, 3, 5, 10, 20),
}
OTHERS = [
    "RW",
    "Gibbs-1",
    "Gibbs-2",
    "HB-10-1",
    "GWG-adapt",
    "PAFS-adapt",
    "PAS-adapt",
    "NB-adapt",
    "DMALA",
    "DLMC",
    "BlockGibbs",
    "AutoStep",
]
NAMES = [f"{family}-{n}" for family, lengths in FAMILIES.items() for n in lengths] + OTHERS
SIZES = (50, 200)
# run at 50x50 with differences from one gradient too, which is computed whole; exact ones are computed anew
# around a change only
BY_GRADIENT = ["GWG-10", "PAFS-10", "PAS-10"]


def main():
    args = report.arguments(__doc__, NAMES, steps=100_000, chains=4, seconds=60)
    table = report.Table("ising_path_length", args)
    for p in SIZES[:1] if args.short else SIZES:
        setting = f"{p}x{p}"
        if args.only and not {setting, f"{setting}, by gradient"} & set(args.only):
            continue
        alpha = models.ising_field(p)
        model = models.ising_in_field(alpha)
        exact, gradient = target_from_model(model), target_from_model(model, differences="gradient")
        reference = runner.random_starts(exact.space, 1, args.seed)[0]
        starts = models.ising_in_field_draws(
            alpha, args.chains, sweeps=50 if args.short else 500, seed=args.seed
        )

        def record(state, reference=reference):
            return {"energy": state.logdensity, "hamming": (state.x != reference).sum()}

        def row(target, sampler, kernel, params, starts=starts, record=record):
            thin = 1 if kernel.sweeper is not None else 10
            budget = {"steps": args.steps, "thin": thin, "burn_in": args.steps // 10, "seconds": args.seconds}
            result = runner.run(target, kernel, params, starts, record, seed=args.seed, **budget)
            return runner.figures(result, sampler, target.space, ["energy", "hamming"])

        for name in args.samplers:
            table.run(setting, name, model, partial(row, exact))
            if name in BY_GRADIENT and p == SIZES[0]:
                table.run(f"{setting}, by gradient", name, model, partial(row, gradient))
    table.write(
        "Ising lattices in a field, against path length",
        [
            "lambda = 1, mu = 2, Z ~ Uniform(-3, 3), free boundary; the centre is the disc that holds half "
            "of the lattice.",
            "All chains start at draws of 500 sweeps of Gibbs sampling by colours, then a tenth of the "
            "steps tunes and is not counted.",
            "X in NAME-X: the number of moves is uniform on 1..2X-1. ESS/s and per evaluation: of the worse "
            "summary.",
            "by gradient: differences from one gradient, computed whole. Without it they are exact here, and "
            "computed anew around a change only.",
            "An evaluation is one log density or all differences together: 1 per proposal for GWG, PAFS and "
            "NB (that at x is kept), the number of moves for PAS.",
        ],
    )
    table.figure(draw, columns=6, size=(3.8, 4.5))


def draw(axes, rows):
    for n, p in enumerate(SIZES):
        for m, what in enumerate(("ESS energy per 1e5 steps", "ESS per 1e5 evaluations", "ESS/s")):
            ax = axes[3 * n + m]
            mine = {r["sampler"]: max(r[what], 1e-2) for r in rows if r["setting"] == f"{p}x{p}"}
            if not mine:
                continue
            for c, (family, lengths) in enumerate(FAMILIES.items()):
                present = [k for k in lengths if f"{family}-{k}" in mine]
                values = [mine[f"{family}-{k}"] for k in present]
                ax.plot(present, values, "os^D"[c] + "-", color=f"C{c}", label=family)
            for c, name in enumerate(OTHERS):
                if name not in mine:
                    continue
                ours = name in list(SAMPLERS)[6:]
                ax.axhline(mine[name], ls="-." if ours else ":", lw=1, color=f"C{(c + 4) % 10}", label=name)
            ax.set(title=f"{p}x{p}", xlabel="X", ylabel=what, xscale="log", yscale="log")


if __name__ == "__main__":
    main()
