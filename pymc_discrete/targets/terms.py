"""The log density as a sum of terms, as sparse as they can be: a sum of everything depends on every site, its
parts do not.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape

from pymc_discrete.targets.dense import DenseTerm
from pymc_discrete.targets.dependence import Dependence
from pymc_discrete.targets.graph import LogpGraph, adds_up
from pymc_discrete.targets.tables import SparseTerm


def split(name: str, var: Variable, dependence: Dependence) -> tuple[list[SparseTerm], list[DenseTerm]]:
    """The terms whose sums add up to the sum of `var`."""
    sparse: list[SparseTerm] = []
    dense: list[DenseTerm] = []

    def take(var: Variable, weight: Variable | None) -> None:
        if var not in dependence.graph.dependent or dependence.graph.size(var) == 0:
            return
        sites, summands = dependence.sites(var), parts(var, dependence.graph)
        whole = sites is not None and (
            sites.shape[1] <= 1 or (sites.shape[1] == 2 and not separates(var, dependence))
        )
        if summands is not None and not whole:
            for part, factor in summands:
                one = factor is None
                take(part, weight if one else pt.as_tensor(factor) if weight is None else weight * factor)
        elif sites is not None:
            sparse.append(SparseTerm(name, var, weight))
        else:
            dense.append(DenseTerm(name, var, weight))

    take(var, None)
    return sparse, dense


def separates(var: Variable, dependence: Dependence) -> bool:
    """Whether taking sums apart leaves elements of one site each."""
    if var not in dependence.graph.dependent:
        return True
    sites = dependence.sites(var)
    if sites is not None and sites.shape[1] <= 1:
        return True
    summands = parts(var, dependence.graph)
    return summands is not None and all(separates(part, dependence) for part, _ in summands)


def parts(var: Variable, graph: LogpGraph) -> list[tuple[Variable, Any]] | None:
    """[(part, factor or None for 1)] such that the sum of `var` is the sum of factor times those of its
    parts; None where it has none.
    """
    node = var.owner
    if node is None:
        return None
    op = node.op.scalar_op if isinstance(node.op, Elemwise) and adds_up(var) else None
    moving = [i for i in node.inputs if i in graph.dependent]
    alone = len(moving) == 1 and graph.size(moving[0]) == graph.size(var)
    scalars = all(graph.size(i) == 1 for i in node.inputs if i is not moving[0]) if moving else False
    if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Add) and adds_up(var):
        return [(node.inputs[0], None)]
    if isinstance(op, Add | Sub):
        found: list[tuple[Variable, Any]] = []
        for j, i in enumerate(node.inputs):
            factor = float(graph.size(var) / max(graph.size(i), 1)) * (
                -1.0 if isinstance(op, Sub) and j else 1.0
            )
            found.append((i, None if factor == 1 else factor))
        return found
    if isinstance(op, Neg):
        return [(node.inputs[0], -1.0)]
    if isinstance(op, Identity) or (
        isinstance(op, Cast) and var.type.dtype.startswith("float") and adds_up(node.inputs[0])
    ):
        return [(node.inputs[0], None)]
    if isinstance(op, Mul) and alone and scalars:
        return [(moving[0], pt.mul(*(i.reshape(()) for i in node.inputs if i is not moving[0]), 1.0))]
    if isinstance(op, TrueDiv) and alone and scalars and moving[0] is node.inputs[0]:
        return [(moving[0], 1.0 / node.inputs[1].reshape(()))]
    if isinstance(node.op, DimShuffle | Reshape | Join | MakeVector) and all(
        i in graph.dependent or not isinstance(node.op, DimShuffle) for i in node.inputs
    ):
        return [(i, None) for i in moving]
    return None
