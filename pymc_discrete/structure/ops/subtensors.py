"""Indexing: `x[i, :, j]`, and writing or adding to `x[i, :, j]`."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_discrete.structure.bounds import Interval, bounds_after, hull, sum_of
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.ops.rearranging import (
    rearranged,
    rearranged_degree,
    rearranged_error,
    rearranges,
)
from pymc_discrete.structure.reads import LARGEST_TABLE, Elements, Entries, elements_of, whole
from pymc_discrete.structure.rounding import error_after
from pymc_discrete.structure.stacking import NotAlike, with_axis


def index_entries(op: AdvancedSubtensor | Subtensor, n: int, ndim: int) -> list[Any]:
    """For each dimension of x in `x[i, :, j]`, where its index is among the n inputs of the node after x.

    An entry is a number, or a slice whose ends are numbers or None.
    """
    entries = list(indices_from_subtensor(range(n), op.idx_list))
    return entries + [slice(None)] * (ndim - len(entries))


def with_slices_between(dimensions: list[int]) -> bool:
    """Whether a slice lies between the dimensions with an array as index, as in `x[i, :, j]`.

    NumPy then moves the dimensions of the arrays to the front of the result.
    """
    return bool(dimensions) and dimensions != list(range(dimensions[0], dimensions[-1] + 1))


# ---------------------------------------------------------------- x[index]: bounds, degree, rounding
for _op in (AdvancedSubtensor, Subtensor):
    rearranges(_op)


# ---------------------------------------------------------------- x[index]: which elements are read
@elements_of.register(AdvancedSubtensor)
@elements_of.register(Subtensor)
def _(op: AdvancedSubtensor | Subtensor, node: Apply, graph: LogpGraph) -> Elements | None:
    if all(isinstance(i, Constant) for i in node.inputs[1:]):
        return rearranged(node, graph, (0,))
    return gather(op, node, graph)


class Indexing(NamedTuple):
    """The index of each dimension of x in `x[i, :, j]`.

    Attributes
    ----------
    arrays : {dimension: the position, among the node's inputs, of its index}
    slices : {dimension: slice}
    """

    arrays: dict[int, int]
    slices: dict[int, slice]


def gather(op: AdvancedSubtensor | Subtensor, node: Apply, graph: LogpGraph) -> Elements | None:
    """Which elements `x[i, :, j]` reads where an index is a tensor that is not constant.

    An output element reads elements of the indices, and their values decide which element of x it reads.
    Where x depends on the block, the output element reads the group of all elements of x that the indices may
    select.
    """
    x = node.inputs[0]
    shape = graph.shape(x)
    indexing = taken_apart(op, node, len(shape))
    if indexing is None:
        return None
    numbers = indexing.arrays.values()
    wide = np.broadcast_shapes(*(graph.shape(node.inputs[j]) for j in numbers))
    which, base = places_read(indexing, shape, wide)
    reads: list[np.ndarray | None] = [np.zeros((which.size, 0), int) for _ in node.inputs]
    for j in numbers:
        i = node.inputs[j]
        ids = np.broadcast_to(np.arange(graph.size(i)).reshape(graph.shape(i)), wide).reshape(-1)
        reads[j] = ids[which][:, None]
    if not graph.depends(x):
        return from_fixed(indexing, shape, base, reads)
    constants = {
        d: np.broadcast_to(np.asarray(node.inputs[j].data), wide).reshape(-1)[which]
        for d, j in indexing.arrays.items()
        if isinstance(node.inputs[j], Constant)
    }
    return from_groups(indexing, shape, base, reads, constants)


def taken_apart(op: AdvancedSubtensor | Subtensor, node: Apply, ndim: int) -> Indexing | None:
    """The indices of a node as an `Indexing`.

    None where all indices are slices, an index is boolean, or an end of a slice is no constant.
    """
    flat = node.inputs[1:]
    arrays: dict[int, int] = {}
    slices: dict[int, slice] = {}
    for d, entry in enumerate(index_entries(op, len(flat), ndim)):
        if not isinstance(entry, slice):
            arrays[d] = 1 + entry
            continue
        ends = [None if end is None else flat[end] for end in (entry.start, entry.stop, entry.step)]
        if not all(end is None or isinstance(end, Constant) for end in ends):
            return None
        slices[d] = slice(*(None if end is None else np.asarray(end.data).item() for end in ends))
    types = [node.inputs[j].type for j in arrays.values()]
    if not arrays or any(getattr(t, "ndim", 0) and t.dtype == "bool" for t in types):
        return None
    return Indexing(arrays, slices)


def strides_of(shape: tuple[int, ...]) -> list[int]:
    """For each dimension, the increase of the flat index when the index of the dimension grows by 1."""
    return [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]


def places_read(
    indexing: Indexing, shape: tuple[int, ...], wide: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The element of the indices, and the part of the flat index, that each output element of `x[i, :, j]`
    uses.

    Parameters
    ----------
    shape : the shape of x
    wide : the shape of the indices, broadcast against one another

    Returns
    -------
    which : (n_out,) int, the element of the broadcast indices that each output element uses
    base : (n_out,) int, the part of the flat index in x that comes from the sliced dimensions
    """
    arrays, slices = indexing
    leading, dimensions = min(arrays), range(len(shape))
    zeros, n_wide = np.zeros(wide, int), int(np.prod(wide))

    def at(coordinate_shape, number, first):
        """The flat result of indexing `number`, broadcast to `coordinate_shape`.

        The index arrays are all 0, but for the array of the first indexed dimension, which is `first`.
        """
        where = tuple(slices.get(d, first if d == leading else zeros) for d in dimensions)
        return np.broadcast_to(number, coordinate_shape)[where].reshape(-1)

    small = [1 if d in arrays else n for d, n in enumerate(shape)]
    numbered = list(small)
    numbered[leading] = n_wide
    numbers = np.arange(n_wide).reshape([n_wide if d == leading else 1 for d in dimensions])
    which = at(numbered, numbers, np.arange(n_wide).reshape(wide))
    base, strides = np.zeros(which.size, int), strides_of(shape)
    for d in slices:
        position = np.arange(shape[d]).reshape([shape[d] if e == d else 1 for e in dimensions])
        base = base + strides[d] * at(small, position, zeros)
    return which, base


def from_fixed(
    indexing: Indexing, shape: tuple[int, ...], base: np.ndarray, reads: list[np.ndarray | None]
) -> Elements:
    """How `x[i, :, j]` is computed where x does not depend on the block: elements of x are looked up."""
    strides = strides_of(shape)
    reads[0] = None

    def take(values, fixed):
        place = fixed[0][..., None] + sum(
            inside(values[j], shape[d]) * strides[d] for d, j in indexing.arrays.items()
        )
        return jnp.asarray(values[0]).reshape(-1).at[place].get(mode="promise_in_bounds")

    return Elements(reads, take, fixed=(base,), passes=True)


def from_groups(
    indexing: Indexing,
    shape: tuple[int, ...],
    base: np.ndarray,
    reads: list[np.ndarray | None],
    constants: dict[int, np.ndarray],
) -> Elements | None:
    """Which elements `x[i, :, j]` reads where x depends on the block, and how it picks one of them.

    An output element reads all elements of x that the indices may select, and is one of them. None where
    these are too many.

    Parameters
    ----------
    constants : {dimension with a constant index: (n_out,) int, the index of each output element}
    """
    strides = strides_of(shape)
    chosen = [d for d in indexing.arrays if d not in constants]
    for d, index in constants.items():
        base = base + strides[d] * np.where(index < 0, index + shape[d], index)
    group = np.indices([shape[d] for d in chosen]).reshape(len(chosen), -1)
    if base.size * group.shape[1] > LARGEST_TABLE:
        return None
    reads[0] = base[:, None] + np.array([strides[d] for d in chosen]) @ group
    steps = strides_of(tuple(shape[d] for d in chosen))

    def pick(values, _):
        numbers = [(indexing.arrays[d], shape[d]) for d in chosen]
        place = sum(inside(values[j], n) * step for (j, n), step in zip(numbers, steps, strict=True))
        return values[0] if group.shape[1] == 1 else one_of(values[0], place)

    return Elements(reads, pick, passes=True)


def inside(index: Any, n: int) -> Any:
    """An index into n elements, which may be negative, as an integer from 0 to n - 1.

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


# ---------------------------------------------------------------- x[index]: vectorised over a new axis
@with_axis.register(AdvancedSubtensor)
@with_axis.register(Subtensor)
def _(
    op: AdvancedSubtensor | Subtensor, node: Apply, inputs: list[tuple[Variable, bool]], n: int
) -> list[Variable]:
    return [indexed(node, inputs, n)]


def indexed(node: Apply, inputs: list[tuple[Variable, bool]], n: int) -> Variable:
    """`x[i, :, j]` where x, some of the indices, or all of them are stacks of n members.

    The result is indexed by the stacked axis first. Where NumPy's rules for advanced indexing put the
    dimensions of the indices elsewhere than for one member, the result is transposed back.
    """
    (x, stacked), *flat = inputs
    entries = index_entries(node.op, len(flat), node.inputs[0].type.ndim)
    arrays = [d for d, entry in enumerate(entries) if not isinstance(entry, slice)]
    index = index_of(entries, flat)
    # the number of dimensions of the indices of one member, broadcast against one another
    wide = max((getattr(node.inputs[1 + entries[d]].type, "ndim", 0) for d in arrays), default=0)
    apart = with_slices_between(arrays)
    if not any(flat[entries[d]][1] for d in arrays):
        if not stacked:
            raise NotAlike
        if not (apart and isinstance(node.op, AdvancedSubtensor)):
            return x[(slice(None), *index)]
    for d in arrays:
        index[d] = with_first_axis(index[d], flat[entries[d]][1], wide)
    before = arrays[0]  # the number of sliced dimensions before the first index
    if stacked:
        member = pt.constant(np.arange(n)).dimshuffle(0, *["x"] * wide)
        out = x[(member, *index)]
        at_front = apart or before > 0
    else:
        out = x[tuple(index)]
        at_front = apart
    if not at_front:
        return out.dimshuffle(before, *range(before), *range(before + 1, out.ndim))
    # The result has the axes (n, indices, slices), which are transposed to the order for one member. In a
    # Subtensor, integers remove their dimensions and do not move other dimensions.
    ahead = before if isinstance(node.op, Subtensor) or not apart else 0
    return out.dimshuffle(
        0, *range(1 + wide, 1 + wide + ahead), *range(1, 1 + wide), *range(1 + wide + ahead, out.ndim)
    )


def index_of(entries: list[Any], flat: list[tuple[Variable, bool]]) -> list[Any]:
    """The index of each dimension of x in `x[i, :, j]`: a variable or a slice.

    Parameters
    ----------
    entries : for each dimension of x, where its index is in `flat`: a number, or a slice of numbers
    flat : [(input of the node after x, whether the input is a stack)]

    Raises
    ------
    NotAlike
        Where an index is boolean, or an end of a slice is a stack: the members may differ in length.
    """
    index = []
    for entry in entries:
        if not isinstance(entry, slice):
            index.append(flat[entry][0])
            if getattr(index[-1].type, "dtype", "") == "bool":
                raise NotAlike
            continue
        ends = [None if end is None else flat[end] for end in (entry.start, entry.stop, entry.step)]
        if any(end is not None and end[1] for end in ends):
            raise NotAlike
        index.append(slice(*(None if end is None else end[0] for end in ends)))
    return index


def with_first_axis(index: Variable, is_stack: bool, wide: int) -> Variable:
    """A stack of indices with `wide` dimensions after its first axis, so that all indices broadcast.

    An index that is no stack is returned as a tensor, which broadcasts as it is.
    """
    if not is_stack:
        return pt.as_tensor_variable(index) if hasattr(index.type, "ndim") else pt.tensor_from_scalar(index)
    index = pt.as_tensor_variable(index)
    ndim = index.ndim - 1
    return index.dimshuffle(0, *["x"] * (wide - ndim), *range(1, 1 + ndim))


# ---------------------------------------------------------------- x[index].set and x[index].inc
for _op in (AdvancedIncSubtensor, IncSubtensor):
    degree_after.register(_op)(rearranged_degree(2))
    error_after.register(_op)(rearranged_error)


@elements_of.register(IncSubtensor)
@elements_of.register(AdvancedIncSubtensor)
def _(op, node: Apply, graph: LogpGraph) -> Elements | Entries | None:
    x, y, *flat = node.inputs
    if not all(isinstance(i, Constant) for i in flat):
        return whole(node, graph)
    if op.set_instead_of_inc:
        return rearranged(node, graph, (0, 1))
    # for x[...] += y, each output element reads its element of x and the elements of y that are added to it
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


@bounds_after.register(IncSubtensor)
@bounds_after.register(AdvancedIncSubtensor)
def _(op: Any, node: Apply, inputs: list[Interval]) -> Interval:
    if op.set_instead_of_inc:
        return hull(*inputs[:2])
    low, high = sum_of(inputs[1], 1.0 if isinstance(op, IncSubtensor) else times_selected(op, node))
    return inputs[0][0] + min(low, 0.0), inputs[0][1] + max(high, 0.0)


def times_selected(op: AdvancedIncSubtensor, node: Apply) -> float:
    """How often arrays of indices may select the same element; infinite where their shapes are not known.

    The value that is set or added is broadcast to the selected elements, so that its size says nothing.
    """
    indices = [i for i in indices_from_subtensor(node.inputs[2:], op.idx_list) if isinstance(i, Variable)]
    masks = [i for i in indices if i.type.dtype == "bool"]
    if op.ignore_duplicates or (masks and len(indices) == 1):
        return 1.0
    # A mask counts as an index of unknown length, since the number of elements that it selects is not known.
    shapes = [(None,) if i in masks else getattr(i.type, "shape", ()) for i in indices]
    ndim = max(map(len, shapes), default=0)
    aligned = zip(*((1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    n = 1.0
    for sizes in aligned:
        fixed = [size for size in sizes if size not in (None, 1)]
        n *= fixed[0] if fixed else math.inf if None in sizes else 1
    return n
