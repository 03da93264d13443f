"""Differences of dense terms: incremental through linear maps, every move evaluated, or the gradient."""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot

from pymc_discrete.targets.dependence import Dependence
from pymc_discrete.targets.elements import Moves, Reader
from pymc_discrete.targets.graph import LogpGraph, adds_up, context_inputs, mark_dependent
from pymc_discrete.targets.jaxify import jaxify
from pymc_discrete.targets.linear import column_update, is_tame
from pymc_discrete.targets.quadratic import Quadratic, is_separable_quadratic
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.summands import change, narrow, reference, summands
from pymc_discrete.targets.tables import Rows, difference, rows_per_variable

MEMORY_CAP = 2**27  # bytes of moved copies at a time

COSTLY = {"exp": 10, "log": 10, "gammaln": 40, "softplus": 20, "sigmoid": 15, "pow": 10, "tanh": 15}


def flops(outputs: list[Variable], graph: LogpGraph, stop: set[Variable]) -> float:
    """Counted cost of evaluating `outputs` once from `stop`, in units of one addition."""
    total = 0.0
    for node in toposort(outputs, blockers=list(stop)):
        if not any(i in graph.dependent for i in node.inputs):
            continue
        sizes = [graph.size(v) for v in [*node.inputs, *node.outputs] if hasattr(v.type, "ndim")]
        n_out = max((graph.size(v) for v in node.outputs), default=1)
        if isinstance(node.op, Elemwise):
            total += n_out * COSTLY.get(str(node.op.scalar_op), 1)
        elif isinstance(node.op, CAReduce):
            total += sizes[0]
        elif isinstance(node.op, Dot):
            total += 2.0 * n_out * graph.shape(node.inputs[0])[-1]
        elif node.outputs[0].type.ndim == 0 or getattr(node.op, "view_map", None):
            total += max(sizes[0], n_out)
        else:
            total += (
                n_out
                if str(node.op).startswith(("Dim", "Expand", "Squeeze", "Reshape"))
                else max(sizes) ** 1.5
            )
    return total


@dataclass
class DenseTerm:
    """`weight * var.sum()` where elements of `var` depend on many sites."""

    name: str
    var: Variable
    weight: Variable | None

    @property
    def total(self) -> Variable:
        total = self.var.sum() if self.var.type.ndim else self.var
        return total if self.weight is None else total * self.weight


@dataclass
class Frontier:
    """One tensor on which the rest of a dense term is evaluated: a sparse tensor itself, or a linear map of
    one.
    """

    var: Variable
    source: Variable
    node: Apply | None  # the linear map, None where var is the source
    moving: int = 0
    update: Any = None
    rows: dict[int, Rows] = field(default_factory=dict)  # per variable of the space


def frontier_of(total: Variable, dependence: Dependence) -> list[Frontier]:
    """Where a walk back from `total` meets sparse tensors, or linear maps of one sparse tensor."""
    graph, found, seen, stack = dependence.graph, {}, set(), [total]
    while stack:
        var = stack.pop()
        if var in seen or var not in graph.dependent:
            continue
        seen.add(var)
        if dependence.sites(var) is not None:
            found[var] = Frontier(var, var, None)
            continue
        node = var.owner
        moving = [j for j, i in enumerate(node.inputs) if i in graph.dependent]
        source = node.inputs[moving[0]]
        if (
            len(moving) == 1
            and adds_up(var)
            and dependence.sites(source) is not None
            and is_tame(source, node, graph)
        ):
            update = column_update(node.op, node, moving[0], graph)
            if update is not None:
                found[var] = Frontier(var, node.inputs[moving[0]], node, moving[0], update)
                continue
        stack.extend(node.inputs)
    return list(found.values())


