"""How the differences of a block are found: the choice among the four ways, by counted cost."""

from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import Elemwise

from pymc_discrete.targets.colours import links_of, neighbourhoods
from pymc_discrete.targets.dense import COSTLY, DenseRows, DenseTerm, flops
from pymc_discrete.targets.dependence import Dependence
from pymc_discrete.targets.gradient import Gradient
from pymc_discrete.targets.graph import LogpGraph, dependent_variables
from pymc_discrete.targets.rules import Elements, Entries
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.tables import (
    LARGEST_TABLES,
    Pair,
    Pointwise,
    SparseTerm,
    Unary,
    rows_per_variable,
)
from pymc_discrete.targets.terms import split

WAYS = ("auto", "exact", "gradient")
# A rest is evaluated on every move where that costs no more than this
SMALL = 2e5  # counted operations in all
CHEAP = 64.0  # ... per element of the changed linear maps
BEARABLE = 1e9  # ... in all, where the gradient is blind
# Values of a wide support are all looked at, or as many of them, as cost no more than this: about 100
# microseconds
CHEAP_DRAW = 2.5e5
WIDEST = 4096


def wanted(rule: Elements | Entries, n: int, elements: np.ndarray) -> np.ndarray:
    """Which rows of the rule's tables the elements (n_out,) bool of output n are computed from."""
    return rule.entry[n][elements] if isinstance(rule, Entries) else np.flatnonzero(elements)


def check_way(differences: Any) -> None:
    if differences not in WAYS:
        raise ValueError(f"differences must be one of {', '.join(map(repr, WAYS))}, got {differences!r}.")


