"""How the differences of a block are found: the choice among the four ways, and their sum."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape

from pymc_discrete.targets.dense import DenseRows, DenseTerm, flops
from pymc_discrete.targets.dependence import Dependence
from pymc_discrete.targets.gradient import Gradient
from pymc_discrete.targets.graph import LogpGraph, context_inputs, mark_dependent
from pymc_discrete.targets.jaxify import jaxify
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.tables import (
    LARGEST_TABLES,
    Pair,
    Pointwise,
    SparseTerm,
    Unary,
    rows_per_variable,
)

WAYS = ("auto", "exact", "gradient")
# A rest is evaluated on every move where that costs no more than this
SMALL = 2e5  # counted operations in all
CHEAP = 64.0  # ... per element of the changed linear maps
BEARABLE = 1e9  # ... in all, where the gradient is blind


@dataclass
class Local:
    """Which differences a change of one site touches: per variable (d, width) int local rows, one past the end for none."""

    rows: list[np.ndarray]


class Differences:
    """The plan by which the differences of a block are computed.

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
        self.rows: list[DenseRows] = []
        self.gradients: list[Gradient] = []
        self.reasons: dict[int, tuple[int, str, str]] = {}
        self._sparse: list[SparseTerm] = []
        dense: list[DenseTerm] = []
        for name, term in graph.terms:
            self._split(name, term, None, dense)
        if how == "gradient":
            every = dense + [DenseTerm(t.name, t.var, t.weight) for t in self._sparse]
            self._sparse, dense = [], []
            self._use_gradient(every, forced=True)
        for t in self._sparse:
            self._use_tables(t)
        for t in dense:
            self._choose(t, how)
        for n in range(len(space.variables)):
            self._because(n, 0, "exact", "no term depends on it" if n not in self.reasons else "")
        self.local = self._locality()
        self._build()

    # ------------------------------------------------------------ which way
    def _because(self, n: int, rank: int, way: str, reason: str) -> None:
        if n not in self.reasons or rank > self.reasons[n][0]:
            self.reasons[n] = (rank, way, reason)

    def _split(self, name: str, var: Variable, weight: Variable | None, dense: list[DenseTerm]) -> None:
        """Take sums apart until the terms are sparse: a sum of everything depends on every site, its parts do not."""
        graph = self.graph
        if var not in graph.dependent or graph.size(var) == 0:
            return
        sites, node = self.dependence.sites(var), var.owner
        if sites is not None and (sites.shape[1] <= 2 or node is None):
            self._sparse.append(SparseTerm(name, var, weight))
            return
        op = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        moving = [i for i in node.inputs if i in graph.dependent]

        def times(factor: Any) -> Variable:
            out = pt.as_tensor(factor) if weight is None else weight * factor
            return out

        same = all(graph.size(i) == graph.size(var) for i in moving)
        if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Add):
            self._split(name, node.inputs[0], weight, dense)
        elif isinstance(op, Add | Sub):
            for j, i in enumerate(node.inputs):
                factor = float(graph.size(var) / max(graph.size(i), 1)) * (-1.0 if isinstance(op, Sub) and j else 1.0)
                self._split(name, i, weight if factor == 1 else times(factor), dense)
        elif isinstance(op, Neg):
            self._split(name, node.inputs[0], times(-1.0), dense)
        elif isinstance(op, Identity) or (isinstance(op, Cast) and var.type.dtype.startswith("float")):
            self._split(name, node.inputs[0], weight, dense)
        elif isinstance(op, Mul) and len(moving) == 1 and same and self._scalars(node, moving[0]):
            factor = pt.mul(*(i.reshape(()) for i in node.inputs if i is not moving[0]), 1.0)
            self._split(name, moving[0], times(factor), dense)
        elif isinstance(op, TrueDiv) and moving == [node.inputs[0]] and same and self._scalars(node, moving[0]):
            self._split(name, moving[0], times(1.0 / node.inputs[1].reshape(())), dense)
        elif isinstance(node.op, DimShuffle | Reshape | Join | MakeVector) and all(i in graph.dependent or not isinstance(node.op, DimShuffle) for i in node.inputs):
            for i in moving:
                self._split(name, i, weight, dense)
        elif sites is not None:
            self._sparse.append(SparseTerm(name, var, weight))
        else:
            dense.append(DenseTerm(name, var, weight))

    def _scalars(self, node, moving: Variable) -> bool:
        return all(self.graph.size(i) == 1 for i in node.inputs if i is not moving)

    def _use_tables(self, term: SparseTerm) -> None:
        sites = self.dependence.sites(term.var)
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
            worth = va.K * vb.K <= (va.K + vb.K) * max(self.space.d, 10) / 2
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
            for n, rows in rows_per_variable(sites[rest], self.space, rest).items():
                self.pointwise.append((n, Pointwise(term, rows, *blocks[n])))
        for n in np.unique(number[sites[sites >= 0]]):
            self._because(int(n), 1, "exact", f"every element of {term.name!r} depends on at most {count.max()} sites")

    def _choose(self, term: DenseTerm, how: str) -> None:
        rows = DenseRows(term, self.dependence, self.space)
        elements = sum(rows.moves_of(n) for n in rows.variables) * rows.row_elements
        once = flops([term.total], self.graph, set(self.graph.values))
        if how == "exact" or rows.cost <= max(SMALL, CHEAP * elements * rows.linear, 16 * once):
            self._use_rows(rows)
            return
        gradient = Gradient([term], self.dependence, self.space)
        if not gradient.blind:
            self.gradients.append(gradient)
            for n in gradient.variables:
                self._because(n, 3, "gradient", f"{term.name!r} is dense ({self._dense_op(term)}) and exact differences would cost {rows.cost / max(once, 1):.0f} times its density")
            return
        if rows.cost > BEARABLE:
            names = ", ".join(repr(self.space.variables[n].name) for n in sorted(rows.variables))
            raise ValueError(
                f"No affordable differences for {names} in {term.name!r}: {gradient.blind}, so its gradient is blind, and evaluating every "
                f"neighbour would take about {rows.cost:.1e} operations a transition. Pass differences='exact' to pay that, sample these "
                f"variables in smaller blocks, or write the term without {self._dense_op(term)}."
            )
        self._use_rows(rows, f"; its gradient is blind: {gradient.blind}")

    def _use_rows(self, rows: DenseRows, more: str = "") -> None:
        self.rows.append(rows)
        way = "incremental" if rows.linear else "brute force"
        what = "is evaluated on changed linear maps" if rows.linear else "is evaluated at every neighbour"
        for n in rows.variables:
            self._because(n, 2, way, f"{rows.term.name!r} is dense ({self._dense_op(rows.term)}) and {what}{more}")

    def _use_gradient(self, terms: list[DenseTerm], forced: bool) -> None:
        gradient = Gradient(terms, self.dependence, self.space)
        unseen = [v.name for n, v in enumerate(self.space.variables) if n not in gradient.variables]
        if gradient.blind or unseen:
            names = ", ".join(map(repr, unseen or [v.name for v in self.space.variables]))
            why = gradient.blind or "the gradient does not reach it"
            raise ValueError(f"The gradient is blind for {names}: {why}. Use differences='exact' (or 'auto').")
        self.gradients.append(gradient)
        for n in gradient.variables:
            self._because(n, 3, "gradient", "asked for with differences='gradient'")

    def _dense_op(self, term: DenseTerm) -> str:
        ops = self.dependence.dense_ops
        graph_order = [v for v in ops if v is term.var or v in ops]
        return ops[graph_order[0]] if graph_order else str(term.var.owner.op)

    def describe(self) -> dict[str, dict[str, Any]]:
        out = {}
        for n, v in enumerate(self.space.variables):
            _, way, reason = self.reasons[n]
            out[v.name] = {"way": way, "exact": way != "gradient", "K": v.K, "reason": reason}
        return out

    def _locality(self) -> Local | None:
        """Where a change of a site touches few differences, which ones."""
        d = self.space.d
        if self.rows or self.gradients or d < 4:
            return None
        if any(not p.rows.unique for _, p in self.pointwise):
            return None
        links = [np.stack([np.arange(d)] * 2, 1)]
        for t in self._sparse:
            s = self.dependence.sites(t.var)
            for a in range(s.shape[1]):
                for b in range(s.shape[1]):
                    both = (s[:, a] >= 0) & (s[:, b] >= 0)
                    links.append(s[both][:, [a, b]])
        links = np.unique(np.concatenate(links), axis=0)
        if np.bincount(links[:, 0], minlength=d).max() > max(d // 4, 1):
            return None
        rows = []
        for start, v in self.space.blocks:
            mine = links[(links[:, 1] >= start) & (links[:, 1] < start + v.size)]
            counts = np.bincount(mine[:, 0], minlength=d)
            table = np.full((d, int(counts.max(initial=0))), v.size)
            first = np.concatenate([[0], np.cumsum(counts)])[:-1]
            table[mine[:, 0], np.arange(len(mine)) - first[mine[:, 0]]] = mine[:, 1] - start
            rows.append(table)
        return Local(rows)

    @property
    def cost(self) -> float:
        """Counted operations of one transition."""
        space = self.space
        total = 4.0 * space.d * space.K + sum(r.cost for r in self.rows)
        in_place = [p for _, p in self.pointwise] + [p for g in self.gradients for _, p in g.pointwise]
        share = 1.0
        if self.local is not None:
            share = sum(t.shape[1] for t in self.local.rows) / space.d
        total += share * sum(20.0 * p.rows.index.size * p.v.moves for p in in_place)
        total += share * sum(4.0 * side["pair"].size * p.va.K * p.vb.K for *_, p in self.pairs for side in p.sides)
        return total

    # ------------------------------------------------------------ evaluation
    def _build(self) -> None:
        terms = [DenseTerm(name, t, None).total for name, t in self.graph.terms]
        total = pt.add(*terms) if len(terms) > 1 else (terms[0] if terms else pt.constant(0.0))
        mark_dependent(total, self.graph)
        needed: list[Variable] = context_inputs([total], self.graph.values)
        for r in self.rows:
            needed += r.prepare()
        for g in self.gradients:
            needed += g.prepare()
        sparse = [p.term for _, p in self.unary + self.pointwise] + [p.term for *_, p in self.pairs]
        needed += [t.weight for t in sparse if t.weight is not None and not isinstance(t.weight, Constant)]
        tensors = [t.var for t in sparse] + [f.source for r in self.rows for f in r.frontier] + [v for g in self.gradients for v in g.leaves]
        if tensors:
            needed += context_inputs(tensors, self.graph.values)
        self.leaves = [v for v in dict.fromkeys(needed) if v not in self.graph.dependent]
        self._leaf_values = jaxify(self.graph.others, [*self.leaves, self.graph.untouched])
        inputs = [*self.graph.values, *self.leaves]
        self._total = jaxify(inputs, [total])
        self._frontier = list(
            dict.fromkeys([f.var for r in self.rows for f in r.frontier] + [v for g in self.gradients for v in g.leaves])
        )
        self._currents = jaxify(inputs, self._frontier)

    def context(self, others: list[Any]) -> dict[str, Any]:
        """What depends on the other variables only: evaluated once per draw, whatever the block does."""
        *leaves, untouched = self._leaf_values(*others)
        state = dict(zip(self.leaves, (jnp.asarray(v).reshape(-1) for v in leaves), strict=True))
        leaves = list(state.values())
        # tables hold for every x: what padding reads of x is masked
        for (start, v), var in zip(self.space.blocks, self.graph.values, strict=True):
            state[var] = jnp.asarray(self.space.lower[start : start + v.size])
        unary: dict[int, Any] = {}
        for n, u in self.unary:
            table = u.table(state, self.dependence)
            unary[n] = unary[n] + table if n in unary else table
        return {
            "leaves": leaves,
            "untouched": jnp.asarray(untouched).reshape(()),
            "unary": unary,
            "pairs": [p.tables(state, self.dependence) for *_, p in self.pairs],
        }

    def _state(self, x, context) -> dict[Variable, Any]:
        state = dict(zip(self.leaves, context["leaves"], strict=True))
        for v, part in zip(self.graph.values, self._parts(x), strict=True):
            state[v] = part
        return state

    def _parts(self, x) -> list[Any]:
        return [x[start : start + v.size] for start, v in self.space.blocks]

    def _inputs(self, x, context) -> list[Any]:
        parts = [p.reshape(v.shape) for p, v in zip(self._parts(x), self.space.variables, strict=True)]
        leaves = [a.reshape(self.graph.shape(v)) for v, a in zip(self.leaves, context["leaves"], strict=True)]
        return parts + leaves

    def logdensity(self, x, context):
        """() nats, of the terms that depend on the block."""
        return jnp.asarray(self._total(*self._inputs(x, context))[0]).reshape(())

    def _by_value(self, x, n: int, moves, rows=None):
        """(r, moves) differences of the moves -> (r, K) by neighbour."""
        start, v = self.space.blocks[n]
        if not v.finite:
            return moves
        local = np.arange(v.size) if rows is None else rows
        lower, counts = jnp.asarray(v.lower)[local], jnp.asarray(v.counts)[local]
        place = (x[start + local] - lower)[:, None]
        if v.K == 2:
            return jnp.where(np.arange(2) == place, 0.0, moves)
        shift = jnp.remainder(np.arange(v.K) - place, counts[:, None])
        padded = jnp.concatenate([jnp.zeros_like(moves[:, :1]), moves], axis=1)
        return jnp.take_along_axis(padded, shift, axis=1, mode="clip")

    def _fields(self, n: int, x, context, rows=None):
        """(r, K) what the tables add to the log density at each value, or None."""
        total = None
        if n in context["unary"]:
            total = context["unary"][n] if rows is None else context["unary"][n][rows]
        for (a, b, p), tables in zip(self.pairs, context["pairs"], strict=True):
            for side, m in ((0, a), (1, b)):
                if m != n:
                    continue
                own = p.sides[side]["rows"]
                if rows is None:
                    part = p.fields(side, tables[side], x)
                    v = self.space.variables[n]
                    part = part if own.complete else jnp.zeros((v.size, v.K), part.dtype).at[own.local].add(part)
                else:
                    part = self._some(own, rows, lambda r, p=p, s=side, t=tables: p.fields(s, t[s], x, r))
                total = part if total is None else total + part
        return total

    def _some(self, own, rows, function):
        """Rows of a table that need not have one for every site."""
        if own.complete:
            return function(rows)
        place = np.full(int(self.space.d) + 1, -1)
        place[own.local] = np.arange(len(own.local))
        at = jnp.asarray(place)[rows]
        return jnp.where((at >= 0)[:, None], function(jnp.maximum(at, 0)), 0.0)

    def _sparse_rows(self, n: int, x, context, state, rows=None):
        """(r, K) differences from tables and from elements evaluated in place."""
        start, v = self.space.blocks[n]
        total = None
        fields = self._fields(n, x, context, rows)
        if fields is not None:
            local = np.arange(v.size) if rows is None else rows
            place = (x[start + local] - jnp.asarray(v.lower)[local])[:, None]
            if v.K <= 8:
                now = fields[:, :1]
                for k in range(1, v.K):
                    now = jnp.where(place == k, fields[:, k : k + 1], now)
            else:
                now = jnp.take_along_axis(fields, place, axis=1, mode="clip")
            total = jnp.where(jnp.isneginf(fields), -jnp.inf, fields - now)
        moves = None
        for m, p in self.pointwise:
            if m != n:
                continue
            if rows is None:
                part = p.moves(x, self.space, self.dependence, state)
                part = part if p.rows.complete else p.rows.add(jnp.zeros((v.size, v.moves), part.dtype), part)
            else:
                part = self._some(p.rows, rows, lambda r, p=p: p.moves(x, self.space, self.dependence, state, r))
            moves = part if moves is None else moves + part
        if moves is not None:
            moves = self._by_value(x, n, moves, rows)
            total = moves if total is None else total + moves
        return total

    def differences(self, x, context):
        """(d, K) nats."""
        state = self._state(x, context)
        currents: dict[Variable, Any] = {}
        if self._frontier:
            currents = dict(zip(self._frontier, map(jnp.asarray, self._currents(*self._inputs(x, context))), strict=True))
        for g in self.gradients:
            state.update(g.evaluate([p.reshape(v.shape) for p, v in zip(self._parts(x), self.space.variables, strict=True)], state, currents))
        blocks = []
        for n, v in enumerate(self.space.variables):
            total = self._sparse_rows(n, x, context, state)
            moves = [r.moves(n, x, state, currents) for r in self.rows if n in r.variables]
            for g in self.gradients:
                for m, p in g.pointwise:
                    if m == n:
                        part = p.moves(x, self.space, self.dependence, state)
                        moves.append(part if p.rows.complete else p.rows.add(jnp.zeros((v.size, v.moves), part.dtype), part))
            for part in moves:
                part = self._by_value(x, n, part)
                total = part if total is None else total + part
            total = jnp.zeros((v.size, v.K)) if total is None else total
            blocks.append(jnp.pad(total, ((0, 0), (0, self.space.K - v.K))))
        return self._masked(x, jnp.concatenate(blocks))

    def _masked(self, x, d, sites=None):
        values, inside = self.space.neighbours(x, sites)
        now = x if sites is None else x[sites]
        d = jnp.where(inside & ~jnp.isnan(d), d, -jnp.inf)
        return jnp.where(inside & (values == now[:, None]), 0.0, d)

    def update(self, x, differences, site, context):
        """Differences after x changed at `site`: only those that the site touches are computed anew."""
        state = self._state(x, context)
        for n, (start, v) in enumerate(self.space.blocks):
            table = self.local.rows[n]
            if table.shape[1] == 0:
                continue
            rows = jnp.asarray(table)[site]
            safe = jnp.minimum(rows, v.size - 1)
            part = self._sparse_rows(n, x, context, state, safe)
            part = jnp.zeros((table.shape[1], v.K)) if part is None else part
            part = jnp.pad(part, ((0, 0), (0, self.space.K - v.K)))
            part = self._masked(x, part, start + safe)
            where = jnp.where(rows < v.size, start + rows, self.space.d)
            differences = differences.at[where].set(part, mode="drop")
        return differences
