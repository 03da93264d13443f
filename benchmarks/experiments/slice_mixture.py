"""A mixture of two normals matched to another by slice sampling reparameterization gradients (Zoltowski et
al. 2021, Fig. 3).

python -m benchmarks.experiments.slice_mixture [--short]

KL(q || p) is minimised over logits, means and log standard deviations, with N chains of S draws in every
iteration, all of which enter the loss. Reference: the same optimiser with the gradient of the numerical
integral. In the setting "apart" most slices of p consist of two pieces.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report, runner
from benchmarks.experiments.slice_gaussian import KEPT, fit, slice_draws

RATE, SEEDS = 0.02, 5
GRID = np.linspace(-15, 15, 3001)
# weights, means, standard deviations
TARGETS = {
    "overlapping": ([0.35, 0.65], [-1.5, 1.5], [1.0, 0.7]),
    "apart": ([0.35, 0.65], [-3.0, 3.0], [1.0, 0.7]),
}


def main():
    args = report.arguments(__doc__, [], steps=1500, chains=10, seconds=0)
    table = report.Table("slice_mixture", args)
    for setting in TARGETS:
        table.add(setting, "exact gradient", lambda s=setting: by_integral(args, s))
        for n in (1, args.chains):
            for length in (1, 10):
                table.add(
                    setting, f"N={n}, S={length}", lambda s=setting, n=n, k=length: by_slices(args, s, n, k)
                )
    table.write(
        "A mixture of two normals matched by slice sampling reparameterization gradients",
        [
            f"Adam, rate {RATE}, {args.steps} iterations; N chains, S draws of each an iteration, all in the "
            "loss; chains go on.",
            "q starts with weights 1/2, means -1 and 1, standard deviations 1; p: "
            + "; ".join(
                f"{name}: weights {w}, means {m}, standard deviations {s}"
                for name, (w, m, s) in TARGETS.items()
            )
            + ".",
            f"KL: integral over a grid, nats, median and largest of {SEEDS} seeds; weight: of q's left "
            "component at the end, median. s: of all seeds together, side by side, compiling excluded.",
        ],
    )
    table.figure(draw, columns=4, size=(4.2, 4.0))


def log_mixture(params, x):
    """x (..., 1) -> (...) nats."""
    logits, mean, log_sd = params
    normal = -0.5 * ((x - mean) * jnp.exp(-log_sd)) ** 2 - log_sd - 0.5 * np.log(2 * np.pi)
    return jax.nn.logsumexp(jax.nn.log_softmax(logits) + normal, axis=-1)


def target(setting):
    weights, mean, sd = (jnp.asarray(a) for a in TARGETS[setting])
    return jnp.log(weights), mean, jnp.log(sd)


def start():
    return jnp.zeros(2), jnp.array([-1.0, 1.0]), jnp.zeros(2)


def kl(q, p):
    log_q, log_p = log_mixture(q, GRID[:, None]), log_mixture(p, GRID[:, None])
    return (jnp.exp(log_q) * (log_q - log_p)).sum() * (GRID[1] - GRID[0])


def by_slices(args, setting, n, length):
    p, draws = target(setting), slice_draws(log_mixture, length, slice(None))

    def one(key):
        key_start, key_fit = jax.random.split(key)
        z = jax.random.normal(key_start, (n, 1))
        return fit(key_fit, draws, log_mixture, lambda x: log_mixture(p, x), start(), z, args.steps, RATE)

    return measured(*runner.timed(jax.vmap(one), jax.random.split(jax.random.key(args.seed), SEEDS)), p)


def by_integral(args, setting):
    p, optimizer = target(setting), optax.adam(RATE)

    def iteration(carried, _):
        q, state = carried
        updates, state = optimizer.update(jax.grad(kl)(q, p), state)
        return (optax.apply_updates(q, updates), state), q

    def run(q):
        return jax.lax.scan(iteration, (q, optimizer.init(q)), length=args.steps)[1]

    iterates, seconds = runner.timed(run, start())
    return measured(jax.tree.map(lambda a: a[None], iterates), seconds, p)


def measured(iterates, seconds, p):
    """iterates: leaves (seeds, iterations, 2)."""
    thin = jax.tree.map(lambda a: jnp.concatenate([a[:, ::KEPT], a[:, -1:]], axis=1), iterates)
    values = np.asarray(jax.lax.map(jax.vmap(lambda q: kl(q, p)), thin))
    end = jax.tree.map(lambda a: a[:, -1], iterates)
    middle = np.argsort(values[:, -1])[len(values) // 2]
    density = jnp.exp(log_mixture(jax.tree.map(lambda a: a[middle], end), GRID[:, None]))
    left = np.asarray(jnp.take_along_axis(jax.nn.softmax(end[0]), end[1].argmin(axis=1)[:, None], axis=1))
    half = values.shape[1] // 2
    return {
        "KL start": values[0, 0],
        "KL half way": np.median(values[:, half]),
        "KL end": np.median(values[:, -1]),
        "largest": values[:, -1].max(),
        "weight": np.median(left),
        "s": seconds,
        "curve KL": np.median(values[:, :-1], axis=0),
        "curve density": np.asarray(density)[::10],
    }


def draw(axes, rows):
    for n, setting in enumerate(TARGETS):
        density, distance = axes[2 * n : 2 * n + 2]
        density.plot(
            GRID, np.exp(log_mixture(target(setting), GRID[:, None])), "k", lw=3, alpha=0.3, label="target"
        )
        for k, r in enumerate(r for r in rows if r["setting"] == setting):
            look = {"color": f"C{k}", "lw": 1.2, "ls": ("-", "--", "-.", ":", (0, (5, 1)))[k]}
            density.plot(GRID[::10], r["curve density"], label=r["sampler"], **look)
            distance.plot(KEPT * np.arange(len(r["curve KL"])), r["curve KL"], label=r["sampler"], **look)
        density.set(xlim=(-7, 7), xlabel="x", ylabel="density at the end", title=setting)
        distance.set(
            xlabel="iteration", ylabel="KL(q || p), nats", yscale="log", ylim=(1e-9, None), title=setting
        )


if __name__ == "__main__":
    main()
