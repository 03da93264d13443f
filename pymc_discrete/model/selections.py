"""Rewrites selections by integers, `mu[z]` and `p[i, y[i]]`, to make their gradient fast."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.labels import Selections, is_integers
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.rebuild import rebuild

SHORT = 16  # the longest axis for which a comparison with each of its indices takes less time than a gather


def without_selections(outputs: list[Variable], graph: LogpGraph) -> list[Variable]:
    """The graph with comparisons in place of selections from a short axis of a tensor that depends on the
    block.

    The gradient of a gather is a scatter, which XLA runs one element after another. Selections are first
    moved before elementwise functions, where they select from smaller tensors.
    """
    selections = Selections(Depends(graph.values), anywhere=True)

    def moved(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        index = whole_index(node, inputs)
        if index is None or not selects(inputs[0], index, graph):
            return None
        new = selections.of(inputs[0], index)
        out = node.outputs[0].type
        return [new] if new is not None and new.type == out else None

    def compared(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        index = whole_index(node, inputs)
        if index is None or not selects(inputs[0], index, graph):
            return None
        new = by_comparisons(inputs[0], index, graph)
        return None if new is None else [new]

    return rebuild(rebuild(outputs, {}, moved), {}, compared)


def whole_index(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """The arrays of integers by which a node selects elements, one per axis; None for other nodes."""
    if not isinstance(node.op, AdvancedSubtensor):
        return None
    index = list(indices_from_subtensor(inputs[1:], node.op.idx_list))
    return index if len(index) == inputs[0].type.ndim and all(map(is_integers, index)) else None


def selects(x: Variable, index: list[Variable], graph: LogpGraph) -> bool:
    """Whether x depends on the block, and the index does not."""
    return graph.depends(x) and not any(graph.depends(i) for i in index)


def by_comparisons(x: Variable, index: list[Variable], graph: LogpGraph) -> Variable | None:
    """x[index], written as comparisons of the index along one axis with each position of this axis.

    None where the axis is not short, or where the comparisons would need more elements than the selection.
    """
    sizes = [graph.size(i) for i in index]
    axis = int(np.argmax(sizes))
    (length, position), others = (graph.shape(x)[axis], index[axis]), [*index[:axis], *index[axis + 1 :]]
    several = np.prod(np.broadcast_shapes(*(graph.shape(i) for i in others)), dtype=int)
    if not 1 <= length <= SHORT or (others and several * length > sizes[axis]):
        return None

    def at(k: int) -> Variable:
        entry = x[(slice(None),) * axis + (k,)]
        return entry[tuple(others)] if others else entry

    position = pt.switch(position < 0, position + length, position)
    shape = np.broadcast_shapes(*(graph.shape(i) for i in index))
    out = pt.zeros(shape, dtype=x.type.dtype) + at(length - 1)
    for k in range(length - 1):
        out = pt.switch(pt.eq(position, k), at(k), out)
    return out
