"""A diagonal normal matched to another by slice sampling reparameterization gradients (Zoltowski et al. 2021,
Fig. 2), and the bias of these gradients.

python -m benchmarks.experiments.slice_gaussian [--short]

KL(q || p) is minimised over q, starting from N(0, I). A chain starts an iteration where it ended the one
before; no gradient flows through that start. The gradient is the path derivative (Eq. 14) at the final draw.
The reference uses the same one with draws m + s eps. The third figure shows the share of the gradient of KL
that is missing at a fixed q, with chains that start from exact draws of q.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report, runner
from pymc_discrete import differentiable_slice_sample

RATE, SEEDS, KEPT = 0.02, 3, 10
LENGTHS, BIAS_LENGTHS = (1, 2, 5, 10, 20, 40), (1, 2, 5, 10, 20, 40, 50, 100)
BATCH = 200


def main():
    args = report.arguments(__doc__, [], steps=1000, chains=10, seconds=0)
    batches = 2 if args.short else 100
    table = report.Table("slice_gaussian", args)
    table.add("D=5, fit", "S=10", lambda: parameters(args, 5, 10))
    for length in (0, *LENGTHS[::3]) if args.short else (0, *LENGTHS):
        table.add(
            "D=20, fit", f"S={length}" if length else "reparameterized", lambda n=length: loss(args, 20, n)
        )
    for d in (2, 5) if args.short else (2, 5, 20):
        rows = functools.cache(functools.partial(missing, d, batches))
        for n, length in enumerate(BIAS_LENGTHS):
            table.add(f"D={d}, bias", f"S={length}", lambda rows=rows, n=n: rows()[n])
    table.write(
        "A normal distribution matched by slice sampling reparameterization gradients",
        [
            f"fit: Adam, rate {RATE}, {args.steps} iterations, {args.chains} chains of S slice steps an "
            f"iteration (reparameterized: as many draws m + s eps). KL in nats: median of {SEEDS} seeds. s: "
            "of all seeds together, side by side, compiling excluded.",
            "bias: 1 - (mean gradient) . (gradient of KL) / |gradient of KL|^2 at q = N(0, I), for the "
            f"means and for the log standard deviations, over {batches * BATCH} chains that start from q; "
            "se: its Monte Carlo error.",
            "p: means of standard deviation 1.5, log standard deviations uniform in [-1, 1], drawn once for "
            "each D.",
        ],
    )
    table.figure(draw, columns=3)


def target(d):
    """Means (d,) and log standard deviations (d,)."""
    r = np.random.default_rng(d)
    return jnp.asarray(1.5 * r.standard_normal(d)), jnp.asarray(r.uniform(-1, 1, d))


def log_normal(params, x):
    mean, log_sd = params
    return -(0.5 * ((x - mean) * jnp.exp(-log_sd)) ** 2 + log_sd).sum(axis=-1)


def kl(q, p):
    (m_q, s_q), (m_p, s_p) = q, p
    return (s_p - s_q + 0.5 * (jnp.exp(2 * s_q) + (m_q - m_p) ** 2) * jnp.exp(-2 * s_p) - 0.5).sum()


def slice_draws(logq, length, used):
    """A function (key, params, z (chains, d)) -> (draws (chains, draws, d), last states (chains, d)).

    Of `length` slice steps from z it returns the draws that the index `used` selects.
    """

    def draws(key, params, z):
        keys = jax.random.split(key, len(z))
        path = jax.vmap(lambda key, z: differentiable_slice_sample(key, logq, params, z, length).x)(keys, z)
        return path[:, used], jax.lax.stop_gradient(path[:, -1])

    return draws


def exact_draws(key, params, z):
    z = params[0] + jnp.exp(params[1]) * jax.random.normal(key, z.shape)
    return z[:, None], z


def fit(key, draws, logq, logp, params, z, iterations, rate):
    """All iterates of min KL(q || p), each leaf (iterations, ...), for chains that start at z (chains, d)."""
    optimizer = optax.adam(rate)

    def objective(params, key, z):
        x, z = draws(key, params, z)
        # Eq. 14: the gradient of this is that of KL(q || p); its value is not KL
        return (logq(jax.lax.stop_gradient(params), x) - logp(x)).mean(), z

    def iteration(carried, key):
        params, state, z = carried
        gradient, z = jax.grad(objective, has_aux=True)(params, key, z)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state, z), params

    return jax.lax.scan(iteration, (params, optimizer.init(params), z), jax.random.split(key, iterations))[1]


def fitted(args, d, length):
    """Iterates of every seed, p, and seconds; by draws m + s eps where length is 0."""
    p, start = target(d), (jnp.zeros(d), jnp.zeros(d))
    draws = slice_draws(log_normal, length, slice(-1, None)) if length else exact_draws

    def one(key):
        key_start, key_fit = jax.random.split(key)
        z = jax.random.normal(key_start, (args.chains, d))
        return fit(key_fit, draws, log_normal, lambda x: log_normal(p, x), start, z, args.steps, RATE)

    iterates, seconds = runner.timed(jax.vmap(one), jax.random.split(jax.random.key(args.seed), SEEDS))
    return iterates, p, seconds


def curves(iterates, p, seconds):
    values = np.asarray(jax.vmap(jax.vmap(lambda q: kl(q, p)))(iterates))
    values = np.median(values, axis=0)
    return {
        "KL start": values[0],
        "KL half way": values[len(values) // 2],
        "KL end": values[-1],
        "s": seconds,
        "curve KL": values[::KEPT],
    }


def parameters(args, d, length):
    iterates, p, seconds = fitted(args, d, length)
    mean, log_sd = (np.asarray(a[0, ::KEPT]) for a in iterates)
    shown = {"curve mean": mean, "curve variance": np.exp(2 * log_sd), "target mean": np.asarray(p[0])}
    return {**curves(iterates, p, seconds), **shown, "target variance": np.exp(2 * np.asarray(p[1]))}


def loss(args, d, length):
    return curves(*fitted(args, d, length))


def missing(d, batches):
    """For each of BIAS_LENGTHS, the share of the gradient of KL that the mean slice gradient lacks."""
    p, phi, at = target(d), (jnp.zeros(d), jnp.zeros(d)), np.array(BIAS_LENGTHS) - 1
    draws = slice_draws(log_normal, BIAS_LENGTHS[-1], at)

    def objectives(q, key):
        key_start, key_path = jax.random.split(key)
        x, _ = draws(key_path, q, jax.random.normal(key_start, (BATCH, d)))
        return (log_normal(phi, x) - log_normal(p, x)).mean(axis=0)

    keys = jax.random.split(jax.random.key(d), batches)
    gradients = jax.jit(lambda keys: jax.lax.map(lambda key: jax.jacrev(objectives)(phi, key), keys))(keys)
    rows = [{} for _ in at]
    for name, slopes, exact in zip(("means", "log sds"), gradients, jax.grad(kl)(phi, p), strict=True):
        share = 1 - np.asarray(slopes @ exact / (exact @ exact))  # (batches, lengths)
        for row, mean, se in zip(
            rows, share.mean(axis=0), share.std(axis=0, ddof=1) / np.sqrt(batches), strict=True
        ):
            row |= {f"missing, {name}": mean, f"se, {name}": se}
    return rows


def draw(axes, rows):
    for r in rows:
        if "target mean" in r:
            for n, (colour, what) in enumerate((("C0", "mean"), ("C1", "variance"))):
                values = np.array(r[f"curve {what}"])
                lines = axes[0].plot(KEPT * np.arange(len(values)), values, color=colour, lw=1)
                lines[0].set_label(what)
                end = KEPT * len(values) * (1.02 + 0.03 * n)
                axes[0].plot(
                    [end] * values.shape[1], r[f"target {what}"], "*", color=colour, label=f"{what}, target"
                )
            axes[0].set(xlabel="iteration", title=f"(a) {r['setting']}, {r['sampler']}")
        elif "curve KL" in r:
            look = {"color": "k", "ls": ":"} if r["sampler"] == "reparameterized" else {}
            axes[1].plot(
                KEPT * np.arange(len(r["curve KL"])), r["curve KL"], label=r["sampler"], lw=1.2, **look
            )
    axes[1].set(
        xlabel="iteration", ylabel="KL(q || p), nats", yscale="log", ylim=(1e-9, None), title="(b) D=20"
    )
    settings = list(dict.fromkeys(r["setting"] for r in rows if "bias" in r["setting"]))
    for n, setting in enumerate(settings):
        here = [r for r in rows if r["setting"] == setting]
        at = [int(r["sampler"][2:]) for r in here]
        for name, line in (("means", "o-"), ("log sds", "s--")):
            value, error = ([r[f"{what}, {name}"] for r in here] for what in ("missing", "se"))
            axes[2].errorbar(
                at,
                value,
                yerr=2 * np.array(error),
                fmt=line,
                color=f"C{n}",
                ms=3,
                lw=1,
                label=f"{setting[:-6]}, {name}",
            )
    axes[2].axhline(0, color="k", lw=0.5)
    axes[2].set(xlabel="S", xscale="log", ylabel="share of the gradient missing (2 se)", title="(c) bias")
    for ax in axes[:2]:
        ax.legend(fontsize=7)


if __name__ == "__main__":
    main()
