"""Shapes: Ops that make, reshape, transpose, join or split tensors, or return a tensor unchanged."""

import numpy as np
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape

from pymc_discrete.structure.bounds import (
    REARRANGING,
    IntegerBounds,
    Interval,
    bounds_after,
    hull,
    size_of,
    stays_finite,
)
from pymc_discrete.structure.lifting import for_rows, of_row
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.ops.rearranging import from_sources, rearranged, rearranges
from pymc_discrete.structure.reads import Elements, elements_of
from pymc_discrete.structure.stacking import vectorised, with_axis
from pymc_discrete.structure.sums import Summands, summands_of


# ---------------------------------------------------------------- Ops that move elements of their first input
def reads_first_input(op: Op, node: Apply, graph: LogpGraph) -> Elements | None:
    """Which elements an Op reads that only moves the elements of its first input."""
    return rearranged(node, graph, (0,))


for _op in (
    Alloc, DimShuffle, ExtractDiag, JoinDims, Reshape, ScalarFromTensor, SpecifyShape, SplitDims,
    TensorFromScalar,
):  # fmt: skip
    rearranges(_op)
    elements_of.register(_op)(reads_first_input)


for _op in (Alloc, DimShuffle, ExtractDiag, JoinDims, Reshape, SpecifyShape, SplitDims):
    with_axis.register(_op)(vectorised)


@with_axis.register(ScalarFromTensor)
@with_axis.register(TensorFromScalar)
def _(op: Op, node: Apply, inputs: list[tuple[Variable, bool]], n: int) -> list[Variable]:
    return [i for i, _ in inputs]


@summands_of.register(Join)
@summands_of.register(MakeVector)
@summands_of.register(ScalarFromTensor)
@summands_of.register(TensorFromScalar)
def _(op: Op, node: Apply, graph: LogpGraph) -> Summands | None:
    return [(i, None) for i in node.inputs]


@summands_of.register
def _(op: Reshape, node: Apply, graph: LogpGraph) -> Summands | None:
    return [(i, None) for i in node.inputs if graph.depends(i)]


@summands_of.register
def _(op: DimShuffle, node: Apply, graph: LogpGraph) -> Summands | None:
    return [(i, None) for i in node.inputs if graph.depends(i)] or None


@for_rows.register
def _(op: DimShuffle, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    order = op.new_order
    if list(order[:q]) != list(range(q)):
        return None
    return inputs[0].dimshuffle(*range(p), *(o if o == "x" else o - q + p for o in order[q:]))


@for_rows.register
def _(op: ExtractDiag, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    axes = [of_row(a, node.inputs[0].type.ndim, q, p) for a in (op.axis1, op.axis2)]
    return None if None in axes else ExtractDiag(op.offset, *axes)(inputs[0])


# ---------------------------------------------------------------- Split
rearranges(Split)


@elements_of.register
def _(op: Split, node: Apply, graph: LogpGraph) -> Elements | None:
    return rearranged(node, graph, (0,)) if len(node.outputs) == 1 else None


# ---------------------------------------------------------------- Join and MakeVector
for _op in (Join, MakeVector):
    rearranges(_op, data=None)
    with_axis.register(_op)(vectorised)


@elements_of.register
def _(op: Join, node: Apply, graph: LogpGraph) -> Elements | None:
    # What a Join reads is found by joining the indices of the elements. `np.concatenate` joins them, since
    # the Op would cast the indices to its own dtype.
    return rearranged(
        node, graph, tuple(range(len(node.inputs))), lambda *args: np.concatenate(args, axis=op.axis)
    )


@elements_of.register
def _(op: MakeVector, node: Apply, graph: LogpGraph) -> Elements | None:
    n = len(node.inputs)
    source = np.arange(n)
    reads = [np.where(source == j, 0, -1)[:, None] for j in range(n)]
    return from_sources(list(reads), list(range(n)), source)


# ---------------------------------------------------------------- Ops with a rule for bounds only
# The output of each of these Ops has the bounds of its first input. An Op that also gets rules for degree and
# rounding is registered by `rearranges` instead.
REARRANGING.update({CheckAndRaise: 1, Repeat: 1, ViewOp: 1})


@bounds_after.register
def _(op: ARange, node: Apply, inputs: list[Interval]) -> Interval:
    start, stop, step = inputs
    if step[0] > 0:
        stop = stop[0] - 1, stop[1] - 1
    elif step[1] < 0:
        stop = stop[0] + 1, stop[1] + 1
    return hull(start, stop)


@bounds_after.register
def _(op: AllocEmpty, node: Apply, inputs: list[Interval]) -> Interval:
    # An empty interval: the elements of a tensor from `AllocEmpty` are read only after other values, which
    # have bounds of their own, were written to them.
    return hull()


@stays_finite.register
def _(op: AllocEmpty, node: Apply, bounds: IntegerBounds) -> bool:
    # A tensor from `AllocEmpty` counts as finite: its elements are read only after other values were written
    # to them, and whether these values are finite is found from what computes them.
    return True


@bounds_after.register
def _(op: AllocDiag, node: Apply, inputs: list[Interval]) -> Interval:
    return hull(inputs[0], (0.0, 0.0))


@bounds_after.register(Shape)
def _(op: Op, node: Apply, inputs: list[Interval]) -> Interval:
    return hull(*map(size_of, node.inputs[0].type.shape))


@bounds_after.register
def _(op: Shape_i, node: Apply, inputs: list[Interval]) -> Interval:
    return size_of(node.inputs[0].type.shape[op.i])
