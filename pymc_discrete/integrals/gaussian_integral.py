r"""The PyTensor Op of a Gaussian integral.

.. math:: \log \int \exp(-\beta^T A \beta / 2 + b^T \beta) \, d\beta
    = b^T A^{-1} b / 2 - \log\det(A) / 2 + p \log(2 \pi) / 2
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import scipy.linalg
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify

from pymc_discrete.runtime.jax_settings import is_traced

# A system of equations in some of p unknowns is padded to the next of a few sizes: p, and p divided by
# SYSTEM_RATIO again and again, down to a size from SMALLEST_SYSTEM to SYSTEM_RATIO * SMALLEST_SYSTEM.
SMALLEST_SYSTEM, SYSTEM_RATIO = 16, 4


class GaussianIntegral(Op):
    """The logarithm of a Gaussian integral, and mean and covariance of the distribution with its integrand.

    The inputs are the precision matrix A (p, p), the linear term b (p,), and `coupled` (p,) bool, which is
    False for the rows of A that are 0 off the diagonal. All outputs are nan if A is not positive definite, so
    that the integral does not exist.
    """

    __props__ = ()

    def make_node(self, precision, linear, coupled):
        precision, linear, coupled = map(pt.as_tensor, (precision, linear, coupled))
        dtype = precision.type.dtype
        (p,) = linear.type.shape
        outputs = [pt.tensor(dtype=dtype, shape=shape) for shape in ((), (p,), (p, p))]
        return Apply(self, [precision, linear, coupled], outputs)

    def infer_shape(self, node, shapes):
        (p, _), *_ = shapes
        return [(), (p,), (p, p)]

    def perform(self, node, inputs, outputs):
        precision, linear, _ = inputs
        p, dtype = len(linear), precision.dtype
        try:
            factor = scipy.linalg.cholesky(precision, lower=True)
        except (np.linalg.LinAlgError, ValueError):  # A is not positive definite, or not finite
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
            raise NotImplementedError("A Gaussian integral has no Hessian. Take differences of its gradient.")
        _, mean, covariance = outputs
        slope = -0.5 * (covariance + mean[:, None] * mean[None, :])
        return [cotangents[0] * slope, cotangents[0] * mean, DisconnectedType()()]

    def connection_pattern(self, node):
        return [[True] * 3, [True] * 3, [False] * 3]


def gaussian_integral(precision, linear, coupled):
    """The log of the integral of exp(-x'Ax/2 + b'x) over x, a PyTensor scalar.

    Parameters
    ----------
    precision, linear : A (p, p) and b (p,)
    coupled : (p,) bool, False for the rows of A that are 0 off the diagonal
    """
    return GaussianIntegral()(precision, linear, coupled)[0]


@jax_funcify.register(GaussianIntegral)
def _(op, **_):
    return integral_mean_covariance


def integral_mean_covariance(precision, linear, coupled):
    """The log of the integral of exp(-x'Ax/2 + b'x) over x, and mean and covariance of x with this density,
    in JAX.

    Parameters
    ----------
    precision, linear : A (p, p) and b (p,)
    coupled : (p,) bool, False for the rows of A that are 0 off the diagonal
    """
    p = linear.shape[0]

    def solved(precision, linear, places):
        factor = jnp.linalg.cholesky(precision)
        half = jax.scipy.linalg.solve_triangular(factor, linear, lower=True)
        eye = jnp.eye(len(linear), dtype=precision.dtype)
        inverse = jax.scipy.linalg.solve_triangular(factor, eye, lower=True)
        covariance = inverse.T @ inverse
        value = 0.5 * half @ half - jnp.log(jnp.diagonal(factor)).sum()
        mean = jnp.zeros_like(linear, shape=p).at[places].set(inverse.T @ half, mode="drop")
        whole = jnp.zeros_like(precision, shape=(p, p))
        return value, mean, whole.at[places[:, None], places].set(covariance, mode="drop")

    value, mean, covariance = on_coupled(solved, precision, linear, coupled)
    diagonal = jnp.where(coupled, 1.0, jnp.diagonal(precision))
    apart = jnp.where(coupled, 0.0, 0.5 * (linear**2 / diagonal - jnp.log(diagonal)))
    return (
        value + apart.sum() + 0.5 * p * np.log(2 * np.pi),
        jnp.where(coupled, mean, linear / diagonal),
        covariance + jnp.diag(jnp.where(coupled, 0.0, 1 / diagonal)),
    )


def gaussian_draw(normals, precision, linear, coupled):
    """A draw x of the distribution with the log density -x'Ax/2 + b'x, up to a constant, and the log density
    at x.

    Parameters
    ----------
    normals : (p,) independent standard normal numbers
    precision, linear : A (p, p) and b (p,)
    coupled : (p,) bool, False for the rows of A that are 0 off the diagonal

    Returns
    -------
    draw : (p,)
    logdensity : () nats, normalised
    """
    p = linear.shape[0]

    def solved(precision, linear, places):
        factor = jnp.linalg.cholesky(precision)
        half = jax.scipy.linalg.solve_triangular(factor, linear, lower=True)
        own = normals.at[places].get(mode="fill", fill_value=0.0)
        draw = jax.scipy.linalg.solve_triangular(factor, half + own, lower=True, trans=1)
        whole = jnp.zeros_like(linear, shape=p).at[places].set(draw, mode="drop")
        return whole, jnp.log(jnp.diagonal(factor)).sum()

    draw, logarithm = on_coupled(solved, precision, linear, coupled)
    diagonal = jnp.where(coupled, 1.0, jnp.diagonal(precision))
    logarithm = logarithm + 0.5 * jnp.log(diagonal).sum() - 0.5 * p * np.log(2 * np.pi)
    apart = linear / diagonal + normals / jnp.sqrt(diagonal)
    return jnp.where(coupled, draw, apart), logarithm - 0.5 * normals @ normals


def on_coupled(solve: Callable, precision, linear, coupled):
    """The result of a function that gets only the rows of A and b of the coupled coefficients.

    A coefficient is not coupled if its row of A is 0 off the diagonal. The rows are padded to m, the smallest
    of a few sizes for which there is code (see `SYSTEM_RATIO`).

    Parameters
    ----------
    solve : (A (m, m), b (m,), places (m,) int) -> arrays whose shapes do not depend on m
        `places` has the indices of the coupled coefficients. In the padding, A is the identity, b is 0, and
        `places` is p.
    precision, linear, coupled : A (p, p), b (p,) and (p,) bool
    """
    precision, linear, coupled = map(jnp.asarray, (precision, linear, coupled))
    p = linear.shape[0]
    if not is_traced(coupled) and np.asarray(coupled).all():
        return solve(precision, linear, jnp.arange(p))
    sizes = [p]
    while sizes[0] > SYSTEM_RATIO * SMALLEST_SYSTEM or (len(sizes) == 1 and p > SMALLEST_SYSTEM):
        sizes.insert(0, max(SMALLEST_SYSTEM, -(-sizes[0] // SYSTEM_RATIO)))
    order = jnp.argsort(~coupled)

    def of_size(m: int) -> Callable:
        def branch():
            places = order[:m]
            inside = coupled[places]
            both = inside[:, None] & inside
            eye = jnp.eye(m, dtype=precision.dtype)
            own = jnp.where(both, precision[places[:, None], places], eye)
            return solve(own, jnp.where(inside, linear[places], 0.0), jnp.where(inside, places, p))

        return branch

    if len(sizes) == 1:
        return of_size(p)()
    return jax.lax.switch(jnp.searchsorted(np.array(sizes), coupled.sum()), [of_size(m) for m in sizes])
