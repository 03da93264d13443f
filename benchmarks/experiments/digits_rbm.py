"""A restricted Boltzmann machine with 500 hidden units, trained by contrastive divergence on scikit-learn's
digits.

As Grathwohl et al. 2021, App. E.1: 600 updates (one epoch of MNIST) of batches of 100, CD-10, Adam with rate
0.001.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

HIDDEN, UPDATES, BATCH, CD_STEPS, RATE = 500, 600, 100, 10, 1e-3


def digits():
    """(1797, 784) float of 0, 1: the 8x8 images scaled up to 28x28 by linear interpolation, then rounded."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    images = load_digits().images / 16.0
    return (zoom(images, (1, 3.5, 3.5), order=1) > 0.5).reshape(len(images), -1).astype("float32")


def gibbs(key, x, W, b, c):
    """x given h given x: (n, visible) -> (n, visible)."""
    key_h, key_x = jax.random.split(key)
    h = (jax.random.uniform(key_h, (len(x), len(c)), x.dtype) < jax.nn.sigmoid(x @ W + c)).astype(x.dtype)
    return (jax.random.uniform(key_x, x.shape, x.dtype) < jax.nn.sigmoid(h @ W.T + b)).astype(x.dtype)


@functools.cache
def weights(updates=UPDATES, seed=0):
    """W (784, 500), b (784,), c (500,), and the mean image (784,), all float64.

    They are trained anew in every process, which takes seconds.
    """
    data = jnp.asarray(digits())
    mean = jnp.clip(data.mean(0), 0.01, 0.99)
    key_w, key_train = jax.random.split(jax.random.key(seed))
    bound = 1 / np.sqrt(data.shape[1])
    W = jax.random.uniform(key_w, (data.shape[1], HIDDEN), "float32", -bound, bound)
    params = (W, jnp.log(mean / (1 - mean)), jnp.zeros(HIDDEN, "float32"))

    def log_density(params, x):
        W, b, c = params
        return (x @ b + jax.nn.softplus(x @ W + c).sum(-1)).mean()

    @jax.jit
    def update(t, params, first, second):
        key_batch, key_gibbs = jax.random.split(jax.random.fold_in(key_train, t))
        x = data[jax.random.choice(key_batch, len(data), (BATCH,), replace=False)]
        step = lambda k, y: gibbs(jax.random.fold_in(key_gibbs, k), y, *params)
        model = jax.lax.fori_loop(0, CD_STEPS, step, x)
        slope = jax.grad(lambda p: log_density(p, x) - log_density(p, model))(params)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, slope)
        m_scale, v_scale = 1 / (1 - 0.9 ** (t + 1.0)), 1 / (1 - 0.999 ** (t + 1.0))
        adam = lambda p, m, v: (p + RATE * m * m_scale / (jnp.sqrt(v * v_scale) + 1e-8)).astype(p.dtype)
        return jax.tree.map(adam, params, first, second), first, second

    zero = jax.tree.map(jnp.zeros_like, params)
    carried = params, zero, zero
    for t in range(updates):
        carried = update(t, *carried)
    return tuple(np.asarray(a, float) for a in (*carried[0], mean))
