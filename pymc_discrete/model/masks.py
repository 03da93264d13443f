"""Replaces slices and boolean selections whose size depends on a variable by masks.

JAX compiles programs of fixed shapes. In `y[:k].sum()` the slice is therefore replaced by the whole axis,
with the elements outside set to the neutral element of the reduction, here 0. Elementwise functions and joins
between the slice and the reduction are applied to the whole axis. A boolean selection, `y[z > 0].sum()`, is
treated in the same way. (PyTensor's own rewrite of it for JAX, `boolean_indexing_sum`, aligns the booleans
with the last axis of a matrix instead of the first.)
"""

from collections.abc import Callable, Sequence
from functools import reduce, singledispatch
from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, toposort
from pytensor.scalar.basic import AND, OR, Add, Mul, ScalarMaximum, ScalarMinimum
from pytensor.tensor.basic import Alloc, ARange, Join, Nonzero, ScalarFromTensor
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import Repeat, Unique
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_discrete.structure.bounds import IntegerBounds, Interval
from pymc_discrete.structure.linear_forms import LinearForms
from pymc_discrete.structure.numbers import Number
from pymc_discrete.structure.rebuild import rebuild, remade

# {scalar function of a reduction: the neutral element of the function}
NEUTRAL = {Add: 0, Mul: 1, ScalarMaximum: -np.inf, ScalarMinimum: np.inf, AND: True, OR: False}
# {Op: index of the first input whose value determines the size of the output}
SIZED_BY = {ARange: 0, Nonzero: 0, Unique: 0, Alloc: 1, Repeat: 1}


class Cut(NamedTuple):
    """A slice of an axis: the elements with indices from `begin` to before `end`.

    Attributes
    ----------
    axis : the axis of the tensor that is sliced
    length : the length of the whole axis
    begin, end : () int64, between 0 and `length`
    """

    axis: int
    length: int
    begin: Variable
    end: Variable

    def mask(self, ndim: int) -> Variable:
        """True inside the slice, broadcastable against a tensor of `ndim` dimensions."""
        position = pt.constant(np.arange(self.length)).dimshuffle(
            *("x" if d != self.axis else 0 for d in range(ndim))
        )
        return (position >= self.begin) & (position < self.end)

    @property
    def count(self) -> Variable:
        """() int64, the number of elements of the slice."""
        return pt.maximum(self.end - self.begin, 0)

    def on(self, axis: int) -> "Cut":
        return self._replace(axis=axis)

    def same(self, other: "Cut | Chosen") -> bool:
        return (
            isinstance(other, Cut)
            and (self.axis, self.length) == (other.axis, other.length)
            and equal_computations([*self[2:]], [*other[2:]])
        )


class Chosen(NamedTuple):
    """A boolean selection along an axis: the elements where a vector is True, as in `x[z > 0]`.

    Attributes
    ----------
    axis : the axis of the tensor that is indexed
    chosen : (length of the axis,) bool
    """

    axis: int
    chosen: Variable

    def mask(self, ndim: int) -> Variable:
        """True where an element is selected, broadcastable against a tensor of `ndim` dimensions."""
        return self.chosen.dimshuffle(*("x" if d != self.axis else 0 for d in range(ndim)))

    @property
    def count(self) -> Variable:
        """() int64, the number of selected elements."""
        return self.chosen.sum()

    def on(self, axis: int) -> "Chosen":
        return self._replace(axis=axis)

    def same(self, other: "Cut | Chosen") -> bool:
        return (
            isinstance(other, Chosen)
            and self.axis == other.axis
            and equal_computations([self.chosen], [other.chosen])
        )


class Sliced(NamedTuple):
    """A slice of a tensor, stored as the whole tensor with the slices or selections of its axes."""

    whole: Variable
    cuts: list[Cut | Chosen]

    def filled(self, value) -> Variable:
        """The whole tensor, with `value` outside the slice."""
        out = self.whole
        for cut in self.cuts:
            out = pt.switch(cut.mask(out.ndim), out, np.asarray(value, out.dtype))
        return out


def refusal_of_sizes(output: Variable) -> NotImplementedError | None:
    """The error that `masked` raises for a term of which all inputs but constants may vary; None if none."""
    try:
        masked([output], list(explicit_graph_inputs([output])))
    except NotImplementedError as error:
        return error
    return None


