"""Linear algebra: products of matrices and vectors, triangular systems, and Ops on a batch of matrices."""

import math

import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.bounds import (
    UNKNOWN,
    IntegerBounds,
    Interval,
    bounds_after,
    product,
    stays_finite,
    sum_of,
    times,
)
from pymc_discrete.structure.columns import Update, column_update, one_hot, whole_input_update
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.lifting import for_rows, simplified
from pymc_discrete.structure.logp_graph import LogpGraph, adds_up
from pymc_discrete.structure.quadratic_forms import sum_of_products
from pymc_discrete.structure.reads import (
    LARGEST_TABLE,
    Elements,
    Entries,
    constant,
    contiguous,
    elements_of,
    from_core,
    to_core,
)
from pymc_discrete.structure.rounding import error_after
from pymc_discrete.structure.stacking import vectorised, with_axis


# ---------------------------------------------------------------- products
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
    # An element of the product does not depend on elements that are multiplied by a zero of a constant
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


@stays_finite.register
def _(op: Dot, node: Apply, bounds: IntegerBounds) -> bool:
    return True


@stays_finite.register
def _(op: Blockwise, node: Apply, bounds: IntegerBounds) -> bool:
    return isinstance(op.core_op, Dot)


@column_update.register
def _(op: Dot, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    a, b = node.inputs
    n = graph.shape(a)[-1]
    rows_a, columns_b = graph.size(a) // n, graph.size(b) // n
    shape = graph.shape(node.outputs[0])

    # (n, n_out): row j holds how much the product changes per unit change of an element of the factor that
    # changes, where j is the element's index along the axis that the product sums over
    def columns(inputs, dtype=float):
        other = jnp.asarray(inputs[1 - moving], dtype)
        return other.reshape(rows_a, n).T if moving == 1 else other.reshape(n, columns_b)

    def update(delta, index, rows, inputs):
        column = columns(inputs, delta.dtype)
        if moving == 1:  # in a @ b, a change of b[j, c] adds a multiple of column j of a to result column c
            free, place = columns_b, (index // columns_b, index % columns_b)
        else:  # in a @ b, a change of a[i, j] adds a multiple of row j of b to result row i
            free, place = rows_a, (index % n, index // n)
        m = index.shape[1]
        if m == 1 and rows is None and len(place[0]) == n and (place[0][:, 0] == np.arange(n)).all():
            coefficients = column[:, None]
        else:
            which = place[0] if rows is None else jnp.asarray(place[0])[rows]
            # (r, m, n_out), the changes of the product per unit change of the m elements of each of r sites
            coefficients = column[which]
        if free == 1:
            out = (
                (delta[:, 0, :, None] * coefficients[:, 0, None, :])
                if m == 1
                else jnp.einsum("rmk,rmo->rko", delta, coefficients)
            )
        elif moving == 1:
            chosen = one_hot(place[1], free, rows, delta.dtype)
            out = jnp.einsum("rmk,rmo,rmc->rkoc", delta, coefficients, chosen)
        else:
            chosen = one_hot(place[1], free, rows, delta.dtype)
            out = jnp.einsum("rmk,rmo,rmc->rkco", delta, coefficients, chosen)
        return out.reshape(*out.shape[:2], *shape)

    if (columns_b if moving == 1 else rows_a) == 1:
        update.columns = columns  # type: ignore[attr-defined]
    return update


@degree_after.register
def _(op: Dot, node: Apply, degrees: list[float]) -> float:
    return sum(degrees)


@error_after.register(Dot)
def product_error(op: Op, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    a, b = (abs(i) for i in node.inputs)
    parts = [pt.sqrt(a.shape[-1]) * as_float(op(a, b))]
    parts += [as_float(op(errors[0], b))] if errors[0] is not None else []
    parts += [as_float(op(a, errors[1]))] if errors[1] is not None else []
    return pt.add(*parts) if len(parts) > 1 else parts[0]


def as_float(var: Variable) -> Variable:
    """A tensor cast to float64."""
    return var.astype("float64")


@bounds_after.register(Dot)
def dot_bounds(op: Op, node: Apply, inputs: list[Interval]) -> Interval:
    (a, b), n = node.inputs, node.inputs[0].type.shape[-1]
    for matrix, other, axis in ((a, inputs[1], -1), (b, inputs[0], -2 if b.type.ndim > 1 else -1)):
        if isinstance(matrix, Constant) and np.size(matrix.data):
            # The sums of the positive and of the negative elements of each row (or column) of a constant
            # matrix give tighter bounds than one element times the number of elements.
            data = np.asarray(matrix.data, float)
            up, down = (np.maximum(sign * data, 0).sum(axis=axis).max() for sign in (1, -1))
            ends = [times(up, e) for e in other] + [times(-down, e) for e in other]
            return min(ends[0], 0.0) + min(ends[3], 0.0), max(ends[1], 0.0) + max(ends[2], 0.0)
    return sum_of(product(*inputs), math.inf if n is None else n)


@simplified.register
def _(
    op: Dot, node: Apply, inputs: list[Variable], moving: Depends, bounds: IntegerBounds
) -> Variable | None:
    """A product of two vectors as a sum of elementwise products, which can be split into terms."""
    (out,) = node.outputs
    if not set(out.type.shape) <= {1}:
        return None
    return sum_of_products([i.reshape((-1,)) for i in inputs], moving).reshape((1,) * out.ndim)


with_axis.register(Dot)(vectorised)


# ---------------------------------------------------------------- triangular systems
@degree_after.register
def _(op: SolveTriangular, node: Apply, degrees: list[float]) -> float:
    return degrees[1] if degrees[0] == 0 else math.inf


# ---------------------------------------------------------------- one Op for each matrix of a batch
@elements_of.register
def _(op: Blockwise, node: Apply, graph: LogpGraph) -> Entries | None:
    """Which elements an Op on a batch reads: each item of the output reads the corresponding item of every
    input.
    """
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


@column_update.register
def _(op: Blockwise, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    return whole_input_update(node, moving, graph) if isinstance(op.core_op, Dot) else None


@degree_after.register
def _(op: Blockwise, node: Apply, degrees: list[float]) -> float:
    return degree_after(op.core_op, node, degrees)


@error_after.register
def _(op: Blockwise, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    way = product_error if isinstance(op.core_op, Dot) else error_after.dispatch(Op)
    return way(op, node, out, errors)


@bounds_after.register
def _(op: Blockwise, node: Apply, inputs: list[Interval]) -> Interval:
    if not isinstance(op.core_op, Dot):
        return UNKNOWN
    n = node.inputs[0].type.shape[-1]
    return sum_of(product(*inputs), math.inf if n is None else n)


@for_rows.register
def _(op: Blockwise, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    cores = [i.type.ndim - len(names) for i, names in zip(node.inputs, op.inputs_sig, strict=True)]
    return op(*inputs) if max(cores) == q and len(op.outputs_sig) == 1 else None


with_axis.register(Blockwise)(vectorised)
