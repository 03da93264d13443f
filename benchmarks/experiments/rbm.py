"""RBM on digits (Grathwohl et al. 2021, Fig. 3; Sun et al. 2022, Fig. 6, 7): MMD to block Gibbs over steps,
and ESS.

python -m benchmarks.experiments.rbm [--short]

100 chains per sampler run side by side. Ground truth are 500 draws, each the state after 10,000 steps of
Gibbs sampling by layers (h given x, x given h). The differences are gradients, as in the papers, except for
LB, BlockGibbs and AutoStep, which have exact ones.
"""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments import baselines, models, report, runner
from benchmarks.experiments.digits_rbm import HIDDEN, gibbs, weights
from benchmarks.experiments.samplers import SAMPLERS, Sampler
from pymc_discrete import kernels, target_from_model
from pymc_discrete.kernels import Info, State

LENGTHS = (1, 2, 3, 5, 10, 20)
FAMILIES = ("GWG", "PAFS", "NB")
NAMES = [
    "RBM-Gibbs",
    "RW",
    "Gibbs-1",
    "Gibbs-2",
    "HB-10-1",
    "LB",
    *[f"{f}-{n}" for f in FAMILIES for n in LENGTHS],
]
NAMES += [
    "PAS-3",
    "GWG-adapt",
    "PAFS-adapt",
    "PAS-adapt",
    "NB-adapt",
    "DMALA",
    "DLMC",
    "BlockGibbs",
    "AutoStep",
]
TRUTH, TRUTH_STEPS, THIN = 500, 10_000, 10
# run from draws too: what samplers do once they are there, which a short run from elsewhere does not show
FROM_DRAWS = [f"{f}-{n}" for f in FAMILIES for n in (1, 3, 10, 20)] + ["DMALA", "DLMC"]
DRAWN_CHAINS, DRAWN_STEPS = 4, 8000
# its kernel is made in main, from the weights
SAMPLERS["RBM-Gibbs"] = Sampler("RBM-Gibbs", lambda model: (None, {}), lambda m, s: 1.0)


def main():
    args = report.arguments(__doc__, NAMES, steps=10_000, chains=100, seconds=120)
    table = report.Table("rbm", args)
    *trained, mean = weights(updates=20 if args.short else 600)
    model = models.rbm(*trained)
    gradient, exact = (target_from_model(model, differences=d) for d in ("gradient", "exact"))
    steps = 100 if args.short else TRUTH_STEPS
    truth, again = (block_gibbs_draws(trained, n, steps, seed) for n, seed in ((TRUTH, 0), (args.chains, 1)))
    floor = mmd(again, truth)
    print(f"MMD of {args.chains} draws of block Gibbs to {TRUTH} others: {floor:.2e}", flush=True)
    r = np.random.default_rng(args.seed)
    starts = (r.random((args.chains, len(mean))) < mean).astype(int)  # as in the authors' code
    reference = r.integers(0, 2, len(mean))

    def record(state):
        return {"hamming": (state.x != reference).sum(), "energy": state.logdensity}

    def row(sampler, kernel, params):
        if sampler.name == "RBM-Gibbs":
            kernel, params = structured_gibbs(*trained)
        target = exact if sampler.name in ("LB", "BlockGibbs", "AutoStep") else gradient
        if sampler.name == "LB":  # the same transitions as by brute force, at less cost
            kernel, params = kernels.gibbs_with_gradients()
        at, distance = [], []

        def report_mmd(done, x):
            at.append(done)
            distance.append(mmd(x, truth))

        budget = {
            "steps": args.steps,
            "thin": THIN,
            "burn_in": min(args.steps, 2000),
            "seconds": args.seconds,
            "size": 10,
        }
        result = runner.run(
            target,
            kernel,
            params,
            starts,
            record,
            restart=True,
            together=True,
            report=report_mmd,
            seed=args.seed,
            **budget,
        )
        figures = runner.figures(result, sampler, target.space, ["hamming", "energy"], drop=0.5)
        curves = {"curve steps": at, "curve MMD": distance}
        return {"final MMD": distance[-1], **figures, "floor": floor, **curves}

    def row_from_draws(sampler, kernel, params):
        result = runner.run(
            gradient,
            kernel,
            params,
            truth[:DRAWN_CHAINS],
            record,
            steps=min(DRAWN_STEPS, args.steps),
            thin=THIN,
            burn_in=min(args.steps, 2000),
            seconds=args.seconds,
            seed=args.seed,
        )
        return runner.figures(result, sampler, gradient.space, ["hamming", "energy"])

    for name in args.samplers:
        table.run("digits", name, model, row)
        if name in FROM_DRAWS:
            table.run("digits, from draws", name, model, row_from_draws)
    table.write(
        f"RBM, {HIDDEN} hidden units, digits scaled up to 28x28",
        [
            f"Squared MMD (kernel exp(-share of differing sites)) of {args.chains} chains to {TRUTH} draws "
            f"of block Gibbs. That of {args.chains} draws of block Gibbs themselves is {floor:.2e}.",
            f"from draws: {DRAWN_CHAINS} chains, one after another, that start at draws of block Gibbs.",
            "Chains start at the mean image's Bernoulli draws, after tuning. ESS is of the second half of "
            "the run.",
            "Chains run side by side (vmap): steps/s and ESS/s are of all of them together.",
        ],
    )
    table.figure(draw, columns=3, size=(5.0, 4.5))


