"""Exact differences of a term that joins many sites, from evaluating the part of its graph that changes.

A walk from the term towards its inputs stops at the *frontier*: tensors whose elements depend on a few sites
each, and linear maps of such tensors (`u = X @ (gamma * beta)`). A move changes a few elements of a frontier
tensor, or adds a multiple of one column of the linear map. The rest of the graph, from the frontier to the
term, is evaluated on the changed frontier, for all moves at once. Without a linear map in the frontier, that
amounts to evaluating the term at every neighbour by brute force.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable

from pymc_discrete.differences.parts.elements import (
    SiteElements,
    after_joint_moves,
    after_moves,
    counted_once,
    difference,
    elements_per_variable,
)
from pymc_discrete.differences.parts.evaluate import JointMoves, Reader
from pymc_discrete.differences.parts.part import BlockState, Factors, MoveByMove
from pymc_discrete.runtime.float32 import change, floats_are_32_bit, reference
from pymc_discrete.space.space import Space
from pymc_discrete.structure import costs
from pymc_discrete.structure.columns import column_update, is_tame
from pymc_discrete.structure.degree import Degree
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.jumps import decided_by_rounding
from pymc_discrete.structure.logp_graph import adds_up
from pymc_discrete.structure.rebuild import context_inputs
from pymc_discrete.structure.sums import all_summands
from pymc_discrete.structure.terms import Term

# Moves are evaluated in batches: the tensors that change for all moves of a batch may take at most so many
# bytes.
MEMORY_CAP = 2**27


@dataclass
class Frontier:
    """A tensor from which on a term is evaluated again when sites move.

    The elements of the tensor depend on a few sites each, or it is a linear map of a tensor of this kind.

    Attributes
    ----------
    var : Variable
        The tensor.
    source : Variable
        The tensor whose elements depend on a few sites each.
    elements : {variable number: SiteElements}
        The elements of the source that depend on each site.
    node : Apply
        The linear map; None where the tensor is the source.
    update : callable
        A function from a change of elements of the source to the change of the linear map, see
        `columns.column_update`.
    """

    var: Variable
    source: Variable
    elements: dict[int, SiteElements]
    node: Apply | None = None
    update: Any = None


def frontier_of(total: Variable, dependence: Dependence, space: Space) -> list[Frontier]:
    """The tensors from which on a term is evaluated again when sites move.

    A walk from `total` towards the inputs of its graph stops at tensors whose elements depend on a few sites
    each, and at linear maps of such tensors.
    """
    graph, seen, stack = dependence.graph, set(), [total]
    rounding_decides = decided_by_rounding(total, graph)
    frontier: dict[Variable, Frontier] = {}

    def elements_of(source: Variable) -> dict[int, SiteElements]:
        return elements_per_variable(dependence.sparse(source), space, pad=True)

    while stack:
        var = stack.pop()
        if var in seen or not graph.depends(var):
            continue
        seen.add(var)
        if dependence.of(var) is not None:
            frontier[var] = Frontier(var, var, elements_of(var))
            continue
        node = var.owner
        moving = [j for j, i in enumerate(node.inputs) if graph.depends(i)]
        source = node.inputs[moving[0]]
        alone = len(moving) == 1 and adds_up(var) and dependence.of(source) is not None
        if alone and is_tame(source, node, graph) and not rounding_decides(var):
            update = column_update(node.op, node, moving[0], graph)
            if update is not None:
                frontier[var] = Frontier(var, source, elements_of(source), node, update)
                continue
        stack.extend(node.inputs)
    return list(frontier.values())


class Incremental(MoveByMove):
    """A term; for each move only the part of its graph from the frontier to the term is evaluated again.

    Parameters
    ----------
    term : Term
    total : Variable
        The scalar value of the term in the graph.
    frontier : list of Frontier
        The tensors from which on the term is evaluated again.
    """

    mixing = True

    def __init__(
        self, term: Term, total: Variable, frontier: list[Frontier], dependence: Dependence, space: Space
    ):
        super().__init__(dependence, space)
        self.term, self.total, self.frontier = term, total, frontier
        self.row_elements = sum(self.graph.size(f.var) for f in frontier)

    # ------------------------------------------------------------ sites and variables that enter the term
    @property
    def linear(self) -> bool:
        """Whether one of the tensors of the frontier is a linear map."""
        return any(f.node is not None for f in self.frontier)

    @cached_property
    def sites(self) -> np.ndarray:
        return np.unique(
            np.concatenate([e.site[e.mask.any(axis=1)] for f in self.frontier for e in f.elements.values()])
        )

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
        """The variables outside of the block from which, besides the frontier, the term is computed."""
        return context_inputs([self.total], self.tensors)

    def _input_values(self, arrays: dict[Variable, Any]) -> list[Any]:
        return [arrays[i].reshape(self.graph.shape(i)) for i in self._inputs]

    @property
    def way(self) -> str:
        """A word for the log: how the differences are computed."""
        return "incremental" if self.linear else "brute force"

    @property
    def what(self) -> str:
        """A text for the log about the work for one difference."""
        return "is evaluated on changed linear maps" if self.linear else "is evaluated at every neighbour"

    # ------------------------------------------------------------ from the frontier to the term
    @cached_property
    def _total(self):
        return jaxify([*self.tensors, *self._inputs], [self.total])

    @cached_property
    def _summands(self):
        return jaxify([*self.tensors, *self._inputs], all_summands(self.total, self.graph))

    def _rest(self, frontier: list[Any], inputs: list[Any]):
        """The term as a function of the frontier: () nats, or in float32 its summands."""
        return (
            tuple(self._summands(*frontier, *inputs))
            if floats_are_32_bit()
            else self._total(*frontier, *inputs)[0]
        )

    def at(self, state: BlockState, context: Any) -> Any:
        """The term at the current frontier: () nats, or in float32 its summands."""
        frontier = [state.tensors[f.var] for f in self.frontier]
        return jax.tree.map(jnp.asarray, self._rest(frontier, self._input_values(state.arrays)))

    # ------------------------------------------------------------ differences
    def differences(self, n: int, state: BlockState, at: Any, context: Any, rows=None, candidates=None):
        moves = self._moves(n, state, at, context, rows, candidates)
        return self.space.by_value(state.x, n, moves, rows, candidates)

    def _moves(self, n: int, state: BlockState, at: Any, context: Any, rows, candidates):
        """(r, moves) nats, the differences of sites of variable n, with a column for each of their moves."""
        v, (after, now) = self.space.variables[n], self._rest_at(state, at)

        def after_moves(rows, candidates=None):
            return after(
                [
                    self._changed(f, n, state, rows, candidates) if n in f.elements else None
                    for f in self.frontier
                ]
            )

        if rows is not None:
            return difference(after_moves(rows, candidates), now)
        size = 8 * v.size * v.moves * max(self.row_elements, int(self.rest_cost), 1)
        if size <= MEMORY_CAP:
            return difference(after_moves(None), now)
        batch = max(1, int(MEMORY_CAP // (size / v.size)))
        return difference(in_batches(after_moves, v.size, batch), now)

    def _rest_at(self, state: BlockState, at: Any) -> tuple[Callable, Any]:
        """The term as a function of changed frontiers, and its value at the current frontier.

        The function takes a list with an array (r, C, *shape) for every tensor of the frontier, or None for a
        tensor that does not change, and returns (r, C) nats. In float32 a constant is subtracted from what
        the function returns, and from the value at the current frontier, too.
        """
        inputs = self._input_values(state.arrays)
        reference_summands = reference(at) if isinstance(at, tuple) else None

        def total(rest):
            return rest.reshape(()) if reference_summands is None else change(rest, reference_summands)

        def after(changed):
            frontier = [
                state.tensors[f.var] if c is None else c for f, c in zip(self.frontier, changed, strict=True)
            ]
            axes = tuple(None if c is None else 0 for c in changed)
            rest = jax.vmap(jax.vmap(lambda *f: total(self._rest(list(f), inputs)), axes), axes)
            return rest(*frontier)

        return after, total(at)

    def joint_differences(self, n: int, state: BlockState, at: Any, context: Any, moves: JointMoves):
        count, candidates, m = moves.values.shape
        size = 8 * count * candidates * max(m * self.row_elements, int(self.rest_cost), 1)
        if size <= MEMORY_CAP:
            return self._of_joint_moves(n, state, at, moves)
        sites, values = jnp.asarray(moves.sites), moves.values
        some = lambda rows: self._of_joint_moves(n, state, at, JointMoves(sites[rows], values[rows]))
        return in_batches(some, count, max(1, int(MEMORY_CAP // (size / count))))

    def _of_joint_moves(self, n: int, state: BlockState, at: Any, moves: JointMoves):
        """(r, C) nats, the `joint_differences` of so few rows of moves that they fit into memory together."""
        after, now = self._rest_at(state, at)
        changed = [
            self._changed_jointly(f, n, state, moves) if n in f.elements else None for f in self.frontier
        ]
        return difference(after(changed), now)

    def tensors_after(self, n: int, state: BlockState, site: Any, value: Any) -> dict[Variable, Any]:
        return {
            f.var: self._changed(f, n, state, site, value[:, None])[0, 0]
            for f in self.frontier
            if n in f.elements
        }

    def _source_after(self, f: Frontier, n: int, state: BlockState, rows, candidates=None):
        """(r, m, moves), for each site the elements of the frontier's source that depend on the site, after
        each of its moves.

        Parameters
        ----------
        rows : (r,) int
            Sites, counted within the variable; None means all.
        candidates : (r, moves) int
            The values to move to; None means the neighbours.
        """
        return after_moves(f.source, f.elements[n], n, state, self.dependence, self.space, rows, candidates)

    def _source_change(self, f: Frontier, n: int, state: BlockState, rows, candidates=None, dtype=float):
        """(r, m, moves), the changes that each move of a site makes in the elements of the frontier's source.

        Only the m elements that depend on the site are listed.
        """
        elements = f.elements[n]
        now = Reader(self.dependence, state.arrays, rows).read(f.source, elements.index)
        then = self._source_after(f, n, state, rows, candidates)
        delta = jnp.asarray(then, dtype) - jnp.asarray(now, dtype)
        if elements.mask.all():
            return delta
        mask = elements.mask if rows is None else jnp.asarray(elements.mask)[rows]
        return jnp.where(mask[..., None], delta, 0)

    def _changed(self, f: Frontier, n: int, state: BlockState, rows, candidates=None):
        """(r, moves, *shape), a tensor of the frontier after each move of each site."""
        current = state.tensors[f.var]
        if f.node is not None:
            integer = not jnp.issubdtype(current.dtype, jnp.floating)
            # Changes of a map of integers are computed in float64, which represents them exactly up to 2^53,
            # and whose products take less time than those of integers. float32 represents integers exactly
            # only up to 2^24, so with float32 the changes are computed as integers.
            dtype = current.dtype if integer and floats_are_32_bit() else float
            delta = self._source_change(f, n, state, rows, candidates, dtype)
            tensor = current + f.update(delta, f.elements[n].index, rows, self._operands(f, state.arrays))
            return jnp.round(tensor).astype(current.dtype) if integer else tensor
        then, size = self._source_after(f, n, state, rows, candidates), self.graph.size(f.var)
        count, _, k = then.shape
        base = jnp.broadcast_to(current.reshape(1, size, 1), (count, size, k)).astype(then.dtype)
        # the index of padding is past the end of the tensor, so that `mode="drop"` ignores it
        where = np.where(f.elements[n].mask, f.elements[n].index, size)
        where = where if rows is None else jnp.asarray(where)[rows]
        tensor = base.at[jnp.arange(count)[:, None], where].set(then, mode="drop")
        return jnp.moveaxis(tensor, 2, 1).reshape(count, k, *current.shape)

    def _changed_jointly(self, f: Frontier, n: int, state: BlockState, moves: JointMoves):
        """(r, C, *shape), a tensor of the frontier after all sites of each row have moved, for C moves."""
        current, index, sites = state.tensors[f.var], f.elements[n].index, moves.each
        if f.node is not None:
            integer = not jnp.issubdtype(current.dtype, jnp.floating)
            dtype = current.dtype if integer and floats_are_32_bit() else float
            delta = self._joint_change(f, n, state, moves, dtype)
            tensor = current + moves.summed(f.update(delta, index, sites, self._operands(f, state.arrays)))
            return jnp.round(tensor).astype(current.dtype) if integer else tensor
        size, (count, k) = self.graph.size(f.var), moves.values.shape[:2]
        then = after_joint_moves(f.source, f.elements[n], n, state, self.dependence, self.space, moves)
        base = jnp.broadcast_to(current.reshape(1, size, 1), (count, size, k)).astype(then.dtype)
        where = jnp.asarray(np.where(f.elements[n].mask, index, size))[sites]
        row = np.arange(moves.sites.size) // moves.sites.shape[1]
        tensor = base.at[row[:, None], where].set(then, mode="drop")
        return jnp.moveaxis(tensor, 2, 1).reshape(count, k, *current.shape)

    def _joint_change(self, f: Frontier, n: int, state: BlockState, moves: JointMoves, dtype=float):
        """(r m, k, C), the changes of the k elements of the frontier's source that depend on each site.

        All sites of a row move together. An element that depends on several of them has its change at one of
        them, and 0 at the others. Padding is 0.
        """
        graph = (f.source, f.elements[n], n)
        now = Reader(self.dependence, state.arrays, moves.each).read(f.source, f.elements[n].index)
        then = after_joint_moves(*graph, state, self.dependence, self.space, moves)
        mask = counted_once(*graph, self.dependence, self.space, moves)
        return jnp.where(mask[..., None], jnp.asarray(then, dtype) - jnp.asarray(now, dtype), 0)

    def _operands(self, f: Frontier, arrays: dict[Variable, Any]) -> list[Any]:
        """The inputs of a linear map, with None for the input that depends on the block."""
        inputs = []
        for i in f.node.inputs if f.node is not None else ():
            value = np.asarray(i.data) if isinstance(i, Constant) else arrays.get(i)
            inputs.append(None if value is None else value.reshape(self.graph.shape(i)))
        return inputs

    # ------------------------------------------------------------ factors
    @cached_property
    def _degrees(self) -> Degree:
        return Degree(self.dependence)

    @property
    def degree(self) -> float:
        """The largest number of sites that the term multiplies with one another, see `Degree`."""
        return self._degrees.of(self.total)

    @property
    def why_degree(self) -> str | None:
        """The name of the Op that makes the degree of the term infinite; None if the degree is finite."""
        return self._degrees.cause(self.total)

    def factors(self, context: Any, state_at: Callable[[Any], BlockState]) -> Factors | None:
        """First and second differences from the lowest values, if the term has degree 2 in its sites."""
        if self.degree > 2:
            return None
        lowest = jnp.asarray(self.space.lower)
        variables = sorted(self.variables)

        def differences(x):
            state = state_at(x)
            at = self.at(state, context)
            return {n: self.differences(n, state, at, self.context_of(n, context, None)) for n in variables}

        alone, pairs = differences(lowest), {}
        for m in variables:
            (start, v), below = self.space.blocks[m], [n for n in variables if n <= m]
            moves = np.meshgrid(start + np.arange(v.size), np.arange(1, v.K), indexing="ij")

            def second_differences(move, below=below):
                after = differences(lowest.at[move[0]].add(move[1]))
                return [(after[n] - alone[n])[:, 1:] for n in below]

            effects = jax.lax.map(second_differences, jnp.asarray(np.stack(moves, -1).reshape(-1, 2)))
            for n, effect in zip(below, effects, strict=True):
                u = self.space.variables[n]
                effect = effect.reshape(v.size, v.K - 1, u.size, u.K - 1)
                effect = jnp.moveaxis(effect, (0, 1), (2, 3))
                once = np.triu(np.ones((u.size, u.size), bool), 1)[:, None, :, None] if n == m else True
                pairs[n, m] = jnp.where(once, effect, 0.0)
        return Factors(alone, [], pairs)

    # ------------------------------------------------------------ cost
    @cached_property
    def rest_cost(self) -> float:
        """Counted operations of evaluating once the graph from the frontier to the term."""
        return costs.of_graph([self.total], self.graph, set(self.tensors))

    @property
    def cost_of_move(self) -> float:
        return self.rest_cost + self.row_elements


def in_batches(function, n: int, batch: int):
    """The results of `function(rows)` for the rows 0, ..., n - 1, with `batch` rows in each call."""
    steps = -(-n // batch)
    rows = jnp.minimum(jnp.arange(steps * batch), n - 1).reshape(steps, batch)
    out = jax.lax.map(function, rows)
    return out.reshape(steps * batch, *out.shape[2:])[:n]
