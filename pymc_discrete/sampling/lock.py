"""A lock on a checkpoint, which the operating system releases when a process dies."""

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
except ImportError:  # Windows has no fcntl
    fcntl = None  # type: ignore[assignment]
    import msvcrt

_log = logging.getLogger("pymc.discrete")

# Windows locks single bytes, which other processes then cannot read. So a byte beyond the end of the file is
# locked.
BEYOND_THE_END = 2**30


class Busy(Exception):
    """The error for a file that is locked by another process, or by another call in this process."""


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
    checkpoint : the name of the checkpoint for the user
    done : () -> whether the checkpoint is complete, so that it will only be read, even if it is locked

    Raises
    ------
    CheckpointError
        If another process, or another call in this process, holds the checkpoint.
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
    except OSError as error:  # without locks, or without writing, the run goes on
        _log.debug(f"{file} cannot be locked: {error}")
        opened = None
    if opened is None:
        yield
        return
    try:
        yield
    finally:
        # The file is deleted while it is locked: later another process may have locked it.
        with suppress(OSError):
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
            # Another process may have deleted the file after it was opened and before it was locked; then it
            # is opened anew.
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
    """The process that holds a lock, as written in the file."""
    try:
        by = json.loads(file.read_text())
        ours = by["process"] == os.getpid() and by["host"] == platform.node()
        who = "another call in this process" if ours else f"process {by['process']} on {by['host']}"
        return f"{who}, since {by['since']},"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
