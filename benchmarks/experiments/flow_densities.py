"""Two-dimensional densities in 32 bits (DFS thesis, Tables 3.3, 3.4 and 3.8), learned by discrete flows.

python -m benchmarks.experiments.flow_densities [--only moons pinwheel] [--ways DFM CVM] [--short]

Points of the plane become two numbers of 16 bits in Gray code. Flows are trained on points (DFM, CVM), or on
the density alone (EDFM, ECVM): on draws of independent bits, weighted by the density.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import harness
from benchmarks.experiments import report
from benchmarks.experiments.densities import (
    BITS,
    CHECKED,
    DENSITIES,
    POINTS,
    RANGE,
    REPEATS,
    SPACE,
    discrepancies,
    independent,
    plane_of,
    points_of,
)
from pymc_discrete import learning, target_from_logdensity
from pymc_discrete.flows.model import FlowModel, grid
from pymc_discrete.flows.networks import Perceptron
from pymc_discrete.flows.objectives import CVM, DFM
from pymc_discrete.flows.sources import Empirical

PROPOSED = 200_000  # draws of independent bits
WEIGHED = 4000  # draws for log Z
ITERATIONS, WIDTH, BATCH, RATE, EMA, STEPS = 20_000, 256, 128, 1e-3, 0.99, 20
EVERYWHERE = ["DFM", "CVM", "EDFM", "ECVM"]  # the ways of which all densities have rows
WAYS = {
    "DFM": (DFM(), "linear", "mask", STEPS),
    "CVM": (CVM(), "linear", "mask", STEPS),
    "EDFM": (DFM(), "linear", "mask", STEPS),
    "ECVM": (CVM(), "linear", "mask", STEPS),
    "DFM, bound": (DFM(bound=True), "linear", "mask", STEPS),
    "DFM, uniform": (DFM(), "linear", "uniform", STEPS),
    "DFM, uniform, 100 steps": (DFM(), "linear", "uniform", 100),
    "DFM, data": (DFM(), "linear", "data", STEPS),
    "DFM, quadratic": (DFM(), "quadratic", "mask", STEPS),
    "DFM, cubic": (DFM(), "cubic", "mask", STEPS),
    "DFM, noise": (DFM(), "noise", "mask", STEPS),
    "CVM, uniform": (CVM(), "linear", "uniform", STEPS),
    "CVM, data": (CVM(), "linear", "data", STEPS),
}


def main():
    args = report.arguments(__doc__, [], steps=0, chains=BATCH, seconds=0, more=options)
    if args.short:
        args.iterations, args.width = min(args.iterations, 20), min(args.width, 16)
    table, pictures = report.Table("flow_densities", args), {}
    for name in args.only or (["moons"] if args.short else DENSITIES):
        plane = plane_of(name, args.short)
        for way in args.ways:
            if way in EVERYWHERE or name == "2spirals" or args.only:
                label = way if args.width == WIDTH else f"{way}, width {args.width}"
                table.add(name, label, partial(learned, way, plane, args, pictures, name))
    table.write(
        "Densities of the plane in 32 bits, by flows",
        [
            f"Networks of width {WIDTH} unless the name says otherwise, batches of {BATCH}, Adam with a rate "
            f"that falls from {RATE} to 0, moving average {EMA}; {STEPS} finite steps from the source, "
            "linear path from masks, unless the name says otherwise.",
            f"DFM, CVM: trained on {POINTS} points; EDFM, ECVM: on {PROPOSED} draws of independent bits with "
            "the means of the points, weighted by the density, the share of whose effective size is "
            "`proposal ESS`.",
            f"MMD^2 times 10,000, unbiased, mean of {REPEATS} times {CHECKED} draws against as many test "
            "points, and the standard error of that mean: H in bits, exp(-0.1 Hamming distance); E in the "
            "plane, exp(-distance^2 / 0.02). Of two samples of one density the expectation is 0.",
            f"log Z of the density, whose truth is 0, from {WEIGHED} weighted draws, with their effective "
            "size and k-hat. The density is constant on 256 times 256 cells.",
        ],
    )
    picture(table, pictures)


def options(parser):
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--width", type=int, default=WIDTH, help="of the hidden layers")
    harness.choice(parser, "--ways", WAYS, default=list(WAYS))


# ---------------------------------------------------------------- data
def proposed(plane, n):
    """Draws (n, 32) of independent bits, and weights (n,) that make them draws of the density."""
    p, r = independent(plane.data), np.random.default_rng(1)
    x = (r.random((n, 2 * BITS)) < p).astype(int)
    log_q = x @ np.log(p) + (1 - x) @ np.log1p(-p)
    log_f = np.asarray(jax.jit(jax.vmap(plane.log_density))(jnp.asarray(x)))
    return x, np.exp(log_f - log_q)


# ---------------------------------------------------------------- rows
def learned(way, plane, args, pictures, name):
    """A row; its draws go into `pictures`."""
    objective, path, source, steps = WAYS[way]
    network = Perceptron(2 * BITS, 2, width=args.width, depth=3, key=jax.random.key(args.seed))
    model = FlowModel(SPACE, network, path, Empirical(plane.data) if source == "data" else source)
    x, weights = plane.data, None
    if way in ("EDFM", "ECVM"):
        x, weights = proposed(plane, 2000 if args.short else PROPOSED)
    begin = time.perf_counter()
    fitted = learning.fit(
        model,
        {"x": x},
        weights=weights,
        objective=objective,
        optimizer=optax.adam(optax.cosine_decay_schedule(RATE, args.iterations)),
        iterations=args.iterations,
        batch=BATCH,
        ema=EMA,
        seed=args.seed,
        progressbar=False,
    )
    row = {"s": time.perf_counter() - begin, "iterations": args.iterations}
    flow, test = model.flow(fitted.params, grid(steps)), plane.tests
    draws = flow.sample(test[..., 0].size, seed=1)["x"].reshape(test.shape)
    row |= discrepancies(draws, test)
    pictures.setdefault(name, {"data": points_of(plane.data)})[way] = points_of(draws[0])
    if source != "data":
        target = target_from_logdensity(plane.log_density, SPACE)
        found = flow.log_partition(target, len(test[0]) if args.short else WEIGHED, seed=2)
        row |= {"log Z": found.value, "+-": found.error, "ESS": found.ess, "k-hat": found.khat}
    if weights is not None:
        row["proposal ESS"] = weights.sum() ** 2 / (weights**2).sum() / len(weights)
    return row


def picture(table, pictures):
    """Draws of every way, a column for each, after points of the data."""
    if not pictures:
        return
    import matplotlib.pyplot as plt

    ways = ["data", *dict.fromkeys(way for of_ways in pictures.values() for way in list(of_ways)[1:])]
    figure, axes = plt.subplots(
        len(pictures), len(ways), figsize=(2 * len(ways), 2 * len(pictures)), squeeze=False
    )
    for line, (name, of_ways) in zip(axes, pictures.items(), strict=True):
        for ax, way in zip(line, ways, strict=True):
            ax.set_visible(way in of_ways)
            ax.plot(*of_ways.get(way, np.zeros((0, 2)))[:CHECKED].T, ",", color="k")
            ax.set(xlim=(-RANGE, RANGE), ylim=(-RANGE, RANGE), xticks=[], yticks=[])
            ax.set_title(way, fontsize=9)
        line[0].set_ylabel(name)
    figure.savefig(table.file("-samples.png"), dpi=90, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
