"""JAX's settings while a program of this package is traced or runs, whatever they are outside of it.

What JAX computes depends on settings of the whole process, which any library may change: how types and shapes
are promoted, how random bits are generated, and whether floats have 64 bits. Inside this context the first
two are JAX's defaults.
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

JAX_DEFAULTS = {
    "numpy_dtype_promotion": "standard",
    "numpy_rank_promotion": "allow",
    "threefry_partitionable": True,
}


@contextmanager
def default_settings(wide: bool | None = None) -> Iterator[None]:
    """JAX with its default settings in this thread; as a decorator, while a function runs.

    Parameters
    ----------
    wide : bool, optional
        Whether numbers have 64 bits; by default as JAX is set.
    """
    wanted = JAX_DEFAULTS if wide is None else {**JAX_DEFAULTS, "enable_x64": wide}
    changed = {name: value for name, value in wanted.items() if getattr(jax.config, "jax_" + name) != value}
    if not changed:  # the usual case, made fast because every draw of a step comes here
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
    """The values of `SETTINGS` in this thread."""
    return tuple(getattr(jax.config, name) for name in SETTINGS)


# How much a program is optimised for a CPU, half of the time that XLA needs to compile it. At level 1
# programs run as fast as at 3, XLA's default, and compile in 3/4 of the time; at level 0 they compile in half
# of the time and run three to four times slower.
REPEATED, SELDOM = 1, 0
LEVEL = "xla_backend_optimization_level"
# If the constant arrays of a program have at least LARGE_TOGETHER bytes together, those with at least
# LARGE_ARRAY bytes become arguments of the program, so that they are not compiled into it.
LARGE_TOGETHER, LARGE_ARRAY = 2**24, 2**12
# How XLA adds up on a CPU. By default it gives some sums to a library (YNNPACK) and makes others two loops;
# that pays neither for the short sums of a log density nor for those of a million terms. Without both, LLVM
# vectorises one loop, fused with what computes the summands. The first name is of an experimental option.
SUMS = {"xla_cpu_experimental_ynn_fusion_type": "", "xla_disable_hlo_passes": "tree_reduction_rewriter"}


@functools.cache
def sums() -> dict[str, str]:
    """The options of `SUMS`; none where this version of XLA lacks one, or the user has set one."""
    if any(name in os.environ.get("XLA_FLAGS", "") for name in SUMS):
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=SUMS).lower().compile()
    except jax.errors.JaxRuntimeError:  # "No such compile option"
        return {}
    return SUMS


def jitted(function: Callable, level: int = REPEATED, **options: Any) -> Any:
    """`jax.jit`, compiled with less effort than XLA's default where that pays.

    Parameters
    ----------
    function : not to be called inside of another compiled function
    level : `REPEATED`, or `SELDOM` for a program that runs a few times
    options : of `jax.jit`
    """
    # a level that the user has set stays; on an accelerator XLA's own choice does
    if LEVEL in os.environ.get("XLA_FLAGS", "") or jax.default_backend() != "cpu":
        return jax.jit(function, **options)
    more = sums() if level == REPEATED else {}
    return jax.jit(function, compiler_options={LEVEL: level, **more}, **options)


def lower(
    function: Any,
    level: int,
    args: tuple[Any, ...],
    static: Mapping[str, Any] = MappingProxyType({}),
    sharding: jax.sharding.Sharding | None = None,
) -> tuple[jax.stages.Lowered, list[jax.Array]]:
    """What XLA compiles of a function for arguments of some shapes, and the arrays that it takes before them.

    The arrays of indices and bounds that a program of a million sites reads are hundreds of megabytes. As
    constants they would stand in it in several copies while it is compiled; so these are arguments.

    Parameters
    ----------
    function : what `jitted` returned, for this level
    static : the arguments that are fixed when it is compiled
    sharding : where the arrays are put; by default on the device that JAX uses
    """
    traced = function.trace(*args, **static)
    jaxpr, out = traced.jaxpr, jax.tree.structure(traced.out_info)
    sizes = [a.nbytes if isinstance(a, np.ndarray) else 0 for a in jaxpr.consts]
    if sum(sizes) < LARGE_TOGETHER:
        return traced.lower(), []
    number: dict[Any, int] = {}  # of each different array
    arrays: list[jax.Array] = []
    place: dict[int, int] = {}
    for n, constant in enumerate(jaxpr.consts):
        if sizes[n] >= LARGE_ARRAY:
            array = np.ascontiguousarray(constant).view(np.ndarray)
            key = array.dtype.str, array.shape, hashlib.blake2b(array.reshape(-1).view(np.uint8)).digest()
            place[n] = number.setdefault(key, len(number))
            if len(number) > len(arrays):
                arrays.append(jax.device_put(array, sharding))

    def with_arrays(arrays: list[Any], *args: Any) -> Any:
        read = [arrays[place[n]] if n in place else a for n, a in enumerate(jaxpr.consts)]
        return jax.tree.unflatten(out, jax.core.eval_jaxpr(jaxpr, read, *jax.tree.leaves(args)))

    return jitted(with_arrays, level).lower(arrays, *args), arrays


use_disk_cache()  # on import: every module that compiles something imports this one


def is_traced(tree: Any) -> bool:
    """Whether some of these arrays are tracers of a program that JAX is tracing."""
    return any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(tree))
