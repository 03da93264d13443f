"""Bounds of sums of counts that limit each other, such as those who are ill of a population.

Interval arithmetic looks at each variable alone: I = I0 + infections - removals, over t weeks, may be t times
the population by its rules. But infections are at most those who are not yet infected, a sum of the earlier
ones, and with that in their place all but the population cancels.
"""

import math
from collections.abc import Callable

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Sub
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.bounds import IntegerBounds, Interval, product

# {variable: coefficient}: each element of a tensor is the sum of the elements that are broadcast to it, times
# the coefficients. None stands for the constant 1.
Form = dict[Variable | None, float]


class LinearForms(Analysis[Form]):
    """Integer tensors as linear forms of others, element by element; what is not linear is its own form.

    Parameters
    ----------
    bounds : of the tensors
    is_random : whether a variable is not to be taken apart
    """

    def __init__(self, bounds: IntegerBounds, is_random: Callable[[Variable], bool]):
        super().__init__({})
        self._bounds, self._is_random = bounds, is_random

    def is_leaf(self, var: Variable) -> bool:
        op = var.owner.op
        if self._is_random(var):
            return True
        if isinstance(op, DimShuffle):
            return not self._only_expands(op)
        return not (
            isinstance(op, Elemwise)
            and isinstance(op.scalar_op, Add | Cast | Identity | Mul | Neg | Sub)
            # those of fewer bits may wrap around
            and var.type.dtype == "int64"
            and all(i.type.dtype.startswith(("int", "bool")) for i in var.owner.inputs)
        )

    def _only_expands(self, op: DimShuffle) -> bool:
        """Whether an Op only adds dimensions on the left, as broadcasting does."""
        kept = [axis for axis in op.new_order if axis != "x"]
        return kept == list(range(op.input_ndim)) and "x" not in op.new_order[len(op.new_order) - len(kept) :]

    def at_leaf(self, var: Variable) -> Form:
        low, high = self._bounds.of(var)
        return {None: low} if low == high and math.isfinite(low) else {var: 1.0}

    def after(self, node: Apply, values: list[Form]) -> list[Form]:
        scalar = getattr(node.op, "scalar_op", None)
        if isinstance(scalar, Add):
            return [combined([(1.0, form) for form in values])]
        if isinstance(scalar, Sub):
            return [combined([(1.0, values[0]), (-1.0, values[1])])]
        if isinstance(scalar, Neg):
            return [combined([(-1.0, values[0])])]
        if isinstance(scalar, Mul):
            numbers = [form[None] for form in values if form.keys() == {None}]
            others = [form for form in values if form.keys() != {None}]
            if len(others) > 1:
                return [{node.outputs[0]: 1.0}]
            factor = 1.0
            for number in numbers:
                factor *= number
            return [combined([(factor, others[0] if others else {None: 1.0})])]
        return [values[0]]


def combined(parts: list[tuple[float, Form]]) -> Form:
    """The sum of forms times numbers."""
    found: Form = {}
    for factor, form in parts:
        for var, coefficient in form.items():
            found[var] = found.get(var, 0.0) + factor * coefficient
    return {var: c for var, c in found.items() if c != 0} or {None: 0.0}


def end_of_form(
    var: Variable,
    largest: bool,
    bounds: IntegerBounds,
    limits_of: Callable[[Variable], tuple[Variable | None, Variable | None] | None],
) -> float:
    """The largest value of an integer tensor, or the smallest, where it is a sum of variables with limits.

    The variables are replaced by their limits, the last first, and the limits may depend on those before.

    Parameters
    ----------
    bounds : of all tensors of the graph
    limits_of : the limits (lower, upper) of a variable, None for one that is 0; or None if it has no limits
        that are tensors
    """
    forms = LinearForms(bounds, lambda v: limits_of(v) is not None)
    form = forms.of(var)
    order = [out for node in toposort([var]) for out in node.outputs]
    for v in reversed(order):
        if v not in form:
            continue
        limits = limits_of(v)
        if limits is not None:
            coefficient = form[v]
            limit = limits[int(largest == (coefficient > 0))]
            parts = [(1.0, {other: c for other, c in form.items() if other is not v} or {None: 0.0})]
            if limit is not None:
                parts.append((coefficient, forms.of(limit)))
            form = combined(parts)
    ends: list[Interval] = [(c, c) if v is None else product((c, c), bounds.of(v)) for v, c in form.items()]
    return sum(end[int(largest)] for end in ends)
