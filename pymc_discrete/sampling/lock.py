"""A lock on a checkpoint, which the operating system takes back from a process that has died."""

import json
import logging
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO

from pymc_discrete.engine.storage import CheckpointError, is_complete, make_folder

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

_log = logging.getLogger("pymc.discrete")

BEYOND_THE_END = 2**30  # Windows locks bytes, which nobody else can read then: one beyond the end of the file


class Busy(Exception):
    """A file is locked by another process, or by another call in this one."""


def folder_held(folder: str | os.PathLike[str]) -> AbstractContextManager[None]:
    """Hold the folder of `pmd.sample`'s checkpoint, which is made if it does not exist."""
    path = Path(folder)
    make_folder(path)
    return holding(path / "in-use.json", path, partial(is_complete, path))


@contextmanager
def holding(file: Path, checkpoint: Path, done: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold a checkpoint while a run is written to it.

    Parameters
    ----------
    file : the file that is locked, which is deleted at the end
    checkpoint : what the user calls the checkpoint
    done : whether a checkpoint that another process holds is complete, and only read from now on

    Raises
    ------
    CheckpointError
        If another process, or another call in this one, holds it.
    """
    try:
        opened = opened_and_locked(file)
    except Busy:
        if not done():
            raise CheckpointError(
                f"checkpoint={str(checkpoint)!r} is in use: {holder(file)} is writing to it. Wait until it "
                "ends, or give another checkpoint."
            ) from None
        opened = None
    except OSError as error:  # a file system without locks, or one that cannot be written to
        _log.debug(f"{file} cannot be locked: {error}")
        opened = None
    if opened is None:
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):  # before the lock is given back: later it may be that of another process
            file.unlink()
        opened.close()


def opened_and_locked(file: Path) -> IO[str]:
    """The file, opened and locked, with the name of this process in it."""
    while True:
        opened = file.open("a+")
        try:
            lock(opened)
        except BaseException:
            opened.close()
            raise
        with suppress(OSError):
            # whoever held it may have deleted it between the two lines
            if os.path.samestat(os.fstat(opened.fileno()), file.stat()):
                opened.truncate(0)
                since = datetime.now().astimezone().isoformat(" ", "seconds")
                json.dump({"process": os.getpid(), "host": platform.node(), "since": since}, opened)
                opened.flush()
                return opened
        opened.close()


def lock(opened: IO[str]) -> None:
    """Lock an open file, or raise `Busy`."""
    if fcntl is not None:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None
    else:
        opened.seek(BEYOND_THE_END)
        try:
            msvcrt.locking(opened.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            raise Busy from None
        opened.seek(0)


def holder(file: Path) -> str:
    """Who holds a lock, as far as the file says it."""
    try:
        by = json.loads(file.read_text())
        ours = by["process"] == os.getpid() and by["host"] == platform.node()
        who = "another call in this process" if ours else f"process {by['process']} on {by['host']}"
        return f"{who}, since {by['since']},"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
