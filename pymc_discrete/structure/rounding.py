"""The largest effect of rounding on a log density: a running error analysis of its graph (Higham 2002,
section 3.3).

Terms of 1e8 nats that cancel leave a log density of 10 nats that is known to 1e-8 only. To first order, and
in units of the spacing of floats at 1, the error of a tensor v = f(a, b) is at most

    E(v) = |v| + |df/da| E(a) + |df/db| E(b)

The rules of Ops are in `ops/`.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from pymc_discrete.structure.analysis import Analysis

# For each operation, this many roundings are allowed: XLA's functions have larger errors than one rounding,
# and XLA may add terms in another order.
ROUNDINGS = 64.0
NOT_WORTH_IT = 1e-8  # nats; smaller deviations of a log density are never reported


class Rounding(Analysis[Variable | None]):
    """For each float tensor of a graph, a graph of its error bound E; None for other variables."""

    def __init__(self) -> None:
        super().__init__({})

    def at_leaf(self, var: Variable) -> Variable | None:
        # an input of the graph has no rounding error
        return pt.zeros_like(var, dtype="float64") if is_float(var) else None

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
    error = pt.zeros(()) if error is None else error  # the bound is None for integers, which are not rounded
    return pytensor.function(inputs, error, mode="FAST_COMPILE", on_unused_input="ignore")


def room(error: Any, eps: float) -> Any:
    """The number of nats by which two ways to compute a log density may differ because of rounding.

    Parameters
    ----------
    error : the result of the function `rounding_of`
    eps : the spacing of floats at 1
    """
    return np.maximum(ROUNDINGS * eps * np.asarray(error), NOT_WORTH_IT)


def is_float(var: Variable) -> bool:
    return getattr(var.type, "dtype", "").startswith("float")


def finite(var: Variable) -> Variable:
    """A tensor whose infinite and nan elements are replaced by 0."""
    return pt.switch(pt.isinf(var) | pt.isnan(var), 0.0, var)


@singledispatch
def error_after(op: Op, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    """The error bound of an output of a node, given the error bounds of its inputs, None for inputs that are
    no floats.

    For an Op without a rule, the bound is |out|, plus the largest error and the largest magnitude of each
    input.
    """
    largest = [
        e.max() + finite(abs(i)).max() for i, e in zip(node.inputs, errors, strict=True) if e is not None
    ]
    return abs(out) + (pt.add(*largest) if len(largest) > 1 else largest[0] if largest else 0.0)
