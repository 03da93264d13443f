"""Selections from a short vector by integers, `mu[z]`, written so that their gradient is quick."""

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_discrete.targets.graph.logp_graph import LogpGraph
from pymc_discrete.targets.graph.rebuild import rebuild

SHORT = 16  # entries; from more a gather is quicker than one comparison for each


def selected(outputs: list[Variable], graph: LogpGraph) -> list[Variable]:
    """The graph with selections from short vectors that move as a chain of comparisons: the gradient of a
    gather is a scatter, which XLA runs one element after another.
    """

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if not isinstance(node.op, AdvancedSubtensor) or len(inputs) != 2:
            return None
        vector, index = inputs
        moves = graph.depends(node.inputs[0]) and not graph.depends(node.inputs[1])
        if not moves or vector.type.ndim != 1 or not index.type.dtype.startswith(("int", "uint")):
            return None
        (length,) = graph.shape(node.inputs[0])
        if not 1 <= length <= SHORT:
            return None
        place = pt.switch(index < 0, index + length, index)
        out = pt.zeros_like(place, dtype=vector.type.dtype) + vector[length - 1]
        for k in range(length - 1):
            out = pt.switch(pt.eq(place, k), vector[k], out)
        return [out]

    return rebuild(outputs, {}, rewrite)
