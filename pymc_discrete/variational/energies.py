"""Energies: what q(z) ∝ exp(-energy(z)) is made of."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.checks import check_count


class TiltedNormal(eqx.Module):
    r"""A normal density times a positive, bounded function that a network learns: it can be normalised
    whatever the parameters.

    .. math:: E(z) = \tfrac12 |w|^2 - g(w), \qquad w = L (z - m) / s

    with :math:`L` unit lower triangular and :math:`g` a network of bounded, smooth units, 0 at the start.

    Parameters
    ----------
    mean : (d,) float, of the normal to start from
    scale : (d,) float, above 0, its standard deviations
    width, depth : of the hidden layers
    key : JAX key

    Attributes
    ----------
    mean, log_scale : (d,) float
    lower : (d, d) float, of which the part below the diagonal is used
    network : equinox.nn.MLP
    """

    mean: jax.Array
    log_scale: jax.Array
    lower: jax.Array
    network: eqx.nn.MLP

    def __init__(self, mean, scale, *, width: int = 32, depth: int = 2, key):
        self.mean = jnp.asarray(mean, float)
        if self.mean.ndim != 1 or not self.mean.size:
            raise ValueError(
                "mean must be of shape (d,), the mean of a normal to start from, got shape "
                f"{self.mean.shape}."
            )
        if not isinstance(scale, jax.core.Tracer) and not (
            np.isfinite(scale).all() and (np.asarray(scale) > 0).all()
        ):
            raise ValueError(f"scale must hold positive numbers, standard deviations, got {scale!r}.")
        check_count("width", width, 1)
        check_count("depth", depth, 0)
        self.log_scale = jnp.log(jnp.broadcast_to(jnp.asarray(scale, float), self.mean.shape))
        d = len(self.mean)
        self.lower = jnp.zeros((d, d))
        network = eqx.nn.MLP(d, "scalar", width, depth, squashed, key=key)
        last = network.layers[-1]
        nothing = (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias))
        self.network = eqx.tree_at(lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, nothing)

    def __call__(self, z):
        away = (z - self.mean) * jnp.exp(-self.log_scale)
        w = away + jnp.tril(self.lower, -1) @ away
        return 0.5 * w @ w - self.network(w)


def squashed(x):
    """As tanh, for a fifth of its time."""
    return x * jax.lax.rsqrt(1 + x * x)
