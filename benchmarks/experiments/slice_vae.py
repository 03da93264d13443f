"""A variational autoencoder with a conditional energy posterior, on scikit-learn's digits (Zoltowski et al.
2021, Fig. 4).

python -m benchmarks.experiments.slice_vae [--short]

The model is z ~ N(0, I), x | z Bernoulli with 64 pixels (1 where the grey value is 8 of 16 or more). The
posterior is q(z | x) ∝ exp(f(x) . g(z)) p0(z) (Eq. 15), with a bounded g, so that q can be normalised for
every f. Each image has a chain, which starts at a draw of p0 and is continued whenever the image is in a
batch. For comparison the same decoder is learned with a normal q(z | x), reparameterized as usual.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.experiments import report, runner
from pymc_discrete import differentiable_slice_sample

PIXELS, D, EMBEDDING, HIDDEN = 64, 8, 24, 64
BATCH, STEPS, USED, RATE, DECAY = 64, 20, 10, 2e-3, 1e-2
CHUNK, CHUNKS, CHECK_STEPS, NEIGHBOURS = 5000, 200, 200, 5


def main():
    args = report.arguments(__doc__, [], steps=3000, chains=BATCH, seconds=0)
    iterations, chunks = (20, 2) if args.short else (args.steps, CHUNKS)
    table = report.Table("slice_vae", args)
    grey, labels = load_digits(return_X_y=True)
    *grey, labels, labels_out = train_test_split(grey, labels, test_size=0.2, random_state=0, stratify=labels)
    x, x_out = (jnp.asarray(g >= 8, float) for g in grey)
    kept = {}

    def right(features, features_out):
        return KNeighborsClassifier(NEIGHBOURS).fit(features, labels).score(features_out, labels_out)

    def row(make):
        key_model, key_fit, key_evaluate = jax.random.split(jax.random.key(args.seed), 3)
        model = make(key_model)
        arrays, static = eqx.partition(model, eqx.is_inexact_array)
        (arrays, skipped), seconds = runner.timed(
            lambda x: learned(key_fit, arrays, static, x, iterations), x
        )
        model = kept[make] = eqx.combine(arrays, static)
        return {
            **evaluated(key_evaluate, model, x_out, chunks),
            "neighbours": right(model.features(x), model.features(x_out)),
            "skipped": int(skipped),
            "s": seconds,
        }

    table.add("digits", "energy", lambda: row(Energy))
    table.add("digits", "normal", lambda: row(Normal))
    table.add("digits", "pixels, 0 or 1", lambda: {"neighbours": right(x, x_out)})
    table.add("digits", "pixels, grey", lambda: {"neighbours": right(*grey)})
    table.write(
        "A variational autoencoder with a conditional energy posterior",
        [
            f"{len(x)} images to learn from, {len(x_out)} held out, to which all numbers belong; nats an "
            f"image. z: {D} numbers, f(x): {EMBEDDING}. Adam, weight decay {DECAY}, rate {RATE} falling to 0 "
            f"as a cosine; {iterations} iterations of {BATCH} images.",
            f"energy: {STEPS} slice steps an iteration, the last {USED} draws in the objective. normal: "
            f"{USED} draws m + s eps.",
            "reconstruction: mean of log p(x | z) over q, by chains (normal: draws). log p(x), log Z of q, "
            f"ELBO: with importance weights of {chunks * CHUNK:,} draws of p0 (log Z of the normal is 0: "
            "what it shows is error), effective draws: median over images.",
            f"neighbours: share of labels right by the {NEIGHBOURS} nearest neighbours in f(x) (normal: the "
            "mean of q) or pixels.",
            "skipped: iterations without a finite gradient. s: of learning, compiling excluded.",
        ],
    )
    table.figure(lambda axes, rows: draw(axes, kept[Energy], x_out, labels_out), columns=3, size=(4.5, 4.5))


# ---------------------------------------------------------------- models
def squashed(x):
    """A function with the shape of tanh, which takes a fifth of its time."""
    return x * jax.lax.rsqrt(1 + x * x)


def decoder(key):
    return eqx.nn.MLP(D, PIXELS, HIDDEN, 2, jax.nn.relu, key=key)


def over(network, x):
    """A function of vectors, applied along the last axis of x."""
    return jnp.vectorize(network, signature="(a)->(b)")(x)


class Energy(eqx.Module):
    f: eqx.nn.MLP
    g: eqx.nn.MLP
    decode: eqx.nn.MLP

    def __init__(self, key):
        key_f, key_g, key_decoder = jax.random.split(key, 3)
        self.f = eqx.nn.MLP(PIXELS, EMBEDDING, HIDDEN, 2, jax.nn.relu, key=key_f)
        self.g = eqx.nn.MLP(D, EMBEDDING, 32, 1, squashed, final_activation=squashed, key=key_g)
        self.decode = decoder(key_decoder)

    def features(self, x):
        return over(self.f, x)

    def tilt(self, x, z):
        """log q(z | x) - log p0(z), up to a constant, for x (..., 64) and z (..., D)."""
        return (over(self.f, x) * over(self.g, z)).sum(axis=-1)

    def draws(self, key, x, z, steps):
        """(images, steps, D), from z (images, D)."""
        log_q = lambda f, z: f @ self.g(z) - 0.5 * z @ z  # Eq. 15
        sample = lambda key, f, z: differentiable_slice_sample(key, log_q, f, z, steps).x
        return jax.vmap(sample)(jax.random.split(key, len(x)), self.features(x), z)


class Normal(eqx.Module):
    encode: eqx.nn.MLP
    decode: eqx.nn.MLP

    def __init__(self, key):
        key_encoder, key_decoder = jax.random.split(key)
        self.encode = eqx.nn.MLP(PIXELS, 2 * D, HIDDEN, 2, jax.nn.relu, key=key_encoder)
        self.decode = decoder(key_decoder)

    def features(self, x):
        return self.moments(x)[0]

    def moments(self, x):
        return jnp.split(over(self.encode, x), 2, axis=-1)

    def tilt(self, x, z):
        mean, log_sd = self.moments(x)
        return (0.5 * z**2 - 0.5 * ((z - mean) * jnp.exp(-log_sd)) ** 2 - log_sd).sum(axis=-1)

    def draws(self, key, x, z, steps):
        mean, log_sd = (a[:, None] for a in self.moments(x))
        return mean + jnp.exp(log_sd) * jax.random.normal(key, (len(x), steps, D))


def log_likelihood(decode, x, z):
    """x (..., 64), z (..., D) -> (...) nats."""
    logits = over(decode, z)
    return (x * logits - jax.nn.softplus(logits)).sum(axis=-1)


# ---------------------------------------------------------------- learning
def learned(key, arrays, static, x, iterations):
    """The model's arrays after all iterations, and how many had no finite gradient."""
    optimizer = optax.apply_if_finite(
        optax.adamw(optax.cosine_decay_schedule(RATE, iterations), weight_decay=DECAY), iterations
    )

    def objective(arrays, key, x, z):
        model, fixed = (eqx.combine(a, static) for a in (arrays, jax.lax.stop_gradient(arrays)))
        path = model.draws(key, x, z, STEPS)
        x, z = x[:, None], path[:, -USED:]
        # Eq. 14, in which p0 cancels. The gradient by the decoder is that of log p(x, z).
        return (fixed.tilt(x, z) - log_likelihood(model.decode, x, z)).mean(), path[:, -1]

    def iteration(carried, key):
        arrays, state, z = carried
        key_batch, key_path = jax.random.split(key)
        batch = jax.random.choice(key_batch, len(x), (BATCH,), replace=False)
        gradient, end = jax.grad(objective, has_aux=True)(arrays, key_path, x[batch], z[batch])
        updates, state = optimizer.update(gradient, state, arrays)
        return (optax.apply_updates(arrays, updates), state, z.at[batch].set(end)), None

    key_start, key_run = jax.random.split(key)
    z = jax.random.normal(key_start, (len(x), D))
    (arrays, state, _), _ = jax.lax.scan(
        iteration, (arrays, optimizer.init(arrays), z), jax.random.split(key_run, iterations)
    )
    return arrays, state.total_notfinite


