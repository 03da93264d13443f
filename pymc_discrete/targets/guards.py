"""Where an index runs out of bounds the density is zero: JAX would clamp it in silence."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor, indices_from_subtensor

from pymc_discrete.targets.bounds import extent, integer_bounds


def index_guards(
    terms: list[tuple[str, Variable]], dependent: set[Variable], supports: dict[Variable, tuple[Any, Any]]
) -> list[tuple[str, Variable]]:
    """Terms that are -inf where an index that depends on the block is out of bounds: PyTensor raises there, JAX clamps in silence."""
    found: list[tuple[str, Variable]] = []
    seen = set()
    for name, term in terms:
        for node in toposort([term]):
            reads, writes = isinstance(node.op, Subtensor | AdvancedSubtensor), isinstance(node.op, IncSubtensor | AdvancedIncSubtensor)
            if node in seen or not (reads or writes):
                continue
            seen.add(node)
            x, flat = node.inputs[0], node.inputs[1 if reads else 2 :]
            for dim, index in enumerate(indices_from_subtensor(flat, node.op.idx_list)):
                size = x.type.shape[dim]
                if not isinstance(index, Variable) or index not in dependent or index.type.dtype == "bool" or size is None:
                    continue
                low, high = integer_bounds(index, {v: extent(support) for v, support in supports.items()})
                if low < -size or high >= size:
                    i = pt.as_tensor(index) if hasattr(index.type, "ndim") else pt.tensor_from_scalar(index)
                    found.append((name, pt.switch((i >= -size) & (i < size), 0.0, -np.inf)))
    return found
