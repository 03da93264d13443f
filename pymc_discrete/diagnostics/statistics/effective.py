"""Effective numbers of draws of categories, and of whole vectors of them.

`arviz_stats.ess` computes one element after another, and takes a quarter of a minute for 10,000 sites of
three values. This file computes the same estimate for many elements at once; a test compares its results with
those of `arviz_stats`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.fft import irfft, rfft

from pymc_discrete.diagnostics.draws import (
    DRAWS_OF_BATCH,
    batches,
    checked_draws,
    counted,
    in_halves,
    per_element,
)
from pymc_discrete.diagnostics.statistics.indicators import Indicators, indicators


def categorical_ess(data: Any, var_names: str | list[str] | None = None) -> Any:
    r"""Effective number of draws of categories: that of the indicator which mixes worst.

    It is the smallest ESS of an indicator 1[z = k] over the values k with 0.05 <= P(z = k) <= 0.95. If no
    value is in that range, it is the smaller ESS of the indicator of the commonest value and of 1[z <=
    median]. The ESS of an indicator is the ESS of its mean with split chains (Vehtari et al. 2021), as in
    `arviz_stats.ess(method="mean")`.

    Parameters
    ----------
    data : array (chains, draws, ...) of integers, DataArray, Dataset, or DataTree with a group posterior
    var_names : names of discrete variables of a Dataset or DataTree; all of them by default

    Returns
    -------
    Numbers of draws, in the type of `data` without the axes of chains and draws; nan where all draws are
    equal

    Raises
    ------
    ValueError
        For draws that are not integers, fewer than 4 of them, or names that do not exist.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021, Rank-normalization, folding, and localization: an
    improved R-hat, Bayesian Analysis 16(2).
    """

    def of_batch(x: np.ndarray) -> np.ndarray:
        found = indicators(counted(x))
        return found.least(ess_of_indicators(x, found), len(x))

    return per_element(of_batch, data, var_names)


def hamming_ess(draws: Any) -> float:
    r"""Effective number of draws of a whole vector of categories, by Hamming distances.

    With C_t the mean over chains of the trace of the lag-t covariance of the indicators 1[z_i = k] of all
    sites and values, the autocorrelation is rho_t = 1 - (W - C_t) / V with W = n / (n - 1) C_0 and V = (n -
    1) / n W + B / n: the formula of Vehtari et al. 2021 with traces in place of variances, and squared
    Hamming distances in place of squared differences. Sums of rho_t are truncated as Geyer does. Chains are
    split; constant sites drop out.

    Parameters
    ----------
    draws : array (chains, draws, ...) of integers, or DataArray

    Returns
    -------
    float, draws; nan where no site moves and all chains agree

    Raises
    ------
    ValueError
        For draws that are not integers, or fewer than 4 of them.

    References
    ----------
    Magee, Karcher, Matsen, Minin 2024, How trustworthy is your tree? Bayesian phylogenetic effective sample
    size through the lens of Monte Carlo error, Bayesian Analysis 19(2): the Frechet correlation ESS.
    """
    array = array_of(draws)
    chains, n = array.shape[0], array.shape[1]
    covariance, between = np.zeros(n // 2), 0.0
    for x in batches(array):
        for site, value, weight in present(x):
            of_rows, variances = moments((x[site] == value[:, None, None]).astype(np.float32))
            covariance += weight @ of_rows
            between += float(weight @ variances)
    if covariance[0] == 0 and between == 0:
        return np.nan
    return float(effective(covariance[None], np.array([between]), 2 * chains)[0])


def array_of(draws: Any) -> np.ndarray:
    """The draws (chains, draws, ...) of an array or DataArray, checked."""
    transposed = draws.transpose("chain", "draw", ...) if hasattr(draws, "dims") else draws
    return checked_draws(np.asarray(transposed))


def present(x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Sites, values and weights (rows,) of all indicators of a batch, a bounded number of rows at a time.

    For a site with two values the indicator of one value is enough, with weight 2, since the indicator of the
    other value is 1 less it.
    """
    c = counted(x)
    there = c.of_chains.any(axis=1)
    several = there.sum(axis=1)
    two = several == 2
    first = np.cumsum(there, axis=1) == 1
    there &= (several > 1)[:, None] & (~two[:, None] | first)
    site, k = np.nonzero(there)
    for part in in_parts(len(site), x):
        yield site[part], c.values[k[part]], np.where(two[site[part]], 2.0, 1.0)


