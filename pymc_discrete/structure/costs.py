"""Estimated cost of evaluating a graph, in units of one addition."""

from math import prod
from typing import Any

import jax
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.link.jax.ops import JAXOp
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot

from pymc_discrete.structure.logp_graph import LogpGraph

COSTLY = {"exp": 10, "log": 10, "gammaln": 40, "softplus": 20, "sigmoid": 15, "pow": 10, "tanh": 15}
# the costs of JAX's primitives by name: JAX calls gammaln lgamma, and sigmoid logistic
COSTLY_IN_JAX = COSTLY | {"lgamma": COSTLY["gammaln"], "logistic": COSTLY["sigmoid"]}


def of_scalar_op(node: Apply) -> float:
    """The cost of one element of an elementwise function, in additions; 0 for other Ops."""
    return COSTLY.get(str(node.op.scalar_op), 1) if isinstance(node.op, Elemwise) else 0.0


def of_graph(outputs: list[Variable], graph: LogpGraph, stop: set[Variable]) -> float:
    """The cost, in additions, of computing `outputs` once from the variables `stop`.

    Nodes that do not depend on the block are not counted: a draw computes them once, and `outputs` often.
    """
    total = 0.0
    for node in toposort(outputs, blockers=list(stop)):
        if not any(graph.depends(i) for i in node.inputs):
            continue
        sizes = [graph.size(v) for v in [*node.inputs, *node.outputs] if hasattr(v.type, "ndim")]
        n_out = max((graph.size(v) for v in node.outputs), default=1)
        if isinstance(node.op, Elemwise):
            total += n_out * of_scalar_op(node)
        elif isinstance(node.op, CAReduce):
            total += sizes[0]
        elif isinstance(node.op, Dot):
            total += 2.0 * n_out * graph.shape(node.inputs[0])[-1]
        elif isinstance(node.op, JAXOp):
            inputs = [jax.ShapeDtypeStruct(graph.shape(v), v.type.dtype) for v in node.inputs]
            total += of_jaxpr(jax.make_jaxpr(node.op.jax_func)(*inputs))
        elif node.outputs[0].type.ndim == 0 or getattr(node.op, "view_map", None):
            total += max(sizes[0], n_out)
        else:
            rearranges = str(node.op).startswith(("Dim", "Expand", "Squeeze", "Reshape"))
            total += n_out if rearranges else max(sizes) ** 1.5
    return total


def of_jaxpr(jaxpr: Any) -> float:
    """The cost, in additions, of a function that JAX has traced (a jaxpr).

    The body of a `while` loop counts once, since the number of its iterations is not known, and all branches
    of a condition count.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        sizes = [prod(v.aval.shape) for v in [*equation.invars, *equation.outvars]]
        n_out = sum(prod(v.aval.shape) for v in equation.outvars)
        name = equation.primitive.name
        if name == "dot_general":
            (summed, _), _ = equation.params["dimension_numbers"]
            total += 2.0 * n_out * prod(equation.invars[0].aval.shape[axis] for axis in summed)
        elif name == "conv_general_dilated":
            kernel, layout = equation.invars[1].aval.shape, equation.params["dimension_numbers"].rhs_spec
            total += 2.0 * n_out * prod(kernel) / kernel[layout[0]]
        elif name in COSTLY_IN_JAX:
            total += n_out * COSTLY_IN_JAX[name]
        else:
            total += max(sizes, default=0)
        inner = [j for p in equation.params.values() for j in (p if isinstance(p, tuple | list) else [p])]
        total += equation.params.get("length", 1) * sum(of_jaxpr(j) for j in inner if hasattr(j, "eqns"))
    return total
