"""Energies for the variational distribution q(z) ∝ exp(-energy(z))."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pymc_discrete.runtime.checks import check_count


class TiltedNormal(eqx.Module):
    r"""The energy of a normal density times a positive, bounded function that a network learns.

    .. math:: E(z) = \tfrac12 |w|^2 - g(w), \qquad w = L (z - m) / s

    with :math:`L` unit lower triangular and :math:`g` a network of bounded, smooth units, initially 0.
    exp(-E) is integrable for all parameters.

    Parameters
    ----------
    mean : (d,) float, initial mean of the normal
    scale : (d,) float, positive, initial standard deviations of the normal
    width, depth : int, width and number of the hidden layers
    key : JAX key, for the initial weights of the network

    Raises
    ------
    ValueError
        For a mean that is no vector, and a scale that is not positive.

    Attributes
    ----------
    mean, log_scale : (d,) float
    lower : (d, d) float, of which only the part below the diagonal is used
    network : equinox.nn.MLP
    """

    mean: jax.Array
    log_scale: jax.Array
    lower: jax.Array
    network: eqx.nn.MLP

    def __init__(
        self, mean: ArrayLike, scale: ArrayLike, *, width: int = 32, depth: int = 2, key: jax.Array
    ) -> None:
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
        network = eqx.nn.MLP(d, "scalar", width, depth, sigmoidal, key=key)
        last = network.layers[-1]
        zeros = (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias))
        self.network = eqx.tree_at(lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, zeros)

    def __call__(self, z: jax.Array) -> jax.Array:
        scaled = (z - self.mean) * jnp.exp(-self.log_scale)
        w = scaled + jnp.tril(self.lower, -1) @ scaled
        return 0.5 * w @ w - self.network(w)


def sigmoidal(x: jax.Array) -> jax.Array:
    """x / sqrt(1 + x^2), a bounded activation like tanh that takes a fifth of the time of tanh."""
    return x * jax.lax.rsqrt(1 + x * x)