def masked(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """Terms with masks in place of slices and selections whose sizes depend on the variables `roots`.

    A term that is itself a slice is filled with 0, since the elements of a term are summed.

    Raises
    ------
    NotImplementedError
        Where masks cannot express that a size depends on a variable.
    """
    return [t.filled(0.0) if isinstance(t, Sliced) else t for t in with_masks(outputs, roots)]


def with_masks(outputs: list[Variable], roots: list[Variable]) -> list[Variable | Sliced]:
    """A graph with masks in place of slices and selections whose sizes depend on the variables `roots`.

    Boolean selections that depend on no variable become selections by integers.

    Returns
    -------
    The outputs; an output whose own size varies is a `Sliced`.

    Raises
    ------
    NotImplementedError
        Where such a slice is used other than in a reduction, or another tensor has a size that depends on
        `roots`.
    """
    rewritten: dict[Variable, Variable | Sliced] = {}
    moving = set(roots)  # the variables of the graph that depend on `roots`
    for node in toposort(outputs):
        inputs = [rewritten.get(i, i) for i in node.inputs]
        # The shape of a tensor depends on the values of `roots` only if the tensor is a slice or a selection
        # whose size does.
        if any(i in moving for i in node.inputs) and not (
            isinstance(node.op, Shape | Shape_i) and isinstance(inputs[0], Variable)
        ):
            moving.update(node.outputs)
        refuse_other_sizes(node, moving)
        new = with_mask(node, inputs, moving)
        if new is not None:
            rewritten.update(zip(node.outputs, new, strict=True))
    return [rewritten.get(o, o) for o in outputs]


def refuse_other_sizes(node: Apply, moving: set[Variable]) -> None:
    """Refuse a tensor whose size depends on a variable and that is no slice or selection.

    Raises
    ------
    NotImplementedError
    """
    first = SIZED_BY.get(type(node.op))
    if first is not None and any(i in moving for i in node.inputs[first:]):
        raise NotImplementedError(
            f"{node.op} makes a tensor whose size depends on a variable of the model "
            f"({names_in(node.inputs[first:])}), and JAX compiles programs of fixed shapes. "
            f"{INSTEAD.get(type(node.op), FIXED_LENGTH)}"
        )


def with_mask(
    node: Apply, inputs: list[Variable | Sliced], moving: set[Variable]
) -> Sequence[Variable | Sliced] | None:
    """The new outputs of a node that reads or makes slices of variable length; None for other nodes.

    Parameters
    ----------
    inputs : the rewritten inputs of the node
    moving : the variables of the graph on which sizes may depend
    """
    by_arrays = isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor)
    if isinstance(node.op, Subtensor | IncSubtensor) and (cuts := dynamic(node, moving)):
        return [sliced(node, inputs, set(cuts))]
    if by_arrays and (masks := bools(node, moving)):
        return [selected_by_mask(node, inputs, masks)]
    if any(isinstance(i, Sliced) for i in inputs):
        return applied(node.op, node, inputs)
    if by_arrays and bools(node, None):
        return [by_integers(node, inputs)]
    if any(i is not j for i, j in zip(inputs, node.inputs, strict=True)):
        return list(remade(node, [i for i in inputs if isinstance(i, Variable)]))
    return None


def bools(node: Apply, moving: set[Variable] | None) -> dict[int, Variable]:
    """{position: boolean index} of a node that indexes a tensor; if `moving` is given, only indices in it."""
    flat = node.inputs[1 if isinstance(node.op, AdvancedSubtensor) else 2 :]
    indices = enumerate(indices_from_subtensor(flat, node.op.idx_list))
    return {
        p: i
        for p, i in indices
        if isinstance(i, Variable) and i.type.dtype == "bool" and (moving is None or i in moving)
    }


def by_integers(node: Apply, inputs: list[Variable]) -> Variable:
    """An indexing by constant booleans, written with the integer positions of True."""
    first = 1 if isinstance(node.op, AdvancedSubtensor) else 2
    index: list[Variable | slice] = []
    for i in indices_from_subtensor(inputs[first:], node.op.idx_list):
        if isinstance(i, Variable) and i.type.dtype == "bool":
            value = i.data if isinstance(i, Constant) else pytensor.function([], i, mode="FAST_COMPILE")()
            index += [pt.constant(positions) for positions in np.nonzero(value)]
        else:
            index.append(i)
    part = inputs[0][tuple(index)]
    if first == 1:
        return part
    write = pt.set_subtensor if node.op.set_instead_of_inc else pt.inc_subtensor
    return write(part, inputs[1])


