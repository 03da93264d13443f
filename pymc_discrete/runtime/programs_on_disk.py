"""Compiled programs on disk, under names that are known before the programs are traced.

JAX's own cache finds a program by its text, but to trace and lower a program for its text takes longer than
to load the compiled program. So this module keeps a program under a name that says what the program is made
of, see `Program.lasting_name`.
"""

import functools
import logging
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.extend.mlir import ir

from pymc_discrete.runtime.checked_files import CHECKSUM, checksum_of, read_checked, write_checked
from pymc_discrete.runtime.compile_cache import PROGRAM, usable_folder
from pymc_discrete.runtime.jax_settings import lower, settings_now

_log = logging.getLogger("pymc.discrete")

PACKAGE = str(Path(__file__).parents[1])
LIBRARIES = ("blackjax", "jax", "jaxlib", "numpy", "pymc", "pymc-discrete", "pytensor", "scipy")
# An option of XLA (how many threads share a compilation) with a value that nobody else uses. With this option
# a program is compiled anew, since JAX's own cache has no program that was compiled with it.
OTHERWISE = {"xla_cpu_parallel_codegen_split_count": 31}
LAPACK = "lapack_"  # the beginning of the names of LAPACK's functions in a program


@functools.cache
def environment() -> tuple[str, ...]:
    """What a program is compiled with: versions of libraries, this package's files, flags of XLA.

    The files are included because a developer changes them without changing the version.
    """
    found = [platform.python_version(), os.environ.get("XLA_FLAGS", "")]
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return *found, *sorted(files_of(PACKAGE))


def files_of(folder: str) -> Iterator[str]:
    """The Python files in a folder and in all folders below it, with their sizes and times of change.

    This uses `os.scandir`, since `Path.rglob` takes ten times as long.
    """
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from files_of(entry.path)
        elif entry.name.endswith(".py"):
            status = entry.stat()
            yield f"{entry.path.removeprefix(PACKAGE)} {status.st_size} {status.st_mtime_ns}"


class OfCache(threading.local):
    """How often JAX has looked for a program in its own cache in this thread, and how often it has
    found one."""

    looked, found = 0, 0


_of_cache = OfCache()


def count(event: str, **_: Any) -> None:
    """Count the events in which JAX looks into its cache, and those in which it finds a program."""
    _of_cache.looked += event == "/jax/compilation_cache/compile_requests_use_cache"
    _of_cache.found += event == "/jax/compilation_cache/cache_hits"


jax.monitoring.register_event_listener(count)


def under_name(function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    """The function under a name of its own, by which JAX's cache tells it from functions that compute the
    same.

    JAX's cache may have the same program from another version of this package. Under a name of its own the
    program is compiled again, so that `write` can store it: a program from JAX's cache cannot be stored.
    """
    if name is None:
        return function

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    call.__name__ = f"{function.__name__}_{name}"
    return call


def compiled(
    lowered: jax.stages.Lowered, options: dict[str, Any] | None = None
) -> tuple[jax.stages.Compiled, bool]:
    """A compiled program, and whether it is certain that it was compiled now and not found in JAX's own
    cache.

    It is uncertain where JAX has a cache but no longer reports its use, as after all of JAX's listeners were
    removed.
    """
    looked, found = _of_cache.looked, _of_cache.found
    result = lowered.compile(options)
    said = _of_cache.looked > looked or not jax.config.jax_compilation_cache_dir
    return result, said and _of_cache.found == found


def libraries_called(lowered: jax.stages.Lowered) -> set[str]:
    """The names of the functions outside of XLA that a program calls."""
    found = set()

    def visit(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "stablehlo.custom_call":
            found.add(ir.StringAttr(operation.attributes["call_target_name"]).value)
        return ir.WalkResult.ADVANCE

    lowered.compiler_ir("stablehlo").operation.walk(visit)
    return found


class KeptOnDisk:
    """A function that JAX compiles, with its programs on disk: one program for each shape of its arguments.

    Parameters
    ----------
    function : a result of `jax.jit`
    name : a name that tells the function from all others in every process, up to the settings in
        `settings_now`
    level : the level at which XLA optimises the function on a CPU, `REPEATED` or `SELDOM`
    """

    def __init__(self, function: Any, name: str, level: int):
        self._function, self._name, self._level = function, name, level
        self._programs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        key = tree, settings_now(), *((np.shape(a), getattr(a, "dtype", type(a))) for a in leaves)
        if key not in self._programs:
            self._programs[key] = self._made(args, leaves, name_of(self._name, repr(key)))
        return self._programs[key](*args)

    def _made(self, args: tuple[Any, ...], leaves: list[Any], name: str) -> Callable[..., Any]:
        device = jax.devices()[0]
        elsewhere = any(isinstance(a, jax.Array) and a.devices() != {device} for a in leaves)
        if elsewhere or device.platform != "cpu" or any(settings_now()[1:]):
            return self._function
        if (kept := read_checked(name, PROGRAM)) and (program := load(name, kept, [device])):
            return program
        to_compile, arrays = lower(self._function, self._level, args)
        result, anew = compiled(to_compile)
        if arrays:
            return functools.partial(result, arrays)
        write_it = functools.partial(copy_context().run, write, name, to_compile, result, anew)
        threading.Thread(target=write_it, name="write").start()
        return result


def name_of(name: str, arguments: str) -> str:
    """The name of the function's program for arguments of the given shapes."""
    return checksum_of(f"{name} {arguments}".encode()).hex()[:CHECKSUM]


def load(name: str, kept: bytes, devices: Sequence[jax.Device]) -> Callable | None:
    """The compiled program in the content of a file; None where it cannot be used.

    Parameters
    ----------
    devices : the devices that the program was compiled for
    """
    try:
        of, calls, executable, inputs, outputs = pickle.loads(kept)
        if of == name:
            if calls:  # JAX registers LAPACK's functions only when it lowers a call of one, such as this one
                jax.jit(jax.lax.linalg.cholesky).lower(np.eye(1))
            return deserialize_and_load(executable, inputs, outputs, execution_devices=devices)
    except Exception as error:  # JAX does not document which errors this may raise
        _log.debug(f"The program {name} on disk cannot be used, and is made anew: {error!r}")
    return None


def write(name: str, lowered: jax.stages.Lowered, program: jax.stages.Compiled, anew: bool) -> None:
    """Keep a compiled program on disk under a name, where programs are kept and this program can be kept.

    A program that calls a function of Python, or of a library other than LAPACK, would crash another process.

    Parameters
    ----------
    anew : whether the program was compiled in this process. A program that JAX has found in its cache cannot
        be written, since XLA leaves out some of its functions: it is compiled once more.
    """
    if usable_folder() is None:
        return
    try:
        calls = libraries_called(lowered)
        if not all(call.startswith(LAPACK) for call in calls):
            return
        if not anew:
            program, anew = compiled(lowered, OTHERWISE)
        if not anew:
            return
        write_checked(name, PROGRAM, pickle.dumps((name, calls, *serialize(program))))
    except Exception as error:  # the disk may be full, or the program may be one that cannot be written
        _log.debug(f"The program {name} is not kept on disk: {error!r}")
