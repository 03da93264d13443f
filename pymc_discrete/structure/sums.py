"""Splits the sum over the elements of a tensor into sums over the elements of other tensors.

The rules of Ops are in `ops/`.
"""

from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import Add, Mul, Sub
from pytensor.tensor.elemwise import CAReduce

from pymc_discrete.structure.logp_graph import LogpGraph, adds_up
from pymc_discrete.structure.scalar_ops import computed_by, scalar_op_of

# [(tensor, factor)]: the sum over the elements of some tensor is the sum of factor times the sum over the
# elements of each listed tensor. A factor is a number, a scalar variable, or None for 1.
Summands = list[tuple[Variable, Any]]


def is_sum(var: Variable) -> bool:
    """Whether a tensor is a sum over some axes of another tensor."""
    op = None if var.owner is None else var.owner.op
    return isinstance(op, CAReduce) and isinstance(op.scalar_op, Add) and adds_up(var)


def summands(var: Variable, graph: LogpGraph) -> Summands | None:
    """[(tensor, factor)] whose weighted sums add up to the sum over the elements of `var`.

    The split follows from the Op that computes `var`. None where the sum cannot be split.
    """
    return None if var.owner is None else summands_of(var.owner.op, var.owner, graph)


@singledispatch
def summands_of(op: Op, node: Apply, graph: LogpGraph) -> Summands | None:
    """[(tensor, factor)] whose weighted sums add up to the sum over the elements of a node's only output.

    None for an Op whose sum cannot be split.
    """
    return None


def distributed(var: Variable, graph: LogpGraph) -> Summands | None:
    """A product with a sum, written as the products with each summand; None for other tensors."""
    if not computed_by(var, Mul) or not adds_up(var):
        return None
    for n, factor in enumerate(var.owner.inputs):
        op = scalar_op_of(factor, Add, Sub)
        addends = [] if op is None else factor.owner.inputs
        if sum(map(graph.depends, addends)) < 2:
            continue
        signs = [-1.0 if isinstance(op, Sub) and k else None for k in range(len(addends))]
        products = [pt.mul(*(a if k == n else i for k, i in enumerate(var.owner.inputs))) for a in addends]
        if all(graph.size(p) == graph.size(var) and adds_up(p) for p in products):
            return list(zip(products, signs, strict=True))
    return None


def all_summands(var: Variable, graph: LogpGraph) -> list[Variable]:
    """Tensors whose elements add up to the sum over the elements of `var`, up to a constant.

    Sums are split repeatedly, as long as a summand contains a sum over an axis; if `var` contains none, the
    result is `[var]`. The constant does not depend on the block.
    """
    weighted = _split_sums(var, None, graph) or [(var, None)]
    return [part if weight is None else part * weight for part, weight in weighted if graph.depends(part)]


def _split_sums(
    var: Variable, weight: Variable | None, graph: LogpGraph
) -> list[tuple[Variable, Variable | None]] | None:
    """[(tensor, weight)] whose weighted elements add up to the elements of `var`; None where `var`
    is no sum."""
    if not graph.depends(var) or not adds_up(var):
        return None
    parts = summands(var, graph)
    if parts is None:
        return None
    if graph.size(var) > 1 and any(isinstance(factor, Variable) for _, factor in parts):
        # `var` is a tensor times a factor that is not constant. It is not split: its own elements, which
        # contain the factor, are the summands.
        return None
    weighted = [
        (part, weight if factor is None else pt.as_tensor(factor) if weight is None else weight * factor)
        for part, factor in parts
    ]
    below = [(_split_sums(part, w, graph), (part, w)) for part, w in weighted]
    if not is_sum(var) and not any(smaller for smaller, _ in below):
        return None
    return [each for smaller, whole in below for each in (smaller or [whole])]
