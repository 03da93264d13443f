"""The degree of a tensor as a polynomial, derived from its graph.

Two notions of degree share the rules, which are in `ops/`. `Degree` is the degree in the sites of a block: a
product of n sites has degree n, and any function of n sites has at most degree n, so that a sum of tables
over pairs of sites has degree 2. `is_separable_quadratic` is about the degree in the elements of a tensor,
where a square has degree 2 too. The degree of an Op without a rule counts as infinite. The degree is not
found by evaluating a term at some points, because a term that is no polynomial may agree with one at all of
them.
"""

import math
from collections.abc import Callable
from functools import singledispatch

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.logp_graph import adds_up


class Degree(Analysis[float]):
    """The largest number of sites of a block that are multiplied in one element; inf where it is
    not known."""

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
        # Any function of n sites with finite supports is a polynomial of degree n in the indicators of their
        # values, so that the degree of an element is at most the number of its sites.
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
    summed: set[Variable] = set()  # the variables that contain sums over elements of the tensor u
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
            return False  # a product with a sum contains products of different elements of the tensor u
        if adds or any(after_sum):
            summed.add(out)
        elif size(out) != size(u):
            return False
        degrees[out] = degree
    return degrees.get(total, math.inf) <= 2 and (total in summed or size(u) == 1)


@singledispatch
def degree_after(op: Op, node: Apply, degrees: list[float]) -> float:
    """The degree of a node's output, given the degrees of its inputs."""
    return math.inf
