r"""Draws of Polya-Gamma variables, many at once, exact up to rounding.

With :math:`\omega \sim PG(b, z)` the likelihood of a logistic model is a Gaussian function of its linear
predictor (Polson, Scott and Windle 2013). :math:`\omega = X / 4`, where X is drawn from :math:`J^*(b, z / 2)`,
whose Laplace transform is

.. math:: E[e^{-s X}] = \left(\frac{\cosh c}{\cosh \sqrt{c^2 + 2 s}}\right)^b, \qquad c = |z| / 2.

All draws are made by rejection, from one kind of envelope. X is a sum of infinitely many gamma variables of shape
b (Polson et al. 2013, Sect. 2). For b >= 1 their log densities are concave, and so is that of a sum of
independent variables whose log densities are. A tangent of a concave function lies above it everywhere. So two
tangents and a constant between them bound the log density, wherever the tangents touch it (Devroye 1984), and
the bound is easily drawn from. At the places of `tangent_points` at least 88% of the proposals are accepted,
for every b and z. What differs is how the density is computed:

====================  =====================================================================================
b                     density
====================  =====================================================================================
1                     Devroye's series, one of two, by where x is; two or three terms suffice
up to `LARGE`         X is the sum of independent variables of :math:`J^*(h, c)`, whose h is at most
                      `LONGEST_PIECE`; the series of Windle, Polson and Scott
larger                the Fourier integral of the characteristic function
====================  =====================================================================================

Every density is computed to rounding: its error is some machine epsilons of its largest value, so that the total
variation distance between the draws and the distribution is of that order. The saddlepoint method of Windle,
Polson and Scott 2014 is not used, since it draws from an approximation of the density. For b < 1 the log density
is not concave, and such b are not drawn.

References: Devroye 1984, A simple algorithm for generating random variates with a log-concave density. Polson,
Scott and Windle 2013, Bayesian inference for logistic models using Polya-Gamma latent variables. Windle, Polson
and Scott 2014, Sampling Polya-Gamma random variates: alternate and approximate techniques.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.random import uniforms

# (x, parameters) -> two arrays like x: a density is exp(the first) times the second, which rounding may make
# negative where it is nearly zero
Density = Callable[[Any, Any], tuple[Any, Any]]

# where the two series of J*(1) converge at the same rate: at 2 / pi both have exp(-2 pi) for the q of
# `unit_density`
CROSSING = 2 / np.pi
# Largest h of a piece. The series of J*(h, 0) has terms whose absolute values add up, on average over x, to 20
# times the density at h = 2, 260 times at 4, 17,000 times at 8; that many machine epsilons are lost.
LONGEST_PIECE = 4.0
# Number of terms of the series for every x that a proposal reaches, for float64 and float32: the first term
# that is left out is below a machine epsilon.
TERMS = {8: 36, 4: 20}
# Smallest b for which the Fourier integral takes less time than a sum of pieces, about.
LARGE = 64.0
# Points of the Fourier integral and their distance, in units of 1 / sd, for float64 and float32. At b = `LARGE`
# the characteristic function is below a machine epsilon beyond these points, and the density beyond half
# a period of 2 pi / distance.
FREQUENCIES = {8: (42, 0.28), 4: (18, 0.4)}
# Elements of which only this share is not done are gathered, and the proposals made for them alone.
NARROWER = 8


def random_polyagamma(key: Any, b: Any, z: Any, bounds: tuple[float, float] = (1.0, np.inf)):
    """Independent draws of PG(b, z).

    Parameters
    ----------
    key : a key of JAX
    b : (n,) float, at least 1
    z : (n,) float, of which only the absolute value matters
    bounds : between which all b are, known when the program is traced; what other b need is not compiled

    Returns
    -------
    (n,) float, positive; nan where b or z is nan
    """
    c = 0.5 * jnp.abs(z)
    least, most = bounds
    if most <= 1:
        return 0.25 * unit_draws(key, c)
    if most <= LARGE:
        return 0.25 * sums_of_pieces(key, b, c)
    if least > LARGE:
        return 0.25 * large_draws(key, b, c)
    key_pieces, key_large = jax.random.split(key)
    large = b > LARGE
    few = sums_of_pieces(key_pieces, jnp.where(large, 1.0, b), c, ~large)
    many = large_draws(key_large, jnp.where(large, b, 2 * LARGE), c, large)
    return 0.25 * jnp.where(large, many, few)


# ---------------------------------------------------------------- the three ways
def unit_draws(key: Any, c: Any):
    """Draws of J*(1, c), an array like c."""
    envelope = tangent_envelope(unit_density, tangent_points(1.0, c), c)
    return sums_of_draws(key, unit_density, envelope, c, jnp.ones(c.shape, int))


def sums_of_pieces(key: Any, b: Any, c: Any, wanted: Any = True):
    """Draws of J*(b, c), as sums of variables of J*(h, c) with the same h <= `LONGEST_PIECE`.

    Parameters
    ----------
    wanted : (n,) bool, whether a draw of the element is wanted; others are zero
    """
    pieces = jnp.ceil(b / LONGEST_PIECE)
    parameters = b / pieces, c
    envelope = tangent_envelope(series_density, tangent_points(*parameters), parameters)
    return sums_of_draws(key, series_density, envelope, parameters, jnp.where(wanted, pieces, 0).astype(int))


def large_draws(key: Any, b: Any, c: Any, wanted: Any = True):
    """Draws of J*(b, c) for b >= `LARGE`; of elements that are not `wanted` the mean."""
    mean, spread = mean_and_spread(b, c)
    sd = mean * spread
    points = (jnp.stack(tangent_points(b, c)) - mean) / sd
    parameters = characteristic_function(b, c, mean, sd)
    envelope = tangent_envelope(fourier_density, tuple(points), parameters)
    counts = jnp.broadcast_to(jnp.asarray(wanted, int), b.shape)
    return mean + sd * sums_of_draws(key, fourier_density, envelope, parameters, counts, lowest=-mean / sd)


def mean_and_spread(b: Any, c: Any):
    """The mean of J*(b, c), and its standard deviation relative to the mean, approximately.

    Both are exact for c -> 0 and c -> infinity. They only say where to put points and how to scale the variable.
    """
    c = jnp.maximum(c, 1e-3)
    return b * jnp.tanh(c) / c, 1 / jnp.sqrt(b * jnp.sqrt(2.25 + c**2))


def tangent_points(b: Any, c: Any) -> tuple[Any, Any, Any]:
    """Where tangents touch the log density of J*(b, c): at the left, near the mode, at the right.

    For a Gaussian density they would best be at the mode and sqrt(2) standard deviations from it. For these
    densities the same number, in the logarithm of x, is best in numerical optimisation, or nearly so.
    """
    mean, spread = mean_and_spread(b, c)
    mode = mean * jnp.exp(-np.sqrt(2) * spread**2)
    step = jnp.exp(np.sqrt(2) * spread)
    return mode / step, mode, mode * step


# ---------------------------------------------------------------- densities
def unit_density(x: Any, c: Any):
    """The density of J*(1, c), up to a constant factor (Polson et al. 2013, Eq. 12 to 14).

    That of J*(1, 0) is the sum of (-1)^n a_n(x) by either series, whose terms beyond the first are multiples
    of q^(n (n + 1) / 2). It is multiplied by exp(c - c^2 x / 2), which is written such that nothing overflows.
    """
    left = x < CROSSING
    log_first = jnp.where(
        left,
        -1.5 * jnp.log(x) - (1 - c * x) ** 2 / (2 * x),
        1.5 * np.log(np.pi / 2) + c - (np.pi**2 / 4 + c**2) * x / 2,
    )
    q = jnp.exp(jnp.where(left, -4 / x, -(np.pi**2) * x))
    cube = q**3
    return log_first, 1 - 3 * q + cube * (5 - 7 * cube)


def series_density(x: Any, parameters: tuple[Any, Any]):
    """The density of J*(h, c), up to a constant factor (Windle et al. 2014, Sect. 4).

    That of J*(h, 0) is the sum of (-1)^n a_n(x), where

        a_n(x) = 2^h Gamma(n + h) (2 n + h) / (Gamma(h) n!) / sqrt(2 pi x^3) exp(-(2 n + h)^2 / (2 x)).

    The ratio of a term to the one before decreases with n, so that all terms from the largest on alternate
    and decrease, and the error is below the first term that is left out.

    Parameters
    ----------
    parameters : h and c
    """
    h, c = parameters
    log_first = -1.5 * jnp.log(x) - (h - c * x) ** 2 / (2 * x)
    # a_n / a_0 is `term` times (2 n + h) / h
    term = jnp.ones_like(x)
    ratio, shrinking = jnp.exp(-2 * (h + 1) / x), jnp.exp(-4 / x)
    total = h * term
    for n in range(1, TERMS[x.dtype.itemsize]):
        term = term * (-(n - 1 + h) / n) * ratio
        ratio = ratio * shrinking
        total = total + (2 * n + h) * term
    return log_first, total


def fourier_density(w: Any, characteristic: tuple[Any, Any]):
    """The density at w of a variable with this `characteristic_function`, in units of its standard deviation.

    By the trapezoidal rule, whose value is the sum of the density over all w + k 2 pi / distance
    with integer k (Poisson's summation formula). All but k = 0 are below rounding, where w is in the middle.
    """
    real, imaginary = characteristic
    distance = FREQUENCIES[w.dtype.itemsize][1]
    cosine, sine = jnp.cos(distance * w), jnp.sin(distance * w)
    # Horner's rule for the sum over k of (real + i imaginary)[k] exp(-i k distance w)
    sum_real, sum_imaginary = jnp.zeros_like(w), jnp.zeros_like(w)
    for a, b in zip(reversed(real), reversed(imaginary), strict=True):
        sum_real, sum_imaginary = sum_real + a, sum_imaginary + b
        sum_real, sum_imaginary = (
            sum_real * cosine + sum_imaginary * sine,
            sum_imaginary * cosine - sum_real * sine,
        )
    inside = jnp.abs(w) < np.pi / distance
    return jnp.zeros_like(w), jnp.where(inside, 0.5 + sum_real, 0.0)


def characteristic_function(b: Any, c: Any, mean: Any, sd: Any) -> tuple[tuple, tuple]:
    r"""Real and imaginary parts of E[exp(i t (X - mean) / sd)], X of J*(b, c), at the points of `FREQUENCIES`.

    It is :math:`(\cosh c / \cosh(p - i q))^b e^{-i y mean}`, where y = t / sd and :math:`(p - i q)^2 = c^2 - 2 i
    y`. Nothing is subtracted from a number much larger than the result, since b multiplies all errors.
    """
    number, distance = FREQUENCIES[b.dtype.itemsize]
    real, imaginary = [], []
    squeeze = jnp.exp(-2 * c)
    for k in range(1, number + 1):
        y = k * distance / sd
        size = jnp.hypot(c**2, 2 * y)
        p = jnp.sqrt((size + c**2) / 2)
        q = y / p
        farther = 2 * y**2 / ((size + c**2) * (p + c))  # p - c
        # |cosh(p - i q)|^2 - cosh(c)^2 = sinh(p - c) sinh(p + c) - sin(q)^2
        hyperbolic = -2 * jnp.sinh(farther) * jnp.exp(farther) * jnp.expm1(-2 * (p + c))
        growth = (hyperbolic - 4 * squeeze * jnp.sin(q) ** 2) / (1 + squeeze) ** 2
        shrink = jnp.exp(-2 * p)
        angle = jnp.arctan2(shrink * jnp.sin(2 * q), 1 + shrink * jnp.cos(2 * q))
        length, phase = jnp.exp(-0.5 * b * jnp.log1p(growth)), b * (q - angle) - y * mean
        real.append(length * jnp.cos(phase))
        imaginary.append(length * jnp.sin(phase))
    return tuple(real), tuple(imaginary)


# ---------------------------------------------------------------- rejection
class Envelope(NamedTuple):
    """A bound of log densities: constant in an interval, and linear to the left and to the right of it.

    Attributes
    ----------
    top : (n,) float, the constant
    left, right : (n,) float, ends of the interval
    left_scale, right_scale : (n,) float, positive: how far from the interval the bound has fallen by 1
    """

    top: Any
    left: Any
    right: Any
    left_scale: Any
    right_scale: Any


class Sums(NamedTuple):
    """Sums of accepted proposals.

    Attributes
    ----------
    round : () int, how often proposals were made
    totals : (n,) float
    missing : (n,) int, draws that are still to be added to each element
    """

    round: Any
    totals: Any
    missing: Any


def tangent_envelope(density: Density, points: tuple[Any, Any, Any], parameters: Any) -> Envelope:
    """The envelope of a log density that is concave, from its tangents at three increasing points.

    The constant is the largest value that the middle tangent has between the other two.
    """
    def log_density(x):
        log_first, factor = density(x, parameters)
        return log_first + jnp.log(factor)

    (x0, x1, x2) = points
    (y0, s0), (y1, s1), (y2, s2) = (jax.jvp(log_density, (x,), (jnp.ones_like(x),)) for x in points)
    # where the tangents at the left and at the right meet that in the middle, from the point in the middle
    meets_left = (y1 - y0 + s0 * (x0 - x1)) / (s0 - s1)
    meets_right = (y2 - y1 - s2 * (x2 - x1)) / (s1 - s2)
    top = y1 + jnp.maximum(s1 * meets_left, s1 * meets_right)
    return Envelope(top, x0 + (top - y0) / s0, x2 + (top - y2) / s2, 1 / s0, -1 / s2)


def proposal(u: Any, envelope: Envelope):
    """A draw from the normalised envelope by a uniform u (n,), and how far the bound has fallen there."""
    flat = envelope.right - envelope.left
    t = u * (envelope.right_scale + flat + envelope.left_scale)
    # The right tail has the smallest u, which have the finest resolution.
    beyond = t - envelope.right_scale
    remaining = flat + envelope.left_scale - beyond
    at_right, at_left = beyond < 0, beyond > flat
    share = jnp.where(at_right, t / envelope.right_scale, remaining / envelope.left_scale)
    fallen = jnp.where(at_right | at_left, -jnp.log(share), 0.0)
    x = jnp.where(
        at_right,
        envelope.right + envelope.right_scale * fallen,
        jnp.where(at_left, envelope.left - envelope.left_scale * fallen, envelope.left + beyond),
    )
    return x, fallen


def sums_of_draws(
    key: Any, density: Density, envelope: Envelope, parameters: Any, counts: Any, lowest: Any = 0.0
):
    """Sums of independent draws from densities.

    In every round each element that misses draws gets one proposal. It is accepted with the same probability in
    every round, at least 0.88, so that the rounds end with probability 1. Nan is accepted.

    Parameters
    ----------
    density, parameters : of a draw
    envelope : of the log density
    counts : (n,) int, how many draws are added up
    lowest : (n,) float, below which the density is zero

    Returns
    -------
    (n,) float
    """
    n = counts.shape[0]
    lowest = jnp.broadcast_to(jnp.asarray(lowest, envelope.top.dtype), counts.shape)

    def attempt(key, of):
        envelope, parameters, lowest = of
        u, v = uniforms(key, (2, *envelope.top.shape), envelope.top.dtype)
        x, fallen = proposal(jnp.maximum(u, 2.0**-54), envelope)
        outside = x <= lowest
        log_first, factor = density(jnp.where(outside, envelope.right, x), parameters)
        return x, ~(outside | (v * jnp.exp(envelope.top - fallen - log_first) >= factor))

    of = envelope, parameters, lowest

    def whole_round(sums: Sums) -> Sums:
        x, accepted = attempt(jax.random.fold_in(key, sums.round), of)
        accepted &= sums.missing > 0
        return Sums(
            sums.round + 1, sums.totals + jnp.where(accepted, x, 0.0), sums.missing - accepted
        )

    def narrow_round(sums: Sums) -> Sums:
        some = jnp.nonzero(sums.missing > 0, size=max(n // NARROWER, 1), fill_value=n)[0]
        x, accepted = attempt(
            jax.random.fold_in(key, sums.round), jax.tree.map(lambda a: a.at[some].get(mode="clip"), of)
        )
        return Sums(
            sums.round + 1,
            sums.totals.at[some].add(jnp.where(accepted, x, 0.0), mode="drop"),
            sums.missing.at[some].add(-accepted.astype(int), mode="drop"),
        )

    sums = Sums(0, jnp.zeros_like(envelope.top), counts)
    if n < 8 * NARROWER:
        return jax.lax.while_loop(lambda s: (s.missing > 0).any(), whole_round, sums).totals
    sums = jax.lax.while_loop(lambda s: (s.missing > 0).sum() > n // NARROWER, whole_round, sums)
    return jax.lax.while_loop(lambda s: (s.missing > 0).any(), narrow_round, sums).totals
