"""The degree of a tensor as a polynomial, derived from its graph.

Two notions of degree share the rules in this file. `Degree` is the degree in the sites of a block: a product
of n sites has degree n, and any function of n sites has at most degree n, so that a sum of tables over pairs
of sites has degree 2. `is_separable_quadratic` is about the degree in the elements of a tensor, where a
square has degree 2 too. The degree of an Op without a rule counts as infinite. The degree is not found by
evaluating a term at some points, because a term that is no polynomial may agree with one at all of them.
"""

import math
from collections.abc import Callable
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

from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.logp_graph import adds_up
from pymc_discrete.structure.reads import is_switch


class Degree(Analysis[float]):
    """The largest number of sites of a block that are multiplied in an element; inf where it is not known."""

    def __init__(self, dependence: Dependence):
        super().__init__(dict.fromkeys(dependence.graph.values, 1))
        self.dependence, self.graph = dependence, dependence.graph

    def is_leaf(self, var: Variable) -> bool:
        return not self.graph.depends(var)

    def at_leaf(self, var: Variable) -> float:
        return 0

    def after(self, node: Apply, values: list[float]) -> list[float]:
        return [self._after(node, out, values) for out in node.outputs]

    def _after(self, node: Apply, out: Variable, values: list[float]) -> float:
        sites = self.dependence.of(out)
        # any function of n finite sites is a polynomial of degree n in indicators of their values
        most = math.inf if sites is None else sites.shape[1]
        if most < 2:
            return most
        degree = degree_after(node.op, node, values) if adds_up(out) else math.inf
        if degree == math.inf and math.inf not in values:
            self.blame(node)
        return min(degree, most)


def is_separable_quadratic(total: Variable, u: Variable, size: Callable[[Variable], int]) -> bool:
    """Whether a scalar is a sum of polynomials of degree at most 2, each of a single element of u.

    Parameters
    ----------
    total : the scalar
    u : a tensor that it is computed from
    size : (variable) -> its number of elements
    """
    degrees: dict[Variable, float] = {u: 1}
    summed: set[Variable] = set()  # variables that contain sums over elements of u
    for node in toposort([total], blockers=[u]):
        moving = [i for i in node.inputs if i in degrees]
        if not moving:
            continue
        out = node.outputs[0]
        adds = isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Add)
        after_sum = [i in summed for i in moving]
        if not adds_up(out) or not isinstance(node.op, DimShuffle | CAReduce | Elemwise):
            return False
        if adds and size(out) != 1:
            return False
        if isinstance(node.op, Elemwise) and any(size(i) != size(out) for i in moving):
            return False
        degree = degree_after(node.op, node, [degrees.get(i, 0) for i in node.inputs])
        if degree > 2 or (any(after_sum) and degree > max(degrees[i] for i in moving)):
            return False  # a product with a sum contains products of different elements of u
        if adds or any(after_sum):
            summed.add(out)
        elif size(out) != size(u):
            return False
        degrees[out] = degree
    return degrees.get(total, math.inf) <= 2 and (total in summed or size(u) == 1)


@singledispatch
def degree_after(op: Op, node: Apply, degrees: list[float]) -> float:
    """The degree of a node's output, given those of its inputs."""
    return math.inf


@degree_after.register
def _(op: Elemwise, node: Apply, degrees: list[float]) -> float:
    scalar = op.scalar_op
    if isinstance(scalar, Add | Sub | Neg | Identity | Second):
        return max(degrees)
    if isinstance(scalar, Cast):  # a cast of a float to an integer truncates
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


def rearranged_degree(op: Op, node: Apply, degrees: list[float]) -> float:
    """The degree of an Op that only rearranges elements; infinite where an index depends on a site."""
    arrays = {AdvancedIncSubtensor: 2, IncSubtensor: 2, Join: len(degrees), MakeVector: len(degrees)}
    last = arrays.get(type(op), 1)
    return max(degrees[:last]) if not any(degrees[last:]) else math.inf


for _op in (
    DimShuffle, Reshape, SpecifyShape, JoinDims, SplitDims, Alloc, ExtractDiag, Split, ScalarFromTensor,
    TensorFromScalar, MakeVector, Join,
    Subtensor, AdvancedSubtensor, IncSubtensor, AdvancedIncSubtensor,
):  # fmt: skip
    degree_after.register(_op)(rearranged_degree)
