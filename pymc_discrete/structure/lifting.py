"""Rewrites that compute functions of a selection once per context, before the selection.

A selection such as `p[z]` or `switch(z, a, b)` takes elements or rows of a tensor p that does not depend on
the block, at indices z that do. Functions that are applied to it row by row, as in `log(p[z])`,
`chol(cov[z])` or `P[z].sum(axis=-1)`, are applied to all rows of the tensor instead, before the selection:
`log(p)[z]`. That is done once per context (the values of everything outside the block), not for every move.
"""

from collections.abc import Callable
from functools import reduce, singledispatch
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import AND, GE, LE, OR, Add, Exp, Mul, Pow, Sqr, Switch
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.quadratic_forms import factors_of, matrix_and_vector, sum_of_products
from pymc_discrete.structure.rebuild import rebuild
from pymc_discrete.structure.sparse import without_sparse


def lift(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """Rewrite what depends on `roots`, the block's variables, into forms that cost less to evaluate.

    If the roots are discrete, products with constant sparse matrices become sums of a few elements.
    """
    moving = Depends(roots)
    discrete = not any(r.type.dtype.startswith("float") for r in roots)

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        out = node.outputs[0]
        if len(node.outputs) > 1 or not any(i in moving for i in inputs):
            return None
        if discrete and (product := without_sparse(node, inputs)) is not None:
            return product
        for rule in (simplified, elementwise, composed, row_by_row):
            new = rule(node, inputs, moving)
            if new is not None and new.type.ndim == out.type.ndim and new.type.dtype == out.type.dtype:
                return [new]
        return None

    return rebuild(outputs, {}, rewrite)


# ---------------------------------------------------------------- simpler forms
def simplified(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """A simpler equivalent of a node that more rules support, or None.

    Simplified are sums and products of booleans, sums of nothing, products of vectors, squares, and
    conditions that always hold.
    """
    out, op = node.outputs[0], node.op.scalar_op if isinstance(node.op, Elemwise) else None
    booleans = {Add: pt.or_, Mul: pt.and_}
    if type(op) in booleans and out.type.dtype == "bool":  # JAX would compute with integers instead
        return reduce(booleans[type(op)], inputs)
    if isinstance(op, OR | AND) and out.type.dtype == "bool" and None not in out.type.shape:
        return without_constants(op, inputs, out.type.shape)
    if isinstance(node.op, Dot) and set(out.type.shape) <= {1}:
        # a product of two vectors becomes a sum over elements, which can be split into terms
        total = sum_of_products([i.reshape((-1,)) for i in inputs], moving)
        return total.reshape((1,) * out.ndim)
    adds = isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Add)
    if adds and inputs[0].type.ndim == 1 and any(matrix_and_vector(f, moving) for f in factors_of(inputs[0])):
        return sum_of_products(factors_of(inputs[0]), moving)
    if adds and 0 in inputs[0].type.shape:
        return pt.zeros(out.type.shape, dtype=out.type.dtype) if None not in out.type.shape else None
    if isinstance(op, Pow) and isinstance(inputs[1], Constant) and (inputs[1].data == 2).all():
        return pt.sqr(inputs[0])
    if op is not None and always_true(op, inputs) and None not in out.type.shape:
        return pt.constant(np.ones(out.type.shape, bool))
    return None


def without_constants(op: Any, inputs: list[Variable], shape: tuple[int, ...]) -> Variable | None:
    """A conjunction or disjunction without its constant arguments, or None where it has none."""
    known = [constant_of(i) for i in inputs]
    neutral = isinstance(op, AND)  # the neutral element: True of a conjunction, False of a disjunction
    if any(k == (not neutral) for k in known):
        return pt.constant(np.full(shape, not neutral))
    left = [i for i, k in zip(inputs, known, strict=True) if k is None]
    if len(left) == len(inputs) or not left or left[0].type.shape != shape:
        return None
    return left[0] if len(left) == 1 else (pt.and_ if neutral else pt.or_)(*left)


def constant_of(var: Variable) -> bool | None:
    """The value of a constant boolean tensor whose elements are all equal, or None."""
    if var.owner is not None and isinstance(var.owner.op, Alloc):
        var = var.owner.inputs[0]
    if not isinstance(var, Constant) or not var.data.size or (var.data != var.data.flat[0]).any():
        return None
    return bool(var.data.flat[0])


def always_true(op: Any, inputs: list[Variable]) -> bool:
    """Whether a comparison holds by the range of a function, as in 0 <= sigmoid(x) <= 1 or exp(x) >= 0."""
    if not isinstance(op, GE | LE) or not isinstance(inputs[1], Constant):
        return False
    inner = inputs[0].owner
    function = inner.op.scalar_op if inner is not None and isinstance(inner.op, Elemwise) else None
    if isinstance(op, GE):
        return isinstance(function, Sigmoid | Exp | Sqr | Softplus) and bool((inputs[1].data <= 0).all())
    return isinstance(function, Sigmoid) and bool((inputs[1].data >= 1).all())


# ---------------------------------------------------------------- selections
class Selection(NamedTuple):
    """A selection of elements of tensors that do not depend on the block.

    Attributes
    ----------
    sources : the tensors that are selected from
    choose : (tensors) -> the same selection from others in place of `sources`
    key : equal for two selections at the same positions of sources of the same shapes
    """

    sources: list[Variable]
    choose: Callable[..., Variable]
    key: Any


def selection(var: Variable, moving: Depends) -> Selection | None:
    """A variable as a selection, or None where it is not one."""
    node = var.owner
    if node is None or var not in moving:
        return None
    if isinstance(node.op, AdvancedSubtensor | Subtensor):
        x, *index = node.inputs
        if x in moving:
            return None
        return Selection([x], lambda x: node.op(x, *index), (node.op, *index, x.type.shape))
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Switch):
        cond, *sides = node.inputs
        if any(s in moving for s in sides):
            return None
        shapes = (s.type.shape for s in sides)
        return Selection(sides, lambda a, b: pt.switch(cond, a, b), (cond, *shapes))
    return None