# ---------------------------------------------------------------- evaluation
def posterior_draws(key, model, x):
    """(images, CHECK_STEPS, D), after a burn-in of CHECK_STEPS steps from 0."""
    return jax.jit(lambda x: model.draws(key, x, jnp.zeros((len(x), D)), 2 * CHECK_STEPS)[:, CHECK_STEPS:])(x)


def evaluated(key, model, x, chunks):
    key_posterior, key_prior = jax.random.split(key)
    z = posterior_draws(key_posterior, model, x)
    likelihood = jax.lax.map(lambda one: log_likelihood(model.decode, *one), (x, z))

    def of_prior(key):
        z = jax.random.normal(key, (CHUNK, D))
        logits = over(model.decode, z)
        given_z = x @ logits.T - jax.nn.softplus(logits).sum(axis=1)  # log p(x | z), (images, CHUNK)
        tilt = model.tilt(x[:, None], z)
        return [jax.nn.logsumexp(a, axis=1) for a in (given_z, 2 * given_z, tilt, 2 * tilt)]

    sums = jax.jit(lambda keys: jax.lax.map(of_prior, keys))(jax.random.split(key_prior, chunks))
    p, p2, q, q2 = (jax.nn.logsumexp(a, axis=0) for a in sums)
    log_p, log_z = (a - np.log(chunks * CHUNK) for a in (p, q))
    elbo = log_z + (likelihood - jax.lax.map(lambda one: model.tilt(*one), (x, z))).mean(axis=1)
    return {
        "reconstruction": float(likelihood.mean()),
        "log p(x)": float(log_p.mean()),
        "effective": float(np.median(np.exp(2 * p - p2))),
        "log Z": float(log_z.mean()),
        "effective, q": float(np.median(np.exp(2 * q - q2))),
        "ELBO": float(elbo.mean()),
    }


def mosaic(images, columns):
    """(n, 64) -> one picture."""
    blocks = np.pad(np.reshape(images, (-1, 8, 8)), ((0, 0), (1, 1), (1, 1)), constant_values=0.5)
    return np.block([list(blocks[k : k + columns]) for k in range(0, len(blocks), columns)])


def draw(axes, model, x, labels):
    mean = lambda z: jax.nn.sigmoid(over(model.decode, z))
    samples = mean(jax.random.normal(jax.random.key(1), (64, D)))
    some = x[:40].reshape(4, 10, PIXELS)
    again = mean(posterior_draws(jax.random.key(2), model, x[:40])).mean(axis=1).reshape(4, 10, PIXELS)
    pairs = np.stack([some, again], axis=1).reshape(-1, PIXELS)
    axes[0].imshow(mosaic(samples, 8), cmap="gray_r", vmin=0, vmax=1)
    axes[0].set(title="mean of x given z ~ p0")
    axes[1].imshow(mosaic(pairs, 10), cmap="gray_r", vmin=0, vmax=1)
    axes[1].set(title="held out; below each its mean under q")
    places = TSNE(random_state=0).fit_transform(np.asarray(model.features(x)))
    for digit in range(10):
        axes[2].plot(*places[labels == digit].T, ".", color=f"C{digit}", label=str(digit))
    axes[2].set(title="t-SNE of f(x), held out")
    for ax in axes:
        ax.set(xticks=[], yticks=[])


if __name__ == "__main__":
    main()
