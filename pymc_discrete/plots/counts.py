"""Probability mass of counts, chain by chain."""

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection

from pymc_discrete.diagnostics.labels.clusters import number_name, recorded_partitions, without_names
from pymc_discrete.plots.figure import (
    FIGURE_WIDTH,
    LEGEND_ENTRIES,
    UNCERTAIN,
    Entry,
    bars,
    image,
    line,
    points,
)
from pymc_discrete.plots.plot import Request, plot
from pymc_discrete.plots.read import PlottedVariable, Shares, shares_of_values

PANELS = 12  # With up to this many elements in all variables, each element has a panel.
BINS = 100  # A range of more values than this is drawn in bins.
TITLES = 52  # the number of characters of titles for which there is room above a row of panels
DOTS = 40  # With up to this many bins, values are marked by dots, too.


@plot("bars", "lines", "dots", "image", color="a list with a colour for each chain")
def plot_counts(request: Request) -> PlotCollection:
    """The probability of each value of counts: bars for all chains together, a line for each chain.

    Lines that lie on one another are chains that agree; how far they lie apart is the Monte Carlo error. For
    a partition, in a result of `pmd.sample`, the number of clusters is drawn.

    Variables that were summed out have their probabilities in the group ``probabilities`` of the result,
    which are more exact than shares of draws; these are drawn where the result has them, and the title says
    which are drawn.

    Parameters
    ----------
    var_names : str or list of str
        Discrete variables; by default all that the model draws, or all of
        integers where the result does not say which these are.

    Raises
    ------
    ValueError
        If a variable does not exist or is not of integers, or for another backend or visual.

    Notes
    -----
    A range of more than 100 values is drawn in bins of equal width, and the label of the axis says so. With
    more than 12 elements in all, each variable is drawn as a heat map of all chains together: the elements
    from the left to the right, the values from below to above, the probability as the colour. Take some
    elements with `coords` to compare chains.

    Examples
    --------
    >>> pmd.plot_counts(idata, "N")  # doctest: +SKIP
    >>> pmd.plot_counts(idata, "N", coords={"site": ["a", "b"]})  # doctest: +SKIP
    """
    partitions = recorded_partitions(request.tree["posterior"].dataset)
    variables = [clusters_in_use(v) if v.name in partitions else v for v in request.variables]
    shares = [shares_of_values(request.tree, v) for v in variables]
    if sum(v.size for v in variables) > PANELS:
        return heat_maps(request, variables, shares)
    panels: dict[str, tuple[xr.DataArray, str, str]] = {}
    for v, s in zip(variables, shares, strict=True):
        for i, label in enumerate(v.labels):
            name = label if v.draws.ndim == 2 else f"{v.name}[{label}]"
            values, p, width = binned(s.values, s.p[:, i])
            axis = f"{name} value"
            array = xr.DataArray(p, {"chain": np.arange(len(p)), axis: values}, ["chain", axis])
            bins = f", in bins of {width} values, named by the least" if width > 1 else ""
            panels[name] = array, s.source, f"value{bins}"
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    chains = variables[0].chains
    figure = request.figure(
        xr.Dataset({name: array for name, (array, _, _) in panels.items()}),
        (FIGURE_WIDTH, 3.2 if rows == 1 else 0.2 + 2.3 * rows),
        col_wrap=columns,
    )
    colours = list(request.color or figure.cycle(len(chains)))
    figure.colour_by("chain", range(len(chains)), colours)
    few = max(array.shape[1] for array, _, _ in panels.values()) <= DOTS
    sources = {source for _, source, _ in panels.values()}
    figure.title("probability of each value" + (f"\n{min(sources)}" if len(sources) == 1 else ""))
    for place, (name, (array, source, axis)) in enumerate(panels.items()):
        values = array[array.dims[1]].values
        masses = array.to_dataset(name=name)
        figure.draw("bars", bars, masses.mean("chain"), color="#d0d0d0", width=0.9 if few else 1.0)
        figure.draw("lines", line, masses, ["color"], width=1.2)
        if few:
            figure.draw("dots", points, masses, ["color"], size=14)
        figure.limits(name, (-0.7, len(values) - 0.3), (0.0, 1.06 * float(array.max()) or 1.0))
        figure.ticks("x", name, [str(k) for k in values], 70 / columns)
        title = name.replace("[", "\n[", 1) if columns * len(name) > TITLES else name
        title = title if len(sources) == 1 else f"{title}\n{source}"
        figure.label(name, title, axis, "probability" if place % columns == 0 else None, columns > 1)
    entries = [Entry("all chains", "#d0d0d0", "patch")]
    if len(chains) <= LEGEND_ENTRIES:
        entries += [Entry(f"chain {c}", colour, "line") for c, colour in zip(chains, colours, strict=False)]
    else:
        entries.append(Entry("a chain", UNCERTAIN, "line"))
    figure.legend(entries)
    return figure.collection


def clusters_in_use(v: PlottedVariable) -> PlottedVariable:
    """The number of clusters of a partition in each draw; sites that are not drawn do not count."""
    name = number_name(v.name)
    number = without_names(v.draws.to_dataset(name=v.name), [v.name])[name].rename(name)
    return PlottedVariable(name, number, [name], "")


def heat_maps(request: Request, variables: list[PlottedVariable], shares: list[Shares]) -> PlotCollection:
    """The plot with a heat map for each variable, of all its values and elements."""
    panels = {}
    for v, s in zip(variables, shares, strict=True):
        values, p, width = binned(s.values, s.pooled)
        axes = [f"{v.name} element", f"{v.name} value"]
        panels[v.name] = xr.DataArray(p, {axes[1]: values}, axes), width
    figure = request.figure(
        xr.Dataset({name: array for name, (array, _) in panels.items()}),
        (FIGURE_WIDTH, 3.6 * len(panels)),
    )
    for v, s in zip(variables, shares, strict=True):
        array, width = panels[v.name]
        most = float(array.max()) or 1.0
        figure.draw("image", image, array.transpose().to_dataset(name=v.name), bar="probability", high=most)
        figure.limits(v.name, (-0.5, v.size - 0.5), (-0.5, array.shape[1] - 0.5))
        figure.ticks("x", v.name, v.labels)
        figure.ticks("y", v.name, [str(k) for k in array[array.dims[1]].values], 12)
        bins = f" (bins of {width})" if width > 1 else ""
        title = f"{v.name}: probability of each value, all chains together\n{s.source}"
        figure.label(v.name, title, v.axis, f"value{bins}")
    return figure.collection


def binned(values: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The probabilities on an axis of consecutive values, or of bins where these are more than `BINS`.

    Parameters
    ----------
    values : (V,) int, ascending
    p : (rows, V) float

    Returns
    -------
    least : (B,) int, the least value of each bin; bins at the ends in which no row has any probability are
        left out
    masses : (rows, B) float
    width : the number of values in a bin
    """
    there = np.flatnonzero((p > 0).any(axis=0))
    if len(there):
        values, p = values[there[0] : there[-1] + 1], p[:, there[0] : there[-1] + 1]
    first, last = int(values[0]), int(values[-1])
    width = -(-(last - first + 1) // BINS)
    first = first // width * width
    least = np.arange(first, last + 1, width)
    masses = np.zeros((len(p), len(least)))
    np.add.at(masses.T, (values - first) // width, p.T)
    return least, masses, width
