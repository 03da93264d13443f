"""How often the elements of discrete variables move."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection

from pymc_discrete.diagnostics.draws import counted, per_element
from pymc_discrete.diagnostics.judge import Judge
from pymc_discrete.diagnostics.statistics.movement import moves_of
from pymc_discrete.plots.figure import (
    ALARM,
    FIGURE_WIDTH,
    SIDE_BY_SIDE,
    UNCERTAIN,
    Entry,
    Figure,
    below,
    points,
)
from pymc_discrete.plots.plot import Request, plot
from pymc_discrete.plots.read import PlottedVariable, note_on_labels, tree_of

SUSPECTS = "suspects"  # a group of a result: whether elements that never moved should have
LISTED_IN_TITLE = 6  # Up to this many elements are named in the title.


@plot("moved", "expected", "still", "never", without=["yticks"])
def plot_moves(request: Request) -> PlotCollection:
    """How often each element moves in each chain: the share of draws that differ from the one before.

    The dash is the share that independent draws with the same probabilities would have, so that an element
    whose dots are far below its dash mixes slowly, and one whose dash is low too hardly moves because one
    value is nearly certain. Where labels switch between or within chains, as the title then says, all dashes
    are far above the dots, since elements then have several probable values among which none moves alone:
    draw the plot after `pmd.relabel`. A chain in which an element never moved is a grey dot where this was to
    be expected, and a cross where this was not to be expected, or where the result does not say; the title
    names the elements with a cross.

    Raises
    ------
    ValueError
        If a variable does not exist or is not of integers, or for another backend or visual.

    Notes
    -----
    Independent draws differ from the one before with the probability 1 - sum_k p_k^2. A chain that never
    moved was not to be expected where the verdict of `pmd.summary` is ``stuck`` or ``apart``, or ``constant``
    if the result does not say that other values are improbable, or if a continuous variable may hold the
    element at its value. In these cases the log has a warning, too.

    With more than 60 elements the dots of chains are drawn at the place of their element, and only as many
    labels are drawn as there is room for.

    Examples
    --------
    >>> pmd.plot_moves(idata, "z")  # doctest: +SKIP
    """
    variables = request.variables
    judge = Judge(request.idata)
    tree = tree_of(with_suspects(judge, [v.name for v in variables]), request.coords)
    found = {v.name: moves(tree, v) for v in variables}
    figure = request.figure(
        xr.Dataset({name: m for name, (m, _, _) in found.items()}),
        (FIGURE_WIDTH, sum(2.8 + below(v.labels) for v in variables)),
    )
    colour = figure.cycle(1)[0]
    kinds: set[str] = set()
    for v in variables:
        kinds |= draw_moves(figure, v, *found[v.name], colour, note_on_labels(judge, v.name))
    entries = {
        "moved": Entry("a chain", colour, "dot"),
        "expected": Entry("if draws were\nindependent", "black", "dash"),
        "still": Entry("never moved,\nas expected", UNCERTAIN, "dot"),
        "never": Entry("never moved", ALARM, "cross"),
    }
    figure.legend([entry for kind, entry in entries.items() if kind in kinds])
    return figure.collection


def with_suspects(judge: Judge, names: list[str]) -> xr.DataTree:
    """The result with one more group, which says for each element whether it should have moved in a chain
    in which it did not.
    """
    found = {}
    for name in names:
        draws = judge.draws(name)
        suspect = judge.of(name).decided.suspect.reshape(draws.shape[2:])
        found[name] = draws.isel(chain=0, draw=0, drop=True).copy(data=suspect)
    return xr.DataTree.from_dict({"posterior": judge.all, **judge.groups, SUSPECTS: xr.Dataset(found)})


def moves(tree: xr.DataTree, v: PlottedVariable) -> tuple[xr.DataArray, np.ndarray, np.ndarray]:
    """The moves of each element of a variable.

    Returns
    -------
    (chain, element) the share of draws that differ from the one before
    expected : (elements,) the share that independent draws with the same probabilities would have
    suspect : (elements,) bool, whether a chain in which the element never moves was not to be expected, or
        nothing is known about it
    """
    names = {"chain": v.chains}
    moved = per_element(lambda x: moves_of(x) / (x.shape[2] - 1), v.draws.data, more=names)
    expected = per_element(lambda x: 1.0 - (counted(x).p ** 2).sum(axis=1), v.draws.data)
    array = xr.DataArray(
        np.asarray(moved).reshape(v.size, -1).T,
        {"chain": v.chains},
        ["chain", f"{v.name} element"],
    )
    return array, np.asarray(expected).ravel(), tree[SUSPECTS][v.name].data.ravel()


def draw_moves(
    figure: Figure,
    v: PlottedVariable,
    moved: xr.DataArray,
    expected: np.ndarray,
    suspect: np.ndarray,
    colour: Any,
    note: str,
) -> set[str]:
    """Draw the panel of a variable, with a note in its title; returns the visuals that the panel has."""
    name, few, chains = v.name, v.size <= SIDE_BY_SIDE, len(moved)
    side = np.linspace(-0.25, 0.25, chains) if chains > 1 and few else np.zeros(chains)
    x = (np.arange(v.size) + side[:, None]).ravel()
    y = moved.values.ravel()
    never = (y == 0) & np.tile(suspect, chains)
    still = (y == 0) & ~never
    size = 30 if few else 10
    groups = {
        "moved": (y > 0, {"color": colour, "size": size, "marker": figure.markers["dot"]}),
        "still": (still, {"color": UNCERTAIN, "size": size, "marker": figure.markers["dot"]}),
        "never": (never, {"color": ALARM, "size": 45, "marker": figure.markers["cross"]}),
    }
    marks = xr.DataArray(expected, dims=[f"{name} element"]).to_dataset(name=name)
    dash, long = figure.markers["dash"], 160 if few else 20
    figure.draw("expected", points, marks, color="black", size=long, marker=dash)
    for visual, (chosen, style) in groups.items():
        if chosen.any():
            data = xr.DataArray(y[chosen], dims="dot").to_dataset(name=name)
            figure.draw(visual, points, data, x=x[chosen], **style)
    top = max(float(y.max()), float(expected.max()), 0.01)
    figure.limits(name, (-0.6, v.size - 0.4), (-0.06 * top, 1.08 * top))
    figure.ticks("x", name, v.labels)
    sites = np.flatnonzero(never.reshape(chains, v.size).any(axis=0))
    title = f"{name}: how often it moves, {chains} × {v.draws.shape[1]} draws"
    if len(sites):
        names = ", ".join(v.labels[i] for i in sites[:LISTED_IN_TITLE]) + (
            ", ..." if len(sites) > LISTED_IN_TITLE else ""
        )
        title += f"\n{len(sites)} of {v.size} never moved in some chain: {names}"
    figure.label(name, title + note, v.axis, "share that moved")
    return {"expected"} | {visual for visual, (chosen, _) in groups.items() if chosen.any()}
