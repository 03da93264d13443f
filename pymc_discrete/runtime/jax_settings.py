"""The settings that JAX has while a program of this package is traced or runs, whatever the process has set.

What JAX computes depends on settings of the whole process, which any library may change: how types and shapes
are promoted, how random bits are generated, and whether floats have 64 bits. In the context
`default_settings`, types and shapes are promoted and bits generated as by default, and the width of floats
may be given.
"""

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from pymc_discrete.runtime.compile_cache import use_disk_cache
from pymc_discrete.runtime.devices import Layout

JAX_DEFAULTS = {
    "numpy_dtype_promotion": "standard",
    "numpy_rank_promotion": "allow",
    "threefry_partitionable": True,
}


@contextmanager
def default_settings(wide: bool | None = None) -> Iterator[None]:
    """A context, or a decorator of a function, in which JAX has its default settings in this thread.

    Parameters
    ----------
    wide : bool, optional
        Whether numbers have 64 bits; by default JAX's own setting.
    """
    wanted = JAX_DEFAULTS if wide is None else {**JAX_DEFAULTS, "enable_x64": wide}
    changed = {name: value for name, value in wanted.items() if getattr(jax.config, "jax_" + name) != value}
    if not changed:  # the usual case is fast, because every draw of a step calls this function
        yield
        return
    with ExitStack() as stack:
        for name, value in changed.items():
            stack.enter_context(getattr(jax, name)(value))
        yield


# the settings of JAX that change what a program computes, besides those that `default_settings` fixes
SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_disable_jit",
    "jax_default_device",
)


def settings_now() -> tuple[Any, ...]:
    """The values of the settings named in `SETTINGS`, in this thread."""
    return tuple(getattr(jax.config, name) for name in SETTINGS)


# How far XLA optimises a program for a CPU, which takes half of the time of a compilation. At level 1
# programs run as fast as at level 3, XLA's default, and compile in 3/4 of the time; at level 0 they compile
# in half of the time and run three to four times slower.
REPEATED, SELDOM = 1, 0
LEVEL = "xla_backend_optimization_level"
# If the constant arrays of a program have at least LARGE_TOGETHER bytes together, each array with at least
# LARGE_ARRAY bytes becomes an argument of the program, so that it is not compiled into it.
LARGE_TOGETHER, LARGE_ARRAY = 2**24, 2**12
# Options of how XLA adds up on a CPU. By default XLA gives some sums to a library (YNNPACK) and writes other
# sums as two loops. Neither pays, be it for the short sums of a log density or for sums of a million terms.
# With these options LLVM vectorises one loop, fused with the computation of the summands. The first option is
# experimental.
SUMS = {"xla_cpu_experimental_ynn_fusion_type": "", "xla_disable_hlo_passes": "tree_reduction_rewriter"}


@functools.cache
def sums() -> dict[str, str]:
    """`SUMS`, options of how XLA adds up on a CPU; {} where this version of XLA lacks one of the options, or
    the user has set one.
    """
    if any(name in os.environ.get("XLA_FLAGS", "") for name in SUMS):
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=SUMS).lower().compile()
    except jax.errors.JaxRuntimeError:  # XLA raises it for an option that this version lacks
        return {}
    return SUMS


def jitted(function: Callable, level: int = REPEATED, **options: Any) -> Any:
    """`jax.jit`, on a CPU with less compilation effort than XLA's default.

    Parameters
    ----------
    function : a function that is not called inside of another compiled function
    level : XLA's optimisation level, `REPEATED`, or `SELDOM` for a program that runs a few times
    options : of `jax.jit`
    """
    # An optimisation level that the user has set is kept; on an accelerator XLA keeps its own default.
    if LEVEL in os.environ.get("XLA_FLAGS", "") or jax.default_backend() != "cpu":
        return jax.jit(function, **options)
    more = sums() if level == REPEATED else {}
    return jax.jit(function, compiler_options={LEVEL: level, **more}, **options)


def lower(
    function: Any,
    level: int,
    args: tuple[Any, ...],
    static: Mapping[str, Any] = MappingProxyType({}),
    layout: Layout | None = None,
) -> tuple[jax.stages.Lowered, list[jax.Array]]:
    """The program of a function for arguments of the given shapes, before it is compiled, and its large
    constant arrays.

    The arrays of indices and bounds that a program of a million sites reads are hundreds of megabytes. As
    constants they would be in the program in several copies while it is compiled. So the arrays are returned,
    and become the first argument of the program.

    Parameters
    ----------
    function : the result of `jitted` with this `level`
    static : the arguments that are fixed when the function is compiled
    layout : where the arrays are put; by default on the device that JAX uses
    """
    traced = function.trace(*args, **static)
    jaxpr, out = traced.jaxpr, jax.tree.structure(traced.out_info)
    sizes = [a.nbytes if isinstance(a, np.ndarray) else 0 for a in jaxpr.consts]
    if sum(sizes) < LARGE_TOGETHER:
        return traced.lower(), []
    # {contents of an array: its index in `arrays`}, so that equal arrays are stored once
    number: dict[Any, int] = {}
    arrays: list[jax.Array] = []
    place: dict[int, int] = {}
    for n, constant in enumerate(jaxpr.consts):
        if sizes[n] >= LARGE_ARRAY:
            array = np.ascontiguousarray(constant).view(np.ndarray)
            key = array.dtype.str, array.shape, hashlib.blake2b(array.reshape(-1).view(np.uint8)).digest()
            place[n] = number.setdefault(key, len(number))
            if len(number) > len(arrays):
                arrays.append(layout.put(array, layout.of_data) if layout else jax.device_put(array))

    def with_arrays(arrays: list[Any], *args: Any) -> Any:
        parts = layout.shared(arrays) if layout else arrays
        read = [parts[place[n]] if n in place else a for n, a in enumerate(jaxpr.consts)]
        return jax.tree.unflatten(out, jax.core.eval_jaxpr(jaxpr, read, *jax.tree.leaves(args)))

    return jitted(with_arrays, level).lower(arrays, *args), arrays


# JAX's cache on disk is turned on at import: every module that compiles something imports this module.
use_disk_cache()


def is_traced(tree: Any) -> bool:
    """Whether an array in `tree` is a tracer of a program that JAX is tracing."""
    return any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(tree))
