"""Lower and upper bounds of the integer tensors of a graph, by interval arithmetic."""

import math
from collections.abc import Callable, Sequence
from functools import reduce, singledispatch
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
    ScalarOp,
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
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_discrete.structure.analysis import Analysis

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

    Integers of 64 bits are taken not to overflow, shorter ones wrap around.

    Parameters
    ----------
    known : {variable: bounds}, of inputs of the graph
    """

    def after(self, node: Apply, values: list[Bounds]) -> list[Bounds]:
        return [self.after_one(node, out, values) for out in node.outputs]

    def after_one(self, node: Apply, out: Variable, values: list[Bounds]) -> Bounds:
        """The bounds of one output of a node."""
        dtype = str(getattr(out.type, "dtype", ""))
        if not is_whole(out):
            scalar = getattr(node.op, "scalar_op", None)
            also_of_floats = type(node.op) in REARRANGING or (
                isinstance(node.op, Elemwise) and isinstance(scalar, OF_FLOATS)
            )
            if not (also_of_floats and dtype.startswith("float")):
                return UNKNOWN
            low, high = bounds_after(node.op, node, values)
            if math.isnan(low) or math.isnan(high):
                return UNKNOWN
            # floats of 32 bits are rounded, and rounding keeps their order
            with np.errstate(over="ignore"):
                low, high = (float(np.asarray(b, dtype)) for b in (low, high))
            return low, high
        if dtype == "bool":
            return 0.0, 1.0
        bounds = bounds_after(node.op, node, values)
        return UNKNOWN if any(map(math.isnan, bounds)) else within_type(bounds, dtype)

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
    limits = np.iinfo(dtype)
    if limits.min <= bounds[0] and bounds[1] <= limits.max:
        return bounds
    if limits.bits < 64 or (limits.min == 0 and bounds[0] < 0):
        return float(limits.min), float(limits.max)
    low, high = (b if limits.min <= b <= limits.max else math.copysign(math.inf, b) for b in bounds)
    return low, high


def times(a: float, b: float) -> float:
    """The product of two bounds, where 0 times infinity is 0."""
    return 0.0 if a == 0 or b == 0 else a * b


def raised(a: float, n: float) -> float:
    """The n-th power of a bound, for an integer n >= 0; infinite where floats do not hold it."""
    try:
        return float(a**n)
    except OverflowError:
        return -math.inf if a < 0 and n % 2 else math.inf


def product(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of the product of two numbers."""
    corners = [times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def hull(*intervals: Bounds) -> Bounds:
    """The smallest interval that contains all of the given ones; an empty one if there are none."""
    return min((low for low, _ in intervals), default=math.inf), max(
        (high for _, high in intervals), default=-math.inf
    )


def power(a: Bounds, n: float) -> Bounds:
    """Bounds of the n-th power of a number within `a`, for a finite integer n >= 0."""
    ends = [raised(x, n) for x in a]
    return hull(*((e, e) for e in ends), *([(0.0, 0.0)] if n > 0 and a[0] <= 0 <= a[1] else []))


def powers(a: Bounds, n: Bounds) -> Bounds:
    """Bounds of the powers of an integer within `a` whose exponents are the integers of `n`, of at least 0.

    The size of a power grows with the exponent, and its sign changes with each: the last two exponents have
    the ends, and the first two where the base is -1, 0 or 1.
    """
    low, high = n
    if high < math.inf:
        return hull(*(power(a, k) for k in {low, low + 1, high - 1, high} if low <= k <= high))
    large = math.inf if magnitude(a) > 1 else 0.0
    return hull(
        power(a, low), power(a, low + 1), (-large if a[0] < -1 else 0.0, large) if large else (1.0, 1.0)
    )


def magnitude(bounds: Bounds) -> float:
    """The largest absolute value within bounds."""
    return max(map(abs, bounds))


# ---------------------------------------------------------------- scalar Ops
@singledispatch
def bounds_after_scalar(op: ScalarOp, inputs: list[Bounds]) -> Bounds:
    """The bounds of what a scalar Op gives, from those of its inputs."""
    return UNKNOWN


@bounds_after_scalar.register
def _(op: Add, inputs: list[Bounds]) -> Bounds:
    return sum(low for low, _ in inputs), sum(high for _, high in inputs)


@bounds_after_scalar.register
def _(op: Sub, inputs: list[Bounds]) -> Bounds:
    a, b = inputs
    return a[0] - b[1], a[1] - b[0]


@bounds_after_scalar.register
def _(op: Mul, inputs: list[Bounds]) -> Bounds:
    return reduce(product, inputs)


@bounds_after_scalar.register
def _(op: Neg, inputs: list[Bounds]) -> Bounds:
    ((low, high),) = inputs
    return -high, -low


@bounds_after_scalar.register
def _(op: Invert, inputs: list[Bounds]) -> Bounds:
    ((low, high),) = inputs
    return -high - 1, -low - 1


@bounds_after_scalar.register
def _(op: Abs, inputs: list[Bounds]) -> Bounds:
    ((low, high),) = inputs
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


@bounds_after_scalar.register
def _(op: Sqr, inputs: list[Bounds]) -> Bounds:
    return power(inputs[0], 2)


@bounds_after_scalar.register
def _(op: Pow, inputs: list[Bounds]) -> Bounds:
    base, exponent = inputs
    return UNKNOWN if exponent[0] < 0 else powers(base, exponent)


@bounds_after_scalar.register
def _(op: ScalarMaximum, inputs: list[Bounds]) -> Bounds:
    return max(low for low, _ in inputs), max(high for _, high in inputs)


@bounds_after_scalar.register
def _(op: ScalarMinimum, inputs: list[Bounds]) -> Bounds:
    return min(low for low, _ in inputs), min(high for _, high in inputs)


@bounds_after_scalar.register
def _(op: Clip, inputs: list[Bounds]) -> Bounds:
    return clipped(*inputs)


def clipped(x: Bounds, least: Bounds, most: Bounds) -> Bounds:
    """Bounds of x where that is between two limits, else of the limit that it is beyond, `least` first."""
    found = []
    if x[0] < least[1]:
        found.append((max(x[0], least[0]), least[1]))
    if x[1] > most[0] and x[1] >= least[0]:
        found.append((most[0], min(x[1], most[1])))
    inside = max(x[0], least[0]), min(x[1], most[1])
    if inside[0] <= inside[1]:
        found.append(inside)
    return hull(*found) if found else hull(x, least, most)


@bounds_after_scalar.register
def _(op: Switch, inputs: list[Bounds]) -> Bounds:
    return hull(*inputs[1:])


@bounds_after_scalar.register
def _(op: Identity, inputs: list[Bounds]) -> Bounds:
    return inputs[0]


@bounds_after_scalar.register
def _(op: Cast, inputs: list[Bounds]) -> Bounds:
    return rounded(inputs[0], math.trunc) if str(op.o_type.dtype).startswith(("int", "uint")) else inputs[0]


@bounds_after_scalar.register
def _(op: Ceil, inputs: list[Bounds]) -> Bounds:
    return rounded(inputs[0], math.ceil)


@bounds_after_scalar.register
def _(op: Floor, inputs: list[Bounds]) -> Bounds:
    return rounded(inputs[0], math.floor)


def rounded(bounds: Bounds, to_integer: Callable[[float], int]) -> Bounds:
    """Bounds of numbers that are rounded."""
    low, high = (float(to_integer(b)) if math.isfinite(b) else b for b in bounds)
    return low, high


@bounds_after_scalar.register
def _(op: Second, inputs: list[Bounds]) -> Bounds:
    return inputs[1]


@bounds_after_scalar.register
def _(op: Sign, inputs: list[Bounds]) -> Bounds:
    low, high = (float(np.sign(b)) for b in inputs[0])
    return low, high


@bounds_after_scalar.register
def _(op: IntDiv, inputs: list[Bounds]) -> Bounds:
    x, divisor = inputs
    # NumPy gives 0 for a division by 0, XLA -1, from which JAX takes 1 as from other negative quotients
    found: list[Bounds] = [(-2.0, 0.0)] if divisor[0] <= 0 <= divisor[1] else []
    for low, high in signed(divisor):
        # a quotient is monotone in each of the two
        corners = [quotient(a, b) for a in x for b in (low, high) if math.isfinite(a) or math.isfinite(b)]
        found.append((min(corners), max(corners)))
    return hull(*found)


def quotient(a: float, b: float) -> float:
    """a // b where one of the two may be infinite."""
    if math.isinf(b):
        return 0.0 if a == 0 or (a > 0) == (b > 0) else -1.0
    return math.copysign(math.inf, a * b) if math.isinf(a) else a // b


def signed(bounds: Bounds) -> list[Bounds]:
    """The positive and the negative integers within bounds, those of both that there are."""
    parts = [(max(bounds[0], 1.0), bounds[1]), (bounds[0], min(bounds[1], -1.0))]
    return [(low, high) for low, high in parts if low <= high]


@bounds_after_scalar.register
def _(op: Mod, inputs: list[Bounds]) -> Bounds:
    x, divisor = inputs
    # NumPy gives 0 for a remainder of a division by 0, XLA the number that is divided
    found = [(0.0, 0.0), x] if divisor[0] <= 0 <= divisor[1] else []
    for low, high in signed(divisor):
        if low > 0:  # remainders have the sign of the divisor, and numbers of smaller size are their own
            found.append(x if x[0] >= 0 and x[1] < low else (0.0, min(high - 1, x[1] if x[0] >= 0 else high)))
        else:
            found.append(x if x[1] <= 0 and high < x[0] else (max(low + 1, x[0] if x[1] <= 0 else low), 0.0))
    return hull(*found)


@bounds_after_scalar.register
def _(op: AND, inputs: list[Bounds]) -> Bounds:
    tops = [high for low, high in inputs if low >= 0]
    return (0.0, min(tops)) if tops else of_bits(inputs)


@bounds_after_scalar.register
def _(op: OR, inputs: list[Bounds]) -> Bounds:
    low, high = of_bits(inputs)
    return (max(low for low, _ in inputs) if low == 0 else low), high


@bounds_after_scalar.register
def _(op: XOR, inputs: list[Bounds]) -> Bounds:
    return of_bits(inputs)


def of_bits(inputs: list[Bounds]) -> Bounds:
    """Bounds of all integers of as many bits as those within the inputs have, and a sign if any has."""
    largest = max(end if end >= 0 else -end - 1 for bounds in inputs for end in bounds)
    top = float(2 ** int(largest).bit_length() - 1) if math.isfinite(largest) else math.inf
    return (0.0 if all(low >= 0 for low, _ in inputs) else -top - 1), top


# ---------------------------------------------------------------- Ops of tensors
@singledispatch
def bounds_after(op: Op, node: Apply, inputs: list[Bounds]) -> Bounds:
    """The bounds of an integer output of a node, given those of its inputs."""
    if type(op) in REARRANGING:
        data = REARRANGING[type(op)]
        return hull(*(inputs if data is None else inputs[:data]))
    return UNKNOWN


@bounds_after.register
def _(op: Elemwise, node: Apply, inputs: list[Bounds]) -> Bounds:
    return bounds_after_scalar(op.scalar_op, inputs)


def count(node: Apply, axes: Any) -> float:
    """How many elements of the first input a reduction over `axes` combines; infinite where not known."""
    shape = node.inputs[0].type.shape
    over = range(len(shape)) if axes is None else np.atleast_1d(axes)
    sizes = [shape[a] for a in over]
    return math.inf if None in sizes else float(np.prod(sizes))


def sum_of(bounds: Bounds, n: float) -> Bounds:
    """Bounds of a sum of n numbers, or of any number of them if n is infinite."""
    low, high = times(bounds[0], n), times(bounds[1], n)
    return (min(low, 0.0), max(high, 0.0)) if n == math.inf else (low, high)


@bounds_after.register
def _(op: CAReduce, node: Apply, inputs: list[Bounds]) -> Bounds:
    n = count(node, op.axis)
    if isinstance(op.scalar_op, Add):
        return sum_of(inputs[0], n)
    if isinstance(op.scalar_op, Mul):
        return product_of(inputs[0], n)
    return inputs[0] if isinstance(op.scalar_op, ScalarMaximum | ScalarMinimum) else UNKNOWN


def product_of(bounds: Bounds, n: float) -> Bounds:
    """Bounds of a product of n integers, or of any number of them if n is infinite."""
    low, high = bounds
    if n == math.inf:
        return hull((1.0, 1.0), (low, high), product(bounds, bounds), powers(bounds, (0.0, n)))
    # it is extreme where all are at an end, or but one; and 0 where one is
    corners = [
        times(raised(low, k), raised(high, n - k)) for k in {0.0, 1.0, n - 1.0, float(n)} if 0 <= k <= n
    ]
    zero = [0.0] if n > 0 and low <= 0 <= high else []
    return min(corners + zero), max(corners + zero)


@bounds_after.register
def _(op: CumOp, node: Apply, inputs: list[Bounds]) -> Bounds:
    n = count(node, op.axis)
    if op.mode == "add":
        return hull(inputs[0], sum_of(inputs[0], n))
    if n == math.inf:
        return product_of(inputs[0], n)
    return hull(*(product_of(inputs[0], k) for k in {1.0, 2.0, n - 1.0, n} if 1 <= k <= n))


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
    n = node.inputs[0].type.shape[-1]
    return sum_of(product(*inputs), math.inf if n is None else n)


@bounds_after.register(IncSubtensor)
@bounds_after.register(AdvancedIncSubtensor)
def _(op: Any, node: Apply, inputs: list[Bounds]) -> Bounds:
    if op.set_instead_of_inc:
        return hull(*inputs[:2])
    low, high = sum_of(inputs[1], 1.0 if isinstance(op, IncSubtensor) else times_selected(op, node))
    return inputs[0][0] + min(low, 0.0), inputs[0][1] + max(high, 0.0)


def times_selected(op: AdvancedIncSubtensor, node: Apply) -> float:
    """How often arrays of indices may select the same element; infinite where their shape is not known.

    The value that is set or added is broadcast to what they select, so that its size says nothing.
    """
    indices = [i for i in indices_from_subtensor(node.inputs[2:], op.idx_list) if isinstance(i, Variable)]
    masks = [i for i in indices if i.type.dtype == "bool"]
    if op.ignore_duplicates or (masks and len(indices) == 1):
        return 1.0
    # of a mask, the number of elements that it selects is not known
    shapes = [(None,) if i in masks else getattr(i.type, "shape", ()) for i in indices]
    ndim = max(map(len, shapes), default=0)
    aligned = zip(*((1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    n = 1.0
    for sizes in aligned:
        fixed = [size for size in sizes if size not in (None, 1)]
        n *= fixed[0] if fixed else math.inf if None in sizes else 1
    return n


@bounds_after.register
def _(op: ARange, node: Apply, inputs: list[Bounds]) -> Bounds:
    start, stop, step = inputs
    if step[0] > 0:
        stop = stop[0] - 1, stop[1] - 1
    elif step[1] < 0:
        stop = stop[0] + 1, stop[1] + 1
    return hull(start, stop)


@bounds_after.register
def _(op: ArgSortOp, node: Apply, inputs: list[Bounds]) -> Bounds:
    shape = node.inputs[0].type.shape
    return positions(shape if op.axis is None else [shape[op.axis]])


@bounds_after.register
def _(op: Argmax, node: Apply, inputs: list[Bounds]) -> Bounds:
    shape = node.inputs[0].type.shape
    return positions(shape if op.axis is None else [shape[a] for a in op.axis])


def positions(shape: Sequence[int | None]) -> Bounds:
    """Of the positions among the elements of an array."""
    return 0.0, max(math.prod(size_of(n)[1] for n in shape) - 1, 0.0)


@bounds_after.register
def _(op: AllocDiag, node: Apply, inputs: list[Bounds]) -> Bounds:
    return hull(inputs[0], (0.0, 0.0))


@bounds_after.register(Shape)
def _(op: Op, node: Apply, inputs: list[Bounds]) -> Bounds:
    return hull(*map(size_of, node.inputs[0].type.shape))


@bounds_after.register
def _(op: Shape_i, node: Apply, inputs: list[Bounds]) -> Bounds:
    return size_of(node.inputs[0].type.shape[op.i])


def size_of(size: int | None) -> Bounds:
    """Bounds of the length of a dimension that may be known."""
    return (0.0, float(np.iinfo(np.int32).max)) if size is None else (float(size), float(size))


def extent(support: tuple[Any, Any], unbounded: float = math.inf) -> Bounds:
    """Bounds that hold for all elements of a variable.

    Parameters
    ----------
    support : (lower, upper), arrays or scalars; None where there is no bound
    unbounded : the magnitude that stands for a missing bound
    """
    low, high = support
    return (
        -unbounded if low is None else float(np.min(np.asarray(low, float), initial=math.inf)),
        unbounded if high is None else float(np.max(np.asarray(high, float), initial=-math.inf)),
    )
