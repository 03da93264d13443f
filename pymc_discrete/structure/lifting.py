"""Rewrites that compute functions of a selection once per context, before the selection.

A selection such as `p[z]` or `switch(z, a, b)` takes elements or rows of a tensor p that does not depend on
the block, at indices z that do. Functions that are applied to the selection row by row, as in `log(p[z])`,
`chol(cov[z])` or `P[z].sum(axis=-1)`, are applied to all rows of the tensor instead, before the selection:
`log(p)[z]`. The functions are then evaluated once per context (the values of everything outside the block),
not for every move. The rules of Ops are in `ops/`.
"""

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.bounds import IntegerBounds
from pymc_discrete.structure.rebuild import rebuild
from pymc_discrete.structure.scalar_ops import is_switch
from pymc_discrete.structure.sparse import without_sparse


def lift(outputs: list[Variable], roots: list[Variable], bounds: IntegerBounds) -> list[Variable]:
    """Rewrite the parts of a graph that depend on `roots`, the block's variables, so that they cost less to
    evaluate.

    If the roots are discrete, products with constant sparse matrices become sums of a few elements.

    Parameters
    ----------
    bounds : the bounds of the roots, and of tensors computed from them, at all states at which the outputs
        are evaluated
    """
    moving = Depends(roots)
    discrete = not any(r.type.dtype.startswith("float") for r in roots)

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        out = node.outputs[0]
        if len(node.outputs) > 1:
            return None
        if not any(i in moving for i in inputs):
            # A comparison that does not depend on the block, such as the check that a probability is at most
            # 1, may be true at all values of the parameters; a constant then takes its place.
            check = simplified(node.op, node, inputs, moving, bounds) if out.type.dtype == "bool" else None
            return None if check is None else [check]
        if discrete and (product := without_sparse(node, inputs)) is not None:
            return product
        for rule in (partial(simplified, node.op, bounds=bounds), elementwise, composed, row_by_row):
            new = rule(node, inputs, moving)
            if new is not None and new.type.ndim == out.type.ndim and new.type.dtype == out.type.dtype:
                return [new]
        return None

    return rebuild(outputs, {}, rewrite)


@singledispatch
def simplified(
    op: Op, node: Apply, inputs: list[Variable], moving: Depends, bounds: IntegerBounds
) -> Variable | None:
    """A simpler form of a node on the given inputs, whose Ops more analyses have rules for; None where there
    is none.
    """
    return None


# ---------------------------------------------------------------- selections
class Selection(NamedTuple):
    """A selection of elements of tensors that do not depend on the block.

    Attributes
    ----------
    sources : the tensors that are selected from
    choose : (tensors) -> the selection at the same positions from these tensors, in place of `sources`
    key : equal for two selections at the same positions of sources of the same shapes
    """

    sources: list[Variable]
    choose: Callable[..., Variable]
    key: Any


def selection(var: Variable, moving: Depends) -> Selection | None:
    """A variable as a `Selection`; None where the variable is no selection."""
    node = var.owner
    if node is None or var not in moving:
        return None
    if isinstance(node.op, AdvancedSubtensor | Subtensor):
        x, *index = node.inputs
        if x in moving:
            return None
        return Selection([x], lambda x: node.op(x, *index), (node.op, *index, x.type.shape))
    if is_switch(node):
        cond, *sides = node.inputs
        if any(s in moving for s in sides):
            return None
        shapes = (s.type.shape for s in sides)
        return Selection(sides, lambda a, b: pt.switch(cond, a, b), (cond, *shapes))
    return None


def elementwise(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """An elementwise function of selections at the same positions, applied to their sources.

    The other inputs of the function must be scalars.
    """
    if not isinstance(node.op, Elemwise):
        return None
    found = [selection(i, moving) for i in inputs if i in moving]
    selections = [s for s in found if s is not None]
    if len(selections) < len(found) or any(s.key != selections[0].key for s in selections):
        return None
    others = [i for i in inputs if i not in moving]
    if not all(all(i.type.broadcastable) for i in others):
        return None
    if len(selections) > 1 and is_switch(node):
        return None  # a switch is handled only if a single one of its inputs is a selection

    def inside(*parts: Variable) -> Variable:
        ndim = parts[0].type.ndim
        selected, aligned = iter(parts), iter([i.reshape((1,) * ndim) if i.ndim else i for i in others])
        return node.op(*(next(selected) if i in moving else next(aligned) for i in inputs))

    per_source = zip(*(s.sources for s in selections), strict=True)
    return selections[0].choose(*(inside(*parts) for parts in per_source))


class RowSelection(NamedTuple):
    """A selection `x[i, j, ...]` of rows of a tensor: its subtensors at indices of its first dimensions.

    Attributes
    ----------
    x : a tensor that does not depend on the block
    indices : the p arrays i, j, ... of indices of the first p dimensions of x, all of one shape
    q : the number of dimensions of each index
    """

    x: Variable
    indices: list[Variable]
    q: int


def row_selection(var: Variable, moving: Depends) -> RowSelection | None:
    """A variable as a `RowSelection`; None where the variable is no selection of rows."""
    node = var.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor | Subtensor):
        return None
    x, *indices = node.inputs
    if x in moving or tuple(node.op.idx_list) != tuple(range(len(indices))):
        return None
    shapes = {getattr(i.type, "shape", ()) for i in indices}
    if len(shapes) != 1 or any(getattr(i.type, "dtype", "") == "bool" for i in indices):
        return None
    return RowSelection(x, indices, len(*shapes))


