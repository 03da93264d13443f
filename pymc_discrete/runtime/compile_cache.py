"""Keeps compiled programs on disk, so that a later process loads them instead of compiling them again.

This is JAX's persistent compilation cache, in a folder of the user's cache (`platformdirs`), which
`programs_on_disk` uses too. The oldest files are deleted where the folder exceeds `LIMIT`. The environment
variable PYMC_DISCRETE_CACHE names another folder, or is "off". Where a cache of JAX is configured already,
JAX uses that cache.
"""

import functools
import hashlib
import logging
import os
import platform
import stat
from contextlib import suppress
from pathlib import Path

import jax
import platformdirs

_log = logging.getLogger("pymc.discrete")

SETTING = "PYMC_DISCRETE_CACHE"
LIMIT = 2**30  # the most bytes that the files in the cache folder may have together
# the ends of the names of the files of `programs_on_disk` and of `model/analyses_on_disk.py`
PROGRAM, ANALYSES = "-program", "-analyses"
ENDINGS = ("-cache", PROGRAM, ANALYSES)  # and of JAX's own files: the files that `trim` may delete
SHORTEST_COMPILATION = 0.1  # seconds; a program that compiles in less time is not written
DEFAULT_SHORTEST = 1.0  # JAX's default for the shortest compilation whose program is written, in seconds


def folder() -> Path | None:
    """The folder for programs that were compiled for this processor, or None if the cache is switched off."""
    wanted = os.environ.get(SETTING, "")
    if wanted.lower() == "off":
        return None
    root = Path(wanted) if wanted else platformdirs.user_cache_path("pymc-discrete")
    return root / f"jax-{processor()}"


def processor() -> str:
    """A short name for the instruction set of this processor.

    XLA compiles for the instructions of the processor at hand, and machines with other processors may share a
    home folder.
    """
    described = [platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += sorted({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:12]


def usable_folder() -> Path | None:
    """The folder for programs, or None where no programs may be kept on disk."""
    path = folder()
    return path if path and jax.config.jax_enable_compilation_cache and is_usable(path) else None


@functools.cache
def is_usable(path: Path) -> bool:
    """Whether programs can be kept in a folder that nobody else can write to; if not, a log says why.

    The folder is made if it does not exist, and its oldest files are deleted where it exceeds `LIMIT`.
    """
    try:
        # Programs in this folder are run by this user, so no other user may write to it.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why := open_to_others(path):
            _log.warning(
                f"No compiled programs are kept on disk: {why}, and programs that are there would be run. "
                f"Mend that, or name another folder by {SETTING}."
            )
            return False
        trim(path, LIMIT)
    except OSError as error:
        _log.debug(f"No compiled programs are kept on disk: {error}")
        return False
    if not os.access(path, os.W_OK):
        _log.debug(f"No compiled programs are kept on disk: {path} is read-only.")
        return False
    return True


def use_disk_cache() -> None:
    """Turn on JAX's cache on disk, unless the user has switched it off or has chosen a folder for it."""
    if jax.config.jax_compilation_cache_dir or (path := usable_folder()) is None:
        return
    jax.config.update("jax_compilation_cache_dir", str(path))
    if jax.config.jax_persistent_cache_min_compile_time_secs == DEFAULT_SHORTEST:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)


def open_to_others(path: Path) -> str:
    """Why another user may write to a folder, or may have written to it; "" if no other user can."""
    if not hasattr(os, "getuid"):  # on Windows, a folder in the user's profile is the user's own
        return ""
    status = path.stat()
    if status.st_uid != os.getuid():
        return f"{path} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write to {path}"
    for above in path.resolve().parents:
        mode = above.stat().st_mode
        # no other user may rename the folder inside a folder with the sticky bit, such as /tmp
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"other users may write to {above}, and put another folder in its place"
    return ""


def trim(path: Path, limit: int) -> None:
    """Delete the oldest programs in a folder until the others have at most `limit` bytes together."""
    files = []
    for file in path.iterdir():
        # Only programs are deleted: where there is a GPU, XLA has a folder of its own in this folder.
        if not file.name.endswith(ENDINGS):
            continue
        with suppress(OSError):  # another process may delete the file meanwhile
            status = file.stat()
            files.append((status.st_mtime, status.st_size, file))
    size = sum(size for _, size, _ in files)
    for _, of_file, file in sorted(files):
        if size <= limit:
            return
        with suppress(OSError):
            file.unlink()
        size -= of_file
