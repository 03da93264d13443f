r"""The PyTensor Op of a Gaussian integral.

.. math:: \log \int \exp(-\beta^T A \beta / 2 + b^T \beta) \, d\beta
    = b^T A^{-1} b / 2 - \log\det(A) / 2 + p \log(2 \pi) / 2
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import scipy.linalg
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify


class GaussianIntegral(Op):
    """The logarithm of a Gaussian integral, and the mean and covariance of the distribution.

    The inputs are the precision matrix A (p, p) and the linear term b (p,). All outputs are nan where A is
    not positive definite: the integral does not exist.
    """

    __props__ = ()

    def make_node(self, precision, linear):
        precision, linear = pt.as_tensor(precision), pt.as_tensor(linear)
        dtype = precision.type.dtype
        (p,) = linear.type.shape
        outputs = [pt.tensor(dtype=dtype, shape=shape) for shape in ((), (p,), (p, p))]
        return Apply(self, [precision, linear], outputs)

    def infer_shape(self, node, shapes):
        (p, _), _ = shapes
        return [(), (p,), (p, p)]

    def perform(self, node, inputs, outputs):
        precision, linear = inputs
        p, dtype = len(linear), precision.dtype
        try:
            factor = scipy.linalg.cholesky(precision, lower=True)
        except (np.linalg.LinAlgError, ValueError):  # not positive definite, or not finite
            found = [np.array(np.nan), np.full(p, np.nan), np.full((p, p), np.nan)]
        else:
            covariance = scipy.linalg.cho_solve((factor, True), np.eye(p))
            mean = covariance @ linear
            value = 0.5 * linear @ mean - np.log(np.diag(factor)).sum() + 0.5 * p * np.log(2 * np.pi)
            found = [np.array(value), mean, covariance]
        for storage, value in zip(outputs, found, strict=True):
            storage[0] = value.astype(dtype)

    def pullback(self, inputs, outputs, cotangents):
        if not all(isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError("A Gaussian integral has a gradient, and no Hessian.")
        _, mean, covariance = outputs
        slope = -0.5 * (covariance + mean[:, None] * mean[None, :])
        return [cotangents[0] * slope, cotangents[0] * mean]


def gaussian_integral(precision, linear):
    """The logarithm of a Gaussian integral, a scalar of PyTensor."""
    return GaussianIntegral()(precision, linear)[0]


@jax_funcify.register(GaussianIntegral)
def _(op, **_):
    return integral_mean_covariance


def integral_mean_covariance(precision, linear):
    """The outputs of `GaussianIntegral` in JAX; what is not used costs nothing in a compiled program."""
    p = linear.shape[0]
    factor = jnp.linalg.cholesky(precision)
    half = jax.scipy.linalg.solve_triangular(factor, linear, lower=True)
    value = 0.5 * half @ half - jnp.log(jnp.diagonal(factor)).sum() + 0.5 * p * np.log(2 * np.pi)
    inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(p, dtype=precision.dtype), lower=True)
    mean = jax.scipy.linalg.solve_triangular(factor, half, lower=True, trans=1)
    return value, mean, inverse.T @ inverse


def gaussian_draw(normals, precision, linear):
    """A draw from the distribution whose log density is -x'Ax/2 + b'x up to a constant, and its log density.

    Parameters
    ----------
    normals : (p,) independent standard normal numbers
    precision : (p, p), A
    linear : (p,), b

    Returns
    -------
    draw : (p,)
    logdensity : () nats, normalised
    """
    factor = jnp.linalg.cholesky(precision)
    half = jax.scipy.linalg.solve_triangular(factor, linear, lower=True)
    draw = jax.scipy.linalg.solve_triangular(factor, half + normals, lower=True, trans=1)
    constant = jnp.log(jnp.diagonal(factor)).sum() - 0.5 * linear.shape[0] * np.log(2 * np.pi)
    return draw, constant - 0.5 * normals @ normals
