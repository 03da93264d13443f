"""Test statistics of draws, and of counts under known probabilities."""

import arviz as az
import numpy as np
from scipy import stats

LARGEST_Z = 5.0


def zs_of_proportions(draws, states, prob):
    """z of every marginal probability that enough draws bear on; draws (chain, draw, sites)."""
    zs = []
    for site in range(states.shape[1]):
        for value in np.unique(states[:, site]):
            p = prob[states[:, site] == value].sum()
            hit = (draws[:, :, site] == value).astype(float)
            if p == 1:
                assert hit.all()
                continue
            ess = float(np.nan_to_num(az.ess(hit, method="mean"), nan=1.0))
            if p * (1 - p) * ess >= 15:
                zs.append((hit.mean() - p) / np.sqrt(p * (1 - p) / ess))
    return np.array(zs)


def check_proportions(posterior, names, states, prob):
    """Check the shares of the values that each site takes in draws of discrete variables.

    Parameters
    ----------
    posterior : Dataset with the draws (chain, draw, ...) of the variables
    names : in the order of the sites
    states, prob : (n, d) int and (n,) float, all states of the sites, and their probabilities
    """
    draws = [posterior[name].values.reshape(*posterior[name].shape[:2], -1) for name in names]
    zs = zs_of_proportions(np.concatenate(draws, axis=2), states[prob > 0], prob[prob > 0])
    assert len(zs) >= states.shape[1]
    assert np.abs(zs).max() < LARGEST_Z


def z_of_moments(draws, mean, sd):
    """z of the mean and of the variance of draws (chain, draw)."""
    first = (draws.mean() - mean) / (sd / np.sqrt(float(az.ess(draws, method="mean"))))
    squares = (draws - mean) ** 2
    return first, (squares.mean() - sd**2) / np.sqrt(squares.var() / float(az.ess(squares, method="mean")))


def g_test(got, p) -> float:
    """p value of counts `got` under probabilities `p`, cells of expectation below 5 put together."""
    got, want = with_rare_together(got, p)
    if len(want) < 2:
        return 1.0
    return float(stats.power_divergence(got, want * got.sum() / want.sum(), lambda_="log-likelihood").pvalue)


def with_rare_together(got, p):
    """Counts and their expectations, cells of expectation below 5 put together."""
    want = p * got.sum()
    rare = want < 5
    if rare.any():
        got, want = np.append(got[~rare], got[rare].sum()), np.append(want[~rare], want[rare].sum())
        if want[-1] < 1e-6:  # impossible ones only
            got, want = got[:-1], want[:-1]
    return got, want


def p_of_pairs(sample, other, bins) -> float:
    """p value of two samples of pairs, ((n,), (n,)) each, having one distribution; `bins` of each part."""
    tables = [np.histogram2d(*pair, bins=bins)[0].ravel() for pair in (sample, other)]
    some = sum(tables) > 20
    return float(stats.chi2_contingency([t[some] for t in tables]).pvalue)


def pooled_test(rows) -> float:
    """p value of counts under probabilities, many rows [(got, p)] as one.

    Pearson's statistics of the rows, added up. Its mean and variance are exact also where counts are small,
    and its distribution is that of a multiple of chi-square with the same mean and variance.
    """
    statistic = mean = variance = 0.0
    for got, p in rows:
        got, want = with_rare_together(got, p)
        n, k = got.sum(), len(want)
        if k < 2:
            continue
        statistic += ((got - want) ** 2 / want).sum()
        mean += k - 1
        variance += 2 * (k - 1) + ((n / want).sum() - k**2 - 2 * k + 2) / n
    scale = variance / (2 * mean) if mean else 1.0
    return float(stats.chi2.sf(statistic / scale, mean / scale)) if mean else 1.0
