"""One rule per PyTensor Op: which input elements an output element reads, and how it is computed from them.

A rule for another Op is a function registered with `@elements_of.register`. An Op without a rule is assumed
to read all of its inputs for every element of its output, which is correct and only costs more.
"""

import functools
import math
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
from pytensor.scalar.basic import (
    AND,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NEQ,
    OR,
    XOR,
    Cast,
    Identity,
    Invert,
    Mul,
    Pow,
    ScalarOp,
    Switch,
)
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_discrete.structure.bounds import is_whole
from pymc_discrete.structure.integers import is_integer_log_gamma, log_gamma
from pymc_discrete.structure.logp_graph import LogpGraph, adds_up

LARGEST_TABLE = 4_000_000  # largest number of entries of an array in `reads`; a larger one is not made


@dataclass
class Elements:
    """How the elements of one output are computed from elements of the inputs.

    Attributes
    ----------
    reads : per input an array (n_out, g) int, the flat indices of the g elements read by each output element,
        -1 for padding; g = 0 where the input is not read. Or None where the whole input is read, which is
        allowed only for inputs that do not depend on the block.
    compute : (values, fixed) -> values. An input with g = 1 is passed as (..., k), one with g > 1 as
        (..., g, k). The last axis holds k candidate states; it has length 1 for values that are equal in all.
    fixed : arrays (n_out, ...) int, constants of each output element
    passes : whether the Op only selects, compares or rearranges elements, without arithmetic. Tables can be
        propagated through such an Op, gradients cannot.
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
        are, for every output, the c elements of each entry, (..., c, k), with k as in `Elements`.
    entry, place : for every output (n_out,) int, the entry that each element belongs to, and its position
        among the c elements of the entry
    passes : as in `Elements`
    """

    reads: list[np.ndarray | None]
    compute: Callable[[list[Any]], list[Any]]
    entry: list[np.ndarray]
    place: list[np.ndarray]
    passes: bool = False


@singledispatch
def elements_of(op: Op, node: Apply, graph: LogpGraph) -> Elements | Entries | None:
    """The rule of an Op, or None where every output element may depend on all elements of the inputs."""
    return whole(node, graph)


def constant(var: Variable) -> np.ndarray | None:
    """The data of a constant, or None for other variables."""
    return np.asarray(var.data) if isinstance(var, Constant) else None


# ---------------------------------------------------------------- elementwise
COMPARISONS = (EQ, GE, GT, LE, LT, NEQ)
SELECTORS = (*COMPARISONS, AND, OR, XOR, Invert, Identity)


@elements_of.register
def _(op: Elemwise, node: Apply, graph: LogpGraph) -> Elements | None:
    shape = graph.shape(node.outputs[0])
    n_out = int(np.prod(shape))
    unread = without_effect(op.scalar_op, node.inputs, graph)
    reads: list[np.ndarray | None] = []
    for j, i in enumerate(node.inputs):
        ids = np.arange(graph.size(i)).reshape(graph.shape(i))
        if j in unread:
            ids = np.where(unread[j], -1, ids)
        reads.append(np.broadcast_to(ids, shape).reshape(n_out, 1))
    # `log_gamma` looks values up in a table. That is not worthwhile for an argument that does not depend on
    # the block, of which log Gamma is computed only once.
    depends = graph.depends(node.inputs[0])
    scalar = log_gamma if depends and is_integer_log_gamma(node) else jax_funcify(op.scalar_op, node=node)
    return Elements(reads, lambda values, _: scalar(*values), passes=isinstance(op.scalar_op, SELECTORS))


