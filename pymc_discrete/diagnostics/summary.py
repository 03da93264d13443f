"""Tables of what the draws of discrete variables say: of each element, and of each variable as a whole."""

import json
from collections.abc import Hashable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.chi_square import chi_square, share_rejected
from pymc_discrete.diagnostics.draws import (
    DISCRETE,
    Counts,
    batches,
    checked,
    counted,
    lp_of,
    per_element,
    posterior_of,
)
from pymc_discrete.diagnostics.effective import ess_of_indicators, ess_of_mean, hamming_ess
from pymc_discrete.diagnostics.indicators import indicators
from pymc_discrete.diagnostics.orders import in_one_order, orders_of
from pymc_discrete.diagnostics.rhat import categorical_rhat, hamming_rhat, rhat_of_indicators
from pymc_discrete.diagnostics.verdicts import RHAT, Movement, known_of, verdicts

if TYPE_CHECKING:
    import pandas as pd

FEW = 8  # each of up to so many values, not further from 0, has a column; others are taken for counts
MOST = 0.95  # share of elements that must mix for the others to be no matter
QUANTILES = {"5%": 0.05, "median": 0.5, "95%": 0.95}


def summary(idata: Any, var_names: str | list[str] | None = None) -> "pd.DataFrame":
    """What the draws of discrete variables say, a row for each element.

    A variable with up to 8 values, from -8 to 8, has the probability of each; others are taken for counts,
    and have mean and quantiles. So has a Deterministic with other values than 0, 1 and those of the variables
    that the model draws, where the result says which these are.

    Parameters
    ----------
    idata : DataTree with a group posterior, of `pmd.sample` or `pm.sample`, or Dataset
    var_names : names of discrete variables; all variables of integers by default

    Returns
    -------
    pandas.DataFrame
        mode, P(mode)
            the commonest value, and its probability
        mcse P(mode)
            the Monte Carlo standard error of that: the root of P (1 - P) / ESS of 1[z = mode]
        entropy
            of the shares of all values, nats
        moved
            the share of draws that differ from the one before
        ess, rhat
            see `diagnostics.categorical_ess` and `diagnostics.categorical_rhat`; nan where nothing varies
        verdict
            ``ok``; ``fixed``, with one possible value; ``certain``, one value in all chains, as was to be
            expected; ``constant``, one value in all chains, without knowing how probable others are;
            ``labels``, chains or draws agree once labels are permuted; ``apart``, no chain moved and they
            differ; ``stuck``, a chain never moved though it should have; ``slow``, an R-hat above 1.01 or
            fewer than 100 effective draws for each chain
        P(k), mcse P(k)
            the probability of value k
        mean, mcse mean, 5%, median, 95%
            of counts; nan for others, as P(k) is for counts

    Raises
    ------
    ValueError
        If a name is not in the posterior, a variable is not of integers, or there are fewer than 4 draws.
    """
    import pandas as pd  # imported only here, as that takes long

    tree = idata if isinstance(idata, xr.DataTree) else None
    posterior = posterior_of(idata, var_names)
    frames, of_names = [], values_with_columns(posterior)
    for name, draws in posterior.data_vars.items():
        columns = columns_of(posterior, tree, str(name), draws, of_names[str(name)])
        frames.append(pd.DataFrame(columns, index=list(row_names(draws))))
    table = pd.concat(frames) if frames else pd.DataFrame()
    few = [c for c in table.columns if c.startswith(("P(", "mcse P(")) and not c.endswith("(mode)")]
    first = ["mode", "P(mode)", "mcse P(mode)", "entropy", "moved", "ess", "rhat", "verdict"]
    counts = [c for c in table.columns if c not in (*first, *few)]
    return table[
        [*first, *sorted(few, key=lambda c: (int(c.split("(")[1][:-1]), c.startswith("mcse"))), *counts]
    ]


