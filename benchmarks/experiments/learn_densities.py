"""Two-dimensional densities in 32 bits (DFS thesis, sections 3.4 and 4.5), learned by chains and by the
energy discrepancy.

python -m benchmarks.experiments.learn_densities [--only moons pinwheel] [--seconds 45] [--short]

The energy is a network with three hidden layers of 256 units, beside independent bits with the means of the
data. It is learned by a replay buffer of Gibbs-With-Gradients and of a discrete Langevin step, and by the
energy discrepancy, for as many iterations as take the same time.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report
from benchmarks.experiments.densities import (
    BASE,
    BITS,
    COMPARED,
    DENSITIES,
    RANGE,
    SPACE,
    discrepancies,
    of_data,
    plane_of,
    points_of,
    weighed,
)
from benchmarks.experiments.iterations import seconds_each
from pymc_discrete import kernels, learning

WIDTH, BATCH, RATE, EMA = 256, 128, 1e-3, 0.99
TRANSITIONS, BUFFER = 10, 2000
DISCREPANCY, NEGATIVES = "energy discrepancy", 32
SAMPLERS = {"GWG": kernels.gibbs_with_gradients, "DMALA": kernels.discrete_langevin}


def main():
    args = report.arguments(__doc__, [], steps=0, chains=BATCH, seconds=45)
    table, pictures = report.Table("learn_densities", args), {}
    for name in args.only or (["moons"] if args.short else DENSITIES):
        plane = plane_of(name, args.short)
        table.add(name, "data", partial(of_data, plane))
        for way in [*SAMPLERS, DISCREPANCY]:
            table.add(name, way, partial(learned, way, plane, args, pictures, name))
    table.write(
        "Densities of the plane in 32 bits, learned by chains and by the energy discrepancy",
        [
            f"Networks of width {WIDTH}, as many iterations as the seconds allow, compiling not counted; "
            f"batches of {BATCH}, Adam with rate {RATE} that falls to 0, moving average {EMA}; "
            f"{TRANSITIONS} transitions of {BATCH} chains of a buffer of {BUFFER}, or {NEGATIVES} negatives "
            "at noise 0.1.",
            f"NLL of test points, nats, log Z from {BASE} draws of independent bits, with its standard "
            "error; of data: by the counts of 256 times 256 cells. MMD^2 times 10,000 as in "
            "`flow_densities`, of as many draws by these weights.",
        ],
    )
    picture(table, pictures)


def learned(way, plane, args, pictures, name):
    """A row; draws of the energy go into `pictures`."""
    network = eqx.nn.MLP(
        2 * BITS, "scalar", WIDTH, 3, jax.nn.swish, key=jax.random.key(args.seed), dtype=jnp.float32
    )
    model = learning.Neural(SPACE, network, base={"x": plane.data})
    options = {"batch": BATCH, "chains": BATCH, "ema": EMA, "progressbar": False, "seed": args.seed}
    if way == DISCREPANCY:
        options["objective"] = learning.EnergyDiscrepancy(negatives=NEGATIVES)
    else:
        options["sampler"] = learning.ReplayBuffer(*SAMPLERS[way](), transitions=TRANSITIONS, size=BUFFER)
    data = {"x": plane.data}
    each = seconds_each(2 if args.short else 10, model, data, **options)
    iterations = int(np.clip(args.seconds / each, 10, 50_000))
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, iterations))
    fit = learning.fit(model, data, optimizer=optimizer, iterations=iterations, **options)
    found, draws = weighed(model, fit.params, plane, 2000 if args.short else BASE)
    pictures.setdefault(name, {"data": points_of(plane.data)})[way] = points_of(draws[0])
    row = {"iterations": iterations, "ms per iteration": 1000 * each}
    return row | found | discrepancies(draws, plane.tests[:COMPARED])


def picture(table, pictures):
    """Draws of every model, a column for each way."""
    if not pictures:
        return
    import matplotlib.pyplot as plt

    ways = ["data", *SAMPLERS, DISCREPANCY]
    figure, axes = plt.subplots(
        len(pictures), len(ways), figsize=(2 * len(ways), 2 * len(pictures)), squeeze=False
    )
    for line, (name, of_ways) in zip(axes, pictures.items(), strict=True):
        for ax, way in zip(line, ways, strict=True):
            ax.plot(*of_ways.get(way, np.zeros((0, 2))).T, ",", color="k")
            ax.set(xlim=(-RANGE, RANGE), ylim=(-RANGE, RANGE), xticks=[], yticks=[])
            if ax is line[0]:
                ax.set_ylabel(name)
    for ax, way in zip(axes[0], ways, strict=True):
        ax.set_title(way, fontsize=9)
    figure.savefig(table.file("-samples.png"), dpi=90, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
