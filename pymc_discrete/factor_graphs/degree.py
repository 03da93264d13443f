"""How many sites a term multiplies at most, read off its graph: 2 in a sum of tables over pairs.

What a rule does not know counts as joining all its sites. Nothing is tried out: a term may be a sum over
pairs nearly everywhere.
"""

import math
from functools import singledispatch

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Pow, Second, Sqr, Sub, TrueDiv
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pymc_discrete.targets.dependence import Dependence
from pymc_discrete.targets.graph import adds_up
from pymc_discrete.targets.rules import is_switch


class Degree:
    """The degrees of the variables of a block's graph.

    Attributes
    ----------
    joined_by : {variable: name of the Op that joins any number of its sites}, for those of infinite degree
    """

    def __init__(self, dependence: Dependence):
        self.dependence, self.graph = dependence, dependence.graph
        self._found: dict[Variable, float] = {}
        self.joined_by: dict[Variable, str] = {}

    def of(self, var: Variable) -> float:
        """The most sites that an element multiplies, 0 of what does not depend on the block; inf where that
        cannot be told.
        """
        if var not in self.graph.dependent:
            return 0
        if var not in self._found:
            for node in toposort([var], blockers=list(self._found)):
                if node.outputs[0] in self.graph.dependent:
                    for out in node.outputs:
                        self._found[out] = self._of(node, out)
            self._found.setdefault(var, 1)  # a value variable
        return self._found[var]

    def _of(self, node: Apply, out: Variable) -> float:
        sites = self.dependence.sites(out)
        most = math.inf if sites is None else sites.shape[1]  # whatever the function
        if most < 2:
            return most
        degrees = [self.of(i) for i in node.inputs]
        told = degree_after(node.op, node, degrees) if adds_up(out) else math.inf
        if told == math.inf:
            blamed = next((self.joined_by[i] for i in node.inputs if i in self.joined_by), None)
            self.joined_by[out] = blamed or str(node.op)
        return min(told, most)


@singledispatch
def degree_after(op: Op, node: Apply, degrees: list[float]) -> float:
    """The degree of a node's output, given those of its inputs."""
    return math.inf


@degree_after.register
def _(op: Elemwise, node: Apply, degrees: list[float]) -> float:
    scalar = op.scalar_op
    if isinstance(scalar, Add | Sub | Neg | Identity | Second):
        return max(degrees)
    if isinstance(scalar, Cast):  # to an integer it cuts off
        source, target = (v.type.dtype for v in (node.inputs[0], node.outputs[0]))
        return degrees[0] if target.startswith("float") or not source.startswith("float") else math.inf
    if isinstance(scalar, Mul):
        return sum(degrees)
    if isinstance(scalar, Sqr):
        return 2 * degrees[0]
    if isinstance(scalar, TrueDiv) and degrees[1] == 0:
        return degrees[0]
    if isinstance(scalar, Pow) and isinstance(node.inputs[1], Constant):
        powers = set(node.inputs[1].data.ravel().tolist())
        return max(powers) * degrees[0] if powers <= {1, 2} else math.inf
    if is_switch(node) and degrees[0] == 0:
        return max(degrees[1:])
    return math.inf


@degree_after.register(Dot)
def _(op: Dot, node: Apply, degrees: list[float]) -> float:
    return sum(degrees)


@degree_after.register
def _(op: Blockwise, node: Apply, degrees: list[float]) -> float:
    return degree_after(op.core_op, node, degrees)


@degree_after.register
def _(op: SolveTriangular, node: Apply, degrees: list[float]) -> float:
    return degrees[1] if degrees[0] == 0 else math.inf


@degree_after.register
def _(op: CAReduce, node: Apply, degrees: list[float]) -> float:
    return degrees[0] if isinstance(op.scalar_op, Add) else math.inf


@degree_after.register
def _(op: CumOp, node: Apply, degrees: list[float]) -> float:
    return degrees[0] if op.mode == "add" else math.inf


def moved(op: Op, node: Apply, degrees: list[float]) -> float:
    """Elements that only change their places; a place that depends on a site is no constant."""
    arrays = {AdvancedIncSubtensor: 2, IncSubtensor: 2, Join: len(degrees), MakeVector: len(degrees)}
    first = 1 if isinstance(op, Join) else 0
    last = arrays.get(type(op), 1)
    return max(degrees[first:last]) if not any(degrees[last:] + degrees[:first]) else math.inf


for kind in (
    DimShuffle, Reshape, SpecifyShape, JoinDims, SplitDims, Alloc, ExtractDiag, Split, ScalarFromTensor,
    TensorFromScalar, MakeVector, Join,
    Subtensor, AdvancedSubtensor, IncSubtensor, AdvancedIncSubtensor,
):  # fmt: skip
    degree_after.register(kind)(moved)