def selected_by_mask(
    node: Apply, inputs: list[Variable | Sliced], masks: dict[int, Variable]
) -> Variable | Sliced:
    """A read or a write with a boolean index, written with its mask.

    Only one boolean index is supported, with `:` for all other axes.

    Parameters
    ----------
    masks : {position: boolean index}, see `bools`

    Returns
    -------
    The elements read, as a `Sliced`; or the tensor after the write.
    """
    reads = isinstance(node.op, AdvancedSubtensor)
    x, flat = inputs[0], inputs[1 if reads else 2 :]
    indices = indices_from_subtensor(flat, node.op.idx_list)
    if isinstance(x, Sliced) or any(isinstance(i, Sliced) for i in flat) or len(masks) > 1:
        raise slice_refused(node)
    (axis,) = masks
    if any(i != slice(None) for p, i in enumerate(indices) if p != axis):
        raise slice_refused(node)
    mask = indices[axis]
    if mask.type.ndim != 1:  # one boolean index may span several axes, which are merged into one
        if not reads or not mask.type.ndim:
            raise slice_refused(node)
        last = axis + mask.type.ndim
        x = x.reshape((*x.shape[:axis], -1, *x.shape[last:]), ndim=x.type.ndim - mask.type.ndim + 1)
        mask = mask.flatten()
    choice = Chosen(axis, mask)
    return Sliced(x, [choice]) if reads else written_where(node, x, inputs[1], choice)


def written_where(node: Apply, x: Variable, y: Variable | Sliced, choice: Chosen) -> Variable:
    """A tensor x after y is written, or added, where a boolean index is True."""
    whole = y.whole if isinstance(y, Sliced) else y
    ahead = x.type.ndim - whole.type.ndim
    if isinstance(y, Sliced):
        if len(y.cuts) != 1 or not choice.same(y.cuts[0].on(y.cuts[0].axis + ahead)):
            raise slice_refused(node)
    elif choice.axis >= ahead and not whole.type.broadcastable[choice.axis - ahead]:
        raise slice_refused(node)  # y has one value for each True, and the number of True elements varies
    new = whole if node.op.set_instead_of_inc else x + whole
    return pt.switch(choice.mask(x.type.ndim), new, x).astype(x.dtype)


def dynamic(node: Apply, moving: set[Variable]) -> dict[int, slice]:
    """{dimension: slice} for the slices of a node whose ends depend on a variable.

    Raises
    ------
    NotImplementedError
        Where a slice whose ends depend on a variable has a step.
    """
    flat = node.inputs[1 if isinstance(node.op, Subtensor) else 2 :]
    slices = {}
    for d, index in enumerate(indices_from_subtensor(flat, node.op.idx_list)):
        if isinstance(index, slice) and any(end in moving for end in (index.start, index.stop)):
            if index.step is not None and not (isinstance(index.step, Constant) and index.step.data == 1):
                raise NotImplementedError(
                    f"A slice with a step, {node.op}, has a length that depends on a variable of the model. "
                    f"{FIXED_LENGTH}"
                )
            slices[d] = index
    return slices


FIXED_LENGTH = (
    "Write a switch over all elements in its place: pt.switch(np.arange(n) < k, a, b) for a slice, "
    "pt.switch(z > 0, a, b) for a selection; or x[k + np.arange(n)] for n elements from k on."
)

# {Op: what a message suggests in place of an Op whose size depends on a variable}; for other Ops the
# suggestion is `FIXED_LENGTH`
INSTEAD = {
    Alloc: "pt.bincount needs a minlength= above all values that the variable is known to take (of a "
    "pm.CustomDist, those of the support= of its step); pt.eq(z[:, None], "
    "np.arange(n)).sum(axis=0) counts the values below n of any variable.",
    Repeat: "For n elements in all write values[pt.clip(pt.ge(np.arange(n)[:, None], pt.cumsum(counts)).sum("
    "axis=1), 0, len(values) - 1)], and hold counts.sum() to n, for repeats by counts.",
    Unique: "pt.eq(z[:, None], np.arange(n)).any(axis=0) says which of the values below n there are.",
}


