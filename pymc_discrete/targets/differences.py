"""The differences of a block, evaluated as its plan says."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable

from pymc_discrete.targets.dense import DenseTerm
from pymc_discrete.targets.graph import LogpGraph, context_inputs, mark_dependent
from pymc_discrete.targets.jaxify import jaxify
from pymc_discrete.targets.plan import Plan
from pymc_discrete.targets.space import Space, picked
from pymc_discrete.targets.summands import change, reference, summands
from pymc_discrete.targets.tables import Pointwise, difference
from pymc_discrete.targets.untouched import Untouched


class Differences:
    """Pure JAX functions of x and of a context.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.graph: LogpGraph = plan.graph
        self.space: Space = plan.space
        self.dependence = plan.dependence
        self._build()

    def _build(self) -> None:
        terms = [DenseTerm(name, t, None).total for name, t in self.graph.terms]
        total = pt.add(*terms) if len(terms) > 1 else (terms[0] if terms else pt.constant(0.0))
        mark_dependent(total, self.graph)
        needed: list[Variable] = context_inputs([total], self.graph.values)
        for r in self.plan.rows:
            needed += r.prepare()
        for g in self.plan.gradients:
            needed += g.prepare()
        sparse = [p.term for _, p in self.plan.unary + self.plan.pointwise] + [
            p.term for *_, p in self.plan.pairs
        ]
        needed += [t.weight for t in sparse if t.weight is not None and not isinstance(t.weight, Constant)]
        slope_leaves = [v for g in self.plan.gradients for v in g.leaves]
        frontier = [f for r in self.plan.rows for f in r.frontier]
        tensors = [t.var for t in sparse] + [f.source for f in frontier] + slope_leaves
        if tensors:
            needed += context_inputs(tensors, self.graph.values)
        self.leaves = [v for v in dict.fromkeys(needed) if v not in self.graph.dependent]
        self.untouched = Untouched(self.graph)
        self._leaf_values = jaxify(self.graph.others, [*self.leaves, *self.untouched.in_jax])
        inputs = [*self.graph.values, *self.leaves]
        self._total = jaxify(inputs, [total])
        self._inputs = inputs
        self.frontier = list(dict.fromkeys([f.var for f in frontier] + slope_leaves))
        self.currents = jaxify(inputs, self.frontier)

    def context(self, others: list[Any]) -> dict[str, Any]:
        """What depends on the other variables only: evaluated once per draw, whatever the block does."""
        values = self._leaf_values(*others)
        leaves, untouched = values[: len(self.leaves)], values[len(self.leaves) :]
        state = dict(zip(self.leaves, (jnp.asarray(v).reshape(-1) for v in leaves), strict=True))
        leaves = list(state.values())
        # tables hold for every x: what padding reads of x is masked
        for (start, v), var in zip(self.space.blocks, self.graph.values, strict=True):
            state[var] = jnp.asarray(self.space.lower[start : start + v.size])
        unary: dict[int, Any] = {}
        for n, u in self.plan.unary:
            table = u.table(state, self.dependence)
            unary[n] = unary[n] + table if n in unary else table
        pairs = [p.tables(state, self.dependence) for *_, p in self.plan.pairs]
        return {
            "leaves": leaves,
            "untouched": sum((jnp.asarray(t).reshape(()) for t in untouched), jnp.zeros(())),
            "unary": unary,
            "rows": [r.context(state) for r in self.plan.rows],
            "joint": [joint for joint, _ in pairs],
            "pairs": [by_site for _, by_site in pairs],
        }

    def state(self, x, context) -> dict[Variable, Any]:
        state = dict(zip(self.leaves, context["leaves"], strict=True))
        for v, part in zip(self.graph.values, self._parts(x), strict=True):
            state[v] = part
        return state

    def _parts(self, x) -> list[Any]:
        return [x[start : start + v.size] for start, v in self.space.blocks]

    def inputs(self, x, context) -> list[Any]:
        parts = [p.reshape(v.shape) for p, v in zip(self._parts(x), self.space.variables, strict=True)]
        leaves = [a.reshape(self.graph.shape(v)) for v, a in zip(self.leaves, context["leaves"], strict=True)]
        return parts + leaves

    @functools.cached_property
    def _summands(self):
        """A function of the inputs: tensors whose elements add to the log density."""
        parts = [p for _, t in self.graph.terms for p in summands(t, self.graph)]
        return jaxify(self._inputs, parts)

    def centred(self, x, context) -> dict[str, Any]:
        """The context in which the log density counts from x, as the sum of changes."""
        return {**context, "since": reference(self._summands(*self.inputs(x, context)))}

    def logdensity(self, x, context):
        """() nats, of the terms that depend on the block; of a centred context, less that at its centre."""
        if "since" in context:
            return change(self._summands(*self.inputs(x, context)), context["since"])
        return jnp.asarray(self._total(*self.inputs(x, context))[0]).reshape(())

    def by_value(self, x, n: int, moves, rows=None):
        """(r, moves) differences of the moves -> (r, K) by neighbour."""
        start, v = self.space.blocks[n]
        if not v.finite:
            return moves
        lower, counts = picked(v.lower, rows), picked(v.counts, rows)
        now = x[start : start + v.size] if rows is None else x[start + rows]
        place = (now - lower)[:, None]
        if v.K == 2:
            return jnp.where(np.arange(2) == place, 0.0, moves)
        shift = jnp.remainder(np.arange(v.K) - place, counts[:, None])
        padded = jnp.concatenate([jnp.zeros_like(moves[:, :1]), moves], axis=1)
        return jnp.take_along_axis(padded, shift, axis=1, mode="clip")

    def tables(self, n: int, context, rows=None):
        """What `fields` reads of the context for some sites of a variable, whatever x is.

        Returns
        -------
        unary : (r, K) or None
        pairs : [(pair, side, its rows, their table)]
        """
        unary = context["unary"].get(n)
        unary = unary if unary is None or rows is None else unary[rows]
        pairs = []
        for (a, b, p), tables in zip(self.plan.pairs, context["pairs"], strict=True):
            for side, m in ((0, a), (1, b)):
                if m == n:
                    at = (
                        None
                        if rows is None
                        else p.sides[side]["rows"].place(rows, self.space.variables[n].size)
                    )
                    pairs.append((p, side, at, p.table_of(tables[side], at)))
        return unary, pairs

    def fields(self, n: int, x, tables, without=None):
        """(r, K) what the tables add to the log density at each value, or None; not the pairs with a site
        `without` (d,) bool across.
        """
        total, pairs = tables
        for p, side, at, table in pairs:
            own, v = p.sides[side]["rows"], self.space.variables[n]
            if isinstance(without, np.ndarray) and without[p.sides[side]["across"]].all():
                continue
            part = p.fields(side, table, x, at, without)
            if at is None and not own.complete:
                part = jnp.zeros((v.size, part.shape[1]), part.dtype).at[own.local].add(part)
            elif not own.complete:
                part = jnp.where((at >= 0)[:, None], part, 0.0)
            total = part if total is None else total + part
        return total

    def _moves(self, n: int, p: Pointwise, x, state, rows=None, candidates=None):
        """(r, moves) what the elements of a term evaluated in place change; to the neighbours, or to
        `candidates` (r, moves).
        """
        v, own = self.space.variables[n], p.rows
        moves = v.moves if candidates is None else candidates.shape[1]
        if rows is not None and own.unique:
            at = own.place(rows, v.size)
            part = p.moves(x, self.space, self.dependence, state, at, candidates)
            return part if own.complete else jnp.where((at >= 0)[:, None], part, 0.0)
        if isinstance(rows, np.ndarray):  # several rows to a site: those of the sites wanted, added up
            mine = np.flatnonzero(np.isin(own.local, rows))
            order = np.argsort(rows)
            where = order[np.searchsorted(rows, own.local[mine], sorter=order)]
            part = p.moves(
                x, self.space, self.dependence, state, mine, None if candidates is None else candidates[where]
            )
            return jnp.zeros((len(rows), moves), part.dtype).at[where].add(part)
        if candidates is not None:
            candidates = (
                candidates
                if rows is None
                else jnp.zeros((v.size, moves), candidates.dtype).at[rows].set(candidates)
            )
            candidates = candidates[own.local]
        part = p.moves(x, self.space, self.dependence, state, None, candidates)
        part = part if own.complete else own.add(jnp.zeros((v.size, moves), part.dtype), part)
        return part if rows is None else part[rows]

    def sparse_rows(self, n: int, x, context, state, rows=None, tables=None, candidates=None):
        """(r, K) differences from tables and from elements evaluated in place, or None; of windowed sites
        also to `candidates` (r, K).
        """
        start, v = self.space.blocks[n]
        total = None
        fields = self.fields(n, x, self.tables(n, context, rows) if tables is None else tables)
        if fields is not None:
            now = x[start : start + v.size] if rows is None else x[start + rows]
            place = (now - picked(v.lower, rows))[:, None]
            if v.K <= 8:
                now = fields[:, :1]
                for k in range(1, v.K):
                    now = jnp.where(place == k, fields[:, k : k + 1], now)
            else:
                now = jnp.take_along_axis(fields, place, axis=1, mode="clip")
            total = difference(fields, now)
        moves = self.in_place(n, x, state, rows, candidates)
        return moves if total is None else total if moves is None else total + moves

    def in_place(self, n: int, x, state, rows=None, candidates=None):
        """(r, K) differences from elements evaluated in place, or None."""
        total = None
        for m, p in self.plan.pointwise:
            if m == n:
                part = self._moves(n, p, x, state, rows, candidates)
                total = part if total is None else total + part
        return None if total is None else self.by_value(x, n, total, rows)

    def differences(self, x, context):
        """(d, K) nats."""
        state = self.state(x, context)
        currents: dict[Variable, Any] = {}
        if self.frontier:
            currents = dict(
                zip(self.frontier, map(jnp.asarray, self.currents(*self.inputs(x, context))), strict=True)
            )
        for g in self.plan.gradients:
            state.update(
                g.evaluate(
                    [p.reshape(v.shape) for p, v in zip(self._parts(x), self.space.variables, strict=True)],
                    state,
                    currents,
                )
            )
        blocks = []
        for n, v in enumerate(self.space.variables):
            total = self.sparse_rows(n, x, context, state)
            moves = self._moves_of_rows(n, x, context, state, currents)
            for g in self.plan.gradients:
                for m, p in g.pointwise:
                    if m == n:
                        moves.append(self._moves(n, p, x, state))
            for part in moves:
                part = self.by_value(x, n, part)
                total = part if total is None else total + part
            total = jnp.zeros((v.size, v.K)) if total is None else total
            blocks.append(jnp.pad(total, ((0, 0), (0, self.space.K - v.K))))
        return self._masked(x, jnp.concatenate(blocks))

    def _moves_of_rows(self, n: int, x, context, state, currents) -> list[Any]:
        """[(r, moves)] differences of the dense terms that are evaluated on every move."""
        return [
            r.moves(n, x, state, currents, c)
            for r, c in zip(self.plan.rows, context["rows"], strict=True)
            if n in r.variables
        ]

    def dense_rows(self, n: int, x, context):
        """(n, K) nats, what the same terms change by."""
        state, currents = (
            self.state(x, context),
            dict(zip(self.frontier, self.currents(*self.inputs(x, context)), strict=True)),
        )
        return sum(self.by_value(x, n, part) for part in self._moves_of_rows(n, x, context, state, currents))

    def _masked(self, x, d, sites=None):
        values, inside = self.space.neighbours(x, sites)
        now = x if sites is None else x[sites]
        d = jnp.where(inside & ~jnp.isnan(d), d, -jnp.inf)
        return jnp.where(inside & (values == now[:, None]), 0.0, d)

    def touched(self, sites):
        """(L, m) int, the sites whose differences change with x at each of `sites` (L,), d for none."""
        found = []
        for (start, v), table in zip(self.space.blocks, self.plan.local, strict=True):
            found.append(np.where(table < v.size, start + table, self.space.d))
        return jnp.asarray(np.concatenate(found, axis=1)).at[sites].get(mode="fill", fill_value=self.space.d)

    def update(self, x, differences, sites, context):
        """Differences after x changed at `sites` (L,): only those that the sites touch are computed anew."""
        state = self.state(x, context)
        for n, (start, v) in enumerate(self.space.blocks):
            table = self.plan.local[n]
            if table.shape[1] == 0:
                continue
            rows = jnp.asarray(table).at[sites].get(mode="fill", fill_value=v.size).reshape(-1)
            safe = jnp.minimum(rows, v.size - 1)
            part = self.sparse_rows(n, x, context, state, safe)
            part = jnp.zeros((rows.shape[0], v.K)) if part is None else part
            part = jnp.pad(part, ((0, 0), (0, self.space.K - v.K)))
            part = self._masked(x, part, start + safe)
            where = jnp.where(rows < v.size, start + rows, self.space.d)
            differences = differences.at[where].set(part, mode="drop")
        return differences
