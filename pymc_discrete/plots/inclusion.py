"""Inclusion probabilities of indicators."""

import numpy as np
import xarray as xr
from arviz_plots import PlotCollection

from pymc_discrete.diagnostics.draws import names_not_kept, why_missing
from pymc_discrete.diagnostics.judge import Judge
from pymc_discrete.plots.figure import (
    FIGURE_WIDTH,
    LEGEND_ENTRIES,
    SIDE_BY_SIDE,
    UNCERTAIN,
    Entry,
    Figure,
    below,
    line,
    points,
)
from pymc_discrete.plots.plot import Request, plot
from pymc_discrete.plots.read import PlottedVariable, Shares, shares_of_values
from pymc_discrete.runtime.names import shown

ERROR_BAR = 2  # the number of Monte Carlo standard errors that the lines reach to either side


@plot("chains", "mcse", "mean", "reference", without=["yticks"], color="a list with a colour for each chain")
def plot_inclusion(request: Request) -> PlotCollection:
    """The inclusion probability of each indicator, with its Monte Carlo standard error, and a dot per chain.

    The dash is the mean over all chains, the line reaches two Monte Carlo standard errors to both sides.
    Dots of chains that lie further apart than the line is long are chains that do not agree. The dashed line
    at 1/2 is the border of the median probability model.

    Variables that were summed out have their probabilities in the group ``probabilities`` of the result,
    which are more exact than shares of draws; these are drawn where the result has them, and the title says
    which are drawn.

    Parameters
    ----------
    var_names : str or list of str
        Variables of the values 0 and 1, a panel for each; all such variables by default.

    Raises
    ------
    ValueError
        If a variable does not exist or has other values than 0 and 1, or for another backend or visual.

    Notes
    -----
    The standard error of a share of draws is the root of p (1 - p) / ESS, as in `pmd.summary`, and is left
    out where all draws are equal. The standard error of a probability that was computed by summing out is the
    standard deviation of the chains' means, over the root of their number, and needs two chains.

    With more than 60 elements the dots of chains are drawn at the place of their element, and only as many
    labels are drawn as there is room for.

    References
    ----------
    Barbieri and Berger, Annals of Statistics 32 (2004): the median probability model.

    Examples
    --------
    >>> pmd.plot_inclusion(idata, "gamma")  # doctest: +SKIP
    """
    tree, drawn = request.tree, request.variables
    if request.var_names is None:
        drawn = [v for v in drawn if is_drawn_binary(v)]
        if not drawn:
            raise ValueError(
                "The posterior has no variable with the values 0 and 1. Use pmd.plot_probabilities for "
                "variables with more values."
                f"{why_missing(tree['posterior'], names_not_kept(tree['posterior']))}"
            )
    elif other := [v for v in drawn if not is_drawn_binary(v)]:
        raise ValueError(
            f"{shown(v.name for v in other)} {'is' if len(other) == 1 else 'are'} not of the values 0 and 1 "
            f"alone ({other[0].name!r} goes from {int(other[0].draws.min())} to "
            f"{int(other[0].draws.max())}). Use pmd.plot_probabilities."
        )
    chains = drawn[0].chains
    shares = {v.name: shares_of_values(tree, v) for v in drawn}
    found = {v.name: inclusion(tree, v, shares[v.name]) for v in drawn}
    figure = request.figure(
        xr.Dataset({name: array for name, (array, _) in found.items()}),
        (FIGURE_WIDTH, sum(2.8 + below(v.labels) for v in drawn)),
    )
    few = len(chains) <= LEGEND_ENTRIES
    colours = list(request.color or (figure.cycle(len(chains)) if few else [UNCERTAIN] * len(chains)))
    figure.colour_by("chain", range(len(chains)), colours)
    for v in drawn:
        draw_inclusion(figure, v, shares[v.name], *found[v.name])
    entries = [Entry("mean", "black", "dash")]
    if few and len(chains) > 1:
        entries += [Entry(f"chain {c}", colour, "dot") for c, colour in zip(chains, colours, strict=False)]
    elif len(chains) > 1:
        entries.append(Entry("a chain", UNCERTAIN, "dot"))
    figure.legend(entries)
    return figure.collection


def is_drawn_binary(v: PlottedVariable) -> bool:
    """Whether all draws are 0 or 1."""
    return int(v.draws.min()) >= 0 and int(v.draws.max()) <= 1


def inclusion(tree: xr.DataTree, v: PlottedVariable, shares: Shares) -> tuple[xr.DataArray, np.ndarray]:
    """The probabilities of 1 in each chain (chain, element), and their standard errors (elements,)."""
    one = np.flatnonzero(shares.values == 1)
    p = shares.p[..., one[0]] if len(one) else np.zeros(shares.p.shape[:2])
    array = xr.DataArray(p, {"chain": np.arange(len(p))}, ["chain", f"{v.name} element"])
    if shares.summed:
        error = p.std(axis=0, ddof=1) / np.sqrt(len(p)) if len(p) > 1 else np.full(v.size, np.nan)
        return array, error
    columns = Judge(tree, columns={v.name: np.array([0, 1])}).of(v.name).columns
    return array, columns.get("mcse P(1)", np.full(v.size, np.nan))


def draw_inclusion(
    figure: Figure, v: PlottedVariable, shares: Shares, p: xr.DataArray, error: np.ndarray
) -> None:
    """Draw the panel of a variable, given the probabilities of 1 in each chain and their standard errors."""
    name, element = v.name, f"{v.name} element"
    place = np.arange(v.size)
    n = len(p)
    side = np.zeros(n)
    if n > 1 and v.size <= SIDE_BY_SIDE:
        side = np.linspace(-0.22, 0.22, n)
        side += np.where(side < 0, -0.1, 0.1)  # The middle is left free for the mean and its error.
    at = xr.DataArray(place + side[:, None], {"chain": np.arange(n)}, ["chain", element])
    mean = p.mean("chain").to_dataset(name=name)
    size, long = (16, 70) if v.size <= SIDE_BY_SIDE else (5, 14)
    half = xr.DataArray([0.5, 0.5], dims="end").to_dataset(name=name)
    ends = (-0.6, v.size - 0.4)
    figure.draw("reference", line, half, x=ends, color="B3", linestyle="C1", width=1)
    if n > 1:
        figure.draw("chains", points, p.to_dataset(name=name), ["color"], x=at, size=size)
    reach = mean[name].values[:, None] + ERROR_BAR * error[:, None] * [-1.0, 1.0, np.nan]
    lines = xr.DataArray(reach.ravel(), dims="end")
    figure.draw("mcse", line, lines.to_dataset(name=name), x=np.repeat(place, 3), color="black", width=2)
    figure.draw("mean", points, mean, color="black", size=long, marker=figure.markers["dash"])
    figure.limits(name, ends, (-0.03, 1.03))
    figure.ticks("x", name, v.labels)
    title = f"{name}: inclusion probability ± {ERROR_BAR} Monte Carlo standard errors\n{shares.source}"
    figure.label(name, title, v.axis, f"P({name} = 1)")
