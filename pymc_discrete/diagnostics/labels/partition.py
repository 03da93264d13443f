"""One partition of the sites as a summary of all draws: a point estimate of which sites belong together."""

import numpy as np
import xarray
from xarray import DataTree

from pymc_discrete.diagnostics.labels.coclustering import check_size, together
from pymc_discrete.diagnostics.labels.draws_of_labels import chunks, in_one_table, labels_of, partitions
from pymc_discrete.runtime.checks import check_choice

LOSSES = ("VI", "Binder")
PARTITION_CANDIDATES = 50  # the number of evenly spaced draws among which the search begins
STARTS = 3  # the number of candidates, the best ones, that are improved by moves of single sites
LARGEST_CLUSTER_TABLE = 2**30  # the number of bytes that the table of the clusters of all draws may take
ROUNDING = 1e-12  # a smaller change of the loss counts as no change


def partition(idata: DataTree, z: str, loss: str = "VI") -> xarray.DataArray:
    r"""The partition of the sites with the smallest expected distance from the draws' partitions.

    The result does not depend on the names of labels: labels that were switched do not matter, and labels may
    be any integers.

    Parameters
    ----------
    idata : DataTree
        Draws by `pm.sample`, `pmd.sample` or any other sampler, with a group ``posterior``.
    z : str
        The variable of labels, with one label per site.
    loss : {"VI", "Binder"}
        The distance of two partitions: their variation of information, in nats, or Binder's loss, the share
        of pairs of sites that are together in only one of them. Binder's loss tends to have more small
        clusters.

    Returns
    -------
    xarray.DataArray
        Labels with the dimensions and coordinates of `z`, 0 to K - 1 from the largest cluster to the
        smallest. Its attributes are ``loss``, the name, ``expected_loss``, the mean over draws, and
        ``clusters``, K.

    Raises
    ------
    TypeError
        If `idata` is no DataTree with a group ``posterior``, or `z` no string.
    ValueError
        If there is no such variable, if it is a scalar or does not hold integers, if `loss` is another, or if
        the search would take too much memory: for ``"VI"`` 1 GiB for the clusters of all draws, for
        ``"Binder"`` 2 GiB for the pairs of sites.

    Notes
    -----
    The expectation over the draws is exact, and not a lower bound. The search begins at the best partitions
    among some of the draws. It moves single sites to the cluster, possibly a new one, where this lowers the
    expected loss most, until no move lowers the loss, and returns the best partition that it found: in
    general a local minimum.

    References
    ----------
    Wade and Ghahramani, Bayesian Analysis 13 (2018): the losses.
    Rastelli and Friel, Statistics and Computing 28 (2018): the search.
    Meila, Journal of Multivariate Analysis 98 (2007): the variation of information.

    Examples
    --------
    >>> clusters = pmd.partition(idata, "z")  # doctest: +SKIP
    >>> clusters.attrs["expected_loss"]  # doctest: +SKIP
    """
    check_choice("loss", loss, LOSSES)
    labels = labels_of(idata, z, "pmd.partition")
    every = partitions(in_one_table(labels))
    if loss == "Binder":
        check_size(z, labels, every.shape[1], "pmd.partition")
    losses = Information(z, every) if loss == "VI" else Pairs(together(every))
    spaced = np.linspace(0, len(every) - 1, PARTITION_CANDIDATES).astype(int)
    candidates = sorted(np.unique(every[spaced], axis=0), key=losses.expected)
    found = min(map(losses.moved, candidates[:STARTS]), key=losses.expected)
    by_size = np.argsort(-np.bincount(found), kind="stable")
    ordered = np.argsort(by_size)[found]
    return xarray.DataArray(
        ordered.reshape(labels.shape[2:]),
        {d: labels[d].values for d in labels.dims[2:] if d in labels.coords},
        labels.dims[2:],
        z,
        {"loss": loss, "expected_loss": losses.expected(found), "clusters": len(by_size)},
    )


