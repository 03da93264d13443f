"""Lower and upper bounds of the integer tensors of a graph, by interval arithmetic.

The rules of Ops are in `ops/`. This file has the analysis that applies the rules, and the arithmetic of
intervals that the rules share.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op

from pymc_discrete.structure.analysis import Analysis

Interval = tuple[float, float]  # (lower, upper), inclusive; infinite where there is no known bound
UNKNOWN: Interval = (-math.inf, math.inf)
# Ops that only rearrange data: {Op: the number of its first inputs that are data, None for all}. The other
# inputs are indices and shapes.
REARRANGING: dict[type[Op], int | None] = {}


def is_whole(var: Variable) -> bool:
    """Whether a variable holds integers or booleans."""
    return str(getattr(var.type, "dtype", "")).startswith(("int", "uint", "bool"))


class IntegerBounds(Analysis[Interval]):
    """Bounds of the integer tensors of a graph, and of some float tensors; other tensors have the bounds
    `UNKNOWN`, which are infinite.

    Integers of 64 bits are assumed not to overflow; shorter integers wrap around.

    Parameters
    ----------
    known : {input of the graph: its bounds}
    """

    def __init__(self, known: Mapping[Variable, Interval]):
        super().__init__(known)
        self._known = dict(known)

    def given(self, more: Mapping[Variable, Interval]) -> "IntegerBounds":
        """A new analysis of the same graph that also knows the bounds of the inputs in `more`."""
        return IntegerBounds(self._known | dict(more))

    @cached_property
    def finite(self) -> "SurelyFinite":
        """The analysis of which tensors are surely finite. The bounds of any other float tensor do not say
        that its elements are within them, since an element may be nan."""
        return SurelyFinite(self)

    def after(self, node: Apply, values: list[Interval]) -> list[Interval]:
        return [self.after_one(node, out, values) for out in node.outputs]

    def after_one(self, node: Apply, out: Variable, values: list[Interval]) -> Interval:
        """The bounds of one output of a node."""
        dtype = str(getattr(out.type, "dtype", ""))
        if not is_whole(out):
            if not (dtype.startswith("float") and hold_for_floats(node.op)):
                return UNKNOWN
            low, high = bounds_after(node.op, node, values)
            if math.isnan(low) or math.isnan(high):
                return UNKNOWN
            # A result stored in 32 bits is rounded. Rounding keeps the order of numbers, so that the bounds,
            # rounded in the same way, are bounds of the rounded result.
            with np.errstate(over="ignore"):
                low, high = (float(np.asarray(b, dtype)) for b in (low, high))
            return low, high
        if dtype == "bool":
            return 0.0, 1.0
        bounds = bounds_after(node.op, node, values)
        return UNKNOWN if any(map(math.isnan, bounds)) else within_type(bounds, dtype)

    def at_leaf(self, var: Variable) -> Interval:
        if str(getattr(var.type, "dtype", "")) == "bool":
            return (0.0, 1.0)
        if not isinstance(var, Constant) or not isinstance(var.data, np.ndarray | np.generic):
            return UNKNOWN
        data = np.asarray(var.data)
        if data.dtype.kind not in "iuf" or np.isnan(data).any():
            return UNKNOWN
        return (float(data.min()), float(data.max())) if data.size else (math.inf, -math.inf)


class SurelyFinite(Analysis[bool]):
    """Whether a tensor is finite if all unknowns and data are, unless a result is too large for a float.

    For example, `clip(x / y, 0, 1)` may not be finite where y may be 0: 0 / 0 is nan, and nan clipped is nan.

    Parameters
    ----------
    bounds : the bounds of the tensors of the same graph
    """

    def __init__(self, bounds: IntegerBounds):
        super().__init__({})
        self._bounds = bounds

    def after(self, node: Apply, values: list[bool]) -> list[bool]:
        stays = all(values) and stays_finite(node.op, node, self._bounds)
        return [stays or is_whole(out) for out in node.outputs]

    def at_leaf(self, var: Variable) -> bool:
        if not isinstance(var, Constant) or not isinstance(var.data, np.ndarray | np.generic):
            return True
        return var.data.dtype.kind != "f" or bool(np.isfinite(var.data).all())


@singledispatch
def stays_finite(op: Op, node: Apply, bounds: IntegerBounds) -> bool:
    """Whether a node maps finite values, within the bounds of its inputs, to finite values."""
    return type(op) in REARRANGING


@singledispatch
def bounds_after(op: Op, node: Apply, inputs: list[Interval]) -> Interval:
    """The bounds of an integer output of a node, given the bounds of its inputs."""
    if type(op) in REARRANGING:
        data = REARRANGING[type(op)]
        return hull(*(inputs if data is None else inputs[:data]))
    return UNKNOWN


@singledispatch
def hold_for_floats(op: Op) -> bool:
    """Whether the bounds that `bounds_after` gives for an Op also hold where output and inputs are floats."""
    return type(op) in REARRANGING


# ---------------------------------------------------------------- intervals
def within_type(bounds: Interval, dtype: str) -> Interval:
    """Bounds of integers after they are stored in a dtype: the dtype's whole range where they may wrap
    around.
    """
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
    """The n-th power of a bound, for an integer n >= 0; infinite where it is too large for a float."""
    try:
        return float(a**n)
    except OverflowError:
        return -math.inf if a < 0 and n % 2 else math.inf


def product(a: Interval, b: Interval) -> Interval:
    """Bounds of the product of two numbers."""
    corners = [times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def hull(*intervals: Interval) -> Interval:
    """The smallest interval that contains all given intervals; an empty interval if there are none."""
    return min((low for low, _ in intervals), default=math.inf), max(
        (high for _, high in intervals), default=-math.inf
    )


def power(a: Interval, n: float) -> Interval:
    """Bounds of the n-th power of a number within `a`, for a finite integer n >= 0."""
    ends = [raised(x, n) for x in a]
    return hull(*((e, e) for e in ends), *([(0.0, 0.0)] if n > 0 and a[0] <= 0 <= a[1] else []))


def powers(a: Interval, n: Interval) -> Interval:
    """Bounds of powers of an integer within `a` whose exponents are the integers of `n`, which are at least
    0.

    The size of a power grows with the exponent, and for a negative base the sign changes from each exponent
    to the next. So the two largest exponents give the bounds, or the two smallest if the base is -1, 0 or 1.
    """
    low, high = n
    if high < math.inf:
        return hull(*(power(a, k) for k in {low, low + 1, high - 1, high} if low <= k <= high))
    large = math.inf if magnitude(a) > 1 else 0.0
    return hull(
        power(a, low), power(a, low + 1), (-large if a[0] < -1 else 0.0, large) if large else (1.0, 1.0)
    )


def magnitude(bounds: Interval) -> float:
    """The largest absolute value within bounds."""
    return max(map(abs, bounds))


def sum_of(bounds: Interval, n: float) -> Interval:
    """Bounds of a sum of n numbers, each with the given bounds; of any number of summands if n is
    infinite."""
    low, high = times(bounds[0], n), times(bounds[1], n)
    return (min(low, 0.0), max(high, 0.0)) if n == math.inf else (low, high)


def positions(shape: Sequence[int | None]) -> Interval:
    """Bounds of the flat indices of the elements of an array; a length None in the shape is not known."""
    return 0.0, max(math.prod(size_of(n)[1] for n in shape) - 1, 0.0)


def size_of(size: int | None) -> Interval:
    """Bounds of the length of a dimension, which is None if it is not known."""
    return (0.0, float(np.iinfo(np.int32).max)) if size is None else (float(size), float(size))


def extent(support: tuple[Any, Any], unbounded: float = math.inf) -> Interval:
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
