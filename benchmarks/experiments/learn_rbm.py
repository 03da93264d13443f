"""Restricted Boltzmann machines of digits: log likelihoods with log Z between two bounds.

python -m benchmarks.experiments.learn_rbm [--short]

Machines with 16 hidden units, whose log Z is known by enumeration, and with 100. They are learned by
contrastive divergence with 1 and 10 sweeps of Gibbs sampling, all units of a layer together, from the data
(CD-1, CD-10), and with 1 sweep of persistent chains (PCD-1). log Z is that of the visible units, the hidden
ones summed out, along a path of Gibbs-With-Gradients. The split and the threshold are those of `slice_vae`.
"""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.experiments import report
from benchmarks.experiments.iterations import seconds_each
from pymc_discrete import Space, kernels, learning, target_from_logdensity

PIXELS, HIDDEN, ITERATIONS, CHAINS, RATE, RUNS = 64, (16, 100), 10_000, 100, 0.002, 10
SPACE = Space.build({"v": (0, 1)}, shapes={"v": (PIXELS,)})
SAMPLERS = {"CD-1": (1, "data"), "CD-10": (10, "data"), "PCD-1": (1, "persistent")}


def main():
    args = report.arguments(__doc__, [], steps=1000, chains=CHAINS, seconds=0)
    table = report.Table("learn_rbm", args)
    black, labels = load_digits(return_X_y=True)
    train, test = train_test_split((black > 7).astype(int), test_size=0.2, random_state=0, stratify=labels)
    for hidden in (4,) if args.short else HIDDEN:
        for name in SAMPLERS:
            make_row = lambda n=name, h=hidden: learned(n, h, train, test, args)
            table.add(f"{hidden} hidden units", name, make_row)
    table.write(
        "Restricted Boltzmann machines of digits",
        [
            f"{ITERATIONS} iterations, {args.chains} chains and observations, Adam with rate {RATE} falling "
            "to 0. log likelihood: nats per image of the test set, with the exact log Z where it is known, "
            "else with the forward estimate.",
            "forward, backward: estimates of log Z less the exact one (100 units: less the forward one), "
            f"nats, the mean of {RUNS} runs of 100 chains and {args.steps} temperatures, and its error. "
            "Backward from exact draws (16 units), else from 1000 sweeps of Gibbs sampling, which is no "
            "bound.",
        ],
    )


def learned(name, hidden, train, test, args):
    sweeps, start = SAMPLERS[name]
    model = learning.RBM(PIXELS, hidden, spread=0.01)
    iterations, runs = (50, 2) if args.short else (ITERATIONS, RUNS)
    options = {
        "sampler": Layers(sweeps, start),
        "optimizer": optax.adam(optax.cosine_decay_schedule(RATE, iterations)),
        "chains": args.chains,
        "batch": args.chains,
        "progressbar": False,
    }
    each = seconds_each(5, model, {"v": train}, **options)
    fit = learning.fit(model, {"v": train}, iterations=iterations, **options)
    W, v, h = (np.asarray(fit.params[name]) for name in ("weights", "v", "h"))
    summed = lambda x: x @ v + jnp.logaddexp(0, x @ W + h).sum()
    target = target_from_logdensity(summed, SPACE, differences="gradient")
    frequencies = 0.98 * train.mean(axis=0) + 0.01
    base = {"v": np.stack([1 - frequencies, frequencies], axis=1)}
    exact = enumerated(W, v, h) if hidden <= HIDDEN[0] else None
    found = [
        learning.log_partition(
            target,
            base=base,
            temperatures=args.steps,
            draws=draws_of(seed, W, v, h, exact is not None),
            kernel=kernels.gibbs_with_gradients(),
            exact=exact is not None,
            seed=seed,
        )
        for seed in range(runs)
    ]
    forward, backward = (np.array([getattr(z, way).value for z in found]) for way in ("forward", "backward"))
    reference = forward.mean() if exact is None else exact
    error = lambda a: a.std(ddof=1) / np.sqrt(len(a))
    free = lambda x: (x @ v + np.logaddexp(0, x @ W + h).sum(axis=1)).mean()
    return {
        "log likelihood": free(test) - reference,
        "of the data": free(train) - reference,
        "log Z": reference,
        "forward": forward.mean() - reference,
        "forward, error": error(forward),
        "backward": backward.mean() - reference,
        "backward, error": error(backward),
        "ms per iteration": 1000 * each,
    }


