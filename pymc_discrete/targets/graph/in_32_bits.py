"""Integers that leave 32 bits, in programs whose numbers have 32.

A model's integers have 64 bits in PyTensor. In such a program they have 32, and sums, products and powers of
them wrap around in silence. An integer tensor v that may leave 32 bits, by its bounds, is therefore kept
twice: as a float near v, and modulo 2^32, as wrapped integers are by themselves. Together they say all that
is asked for:

- a float, where v enters a function of floats: v itself to the precision of floats;
- a comparison: the difference of two such integers, modulo 2^32, has the right sign wherever they are near
  one another;
- 64 bits, where v is recorded (`words`): the float says how often 2^32 is missing.

What asks for more (a remainder, an integer division) is refused by name.
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
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp, SearchsortedOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pymc_discrete.targets.graph.bounds import MOVING, UNKNOWN, Bounds, IntegerBounds, extent, hull, is_whole
from pymc_discrete.targets.graph.integers import is_integer_log_gamma
from pymc_discrete.targets.graph.logp_graph import LogpGraph
from pymc_discrete.targets.graph.rebuild import remade
from pymc_discrete.targets.support import bounds_of

LARGEST = float(np.iinfo(np.int32).max)
FAR = 2.0**30  # further from 0 than this, the float says what a number is; nearer, what is modulo 2^32 does
UNBOUNDED = 2**30  # what a variable without bounds is taken to stay below, and is watched for
REMEDY = "Or pass dtype='float64' to pmd.sample; for pm.sample leave pytensor.config.floatX at 'float64'."
COMPARISONS = (EQ, NEQ, LT, LE, GT, GE)
RING = (
    Add,
    Sub,
    Mul,
    Neg,
    Sqr,
    Identity,
    Second,
    Switch,
)  # which wrapped integers compute right, modulo 2^32
PLACES = (Argmax, ArgSortOp, Nonzero, SearchsortedOp)  # whose integers are places in an array
# inputs that are places or shapes, and not data, from which one on
INDEXING: dict[type, int] = {AdvancedIncSubtensor: 2, AdvancedSubtensor: 1, IncSubtensor: 2, Subtensor: 1}


class BoundsIn32Bits(IntegerBounds):
    """Bounds of integers in a program whose numbers have 32 bits: what is made of floats, or is a place in an
    array, stays in them.
    """

    def after_one(self, node: Apply, out: Variable, values: list[Bounds]) -> Bounds:
        bounds = super().after_one(node, out, values)
        casts = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast)
        of_float = casts and not is_whole(node.inputs[0])
        made = bounds == UNKNOWN and all(isinstance(i, Constant) for i in node.inputs)  # as by `eye`
        if is_whole(out) and (of_float or made or isinstance(node.op, PLACES)):
            return -LARGEST, LARGEST  # what a float beyond them becomes is their end
        return bounds


class In32Bits:
    """Rewrites a graph for numbers of 32 bits.

    Parameters
    ----------
    outputs : [(name, tensor)], the names for messages
    known : {variable: its bounds}, of what the graph begins with
    """

    def __init__(self, outputs: list[tuple[str, Variable]], known: dict[Variable, Bounds]):
        self._bounds = BoundsIn32Bits(known)
        self._plain: dict[Variable, Variable] = {}  # what a variable becomes that stays in 32 bits
        self._low: dict[Variable, Variable] = {}  # modulo 2^32, of one that does not
        self._near: dict[Variable, Variable] = {}  # the float beside it
        # whose floats are right to a few roundings, since nothing cancels in them
        self._sure: set[Variable] = set()
        self.outputs = [out for _, out in outputs]
        for name, out in outputs:
            for node in toposort([out], blockers=[*self._plain, *self._low]):
                self._name = name
                self._rewrite(node)

    # ------------------------------------------------------------ what a variable becomes
    def is_wide(self, var: Variable) -> bool:
        """Whether it is an integer that may leave 32 bits."""
        return var in self._low

    def plain(self, var: Variable) -> Variable:
        """Itself, of what it is now made of; of one that stays in 32 bits."""
        return self._plain.get(var, var)

    def low(self, var: Variable) -> Variable:
        """Modulo 2^32, of a type that says so: sums of it are not taken apart."""
        return self._low[var] if var in self._low else wrapped(self.plain(var))

    def place(self, var: Variable) -> Variable:
        """As an index or a shape."""
        return self._low[var] if var in self._low else self.plain(var)

    def near(self, var: Variable) -> Variable:
        """As a float."""
        return self._near[var] if var in self._near else pt.cast(self.plain(var), pytensor.config.floatX)

    def value(self, var: Variable) -> Variable:
        """What functions of floats read."""
        if not self.is_wide(var):
            return self.plain(var)
        near = self._near[var]
        return (
            near
            if var in self._sure
            else pt.switch(pt.lt(abs(near), FAR), pt.cast(self._low[var], near.type.dtype), near)
        )

    def as_float(self, var: Variable) -> Variable:
        """The same, of integers that stay in 32 bits too; of others than integers itself."""
        value = self.value(var)
        whole = is_whole(value) and value.type.dtype != "bool"
        return pt.cast(value, pytensor.config.floatX) if whole else value

    def words(self, var: Variable) -> Variable:
        """(..., 2) int, the lower and the upper 32 bits of an integer that may leave them."""
        low, near = self._low[var], self._near[var]
        missing = pt.round((near - pt.cast(low, near.type.dtype)) / 2.0**32)
        return pt.stack([low, pt.cast(missing, "int32") - pt.cast(low < 0, "int32")], axis=-1)

    # ------------------------------------------------------------ one node
    def _limits(self, var: Variable) -> Bounds:
        low, high = self._bounds.of(var)
        if isinstance(var, Constant) and max(-low, high) > LARGEST and np.size(var.data):
            self._refuse(var, f"is or holds the integer {max(-low, high):.0f}, which 32 bits do not hold")
        return low, high

    def _rewrite(self, node: Apply) -> None:
        for n, i in enumerate(node.inputs):
            if is_whole(i) and self._is_data(node, n):
                self._limits(i)
        wide, out = any(self.is_wide(i) for i in node.inputs), node.outputs[0]
        leaves = [o for o in node.outputs if is_whole(o) and not self._stays(o)]
        if leaves:
            self._keep_twice(node, leaves[0])
        elif not is_whole(out):
            # as floats, or a sum or product that is taken in another order would wrap around before it
            # becomes one
            self._as_it_is(node, self.plain if is_integer_log_gamma(node) and not wide else self.as_float)
        elif not wide:
            self._as_it_is(node, self.plain)
        elif out.type.dtype == "bool":
            self._plain[out] = self._condition(node)
        elif (chosen := self._selected(node, self.low)) is not None:
            self._plain[out] = chosen
        elif self._wraps_well(node):
            self._as_it_is(node, self.low)  # right modulo 2^32, and within 32 bits
            self._plain[out] = wrapped(self._plain[out])
        else:
            self._refuse(out, "reads an integer that may leave 32 bits")

    def _stays(self, var: Variable) -> bool:
        """Whether an integer stays within 32 bits; one of a shorter type wraps around in PyTensor too."""
        low, high = self._limits(var)
        return (low >= -LARGEST and high <= LARGEST) or np.dtype(var.type.dtype).itemsize < 8

    def _as_it_is(self, node: Apply, what: Callable[..., Any]) -> None:
        """The node on other inputs, `what(input)` of its data."""
        inputs = [what(i) if self._is_data(node, n) else self.place(i) for n, i in enumerate(node.inputs)]
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Switch):
            inputs[0] = self._truth(node.inputs[0])
        made = node.outputs
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            same = all(a.type == b.type for a, b in zip(inputs, node.inputs, strict=True))
            made = node.clone_with_new_inputs(inputs).outputs if same else remade(node, inputs)
        self._plain.update(zip(node.outputs, made, strict=True))

    def _is_data(self, node: Apply, n: int) -> bool:
        first = INDEXING.get(type(node.op), MOVING.get(type(node.op)))
        return first is None or n < first

    def _keep_twice(self, node: Apply, out: Variable) -> None:
        chosen = self._selected(node, self.low)
        if chosen is not None:
            self._low[out], self._near[out] = chosen, self._selected(node, self.near)
        elif self._wraps_well(node) and out.type.dtype == "int64" and len(node.outputs) == 1:
            low = [
                self.low(i) if self._is_data(node, n) else self.place(i) for n, i in enumerate(node.inputs)
            ]
            near = [
                self.near(i) if self._is_data(node, n) else self.place(i) for n, i in enumerate(node.inputs)
            ]
            if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Switch):
                low[0] = near[0] = self._truth(node.inputs[0])
            self._low[out] = wrapped(remade(node, low)[0])
            cast = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast)
            self._near[out] = near[0] if cast else remade(node, near)[0]
        else:
            self._refuse(out, "may leave 32 bits")
        if self._is_sure(node):
            self._sure.add(out)

    def _wraps_well(self, node: Apply) -> bool:
        """Whether the node of wrapped integers is the wrapped integer that it should be."""
        op, scalar = node.op, getattr(node.op, "scalar_op", None)
        if isinstance(op, Elemwise):
            if isinstance(scalar, Pow):
                return self._limits(node.inputs[1])[0] >= 0 and not self.is_wide(node.inputs[1])
            return isinstance(scalar, RING) or (isinstance(scalar, Cast) and is_whole(node.inputs[0]))
        if isinstance(op, CAReduce):
            return isinstance(scalar, Add | Mul)
        moves = (type(op) in MOVING and not isinstance(op, SortOp)) or isinstance(
            op, IncSubtensor | AdvancedIncSubtensor
        )
        return (
            moves
            or isinstance(op, CumOp | Dot)
            or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot))
        )

    def _is_sure(self, node: Apply) -> bool:
        """Whether a float computed the same way is right to a few roundings: nothing of two signs is added
        up.
        """
        scalar = getattr(node.op, "scalar_op", None)
        if not all(i in self._sure for i in node.inputs if self.is_wide(i)):
            return False
        if (
            isinstance(scalar, Mul | Sqr | Pow | Neg | Switch | Cast | Identity | Second)
            or type(node.op) in MOVING
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

    # ------------------------------------------------------------ comparisons, and what chooses by them
    def _compared(self, op: Elemwise, a: Variable, b: Variable) -> Variable:
        """`op(a, b)`, exactly."""
        apart = self.near(a) - self.near(b)
        close = op(self.low(a) - self.low(b), np.zeros((), self.low(a).type.dtype))
        return pt.switch(pt.lt(abs(apart), FAR), close, op(apart, np.zeros((), apart.type.dtype)))

    def _truth(self, var: Variable) -> Variable:
        """Whether it is not 0."""
        return (
            self._compared(pt.neq, var, pt.constant(np.zeros((), var.type.dtype)))
            if self.is_wide(var)
            else self.plain(var)
        )

    def _condition(self, node: Apply) -> Variable:
        scalar = getattr(node.op, "scalar_op", None)
        if isinstance(node.op, Elemwise) and isinstance(scalar, COMPARISONS):
            if any(not is_whole(i) for i in node.inputs):
                return node.op(*map(self.value, node.inputs))
            return self._compared(node.op, *node.inputs)
        if isinstance(node.op, Elemwise) and isinstance(scalar, Cast):
            return self._truth(node.inputs[0])
        return self._refuse(node.outputs[0], "reads an integer that may leave 32 bits")

    def _selected(self, node: Apply, what: Callable[[Variable], Variable]) -> Variable | None:
        """A maximum, a minimum, an absolute value, clipping or a sign, written as comparisons and choices;
        None for another node.
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
            return pt.cast(above, what(zero).type.dtype) - pt.cast(below, what(zero).type.dtype)
        if isinstance(scalar, Abs):
            return pt.switch(self._compared(pt.lt, first, zero), -what(first), what(first))
        if len(node.inputs) > 2 and not isinstance(scalar, Clip):
            return None
        if isinstance(scalar, Clip):
            _, low, high = node.inputs
            above, below = self._compared(pt.gt, first, high), self._compared(pt.lt, first, low)
            return pt.switch(below, what(low), pt.switch(above, what(high), what(first)))
        a, b = node.inputs
        larger = self._compared(pt.ge, a, b)
        return (
            pt.switch(larger, what(a), what(b))
            if isinstance(scalar, ScalarMaximum)
            else pt.switch(larger, what(b), what(a))
        )

    def _refuse(self, var: Variable, what: str) -> Any:
        inputs = [str(v.name) for v in graph_inputs([var]) if v.name and not isinstance(v, Constant)]
        shown = "a constant" if isinstance(var, Constant) else pp(var)
        shown = shown if len(shown) <= 120 else f"{shown[:120]}..."
        raise ValueError(
            f"In {self._name!r} the integer expression "
            f"{shown}{' of ' if inputs else ''}{', '.join(map(repr, inputs))} {what}. Write it in floats, or "
            f"give its variables bounds. {REMEDY}"
        )