def structured_gibbs(W, b, c):
    """(kernel, params); a step draws all hidden units given the visible ones, then these given the hidden."""
    W, b, c = (jnp.asarray(a, jnp.result_type(float)) for a in (W, b, c))

    def step(key, state, target, params):
        y = gibbs(key, state.x[None].astype(W.dtype), W, b, c)[0].astype(state.x.dtype)
        info = Info(jnp.ones(()), jnp.ones((), bool), (y != state.x).sum())
        return State(y, target.logdensity(y), ()), info

    return baselines.simple(step), {}


def block_gibbs_draws(trained, draws, steps, seed):
    """(draws, visible) int, the last states of independent chains."""
    W, b, c = (jnp.asarray(a, "float32") for a in trained)
    key = jax.random.key(1000 + seed)
    x = (jax.random.uniform(key, (draws, len(b))) < 0.5).astype("float32")
    step = lambda t, x: gibbs(jax.random.fold_in(key, t), x, W, b, c)
    return np.asarray(jax.jit(lambda x: jax.lax.fori_loop(0, steps, step, x))(x)).astype(int)


def mmd(x, y):
    """Squared maximum mean discrepancy with the exponential average Hamming kernel, exp(-share of differing
    sites).

    Grathwohl et al. 2021, App. E.1, print it with the share of equal sites, which measures dissimilarity.
    """

    def mean_kernel(a, b):
        a, b = np.asarray(a, "float32"), np.asarray(b, "float32")
        differing = a.sum(1)[:, None] + b.sum(1)[None] - 2 * a @ b.T
        return float(np.exp(-differing / a.shape[1]).mean())

    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


def draw(axes, rows):
    rows = [r for r in rows if r["setting"] == "digits"]
    lengths = {f"{f}-{n}" for f in FAMILIES for n in LENGTHS if n not in (1, 3)}
    for r in rows:
        if r["sampler"] not in lengths:
            axes[0].plot(
                r["curve steps"],
                np.maximum(r["curve MMD"], 1e-6),
                **{**report.style(r["sampler"]), "marker": ""},
            )
    axes[0].axhline(rows[-1]["floor"], color="k", ls=":", label="two sets of block Gibbs")
    axes[0].set(xlabel="steps", ylabel="MMD^2 to block Gibbs", xscale="log", yscale="log")
    names = [r["sampler"] for r in rows]
    axes[1].barh(names, [max(r["ESS hamming per 1e5 steps"], 1e-1) for r in rows])
    axes[1].set(xscale="log", xlabel="ESS hamming per 1e5 steps")
    axes[1].tick_params(axis="y", labelsize=6)
    ess = {r["sampler"]: max(r["ESS hamming per 1e5 steps"], 1e-1) for r in rows}
    for family in FAMILIES:
        present = [n for n in LENGTHS if f"{family}-{n}" in ess]
        axes[2].plot(present, [ess[f"{family}-{n}"] for n in present], "o-", label=family)
    axes[2].set(xlabel="X", ylabel="ESS hamming per 1e5 steps", xscale="log", yscale="log")
    axes[2].legend()


if __name__ == "__main__":
    main()
