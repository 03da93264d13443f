"""The probability that two sites have the same label: a summary that does not depend on the names
of labels."""

from itertools import pairwise

import numpy as np
import xarray
from xarray import DataTree

from pymc_discrete.diagnostics.labels.draws_of_labels import chunks, in_one_table, labels_of, partitions

LARGEST_COCLUSTERING = 2**31  # the number of bytes that the matrix may take
# Draws are added to the matrix of coclustering in chunks whose arrays have at most this number of elements.
PRODUCTS_AT_ONCE = 1 << 25


def coclustering(idata: DataTree, z: str) -> xarray.DataArray:
    r"""P(z_i = z_j), the probability that two sites have the same label, for all pairs of sites.

    It is the share of the draws of all chains with :math:`z_i = z_j`, and does not depend on the names of the
    labels: labels that were switched do not matter, and labels may be any integers.

    Parameters
    ----------
    idata : DataTree
        Draws by `pm.sample`, `pmd.sample` or any other sampler, with a group ``posterior``.
    z : str
        The variable of labels, with one label per site.

    Returns
    -------
    xarray.DataArray
        The dimensions of `z` twice, with their coordinates; the second time their names end in ``_other``:
        (obs, obs_other) for a variable with the dimension obs. Its values are between 0 and 1, and 1 on the
        diagonal.

    Raises
    ------
    TypeError
        If `idata` is no DataTree with a group ``posterior``, or `z` no string.
    ValueError
        If there is no such variable, if it is a scalar or does not hold integers, or if the matrix would
        take more than 2 GiB.

    Notes
    -----
    The matrix is a sum over draws of H^T H, where a row of H says for each site whether it is in one of the
    draw's clusters. Binder, Biometrika 65 (1978); Fritsch and Ickstadt, Bayesian Analysis 4 (2009).

    Examples
    --------
    >>> together = pmd.coclustering(idata, "z")  # doctest: +SKIP
    >>> together.sel(obs="a", obs_other="b")  # doctest: +SKIP
    """
    labels = labels_of(idata, z, "pmd.coclustering")
    draws = in_one_table(labels)
    check_size(z, labels, draws.shape[1], "pmd.coclustering")
    matrix = together(draws).reshape(labels.shape[2:] * 2)
    dims = [str(d) for d in labels.dims[2:]]
    coords = {d: labels[d].values for d in dims if d in labels.coords}
    coords |= {f"{d}_other": values for d, values in coords.items()}
    return xarray.DataArray(matrix, coords, [*dims, *(f"{d}_other" for d in dims)], "coclustering")


def check_size(z: str, labels: xarray.DataArray, n: int, function: str) -> None:
    """Raise a ValueError if a matrix (n, n) would be larger than `LARGEST_COCLUSTERING` bytes."""
    size = 8 * n**2
    if size <= LARGEST_COCLUSTERING:
        return
    dim, step = labels.dims[2], -(-n // int((LARGEST_COCLUSTERING / 8) ** 0.5))
    raise ValueError(
        f"{z!r} has {n} sites, and P(z_i = z_j) of all pairs would take {size / 2**30:.1f} GiB. Take some of "
        f"the sites: {function}(idata.isel({{{dim!r}: slice(None, None, {step})}}), {z!r})."
    )


def together(labels: np.ndarray) -> np.ndarray:
    """(n, n) float, the share of draws (draws, n) in which two sites have equal labels."""
    draws, n = labels.shape
    total = np.zeros((n, n))
    for rows in chunks(draws, n):
        clusters = partitions(labels[rows])
        sizes = clusters.max(axis=1) + 1
        # H says which sites are in which cluster: it has a row for each cluster of each draw, and a column
        # for each site. The array `row` has the row of each site's cluster in each draw.
        row = clusters + (np.cumsum(sizes) - sizes)[:, None]
        # float32 counts exactly, because `rows` are far fewer than 2^24 draws
        for part in within(sizes, n):
            first, last = row[part].min(), row[part].max()
            H = np.zeros((last - first + 1, n), np.float32)
            H[row[part] - first, np.arange(n)] = 1
            for sites in chunks(n, n, PRODUCTS_AT_ONCE):
                whole = sites.stop - sites.start == n
                total[sites] += H.T @ H if whole else H[:, sites].T @ H
    return total / draws


def within(sizes: np.ndarray, n: int) -> list[slice]:
    """Ranges of draws such that the matrix (clusters of all draws in the range, n) has about
    `PRODUCTS_AT_ONCE` elements.
    """
    batch = (np.cumsum(sizes) - sizes) * n // PRODUCTS_AT_ONCE
    starts = [0, *(np.flatnonzero(np.diff(batch)) + 1), len(sizes)]
    return [slice(int(a), int(b)) for a, b in pairwise(starts)]
