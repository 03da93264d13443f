"""Where an index runs out of bounds the density is zero: JAX would clamp it in silence."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Cast, Clip, Identity, Sub
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor, indices_from_subtensor


def integer_bounds(var: Variable, supports: dict[Variable, tuple[Any, Any]]) -> tuple[float, float]:
    """Bounds of an integer expression, as far as they are plain to see."""
    if var in supports:
        low, high = supports[var]
        return (-np.inf if low is None else np.min(low)), (np.inf if high is None else np.max(high))
    if isinstance(var, Constant):
        return (float(np.min(var.data)), float(np.max(var.data))) if np.size(var.data) else (np.inf, -np.inf)
    node = var.owner
    op = node.op.scalar_op if node is not None and isinstance(node.op, Elemwise) else None
    if isinstance(op, Clip):
        parts = [integer_bounds(i, supports) for i in node.inputs]
        return max(parts[0][0], parts[1][0]), min(parts[0][1], parts[2][1])
    if isinstance(op, Add | Sub):
        parts = [integer_bounds(i, supports) for i in node.inputs]
        low, high = parts[0]
        for a, b in parts[1:]:
            low, high = (low + a, high + b) if isinstance(op, Add) else (low - b, high - a)
        return low, high
    if node is not None and (isinstance(op, Cast | Identity) or isinstance(node.op, DimShuffle | Reshape | Subtensor | AdvancedSubtensor)):
        return integer_bounds(node.inputs[0], supports)
    if node is not None and isinstance(node.op, ScalarFromTensor | TensorFromScalar):
        return integer_bounds(node.inputs[0], supports)
    if node is not None and isinstance(node.op, MakeVector | Join):
        lows, highs = zip(*(integer_bounds(i, supports) for i in node.inputs), strict=True)
        return min(lows), max(highs)
    return -np.inf, np.inf


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
                low, high = integer_bounds(index, supports)
                if low < -size or high >= size:
                    i = pt.as_tensor(index) if hasattr(index.type, "ndim") else pt.tensor_from_scalar(index)
                    found.append((name, pt.switch((i >= -size) & (i < size), 0.0, -np.inf)))
    return found
