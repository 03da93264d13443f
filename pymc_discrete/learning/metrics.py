"""A distance between two sets of samples."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from pymc_discrete.targets.jax_settings import default_settings

AT_ONCE = 2**24  # comparisons of sites that are held in memory together


@default_settings()
def squared_mmd(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Squared maximum mean discrepancy of two sets of samples, with the average Hamming kernel.

    .. math:: \frac1{N^2} \sum_{ij} k(x_i, x_j) + \frac1{M^2} \sum_{ij} k(y_i, y_j)
        - \frac2{NM} \sum_{ij} k(x_i, y_j), \qquad
        k(x, y) = \exp\Bigl(-\tfrac1d \sum_s [x_s \ne y_s]\Bigr)

    Parameters
    ----------
    x, y : (N, d), (M, d), samples; N and M at least 2

    Returns
    -------
    () float

    Raises
    ------
    ValueError
        For arrays of other shapes.

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, section 5. In the formula there, all three sums have the
    arguments of the third one; here they are those of Gretton et al. 2012.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not x.shape[1]:
        raise ValueError(
            "squared_mmd compares samples (N, d) and (M, d) of the same sites, got arrays of shapes "
            f"{x.shape} and {y.shape}."
        )
    if min(len(x), len(y)) < 2:
        raise ValueError(
            "squared_mmd compares two samples, and one row says nothing of how a sample spreads: got "
            f"{len(x)} and {len(y)}."
        )
    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


def mean_kernel(x: Array, y: Array) -> Array:
    """() float, the mean of k over all pairs of a sample of x and one of y."""
    size = max(AT_ONCE // y.size, 1)

    def one(a: Array) -> Array:
        return jnp.exp(-(a != y).mean(axis=1, dtype=jnp.result_type(float))).mean()

    return jax.lax.map(one, x, batch_size=min(size, len(x))).mean()
