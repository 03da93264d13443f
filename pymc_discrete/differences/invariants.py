"""Evaluates what a function computes without its argument once, and not at every call."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun


def separated(function: Callable, argument: Any) -> tuple[list[Any], Callable]:
    """The values in a function that do not depend on its argument, and a function that computes the rest.

    The function is evaluated in the loops of NUTS. XLA does not move all computations of such values out of
    these loops.

    Parameters
    ----------
    function : array -> pytree of arrays, which may read tracers of the program that is being traced
    argument : an array of the shape and type of the argument

    Returns
    -------
    values : list of arrays
    evaluate : (values, argument) -> the result of the function; `evaluate` reads nothing else
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(argument)
    jaxpr, tree = closed.jaxpr, jax.tree.structure(shapes)
    moving = set(jaxpr.invars)
    before: list[Any] = []
    after: list[Any] = []
    for equation in jaxpr.eqns:
        depends = any(not isinstance(v, Literal) and v in moving for v in equation.invars)
        moving.update(equation.outvars if depends else ())
        (after if depends else before).append(equation)
    read = [v for e in after for v in e.invars if not isinstance(v, Literal)]
    read += [v for v in jaxpr.outvars if not isinstance(v, Literal)]
    made = {v for e in before for v in e.outvars}
    kept = list(dict.fromkeys(v for v in read if v in made))
    first = piece_of(jaxpr, jaxpr.constvars, kept, before)
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    still = [v for v in constants if v in set(read)]
    second = piece_of(jaxpr, [*still, *kept, *jaxpr.invars], jaxpr.outvars, after)
    values = [*(constants[v] for v in still), *first(*closed.consts)]
    return values, lambda values, argument: jax.tree.unflatten(tree, second(*values, argument))


def piece_of(jaxpr: Jaxpr, inputs: list, outputs: list, equations: list) -> Callable:
    """A function made of some of the equations of a JAX program, with the given inputs and outputs."""
    piece = Jaxpr((), inputs, outputs, equations, jaxpr.effects, jaxpr.debug_info.with_unknown_names())
    return jaxpr_as_fun(ClosedJaxpr(piece, ()))
