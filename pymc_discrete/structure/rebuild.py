"""Copies graphs with variables replaced, expands Ops that contain other Ops, and applies
PyTensor's rewrites."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.scan.op import Scan
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import SearchsortedOp
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from pymc_discrete.structure.analysis import Depends

SIZES = 16  # a constant with more elements is not taken for a shape, which `known_size` computes with
# A search for values in a sorted vector is replaced by comparisons of each value with each element of the
# vector if there are at most this many comparisons.
MOST_COMPARED = 100_000

REWRITES = RewriteDatabaseQuery(include=["ShapeOpt", "canonicalize", "stabilize"])


def context_inputs(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """The variables that `outputs` read directly and that do not depend on `roots`.

    They are the outputs of the largest subgraphs without `roots`; constants are left out.
    """
    dependent = Depends(roots)
    independent = [o for o in outputs if o not in dependent]
    for node in toposort(outputs, blockers=roots):
        if any(i in dependent for i in node.inputs):
            independent += [i for i in node.inputs if i not in dependent]
    return [v for v in dict.fromkeys(independent) if not isinstance(v, Constant)]


def remade(node: Apply, inputs: list[Variable]) -> list[Variable]:
    """The outputs of a node's Op on inputs of other types.

    Sum, Prod and MakeVector store the dtype of their output, which is inferred anew from the new inputs.
    """
    if isinstance(node.op, Sum | Prod):
        return type(node.op)(axis=node.op.axis).make_node(*inputs).outputs
    if isinstance(node.op, MakeVector):
        return (
            MakeVector(dtype=np.result_type(*(i.type.dtype for i in inputs)).name).make_node(*inputs).outputs
        )
    return node.op.make_node(*inputs).outputs


def rebuild(
    outputs: list[Variable],
    replace: dict[Variable, Variable],
    rewrite: Callable[[Apply, list[Variable]], list[Variable] | None] | None = None,
) -> list[Variable]:
    """Copy a graph with variables replaced, letting every Op infer its types again.

    Parameters
    ----------
    replace : {variable: its replacement}
    rewrite : (node, inputs of the copied node) -> its outputs in the copy, or None to copy the node
    """
    memo = dict(replace)
    for node in toposort(outputs, blockers=list(replace)):
        inputs = [memo.get(i, i) for i in node.inputs]
        new = rewrite(node, inputs) if rewrite else None
        if new is None and any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            # Where a length has become a constant, the Op is applied anew, so that the type of its output has
            # the length; where all types stay, the copy of a node is cheaper.
            same = all(
                a.type == b.type and isinstance(a, Constant) == isinstance(b, Constant)
                for a, b in zip(inputs, node.inputs, strict=True)
            )
            new = node.clone_with_new_inputs(inputs).outputs if same else remade(node, inputs)
        for old, out in zip(node.outputs, new or node.outputs, strict=True):
            memo.setdefault(old, out)
    return [memo.get(o, o) for o in outputs]


def known_size(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """The constant that a node computes from shapes or from other constant sizes; None for other nodes.

    This is a rule for `rebuild`: from constant sizes, later Ops infer the shapes of their outputs.
    """
    if isinstance(node.op, Shape) and None not in inputs[0].type.shape:
        return [pt.constant(np.array(inputs[0].type.shape, "int64"))]
    if isinstance(node.op, Shape_i) and inputs[0].type.shape[node.op.i] is not None:
        return [pt.constant(np.array(inputs[0].type.shape[node.op.i], "int64"))]
    if not isinstance(node.op, Elemwise | Subtensor | MakeVector | ScalarFromTensor | TensorFromScalar):
        return None
    out, *more = node.outputs
    if more:
        return None
    few = getattr(out.type, "ndim", 0) <= 1 and out.type.dtype.startswith(("int", "uint"))
    if not (few and all(isinstance(i, Constant) and np.size(i.data) <= SIZES for i in inputs)):
        return None
    copied = node.op.make_node(*inputs)
    storage: list[list[Any]] = [[None]]
    node.op.perform(copied, [i.data for i in inputs if isinstance(i, Constant)], storage)
    return [copied.outputs[0].type.constant_type(copied.outputs[0].type, storage[0][0])]


def opened(node: Apply, inputs: list[Variable], inside: Callable | None = None) -> list[Variable] | None:
    """The outputs of an Op as a graph of simpler Ops, for which the analyses have rules; None if it stays.

    Ops that contain other Ops (logsumexp, xlogy) are written out, and so are searches in sorted vectors and
    loops whose steps do not depend on one another.

    Parameters
    ----------
    inside : the argument `rewrite` of `rebuild` for the inner graph; by default `opened`
    """
    inside = opened if inside is None else inside
    if isinstance(node.op, SymbolicOp):
        return rebuild(node.op.build_inner_graph(*inputs), {}, inside)
    if isinstance(node.op, OpFromGraph):
        return rebuild(node.op.fgraph.bind(dict(zip(node.op.inner_inputs, inputs, strict=True))), {}, inside)
    if isinstance(node.op, SearchsortedOp):
        return as_comparisons(node, inputs)
    return steps_at_once(node, inputs, inside) if isinstance(node.op, Scan) else None


def as_comparisons(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """The positions of values in a sorted vector, each as the number of elements that come before; None if
    there are many, or if their number is not known.

    JAX's search is a loop, which in programs of many small operations takes longer than all comparisons do,
    and the analyses cannot see that each position depends on one value only.
    """
    # a third input, the order that sorts the vector, makes no difference to a count
    ordered, values, *_ = inputs
    shape = (*ordered.type.shape, *values.type.shape)
    if None in shape or math.prod(shape) > MOST_COMPARED:
        return None
    after = pt.lt if node.op.side == "right" else pt.le
    # a value that is nan comes after all elements, and is less than none
    before = pt.invert(after(values[..., None], ordered))
    return [before.sum(axis=-1).astype(node.outputs[0].type.dtype)]


def steps_at_once(node: Apply, inputs: list[Variable], inside: Callable) -> list[Variable] | None:
    """The outputs of a Scan whose steps do not depend on one another, all steps computed together.

    None for other Scans, and where the number of steps is not known.
    """
    info, (steps, *outer) = node.op.info, inputs
    alone = info.n_seqs and not (info.as_while or info.mit_mot_in_slices or info.mit_sot_in_slices)
    if not alone or info.sit_sot_in_slices or info.n_untraced_sit_sot or not isinstance(steps, Constant):
        return None
    sequences, others = outer[: info.n_seqs], outer[info.n_seqs + info.n_nit_sot :]
    if any(s.type.shape[0] != int(steps.data) for s in sequences):
        return None
    given = [v.type() for v in node.op.inner_inputs]
    # a copy of the graph of one step, since nodes of the Op's own graph cannot be copied later
    one_step = node.op.fgraph.bind(dict(zip(node.op.inner_inputs, given, strict=True)))
    vectorized = vectorize_graph(one_step, dict(zip(given, [*sequences, *others], strict=True)))
    of_steps = [
        # an output that depends on no sequence is the same in every step, and has no axis of steps yet
        v if v.type.ndim > one.type.ndim else pt.alloc(v, steps, *v.shape)
        for one, v in zip(one_step, vectorized, strict=True)
    ]
    return rebuild(of_steps, {}, inside)


def rewrite(fg: FunctionGraph) -> None:
    """Bring a graph to PyTensor's canonical form."""
    optdb.query(REWRITES).rewrite(fg)


def rewritten(outputs: list[Variable]) -> list[Variable]:
    """Copies of graphs in PyTensor's canonical form, as functions of the inputs of the graphs."""
    inputs = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    fg = FunctionGraph(inputs, outputs, clone=True)
    rewrite(fg)
    return rebuild(list(fg.outputs), dict(zip(fg.inputs, inputs, strict=True)))
