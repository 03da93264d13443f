"""Sorting, and the order of elements."""

import jax.numpy as jnp
from pytensor.graph.basic import Apply
from pytensor.tensor.sort import ArgSortOp, SortOp

from pymc_discrete.structure.bounds import REARRANGING, Interval, bounds_after, positions
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.reads import Entries, along, elements_of

REARRANGING[SortOp] = 1


@elements_of.register
def _(op: SortOp, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, (op.axis,), lambda v: jnp.sort(v, axis=-2))


@elements_of.register
def _(op: ArgSortOp, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, (op.axis,), lambda v: jnp.argsort(v, axis=-2, stable=op.kind == "stable"))


@bounds_after.register
def _(op: ArgSortOp, node: Apply, inputs: list[Interval]) -> Interval:
    shape = node.inputs[0].type.shape
    return positions(shape if op.axis is None else [shape[op.axis]])
