"""Tests whether categories are as frequent in one chain as in the others, and at its end as at its
beginning."""

from typing import Any, Literal

import numpy as np

from pymc_discrete.diagnostics.draws import Counts, counted, counts_of_values, per_element
from pymc_discrete.diagnostics.statistics.effective import autocovariance, first_not_positive
from pymc_discrete.diagnostics.thresholds import FEWEST_EFFECTIVE_OF_CATEGORY, FEWEST_EFFECTIVE_OF_P

MOST_CATEGORIES = (
    10  # a variable with more values than this is divided into this many groups of neighbouring values
)
STRETCH = 0.3  # the share of a chain's draws that its beginning and its end have
QUANTITIES = ["statistic", "df", "correction", "p"]


def chi_square(
    data: Any,
    var_names: str | list[str] | None = None,
    *,
    compare: Literal["chains", "stretches"] = "chains",
    method: Literal["covariance", "weiss"] = "covariance",
) -> Any:
    r"""Chi-square test that categories are equally frequent in all chains, corrected for autocorrelation.

    Of m categories, d chains and n draws each, with u_jl the count of category j in chain l and p_j its share
    in all, X2 = n sum_l sum_j (u_jl / n - p_j)^2 / p_j. It is a sum of (m - 1) terms delta_i chi2(d - 1),
    where the delta_i are eigenvalues of D = P^{-1/2} S P^{-1/2}, P = diag(p) and S the long-run covariance of
    the indicators: sum_t Cov(1[z_0 = j], 1[z_t = k]) over all lags. Their mean, c = tr D / (m - 1) = sum_j (1
    - p_j) t_j / (m - 1) with t_j the autocorrelation time of 1[z = j], is the correction (Rao and Scott's
    first order). As the delta_i may differ much, X2 tr D / tr D^2 is compared with chi2 of (d - 1) (tr D)^2 /
    tr D^2 degrees of freedom, which has the right variance too (their second order); with c alone a random
    walk on five states is rejected twice too often. S is estimated within chains, up to the lag at which
    Geyer's initial sequence of tr D ends.

    On chains that are not reversible, such as sweeps in a fixed order, the test may be conservative: where
    autocorrelations turn negative, Geyer's sequence, which is made for reversible chains, ends before the
    negative ones are added, c is too large, and sound runs are rejected at less than the nominal rate: of
    chains that go around a circle of states hardly any.

    There is no p-value for less than 50 effective draws n / c of a chain, or where a category has less than
    5, n p_j / c: such rare categories are first merged into one. More than 10 values are first cut into 10
    groups of neighbours.

    Parameters
    ----------
    data : array (chains, draws, ...) of integers, DataArray, Dataset, or DataTree with a group posterior
    var_names : names of discrete variables of a Dataset or DataTree; all of them by default
    compare : "chains" with one another, or "stretches": of each chain the first 30 % of its draws with the
        last, the statistics of all chains added up
    method : "covariance" as above. "weiss" has c = (1 + phi) / (1 - phi), where phi makes the share of draws
        that equal the one before what it is: right for chains that stay or draw anew (DAR(1)) only, and blind
        for chains that stand still at different values, whose statistic is 0 (Deonovic and Smith 2017).

    Returns
    -------
    Four quantities, in the type of `data`, with an axis "quantity" in the place of chains and draws: the
    statistic, divided such that it is compared with chi2; its degrees of freedom; c in draws; p. All are nan
    where all draws are equal, p alone where there are too few effective draws.

    Raises
    ------
    ValueError
        For draws that are not integers, fewer than 4 of them, names that do not exist, and unknown words for
        `compare` and `method`.

    References
    ----------
    Rao and Scott 1981, The analysis of categorical data from complex sample surveys, JASA 76(374).
    Geyer 1992, Practical Markov chain Monte Carlo, Statistical Science 7(4).
    Deonovic and Smith 2017, Convergence diagnostics for MCMC draws of a categorical variable, arXiv
    1706.04919.
    """
    for name, given, known in (
        ("compare", compare, ("chains", "stretches")),
        ("method", method, ("covariance", "weiss")),
    ):
        if given not in known:
            raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {given!r}.")

    def of_batch(x: np.ndarray) -> np.ndarray:
        return tested(x, categories_of_values(counted(x)), compare, method)

    return per_element(of_batch, data, var_names, {"quantity": QUANTITIES})


