"""Which sites of a block interact, and so which may be drawn together.

Sites that only sparse terms read are coloured: those of one colour do not interact, and are drawn together.
Sites that tables join in pairs make a graph, of which forests are drawn together. Sites of a part that mixes
them all are scanned one at a time.
"""

from functools import cached_property

import numpy as np

from pymc_discrete.targets.colours import colour_classes, links_of, neighbourhoods
from pymc_discrete.targets.forests import Forest, coverings, is_forest
from pymc_discrete.targets.space import Space


class Interactions:
    """The graph of a block's sites.

    Parameters
    ----------
    pairs : (E, 2) int, sites that a table joins, the lower first
    apart : [(n, J) int], sites that something else joins, -1 for none
    mixed : (d,) bool, sites of a part that joins them all
    """

    def __init__(self, pairs: np.ndarray, apart: list[np.ndarray], mixed: np.ndarray, space: Space):
        self.pairs, self.space, self._mixed = pairs, space, mixed
        self._apart = links_of(apart, space.d)
        self._links = links_of([pairs, *apart], space.d)

    @cached_property
    def colours(self) -> list[tuple[int, np.ndarray]]:
        """[(variable number, (r,) int sites counted within it)]: groups of sites that do not interact, of all
        sites but the `scanned`.
        """
        colours = []
        for n, (start, v) in enumerate(self.space.blocks):
            members = start + np.flatnonzero(~self._mixed[start : start + v.size])
            colours += [(n, sites - start) for sites in colour_classes(self._links, members)]
        return colours

    @cached_property
    def scanned(self) -> list[tuple[int, np.ndarray]]:
        """[(variable number, (r,) int sites counted within it)]: the other sites."""
        of_variables = [np.flatnonzero(self._mixed[start : start + v.size]) for start, v in self.space.blocks]
        return [(n, sites) for n, sites in enumerate(of_variables) if len(sites)]

    @cached_property
    def neighbourhoods(self) -> list[np.ndarray] | None:
        """Per variable (d, width) int, which of its sites have other differences once a site changes, counted
        within the variable, one past the end for none; None where those are many.
        """
        d = self.space.d
        if self._mixed.any() or d < 4:
            return None
        if np.bincount(self._links[:, 0], minlength=d).max() >= max(d // 4, 1):
            return None
        return neighbourhoods(self._links, [(start, v.size) for start, v in self.space.blocks], d)

    # ------------------------------------------------------------ forests
    @property
    def _joined(self) -> np.ndarray:
        """Sites that a table joins to another, but for those that are scanned."""
        return np.setdiff1d(self.pairs, np.flatnonzero(self._mixed))

    @cached_property
    def tree(self) -> bool:
        """Whether the sites that tables join make no cycle: `forests` is then one forest."""
        inside = np.isin(np.arange(self.space.d), self._joined)
        pairs, apart = (links[inside[links].all(axis=1)] for links in (self.pairs, self._apart))
        return len(pairs) > 0 and len(apart) == 0 and is_forest(pairs, self.space.d)

    @cached_property
    def forests(self) -> list[list[Forest]]:
        """Coverings of the sites that tables join, but for those that are scanned: lists of forests in which
        each of these sites occurs.
        """
        return coverings(self.pairs, self._apart, self._joined, self.space.d)
