"""Reductions: sums, products, extrema and their positions, over axes and along them."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import AND, OR, Add, Mul, ScalarMaximum, ScalarMinimum
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Max, Min

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.bounds import (
    UNKNOWN,
    IntegerBounds,
    Interval,
    bounds_after,
    hull,
    positions,
    powers,
    product,
    raised,
    stays_finite,
    sum_of,
    times,
)
from pymc_discrete.structure.columns import (
    Update,
    column_update,
    keeps_magnitude,
    one_hot,
    whole_input_update,
)
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.lifting import for_rows, of_row, simplified
from pymc_discrete.structure.logp_graph import LogpGraph, adds_up
from pymc_discrete.structure.quadratic_forms import factors_of, matrix_and_vector, sum_of_products
from pymc_discrete.structure.reads import LARGEST_TABLE, Elements, Entries, along, elements_of, groups
from pymc_discrete.structure.rounding import error_after
from pymc_discrete.structure.stacking import vectorised, with_axis
from pymc_discrete.structure.sums import Summands, summands_of

# {PyTensor's Op of a maximum or minimum: the JAX function that finds the index of that element}
PLACES: dict[type[Op], Callable] = {Max: jnp.argmax, Min: jnp.argmin}


# ---------------------------------------------------------------- sums, products, extrema
def reduced_axes(op: CAReduce | Argmax, node: Apply) -> tuple[int, ...]:
    """The axes of a node's input that a reduction reduces."""
    return tuple(range(node.inputs[0].type.ndim)) if op.axis is None else tuple(op.axis)


def to_one_element(function: Callable, axes: tuple[int, ...], place: Callable) -> Callable:
    """The maximum or minimum of an array over some axes, with other derivatives than JAX's own: 1 by one of
    the elements that are the largest or smallest, and 0 by all others.

    JAX divides the derivative among all elements that are equal to the maximum. In a compiled program, which
    computes the elements again in another way, with another rounding, there may be none, and the derivative
    is 0 / 0.

    Parameters
    ----------
    function : computes the maximum or minimum
    place : `jnp.argmax` or `jnp.argmin`
    """

    @jax.custom_vjp
    def wrapped(a):
        return function(a)

    def forward(a):
        return function(a), a

    def backward(a, influence):
        last = tuple(range(-len(axes), 0))
        moved = jnp.moveaxis(a, axes, last)
        flat = moved.reshape(*influence.shape, -1)
        at = jax.nn.one_hot(place(flat, axis=-1), flat.shape[-1], dtype=flat.dtype)
        return (jnp.moveaxis((at * influence[..., None]).reshape(moved.shape), last, axes),)

    wrapped.defvjp(forward, backward)
    return wrapped


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

    def reduced(a):
        return function(a, axis=-2).astype(dtype)

    if type(op) in PLACES and x.type.dtype.startswith("float"):
        reduced = to_one_element(reduced, (-2,), PLACES[type(op)])
    return Elements([reads], lambda values, _: reduced(values[0]))


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


@stays_finite.register(CAReduce)
@stays_finite.register(CumOp)
def _(op: CAReduce | CumOp, node: Apply, bounds: IntegerBounds) -> bool:
    return True


@keeps_magnitude.register
def _(op: CAReduce, node: Apply) -> bool:
    return isinstance(op.scalar_op, Add | AND | OR | ScalarMaximum | ScalarMinimum)


@degree_after.register
def _(op: CAReduce, node: Apply, degrees: list[float]) -> float:
    return degrees[0] if isinstance(op.scalar_op, Add) else math.inf


