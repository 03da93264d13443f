"""Rewrites selections from a short vector by integers, `mu[z]`, such that their gradient is fast."""

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_discrete.targets.graph.logp_graph import LogpGraph
from pymc_discrete.targets.graph.rebuild import rebuild

SHORT = 16  # the most entries of a vector for which one comparison per entry is faster than a gather


def selected(outputs: list[Variable], graph: LogpGraph) -> list[Variable]:
    """The graph with selections from short vectors that depend on the block as chains of comparisons.

    The gradient of a gather is a scatter, which XLA runs one element after another.
    """

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if not isinstance(node.op, AdvancedSubtensor) or len(inputs) != 2:
            return None
        vector, index = inputs
        only_vector_depends = graph.depends(node.inputs[0]) and not graph.depends(node.inputs[1])
        if (
            not only_vector_depends
            or vector.type.ndim != 1
            or not index.type.dtype.startswith(("int", "uint"))
        ):
            return None
        (length,) = graph.shape(node.inputs[0])
        if not 1 <= length <= SHORT:
            return None
        position = pt.switch(index < 0, index + length, index)
        out = pt.zeros_like(position, dtype=vector.type.dtype) + vector[length - 1]
        for k in range(length - 1):
            out = pt.switch(pt.eq(position, k), vector[k], out)
        return [out]

    return rebuild(outputs, {}, rewrite)
