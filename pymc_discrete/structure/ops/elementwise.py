"""Elementwise functions: a table of what is known of each scalar Op, and the rules of `Elemwise`.

The table is `SCALAR_RULES`, which the rules read; a new scalar Op becomes a row of the table.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.utils import MethodNotDefined
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.basic import (
    AND,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NEQ,
    OR,
    XOR,
    Abs,
    Add,
    Cast,
    Ceil,
    Clip,
    Exp,
    Floor,
    Identity,
    IntDiv,
    Invert,
    Mod,
    Mul,
    Neg,
    Pow,
    RoundHalfAwayFromZero,
    RoundHalfToEven,
    ScalarMaximum,
    ScalarMinimum,
    ScalarOp,
    Second,
    Sign,
    Sqr,
    Sub,
    Switch,
    Tanh,
    TrueDiv,
    Trunc,
)
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import Elemwise

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.bounds import (
    UNKNOWN,
    IntegerBounds,
    Interval,
    bounds_after,
    hold_for_floats,
    hull,
    is_whole,
    power,
    powers,
    product,
    stays_finite,
)
from pymc_discrete.structure.columns import keeps_magnitude
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.integers import is_integer_log_gamma, log_gamma
from pymc_discrete.structure.lifting import for_rows, simplified
from pymc_discrete.structure.logp_graph import LogpGraph, adds_up
from pymc_discrete.structure.reads import Elements, constant, elements_of, in_order
from pymc_discrete.structure.rounding import error_after
from pymc_discrete.structure.scalar_ops import computed_by, is_switch
from pymc_discrete.structure.stacking import vectorised, with_axis
from pymc_discrete.structure.sums import Summands, summands_of

Where = dict[int, np.ndarray]

# Bounds of floats may be off by rounding. The bounds of two float tensors decide a comparison of the tensors
# only if they are apart by more than this, relative to their size.
CLOSE = 1e-6
LARGEST_EXACT = 2**24  # every integer up to this is exact as a 32-bit float


class ScalarRules(NamedTuple):
    """What is known of a scalar Op; an Op without a row in the table has the defaults, which are right for
    any Op.

    Attributes
    ----------
    bounds : (node, bounds of the inputs) -> the bounds of the result, for integers
    bounds_of_floats : whether `bounds` also holds for floats, for example where a float that bounds the
        support of a distribution is rounded
    degree : (node, degrees of the inputs) -> the degree of the result
    slope : (inputs, n) -> the derivative with respect to input n; by default PyTensor's
    unread : (op, inputs, graph) -> {index of an input: where the input does not matter}, bool arrays that
        broadcast with the output; an input does not matter where a constant input, or bounds, decide the
        result
    summands : (node, graph) -> [(tensor, factor)] whose weighted sums add up to the sum over the output
    simpler : (node, inputs, bounds) -> a simpler form of the node on the inputs, or None
    least, most : the smallest and the largest possible result; None where it is not known
    selects : whether the Op only selects or compares elements, without arithmetic
    tame : whether the Op maps finite values to finite values of a similar order of magnitude
    step_like : whether the derivative of the Op, 0 or 1 almost everywhere, does not approximate differences
    """

    bounds: Callable[[Apply, list[Interval]], Interval] | None = None
    bounds_of_floats: bool = False
    degree: Callable[[Apply, list[float]], float] | None = None
    slope: Callable[[list[Variable], int], Variable] | None = None
    unread: Callable[[ScalarOp, list[Variable], LogpGraph], Where] | None = None
    summands: Callable[[Apply, LogpGraph], Summands | None] | None = None
    simpler: Callable[[Apply, list[Variable], IntegerBounds], Variable | None] | None = None
    least: float | None = None
    most: float | None = None
    selects: bool = False
    tame: bool = False
    step_like: bool = False


# ---------------------------------------------------------------- bounds
def bounds_of_sum(node: Apply, inputs: list[Interval]) -> Interval:
    return sum(low for low, _ in inputs), sum(high for _, high in inputs)


def bounds_of_difference(node: Apply, inputs: list[Interval]) -> Interval:
    a, b = inputs
    return a[0] - b[1], a[1] - b[0]


def bounds_of_inverted_bits(node: Apply, inputs: list[Interval]) -> Interval:
    ((low, high),) = inputs
    return -high - 1, -low - 1


def bounds_of_absolute_value(node: Apply, inputs: list[Interval]) -> Interval:
    ((low, high),) = inputs
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def bounds_of_power(node: Apply, inputs: list[Interval]) -> Interval:
    base, exponent = inputs
    return UNKNOWN if exponent[0] < 0 else powers(base, exponent)


def bounds_of_maximum(node: Apply, inputs: list[Interval]) -> Interval:
    return max(low for low, _ in inputs), max(high for _, high in inputs)


def bounds_of_minimum(node: Apply, inputs: list[Interval]) -> Interval:
    return min(low for low, _ in inputs), min(high for _, high in inputs)


def bounds_of_clip(node: Apply, inputs: list[Interval]) -> Interval:
    """The bounds of `clip(x, least, most)`, which is `least` where x < least, even if least > most; else
    `most` where x > most; else x.
    """
    x, least, most = inputs
    found = []
    if x[0] < least[1]:
        found.append((max(x[0], least[0]), least[1]))
    if x[1] > most[0] and x[1] >= least[0]:
        found.append((most[0], min(x[1], most[1])))
    inside = max(x[0], least[0]), min(x[1], most[1])
    if inside[0] <= inside[1]:
        found.append(inside)
    return hull(*found) if found else hull(x, least, most)


def bounds_of_cast(node: Apply, inputs: list[Interval]) -> Interval:
    to_integer = str(node.outputs[0].type.dtype).startswith(("int", "uint"))
    return rounded(inputs[0], math.trunc) if to_integer else inputs[0]


def rounded(bounds: Interval, to_integer: Callable[[float], int]) -> Interval:
    """Bounds of numbers after the function `to_integer` has rounded each of them."""
    low, high = (float(to_integer(b)) if math.isfinite(b) else b for b in bounds)
    return low, high


def bounds_of_sign(node: Apply, inputs: list[Interval]) -> Interval:
    low, high = (float(np.sign(b)) for b in inputs[0])
    return low, high


def bounds_of_quotient(node: Apply, inputs: list[Interval]) -> Interval:
    x, divisor = inputs
    # The bounds of a quotient must hold for NumPy and for JAX. NumPy gives 0 for an integer divided by 0. XLA
    # gives -1, from which JAX's `//` may subtract 1, as it does to round negative quotients down.
    found: list[Interval] = [(-2.0, 0.0)] if divisor[0] <= 0 <= divisor[1] else []
    for low, high in signed(divisor):
        # For divisors of one sign, a quotient is monotone in the dividend and in the divisor, so that it is
        # largest and smallest at ends of their intervals.
        corners = [quotient(a, b) for a in x for b in (low, high) if math.isfinite(a) or math.isfinite(b)]
        found.append((min(corners), max(corners)))
    return hull(*found)


def quotient(a: float, b: float) -> float:
    """a // b, where a or b may be infinite, but not both."""
    if math.isinf(b):
        return 0.0 if a == 0 or (a > 0) == (b > 0) else -1.0
    return math.copysign(math.inf, a * b) if math.isinf(a) else a // b


