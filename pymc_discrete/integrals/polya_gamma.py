r"""Draws of Polya-Gamma variables, many at once, exact up to rounding.

Given :math:`\omega \sim PG(b, z)` the likelihood of a logistic model is Gaussian in its linear predictor
(Polson, Scott and Windle 2013). Here :math:`\omega = X / 4`, and X is drawn from :math:`J^*(b, c)` with
:math:`c = |z| / 2`, the distribution with the Laplace transform

.. math:: E[e^{-s X}] = \left(\frac{\cosh c}{\cosh \sqrt{c^2 + 2 s}}\right)^b.

All draws are made by rejection, from one kind of envelope. X is a sum of infinitely many gamma variables of
shape b (Polson et al. 2013, Definition 1). For b >= 1 their log densities are concave, and a sum of
independent variables with concave log densities also has a concave log density (Prekopa 1973). A tangent of a
concave function lies above the function everywhere. So a tangent on each side of the mode and a constant
between them bound the log density, wherever the tangents touch it, and the bound is easy to draw from
(Devroye 1984). For every b and z at least 87% of the proposals are accepted. The density is computed in
different ways:

===================  =======================================================================================
b                    density
===================  =======================================================================================
1                    the series of Devroye's sampler in Polson et al. 2013, of which a few terms suffice
up to `LARGE_SHAPE`  X is a sum of independent variables of :math:`J^*(h, c)`, h at most `LONGEST_PIECE`,
                     whose density is a series, too (Windle, Polson and Scott 2014)
larger               the Fourier integral of the characteristic function
===================  =======================================================================================

The series alternate, and a sampler may decide as soon as a partial sum is on the right side. Here many
elements are drawn together and each would wait for the slowest; all take the same number of terms, after
which the rest is below rounding. Every density is computed with an error of some machine epsilons of its
largest value, so that the draws are off by as much in total variation. For large b the rounding of x itself
is more: it is a machine epsilon times the ratio of the mean to the standard deviation, some sqrt(b (1 + c)).
The saddlepoint method of Windle, Polson and Scott 2014 is not used, since it draws from an approximation of
the density. For b < 1 the log density is not concave, and such b are not drawn.

References: Devroye 1984, A simple algorithm for generating random variates with a log-concave density.
Polson, Scott and Windle 2013, Bayesian inference for logistic models using Polya-Gamma latent variables.
Windle, Polson and Scott 2014, Sampling Polya-Gamma random variates: alternate and approximate techniques.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.random import uniforms

# (x, parameters) -> two arrays like x: a density is exp(the first) times the second, up to a constant factor.
# Where the density is almost zero, rounding may make the second array negative.
FactoredDensity = Callable[[Any, Any], tuple[Any, Any]]

# The density of J*(1, 0) is the sum of either of two series. At this x their first terms are equal, and both
# converge at the same rate.
CROSSING = 2 / math.pi
# A draw of J*(b, c) is a sum of draws of J*(h, c). This is the largest h. Rounding errors of the series are
# some machine epsilons times the sum of the absolute values of its terms. The integral of this sum over x is
# largest for c = 0: 20 at h = 2, 260 at h = 4, and 17,000 at h = 8, while the integral of the density is 1.
LONGEST_PIECE = 4.0
# The number of terms of the series for the density of J*(h, c) that are added up, by the bytes of a float.
# The first term that is left out is below rounding for all proposed x, except with a probability below
# rounding.
TERMS = {8: 36, 4: 20}
# the number of terms of the series that are added up at the points x where tangents touch the log density,
# which are all below 6
TERMS_AT_TANGENTS = 13
# For b larger than this, a draw by the Fourier integral takes less time than a sum of draws of J*(h, c).
LARGE_SHAPE = 160.0
# The number of points of the Fourier integral, and their distance in units of 1 / sd, by the bytes of a
# float. For b >= `LARGE_SHAPE` the characteristic function is below rounding beyond these points, and so is
# the density at more than pi / distance standard deviations from the mean.
FOURIER_GRID = {8: (32, 0.29), 4: (14, 0.45)}
# Once at most 1 / NARROWER of the elements lack a draw, proposals are made for these elements only.
NARROWER = 8


class Envelope(NamedTuple):
    """A bound of log densities: constant in an interval, and linear on both sides of it.

    Attributes
    ----------
    top : (n,) float, nats, the constant
    left, right : (n,) float, the ends of the interval
    left_scale, right_scale : (n,) float, positive, the distance from the interval at which the bound has
        fallen by 1
    """

    top: Any
    left: Any
    right: Any
    left_scale: Any
    right_scale: Any


class DrawsSoFar(NamedTuple):
    """Sums of accepted proposals, one sum for each element, while proposals are still made.

    Attributes
    ----------
    round : () int, the number of times that proposals were made
    totals : (n,) float, the sums so far
    missing : (n,) int, the number of draws that each element still lacks
    """

    round: Any
    totals: Any
    missing: Any


def random_polyagamma(key: Any, b: Any, z: Any, bounds: tuple[float, float] = (1.0, math.inf)):
    """Independent draws of Polya-Gamma variables, PG(b, z) of Polson, Scott and Windle 2013.

    Parameters
    ----------
    key : a key of JAX
    b : (n,) float, at least 1
    z : (n,) float, of which only the absolute value matters
    bounds : bounds of all b, known when the program is traced; code for other b is not compiled

    Returns
    -------
    (n,) float, positive; nan where b or z is not finite, and where b is below 1
    """
    c = 0.5 * jnp.abs(z)
    least, most = bounds
    if most <= 1:
        return 0.25 * unit_draws(key, c)
    b = jnp.where(b >= 1, b, math.nan)
    if most <= LARGE_SHAPE:
        return 0.25 * sums_of_pieces(key, b, c)
    if least > LARGE_SHAPE:
        return 0.25 * large_draws(key, b, c)
    key_pieces, key_large = jax.random.split(key)
    large = b > LARGE_SHAPE
    few = sums_of_pieces(key_pieces, jnp.where(large, 1.0, b), c, ~large)
    many = jax.lax.cond(
        large.any(),
        lambda: large_draws(key_large, jnp.where(large, b, 2 * LARGE_SHAPE), c, large),
        lambda: jnp.zeros_like(few),
    )
    return 0.25 * jnp.where(large, many, few)


# ---------------------------------------------------------------- the three ways
def unit_draws(key: Any, c: Any):
    """(n,) float, draws of J*(1, c)."""
    return sums_of_draws(key, unit_density, unit_envelope(c), c, jnp.ones(c.shape, int))


def sums_of_pieces(key: Any, b: Any, c: Any, wanted: Any = True):
    """(n,) float, draws of J*(b, c) as sums of independent pieces: draws of J*(h, c), all with one h.

    Parameters
    ----------
    wanted : (n,) bool, whether a draw is made for each element; the result of other elements is 0
    """
    pieces = jnp.ceil(b / LONGEST_PIECE)
    parameters = b / pieces, c
    # If b is nan, one piece is drawn, which is nan, and so is the sum.
    counts = jnp.where(wanted, jnp.where(pieces > 1, pieces, 1), 0).astype(int)
    return sums_of_draws(key, series_density, piece_envelope(parameters), parameters, counts)


def large_draws(key: Any, b: Any, c: Any, wanted: Any = True):
    """(n,) float, draws of J*(b, c) for b >= `LARGE_SHAPE`.

    Parameters
    ----------
    wanted : (n,) bool, whether a draw is made for each element; the result of other elements is not random
    """
    mean, spread = mean_and_spread(b, c)
    sd = mean * spread
    points = (tangent_points(b, c) - mean) / sd
    parameters = characteristic_function(b, c, mean, sd)
    envelope = tangent_envelope(fourier_density, points, parameters)
    counts = jnp.broadcast_to(jnp.asarray(wanted, int), b.shape)
    return mean + sd * sums_of_draws(key, fourier_density, envelope, parameters, counts, -mean / sd)


def mean_and_spread(b: Any, c: Any):
    """The mean of J*(b, c), and, approximately, its standard deviation divided by the mean, (n,) float each.

    Draws would be exact with any other two numbers as well: the numbers only decide where tangents touch the
    log density, and how x is scaled.
    """
    c = jnp.maximum(c, 1e-3)
    # this approximation of the standard deviation of J*(b, c) is exact as c goes to 0 or to infinity
    return b * jnp.tanh(c) / c, 1 / jnp.sqrt(b * jnp.sqrt(2.25 + c**2))


def tangent_points(b: Any, c: Any):
    """(3, n) float, the points at which tangents touch the log density of J*(b, c): left of the mode, near
    the mode, right of the mode.

    For a Gaussian density, the largest share of proposals is accepted if the points are sqrt(2) standard
    deviations from the mode. For J*(b, c) this is nearly the best distance of log(x), for every b and c
    (found numerically).
    """
    mean, spread = mean_and_spread(b, c)
    middle = mean * jnp.exp(-math.sqrt(2) * spread**2)
    step = jnp.exp(math.sqrt(2) * spread)
    return jnp.stack([middle / step, middle, middle * step])


# ---------------------------------------------------------------- densities
def unit_density(x: Any, c: Any):
    """The density of J*(1, c) as two factors, of which the first is an exponential (Polson et al. 2013, Sect.
    4).

    The density of J*(1, 0) is the sum of (-1)^n a_n(x) in two ways, where

        a_n(x) = pi (n + 1/2) (2 / (pi x))^(3/2) exp(-2 (n + 1/2)^2 / x)  or
        a_n(x) = pi (n + 1/2) exp(-(n + 1/2)^2 pi^2 x / 2),

    so that a_n is a_0 times (2 n + 1) q^(n (n + 1) / 2), with q = exp(-4 / x) or q = exp(-pi^2 x). For J*(1,
    c) the sum is multiplied by exp(c - c^2 x / 2), and here also by a constant.
    """
    left = x < CROSSING
    exponent = jnp.where(left, -((1 - c * x) ** 2) / (2 * x), log_right_term(x, c))
    q = jnp.exp(jnp.where(left, -4 / x, -(math.pi**2) * x))
    cube = q**3
    return exponent, jnp.where(left, 1 / (x * jnp.sqrt(x)), 1.0) * (1 - 3 * q + cube * (5 - 7 * cube))


def log_right_term(x: Any, c: Any):
    """The log of the first term of the series for the density of J*(1, c) that suits large x, up to the
    constant by which `unit_density` multiplies the density; it is linear in x.
    """
    return 1.5 * math.log(math.pi / 2) + c - (math.pi**2 / 4 + c**2) * x / 2


def series_density(x: Any, parameters: tuple[Any, Any], terms: int | None = None):
    """The density of J*(h, c), for h from 1 to 4, as two factors, of which the first is an exponential
    (Windle et al. 2014).

    The density of J*(h, 0) is the sum of (-1)^n a_n(x), where

        a_n(x) = 2^h Gamma(n + h) (2 n + h) / (Gamma(h) n! sqrt(2 pi x^3)) exp(-(2 n + h)^2 / (2 x)).

    For J*(h, c) the sum is multiplied by exp(h c - c^2 x / 2), and here also by a constant. For h >= 1 the
    ratio of a term to the previous term decreases with n. So the terms after the largest one decrease, and
    since their signs alternate, the terms left out add up to less than the first of them.

    Parameters
    ----------
    parameters : h and c
    terms : the number of terms that are added up; None for as many as any x needs
    """
    h, c = parameters
    term = jnp.ones_like(x)  # `term` times (2 n + h) / h is (-1)^n a_n / a_0
    ratio, shrinking = jnp.exp(-2 * (h + 1) / x), jnp.exp(-4 / x)
    total = h * term
    for n in range(1, terms or TERMS[x.dtype.itemsize]):
        term = term * (-(n - 1 + h) / n) * ratio
        ratio = ratio * shrinking
        total = total + (2 * n + h) * term
    return -((h - c * x) ** 2) / (2 * x), total / (x * jnp.sqrt(x))


def fourier_density(w: Any, characteristic: tuple[Any, Any]):
    """The density at w of a variable with a given characteristic function, as two factors, of which the
    first, an exponential, is 1.

    The Fourier integral of the characteristic function is computed by the trapezoidal rule with points that
    are `distance` apart. The result is the sum of the density over all w + 2 pi k / distance, k an integer
    (Poisson's summation formula), of which all but k = 0 are below rounding.
    """
    real, imaginary = characteristic
    number, distance = FOURIER_GRID[w.dtype.itemsize]
    cosine, sine = jnp.cos(distance * w), jnp.sin(distance * w)
    # Horner's rule for the sum over k of (real + i imaginary)[k] exp(-i (k + 1) distance w)
    u, v = jnp.zeros_like(w), jnp.zeros_like(w)
    for k in reversed(range(number)):
        u, v = u + real[k], v + imaginary[k]
        u, v = u * cosine + v * sine, v * cosine - u * sine
    return jnp.zeros_like(w), jnp.where(jnp.abs(w) < math.pi / distance, 0.5 + u, 0.0)


def characteristic_function(b: Any, c: Any, mean: Any, sd: Any):
    """E[exp(i t (X - mean) / sd)] for X of J*(b, c), at the points t of `FOURIER_GRID`.

    The function is (cosh(c) / cosh(p - i q))^b exp(-i y mean), where y = t / sd and (p - i q)^2 = c^2 - 2 i
    y. The power multiplies relative errors by b, so no numbers that are almost equal are subtracted.

    Returns
    -------
    real, imaginary : (points, n) float, the two parts of the function's values
    """
    number, distance = FOURIER_GRID[b.dtype.itemsize]
    y = distance * jnp.arange(1, number + 1, dtype=b.dtype)[:, None] / sd
    size = jnp.sqrt(c**4 + 4 * y**2)
    p = jnp.sqrt((size + c**2) / 2)
    q = y / p
    sine, cosine = jnp.sin(q), jnp.cos(q)
    # exp(2 (p - c)) - 1, written without the difference p - c, which loses digits where c is large
    farther = jnp.expm1(4 * y**2 / ((size + c**2) * (p + c)))
    squeeze = jnp.exp(-2 * c)
    # |cosh(p - i q) / cosh(c)|^2 - 1, from |cosh(p - i q)|^2 = cosh(c)^2 + sinh(p - c) sinh(p + c) - sin(q)^2
    hyperbolic = farther * (farther - jnp.expm1(-4 * c)) / (1 + farther)
    growth = (hyperbolic - 4 * squeeze * sine**2) / (1 + squeeze) ** 2
    # cosh(p - i q) = exp(p - i q) (1 + exp(-2 p) exp(2 i q)) / 2
    shrink = squeeze / (1 + farther)
    angle = jnp.arctan2(2 * shrink * sine * cosine, 1 + shrink * (1 - 2 * sine**2))
    length, phase = jnp.exp(-0.5 * b * jnp.log1p(growth)), b * (q - angle) - y * mean
    return length * jnp.cos(phase), length * jnp.sin(phase)


# ---------------------------------------------------------------- envelopes
def tangent_envelope(density: FactoredDensity, points: Any, parameters: Any) -> Envelope:
    """The envelope of concave log densities, from their tangents at three increasing points.

    The constant of the envelope is the largest value that the middle tangent has between the points where the
    other two tangents meet it. The constant bounds the log density everywhere.

    Parameters
    ----------
    points : (3, n) float, the first left of the mode, and the last right of it
    """

    def log_density(x):
        exponent, factor = density(x, parameters)
        return exponent + jnp.log(factor)

    x0, x1, x2 = points
    (y0, y1, y2), (s0, s1, s2) = jax.jvp(log_density, (points,), (jnp.ones_like(points),))
    # the distances from the middle point at which the left and the right tangent meet the middle one
    meets_left = (y1 - y0 + s0 * (x0 - x1)) / (s0 - s1)
    meets_right = (y2 - y1 - s2 * (x2 - x1)) / (s1 - s2)
    top = y1 + jnp.maximum(s1 * meets_left, s1 * meets_right)
    return envelope_of_lines(top, (x0, y0, s0), (x2, y2, s2))


def piece_envelope(parameters: tuple[Any, Any]) -> Envelope:
    """The envelope of the log density of J*(h, c), given the parameters h and c."""
    density = partial(series_density, terms=TERMS_AT_TANGENTS)
    return tangent_envelope(density, tangent_points(*parameters), parameters)


def unit_envelope(c: Any) -> Envelope:
    """The envelope of the log density of J*(1, c), without computing the density.

    Let X be a variable of J*(1, c), and L(x) and R(x) the logarithms of the first terms of the two series for
    its density, see `unit_density`. L and R are bounds of the log density for all x. L is a bound because X
    is the time when a Brownian motion leaves (-1, 1): the density of this time is twice the density of
    leaving at 1, and at most twice the density of the time of first reaching 1.
    R is a bound because X is the sum of an exponential variable of rate pi^2 / 8 and a positive variable. L
    and R meet at `CROSSING`. L has one maximum, at some x <= 1 / 3, and is concave for x < 2 / 3, where its
    slope is larger than the slope of R.

    So the constant of the envelope is the maximum of L, and its left line a tangent of L. The right line is a
    tangent of L, too, if the tangent touches L at some x <= `CROSSING`, since it is then above L up to
    `CROSSING`, and above R beyond. Otherwise the right line is R.
    """

    def curve(x):  # L(x) + 1.5 log(x), L(x) being the log of the first term of one series
        return -((1 - c * x) ** 2) / (2 * x)

    def slope(x):  # the slope of the log of the first term of one series
        return -1.5 / x + (1 / x - c) * (1 / x + c) / 2

    mode = 2 / (3 + jnp.sqrt(9 + 4 * c**2))
    log_step = math.sqrt(2) * mean_and_spread(1.0, c)[1]
    step = jnp.exp(log_step)
    first, last = mode / step, mode * step
    at_mode = -1.5 * jnp.log(mode)
    of_right_term = last > CROSSING
    value = jnp.where(of_right_term, log_right_term(last, c), at_mode + curve(last) - 1.5 * log_step)
    falling = jnp.where(of_right_term, -(math.pi**2 / 4 + c**2) / 2, slope(last))
    rising = first, at_mode + curve(first) + 1.5 * log_step, slope(first)
    return envelope_of_lines(at_mode + curve(mode), rising, (last, value, falling))


def envelope_of_lines(top: Any, rising: tuple[Any, Any, Any], falling: tuple[Any, Any, Any]) -> Envelope:
    """The envelope that is the minimum of a constant and of two lines.

    Parameters
    ----------
    top : (n,) nats, the constant
    rising, falling : for each line a point x, the value of the line at x, and its slope
    """
    (x0, y0, s0), (x2, y2, s2) = rising, falling
    return Envelope(top, x0 + (top - y0) / s0, x2 + (top - y2) / s2, 1 / s0, -1 / s2)


# ---------------------------------------------------------------- rejection
def proposal(u: Any, envelope: Envelope):
    """A draw x with density proportional to exp(bound), and how far the bound at x is below its top.

    Parameters
    ----------
    u : (n,) float, uniform in [0, 1); the smallest u, where floats are finest, give draws far to the right
    envelope : the bound of the log density

    Returns
    -------
    x, fallen : (n,) float
    """
    flat = envelope.right - envelope.left
    t = u * (envelope.right_scale + flat + envelope.left_scale)
    beyond = t - envelope.right_scale
    at_right, at_left = beyond < 0, beyond > flat
    share = jnp.where(at_right, t / envelope.right_scale, 1 - (beyond - flat) / envelope.left_scale)
    # `share` is the bound's density at x relative to its top. It may be computed as 0 or below where u is 0
    # or by rounding, both with a probability below rounding; the maximum keeps the logarithm finite.
    fallen = jnp.where(at_right | at_left, -jnp.log(jnp.maximum(share, 2.0**-54)), 0.0)
    at_side = jnp.where(
        at_right, envelope.right + envelope.right_scale * fallen, envelope.left - envelope.left_scale * fallen
    )
    return jnp.where(at_right | at_left, at_side, envelope.left + beyond), fallen


def sums_of_draws(
    key: Any, density: FactoredDensity, envelope: Envelope, parameters: Any, counts: Any, lowest: Any = 0.0
):
    """Sums of independent draws, each by rejection.

    In every round each element that lacks draws gets one proposal, which is accepted with the same
    probability of at least 0.87 in every round. So the rounds end with probability 1, and their number is not
    limited. A nan is accepted, since it would otherwise be proposed for ever.

    Parameters
    ----------
    density, parameters : the density of a draw and its parameters, arrays (..., n)
    envelope : the envelope of the log density
    counts : (n,) int, the numbers of draws that are added up
    lowest : (n,) float, values up to which the density is zero

    Returns
    -------
    (n,) float
    """
    n = counts.shape[0]
    arrays = envelope, parameters, jnp.broadcast_to(jnp.asarray(lowest, envelope.top.dtype), counts.shape)

    def proposed(number, arrays):
        envelope, parameters, lowest = arrays
        u, v = uniforms(jax.random.fold_in(key, number), (2, *lowest.shape), lowest.dtype)
        v = jnp.maximum(v, 2.0**-54)  # v = 0 would make nan of an infinite exp
        x, fallen = proposal(u, envelope)
        outside = x <= lowest
        exponent, factor = density(jnp.where(outside, envelope.right, x), parameters)
        return x, ~(outside | (v * jnp.exp(envelope.top - fallen - exponent) >= factor))

    def whole_round(sums: DrawsSoFar) -> DrawsSoFar:
        x, accepted = proposed(sums.round, arrays)
        accepted &= sums.missing > 0
        totals = sums.totals + jnp.where(accepted, x, 0.0)
        return DrawsSoFar(sums.round + 1, totals, sums.missing - accepted)

    def narrow_round(sums: DrawsSoFar) -> DrawsSoFar:
        # the indices of elements that lack draws, padded with n, which is the index of no element
        some = jnp.nonzero(sums.missing > 0, size=n // NARROWER, fill_value=n)[0]
        x, accepted = proposed(sums.round, jax.tree.map(lambda a: a.at[..., some].get(mode="clip"), arrays))
        totals = sums.totals.at[some].add(jnp.where(accepted, x, 0.0), mode="drop")
        missing = sums.missing.at[some].add(-accepted.astype(int), mode="drop")
        return DrawsSoFar(sums.round + 1, totals, missing)

    sums = DrawsSoFar(0, jnp.zeros_like(envelope.top), counts)
    few = n // NARROWER if n >= NARROWER**2 else 0
    sums = jax.lax.while_loop(lambda sums: (sums.missing > 0).sum() > few, whole_round, sums)
    if few:
        sums = jax.lax.while_loop(lambda sums: (sums.missing > 0).any(), narrow_round, sums)
    return sums.totals
