"""Draws of Polya-Gamma variables against their moments, transforms and distribution functions.

What is exact comes from the characteristic function in NumPy, by other formulas than those of the package.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pymc_discrete.integrals import polya_gamma
from pymc_discrete.integrals.polya_gamma import random_polyagamma
from tests.tools.interpreted import interpreted
from tests.tools.statistics import g_test

SHAPES, TILTS = (1.0, 2.0, 3.7, 15.0, 200.0), (0.0, 0.1, 5.0, 50.0)
EXTREMES = [(1.0, 700.0), (1.01, 1e-8), (4.1, 30.0), (160.0, 1e-3), (161.0, 700.0), (1e4, 0.0), (1e4, 700.0)]
CASES = [(b, z) for b in SHAPES for z in TILTS] + EXTREMES
EACH = 2_000  # draws of each case at once
ONE = (1.0, 1.0)  # bounds, where all b are 1
LARGEST_Z = 4.0  # standard errors


@pytest.fixture(autouse=True)
def in_64_bits():
    with jax.enable_x64(True):
        yield


# ---------------------------------------------------------------- what is exact
def mean_and_variance(b, z):
    """Of PG(b, z), from the first two derivatives of the log of its Laplace transform."""
    if z < 1e-2:  # Taylor series in z, up to the fourth power
        return b * (1 / 4 - z**2 / 48 + z**4 / 480), b * (1 / 24 - z**2 / 120 + 17 * z**4 / 13440)
    # (sinh(z) - z) / cosh(z / 2)^2, of which nothing overflows
    ratio = 2 * (-np.expm1(-2 * z) - 2 * z * np.exp(-z)) / (1 + np.exp(-z)) ** 2
    return b / (2 * z) * np.tanh(z / 2), b / (4 * z**3) * ratio


def log_cosh(s):
    return s + np.log1p(np.exp(-2 * s)) - np.log(2)


def log_transform(t, b, z):
    """log E[exp(-t omega)] for omega of PG(b, z); t may be complex."""
    return b * (log_cosh(z / 2 + 0 * t) - log_cosh(np.sqrt((z**2 / 2 + t) / 2)))


@functools.cache
def characteristic(b, z):
    """A distance of frequencies and E[exp(i y omega)] at its multiples y, until it is below rounding.

    A Fourier series with them has a period of 45 standard deviations more than the mean, beyond which omega
    is with a probability below rounding.
    """
    mean, variance = mean_and_variance(b, z)
    distance = 2 * np.pi / (mean + 45 * np.sqrt(variance))
    number = 64
    while log_transform(-1j * number * distance, b, z).real > np.log(1e-17):
        number *= 2
    return distance, np.exp(log_transform(-1j * distance * np.arange(1, number + 1), b, z))


def exact_density(omega, b, z):
    """The density of PG(b, z) at omega (n,)."""
    distance, values = characteristic(b, z)
    y = distance * np.arange(1, len(values) + 1)
    waves = [(values * np.exp(-1j * y * w)).real.sum() for w in np.asarray(omega, float)]
    return distance / np.pi * (0.5 + np.array(waves))


def exact_cdf(omega, b, z):
    """The distribution function of PG(b, z) at omega (n,)."""
    distance, values = characteristic(b, z)
    y = distance * np.arange(1, len(values) + 1)
    waves = [(values * (np.exp(-1j * y * w) - 1) / (-1j * y)).real.sum() for w in np.asarray(omega, float)]
    return distance / np.pi * (0.5 * np.asarray(omega, float) + np.array(waves))


def grid(b, z, n=400):
    """(n,) float, values of omega from far in the left tail to far in the right one."""
    mean, variance = mean_and_variance(b, z)
    spread = np.sqrt(variance) / mean
    return mean * np.exp(np.linspace(-4.5 * min(spread, 0.5), 3.5 * spread, n))


# ---------------------------------------------------------------- draws
@functools.cache
def sampler(bounds=(1.0, np.inf)):
    return jax.jit(functools.partial(random_polyagamma, bounds=bounds))


def draws_at(b, z, times, seed, bounds=(1.0, np.inf)):
    """(times, n) float, for elements (n,): as many in all tests, which so share a program."""
    keys = jax.random.split(jax.random.key(seed), times)
    omega = np.array([sampler(bounds)(key, b, z) for key in keys])
    assert omega.dtype == b.dtype
    return omega.astype(float)


def draws_of_cases(times, seed, dtype):
    """(cases, draws) float, of all `CASES` at once, with z of both signs."""
    b, z = (np.repeat(column, EACH) for column in np.array(CASES, dtype).T)
    z[::2] *= -1
    drawn = draws_at(b, z, times, seed).reshape(times, len(CASES), EACH)
    return drawn.swapaxes(0, 1).reshape(len(CASES), -1)


def z_of_mean(values, exact):
    return (values.mean() - exact) / (values.std() / np.sqrt(len(values)))


def check_moments(omega, b, z):
    """The mean, the variance and the Laplace transform of draws (n,) within four standard errors."""
    mean, variance = mean_and_variance(b, z)
    zs = [z_of_mean(omega, mean), z_of_mean((omega - mean) ** 2, variance)]
    # where the transform is about 1/2 or less, from the bulk of the draws to the left tail
    for t in np.array([0.3, 1.0, 3.0]) / mean:
        zs.append(z_of_mean(np.exp(-t * omega), np.exp(log_transform(t, b, z))))
    assert np.abs(zs).max() < LARGEST_Z, (b, z, zs)
    assert (omega > 0).all()


@functools.cache
def cells_of(b, z, cells=30):
    """The edges of cells of about equal probability, with a smaller one at each end; their probabilities."""
    omegas = grid(b, z)
    probabilities = np.r_[0.002, np.arange(1, cells) / cells, 0.998]
    edges = np.interp(probabilities, exact_cdf(omegas, b, z), omegas)
    return edges, np.diff(np.r_[0.0, exact_cdf(edges, b, z), 1.0])


def p_of_quantiles(omega, b, z):
    """p value of the counts of draws in cells."""
    edges, p = cells_of(b, z)
    return g_test(np.bincount(np.searchsorted(edges, omega), minlength=len(p)), p)


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_draws(dtype, times):
    """Moments of all cases, and the p values of their quantiles."""
    with jax.enable_x64(dtype == np.float64):
        omegas = draws_of_cases(times, times, dtype)
    ps = []
    for (b, z), omega in zip(CASES, omegas, strict=True):
        check_moments(omega, b, z)
        ps.append(p_of_quantiles(omega, b, z))
    assert min(ps) > 1e-3 / len(CASES), dict(zip(CASES, ps, strict=True))
    assert stats.kstest(ps, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("z", [0.0, 1.0, -8.0, 700.0])
def test_draws_where_all_b_are_1(z, times):
    n = EACH * len(CASES)
    omega = draws_at(np.ones(n), np.full(n, z), times, 2, ONE).ravel()
    check_moments(omega, 1.0, abs(z))
    assert p_of_quantiles(omega, 1.0, abs(z)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("z", [0.0, 3.0])
def test_sums_of_gamma_variables(z):
    """Of 200 gamma variables of the infinite sum, and of the mean of the rest (Polson et al. 2013, Def. 1).

    The rest has a standard deviation of less than 1e-4 times that of the sum.
    """
    rng, n, terms, b = np.random.default_rng(1), EACH * len(CASES), 200, 1.6
    scales = 1 / (2 * np.pi**2 * (np.arange(terms) + 0.5) ** 2 + z**2 / 2)
    mean, variance = mean_and_variance(b, z)
    assert b * (1 / (2 * np.pi**2 * (np.arange(terms, 10**6) + 0.5) ** 2) ** 2).sum() < 1e-8 * variance
    sums = sum(scale * rng.gamma(b, size=2 * n) for scale in scales) + mean - b * scales.sum()
    omega = draws_at(np.full(n, b), np.full(n, z), 2, 5).ravel()
    assert stats.ks_2samp(sums, omega).pvalue > 1e-3


def test_that_what_is_no_number_ends():
    b = jnp.array([np.nan, 2.0, 3.0, 300.0, np.inf, 0.5, 0.0])
    z = jnp.array([1.0, np.nan, 1.0, np.nan, 1.0, 1.0, 1.0])
    omega = interpreted(random_polyagamma)(jax.random.key_data(jax.random.key(1)), b, z)
    np.testing.assert_array_equal(np.isfinite(omega), np.arange(7) == 2)
    omega = interpreted(functools.partial(random_polyagamma, bounds=ONE))(
        jax.random.key_data(jax.random.key(1)), jnp.ones(2), jnp.array([np.nan, 1.0])
    )
    np.testing.assert_array_equal(np.isnan(omega), [True, False])


def test_chains():
    """Draws of several chains at once are those of each; of so many elements that narrow rounds are made.

    None of the numbers of trials is large, which is known in advance.
    """
    keys, z, bounds = jax.random.split(jax.random.key(4), 3), np.linspace(-3.0, 8.0, 800), (1.0, 10.0)
    b = np.tile([1.0, 2.5, 4.5, 9.0], 200)
    draw = functools.partial(random_polyagamma, bounds=bounds)
    together = jax.jit(jax.vmap(draw, (0, None, None)))(keys, b, z)
    for key, omega in zip(keys, together, strict=True):
        np.testing.assert_allclose(sampler(bounds)(key, b, z), omega, rtol=1e-12)
    assert len(np.unique(together)) == together.size
    mean, variance = np.array([mean_and_variance(*case) for case in zip(b, np.abs(z), strict=True)]).T
    assert abs(z_of_mean(((together - mean) / np.sqrt(variance)).ravel(), 0.0)) < LARGEST_Z


def test_arrays_of_32_bits_stay_so():
    """Also where 64 bits are the default."""
    of = jax.ShapeDtypeStruct((3,), np.float32)
    for bounds in (ONE, (1.0, np.inf)):
        draw = functools.partial(random_polyagamma, bounds=bounds)
        assert jax.eval_shape(draw, jax.random.key(0), of, of).dtype == np.float32


def test_what_bounds_leave_out(monkeypatch):
    """A function that is left out is not even traced."""
    b, z = jnp.ones(3), jnp.ones(3)
    monkeypatch.setattr(polya_gamma, "fourier_density", None)
    jax.eval_shape(functools.partial(random_polyagamma, bounds=(1, 100)), jax.random.key(0), b, z)
    monkeypatch.setattr(polya_gamma, "series_density", None)
    jax.eval_shape(functools.partial(random_polyagamma, bounds=(1, 1)), jax.random.key(0), b, z)
    monkeypatch.undo()
    monkeypatch.setattr(polya_gamma, "series_density", None)
    monkeypatch.setattr(polya_gamma, "unit_density", None)
    jax.eval_shape(functools.partial(random_polyagamma, bounds=(200, np.inf)), jax.random.key(0), b, z)


# ---------------------------------------------------------------- densities and envelopes
def bound_of(envelope, x):
    """The bound of the log density at x (n,) by an envelope of one element."""
    top, left, right, left_scale, right_scale = (float(a[0]) for a in envelope)
    return top - np.maximum(0, np.maximum((left - x) / left_scale, (x - right) / right_scale))


def pieces_of(b, z):
    """What draws of PG(b, z) are made with: density, parameters, envelope, and shift and scale.

    Of a draw x of the density shift + scale * x is omega. Here b is at most `LONGEST_PIECE`, so that there is
    one piece, or at least `LARGE_SHAPE`.
    """
    b, c = jnp.array([b]), jnp.array([z / 2])
    if b[0] >= polya_gamma.LARGE_SHAPE:
        mean, spread = polya_gamma.mean_and_spread(b, c)
        sd, density = mean * spread, polya_gamma.fourier_density
        parameters = polya_gamma.characteristic_function(b, c, mean, sd)
        points = (polya_gamma.tangent_points(b, c) - mean) / sd
        envelope = polya_gamma.tangent_envelope(density, points, parameters)
        return density, parameters, envelope, float(mean[0]) / 4, float(sd[0]) / 4
    return polya_gamma.series_density, (b, c), polya_gamma.piece_envelope((b, c)), 0.0, 0.25


def unit_pieces_of(z):
    c = jnp.array([z / 2])
    return polya_gamma.unit_density, c, polya_gamma.unit_envelope(c), 0.0, 0.25


def check_density_and_envelope(pieces, b, z):
    """The density is the exact one up to a constant, below the bound, and at least 87% of it."""
    density, parameters, envelope, shift, scale = pieces
    omega = grid(b, z)
    x = (omega - shift) / scale
    exponent, factor = (np.asarray(a) for a in density(jnp.asarray(x), parameters))
    got, exact = np.exp(exponent) * factor, exact_density(omega, b, z)
    constant = exact.max() / got[exact.argmax()]
    np.testing.assert_allclose(got * constant, exact, rtol=0, atol=1e-11 * exact.max())
    top, left, right, left_scale, right_scale = (float(a[0]) for a in envelope)
    bound = constant * np.exp(bound_of(envelope, x))
    assert (bound >= exact * (1 - 1e-10) - 1e-11 * exact.max()).all()
    integral = constant * scale * np.exp(top) * (left_scale + right - left + right_scale)
    assert 1 <= integral < 1 / 0.87


@pytest.mark.parametrize("z", [0.0, 0.1, 1.0, 3.0, 3.14, 4.0, 5.0, 50.0, 700.0])
def test_density_and_envelope_of_b_1(z):
    check_density_and_envelope(unit_pieces_of(z), 1.0, z)


@pytest.mark.parametrize("z", [0.0, 0.5, 2.0, 5.0, 50.0, 700.0])
@pytest.mark.parametrize("b", [1.0, 1.2, 2.0, 2.7, 4.0, 160.0, 200.0, 1000.0])
def test_densities_and_envelopes(b, z):
    check_density_and_envelope(pieces_of(b, z), b, z)


@pytest.mark.parametrize("h", [1.0, 1.3, 2.0, 3.1, 4.0])
def test_partial_sums_bracket_the_density(h):
    """From the largest term on; and the terms that are left out are below rounding where x is likely."""
    omega = grid(h, 0.0, 60)
    x, exact = 4 * omega, exact_density(omega, h, 0.0) / 4
    n = np.arange(120.0)[:, None]
    log_ratios = np.log((n + h) / (n + 1) * (2 * n + 2 + h) / (2 * n + h)) - 2 * (2 * n + h + 1) / x
    assert (np.diff(log_ratios, axis=0) < 0).all()
    first = 2**h * h / np.sqrt(2 * np.pi * x**3) * np.exp(-(h**2) / (2 * x))
    terms = first * np.exp(np.vstack([0 * x, np.cumsum(log_ratios, axis=0)]))[:120]
    sums = np.cumsum((-1.0) ** n * terms, axis=0)
    slack = 1e-12 * np.abs(terms).sum(0)
    after = np.arange(120)[:, None] >= terms.argmax(0)
    even = (np.arange(120) % 2 == 0)[:, None]
    assert (sums >= exact - slack)[after & even].all()
    assert (sums <= exact + slack)[after & ~even].all()
    for itemsize, count in polya_gamma.TERMS.items():
        epsilon = np.finfo(f"f{itemsize}").eps
        likely = exact > epsilon * exact.max()
        assert (terms[count] < epsilon * exact.max())[likely].all()


@pytest.mark.parametrize("h", [1.0, 1.3, 2.0, 3.1, 4.0])
def test_terms_where_tangents_touch(h):
    c = jnp.array([0.0, 0.3, 2.0, 30.0])
    points, parameters = polya_gamma.tangent_points(h, c), (h, c)
    assert (points < 6).all()
    few, many = (
        polya_gamma.series_density(points, parameters, n)[1] for n in (polya_gamma.TERMS_AT_TANGENTS, 60)
    )
    np.testing.assert_allclose(few, many, rtol=1e-14)


@pytest.mark.parametrize("itemsize", [8, 4])
@pytest.mark.parametrize("z", [0.0, 2.0, 20.0, 700.0])
def test_points_of_the_fourier_integral(itemsize, z):
    """Beyond them is nothing, nor beyond half a period from the mean."""
    b = polya_gamma.LARGE_SHAPE
    number, distance = polya_gamma.FOURIER_GRID[itemsize]
    mean, spread = (float(a) for a in polya_gamma.mean_and_spread(b, z / 2))
    sd, epsilon = mean * spread / 4, np.finfo(f"f{itemsize}").eps
    assert np.exp(log_transform(-1j * (number + 1) * distance / sd, b, z).real) < 5 * epsilon
    ends = mean / 4 + np.array([-1, 1]) * np.pi / distance * sd
    assert (exact_density(ends, b, z) * sd < 5 * epsilon + 1e-13).all()


def test_first_terms_are_bounds():
    """The first terms of both series meet at the crossing, and both bound the density everywhere."""
    x, c = polya_gamma.CROSSING, 0.7
    left = -1.5 * np.log(x) - (1 - c * x) ** 2 / (2 * x)
    assert polya_gamma.log_right_term(x, c) == pytest.approx(left, abs=1e-14)
    omega = grid(1.0, 0.0)
    exact, x = exact_density(omega, 1.0, 0.0), 4 * omega
    constant = 4 * 2 / np.sqrt(2 * np.pi)
    assert (exact <= constant * x**-1.5 * np.exp(-1 / (2 * x)) + 1e-13).all()
    assert (exact <= constant * np.exp(polya_gamma.log_right_term(x, 0.0)) + 1e-13).all()
