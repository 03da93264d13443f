"""Chooses between a diagonal and a dense mass matrix, by what tuning saw.

The number of steps of a trajectory grows with the square root of the condition number of M^-1 H, where M is
the mass matrix and H minus the Hessian of the log density on which NUTS moves. For a Gaussian H is the mean
of the outer products of gradients. Beside a discrete variable the covariance of the draws is not that of this
density: lam and p of an N-mixture are correlated, and given the counts they are not. The gradients are those
of the density that NUTS meets, so that a covariance that does not fit it is not taken.
"""

import jax.numpy as jnp

LARGEST_CHOICE = 32  # of more coordinates the matrix is diagonal, without a choice
# A dense matrix is taken if the condition number is smaller by this factor, for trajectories that are shorter
# by its square root. Covariances of few draws are worse than that by chance, and are not taken.
GAIN = 2.0


def inverse_mass_matrix(covariance, scores):
    """(d, d) float, the covariance, or its diagonal, as the inverse of the mass matrix.

    Parameters
    ----------
    covariance : (d, d) float, of draws
    scores : (d, d) float, the sum of the outer products of the gradients at these draws
    """
    diagonal = jnp.diag(jnp.diag(covariance))
    better = GAIN * condition(covariance, scores) < condition(diagonal, scores)
    return jnp.where(better, covariance, diagonal)


def condition(inverse, scores):
    """() float, the condition number of `inverse` @ `scores`; nan or inf where one of them has no inverse."""
    root = jnp.linalg.cholesky(inverse)
    values = jnp.linalg.eigvalsh(root.T @ scores @ root)
    return jnp.where(
        values[0] > 0, values[-1] / jnp.maximum(values[0], jnp.finfo(values.dtype).tiny), jnp.inf
    )


def outer(slope):
    """(d, d) float, the outer product of a gradient (d,); 0 where it is not finite."""
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    return slope[:, None] * slope
