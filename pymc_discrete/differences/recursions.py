"""Writes recursions that are linear in the sites of a block as matrices.

A Scan such as c_t = gamma c_{t-1} + s_t, whose steps are linear in a sequence s and in their state, is

    c = c at s = 0, plus A s,

and column j of A is the change of c if s_j alone grows by 1. The columns are computed once per context, by a
Scan with the same steps for all unit vectors s at once; a change of one site then adds a multiple of one
column, as in any linear map.
"""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan

from pymc_discrete.integrals.integrate import QuadraticDegree
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.rebuild import rebuild, rewritten

LARGEST_MATRIX = 2**22  # the largest number of elements of a matrix that takes the place of a recursion


def with_matrices(graph: LogpGraph) -> None:
    """Write the recursions in the terms of a graph as matrices, where they are linear in the block."""
    found = False

    def written(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        nonlocal found
        new = as_matrix(node, inputs, graph) if isinstance(node.op, Scan) else None
        found = found or new is not None
        return new

    outputs = rebuild([t for _, t in graph.terms], {}, written)
    if found:
        pairs = zip(graph.terms, rewritten(outputs), strict=True)
        graph.terms = [(name, new) for (name, _), new in pairs]


def as_matrix(node: Apply, inputs: list[Variable], graph: LogpGraph) -> list[Variable] | None:
    """The outputs of a Scan, written as a matrix times a sequence plus what does not depend on the sequence.

    The result is None unless one sequence alone depends on the block, and the Scan is linear in it.

    Parameters
    ----------
    node : the node of the Scan in a term of the graph
    inputs : copies of the inputs of the node
    """
    op = node.op
    info, steps = op.info, inputs[0]
    moving = [n for n, v in enumerate(node.inputs) if graph.depends(v)]
    plain = not (info.as_while or info.mit_mot_in_slices or info.n_untraced_sit_sot)
    if not plain or not isinstance(steps, Constant) or len(moving) != 1 or not 1 <= moving[0] <= info.n_seqs:
        return None
    T, sequence = int(steps.data), op.inner_inputs[moving[0] - 1]
    passed_on = [*op.inner_mitsot(op.inner_inputs), *op.inner_sitsot(op.inner_inputs)]
    degree = QuadraticDegree([sequence, *passed_on])
    floats = all(v.type.dtype.startswith("float") for v in node.outputs)
    if sequence.type.ndim or not floats or any(degree.of(v) > 1 for v in op.inner_outputs):
        return None
    if T**2 * max(graph.size(v) // max(T, 1) for v in node.outputs) > LARGEST_MATRIX:
        return None
    values = inputs[moving[0]][:T]
    float_type = node.outputs[0].type.dtype

    def at(of_sequence: Variable) -> list[Variable]:
        """The outputs of the Scan with `of_sequence` in place of the sequence that depends on the block."""
        changed = [of_sequence if n == moving[0] else v for n, v in enumerate(inputs)]
        return op.make_node(*changed).outputs

    base = at(pt.zeros_like(inputs[moving[0]]))
    responses = of_units(op, inputs, moving[0], T)
    new = []
    for old, without, response in zip(node.outputs, base, responses, strict=True):
        shape = graph.shape(old)
        # row j of T rows is the change of the outputs if element j of the sequence grows by 1
        rows = pt.moveaxis(response - without[:, None], 1, 0).reshape((T, int(np.prod(shape))))
        new.append(without + pt.dot(pt.cast(values, float_type), rows).reshape(shape))
    return new


def of_units(op: Scan, inputs: list[Variable], moving: int, T: int) -> list[Variable]:
    """The outputs of a Scan for all T unit vectors in place of a sequence, each of shape (length, T, ...).

    Parameters
    ----------
    inputs : the inputs of the Scan
    moving : the index of the input that is the sequence
    """
    passed_on = {*op.inner_mitsot(op.inner_inputs), *op.inner_sitsot(op.inner_inputs)}
    sequence = op.inner_inputs[moving - 1]
    many = {
        v: pt.tensor(dtype=v.type.dtype, shape=(T, *v.type.shape))
        if v in passed_on or v is sequence
        else v.clone()
        for v in op.inner_inputs
    }
    outputs = [
        out if out.type.ndim > old.type.ndim else pt.alloc(out, T, *out.shape)
        for old, out in zip(op.inner_outputs, vectorize_graph(op.inner_outputs, many), strict=True)
    ]
    buffers = {id(v) for v in [*op.outer_mitsot(inputs), *op.outer_sitsot(inputs)]}
    outer = [pt.repeat(v[:, None], T, axis=1) if id(v) in buffers else v for v in inputs]
    outer[moving] = pt.constant(np.eye(T), dtype=sequence.type.dtype)
    scan = Scan([many[v] for v in op.inner_inputs], outputs, op.info, mode=op.mode, name=op.name)
    return scan.make_node(*outer).outputs
