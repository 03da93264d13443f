"""Deep energies of digits (GWG, section 8; PAS, Table 1): log likelihoods and pictures, samplers at equal
time.

python -m benchmarks.experiments.learn_digits [--seconds 300] [--short]

The 8x8 digits, black and white: a network with three hidden layers of 256 units, learned by a replay buffer
with 100 chains in an iteration and 40 transitions (Gibbs sampling: as many as take the same time), Adam with
warm-up, a moving average of the weights; the split and the threshold are those of `slice_vae`. The digits in
17 greys: the same on vectors of 4 numbers for each grey.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.experiments import baselines, report
from benchmarks.experiments.iterations import seconds_each
from pymc_discrete import Space, kernels, learning

PIXELS, GREYS, WIDTH, SHOWN = 64, 17, 256, 10
CHAINS, TRANSITIONS, BUFFER, WARM_UP = 100, 40, 5000, 0.1
RATES = {2: 1e-3, 17: 1e-4}  # by the number of values
KERNELS = {
    "Gibbs": baselines.gibbs,
    "GWG": kernels.gibbs_with_gradients,
    "PAFS": lambda: kernels.path_auxiliary("adapt"),
    "DMALA": kernels.discrete_langevin,
}
STEPS = 10_000  # of annealed importance sampling


def main():
    args = report.arguments(__doc__, [], steps=STEPS, chains=CHAINS, seconds=300)
    table = report.Table("learn_digits", args)
    grey, labels = load_digits(return_X_y=True)
    train, test = train_test_split(grey.astype(int), test_size=0.2, random_state=0, stratify=labels)
    for setting, of in {"black and white": lambda a: (a > 7).astype(int), "17 greys": lambda a: a}.items():
        pictures = {f"{setting}: data": of(train)[:SHOWN]}
        for name in KERNELS:
            if setting == "17 greys" and name == "Gibbs":
                continue  # 17 evaluations for each site
            make_row = partial(learned, name, of(train), of(test), args, pictures, f"{setting}: {name}")
            table.add(setting, name, make_row)
        if len(pictures) > 1:
            picture(table, pictures, setting.replace(" ", "-"))
    table.write(
        "Deep energies of digits",
        [
            f"log likelihood: nats per image of the test set, by {args.steps} steps of annealed importance "
            "sampling from the base distribution, 100 chains; error: of log Z. log Z is too small in "
            "expectation, so that this is too large. independent: of the base distribution alone. bits: "
            "per pixel.",
            f"As many iterations as the seconds allow, compiling not counted. {CHAINS} chains x "
            f"{TRANSITIONS} transitions of a buffer of {BUFFER}, Adam with rate {RATES[2]} (greys: "
            f"{RATES[17]}) after a warm-up, moving average 0.999.",
            "An autoencoder on the same split and threshold: -18.5 nats, with an energy posterior -17.9 "
            "(slice_vae).",
        ],
    )


def learned(name, train, test, args, pictures, label):
    """A row; a few draws go into `pictures`."""
    values = int(train.max()) + 1
    space = Space.build({"x": (0, values - 1)}, shapes={"x": (PIXELS,)}, nominal=["x"] if values > 2 else [])
    key_embedding, key_network = jax.random.split(jax.random.key(0))
    size = PIXELS if values == 2 else 4 * PIXELS
    network = eqx.nn.MLP(size, "scalar", WIDTH, 3, jax.nn.swish, key=key_network)
    if values > 2:
        embedding = learning.Embedding(values, 4, key=key_embedding)
        network = eqx.nn.Sequential([embedding, eqx.nn.Lambda(jnp.ravel), network])
    network = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, network)
    model = learning.Neural(space, network, base={"x": train})
    kernel, params = KERNELS[name]()
    buffer = 200 if args.short else BUFFER

    transitions = 10 if args.short else TRANSITIONS
    # the baseline evaluates densities only
    way = "gradient" if name != "Gibbs" else "auto"
    options = {
        "sampler": learning.ReplayBuffer(kernel, params, transitions, None, way, size=buffer),
        "chains": args.chains,
        "batch": args.chains,
        "ema": 0.999,
        "progressbar": False,
    }
    each = seconds_each(2 if args.short else 10, model, {"x": train}, **options)
    iterations = int(np.clip(args.seconds / each, 10, 50_000))
    optimizer = optax.adam(optax.linear_schedule(0.0, RATES[values], max(int(WARM_UP * iterations), 1)))
    fit = learning.fit(model, {"x": train}, optimizer=optimizer, iterations=iterations, **options)
    target, density = model.target(fit.params), model.density(fit.params)
    found = learning.log_partition(
        target,
        base=model.base,
        temperatures=50 if args.short else args.steps,
        kernel=kernels.gibbs_with_gradients(),
    )
    forward = found.forward
    of_test = np.asarray(jax.jit(jax.vmap(density.logdensity))(test))
    base = model.log_base[np.arange(PIXELS), test].sum(axis=1)
    likelihood = of_test.mean() - forward.value
    pictures[label] = np.asarray(fit.kept.x)[:SHOWN]
    return {
        "log likelihood": likelihood,
        "error": forward.error,
        "ESS of weights": forward.ess,
        "independent": base.mean(),
        "bits": -likelihood / PIXELS / np.log(2),
        "iterations": iterations,
        "ms per iteration": 1000 * each,
    }


def picture(table, pictures, setting):
    """Chains of every buffer, a row each, below images of the data."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(pictures), SHOWN, figsize=(0.7 * SHOWN, 0.75 * len(pictures)))
    for line, (name, x) in zip(axes, pictures.items(), strict=True):
        for ax, image in zip(line, x, strict=True):
            ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16 if "grey" in name else 1)
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(table.file(f"-{setting}.png"), dpi=90, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