def elementwise(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """An elementwise function of selections at the same positions, applied to their sources.

    Its other inputs must be scalars.
    """
    if not isinstance(node.op, Elemwise):
        return None
    selections = {j: selection(i, moving) for j, i in enumerate(inputs) if i in moving}
    others = [i for j, i in enumerate(inputs) if j not in selections]
    first = next(iter(selections.values()))
    if (
        first is None
        or any(s is None or s.key != first.key for s in selections.values())
        or not all(all(i.type.broadcastable) for i in others)
    ):
        return None
    if len(selections) > 1 and isinstance(node.op.scalar_op, Switch):
        return None  # a switch is handled only if a single one of its inputs is a selection

    def inside(*parts: Variable) -> Variable:
        ndim = parts[0].type.ndim
        selected, aligned = iter(parts), iter([i.reshape((1,) * ndim) if i.ndim else i for i in others])
        return node.op(*(next(selected) if j in selections else next(aligned) for j in range(len(inputs))))

    per_source = zip(*(s.sources for s in selections.values() if s is not None), strict=True)
    return first.choose(*(inside(*parts) for parts in per_source)) if len(first.sources) else None


class RowSelection(NamedTuple):
    """A selection `x[i, j, ...]` of rows of a tensor: its subtensors at indices of its first dimensions.

    Attributes
    ----------
    x : a tensor that does not depend on the block
    indices : of its first p dimensions, all of one shape
    q : the number of dimensions of each index
    """

    x: Variable
    indices: list[Variable]
    q: int


def row_selection(var: Variable, moving: Depends) -> RowSelection | None:
    """A variable as a selection of rows, or None where it is not one."""
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
        behind = inputs[0].type.ndim - q  # the dimensions of a row, which must stay last and in order
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
            return None  # NumPy would put the dimensions of the indices at another position
        return x[(*(i[tuple(ahead)] if q else i for i in indices), *behind)]
    return None


def row_by_row(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """A function of each selected row, computed for all rows before the selection; None where that fails."""
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
    """An input that is equal for all selected rows, reshaped to broadcast against all rows of the tensor.

    None where it differs between the rows; `q` and `p` as for `for_rows`.
    """
    if getattr(var.type, "ndim", 0) == 0:
        return var
    return var.dimshuffle(*["x"] * p, *range(q, var.type.ndim)) if all(var.type.broadcastable[:q]) else None


@singledispatch
def for_rows(op: Op, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    """An Op applied to all rows of a tensor in place of the selected ones; None where it mixes rows.

    Parameters
    ----------
    node : the Op on selected rows
    inputs : the whole tensor in place of the selected rows, and the other inputs as given by `on_rows`
    q : the number of dimensions of the indices, the first dimensions of the selection
    p : the number of indices, the first dimensions of the tensor
    """
    return None


def of_row(axis: int, ndim: int, q: int, p: int) -> int | None:
    """The axis of the tensor for an axis of the selection; None where that belongs to its indices."""
    axis = axis % ndim
    return axis - q + p if axis >= q else None
