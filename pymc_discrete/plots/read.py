"""The reader of results for plots: variables, the names of their elements, probabilities of values."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from arviz_base.labels import BaseLabeller

from pymc_discrete.diagnostics.draws import DISCRETE_ATTRIBUTE, batches, checked_draws, counted, posterior_of
from pymc_discrete.diagnostics.judge import Judge
from pymc_discrete.runtime.checks import check_result
from pymc_discrete.runtime.names import shown

GROUPS = (
    "posterior",
    "probabilities",
    "conditionals",
    "sample_stats",
    "observed_data",
    "constant_data",
    "suspects",
)
# A variable with a value of MOST_LABELS or more is not taken for labels: plots do not ask whether its labels
# switch.
MOST_LABELS = 30
# A value of a variable that was summed out is left out if it is less probable than VISIBLE in all elements.
VISIBLE = 1e-3


class PlottedVariable(NamedTuple):
    """A discrete variable, its elements in one row.

    Attributes
    ----------
    name : str
    draws : (chain, draw, ...) DataArray of integers
    labels : the label of each element
    axis : a name for all elements together: the names of the dimensions, or "element of NAME"
    """

    name: str
    draws: xr.DataArray
    labels: list[str]
    axis: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return len(self.labels)

    @property
    def chains(self) -> list[str]:
        """The names of the chains."""
        return [str(c) for c in self.draws["chain"].values]


class Shares(NamedTuple):
    """The probabilities of the values of a variable.

    Attributes
    ----------
    values : (V,) int, ascending
    p : (chains, elements, V) float; nan where nothing is known
    source : the origin of the probabilities, in words
    summed : whether the variable was summed out, so that `p` are means of probabilities and no shares of
        draws
    """

    values: np.ndarray
    p: np.ndarray
    source: str
    summed: bool

    @property
    def pooled(self) -> np.ndarray:
        """(elements, V) float, probabilities of values, as means over the chains in which they are known."""
        known = ~np.isnan(self.p)
        total = np.where(known, self.p, 0.0).sum(axis=0)
        return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def tree_of(idata: Any, coords: Mapping[str, Any] | None) -> xr.DataTree:
    """The groups of a result that plots read, restricted to `coords` if they are given.

    Raises
    ------
    TypeError
        If `idata` is neither a DataTree with a group ``posterior`` nor a Dataset.
    ValueError
        If `coords` names a dimension, or a label, that the posterior does not have.
    """
    if isinstance(idata, xr.Dataset):
        idata = xr.DataTree.from_dict({"posterior": idata})
    check_result(idata, "pmd.plot_probabilities(idata, 'z')")
    groups = {name: idata[name].to_dataset() for name in GROUPS if name in idata.children}
    chosen = {
        d: c if isinstance(c, slice) else np.atleast_1d(np.asarray(c)) for d, c in (coords or {}).items()
    }
    if unknown := [d for d in chosen if d not in groups["posterior"].dims]:
        raise ValueError(
            f"coords names {shown(unknown)}, and the posterior has the dimensions "
            f"{shown(map(str, groups['posterior'].dims))}."
        )
    for d, labels in chosen.items():
        if not isinstance(labels, slice) and d in groups["posterior"].coords:
            there = groups["posterior"].coords[d].values
            if missing := [label for label in labels.tolist() if label not in there.tolist()]:
                raise ValueError(
                    f"coords[{d!r}] has {shown(map(str, missing), what='labels')}, which the posterior does "
                    f"not have; it has {shown(map(str, there.tolist()), what='labels')}."
                )
    return xr.DataTree.from_dict(
        {name: ds.sel({d: c for d, c in chosen.items() if d in ds.dims}) for name, ds in groups.items()}
    )


def plotted_variables(
    tree: xr.DataTree, var_names: str | list[str] | None, labeller: BaseLabeller | None
) -> list[PlottedVariable]:
    """The discrete variables of the posterior that are to be drawn.

    By default these are the variables that the model draws, if the result names them, as a result of
    `pmd.sample` does, or else all discrete variables.

    Raises
    ------
    ValueError
        For names that are not in the posterior, variables that are not integers or have no elements, fewer
        than 4 draws, and where there are no discrete variables.
    """
    labeller = labeller or BaseLabeller()
    if var_names is None and DISCRETE_ATTRIBUTE in tree["posterior"].attrs:
        var_names = json.loads(tree["posterior"].attrs[DISCRETE_ATTRIBUTE])
    found = []
    for key, draws in posterior_of(tree, var_names).data_vars.items():
        name = str(key)
        checked_draws(draws.data)
        if not draws.size:
            raise ValueError(f"{name!r} has no elements to draw: its shape is {draws.shape}.")
        found.append(PlottedVariable(name, draws, element_labels(draws, labeller), axis_of(draws)))
    return found


def names_of_values(
    idata: Any,
    value_names: str | Mapping[int, str] | Sequence[str] | None,
    values: Mapping[str, np.ndarray],
) -> dict[int, str]:
    """{value: name}, of those values that have one.

    Parameters
    ----------
    value_names : a dimension of the posterior whose coordinates name the values 0, 1, ...; their names in a
        sequence; or {value: name}, which may leave values out
    values : {variable: its values}

    Raises
    ------
    ValueError
        If the posterior has no such dimension, or it has no coordinates, or if a sequence or a dimension has
        no name for one of the values.
    """
    if isinstance(value_names, str):
        named = idata["posterior"].coords if isinstance(idata, xr.DataTree) else idata.coords
        there = [str(d) for d in named if d not in ("chain", "draw")]
        if value_names not in there:
            raise ValueError(
                f"value_names={value_names!r} is no dimension of the posterior with coordinates; those are "
                f"{shown(there) or 'none'}. Pass one of them, or the names themselves: {{0: 'absent', ...}}."
            )
        value_names = [str(name) for name in named[value_names].values]
    if value_names is None or isinstance(value_names, Mapping):
        return {int(value): str(name) for value, name in (value_names or {}).items()}
    for name, drawn in values.items():
        if nameless := [str(v) for v in drawn.tolist() if not 0 <= v < len(value_names)]:
            names = f"{len(value_names)} {'name' if len(value_names) == 1 else 'names'}"
            raise ValueError(
                f"value_names has {names}, and {name!r} has {len(drawn)} values: there is no name for "
                f"{shown(nameless, quoted=False, what='values')}. A sequence names 0, 1, ...; "
                "pass one for each value, or the names of some as {value: name}."
            )
    return dict(enumerate(map(str, value_names)))


def note_on_labels(judge: Judge, name: str, named_by: Any = None) -> str:
    """A line of a plot's title that warns about a variable's labels; empty without a reason to warn.

    Labels may switch so often that all elements mix and have the verdict ``ok``: shares of values belong to
    no single label all the same.

    Parameters
    ----------
    judge : Judge
        The judge of the whole result, whichever elements are drawn.
    named_by : the dimension whose coordinates name the values in the picture, if a dimension does
    """
    facts = judge.of(name)
    orders, within = facts.orders, facts.switch
    if orders is None and not within and judge.draws(name).data.max() < MOST_LABELS:
        orders, within = judge.labels(name)
    if orders is not None or within:
        return f"\nlabels switch {'within' if within else 'between'} chains: pmd.relabel first"
    done = judge.groups.get("permutations", xr.Dataset()).get(name)
    if done is None or not isinstance(named_by, str):
        return ""
    if done.attrs["share_permuted"] and not done.attrs.get("order_by"):
        return "\nthe names need not fit: pmd.relabel(order_by=...)"
    return ""


def element_labels(draws: xr.DataArray, labeller: BaseLabeller) -> list[str]:
    """The label of each element of draws (chain, draw, ...); the label of a scalar is the variable's name."""
    dims = draws.dims[2:]
    if not dims:
        return [str(labeller.var_name_to_str(str(draws.name)))]
    axes = [draws[d].values for d in dims]
    axes = [np.datetime_as_string(a, unit="auto") if a.dtype.kind == "M" else a for a in axes]
    places = product(*(range(len(a)) for a in axes))
    return [
        labeller.sel_to_str(
            {d: a[i] for d, a, i in zip(dims, axes, place, strict=True)}, dict(zip(dims, place, strict=True))
        )
        for place in places
    ]


