r"""Conjugate families: a prior, the likelihoods to which it is conjugate, and their integrals.

A likelihood with a parameter :math:`\phi` is :math:`\exp(\sum_j s_j(x) \eta_j(\phi))`, up to factors that do
not depend on :math:`\phi`, and the prior has the same form. The integral over :math:`\phi` depends on the
data through the sums of the statistics s alone (Diaconis and Ylvisaker 1979).

A family is one entry of `FAMILIES`. Its integral is over the prior times the factor
:math:`\exp(\sum_j s_j \eta_j)` only. The other factors of the likelihood are what the likelihood is at a
reference value of the parameter (a probability of 1/2, equal probabilities, a rate of 1, a mean of 0),
divided by this factor there. The precision of a Normal variable is a rate: given the mean, half the squared
distance of the variable from the mean has, up to a constant factor, the density of a Gamma variable of shape
1/2, whose rate is the precision.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax.scipy.special import gammaln
from pymc.distributions.transforms import Interval, LogOddsTransform, LogTransform, SimplexTransform
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.integrals.log_gamma import log_gamma_draws
from pymc_discrete.structure.numbers import AS_WRITTEN, NeedsValues, Number, numbers_in

Statistics = Callable[["ConjugateLikelihood"], list[Any]]


class ConjugateLikelihood(NamedTuple):
    """A variable x, each element of which has a distribution that reads one element phi of a parameter.

    Attributes
    ----------
    x : the variable
    params : the parameters of its distribution, one of which reads the conjugate parameter
    factor, offset : the distribution's parameter is (factor * phi + offset) ** power, with the attribute
        `power` of a `Reading`
    """

    x: Any
    params: Sequence[Any]
    factor: Any
    offset: Any


@dataclass(frozen=True)
class Reading:
    """The way in which a distribution reads a conjugate parameter.

    Attributes
    ----------
    place : the index of the parameter that reads it among the parameters of the distribution
    statistics : (likelihood) -> the numbers that each element adds to the sums of sufficient statistics
    power : the power of the conjugate parameter that the distribution reads: -1 for a scale, if the parameter
        is a rate
    scaled, shifted : whether the distribution may read a multiple of the parameter, and a multiple with
        something added
    precision : whether the parameter is the precision of a Normal variable, whose mean is the first parameter
    """

    place: int
    statistics: Statistics
    power: float = 1.0
    scaled: bool = False
    shifted: bool = False
    precision: bool = False


@dataclass(frozen=True)
class Family:
    """A conjugate prior and the likelihoods that go with it.

    Attributes
    ----------
    name : the name of the prior
    priors : {Op of a prior: function of its parameters, which returns the parameters of the family, or None
        if the prior is not of the family}
    likelihoods : {Op of a distribution: its `Reading` of the parameter}
    reference : (length of a vector) -> the reference value of the parameter
    log_weights : (statistics, length of a vector) -> for each element of the data, the logarithm, at the
        reference value, of the factor of its likelihood that depends on the parameter
    transforms : PyMC's transforms under which the family's draws are made
    log_marginal : (prior, sums of statistics) -> the log of the integral for each label, a graph
    posterior : (prior, sums of statistics) -> parameters of the distribution given the data, graphs
    draw : (key, *parameters) -> a draw under PyMC's transform, and log densities that add up to the log
        density of the draw
    vectors : whether a label has a vector, along the last axis of the parameter
    inverted : whether the model's parameter is the inverse of the parameter that the other attributes are
        about
    """

    name: str
    priors: Mapping[type[Op], Callable[..., tuple[Any, ...] | None]]
    likelihoods: Mapping[type[Op], Reading]
    reference: Callable[[int], Any]
    log_weights: Callable[[Sequence[Any], int], Any]
    transforms: tuple[type, ...]
    log_marginal: Callable[[Sequence[Any], Sequence[Any]], Any]
    posterior: Callable[[Sequence[Any], Sequence[Any]], list[Any]]
    draw: Callable[..., tuple[Any, Any]]
    vectors: bool = False
    inverted: bool = False


class Refusal(Exception):
    """The error that says, as part of a sentence, why a parameter cannot be integrated out in closed form."""


def known_value(v: Variable) -> np.ndarray | None:
    """The value of a tensor that is computed from constants; None for any other tensor.

    Raises
    ------
    NeedsValues
        If the tensor is computed from numbers that programs take as arguments.
    """
    if any(not isinstance(i, Constant | Number) for i in graph_inputs([v])):
        return None
    if numbers := numbers_in([v]):
        raise NeedsValues({str(n.name) for n in numbers})
    return np.asarray(pytensor.function([], v, mode=AS_WRITTEN)())


# ---------------------------------------------------------------- probabilities
def uniform_as_beta(low: Any, high: Any) -> tuple[Any, ...] | None:
    """The parameters of the uniform Beta distribution; None unless the bounds are known to be 0 and 1."""
    bounds = [known_value(v) for v in (low, high)]
    if any(b is None for b in bounds) or np.any(bounds[0] != 0) or np.any(bounds[1] != 1):
        return None
    return pt.ones_like(low), pt.ones_like(low)


def beta_marginal(prior: Sequence[Any], sums: Sequence[Any]) -> Any:
    (a, b), (s, f) = prior, sums
    integral = pt.gammaln(a + s) + pt.gammaln(b + f) - pt.gammaln(a + b + s + f)
    return integral - (pt.gammaln(a) + pt.gammaln(b) - pt.gammaln(a + b))


def drawn_beta(key: Any, a: Any, b: Any) -> tuple[Any, Any]:
    of_a, of_b = jax.random.split(key)
    # The log odds are the difference of the logarithms of two gamma variables, which do not underflow where
    # the gamma variables themselves would.
    log_odds = log_gamma_draws(of_a, a) - log_gamma_draws(of_b, b)
    density = a * jax.nn.log_sigmoid(log_odds) + b * jax.nn.log_sigmoid(-log_odds)
    return log_odds, density - (gammaln(a) + gammaln(b) - gammaln(a + b))


BETA_PRIOR = Family(
    "beta",
    {ptr.BetaRV: lambda a, b: (a, b), ptr.UniformRV: uniform_as_beta},
    {
        ptr.BernoulliRV: Reading(0, lambda of: [of.x, 1 - of.x]),
        ptr.BinomialRV: Reading(1, lambda of: [of.x, of.params[0] - of.x]),
        ptr.GeometricRV: Reading(0, lambda of: [pt.ones_like(of.x), of.x - 1]),
        ptr.NegBinomialRV: Reading(1, lambda of: [of.params[0], of.x]),
    },
    lambda _: 0.5,
    lambda statistics, _: -np.log(2.0) * (statistics[0] + statistics[1]),
    (LogOddsTransform, Interval),
    beta_marginal,
    lambda prior, sums: [p + s for p, s in zip(prior, sums, strict=True)],
    drawn_beta,
)


# ---------------------------------------------------------------- rates
def precision_statistics(of: ConjugateLikelihood) -> list[Any]:
    """The sufficient statistics of Normal variables for a parameter phi, where factor * phi is the precision.

    For each variable they are 1/2, and half of the squared distance from the mean times the factor.
    """
    return [pt.full_like(of.x, 0.5), 0.5 * of.factor * (of.x - of.params[0]) ** 2]


def gamma_marginal(prior: Sequence[Any], sums: Sequence[Any]) -> Any:
    (a, b), (s, t) = prior, sums
    return pt.gammaln(a + s) - pt.gammaln(a) + a * pt.log(b) - (a + s) * pt.log(b + t)


def drawn_gamma(key: Any, a: Any, b: Any) -> tuple[Any, Any]:
    log_rate = log_gamma_draws(key, a) - jnp.log(b)
    return log_rate, a * (log_rate + jnp.log(b)) - b * jnp.exp(log_rate) - gammaln(a)


GAMMA_PRIOR = Family(
    "gamma",
    {
        ptr.GammaRV: lambda shape, scale: (shape, 1 / scale),
        ptr.ExponentialRV: lambda scale: (pt.ones_like(scale), 1 / scale),
    },
    {
        ptr.PoissonRV: Reading(0, lambda of: [of.x, of.factor], scaled=True),
        ptr.ExponentialRV: Reading(
            0, lambda of: [pt.ones_like(of.x), of.factor * of.x], power=-1.0, scaled=True
        ),
        ptr.GammaRV: Reading(1, lambda of: [of.params[0], of.factor * of.x], power=-1.0, scaled=True),
        ptr.InvGammaRV: Reading(1, lambda of: [of.params[0], of.factor / of.x], scaled=True),
        ptr.ParetoRV: Reading(
            0, lambda of: [pt.ones_like(of.x), of.factor * pt.log(of.x / of.params[1])], scaled=True
        ),
        ptr.NormalRV: Reading(1, precision_statistics, power=-0.5, scaled=True, precision=True),
    },
    lambda _: 1.0,
    lambda statistics, _: -statistics[1],
    (LogTransform,),
    gamma_marginal,
    lambda prior, sums: [p + s for p, s in zip(prior, sums, strict=True)],
    drawn_gamma,
)


def drawn_inverse_gamma(key: Any, a: Any, b: Any) -> tuple[Any, Any]:
    log_rate, density = drawn_gamma(key, a, b)
    return -log_rate, density


INVERSE_GAMMA_PRIOR = replace(
    GAMMA_PRIOR,
    name="inverse gamma",
    priors={ptr.InvGammaRV: lambda a, b: (a, b)},
    draw=drawn_inverse_gamma,
    inverted=True,
)


# ---------------------------------------------------------------- means
def normal_statistics(of: ConjugateLikelihood) -> list[Any]:
    """The sufficient statistics of Normal variables for phi, where factor * phi + offset is the mean.

    For each variable x they are factor^2 / sd^2, and factor (x - offset) / sd^2.
    """
    precision = of.factor / of.params[1] ** 2
    return [of.factor * precision, (of.x - of.offset) * precision]


def normal_marginal(prior: Sequence[Any], sums: Sequence[Any]) -> Any:
    (mean, sd), (precision, linear) = prior, sums
    own = 1 / sd**2
    both = own + precision
    # Completing the square in the mean leaves square / both = (own mean + linear)^2 / both - own mean^2. The
    # two terms of this difference may be large and nearly equal, so `square` is written without it.
    square = linear**2 + 2 * linear * own * mean - precision * own * mean**2
    return 0.5 * square / both - 0.5 * pt.log1p(precision * sd**2)


def normal_posterior(prior: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
    (mean, sd), (precision, linear) = prior, sums
    both = 1 / sd**2 + precision
    return [(mean / sd**2 + linear) / both, 1 / pt.sqrt(both)]


def drawn_normal(key: Any, mean: Any, sd: Any) -> tuple[Any, Any]:
    z = jax.random.normal(key, mean.shape, mean.dtype)
    return mean + sd * z, -0.5 * z**2 - jnp.log(sd) - 0.5 * np.log(2 * np.pi)


NORMAL_PRIOR = Family(
    "normal",
    {ptr.NormalRV: lambda mean, sd: (mean, sd)},
    {ptr.NormalRV: Reading(0, normal_statistics, scaled=True, shifted=True)},
    lambda _: 0.0,
    lambda statistics, _: 0.0 * statistics[0],
    (),
    normal_marginal,
    normal_posterior,
    drawn_normal,
)


def vectors_of_normals(key: Any, mean: Any, sd: Any, to_vectors: Any) -> tuple[Any, Any]:
    """A draw of the vectors of a model, and log densities that add up to the log density of the draw.

    Parameters
    ----------
    mean, sd : of independent normal coordinates of each vector
    to_vectors : the matrix that makes a vector from its coordinates
    """
    coordinates, density = drawn_normal(key, mean, jnp.broadcast_to(sd, mean.shape))
    # The log density of a vector is less than that of its coordinates by the log determinant of the matrix;
    # each of its elements gets an equal share.
    _, log_volume = jnp.linalg.slogdet(to_vectors)
    return coordinates @ to_vectors.T, density - log_volume / mean.shape[-1]


# The parameters of the priors of Normal vectors are a mean, and a covariance matrix or a column of variances.
# In coordinates in which the covariances of the prior and of the likelihood are diagonal, see `Coordinates`,
# the elements of a vector are independent, and each is integrated out as a Normal number.
MULTIVARIATE_NORMAL_PRIOR = Family(
    "multivariate normal",
    {
        ptr.MvNormalRV: lambda mean, covariance: (mean, covariance),
        ptr.NormalRV: lambda mean, sd: (mean, pt.expand_dims(sd**2, -1)),
    },
    {ptr.MvNormalRV: Reading(0, lambda of: [of.x - of.offset], shifted=True)},
    np.zeros,
    lambda statistics, _: 0.0 * statistics[0],
    (),
    normal_marginal,
    normal_posterior,
    vectors_of_normals,
    vectors=True,
)


# ---------------------------------------------------------------- vectors of probabilities
def drawn_dirichlet(key: Any, a: Any) -> tuple[Any, Any]:
    log_gamma = log_gamma_draws(key, a)
    log_p = log_gamma - jax.nn.logsumexp(log_gamma, axis=-1, keepdims=True)
    density = (a * log_p - gammaln(a)).sum(-1) + gammaln(a.sum(-1)) + jnp.log(a.shape[-1])
    return log_p[..., :-1] - log_p.mean(-1, keepdims=True), density


def counts_marginal(prior: Sequence[Any], sums: Sequence[Any]) -> Any:
    """The contribution of each category of each label to the log of the integral over vectors of
    probabilities, without the contribution of the total of all categories.
    """
    (a,), (counts,) = prior, sums
    return pt.gammaln(a + counts) - pt.gammaln(a)


DIRICHLET_PRIOR = Family(
    "dirichlet",
    {ptr.DirichletRV: lambda a: (a,)},
    {
        ptr.CategoricalRV: Reading(0, lambda of: [pt.ones_like(of.x)]),
        ptr.MultinomialRV: Reading(1, lambda of: [of.x]),
    },
    lambda categories: np.full(categories, 1 / categories),
    lambda statistics, categories: -np.log(categories) * statistics[0],
    (SimplexTransform,),
    counts_marginal,
    lambda prior, sums: [prior[0] + sums[0]],
    drawn_dirichlet,
    vectors=True,
)

FAMILIES = (
    BETA_PRIOR,
    GAMMA_PRIOR,
    INVERSE_GAMMA_PRIOR,
    NORMAL_PRIOR,
    MULTIVARIATE_NORMAL_PRIOR,
    DIRICHLET_PRIOR,
)


def family(name: str) -> Family:
    """The conjugate family with the given name."""
    return next(f for f in FAMILIES if f.name == name)
