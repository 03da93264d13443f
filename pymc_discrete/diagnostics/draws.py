"""The draws that the statistics are computed from, and how they are read in batches.

A batch is an array (sites, chains, draws): some elements of a variable, copied so that the draws of one chain
lie together. A whole variable is never copied.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.thresholds import FEWEST_DRAWS
from pymc_discrete.runtime.checks import check_result
from pymc_discrete.runtime.names import shown

# the attribute of a posterior, a list in JSON, that names the discrete variables which the model draws
DISCRETE_ATTRIBUTE = "discrete_variables"
# the attribute that names the discrete variables which are partitions: only the equality of their labels has
# a meaning
PARTITIONS_ATTRIBUTE = "partitions"
# the attribute that names the variables for which the result has counts in place of draws, see
# `engine.counts`
COUNTED_ATTRIBUTE = "counted_variables"
# the number of draws, over all sites and chains of a batch, so that a batch stays in the processor's cache
DRAWS_OF_BATCH = 2**18
DENSE = 256  # where the values of a batch span more than this range, each site is counted by itself


def posterior_of(data: Any, var_names: str | list[str] | None = None) -> xr.Dataset:
    """The discrete variables of a result, with the axes chain and draw first.

    Parameters
    ----------
    data : DataTree with a group posterior, or Dataset
    var_names : names of discrete variables; by default all of them, except variables of which a part was
        observed: for such a variable `x`, PyMC draws `x_unobserved`

    Raises
    ------
    TypeError
        If `data` is neither a DataTree nor a Dataset.
    ValueError
        For names that are not in the posterior, variables that are not integers, and if there are no discrete
        variables.
    """
    if not isinstance(data, xr.Dataset):
        check_result(data, "pmd.summary(idata)")
        data = data["posterior"].to_dataset()
    kinds = {str(name): data[name].dtype.kind in "biu" for name in data.data_vars}
    names = [var_names] if isinstance(var_names, str) else var_names
    if names is None:
        names = [name for name, discrete in kinds.items() if discrete and f"{name}_unobserved" not in kinds]
        if not names:
            raise ValueError(
                f"The posterior has no discrete variables, only {shown(list(kinds))}. Use arviz.summary."
            )
    if missing := [name for name in names if name not in kinds]:
        why = why_missing(data, missing)
        raise ValueError(f"The posterior has no {shown(missing)}. It has {shown(list(kinds))}.{why}")
    if real := [name for name in names if not kinds[name]]:
        raise ValueError(
            f"{shown(real)} {'is' if len(real) == 1 else 'are'} not of integers "
            f"({data[real[0]].dtype}), and these statistics are about discrete variables. Use "
            "arviz.summary, or convert whole numbers with astype(int)."
        )
    return data[names].transpose("chain", "draw", ...)


def labels_in_draws(draws: xr.DataArray) -> list[Any]:
    """The labels of each axis of draws (chain, draw, ...): coordinates, or indices where there are none."""
    return [draws.coords[d].values if d in draws.coords else range(draws.sizes[d]) for d in draws.dims[2:]]


def lp_of(tree: xr.DataTree) -> np.ndarray | None:
    """(chains, draws) float, the log densities of a result, nats; None if it has none.

    pm.sample records a column for each step that reports a log density, and only the last column has values.
    """
    if "sample_stats" not in tree.children or "lp" not in tree["sample_stats"]:
        return None
    lp = tree["sample_stats"]["lp"].transpose("chain", "draw", ...).data
    return lp if lp.ndim == 2 else lp.reshape(*lp.shape[:2], -1)[..., -1]


def per_element(
    statistic: Callable[[np.ndarray], np.ndarray],
    data: Any,
    var_names: str | list[str] | None = None,
    more: dict[str, list[str]] | None = None,
) -> Any:
    """A statistic of every element of the draws: an array if `data` is one, otherwise with coordinates.

    Parameters
    ----------
    statistic : function of a batch (sites, chains, draws), which returns (sites, ...) float
    data : array (chains, draws, ...) of integers, DataArray, Dataset, or DataTree with a group posterior
    var_names : names of discrete variables of a Dataset or DataTree; all of them by default
    more : {name: coordinates} of the axes that the statistic adds at the end
    """
    more = more or {}
    if isinstance(data, xr.DataArray):
        name = str(data.name or "draws")
        dataset = posterior_of(data.to_dataset(name=name))
        return per_element(statistic, dataset, more=more)[name]
    if isinstance(data, xr.Dataset | xr.DataTree):
        posterior = posterior_of(data, var_names)

        def of_variable(draws: xr.DataArray) -> xr.DataArray:
            known = {d: c for d, c in draws.coords.items() if not {"chain", "draw"} & {d, *c.dims}}
            values = per_element(statistic, draws.data, more=more)
            return xr.DataArray(values, {**known, **more}, [*draws.dims[2:], *more])

        return xr.Dataset({name: of_variable(draws) for name, draws in posterior.data_vars.items()})
    draws = checked_draws(np.asarray(data))
    parts = [statistic(batch) for batch in batches(draws)]
    shape = (*draws.shape[2:], *(len(c) for c in more.values()))
    return np.concatenate(parts).reshape(shape) if parts else np.zeros(shape)


def checked_draws(draws: np.ndarray) -> np.ndarray:
    """The draws, after a check that they are an array (chains, draws, ...) of integers with at least 4 draws.

    Raises
    ------
    ValueError
    """
    if draws.ndim < 2 or draws.dtype.kind not in "biu":
        raise ValueError(
            f"Draws must be an array (chains, draws, ...) of integers, got {draws.dtype} of shape "
            f"{draws.shape}. Convert whole numbers with astype(int)."
        )
    if draws.shape[1] < FEWEST_DRAWS:
        raise ValueError(
            f"At least {FEWEST_DRAWS} draws of each chain are needed, got {draws.shape[1]}. Sample longer."
        )
    return draws


def some_elements(draws: np.ndarray, at_once: int) -> Iterator[np.ndarray]:
    """The elements of draws (chains, draws, ...), in arrays (chains, draws, n) of about `at_once` numbers."""
    chains, count, *shape = draws.shape
    size, n = int(np.prod(shape, dtype=int)), max(at_once // (chains * count), 1)
    for first in range(0, size, n):
        index = np.unravel_index(np.arange(first, min(first + n, size)), shape) if shape else (None,)
        yield draws[(slice(None), slice(None), *index)]


def batches(draws: np.ndarray) -> Iterator[np.ndarray]:
    """The elements of draws (chains, draws, ...), in batches (sites, chains, draws) of bounded size."""
    for batch in some_elements(draws, DRAWS_OF_BATCH):
        x = np.ascontiguousarray(np.moveaxis(batch, 2, 0))
        x = x.astype(np.int8) if x.dtype == bool else x
        if int(x.max()) - int(x.min()) < DENSE:
            yield x
        else:
            yield from x[:, None]


class Counts(NamedTuple):
    """The numbers of times that the sites of a batch have each value.

    Attributes
    ----------
    values : (V,) int, ascending
    of_chains : (sites, chains, V) int, in each chain
    of_halves : (sites, 2 chains, V) int, in the first and in the second half of each chain; if the number of
        draws is odd, the draw in the middle is left out, as in `arviz_stats`
    half : number of draws of a half
    """

    values: np.ndarray
    of_chains: np.ndarray
    of_halves: np.ndarray
    half: int

    @property
    def p(self) -> np.ndarray:
        """(sites, V) float, the share of each value in all draws."""
        total = self.of_chains.sum(axis=1)
        return total / total.sum(axis=1, keepdims=True)

    @property
    def shares_of_halves(self) -> np.ndarray:
        """(sites, 2 chains, V) float, the share of each value in each half of each chain."""
        return self.of_halves / self.half


def counted(x: np.ndarray) -> Counts:
    """The counts of a batch x (sites, chains, draws)."""
    low, high = int(x.min()), int(x.max())
    values = np.arange(low, high + 1) if high - low < DENSE else np.unique(x)
    half = x.shape[2] // 2
    first, last = counts_of_values(x[..., :half], values), counts_of_values(x[..., -half:], values)
    of_chains = first + last
    if x.shape[2] % 2:
        of_chains = of_chains + counts_of_values(x[..., half : half + 1], values)
    present = of_chains.any(axis=(0, 1))
    halves = np.concatenate([first, last], axis=1)
    return Counts(values[present], of_chains[..., present], halves[..., present], half)


def counts_of_values(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(sites, chains, V) int, how often x (sites, chains, draws) has each of the ascending values."""
    V = len(values)
    if V <= 4:
        return np.stack([np.count_nonzero(x == v, axis=2) for v in values], axis=2)
    place = np.searchsorted(values, x) if len(x) == 1 else x.astype(np.intp) - int(values[0])
    row = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], 1)
    return np.bincount((place + V * row).ravel(), minlength=V * row.size).reshape(*x.shape[:2], V)


def in_halves(y: np.ndarray) -> np.ndarray:
    """(rows, 2 chains, draws / 2), the first and the second half of each chain of y (rows, chains, draws)."""
    half = y.shape[2] // 2
    return np.concatenate([y[..., :half], y[..., -half:]], axis=1)


def name_of_totals(name: str) -> str:
    """The name under which a result counts, in each draw, how many elements of a variable have each value."""
    return f"{name} counts"


def names_not_kept(posterior: Any) -> list[str]:
    """The variables for which a result has counts in place of draws."""
    return list(json.loads(posterior.attrs.get(COUNTED_ATTRIBUTE, "[]")))


def why_missing(posterior: Any, names: Sequence[str]) -> str:
    """The end of an error message about variables that a posterior lacks: it names those for which the result
    has counts in place of draws.

    The text is empty if there are no such variables.
    """
    if counted := [name for name in names if name in names_not_kept(posterior)]:
        return (
            f" Draws of {shown(counted)} were not kept, since that is large: name it in var_names= of "
            "pmd.sample, beside all else that is to be kept."
        )
    return ""
