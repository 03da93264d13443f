"""Rewrites of a log density that move work out of what depends on the block, to where it is done once per
context.

A selection takes from a tensor of the context what the block's sites say: `p[z]`, `switch(z, a, b)`. What is
then computed from it row by row, `log(p[z])`, `chol(cov[z])`, `P[z].sum(axis=-1)`, is computed for every row
instead, and selected: `log(p)[z]`.
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
from pytensor.tensor.basic import Alloc, ExtractDiag
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_discrete.targets.graph.analysis import Depends
from pymc_discrete.targets.graph.rebuild import rebuild
from pymc_discrete.targets.graph.sparse import without_sparse


def lift(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """Write what moves in the form that costs least.

    Products with sparse matrices become sums of a few elements, where what moves is discrete.
    """
    moving = Depends(roots)
    discrete = not any(r.type.dtype.startswith("float") for r in roots)

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        out = node.outputs[0]
        if len(node.outputs) > 1 or not any(i in moving for i in inputs):
            return None
        if discrete and (product := without_sparse(node, inputs)) is not None:
            return product
        for rule in (plain, elementwise, composed, row_by_row):
            new = rule(node, inputs, moving)
            if new is not None and new.type.ndim == out.type.ndim and new.type.dtype == out.type.dtype:
                return [new]
        return None

    return rebuild(outputs, {}, rewrite)


# ---------------------------------------------------------------- simpler forms
def plain(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """Forms that other rules know, of sums of booleans, quadratic forms, squares and conditions that always
    hold.
    """
    out, op = node.outputs[0], node.op.scalar_op if isinstance(node.op, Elemwise) else None
    booleans = {Add: pt.or_, Mul: pt.and_}
    if type(op) in booleans and out.type.dtype == "bool":  # PyTensor's JAX adds them up instead
        return reduce(booleans[type(op)], inputs)
    if isinstance(op, OR | AND) and out.type.dtype == "bool" and None not in out.type.shape:
        return without_constants(op, inputs, out.type.shape)
    if isinstance(node.op, Dot) and set(out.type.shape) <= {1} and all(i in moving for i in inputs):
        # a quadratic form, taken apart element by element
        return (inputs[0].reshape((-1,)) * inputs[1].reshape((-1,))).sum().reshape((1,) * out.ndim)
    if isinstance(op, Pow) and isinstance(inputs[1], Constant) and (inputs[1].data == 2).all():
        return pt.sqr(inputs[0])
    if op is not None and always_true(op, inputs) and None not in out.type.shape:
        return pt.constant(np.ones(out.type.shape, bool))
    return None


def without_constants(op: Any, inputs: list[Variable], shape: tuple[int, ...]) -> Variable | None:
    """A conjunction or disjunction without what is known of it, or None where nothing is."""
    known = [constant_of(i) for i in inputs]
    neutral = isinstance(op, AND)  # true in a conjunction, false in a disjunction
    if any(k == (not neutral) for k in known):
        return pt.constant(np.full(shape, not neutral))
    left = [i for i, k in zip(inputs, known, strict=True) if k is None]
    if len(left) == len(inputs) or not left or left[0].type.shape != shape:
        return None
    return left[0] if len(left) == 1 else (pt.and_ if neutral else pt.or_)(*left)


def constant_of(var: Variable) -> bool | None:
    """What a boolean tensor is throughout, or None."""
    if var.owner is not None and isinstance(var.owner.op, Alloc):
        var = var.owner.inputs[0]
    if not isinstance(var, Constant) or not var.data.size or (var.data != var.data.flat[0]).any():
        return None
    return bool(var.data.flat[0])


def always_true(op: Any, inputs: list[Variable]) -> bool:
    """Whether a comparison says no more than that a probability, or an exponential, is one: 0 <= sigmoid(x)
    <= 1.
    """
    if not isinstance(op, GE | LE) or not isinstance(inputs[1], Constant):
        return False
    inner = inputs[0].owner
    function = inner.op.scalar_op if inner is not None and isinstance(inner.op, Elemwise) else None
    if isinstance(op, GE):
        return isinstance(function, Sigmoid | Exp | Sqr | Softplus) and bool((inputs[1].data <= 0).all())
    return isinstance(function, Sigmoid) and bool((inputs[1].data >= 1).all())


# ---------------------------------------------------------------- selections
def selection(var: Variable, moving: Depends) -> tuple[list[Variable], Callable[..., Variable], Any] | None:
    """What a selection chooses from, how it chooses from others in their place, and what two that choose
    alike share.
    """
    node = var.owner
    if node is None or var not in moving:
        return None
    if isinstance(node.op, AdvancedSubtensor | Subtensor):
        x, *index = node.inputs
        if x in moving:
            return None
        return [x], lambda x: node.op(x, *index), (node.op, *index, x.type.shape)
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Switch):
        cond, *sides = node.inputs
        if any(s in moving for s in sides):
            return None
        return sides, lambda a, b: pt.switch(cond, a, b), (cond, *(s.type.shape for s in sides))
    return None


def elementwise(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """A function of selections that choose alike, inside them; what else it reads is one number."""
    if not isinstance(node.op, Elemwise):
        return None
    found = {j: selection(i, moving) for j, i in enumerate(inputs) if i in moving}
    others = [i for j, i in enumerate(inputs) if j not in found]
    first = next(iter(found.values()))
    if (
        first is None
        or any(f is None or f[2] != first[2] for f in found.values())
        or not all(all(i.type.broadcastable) for i in others)
    ):
        return None
    if len(found) > 1 and isinstance(node.op.scalar_op, Switch):
        return None  # of two branches only one may be what is chosen
    sources, choose, _ = first

    def inside(*parts: Variable) -> Variable:
        ndim = parts[0].type.ndim
        given, aligned = iter(parts), iter([i.reshape((1,) * ndim) if i.ndim else i for i in others])
        return node.op(*(next(given) if j in found else next(aligned) for j in range(len(inputs))))

    per_source = zip(*(f[0] for f in found.values() if f is not None), strict=True)
    return choose(*(inside(*parts) for parts in per_source)) if len(sources) else None


class Rows(NamedTuple):
    """A selection `x[i, j, ...]` of rows of the context, by indices of q dimensions, all of one shape."""

    x: Variable
    indices: list[Variable]
    q: int


def rows_of(var: Variable, moving: Depends) -> Rows | None:
    node = var.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor | Subtensor):
        return None
    x, *indices = node.inputs
    if x in moving or tuple(node.op.idx_list) != tuple(range(len(indices))):
        return None
    shapes = {getattr(i.type, "shape", ()) for i in indices}
    if len(shapes) != 1 or any(getattr(i.type, "dtype", "") == "bool" for i in indices):
        return None
    return Rows(x, indices, len(*shapes))


def composed(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """`x[i][j, k]` as `x[i[j], k]`, and `x[i].T` as `x[i.T]`."""
    inner = (
        rows_of(inputs[0], moving)
        if isinstance(node.op, AdvancedSubtensor | Subtensor | DimShuffle)
        else None
    )
    if inner is None:
        return None
    x, indices, q = inner
    if isinstance(node.op, DimShuffle):
        behind = inputs[0].type.ndim - q  # dimensions of a row, which stay where they are
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
            return None  # where the dimensions of the index end up would change
        return x[(*(i[tuple(ahead)] if q else i for i in indices), *behind)]
    return None


def row_by_row(node: Apply, inputs: list[Variable], moving: Depends) -> Variable | None:
    """What is computed from every row of a selection of rows, computed for all rows of the
    context instead.
    """
    places = [j for j, i in enumerate(inputs) if i in moving]
    inner = rows_of(inputs[places[0]], moving) if len(places) == 1 else None
    if inner is None:
        return None
    x, indices, q = inner
    p = len(indices)
    others = [on_rows(j, q, p) for n, j in enumerate(inputs) if n not in places]
    if any(j is None for j in others):
        return None
    given = iter(others)
    made = for_rows(node.op, node, [x if n in places else next(given) for n in range(len(inputs))], q, p)
    return None if made is None else made[tuple(indices)]


def on_rows(var: Variable, q: int, p: int) -> Variable | None:
    """What is the same for all rows of a selection by q dimensions, as it stands beside the p dimensions that
    count the rows.
    """
    if getattr(var.type, "ndim", 0) == 0:
        return var
    return var.dimshuffle(*["x"] * p, *range(q, var.type.ndim)) if all(var.type.broadcastable[:q]) else None


@singledispatch
def for_rows(op: Op, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    """The Op on all rows, counted by p dimensions, in place of a selection of them by q; None where it does
    not go row by row.
    """
    return None


@for_rows.register
def _(op: Elemwise, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    return op(*inputs)


def of_row(axis: int, ndim: int, q: int, p: int) -> int | None:
    """An axis of the rows of a selection, as that of all rows; None for one of its indices."""
    axis = axis % ndim
    return axis - q + p if axis >= q else None


@for_rows.register
def _(op: CAReduce, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    ndim = node.inputs[0].type.ndim
    axes = [of_row(a, ndim, q, p) for a in (range(ndim) if op.axis is None else op.axis)]
    return None if None in axes else op.clone(axis=tuple(axes))(inputs[0])


@for_rows.register(Softmax)
@for_rows.register(LogSoftmax)
def _(op: Softmax | LogSoftmax, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    ndim = node.inputs[0].type.ndim
    axes = [of_row(a, ndim, q, p) for a in (range(ndim) if op.axis is None else op.axis)]
    return None if None in axes else type(op)(axis=tuple(axes))(inputs[0])


@for_rows.register
def _(op: ExtractDiag, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    axes = [of_row(a, node.inputs[0].type.ndim, q, p) for a in (op.axis1, op.axis2)]
    return None if None in axes else ExtractDiag(op.offset, *axes)(inputs[0])


@for_rows.register
def _(op: DimShuffle, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    order = op.new_order
    if list(order[:q]) != list(range(q)):
        return None
    return inputs[0].dimshuffle(*range(p), *(o if o == "x" else o - q + p for o in order[q:]))


@for_rows.register
def _(op: Blockwise, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    cores = [i.type.ndim - len(names) for i, names in zip(node.inputs, op.inputs_sig, strict=True)]
    return op(*inputs) if max(cores) == q and len(op.outputs_sig) == 1 else None