def summary_of_vectors(idata: Any, var_names: str | list[str] | None = None) -> "pd.DataFrame":
    """What the draws of discrete variables say of each variable as a whole, a row for each variable.

    Parameters
    ----------
    idata, var_names : as in `summary`

    Returns
    -------
    pandas.DataFrame
        elements
            their number
        moved
            the share of draws in which any element differs from the draw before
        ess, rhat
            of the vector, by Hamming distances: see `diagnostics.hamming_ess` and `diagnostics.hamming_rhat`
        worst ess, worst rhat
            of the worst element, `ess` being that of categories
        rejected between, rejected within, too few
            the share of elements, among those with a p-value, that `diagnostics.chi_square` rejects at a
            false discovery rate of 5 %, between chains and from the begin of chains to their end; the share
            of those that vary and have too few effective draws for a p-value between chains
        verdict
            how many elements have each verdict of `summary`, the most frequent first

    Raises
    ------
    ValueError
        As `summary`.
    """
    import pandas as pd  # imported only here, as that takes long

    tree = idata if isinstance(idata, xr.DataTree) else None
    posterior = posterior_of(idata, var_names)
    rows = {}
    for name, draws in posterior.data_vars.items():
        columns = columns_of(posterior, tree, str(name), draws)
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


def moved(data: Any, var_names: str | list[str] | None = None) -> Any:
    """The share of draws of each element that differ from the draw before.

    Parameters
    ----------
    data : array (chains, draws, ...) of integers, DataArray, Dataset, or DataTree with a group posterior
    var_names : names of discrete variables of a Dataset or DataTree; all of them by default

    Returns
    -------
    What was given without the axes of chains and draws, from 0 to 1
    """
    return per_element(lambda x: moves_of(x).mean(axis=1) / (x.shape[2] - 1), data, var_names)


def least(values: np.ndarray) -> float:
    """The least number that is not nan, or nan."""
    known = values[~np.isnan(values)]
    return float(known.min()) if len(known) else np.nan


def any_moved(draws: np.ndarray) -> float:
    """The share of draws (chains, draws, ...) in which any element differs from the draw before."""
    changed = np.zeros((draws.shape[0], draws.shape[1] - 1), bool)
    for x in batches(draws):
        changed |= (x[..., 1:] != x[..., :-1]).any(axis=0)
    return float(changed.mean())


def moves_of(x: np.ndarray) -> np.ndarray:
    """(sites, chains) int, how many draws of x (sites, chains, draws) differ from the one before."""
    return np.count_nonzero(x[..., 1:] != x[..., :-1], axis=2)


def row_names(draws: xr.DataArray) -> Iterator[str]:
    """The name of each element: `z`, or `z[a, b]` with its coordinates."""
    dims = draws.dims[2:]
    if not dims:
        yield str(draws.name)
        return
    axes = [draws.coords[d].values if d in draws.coords else range(draws.sizes[d]) for d in dims]
    for where in product(*axes):
        yield f"{draws.name}[{', '.join(map(str, where))}]"


class OfBatch(NamedTuple):
    """The statistics of a batch: columns (sites,), and what verdicts need."""

    columns: dict[str, np.ndarray]
    begin: np.ndarray
    moves: np.ndarray


