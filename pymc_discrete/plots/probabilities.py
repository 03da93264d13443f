"""The probability of each value of the elements of discrete variables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection

from pymc_discrete.diagnostics.judge import Judge
from pymc_discrete.plots.figure import (
    AXIS_CHARACTERS,
    FIGURE_WIDTH,
    LEGEND_ENTRIES,
    Entry,
    Figure,
    bars,
    below,
    colours_of,
    image,
    points,
)
from pymc_discrete.plots.plot import Request, plot
from pymc_discrete.plots.read import (
    PlottedVariable,
    Shares,
    names_of_values,
    note_on_labels,
    shares_of_values,
)
from pymc_discrete.runtime.names import shown

MOST_BARS = 700  # With more bars than this, bars would be thinner than a pixel.
BARS_WITH_GAPS = 60  # Up to this many bars have gaps between them.
ABREAST = 3  # Up to this many images of matrices stand side by side.
MATRIX = 40  # A matrix with more elements than this is drawn as an image, a smaller matrix as bars.


@plot("bars", "image", "data", color="a list with a colour for each value")
def plot_probabilities(
    request: Request,
    *,
    data: Any = None,
    value_names: str | Mapping[int, str] | Sequence[str] | None = None,
) -> PlotCollection:
    """The probability of each value, a stacked bar for each element: mixture labels, states over time.

    Variables that were summed out have their probabilities in the group ``probabilities`` of the result,
    which are more exact than shares of draws; these are drawn where the result has them, and the title says
    which are drawn. The title also says where labels switch: draw the plot again after `pmd.relabel`.

    Parameters
    ----------
    data : str or array_like, optional
        Observed data to draw below the bars, with the same horizontal axis: one or several numbers for each
        element, or the name of a variable of the groups ``observed_data`` or ``constant_data``. For one
        variable only.
    value_names : str, dict or sequence of str, optional
        The names of categories: a dimension whose coordinates name the values 0, 1, ..., such as the
        dimension of the components in ``pm.Model(coords={"state": ["quiet", "active"]})``; or the names, in a
        sequence with one for every value that is drawn, or as {value: name}.

    Raises
    ------
    ValueError
        If a variable does not exist or is not of integers, if `data` or `value_names` do not fit, or for
        another backend or visual.

    Notes
    -----
    A variable with more than 10 values, or with more than 700 elements, whose bars would be thinner than a
    pixel, is drawn as a heat map: the values from below to above, the probability as the colour. A matrix of
    more than 40 elements is drawn as an image for each value, its first dimension from above to below; for a
    matrix with the values 0 and 1, only the probability of 1. Bars of more than 60 elements have no gaps.

    Examples
    --------
    >>> pmd.plot_probabilities(idata, "state", data="y")  # doctest: +SKIP
    >>> pmd.plot_probabilities(idata, "z", value_names=["absent", "present"])  # doctest: +SKIP
    """
    idata, tree, variables = request.idata, request.tree, request.variables
    if data is not None and len(variables) > 1:
        raise ValueError(
            f"data belongs to the elements of one variable, and {shown(v.name for v in variables)} are "
            'drawn. Name one of them: plot_probabilities(idata, "z", data=data).'
        )
    observed = None if data is None else data_of(tree, data, variables[0])
    shares = [shares_of_values(tree, v) for v in variables]
    names = names_of_values(
        idata, value_names, {v.name: s.values for v, s in zip(variables, shares, strict=True)}
    )
    judge = Judge(idata)
    notes = {v.name: note_on_labels(judge, v.name, value_names) for v in variables}
    panels = panels_of(list(zip(variables, shares, strict=True)), names, flat=observed is not None)
    arrays, heights = {name: panel.p for name, panel in panels.items()}, [p.height for p in panels.values()]
    if observed is not None:
        arrays[str(observed.name)] = observed
        heights.append(1.8)
    columns, width, rows = layout_of(panels, heights)
    figure = request.figure(
        xr.Dataset(arrays),
        (width, sum(rows)),
        col_wrap=columns,
        height_ratios=rows,
        sharex=observed is not None,
    )
    draw_all_bars(figure, panels, names, request.color, observed is not None, notes)
    matrices = [name for name, panel in panels.items() if panel.kind == "matrix"]
    for name, panel in panels.items():
        if panel.kind == "heat map":
            axis = panel.variable.axis if observed is None else None
            draw_heat_map(figure, name, panel, names, axis, notes)
        elif panel.kind == "matrix":
            beside = [figure.target(other) for other in matrices] if name == matrices[-1] else None
            draw_matrix(figure, name, panel, beside)
    if matrices:
        title_of_matrices(figure, [panels[name] for name in matrices], notes)
    if observed is not None:
        draw_data(figure, observed, variables[0])
    return figure.collection


def layout_of(panels: Mapping[str, "Panel"], heights: Sequence[float]) -> tuple[int, float, list[float]]:
    """How panels are laid out in a figure: the number of columns, the width, and the heights of the rows.

    The width and the heights are in inches.

    Parameters
    ----------
    heights : the heights of the panels, and of the data below panels
    """
    columns, width = 1, FIGURE_WIDTH
    if {p.kind for p in panels.values()} == {"matrix"}:
        columns = min(len(panels), ABREAST)
        sizes = [p.size(columns) for p in panels.values()]
        width, heights = 1.0 + columns * max(w for w, _ in sizes), [h for _, h in sizes]
    return columns, width, [max(heights[i : i + columns]) for i in range(0, len(heights), columns)]


def draw_all_bars(
    figure: Figure,
    panels: Mapping[str, "Panel"],
    names: Mapping[int, str],
    colours: Sequence[Any] | None,
    with_data: bool,
    notes: dict[str, str],
) -> None:
    """Draw the panels of all variables that are drawn as bars, with one legend for all of them."""
    barred = {name: panel for name, panel in panels.items() if panel.kind == "bars"}
    if not barred:
        return
    values = next(iter(barred.values())).p["value"].values
    chosen = list(colours or colours_of(len(values), figure.collection.backend))
    figure.colour_by("value", values, chosen)
    for name, panel in barred.items():
        draw_bars(figure, name, panel, None if with_data else panel.variable.axis, notes)
    named = [Entry(names.get(v, str(v)), c, "patch") for v, c in zip(values, chosen, strict=False)]
    figure.legend(named[::-1], next(iter(barred)) if len(barred) == 1 else "value")


def title_of_matrices(figure: Figure, panels: Sequence["Panel"], notes: Mapping[str, str]) -> None:
    """Draw the title of a figure whose panels are matrices, with the notes on their variables' labels."""
    sources = dict.fromkeys(f"{panel.shares.source}" for panel in panels)
    said = dict.fromkeys(notes[panel.variable.name] for panel in panels)
    figure.title(f"probability of each value\n{'; '.join(sources)}{''.join(said)}")