def with_fixed_sizes(
    outputs: list[Variable], bounds: Callable[[], dict[Variable, Interval]]
) -> list[Variable]:
    """Graphs in which a size that depends on variables but always has the same value is a constant.

    Examples are the length of `pt.bincount(z, minlength=n)` where no value of z is above n - 1, and that of
    `x[k : k + 3]` where k is between 0 and len(x) - 3.

    Parameters
    ----------
    bounds : a function that returns the bounds of the discrete variables; it is called only if a size depends
        on a variable
    """
    known: list[IntegerBounds] = []

    def fixed(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if isinstance(node.op, Subtensor):
            ends = node.inputs[1:]
            if all(isinstance(i, Constant) for i in ends):
                return None
            known[:] = known or [IntegerBounds(bounds())]
            moved = moved_slices(node, known[0])
            return with_moved_slices(node, inputs, moved) if moved else None
        first = SIZED_BY.get(type(node.op)) if isinstance(node.op, Alloc | ARange) else None
        if first is None or all(isinstance(i, Constant) for i in inputs[first:]):
            return None
        known[:] = known or [IntegerBounds(bounds())]
        sizes = [known[0].of(i) for i in node.inputs[first:]]
        if any(low != high or not np.isfinite(low) for low, high in sizes):
            return None
        return remade(node, [*inputs[:first], *(pt.constant(int(low), dtype="int64") for low, _ in sizes)])

    return rebuild(outputs, {}, fixed)


def moved_slices(node: Apply, bounds: IntegerBounds) -> dict[int, int]:
    """{dimension: length} for the slices of a node whose ends depend on variables, and that have one length.

    A slice counts if neither end can be negative or beyond the end of the axis.
    """
    found = dict[int, int]()
    for d, index in enumerate(indices_from_subtensor(node.inputs[1:], node.op.idx_list)):
        length = node.inputs[0].type.shape[d]
        if not isinstance(index, slice) or index.step is not None or length is None:
            continue
        if all(end is None or isinstance(end, Constant) for end in (index.start, index.stop)):
            continue
        start, stop = (
            pt.constant(np.int64(missing)) if end is None else as_int64(end)
            for end, missing in ((index.start, 0), (index.stop, length))
        )
        form = LinearForms(bounds, lambda v: False).of(stop - start)
        (first, _), (_, last) = bounds.of(start), bounds.of(stop)
        if form.keys() == {None} and form[None] >= 0 and first >= 0 and last <= length:
            found[d] = int(form[None])
    return found


def with_moved_slices(node: Apply, inputs: list[Variable], lengths: dict[int, int]) -> list[Variable]:
    """The output of a node that reads slices, with those of a fixed length read by the indices of their
    elements.

    Parameters
    ----------
    lengths : {dimension: length} of these slices
    """
    indices = list(indices_from_subtensor(inputs[1:], node.op.idx_list))
    x, axis = inputs[0], 0
    others = [slice(None) if d in lengths else index for d, index in enumerate(indices)]
    part = x[tuple(others)]
    for d, index in enumerate(indices):
        if d in lengths:
            start = pt.constant(np.int64(0)) if index.start is None else as_int64(index.start)
            part = pt.take(part, start + np.arange(lengths[d]), axis=axis)
        axis += isinstance(index, slice)
    return [part]


def sliced(node: Apply, inputs: list[Variable | Sliced], dimensions: set[int]) -> Variable | Sliced:
    """A read or a write of slices of variable length, written with their masks.

    Parameters
    ----------
    inputs : the rewritten inputs of the node, since the ends of a slice may depend on sums of other slices
    dimensions : the dimensions with a slice of variable length, see `dynamic`

    Returns
    -------
    The elements read, as a `Sliced`; or the tensor after the write.
    """
    first = 1 if isinstance(node.op, Subtensor) else 2
    x, flat = inputs[0], inputs[first:]
    if isinstance(x, Sliced) or any(isinstance(i, Sliced) for i in flat):
        raise slice_refused(node)
    indices = indices_from_subtensor(flat, node.op.idx_list)
    index = [slice(None) if d in dimensions else i for d, i in enumerate(indices)]
    cuts: list[Cut | Chosen] = []
    axis = 0
    for d, i in enumerate(index):
        if d in dimensions:
            cuts.append(cut_of(axis, x.type.shape[d], indices[d]))
        axis += isinstance(i, slice)
    part = x[tuple(index)]
    if isinstance(node.op, Subtensor):
        return Sliced(part, cuts)
    new = written_to_slices(node, part, inputs[1], cuts)
    if all(isinstance(i, slice) and i == slice(None) for i in index):
        return new.astype(x.dtype)
    return pt.set_subtensor(part, new)


def cut_of(axis: int, length: int | None, index: slice) -> Cut:
    """The slice of an axis as a `Cut`.

    Raises
    ------
    NotImplementedError
        Where the length of the axis is not known.
    """
    if length is None:
        raise NotImplementedError(
            "The length of a tensor that is sliced up to a variable of the model is not known. "
            f"{FIXED_LENGTH}"
        )
    return Cut(axis, length, place(index.start, length, 0), place(index.stop, length, length))


def written_to_slices(
    node: Apply, part: Variable, y: Variable | Sliced, cuts: list[Cut | Chosen]
) -> Variable:
    """The tensor after y is written, or added, to slices of its axes."""
    if isinstance(y, Sliced):
        if len(y.cuts) != len(cuts) or not all(any(c.same(cut) for cut in cuts) for c in y.cuts):
            raise slice_refused(node)
        y = y.whole
    else:
        ahead = part.ndim - y.ndim
        if any(c.axis >= ahead and not y.type.broadcastable[c.axis - ahead] for c in cuts):
            # y has a fixed number of values, but the length of the slice differs from state to state
            raise slice_refused(node)
    new = y if node.op.set_instead_of_inc else part + y
    for cut in cuts:
        new = pt.switch(cut.mask(part.ndim), new, part)
    return new


def place(end: Variable | None, length: int, missing: int) -> Variable:
    """() int64, the end of a slice as a position between 0 and `length`; `missing` where the slice has no
    end.
    """
    if end is None:
        return pt.constant(np.int64(missing))
    end = as_int64(end)
    return pt.clip(pt.switch(end < 0, end + length, end), 0, length)


def as_int64(end: Variable) -> Variable:
    """() int64, the end of a slice as a tensor."""
    if end.owner is not None and isinstance(end.owner.op, ScalarFromTensor):
        (end,) = end.owner.inputs
    return pt.cast(end if hasattr(end.type, "ndim") else pt.tensor_from_scalar(end), "int64")


@singledispatch
def applied(op: Op, node: Apply, inputs: list[Variable | Sliced]) -> Sequence[Variable | Sliced]:
    """The outputs of a node of which some inputs are slices of variable length.

    Raises
    ------
    NotImplementedError
        For an Op that cannot be applied to the whole axis instead.
    """
    raise slice_refused(node)


def slices_among(inputs: list[Variable | Sliced]) -> list[Sliced]:
    return [i for i in inputs if isinstance(i, Sliced)]


@applied.register(Shape)
def _(op: Op, node: Apply, inputs: list[Variable | Sliced]) -> list[Variable | Sliced]:
    (part,) = slices_among(inputs)
    shape = list(pt.shape(part.whole))
    for cut in part.cuts:
        shape[cut.axis] = cut.count
    return [pt.stack([pt.cast(n, "int64") for n in shape])]


@applied.register
def _(op: Elemwise, node: Apply, inputs: list[Variable | Sliced]) -> list[Variable | Sliced]:
    cuts = slices_among(inputs)[0].cuts
    for i, old in zip(inputs, node.inputs, strict=True):
        if isinstance(i, Sliced):
            alike = len(i.cuts) == len(cuts) and all(a.same(b) for a, b in zip(i.cuts, cuts, strict=True))
        else:
            alike = all(old.type.broadcastable[cut.axis] for cut in cuts)
        if not alike:
            raise slice_refused(node)
    wholes = [i.whole if isinstance(i, Sliced) else i for i in inputs]
    return [Sliced(out, cuts) for out in op.make_node(*wholes).outputs]


@applied.register
def _(op: ViewOp, node: Apply, inputs: list[Variable | Sliced]) -> list[Variable | Sliced]:
    return [inputs[0]]  # a ViewOp, as pm.Deterministic makes it, returns its input


@applied.register
def _(op: DimShuffle, node: Apply, inputs: list[Variable | Sliced]) -> list[Variable | Sliced]:
    (part,), order = slices_among(inputs), list(op.new_order)
    if any(cut.axis not in order for cut in part.cuts):
        raise slice_refused(node)
    return [Sliced(part.whole.dimshuffle(*order), [cut.on(order.index(cut.axis)) for cut in part.cuts])]


@applied.register
def _(op: CAReduce, node: Apply, inputs: list[Variable | Sliced]) -> list[Variable | Sliced]:
    if type(op.scalar_op) not in NEUTRAL:
        raise slice_refused(node)
    (part,) = slices_among(inputs)
    axes = tuple(range(node.inputs[0].type.ndim)) if op.axis is None else tuple(op.axis)
    reduced = [cut for cut in part.cuts if cut.axis in axes]
    extremum = bool(reduced) and isinstance(op.scalar_op, ScalarMaximum | ScalarMinimum)
    if extremum and part.whole.dtype not in ("float32", "float64"):
        raise NotImplementedError(
            f"{op} of integers in a slice whose length depends on a variable of the model: the slice may "
            "be empty, and no integer stands for the largest or smallest of nothing. Make them floats "
            "first, pt.cast(x, 'float64')[:k].max()."
        )
    whole = Sliced(part.whole, reduced).filled(NEUTRAL[type(op.scalar_op)])
    reduction = type(op)(axis=axes) if isinstance(op, Sum | Prod) else op.clone(axis=axes)
    (out,) = reduction.make_node(whole).outputs
    if extremum:  # the reduction of an empty slice is undefined
        out = pt.switch(reduce(pt.and_, [cut.count > 0 for cut in reduced]), out, np.nan)
    left = [cut.on(cut.axis - sum(a < cut.axis for a in axes)) for cut in part.cuts if cut.axis not in axes]
    return [Sliced(out, left) if left else out]


@applied.register
def _(op: Join, node: Apply, inputs: list[Variable | Sliced]) -> list[Variable | Sliced]:
    """If a and b have the same length, a[:k] joined with b[k:] is a switch between a and b; and a[k:] joined
    with a[:k] is `pt.roll` of a.
    """
    parts = slices_among(inputs)
    if not (len(inputs) == len(parts) == 2 and all(len(part.cuts) == 1 for part in parts)):
        raise slice_refused(node)
    (whole, (before,)), (other, (after,)) = parts
    if not (isinstance(before, Cut) and isinstance(after, Cut)):
        raise slice_refused(node)
    axis = op.axis % whole.ndim
    if not (before.axis == after.axis == axis and before.length == after.length):
        raise slice_refused(node)
    if splits(before, after):
        return [pt.switch(before.mask(whole.ndim), whole, other).astype(node.outputs[0].type.dtype)]
    if splits(after, before) and equal_computations([whole], [other]):
        return [pt.take(whole, (before.begin + np.arange(before.length)) % before.length, axis=axis)]
    raise slice_refused(node)


def splits(before: Cut, after: Cut) -> bool:
    """Whether two slices of an axis are what is before an element, and this element with all after it."""
    from_start = isinstance(before.begin, Constant) and before.begin.data == 0
    to_end = isinstance(after.end, Constant) and after.end.data == after.length
    return from_start and to_end and equal_computations([before.end], [after.begin])


def names_in(inputs: Sequence[Variable]) -> str:
    """The names of the variables that the inputs of a node depend on, for a message."""
    leaves = {v for i in inputs for v in ancestors([i]) if v.owner is None}
    leaves = {v for v in leaves if not isinstance(v, Constant | Number)}
    return ", ".join(sorted(str(v.name) for v in leaves if v.name))


def slice_refused(node: Apply) -> NotImplementedError:
    """The error for a node that uses a slice of variable length in an unsupported way."""
    return NotImplementedError(
        f"{node.op} reads a slice whose length depends on a variable of the model ({names_in(node.inputs)}): "
        f"only sums and other reductions over such a slice can be compiled. {FIXED_LENGTH}"
    )
