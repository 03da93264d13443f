"""Restricted Boltzmann machines of digits: log likelihoods with log Z between two bounds.

python -m benchmarks.experiments.learn_rbm [--short]

Machines with 16 hidden units, whose log Z is known by enumeration, and with 100. They are learned by
contrastive divergence with 1 and 10 sweeps of block Gibbs sampling from the data (CD-1, CD-10), and with 1
sweep of persistent chains (PCD-1). The split and the threshold are those of `slice_vae`.
"""

import itertools

import jax
import numpy as np
import optax
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.experiments import report
from benchmarks.experiments.iterations import seconds_each
from pymc_discrete import kernels, learning

PIXELS, HIDDEN, ITERATIONS, CHAINS, RATE, RUNS = 64, (16, 100), 10_000, 100, 0.002, 10
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
            "Backward from exact draws (16 units), else from 1000 sweeps of block Gibbs sampling, which is "
            "no bound.",
        ],
    )


def learned(name, hidden, train, test, args):
    sweeps, start = SAMPLERS[name]
    model = learning.RBM(PIXELS, hidden, spread=0.01)
    iterations, runs = (50, 2) if args.short else (ITERATIONS, RUNS)
    options = {
        # hidden units given visible ones: one sweep is exact
        "sampler": learning.ContrastiveDivergence(
            *kernels.block_gibbs(), transitions=sweeps, conditional_transitions=1, start=start
        ),
        "optimizer": optax.adam(optax.cosine_decay_schedule(RATE, iterations)),
        "chains": args.chains,
        "batch": args.chains,
        "progressbar": False,
    }
    each = seconds_each(5, model, {"v": train}, **options)
    fit = learning.fit(model, {"v": train}, iterations=iterations, **options)
    W, v, h = (np.asarray(fit.params[name]) for name in ("weights", "v", "h"))
    target = model.target(fit.params)
    frequencies = 0.98 * train.mean(axis=0) + 0.01
    base = {
        "v": np.stack([1 - frequencies, frequencies], axis=1),
        "h": np.full((hidden, 2), 0.5),
    }
    exact = enumerated(W, v, h) if hidden <= HIDDEN[0] else None
    found = [
        learning.log_partition(
            target,
            base=base,
            temperatures=args.steps,
            draws=draws_of(seed, W, v, h, model, fit.params, exact is not None),
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


def draws_of(seed, W, v, h, model, params, exact):
    """{name: (100, n) int}, draws of the machine: exact ones, or by block Gibbs sampling."""
    r = np.random.default_rng(seed)
    if exact:
        s = states(len(h))[r.choice(2 ** len(h), 100, p=softmax(log_of_hidden(W, v, h)))]
        return {"v": (r.random((100, PIXELS)) < 1 / (1 + np.exp(-(s @ W.T + v)))).astype(int), "h": s}
    chains = learning.ContrastiveDivergence(*kernels.block_gibbs(), transitions=1000, start="uniform")
    density = model.density(params)
    kept = chains.begin(jax.random.key(seed), density, 100)
    x = jax.jit(lambda kept: chains.draw(jax.random.key(seed + 1), density, kept, 100)[0])(kept)
    return {"v": np.asarray(x)[:, :PIXELS], "h": np.asarray(x)[:, PIXELS:]}


if __name__ == "__main__":
    main()
