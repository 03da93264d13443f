"""Ising models learned from samples (GWG, Fig. 6 and 11; PAS, Fig. 8): error of the couplings at equal time.

python -m benchmarks.experiments.learn_ising [--only "10x10 theta=0.2"] [--seconds 60] [--transitions 5 10]

The true models are cyclic lattices, log p = theta s'Js, and a random graph of 200 spins with 4 neighbours on
average. A general Ising model is learned from 2000 draws by persistent contrastive divergence (256 chains,
batches of 256, Adam with rate 0.001, an l1 penalty of 0.01), with T transitions of a sampler in an iteration,
and by the pseudo-likelihood.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import baselines, report
from benchmarks.experiments.iterations import seconds_each
from benchmarks.experiments.structured import draws_of, erdos_renyi, lattice
from pymc_discrete import kernels, learning

TRANSITIONS, CHAINS, RATE, L1 = (5, 10, 25, 50), 256, 0.001, 0.01
LATTICES = [(10, theta) for theta in (-0.1, 0.1, 0.2, 0.25, 0.3, 0.5)] + [(25, 0.25)]
KERNELS = {
    "Gibbs": baselines.gibbs,
    "GWG-1": kernels.gibbs_with_gradients,
    "GWG-5": lambda: kernels.gibbs_with_gradients(5),
    "PAFS-5": lambda: kernels.path_auxiliary(5),
    "DMALA": kernels.discrete_langevin,
    "BlockGibbs": kernels.block_gibbs,
}
PSEUDO = "pseudo-likelihood"
POINTS = 20  # of a curve


def main():
    args = report.arguments(__doc__, [], steps=1000, chains=CHAINS, seconds=60, more=options)
    table = report.Table("learn_ising", args)
    truths = {f"{p}x{p} theta={theta:g}": lattice(p, theta) for p, theta in LATTICES}
    truths["Erdos-Renyi 200"] = erdos_renyi()
    if args.short:
        truths = {"4x4 theta=0.2": lattice(4, 0.2)}
    for setting, (couplings, bias) in truths.items():
        if args.only and setting not in args.only:
            continue
        data = np.asarray(draws_of(couplings, bias, args.steps))
        for name in KERNELS:
            # a transition of BlockGibbs is a sweep over all sites
            for count in [1] if name == "BlockGibbs" else TRANSITIONS[:1] if args.short else args.transitions:
                row = lambda n=name, t=count, c=couplings, d=data: learned(n, t, c, d, args)
                table.add(setting, f"{name}, T={count}", row)
        table.add(setting, PSEUDO, lambda c=couplings, d=data: learned(PSEUDO, 0, c, d, args))
    table.write(
        "Ising models learned from samples",
        [
            "log RMSE of all entries of J times theta, after as many iterations as the seconds allow, "
            "compiling not counted; at its lowest on the way, and where.",
            f"{args.chains} chains, batches of {args.chains}, T transitions in an iteration. Gibbs draws one "
            "random site in a transition, BlockGibbs all of them. Edges count twice: the critical theta is "
            "0.2203.",
        ],
    )
    table.figure(draw, columns=len({r["setting"] for r in table.rows}), size=(4.0, 4.0))


def options(p):
    p.add_argument("--transitions", nargs="+", type=int, default=TRANSITIONS, help="in an iteration")


def learned(name, transitions, couplings, data, args):
    """A row of one sampler."""
    model = learning.Ising(len(couplings))
    zeros = jax.tree.map(jnp.zeros_like, model.start(jax.random.key(0)))
    options = {"batch": args.chains, "chains": args.chains, "l1": L1, "params": zeros, "progressbar": False}
    if name == PSEUDO:
        options["objective"] = PSEUDO
    else:
        # the log density is linear in every spin, so that the gradient gives exact differences
        way = "auto" if "Gibbs" in name else "gradient"
        options["sampler"] = learning.ContrastiveDivergence(
            *KERNELS[name](), transitions=transitions, differences=way
        )
    options["optimizer"] = optax.adam(RATE)
    each = seconds_each(5 if args.short else 20, model, {"x": data}, **options)
    iterations = int(np.clip(args.seconds / each, POINTS, 20_000))
    curve = []

    def rmse(params):
        curve.append(np.log(learning.coupling_rmse(model.matrix(params) / 2, couplings)))
        return -curve[-1]

    every = max(iterations // POINTS, 1)
    learning.fit(model, {"x": data}, iterations=iterations, evaluate=rmse, evaluate_every=every, **options)
    best = int(np.argmin(curve))
    return {
        "log RMSE": curve[-1],
        "lowest": curve[best],
        "at iteration": (best + 1) * every,
        "iterations": iterations,
        "ms per iteration": 1000 * each,
        "curve": np.array(curve),
        "seconds": np.arange(1, len(curve) + 1) * every * each,
    }


def draw(axes, rows):
    """The curves with fewest transitions in an iteration, which are ahead at equal time."""
    for ax, setting in zip(axes, dict.fromkeys(r["setting"] for r in rows), strict=True):
        for r in (r for r in rows if r["setting"] == setting):
            name, _, count = r["sampler"].partition(", T=")
            if count in ("", "1", str(TRANSITIONS[0])):
                ax.plot(r["seconds"], r["curve"], label=name)
        ax.set(title=setting, xlabel="seconds", ylabel="log RMSE")


if __name__ == "__main__":
    main()