def in_parts(rows: int, x: np.ndarray) -> list[slice]:
    """Slices that split `rows` rows, each as long as the draws of a site of x, to limit memory."""
    size = max(DRAWS_OF_BATCH // (x.shape[1] * x.shape[2]), 1)
    return [slice(i, i + size) for i in range(0, rows, size)]


def ess_of_indicators(x: np.ndarray, found: Indicators) -> np.ndarray:
    """(rows,) float, the ESS of each indicator of a batch x (sites, chains, draws)."""
    parts = [ess_of_mean(found.of(x, part).astype(np.float32)) for part in in_parts(len(found.site), x)]
    return np.concatenate(parts) if parts else np.zeros(0)


def ess_of_mean(y: np.ndarray) -> np.ndarray:
    """(rows,) float, the ESS of the means of y (rows, chains, draws), with split chains; nan where y is
    constant.
    """
    return effective(*moments(y), 2 * y.shape[1])


def moments(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Autocovariances (rows, n) of the halves of the chains of y (rows, chains, draws), averaged, and the
    variances (rows,) of the means of the halves.
    """
    half = in_halves(y)
    means = half.mean(axis=2, dtype=float)
    centred = half - means[..., None].astype(half.dtype)
    return autocovariance(centred), means.var(axis=1, ddof=1)


def autocovariance(centred: np.ndarray) -> np.ndarray:
    """(rows, n) float, autocovariances at lags 0 ... n - 1 of (rows, chains, n), averaged over the chains.

    Single precision takes half of the time; the error of the autocovariances is about 1e-7 of the value at
    lag 0.
    """
    n = centred.shape[2]
    length = 2 ** (2 * n - 1).bit_length()
    spectrum = rfft(centred.astype(np.float32, copy=False), length, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    return irfft(power, length, axis=1)[:, :n].astype(float) / n


def effective(covariance: np.ndarray, between: np.ndarray, chains: int) -> np.ndarray:
    """(rows,) float, effective numbers of draws; nan where nothing varies.

    Parameters
    ----------
    covariance : (rows, n), the autocovariances at lags 0 ... n - 1, averaged over the chains
    between : (rows,), the variance of the means of the chains, B / n
    chains : number of chains, of n draws each
    """
    n = covariance.shape[1]
    within = covariance[:, :1] * n / (n - 1)
    total = within * (n - 1) / n + between[:, None]
    constant = total[:, 0] <= 1e-15
    # the autocorrelation of Vehtari et al. 2021
    rho = 1.0 - (within - covariance) / np.where(constant[:, None], 1.0, total)
    rho[:, 0] = 1.0
    size = chains * n
    # the bound that Stan and ArviZ set on the ESS of antithetic chains
    tau = np.maximum(correlation_time(rho), 1.0 / np.log10(size))
    return np.where(constant, np.nan, size / tau)


def correlation_time(rho: np.ndarray) -> np.ndarray:
    """(rows,) float, draws: -1 + 2 sum of rho (rows, n) over lags, truncated and smoothed as in Geyer 1992.

    The sums of rho at an even lag and at the lag after it are positive and decrease in a reversible chain.
    They count until the first sum that is not positive; of this sum, rho at the even lag still counts once if
    it is positive.
    """
    n = rho.shape[1]
    count = max((n - 3) // 2, 0) + 1  # as many pairs of an even and an odd lag as ArviZ uses
    even = rho[:, 0 : 2 * count : 2]
    pairs = even + rho[:, 1 : 2 * count : 2]
    end = first_not_positive(pairs)
    used = np.arange(count) < end[:, None]
    decreasing = np.minimum.accumulate(pairs, axis=1)
    last = np.take_along_axis(even, end[:, None], axis=1)[:, 0]
    return -1.0 + 2.0 * np.where(used, decreasing, 0.0).sum(axis=1) + np.maximum(last, 0.0)


def first_not_positive(pairs: np.ndarray) -> np.ndarray:
    """(rows,) int, the first of the pairs (rows, count) that is not positive; the last pair if all are
    positive.
    """
    stop = pairs <= 0
    return np.where(stop.any(axis=1), stop.argmax(axis=1), pairs.shape[1] - 1)
