"""Energy-based models of scikit-learn's 8x8 digits (PMP, sections 5.3 and 5.5): quality of samples over
sweeps, and pictures.

python -m benchmarks.experiments.digits [--short]

There are two models: a fully connected Ising model of the zeros, and an RBM with 100 hidden units of all
digits. Each is learned once with every sampler and then sampled with more and with fewer sweeps than in
learning.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report
from benchmarks.experiments.digits_rbm import gibbs
from benchmarks.experiments.structured import log_mmd, sampler, timed_draws
from pymc_discrete import learning

HIDDEN, TRAINING, SAMPLING = 100, 50, (5, 10, 25, 50, 100, 200)
ITERATIONS = {"zeros": 500, "RBM": 1500}
DRAWS, SHOWN = 500, 10


class RBMGibbs(NamedTuple):
    """Gibbs sampling of an RBM: all hidden units given the visible, and back."""

    sweeps: int
    persistent: bool

    def begin(self, key, graph, chains):
        return learning.samplers.first_states(graph, key, (chains,))

    def draw(self, key, graph, last, chains, batch=None):
        key_start, key_move, key_hidden = jax.random.split(key, 3)
        x = last if self.persistent else self.begin(key_start, graph, chains)
        W, b, c = parameters(graph)
        v = x[:, : len(b)].astype(W.dtype)
        sweep = lambda t, v: gibbs(jax.random.fold_in(key_move, t), v, W, b, c)
        v = jax.lax.fori_loop(0, self.sweeps, sweep, v)
        h = jax.random.bernoulli(key_hidden, jax.nn.sigmoid(v @ W + c))
        x = jnp.concatenate([v, h], axis=1).astype(int)
        return x, x

    def conditional(self, key, graph, kept=None):
        W, _, c = parameters(graph)
        v = graph.unary[0].argmax(axis=0)  # the visible units are fixed
        return jnp.concatenate([v, jax.random.bernoulli(key, jax.nn.sigmoid(v @ W + c)).astype(int)])


def parameters(graph):
    """Weights (visible, hidden), biases of the visible and of the hidden units."""
    visible, hidden = (unary[1] - unary[0] for unary in graph.unary)
    return graph.parameters[0]["weights"], visible, hidden


ISING: dict[str, Any] = {
    name: lambda t, name=name: sampler(name, t, 64) for name in ("Gibbs", "GWG", "DMALA", "PMP")
}
# (sampler in learning, function from a number of sweeps to the sampler of the result)
RBMS: dict[str, Any] = {
    "Gibbs-reset": (RBMGibbs(TRAINING, False), lambda t: RBMGibbs(t, False)),
    "PCD-1": (RBMGibbs(1, True), lambda t: RBMGibbs(t, False)),
    "PCD-50": (RBMGibbs(TRAINING, True), lambda t: RBMGibbs(t, False)),
    "PMP": (learning.PMP(TRAINING), lambda t: learning.PMP(t)),
}


def main():
    args = report.arguments(__doc__, [], steps=0, chains=100, seconds=0)
    table = report.Table("digits", args)
    images, kinds = digits()
    for name, make in ISING.items():
        learn = lambda m=make: learned(
            learning.Ising(64), {"x": images[kinds == 0]}, m(TRAINING), m, args, "zeros", 0.01
        )
        table.add("zeros, Ising", name, learn)
    for name, (train, make) in RBMS.items():
        learn = lambda t=train, m=make: learned(
            learning.RBM(64, HIDDEN), {"v": images}, t, m, args, "RBM", 0.003
        )
        table.add(f"digits, RBM with {HIDDEN} hidden units", name, learn)
    table.write(
        "Models of digits",
        [
            f"log MMD^2 of {DRAWS} draws to the images, by sweeps. Learned with {TRAINING} sweeps (PCD-1: "
            f"1), {args.chains} chains, Adam, {report.listed(ITERATIONS)} iterations; GWG, DMALA, Gibbs: "
            "chains begin anew in every iteration.",
            "floor: of one half of the images to the other. train s: seconds of learning, compiling "
            f"included; draw s: of drawing with {TRAINING} sweeps.",
        ],
    )
    table.figure(draw, columns=2)
    pictures(table, images, kinds)


def digits():
    """(1797, 64) int of 0, 1, and the digits that they show."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.data > 7).astype(int), bunch.target


def learned(model, data, train, make, args, kind, rate):
    images = next(iter(data.values()))
    iterations = 5 if args.short else ITERATIONS[kind]
    params = None if kind == "RBM" else jax.tree.map(jnp.zeros_like, model.start(jax.random.key(0)))
    begin = time.perf_counter()
    options = {"iterations": iterations, "chains": args.chains, "batch": args.chains, "params": params}
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations))
    fit = jax.block_until_ready(learning.fit(model, data, sampler=train, optimizer=optimizer, **options))
    row, curve = {"train s": time.perf_counter() - begin, "draw s": 0.0}, []
    halves = np.random.default_rng(0).permutation(len(images))
    row["floor"] = log_mmd(images[halves[::2]], images[halves[1::2]])
    for sweeps in SAMPLING[:2] if args.short else SAMPLING:
        x, seconds = timed_draws(make(sweeps), model.graph(fit.params), DRAWS)
        curve.append(log_mmd(np.asarray(x)[:, :64], images))
        row[f"{sweeps} sweeps"] = curve[-1]
        if sweeps == TRAINING or args.short:
            row |= {"draw s": seconds, "shown": np.asarray(x)[:SHOWN, :64]}
    return {**row, "curve": np.array(curve)}


def draw(axes, rows):
    for ax, kind in zip(axes, ("zeros", "digits"), strict=True):
        for r in (r for r in rows if r["setting"].startswith(kind)):
            ax.plot(
                SAMPLING[: len(r["curve"])],
                r["curve"],
                "o-",
                ms=4,
                label=f"{r['sampler']} ({r['train s']:.0f} s)",
            )
            floor = r["floor"]
        ax.axhline(floor, color="k", ls=":", lw=0.8)
        ax.set(title=r["setting"], xscale="log", xlabel="sweeps", ylabel="log MMD^2")
        ax.legend(fontsize=7)


def pictures(table, images, kinds):
    """Samples of every method, a row each, below images of the data."""
    import matplotlib.pyplot as plt

    rows = table.ordered()
    shown = [
        ("data: zeros", images[kinds == 0][:SHOWN]),
        *((r["sampler"], r["shown"]) for r in rows if "Ising" in r["setting"]),
    ]
    shown += [("data", images[:SHOWN]), *((r["sampler"], r["shown"]) for r in rows if "RBM" in r["setting"])]
    figure, axes = plt.subplots(len(shown), SHOWN, figsize=(0.7 * SHOWN, 0.75 * len(shown)))
    for line, (name, x) in zip(axes, shown, strict=True):
        for ax, image in zip(line, x, strict=True):
            ax.imshow(np.reshape(image, (8, 8)), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(table.file("-samples.png"), dpi=90, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
