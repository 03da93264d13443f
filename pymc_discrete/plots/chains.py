"""The draws of discrete variables, as an image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection

from pymc_discrete.plots.figure import FIGURE_WIDTH, LEGEND_ENTRIES, Entry, Figure, colours_of, image, line
from pymc_discrete.plots.plot import Request, plot
from pymc_discrete.plots.read import PlottedVariable, names_of_values

ROWS, IMAGE_COLUMNS = 500, 800  # the largest numbers of rows and of columns of an image


@plot("image", "borders", color="a list with a colour for each value where there are up to 10")
def plot_chains(
    request: Request, *, value_names: str | Mapping[int, str] | Sequence[str] | None = None
) -> PlotCollection:
    """The values of all elements in all draws, as an image: a row for each element, a column for each draw.

    The chains stand side by side. A chain that looks different from the others has not found what they have;
    a long stretch of one colour is an element that hardly moves; columns whose colours are exchanged for one
    another are labels that were switched.

    Parameters
    ----------
    coords : dict, optional
        {dimension: labels} of the elements to draw, and of chains: ``coords={"chain": [0, 3]}``.
    value_names : str, dict or sequence of str, optional
        The names of categories: a dimension whose coordinates name the values 0, 1, ..., such as the
        dimension of the components in ``pm.Model(coords={"state": ["quiet", "active"]})``; or the names, in a
        sequence with one for every value that is drawn, or as {value: name}.

    Raises
    ------
    ValueError
        If a variable does not exist or is not of integers, if `value_names` do not fit, or for another
        backend or visual.

    Notes
    -----
    Up to 10 values have a colour each, with a legend; more are drawn with a colour bar. An image has at most
    500 rows and 800 columns: if there are more elements, or draws, every second, third, ... one is drawn, and
    the labels of the axes say so.

    Examples
    --------
    >>> pmd.plot_chains(idata, "z")  # doctest: +SKIP
    """
    variables = request.variables
    tables = {v.name: table(v) for v in variables}
    kinds = {name: np.unique(t.values) for name, t in tables.items()}
    names = names_of_values(request.idata, value_names, kinds)
    named = [values for values in kinds.values() if len(values) <= LEGEND_ENTRIES]
    values = np.unique(np.concatenate(named)) if named else np.zeros(0, int)
    few = {name: len(values) <= LEGEND_ENTRIES and len(k) <= LEGEND_ENTRIES for name, k in kinds.items()}
    heights = [height(v.size) for v in variables]
    figure = request.figure(
        xr.Dataset(tables),
        (FIGURE_WIDTH, sum(heights)),
        height_ratios=heights,
    )
    colours = list(request.color or colours_of(len(values), figure.collection.backend))
    for v in variables:
        draw_chains(figure, v, tables[v.name], values if few[v.name] else None, colours)
    if any(few.values()):
        entries = [
            Entry(names.get(int(k), str(k)), c, "patch") for k, c in zip(values, colours, strict=False)
        ]
        figure.legend(entries[::-1], variables[0].name if len(variables) == 1 else "value")
    return figure.collection


def thinning(v: PlottedVariable) -> tuple[int, int]:
    """The step between drawn elements, and between drawn draws; 1 where none is left out."""
    return -(-v.size // ROWS), -(-v.draws.shape[0] * v.draws.shape[1] // IMAGE_COLUMNS)


def table(v: PlottedVariable) -> xr.DataArray:
    """The draws (element, draw), with the chains one after another, thinned to the size of an image."""
    row, column = thinning(v)
    draws = v.draws.data.reshape(*v.draws.shape[:2], -1)[:, ::column, ::row]
    values = np.moveaxis(np.asarray(draws), 2, 0).reshape(draws.shape[2], -1).astype(int)
    return xr.DataArray(values, dims=[f"{v.name} element", f"{v.name} draw"])


def draw_chains(
    figure: Figure, v: PlottedVariable, drawn: xr.DataArray, values: np.ndarray | None, colours: Any
) -> None:
    """Draw the panel of a variable; `values` are the values that have a colour each, or None."""
    name, chains = v.name, len(v.chains)
    rows, columns = drawn.shape
    if values is not None:
        codes = drawn.copy(data=np.searchsorted(values, drawn.values)).to_dataset(name=name)
        figure.draw("image", image, codes, colours=colours)
    else:
        low, high = float(drawn.min()), float(drawn.max())
        figure.draw("image", image, drawn.to_dataset(name=name), low=low, high=high, bar=f"value of {name}")
    each = columns / chains
    if chains > 1:
        ends = np.arange(1, chains) * each - 0.5
        lines = xr.DataArray(np.tile([-0.5, rows - 0.5, np.nan], chains - 1), dims="end")
        x = np.repeat(ends, 3)
        figure.draw("borders", line, lines.to_dataset(name=name), x=x, color="white", width=2)
    figure.limits(name, (-0.5, columns - 0.5), (rows - 0.5, -0.5))
    row, column = thinning(v)
    shown = range(0, chains, -(-chains // 8))
    figure.marks("x", name, [(c + 0.5) * each - 0.5 for c in shown], [f"chain {v.chains[c]}" for c in shown])
    figure.ticks("y", name, v.labels[::row], 4 * height(v.size))
    draws = f"draws 0 to {v.draws.shape[1] - 1} of each chain" + (
        f", every {th(column)}" if column > 1 else ""
    )
    elements = v.axis + (f", every {th(row)}" if row > 1 else "")
    figure.label(name, f"{name}: values over draws", draws, elements)


def height(elements: int) -> float:
    """The height in inches of the panel of a variable with this number of elements."""
    return float(np.clip(1.3 + 0.12 * elements, 1.6, 6.5))


def th(n: int) -> str:
    """An ordinal number: 2nd, 3rd, 4th."""
    return {2: "2nd", 3: "3rd"}.get(n, f"{n}th")