def signed(bounds: Interval) -> list[Interval]:
    """The positive and the negative integers within bounds, as up to two intervals."""
    parts = [(max(bounds[0], 1.0), bounds[1]), (bounds[0], min(bounds[1], -1.0))]
    return [(low, high) for low, high in parts if low <= high]


def bounds_of_remainder(node: Apply, inputs: list[Interval]) -> Interval:
    x, divisor = inputs
    # The bounds of a remainder must hold for NumPy and for JAX: NumPy gives 0 for the remainder of a division
    # by 0, and XLA gives the dividend.
    found = [(0.0, 0.0), x] if divisor[0] <= 0 <= divisor[1] else []
    for low, high in signed(divisor):
        # a remainder has the sign of the divisor, and a dividend smaller than the divisor is its own
        # remainder
        if low > 0:
            found.append(x if x[0] >= 0 and x[1] < low else (0.0, min(high - 1, x[1] if x[0] >= 0 else high)))
        else:
            found.append(x if x[1] <= 0 and high < x[0] else (max(low + 1, x[0] if x[1] <= 0 else low), 0.0))
    return hull(*found)


def bounds_of_conjunction(node: Apply, inputs: list[Interval]) -> Interval:
    tops = [high for low, high in inputs if low >= 0]
    return (0.0, min(tops)) if tops else bounds_of_bits(node, inputs)


