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

LARGEST = 300_000  # elements that a program computes: to interpret each takes a microsecond at most
# A program that may be called often is interpreted for FEW calls. If it has no loop, it is interpreted for as
# many as compute TOGETHER elements, if these are more, which takes about as long as to compile it.
FEW, TOGETHER = 10, 5 * LARGEST

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
        key, leaves = shapes_and_leaves(arguments)
        if key not in programs:
            lowered = traced.lower(*arguments)
            found, _ = program(lowered, traced)
            programs[key] = found or compiled_for_numpy(lowered)
        return programs[key](arguments, leaves)

    return run


def interpreted_at_first(function: Callable, level: Any = None) -> Callable:
    """As `jitted` of the package, but that the first calls for arrays of equal shapes are interpreted.

    It stands for that function where methods of a density are compiled, since a test calls most of them a few
    times; `level` is for those that it calls more often.
    """
    compiled, traced = jitted(function, level), jax.jit(function, keep_unused=True)
    programs: dict[Any, Callable | None] = {}
    left: dict[Any, int] = {}  # how many calls are still interpreted

    def run(*arguments: Any) -> Any:
        if any(isinstance(a, jax.Array) and len(a.devices()) > 1 for a in jax.tree.leaves(arguments)):
            return compiled(*arguments)
        key, leaves = shapes_and_leaves(arguments)
        if key not in programs:
            programs[key], left[key] = program(traced.lower(*arguments), traced)
        interpreter = programs[key]
        if interpreter is None or not left[key]:
            return compiled(*arguments)
        left[key] -= 1
        return jax.tree.map(jnp.asarray, interpreter(arguments, leaves))

    return run


def shapes_and_leaves(arguments: tuple) -> tuple[Any, list[np.ndarray]]:
    """What distinguishes the programs of a function for other arguments, and the arrays in the arguments."""
    leaves, tree = jax.tree.flatten(arguments)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return (jax.config.jax_enable_x64, tree, tuple((a.shape, a.dtype) for a in arrays)), arrays


def compiled_for_numpy(lowered: Any) -> Callable:
    """A function of arguments and their leaves, compiled; its results are arrays of NumPy."""
    compiled = lowered.compile()
    return lambda arguments, leaves: jax.tree.map(np.asarray, compiled(*arguments))


def program(lowered: Any, traced: Callable) -> tuple[Callable | None, int]:
    """A function of arguments and their leaves that interprets, and for how many calls it pays.

    The function is None where the interpreter does not know an operation, or would take long.
    """
    module = lowered.compiler_ir("stablehlo")
    names, elements = operations(module.operation)
    if "stablehlo.custom_call" in names or elements >= LARGEST:
        return None, 0
    calls = FEW if "stablehlo.while" in names else max(FEW, TOGETHER // max(elements, 1))
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

    return run, calls


def constant(a: np.ndarray) -> ir.DenseElementsAttr:
    """An array as the interpreter takes it: unsigned integers are of a type of their own."""
    return ir.DenseElementsAttr.get(a, signless=a.dtype.kind != "u")


def operations(program: ir.Operation) -> tuple[set[str], int]:
    """The names of the operations of a program, and how many elements these compute, each run once."""
    names, elements = set(), 0

    def visit(operation: ir.Operation) -> ir.WalkResult:
        nonlocal elements
        names.add(operation.name)
        elements += sum(int(np.prod(ir.ShapedType(r.type).shape)) for r in operation.results)
        return ir.WalkResult.ADVANCE

    program.walk(visit)
    return names, elements