def share_rejected(p: Any, rate: float = 0.05) -> float:
    """The share of p-values that are rejected at a nominal false discovery rate; nan where there is none.

    This is the step-up procedure of Benjamini and Hochberg 1995. The rate is nominal, since sites depend on
    one another.

    Parameters
    ----------
    p : array of p-values; nan are left out
    rate : false discovery rate
    """
    known = np.sort(np.asarray(p, float)[~np.isnan(p)])
    if not len(known):
        return np.nan
    below = np.flatnonzero(known <= rate * np.arange(1, len(known) + 1) / len(known))
    return float((below[-1] + 1) / len(known)) if len(below) else 0.0


def categories_of_values(counts: Counts) -> np.ndarray:
    """(sites, V) int, the category of each value: a category of its own, or a group of
    neighbouring values."""
    there = counts.p > 0
    own = np.maximum(np.cumsum(there, axis=1) - 1, 0)
    middle = np.cumsum(counts.p, axis=1) - counts.p / 2
    # A group is found by the middle of a value's share, so that groups are empty if one value is common.
    return np.where(
        (there.sum(axis=1) > MOST_CATEGORIES)[:, None],
        np.minimum((middle * MOST_CATEGORIES).astype(int), MOST_CATEGORIES - 1),
        own,
    )


def tested(x: np.ndarray, group: np.ndarray, compare: str, method: str) -> np.ndarray:
    """(sites, 4) float, the `QUANTITIES` of a batch x (sites, chains, draws).

    Parameters
    ----------
    group : (sites, V) int, the category of each value of the batch
    """
    from scipy.special import chdtrc  # the import is slow, and is not needed while sampling

    values = counted(x).values
    categories = np.empty(x.shape, np.int8)
    for i in range(len(x)):
        categories[i] = group[i][np.searchsorted(values, x[i])]
    result = np.full((len(x), 4), np.nan)
    n = x.shape[2] if compare == "chains" else int(STRETCH * x.shape[2])
    left = np.arange(len(x))
    while len(left):
        # in each iteration, the rare categories of a site are merged, until none is rare or two are left
        y = categories[left]
        G = int(y.max()) + 1
        counts = counts_of_values(y, np.arange(G))
        p = counts.sum(axis=1) / counts.sum(axis=(1, 2))[:, None]
        several = (p > 0).sum(axis=1) > 1
        left, y, counts, p = left[several], y[several], counts[several], p[several]
        if not len(left):
            break
        trace, square = weiss(y, p) if method == "weiss" else long_run(y, p)
        m = (p > 0).sum(axis=1)
        c = trace / (m - 1)
        x2, df = compared(y, counts, p, compare)
        factor = trace / square
        statistic, df = x2 * factor, df * trace * factor
        enough = n / c >= FEWEST_EFFECTIVE_OF_P
        rare = (p > 0) & (n * p / c[:, None] < FEWEST_EFFECTIVE_OF_CATEGORY)
        certain = enough & ~rare.any(axis=1) & (df > 0)
        P = np.where(certain, chdtrc(np.maximum(df, 1e-9), statistic), np.nan)
        result[left] = np.stack([statistic, df, c, P], axis=1)
        again = enough & rare.any(axis=1) & (m > 2)
        categories[left[again]] = merged(y[again], p[again], rare[again])
        left = left[again]
    return result


