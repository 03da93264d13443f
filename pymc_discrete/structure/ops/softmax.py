"""Softmax, its logarithm, and the logarithm of a sum of exponentials."""

import jax
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax

from pymc_discrete.structure.bounds import IntegerBounds, stays_finite
from pymc_discrete.structure.lifting import for_rows, of_row
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.reads import LARGEST_TABLE, Elements, Entries, along, elements_of, groups
from pymc_discrete.structure.stacking import vectorised, with_axis


@elements_of.register
def _(op: Softmax, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, op.axis, lambda v: jax.nn.softmax(v, axis=-2))


@elements_of.register
def _(op: LogSoftmax, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, op.axis, lambda v: jax.nn.log_softmax(v, axis=-2))


@stays_finite.register(Softmax)
@stays_finite.register(LogSoftmax)
def _(op: Softmax | LogSoftmax, node: Apply, bounds: IntegerBounds) -> bool:
    return True


@for_rows.register(Softmax)
@for_rows.register(LogSoftmax)
def _(op: Softmax | LogSoftmax, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    ndim = node.inputs[0].type.ndim
    axes = [of_row(a, ndim, q, p) for a in (range(ndim) if op.axis is None else op.axis)]
    return None if None in axes else type(op)(axis=tuple(axes))(inputs[0])


for _op in (Softmax, LogSoftmax):
    with_axis.register(_op)(vectorised)


@elements_of.register
def _(op: LogSumExp, node: Apply, graph: LogpGraph) -> Elements | None:
    reads = groups(graph.shape(node.inputs[0]), op.axis)
    if reads.shape[1] < 2 or reads.size > LARGEST_TABLE:
        return None
    return Elements([reads], lambda values, _: jax.nn.logsumexp(values[0], axis=-2))