class Panel(NamedTuple):
    """A variable, or one value of a matrix variable, and how it is drawn.

    Attributes
    ----------
    kind : "bars", "heat map" or "matrix"
    p : the probabilities, (element, value), or (row, column) of a matrix
    """

    variable: PlottedVariable
    shares: Shares
    kind: str
    p: xr.DataArray

    @property
    def height(self) -> float:
        """The height of the panel in inches."""
        if self.kind == "bars":
            return 2.6 + below(self.variable.labels)
        if self.kind == "heat map":
            return float(np.clip(1.2 + 0.16 * self.p.shape[1], 1.8, 5.0)) + below(self.variable.labels)
        return self.size(1)[1]

    def size(self, columns: int) -> tuple[float, float]:
        """The width and the height in inches of the panel of a matrix, with `columns` panels in a row."""
        rows, cells = self.p.shape
        width = (FIGURE_WIDTH - 1.0) / columns - 0.7
        height = float(np.clip(width * rows / cells, 1.5, 4.2))
        return (min(width, height * cells / rows) if is_square(self.p) else width) + 0.7, height + 0.9


def panels_of(
    variables: list[tuple[PlottedVariable, Shares]], names: dict[int, str], flat: bool
) -> dict[str, Panel]:
    """{name of the panel: Panel}, given the names of values; with `flat`, elements are drawn in one row."""
    kinds = {v.name: chart_of(v, shares, flat) for v, shares in variables}
    barred = [shares.values for v, shares in variables if kinds[v.name] == "bars"]
    values = np.unique(np.concatenate(barred)) if barred else np.zeros(0, int)
    panels = {}
    for v, shares in variables:
        name, kind, p = v.name, kinds[v.name], shares.pooled
        if kind == "bars":  # All panels share the axis of values, so that each value has one colour.
            on_axis = np.zeros((v.size, len(values)))
            on_axis[:, np.searchsorted(values, shares.values)] = p
            array = xr.DataArray(on_axis, {"value": values}, [f"{name} element", "value"])
            panels[name] = Panel(v, shares, kind, array)
        elif kind == "heat map":
            axes = [f"{name} element", f"{name} value"]
            panels[name] = Panel(v, shares, kind, xr.DataArray(p, {axes[1]: shares.values}, axes))
        else:
            dims = [f"{name} {d}" for d in v.draws.dims[2:]]
            for k in range(len(shares.values)):
                if are_binary(shares) and shares.values[k] != 1:
                    continue
                array = xr.DataArray(p[:, k].reshape(v.draws.shape[2:]), dims=dims)
                value = int(shares.values[k])
                panels[f"{name} = {names.get(value, value)}"] = Panel(v, shares, kind, array)
    return panels


def is_square(p: xr.DataArray) -> bool:
    """Whether the cells of a matrix are drawn as squares: not if one side is over three times the other."""
    return 1 / 3 <= p.shape[0] / p.shape[1] <= 3


def are_binary(shares: Shares) -> bool:
    """Whether the values are 0 and 1."""
    return 1 in shares.values and set(shares.values) <= {0, 1}


