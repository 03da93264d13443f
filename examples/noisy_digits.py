"""A prior that was learned: digits in noise whose strength is not known.

A network learns what handwritten digits look like, as an energy whose normalising constant nobody knows
(Grathwohl et al. 2021, section 8): persistent chains of a discrete Langevin kernel, a replay buffer, an
exponential moving average of the weights. Then it is the prior of a PyMC model. Each pixel of some digits
that it has not seen was flipped with an unknown probability. The pixels are drawn by a discrete Langevin step
with gradients of the network, and the probability by NUTS.

    python examples/noisy_digits.py [--iterations 4000] [--flipped 0.15] [--figure noisy_digits.png] [--short]
"""

import argparse
import logging
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
import pymc as pm
from sklearn.datasets import load_digits

import pymc_discrete as pmd
from pymc_discrete import learning

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
SHOWN, PIXELS = 12, 64


def digits() -> tuple[np.ndarray, np.ndarray]:
    """(1500, 64) and (297, 64) int of 0 and 1: to learn from, and unseen."""
    images = (load_digits().data > 7).astype(int)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order[:1500]], images[order[1500:]]


def learned(images: np.ndarray, iterations: int) -> tuple[learning.Neural, learning.Fit]:
    """A network of the pixels, and its weights after learning."""
    space = pmd.Space.build({"x": (0, 1)}, shapes={"x": (PIXELS,)})
    network = eqx.nn.MLP(PIXELS, "scalar", 128, 2, jax.nn.swish, key=jax.random.key(0))
    # weights of 32 bits: half the time
    network = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, network)
    model = learning.Neural(space, network, base={"x": images})
    buffer = learning.ReplayBuffer(*pmd.kernels.discrete_langevin(), transitions=10, size=1000)
    rate = optax.warmup_cosine_decay_schedule(0.0, 1e-3, iterations // 10, iterations)
    fit = learning.fit(
        model, {"x": images}, sampler=buffer, optimizer=optax.adam(rate), iterations=iterations, ema=0.99
    )
    return model, fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=4000)
    parser.add_argument("--flipped", type=float, default=0.15, help="probability that a pixel is flipped")
    parser.add_argument("--short", action="store_true", help="few iterations and draws, for a test run")
    parser.add_argument("--figure", type=Path, default=HERE / "noisy_digits.png")
    args = parser.parse_args()
    iterations, draws = (20, 20) if args.short else (args.iterations, 500)
    logging.getLogger("pymc").setLevel(logging.ERROR)

    seen, unseen = digits()
    begin = time.perf_counter()
    prior, fit = learned(seen, iterations)
    print(f"learned in {time.perf_counter() - begin:.0f} s")

    true = unseen[:SHOWN]
    noisy = np.where(np.random.default_rng(1).random(true.shape) < args.flipped, 1 - true, true)
    with pm.Model():
        flip = pm.Uniform("flip", 0, 0.5)
        x = pm.Bernoulli("x", 0.5, shape=true.shape)
        pm.Potential("prior", prior.potential(fit.params, {"x": x}))
        pm.Bernoulli("y", pm.math.where(pm.math.eq(x, 1), 1 - flip, flip), observed=noisy)
        step = pmd.DiscreteLangevin([x], differences="gradient")
        begin = time.perf_counter()
        idata = pmd.sample(draws, tune=draws, step=step, random_seed=2)
        print(f"sampled in {time.perf_counter() - begin:.0f} s")

    flips = idata.posterior["flip"].values.ravel()
    pixels = idata.posterior["x"].values.reshape(-1, *true.shape).mean(0)
    independent = seen.mean(0)  # a prior in which every pixel is on its own, with the noise known
    on = np.where(noisy == 1, 1 - args.flipped, args.flipped) * independent
    off = np.where(noisy == 1, args.flipped, 1 - args.flipped) * (1 - independent)
    print(f"{(noisy != true).mean():.3f} of the pixels were flipped")
    print(
        f"flip: {flips.mean():.3f}, 95 % {np.quantile(flips, 0.025):.3f} to {np.quantile(flips, 0.975):.3f}"
    )
    print(
        f"wrong pixels: independent prior, noise known {((on > off) != true).mean():.3f}, "
        f"learned prior {((pixels > 0.5) != true).mean():.3f}"
    )

    figure = plt.figure(figsize=(0.7 * SHOWN, 4.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3, 1.3))
    rows = {"true": true, "seen": noisy, "pixels alone": on / (on + off), "learned prior": pixels}
    axes = above.subplots(len(rows), SHOWN)
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for ax, image in zip(line, images, strict=True):
            ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    ax = below.subplots()
    ax.hist(flips, bins=40, density=True, color="0.6")
    ax.axvline((noisy != true).mean(), color="k", ls=":")
    ax.set(xlabel="probability of a flip; dotted: the share of pixels that were flipped", yticks=[])
    figure.savefig(args.figure, dpi=110, bbox_inches="tight")
    print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
