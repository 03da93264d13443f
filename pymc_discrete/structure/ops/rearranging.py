"""Rules for Ops that only move elements, shared by the modules `shapes` and `subtensors`."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op

from pymc_discrete.structure.bounds import REARRANGING
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.reads import Elements
from pymc_discrete.structure.rounding import error_after


def rearranges(op: type[Op], data: int | None = 1) -> None:
    """Register bounds, degree and rounding of an Op that only rearranges elements.

    Parameters
    ----------
    data : the number of the Op's first inputs that are data, None for all; the other inputs are indices and
        shapes
    """
    REARRANGING[op] = data
    degree_after.register(op)(rearranged_degree(data))
    error_after.register(op)(rearranged_error)


def rearranged_degree(data: int | None) -> Callable[[Op, Apply, list[float]], float]:
    """The rule for the degree of an Op that takes elements from its first inputs: the largest of their
    degrees.

    The degree is infinite where another input, such as an index, depends on a site.
    """

    def rule(op: Op, node: Apply, degrees: list[float]) -> float:
        last = len(degrees) if data is None else data
        return max(degrees[:last]) if not any(degrees[last:]) else math.inf

    return rule


def rearranged_error(op: Op, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    """The rounding errors of the inputs, rearranged by the same Op."""
    inputs = [i if e is None or is_empty(i) else e for i, e in zip(node.inputs, errors, strict=True)]
    return node.op.make_node(*inputs).outputs[node.outputs.index(out)]


def is_empty(var: Variable) -> bool:
    """Whether a variable is a constant without elements, such as the shape of a scalar."""
    return isinstance(var, Constant) and np.size(var.data) == 0


def rearranged(
    node: Apply, graph: LogpGraph, data: tuple[int, ...], function: Callable[..., np.ndarray] | None = None
) -> Elements | None:
    """Which elements an Op reads that only rearranges elements: found by applying the Op to their indices.

    Parameters
    ----------
    data : the inputs whose elements are rearranged; None is returned if another input is not constant
    function : (inputs) -> output, applied in place of the Op
    """
    args, source_of, offset = [], [], 0
    for j, i in enumerate(node.inputs):
        if j in data:
            ids = np.arange(offset, offset + graph.size(i)).reshape(graph.shape(i))
            source_of.append((j, offset))
            offset += graph.size(i)
            args.append(ids)
        else:
            if not isinstance(i, Constant):
                return None
            args.append(i.data)
    ids = np.asarray(evaluated(node, args) if function is None else function(*args)).reshape(-1)
    if ids.dtype != np.int64:
        return None  # the Op has cast the indices that took the place of its data, and may have rounded them
    starts = np.array([s for _, s in source_of])
    source = np.searchsorted(starts, ids, side="right") - 1
    # The elements of all inputs are numbered in turn; `starts` has the number of each input's first element.
    # An input without elements has the start of the next input. Of inputs with equal starts, `searchsorted`
    # with side="right" finds the last, which has elements.
    reads: list[np.ndarray | None] = [np.full((ids.size, 1), -1) for _ in node.inputs]
    for s, (j, start) in enumerate(source_of):
        reads[j] = np.where(source == s, ids - start, -1)[:, None]
    return from_sources(reads, [j for j, _ in source_of], source)


def evaluated(node: Apply, args: list[Any]) -> Any:
    """The first output of a node, computed with NumPy."""
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, args, storage)
    return storage[0][0]


def from_sources(reads: list[np.ndarray | None], inputs: list[int], source: np.ndarray) -> Elements:
    """Which elements an Op reads whose output elements are each a copy of one input element.

    Parameters
    ----------
    reads : per input an array (n_out, 1) int, the flat index of the element that each output element copies,
        -1 where it copies an element of another input
    inputs : the indices of the inputs that elements are copied from
    source : (n_out,) int, the input that each output element is copied from, as a position in `inputs`
    """
    used = np.unique(source)
    for s, j in enumerate(inputs):
        if s not in used:
            reads[j] = np.zeros((source.size, 0), int)

    def pick(values, fixed):
        if len(used) <= 1:
            return values[inputs[int(used[0]) if len(used) else 0]]
        which = fixed[0][..., None]
        out = values[inputs[used[0]]]
        for s in used[1:]:
            out = jnp.where(which == s, values[inputs[s]], out)
        return out

    return Elements(reads, pick, fixed=(source,) if len(used) > 1 else (), passes=True)
