"""Columns for variables with few values, the probability of each value, and for counts, mean and
quantiles."""

import numpy as np

from pymc_discrete.diagnostics.statistics.batch import BatchOfElements, column
from pymc_discrete.diagnostics.statistics.effective import ess_of_mean

QUANTILES = {"5%": 0.05, "median": 0.5, "95%": 0.95}


@column("P(k), mcse P(k)", "of variables with up to 8 values, from -8 to 8; nan for counts", place=60)
def probabilities(batch: BatchOfElements) -> dict[str, np.ndarray]:
    columns, p = {}, batch.counts.p
    for v in () if batch.values is None else batch.values:
        k = np.flatnonzero(batch.counts.values == v)
        columns[f"P({v})"] = p[:, k[0]] if len(k) else np.zeros(len(p))
        columns[f"mcse P({v})"] = batch.errors[:, k[0]] if len(k) else np.full(len(p), np.nan)
    return columns


@column(
    "mean, mcse mean, 5%, median, 95%",
    "of others, which are taken for counts; so are Deterministics, such as sums, with values that no "
    "variable in the table has which the model draws",
    place=70,
)
def mean_and_quantiles(batch: BatchOfElements) -> dict[str, np.ndarray]:
    if batch.values is not None:
        return {}
    p, values = batch.counts.p, batch.counts.values
    mean = p @ values
    deviation = np.sqrt(np.maximum(p @ (values.astype(float) ** 2) - mean**2, 0.0))
    below = np.cumsum(p, axis=1)
    error = deviation / np.sqrt(ess_of_mean(batch.x.astype(float) - mean[:, None, None]))
    quantiles = {c: values[(below >= q - 1e-12).argmax(axis=1)] for c, q in QUANTILES.items()}
    return {"mean": mean, "mcse mean": error, **quantiles}