def without_effect(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> dict[int, np.ndarray]:
    """{number of an input: where it does not matter}, since a constant among the inputs decides.

    As with an exponent or a factor of 0, in which a table says that an item does not ask for a skill; and as
    with a skill that is compared with 0, which it is never less than. Only integers are left out of a
    product: 0 times a float may be nan.

    Returns
    -------
    {number: bool array, broadcastable with the output}
    """
    if isinstance(op, COMPARISONS):
        outcomes = outcome(op, inputs, graph)
        if outcomes is None:
            return {}
        # any other element in its place has the same bounds, and so the same outcome; not so of a constant
        return {j: ~np.isnan(outcomes) for j, i in enumerate(inputs) if not isinstance(i, Constant)}
    known = {j: value for j, i in enumerate(inputs) if (value := settled(i, graph)) is not None}
    if isinstance(op, Switch):
        return {1: known[0] == 0, 2: (known[0] != 0) & ~np.isnan(known[0])} if 0 in known else {}
    if isinstance(op, Pow):
        return {0: known[1] == 0} if 1 in known else {}
    if isinstance(op, Mul | AND):
        decides = 0
    elif isinstance(op, OR) and all(i.type.dtype == "bool" for i in inputs):
        decides = 1
    else:
        return {}
    found = {}
    for j, i in enumerate(inputs):
        others = [known[k] == decides for k in known if k != j]
        if others and is_whole(without_casts(i)):
            found[j] = functools.reduce(np.logical_or, others)
            if j in known:  # of several that decide, all are read: none of them depends on a site there
                found[j] = found[j] & (known[j] != decides)
    return found


def settled(var: Variable, graph: LogpGraph) -> np.ndarray | None:
    """The elements of a constant, or of a comparison: nan where bounds do not decide it.

    None for other variables.
    """
    compared = without_casts(var).owner
    if compared is None or not isinstance(scalar := getattr(compared.op, "scalar_op", None), COMPARISONS):
        return constant(var)
    return outcome(scalar, compared.inputs, graph)


def outcome(op: ScalarOp, inputs: list[Variable], graph: LogpGraph) -> np.ndarray | None:
    """What a comparison of integers gives at all values within their bounds, element by element.

    Returns
    -------
    float array, broadcastable with the output: 0, 1, or nan where it depends on the values; None where floats
    are compared, which may be nan
    """
    if not all(isinstance(i, Constant) or is_whole(without_casts(i)) for i in inputs):
        return None
    ends = [graph.bounds.of(i) if (value := constant(i)) is None else (value, value) for i in inputs]
    # a larger integer may have been rounded, and decides nothing: comparisons with nan do not hold
    known = [[np.where(np.abs(np.asarray(e, float)) < 2**53, e, np.nan) for e in pair] for pair in ends]
    (low, high), (low_of_other, high_of_other) = known[::-1] if isinstance(op, GT | GE) else known
    if isinstance(op, LT | GT):
        true, false = np.less(high, low_of_other), np.greater_equal(low, high_of_other)
    elif isinstance(op, LE | GE):
        true, false = np.less_equal(high, low_of_other), np.greater(low, high_of_other)
    else:
        apart = np.less(high, low_of_other) | np.less(high_of_other, low)
        same = np.equal(low, high_of_other) & np.equal(high, low_of_other)
        true, false = (same, apart) if isinstance(op, EQ) else (apart, same)
    return np.where(true, 1.0, np.where(false, 0.0, np.nan))


def without_casts(var: Variable) -> Variable:
    """What a variable is a cast of, or itself."""
    while var.owner is not None and isinstance(getattr(var.owner.op, "scalar_op", None), Cast):
        var = var.owner.inputs[0]
    return var


def is_switch(node: Apply) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Switch)


# ---------------------------------------------------------------- Ops that rearrange elements
def rearranged(
    node: Apply, graph: LogpGraph, data: tuple[int, ...], function: Callable[..., np.ndarray] | None = None
) -> Elements | None:
    """The rule of an Op that only rearranges elements, obtained by running it on the numbers of the elements.

    Parameters
    ----------
    data : the inputs whose elements are rearranged; None is returned if another input is not constant
    function : (inputs) -> output, run in place of the Op
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
        return None  # the Op has cast its data, and the numbers may have been rounded or truncated
    starts = np.array([s for _, s in source_of])
    source = np.searchsorted(starts, ids, side="right") - 1
    # An empty input has the same offset as the next one. Of inputs with equal offsets, `searchsorted` with
    # side="right" finds the last, which is not empty.
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
    """The rule of an Op each of whose output elements is a copy of one input element.

    Parameters
    ----------
    reads : see `Elements`
    inputs : numbers of the inputs that are copied from
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


