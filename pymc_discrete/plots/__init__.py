"""Plots of what the draws of discrete variables say, as arviz-plots makes them.

Each function returns a `PlotCollection` of arviz-plots, drawn by matplotlib or by plotly.
"""

from pymc_discrete.plots.chains import plot_chains
from pymc_discrete.plots.coclustering import plot_coclustering
from pymc_discrete.plots.counts import plot_counts
from pymc_discrete.plots.inclusion import plot_inclusion
from pymc_discrete.plots.moves import plot_moves
from pymc_discrete.plots.probabilities import plot_probabilities

__all__ = [
    "plot_chains",
    "plot_coclustering",
    "plot_counts",
    "plot_inclusion",
    "plot_moves",
    "plot_probabilities",
]
