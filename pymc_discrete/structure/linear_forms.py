"""Bounds of sums of counts that limit each other, such as the numbers of people who are ill.

Interval arithmetic looks at each variable alone: by its rules, I = I0 + infections - removals over t weeks
may be t times the population. But the infections of a week are at most the number of people not yet infected,
which is the population less the earlier infections. With this limit in place of the infections, everything
but the population cancels.
"""

import math
from collections.abc import Callable

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Sub
from pytensor.tensor.elemwise import DimShuffle

from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.bounds import IntegerBounds, Interval, product
from pymc_discrete.structure.scalar_ops import computed_by

# {variable: coefficient}: each element of a tensor is the sum of the coefficients times the elements that are
# broadcast to it. The key None stands for the constant 1.
Form = dict[Variable | None, float]


class LinearForms(Analysis[Form]):
    """Integer tensors as linear forms of other tensors, element by element; any other tensor is its own form.

    Parameters
    ----------
    bounds : the bounds of all tensors of the graph; a tensor whose two bounds are equal is a constant
    is_random : (variable) -> whether the variable is its own form, although it is computed from others
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
            computed_by(var, Add, Cast, Identity, Mul, Neg, Sub)
            # integers of fewer than 64 bits may wrap around, and then a sum of them is no linear form
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
    """The sum of linear forms, each times a number."""
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
    """The largest or the smallest value of an integer tensor that is a sum of variables with limits.

    The variables are replaced by their limits, the last variable first. The limits may depend on earlier
    variables.

    Parameters
    ----------
    bounds : the bounds of all tensors of the graph
    limits_of : (variable) -> its limits (lower, upper), where None stands for 0; or None if it has no limits
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