def _first_input(op, node: Apply, graph: LogpGraph) -> Elements | None:
    return rearranged(node, graph, (0,))


for _op in (
    DimShuffle, Reshape, SpecifyShape, ExtractDiag, JoinDims, SplitDims, Alloc, ScalarFromTensor,
    TensorFromScalar,
):  # fmt: skip
    elements_of.register(_op)(_first_input)


@elements_of.register
def _(op: Split, node: Apply, graph: LogpGraph) -> Elements | None:
    return rearranged(node, graph, (0,)) if len(node.outputs) == 1 else None


@elements_of.register
def _(op: Join, node: Apply, graph: LogpGraph) -> Elements | None:
    # `np.concatenate` is run, because the Op itself would cast the numbers of the elements to its own dtype
    return rearranged(
        node, graph, tuple(range(len(node.inputs))), lambda *args: np.concatenate(args, axis=op.axis)
    )


@elements_of.register
def _(op: MakeVector, node: Apply, graph: LogpGraph) -> Elements | None:
    n = len(node.inputs)
    source = np.arange(n)
    reads = [np.where(source == j, 0, -1)[:, None] for j in range(n)]
    return from_sources(list(reads), list(range(n)), source)


@elements_of.register(IncSubtensor)
@elements_of.register(AdvancedIncSubtensor)
def _(op, node: Apply, graph: LogpGraph) -> Elements | Entries | None:
    x, y, *flat = node.inputs
    if not all(isinstance(i, Constant) for i in flat):
        return whole(node, graph)
    if op.set_instead_of_inc:
        return rearranged(node, graph, (0, 1))
    # x[...] += y: each output element reads its element of x and those of y that are added to it
    indices = tuple(indices_from_subtensor([i.data for i in flat], op.idx_list))
    n_out = graph.size(x)
    to = np.arange(n_out).reshape(graph.shape(x))[indices]
    added = np.broadcast_to(np.arange(graph.size(y)).reshape(graph.shape(y)), to.shape).reshape(-1)
    to = to.reshape(-1)
    order = np.argsort(to, kind="stable")
    count = np.bincount(to, minlength=n_out)
    most = max(int(count.max(initial=0)), 1)
    if n_out * most > LARGEST_TABLE:
        return None
    reads = np.full((n_out, most), -1)
    first = np.concatenate([[0], np.cumsum(count)])[:-1]
    reads[to[order], np.arange(len(to)) - first[to[order]]] = added[order]

    def compute(values, fixed):
        if most == 1:
            return values[0] + jnp.where(fixed[0], values[1], 0)
        return values[0] + jnp.where(fixed[0][..., None], values[1], 0).sum(axis=-2)

    return Elements(
        [np.arange(n_out)[:, None], reads, *[np.zeros((n_out, 0), int)] * len(flat)],
        compute,
        fixed=(reads >= 0,),
    )


# ---------------------------------------------------------------- gathers
@elements_of.register(AdvancedSubtensor)
@elements_of.register(Subtensor)
def _(op, node: Apply, graph: LogpGraph) -> Elements | None:
    if all(isinstance(i, Constant) for i in node.inputs[1:]):
        return rearranged(node, graph, (0,))
    return gather(op, node, graph)


