"""Exact differences of a term that joins many sites: the rest of its graph, evaluated on what a move changes.

A walk back from the term stops at its frontier: tensors whose elements depend on a few sites each, and linear
maps of such tensors (`u = X @ (gamma * beta)`). A move changes the frontier by few elements, or by one column
of the linear map, and the rest of the graph is evaluated on the changed frontier, for all moves at once.
Where the frontier holds no linear map this is brute force.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable

from pymc_discrete.targets.float32 import change, narrow, reference
from pymc_discrete.targets.graph.jaxify import jaxify
from pymc_discrete.targets.graph.logp_graph import adds_up
from pymc_discrete.targets.graph.rebuild import context_inputs
from pymc_discrete.targets.parts.evaluate import Moves, Reader
from pymc_discrete.targets.parts.part import Factors, Here, Part
from pymc_discrete.targets.parts.rows import Rows, difference, rows_per_variable
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.structure import costs
from pymc_discrete.targets.structure.columns import column_update, is_tame
from pymc_discrete.targets.structure.degree import Degree
from pymc_discrete.targets.structure.dependence import Dependence
from pymc_discrete.targets.structure.sums import all_summands
from pymc_discrete.targets.structure.terms import Term

MEMORY_CAP = 2**27  # bytes of moved copies at a time


@dataclass
class Frontier:
    """One tensor on which the rest of a term is evaluated: a sparse tensor itself, or a linear map of one.

    Attributes
    ----------
    var : the tensor
    source : the sparse tensor
    rows : {variable number: the elements of the source that belong to each of its sites}
    node : the linear map, None where the tensor is the source
    update : how a change of elements of the source changes a linear map, see `linear.column_update`
    """

    var: Variable
    source: Variable
    rows: dict[int, Rows]
    node: Apply | None = None
    update: Any = None


def frontier_of(total: Variable, dependence: Dependence, space: Space) -> list[Frontier]:
    """Where a walk back from `total` meets sparse tensors, or linear maps of one sparse tensor."""
    graph, seen, stack = dependence.graph, set(), [total]
    frontier: dict[Variable, Frontier] = {}

    def rows_of(source: Variable) -> dict[int, Rows]:
        return rows_per_variable(dependence.sparse(source), space, pad=True)

    while stack:
        var = stack.pop()
        if var in seen or not graph.depends(var):
            continue
        seen.add(var)
        if dependence.of(var) is not None:
            frontier[var] = Frontier(var, var, rows_of(var))
            continue
        node = var.owner
        moving = [j for j, i in enumerate(node.inputs) if graph.depends(i)]
        source = node.inputs[moving[0]]
        alone = len(moving) == 1 and adds_up(var) and dependence.of(source) is not None
        if alone and is_tame(source, node, graph):
            update = column_update(node.op, node, moving[0], graph)
            if update is not None:
                frontier[var] = Frontier(var, source, rows_of(source), node, update)
                continue
        stack.extend(node.inputs)
    return list(frontier.values())


class Incremental(Part):
    """A term whose differences come from its rest, evaluated on every move's changed frontier.

    Parameters
    ----------
    term : Term
    total : its `total`
    frontier : as `frontier_of` finds it
    """

    mixing = True

    def __init__(
        self, term: Term, total: Variable, frontier: list[Frontier], dependence: Dependence, space: Space
    ):
        super().__init__(dependence, space)
        self.term, self.total, self.frontier = term, total, frontier
        self.row_elements = sum(self.graph.size(f.var) for f in frontier)

    # ------------------------------------------------------------ what it depends on, and reads
    @property
    def linear(self) -> bool:
        """Whether the frontier holds a linear map."""
        return any(f.node is not None for f in self.frontier)

    @cached_property
    def sites(self) -> np.ndarray:
        return np.unique(
            np.concatenate([r.site[r.mask.any(axis=1)] for f in self.frontier for r in f.rows.values()])
        )

    @cached_property
    def variables(self) -> set[int]:
        return {n for f in self.frontier for n in f.rows}

    @property
    def tensors(self) -> list[Variable]:
        return [f.var for f in self.frontier]

    @cached_property
    def leaves(self) -> list[Variable]:
        operands = [i for f in self.frontier if f.node is not None for i in f.node.inputs]
        operands = [i for i in operands if not self.graph.depends(i) and not isinstance(i, Constant)]
        sources = context_inputs([f.source for f in self.frontier], self.graph.values)
        return list(dict.fromkeys([*self._inputs, *operands, *sources]))

    @cached_property
    def _inputs(self) -> list[Variable]:
        """What the rest reads besides the frontier."""
        return context_inputs([self.total], self.tensors)

    def _input_values(self, state: dict[Variable, Any]) -> list[Any]:
        return [state[i].reshape(self.graph.shape(i)) for i in self._inputs]

    # ------------------------------------------------------------ the rest
    @cached_property
    def _total(self):
        return jaxify([*self.tensors, *self._inputs], [self.total])

    @cached_property
    def _summands(self):
        return jaxify([*self.tensors, *self._inputs], all_summands(self.total, self.graph))

    def _rest(self, frontier: list[Any], inputs: list[Any]):
        """The term on a frontier: () nats, and in float32 its summands."""
        return tuple(self._summands(*frontier, *inputs)) if narrow() else self._total(*frontier, *inputs)[0]

    def at(self, here: Here) -> Any:
        """The term at the current frontier, as `_rest`."""
        frontier = [here.tensors[f.var] for f in self.frontier]
        return jax.tree.map(jnp.asarray, self._rest(frontier, self._input_values(here.state)))

    # ------------------------------------------------------------ differences
    def differences(self, n: int, here: Here, at: Any, context: Any, rows=None, candidates=None):
        return self.space.by_value(here.x, n, self._moves(n, here, at, context, rows, candidates), rows)

    def _moves(self, n: int, here: Here, at: Any, context: Any, rows, candidates):
        """(r, moves) nats."""
        v, inputs = self.space.variables[n], self._input_values(here.state)
        since = reference(at) if isinstance(at, tuple) else None

        def level(rest):
            return rest.reshape(()) if since is None else change(rest, since)

        def moved(rows, candidates=None):
            changed = [
                self._changed(f, n, here, rows, candidates) if n in f.rows else None for f in self.frontier
            ]
            fixed = [
                here.tensors[f.var] if c is None else c for f, c in zip(self.frontier, changed, strict=True)
            ]
            axes = tuple(None if c is None else 0 for c in changed)
            rest = jax.vmap(jax.vmap(lambda *f: level(self._rest(list(f), inputs)), axes), axes)
            return rest(*fixed)

        if rows is not None:
            return difference(moved(rows, candidates), level(at))
        size = 8 * v.size * v.moves * max(self.row_elements, int(self.rest_cost), 1)
        if size <= MEMORY_CAP:
            return difference(moved(None), level(at))
        batch = max(1, int(MEMORY_CAP // (size / v.size)))
        return difference(in_batches(moved, v.size, batch), level(at))

    def moved(self, n: int, here: Here, site: Any, value: Any) -> dict[Variable, Any]:
        return {
            f.var: self._changed(f, n, here, site, value[:, None])[0, 0] for f in self.frontier if n in f.rows
        }

    def _source_moved(self, f: Frontier, n: int, here: Here, rows, candidates=None):
        """(r, m, moves): the elements of the source that each site owns, after each move, or at each of its
        `candidates` (r, moves).
        """
        start, v = self.space.blocks[n]
        own = f.rows[n]
        candidates = self.space.values_of(here.x, start, v, rows) if candidates is None else candidates
        reader = Reader(self.dependence, here.state, rows, Moves([own.site], [candidates]))
        moved = reader.read(f.source, own.index)
        return jnp.broadcast_to(moved, (candidates.shape[0], own.index.shape[1], candidates.shape[1]))

    def _source_change(self, f: Frontier, n: int, here: Here, rows, candidates=None, dtype=float):
        """(r, m, moves): how much they change."""
        own = f.rows[n]
        now = Reader(self.dependence, here.state, rows).read(f.source, own.index)
        then = self._source_moved(f, n, here, rows, candidates)
        delta = jnp.asarray(then, dtype) - jnp.asarray(now, dtype)
        if own.mask.all():
            return delta
        return jnp.where((own.mask if rows is None else jnp.asarray(own.mask)[rows])[..., None], delta, 0)

    def _changed(self, f: Frontier, n: int, here: Here, rows, candidates=None):
        """(r, moves, *shape): the frontier tensor after each move."""
        current = here.tensors[f.var]
        if f.node is not None:
            integer = not jnp.issubdtype(current.dtype, jnp.floating)
            # floats of 32 bits hold integers up to 2^24 only; those of 64 bits hold all that come up, and are
            # quicker than integers
            dtype = current.dtype if integer and narrow() else float
            delta = self._source_change(f, n, here, rows, candidates, dtype)
            moved = current + f.update(delta, f.rows[n].index, rows, self._operands(f, here.state))
            return jnp.round(moved).astype(current.dtype) if integer else moved
        then, size = self._source_moved(f, n, here, rows, candidates), self.graph.size(f.var)
        count, _, k = then.shape
        base = jnp.broadcast_to(current.reshape(1, size, 1), (count, size, k)).astype(then.dtype)
        where = np.where(f.rows[n].mask, f.rows[n].index, size)  # one past the end where it is padding
        where = where if rows is None else jnp.asarray(where)[rows]
        moved = base.at[jnp.arange(count)[:, None], where].set(then, mode="drop")
        return jnp.moveaxis(moved, 2, 1).reshape(count, k, *current.shape)

    def _operands(self, f: Frontier, state: dict[Variable, Any]) -> list[Any]:
        """The inputs of a linear map, None for the one that moves."""
        inputs = []
        for i in f.node.inputs if f.node is not None else ():
            given = np.asarray(i.data) if isinstance(i, Constant) else state.get(i)
            inputs.append(None if given is None else given.reshape(self.graph.shape(i)))
        return inputs

    # ------------------------------------------------------------ factors
    @cached_property
    def _degrees(self) -> Degree:
        return Degree(self.dependence)

    @property
    def degree(self) -> float:
        """The most sites that the term multiplies, see `Degree`."""
        return self._degrees.of(self.total)

    @property
    def why_degree(self) -> str | None:
        """Of an infinite degree, the Op that is the reason."""
        return self._degrees.cause(self.total)

    def factors(self, context: Any, here_at: Callable[[Any], Here]) -> Factors | None:
        """A term of degree 2 in its sites, by first and second differences from the lowest values."""
        if self.degree > 2:
            return None
        lowest = jnp.asarray(self.space.lower)
        variables = sorted(self.variables)

        def first(x):
            here = here_at(x)
            at = self.at(here)
            return {n: self.differences(n, here, at, self.context_of(n, context, None)) for n in variables}

        alone, pairs = first(lowest), {}
        for m in variables:
            (start, v), below = self.space.blocks[m], [n for n in variables if n <= m]
            flips = np.meshgrid(start + np.arange(v.size), np.arange(1, v.K), indexing="ij")

            def second(flip, below=below):
                moved = first(lowest.at[flip[0]].add(flip[1]))
                return [(moved[n] - alone[n])[:, 1:] for n in below]

            each = jax.lax.map(second, jnp.asarray(np.stack(flips, -1).reshape(-1, 2)))
            for n, effect in zip(below, each, strict=True):
                u = self.space.variables[n]
                effect = effect.reshape(v.size, v.K - 1, u.size, u.K - 1)
                effect = jnp.moveaxis(effect, (0, 1), (2, 3))
                once = np.triu(np.ones((u.size, u.size), bool), 1)[:, None, :, None] if n == m else True
                pairs[n, m] = jnp.where(once, effect, 0.0)
        return Factors(alone, [], pairs)

    # ------------------------------------------------------------ cost
    @cached_property
    def rest_cost(self) -> float:
        """Counted operations of evaluating the rest once."""
        return costs.of_graph([self.total], self.graph, set(self.tensors))

    def moves_of(self, n: int) -> int:
        """Of all sites of a variable."""
        return self.space.variables[n].size * self.space.variables[n].moves

    @cached_property
    def cost_of_all(self) -> float:
        """Counted operations of all differences."""
        return sum(self.moves_of(n) for n in self.variables) * (self.rest_cost + self.row_elements)

    def cost(self, share: float, values: list[int]) -> float:
        return self.cost_of_all

    def cost_of_value(self, n: int) -> float:
        return (
            self.space.variables[n].size * (self.rest_cost + self.row_elements)
            if n in self.variables
            else 0.0
        )


def in_batches(function, n: int, batch: int):
    """`function(rows)` over all n rows, `batch` at a time."""
    steps = -(-n // batch)
    where = jnp.minimum(jnp.arange(steps * batch), n - 1).reshape(steps, batch)
    out = jax.lax.map(function, where)
    return out.reshape(steps * batch, *out.shape[2:])[:n]