def chart_of(v: PlottedVariable, shares: Shares, flat: bool) -> str:
    """How a variable is drawn: "bars", "heat map" or "matrix"."""
    few = len(shares.values) <= LEGEND_ENTRIES
    if few and not flat and v.draws.ndim == 4 and v.size > MATRIX:
        return "matrix"
    return "bars" if few and v.size <= MOST_BARS else "heat map"


def data_of(tree: xr.DataTree, data: Any, v: PlottedVariable) -> xr.DataArray:
    """The observed data of a variable's elements, (element, column), with a name.

    Raises
    ------
    ValueError
        If there is no such variable, or there are not as many rows as elements.
    """
    name = str(getattr(data, "name", None) or "data")
    if isinstance(data, str):
        groups = [g for g in ("observed_data", "constant_data") if g in tree.children]
        holding = [g for g in groups if data in tree[g].data_vars]
        if not holding:
            there = shown(str(n) for g in groups for n in tree[g].data_vars) or "none"
            raise ValueError(
                f"data={data!r} is no variable of the groups observed_data and constant_data, whose "
                f"variables are: {there}. Pass one of them, or an array."
            )
        name, data = data, tree[holding[0]][data]
    array = np.ma.filled(np.ma.asarray(data, float), np.nan)
    shape = v.draws.shape[2:]
    if array.shape[: len(shape)] != shape and array.shape[:1] != (v.size,):
        raise ValueError(
            f"data has the shape {array.shape}, and {v.name!r} has the shape {shape}. Pass data with one row "
            "for each element."
        )
    return xr.DataArray(
        array.reshape(v.size, -1),
        dims=["data element", "data column"],
        name=f"{name} (data)" if name == v.name else name,
    )


def draw_bars(figure: Figure, name: str, panel: Panel, axis: str | None, notes: dict[str, str]) -> None:
    """Draw stacked bars, one colour for each value, with the note on the variable's labels in the title."""
    v, p = panel.variable, panel.p.fillna(0.0)
    width = 0.9 if v.size <= BARS_WITH_GAPS else 1.0
    bottom = p.cumsum("value") - p
    figure.draw("bars", bars, p.to_dataset(name=name), ["color"], bottom=bottom, width=width)
    figure.limits(name, (-0.5, v.size - 0.5), (0.0, 1.0))
    figure.ticks("x", name, v.labels)
    title = f"{v.name}: probability of each value ({panel.shares.source}){notes[v.name]}"
    figure.label(name, title, axis, "probability")


def draw_heat_map(
    figure: Figure,
    name: str,
    panel: Panel,
    names: dict[int, str],
    axis: str | None,
    notes: dict[str, str],
) -> None:
    """Draw an image, the values from below to above, with the note on the variable's labels in the title."""
    v, values = panel.variable, panel.shares.values
    most = 1.0 if len(values) <= LEGEND_ENTRIES else float(panel.p.max()) or 1.0
    figure.draw("image", image, panel.p.transpose().to_dataset(name=name), bar="probability", high=most)
    figure.limits(name, (-0.5, v.size - 0.5), (-0.5, len(values) - 0.5))
    figure.ticks("x", name, v.labels)
    figure.ticks("y", name, [names.get(int(k), str(k)) for k in values], 12)
    title = f"{v.name}: probability of each value ({panel.shares.source}){notes[v.name]}"
    figure.label(name, title, axis, f"value of {v.name}")


def draw_matrix(figure: Figure, name: str, panel: Panel, beside: list[Any] | None) -> None:
    """Draw a matrix variable's probabilities of one value as an image, the first dimension downwards.

    Parameters
    ----------
    beside : the panels that share the colour bar, if this panel has it
    """
    rows, columns = panel.p.shape
    bar = None if beside is None else "probability"
    square = is_square(panel.p)
    figure.draw("image", image, panel.p.to_dataset(name=name), bar=bar, beside=beside, square=square)
    figure.limits(name, (-0.5, columns - 0.5), (rows - 0.5, -0.5))
    down, across = panel.variable.draws.dims[2:]
    names = {d: [str(c) for c in panel.variable.draws[d].values] for d in (down, across)}
    figure.ticks("x", name, names[across], AXIS_CHARACTERS / ABREAST / 1.5)
    figure.ticks("y", name, names[down], 10)
    figure.label(name, f"P({name})", str(across), str(down))


def draw_data(figure: Figure, data: xr.DataArray, v: PlottedVariable) -> None:
    """Draw the observed data, below the bars of the elements to which they belong."""
    x = np.repeat(np.arange(v.size), data.shape[1])
    size = 30 if v.size <= BARS_WITH_GAPS else 8
    figure.draw("data", points, data.to_dataset(), x=x, color="B2", size=size)
    figure.limits(str(data.name), (-0.5, v.size - 0.5))
    figure.ticks("x", str(data.name), v.labels)
    figure.label(str(data.name), None, v.axis, str(data.name))
