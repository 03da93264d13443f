"""Which input elements an output element of an Op reads, and how it is computed from them.

The rules of Ops are in `ops/`. An Op without a rule is assumed to read all of its inputs for every element of
its output, which is correct and only costs more.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any
from weakref import WeakValueDictionary

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify

from pymc_discrete.structure.logp_graph import LogpGraph

# An array of the indices of the elements that an Op reads is made only up to this number of elements. Where
# it would be larger, each output element counts as depending on all elements of the inputs.
LARGEST_TABLE = 4_000_000


_in_order: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()


def in_order(n: int) -> np.ndarray:
    """(n, 1) int, the indices 0, ..., n - 1: each of n output elements reads the input element with its own
    index.

    The array is shared as long as something holds it, since many tensors of a million elements may need it.
    """
    found = _in_order.get(n)
    if found is None:
        found = np.arange(n)[:, None]
        found.setflags(write=False)
        _in_order[n] = found
    return found


@dataclass
class Elements:
    """How the elements of one output are computed from elements of the inputs.

    Attributes
    ----------
    reads : per input an array (n_out, g) int, the flat indices of the g elements read by each output element,
        -1 for padding; g = 0 where the input is not read. Or None where the whole input is read, which is
        allowed only for inputs that do not depend on the block.
    compute : (values, fixed) -> values. An input with g = 1 is passed as (..., k), one with g > 1 as (..., g,
        k). The last axis has k candidate states; it has length 1 for values that are the same in all states.
    fixed : arrays (n_out, ...) int, constants of each output element
    passes : whether the Op only selects, compares or rearranges elements, without arithmetic. Tables can be
        propagated through such an Op, but gradients cannot.
    """

    reads: list[np.ndarray | None]
    compute: Callable[[list[Any], list[Any]], Any]
    fixed: tuple[np.ndarray, ...] = ()
    passes: bool = False


@dataclass
class Entries:
    """How groups of output elements (entries) are computed together from groups of input elements.

    An entry is, for example, one matrix of a batch or one row of a softmax. Every element of an entry depends
    on all elements that the entry reads.

    Attributes
    ----------
    reads : per input an array (entries, g) int, the flat indices of the elements that each entry reads; or
        None where the whole input is read, which is allowed only for inputs that do not depend on the block
    compute : (values) -> values. A group is passed as (..., g, k), a whole input as a flat array; returned
        are, for every output, the c elements of each entry, (..., c, k), in k candidate states.
    entry, place : for every output (n_out,) int, the entry that each element belongs to, and its position
        among the c elements of the entry
    passes : whether the Op only selects, compares or rearranges elements, without arithmetic
    """

    reads: list[np.ndarray | None]
    compute: Callable[[list[Any]], list[Any]]
    entry: list[np.ndarray]
    place: list[np.ndarray]
    passes: bool = False


@singledispatch
def elements_of(op: Op, node: Apply, graph: LogpGraph) -> Elements | Entries | None:
    """Which input elements each output element of an Op reads, and how it is computed from them.

    None where every output element counts as depending on all elements of the inputs.
    """
    return whole(node, graph)


def constant(var: Variable) -> np.ndarray | None:
    """The data of a constant, or None for other variables."""
    return np.asarray(var.data) if isinstance(var, Constant) else None


# ---------------------------------------------------------------- groups of elements read together
def groups(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """(n_out, g) int, the flat indices of the elements that each result of a reduction over `axes` reads."""
    g = int(np.prod([shape[a] for a in axes]))
    ids = np.arange(int(np.prod(shape))).reshape(shape)
    n_out = int(np.prod([n for a, n in enumerate(shape) if a not in axes]))
    return np.moveaxis(ids, axes, range(-len(axes), 0)).reshape(n_out, g)


def to_core(values: Any, shape: tuple[int, ...]) -> Any:
    """Reshape the values of groups of g elements, (..., g, k), to arrays (..., k, *shape) of `shape` each."""
    values = jnp.moveaxis(jnp.asarray(values), -1, -2)
    return values.reshape(*values.shape[:-1], *shape)


def from_core(values: Any, n: int) -> Any:
    """Reshape arrays (..., k, *shape), of n dimensions each, to groups of c elements, (..., c, k)."""
    values = jnp.asarray(values)
    first = values.ndim - n
    lead, shape = values.shape[:first], values.shape[first:]
    # the length of a group is given as a number, since JAX cannot infer -1 for an array without elements
    return jnp.moveaxis(values.reshape(*lead, math.prod(shape)), -1, -2)


def contiguous(sizes: list[int], count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each element of some outputs, the entry that it belongs to, and its place in the entry.

    Each output consists of `count` consecutive entries, groups of elements that are computed together, and
    `sizes` has the number of elements of an entry of each output.
    """
    return [np.repeat(np.arange(count), c) for c in sizes], [np.tile(np.arange(c), count) for c in sizes]


