"""The decorator `plot`, which makes a plot of a function, and the arguments that all plots share."""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import xarray as xr
from arviz_base.labels import BaseLabeller
from arviz_plots import PlotCollection

from pymc_discrete.plots.figure import Figure
from pymc_discrete.plots.read import PlottedVariable, plotted_variables, tree_of
from pymc_discrete.runtime.docstrings import items, sections, written

# the visuals that every plot has, except where `without` names them
AROUND = ("legend", "title", "xlabel", "ylabel", "xticks", "yticks")
OF_COLLECTION = "Keyword arguments of `arviz_plots.PlotCollection.wrap`, such as ``figure_kwargs``"


class Plot(Protocol):
    """A plot, as the user calls it; `options` are those of the plot and of `PlotCollection.wrap`."""

    __name__: str

    def __call__(
        self,
        idata: Any,
        var_names: str | list[str] | None = None,
        *,
        coords: Mapping[str, Any] | None = None,
        labeller: BaseLabeller | None = None,
        backend: str | None = None,
        visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
        **options: Any,
    ) -> PlotCollection: ...


class Request:
    """What the user wants drawn: the arguments that all plots have, and what is made of them.

    `docstring_of_plot` describes `visuals` and the keyword arguments of `PlotCollection`, for each plot.

    Parameters
    ----------
    idata : DataTree
        Draws by `pm.sample`, `pmd.sample` or any other sampler, with a group ``posterior``.
    var_names : str or list of str
        Discrete variables, a panel for each; by default all that the model draws, or all of
        integers where the result does not say which these are.
    coords : dict, optional
        {dimension: labels} of the elements to draw.
    labeller : arviz_base.labels.BaseLabeller, optional
        Makes the labels of elements from their coordinates.
    backend : {"matplotlib", "plotly"}, optional
        By default ``plot.backend`` of ArviZ's ``rcParams``.

    Raises
    ------
    TypeError
        If `idata` is no DataTree with a group ``posterior``.

    Attributes
    ----------
    color : the argument ``color`` of a plot that has it
    """

    def __init__(
        self,
        known: Sequence[str],
        takes_color: bool,
        /,
        idata: Any,
        var_names: str | list[str] | None = None,
        *,
        coords: Mapping[str, Any] | None = None,
        labeller: BaseLabeller | None = None,
        backend: str | None = None,
        visuals: Mapping[str, Mapping[str, Any] | bool] | None = None,
        **pc_kwargs: Any,
    ) -> None:
        self.idata, self.var_names, self.coords, self.labeller = idata, var_names, coords, labeller
        self.color = pc_kwargs.pop("color", None) if takes_color else None
        self._known, self._backend, self._visuals, self._pc_kwargs = known, backend, visuals, pc_kwargs

    @cached_property
    def tree(self) -> xr.DataTree:
        """The groups of the result that plots read, at the coordinates to draw."""
        return tree_of(self.idata, self.coords)

    @cached_property
    def variables(self) -> list[PlottedVariable]:
        """The discrete variables to draw."""
        return plotted_variables(self.tree, self.var_names, self.labeller)

    def figure(self, panels: xr.Dataset, size: tuple[float, float], **layout: Any) -> Figure:
        """A figure of this size, in inches, with a panel for each variable of a Dataset."""
        return Figure(panels, self._visuals, self._known, self._backend, size, self._pc_kwargs, **layout)


def plot(
    *drawn: str, without: Sequence[str] = (), color: str | None = None
) -> Callable[[Callable[..., PlotCollection]], Plot]:
    """A decorator that makes a plot of a function of a `Request` and of the plot's own arguments.

    The plot has the arguments of `Request` beside its own. An own argument that is not keyword-only takes the
    place of `var_names`. The plot's docstring is the function's docstring, with the text of `Request` for
    arguments and errors that the function's docstring leaves out.

    Parameters
    ----------
    drawn : the names of the plot's visuals beside those of `AROUND`, drawn by functions of the backend
    without : visuals of `AROUND` that the plot does not have
    color : the description of the argument ``color``, if the plot has it
    """
    around = [visual for visual in AROUND if visual not in without]

    def decorate(function: Callable[..., PlotCollection]) -> Plot:
        own = list(inspect.signature(function).parameters.values())[1:]
        shared = [p for p in inspect.signature(Request).parameters.values() if p.kind != p.POSITIONAL_ONLY]
        if any(p.kind == p.POSITIONAL_OR_KEYWORD for p in own):
            shared = [p for p in shared if p.name != "var_names"]
        parameters = sorted([shared[0], *own, *shared[1:]], key=lambda p: p.kind)
        signature = inspect.Signature(parameters, return_annotation=PlotCollection)

        def plotted(*args: Any, **kwargs: Any) -> PlotCollection:
            given = signature.bind(*args, **kwargs).arguments
            options = {p.name: given.pop(p.name) for p in own if p.name in given}
            others = given.pop("pc_kwargs", {})
            return function(Request([*drawn, *around], color is not None, **given, **others), **options)

        names = f"{', '.join(drawn)} (arguments of the backend's functions), {', '.join(around)}"
        more = f", and ``color``, {color}" if color else ""
        plotted.__name__ = plotted.__qualname__ = function.__name__
        plotted.__module__, plotted.__doc__ = function.__module__, docstring_of_plot(function, names, more)
        plotted.__dict__["__signature__"] = signature
        return plotted

    return decorate


def docstring_of_plot(function: Callable[..., PlotCollection], visuals: str, more: str) -> str:
    """The docstring of a plot: its function's, with the text of `Request` for other arguments and errors.

    Parameters
    ----------
    visuals : the names of the plot's visuals
    more : the plot's further arguments, beside the keyword arguments of PlotCollection
    """
    if not Request.__doc__:  # With -OO, Python keeps no docstrings.
        return ""
    own, shared = sections(function), sections(Request)
    of_plot, of_all = items(own.get("Parameters", "")), items(shared["Parameters"])
    if "var_name" in of_plot:
        del of_all["var_names"]
    both = of_all | of_plot
    first = [name for name in ("idata", "var_name", "var_names") if name in both]
    lines = [both[name] for name in dict.fromkeys([*first, *of_plot, *of_all])]
    listed = f"{{visual: keyword arguments for it, or False to leave it out}}: {visuals}."
    for name, text in (("visuals : dict, optional", listed), ("**pc_kwargs", f"{OF_COLLECTION}{more}.")):
        lines += [name, textwrap.indent(textwrap.fill(text, 102), "    ")]
    parts = {**own, "Parameters": "\n".join(lines), "Returns": "arviz_plots.PlotCollection"}
    parts["Raises"] = "\n".join(part["Raises"] for part in (shared, own) if "Raises" in part)
    return written(parts)
