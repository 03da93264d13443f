r"""Probit likelihoods, which are quadratic forms given latent normal variables.

With :math:`u \sim N(\eta, 1)`, the answer 1 has the probability :math:`P(u > 0) = \Phi(\eta)` (Albert and
Chib 1993, Bayesian analysis of binary and polychotomous response data). The joint density of u and the answer
is a quadratic form in :math:`\eta`; given the answer, u is a truncated normal variable.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax.scipy.special import ndtr, ndtri
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Mul
from pytensor.scalar.math import Erfc
from pytensor.tensor.elemwise import Elemwise

PREDICTOR, ANSWER, LATENT = "predictor", "answer", "latent variables"
# Where the predictor is this far on the other side of 0, its normal variable is drawn by rejection from an
# exponential one, since the probability of its side is below the smallest number of the type; by bytes.
FAR = {8: 36.0, 4: 12.0}


class Probit:
    """How likelihoods of a probit are quadratic forms: an `Augmentation` (integrals/augmented.py)."""

    called = LATENT

    def predictor(self, op: Any, params: Sequence[Variable]) -> Variable | None:
        """What the standard normal distribution function is applied to."""
        return of_normal_cdf(params[0]) if isinstance(op, ptr.BernoulliRV) else None

    def others(self, op: Any, params: Sequence[Variable]) -> list[Variable]:
        """Nothing."""
        return []

    def form(
        self,
        op: Any,
        params: Sequence[Variable],
        data: Variable,
        predictor: Variable,
        further: Callable[[str, np.ndarray], Variable],
    ) -> tuple[Variable, dict[str, Variable], tuple[Any, ...]]:
        latent = further(LATENT, np.zeros(tuple(map(int, data.shape.eval()))))
        possible = pt.eq(data, 0) | pt.eq(data, 1)
        form = pt.switch(possible, latent * predictor - predictor**2 / 2, -np.inf)
        return form, {PREDICTOR: predictor, ANSWER: data}, ()

    def draw(self, key: Any, values: Mapping[str, Any], facts: tuple[Any, ...]) -> dict[str, Any]:
        sign = jnp.where(values[ANSWER] > 0, 1.0, -1.0)
        return {LATENT: sign * positive_normal(key, sign * values[PREDICTOR])}


PROBIT = Probit()


def of_normal_cdf(p: Variable) -> Variable | None:
    """x where a probability is written as erfc(-x / sqrt(2)) / 2, None for any other."""
    half, other = constant_and_factor(p)
    if half != 0.5 or other is None or other.owner is None or not isinstance(other.owner.op, Elemwise):
        return None
    return other.owner.inputs[0] * -np.sqrt(2.0) if isinstance(other.owner.op.scalar_op, Erfc) else None


def constant_and_factor(v: Variable) -> tuple[float | None, Variable | None]:
    """The two factors of a product of one number and a tensor; None for what is none."""
    if v.owner is None or not isinstance(v.owner.op, Elemwise) or not isinstance(v.owner.op.scalar_op, Mul):
        return None, None
    constants = [i for i in v.owner.inputs if isinstance(i, Constant)]
    rest = [i for i in v.owner.inputs if not isinstance(i, Constant)]
    if len(constants) != 1 or len(rest) != 1 or len(np.unique(constants[0].data)) != 1:
        return None, None
    return float(np.unique(constants[0].data)[0]), rest[0]


def positive_normal(key: Any, mean: Any):
    """Draws of N(mean, 1), given that they are positive, an array like the means (n,)."""
    key, key_far = jax.random.split(key)
    far = mean < -FAR[mean.dtype.itemsize]
    near_mean = jnp.where(far, 0.0, mean)
    u = jax.random.uniform(key, mean.shape, mean.dtype, minval=jnp.finfo(mean.dtype).tiny)
    near = near_mean - ndtri(u * ndtr(near_mean))
    # density exp(-r x - x^2 / 2), r = -mean: an exponential variable of rate r, accepted with exp(-x^2 / 2)
    rate = jnp.where(far, -mean, 1.0)

    def attempt(carried):
        turn, x, left = carried
        key_x, key_u = jax.random.split(jax.random.fold_in(key_far, turn))
        new = jax.random.exponential(key_x, mean.shape, mean.dtype) / rate
        accepted = left & (jax.random.uniform(key_u, mean.shape, mean.dtype) < jnp.exp(-0.5 * new**2))
        return turn + 1, jnp.where(accepted, new, x), left & ~accepted

    _, x, _ = jax.lax.while_loop(lambda carried: carried[2].any(), attempt, (0, near, far))
    return x
