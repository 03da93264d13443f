"""The group `probabilities`: means of p(z_i = k | everything else) for sites that are summed out.

Its variables are arrays (chain, <dims>, value), with the values of the variable as coordinates.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import arviz_base
import numpy as np
import xarray

from pymc_discrete.space.space import Space

# for a variable without bounds, values whose probability is smaller than this at all sites are left out
NEVER = 1e-12


def dataset(
    space: Space,
    first: np.ndarray,
    means: Sequence[np.ndarray],
    partial: np.ndarray,
    coords: Mapping[str, Any],
    dims: Mapping[str, Iterable[str | None]],
) -> xarray.Dataset:
    """The group of the mean probabilities of a block's sites.

    Parameters
    ----------
    first : (chains, d) int, the first value of each site whose probability is known
    means : [(chains, size, K)], one for each variable of the space: the mean probabilities of K values
    partial : (d,) bool, the sites that may also have values whose probability is not known
    coords, dims : the coordinates and dimensions of the model, in the form of `arviz_base.from_dict`

    Returns
    -------
    xarray.Dataset
        For each variable NAME of the model an array (chain, <dims>, "NAME value"), and, where some of its
        sites are `partial`, "NAME outside" (chain, <dims>), the probability of all values together whose own
        probability the chain does not know. In the array such a value is nan for this chain; it has a place
        on the axis where another chain or site knows its probability.
    """
    arrays: dict[str, xarray.DataArray] = {}
    blocks = space.blocks
    for m in space.members:
        if not m.size:
            continue
        start, mean = next(
            (start, mean)
            for (start, v), mean in zip(blocks, means, strict=True)
            if start <= m.start < start + v.size
        )
        here = slice(m.start, m.start + m.size)
        axis, p = on_one_axis(
            first[:, here],
            mean[:, m.start - start : m.start - start + m.size],
            partial[here],
            (int(space.lower[here].min()), int(space.upper[here].max())),
        )
        name, chains = f"{m.name} value", np.arange(len(p))
        names = named_dims(m.name, m.shape, dims)
        known = {"chain": chains} | {n: list(coords[n]) for n in names if coords.get(n) is not None}
        arrays[m.name] = xarray.DataArray(
            p.reshape(len(p), *m.shape, len(axis)), {**known, name: axis}, ["chain", *names, name]
        )
        if partial[here].any():
            outside = np.maximum(1.0 - p.sum(-1), 0.0).reshape(len(p), *m.shape)
            arrays[f"{m.name} outside"] = xarray.DataArray(outside, known, ["chain", *names])
    return xarray.Dataset(arrays, attrs=arviz_base.base.make_attrs())


def on_one_axis(
    first: np.ndarray, p: np.ndarray, partial: np.ndarray, bounds: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of consecutive values, which begin at a different value for each site, on one axis of
    values.

    Parameters
    ----------
    first : (chains, n) int, the first value of each site
    p : (chains, n, K), the probabilities of K values of each site; nan for a site whose probabilities are
        unknown
    partial : (n,) bool, the sites that may also have values beyond these K, of unknown probability
    bounds : the first and the last value of the axis. If some site is partial, the axis has instead only the
        values whose probability exceeds NEVER, or is not known, at some site.

    Returns
    -------
    axis : (m,) int, the values
    placed : (chains, n, m), nan where the probability is not known
    """
    every = None if partial.any() else np.arange(bounds[0], bounds[1] + 1)
    if every is not None and (first == bounds[0]).all() and p.shape[-1] == len(every):
        return every, p
    values = first[..., None] + np.arange(p.shape[-1])
    unknown = np.isnan(p)
    axis = np.unique(values[(p > NEVER) | unknown]) if every is None else every
    where = np.minimum(np.searchsorted(axis, values), len(axis) - 1)
    chain, site, k = np.nonzero(axis[where] == values)
    placed = np.zeros((*first.shape, len(axis)))
    placed[:, partial] = np.nan
    placed[chain, site, where[chain, site, k]] = p[chain, site, k]
    placed[unknown.any(axis=2)] = np.nan
    return axis, placed


def named_dims(name: str, shape: Sequence[int], dims: Mapping[str, Iterable[str | None]]) -> list[str]:
    """The names of a variable's axes: the model's names, or ArviZ's for axes without a name."""
    given = [*(dims.get(name) or ())]
    given += [None] * (len(shape) - len(given))
    return [n or f"{name}_dim_{axis}" for axis, n in enumerate(given[: len(shape)])]
