"""Updates of linear maps: by how much a whole result changes when a few elements of its input change.

One rule per linear Op, registered with `@column_update.register`; an Op without a rule is not treated as
linear.
"""

from collections.abc import Callable
from functools import singledispatch

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import (
    AND,
    OR,
    Abs,
    Add,
    Cast,
    Clip,
    Identity,
    Mul,
    Neg,
    ScalarMaximum,
    ScalarMinimum,
    Second,
    Sign,
    Sqr,
    Sub,
    Switch,
    Tanh,
)
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from scipy.sparse import issparse

from pymc_discrete.space.indexing import take
from pymc_discrete.structure.jaxify import jax_funcify
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.reads import groups, reduced_axes

# An update is a function (delta, index, rows, inputs) -> (r, k, *shape), the change of a node's output:
#   delta : (r, m, k), changes of m elements of the input, for each of r sites and its k neighbours
#   index : (R, m) int, the flat indices of those elements, for all R sites of a variable
#   rows : (r,) int, the sites that are asked for, counted within the variable; None for all of them
#   inputs : the values of the node's inputs
Update = Callable


# functions that map finite values to finite values of a similar order of magnitude
TAME = (
    Add,
    Sub,
    Mul,
    Neg,
    Identity,
    Cast,
    Switch,
    Clip,
    Abs,
    Sqr,
    Sign,
    ScalarMaximum,
    ScalarMinimum,
    Sigmoid,
    Tanh,
    Second,
)
LARGEST_FACTOR = 1e8  # the largest magnitude of a constant in a map that may be updated


def is_tame(source: Variable, node: Apply, graph: LogpGraph) -> bool:
    """Whether the output of a linear node may be updated by adding the change that its column gives.

    That is not so if elements of the source, the input that depends on the block, may be infinite or very
    large. Subtracting an infinite element gives inf - inf. A very large element leaves a rounding error in
    the sum, which stays there after the element is subtracted.

    Parameters
    ----------
    source : the input of the node that depends on the block
    node : a node that is linear in `source`
    """
    for v in [*node.inputs, *(i for n in toposort([source], blockers=graph.values) for i in n.inputs)]:
        numbers = (v.data.data if issparse(v.data) else v.data) if isinstance(v, Constant) else ()
        if np.size(numbers) and not (np.abs(np.asarray(numbers, float)) <= LARGEST_FACTOR).all():
            return False
    for n in toposort([source], blockers=graph.values):
        moving = any(graph.depends(i) for i in n.inputs)
        if (
            moving
            and isinstance(n.op, Elemwise)
            and n.outputs[0].type.dtype != "bool"
            and not isinstance(n.op.scalar_op, TAME)
        ):
            return False
        if (
            moving
            and isinstance(n.op, CAReduce)
            and not isinstance(n.op.scalar_op, Add | AND | OR | ScalarMaximum | ScalarMinimum)
        ):
            return False
    return True


@singledispatch
def column_update(op: Op, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    """The update of a node's output when input number `moving` changes; None where it is not linear in it."""
    return None


def one_hot(place: np.ndarray, n: int, rows, dtype):
    """(r, m, n) the one-hot encoding of `place` (R, m), numbers from 0 to n - 1, at the sites `rows`."""
    return (
        take(place.reshape(-1), np.arange(place.size).reshape(place.shape), rows)[..., None] == np.arange(n)
    ).astype(dtype)


@column_update.register
def _(op: CAReduce, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    if not isinstance(op.scalar_op, Add):
        return None
    x = node.inputs[0]
    members = groups(graph.shape(x), reduced_axes(op, node))
    result_of = np.empty(graph.size(x), int)
    result_of[members.reshape(-1)] = np.repeat(np.arange(len(members)), members.shape[1])
    shape = graph.shape(node.outputs[0])

    def update(delta, index, rows, inputs):
        if len(members) == 1:
            out = delta.sum(axis=1)[..., None]
        else:
            out = jnp.einsum(
                "rmk,rmo->rko", delta, one_hot(result_of[index], len(members), rows, delta.dtype)
            )
        return out.reshape(*out.shape[:2], *shape)

    return update


@column_update.register
def _(op: Dot, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    a, b = node.inputs
    n = graph.shape(a)[-1]
    rows_a, columns_b = graph.size(a) // n, graph.size(b) // n
    shape = graph.shape(node.outputs[0])

    # (n, n_out): row j holds the change of the result per unit change of element j along the summed axis
    def columns(inputs, dtype=float):
        other = jnp.asarray(inputs[1 - moving], dtype)
        return other.reshape(rows_a, n).T if moving == 1 else other.reshape(n, columns_b)

    def update(delta, index, rows, inputs):
        column = columns(inputs, delta.dtype)
        if moving == 1:  # an element (j, c) of b moves result column c by column j of a
            free, place = columns_b, (index // columns_b, index % columns_b)
        else:  # an element (i, j) of a moves result row i by row j of b
            free, place = rows_a, (index % n, index // n)
        m = index.shape[1]
        if m == 1 and rows is None and len(place[0]) == n and (place[0][:, 0] == np.arange(n)).all():
            coefficients = column[:, None]
        else:
            which = place[0] if rows is None else jnp.asarray(place[0])[rows]
            coefficients = column[which]  # (r, m, n_out)
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


def whole_input_update(node: Apply, moving: int, graph: LogpGraph) -> Update:
    """The update of a linear Op computed by applying the Op to the change of its whole input."""
    function = jax_funcify(node.op, node=node)
    shape = graph.shape(node.inputs[moving])

    def update(delta, index, rows, inputs):
        r, _, k = delta.shape
        elements = jnp.asarray(index) if rows is None else jnp.asarray(index)[rows]
        change = jnp.zeros((r, int(np.prod(shape)), k), delta.dtype)
        change = change.at[jnp.arange(r)[:, None], elements].add(delta)
        change = jnp.moveaxis(change, 2, 1).reshape(r, k, *shape)

        def of_change(c):
            return function(*(c if j == moving else i for j, i in enumerate(inputs)))

        return jax.vmap(jax.vmap(of_change))(change)

    return update


@column_update.register
def _(op: CumOp, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    return whole_input_update(node, moving, graph) if op.mode == "add" else None


@column_update.register
def _(op: Blockwise, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    return whole_input_update(node, moving, graph) if isinstance(op.core_op, Dot) else None