def composed(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """A selection from a selection, `x[i][j, k]`, as `x[i[j], k]`, and `x[i].T` as `x[i.T]`; else None."""
    inner = (
        row_selection(inputs[0], moving)
        if isinstance(node.op, AdvancedSubtensor | Subtensor | DimShuffle)
        else None
    )
    if inner is None:
        return None
    x, indices, q = inner
    if isinstance(node.op, DimShuffle):
        # `behind` is the number of dimensions of a row. A transposition of the selection becomes one of the
        # indices, which is only possible if the dimensions of a row stay last and in order.
        behind = inputs[0].type.ndim - q
        order = node.op.new_order
        ahead = order[: len(order) - behind]
        if (
            not q
            or list(order[len(ahead) :]) != list(range(q, q + behind))
            or any(o != "x" and o >= q for o in ahead)
        ):
            return None
        return x[tuple(i.dimshuffle(ahead) for i in indices)]
    index = list(indices_from_subtensor(inputs[1:], node.op.idx_list))
    index += [slice(None)] * (inputs[0].type.ndim - len(index))
    if any(getattr(getattr(j, "type", None), "dtype", "") == "bool" for j in index):
        return None
    ahead, behind = index[:q], index[q:]
    if all(isinstance(j, Variable) for j in ahead):
        if q and not all(isinstance(j, Variable) for j in index[: q + 1]):
            # If a slice follows indices, NumPy may put the dimensions of the indices elsewhere in `x[i[j]]`
            # than in `x[i][j]`: the two selections are not composed.
            return None
        return x[(*(i[tuple(ahead)] if q else i for i in indices), *behind)]
    return None


def row_by_row(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """A function of each selected row, computed for all rows before the selection; None where this is
    impossible.
    """
    numbers = [j for j, i in enumerate(inputs) if i in moving]
    inner = row_selection(inputs[numbers[0]], moving) if len(numbers) == 1 else None
    if inner is None:
        return None
    x, indices, q = inner
    p = len(indices)
    others = [on_rows(i, q, p) for n, i in enumerate(inputs) if n not in numbers]
    if any(i is None for i in others):
        return None
    remaining = iter(others)
    args = [x if n in numbers else next(remaining) for n in range(len(inputs))]
    of_all_rows = for_rows(node.op, node, args, q, p)
    return None if of_all_rows is None else of_all_rows[tuple(indices)]


def on_rows(var: Variable, q: int, p: int) -> Variable | None:
    """An input that is the same for all selected rows, reshaped to broadcast against all rows of the tensor.

    None where the input differs between the rows.

    Parameters
    ----------
    q : the number of first dimensions of the selection, which are the dimensions of an index
    p : the number of first dimensions of the tensor, each of which has an index
    """
    if getattr(var.type, "ndim", 0) == 0:
        return var
    return var.dimshuffle(*["x"] * p, *range(q, var.type.ndim)) if all(var.type.broadcastable[:q]) else None


@singledispatch
def for_rows(op: Op, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    """An Op applied to all rows of a tensor in place of the selected rows; None for an Op that mixes rows.

    Parameters
    ----------
    node : the Op on selected rows
    inputs : the whole tensor in place of the selected rows, and the other inputs, reshaped to broadcast
        against all rows (`on_rows`)
    q : the number of first dimensions of the selection, which are the dimensions of an index
    p : the number of first dimensions of the tensor, each of which has an index
    """
    return None


def of_row(axis: int, ndim: int, q: int, p: int) -> int | None:
    """The axis of a tensor x that becomes an axis of a selection `x[i, j, ...]` of its rows.

    None for one of the first q axes of the selection, which are the dimensions of the indices.

    Parameters
    ----------
    axis : the axis of the selection
    ndim, q, p : the number of dimensions of the selection, of dimensions of each index, and of indices
    """
    axis = axis % ndim
    return axis - q + p if axis >= q else None
