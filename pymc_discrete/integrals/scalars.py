"""Moves scalars out of matrix products: `dot(X.T, X / s**2)` becomes `dot(X.T, X) / s**2`.

The product is then a function of the data X alone, which is computed once, and not for each value of s.
"""

from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Mul, Neg, TrueDiv
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from pymc_discrete.structure.rebuild import remade
from pymc_discrete.structure.scalar_ops import is_switch


class Scaled:
    """A tensor written as a scalar times a tensor.

    Attributes
    ----------
    scalar : None for 1
    tensor : Variable
    """

    def __init__(self, scalar: Variable | None, tensor: Variable):
        self.scalar, self.tensor = scalar, tensor

    @property
    def value(self) -> Variable:
        return self.tensor if self.scalar is None else self.tensor * self.scalar


def scalars_first(outputs: Sequence[Variable]) -> list[Variable]:
    """Graphs with the values of `outputs`, in which scalar factors are taken out of matrix products."""
    known: dict[Variable, Scaled] = {}

    def of(v: Variable) -> Scaled:
        return known.get(v) or Scaled(None, v)

    for node in toposort(list(outputs)):
        scaled = [of(i) for i in node.inputs]
        new = taken_out(node, scaled)
        if new is not None:
            known[node.outputs[0]] = new
            continue
        inputs = [s.value for s in scaled]
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            remade_outputs = remade(node, inputs)
            known.update({o: Scaled(None, r) for o, r in zip(node.outputs, remade_outputs, strict=True)})
    return [of(o).value for o in outputs]


def taken_out(node: Apply, inputs: list[Scaled]) -> Scaled | None:
    """The output of a node as a scalar times a tensor; None if there is no scalar to take out."""
    tensors = [s.tensor for s in inputs]
    scalars = [s.scalar for s in inputs if s.scalar is not None]
    if isinstance(node.op, DimShuffle) and scalars:
        return Scaled(scalars[0], node.op(*tensors))
    adds = isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Add)
    if (adds or isinstance(node.op, Dot)) and scalars:
        return Scaled(product_of_tensors(scalars), node.op(*tensors))
    if not isinstance(node.op, Elemwise) or node.outputs[0].type.ndim == 0:
        return None
    if isinstance(node.op.scalar_op, Neg):
        return Scaled(product_of_tensors([*scalars, number(-1.0)]), tensors[0])
    if isinstance(node.op.scalar_op, Mul):
        return of_product(inputs)
    if isinstance(node.op.scalar_op, TrueDiv) and is_single(inputs[1].value) and not is_single(tensors[0]):
        one = pt.constant(np.ones((), inputs[1].value.type.dtype))
        above = one if inputs[0].scalar is None else inputs[0].scalar
        return Scaled(above / as_scalar(inputs[1].value), tensors[0])
    return of_switch(node, inputs) if is_switch(node) else None


def of_product(inputs: list[Scaled]) -> Scaled | None:
    """An elementwise product, with its factors of one element taken out as a scalar.

    The result is None if no factor has one element, or all have.
    """
    values = [s.value for s in inputs]
    single = [v for v in values if is_single(v)]
    rest = [s for s, v in zip(inputs, values, strict=True) if not is_single(v)]
    factors = [*map(as_scalar, single), *(s.scalar for s in rest if s.scalar is not None)]
    return (
        Scaled(product_of_tensors(factors), product_of_tensors([s.tensor for s in rest]))
        if rest and factors
        else None
    )


def of_switch(node: Apply, inputs: list[Scaled]) -> Scaled | None:
    """`switch(condition, tensor, 0)`, for a condition of one element, as switch(condition, 1, 0) times the
    tensor; None for any other switch.
    """
    condition, tensor, other = (s.tensor for s in inputs)
    zero = isinstance(other, Constant) and not np.any(other.data)
    whole = not is_single(tensor) and tensor.type.shape == node.outputs[0].type.shape
    if not (is_single(condition) and zero and whole):
        return None
    factor = pt.constant(np.array(1.0)) if inputs[1].scalar is None else inputs[1].scalar
    return Scaled(pt.switch(as_scalar(inputs[0].value), factor, pt.constant(np.array(0.0))), tensor)


def is_single(v: Variable) -> bool:
    """Whether a tensor has one element, whatever its axes."""
    return all(size == 1 for size in v.type.shape)


def as_scalar(v: Variable) -> Variable:
    """The element of a tensor that has only one element, as a scalar without axes."""
    return v.dimshuffle(()) if v.type.ndim else v


def number(value: float) -> Variable:
    """A constant of PyTensor: a scalar with 64 bits."""
    return pt.constant(np.array(value))


def product_of_tensors(factors: Sequence[Variable]) -> Variable:
    """The product of one or more tensors."""
    return pt.mul(*factors) if len(factors) > 1 else factors[0]