@error_after.register
def _(op: CAReduce, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    (x,), (e,) = node.inputs, errors
    if e is None:
        return abs(out)
    if isinstance(op.scalar_op, Add):
        return (e + abs(x) * roundings(x, out)).sum(axis=op.axis)
    if isinstance(op.scalar_op, Mul):
        return abs(out) * (1 + pt.switch(pt.eq(e, 0), 0.0, e / abs(x))).sum(axis=op.axis)
    return e.max(axis=op.axis)


def roundings(x: Variable, out: Variable) -> Variable:
    """The error of a sum, in units of the error of one rounding: the square root of the number of summands.

    Roundings up and down are equally frequent, so that their sum grows like a random walk.
    """
    return pt.sqrt(x.size / pt.maximum(out.size, 1))


@bounds_after.register
def _(op: CAReduce, node: Apply, inputs: list[Interval]) -> Interval:
    n = elements_combined(node, op.axis)
    if isinstance(op.scalar_op, Add):
        return sum_of(inputs[0], n)
    if isinstance(op.scalar_op, Mul):
        return product_of(inputs[0], n)
    return inputs[0] if isinstance(op.scalar_op, ScalarMaximum | ScalarMinimum) else UNKNOWN


def elements_combined(node: Apply, axes: Any) -> float:
    """The number of elements of the first input that a reduction over `axes` combines; infinite where not
    known.
    """
    shape = node.inputs[0].type.shape
    over = range(len(shape)) if axes is None else np.atleast_1d(axes)
    sizes = [shape[a] for a in over]
    return math.inf if None in sizes else float(np.prod(sizes))


def product_of(bounds: Interval, n: float) -> Interval:
    """Bounds of a product of n integers, each with the given bounds; of any number of integers if n is
    infinite."""
    low, high = bounds
    if n == math.inf:
        return hull((1.0, 1.0), (low, high), product(bounds, bounds), powers(bounds, (0.0, n)))
    # The product is extreme if all factors are at the same end of their interval, or all but one, which is at
    # the other end. It may be 0 if a factor may be 0.
    corners = [
        times(raised(low, k), raised(high, n - k)) for k in {0.0, 1.0, n - 1.0, float(n)} if 0 <= k <= n
    ]
    zero = [0.0] if n > 0 and low <= 0 <= high else []
    return min(corners + zero), max(corners + zero)


@summands_of.register
def _(op: CAReduce, node: Apply, graph: LogpGraph) -> Summands | None:
    adds = isinstance(op.scalar_op, Add) and adds_up(node.outputs[0])
    return [(node.inputs[0], None)] if adds else None


@simplified.register
def _(
    op: CAReduce, node: Apply, inputs: list[Variable], moving: Depends, bounds: IntegerBounds
) -> Variable | None:
    """A simpler form of a sum; None where there is none.

    A sum of products with a constant matrix of few nonzeros is written as a sum over the nonzeros, and a sum
    over no elements as 0.
    """
    (x,), (out,) = inputs, node.outputs
    if not isinstance(op.scalar_op, Add):
        return None
    if x.type.ndim == 1 and any(matrix_and_vector(f, moving) for f in factors_of(x)):
        return sum_of_products(factors_of(x), moving)
    if 0 in x.type.shape and None not in out.type.shape:
        return pt.zeros(out.type.shape, dtype=out.type.dtype)
    return None


@for_rows.register
def _(op: CAReduce, node: Apply, inputs: list[Variable], q: int, p: int) -> Variable | None:
    axes = [of_row(a, node.inputs[0].type.ndim, q, p) for a in reduced_axes(op, node)]
    return None if None in axes else op.clone(axis=tuple(axes))(inputs[0])


with_axis.register(CAReduce)(vectorised)


# ---------------------------------------------------------------- positions of extrema
@elements_of.register
def _(op: Argmax, node: Apply, graph: LogpGraph) -> Elements | None:
    reads = groups(graph.shape(node.inputs[0]), reduced_axes(op, node))
    if reads.shape[1] < 2 or reads.size > LARGEST_TABLE:
        return None
    return Elements([reads], lambda values, _: jnp.argmax(values[0], axis=-2))


@bounds_after.register
def _(op: Argmax, node: Apply, inputs: list[Interval]) -> Interval:
    return positions([node.inputs[0].type.shape[a] for a in reduced_axes(op, node)])


# ---------------------------------------------------------------- sums and products along an axis
@elements_of.register
def _(op: CumOp, node: Apply, graph: LogpGraph) -> Entries | None:
    function = jnp.cumsum if op.mode == "add" else jnp.cumprod
    return along(node, graph, (op.axis,), lambda v: function(v, axis=-2))


@column_update.register
def _(op: CumOp, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    return whole_input_update(node, moving, graph) if op.mode == "add" else None


@degree_after.register
def _(op: CumOp, node: Apply, degrees: list[float]) -> float:
    return degrees[0] if op.mode == "add" else math.inf


@error_after.register
def _(op: CumOp, node: Apply, out: Variable, errors: list[Variable | None]) -> Variable:
    (x,), (e,) = node.inputs, errors
    if e is None or op.mode != "add":
        return abs(out) * pt.sqrt(x.size)
    return pt.cumsum(e + abs(x) * pt.sqrt(x.size), axis=op.axis)


@bounds_after.register
def _(op: CumOp, node: Apply, inputs: list[Interval]) -> Interval:
    n = elements_combined(node, op.axis)
    if op.mode == "add":
        return hull(inputs[0], sum_of(inputs[0], n))
    if n == math.inf:
        return product_of(inputs[0], n)
    return hull(*(product_of(inputs[0], k) for k in {1.0, 2.0, n - 1.0, n} if 1 <= k <= n))


with_axis.register(CumOp)(vectorised)
