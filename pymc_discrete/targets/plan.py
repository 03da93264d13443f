"""How the differences of a block are found: the choice among the ways, by counted cost."""

from functools import cached_property
from typing import Any

import numpy as np

from pymc_discrete.targets.interactions import Interactions
from pymc_discrete.targets.parts.elements import elements_per_variable
from pymc_discrete.targets.parts.gradient import Gradient
from pymc_discrete.targets.parts.in_place import InPlace, Joined
from pymc_discrete.targets.parts.incremental import Incremental
from pymc_discrete.targets.parts.part import Part
from pymc_discrete.targets.parts.quadratic import incremental
from pymc_discrete.targets.parts.tables import LARGEST_TABLES, Pair, Tables, Unary
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.structure import costs
from pymc_discrete.targets.structure.dependence import Dependence
from pymc_discrete.targets.structure.terms import Term, split

WAYS = ("auto", "exact", "gradient")
# A rest is evaluated on every move where that costs no more than this
SMALL = 2e5  # counted operations in all
CHEAP = 64.0  # ... per element of the changed linear maps
BEARABLE = 1e9  # ... in all, where the gradient is blind
# Values of a wide support are all looked at, or as many of them, as cost no more than this: about 100
# microseconds
CHEAP_DRAW = 2.5e5
WIDEST = 4096


def check_way(differences: Any) -> None:
    if differences not in WAYS:
        raise ValueError(f"differences must be one of {', '.join(map(repr, WAYS))}, got {differences!r}.")


