"""How far rounding may move a log density: a running error analysis of its graph (Higham 2002, section 3.3).

Terms of 1e8 nats that cancel leave a log density of 10 nats that is known to 1e-8 only. To first order, and
in units of the spacing of floats at 1, the error of a tensor v = f(a, b) is at most

    E(v) = |v| + |df/da| E(a) + |df/db| E(b)
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.utils import MethodNotDefined
from pytensor.scalar.basic import Add, Mul, Switch
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
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pymc_discrete.structure.analysis import Analysis

# For each operation, an error of this many roundings is allowed: XLA's functions have larger errors than one
# rounding, and it may add terms in another order.
ROUNDINGS = 64.0
NOT_WORTH_IT = 1e-8  # nats; smaller deviations of a log density are never reported


class Rounding(Analysis[Variable | None]):
    """The error bound E of the floats of a graph; None for other variables."""

    def __init__(self) -> None:
        super().__init__({})

    def at_leaf(self, var: Variable) -> Variable | None:
        return pt.zeros_like(var, dtype="float64") if is_float(var) else None  # inputs are exact

    def after(self, node: Apply, values: list[Variable | None]) -> list[Variable | None]:
        errors = [error_after(node.op, node, o, values) if is_float(o) else None for o in node.outputs]
        pairs = zip(node.outputs, errors, strict=True)
        return [e if e is None else pt.switch(pt.isnan(e) | pt.isinf(e), finite(abs(o)), e) for o, e in pairs]


def rounding_of(total: Variable, inputs: list[Variable]) -> Callable[..., float]:
    """A function that bounds the rounding error of a scalar.

    Returns
    -------
    (values of `inputs`, NumPy arrays) -> the error of `total` in nats, divided by the spacing of floats at 1
    """
    error = Rounding().of(total)
    error = pt.zeros(()) if error is None else error  # integers are exact
    return pytensor.function(inputs, error, mode="FAST_COMPILE", on_unused_input="ignore")


def room(error: Any, eps: float) -> Any:
    """By how many nats two ways to compute a log density may differ because of rounding.

    Parameters
    ----------
    error : the result of the function `rounding_of`
    eps : the spacing of floats at 1
    """
    return np.maximum(ROUNDINGS * eps * np.asarray(error), NOT_WORTH_IT)


def is_float(var: Variable) -> bool:
    return getattr(var.type, "dtype", "").startswith("float")


def finite(var: Variable) -> Variable:
    """A tensor with 0 in place of elements that are infinite or nan."""
    return pt.switch(pt.isinf(var) | pt.isnan(var), 0.0, var)


@singledispatch
def error_after(op: Op, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    """E of an output of a node, given E of its inputs, None for those that are not floats.

    For an Op without a rule: the sum over the inputs of their largest error and largest magnitude.
    """
    largest = [
        e.max() + finite(abs(i)).max() for i, e in zip(node.inputs, errors, strict=True) if e is not None
    ]
    return abs(out) + (pt.add(*largest) if len(largest) > 1 else largest[0] if largest else 0.0)


@error_after.register
def _(op: Elemwise, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    scalar = op.scalar_op
    if isinstance(scalar, Switch):
        return pt.switch(node.inputs[0], *(0.0 if e is None else e for e in errors[1:]))
    parts = [abs(out)]
    for n, e in enumerate(errors):
        if e is not None:
            parts.append(times(abs(slope(op, node.inputs, n)), e))
    return pt.add(*parts) if len(parts) > 1 else parts[0]


def slope(op: Elemwise, inputs: list[Variable], n: int) -> Variable:
    """The derivative of an elementwise function by its input number n; 1 where PyTensor has none."""
    if isinstance(op.scalar_op, Add):
        return pt.ones(())
    if isinstance(op.scalar_op, Mul):
        others = [i for m, i in enumerate(inputs) if m != n]
        return pt.mul(*others) if len(others) > 1 else others[0]
    # broadcast first: the gradient by an input that is broadcast would be summed over its elements
    args = pt.broadcast_arrays(*inputs) if len(inputs) > 1 else inputs
    try:
        return pytensor.grad(
            op(*args).sum(), args[n], disconnected_inputs="ignore", return_disconnected="zero"
        )
    except (NotImplementedError, MethodNotDefined, NullTypeGradError, TypeError, ValueError):
        return pt.ones(())


def times(slope: Variable, error: Variable) -> Variable:
    """The product of a slope and an error; 0 where the error is 0, even if the slope is infinite."""
    return pt.switch(pt.eq(error, 0), 0.0, slope * error)


@error_after.register
def _(op: CAReduce, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    (x,), (e,) = node.inputs, errors
    if e is None:
        return abs(out)
    if isinstance(op.scalar_op, Add):
        return (e + abs(x) * roundings(x, out)).sum(axis=op.axis)
    if isinstance(op.scalar_op, Mul):
        return abs(out) * (1 + pt.switch(pt.eq(e, 0), 0.0, e / abs(x))).sum(axis=op.axis)
    return e.max(axis=op.axis)


def roundings(x: Variable, out: Variable) -> Variable:
    """How many roundings the error of a sum amounts to: the root of the number of its terms.

    Roundings up and down are equally frequent, so that their sum grows like a random walk.
    """
    return pt.sqrt(x.size / pt.maximum(out.size, 1))


@error_after.register
def _(op: CumOp, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    (x,), (e,) = node.inputs, errors
    if e is None or op.mode != "add":
        return abs(out) * pt.sqrt(x.size)
    return pt.cumsum(e + abs(x) * pt.sqrt(x.size), axis=op.axis)


@error_after.register(Dot)
def product_error(op: Op, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    a, b = (abs(i) for i in node.inputs)
    parts = [pt.sqrt(a.shape[-1]) * as_float(op(a, b))]
    parts += [as_float(op(errors[0], b))] if errors[0] is not None else []
    parts += [as_float(op(a, errors[1]))] if errors[1] is not None else []
    return pt.add(*parts) if len(parts) > 1 else parts[0]


def as_float(var: Variable) -> Variable:
    """A tensor cast to float64."""
    return var.astype("float64")


@error_after.register
def _(op: Blockwise, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    way = product_error if isinstance(op.core_op, Dot) else error_after.dispatch(Op)
    return way(op, node, out, errors)


def rearranged_error(op: Op, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    """E for an Op that only rearranges data: the errors, rearranged by the same Op."""
    inputs = [i if e is None or is_empty(i) else e for i, e in zip(node.inputs, errors, strict=True)]
    return node.op.make_node(*inputs).outputs[node.outputs.index(out)]


def is_empty(var: Variable) -> bool:
    """Whether a variable is a constant without elements, as the shape of a scalar is."""
    return isinstance(var, Constant) and np.size(var.data) == 0


for _op in (
    Alloc, DimShuffle, ExtractDiag, Join, JoinDims, MakeVector, Reshape, ScalarFromTensor, SpecifyShape,
    Split, SplitDims, TensorFromScalar, AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor,
):  # fmt: skip
    error_after.register(_op)(rearranged_error)
