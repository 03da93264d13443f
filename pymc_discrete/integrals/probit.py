r"""Probit likelihoods, which are quadratic forms given latent normal variables.

With :math:`u \sim N(\eta, 1)`, the answer 1 has the probability :math:`P(u > 0) = \Phi(\eta)`; among ordered
answers, the answer k has the probability :math:`P(c_k < u < c_{k + 1})` with cutpoints from :math:`c_0 =
-\infty` (Albert and Chib 1993, Bayesian analysis of binary and polychotomous response data, sections 3 and
4). The joint density of u and the answer is a quadratic form in :math:`\eta`; given the answer, u is a
truncated normal variable.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax.scipy.special import ndtr, ndtri
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Mul, Sub, TrueDiv
from pytensor.scalar.math import Erfc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import Subtensor

from pymc_discrete.structure.scalar_ops import computed_by

PREDICTOR, LOWER, UPPER, LATENT = "predictor", "lower bound", "upper bound", "latent variables"
# Draws between two bounds are quantiles of the normal distribution. If the nearer bound is this many standard
# deviations from the mean, the probabilities of these quantiles may be smaller than any positive float, and
# draws are made by rejection from an exponential distribution instead. The keys are the bytes of a float.
FAR = {8: 36.0, 4: 11.0}


def latent_form(
    data: Variable, predictor: Variable, bounds: Sequence[Variable], further: Callable
) -> tuple[Variable, dict[str, Variable], tuple[Any, ...]]:
    """The log likelihood, given latent variables, of answers that say between which bounds these are; the
    tensors that a draw of the latent variables reads; and no further facts.

    The latent variables are normal around the predictor, with variance 1.

    Parameters
    ----------
    bounds : the lower and the upper bounds, in the shape of the data; nan where the answer is impossible
    """
    latent = further(LATENT, np.zeros(tuple(map(int, data.shape.eval()))))
    form = pt.switch(pt.isnan(bounds[0]), -np.inf, latent * predictor - predictor**2 / 2)
    return form, {PREDICTOR: predictor, LOWER: bounds[0], UPPER: bounds[1]}, ()


def draw_latent(key: Any, values: Mapping[str, Any], facts: tuple[Any, ...]) -> dict[str, Any]:
    """A draw of latent variables: normal around the predictor, with variance 1, and between bounds."""
    return {LATENT: normal_between(key, *(values[role] for role in (PREDICTOR, LOWER, UPPER)))}


class Probit:
    """Probit likelihoods as quadratic forms: an `Augmentation` (integrals/augmented.py)."""

    called = LATENT

    def predictor(self, op: Any, params: Sequence[Variable]) -> Variable | None:
        """The x for which the standard normal distribution function is the probability of a Bernoulli
        variable; None for any other distribution.
        """
        return of_normal_cdf(params[0]) if isinstance(op, ptr.BernoulliRV) else None

    def others(self, op: Any, params: Sequence[Variable]) -> list[Variable]:
        """No tensors: the distribution of the latent variables depends on the predictor and the data only."""
        return []

    def form(
        self,
        op: Any,
        params: Sequence[Variable],
        data: Variable,
        predictor: Variable,
        further: Callable[[str, np.ndarray], Variable],
    ) -> tuple[Variable, dict[str, Variable], tuple[Any, ...]]:
        return latent_form(data, predictor, between(np.zeros(1), data), further)

    draw = staticmethod(draw_latent)


class OrderedProbit:
    """Likelihoods of ordered answers as quadratic forms: an `Augmentation` (integrals/augmented.py)."""

    called = LATENT

    def predictor(self, op: Any, params: Sequence[Variable]) -> Variable | None:
        """The mean of the latent variable that is compared with the cutpoints, divided by its standard
        deviation; None for a distribution other than a pm.OrderedProbit.
        """
        found = of_ordered_probit(op, params)
        return None if found is None else found[0] / found[2]

    def others(self, op: Any, params: Sequence[Variable]) -> list[Variable]:
        """The cutpoints and the standard deviation, from which the bounds of the latent variables are
        computed.
        """
        found = of_ordered_probit(op, params)
        return [] if found is None else list(found[1:])

    def form(
        self,
        op: Any,
        params: Sequence[Variable],
        data: Variable,
        predictor: Variable,
        further: Callable[[str, np.ndarray], Variable],
    ) -> tuple[Variable, dict[str, Variable], tuple[Any, ...]]:
        cutpoints, sigma = self.others(op, params)
        return latent_form(data, predictor, between(cutpoints / pt.shape_padright(sigma), data), further)

    draw = staticmethod(draw_latent)


PROBIT, ORDERED_PROBIT = Probit(), OrderedProbit()


def between(cutpoints: Any, answers: Variable) -> tuple[Variable, Variable]:
    """The cutpoint below each answer, and the cutpoint above it.

    Parameters
    ----------
    cutpoints : (..., k - 1), increasing along the last axis; the other axes are those of the answers
    answers : 0 to k - 1; for any other value the lower bound is nan

    Returns
    -------
    lower, upper : in the shape of the answers, -inf below the least and inf above the largest answer
    """
    infinite = pt.full_like(cutpoints[..., :1], np.inf)
    bounds = pt.concatenate([-infinite, cutpoints, infinite], axis=-1)
    last = bounds.shape[-1] - 2
    bounds = pt.broadcast_to(bounds, (*answers.shape, last + 2))
    place = pt.clip(answers, 0, last).astype("int64")[..., None]
    lower, upper = (pt.take_along_axis(bounds, place + n, axis=-1)[..., 0] for n in (0, 1))
    return pt.switch(pt.eq(answers, place[..., 0]), lower, np.nan), upper


def of_ordered_probit(op: Any, params: Sequence[Variable]) -> tuple[Variable, Variable, Variable] | None:
    """The arguments eta, cutpoints and sigma of a pm.OrderedProbit; None for any other distribution.

    PyMC writes a pm.OrderedProbit as a categorical variable with a long formula for the probabilities p. The
    formula has quotients (eta - cutpoint) / sigma. The eta, cutpoint and sigma of each quotient are tried:
    they are the arguments if PyMC makes the graph of p from them.
    """
    if not isinstance(op, ptr.CategoricalRV):
        return None
    p = params[0]
    # p may be the view of a Deterministic, or have axes before the axes of eta; both are stripped
    while p.owner is not None and (
        isinstance(p.owner.op, ViewOp)
        or (isinstance(p.owner.op, DimShuffle) and p.owner.op.is_left_expand_dims)
    ):
        (p,) = p.owner.inputs
    for quotient in ancestors([p]):
        match arguments(quotient, TrueDiv):
            case [numerator, sigma]:
                difference = arguments(numerator, Sub)
            case _:
                continue
        if not difference or not isinstance(getattr(difference[0].owner, "op", None), Subtensor):
            continue
        match arguments(difference[0].owner.inputs[0], Sub):
            case [Variable(owner=Apply(op=DimShuffle(), inputs=[eta])), cutpoints]:
                sigma = without_new_axes(sigma)
                if equal_computations([p], [pm.OrderedProbit.compute_p(eta, cutpoints, sigma)]):
                    return eta, cutpoints, sigma
    return None


def arguments(v: Variable, op: type) -> list[Variable]:
    """The inputs of v if the given elementwise Op computes v; else an empty list."""
    return list(v.owner.inputs) if computed_by(v, op) else []


def without_new_axes(v: Variable) -> Variable:
    """The variable from which v is made by adding axes of length 1 or exchanging axes; v if there is none."""
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        (v,) = v.owner.inputs
    return v


def of_normal_cdf(p: Variable) -> Variable | None:
    """The x of a probability that is written as erfc(-x / sqrt(2)) / 2: as Phi(x). None for others."""
    half, other = constant_and_factor(p)
    if half != 0.5 or other is None or not computed_by(other, Erfc):
        return None
    return other.owner.inputs[0] * -np.sqrt(2.0)


def constant_and_factor(v: Variable) -> tuple[float | None, Variable | None]:
    """(number, tensor) for a tensor that is written as a number times a tensor; else (None, None)."""
    if not computed_by(v, Mul):
        return None, None
    constants = [i for i in v.owner.inputs if isinstance(i, Constant)]
    rest = [i for i in v.owner.inputs if not isinstance(i, Constant)]
    if len(constants) != 1 or len(rest) != 1 or len(np.unique(constants[0].data)) != 1:
        return None, None
    return float(np.unique(constants[0].data)[0]), rest[0]


def normal_between(key: Any, mean: Any, lower: Any, upper: Any):
    """Draws of N(mean, 1) between bounds, an array like the means (n,).

    Parameters
    ----------
    lower, upper : arrays like the means, which may be infinite
    """
    key, key_far = jax.random.split(key)
    # An interval above the mean is reflected about the mean, so that all draws are from intervals of N(0, 1)
    # that are in the lower tail or around 0.
    above = lower > mean
    a = jnp.where(above, mean - upper, lower - mean)
    b = jnp.where(above, mean - lower, upper - mean)
    # u and 1 - u are above 0, so that all quantiles are finite
    u = jax.random.uniform(key, mean.shape, mean.dtype, minval=jnp.finfo(mean.dtype).eps / 2)
    from_below = ndtr(a) + u * (ndtr(b) - ndtr(a))
    from_above = ndtr(-b) + (1 - u) * (ndtr(-a) - ndtr(-b))
    quantile = ndtri(jnp.minimum(from_below, from_above))
    near = jnp.clip(jnp.where(from_below < from_above, quantile, -quantile), a, b)
    # Where the upper bound b is far below 0, the distance t = b - x of a draw x from it has a density
    # proportional to exp(b t) exp(-t^2 / 2). The first factor is an exponential density of rate -b, from
    # which t is proposed; the second factor is the probability that the proposal is accepted.
    far = b < -FAR[mean.dtype.itemsize]
    rate = jnp.where(far, -b, 1.0)
    most = jnp.expm1(-rate * jnp.where(far, b - a, 1.0))

    def attempt(carried):
        turn, x, left = carried
        key_t, key_u = jax.random.split(jax.random.fold_in(key_far, turn))
        t = -jnp.log1p(most * jax.random.uniform(key_t, mean.shape, mean.dtype)) / rate
        accepted = left & (jax.random.uniform(key_u, mean.shape, mean.dtype) < jnp.exp(-0.5 * t**2))
        return turn + 1, jnp.where(accepted, b - t, x), left & ~accepted

    _, x, _ = jax.lax.while_loop(lambda carried: carried[2].any(), attempt, (0, near, far))
    return mean + jnp.where(above, -x, x)
