"""The choice of a part to compute the differences of each term of a block's log density, by counted cost."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.differences.parts.active_columns import ActiveColumns
from pymc_discrete.differences.parts.by_label import ByLabel, merged_by_label
from pymc_discrete.differences.parts.elements import elements_per_variable
from pymc_discrete.differences.parts.gradient import Gradient
from pymc_discrete.differences.parts.in_place import InPlace, Joined
from pymc_discrete.differences.parts.incremental import Incremental
from pymc_discrete.differences.parts.part import Part
from pymc_discrete.differences.parts.quadratic import incremental
from pymc_discrete.differences.parts.swept import Swept
from pymc_discrete.differences.parts.tables import LARGEST_TABLES, Pair, Tables, Unary
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.indexing import unique_pairs
from pymc_discrete.space.interactions import Interactions
from pymc_discrete.space.space import Space
from pymc_discrete.structure import costs
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.logp_graph import INTEGRATED
from pymc_discrete.structure.terms import Term, split

# A term is dense if its elements each depend on many sites. Exact differences of a dense term are computed if
# all together take at most so many operations, or if another limit allows more; else the gradient estimates
# the differences.
CHEAP_DIFFERENCES = 2e5
# Exact differences of a dense term with linear maps may take this many operations for each move and each
# element of a map's output.
CHEAP = 64.0
# Exact differences of a dense term may take this many operations together if the gradient says nothing about
# them (it is "blind").
BEARABLE = 1e9
# Gibbs sampling evaluates a site with a wide support at some of its values only: at so many that a draw of
# all such sites costs this many additions, about 100 microseconds.
CHEAP_DRAW = 2.5e5
# A Gibbs draw of a label without an order tries at least this many of its values, whatever that costs. The
# values are chosen at random, and few may be likely: if the label is a cell of a map, only cells near the
# place where an animal was caught.
FEWEST_LABELS = 16
# the largest number of steps in a stretch, the values among which Gibbs sampling draws (`Variable.width`)
WIDEST_STRETCH = 4096


class Reason(NamedTuple):
    """The way in which the differences of a variable are computed, and why.

    A variable may have several: the one with the highest rank is reported.
    """

    rank: float
    way: str
    reason: str


class Plan:
    """Assigns every term of the log density to a part, which computes the differences of the term.

    Parameters
    ----------
    dependence : Dependence
        Which sites each element of the log density's graph depends on.
    space : Space
        The block's space.
    how : {"auto", "exact", "gradient"}
        Whether differences are exact, estimated from the gradient, or exact where that costs little ("auto").

    Attributes
    ----------
    sparse, dense : list of Term
        The terms whose elements depend on a few sites each, and the other terms.
    constant : list of scalars
        Summands of the log density that are in no term; they do not depend on the block.
    tables : Tables
        The part with elements of one or two sites, whose values are tabulated.
    in_place : InPlace
        The part with the elements of a few sites that are in no table.
    incremental, swept, gradients : lists of Incremental, of Swept or ActiveColumns, of Gradient
        The parts whose sites all interact.
    """

    def __init__(self, dependence: Dependence, space: Space, how: str = "auto"):
        self.dependence, self.graph, self.space = dependence, dependence.graph, space
        sized = [m for m in space.members if m.size]
        self._starts = [m.start for m in sized]
        # for each variable that has sites, how its differences are computed, and why in this way
        self._reasons = [Reason(-1, "exact", "no term depends on it")] * len(sized)
        sparse: list[Term] = []
        dense: list[Term] = []
        constant: list[Term] = []
        integral = self.graph.integral
        self.swept: list[Swept | ActiveColumns] = []
        alone = not space.constrained.any()  # `Swept` has no differences for sites that change together
        for way, by in ((Swept, "a swept tableau"), (ActiveColumns, "the active ones of many columns")):
            if integral and alone and way.holds(integral, dependence) and how != "gradient":
                self.swept = [part := way(integral, dependence, space)]
                names = ", ".join(map(repr, integral.shapes))
                self._note_reason(part.sites, 2, "exact", f"{names} integrated out, by {by}")
        for name, term in self.graph.terms:
            if name == INTEGRATED and self.swept:
                continue
            sparse_terms, dense_terms, constant_terms = split(name, term, dependence)
            sparse += sparse_terms
            dense += dense_terms
            constant += constant_terms
        self.incremental: list[Incremental | ByLabel] = []
        self.gradients: list[Gradient] = []
        self.sparse, self.dense = sparse, dense
        self.constant = [t.total for t in constant]
        if how == "gradient":
            self.gradients, sparse, dense = [self._gradient_of_all(sparse, dense)], [], []
        unary, pairs, joined = self._sort_sparse(sparse)
        for name in dict.fromkeys(t.name for t in dense):
            self._add_dense([t for t in dense if t.name == name], how)
        self.tables = Tables(unary, pairs, dependence, space)
        self.in_place = InPlace(joined, dependence, space)

    @property
    def parts(self) -> list[Part]:
        """All parts, in the order in which their differences are added up."""
        return [self.tables, self.in_place, *self.incremental, *self.swept, *self.gradients]

    # ------------------------------------------------------------ the choice of a part
    def _note_reason(self, sites: np.ndarray, rank: float, way: str, reason: str) -> None:
        """Record how the differences of the variables that have some of these sites are computed."""
        for m in np.unique(np.searchsorted(self._starts, sites, side="right") - 1):
            if rank > self._reasons[m].rank:
                self._reasons[m] = Reason(rank, way, reason)

    def _sort_sparse(self, terms: list[Term]) -> tuple[list[Unary], list[Pair], list[Joined]]:
        """Sort the elements of sparse terms: into tables of one site, tables of two sites, and no table."""
        unary: list[Unary] = []
        pairs: list[Pair] = []
        joined: list[Joined] = []
        for term in terms:
            sites = self.dependence.sparse(term.var)
            unary_of_term, pairs_of_term, remaining = self._tabulated(term, sites)
            unary += unary_of_term
            pairs += pairs_of_term
            if len(remaining):
                joined.append(Joined(term, remaining, sites[remaining]))
            count = (sites >= 0).sum(1)
            most = "1 site" if count.max() == 1 else f"{count.max()} sites"
            reason = f"every element of {term.name!r} depends on at most {most}"
            self._note_reason(sites[sites >= 0], 1 + count.max() / 100, "exact", reason)
        return unary, pairs, joined

    def _tabulated(self, term: Term, sites: np.ndarray) -> tuple[list[Unary], list[Pair], np.ndarray]:
        """Sort the elements of a term: into tables of one site, tables of two sites, and no table.

        Parameters
        ----------
        sites : (n, J) int, the sites that each element of the term depends on, padded with -1

        Returns
        -------
        unary, pairs : the tables of one site and of two sites
        remaining : (m,) int, flat indices of the elements that are in no table
        """
        dependence, space, blocks = self.dependence, self.space, self.space.blocks
        count = (sites >= 0).sum(1)
        number = np.zeros(space.d, int)
        for n, (start, v) in enumerate(blocks):
            number[start : start + v.size] = n
        unary: list[Unary] = []
        pairs: list[Pair] = []
        # A draw of an element of a permutation looks at two values only. A table would have all values, so
        # what depends on such an element is not tabulated.
        swapped = np.isin(sites, space.swapped).any(axis=1)
        remaining = (count > 2) | swapped
        one = np.flatnonzero((count == 1) & ~swapped)
        for n in np.unique(number[sites[one, 0]]) if len(one) else ():
            _, v = blocks[n]
            members = one[number[sites[one, 0]] == n]
            if not v.finite or v.K * len(members) > LARGEST_TABLES:
                remaining[members] = True
                continue
            elements = elements_per_variable(sites[members, :1], space, members)[int(n)]
            unary.append(Unary(term, elements, int(n), dependence, space))
        two = np.flatnonzero((count == 2) & ~swapped)
        if len(two) and (space.drawn_with >= 0).any():
            # Sites of one set move together. An element of the term that depends on two sites of a set is
            # evaluated after both have moved, and not tabulated.
            sets = space.drawn_with[sites[two, :2]]
            together = (sets[:, 0] >= 0) & (sets[:, 0] == sets[:, 1])
            remaining[two[together]] = True
            two = two[~together]
        for a, b in unique_pairs(number[sites[two, :2]])[0] if len(two) else ():
            members = two[(number[sites[two, 0]] == a) & (number[sites[two, 1]] == b)]
            (_, va), (_, vb) = blocks[a], blocks[b]
            # A table of two sites with Ka and Kb values costs Ka Kb evaluations in each context, and saves
            # Ka + Kb in each transition. A context is assumed to have d / 2 transitions, and at least 5.
            worth = (va.K + vb.K) * max(space.d, 10) / 2 >= va.K * vb.K
            if not (va.finite and vb.finite and worth and va.K * vb.K * len(members) <= LARGEST_TABLES):
                remaining[members] = True
                continue
            ends = (sites[members, 0], sites[members, 1])
            pair = Pair(term, members, *ends, (int(a), int(b)), dependence, space)
            if not all(side.site_pairs.unique for side in pair.sides):
                # Where a few sites have most of the pairs, no table is made: with room for as many pairs at
                # every site, it would be mostly padding.
                remaining[members] = True
                continue
            pairs.append(pair)
        return unary, pairs, np.flatnonzero(remaining)

    def _add_dense(self, terms: list[Term], how: str) -> None:
        """Add parts for the dense summands of one term of the model: exact ones for all, or one gradient.

        A gradient of some of the summands would cost as much as a gradient of all of them, and errors of
        first-order estimates that cancel in the sum of all summands would remain.
        """
        dependence, space = self.dependence, self.space
        parts = [
            ByLabel.of(t, dependence, space) or incremental(t, dependence, space)
            for t in merged_by_label(terms, dependence)
        ]
        variables = set[int]().union(*(p.variables for p in parts))
        cost = sum(p.cost_of_all for p in parts)
        cheap = CHEAP * sum(p.moves_of(n) * p.row_elements for p in parts if p.linear for n in p.variables)
        once = costs.of_graph([t.total for t in terms], self.graph, set(self.graph.values))
        if how == "exact" or cost <= max(CHEAP_DIFFERENCES, cheap, 16 * once):
            self._add_exact(parts)
            return
        gradient = Gradient(terms, self.dependence, self.space)
        name, op = terms[0].name, self._dense_op(terms[0])
        if not gradient.blind and variables <= gradient.variables:
            cost_of_exact = f"exact differences cost {cost / max(once, 1):.0f} of its evaluations"
            self._note_reason(gradient.sites, 3, "gradient", f"{name!r} is dense ({op}); {cost_of_exact}")
            self.gradients.append(gradient)
            return
        if cost > BEARABLE:
            names = shown(self.space.variables[n].name for n in sorted(variables))
            raise ValueError(
                f"No affordable differences for {names} in {name!r}: {gradient.blind}, so its gradient is "
                f"blind, and evaluating every neighbour would take about {cost:.1e} operations a transition. "
                "Pass differences='exact' to pay that, sample these variables in smaller blocks, or write "
                f"the term without {op}."
            )
        self._add_exact(parts, f"; its gradient is blind: {gradient.blind}")

    def _add_exact(self, parts: list[Incremental | ByLabel], more: str = "") -> None:
        """Add parts with exact differences; `more` is appended to the reason that the log gives for them."""
        self.incremental += parts
        for part in parts:
            reason = f"{part.term.name!r} is dense ({self._dense_op(part.term)}) and {part.what}{more}"
            self._note_reason(part.sites, 2, part.way, reason)

    def _gradient_of_all(self, sparse: list[Term], dense: list[Term]) -> Gradient:
        """The part that estimates the differences of all terms by a gradient, for differences="gradient".

        A variable on which no term depends, such as a uniform variable, needs no gradient.

        Raises
        ------
        ValueError
            If the gradient does not show how the density changes when some of the variables move.
        """
        gradient = Gradient(dense + sparse, self.dependence, self.space)
        read = [np.ravel(self.dependence.sparse(t.var)) for t in sparse]
        sites = np.unique(np.concatenate([np.zeros(0, int), *read]))
        inputs = {v.name for t in dense for v in graph_inputs([t.var])}
        unseen = [
            v.name
            for n, (start, v) in enumerate(self.space.blocks)
            if n not in gradient.variables
            if v.name in inputs or ((sites >= start) & (sites < start + v.size)).any()
        ]
        if gradient.blind or unseen:
            names = shown(unseen or [v.name for v in self.space.variables])
            why = gradient.blind or "the gradient does not reach it"
            raise ValueError(
                f"The gradient is blind for {names}: {why}. Use differences='exact' (or 'auto')."
            )
        self._note_reason(gradient.sites, 3, "gradient", "asked for with differences='gradient'")
        return gradient

    def _dense_op(self, term: Term) -> str:
        """The first Op that makes a term dense, as the reason that the log gives."""
        return self.dependence.cause(term.var) or str(term.var.owner.op)

    # ------------------------------------------------------------ results
    @property
    def guessed_choices(self) -> list[str]:
        """Names of the variables that select among values (`mu[z]`) in a term whose differences the gradient
        estimates.
        """
        return self.space.names_at([s for g in self.gradients for s in g.choosing])

    def describe(self) -> dict[str, dict[str, Any]]:
        """{name: {"way", "exact", "K", "reason"}}, how the differences of the sites of each variable are
        computed.
        """
        reasons = dict(zip(self._starts, self._reasons, strict=True))
        descriptions, ends = {}, np.cumsum([v.size for v in self.space.variables])
        for m in self.space.members:
            _, way, reason = reasons[m.start] if m.size else (0, "exact", "it has no elements")
            number = int(np.searchsorted(ends, m.start, side="right" if m.size else "left"))
            K = self.space.variables[number].K
            descriptions[m.name] = {"way": way, "exact": way != "gradient", "K": K, "reason": reason}
        return descriptions

    @cached_property
    def interactions(self) -> Interactions:
        """The interactions of sites: sites that any part joins interact."""
        mixed = np.zeros(self.space.d, bool)
        for part in [*self.incremental, *self.swept, *self.gradients]:
            mixed[part.sites] = True
        return Interactions(self.tables.joined, self.in_place.links, mixed, self.space)

    @cached_property
    def local(self) -> list[np.ndarray] | None:
        """For each variable, which sites of it have differences that change with each site of the block.

        The list is None if a site changes the differences of many sites, or if the differences of a few sites
        cannot be computed alone.
        """
        return self.interactions.neighbourhoods if self.in_place.padded else None

    def wide(self) -> tuple[list[int], dict[int, int]]:
        """The values that Gibbs sampling looks at in supports that are infinite or too wide to enumerate.

        Returns
        -------
        whole : list of int
            Variables with a bounded support, all of whose values are cheap enough to evaluate.
        widths : {variable number: int}
            For each other variable the number of steps between the ends of a stretch of values: as many as
            are cheap.
        """
        wide = [n for n, v in enumerate(self.space.variables) if not v.finite and v.size]
        whole, widths = [], {}
        for n in wide:
            v = self.space.variables[n]
            each = self.cost_of_value(n)
            values = CHEAP_DRAW / len(wide) / max(each, 4.0 * v.size)
            if v.counts.max() <= values:
                whole.append(n)
            else:
                # A stretch has at most as many steps as the largest offset of the window, which is scaled to
                # the distribution.
                most = min(WIDEST_STRETCH, int(np.max(np.asarray(v.offsets))))
                fewest = FEWEST_LABELS if v.nominal else v.width
                widths[n] = max(fewest, int(2 ** np.floor(np.log2(np.clip(values, 1.0, most)))))
        return whole, widths

    def cost_of_value(self, n: int) -> float:
        """Counted operations of evaluating all sites of variable n at one more value."""
        return sum(part.cost_of_value(n) for part in self.parts)

    def cost(self, one_site: bool, stretches: bool = False) -> float:
        """Counted operations of one transition.

        Parameters
        ----------
        one_site : bool
            Whether a transition changes one site only, so that, where possible, only the differences that
            depend on this site are computed again.
        stretches : bool
            Whether sites are evaluated as in Gibbs sampling: a site with a window at a stretch of values (see
            `Variable`), an element of a permutation at the value of one other element.
        """
        space = self.space
        local = one_site and self.local is not None
        share = sum(t.shape[1] for t in self.local) / space.d if local else 1.0  # type: ignore[union-attr]
        values = [v.drawn_among if stretches else v.moves for v in space.variables]
        swapped = len(space.swapped) if stretches else 0
        entries = (space.d - swapped) * space.K + 2 * swapped
        return 4.0 * entries + sum(part.cost(share, values) for part in self.parts)
