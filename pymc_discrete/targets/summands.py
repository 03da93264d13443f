"""Log densities taken apart into what they sum over, so that changes can be added up where the sum itself
would drown them.

In float32 a log density of a million nats is known to a tenth of a nat. Its change is not: most summands
stay, and cancel exactly.
"""

from typing import Any

import jax.numpy as jnp
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape

from pymc_discrete.targets.graph import LogpGraph, adds_up


def summands(var: Variable, graph: LogpGraph) -> list[Variable]:
    """Tensors whose elements add to those of `var`, up to what does not depend on the block; `var` itself
    where it is no sum.
    """
    parts = _taken_apart(var, None, graph) or [(var, None)]
    return [part if weight is None else part * weight for part, weight in parts if part in graph.dependent]


def _taken_apart(
    var: Variable, weight: Variable | None, graph: LogpGraph
) -> list[tuple[Variable, Variable | None]] | None:
    """The summands and their weights, or None where no sum is found below."""
    node = var.owner
    if node is None or var not in graph.dependent or not adds_up(var):
        return None
    inputs, op = node.inputs, node.op.scalar_op if isinstance(node.op, Elemwise) else None
    moving = [i for i in inputs if i in graph.dependent]

    def times(factor: Any) -> Variable:
        return pt.as_tensor(factor) if weight is None else weight * factor

    if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Add) and adds_up(inputs[0]):
        return _taken_apart(inputs[0], weight, graph) or [(inputs[0], weight)]
    branches: list[tuple[Variable, Variable | None]] = []
    if isinstance(op, Add | Sub):
        for j, i in enumerate(inputs):
            factor = float(graph.size(var) / max(graph.size(i), 1)) * (
                -1.0 if isinstance(op, Sub) and j else 1.0
            )
            branches.append((i, weight if factor == 1 else times(factor)))
    elif isinstance(op, Neg):
        branches = [(inputs[0], times(-1.0))]
    elif isinstance(op, Identity) or (isinstance(op, Cast) and var.type.dtype.startswith("float")):
        branches = [(inputs[0], weight)]
    elif isinstance(op, Mul) and len(moving) == 1 and all(graph.size(i) == 1 for i in inputs):
        branches = [(moving[0], times(pt.mul(*(i.reshape(()) for i in inputs if i is not moving[0]), 1.0)))]
    elif isinstance(op, TrueDiv) and moving == [inputs[0]] and all(graph.size(i) == 1 for i in inputs):
        branches = [(inputs[0], times(1.0 / inputs[1].reshape(())))]
    elif isinstance(node.op, DimShuffle | Reshape | ScalarFromTensor | TensorFromScalar):
        branches = [(inputs[0], weight)]
    elif isinstance(node.op, Join | MakeVector):
        branches = [(i, weight) for i in (inputs[1:] if isinstance(node.op, Join) else inputs)]
    found = [(_taken_apart(i, w, graph), (i, w)) for i, w in branches]
    if not any(parts for parts, _ in found):
        return None
    return [each for parts, whole in found for each in (parts or [whole])]


def narrow() -> bool:
    """Whether floats have 32 bits here."""
    return jnp.result_type(float) == jnp.float32


def reference(parts: Any) -> list[Any]:
    """What `change` subtracts: the summands, 0 where they are not finite."""
    parts = [jnp.asarray(p, float) for p in parts]
    return [jnp.where(jnp.isfinite(p), p, 0.0) for p in parts]


def change(parts: Any, since: list[Any]) -> Any:
    """() nats, the sum of the summands less that of the reference, each subtracted from its own."""
    return sum(((jnp.asarray(p, float) - s).sum() for p, s in zip(parts, since, strict=True)), jnp.zeros(()))