def wrapped(var: Variable) -> Variable:
    return pt.cast(var, "int32") if isinstance(var.type, TensorType) else var


def in_32_bits(outputs: list[tuple[str, Variable]], known: dict[Variable, Bounds]) -> list[Variable]:
    """The tensors as floats, for numbers of 32 bits."""
    made = In32Bits(outputs, known)
    return [made.as_float(out) for out in made.outputs]


def narrowed(graph: LogpGraph, model: pm.Model, supports: dict[str, Any]) -> LogpGraph:
    """The graph of a log density for a program whose numbers have 32 bits; `supports` as of `logp_graph`.

    Raises
    ------
    ValueError
        Naming an integer that such a program cannot hold.
    """
    known = bounds_of_values(model, supports)
    parts = [*graph.terms, *graph.untouched]
    bounds = {
        v: hull(*(known[name] for name in own))
        for v, own in graph.groups.items()
        if all(name in known for name in own)
    }
    tensors = in_32_bits(parts, bounds)
    named = list(zip([name for name, _ in parts], tensors, strict=True))
    return replace(graph, terms=named[: len(graph.terms)], untouched=named[len(graph.terms) :])


def bounds_of_values(model: pm.Model, supports: dict[str, Any]) -> dict[str, Bounds]:
    """{discrete value variable: its bounds} by `supports`, or else by its distribution, `UNBOUNDED` where
    there are none.

    Raises
    ------
    ValueError
        Where 32 bits do not hold them.
    """
    found = {}
    for value in model.discrete_value_vars:
        name, rv = str(value.name), model.values_to_rvs[value]
        found[name] = extent(supports.get(name) or bounds_of(rv) or (None, None), UNBOUNDED)
        far = max(-found[name][0], found[name][1])
        if far > LARGEST:
            raise ValueError(
                f"{name!r} may be as far as {far:.0f} from 0, which 32 bits do not hold. {REMEDY}"
            )
    return found


def check_in_32_bits(name: str, values: np.ndarray) -> None:
    """Refuse values of a discrete variable that come near the end of 32 bits, where none was expected.

    Raises
    ------
    pymc.exceptions.SamplingError
    """
    far = int(np.abs(values).max(initial=0))
    if far > UNBOUNDED:
        raise SamplingError(
            f"{name!r} went as far as {far}: integers of 32 bits end at {LARGEST:.0f}. {REMEDY}"
        )
