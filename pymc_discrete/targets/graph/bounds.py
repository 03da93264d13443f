"""Lower and upper bounds of the integer tensors of a graph, by interval arithmetic."""

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import (
    AND,
    OR,
    XOR,
    Abs,
    Add,
    Cast,
    Ceil,
    Clip,
    Floor,
    Identity,
    IntDiv,
    Invert,
    Mod,
    Mul,
    Neg,
    Pow,
    ScalarMaximum,
    ScalarMinimum,
    Second,
    Sign,
    Sqr,
    Sub,
    Switch,
)
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    ARange,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pymc_discrete.targets.graph.analysis import Analysis

Bounds = tuple[float, float]  # inclusive; infinite where nothing is known
UNKNOWN: Bounds = (-math.inf, math.inf)
# Ops that only rearrange data: {Op: how many of its first inputs are data, None for all of them}. The other
# inputs are indices and shapes.
REARRANGING: dict[type, int | None] = {
    Alloc: 1, DimShuffle: 1, ExtractDiag: 1, Join: None, JoinDims: 1, MakeVector: None, Repeat: 1, Reshape: 1,
    ScalarFromTensor: 1, CheckAndRaise: 1, SortOp: 1, SpecifyShape: 1, Split: 1, SplitDims: 1,
    TensorFromScalar: 1, AdvancedSubtensor: 1, Subtensor: 1, ViewOp: 1,
}  # fmt: skip
# Scalar Ops whose rules hold for floats, too: the bounds of a distribution may be rounded, and be floats then
OF_FLOATS = (Add, Cast, Ceil, Clip, Floor, Identity, Mul, Neg, ScalarMaximum, ScalarMinimum, Sub, Switch)


def is_whole(var: Variable) -> bool:
    """Whether a variable holds integers or booleans."""
    return str(getattr(var.type, "dtype", "")).startswith(("int", "uint", "bool"))


class IntegerBounds(Analysis[Bounds]):
    """Bounds of the integer tensors of a graph, and of some of floats; others have the bounds `UNKNOWN`.

    Parameters
    ----------
    known : {variable: bounds}, of inputs of the graph
    """

    def after(self, node: Apply, values: list[Bounds]) -> list[Bounds]:
        return [self.after_one(node, out, values) for out in node.outputs]

    def after_one(self, node: Apply, out: Variable, values: list[Bounds]) -> Bounds:
        """The bounds of one output of a node."""
        if not is_whole(out):
            scalar = getattr(node.op, "scalar_op", None)
            also_of_floats = type(node.op) in REARRANGING or (
                isinstance(node.op, Elemwise) and isinstance(scalar, OF_FLOATS)
            )
            if not also_of_floats:
                return UNKNOWN
            bounds = bounds_after(node.op, node, values)
            return UNKNOWN if any(map(math.isnan, bounds)) else bounds
        if out.type.dtype == "bool":
            return 0.0, 1.0
        bounds = bounds_after(node.op, node, values)
        return UNKNOWN if any(map(math.isnan, bounds)) else within_type(bounds, out.type.dtype)

    def at_leaf(self, var: Variable) -> Bounds:
        if str(getattr(var.type, "dtype", "")) == "bool":
            return (0.0, 1.0)
        if not isinstance(var, Constant) or not isinstance(var.data, np.ndarray | np.generic):
            return UNKNOWN
        data = np.asarray(var.data)
        if data.dtype.kind not in "iuf" or np.isnan(data).any():
            return UNKNOWN
        return (float(data.min()), float(data.max())) if data.size else (math.inf, -math.inf)


def within_type(bounds: Bounds, dtype: str) -> Bounds:
    """Bounds of integers once they are stored in a dtype: its whole range where they may wrap around."""
    if dtype == "bool":
        return 0.0, 1.0
    limits = np.iinfo(dtype)
    wraps = limits.bits < 64 and not (limits.min <= bounds[0] and bounds[1] <= limits.max)
    return (float(limits.min), float(limits.max)) if wraps else bounds


def rounded(bounds: Bounds, to_integer: Callable[[float], int]) -> Bounds:
    """Bounds of numbers that are rounded."""
    low, high = (float(to_integer(b)) if math.isfinite(b) else b for b in bounds)
    return low, high