def merged(y: np.ndarray, p: np.ndarray, rare: np.ndarray) -> np.ndarray:
    """The categories y (sites, chains, draws), with all rare categories of a site, and the two rarest in any
    case, merged into one.
    """
    order = np.argsort(np.where(p > 0, p, np.inf), axis=1)
    rare[np.arange(len(p))[:, None], order[:, :2]] = True
    first = rare.argmax(axis=1)
    to = np.where(rare, first[:, None], np.arange(p.shape[1]))
    return np.stack([to[i][y[i]] for i in range(len(y))]) if len(y) else y


def compared(y: np.ndarray, counts: np.ndarray, p: np.ndarray, compare: str) -> tuple[np.ndarray, int]:
    """(sites,) float, the statistic X2 of `chi_square`, and d - 1, the degrees of freedom of each of its
    terms delta_i chi2(d - 1).

    Parameters
    ----------
    y : (sites, chains, draws) int8, categories
    counts : (sites, chains, G) int
    p : (sites, G) float, shares in all draws
    """
    chains, draws = y.shape[1:]
    safe = np.where(p > 0, p, 1.0)[:, None]
    if compare == "chains":
        return draws * ((counts / draws - p[:, None]) ** 2 / safe).sum(axis=(1, 2)), chains - 1
    n = int(STRETCH * draws)
    G = np.arange(p.shape[1])
    first, last = counts_of_values(y[..., :n], G) / n, counts_of_values(y[..., -n:], G) / n
    # the shares in the first and the last interval are each half of their difference away from their mean
    return n / 2 * ((first - last) ** 2 / safe).sum(axis=(1, 2)), chains


def weiss(y: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tr D and tr D^2 (sites,), with D as in `chi_square`, for DAR(1) chains, for which all eigenvalues of D
    are (1 + phi) / (1 - phi).
    """
    n, m = y.shape[2], (p > 0).sum(axis=1)
    same = (y[..., 1:] == y[..., :-1]).mean(axis=(1, 2))
    # the estimate of phi by Deonovic and Smith 2017, from the share of draws that equal the draw before
    phi = 1.0 + 1.0 / n - (1.0 - same) / (1.0 - (p**2).sum(axis=1))
    c = (1.0 + phi) / (1.0 - np.clip(phi, 0.0, 1.0 - np.finfo(float).eps))
    return (m - 1) * c, (m - 1) * c**2


def long_run(y: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tr D and tr D^2 (sites,), where D is the long-run covariance of the indicators, each divided by the
    root of its p.

    Parameters
    ----------
    y : (sites, chains, draws) int8, categories
    p : (sites, G) float
    """
    chains, n = y.shape[1:]
    trace, square = np.empty(len(y)), np.empty(len(y))
    for i in range(len(y)):
        k = np.flatnonzero(p[i])
        # the indicators of the m categories, divided by the root of p, of the shape (m, chains, n)
        z = (y[i] == k[:, None, None]) / np.sqrt(p[i, k])[:, None, None]
        z = z - z.mean(axis=2, keepdims=True)
        covariance = autocovariance(z.reshape(1, -1, n))[0] * len(k)
        pairs = covariance[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
        T = 2 * int(first_not_positive(pairs[None])[0]) - 1  # the last lag that counts, by Geyer 1992
        # for each draw, the sum of the scaled indicators over the draws up to T before and after it
        to = np.concatenate([np.zeros((*z.shape[:2], 1)), np.cumsum(z, axis=2)], axis=2)
        s = np.arange(n)
        around = to[..., np.minimum(s + T + 1, n)] - to[..., np.maximum(s - T, 0)]
        D = z.reshape(len(k), -1) @ around.reshape(len(k), -1).T / (chains * n)
        # The means of chains were subtracted in place of the true mean, which lowers the covariance at each
        # of the 2 T + 1 lags by D / n.
        D /= max(1.0 - (2 * T + 1) / n, 0.1)
        # the least tr D of antithetic chains, by the bound that Stan and ArviZ set on their ESS
        least = (len(k) - 1) / np.log10(chains * n)
        trace[i] = max(np.trace(D), least)
        square[i] = (D**2).sum() if trace[i] > least else least**2 / (len(k) - 1)
    return trace, square
