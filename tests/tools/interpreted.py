"""Programs of JAX run by the reference interpreter of StableHLO: nothing is compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.extend.mlir.passmanager import PassManager

from pymc_discrete.runtime.jax_settings import jitted

LARGEST = 300_000  # elements that a program computes: to interpret each takes about a microsecond
FEW = 10  # calls of a program that are interpreted where it may be called often

stablehlo.register_stablehlo_passes()
# the interpreter knows no special functions, which become series here
SPECIAL_FUNCTIONS = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


def interpreted(function: Callable) -> Callable:
    """As `jax.jit`, for a program that runs a few times on small arrays; its results are arrays of NumPy.

    To compile a program takes a hundred times as long as to interpret it. One of large arrays is compiled all
    the same, and so is one that calls a library, such as a Cholesky decomposition does.
    """
    traced = jax.jit(function, keep_unused=True)
    programs: dict[Any, Callable] = {}

    def run(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        leaves = [np.asarray(leaf) for leaf in leaves]
        key = jax.config.jax_enable_x64, tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key not in programs:
            programs[key] = program(traced, arguments)
        return programs[key](arguments, leaves)

    return run


def interpreted_at_first(function: Callable, level: Any = None) -> Callable:
    """As `jitted` of the package, but that the first `FEW` calls for arrays of equal shapes are interpreted.

    It stands for that function where methods of a density are compiled, since a test calls most of them a few
    times; `level` is for those that it calls more often.
    """
    compiled, interpreter = jitted(function, level), interpreted(function)
    calls: dict[Any, int] = {}

    def run(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        if any(isinstance(leaf, jax.Array) and len(leaf.devices()) > 1 for leaf in leaves):
            return compiled(*arguments)
        key = (
            jax.config.jax_enable_x64,
            tree,
            tuple((np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves),
        )
        calls[key] = calls.get(key, 0) + 1
        if calls[key] > FEW:
            return compiled(*arguments)
        return jax.tree.map(jnp.asarray, interpreter(*arguments))

    return run


def program(traced: Any, arguments: tuple) -> Callable:
    """A function of arguments and their leaves, for all arguments of these shapes."""
    lowered = traced.lower(*arguments)
    module = lowered.compiler_ir("stablehlo")
    if not is_small(module.operation):
        compiled = lowered.compile()
        return lambda arguments, leaves: jax.tree.map(np.asarray, compiled(*arguments))
    with module.context:
        PassManager.parse(SPECIAL_FUNCTIONS).run(module.operation)
    shapes, structure = jax.tree.flatten(lowered.out_info)
    # in 32 bits the program takes arrays of 64 bits, too
    types = [info.dtype for info in jax.tree.leaves(lowered.args_info)]

    def run(arguments: tuple, leaves: list[np.ndarray]) -> Any:
        with module.context, ir.Location.unknown():
            try:
                inputs = [constant(a.astype(t)) for a, t in zip(leaves, types, strict=True)]
                results = stablehlo.eval_module(module, inputs)
            except ValueError:  # what the interpreter refuses is compiled
                return jax.tree.map(np.asarray, traced(*arguments))
            arrays = [np.array(a, s.dtype).reshape(s.shape) for a, s in zip(results, shapes, strict=True)]
        return jax.tree.unflatten(structure, arrays)

    return run


def constant(a: np.ndarray) -> ir.DenseElementsAttr:
    """An array as the interpreter takes it: unsigned integers are of a type of their own."""
    return ir.DenseElementsAttr.get(a, signless=a.dtype.kind != "u")


def is_small(program: ir.Operation) -> bool:
    """Whether the interpreter knows all operations of a program, and takes a moment for them."""
    unknown, elements = False, 0

    def visit(operation: ir.Operation) -> ir.WalkResult:
        nonlocal unknown, elements
        unknown |= operation.name == "stablehlo.custom_call"
        elements += sum(int(np.prod(ir.ShapedType(r.type).shape)) for r in operation.results)
        return ir.WalkResult.ADVANCE

    program.walk(visit)
    return not unknown and elements < LARGEST
