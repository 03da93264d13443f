"""Which sites of a block interact, and therefore which may be drawn together.

Sites whose terms join few sites each are coloured: those of one colour do not interact, and are drawn at
once. Sites that interact through tables of pairs only are the nodes of a graph, whose forests are drawn at
once. All sites of a term that joins many sites interact with one another, and are drawn one at a time
(scanned). Sites that a constraint ties are coloured or scanned as a whole set.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from pymc_discrete.space.colours import colour_classes, links_of, neighbourhoods
from pymc_discrete.space.forests import Forest, coverings, is_forest
from pymc_discrete.space.space import Space


class Sets(NamedTuple):
    """Some sets of one variable, the sites of each of which change together (see `Variable.constraint`).

    Attributes
    ----------
    n : the index of their variable in the space
    sets : (R,) int, the indices of the sets among those of the variable; if the sets are coloured, sites of
        different sets do not interact
    inner : whether sites of the same set may interact, so that only one pair of each set is drawn at a time
    """

    n: int
    sets: np.ndarray
    inner: bool


class Interactions:
    """The graph of a block's sites, in which sites that interact are linked.

    Parameters
    ----------
    pairs : (E, 2) int
        Sites that a table joins, the lower first.
    apart : [(n, J) int]
        Sites that enter one element of the log density without a table of pairs; each row lists the sites of
        an element, padded with -1.
    mixed : (d,) bool
        Sites of a term that joins many sites, each of which interacts with every other.
    space : Space
    """

    def __init__(self, pairs: np.ndarray, apart: list[np.ndarray], mixed: np.ndarray, space: Space):
        self.pairs, self.space, self._mixed = pairs, space, mixed
        self._apart = links_of(apart, space.d)
        self._links = links_of([pairs, *apart], space.d)

    @property
    def linked(self) -> np.ndarray:
        """(d,) bool, the sites that interact with others."""
        linked = self._mixed.copy()
        linked[self._links.ravel()] = True
        return linked

    @cached_property
    def colours(self) -> list[tuple[int, np.ndarray]]:
        """Groups of sites that do not interact, together all sites that need not be drawn one by one.

        Each group is (variable number, (r,) int, sites counted within the variable). Sites that change
        together are left out.
        """
        colours = []
        for n, (start, v) in enumerate(self.space.blocks):
            if v.constraint is not None:
                continue
            members = start + np.flatnonzero(~self._mixed[start : start + v.size])
            colours += [(n, sites - start) for sites in colour_classes(self._links, members)]
        return colours

    @cached_property
    def scanned(self) -> list[tuple[int, np.ndarray]]:
        """[(variable number, (r,) int, sites counted within it)] of sites that have to be drawn one by one.

        Terms of the log density that join many sites make each of these sites interact with every other.
        Sites that change only together are in `scanned_sets`.
        """
        mixed = self._mixed & ~self.space.constrained
        by_variable = [np.flatnonzero(mixed[start : start + v.size]) for start, v in self.space.blocks]
        return [(n, sites) for n, sites in enumerate(by_variable) if len(sites)]

    @cached_property
    def coloured_sets(self) -> list[Sets]:
        """Sets of constrained sites, in groups in which no two sets interact.

        Sets with a site that enters a term of many sites are left out, since they are drawn one by one.
        """
        coloured = []
        for n, (start, v) in enumerate(self.space.blocks):
            if v.constraint is None:
                continue
            inside = ((self._links >= start) & (self._links < start + v.size)).all(axis=1)
            ends = v.constraint.set_of[self._links[inside] - start]
            within = ends[:, 0] == ends[:, 1]
            links = np.unique(ends[~within], axis=0)
            members = np.setdiff1d(v.constraint.set_of, self._mixed_sets(n))
            coloured += [
                Sets(n, sets, bool(np.isin(sets, ends[within, 0]).any()))
                for sets in colour_classes(links, members)
            ]
        return coloured

    @cached_property
    def scanned_sets(self) -> list[Sets]:
        """The sets with a site that enters a term of many sites, in which every site interacts with every
        other.
        """
        constrained = [n for n, v in enumerate(self.space.variables) if v.constraint is not None]
        mixed = [(n, self._mixed_sets(n)) for n in constrained]
        return [Sets(n, sets, True) for n, sets in mixed if len(sets)]

    def _mixed_sets(self, n: int) -> np.ndarray:
        """(R,) int, the sets of variable n that contain a `mixed` site: one that interacts with every other
        site.
        """
        start, v = self.space.blocks[n]
        assert v.constraint is not None
        return np.unique(v.constraint.set_of[self._mixed[start : start + v.size]])

    @cached_property
    def coloured_lines(self) -> list[Sets]:
        """Sets of sites that lines join, in groups in which no two sets interact.

        Sets with a site that enters a term of many sites are left out, since they are drawn one by one.
        """
        coloured = []
        for n in self._with_lines:
            sets = self._sets_with_lines(n)
            links = np.unique(sets[self._links], axis=0)
            links = links[(links >= 0).all(axis=1) & (links[:, 0] != links[:, 1])]
            members = np.setdiff1d(np.unique(sets[sets >= 0]), self._mixed_lines(n))
            coloured += [Sets(n, each, True) for each in colour_classes(links, members)]
        return coloured

    @cached_property
    def scanned_lines(self) -> list[Sets]:
        """The sets of sites that lines join, where one of the sites enters a term of many sites."""
        return [Sets(n, sets, True) for n in self._with_lines if len(sets := self._mixed_lines(n))]

    @property
    def _with_lines(self) -> list[int]:
        """The indices of the variables that have lines."""
        return [n for n, v in enumerate(self.space.variables) if v.lines is not None and v.lines.number.any()]

    def _sets_with_lines(self, n: int) -> np.ndarray:
        """(d,) int, for each site the set of sites that lines of variable n join it to; -1 where there is
        none.
        """
        start, v = self.space.blocks[n]
        assert v.lines is not None
        sets = np.full(self.space.d, -1)
        sets[start : start + v.size] = v.lines.set_of(v.size)
        return sets

    def _mixed_lines(self, n: int) -> np.ndarray:
        """(R,) int, the sets of sites joined by lines of variable n that contain a `mixed` site."""
        sets = self._sets_with_lines(n)
        return np.unique(sets[self._mixed & (sets >= 0)])

    @cached_property
    def neighbourhoods(self) -> list[np.ndarray] | None:
        """The sites whose differences change when a site changes; None if a change affects many sites.

        There is one array (d, width) int for each variable: for each of the d sites the sites of the
        variable, counted within the variable and padded with its size.
        """
        d = self.space.d
        if self._mixed.any() or d < 4:
            return None
        if np.bincount(self._links[:, 0], minlength=d).max() >= max(d // 4, 1):
            return None
        return neighbourhoods(self._links, [(start, v.size) for start, v in self.space.blocks], d)

    @cached_property
    def in_pairs(self) -> np.ndarray:
        """(d,) bool, the sites that interact with other sites only through tables of pairs.

        Sites that cannot change, or not alone, are left out.
        """
        inside = np.zeros(self.space.d, bool)
        inside[self.pairs] = True
        inside[self._apart] = False
        return inside & ~self._mixed & ~self.space.constrained & (self.space.upper > self.space.lower)

    # ------------------------------------------------------------ forests
    @property
    def _joined(self) -> np.ndarray:
        """(m,) int, the sites that a table joins to another site and that enter no term of many sites."""
        return np.setdiff1d(self.pairs, np.flatnonzero(self._mixed))

    @cached_property
    def tree(self) -> bool:
        """Whether the sites that tables join make no cycle and interact in no other way.

        The list `forests` then has one covering, by one forest.
        """
        inside = np.isin(np.arange(self.space.d), self._joined)
        pairs, apart = (links[inside[links].all(axis=1)] for links in (self.pairs, self._apart))
        return len(pairs) > 0 and len(apart) == 0 and is_forest(pairs, self.space.d)

    @cached_property
    def forests(self) -> list[list[Forest]]:
        """Coverings of the sites that tables join, without sites that enter a term of many sites.

        Each covering is a list of forests that together contain all sites to cover.
        """
        return coverings(self.pairs, self._apart, self._joined, self.space.d)