def bounds_of_disjunction(node: Apply, inputs: list[Interval]) -> Interval:
    low, high = bounds_of_bits(node, inputs)
    return (max(low for low, _ in inputs) if low == 0 else low), high


def bounds_of_bits(node: Apply, inputs: list[Interval]) -> Interval:
    """Bounds of an Op on the bits of integers: of all integers with as many bits as the largest input.

    Negative integers are included if an input may be negative.
    """
    largest = max(end if end >= 0 else -end - 1 for bounds in inputs for end in bounds)
    top = float(2 ** int(largest).bit_length() - 1) if math.isfinite(largest) else math.inf
    return (0.0 if all(low >= 0 for low, _ in inputs) else -top - 1), top


# ---------------------------------------------------------------- degrees
def largest_degree(node: Apply, degrees: list[float]) -> float:
    return max(degrees)


def degree_of_cast(node: Apply, degrees: list[float]) -> float:
    """The degree of the input, except for a cast of a float to an integer, which truncates."""
    source, target = (v.type.dtype for v in (node.inputs[0], node.outputs[0]))
    return degrees[0] if target.startswith("float") or not source.startswith("float") else math.inf


def degree_of_power(node: Apply, degrees: list[float]) -> float:
    if not isinstance(node.inputs[1], Constant):
        return math.inf
    exponents = set(node.inputs[1].data.ravel().tolist())
    return max(exponents) * degrees[0] if exponents <= {1, 2} else math.inf


# ---------------------------------------------------------------- derivatives, for the analysis of rounding
def product_of_others(inputs: list[Variable], n: int) -> Variable:
    """The derivative of a product with respect to factor n."""
    others = [i for m, i in enumerate(inputs) if m != n]
    return pt.mul(*others) if len(others) > 1 else others[0]