class DenseRows:
    """Exact differences: the rest of the graph evaluated on every move's changed frontier."""

    def __init__(self, term: DenseTerm, dependence: Dependence, space: Space):
        self.term, self.dependence, self.space = term, dependence, space
        self.graph = dependence.graph
        self.total = term.total
        mark_dependent(self.total, self.graph)
        self.frontier = frontier_of(self.total, dependence)
        for f in self.frontier:
            f.rows = rows_per_variable(dependence.sparse(f.source), space, pad=True)
        self.rest_flops = flops([self.total], self.graph, {f.var for f in self.frontier})
        self.row_elements = sum(self.graph.size(f.var) for f in self.frontier)
        self.quadratic = self._quadratic()

    @property
    def linear(self) -> bool:
        return any(f.node is not None for f in self.frontier)

    def moves_of(self, n: int) -> int:
        return self.space.variables[n].size * self.space.variables[n].moves

    @property
    def sites(self) -> np.ndarray:
        """Numbers of the sites that enter the term."""
        return np.unique(
            np.concatenate([r.site[r.mask.any(axis=1)] for f in self.frontier for r in f.rows.values()])
        )

    @property
    def variables(self) -> set[int]:
        return {n for f in self.frontier for n in f.rows}

    @property
    def cost(self) -> float:
        """Counted operations of all its differences."""
        if self.quadratic is not None:
            return 2.0 * sum(self.space.variables[n].size for n in self.variables) * self.row_elements
        return sum(self.moves_of(n) for n in self.variables) * (self.rest_flops + self.row_elements)

    def _quadratic(self) -> Quadratic | None:
        """The shortcut for a quadratic rest of one vector-valued linear map, each site moving one element of
        its source.
        """
        if len(self.frontier) != 1:
            return None
        f = self.frontier[0]
        if getattr(f.update, "columns", None) is None or any(
            r.index.shape[1] != 1 or not r.mask.all() for r in f.rows.values()
        ):
            return None
        if not is_separable_quadratic(self.total, f.var, self.graph.size):
            return None
        return Quadratic(self.total, f.var)

    def prepare(self) -> list[Variable]:
        """Build the JAX functions; returns the context that they read."""
        stop = [f.var for f in self.frontier]
        operands = [i for f in self.frontier if f.node is not None for i in f.node.inputs]
        operands = [i for i in operands if i not in self.graph.dependent and not isinstance(i, Constant)]
        if self.quadratic is not None:
            self._inputs = self.quadratic.prepare()
        else:
            self._inputs = context_inputs([self.total], stop)
            self._total = jaxify([*stop, *self._inputs], [self.total])
        return list(dict.fromkeys(self._inputs + operands))

    @functools.cached_property
    def _summands(self):
        return jaxify([*(f.var for f in self.frontier), *self._inputs], summands(self.total, self.graph))

    def _rest(self, frontier: list[Any], inputs: list[Any]):
        """The term on a frontier: () nats, and in float32 its summands."""
        return tuple(self._summands(*frontier, *inputs)) if narrow() else self._total(*frontier, *inputs)[0]

    def _context_inputs(self, state) -> list[Any]:
        return [state[i].reshape(self.graph.shape(i)) for i in self._inputs]

    def _columns(self, f: Frontier, n: int, state):
        """(sites, |u|): what each site's element of the source is multiplied with."""
        columns = f.update.columns(self._operands(f, state))
        index = f.rows[n].index[:, 0]
        return (
            columns
            if len(columns) == len(index) and (index == np.arange(len(index))).all()
            else columns[index]
        )

    def context(self, state) -> dict[int, Any]:
        """What does not depend on x: the curvature along each site's column, per variable."""
        if self.quadratic is None:
            return {}
        f, inputs = self.frontier[0], self._context_inputs(state)
        return {
            n: self.quadratic.context(inputs, self._columns(f, n, state), self.graph.shape(f.var))
            for n in f.rows
        }

    def rest(self, state, currents):
        """The term at the current frontier, as `_rest`; nothing where `moves` does not ask."""
        if self.quadratic is not None:
            return ()
        return jax.tree.map(
            jnp.asarray, self._rest([currents[f.var] for f in self.frontier], self._context_inputs(state))
        )

    def moves(
        self, n: int, x, state, currents, context: dict[int, Any], local=None, now=None, candidates=None
    ):
        """(n sites, moves) differences of one variable, nats; (r, moves) of its sites `local` (r,), to the
        neighbours or `candidates`.

        `now` as `rest`, if known.
        """
        v, inputs = self.space.variables[n], self._context_inputs(state)
        if self.quadratic is not None:
            f = self.frontier[0]
            delta, columns, curvature = (
                self._delta(f, n, x, state, local, candidates)[:, 0],
                self._columns(f, n, state),
                context[n],
            )
            if local is not None:
                columns, curvature = jnp.asarray(columns)[local], curvature[local]
            return self.quadratic.moves(delta, currents[f.var], inputs, columns, curvature)
        now = self.rest(state, currents) if now is None else now
        since = reference(now) if isinstance(now, tuple) else None

        def level(rest):
            return rest.reshape(()) if since is None else change(rest, since)

        def rows(local, candidates=None):
            changed = [
                self._changed(f, n, x, state, currents, local, candidates) if n in f.rows else None
                for f in self.frontier
            ]
            fixed = [currents[f.var] if c is None else c for f, c in zip(self.frontier, changed, strict=True)]
            axes = tuple(None if c is None else 0 for c in changed)
            rest = jax.vmap(jax.vmap(lambda *f: level(self._rest(list(f), inputs)), axes), axes)
            return rest(*fixed)

        if local is not None:
            return difference(rows(local, candidates), level(now))
        size = 8 * v.size * v.moves * max(self.row_elements, int(self.rest_flops), 1)
        if size <= MEMORY_CAP:
            return difference(rows(None), level(now))
        batch = max(1, int(MEMORY_CAP // (size / v.size)))
        return difference(in_batches(rows, v.size, batch), level(now))

    def moved(self, n: int, x, state, currents, local, values) -> dict[Variable, Any]:
        """The frontier tensors that change when one site, `local` (1,) of variable n, goes from x to `values`
        (1,).
        """
        return {
            f.var: self._changed(f, n, x, state, currents, local, values[:, None])[0, 0]
            for f in self.frontier
            if n in f.rows
        }

    def _moved(self, f: Frontier, n: int, x, state, local, candidates=None):
        """(r, m, moves): the elements of the source that each site owns, after each move, or at each of its
        `candidates` (r, moves).
        """
        start, v = self.space.blocks[n]
        r = f.rows[n]
        candidates = self.space.values_of(x, start, v, local) if candidates is None else candidates
        moved = Reader(self.dependence, state, local, Moves([r.site], [candidates])).read(f.source, r.index)
        return jnp.broadcast_to(moved, (candidates.shape[0], r.index.shape[1], candidates.shape[1]))

    def _delta(self, f: Frontier, n: int, x, state, local, candidates=None, dtype=float):
        """(r, m, moves): how much they change."""
        r = f.rows[n]
        now = Reader(self.dependence, state, local).read(f.source, r.index)
        change = jnp.asarray(self._moved(f, n, x, state, local, candidates), dtype) - jnp.asarray(now, dtype)
        if r.mask.all():
            return change
        return jnp.where((r.mask if local is None else jnp.asarray(r.mask)[local])[..., None], change, 0)

    def _changed(self, f: Frontier, n: int, x, state, currents, local, candidates=None):
        """(r, moves, *shape): the frontier tensor after each move."""
        current = currents[f.var]
        if f.node is not None:
            integer = not jnp.issubdtype(current.dtype, jnp.floating)
            # floats of 32 bits hold integers up to 2^24 only; those of 64 bits hold all that come up, and are
            # quicker than integers
            dtype = current.dtype if integer and narrow() else float
            delta = self._delta(f, n, x, state, local, candidates, dtype)
            moved = current + f.update(delta, f.rows[n].index, local, self._operands(f, state))
            return jnp.round(moved).astype(current.dtype) if integer else moved
        then, size = self._moved(f, n, x, state, local, candidates), self.graph.size(f.var)
        count, _, k = then.shape
        base = jnp.broadcast_to(current.reshape(1, size, 1), (count, size, k)).astype(then.dtype)
        where = np.where(f.rows[n].mask, f.rows[n].index, size)  # one past the end where it is padding
        where = where if local is None else jnp.asarray(where)[local]
        moved = base.at[jnp.arange(count)[:, None], where].set(then, mode="drop")
        return jnp.moveaxis(moved, 2, 1).reshape(count, k, *current.shape)

    def _operands(self, f: Frontier, state) -> list[Any]:
        """The inputs of a linear map, None for the one that moves."""
        inputs = []
        for i in f.node.inputs if f.node is not None else ():
            given = np.asarray(i.data) if isinstance(i, Constant) else state.get(i)
            inputs.append(None if given is None else given.reshape(self.graph.shape(i)))
        return inputs


def in_batches(function, n: int, batch: int):
    """`function(rows)` over all rows, `batch` at a time."""
    steps = -(-n // batch)
    where = jnp.minimum(jnp.arange(steps * batch), n - 1).reshape(steps, batch)
    out = jax.lax.map(function, where)
    return out.reshape(steps * batch, *out.shape[2:])[:n]