def gather(op: AdvancedSubtensor | Subtensor, node: Apply, graph: LogpGraph) -> Elements | None:
    """The rule of `x[i, :, j]` with index tensors that are not constant.

    An output element reads its elements of the indices. Which element of x it reads depends on their values;
    where x depends on the block, it reads the group of all elements that the indices may select.
    """
    x, *flat = node.inputs
    shape = graph.shape(x)
    # for each dimension of x: which of the flat inputs is its index, or a slice of such numbers
    entries = list(indices_from_subtensor(range(len(flat)), op.idx_list))
    entries += [slice(None)] * (len(shape) - len(entries))
    arrays = [d for d, entry in enumerate(entries) if not isinstance(entry, slice)]
    index = {d: flat[entries[d]] for d in arrays}
    if not arrays or any(getattr(i.type, "ndim", 0) and i.type.dtype == "bool" for i in index.values()):
        return None
    slices: dict[int, slice] = {}
    for d, entry in enumerate(entries):
        if d not in index:
            ends = [None if end is None else flat[end] for end in (entry.start, entry.stop, entry.step)]
            if not all(end is None or isinstance(end, Constant) for end in ends):
                return None
            slices[d] = slice(*(None if end is None else np.asarray(end.data).item() for end in ends))
    wide = np.broadcast_shapes(*(graph.shape(i) for i in index.values()))
    zeros, n_wide = np.zeros(wide, int), int(np.prod(wide))

    def at(coordinate_shape, number, first):
        """Apply the indexing to an array of coordinates, the first index being `first`, the others 0."""
        where = tuple(
            (first if d == arrays[0] else zeros) if d in index else slices[d] for d in range(len(shape))
        )
        return np.broadcast_to(number, coordinate_shape)[where].reshape(-1)

    # `which`: the element of the broadcast indices that each output element uses. `base`: the part of its
    # flat index in x that comes from the sliced dimensions.
    small = [1 if d in index else n for d, n in enumerate(shape)]
    numbered = list(small)
    numbered[arrays[0]] = n_wide
    numbers = np.arange(n_wide).reshape([n_wide if d == arrays[0] else 1 for d in range(len(shape))])
    which = at(numbered, numbers, np.arange(n_wide).reshape(wide))
    strides = [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
    base = np.zeros(which.size, int)
    for d in slices:
        base = base + strides[d] * at(
            small, np.arange(shape[d]).reshape([shape[d] if e == d else 1 for e in range(len(shape))]), zeros
        )
    reads: list[np.ndarray | None] = [np.zeros((which.size, 0), int) for _ in node.inputs]
    for d in arrays:
        ids = np.broadcast_to(np.arange(graph.size(index[d])).reshape(graph.shape(index[d])), wide).reshape(
            -1
        )
        reads[1 + entries[d]] = ids[which][:, None]
    if not graph.depends(x):
        reads[0] = None

        def take(values, fixed):
            place = fixed[0][..., None] + sum(
                inside(values[1 + entries[d]], shape[d]) * strides[d] for d in arrays
            )
            return jnp.asarray(values[0]).reshape(-1).at[place].get(mode="promise_in_bounds")

        return Elements(reads, take, fixed=(base,), passes=True)

    # x depends on the block: each output element reads the group of all elements that its indices may select
    chosen = [d for d in arrays if not isinstance(index[d], Constant)]
    for d in arrays:
        if d not in chosen:
            fixed_index = np.broadcast_to(np.asarray(index[d].data), wide).reshape(-1)[which]
            base = base + strides[d] * np.where(fixed_index < 0, fixed_index + shape[d], fixed_index)
    group = np.indices([shape[d] for d in chosen]).reshape(len(chosen), -1)
    if which.size * group.shape[1] > LARGEST_TABLE:
        return None
    reads[0] = base[:, None] + np.array([strides[d] for d in chosen]) @ group
    steps = [int(np.prod([shape[e] for e in chosen[n + 1 :]])) for n in range(len(chosen))]

    def pick(values, _):
        place = sum(
            inside(values[1 + entries[d]], shape[d]) * step for d, step in zip(chosen, steps, strict=True)
        )
        if group.shape[1] == 1:
            return values[0]
        return one_of(values[0], place)

    return Elements(reads, pick, passes=True)


def inside(index: Any, n: int) -> Any:
    """An index into n elements as a number from 0 to n - 1.

    Where an index is out of bounds the density is zero whatever element is read (see `index_guards`).
    """
    return jnp.clip(jnp.where(index < 0, index + n, index), 0, n - 1)


def one_of(group: Any, place: Any) -> Any:
    """(..., k) the element at `place` (..., k) of each group (..., g, k)."""
    g = group.shape[-2]
    if g <= 8:  # XLA vectorises a chain of selects, but not a gather
        element = group[..., 0, :]
        for n in range(1, g):
            element = jnp.where(place == n, group[..., n, :], element)
        return element
    shape = jnp.broadcast_shapes((*group.shape[:-2], group.shape[-1]), place.shape)
    group = jnp.broadcast_to(group, (*shape[:-1], g, shape[-1]))
    return jnp.take_along_axis(group, jnp.broadcast_to(place, shape)[..., None, :], axis=-2, mode="clip")[
        ..., 0, :
    ]


# ---------------------------------------------------------------- reductions
def groups(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """(n_out, g) int, the flat indices of the elements that each result of a reduction over `axes` reads."""
    g = int(np.prod([shape[a] for a in axes]))
    ids = np.arange(int(np.prod(shape))).reshape(shape)
    n_out = int(np.prod([n for a, n in enumerate(shape) if a not in axes]))
    return np.moveaxis(ids, axes, range(-len(axes), 0)).reshape(n_out, g)


def reduced_axes(op: CAReduce, node: Apply) -> tuple[int, ...]:
    """The axes of a node's input that a reduction reduces."""
    return tuple(range(node.inputs[0].type.ndim)) if op.axis is None else tuple(op.axis)


@elements_of.register
def _(op: CAReduce, node: Apply, graph: LogpGraph) -> Elements | None:
    x = node.inputs[0]
    reads = groups(graph.shape(x), reduced_axes(op, node))
    if reads.shape[1] == 0 or reads.size > LARGEST_TABLE:
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
def _(op: Argmax, node: Apply, graph: LogpGraph) -> Elements | None:
    shape = graph.shape(node.inputs[0])
    reads = groups(shape, tuple(range(len(shape))) if op.axis is None else tuple(op.axis))
    if reads.shape[1] < 2 or reads.size > LARGEST_TABLE:
        return None
    return Elements([reads], lambda values, _: jnp.argmax(values[0], axis=-2))


@elements_of.register
def _(op: LogSumExp, node: Apply, graph: LogpGraph) -> Elements | None:
    reads = groups(graph.shape(node.inputs[0]), op.axis)
    if reads.shape[1] < 2 or reads.size > LARGEST_TABLE:
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
    # An element of the product does not depend on entries that are multiplied with a zero of a constant
    # matrix, such as an adjacency matrix or a difference operator.
    left, right = constant(a), constant(b)
    live = np.ones(inner.shape, bool)
    if left is not None:
        live &= (left.reshape(rows, n) != 0)[row]
    if right is not None:
        live &= (right.reshape(n, columns) != 0).T[column]
    g = max(int(live.sum(1).max(initial=0)), 1)
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


# ---------------------------------------------------------------- entries of a batch
@elements_of.register
def _(op: Blockwise, node: Apply, graph: LogpGraph) -> Entries | None:
    """The entries of a batch are independent: each reads the corresponding entry of every input."""
    batch = graph.shape(node.outputs[0])
    batch = batch[: len(batch) - len(op.outputs_sig[0])]
    count = int(np.prod(batch))
    reads: list[np.ndarray | None] = []
    cores: list[tuple[int, ...]] = []
    for i, names in zip(node.inputs, op.inputs_sig, strict=True):
        shape = graph.shape(i)
        core = shape[len(shape) - len(names) :]
        ids = np.arange(graph.size(i)).reshape(shape)
        reads.append(np.broadcast_to(ids, (*batch, *core)).reshape(count, -1))
        cores.append(core)
    if count == 0 or sum(r.size for r in reads if r is not None) > LARGEST_TABLE:
        return None
    sizes = [graph.size(out) // count for out in node.outputs]

    def compute(values):
        core_node = op._create_dummy_core_node(node.inputs)
        function = jnp.vectorize(jax_funcify(core_node.op, node=core_node), signature=op.signature)
        outputs = function(*(to_core(v, core) for v, core in zip(values, cores, strict=True)))
        outputs = outputs if isinstance(outputs, tuple | list) else [outputs]
        return [from_core(a, len(names)) for a, names in zip(outputs, op.outputs_sig, strict=True)]

    return Entries(reads, compute, *contiguous(sizes, count))


def to_core(values: Any, shape: tuple[int, ...]) -> Any:
    """Reshape the values of groups, (..., g, k), to arrays of the shape of an entry, (..., k, *shape)."""
    values = jnp.moveaxis(jnp.asarray(values), -1, -2)
    return values.reshape(*values.shape[:-1], *shape)


def from_core(values: Any, n: int) -> Any:
    """Reshape arrays with the n dimensions of an entry last, (..., k, *shape), to groups, (..., c, k)."""
    values = jnp.asarray(values)
    first = values.ndim - n
    lead, shape = values.shape[:first], values.shape[first:]
    # the size by name, since that of an array without elements cannot be told from the other dimensions
    return jnp.moveaxis(values.reshape(*lead, math.prod(shape)), -1, -2)


def contiguous(sizes: list[int], count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """`Entries.entry` and `place` of outputs that consist of `count` consecutive entries of given sizes."""
    return [np.repeat(np.arange(count), c) for c in sizes], [np.tile(np.arange(c), count) for c in sizes]


def along(
    node: Apply, graph: LogpGraph, axes: tuple[int, ...] | None, function: Callable[[Any], Any]
) -> Entries | None:
    """The rule of an Op that is applied along some axes of its first input, independently of the others.

    Parameters
    ----------
    axes : None for all
    function : (..., g, k) -> (..., g, k), the Op on the g elements along these axes
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


@elements_of.register
def _(op: Softmax, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, op.axis, lambda v: jax.nn.softmax(v, axis=-2))


@elements_of.register
def _(op: LogSoftmax, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, op.axis, lambda v: jax.nn.log_softmax(v, axis=-2))


@elements_of.register
def _(op: CumOp, node: Apply, graph: LogpGraph) -> Entries | None:
    function = jnp.cumsum if op.mode == "add" else jnp.cumprod
    return along(node, graph, (op.axis,), lambda v: function(v, axis=-2))


@elements_of.register
def _(op: SortOp, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, (op.axis,), lambda v: jnp.sort(v, axis=-2))


@elements_of.register
def _(op: ArgSortOp, node: Apply, graph: LogpGraph) -> Entries | None:
    return along(node, graph, (op.axis,), lambda v: jnp.argsort(v, axis=-2, stable=op.kind == "stable"))


# ---------------------------------------------------------------- everything else
def whole(node: Apply, graph: LogpGraph) -> Entries | None:
    """The rule of an unknown Op: every output element may read all elements of the inputs.

    Only inputs that depend on the block are read as groups; the others are passed whole.
    """
    moving = [graph.depends(i) for i in node.inputs]
    shapes = [graph.shape(i) if hasattr(i.type, "ndim") else () for i in node.inputs]
    outputs = [graph.shape(out) if hasattr(out.type, "ndim") else () for out in node.outputs]
    reads = [np.arange(graph.size(i))[None] if m else None for i, m in zip(node.inputs, moving, strict=True)]
    if (
        any(r is not None and not 0 < r.size <= LARGEST_TABLE for r in reads)
        or min(map(math.prod, outputs)) == 0
    ):
        return None

    def compute(values):
        function = jax_funcify(node.op, node=node)

        def of_moving(*parts):
            moving_inputs = iter(parts)
            args = [next(moving_inputs) if m else v for m, v in zip(moving, fixed, strict=True)]
            return function(*args)

        # integers stay NumPy arrays: they may be sizes, which must be known when the program is compiled
        fixed = [
            None
            if m
            else jnp.asarray(v).reshape(s)
            if isinstance(v, np.ndarray) and v.dtype.kind == "f"
            else v.reshape(s)
            if hasattr(v, "reshape")
            else v
            for m, v, s in zip(moving, values, shapes, strict=True)
        ]
        parts = [to_core(v, s) for v, s, m in zip(values, shapes, moving, strict=True) if m]
        names = iter(range(10**6))

        def dims(shape):
            return "(" + ",".join(f"d{next(names)}" for _ in shape) + ")"

        signature = (
            ",".join(dims(s) for s, m in zip(shapes, moving, strict=True) if m)
            + "->"
            + ",".join(map(dims, outputs))
        )
        arrays = jnp.vectorize(of_moving, signature=signature)(*parts)
        arrays = arrays if isinstance(arrays, tuple | list) else [arrays]
        return [from_core(a, len(shape)) for a, shape in zip(arrays, outputs, strict=True)]

    return Entries(reads, compute, *contiguous([math.prod(shape) for shape in outputs], 1))
