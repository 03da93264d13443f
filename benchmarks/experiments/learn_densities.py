"""Two-dimensional densities in 32 bits (DFS thesis, sections 3.4 and 4.5), learned by chains and by the
energy discrepancy.

python -m benchmarks.experiments.learn_densities [--only moons pinwheel] [--short]

Points of the plane become two numbers of 16 bits in Gray code. The energy is a network with three hidden
layers of 256 units. It is learned by a replay buffer of Gibbs-With-Gradients and of a discrete Langevin step,
and by the energy discrepancy.
"""

import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report
from pymc_discrete import Space, kernels, learning

BITS, RANGE, POINTS = 16, 4.0, 20_000
WIDTH, ITERATIONS, BATCH, RATE = 256, 5000, 128, 1e-3
TRANSITIONS, BUFFER, CHECKED, SHOWN = 20, 2000, 4000, 400
DISCREPANCY = "energy discrepancy"
SAMPLERS = {"GWG": kernels.gibbs_with_gradients, "DMALA": kernels.discrete_langevin}


def main():
    args = report.arguments(__doc__, [], steps=ITERATIONS, chains=BATCH, seconds=0)
    if args.short:
        args.steps = 20
    table = report.Table("learn_densities", args)
    pictures = {}
    for name, points in DENSITIES.items():
        if args.short and name != "moons":
            continue
        if args.only and name not in args.only:
            continue
        r = np.random.default_rng(0)
        data, test = (bits_of(scaled(points(r, POINTS))) for _ in range(2))
        for way in [*SAMPLERS, DISCREPANCY]:
            table.add(name, way, partial(learned, way, data, test, args, pictures, name))
    table.write(
        "Densities of the plane in 32 bits",
        [
            f"{args.steps} iterations of batches of {BATCH}, Adam with rate {RATE}, moving average 0.999; "
            f"{TRANSITIONS} transitions of {BATCH} chains of a buffer of {BUFFER}, or 32 negatives at "
            "noise 0.1.",
            f"MMD^2, unbiased, of {CHECKED} draws by 2000 steps of DMALA from the base to as many test "
            "points: H in bits, exp(-0.1 Hamming distance); E in the plane, a normal kernel of width 0.1. "
            "floor: of two samples of the data.",
        ],
    )
    picture(table, pictures)


# ---------------------------------------------------------------- data
def scaled(points):
    """Points whose largest coordinate is below `RANGE`."""
    return points / np.abs(points).max() * 0.95 * RANGE


def bits_of(points):
    """(n, 32) int, Gray codes of points (n, 2)."""
    numbers = ((points + RANGE) / (2 * RANGE) * 2**BITS).astype(int).clip(0, 2**BITS - 1)
    gray = numbers ^ (numbers >> 1)
    return (gray[:, :, None] >> np.arange(BITS)[::-1] & 1).reshape(len(points), -1)


def points_of(bits):
    """(n, 2) float, the points with these Gray codes (n, 32)."""
    binary = np.bitwise_xor.accumulate(np.asarray(bits).reshape(-1, 2, BITS), axis=2)
    return (binary @ 2 ** np.arange(BITS)[::-1] + 0.5) / 2**BITS * 2 * RANGE - RANGE


def rings(r, n):
    """Two circles."""
    radius, angle = r.choice([1.0, 2.0], n), 2 * np.pi * r.random(n)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * r.normal(size=(n, 2))


def moons(r, n):
    """Two half circles, one within the other's reach."""
    angle, which = np.pi * r.random(n), r.integers(2, size=n)
    x = np.where(which, 1 - np.cos(angle), np.cos(angle)) - 0.5
    y = np.where(which, 0.5 - np.sin(angle), np.sin(angle)) - 0.25
    return np.stack([x, y], 1) + 0.1 * r.normal(size=(n, 2))


def eight(r, n):
    """Eight normals on a circle."""
    angle = 2 * np.pi * r.integers(8, size=n) / 8
    return 4 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.5 * r.normal(size=(n, 2))


def pinwheel(r, n):
    """Five bent arms."""
    radial, tangential = 1 + 0.3 * r.normal(size=n), 0.05 * r.normal(size=n)
    angle = 2 * np.pi * r.integers(5, size=n) / 5 + 0.25 * np.exp(radial)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    return np.einsum("ni,nij->nj", np.stack([radial, tangential], 1), turn)


def spirals(r, n):
    """Two arms."""
    t = 3 * np.pi * np.sqrt(r.random(n))
    arm = np.stack([-np.cos(t) * t, np.sin(t) * t], 1)
    return np.where(r.integers(2, size=n)[:, None], arm, -arm) / 3 + 0.1 * r.normal(size=(n, 2))


def swissroll(r, n):
    """One arm."""
    t = 1.5 * np.pi * (1 + 2 * r.random(n))
    return np.stack([t * np.cos(t), t * np.sin(t)], 1) + r.normal(size=(n, 2)) * 0.5


def checkerboard(r, n):
    """Every other square."""
    x, y = 4 * r.random(n) - 2, r.random(n) - 2 * r.integers(2, size=n)
    return np.stack([x, y + np.floor(x) % 2], 1)


DENSITIES = {
    "swissroll": swissroll,
    "circles": rings,
    "moons": moons,
    "8gaussians": eight,
    "pinwheel": pinwheel,
    "2spirals": spirals,
    "checkerboard": checkerboard,
}


# ---------------------------------------------------------------- learning
def learned(way, data, test, args, pictures, name):
    """A row; its draws go into `pictures`."""
    space = Space.build({"x": (0, 1)}, shapes={"x": (2 * BITS,)})
    network = eqx.nn.MLP(2 * BITS, "scalar", WIDTH, 3, jax.nn.swish, key=jax.random.key(0))
    network = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, network)
    model = learning.Neural(space, network, base={"x": data})
    options = {"batch": BATCH, "chains": BATCH, "ema": 0.999, "optimizer": optax.adam(RATE)}
    if way == DISCREPANCY:
        options["objective"] = way
    else:
        options["sampler"] = learning.ReplayBuffer(*SAMPLERS[way](), transitions=TRANSITIONS, size=BUFFER)
    begin = time.perf_counter()
    fit = learning.fit(model, {"x": data}, iterations=args.steps, progressbar=False, **options)
    seconds = time.perf_counter() - begin
    chains = learning.ContrastiveDivergence(
        *kernels.discrete_langevin(), transitions=20 if args.short else 2000, start="uniform"
    )
    density, count = model.density(fit.params), 200 if args.short else CHECKED
    kept = chains.begin(jax.random.key(1), density, count)
    draws = np.asarray(jax.jit(lambda kept: chains.draw(jax.random.key(2), density, kept, count)[0])(kept))
    pictures.setdefault(name, {"data": points_of(data[:POINTS])})[way] = points_of(draws)
    row = {"s": seconds, "iterations": args.steps}
    for label, x in {"": draws, ", floor": data[:count]}.items():
        y = test[:count]
        row[f"H-MMD^2{label}"] = float(learning.squared_mmd(x, y, scale=10.0, unbiased=True))
        row[f"E-MMD^2{label}"] = float(
            learning.squared_mmd(points_of(x), points_of(y), kernel="rbf", scale=0.1, unbiased=True)
        )
    return row


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