def axis_of(draws: xr.DataArray) -> str:
    """A name for all elements of draws (chain, draw, ...) together."""
    dims = [str(d) for d in draws.dims[2:]]
    if not dims:
        return ""
    unnamed = re.compile(re.escape(str(draws.name)) + r"_dim_\d+")
    return f"element of {draws.name}" if any(map(unnamed.fullmatch, dims)) else ", ".join(dims)


def shares_of_values(tree: xr.DataTree, variable: PlottedVariable) -> Shares:
    """The probabilities of a variable's values, from the group `probabilities` or else the shares
    of draws."""
    name, draws = variable.name, variable.draws
    number = f"{draws.shape[0]} × {draws.shape[1]} draws"
    if "probabilities" in tree.children and name in tree["probabilities"].data_vars:
        of_values = tree["probabilities"][name].transpose("chain", *draws.dims[2:], f"{name} value")
        p = of_values.data.reshape(of_values.shape[0], variable.size, -1)
        there = (p >= VISIBLE).any(axis=(0, 1))
        values = of_values[f"{name} value"].values.astype(int)
        if there.any():  # false if no element was ever summed out: then shares of draws are taken
            return Shares(values[there], p[..., there], f"summed out, mean over {number}", True)
    found = [counted(x) for x in batches(draws.data)]
    values = np.unique(np.concatenate([c.values for c in found])).astype(int)
    p = np.zeros((draws.shape[0], variable.size, len(values)))
    start = 0
    for c in found:
        sites = slice(start, start + len(c.of_chains))
        p[:, sites, np.searchsorted(values, c.values)] = np.moveaxis(c.of_chains, 1, 0) / draws.shape[1]
        start = sites.stop
    return Shares(values, p, f"share of {number}", False)