# ---------------------------------------------------------------- inputs that do not matter
def unread_where_decided(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> Where:
    """Where the inputs of a comparison need not be read: where their bounds decide its outcome, such as that
    of x >= 0 for an x that is never negative.
    """
    outcomes = outcome(op, inputs, graph)
    if outcomes is None:
        return {}
    # The bounds of a variable are the bounds of all its elements, so that no element need be read where the
    # bounds decide. A constant has no bounds: its elements decide, and are read.
    return {j: ~np.isnan(outcomes) for j, i in enumerate(inputs) if not isinstance(i, Constant)}


def unread_branches(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> Where:
    """Where a branch of a switch need not be read: where the condition is known and takes the other branch.

    A condition is known if it is a constant, or a comparison that the bounds of its inputs decide.
    """
    condition = settled(inputs[0], graph)
    return {} if condition is None else {1: condition == 0, 2: (condition != 0) & ~np.isnan(condition)}


def unread_base(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> Where:
    """Where the base of a power need not be read: where the exponent is known to be 0.

    Such exponents occur in models of tests, in a table of 0 and 1 that says which skills each item needs.
    """
    exponent = settled(inputs[1], graph)
    return {} if exponent is None else {0: exponent == 0}


def unread_beside_zero(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> Where:
    return unread_beside(0, inputs, graph)


def unread_beside_true(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> Where:
    return unread_beside(1, inputs, graph) if all(i.type.dtype == "bool" for i in inputs) else {}


def unread_beside(decides: int, inputs: list[Variable], graph: LogpGraph) -> Where:
    """Where the integer inputs of a product, AND or OR need not be read: where another input is known to be
    `decides`.

    An input that is `decides` decides the result: 0 in a product or in AND, and 1 in OR. Inputs that are
    floats are read all the same, since 0 times a float may be nan.
    """
    known = {j: value for j, i in enumerate(inputs) if (value := settled(i, graph)) is not None}
    found = {}
    for j, i in enumerate(inputs):
        others = [known[k] == decides for k in known if k != j]
        if others and is_whole(without_casts(i)):
            found[j] = functools.reduce(np.logical_or, others)
            if j in known:  # an input that decides the result is itself read
                found[j] = found[j] & (known[j] != decides)
    return found


def settled(var: Variable, graph: LogpGraph) -> np.ndarray | None:
    """The elements of a constant, or of the outcome of a comparison, nan where bounds do not decide it.

    None for other variables.
    """
    compared = without_casts(var).owner
    if compared is None or not isinstance(scalar := getattr(compared.op, "scalar_op", None), COMPARISONS):
        return constant(var)
    return outcome(scalar, compared.inputs, graph)


def outcome(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> np.ndarray | None:
    """The outcome of a comparison of integers at all values within their bounds, element by element.

    Returns
    -------
    float array, broadcastable with the output: 0, 1, or nan where the outcome depends on the values; None for
    a comparison of floats, which may be nan
    """
    if not all(isinstance(i, Constant) or is_whole(without_casts(i)) for i in inputs):
        return None
    ends = [graph.bounds.of(i) if (value := constant(i)) is None else (value, value) for i in inputs]
    # Integers from 2^53 on may have been rounded. They become nan, which makes every comparison false, so
    # that such integers decide nothing.
    known = [[np.where(np.abs(np.asarray(e, float)) < 2**53, e, np.nan) for e in pair] for pair in ends]
    (low, high), (low_of_other, high_of_other) = known[::-1] if isinstance(op, GT | GE) else known
    if isinstance(op, LT | GT):
        true, false = np.less(high, low_of_other), np.greater_equal(low, high_of_other)
    elif isinstance(op, LE | GE):
        true, false = np.less_equal(high, low_of_other), np.greater(low, high_of_other)
    else:
        apart = np.less(high, low_of_other) | np.less(high_of_other, low)
        same = np.equal(low, high_of_other) & np.equal(high, low_of_other)
        true, false = (same, apart) if isinstance(op, EQ) else (apart, same)
    return np.where(true, 1.0, np.where(false, 0.0, np.nan))


def without_casts(var: Variable) -> Variable:
    """The variable under all casts of a variable; the variable itself if it is no cast."""
    while var.owner is not None and isinstance(getattr(var.owner.op, "scalar_op", None), Cast):
        var = var.owner.inputs[0]
    return var


# ---------------------------------------------------------------- sums of their elements
def summands_of_sum(node: Apply, graph: LogpGraph) -> Summands:
    """The summands of a sum or a difference: each input, times the number of times that it is broadcast."""
    subtracts = isinstance(node.op.scalar_op, Sub)
    parts: Summands = []
    for j, i in enumerate(node.inputs):
        sign = -1.0 if subtracts and j else 1.0
        factor = sign * float(graph.size(node.outputs[0]) / max(graph.size(i), 1))
        parts.append((i, None if factor == 1 else factor))
    return parts


def summands_of_cast(node: Apply, graph: LogpGraph) -> Summands | None:
    to_float = node.outputs[0].type.dtype.startswith("float") and adds_up(node.inputs[0])
    return [(node.inputs[0], None)] if to_float else None


def summands_of_product(node: Apply, graph: LogpGraph) -> Summands | None:
    moving = only_moving(node, graph)
    if moving is None:
        return None
    others = [i.reshape(()) for i in node.inputs if i is not moving]
    return [(moving, pt.mul(*others, 1.0))]


def summands_of_quotient(node: Apply, graph: LogpGraph) -> Summands | None:
    if only_moving(node, graph) is not node.inputs[0]:
        return None
    return [(node.inputs[0], 1.0 / node.inputs[1].reshape(()))]


def only_moving(node: Apply, graph: LogpGraph) -> Variable | None:
    """The only input that depends on the block, if it is not broadcast and all other inputs are scalars; else
    None.
    """
    moving = [i for i in node.inputs if graph.depends(i)]
    if len(moving) != 1 or graph.size(moving[0]) != graph.size(node.outputs[0]):
        return None
    return moving[0] if all(graph.size(i) == 1 for i in node.inputs if i is not moving[0]) else None


# ---------------------------------------------------------------- simpler forms of a node
def of_booleans(
    function: Callable[..., Variable],
) -> Callable[[Apply, list[Variable], IntegerBounds], Variable | None]:
    """A rule that writes a sum or a product of booleans as OR or AND; JAX would compute with integers."""

    def simpler(node: Apply, inputs: list[Variable], bounds: IntegerBounds) -> Variable | None:
        return functools.reduce(function, inputs) if node.outputs[0].type.dtype == "bool" else None

    return simpler


def squared(node: Apply, inputs: list[Variable], bounds: IntegerBounds) -> Variable | None:
    """A power as a square, if its exponents are all 2."""
    two = isinstance(inputs[1], Constant) and (inputs[1].data == 2).all()
    return pt.sqr(inputs[0]) if two else None


def decided_by_bounds(
    holds: Callable[[Interval, Interval, bool], bool], fails: Callable[[Interval, Interval, bool], bool]
) -> Callable[[Apply, list[Variable], IntegerBounds], Variable | None]:
    """A rule that replaces a comparison by a constant where the bounds of its two arguments decide it.

    Floats are compared only where they are finite, since comparisons with nan fail, and either have finite
    bounds or are the result of a function that is never negative, such as exp.

    Parameters
    ----------
    holds, fails : (bounds of the first argument, bounds of the second, whether both are integers) -> whether
        the comparison is true, and whether it is false, for all values within these bounds
    """

    def simpler(node: Apply, inputs: list[Variable], bounds: IntegerBounds) -> Variable | None:
        (out,) = node.outputs
        a, b = (bounds.of(i) for i in inputs)
        whole = all(is_whole(i) for i in inputs)
        known = a[0] <= a[1] and b[0] <= b[1] and (whole or np.isfinite([*a, *b]).all())
        if None in out.type.shape or not (known or never_negative(inputs[0])):
            return None
        for value, decides in ((True, holds), (False, fails)):
            if decides(a, b, whole) and (whole or all(bounds.finite.of(i) for i in inputs)):
                return pt.constant(np.full(out.type.shape, value))
        return None

    return simpler


def surely_less(a: Interval, b: Interval, whole: bool) -> bool:
    """Whether all numbers within `a` are less than all numbers within `b`, for floats also after rounding."""
    margin = 0.0 if whole else CLOSE * max(1.0, abs(a[1]), abs(b[0]))
    return a[1] < b[0] - margin


def surely_at_most(a: Interval, b: Interval, whole: bool) -> bool:
    """Whether all numbers within `a` are at most as large as all numbers within `b`.

    If the upper bound of `a` is the lower bound of `b` and a small integer, floats are compared as if they
    were not rounded. So weights whose sum is 1 are at most 1, in whatever order they are added.
    """
    exact = whole or (float(a[1]).is_integer() and abs(a[1]) <= LARGEST_EXACT)
    return surely_less(a, b, whole) or (exact and a[1] == b[0])


def of_second_and_first(
    compares: Callable[[Interval, Interval, bool], bool],
) -> Callable[[Interval, Interval, bool], bool]:
    """A test of the bounds of two arguments, made of a test that takes the two bounds in the other order."""
    return lambda a, b, whole: compares(b, a, whole)


def surely_equal(a: Interval, b: Interval, whole: bool) -> bool:
    """Whether both intervals contain the same integer, and nothing else."""
    return whole and a[0] == a[1] == b[0] == b[1]


def surely_different(a: Interval, b: Interval, whole: bool) -> bool:
    """Whether no number is within both `a` and `b`."""
    return surely_less(a, b, whole) or surely_less(b, a, whole)


def never_negative(var: Variable) -> bool:
    """Whether a tensor is the result of a scalar function, such as exp, whose values are never negative."""
    return computed_by(var) and rules_of(var.owner.op.scalar_op).least == 0


def without_constants(node: Apply, inputs: list[Variable], bounds: IntegerBounds) -> Variable | None:
    """A conjunction or disjunction of booleans without its constant arguments; None if no argument is
    constant.
    """
    (out,), neutral = node.outputs, isinstance(node.op.scalar_op, AND)
    if out.type.dtype != "bool" or None in out.type.shape:
        return None
    # True changes nothing in a conjunction, where False decides the result. False changes nothing in a
    # disjunction, where True decides the result.
    known = [constant_of(i) for i in inputs]
    if any(k == (not neutral) for k in known):
        return pt.constant(np.full(out.type.shape, not neutral))
    left = [i for i, k in zip(inputs, known, strict=True) if k is None]
    if len(left) == len(inputs) or not left or left[0].type.shape != out.type.shape:
        return None
    return left[0] if len(left) == 1 else (pt.and_ if neutral else pt.or_)(*left)


def constant_of(var: Variable) -> bool | None:
    """The value of a constant boolean tensor whose elements are all equal; None for other variables."""
    if var.owner is not None and isinstance(var.owner.op, Alloc):
        var = var.owner.inputs[0]
    if not isinstance(var, Constant) or not var.data.size or (var.data != var.data.flat[0]).any():
        return None
    return bool(var.data.flat[0])


# ---------------------------------------------------------------- the rules of each scalar function
COMPARISON = ScalarRules(unread=unread_where_decided, selects=True)

SCALAR_RULES: dict[type[ScalarOp], ScalarRules] = {
    Add: ScalarRules(
        bounds=bounds_of_sum,
        bounds_of_floats=True,
        degree=largest_degree,
        slope=lambda inputs, n: pt.ones(()),
        summands=summands_of_sum,
        simpler=of_booleans(pt.or_),
        tame=True,
    ),
    Sub: ScalarRules(
        bounds=bounds_of_difference,
        bounds_of_floats=True,
        degree=largest_degree,
        summands=summands_of_sum,
        tame=True,
    ),
    Neg: ScalarRules(
        bounds=lambda node, inputs: (-inputs[0][1], -inputs[0][0]),
        bounds_of_floats=True,
        degree=largest_degree,
        summands=lambda node, graph: [(node.inputs[0], -1.0)],
        tame=True,
    ),
    Mul: ScalarRules(
        bounds=lambda node, inputs: functools.reduce(product, inputs),
        bounds_of_floats=True,
        degree=lambda node, degrees: sum(degrees),
        slope=product_of_others,
        unread=unread_beside_zero,
        summands=summands_of_product,
        simpler=of_booleans(pt.and_),
        tame=True,
    ),
    TrueDiv: ScalarRules(
        degree=lambda node, degrees: degrees[0] if degrees[1] == 0 else math.inf,
        summands=summands_of_quotient,
    ),
    IntDiv: ScalarRules(bounds=bounds_of_quotient, step_like=True),
    Mod: ScalarRules(bounds=bounds_of_remainder, step_like=True),
    Sqr: ScalarRules(
        bounds=lambda node, inputs: power(inputs[0], 2),
        degree=lambda node, degrees: 2 * degrees[0],
        least=0.0,
        tame=True,
    ),
    Pow: ScalarRules(bounds=bounds_of_power, degree=degree_of_power, unread=unread_base, simpler=squared),
    Exp: ScalarRules(least=0.0),
    Abs: ScalarRules(bounds=bounds_of_absolute_value, tame=True),
    Sign: ScalarRules(bounds=bounds_of_sign, tame=True, step_like=True),
    Ceil: ScalarRules(
        bounds=lambda node, inputs: rounded(inputs[0], math.ceil), bounds_of_floats=True, step_like=True
    ),
    Floor: ScalarRules(
        bounds=lambda node, inputs: rounded(inputs[0], math.floor), bounds_of_floats=True, step_like=True
    ),
    Trunc: ScalarRules(step_like=True),
    RoundHalfToEven: ScalarRules(step_like=True),
    RoundHalfAwayFromZero: ScalarRules(step_like=True),
    ScalarMaximum: ScalarRules(bounds=bounds_of_maximum, bounds_of_floats=True, tame=True),
    ScalarMinimum: ScalarRules(bounds=bounds_of_minimum, bounds_of_floats=True, tame=True),
    Clip: ScalarRules(bounds=bounds_of_clip, bounds_of_floats=True, tame=True),
    Sigmoid: ScalarRules(least=0.0, most=1.0, tame=True),
    Softplus: ScalarRules(least=0.0),
    Tanh: ScalarRules(tame=True),
    Switch: ScalarRules(
        bounds=lambda node, inputs: hull(*inputs[1:]),
        bounds_of_floats=True,
        degree=lambda node, degrees: max(degrees[1:]) if degrees[0] == 0 else math.inf,
        unread=unread_branches,
        tame=True,
    ),
    Cast: ScalarRules(
        bounds=bounds_of_cast,
        bounds_of_floats=True,
        degree=degree_of_cast,
        summands=summands_of_cast,
        tame=True,
    ),
    Identity: ScalarRules(
        bounds=lambda node, inputs: inputs[0],
        bounds_of_floats=True,
        degree=largest_degree,
        summands=lambda node, graph: [(node.inputs[0], None)],
        selects=True,
        tame=True,
    ),
    Second: ScalarRules(bounds=lambda node, inputs: inputs[1], degree=largest_degree, tame=True),
    EQ: COMPARISON._replace(simpler=decided_by_bounds(surely_equal, surely_different)),
    NEQ: COMPARISON._replace(simpler=decided_by_bounds(surely_different, surely_equal)),
    LT: COMPARISON._replace(simpler=decided_by_bounds(surely_less, of_second_and_first(surely_at_most))),
    LE: COMPARISON._replace(simpler=decided_by_bounds(surely_at_most, of_second_and_first(surely_less))),
    GT: COMPARISON._replace(simpler=decided_by_bounds(of_second_and_first(surely_less), surely_at_most)),
    GE: COMPARISON._replace(simpler=decided_by_bounds(of_second_and_first(surely_at_most), surely_less)),
    AND: ScalarRules(
        bounds=bounds_of_conjunction, unread=unread_beside_zero, simpler=without_constants, selects=True
    ),
    OR: ScalarRules(
        bounds=bounds_of_disjunction, unread=unread_beside_true, simpler=without_constants, selects=True
    ),
    XOR: ScalarRules(bounds=bounds_of_bits, selects=True),
    Invert: ScalarRules(bounds=bounds_of_inverted_bits, selects=True),
}
COMPARISONS = (EQ, NEQ, LT, LE, GT, GE)
# functions whose results are finite for all finite arguments, besides the functions with `tame` in the table
STAY_FINITE = (Exp, Softplus, Ceil, Floor, Trunc, RoundHalfToEven, RoundHalfAwayFromZero)
SELECTORS = tuple(op for op, rules in SCALAR_RULES.items() if rules.selects)


def rules_of(op: ScalarOp) -> ScalarRules:
    """What is known of a scalar Op: its row of the table `SCALAR_RULES`, or the defaults."""
    return SCALAR_RULES.get(type(op), ScalarRules())


# ---------------------------------------------------------------- the rules of Elemwise
@elements_of.register
def _(op: Elemwise, node: Apply, graph: LogpGraph) -> Elements | None:
    rules, shape = rules_of(op.scalar_op), graph.shape(node.outputs[0])
    n_out = int(np.prod(shape))
    unread = {} if rules.unread is None else rules.unread(op.scalar_op, node.inputs, graph)
    reads: list[np.ndarray | None] = []
    for j, i in enumerate(node.inputs):
        if j not in unread and graph.shape(i) == shape:
            reads.append(in_order(n_out))
            continue
        ids = np.arange(graph.size(i)).reshape(graph.shape(i))
        if j in unread:
            ids = np.where(unread[j], -1, ids)
        reads.append(np.broadcast_to(ids, shape).reshape(n_out, 1))
    # `log_gamma` looks up its values in a table. This does not pay for an argument that does not depend on
    # the block, whose log Gamma is computed only once.
    depends = graph.depends(node.inputs[0])
    scalar = log_gamma if depends and is_integer_log_gamma(node) else jax_funcify(op.scalar_op, node=node)
    return Elements(reads, lambda values, _: scalar(*values), passes=rules.selects)


@bounds_after.register
def _(op: Elemwise, node: Apply, inputs: list[Interval]) -> Interval:
    rules = rules_of(op.scalar_op)
    if rules.bounds is None or not (rules.bounds_of_floats or is_whole(node.outputs[0])):
        return (
            -math.inf if rules.least is None else rules.least,
            math.inf if rules.most is None else rules.most,
        )
    return rules.bounds(node, inputs)


@hold_for_floats.register
def _(op: Elemwise) -> bool:
    rules = rules_of(op.scalar_op)
    return rules.bounds_of_floats or rules.least is not None or rules.most is not None


@stays_finite.register
def _(op: Elemwise, node: Apply, bounds: IntegerBounds) -> bool:
    if isinstance(op.scalar_op, TrueDiv):
        low, high = bounds.of(node.inputs[1])
        return 0 < low <= high or low <= high < 0
    return rules_of(op.scalar_op).tame or isinstance(op.scalar_op, STAY_FINITE)


@degree_after.register
def _(op: Elemwise, node: Apply, degrees: list[float]) -> float:
    rule = rules_of(op.scalar_op).degree
    return math.inf if rule is None else rule(node, degrees)


@error_after.register
def _(op: Elemwise, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    if is_switch(node):
        return pt.switch(node.inputs[0], *(0.0 if e is None else e for e in errors[1:]))
    parts = [abs(out)]
    for n, e in enumerate(errors):
        if e is not None:
            # An input without an error adds no error, also where the slope is infinite and 0 times the slope
            # would be nan.
            parts.append(pt.switch(pt.eq(e, 0), 0.0, abs(slope(op, node.inputs, n)) * e))
    return pt.add(*parts) if len(parts) > 1 else parts[0]


def slope(op: Elemwise, inputs: list[Variable], n: int) -> Variable:
    """The derivative of an elementwise function with respect to input n; 1 where PyTensor has none."""
    if (rule := rules_of(op.scalar_op).slope) is not None:
        return rule(inputs, n)
    # The inputs are broadcast first, since the gradient by an input that is broadcast would be summed over
    # its elements.
    args = pt.broadcast_arrays(*inputs) if len(inputs) > 1 else inputs
    try:
        return pytensor.grad(
            op(*args).sum(), args[n], disconnected_inputs="ignore", return_disconnected="zero"
        )
    except (NotImplementedError, MethodNotDefined, NullTypeGradError, TypeError, ValueError):
        return pt.ones(())


@keeps_magnitude.register
def _(op: Elemwise, node: Apply) -> bool:
    return node.outputs[0].type.dtype == "bool" or rules_of(op.scalar_op).tame


@summands_of.register
def _(op: Elemwise, node: Apply, graph: LogpGraph) -> Summands | None:
    rule = rules_of(op.scalar_op).summands
    return None if rule is None or not adds_up(node.outputs[0]) else rule(node, graph)


@simplified.register
def _(
    op: Elemwise, node: Apply, inputs: list[Variable], moving: Depends, bounds: IntegerBounds
) -> Variable | None:
    rule = rules_of(op.scalar_op).simpler
    return None if rule is None else rule(node, inputs, bounds)


@for_rows.register
def _(op: Elemwise, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    return op(*inputs)


with_axis.register(Elemwise)(vectorised)
