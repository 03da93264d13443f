"""One rule per PyTensor Op: which elements of its inputs an element of its output reads, and how it computes with them.

A new Op is a new function under `@elements_of.register`; an Op without a rule is dense: never wrong, only dearer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.basic import AND, EQ, GE, GT, LE, LT, NEQ, OR, XOR, Identity, Invert, Switch
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSumExp
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_discrete.targets.graph import LogpGraph, adds_up
from pymc_discrete.targets.integers import is_integer_log_gamma, log_gamma

# An element that reads more than this many others is treated as dense
LARGEST_GROUP = 64
LARGEST_TABLE = 4_000_000


@dataclass
class Elements:
    """How the elements of one output come from elements of the inputs.

    Attributes
    ----------
    reads : per input (n_out, g) int, flat index of the elements read, -1 for none, g = 0 where it is not read at all; or None where
        the whole (context) input is read
    compute : (values, fixed) -> values. An array read one by one (g = 1) comes as (..., k), a group as (..., g, k); k is the
        candidate axis, 1 where nothing moves
    fixed : (n_out, ...) int, constants that belong to the output elements
    passes : the Op only selects, compares or moves (no arithmetic): tables pass through it, a gradient does not
    """

    reads: list[np.ndarray | None]
    compute: Callable[[list[Any], list[Any]], Any]
    fixed: tuple[np.ndarray, ...] = ()
    passes: bool = False


@singledispatch
def elements_of(op: Op, node: Apply, graph: LogpGraph) -> Elements | None:
    """The rule of an Op, or None where the output is dense in its inputs."""
    return None


def constant(var: Variable) -> np.ndarray | None:
    return np.asarray(var.data) if isinstance(var, Constant) else None


# ---------------------------------------------------------------- elementwise
SELECTORS = (AND, EQ, GE, GT, LE, LT, NEQ, OR, XOR, Invert, Identity)


@elements_of.register
def _(op: Elemwise, node: Apply, graph: LogpGraph) -> Elements | None:
    shape = graph.shape(node.outputs[0])
    n_out = int(np.prod(shape))
    reads: list[np.ndarray | None] = []
    for i in node.inputs:
        ids = np.arange(graph.size(i)).reshape(graph.shape(i))
        reads.append(np.broadcast_to(ids, shape).reshape(n_out, 1))
    # what no site moves is XLA's to fold
    moving = node.inputs[0] in graph.dependent
    scalar = log_gamma if moving and is_integer_log_gamma(node) else jax_funcify(op.scalar_op, node=node)
    return Elements(reads, lambda values, _: scalar(*values), passes=isinstance(op.scalar_op, SELECTORS))


def is_switch(node: Apply) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Switch)


# ---------------------------------------------------------------- data movement
def moved(node: Apply, graph: LogpGraph, movable: tuple[int, ...], move: Callable[..., np.ndarray] | None = None) -> Elements | None:
    """The rule of an Op that only moves data: run it, or `move` of its inputs, on numbered elements."""
    args, source_of, offset = [], [], 0
    for j, i in enumerate(node.inputs):
        if j in movable:
            ids = np.arange(offset, offset + graph.size(i)).reshape(graph.shape(i))
            source_of.append((j, offset))
            offset += graph.size(i)
            args.append(ids)
        else:
            if not isinstance(i, Constant):
                return None
            args.append(i.data)
    ids = np.asarray(performed(node, args) if move is None else move(*args)).reshape(-1)
    if ids.dtype != np.int64:
        return None  # numbers that were cast with the data are lost
    starts = np.array([s for _, s in source_of])
    source = np.searchsorted(starts, ids, side="right") - 1
    # empty inputs share an offset with the next one: searchsorted picks the last, which is the non-empty one
    reads: list[np.ndarray | None] = [np.full((ids.size, 1), -1) for _ in node.inputs]
    for s, (j, start) in enumerate(source_of):
        reads[j] = np.where(source == s, ids - start, -1)[:, None]
    return from_sources(reads, [j for j, _ in source_of], source)


def performed(node: Apply, args: list[Any]) -> Any:
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, args, storage)
    return storage[0][0]


def from_sources(reads: list[np.ndarray | None], inputs: list[int], source: np.ndarray) -> Elements:
    """Each output element is a copy of one element of the input that `source` names."""
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


def _first_input(op, node: Apply, graph: LogpGraph) -> Elements | None:
    return moved(node, graph, (0,))


for _op in (
    DimShuffle, Reshape, SpecifyShape, ExtractDiag, JoinDims, SplitDims, Alloc, ScalarFromTensor, TensorFromScalar,
):  # fmt: skip
    elements_of.register(_op)(_first_input)


@elements_of.register
def _(op: Split, node: Apply, graph: LogpGraph) -> Elements | None:
    return moved(node, graph, (0,)) if len(node.outputs) == 1 else None


@elements_of.register
def _(op: Join, node: Apply, graph: LogpGraph) -> Elements | None:
    # its `perform` casts to the type of the result
    return moved(node, graph, tuple(range(len(node.inputs))), lambda *args: np.concatenate(args, axis=op.axis))


@elements_of.register
def _(op: MakeVector, node: Apply, graph: LogpGraph) -> Elements | None:
    n = len(node.inputs)
    source = np.arange(n)
    reads = [np.where(source == j, 0, -1)[:, None] for j in range(n)]
    return from_sources(list(reads), list(range(n)), source)


@elements_of.register(IncSubtensor)
@elements_of.register(AdvancedIncSubtensor)
def _(op, node: Apply, graph: LogpGraph) -> Elements | None:
    return moved(node, graph, (0, 1)) if op.set_instead_of_inc else None


# ---------------------------------------------------------------- gathers
@elements_of.register(AdvancedSubtensor)
@elements_of.register(Subtensor)
def _(op, node: Apply, graph: LogpGraph) -> Elements | None:
    x, *flat = node.inputs
    if all(isinstance(i, Constant) for i in flat):
        return moved(node, graph, (0,))
    if x in graph.dependent:
        return None  # which element of a moving tensor: an index that depends on a site is dense there
    return gather(op, node, graph)


def gather(op: AdvancedSubtensor | Subtensor, node: Apply, graph: LogpGraph) -> Elements | None:
    """`x[i, :, j]` with index tensors that depend on sites: one element of x per output element, found when the indices are known."""
    x, *flat = node.inputs
    shape = graph.shape(x)
    indices = list(indices_from_subtensor(flat, op.idx_list))
    indices += [slice(None)] * (len(shape) - len(indices))
    arrays = [d for d, i in enumerate(indices) if isinstance(i, Variable)]
    if not arrays:
        return None
    if any(getattr(indices[d].type, "ndim", 0) and indices[d].type.dtype == "bool" for d in arrays):
        return None
    slices: list[Any] = []
    for index in indices:
        if isinstance(index, slice):
            parts = [index.start, index.stop, index.step]
            parts = [p.data.item() if isinstance(p, Constant) else p for p in parts]
            if any(isinstance(p, Variable) for p in parts):
                return None
            slices.append(slice(*parts))
        else:
            slices.append(index)
    wide = np.broadcast_shapes(*(graph.shape(indices[d]) for d in arrays))
    n_wide = int(np.prod(wide))
    zeros = np.zeros(wide, int)

    def at(coordinate_shape, number, first):
        """Run the indexing on an array that holds a coordinate."""
        where = tuple((first if d == arrays[0] else zeros) if d in arrays else slices[d] for d in range(len(shape)))
        return np.broadcast_to(number, coordinate_shape)[where].reshape(-1)

    # which broadcast index element an output element takes, and where it lies along the sliced dimensions
    small = [1 if d in arrays else n for d, n in enumerate(shape)]
    numbered = list(small)
    numbered[arrays[0]] = n_wide
    line = np.arange(n_wide).reshape([n_wide if d == arrays[0] else 1 for d in range(len(shape))])
    which = at(numbered, line, np.arange(n_wide).reshape(wide))
    coordinates = [
        at(small, np.arange(n).reshape([n if e == d else 1 for e in range(len(shape))]), zeros)
        for d, n in enumerate(shape)
        if d not in arrays
    ]
    reads: list[np.ndarray | None] = [None] * len(node.inputs)
    for d in arrays:
        var = indices[d]
        ids = np.broadcast_to(np.arange(graph.size(var)).reshape(graph.shape(var)), wide).reshape(-1)
        reads[1 + flat.index(var)] = ids[which][:, None]
    for j in range(len(flat)):
        if reads[1 + j] is None:  # the bounds of a slice
            reads[1 + j] = np.zeros((which.size, 1), int)
    positions = [1 + flat.index(indices[d]) for d in arrays]
    strides = [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
    free = [d for d in range(len(shape)) if d not in arrays]
    base = np.sum([c * strides[d] for c, d in zip(coordinates, free, strict=True)], axis=0, dtype=int)
    base = np.broadcast_to(base, which.shape)

    def take(values, fixed):
        flat_index = fixed[0][..., None]
        for d, j in zip(arrays, positions, strict=True):
            i = jnp.where(values[j] < 0, values[j] + shape[d], values[j])
            flat_index = flat_index + jnp.clip(i, 0, shape[d] - 1) * strides[d]
        return jnp.asarray(values[0]).reshape(-1).at[flat_index].get(mode="promise_in_bounds")

    return Elements(reads, take, fixed=(base,), passes=True)


# ---------------------------------------------------------------- reductions over small groups
def groups(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """(n_out, g): the elements that each result of a reduction over `axes` reads."""
    g = int(np.prod([shape[a] for a in axes]))
    ids = np.arange(int(np.prod(shape))).reshape(shape)
    n_out = int(np.prod([n for a, n in enumerate(shape) if a not in axes]))
    return np.moveaxis(ids, axes, range(-len(axes), 0)).reshape(n_out, g)


def reduced_axes(op: CAReduce, node: Apply) -> tuple[int, ...]:
    return tuple(range(node.inputs[0].type.ndim)) if op.axis is None else tuple(op.axis)


@elements_of.register
def _(op: CAReduce, node: Apply, graph: LogpGraph) -> Elements | None:
    x = node.inputs[0]
    reads = groups(graph.shape(x), reduced_axes(op, node))
    if not 1 <= reads.shape[1] <= LARGEST_GROUP:
        return None
    if reads.shape[1] == 1:
        return Elements([reads], lambda values, _: values[0])
    name = (getattr(op, "nfunc_spec", None) or (None,))[0]
    function = getattr(jnp, name, None) if name else None
    if function is None:
        return None
    dtype = jax.dtypes.canonicalize_dtype(node.outputs[0].type.dtype)
    return Elements([reads], lambda values, _: function(values[0], axis=-2).astype(dtype))


@elements_of.register
def _(op: LogSumExp, node: Apply, graph: LogpGraph) -> Elements | None:
    reads = groups(graph.shape(node.inputs[0]), op.axis)
    if not 2 <= reads.shape[1] <= LARGEST_GROUP:
        return None
    return Elements([reads], lambda values, _: jax.nn.logsumexp(values[0], axis=-2))


@elements_of.register
def _(op: Dot, node: Apply, graph: LogpGraph) -> Elements | None:
    a, b = node.inputs
    n = graph.shape(a)[-1]
    if not adds_up(node.outputs[0]):
        return None
    rows, columns = graph.size(a) // max(n, 1), graph.size(b) // max(n, 1)
    if n == 0 or rows * columns * n > LARGEST_TABLE:
        return None
    row = np.repeat(np.arange(rows), columns)
    column = np.tile(np.arange(columns), rows)
    inner = np.broadcast_to(np.arange(n), (rows * columns, n))
    # zeros of a constant matrix (an adjacency, a difference operator) are not read
    left, right = constant(a), constant(b)
    live = np.ones(inner.shape, bool)
    if left is not None:
        live &= (left.reshape(rows, n) != 0)[row]
    if right is not None:
        live &= (right.reshape(n, columns) != 0).T[column]
    g = max(int(live.sum(1).max(initial=0)), 1)
    if g > LARGEST_GROUP:
        return None
    order = np.argsort(~live, axis=1, kind="stable")[:, :g]
    keep = np.take_along_axis(live, order, 1)
    reads_a = np.where(keep, row[:, None] * n + order, -1)
    reads_b = np.where(keep, order * columns + column[:, None], -1)

    def compute(values, fixed):
        product = values[0] * values[1]
        return jnp.where(fixed[0][..., None], product, 0).sum(axis=-2)

    if g == 1:
        return Elements([reads_a, reads_b], lambda v, f: jnp.where(f[0], v[0] * v[1], 0), fixed=(keep,))
    return Elements([reads_a, reads_b], compute, fixed=(keep,))
