"""Masks in place of slices and selections whose size depends on a variable of the model: `y[:k].sum()`, `y[z
> 0].sum()`.

JAX compiles programs of fixed shapes. A slice that is summed, or compared, multiplied or joined and then
summed, is the whole axis with what lies outside replaced by what a sum ignores. So are the elements that a
tensor of bools selects: PyTensor's own rewrite of their sum for JAX (`boolean_indexing_sum`) lays the bools
along the last axis of a matrix in place of the first.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, toposort
from pytensor.scalar.basic import AND, OR, Add, Mul, ScalarMaximum, ScalarMinimum
from pytensor.tensor.basic import Alloc, ARange, Join, Nonzero
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

from pymc_discrete.targets.graph.rebuild import remade

# what the reductions ignore
IGNORED = {Add: 0, Mul: 1, ScalarMaximum: -np.inf, ScalarMinimum: np.inf, AND: True, OR: False}
# {Op: position of the first of the inputs whose values give the size of the output}
SIZED_BY = {ARange: 0, Nonzero: 0, Unique: 0, Alloc: 1, Repeat: 1}


class Cut(NamedTuple):
    """What a slice leaves of an axis: `begin` to `end`, counted from its first element."""

    axis: int
    length: int
    begin: Variable
    end: Variable

    def mask(self, ndim: int) -> Variable:
        """True inside, along the axis of a tensor of so many dimensions."""
        place = pt.constant(np.arange(self.length)).dimshuffle(
            *("x" if d != self.axis else 0 for d in range(ndim))
        )
        return (place >= self.begin) & (place < self.end)

    @property
    def count(self) -> Variable:
        """() int64, the number of elements of the slice along its axis."""
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
    """What indexing an axis with a vector of bools keeps of it: the elements where the vector is True, as in
    `x[z > 0]`.
    """

    axis: int
    chosen: Variable

    def mask(self, ndim: int) -> Variable:
        """The vector of bools, broadcastable against a tensor of `ndim` dimensions."""
        return self.chosen.dimshuffle(*("x" if d != self.axis else 0 for d in range(ndim)))

    @property
    def count(self) -> Variable:
        """() int64, the number of elements kept."""
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
    """A tensor of which only what the cuts leave counts."""

    whole: Variable
    cuts: list[Cut | Chosen]

    def filled(self, value) -> Variable:
        """The whole, with a value outside."""
        out = self.whole
        for cut in self.cuts:
            out = pt.switch(cut.mask(out.ndim), out, np.asarray(value, out.dtype))
        return out


def refusal_of_sizes(output: Variable) -> NotImplementedError | None:
    """What `masked` says of a term whose variables are all unknown, or None if it can be compiled."""
    try:
        masked([output], list(explicit_graph_inputs([output])))
    except NotImplementedError as error:
        return error
    return None


def masked(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """Terms of a log density, whose elements are added up, with masks in place of slices and selections whose
    sizes depend on `roots`.

    Raises
    ------
    NotImplementedError
        See `with_masks`.
    """
    return [t.filled(0.0) if isinstance(t, Sliced) else t for t in with_masks(outputs, roots)]


def with_masks(outputs: list[Variable], roots: list[Variable]) -> list[Variable | Sliced]:
    """A graph with masks in place of slices and selections whose sizes depend on `roots`, and places in place
    of bools that are known.

    Raises
    ------
    NotImplementedError
        Where something else than a reduction asks for such a slice, or another tensor has a size that depends
        on `roots`.
    """
    known: dict[Variable, Variable | Sliced] = {}
    moving = set(roots)
    found = False
    for node in toposort(outputs):
        inputs = [known.get(i, i) for i in node.inputs]
        # a shape does not depend on values, unless of what is sliced
        if any(i in moving for i in node.inputs) and not (
            isinstance(node.op, Shape | Shape_i) and isinstance(inputs[0], Variable)
        ):
            moving.update(node.outputs)
        first = SIZED_BY.get(type(node.op))
        if first is not None and any(i in moving for i in node.inputs[first:]):
            raise NotImplementedError(
                f"{node.op} makes a tensor whose size depends on a variable of the model "
                f"({names_in(node.inputs[first:])}), and JAX compiles programs of fixed shapes. {REMEDY}"
            )
        new: Sequence[Variable | Sliced] | None = None
        if isinstance(node.op, Subtensor | IncSubtensor) and (cuts := dynamic(node, moving)):
            new, found = [sliced(node, inputs, cuts)], True
        elif isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor) and (masks := bools(node, moving)):
            new, found = [selected(node, inputs, masks)], True
        elif any(isinstance(i, Sliced) for i in inputs):
            new = passed_on(node, inputs)
        elif isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor) and bools(node, None):
            new, found = [by_places(node, inputs)], True
        elif any(i is not j for i, j in zip(inputs, node.inputs, strict=True)):
            new = list(remade(node, [i for i in inputs if isinstance(i, Variable)]))
        known.update(zip(node.outputs, new if new is not None else node.outputs, strict=True))
    return [known.get(o, o) for o in outputs] if found else list(outputs)


def bools(node: Apply, moving: set[Variable] | None) -> dict[int, Variable]:
    """{position among the indices: tensor of bools} of an indexing with bools, those in `moving` if that is
    given.
    """
    flat = node.inputs[1 if isinstance(node.op, AdvancedSubtensor) else 2 :]
    indices = enumerate(indices_from_subtensor(flat, node.op.idx_list))
    return {
        p: i
        for p, i in indices
        if isinstance(i, Variable) and i.type.dtype == "bool" and (moving is None or i in moving)
    }


def by_places(node: Apply, inputs: list[Variable]) -> Variable:
    """An indexing with bools that depend on no variable of the model, with the places where they are True in
    place of the bools.
    """
    first = 1 if isinstance(node.op, AdvancedSubtensor) else 2
    index: list[Variable | slice] = []
    for i in indices_from_subtensor(inputs[first:], node.op.idx_list):
        if isinstance(i, Variable) and i.type.dtype == "bool":
            value = i.data if isinstance(i, Constant) else pytensor.function([], i, mode="FAST_COMPILE")()
            index += [pt.constant(places) for places in np.nonzero(value)]
        else:
            index.append(i)
    part = inputs[0][tuple(index)]
    if first == 1:
        return part
    write = pt.set_subtensor if node.op.set_instead_of_inc else pt.inc_subtensor
    return write(part, inputs[1])


def selected(node: Apply, inputs: list[Variable | Sliced], masks: dict[int, Variable]) -> Variable | Sliced:
    """What an indexing with one tensor of bools, and `:` for all other axes, reads; or the tensor in which it
    has written.
    """
    reads = isinstance(node.op, AdvancedSubtensor)
    x, flat = inputs[0], inputs[1 if reads else 2 :]
    indices = indices_from_subtensor(flat, node.op.idx_list)
    if isinstance(x, Sliced) or any(isinstance(i, Sliced) for i in flat) or len(masks) > 1:
        raise refused(node)
    (axis,) = masks
    if any(i != slice(None) for p, i in enumerate(indices) if p != axis):
        raise refused(node)
    mask = indices[axis]
    if mask.type.ndim != 1:  # of several axes: they become one
        if not reads or not mask.type.ndim:
            raise refused(node)
        last = axis + mask.type.ndim
        x = x.reshape((*x.shape[:axis], -1, *x.shape[last:]), ndim=x.type.ndim - mask.type.ndim + 1)
        mask = mask.flatten()
    choice = Chosen(axis, mask)
    if reads:
        return Sliced(x, [choice])
    y = inputs[1]
    whole = y.whole if isinstance(y, Sliced) else y
    ahead = x.type.ndim - whole.type.ndim
    if isinstance(y, Sliced):
        if len(y.cuts) != 1 or not choice.same(y.cuts[0].on(y.cuts[0].axis + ahead)):
            raise refused(node)
    elif axis >= ahead and not whole.type.broadcastable[axis - ahead]:
        raise refused(node)  # a value for every True, whose number is not known
    new = whole if node.op.set_instead_of_inc else x + whole
    return pt.switch(choice.mask(x.type.ndim), new, x).astype(x.dtype)


def dynamic(node: Apply, moving: set[Variable]) -> dict[int, slice]:
    """{dimension: slice} of an indexing whose ends depend on a variable."""
    flat = node.inputs[1 if isinstance(node.op, Subtensor) else 2 :]
    found = {}
    for d, index in enumerate(indices_from_subtensor(flat, node.op.idx_list)):
        if isinstance(index, slice) and any(end in moving for end in (index.start, index.stop)):
            if index.step is not None and not (isinstance(index.step, Constant) and index.step.data == 1):
                raise NotImplementedError(
                    f"A slice with a step, {node.op}, has a length that depends on a variable of the model. "
                    f"{REMEDY}"
                )
            found[d] = index
    return found


REMEDY = (
    "Write a switch over all elements in its place: pt.switch(np.arange(n) < k, a, b) for a slice, "
    "pt.switch(z > 0, a, b) for a selection."
)


def sliced(node: Apply, inputs: list[Variable | Sliced], cuts: dict[int, slice]) -> Variable | Sliced:
    first = 1 if isinstance(node.op, Subtensor) else 2
    x, flat = inputs[0], node.inputs[first:]
    if isinstance(x, Sliced):
        raise refused(node)
    index = [
        slice(None) if d in cuts else i for d, i in enumerate(indices_from_subtensor(flat, node.op.idx_list))
    ]
    made: list[Cut | Chosen] = []
    axis = 0
    for d, i in enumerate(index):
        if d in cuts:
            length = x.type.shape[d]
            if length is None:
                raise NotImplementedError(
                    "The length of a tensor that is sliced up to a variable of the model is not known. "
                    f"{REMEDY}"
                )
            made.append(
                Cut(
                    axis,
                    length,
                    *(
                        place(end, length, missing)
                        for end, missing in ((cuts[d].start, 0), (cuts[d].stop, length))
                    ),
                )
            )
        axis += isinstance(i, slice)
    if isinstance(node.op, Subtensor):
        return Sliced(x[tuple(index)], made)
    part, y = x[tuple(index)], inputs[1]  # x[..., a:b] is set to y, or increased by it
    if isinstance(y, Sliced):
        if len(y.cuts) != len(made) or not all(any(c.same(own) for own in made) for c in y.cuts):
            raise refused(node)
        y = y.whole
    ahead = part.ndim - y.ndim
    if any(
        c.axis >= ahead and not y.type.broadcastable[c.axis - ahead] and y is node.inputs[1] for c in made
    ):
        raise refused(node)
    new = y if node.op.set_instead_of_inc else part + y
    for cut in made:
        new = pt.switch(cut.mask(part.ndim), new, part)
    return (
        pt.set_subtensor(part, new)
        if any(not isinstance(i, slice) or i != slice(None) for i in index)
        else new.astype(x.dtype)
    )


def place(end: Variable | None, length: int, missing: int) -> Variable:
    """An end of a slice as Python reads it, counted from the first element."""
    if end is None:
        return pt.constant(np.int64(missing))
    end = pt.cast(end if hasattr(end.type, "ndim") else pt.tensor_from_scalar(end), "int64")
    return pt.clip(pt.switch(end < 0, end + length, end), 0, length)


def passed_on(node: Apply, inputs: list[Variable | Sliced]) -> Sequence[Variable | Sliced]:
    """What becomes of slices in the Op that reads them."""
    op, parts = node.op, [i for i in inputs if isinstance(i, Sliced)]
    cuts = parts[0].cuts
    if isinstance(op, Shape):
        shape = list(pt.shape(parts[0].whole))
        for cut in cuts:
            shape[cut.axis] = cut.count
        return [pt.stack([pt.cast(n, "int64") for n in shape])]
    if isinstance(op, Elemwise):
        for i, old in zip(inputs, node.inputs, strict=True):
            if isinstance(i, Sliced):
                alike = len(i.cuts) == len(cuts) and all(a.same(b) for a, b in zip(i.cuts, cuts, strict=True))
            else:
                alike = all(old.type.broadcastable[cut.axis] for cut in cuts)
            if not alike:
                raise refused(node)
        wholes = [i.whole if isinstance(i, Sliced) else i for i in inputs]
        return [Sliced(out, cuts) for out in op.make_node(*wholes).outputs]
    if isinstance(op, ViewOp):  # a Deterministic
        return [parts[0]]
    if isinstance(op, DimShuffle):
        order = list(op.new_order)
        if any(cut.axis not in order for cut in cuts):
            raise refused(node)
        return [Sliced(parts[0].whole.dimshuffle(*order), [cut.on(order.index(cut.axis)) for cut in cuts])]
    if isinstance(op, CAReduce) and type(op.scalar_op) in IGNORED:
        axes = tuple(range(node.inputs[0].type.ndim)) if op.axis is None else tuple(op.axis)
        gone = [cut for cut in cuts if cut.axis in axes]
        if (
            gone
            and isinstance(op.scalar_op, ScalarMaximum | ScalarMinimum)
            and parts[0].whole.dtype not in ("float32", "float64")
        ):
            raise NotImplementedError(
                f"{op} of integers in a slice whose length depends on a variable of the model: the slice may "
                "be empty, and no integer stands for the largest or smallest of nothing. Make them floats "
                "first, pt.cast(x, 'float64')[:k].max()."
            )
        whole = Sliced(parts[0].whole, gone).filled(IGNORED[type(op.scalar_op)])
        reduction = type(op)(axis=axes) if isinstance(op, Sum | Prod) else op.clone(axis=axes)
        (out,) = reduction.make_node(whole).outputs
        if gone and isinstance(op.scalar_op, ScalarMaximum | ScalarMinimum):  # of nothing there is none
            out = pt.switch(reduce(pt.and_, [cut.count > 0 for cut in gone]), out, np.nan)
        left = [cut.on(cut.axis - sum(a < cut.axis for a in axes)) for cut in cuts if cut.axis not in axes]
        return [Sliced(out, left) if left else out]
    if isinstance(op, Join) and len(inputs) == 2 and len(parts) == 2 and all(len(p.cuts) == 1 for p in parts):
        before, after = (p.cuts[0] for p in parts)
        if not (isinstance(before, Cut) and isinstance(after, Cut)):
            raise refused(node)
        axis = op.axis % parts[0].whole.ndim
        # a[:k] and b[k:] of one length: the first up to k, the second from there
        fits = (
            before.axis == after.axis == axis
            and before.length == after.length
            and equal_computations([before.end], [after.begin])
        )
        whole = isinstance(before.begin, Constant) and before.begin.data == 0
        if fits and whole and isinstance(after.end, Constant) and after.end.data == after.length:
            return [
                pt.switch(before.mask(parts[0].whole.ndim), parts[0].whole, parts[1].whole).astype(
                    node.outputs[0].type.dtype
                )
            ]
    raise refused(node)


def names_in(inputs: Sequence[Variable]) -> str:
    """The names, for a message, of the variables of the model that the inputs of a node are computed from."""
    leaves = {v for i in inputs for v in ancestors([i]) if v.owner is None and not isinstance(v, Constant)}
    return ", ".join(sorted(str(v.name) for v in leaves if v.name))


def refused(node: Apply) -> NotImplementedError:
    return NotImplementedError(
        f"{node.op} reads a slice whose length depends on a variable of the model ({names_in(node.inputs)}): "
        f"only sums and other reductions over such a slice can be compiled. {REMEDY}"
    )
