"""Tables of diagnostics for draws of discrete variables: for each element, and for each variable
as a whole."""

import re
from collections.abc import Iterator
from itertools import product
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.draws import labels_in_draws, posterior_of
from pymc_discrete.diagnostics.judge import Judge, values_with_columns
from pymc_discrete.diagnostics.labels.clusters import recorded_partitions, without_names
from pymc_discrete.diagnostics.statistics.batch import SUMMARY_COLUMNS
from pymc_discrete.diagnostics.statistics.chi_square import chi_square, share_rejected
from pymc_discrete.diagnostics.statistics.effective import hamming_ess
from pymc_discrete.diagnostics.statistics.movement import any_moved
from pymc_discrete.diagnostics.statistics.rhat import hamming_rhat
from pymc_discrete.runtime.names import element_name

if TYPE_CHECKING:
    import pandas as pd


def summary(idata: Any, var_names: str | list[str] | None = None) -> "pd.DataFrame":
    """Probabilities or moments, and diagnostics, of discrete variables: a table with one row for each
    element.

    A variable with up to 8 values, from -8 to 8, has the probability of each; others are taken for counts,
    and have mean and quantiles. A Deterministic is taken for a count too if it has values other than 0, 1 and
    those of the variables that the model draws, where the result says which variables are drawn.

    A `pmd.Partition` z, in a result of `pmd.sample`, has a row "clusters of z", the number of clusters, and
    for each site a row about the size of the site's cluster, since the names of labels mean nothing.

    Parameters
    ----------
    idata : DataTree with a group posterior, of `pmd.sample` or `pm.sample`, or Dataset
    var_names : names of discrete variables; all variables of integers by default

    Returns
    -------
    pandas.DataFrame
        {columns}
        verdict
            ``ok``; ``fixed``, with one possible value; ``certain``, one value in all chains, as was to be
            expected; ``constant``, one value in all chains, without knowing how probable other values are;
            ``labels``, chains or draws agree once labels are permuted; ``apart``, no chain moved and the
            chains differ; ``stuck``, a chain never moved though it should have; ``slow``, an R-hat above 1.01
            or fewer than 100 effective draws for each chain

    Raises
    ------
    ValueError
        If a name is not in the posterior, a variable is not of integers, or there are fewer than 4 draws.
    """
    import pandas as pd  # imported only here, since the import takes long

    posterior = without_names_of_clusters(idata, var_names)
    judge, frames = Judge(idata, columns=values_with_columns(posterior)), []
    for name, draws in posterior.data_vars.items():
        columns = judge.of(str(name)).columns
        frames.append(pd.DataFrame(columns, index=list(row_names(draws))))
    table = pd.concat(frames) if frames else pd.DataFrame()
    of_values = {c: found for c in table.columns if (found := re.fullmatch(r"(mcse )?P\((-?\d+)\)", c))}
    few = sorted(of_values, key=lambda c: (int(of_values[c][2]), c.startswith("mcse")))
    first = ["mode", "P(mode)", "mcse P(mode)", "entropy", "moved", "ess", "rhat", "verdict"]
    return table[[*first, *few, *(c for c in table.columns if c not in (*first, *few))]]


def without_names_of_clusters(idata: Any, var_names: str | list[str] | None) -> xr.Dataset:
    """The discrete variables of a result, where partitions are replaced by the sizes of their clusters."""
    posterior = posterior_of(idata, var_names)
    return without_names(posterior, recorded_partitions(posterior))


def described_columns() -> str:
    """The description of the columns in the docstring of `summary`."""
    indent = " " * 12
    texts = [fill(c.meaning, 110, initial_indent=indent, subsequent_indent=indent) for c in SUMMARY_COLUMNS]
    return f"\n{' ' * 8}".join(f"{c.names}\n{text}" for c, text in zip(SUMMARY_COLUMNS, texts, strict=True))


summary.__doc__ = (summary.__doc__ or "").replace("{columns}", described_columns())


def summary_of_vectors(idata: Any, var_names: str | list[str] | None = None) -> "pd.DataFrame":
    """Diagnostics of each discrete variable as a whole: a table with one row for each variable.

    Parameters
    ----------
    idata : DataTree with a group posterior, of `pmd.sample` or `pm.sample`, or Dataset
    var_names : names of discrete variables; all variables of integers by default

    Returns
    -------
    pandas.DataFrame
        elements
            the number of elements
        moved
            the share of draws in which any element differs from the draw before
        ess, rhat
            of the vector, by Hamming distances: see `diagnostics.hamming_ess` and `diagnostics.hamming_rhat`
        worst ess, worst rhat
            the smallest number of effective draws of categories, and the largest R-hat, of any element
        rejected between, rejected within, too few
            the share of elements, among those with a p-value, that `diagnostics.chi_square` rejects at a
            false discovery rate of 5 %, between chains and from the begin of chains to their end; of the
            elements that vary, the share with too few effective draws for a p-value between chains
        verdict
            how many elements have each verdict of `summary`, the most frequent first

    Raises
    ------
    ValueError
        If a name is not in the posterior, a variable is not of integers, or there are fewer than 4 draws.
    """
    import pandas as pd  # imported only here, since the import takes long

    posterior = without_names_of_clusters(idata, var_names)
    judge, rows = Judge(idata), {}
    for name, draws in posterior.data_vars.items():
        columns = judge.of(str(name)).columns
        between, within = (chi_square(draws, compare=c).data for c in ("chains", "stretches"))
        varies = ~np.isnan(between[..., 2])
        rhat, worst = hamming_rhat(draws)
        words, counts = np.unique(columns["verdict"], return_counts=True)
        of_elements = sorted(zip(counts, words, strict=True), reverse=True)
        rows[str(name)] = {
            "elements": int(np.prod(draws.shape[2:], dtype=int)),
            "moved": any_moved(draws.data),
            "ess": hamming_ess(draws),
            "rhat": rhat,
            "worst ess": least(columns["ess"]),
            "worst rhat": worst,
            "rejected between": share_rejected(between[..., 3]),
            "rejected within": share_rejected(within[..., 3]),
            "too few": float(np.isnan(between[..., 3])[varies].mean()) if varies.any() else np.nan,
            "verdict": ", ".join(f"{count} {word}" for count, word in of_elements),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def least(values: np.ndarray) -> float:
    """The smallest number that is not nan; nan if there is none."""
    known = values[~np.isnan(values)]
    return float(known.min()) if len(known) else np.nan


def row_names(draws: xr.DataArray) -> Iterator[str]:
    """The name of each element: `z`, or `z[a, b]` with its coordinates."""
    axes = labels_in_draws(draws)
    for place in product(*(range(len(a)) for a in axes)):
        yield element_name(str(draws.name), axes, place)