def times(a: float, b: float) -> float:
    """The product of two bounds, where 0 times infinity is 0."""
    return 0.0 if a == 0 or b == 0 else a * b


def product(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of the product of two numbers."""
    corners = [times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def hull(*intervals: Bounds) -> Bounds:
    """The smallest interval that contains all of the given ones."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def power(a: Bounds, n: float) -> Bounds:
    """Bounds of the n-th power of a number within `a`, for an integer n >= 0."""
    size = max(map(abs, a))
    try:
        top = size**n
    except OverflowError:
        top = math.inf
    if a[0] >= 0:
        return (a[0] ** n if a[0] < 2 or top < math.inf else 0.0), top
    return (0.0 if n % 2 == 0 else -top), top


def magnitude(bounds: Bounds) -> float:
    """The largest absolute value within bounds."""
    return max(map(abs, bounds))


@singledispatch
def bounds_after(op: Op, node: Apply, inputs: list[Bounds]) -> Bounds:
    """The bounds of an integer output of a node, given those of its inputs."""
    if type(op) in REARRANGING:
        data = REARRANGING[type(op)]
        return hull(*(inputs if data is None else inputs[:data]))
    return UNKNOWN


@bounds_after.register
def _(op: Elemwise, node: Apply, inputs: list[Bounds]) -> Bounds:
    scalar, first = op.scalar_op, inputs[0]
    if isinstance(scalar, Add):
        return sum(low for low, _ in inputs), sum(high for _, high in inputs)
    if isinstance(scalar, Sub):
        return first[0] - inputs[1][1], first[1] - inputs[1][0]
    if isinstance(scalar, Mul):
        for other in inputs[1:]:
            first = product(first, other)
        return first
    if isinstance(scalar, Neg):
        return -first[1], -first[0]
    if isinstance(scalar, Invert):
        return -first[1] - 1, -first[0] - 1
    if isinstance(scalar, Abs):
        return (0.0 if first[0] <= 0 <= first[1] else min(map(abs, first))), magnitude(first)
    if isinstance(scalar, Sqr):
        return power(first, 2)
    if isinstance(scalar, Pow):
        low, high = inputs[1]
        if low < 0:
            return UNKNOWN
        return hull(power(first, low), power(first, high), (-magnitude(first) if first[0] < 0 else 0.0, 1.0))
    if isinstance(scalar, ScalarMaximum):
        return max(low for low, _ in inputs), max(high for _, high in inputs)
    if isinstance(scalar, ScalarMinimum):
        return min(low for low, _ in inputs), min(high for _, high in inputs)
    if isinstance(scalar, Clip):
        return max(first[0], inputs[1][0]), min(first[1], inputs[2][1])
    if isinstance(scalar, Switch):
        return hull(*inputs[1:])
    if isinstance(scalar, Cast | Identity):
        return first
    if isinstance(scalar, Ceil | Floor):
        return rounded(first, math.ceil if isinstance(scalar, Ceil) else math.floor)
    if isinstance(scalar, Second):
        return inputs[1]
    if isinstance(scalar, Sign):
        return -1.0, 1.0
    if isinstance(scalar, IntDiv):
        return (0.0 if first[0] >= 0 and inputs[1][0] > 0 else -magnitude(first)), magnitude(first)
    if isinstance(scalar, Mod):
        return (0.0, inputs[1][1] - 1) if inputs[1][0] > 0 else (-magnitude(inputs[1]), magnitude(inputs[1]))
    if isinstance(scalar, AND | OR | XOR):
        size = max(map(magnitude, inputs))
        top = math.inf if size == math.inf else 2.0 ** math.ceil(math.log2(size + 1))
        return (0.0 if all(low >= 0 for low, _ in inputs) else -top), top
    return UNKNOWN


def count(node: Apply, axes: Any) -> float:
    """How many elements of the first input a reduction over `axes` combines; infinite where not known."""
    shape = node.inputs[0].type.shape
    over = range(len(shape)) if axes is None else np.atleast_1d(axes)
    sizes = [shape[a] for a in over]
    return math.inf if None in sizes else float(np.prod(sizes))


def sum_of(bounds: Bounds, n: float) -> Bounds:
    """Bounds of a sum of n numbers."""
    return times(bounds[0], n), times(bounds[1], n)


@bounds_after.register
def _(op: CAReduce, node: Apply, inputs: list[Bounds]) -> Bounds:
    n = count(node, op.axis)
    if isinstance(op.scalar_op, Add):
        return sum_of(inputs[0], n)
    if isinstance(op.scalar_op, Mul):
        return product_of(inputs[0], n)
    return inputs[0] if isinstance(op.scalar_op, ScalarMaximum | ScalarMinimum) else UNKNOWN


def product_of(bounds: Bounds, n: float) -> Bounds:
    """Bounds of a product of up to n numbers."""
    if magnitude(bounds) <= 1:
        return min(bounds[0], 0.0) if bounds[0] >= 0 else -1.0, 1.0
    top = magnitude(power((0.0, magnitude(bounds)), n)) if n < math.inf else math.inf
    return (0.0 if bounds[0] >= 0 else -top), top


@bounds_after.register
def _(op: CumOp, node: Apply, inputs: list[Bounds]) -> Bounds:
    n = count(node, op.axis)
    return hull(inputs[0], sum_of(inputs[0], n)) if op.mode == "add" else product_of(inputs[0], n)


@bounds_after.register(Dot)
def dot_bounds(op: Op, node: Apply, inputs: list[Bounds]) -> Bounds:
    (a, b), n = node.inputs, node.inputs[0].type.shape[-1]
    for matrix, other, axis in ((a, inputs[1], -1), (b, inputs[0], -2 if b.type.ndim > 1 else -1)):
        if isinstance(matrix, Constant) and np.size(matrix.data):
            # Sums of the positive and of the negative entries of each row (or column) of a constant matrix
            # give tighter bounds than one entry times the number of entries.
            data = np.asarray(matrix.data, float)
            up, down = (np.maximum(sign * data, 0).sum(axis=axis).max() for sign in (1, -1))
            ends = [times(up, e) for e in other] + [times(-down, e) for e in other]
            return min(ends[0], 0.0) + min(ends[3], 0.0), max(ends[1], 0.0) + max(ends[2], 0.0)
    return sum_of(product(*inputs), math.inf if n is None else n)


@bounds_after.register
def _(op: Blockwise, node: Apply, inputs: list[Bounds]) -> Bounds:
    if not isinstance(op.core_op, Dot):
        return UNKNOWN
    return sum_of(product(*inputs), node.inputs[0].type.shape[-1] or math.inf)


@bounds_after.register(IncSubtensor)
@bounds_after.register(AdvancedIncSubtensor)
def _(op: Any, node: Apply, inputs: list[Bounds]) -> Bounds:
    if op.set_instead_of_inc:
        return hull(*inputs[:2])
    elements = node.inputs[1].type.shape
    n = 1.0 if isinstance(op, IncSubtensor) else math.inf if None in elements else float(np.prod(elements))
    low, high = sum_of(inputs[1], n)
    return inputs[0][0] + min(low, 0.0), inputs[0][1] + max(high, 0.0)


@bounds_after.register
def _(op: ARange, node: Apply, inputs: list[Bounds]) -> Bounds:
    return hull(*inputs[:2])


@bounds_after.register
def _(op: AllocDiag, node: Apply, inputs: list[Bounds]) -> Bounds:
    return hull(inputs[0], (0.0, 0.0))


@bounds_after.register(Shape)
@bounds_after.register(Shape_i)
def _(op: Op, node: Apply, inputs: list[Bounds]) -> Bounds:
    return 0.0, float(np.iinfo(np.int32).max)


def extent(support: tuple[Any, Any], unbounded: float = math.inf) -> Bounds:
    """Bounds that hold for all elements of a variable.

    Parameters
    ----------
    support : (lower, upper), arrays or scalars; None where there is no bound
    unbounded : the magnitude that stands for a missing bound
    """
    low, high = support
    return (
        -unbounded if low is None else float(np.min(low)),
        unbounded if high is None else float(np.max(high)),
    )
