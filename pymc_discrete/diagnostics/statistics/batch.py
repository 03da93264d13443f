"""A batch of elements of a variable, and the columns of `pmd.summary` that are computed from it.

A column is a function of a `BatchOfElements`, registered by `column`, in a file of the folder `columns`. Each
file of this folder is found without being named elsewhere.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pymc_discrete.diagnostics.draws import Counts, counted
from pymc_discrete.diagnostics.statistics.effective import ess_of_indicators
from pymc_discrete.diagnostics.statistics.indicators import Indicators, indicators


class BatchOfElements:
    """Draws of some elements of a variable, and quantities that several columns need, each computed once.

    Parameters
    ----------
    x : (sites, chains, draws) int
    values : the values of the variable, if each has a column; None for a count
    """

    def __init__(self, x: np.ndarray, values: np.ndarray | None = None):
        self.x, self.values = x, values

    @cached_property
    def counts(self) -> Counts:
        """How often each site has each value."""
        return counted(self.x)

    @cached_property
    def indicators(self) -> Indicators:
        """The indicators by which the sites are judged, and the indicators of all values that have
        a column."""
        return indicators(self.counts, every=self.values is not None)

    @cached_property
    def ess_of_indicators(self) -> np.ndarray:
        """(rows,) float, the effective number of draws of each of the indicators."""
        return ess_of_indicators(self.x, self.indicators)

    @cached_property
    def errors(self) -> np.ndarray:
        """(sites, V) float, Monte Carlo standard errors of the probabilities; nan without an ESS."""
        p, found = self.counts.p, self.indicators
        errors = np.full(p.shape, np.nan)
        single = found.first == found.last
        site, k, n = found.site[single], found.first[single], self.ess_of_indicators[single]
        errors[site, k] = np.sqrt(p[site, k] * (1.0 - p[site, k]) / n)
        # for a site with two values one indicator is kept; that of the other value has the same error
        two = (p > 0).sum(axis=1) == 2
        error = np.where(np.isnan(errors), 0.0, errors).max(axis=1)
        return np.where(two[:, None] & (p > 0), error[:, None], errors)


type Compute = Callable[[BatchOfElements], np.ndarray] | Callable[[BatchOfElements], dict[str, np.ndarray]]


class Column(NamedTuple):
    """A column of `pmd.summary`, or several columns that are computed together.

    Attributes
    ----------
    names : the names of the columns, as in the documentation, such as "P(k), mcse P(k)"
    meaning : the meaning in a few words, for the documentation and the docstring
    of : function of a `BatchOfElements`, which returns the column (sites,), or {name: column} for several
        columns
    place : a number by which the columns are ordered
    """

    names: str
    meaning: str
    of: Compute
    place: int

    def values(self, batch: BatchOfElements) -> dict[str, np.ndarray]:
        """{name: column (sites,)} of the columns for a batch."""
        found = self.of(batch)
        return found if isinstance(found, dict) else {self.names: found}


SUMMARY_COLUMNS: list[Column] = []  # the columns in the order of their places


def column(names: str, meaning: str, place: int) -> Callable[[Compute], Compute]:
    """Register a function of a `BatchOfElements` as a column of `pmd.summary`, see `Column`.

    A column whose name begins with "mcse" is nan where there were too few moves to estimate an error.
    """

    def register(of: Compute) -> Compute:
        SUMMARY_COLUMNS.append(Column(names, meaning, of, place))
        SUMMARY_COLUMNS.sort(key=lambda column: column.place)
        return of

    return register
