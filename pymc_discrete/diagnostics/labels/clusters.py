"""Partitions described by numbers that do not depend on the names of the labels."""

import json
from collections.abc import Sequence

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.draws import PARTITIONS_ATTRIBUTE
from pymc_discrete.diagnostics.labels.draws_of_labels import chunks


def recorded_partitions(posterior: xr.Dataset) -> list[str]:
    """The variables of a posterior that the result records as partitions."""
    return [n for n in json.loads(posterior.attrs.get(PARTITIONS_ATTRIBUTE, "[]")) if n in posterior]


def number_name(name: str) -> str:
    """The name, in tables, of the number of clusters of a partition."""
    return f"clusters of {name}"


def without_names(posterior: xr.Dataset, partitions: Sequence[str]) -> xr.Dataset:
    """A posterior where a partition has, for each site, the size of the site's cluster in place of its label.

    A variable with the number of clusters of each draw comes before it. Different partitions may have the
    same sizes: see `first_sites`.
    """
    new: dict[str, xr.DataArray] = {}
    for name in posterior.data_vars:
        draws = posterior[name]
        if name in partitions and draws.size:
            draws = draws.transpose("chain", "draw", ...)
            sizes, number = sizes_of_clusters(draws.data)
            new[number_name(str(name))] = xr.DataArray(number, {"chain": draws.chain, "draw": draws.draw})
            draws = draws.copy(data=sizes)
        new[str(name)] = draws
    return posterior.assign(new)[[*new]]


def first_sites(labels: np.ndarray) -> np.ndarray:
    """For each site the first site of its cluster, which does not depend on how the clusters are numbered.

    Parameters
    ----------
    labels : (chains, draws, sites) int, not below 0
    """
    flat = labels.reshape(-1, labels.shape[-1])
    found, sites, width = np.empty(flat.shape, np.int64), np.arange(flat.shape[-1]), int(flat.max()) + 1
    for rows in chunks(len(flat), max(flat.shape[-1], width)):
        some = flat[rows].astype(np.int64)
        of_labels = np.full((len(some), width), len(sites))
        np.minimum.at(of_labels, (np.arange(len(some))[:, None], some), sites)
        found[rows] = np.take_along_axis(of_labels, some, axis=1)
    return found.reshape(labels.shape)


def sizes_of_clusters(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each site the number of sites with the same label, and the number of labels in use.

    Parameters
    ----------
    labels : (chains, draws, sites) int, not below 0

    Returns
    -------
    sizes : (chains, draws, sites) int
    number : (chains, draws) int
    """
    flat = labels.reshape(-1, labels.shape[-1])
    sizes, number, width = np.empty(flat.shape, np.int64), np.empty(len(flat), np.int64), int(flat.max()) + 1
    for rows in chunks(len(flat), max(flat.shape[-1], width)):
        some = flat[rows].astype(np.int64)
        of_labels = np.zeros((len(some), width), np.int64)
        np.add.at(of_labels, (np.arange(len(some))[:, None], some), 1)
        sizes[rows] = np.take_along_axis(of_labels, some, axis=1)
        number[rows] = (of_labels > 0).sum(axis=1)
    return sizes.reshape(labels.shape), number.reshape(labels.shape[:2])
