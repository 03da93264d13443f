"""Draws of a variable whose values are labels of sites, checked; and the partitions of sites in the draws."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray

from pymc_discrete.diagnostics.draws import why_missing
from pymc_discrete.runtime.checks import check_result
from pymc_discrete.runtime.names import shown

CHUNK = 1 << 20  # the number of labels that are processed at once, so that they stay in the processor's cache


def labels_of(idata: Any, name: Any, function: str) -> xarray.DataArray:
    """The draws (chain, draw, ...) of the variable `name`; errors name the `function` that needs them.

    Raises
    ------
    TypeError
        If `idata` is no DataTree with a group ``posterior``, or `name` no string.
    ValueError
        If there is no such variable, if it is a scalar, or if its draws are not integers.
    """
    call = f"{function}(idata, 'z')"
    check_result(idata, call)
    if not isinstance(name, str):
        raise TypeError(f"The variable must be given by its name, got {name!r}: {call}.")
    posterior = idata["posterior"]
    if name not in posterior.data_vars:
        raise ValueError(
            f"The posterior has no variable {name!r}; it has {shown(map(str, posterior.data_vars))}."
            f"{why_missing(posterior, [name])}"
        )
    labels = posterior[name].transpose("chain", "draw", ...)
    if labels.dtype.kind not in "iub":
        raise ValueError(
            f"{name!r} is no variable of labels: its draws are {labels.dtype}, not integers. Pass the name "
            "of the discrete variable that says where each site belongs."
        )
    if labels.ndim == 2:
        raise ValueError(
            f"{name!r} is a scalar, and {function} compares the labels of several sites. Pass a variable "
            "with one label per site."
        )
    # Labels are used as indices and added to signed integers; a sum with uint64 would be a float.
    if labels.dtype.kind != "i":
        labels = labels.astype(np.int64)
    if not labels.size:
        raise ValueError(f"{name!r} has no draws: its shape is {labels.shape}.")
    return labels


def in_one_table(labels: xarray.DataArray) -> np.ndarray:
    """(chains * draws, sites) int, if possible a view of labels (chain, draw, ...)."""
    chains, draws = labels.shape[:2]
    return np.asarray(labels.values).reshape(chains * draws, -1)


def chunks(draws: int, size: int, most: int = CHUNK) -> Iterator[slice]:
    """Consecutive ranges of draws with at most `most` numbers, of `size` per draw."""
    step = max(1, most // max(size, 1))
    return (slice(start, min(start + step, draws)) for start in range(0, draws, step))


def partitions(labels: np.ndarray) -> np.ndarray:
    """Each draw's clusters numbered 0, 1, ... in the order of their first sites.

    Two draws have the same row if and only if the same sites have equal labels in both.

    Parameters
    ----------
    labels : (draws, n) integers of any values

    Returns
    -------
    (draws, n) int16, int32 for many sites
    """
    n = labels.shape[1]
    found = np.empty(labels.shape, np.int16 if n < 2**15 else np.int32)
    for rows in chunks(*labels.shape):
        some = labels[rows]
        # sorted by their labels, the sites of each cluster follow one another, the cluster's first site first
        order = np.argsort(some, axis=1, kind="stable")
        in_order = np.take_along_axis(some, order, axis=1)
        begins = np.ones(some.shape, bool)
        begins[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
        begin = np.maximum.accumulate(np.where(begins, np.arange(n), 0), axis=1)
        first = np.empty_like(order)  # the first site of each site's cluster
        np.put_along_axis(first, order, np.take_along_axis(order, begin, axis=1), axis=1)
        number = np.cumsum(first == np.arange(n), axis=1) - 1
        found[rows] = np.take_along_axis(number, first, axis=1)
    return found
