"""The matrix of the probabilities that two sites have the same label."""

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection

from pymc_discrete.diagnostics.labels.coclustering import coclustering
from pymc_discrete.diagnostics.labels.partition import partition
from pymc_discrete.plots.figure import image, line
from pymc_discrete.plots.plot import Request, plot
from pymc_discrete.plots.read import plotted_variables

SIDE = 5.6  # the height of the figure in inches
# the number of characters, in all labels of ticks together, that fit along the horizontal axis
TICK_CHARACTERS = 44
NAMED_SITES = 40  # With up to this many sites, sites are named; with more, only clusters are.


@plot("image", "borders", without=["legend"])
def plot_coclustering(request: Request, var_name: str) -> PlotCollection:
    """The probability that two sites have the same label, of all pairs, with the sites in clusters.

    The plot does not depend on how the labels are called. The sites are in the order of the clusters of
    `pmd.partition`, the largest one first, and within a cluster the sites that are most surely in it come
    first. White lines are the borders of clusters. Bright squares on the diagonal are clusters that are
    certain; bright places off the diagonal are sites that might as well belong to another cluster.

    Parameters
    ----------
    var_name : str
        The variable of labels, with one label per site. Draws do not tell labels from counts, of which the
        matrix says how probable it is that two are equal.

    Raises
    ------
    TypeError
        If `var_name` is no string.
    ValueError
        If the variable does not exist, is a scalar or not of integers, for another backend or visual, or if
        the matrix or the search for clusters takes too much memory, as `pmd.coclustering` and `pmd.partition`
        say.

    Notes
    -----
    Up to 40 sites are named along the axes; with more, each cluster of at least 2 % of the sites has a mark
    in its middle, with its number in `pmd.partition`, and its size on the left.

    Examples
    --------
    >>> pmd.plot_coclustering(idata, "z")  # doctest: +SKIP
    """
    tree = request.tree
    together = coclustering(tree, var_name)
    v = plotted_variables(tree, var_name, request.labeller)[0]
    clusters = partition(tree, var_name).values.ravel()
    p = together.values.reshape(v.size, v.size)
    order = order_of(p, clusters)
    axes = [f"{var_name} site", f"{var_name} other site"]
    matrix = xr.Dataset({var_name: (axes, p[np.ix_(order, order)])}, {axes[0]: order, axes[1]: order})
    figure = request.figure(matrix, (SIDE + 1, SIDE))
    figure.draw("image", image, matrix, bar="P(same label)", square=True)
    sizes = np.bincount(clusters)
    ends = np.cumsum(sizes)[:-1] - 0.5
    if len(ends):
        # each border is a line across the matrix, horizontal and vertical, and nan separates the lines
        along = np.tile([-0.5, v.size - 0.5, np.nan], len(ends))
        across = np.repeat(ends, 3)
        borders = xr.DataArray(np.concatenate([along, across]), dims="end").to_dataset(name=var_name)
        x = np.concatenate([across, along])
        figure.draw("borders", line, borders, x=x, color="white", width=1)
    figure.limits(var_name, (-0.5, v.size - 0.5), (v.size - 0.5, -0.5))
    if v.size <= NAMED_SITES:
        names = [v.labels[i] for i in order]
        upright = {"rotation": 90} if sum(map(len, names)) + 2 * v.size > TICK_CHARACTERS else {}
        figure.marks("x", var_name, range(v.size), names, **upright)
        figure.marks("y", var_name, range(v.size), names)
        axis = f"{v.axis}, in the order of clusters"
    else:
        large = np.flatnonzero(sizes >= 0.02 * v.size)
        middles = (np.cumsum(sizes) - sizes / 2 - 0.5)[large]
        figure.marks("x", var_name, middles.tolist(), [str(k) for k in large])
        figure.marks("y", var_name, middles.tolist(), [f"{k} ({sizes[k]})" for k in large])
        axis = f"{v.axis}, by cluster"
    draws = f"share of {v.draws.shape[0]} × {v.draws.shape[1]} draws"
    title = f"{var_name}: probability of the same label ({draws})\n{v.size} sites, {len(sizes)} clusters"
    figure.label(var_name, title, axis, axis if v.size <= NAMED_SITES else f"{axis} (its size)")
    return figure.collection


def order_of(p: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """(n,) int, the sites in the order of their clusters, in each cluster from the surest to the least sure.

    Parameters
    ----------
    p : (n, n) float, probabilities of the same label
    clusters : (n,) int
    """
    members = clusters[:, None] == clusters
    sure = (p * members).sum(axis=1) / members.sum(axis=1)
    return np.lexsort((-sure, clusters))
