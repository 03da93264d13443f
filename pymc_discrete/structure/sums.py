"""Splits the sum over the elements of a tensor into sums over the elements of other tensors."""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape

from pymc_discrete.structure.logp_graph import LogpGraph, adds_up


def is_sum(var: Variable) -> bool:
    """Whether a tensor is a sum over some axes of another."""
    op = None if var.owner is None else var.owner.op
    return isinstance(op, CAReduce) and isinstance(op.scalar_op, Add) and adds_up(var)


def summands(var: Variable, graph: LogpGraph) -> list[tuple[Variable, Any]] | None:
    """Tensors whose weighted sums add up to the sum over the elements of a tensor, found by its last Op.

    Returns
    -------
    [(tensor, factor)] such that the sum over the elements of `var` is the sum of each factor times the sum
    over the elements of its tensor. A factor is a number, a scalar variable, or None for 1. None is returned
    where the Op cannot be split.
    """
    node = var.owner
    if node is None:
        return None
    op = node.op.scalar_op if isinstance(node.op, Elemwise) and adds_up(var) else None
    moving = [i for i in node.inputs if graph.depends(i)]
    alone = len(moving) == 1 and graph.size(moving[0]) == graph.size(var)
    scalars = all(graph.size(i) == 1 for i in node.inputs if i is not moving[0]) if moving else False
    if is_sum(var):
        return [(node.inputs[0], None)]
    if isinstance(op, Add | Sub):
        parts: list[tuple[Variable, Any]] = []
        for j, i in enumerate(node.inputs):
            sign = -1.0 if isinstance(op, Sub) and j else 1.0
            factor = sign * float(graph.size(var) / max(graph.size(i), 1))
            parts.append((i, None if factor == 1 else factor))
        return parts
    if isinstance(op, Neg):
        return [(node.inputs[0], -1.0)]
    to_float = isinstance(op, Cast) and var.type.dtype.startswith("float") and adds_up(node.inputs[0])
    if isinstance(op, Identity) or to_float:
        return [(node.inputs[0], None)]
    if isinstance(op, Mul) and alone and scalars:
        others = [i.reshape(()) for i in node.inputs if i is not moving[0]]
        return [(moving[0], pt.mul(*others, 1.0))]
    if isinstance(op, TrueDiv) and alone and scalars and moving[0] is node.inputs[0]:
        return [(moving[0], 1.0 / node.inputs[1].reshape(()))]
    if isinstance(node.op, DimShuffle | Reshape) and not (isinstance(node.op, DimShuffle) and not moving):
        return [(i, None) for i in moving]
    if isinstance(node.op, Join | MakeVector | ScalarFromTensor | TensorFromScalar):
        return [(i, None) for i in node.inputs]
    return None


def all_summands(var: Variable, graph: LogpGraph) -> list[Variable]:
    """Tensors whose elements add up to the sum over those of `var`, up to a constant.

    Sums are split repeatedly, as long as there is a sum over an axis further down; `[var]` where there is
    none. The constant does not depend on the block.
    """
    weighted = _split_sums(var, None, graph) or [(var, None)]
    return [part if weight is None else part * weight for part, weight in weighted if graph.depends(part)]


def _split_sums(
    var: Variable, weight: Variable | None, graph: LogpGraph
) -> list[tuple[Variable, Variable | None]] | None:
    """Tensors and their weights, or None where the graph of `var` contains no sum over an axis to split."""
    if not graph.depends(var) or not adds_up(var):
        return None
    parts = summands(var, graph)
    if parts is None:
        return None
    if graph.size(var) > 1 and any(isinstance(factor, Variable) for _, factor in parts):
        # `var` is a tensor times a factor that is not a constant. It is not split: its own elements, which
        # contain the factor, are used as summands.
        return None
    weighted = [
        (part, weight if factor is None else pt.as_tensor(factor) if weight is None else weight * factor)
        for part, factor in parts
    ]
    below = [(_split_sums(part, w, graph), (part, w)) for part, w in weighted]
    if not is_sum(var) and not any(smaller for smaller, _ in below):
        return None
    return [each for smaller, whole in below for each in (smaller or [whole])]
