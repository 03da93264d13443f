"""Derivatives of log densities at impossible states.

The gradient of `where(z == 1, log(p), log1p(-p))` at p = 0 and z = 0 is 0 times infinity, nan, by the chain
rule, although the branch that is not selected has no influence. A sum over all states evaluates all states,
possible or not.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.basic import Add, Cast, Identity, Neg, Sub, Switch
from pytensor.tensor.elemwise import Elemwise

from pymc_discrete.differences.parts.evaluate import Reader
from pymc_discrete.structure.ops.reductions import PLACES, reduced_axes, to_one_element
from pymc_discrete.structure.reads import Elements

# Elementwise Ops whose derivatives are finite everywhere: where the output has no influence, the chain rule
# itself gives the inputs derivative 0.
WITH_FINITE_DERIVATIVES = (Add, Sub, Neg, Switch, Identity, Cast)


def may_be_undefined(op: Elemwise) -> bool:
    """Whether the derivative of an elementwise Op may be infinite or nan."""
    return not isinstance(op.scalar_op, WITH_FINITE_DERIVATIVES)


def without_influence(function: Callable) -> Callable:
    """An elementwise function with derivative 0, never nan, with respect to inputs that do not influence the
    result.
    """

    @jax.custom_vjp
    def wrapped(*values):
        return function(*values)

    def forward(*values):
        return function(*values), values

    def backward(values, influence):
        wide = [jnp.broadcast_to(v, influence.shape) for v in values]
        moving = [n for n, v in enumerate(wide) if is_float_array(v)]

        def of_floats(*floats):
            return function(*(floats[moving.index(n)] if n in moving else v for n, v in enumerate(wide)))

        slopes = jax.vjp(of_floats, *(wide[n] for n in moving))[1](influence)
        found: list[Any] = [None] * len(values)
        for n, slope in zip(moving, slopes, strict=True):
            found[n] = unbroadcast(jnp.where(influence == 0, 0.0, slope), jnp.shape(values[n]))
        return tuple(found)

    wrapped.defvjp(forward, backward)
    return wrapped


def is_float_array(a: Any) -> bool:
    """Whether an array holds floats; only arrays of floats have derivatives."""
    return jnp.issubdtype(jnp.result_type(a), jnp.floating)


def unbroadcast(a, shape: tuple[int, ...]):
    """The sum of `a` over the axes along which an array of the shape `shape` was broadcast."""
    if a.shape == shape:
        return a
    a = a.sum(tuple(range(a.ndim - len(shape))))
    return a.sum(tuple(n for n, size in enumerate(shape) if size == 1 and a.shape[n] != 1), keepdims=True)


def differentiable(op: Op, node: Apply | None = None, **options: Any) -> Callable:
    """The JAX function of an Op, from PyTensor's `jax_funcify`, wrapped if its derivative may be nan: by
    `without_influence` if the Op is elementwise, by `to_one_element` if it is a maximum or minimum.
    """
    function = jax_funcify(op, node=node, **options)
    if node is not None and type(op) in PLACES and str(node.inputs[0].type.dtype).startswith("float"):
        return to_one_element(function, reduced_axes(op, node), PLACES[type(op)])
    if node is None or not isinstance(op, Elemwise) or len(node.outputs) > 1:
        return function
    floats = [str(v.type.dtype).startswith("float") for v in (*node.outputs, *node.inputs)]
    return without_influence(function) if floats[0] and any(floats[1:]) and may_be_undefined(op) else function


class DifferentiableReader(Reader):
    """Reads elements of a graph; derivatives with respect to elements without influence are 0 and not nan."""

    def _computed(self, node: Apply, rule: Elements, values: list[Any], fixed: list[Any]):
        floats = str(node.outputs[0].type.dtype).startswith("float")
        elementwise = isinstance(node.op, Elemwise) and may_be_undefined(node.op)
        if not (elementwise and floats and any(map(is_float_array, values))):
            return rule.compute(values, fixed)
        return without_influence(lambda *values: rule.compute(list(values), fixed))(*map(jnp.asarray, values))
