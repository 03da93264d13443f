"""R-hat of categories, and of whole vectors of them: whether chains agree."""

from typing import Any

import numpy as np

from pymc_discrete.diagnostics.draws import batches, counted, per_element
from pymc_discrete.diagnostics.statistics.effective import array_of
from pymc_discrete.diagnostics.statistics.indicators import Indicators, indicators


def categorical_rhat(data: Any, var_names: str | list[str] | None = None) -> Any:
    r"""R-hat of categories: the greatest split R-hat of the indicators that `categorical_ess` looks at.

    It is the R-hat of Vehtari et al. 2021 with split chains, as `arviz_stats.rhat(method="split")` of 1[z =
    k]. Ranks are of no use to an indicator, which has two values.

    Parameters
    ----------
    data : array (chains, draws, ...) of integers, DataArray, Dataset, or DataTree with a group posterior
    var_names : names of discrete variables of a Dataset or DataTree; all of them by default

    Returns
    -------
    R-hat, in the type of `data` without the axes of chains and draws; nan where all draws are equal, infinite
    where the chains stand still at different values

    Raises
    ------
    ValueError
        For draws that are not integers, fewer than 4 of them, or names that do not exist.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021, Bayesian Analysis 16(2).
    """

    def of_batch(x: np.ndarray) -> np.ndarray:
        counts = counted(x)
        found = indicators(counts)
        return found.greatest(rhat_of_indicators(counts.shares_of_halves, counts.half, found), len(x))

    return per_element(of_batch, data, var_names)


def hamming_rhat(draws: Any) -> tuple[float, float]:
    r"""Split R-hat of a whole vector of categories, and R-hat of its worst site.

    Gelman and Rubin's R-hat on all indicators 1[z_i = k] together: with H_l = sum_i (1 - sum_k p_ikl^2), half
    the mean squared Hamming distance of two draws of chain l, and T the same of all draws, W = n / (n - 1)
    mean H_l, B / n = m / (m - 1) (T - mean H_l) over m split chains of n draws, R-hat = sqrt(((n - 1) / n W +
    B / n) / W).

    One site of 500 that stands still at different values changes the R-hat of the vector by a thousandth
    only, so look at the R-hat of the worst site too.

    Parameters
    ----------
    draws : array (chains, draws, ...) of integers, or DataArray

    Returns
    -------
    of_vector, of_worst : float, 1 where no site moves and all chains agree, infinite where none moves and
        some differ

    Raises
    ------
    ValueError
        For draws that are not integers, or fewer than 4 of them.

    References
    ----------
    Gelman and Rubin 1992, Inference from iterative simulation using multiple sequences, Statistical Science
    7(4).
    """
    within, between = [], []
    n = 2
    for x in batches(array_of(draws)):
        counts = counted(x)
        p, n = counts.shares_of_halves, counts.half
        m = p.shape[1]
        of_chains = (p * (1.0 - p)).sum(axis=2).mean(axis=1)
        pooled = p.mean(axis=1)
        within.append(of_chains)
        between.append(m / (m - 1) * ((pooled * (1.0 - pooled)).sum(axis=1) - of_chains))
    if not within:
        return 1.0, 1.0
    W, B = np.concatenate(within), np.concatenate(between)
    of_sites = ratio(W * n / (n - 1), B, n)
    return float(ratio(W.sum(keepdims=True) * n / (n - 1), B.sum(keepdims=True), n)[0]), float(of_sites.max())


def nested_rhat(data: Any, superchain_ids: Any, var_names: str | list[str] | None = None) -> Any:
    """Nested R-hat, for many short chains in groups (superchains) whose chains began at the same point.

    It is computed by `arviz_stats.rhat_nested`; Margossian et al. 2024, Nested R-hat, Bayesian Analysis. The
    values are taken as numbers, so that it suits counts and binary variables, and codes of categories only
    roughly.

    Parameters
    ----------
    data : DataTree or Dataset
    superchain_ids : (chains,) int, the superchain of each chain; for `pmd.sample(chains=64, superchains=8)`
        it is np.repeat(np.arange(8), 8)
    var_names : names of variables; all of the posterior by default
    """
    from arviz_stats import rhat_nested  # imported only here, since the import takes long

    return rhat_nested(data, var_names=var_names, method="split", superchain_ids=np.asarray(superchain_ids))


def rhat_of_indicators(shares: np.ndarray, n: int, found: Indicators) -> np.ndarray:
    """(rows,) float, R-hat, given the shares of values (sites, split chains, V) in n draws each."""
    means = found.shares(shares)
    within = (means * (1.0 - means)).mean(axis=1) * n / (n - 1)
    return ratio(within, means.var(axis=1, ddof=1), n)


def ratio(within: np.ndarray, between: np.ndarray, n: int) -> np.ndarray:
    """R-hat of chains of n draws, given the variance `within` chains and the variance `between` their means;
    1 where both variances are 0, and infinite where only `within` is 0.
    """
    none = within <= 1e-14
    rhat = np.sqrt((n - 1) / n + np.maximum(between, 0.0) / np.where(none, 1.0, within))
    return np.where(none, np.where(between <= 1e-14, 1.0, np.inf), rhat)