class Plan:
    """The way taken for every term of the log density.

    Parameters
    ----------
    graph : the log density
    space : the block's space
    how : "auto", "exact" or "gradient"
    """

    def __init__(self, graph: LogpGraph, space: Space, how: str = "auto"):
        self.graph, self.space = graph, space
        self.dependence = Dependence(graph, space.starts, space.d)
        self.unary: list[tuple[int, Unary]] = []
        self.pairs: list[tuple[int, int, Pair]] = []
        self.pointwise: list[tuple[int, Pointwise]] = []
        self.in_place: list[
            tuple[SparseTerm, np.ndarray, np.ndarray]
        ] = []  # term, elements (n,) and their sites (n, J)
        self.rows: list[DenseRows] = []
        self.gradients: list[Gradient] = []
        sized = [m for m in space.members if m.size]
        self._starts = [m.start for m in sized]
        # of every member that has sites
        self.reasons: list[tuple[float, str, str]] = [(-1, "exact", "no term depends on it")] * len(sized)
        self.sparse: list[SparseTerm] = []
        dense: list[DenseTerm] = []
        for name, term in graph.terms:
            thin, rest = split(name, term, self.dependence)
            self.sparse += thin
            dense += rest
        if how == "gradient":
            every = dense + [DenseTerm(t.name, t.var, t.weight) for t in self.sparse]
            self.sparse, dense = [], []
            self._use_gradient(every, forced=True)
        for t in self.sparse:
            self._use_tables(t)
        for name in dict.fromkeys(t.name for t in dense):
            self._choose([t for t in dense if t.name == name], how)
        self.local = self._locality()

    # ------------------------------------------------------------ which way
    def _because(self, sites: np.ndarray, rank: float, way: str, reason: str) -> None:
        """Of the members that these sites belong to."""
        for m in np.unique(np.searchsorted(self._starts, sites, side="right") - 1):
            if rank > self.reasons[m][0]:
                self.reasons[m] = (rank, way, reason)

    def _use_tables(self, term: SparseTerm) -> None:
        sites = self.dependence.sparse(term.var)
        count = (sites >= 0).sum(1)
        number = np.zeros(self.space.d, int)
        for n, (start, v) in enumerate(self.space.blocks):
            number[start : start + v.size] = n
        blocks, left = self.space.blocks, count > 2
        one = np.flatnonzero(count == 1)
        for n in np.unique(number[sites[one, 0]]) if len(one) else ():
            start, v = blocks[n]
            mine = one[number[sites[one, 0]] == n]
            if not v.finite or v.K * len(mine) > LARGEST_TABLES:
                left[mine] = True
                continue
            rows = rows_per_variable(sites[mine, :1], self.space, mine)[int(n)]
            self.unary.append((int(n), Unary(term, rows, start, v)))
        two = np.flatnonzero(count == 2)
        for a, b in np.unique(number[sites[two, :2]], axis=0) if len(two) else ():
            mine = two[(number[sites[two, 0]] == a) & (number[sites[two, 1]] == b)]
            (start_a, va), (start_b, vb) = blocks[a], blocks[b]
            # a table costs Ka Kb a context, evaluation in place Ka + Kb a transition
            worth = (va.K + vb.K) * max(self.space.d, 10) / 2 >= va.K * vb.K
            if not (va.finite and vb.finite and worth and va.K * vb.K * len(mine) <= LARGEST_TABLES):
                left[mine] = True
                continue
            pair = Pair(term, mine, sites[mine, 0], sites[mine, 1], va, vb, start_a, start_b)
            if not all(side["rows"].unique for side in pair.sides):  # a hub: padding would waste
                left[mine] = True
                continue
            self.pairs.append((int(a), int(b), pair))
        rest = np.flatnonzero(left)
        if len(rest):
            self.in_place.append((term, rest, sites[rest]))
            for n, rows in rows_per_variable(sites[rest], self.space, rest).items():
                self.pointwise.append((n, Pointwise(term, rows, *blocks[n])))
        most = "1 site" if count.max() == 1 else f"{count.max()} sites"
        self._because(
            sites[sites >= 0],
            1 + count.max() / 100,
            "exact",
            f"every element of {term.name!r} depends on at most {most}",
        )

    def _choose(self, terms: list[DenseTerm], how: str) -> None:
        """One way for all dense parts of a term: half of it by the gradient would cost as much and its errors
        would not cancel.
        """
        every = [DenseRows(t, self.dependence, self.space) for t in terms]
        variables = set[int]().union(*(r.variables for r in every))
        cost = sum(r.cost for r in every)
        cheap = CHEAP * sum(r.moves_of(n) * r.row_elements for r in every if r.linear for n in r.variables)
        once = flops([t.total for t in terms], self.graph, set(self.graph.values))
        if how == "exact" or cost <= max(SMALL, cheap, 16 * once):
            for r in every:
                self._use_rows(r)
            return
        gradient = Gradient(terms, self.dependence, self.space)
        name, op = terms[0].name, self._dense_op(terms[0])
        if not gradient.blind and variables <= gradient.variables:
            self.gradients.append(gradient)
            dear = f"exact differences cost {cost / max(once, 1):.0f} of its evaluations"
            self._because(gradient.sites, 3, "gradient", f"{name!r} is dense ({op}); {dear}")
            return
        if cost > BEARABLE:
            names = ", ".join(repr(self.space.variables[n].name) for n in sorted(variables))
            raise ValueError(
                f"No affordable differences for {names} in {name!r}: {gradient.blind}, so its gradient is "
                f"blind, and evaluating every neighbour would take about {cost:.1e} operations a transition. "
                "Pass differences='exact' to pay that, sample these variables in smaller blocks, or write "
                f"the term without {op}."
            )
        for r in every:
            self._use_rows(r, f"; its gradient is blind: {gradient.blind}")

    def _use_rows(self, rows: DenseRows, more: str = "") -> None:
        self.rows.append(rows)
        way = "incremental" if rows.linear else "brute force"
        what = "is evaluated on changed linear maps" if rows.linear else "is evaluated at every neighbour"
        self._because(
            rows.sites, 2, way, f"{rows.term.name!r} is dense ({self._dense_op(rows.term)}) and {what}{more}"
        )

    def _use_gradient(self, terms: list[DenseTerm], forced: bool) -> None:
        gradient = Gradient(terms, self.dependence, self.space)
        unseen = [v.name for n, v in enumerate(self.space.variables) if n not in gradient.variables]
        if gradient.blind or unseen:
            names = ", ".join(map(repr, unseen or [v.name for v in self.space.variables]))
            why = gradient.blind or "the gradient does not reach it"
            raise ValueError(
                f"The gradient is blind for {names}: {why}. Use differences='exact' (or 'auto')."
            )
        self.gradients.append(gradient)
        self._because(gradient.sites, 3, "gradient", "asked for with differences='gradient'")

    def _dense_op(self, term: DenseTerm) -> str:
        ops = self.dependence.dense_ops
        below = [v for n in toposort([term.var]) for v in n.outputs if v in ops]
        return ops[below[0]] if below else str(term.var.owner.op)

    @property
    def guessed_choices(self) -> list[str]:
        """Names of the members that choose among values (`mu[z]`), what depends on them being known by a
        gradient only.
        """
        sites = [g.choosing for g in self.gradients]
        return list(dict.fromkeys(self.space.sites[s][0] for own in sites for s in own))

    def describe(self) -> dict[str, dict[str, Any]]:
        """{name: how the differences of its sites are found}."""
        reasons = dict(zip(self._starts, self.reasons, strict=True))
        out, ends = {}, np.cumsum([v.size for v in self.space.variables])
        for m in self.space.members:
            _, way, reason = reasons[m.start] if m.size else (0, "exact", "it has no elements")
            v = self.space.variables[int(np.searchsorted(ends, m.start, side="right" if m.size else "left"))]
            out[m.name] = {"way": way, "exact": way != "gradient", "K": v.K, "reason": reason}
        return out

    @cached_property
    def links(self) -> np.ndarray:
        """(E, 2) int, pairs of different sites that share an element of a sparse term."""
        return links_of([self.dependence.sparse(t.var) for t in self.sparse], self.space.d)

    def _locality(self) -> list[np.ndarray] | None:
        """Where a change of a site touches few differences, which: per variable (d, width) int local rows,
        one past the end for none.
        """
        d = self.space.d
        if self.rows or self.gradients or d < 4:
            return None
        if any(not p.rows.unique for _, p in self.pointwise):
            return None
        if np.bincount(self.links[:, 0], minlength=d).max() >= max(d // 4, 1):
            return None
        return neighbourhoods(self.links, [(start, v.size) for start, v in self.space.blocks], d)

    def wide(self) -> tuple[list[int], dict[int, int]]:
        """Which variables with a window may as well be drawn from all of their bounded support, and for the
        others how many steps a stretch of values may have: as many as are cheap.
        """
        wide = [n for n, v in enumerate(self.space.variables) if not v.finite and v.size]
        whole, widths = [], {}
        for n in wide:
            v = self.space.variables[n]
            each = sum(p.rows.index.size * self._element_cost(n, p) for m, p in self.pointwise if m == n)
            each += sum(v.size * (r.rest_flops + r.row_elements) for r in self.rows if n in r.variables)
            values = CHEAP_DRAW / len(wide) / max(each, 4.0 * v.size)
            if v.counts.max() <= values:
                whole.append(n)
            else:
                most = min(
                    WIDEST, int(np.max(np.asarray(v.offsets)))
                )  # a stretch need not reach beyond what its distribution does
                widths[n] = max(v.width, int(2 ** np.floor(np.log2(np.clip(values, 1.0, most)))))
        return whole, widths

    def _element_cost(self, n: int, p: Pointwise) -> float:
        """Counted operations of one element of a term at one value of a site: of all tensors, what it reads
        and the site moves.
        """
        var, site = p.term.var, self.graph.values[n]
        moving = dependent_variables([var], [site])
        read = {v: np.zeros(self.graph.size(v), bool) for v in moving}
        read[var][p.rows.index] = True
        total = 0.0
        for node in reversed(
            [node for node in toposort([var], blockers=[site]) if node.outputs[0] in moving]
        ):
            rule = self.dependence.rule(node)
            assert rule is not None  # no element of a dense tensor is evaluated in place
            elements = np.unique(
                np.concatenate(
                    [wanted(rule, n, read[out]) for n, out in enumerate(node.outputs) if out in read]
                )
            )
            each = COSTLY.get(str(node.op.scalar_op), 1) if isinstance(node.op, Elemwise) else 0.0
            for i, reads in zip(node.inputs, rule.reads, strict=True):
                if i in moving and reads is not None:
                    read[i][np.maximum(reads[elements], 0)] = True
                    each = max(each, reads.shape[1] ** (1.5 if isinstance(rule, Entries) else 1.0))
            total += each * len(elements)
        return 5.0 + total / float(read[var].sum())

    def cost(self, one_site: bool, stretches: bool = False) -> float:
        """Counted operations of one transition: of all differences, or of those that a change of one site
        touches.

        With `stretches` sites that have a window are evaluated on a stretch of values (see `Variable`) in
        place of it.
        """
        space = self.space
        share = sum(t.shape[1] for t in self.local) / space.d if one_site and self.local is not None else 1.0
        values = [v.stretches[0] if stretches and not v.finite else v.moves for v in space.variables]
        sparse = sum(
            p.rows.index.size * (values[n] + 1) * self._element_cost(n, p) for n, p in self.pointwise
        )
        each = 4.0 if share < 1 else 0.5  # a few are gathered, all at once run along vectors
        sparse += sum(each * side["pair"].size * p.va.K * p.vb.K for *_, p in self.pairs for side in p.sides)
        sloped = sum(20.0 * p.rows.index.size * p.v.moves for g in self.gradients for _, p in g.pointwise)
        return 4.0 * space.d * space.K + sum(r.cost for r in self.rows) + share * sparse + sloped
