"""JAX's settings while a program of this package is traced or runs, whatever they are outside of it.

What JAX computes depends on settings of the whole process, which any library may change: how types and shapes
are promoted, how random bits are generated, and whether floats have 64 bits. Inside this context the first
two are JAX's defaults.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

from pymc_discrete.compile_cache import use_disk_cache

DEFAULTS = {
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
    wanted = DEFAULTS if wide is None else {**DEFAULTS, "enable_x64": wide}
    changed = {name: value for name, value in wanted.items() if getattr(jax.config, "jax_" + name) != value}
    if not changed:  # the usual case, made fast because every draw of a step comes here
        yield
        return
    with ExitStack() as stack:
        for name, value in changed.items():
            stack.enter_context(getattr(jax, name)(value))
        yield


use_disk_cache()  # on import: every module that compiles something imports this one


def is_traced(tree: Any) -> bool:
    """Whether some of these arrays are tracers of a program that JAX is tracing."""
    return any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(tree))
