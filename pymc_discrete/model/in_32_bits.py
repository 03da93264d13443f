"""Integers that may exceed 32 bits, in a program that computes with 32-bit integers.

PyTensor computes a model's integers with 64 bits. With 32 bits, their sums, products and powers wrap around
silently. An integer tensor v whose bounds (interval arithmetic) exceed 32 bits is called *wide* here and is
represented twice: by `low`, a 32-bit integer equal to v modulo 2^32, which is what wrapping arithmetic gives,
and by `approximation`, a float close to v. The two together are enough for:

- a function of floats that reads v: v to the precision of floats;
- a comparison: the difference of two such integers modulo 2^32 has the right sign where they are close to
  each other, and the difference of their floats has it where they are not;
- recording v with 64 bits (`words`): the float determines the multiple of 2^32 that `low` lacks.

An operation that needs more (a remainder, an integer division) raises an error that names it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.exceptions import SamplingError
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.printing import pp
from pytensor.scalar.basic import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NEQ,
    Abs,
    Add,
    Cast,
    Clip,
    Identity,
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
from pytensor.scan.op import Scan
from pytensor.tensor.basic import AllocEmpty, Nonzero
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp, SearchsortedOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pymc_discrete.model.support import bounds_of
from pymc_discrete.structure.bounds import (
    REARRANGING,
    UNKNOWN,
    IntegerBounds,
    Interval,
    extent,
    hull,
    is_whole,
)
from pymc_discrete.structure.integers import is_integer_log_gamma
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.rebuild import remade
from pymc_discrete.structure.scalar_ops import applies, is_switch

LARGEST_INT32 = float(np.iinfo(np.int32).max)
# An integer that may exceed 32 bits is represented modulo 2^32 and by a float close to it. Where the float,
# of the integer or of a difference of two, is smaller than this, the integer modulo 2^32 is exact and is
# used; otherwise the float is used.
EXACT_MODULO = 2.0**30
# A variable without bounds is assumed to stay within +-ASSUMED_BOUND; `check_in_32_bits` checks its draws.
ASSUMED_BOUND = 2**30
WIDER_FLOATS = (
    "Or pass dtype='float64' to pmd.sample; for pm.sample leave pytensor.config.floatX at 'float64'."
)
COMPARING_OPS = (EQ, NEQ, LT, LE, GT, GE)
# functions whose output is right modulo 2^32 if their inputs are (ring operations and selections)
RING = (Add, Sub, Mul, Neg, Sqr, Identity, Second, Switch)
# Ops that return positions in an array, which always fit into 32 bits
POSITIONS = (Argmax, ArgSortOp, Nonzero, SearchsortedOp)
# {Op: index of the first input that is an index or a shape; the inputs before it are data}
INDEXING: dict[type, int] = {AdvancedIncSubtensor: 2, AdvancedSubtensor: 1, IncSubtensor: 2, Subtensor: 1}


class BoundsIn32Bits(IntegerBounds):
    """Bounds of integers in a 32-bit program.

    Integers that are cast from floats, that are positions in an array or that an Op makes from constants
    alone are within 32 bits.
    """

    def after_one(self, node: Apply, out: Variable, values: list[Interval]) -> Interval:
        bounds = super().after_one(node, out, values)
        casts = applies(node, Cast)
        from_float = casts and not is_whole(node.inputs[0])
        # Integers without known bounds that an Op such as `eye` makes from constants count as within 32 bits.
        of_constants = bounds == UNKNOWN and all(isinstance(i, Constant) for i in node.inputs)
        if is_whole(out) and (from_float or of_constants or isinstance(node.op, POSITIONS)):
            # JAX casts a float outside the range of int32 to the nearest end of the range
            return -LARGEST_INT32, LARGEST_INT32
        return bounds


class In32Bits:
    """Rewrites a graph for 32-bit numbers.

    Parameters
    ----------
    outputs : [(name, tensor)]; the names are for messages
    known : {input of the graph: its bounds}

    Attributes
    ----------
    outputs : the tensors of the original graph, to be passed to `plain`, `as_float` or `words`

    Raises
    ------
    ValueError
        For an integer expression that 32-bit numbers cannot represent, which the message names.
    """

    def __init__(self, outputs: list[tuple[str, Variable]], known: dict[Variable, Interval]):
        self._bounds = BoundsIn32Bits(known)
        # Three dictionaries {variable of the original graph: variable of the rewritten graph}: of variables
        # that 32 bits can hold, of integers that may exceed 32 bits, taken modulo 2^32, and of the floats
        # close to such integers.
        self._plain: dict[Variable, Variable] = {}
        self._low: dict[Variable, Variable] = {}
        self._approximation: dict[Variable, Variable] = {}
        # integers that may exceed 32 bits and whose float is accurate to a few roundings, because no terms
        # cancel in its computation
        self._accurate: set[Variable] = set()
        self.outputs = [out for _, out in outputs]
        for name, out in outputs:
            for node in toposort([out], blockers=[*self._plain, *self._low]):
                self._name = name
                self._rewrite(node)

    # ------------------------------------------------------------ forms of a variable in the rewritten graph
    def is_wide(self, var: Variable) -> bool:
        """Whether a variable of the original graph is an integer that may exceed 32 bits."""
        return var in self._low

    def plain(self, var: Variable) -> Variable:
        """The rewritten form of a variable that 32 bits can hold."""
        return self._plain.get(var, var)

    def low(self, var: Variable) -> Variable:
        """An integer modulo 2^32 in the rewritten graph, as int32: later rewrites split no sum of int32."""
        return self._low[var] if var in self._low else wrapped(self.plain(var))

    def index(self, var: Variable) -> Variable:
        """The rewritten form of a variable that is used as an index or as a shape."""
        return self._low[var] if var in self._low else self.plain(var)

    def approximation(self, var: Variable) -> Variable:
        """The rewritten form of an integer as a float close to it."""
        known = self._approximation.get(var)
        return pt.cast(self.plain(var), pytensor.config.floatX) if known is None else known

    def value(self, var: Variable) -> Variable:
        """The form in which a function of floats reads a variable: a float, if it may exceed 32 bits."""
        if not self.is_wide(var):
            return self.plain(var)
        close = self._approximation[var]
        if var in self._accurate:
            return close
        return pt.switch(pt.lt(abs(close), EXACT_MODULO), pt.cast(self._low[var], close.type.dtype), close)

    def as_float(self, var: Variable) -> Variable:
        """The form in which a function of floats reads a variable, with every integer cast to a float.

        Booleans, floats, and inputs such as slices keep their types.
        """
        value = self.value(var)
        whole = is_whole(value) and value.type.dtype != "bool"
        return pt.cast(value, pytensor.config.floatX) if whole else value

    def words(self, var: Variable) -> Variable:
        """(..., 2) int, the lower and the upper 32 bits of an integer that may exceed 32 bits."""
        low, close = self._low[var], self._approximation[var]
        missing = pt.round((close - pt.cast(low, close.type.dtype)) / 2.0**32)
        return pt.stack([low, pt.cast(missing, "int32") - pt.cast(low < 0, "int32")], axis=-1)

    # ------------------------------------------------------------ one node
    def _limits(self, var: Variable) -> Interval:
        low, high = self._bounds.of(var)
        if isinstance(var, Constant) and max(-low, high) > LARGEST_INT32 and np.size(var.data):
            self._refuse(var, f"is or holds the integer {max(-low, high):.0f}, which 32 bits do not hold")
        return low, high

    def _rewrite(self, node: Apply) -> None:
        for n, i in enumerate(node.inputs):
            if is_whole(i) and self._is_data(node, n):
                self._limits(i)
        reads_wide, out = any(self.is_wide(i) for i in node.inputs), node.outputs[0]
        wide = [o for o in node.outputs if is_whole(o) and not self._fits_32_bits(o)]
        if wide:
            self._represent_twice(node, wide[0])
        elif not is_whole(out):
            # The integer inputs of a function of floats become floats first. Otherwise a later rewrite could
            # move a sum or a product before the conversion, where integers wrap around.
            keep_integers = is_integer_log_gamma(node) and not reads_wide
            self._keep_op(node, self.plain if keep_integers else self.as_float)
        elif not reads_wide:
            self._keep_op(node, self.plain)
        elif out.type.dtype == "bool":
            self._plain[out] = self._condition(node)
        elif (choice := self._by_comparisons(node, self.low)) is not None:
            self._plain[out] = choice
        elif self._is_right_modulo(node):
            # the result is right modulo 2^32 and within 32 bits, and therefore exact
            self._keep_op(node, self.low)
            self._plain[out] = wrapped(self._plain[out])
        else:
            self._refuse(out, "reads an integer that may leave 32 bits")

    def _fits_32_bits(self, var: Variable) -> bool:
        """Whether an integer needs no more than 32 bits; shorter dtypes wrap around in PyTensor too."""
        low, high = self._limits(var)
        return (low >= -LARGEST_INT32 and high <= LARGEST_INT32) or np.dtype(var.type.dtype).itemsize < 8

    def _inputs(self, node: Apply, form: Callable[..., Any]) -> list[Any]:
        """The inputs of a node in the rewritten graph: `form(input)` for the inputs that are data."""
        return [form(i) if self._is_data(node, n) else self.index(i) for n, i in enumerate(node.inputs)]

    def _keep_op(self, node: Apply, form: Callable[..., Any]) -> None:
        """Apply the Op of a node in the rewritten graph, to `form(input)` for the inputs that are data."""
        inputs = self._inputs(node, form)
        if is_switch(node):
            inputs[0] = self._is_nonzero(node.inputs[0])
        outputs = node.outputs
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            same = all(a.type == b.type for a, b in zip(inputs, node.inputs, strict=True))
            outputs = node.clone_with_new_inputs(inputs).outputs if same else remade(node, inputs)
        self._plain.update(zip(node.outputs, outputs, strict=True))

    def _is_data(self, node: Apply, n: int) -> bool:
        """Whether input n of a node is data, rather than an index or a shape."""
        if isinstance(node.op, Scan):
            return n > 0  # the first input of a Scan is the number of steps
        if isinstance(node.op, AllocEmpty):
            return False
        first = INDEXING.get(type(node.op), REARRANGING.get(type(node.op)))
        return first is None or n < first

    def _represent_twice(self, node: Apply, out: Variable) -> None:
        """Compute an output that may exceed 32 bits modulo 2^32 and as a float."""
        choice = self._by_comparisons(node, self.low)
        if choice is not None:
            self._low[out] = choice
            self._approximation[out] = self._by_comparisons(node, self.approximation)
        elif self._is_right_modulo(node) and out.type.dtype == "int64" and len(node.outputs) == 1:
            low, close = self._inputs(node, self.low), self._inputs(node, self.approximation)
            if is_switch(node):
                low[0] = close[0] = self._is_nonzero(node.inputs[0])
            self._low[out] = wrapped(remade(node, low)[0])
            self._approximation[out] = close[0] if applies(node, Cast) else remade(node, close)[0]
        else:
            self._refuse(out, "may leave 32 bits")
        if self._is_accurate(node):
            self._accurate.add(out)

    def _is_right_modulo(self, node: Apply) -> bool:
        """Whether the Op of a node, applied to integers modulo 2^32, gives its output modulo 2^32."""
        op, scalar = node.op, getattr(node.op, "scalar_op", None)
        if isinstance(op, Elemwise):
            if isinstance(scalar, Pow):
                return self._limits(node.inputs[1])[0] >= 0 and not self.is_wide(node.inputs[1])
            return isinstance(scalar, RING) or (isinstance(scalar, Cast) and is_whole(node.inputs[0]))
        if isinstance(op, CAReduce):
            return isinstance(scalar, Add | Mul)
        rearranges = type(op) in REARRANGING and not isinstance(op, SortOp)
        multiplies = isinstance(op, Dot) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot))
        return rearranges or multiplies or isinstance(op, CumOp | IncSubtensor | AdvancedIncSubtensor)

    def _is_accurate(self, node: Apply) -> bool:
        """Whether a node computed in floats is accurate to a few roundings, since it adds no terms of
        opposite sign.
        """
        scalar = getattr(node.op, "scalar_op", None)
        if not all(i in self._accurate for i in node.inputs if self.is_wide(i)):
            return False
        if (
            isinstance(scalar, Mul | Sqr | Pow | Neg | Switch | Cast | Identity | Second)
            or type(node.op) in REARRANGING
        ):
            return True
        limits = [self._limits(i) for n, i in enumerate(node.inputs) if self._is_data(node, n)]
        if isinstance(scalar, Sub):
            limits[1] = (-limits[1][1], -limits[1][0])
        if isinstance(node.op, Dot | Blockwise):
            return all(low >= 0 for low, _ in limits)
        adds = (
            isinstance(scalar, Add | Sub)
            or isinstance(node.op, CumOp)
            or getattr(node.op, "set_instead_of_inc", True) is False
        )
        return adds and (all(low >= 0 for low, _ in limits) or all(high <= 0 for _, high in limits))

    # ------------------------------------------------------------ comparisons, and functions written as
    # comparisons
    def _compared(self, op: Elemwise, a: Variable, b: Variable) -> Variable:
        """The exact result of a comparison `op(a, b)` of integers."""
        difference = self.approximation(a) - self.approximation(b)
        exact = op(self.low(a) - self.low(b), np.zeros((), self.low(a).type.dtype))
        return pt.switch(
            pt.lt(abs(difference), EXACT_MODULO), exact, op(difference, np.zeros((), difference.type.dtype))
        )

    def _is_nonzero(self, var: Variable) -> Variable:
        """A condition that is true where a variable is not 0; the variable itself, if 32 bits can hold it."""
        if not self.is_wide(var):
            return self.plain(var)
        return self._compared(pt.neq, var, pt.constant(np.zeros((), var.type.dtype)))

    def _condition(self, node: Apply) -> Variable:
        """The boolean output of a node that reads an integer that may exceed 32 bits."""
        scalar = getattr(node.op, "scalar_op", None)
        if isinstance(node.op, Elemwise) and isinstance(scalar, COMPARING_OPS):
            if any(not is_whole(i) for i in node.inputs):
                return node.op(*map(self.value, node.inputs))
            return self._compared(node.op, *node.inputs)
        if isinstance(node.op, Elemwise) and isinstance(scalar, Cast):
            return self._is_nonzero(node.inputs[0])
        return self._refuse(node.outputs[0], "reads an integer that may leave 32 bits")

    def _by_comparisons(self, node: Apply, form: Callable[[Variable], Variable]) -> Variable | None:
        """The output of a node written with comparisons and switches; None for an Op that is not rewritten
        so.

        The rewritten Ops are maximum, minimum, absolute value, clip and sign, which are wrong modulo 2^32,
        while comparisons are exact.

        Parameters
        ----------
        form : the form of the result, `low` (modulo 2^32) or `approximation` (a float)
        """
        scalar = getattr(node.op, "scalar_op", None)
        if not isinstance(node.op, Elemwise) or not isinstance(
            scalar, ScalarMaximum | ScalarMinimum | Abs | Clip | Sign
        ):
            return None
        zero = pt.constant(np.zeros((), node.outputs[0].type.dtype))
        first = node.inputs[0]
        if isinstance(scalar, Sign):
            above, below = (self._compared(op, first, zero) for op in (pt.gt, pt.lt))
            return pt.cast(above, form(zero).type.dtype) - pt.cast(below, form(zero).type.dtype)
        if isinstance(scalar, Abs):
            return pt.switch(self._compared(pt.lt, first, zero), -form(first), form(first))
        if len(node.inputs) > 2 and not isinstance(scalar, Clip):
            return None
        if isinstance(scalar, Clip):
            _, low, high = node.inputs
            above, below = self._compared(pt.gt, first, high), self._compared(pt.lt, first, low)
            return pt.switch(below, form(low), pt.switch(above, form(high), form(first)))
        a, b = node.inputs
        larger = self._compared(pt.ge, a, b)
        if isinstance(scalar, ScalarMaximum):
            return pt.switch(larger, form(a), form(b))
        return pt.switch(larger, form(b), form(a))

    def _refuse(self, var: Variable, reason: str) -> Any:
        inputs = [str(v.name) for v in graph_inputs([var]) if v.name and not isinstance(v, Constant)]
        shown = "a constant" if isinstance(var, Constant) else pp(var)
        shown = shown if len(shown) <= 120 else f"{shown[:120]}..."
        raise ValueError(
            f"In {self._name!r} the integer expression "
            f"{shown}{' of ' if inputs else ''}{', '.join(map(repr, inputs))} {reason}. Write it in floats, "
            f"or give its variables bounds. {WIDER_FLOATS}"
        )


def wrapped(var: Variable) -> Variable:
    """A tensor cast to int32, modulo 2^32; other variables, such as slices, are unchanged."""
    return pt.cast(var, "int32") if isinstance(var.type, TensorType) else var


def in_32_bits(outputs: list[tuple[str, Variable]], known: dict[Variable, Interval]) -> list[Variable]:
    """Tensors rewritten for 32-bit numbers, with integers as floats.

    Parameters
    ----------
    outputs : [(name, tensor)]; the names are for messages
    known : {input of the graph: its bounds}
    """
    graph = In32Bits(outputs, known)
    return [graph.as_float(out) for out in graph.outputs]


def narrowed(graph: LogpGraph, model: pm.Model, supports: dict[str, Any]) -> LogpGraph:
    """The graph of a log density, rewritten for 32-bit numbers.

    Parameters
    ----------
    supports : {name: (lower, upper)} of discrete variables; others have the bounds of their distributions

    Raises
    ------
    ValueError
        For an integer that 32-bit numbers cannot represent, which the message names.
    """
    known = bounds_of_values(model, supports)
    terms = [*graph.terms, *graph.untouched]
    bounds = {
        v: hull(*(known[name] for name in members))
        for v, members in graph.groups.items()
        if all(name in known for name in members)
    }
    tensors = in_32_bits(terms, bounds)
    named = list(zip([name for name, _ in terms], tensors, strict=True))
    return replace(graph, terms=named[: len(graph.terms)], untouched=named[len(graph.terms) :])


def bounds_of_values(model: pm.Model, supports: dict[str, Any]) -> dict[str, Interval]:
    """{name: bounds} of the discrete value variables: from `supports`, or else from the distribution.

    A missing bound is replaced by -`ASSUMED_BOUND` or `ASSUMED_BOUND`.

    Raises
    ------
    ValueError
        For bounds that do not fit into 32 bits.
    """
    bounds = {}
    for value in model.discrete_value_vars:
        name, rv = str(value.name), model.values_to_rvs[value]
        bounds[name] = extent(supports.get(name) or bounds_of(rv) or (None, None), ASSUMED_BOUND)
        far = max(-bounds[name][0], bounds[name][1])
        if far > LARGEST_INT32:
            raise ValueError(
                f"{name!r} may be as far as {far:.0f} from 0, which 32 bits do not hold. {WIDER_FLOATS}"
            )
    return bounds


def check_in_32_bits(name: str, values: np.ndarray) -> None:
    """Refuse values of a discrete variable that exceed `ASSUMED_BOUND`, which `bounds_of_values` assumes.

    Raises
    ------
    pymc.exceptions.SamplingError
    """
    far = int(np.abs(values).max(initial=0))
    if far > ASSUMED_BOUND:
        raise SamplingError(
            f"{name!r} went as far as {far}: integers of 32 bits end at {LARGEST_INT32:.0f}. {WIDER_FLOATS}"
        )