class Information:
    """The expected variation of information from the partitions of draws, in nats.

    With g(m) = m log(m) / n, the distance of two partitions is the sum of g over the sizes of the clusters of
    both, less twice the sum of g over the sizes of their intersections (Meila 2007).

    Parameters
    ----------
    z : str
        The name of the variable, for errors.
    every : (draws, n) int, partitions numbered from 0

    Raises
    ------
    ValueError
        If the draws have too many clusters.
    """

    def __init__(self, z: str, every: np.ndarray) -> None:
        self.clusters, counts = np.unique(every, axis=0, return_counts=True)
        self.weights = counts / len(every)
        self.by_site = np.ascontiguousarray(self.clusters.T)
        m = np.arange(every.shape[1] + 1)
        self.g = m * np.log(np.maximum(m, 1)) / every.shape[1]
        self.of_draws = self.weights @ [self.g[np.bincount(one)].sum() for one in self.clusters]
        self.K = int(every.max()) + 1
        self.room = min(every.shape[1], 2 * self.K)
        size = 4 * len(self.clusters) * self.K * self.room
        if size > LARGEST_CLUSTER_TABLE:
            every_nth = -(-size // LARGEST_CLUSTER_TABLE)
            raise ValueError(
                f"{len(self.clusters)} draws of {z!r} with up to {self.K} clusters need a table of "
                f"{size / 2**30:.1f} GiB. Take fewer draws, or Binder's loss: "
                f"pmd.partition(idata.isel(draw=slice(None, None, {every_nth})), {z!r})."
            )

    def intersections(self, one: np.ndarray, L: int) -> np.ndarray:
        """(draws, K, L) int32, the number of sites that each cluster of a draw shares with each cluster of
        `one` (n,).
        """
        tables = np.empty((len(self.clusters), self.K, L), np.int32)
        for rows in chunks(len(tables), max(len(one), self.K * L)):
            m = rows.stop - rows.start
            cells = (np.arange(m)[:, None] * self.K + self.clusters[rows]) * L + one
            counts = np.bincount(cells.reshape(-1), minlength=m * self.K * L)
            tables[rows] = counts.reshape(m, self.K, L)
        return tables

    def expected(self, one: np.ndarray) -> float:
        """The expected loss of the partition `one` (n,)."""
        tables = self.intersections(one, int(one.max()) + 1)
        shared = sum(
            self.weights[rows] @ self.g[tables[rows]].sum(axis=(1, 2))
            for rows in chunks(len(tables), tables[0].size)
        )
        return max(0.0, float(self.g[np.bincount(one)].sum() + self.of_draws - 2 * shared))

    def moved(self, one: np.ndarray) -> np.ndarray:
        """The partition that is reached from `one` by moves of single sites, none of which lowers the loss
        any more.

        The greedy search of Rastelli and Friel 2018. There are at most twice as many clusters as in any draw.
        """
        # D[m] is the increase of g(m) = m log(m) / n with one more site; the last element is read for a
        # site's own cluster only, where it is overwritten
        D = np.append(np.diff(self.g), 0.0)
        current, sizes = one.astype(int), np.bincount(one, minlength=self.room)
        tables, every = self.intersections(current, self.room), np.arange(len(self.clusters))
        improved = True
        while improved:
            improved = False
            for i, of_draws in enumerate(self.by_site):
                a = current[i]
                # the site chooses among the first k clusters: those in use, and an empty one
                k = min(int(np.flatnonzero(sizes)[-1]) + 2, self.room)
                shared = tables[every, of_draws, :k]
                change = D[sizes[:k]] - 2 * self.weights @ D[shared]
                change -= D[sizes[a] - 1] - 2 * self.weights @ D[shared[:, a] - 1]
                change[a] = 0
                b = int(change.argmin())
                if change[b] >= -ROUNDING:
                    continue
                improved = True
                tables[every, of_draws, a] -= 1
                tables[every, of_draws, b] += 1
                sizes[a] -= 1
                sizes[b] += 1
                current[i] = b
        return partitions(current[None])[0]


class Pairs:
    """Binder's loss of a partition: the expected share of pairs of sites that are together in this partition
    or in that of a draw, but not in both.

    The loss depends on the draws only through how often two sites are together (Binder 1978).

    Parameters
    ----------
    share : (n, n) float, the share of draws in which two sites are together
    """

    def __init__(self, share: np.ndarray) -> None:
        n = len(share)
        self.pairs = max(n * (n - 1), 2)
        self.apart = (share.sum() - n) / self.pairs  # the loss of the partition in which every site is alone
        # the loss of a pair that is together, less the loss of a pair that is apart
        self.cost = 1 - 2 * share
        np.fill_diagonal(self.cost, 0)

    def expected(self, one: np.ndarray) -> float:
        """The expected loss of the partition `one` (n,)."""
        joined = sum(self.cost[np.ix_(sites, sites)].sum() for sites in sites_of(one))
        return max(0.0, float(self.apart + joined / self.pairs))

    def moved(self, one: np.ndarray) -> np.ndarray:
        """The partition that is reached from `one` by moves of single sites, none of which lowers the loss
        any more.
        """
        current, n = one.astype(int), len(one)
        sizes = np.bincount(current, minlength=n + 1)
        improved = True
        while improved:
            improved = False
            for i, cost in enumerate(self.cost):
                # the first empty cluster costs 0, and so does the site's own cluster if the site is alone in
                # it
                k = int(sizes.argmin()) + 1
                k = max(k, int(current.max()) + 1)
                costs = np.bincount(current, cost, minlength=k)
                a, b = current[i], int(costs.argmin())
                if costs[b] >= costs[a] - ROUNDING:
                    continue
                improved = True
                sizes[a] -= 1
                sizes[b] += 1
                current[i] = b
        return partitions(current[None])[0]


def sites_of(one: np.ndarray) -> list[np.ndarray]:
    """The sites of each cluster of the partition `one` (n,)."""
    return np.split(np.argsort(one, kind="stable"), np.cumsum(np.bincount(one))[:-1])
