r"""Exact differences of a quadratic function of a linear map, a Gaussian likelihood above all, for two
products with the matrix.

Where the rest of a term is :math:`r(u) = \sum_n (a_n + b_n u_n + h_n u_n^2 / 2)` and a move changes u by
:math:`\delta_{ik}` times column
:math:`c_i`, the difference is exactly

.. math:: d_{ik} = \delta_{ik} \, c_i^T \nabla r(u) + \delta_{ik}^2 \, (c_i^2)^T h / 2
"""

import math
from typing import Any

import jax.numpy as jnp
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Pow, Sqr, Sub, TrueDiv
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from pymc_discrete.targets.graph import adds_up, context_inputs, dependent_variables, rebuild, rewritten
from pymc_discrete.targets.jaxify import jaxify
from pymc_discrete.targets.rules import is_switch


def is_separable_quadratic(total: Variable, u: Variable, size) -> bool:
    """Whether `total` is a sum over the elements of u of polynomials of degree at most 2."""
    degree: dict[Variable, float] = {u: 1}
    summed: set[Variable] = set()
    dependent = dependent_variables([total], [u])
    n = size(u)
    for node in toposort([total], blockers=[u]):
        moving = [i for i in node.inputs if i in dependent]
        if not moving:
            continue
        out = node.outputs[0]
        if not adds_up(out):
            return False
        degrees = [degree[i] for i in moving]
        op = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        after_sum = [i in summed for i in moving]
        if isinstance(node.op, DimShuffle):
            found = degrees[0]
        elif isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Add):
            if size(out) != 1:
                return False
            found = degrees[0]
            summed.add(out)
        elif any(size(i) != size(out) for i in moving):
            return False
        elif (
            isinstance(op, Add | Sub | Neg | Identity)
            or (isinstance(op, Cast) and out.type.dtype.startswith("float"))
            or (is_switch(node) and node.inputs[0] not in dependent)
        ):
            found = max(degrees)
        elif isinstance(op, Mul):
            found = sum(degrees) if not any(after_sum) or len(moving) == 1 else math.inf
        elif isinstance(op, TrueDiv) and node.inputs[1] not in dependent:
            found = degrees[0]
        elif isinstance(op, Sqr) or (
            isinstance(op, Pow) and isinstance(node.inputs[1], Constant) and (node.inputs[1].data == 2).all()
        ):
            found = 2 * degrees[0] if not any(after_sum) else math.inf
        else:
            return False
        if any(after_sum):
            summed.add(out)
        elif out not in summed and size(out) != n:
            return False
        if found > 2:
            return False
        degree[out] = found
    return degree.get(total, math.inf) <= 2 and (total in summed or n == 1)


class Quadratic:
    """Slope and curvature of a separable quadratic rest.

    Parameters
    ----------
    total : scalar, the rest of the graph
    u : vector, the linear map it depends on
    """

    def __init__(self, total: Variable, u: Variable):
        # a float in place of an integer map, whose gradient would be 0
        self.u = pt.tensor(shape=u.type.shape, dtype=pytensor.config.floatX)
        (total,) = rebuild([total], {u: self.u})
        slope = pytensor.grad(total, self.u)
        self.slope, self.curvature = rewritten(
            [slope, pytensor.grad(slope.sum(), self.u, disconnected_inputs="ignore")]
        )

    def prepare(self) -> list[Variable]:
        """Build the JAX functions; returns the context that they read."""
        self._inputs = context_inputs([self.slope, self.curvature], [self.u])
        self._slope = jaxify([self.u, *self._inputs], [self.slope])
        self._curvature = jaxify([self.u, *self._inputs], [self.curvature])
        return self._inputs

    def context(self, inputs: list[Any], columns: Any, shape: tuple[int, ...]):
        """(p,) half the curvature along each column: the same at every x."""
        h = jnp.asarray(self._curvature(jnp.zeros(shape), *inputs)[0])
        return 0.5 * columns**2 @ jnp.broadcast_to(h, shape).reshape(-1)

    def moves(self, delta, current, inputs: list[Any], columns: Any, half_curvature):
        """(p, k) differences for changes `delta` (p, k) of the elements that the map acts on."""
        slope = jnp.asarray(self._slope(current.astype(self.u.type.dtype), *inputs)[0]).reshape(-1)
        return delta * (columns @ slope)[:, None] + delta**2 * half_curvature[:, None]
