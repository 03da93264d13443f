"""Comparisons that must hold for a log density to be finite: `pt.switch(pt.all(pt.eq(a, b)), 0, -inf)`, or
`pt.log(pt.all(pt.eq(a, b)))`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import AND, EQ, NEQ, OR, Add, Cast, Log, Mul, Switch
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.math import Any as AnyOp
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape

from pymc_discrete.structure.derivatives import is_guard
from pymc_discrete.structure.logp_graph import LogpGraph

# Ops that may stand between a switch and the term of the log density that is computed from the switch: they
# copy, move or add up elements, so that an element -inf of the switch makes the log density -inf
PASSED_ON = (
    Alloc,
    Sum,
    DimShuffle,
    Reshape,
    SpecifyShape,
    JoinDims,
    SplitDims,
    Join,
    MakeVector,
    CheckAndRaise,
)
CONJUNCTIONS = (All, DimShuffle, MakeVector, ScalarFromTensor, TensorFromScalar)
DISJUNCTIONS = (AnyOp, DimShuffle, MakeVector, ScalarFromTensor, TensorFromScalar)


def comparisons(term: Variable) -> Iterator[tuple[Variable, bool]]:
    """[(comparison, outcome)]: where a comparison has another outcome, the term of the log density is -inf.

    The order of the comparisons is the same for all graphs with the same Ops.
    """
    pending, seen = [term], set()
    while pending:
        v = pending.pop()
        node = v.owner
        if node is None or v in seen:
            continue
        seen.add(v)
        scalar = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        if isinstance(scalar, Switch):
            condition, then, otherwise = node.inputs
            if is_impossible(otherwise):
                yield from needed(condition, True)
            elif is_impossible(then):
                yield from needed(condition, False)
        elif (condition := logarithm_of(v)) is not None:
            yield from needed(condition, True)
        elif isinstance(scalar, Add) or isinstance(node.op, Join | MakeVector):
            pending += node.inputs[::-1]
        elif isinstance(scalar, Mul) and not any((value_of(i) < 0).any() for i in node.inputs):
            # -inf times a positive factor, such as an inverse temperature, is -inf, and -inf times 0 is nan.
            # Only a factor that is known to be negative could make a possible value of -inf.
            pending += node.inputs[::-1]
        elif isinstance(node.op, PASSED_ON):
            pending.append(node.inputs[0])


def needed(condition: Variable, outcome: bool) -> Iterator[tuple[Variable, bool]]:
    """[(comparison, outcome)] that must hold, in every element, for a condition to have the given outcome."""
    node = condition.owner
    if node is None:
        return
    scalar = node.op.scalar_op if isinstance(node.op, Elemwise) else None
    if isinstance(scalar, EQ if outcome else NEQ):
        yield condition, outcome
    elif isinstance(scalar, AND if outcome else OR) or isinstance(
        node.op, CONJUNCTIONS if outcome else DISJUNCTIONS
    ):
        for i in node.inputs:
            yield from needed(i, outcome)


def logarithm_of(v: Variable) -> Variable | None:
    """The condition of which a variable is the logarithm, 0 where it holds and -inf elsewhere; None for other
    variables.
    """
    if not isinstance(v.owner.op, Elemwise) or not isinstance(v.owner.op.scalar_op, Log):
        return None
    (of,) = v.owner.inputs
    while (
        of.owner is not None and isinstance(of.owner.op, Elemwise) and isinstance(of.owner.op.scalar_op, Cast)
    ):
        (of,) = of.owner.inputs
    return of if of.type.dtype == "bool" else None


def excludes_values(outputs: Sequence[Variable], graph: LogpGraph) -> bool:
    """Whether a condition that depends on the block decides if the outputs are -inf."""
    for node in toposort(outputs, blockers=list(graph.values)):
        condition = node.inputs[0] if is_guard(node) else logarithm_of(node.outputs[0])
        if condition is not None and graph.depends(condition):
            return True
    return False


def is_impossible(v: Variable) -> bool:
    """Whether a variable is the constant -inf."""
    return bool(np.isneginf(value_of(v)).all())


def value_of(v: Variable) -> np.ndarray:
    """The value of a constant, also of a constant that was given more dimensions; nan for other variables."""
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        v = v.owner.inputs[0]
    return np.asarray(v.data if isinstance(v, Constant) else np.nan)