class Plan:
    """The part that every term of the log density belongs to.

    Parameters
    ----------
    dependence : of the log density's graph
    space : the block's space
    how : "auto", "exact" or "gradient"

    Attributes
    ----------
    tables : Tables
    in_place : InPlace
    incremental, gradients : the parts that join all their sites
    """

    def __init__(self, dependence: Dependence, space: Space, how: str = "auto"):
        self.dependence, self.graph, self.space = dependence, dependence.graph, space
        sized = [m for m in space.members if m.size]
        self._starts = [m.start for m in sized]
        # of every member that has sites: the rank of the way, the way, and why
        self._reasons: list[tuple[float, str, str]] = [(-1, "exact", "no term depends on it")] * len(sized)
        sparse: list[Term] = []
        dense: list[Term] = []
        for name, term in self.graph.terms:
            thin, rest = split(name, term, dependence)
            sparse += thin
            dense += rest
        self.incremental: list[Incremental] = []
        self.gradients: list[Gradient] = []
        if how == "gradient":
            self.gradients, sparse, dense = [self._forced(dense + sparse)], [], []
        unary, pairs, joined = self._sorted(sparse)
        for name in dict.fromkeys(t.name for t in dense):
            self._choose([t for t in dense if t.name == name], how)
        self.tables = Tables(unary, pairs, dependence, space)
        self.in_place = InPlace(joined, dependence, space)

    @property
    def parts(self) -> list[Part]:
        """All parts, in the order in which their differences are added up."""
        return [self.tables, self.in_place, *self.incremental, *self.gradients]

    # ------------------------------------------------------------ which way
    def _because(self, sites: np.ndarray, rank: float, way: str, reason: str) -> None:
        """Note how the differences of the members that these sites belong to are found."""
        for m in np.unique(np.searchsorted(self._starts, sites, side="right") - 1):
            if rank > self._reasons[m][0]:
                self._reasons[m] = (rank, way, reason)

    def _sorted(self, terms: list[Term]) -> tuple[list[Unary], list[Pair], list[Joined]]:
        """The elements of sparse terms: tabulated, by one site or two, or evaluated in place."""
        unary: list[Unary] = []
        pairs: list[Pair] = []
        joined: list[Joined] = []
        for term in terms:
            sites = self.dependence.sparse(term.var)
            own_unary, own_pairs, left = self._tabulated(term, sites)
            unary += own_unary
            pairs += own_pairs
            if len(left):
                joined.append(Joined(term, left, sites[left]))
            count = (sites >= 0).sum(1)
            most = "1 site" if count.max() == 1 else f"{count.max()} sites"
            reason = f"every element of {term.name!r} depends on at most {most}"
            self._because(sites[sites >= 0], 1 + count.max() / 100, "exact", reason)
        return unary, pairs, joined

    def _tabulated(self, term: Term, sites: np.ndarray) -> tuple[list[Unary], list[Pair], np.ndarray]:
        """The tables of a sparse term, and which of its elements are in none."""
        dependence, space, blocks = self.dependence, self.space, self.space.blocks
        count = (sites >= 0).sum(1)
        number = np.zeros(space.d, int)
        for n, (start, v) in enumerate(blocks):
            number[start : start + v.size] = n
        unary: list[Unary] = []
        pairs: list[Pair] = []
        left = count > 2
        one = np.flatnonzero(count == 1)
        for n in np.unique(number[sites[one, 0]]) if len(one) else ():
            _, v = blocks[n]
            mine = one[number[sites[one, 0]] == n]
            if not v.finite or v.K * len(mine) > LARGEST_TABLES:
                left[mine] = True
                continue
            rows = elements_per_variable(sites[mine, :1], space, mine)[int(n)]
            unary.append(Unary(term, rows, int(n), dependence, space))
        two = np.flatnonzero(count == 2)
        for a, b in np.unique(number[sites[two, :2]], axis=0) if len(two) else ():
            mine = two[(number[sites[two, 0]] == a) & (number[sites[two, 1]] == b)]
            (_, va), (_, vb) = blocks[a], blocks[b]
            # a table costs Ka Kb a context, evaluation in place Ka + Kb a transition
            worth = (va.K + vb.K) * max(space.d, 10) / 2 >= va.K * vb.K
            if not (va.finite and vb.finite and worth and va.K * vb.K * len(mine) <= LARGEST_TABLES):
                left[mine] = True
                continue
            ends = (sites[mine, 0], sites[mine, 1])
            pair = Pair(term, mine, *ends, (int(a), int(b)), dependence, space)
            if not all(side.site_pairs.unique for side in pair.sides):  # a hub: padding would waste
                left[mine] = True
                continue
            pairs.append(pair)
        return unary, pairs, np.flatnonzero(left)

    def _choose(self, terms: list[Term], how: str) -> None:
        """One way for all dense parts of a term: half of it by the gradient would cost as much and its errors
        would not cancel.
        """
        every = [incremental(t, self.dependence, self.space) for t in terms]
        variables = set[int]().union(*(r.variables for r in every))
        cost = sum(r.cost_of_all for r in every)
        cheap = CHEAP * sum(r.moves_of(n) * r.row_elements for r in every if r.linear for n in r.variables)
        once = costs.of_graph([t.total for t in terms], self.graph, set(self.graph.values))
        if how == "exact" or cost <= max(SMALL, cheap, 16 * once):
            self._evaluate(every)
            return
        gradient = Gradient(terms, self.dependence, self.space)
        name, op = terms[0].name, self._dense_op(terms[0])
        if not gradient.blind and variables <= gradient.variables:
            dear = f"exact differences cost {cost / max(once, 1):.0f} of its evaluations"
            self._because(gradient.sites, 3, "gradient", f"{name!r} is dense ({op}); {dear}")
            self.gradients.append(gradient)
            return
        if cost > BEARABLE:
            names = ", ".join(repr(self.space.variables[n].name) for n in sorted(variables))
            raise ValueError(
                f"No affordable differences for {names} in {name!r}: {gradient.blind}, so its gradient is "
                f"blind, and evaluating every neighbour would take about {cost:.1e} operations a transition. "
                "Pass differences='exact' to pay that, sample these variables in smaller blocks, or write "
                f"the term without {op}."
            )
        self._evaluate(every, f"; its gradient is blind: {gradient.blind}")

    def _evaluate(self, parts: list[Incremental], more: str = "") -> None:
        self.incremental += parts
        for part in parts:
            way = "incremental" if part.linear else "brute force"
            what = "is evaluated on changed linear maps" if part.linear else "is evaluated at every neighbour"
            reason = f"{part.term.name!r} is dense ({self._dense_op(part.term)}) and {what}{more}"
            self._because(part.sites, 2, way, reason)

    def _forced(self, terms: list[Term]) -> Gradient:
        """The gradient of all terms, as the user asks for it."""
        gradient = Gradient(terms, self.dependence, self.space)
        unseen = [v.name for n, v in enumerate(self.space.variables) if n not in gradient.variables]
        if gradient.blind or unseen:
            names = ", ".join(map(repr, unseen or [v.name for v in self.space.variables]))
            why = gradient.blind or "the gradient does not reach it"
            raise ValueError(
                f"The gradient is blind for {names}: {why}. Use differences='exact' (or 'auto')."
            )
        self._because(gradient.sites, 3, "gradient", "asked for with differences='gradient'")
        return gradient

    def _dense_op(self, term: Term) -> str:
        """Why a term is dense: the first Op that makes it so."""
        return self.dependence.cause(term.var) or str(term.var.owner.op)

    # ------------------------------------------------------------ what comes of it
    @property
    def guessed_choices(self) -> list[str]:
        """Names of the members that choose among values (`mu[z]`), what depends on them being known by a
        gradient only.
        """
        sites = [g.choosing for g in self.gradients]
        return list(dict.fromkeys(self.space.sites[s][0] for own in sites for s in own))

    def describe(self) -> dict[str, dict[str, Any]]:
        """{name: how the differences of its sites are found}."""
        reasons = dict(zip(self._starts, self._reasons, strict=True))
        rows, ends = {}, np.cumsum([v.size for v in self.space.variables])
        for m in self.space.members:
            _, way, reason = reasons[m.start] if m.size else (0, "exact", "it has no elements")
            number = int(np.searchsorted(ends, m.start, side="right" if m.size else "left"))
            K = self.space.variables[number].K
            rows[m.name] = {"way": way, "exact": way != "gradient", "K": K, "reason": reason}
        return rows

    @cached_property
    def interactions(self) -> Interactions:
        mixed = np.zeros(self.space.d, bool)
        for part in [*self.incremental, *self.gradients]:
            mixed[part.sites] = True
        return Interactions(self.tables.joined, self.in_place.links, mixed, self.space)

    @cached_property
    def local(self) -> list[np.ndarray] | None:
        """`Interactions.neighbourhoods`, where the differences of single sites can be computed anew."""
        return self.interactions.neighbourhoods if self.in_place.padded else None

    def wide(self) -> tuple[list[int], dict[int, int]]:
        """Which variables with a window may as well be drawn from all of their bounded support, and for the
        others how many steps a stretch of values may have: as many as are cheap.
        """
        wide = [n for n, v in enumerate(self.space.variables) if not v.finite and v.size]
        whole, widths = [], {}
        for n in wide:
            v = self.space.variables[n]
            each = sum(part.cost_of_value(n) for part in self.parts)
            values = CHEAP_DRAW / len(wide) / max(each, 4.0 * v.size)
            if v.counts.max() <= values:
                whole.append(n)
            else:
                # a stretch need not reach beyond what its distribution does
                most = min(WIDEST, int(np.max(np.asarray(v.offsets))))
                widths[n] = max(v.width, int(2 ** np.floor(np.log2(np.clip(values, 1.0, most)))))
        return whole, widths

    def cost(self, one_site: bool, stretches: bool = False) -> float:
        """Counted operations of one transition: of all differences, or of those that a change of one site
        touches.

        With `stretches` sites that have a window are evaluated on a stretch of values (see `Variable`) in
        place of it.
        """
        space = self.space
        local = one_site and self.local is not None
        share = sum(t.shape[1] for t in self.local) / space.d if local else 1.0  # type: ignore[union-attr]
        values = [v.stretches[0] if stretches and not v.finite else v.moves for v in space.variables]
        return 4.0 * space.d * space.K + sum(part.cost(share, values) for part in self.parts)
