"""The indicators 1[first <= z <= last] by which the mixing of categories is judged."""

from typing import NamedTuple

import numpy as np

from pymc_discrete.diagnostics.draws import Counts
from pymc_discrete.diagnostics.thresholds import COMMON_VALUE, RARE_VALUE


class Indicators(NamedTuple):
    """Indicators of the sites of a batch, one in each row.

    Attributes
    ----------
    values : (V,) int, the values of the batch
    site : (rows,) int, the site of each indicator
    first, last : (rows,) int, indices into `values`: the indicator is 1 from values[first] to values[last]
    judged : (rows,) bool, whether the indicator counts for `categorical_ess`
    """

    values: np.ndarray
    site: np.ndarray
    first: np.ndarray
    last: np.ndarray
    judged: np.ndarray

    def of(self, x: np.ndarray, rows: slice) -> np.ndarray:
        """(rows, chains, draws) bool, the indicators of a batch x (sites, chains, draws)."""
        low, high = self.values[self.first[rows]], self.values[self.last[rows]]
        of_sites = x[self.site[rows]]
        if (low == high).all():
            return of_sites == low[:, None, None]
        return (of_sites >= low[:, None, None]) & (of_sites <= high[:, None, None])

    def shares(self, of_values: np.ndarray) -> np.ndarray:
        """(rows, chains) float, the means of the indicators, given shares of values (sites, chains, V)."""
        to = np.concatenate([np.zeros_like(of_values[..., :1]), np.cumsum(of_values, axis=2)], axis=2)
        return to[self.site, :, self.last + 1] - to[self.site, :, self.first]

    def least(self, statistic: np.ndarray, sites: int) -> np.ndarray:
        """(sites,) float, the least value of a statistic (rows,) over the judged indicators of each site; nan
        if none.
        """
        found = np.full(sites, np.nan)
        np.fmin.at(found, self.site[self.judged], statistic[self.judged])
        return found

    def greatest(self, statistic: np.ndarray, sites: int) -> np.ndarray:
        """(sites,) float, the greatest value of a statistic (rows,) over each site's judged indicators."""
        return -self.least(-statistic, sites)


def indicators(counts: Counts, every: bool = False) -> Indicators:
    """The indicators by which the sites of a batch are judged; none for a site whose draws are all equal.

    They are the indicators of the values with a probability from `RARE_VALUE` to `COMMON_VALUE`; if there are
    none, of the commonest value and of z <= median. For a site with two values the indicator of the commonest
    value is enough.

    Parameters
    ----------
    every : whether the indicators of all other values are wanted too
    """
    p = counts.p
    there, mode = p > 0, np.arange(p.shape[1]) == p.argmax(axis=1)[:, None]
    varies = (there.sum(axis=1) > 1)[:, None]
    two = (there.sum(axis=1) == 2)[:, None]
    within = (p >= RARE_VALUE) & (p <= COMMON_VALUE)
    none = ~within.any(axis=1, keepdims=True)
    judged = varies & np.where(two | none, mode, within)
    wanted = judged | (varies & there & ~two if every else mode & varies)
    site, k = np.nonzero(wanted)
    below = np.cumsum(p, axis=1)
    median = (below >= 0.5 - 1e-12).argmax(axis=1)
    of_median = np.flatnonzero((none & varies & ~two)[:, 0] & (below[np.arange(len(p)), median] < 1 - 1e-12))
    return Indicators(
        counts.values,
        np.concatenate([site, of_median]),
        np.concatenate([k, np.zeros_like(of_median)]),
        np.concatenate([k, median[of_median]]),
        np.concatenate([judged[site, k], np.ones(len(of_median), bool)]),
    )
