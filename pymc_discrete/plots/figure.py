"""What the plots share: figures of panels, and what arviz-plots lacks, drawn by matplotlib or plotly.

Matplotlib and plotly are imported where they are used, so that neither is needed for the other.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_base.validate import validate_dict_argument
from arviz_plots import PlotCollection
from arviz_plots.plot_collection import backend_from_object
from arviz_plots.plots.utils import get_visual_kwargs
from arviz_plots.visuals import labelled_title, labelled_x, labelled_y

from pymc_discrete.runtime.checks import check_choice

BACKENDS = ("matplotlib", "plotly")
FIGURE_WIDTH = 8.0  # the width of a figure, in inches
PIXELS = 100  # the number of pixels to an inch, with plotly
AXIS_CHARACTERS = 75  # the largest number of characters of all labels together that fit along an axis
# the largest numbers of upright labels that fit along an axis: of labels in type of usual size, in small type
UPRIGHT_LABELS, SMALL_LABELS = 40, 64
# the inches that upright labels take below an axis for each of their characters, and the largest number of
# inches
LABEL = 0.075, 2.2
SIDE_BY_SIDE = 60  # With up to this many elements, the dots of chains stand beside one another.
LEGEND_ENTRIES = 10  # With up to this many colours, a legend names them; with more there is a colour bar.
# This colour map rises in brightness, so that it can be read in grey and by colour-blind people.
COLOUR_MAP = "viridis"
UNCERTAIN, ALARM = "#8c8c8c", "#d55e00"  # the colours grey and vermilion, the latter of the Okabe-Ito palette
# the names of markers in each backend
MARKERS = {
    "matplotlib": {"dot": "o", "cross": "x", "dash": "_"},
    "plotly": {"dot": "circle", "cross": "x-thin-open", "dash": "line-ew-open"},
}


SMALL_TYPE = {"matplotlib": 7.5, "plotly": 10.0}  # the size of small type, in points and in pixels


class Entry(NamedTuple):
    """An entry of a legend: its text, a colour, and the name of a marker, "line" or "patch"."""

    text: str
    colour: Any
    kind: str


class Figure:
    """A figure whose panels show the variables of a Dataset.

    Parameters
    ----------
    panels : Dataset with a variable for each panel
    visuals : {visual: keyword arguments, or False to leave it out}, an argument of the user
    known : the names of all visuals of the plot
    backend : "matplotlib", "plotly", or None for ArviZ's default
    size : (width, height), inches
    pc_kwargs : keyword arguments of `PlotCollection.wrap`, given by the user

    Attributes
    ----------
    collection : PlotCollection
    backend : the module of arviz-plots that draws
    markers : {"dot", "cross", "dash": the backend's name of the marker}
    small : the size of small type, in the unit of the backend

    Raises
    ------
    ValueError
        For another backend, or other visuals.
    """

    def __init__(
        self,
        panels: xr.Dataset,
        visuals: Mapping[str, Any] | None,
        known: Iterable[str],
        backend: str | None,
        size: tuple[float, float],
        pc_kwargs: Mapping[str, Any],
        cols: Sequence[Hashable] = ("__variable__",),
        col_wrap: int = 1,
        **layout: Any,
    ) -> None:
        backend = rcParams["plot.backend"] if backend is None else backend
        check_choice("backend", backend, BACKENDS)
        self.visuals = validate_dict_argument(visuals, valid_keys=tuple(known))
        self.backend = import_module(f"arviz_plots.backend.{backend}")
        self.markers = MARKERS[backend]
        self.small = SMALL_TYPE[backend]
        options = {"cols": list(cols), "col_wrap": col_wrap, **pc_kwargs}
        layout |= options.pop("figure_kwargs", {})
        if "figsize" not in layout:
            dots = backend == "plotly"
            layout["figsize"] = tuple(round(PIXELS * s) if dots else s for s in size)
            layout["figsize_units"] = "dots" if dots else "inches"
        if backend == "matplotlib":
            # The constrained layout reserves room for legends and colour bars.
            layout.setdefault("layout", "constrained")
        else:
            # the inches between a panel and the one below, for the labels of an axis and a title
            between = 0.3 if layout.get("sharex") else 0.95
            layout.setdefault("vertical_spacing", between / size[1])
        self.collection = PlotCollection.wrap(panels, backend=backend, figure_kwargs=layout, **options)
        if backend == "plotly":  # By default the margins of plotly are wider than the labels need.
            self.collection.get_viz("figure").update_layout(margin={"l": 70, "r": 20, "t": 70, "b": 60})

    def colour_by(self, dim: str, labels: Iterable[Any], colours: Sequence[Any]) -> None:
        """Map the coordinates of a dimension to colours."""
        labels = list(labels)
        array = np.empty(len(labels), object)  # an array of objects, since colours may be tuples
        for i, colour in enumerate(colours[: len(labels)]):
            array[i] = colour
        self.collection.update_aes_from_dataset("color", xr.Dataset({"mapping": (dim, array)}, {dim: labels}))

    def cycle(self, n: int) -> list[Any]:
        """The first n colours of the backend's cycle, which is repeated if it is shorter than n."""
        return list(self.backend.get_default_aes("color", n))

    def draw(
        self,
        visual: str,
        function: Callable[..., Any],
        data: xr.DataArray | xr.Dataset,
        by: Iterable[str] = (),
        **defaults: Any,
    ) -> None:
        """Draw a visual on the panels of the variables of `data`, unless the user turned it off.

        Parameters
        ----------
        function : (DataArray, panel, **keyword arguments) -> the objects that it drew
        by : the properties that are mapped to dimensions, such as "color"
        """
        chosen = get_visual_kwargs(self.visuals, visual)
        if chosen is not False:
            other = self.collection.aes_set.difference(by)
            self.collection.map(function, visual, data=data, ignore_aes=other, **{**defaults, **chosen})

    def label(
        self,
        panel: str,
        title: str | None = None,
        x: str | None = None,
        y: str | None = None,
        small: bool = False,
    ) -> None:
        """Give a panel its title, in smaller type if `small`, and the labels of its axes."""
        data = xr.Dataset({panel: 0})
        texts = {"title": (labelled_title, title), "xlabel": (labelled_x, x), "ylabel": (labelled_y, y)}
        for visual, (function, text) in texts.items():
            if text:
                size: dict[str, Any] = {"size": self.small + 2.5} if small and visual == "title" else {}
                self.draw(visual, function, data, text=text, **size)

    def title(self, text: str) -> None:
        """A title above all panels."""
        chosen = get_visual_kwargs(self.visuals, "title")
        if chosen is not False:
            text = chosen.pop("text", text)
            if self.collection.backend == "plotly":
                text = text.replace("\n", "<br>")
                chosen = {"size": 14, **chosen}
                self.collection.get_viz("figure").update_layout(margin_t=90)
            self.collection.add_title(text, **chosen)

    def target(self, panel: str) -> Any:
        """The backend's object of a panel, on which visuals are drawn."""
        return self.collection.get_target(panel, {})

    def ticks(self, axis: str, panel: str, labels: Sequence[str], room: float = AXIS_CHARACTERS) -> None:
        """Name the places 0, 1, ... of an axis; as many of them have a label as there is room for.

        `room` is a number of characters for the horizontal axis, and a number of labels for the vertical one.
        """
        style: dict[str, Any] = {}
        if axis == "x":
            places, upright = fitting_labels(labels, room)
            if upright:
                style["rotation"] = 90
                if len(places) > UPRIGHT_LABELS:
                    style["size"] = self.small
        else:
            places = evenly_spaced(labels, int(room))
        self.marks(axis, panel, places, [labels[i] for i in places], **style)

    def marks(
        self, axis: str, panel: str, places: Sequence[float], labels: Sequence[str], **defaults: Any
    ) -> None:
        """Write labels at some places along an axis."""
        chosen = get_visual_kwargs(self.visuals, f"{axis}ticks")
        if chosen is not False:
            set_ticks = getattr(self.backend, f"{axis}ticks")
            set_ticks(list(places), labels, self.target(panel), **{**defaults, **chosen})

    def limits(self, panel: str, x: tuple[float, float] | None = None, y: Any = None) -> None:
        """Set the ends of the axes of a panel; a reversed pair turns the axis."""
        for axis, ends in (("x", x), ("y", y)):
            if ends is not None:
                getattr(self.backend, f"{axis}lim")(ends, self.target(panel))

    def legend(self, entries: Sequence[Entry], title: str | None = None) -> None:
        """A legend beside the panels."""
        chosen = get_visual_kwargs(self.visuals, "legend")
        if chosen is not False and entries:
            figure = self.collection.get_viz("figure")
            draw = matplotlib_legend if self.collection.backend == "matplotlib" else plotly_legend
            draw(figure, entries, title, **chosen)


def evenly_spaced(labels: Sequence[str], most: int) -> list[int]:
    """Places of at most `most` labels, 1, 2, 5, 10, ... apart; where labels are years, at round numbers."""
    n = len(labels)
    step = next(s * 10**e for e in range(12) for s in (1, 2, 5) if -(-n // (s * 10**e)) <= max(most, 1))
    start = 0
    if step > 1 and all(label.lstrip("-").isdigit() for label in labels):
        numbers = np.array([int(label) for label in labels])
        if (np.diff(numbers) == 1).all():
            start = int(-numbers[0] % step)
    return list(range(start, n, step))


def fitting_labels(labels: Sequence[str], room: float) -> tuple[list[int], bool]:
    """The places of the labels of a horizontal axis for which there is room, and whether they stand upright.

    Parameters
    ----------
    room : the number of characters that fit along the axis
    """
    widest = max(map(len, labels))
    if len(labels) * (widest + 2) <= room or widest <= 6:
        return evenly_spaced(labels, int(room // (widest + 2))), False
    return evenly_spaced(labels, int(SMALL_LABELS * room / AXIS_CHARACTERS)), True


def below(labels: Sequence[str]) -> float:
    """The inches that upright labels of a horizontal axis take below it; 0 if labels are not upright."""
    character, most = LABEL
    return min(character * max(map(len, labels)), most) if fitting_labels(labels, AXIS_CHARACTERS)[1] else 0.0


def colours_of(n: int, backend: str) -> list[str]:
    """n colours that differ in brightness."""
    places = np.linspace(0.1, 0.95, n) if n > 1 else np.array([0.35])
    if backend == "matplotlib":
        import matplotlib as mpl

        return [mpl.colors.to_hex(c) for c in mpl.colormaps[COLOUR_MAP](places)]
    from plotly.colors import sample_colorscale

    return list(sample_colorscale(COLOUR_MAP, places.tolist()))


def bars(
    da: xr.DataArray, target: Any, *, color: Any, bottom: Any = 0.0, width: float = 0.9, **kwargs: Any
) -> Any:
    """Bars of the heights `da` (n,) at 0, 1, ..., from `bottom` upwards, as one object of the backend.

    `width` is the width of a bar; bars of a width of 1 touch.
    """
    height = np.nan_to_num(np.asarray(da, float))
    low = np.broadcast_to(np.nan_to_num(np.asarray(bottom, float)), height.shape)
    centre = np.arange(len(height), dtype=float)
    if backend_from_object(target, return_module=False) == "matplotlib":
        from matplotlib.collections import PolyCollection

        left, right, top = centre - width / 2, centre + width / 2, low + height
        corners = np.stack([left, low, left, top, right, top, right, low], axis=1).reshape(-1, 4, 2)
        # without antialiasing bars that touch have no pale lines between them
        style = {"facecolor": color, "linewidth": 0, "antialiased": width < 1, "zorder": 2}
        return target.add_collection(PolyCollection(list(corners), **{**style, **kwargs}))
    import plotly.graph_objects as go

    bar = go.Bar(
        {
            "x": centre,
            "y": height,
            "base": low,
            "width": width,
            "marker": {"color": color, "line": {"width": 0}},
            "showlegend": False,
        }
        | kwargs
    )
    target.add_trace(bar)
    target.figure.update_layout(barmode="overlay")
    return bar


def image(
    da: xr.DataArray,
    target: Any,
    *,
    colours: str | Sequence[str] = COLOUR_MAP,
    low: float = 0.0,
    high: float = 1.0,
    bar: str | None = None,
    beside: Sequence[Any] | None = None,
    square: bool = False,
    **kwargs: Any,
) -> Any:
    """An image of `da` (rows, columns), whose cells are at 0, 1, ... from below and from the left.

    Parameters
    ----------
    colours : name of a colour map for values from low to high; or a colour for each of the values 0, 1, ...
    bar : what the colours mean, beside a colour bar; None for none
    beside : the panels at whose right the colour bar stands; by default those with the same horizontal axis
    square : whether the cells are squares
    """
    values = np.asarray(da, float)
    if not isinstance(colours, str):
        low, high = -0.5, len(colours) - 0.5
    if backend_from_object(target, return_module=False) == "matplotlib":
        from matplotlib.colors import ListedColormap

        style = {
            "cmap": colours if isinstance(colours, str) else ListedColormap(list(colours)),
            "interpolation": "nearest",
            "aspect": "equal" if square else "auto",
        }
        artist = target.imshow(values, vmin=low, vmax=high, origin="lower", **{**style, **kwargs})
        if bar is not None:
            panels = beside or target.get_shared_x_axes().get_siblings(target)
            target.figure.colorbar(artist, ax=panels, label=bar, fraction=0.05, pad=0.02)
        return artist
    import plotly.graph_objects as go

    scale: Any = colours
    if not isinstance(colours, str):
        ends = np.repeat(np.linspace(0, 1, len(colours) + 1), 2)[1:-1]
        scale = list(zip(ends.tolist(), np.repeat(colours, 2).tolist(), strict=True))
    panel = target.figure.get_subplot(target.row, target.col)
    if square:
        panel.yaxis.update(scaleanchor=panel.yaxis.anchor, constrain="domain")
        panel.xaxis.update(constrain="domain")
    bottom, top = panel.yaxis.domain
    trace = go.Heatmap(
        {
            "z": values,
            "zmin": low,
            "zmax": high,
            "colorscale": scale,
            "showscale": bar is not None,
            "colorbar": {
                "title": {"text": bar, "side": "right"},
                "thickness": 14,
                "x": panel.xaxis.domain[1] + 0.01,
                "y": (bottom + top) / 2,
                "len": top - bottom,
            },
            "hovertemplate": "%{x}, %{y}: %{z:.3g}<extra></extra>",
        }
        | kwargs
    )
    target.add_trace(trace)
    return trace


def points(da: xr.DataArray, target: Any, *, x: Any = None, **kwargs: Any) -> Any:
    """Points at the heights `da`, at 0, 1, ... or at x; nan are left out."""
    y = np.asarray(da, float).ravel()
    at = np.arange(len(y)) if x is None else np.asarray(x, float).ravel()
    known = ~np.isnan(y)
    return backend_from_object(target).scatter(at[known], y[known], target, **kwargs)


def line(da: xr.DataArray, target: Any, *, x: Any = None, **kwargs: Any) -> Any:
    """A line through the heights `da`, at 0, 1, ... or at x, which nan interrupt."""
    y = np.asarray(da, float).ravel()
    at = np.arange(len(y)) if x is None else np.asarray(x, float).ravel()
    return backend_from_object(target).line(at, y, target, **kwargs)


def matplotlib_legend(figure: Any, entries: Sequence[Entry], title: str | None, **kwargs: Any) -> None:
    """A legend on the right of a figure of matplotlib."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for text, colour, kind in entries:
        if kind == "patch":
            handles.append(Patch(facecolor=colour, label=text))
        elif kind == "line":
            handles.append(Line2D([], [], color=colour, label=text))
        else:
            marker = MARKERS["matplotlib"][kind]
            handles.append(Line2D([], [], color=colour, label=text, marker=marker, linestyle="none"))
    figure.legend(handles=handles, title=title, **{"loc": "outside right upper", **kwargs})


def plotly_legend(figure: Any, entries: Sequence[Entry], title: str | None, **kwargs: Any) -> None:
    """A legend on the right of a figure of plotly."""
    for text, colour, kind in entries:
        style: dict[str, Any] = {"mode": "markers"}
        if kind == "line":
            style = {"mode": "lines", "line": {"color": colour}}
        elif kind == "patch":
            style["marker"] = {"color": colour, "symbol": "square", "size": 11}
        else:
            symbol = MARKERS["plotly"][kind]
            style["marker"] = {"color": colour, "symbol": symbol, "size": 8, "line": {"color": colour}}
        figure.add_scatter(x=[None], y=[None], name=text, showlegend=True, **style)
    figure.update_layout(showlegend=True, legend={"title": {"text": title}, **kwargs})
