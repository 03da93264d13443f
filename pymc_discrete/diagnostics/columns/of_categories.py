"""Columns of all discrete variables, whose values may be names."""

import numpy as np

from pymc_discrete.diagnostics.statistics.batch import BatchOfElements, column
from pymc_discrete.diagnostics.statistics.movement import moves_of
from pymc_discrete.diagnostics.statistics.rhat import rhat_of_indicators


@column(
    "mode, P(mode), mcse P(mode)",
    "the commonest value, its probability, and the Monte Carlo standard error of that",
    place=10,
)
def mode(batch: BatchOfElements) -> dict[str, np.ndarray]:
    p = batch.counts.p
    k, sites = p.argmax(axis=1), np.arange(len(p))
    return {
        "mode": batch.counts.values[k],
        "P(mode)": p[sites, k],
        "mcse P(mode)": batch.errors[sites, k],
    }


@column(
    "entropy",
    "of the shares of all values, in nats: 0 where one value is certain, log K where K are equally probable",
    place=20,
)
def entropy(batch: BatchOfElements) -> np.ndarray:
    p = batch.counts.p
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) + 0.0


@column("moved", "the share of draws that differ from the one before", place=30)
def moved(batch: BatchOfElements) -> np.ndarray:
    return moves_of(batch.x).mean(axis=1) / (batch.x.shape[2] - 1)


@column(
    "ess",
    "effective draws of the indicator 1[z = k] that mixes worst, of the values with a probability of 5 to "
    "95 %",
    place=40,
)
def ess(batch: BatchOfElements) -> np.ndarray:
    return batch.indicators.least(batch.ess_of_indicators, len(batch.x))


@column("rhat", "the greatest R-hat of the same indicators", place=50)
def rhat(batch: BatchOfElements) -> np.ndarray:
    counts, found = batch.counts, batch.indicators
    of_each = rhat_of_indicators(counts.shares_of_halves, counts.half, found)
    return found.greatest(of_each, len(batch.x))
