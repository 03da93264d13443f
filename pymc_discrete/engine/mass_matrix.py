"""The choice between a diagonal and a dense mass matrix, by the draws and gradients of tuning.

The number of steps of a trajectory grows with the square root of the condition number of M^-1 H, where M is
the mass matrix, and H is minus the Hessian of the log density on which NUTS moves. For a Gaussian H is the
mean of the outer products of gradients. If there are discrete variables, the covariance of the draws is not
the covariance of this density: lam and p of an N-mixture are correlated in the posterior, but not given the
counts. The gradients are gradients of the density on which NUTS moves, so that a covariance that does not fit
this density is not used.
"""

import jax.numpy as jnp

# if NUTS moves more than LARGEST_CHOICE coordinates and the user does not choose, the mass matrix is diagonal
LARGEST_CHOICE = 32
# A dense mass matrix is used if it makes the condition number smaller by more than the factor GAIN, and so
# trajectories shorter by the square root of the factor. A smaller gain may be chance, in a covariance that is
# estimated from few draws.
GAIN = 2.0


def inverse_mass_matrix(covariance, scores):
    """(d, d) float, the covariance, or its diagonal, as the inverse of the mass matrix.

    Parameters
    ----------
    covariance : (d, d) float, the covariance of draws
    scores : (d, d) float, the sum of the outer products of the gradients at these draws
    """
    diagonal = jnp.diag(jnp.diag(covariance))
    better = GAIN * condition(covariance, scores) < condition(diagonal, scores)
    return jnp.where(better, covariance, diagonal)


def condition(inverse, scores):
    """() float, the largest eigenvalue of the product `inverse` @ `scores` divided by the smallest.

    It is inf if one of the two symmetric matrices is not positive definite.
    """
    root = jnp.linalg.cholesky(inverse)
    values = jnp.linalg.eigvalsh(root.T @ scores @ root)
    return jnp.where(
        values[0] > 0, values[-1] / jnp.maximum(values[0], jnp.finfo(values.dtype).tiny), jnp.inf
    )


def outer(slope):
    """(d, d) float, the outer product of a gradient (d,); elements that are not finite count as 0."""
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    return slope[:, None] * slope