def along(
    node: Apply, graph: LogpGraph, axes: tuple[int, ...] | None, function: Callable[[Any], Any]
) -> Entries | None:
    """The `Entries` of an Op that is applied along some axes of its first input, independently of the others.

    Parameters
    ----------
    axes : the axes that the Op is applied along; None for all
    function : (..., g, k) -> (..., g, k), the Op on the g elements along these axes, for k candidate states
    """
    x = node.inputs[0]
    shape = graph.shape(x)
    axes = tuple(range(len(shape))) if axes is None else tuple(a % len(shape) for a in axes)
    reads = groups(shape, axes)
    if not 0 < reads.size <= LARGEST_TABLE:
        return None
    entry, place = np.empty(reads.size, int), np.empty(reads.size, int)
    entry[reads.reshape(-1)] = np.repeat(np.arange(len(reads)), reads.shape[1])
    place[reads.reshape(-1)] = np.tile(np.arange(reads.shape[1]), len(reads))
    unread: list[np.ndarray | None] = [np.zeros((len(reads), 0), int)] * (len(node.inputs) - 1)
    return Entries([reads, *unread], lambda values: [function(values[0])], [entry], [place])


def whole(node: Apply, graph: LogpGraph) -> Entries | None:
    """The `Entries` of an Op without a rule: every output element may read all elements of the inputs.

    Only inputs that depend on the block are read as groups; other inputs are passed whole. None where the
    inputs have too many elements.
    """
    moving = [graph.depends(i) for i in node.inputs]
    shapes = [graph.shape(i) if hasattr(i.type, "ndim") else () for i in node.inputs]
    outputs = [graph.shape(out) if hasattr(out.type, "ndim") else () for out in node.outputs]
    reads = [np.arange(graph.size(i))[None] if m else None for i, m in zip(node.inputs, moving, strict=True)]
    sizes = [r.size for r in reads if r is not None]
    if not all(0 < size <= LARGEST_TABLE for size in sizes) or min(map(math.prod, outputs)) == 0:
        return None
    signature = ",".join(names_of_dimensions([s for s, m in zip(shapes, moving, strict=True) if m], "i"))
    signature += "->" + ",".join(names_of_dimensions(outputs, "o"))

    def compute(values):
        function = jax_funcify(node.op, node=node)
        whole_inputs = [None if m else in_shape(v, s) for m, v, s in zip(moving, values, shapes, strict=True)]

        def of_moving(*parts):
            rest = iter(parts)
            return function(*(next(rest) if m else v for m, v in zip(moving, whole_inputs, strict=True)))

        parts = [to_core(v, s) for v, s, m in zip(values, shapes, moving, strict=True) if m]
        arrays = jnp.vectorize(of_moving, signature=signature)(*parts)
        arrays = arrays if isinstance(arrays, tuple | list) else [arrays]
        return [from_core(a, len(shape)) for a, shape in zip(arrays, outputs, strict=True)]

    return Entries(reads, compute, *contiguous([math.prod(shape) for shape in outputs], 1))


def names_of_dimensions(shapes: list[tuple[int, ...]], letter: str) -> list[str]:
    """The dimensions of arrays for a signature of `jnp.vectorize`, each with its own name: "(i0,i1)"."""
    numbers = itertools.count()
    return ["(" + ",".join(f"{letter}{next(numbers)}" for _ in shape) + ")" for shape in shapes]


def in_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """A flat input of an Op, reshaped to its shape.

    Integers stay NumPy arrays: they may be sizes, which must be known when the program is compiled.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return jnp.asarray(value).reshape(shape)
    return value.reshape(shape) if hasattr(value, "reshape") else value