def columns_of(
    posterior: xr.Dataset,
    tree: xr.DataTree | None,
    name: Hashable,
    draws: xr.DataArray,
    values: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """{column: (elements,)} of one variable, with P(k) for k in `values`, or with those of a count."""
    data = checked(draws.data)
    parts = [of_batch(x, values) for x in batches(data)]
    if not parts:
        return {}
    columns = {c: np.concatenate([part.columns[c] for part in parts]) for c in parts[0].columns}
    begin, moves = (np.concatenate([getattr(part, a) for part in parts]).T for a in ("begin", "moves"))
    movement = Movement(begin, moves, data.shape[1])
    known = known_of(posterior, tree, str(name))
    found = verdicts(movement, columns["rhat"], columns["ess"], known)
    if np.isin(found, ("apart", "stuck", "slow")).any():
        orders, switch = labels_of(data, tree)
        found = verdicts(movement, columns["rhat"], columns["ess"], known, orders, switch)
    return {**columns, "verdict": found}


def labels_of(data: np.ndarray, tree: xr.DataTree | None) -> tuple[np.ndarray | None, bool]:
    """The permutations of the labels of chains, see `orders_of`, and whether labels switch within chains."""
    if data.ndim < 3:
        return None, False
    lp = None if tree is None else lp_of(tree)
    lp = np.zeros((len(data), 1)) if lp is None else lp
    orders = orders_of([data], lp)
    return orders, orders is None and labels_switch(data, lp)


def labels_switch(data: np.ndarray, lp: np.ndarray) -> bool:
    """Whether the draws (chains, draws, ...) mix once the labels of each of them are permuted.

    lp : (chains, draws) float, log densities, nats
    """
    permuted = in_one_order(data, lp)
    if permuted is None:
        return False
    rhat = categorical_rhat(permuted)
    return bool((rhat[~np.isnan(rhat)] <= RHAT).mean() >= MOST)


def values_with_columns(posterior: xr.Dataset) -> dict[str, np.ndarray | None]:
    """{variable: the values whose probabilities have a column}, None for a count.

    A table is not made wider, by columns that are nan in all other rows, for a Deterministic such as a sum.
    """
    found = {str(name): values_of(checked(draws.data)) for name, draws in posterior.data_vars.items()}
    few = {name: v for name, v in found.items() if len(v) <= FEW and (abs(v) <= FEW).all()}
    drawn = set(json.loads(posterior.attrs[DISCRETE])) if DISCRETE in posterior.attrs else set(found)
    of_drawn = [v for name, v in few.items() if name in drawn]
    if of_drawn:
        usual = np.unique(np.concatenate([[0, 1], *of_drawn]))
        few = {name: v for name, v in few.items() if name in drawn or np.isin(v, usual).all()}
    return {name: few.get(name) for name in found}


def values_of(data: np.ndarray) -> np.ndarray:
    """The values in draws (chains, draws, ...), ascending; of many only the first `FEW` and one more."""
    values = np.zeros(0, int)
    for x in batches(data):
        values = np.union1d(values, counted(x).values)
        if len(values) > FEW:
            break
    return values


def of_batch(x: np.ndarray, values: np.ndarray | None) -> OfBatch:
    """The statistics of a batch x (sites, chains, draws).

    Parameters
    ----------
    values : the values of the variable, if each has a column
    """
    counts = counted(x)
    p, sites = counts.p, len(x)
    found = indicators(counts, every=values is not None)
    ess = ess_of_indicators(x, found)
    mode = p.argmax(axis=1)
    highest = p[np.arange(sites), mode]
    errors = errors_of(counts, found.site, found.first, found.last, ess)
    columns = {
        "mode": counts.values[mode],
        "P(mode)": highest,
        "mcse P(mode)": errors[np.arange(sites), mode],
        "entropy": -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) + 0.0,
        "moved": moves_of(x).mean(axis=1) / (x.shape[2] - 1),
        "ess": found.least(ess, sites),
        "rhat": found.greatest(rhat_of_indicators(counts.shares_of_halves, counts.half, found), sites),
    }
    if values is not None:
        for v in values:
            k = np.flatnonzero(counts.values == v)
            columns[f"P({v})"] = p[:, k[0]] if len(k) else np.zeros(sites)
            columns[f"mcse P({v})"] = errors[:, k[0]] if len(k) else np.full(sites, np.nan)
    else:
        mean = p @ counts.values
        deviation = np.sqrt(np.maximum(p @ (counts.values.astype(float) ** 2) - mean**2, 0.0))
        below = np.cumsum(p, axis=1)
        of_mean = ess_of_mean(x.astype(float) - mean[:, None, None])
        columns |= {"mean": mean, "mcse mean": deviation / np.sqrt(of_mean)}
        columns |= {c: counts.values[(below >= q - 1e-12).argmax(axis=1)] for c, q in QUANTILES.items()}
    return OfBatch(columns, x[..., 0], moves_of(x))


def errors_of(
    counts: Counts, site: np.ndarray, first: np.ndarray, last: np.ndarray, ess: np.ndarray
) -> np.ndarray:
    """(sites, V) float, Monte Carlo standard errors of the probabilities; nan where the ESS is not known.

    Parameters
    ----------
    site, first, last, ess : (rows,), of indicators
    """
    p = counts.p
    errors = np.full(p.shape, np.nan)
    single = first == last
    site, k, n = site[single], first[single], ess[single]
    errors[site, k] = np.sqrt(p[site, k] * (1.0 - p[site, k]) / n)
    # of a site with two values the other indicator is 1 less this one
    two = (p > 0).sum(axis=1) == 2
    error = np.where(np.isnan(errors), 0.0, errors).max(axis=1)
    return np.where(two[:, None] & (p > 0), error[:, None], errors)
