"""A linear inference network and its model, learned together by slice sampling gradients (Zoltowski et al.
2021, App. D, Fig. 5).

python -m benchmarks.experiments.slice_inference_network [--short]

The model is z ~ N(mu, I), x | z ~ N(z, I). The inference network is q(z | x) = N(Ax + b, 2/3 I), used without
its normalising constant. D = 20, 1000 data, batches of 128, 20 draws after a burn-in of 30, 1000 iterations.
The optimum is mu* = mean x, A* = I/2, b* = mu*/2 (Eq. 30).

The tolerance was fixed before the first run: for the average of the last 200 iterates, with a learning rate
that falls to 0, the root mean square error of mu and b is below 0.1 and that of the elements of A below 0.05.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report, runner
from pymc_discrete import differentiable_slice_sample

D, DATA, BATCH, BURN_IN, DRAWS, AVERAGED = 20, 1000, 128, 30, 20, 200
RATES = (0.03, 0.1)
TOLERANCE = {"mu": 0.1, "A": 0.05, "b": 0.1}


def main():
    args = report.arguments(__doc__, [], steps=1000, chains=BATCH, seconds=0)
    iterations = 20 if args.short else args.steps
    table = report.Table("slice_inference_network", args)
    x, start = data_and_start(args.seed)
    optimum = {"mu": x.mean(axis=0), "A": np.eye(D) / 2, "b": x.mean(axis=0) / 2}  # Eq. 30
    for rate in RATES:
        for draws in KINDS:
            fit = functools.partial(
                learned,
                jax.random.key(args.seed),
                params=start,
                draws=KINDS[draws],
                rate=rate,
                iterations=iterations,
            )
            run = functools.cache(lambda fit=fit: runner.timed(lambda x: fit(x=x), x))
            for name, best in optimum.items():
                table.add(
                    f"rate {rate}, {draws}",
                    name,
                    lambda n=name, run=run, best=best: row(n, *run(), np.asarray(best)),
                )
    table.write(
        "A linear inference network learned by slice sampling gradients",
        [
            f"D = {D}. {iterations} iterations of Adam, its rate falling to 0 as a cosine; batches of "
            f"{BATCH} of {DATA}. Slice steps: {DRAWS} draws after {BURN_IN}, all steps differentiated; one "
            f"chain for each datum, which goes on when the datum comes again. Exact draws: {DRAWS} of q "
            "itself, reparameterized.",
            "Root mean square distance of the elements from the optimum: after the first iteration, after "
            f"the last, and of the average of the last {AVERAGED} iterates, to which the tolerance applies.",
            "s: the whole run, compiling excluded.",
        ],
    )
    table.figure(draw, columns=4, size=(4.2, 4.0))


def data_and_start(seed):
    """x (1000, D), and the parameters to start from."""
    r = np.random.default_rng(seed)
    mu = r.standard_normal(D)
    x = mu + np.sqrt(2) * r.standard_normal((DATA, D))
    return jnp.asarray(x), {
        n: jnp.asarray(r.standard_normal(shape)) for n, shape in (("mu", D), ("A", (D, D)), ("b", D))
    }


def log_q(centre, z):
    return -0.75 * ((z - centre) ** 2).sum(axis=-1)


def log_joint(mu, x, z):
    return -0.5 * ((z - mu) ** 2 + (x - z) ** 2).sum(axis=-1)  # Eq. 29


def slice_draws(key, centre, z):
    path = jax.vmap(
        lambda key, centre, z: differentiable_slice_sample(key, log_q, centre, z, BURN_IN + DRAWS).x
    )
    return path(jax.random.split(key, BATCH), centre, z)[:, BURN_IN:]


def exact_draws(key, centre, z):
    return centre[:, None] + np.sqrt(2 / 3) * jax.random.normal(key, (BATCH, DRAWS, D))


# (key, centre (BATCH, D), z (BATCH, D)) -> (BATCH, DRAWS, D)
KINDS = {"slice steps": slice_draws, "exact draws": exact_draws}


def learned(key, x, params, draws, rate, iterations):
    """All iterates, leaves (iterations, ...)."""
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, iterations))

    def objective(params, key, x, z):
        centre = x @ params["A"].T + params["b"]
        z = draws(key, centre, z)
        # The gradient by A and b is Eq. 14; that by mu is the gradient of log p(x, z).
        ratio = log_joint(params["mu"], x[:, None], z) - log_q(jax.lax.stop_gradient(centre)[:, None], z)
        return -ratio.mean(), z[:, -1]

    def iteration(carried, key):
        params, state, z = carried
        key_batch, key_path = jax.random.split(key)
        batch = jax.random.choice(key_batch, DATA, (BATCH,), replace=False)
        gradient, end = jax.grad(objective, has_aux=True)(params, key_path, x[batch], z[batch])
        updates, state = optimizer.update(gradient, state)
        params = optax.apply_updates(params, updates)
        return (params, state, z.at[batch].set(end)), params

    z = x @ params["A"].T + params["b"]
    return jax.lax.scan(iteration, (params, optimizer.init(params), z), jax.random.split(key, iterations))[1]


def row(name, iterates, seconds, best):
    iterates = np.asarray(iterates[name])
    error = lambda values: float(np.sqrt(np.mean((values - best) ** 2)))
    averaged = iterates[-AVERAGED:].mean(axis=0)
    return {
        "first": error(iterates[0]),
        "last": error(iterates[-1]),
        "averaged": error(averaged),
        "tolerance": TOLERANCE[name],
        "met": "yes" if error(averaged) < TOLERANCE[name] else "no",
        "s": seconds,
        "curve": [error(values) for values in iterates],
        "optimum": best.ravel(),
        "first values": iterates[0].ravel(),
        "fit": averaged.ravel(),
    }


def draw(axes, rows):
    shown = f"rate {RATES[-1]}, slice steps"
    for ax, r in zip(axes, (r for r in rows if r["setting"] == shown), strict=False):
        small = r["sampler"] == "A"
        ax.plot(r["first values"], ".", color="0.75", ms=3 if small else 7, label="first iteration")
        ax.plot(r["optimum"], "k*", ms=4 if small else 9, label="optimum")
        ax.plot(r["fit"], "C1o", ms=2 if small else 4, label="fit")
        ax.set(title=f"{r['sampler']}, {shown}", xlabel="element")
    for r in rows:
        fast, by_slices = (text in r["setting"] for text in (f"rate {RATES[-1]}", "slice"))
        look = {
            "color": f"C{list(TOLERANCE).index(r['sampler'])}",
            "lw": 2 if fast else 1,
            "ls": "-" if by_slices else ":",
        }
        axes[3].plot(r["curve"], label=f"{r['sampler']}, {r['setting']}", **look)
    axes[3].set(xlabel="iteration", ylabel="root mean square error", yscale="log")


if __name__ == "__main__":
    main()
