"""Deep energies of digits (GWG, section 8; PAS, Table 1): log likelihoods and pictures, samplers at equal
time.

python -m benchmarks.experiments.learn_digits [--seconds 300] [--short]

The 8x8 digits, black and white: a network with three hidden layers of 256 units, and a residual one of
convolutions, learned by a replay buffer with 100 chains in an iteration, Adam with warm-up, a moving average
of the weights; the split and the threshold are those of `slice_vae`. The digits in 17 greys: three hidden
layers on vectors of 4 numbers for each grey. The digits scaled up to 28x28, black and white, are for an
accelerator: they run where `--only 28x28` asks for them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.experiments import baselines, report
from benchmarks.experiments.digits_rbm import digits
from benchmarks.experiments.iterations import seconds_each
from pymc_discrete import Space, kernels, learning

PIXELS, GREYS, WIDTH, SHOWN = 64, 17, 256, 10
BLOCKS, MAPS = 2, 16  # of the residual network
CHAINS, BUFFER, WARM_UP = 100, 5000, 0.1
KERNELS = {
    "Gibbs": baselines.gibbs,
    "GWG": kernels.gibbs_with_gradients,
    "PAFS": lambda: kernels.path_auxiliary("adapt"),
    "PAFS-5": lambda: kernels.path_auxiliary(5),
    "DMALA": kernels.discrete_langevin,
}
STEPS = 10_000  # of annealed importance sampling
ANNEALED = kernels.gibbs_with_gradients()


class Setting(NamedTuple):
    """What is learned, and how.

    Attributes
    ----------
    values : the number of values of a pixel
    network : of a key
    samplers : names
    rate : of Adam
    transitions : in an iteration
    energy_l2 : the penalty on squares of energies
    annealing : the share of the steps of annealed importance sampling that it gets
    ema : the moving average of the weights
    side : pixels of an image along each side: 8, or 28 for images that are scaled up
    """

    values: int
    network: Callable[[Any], Any]
    samplers: list[str]
    rate: float
    transitions: int
    energy_l2: float = 0.0
    annealing: float = 1.0
    ema: float = 0.999
    side: int = 8

    def images(self):
        """(n, pixels) int, images to learn from, and others to test by."""
        grey, labels = load_digits(return_X_y=True)
        images = grey.astype(int) if self.values == GREYS else (grey > 7).astype(int)
        images = images if self.side == 8 else digits().astype(int)
        return train_test_split(images, test_size=0.2, random_state=0, stratify=labels)


def main():
    args = report.arguments(__doc__, [], steps=STEPS, chains=CHAINS, seconds=300, more=options)
    table = report.Table("learn_digits", args)
    for name, setting in SETTINGS.items():
        if name not in (args.only or BY_DEFAULT):
            continue
        train, test = setting.images()
        pictures = {"data": train[:SHOWN]}
        for sampler in setting.samplers:
            table.add(name, sampler, partial(learned, setting, sampler, train, test, args, pictures))
        if len(pictures) > 1:
            picture(table, pictures, name, setting)
    table.write(
        "Deep energies of digits",
        [
            f"log likelihood: nats per image of the test set, by {args.steps} steps of annealed importance "
            "sampling (residual: a tenth) from the base distribution, 100 chains; error: of log Z. log Z is "
            "too small in expectation, so that this is too large. independent: of the base distribution "
            "alone. bits: per pixel.",
            "As many iterations as the seconds allow, compiling not counted, or as was asked. "
            f"{CHAINS} chains of a buffer of {BUFFER}, Adam after a warm-up. T: transitions in an iteration; "
            "rate: of Adam; penalty: on squares of energies; average: the moving one of the weights.",
            f"Residual: {BLOCKS} blocks of two convolutions of {MAPS} maps, else three hidden layers of "
            f"{WIDTH} units.",
            "An autoencoder on the same split and threshold: -18.5 nats, with an energy posterior -17.9 "
            "(slice_vae).",
        ],
    )


def options(p):
    p.add_argument("--iterations", type=int, help="in place of as many as the seconds allow")


def learned(setting, name, train, test, args, pictures):
    """A row; a few draws go into `pictures`."""
    model = energy_of(setting.network(jax.random.key(0)), setting.values, train)
    kernel, params = KERNELS[name]()
    transitions = min(setting.transitions, 10) if args.short else setting.transitions
    # the baseline evaluates densities only
    way = "gradient" if name != "Gibbs" else "auto"
    buffer = 200 if args.short else BUFFER
    options = {
        "sampler": learning.ReplayBuffer(kernel, params, transitions, None, way, size=buffer),
        "chains": args.chains,
        "batch": args.chains,
        "ema": setting.ema,
        "energy_l2": setting.energy_l2,
        "progressbar": False,
    }
    each = seconds_each(2 if args.short else 10, model, {"x": train}, **options)
    iterations = args.iterations or int(np.clip(args.seconds / each, 10, 50_000))
    optimizer = optax.adam(optax.linear_schedule(0.0, setting.rate, max(int(WARM_UP * iterations), 1)))
    fit = learning.fit(model, {"x": train}, optimizer=optimizer, iterations=iterations, **options)
    pictures[name] = np.asarray(fit.kept.x)[:SHOWN]
    row = {"T": transitions, "rate": setting.rate, "penalty": setting.energy_l2, "average": setting.ema}
    row |= {"iterations": iterations, "ms per iteration": 1000 * each}
    steps = 50 if args.short else int(setting.annealing * args.steps)
    return likelihood(model, fit.params, test, steps) | row


def energy_of(network, values, train):
    """The energy of images: a network in float32 beside independent pixels."""
    shapes, nominal = {"x": train.shape[1:]}, ["x"] if values > 2 else []
    space = Space.build({"x": (0, values - 1)}, shapes=shapes, nominal=nominal)
    network = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, network)
    return learning.Neural(space, network, base={"x": train})


def likelihood(model, params, test, steps):
    """The columns of the log likelihood of test images, by annealed importance sampling."""
    target = model.target(params)
    found = learning.log_partition(target, base=model.base, temperatures=steps, kernel=ANNEALED).forward
    of_test = np.asarray(jax.jit(jax.vmap(model.density(params).logdensity))(test))
    pixels = test.shape[1]
    base = model.log_base[np.arange(pixels), test].sum(axis=1)
    value = of_test.mean() - found.value
    return {
        "log likelihood": value,
        "error": found.error,
        "ESS of weights": found.ess,
        "independent": base.mean(),
        "bits": -value / pixels / np.log(2),
    }


# ---------------------------------------------------------------- networks
def perceptron(key, pixels=PIXELS):
    """Of the pixels, three hidden layers."""
    return eqx.nn.MLP(pixels, "scalar", WIDTH, 3, jax.nn.swish, key=key)


def embedded(key):
    """Of vectors of 4 numbers for each grey, three hidden layers."""
    key_embedding, key_network = jax.random.split(key)
    network = eqx.nn.MLP(4 * PIXELS, "scalar", WIDTH, 3, jax.nn.swish, key=key_network)
    embedding = learning.Embedding(GREYS, 4, key=key_embedding)
    return eqx.nn.Sequential([embedding, eqx.nn.Lambda(jnp.ravel), network])


class Residual(eqx.Module):
    """Blocks of two convolutions beside the identity, and the sum of the maps."""

    first: eqx.nn.Linear
    blocks: list[tuple[eqx.nn.Linear, eqx.nn.Linear]]
    last: eqx.nn.Linear

    def __init__(self, key):
        keys = iter(jax.random.split(key, 2 * BLOCKS + 2))
        convolution = lambda inputs: eqx.nn.Linear(9 * inputs, MAPS, key=next(keys))
        self.first = convolution(1)
        self.blocks = [(convolution(MAPS), convolution(MAPS)) for _ in range(BLOCKS)]
        self.last = eqx.nn.Linear(MAPS, "scalar", key=next(keys))

    def __call__(self, x):
        maps = convolved(self.first, x.reshape(8, 8, 1).astype(self.last.weight.dtype))
        for one, other in self.blocks:
            maps = maps + convolved(other, jax.nn.swish(convolved(one, jax.nn.swish(maps))))
        return self.last(jax.nn.swish(maps).sum(axis=(0, 1)))


def convolved(layer, maps):
    """(8, 8, MAPS), a layer on the 3 x 3 pixels around each: on a CPU eight times as fast as XLA's."""
    around = jnp.pad(maps, ((1, 1), (1, 1), (0, 0)))
    parts = [around[i : i + 8, j : j + 8] for i in range(3) for j in range(3)]
    return jnp.concatenate(parts, axis=2) @ layer.weight.T + layer.bias


SETTINGS = {
    "black and white": Setting(2, perceptron, ["Gibbs", "GWG", "PAFS", "DMALA"], 1e-3, 40),
    "black and white, residual": Setting(2, Residual, ["GWG"], 1e-3, 10, annealing=0.1, ema=0.99),
    "17 greys": Setting(GREYS, embedded, ["GWG", "PAFS", "DMALA"], 1e-3, 40, 0.01, ema=0.99),
    "28x28": Setting(2, partial(perceptron, pixels=28**2), ["GWG", "PAFS-5", "DMALA"], 1e-3, 40, side=28),
}
BY_DEFAULT = [name for name, setting in SETTINGS.items() if setting.side == 8]


def picture(table, pictures, name, setting):
    """Chains of every buffer, a row each, below images of the data."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(pictures), SHOWN, figsize=(0.7 * SHOWN, 0.75 * len(pictures)))
    for line, (sampler, x) in zip(axes, pictures.items(), strict=True):
        for ax, image in zip(line, x, strict=True):
            ax.imshow(image.reshape(setting.side, -1), cmap="gray_r", vmin=0, vmax=setting.values - 1)
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(sampler, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(table.file(f"-{name.replace(',', '').replace(' ', '-')}.png"), dpi=90, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