def states(hidden):
    """(2^hidden, hidden) int."""
    return np.array(list(itertools.product((0, 1), repeat=hidden)))


def log_of_hidden(W, v, h):
    """(2^hidden,) nats, log probabilities of all hidden states up to log Z, the visible units summed out."""
    s = states(len(h))
    return s @ h + np.concatenate(
        [np.logaddexp(0, part @ W.T + v).sum(axis=1) for part in np.array_split(s, 64)]
    )


def enumerated(W, v, h):
    """log Z, nats."""
    return logsumexp(log_of_hidden(W, v, h))


def draws_of(seed, W, v, h, exact):
    """{"v": (100, PIXELS) int}, draws of the machine: exact ones, or by Gibbs sampling."""
    if exact:
        r = np.random.default_rng(seed)
        s = states(len(h))[r.choice(2 ** len(h), 100, p=softmax(log_of_hidden(W, v, h)))]
        return {"v": (r.random((100, PIXELS)) < 1 / (1 + np.exp(-(s @ W.T + v)))).astype(int)}
    start = jax.random.bernoulli(jax.random.key(seed), 0.5, (100, PIXELS)).astype(int)
    swept = jax.jit(lambda x: layer_by_layer(jax.random.key(seed + 1), x, W, v, h, 1000)[0])
    return {"v": np.asarray(swept(start))}


def layer_by_layer(key, x, W, v, h, sweeps):
    """Visible and hidden units (n, PIXELS) and (n, hidden) after sweeps, each of which draws both layers."""

    def sweep(t, x):
        key_hidden, key_visible = jax.random.split(jax.random.fold_in(key, t))
        hidden = jax.random.bernoulli(key_hidden, jax.nn.sigmoid(x @ W + h)).astype(int)
        return jax.random.bernoulli(key_visible, jax.nn.sigmoid(hidden @ W.T + v)).astype(int)

    x = jax.lax.fori_loop(0, sweeps, sweep, x)
    hidden = jax.random.bernoulli(jax.random.fold_in(key, sweeps), jax.nn.sigmoid(x @ W + h)).astype(int)
    return x, hidden


@dataclass(frozen=True)
class Layers:
    """A sampler for `learning.fit` that draws all units of a layer together.

    `kernels.block_gibbs` finds no layers in a product of matrices, and draws its sites one by one.
    """

    sweeps: int
    start: str

    def begin(self, key, density, chains):
        return jax.random.bernoulli(key, 0.5, (chains, PIXELS)).astype(int)

    def draw(self, key, density, kept, chains, batch):
        W, v, h = parameters_of(density)
        x = batch.x[:, :PIXELS] if self.start == "data" else kept
        x, hidden = layer_by_layer(key, x, W, v, h, self.sweeps)
        return jnp.concatenate([x, hidden], axis=1), x

    def conditional(self, key, graph, kept):
        """Hidden units given the visible ones, at which the graph is clamped."""
        W, _, h = parameters_of(graph)
        x = graph.unary[0].argmax(axis=0)
        hidden = jax.random.bernoulli(key, jax.nn.sigmoid(x @ W + h)).astype(int)
        return jnp.concatenate([x, hidden])


def parameters_of(graph):
    """W, v, h of a graph of `learning.RBM`."""
    v, h = (u[1] - u[0] for u in graph.unary)
    return graph.parameters[0]["weights"], v, h


if __name__ == "__main__":
    main()
