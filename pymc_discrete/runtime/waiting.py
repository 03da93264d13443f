"""Says in the log what is going on, whenever nothing was logged for a while."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("pymc.discrete")

FIRST = 5.0  # after this many seconds without a line in the log, a line says what is going on
NEXT = 10.0  # the seconds between further lines about the same work


class Phase:
    """Work that may take long.

    Attributes
    ----------
    what : the name of the work, or a function that returns it; None if a progress bar shows how far the work
        is
    since : the time at which the work began
    named : whether a line of the log has named the work
    """

    def __init__(self, what: str | Callable[[], str] | None):
        self.what, self.since, self.named = what, time.perf_counter(), False

    def line(self) -> str:
        """The line for the log: what takes long, and for how long so far."""
        what = self.what() if callable(self.what) else self.what
        return f"{what}: {time.perf_counter() - self.since:.0f} s so far."


_phases: list[Phase] = []  # all work that is going on, in all threads, in the order in which it began
_ended = threading.Condition()
_thread: threading.Thread | None = None
_logged = 0.0  # the time of the last line in the log


@contextmanager
def watched(what: str | Callable[[], str] | None) -> Iterator[None]:
    """Name `what` in the log while the `with` block goes on and nothing else is logged.

    Of blocks within each other, the innermost block is named. While a block with `what` None is active, a
    progress bar shows how far its work is, and nothing is named.
    """
    global _thread
    phase = Phase(what)
    with _ended:
        _phases.append(phase)
        if _thread is None:
            _thread = threading.Thread(target=_watch, name="waiting", daemon=True)
            _thread.start()
    try:
        yield
    finally:
        with _ended:
            # In a process that was forked during the block, the list of work is already empty: an assignment
            # raises no error there, as `remove` would.
            _phases[:] = [p for p in _phases if p is not phase]
            over = None if _phases else _thread
            if over:
                _thread = None
                _ended.notify_all()
        # Wait until the thread has ended: a process must have no other thread when it is forked after the
        # block.
        if over and over is not threading.current_thread():
            over.join()


def _watch() -> None:
    """Log the work that is going on, until all of it has ended."""
    global _logged
    me = threading.current_thread()
    while True:
        with _ended:
            if _thread is not me:
                return
            if any(p.what is None for p in _phases):
                _ended.wait(1.0)
                continue
            phase = _phases[-1]
            due = NEXT + _logged if phase.named else FIRST + max(phase.since, _logged)
            left = due - time.perf_counter()
            if left > 0:
                _ended.wait(min(left, 1.0))
                continue
            phase.named, _logged = True, time.perf_counter()
        _log.info(phase.line())


def _note(record: logging.LogRecord) -> bool:
    global _logged
    _logged = time.perf_counter()
    return True


_log.addFilter(_note)


def _after_fork() -> None:
    """In a forked process, forget the work and the thread of the parent process, which no fork copies."""
    global _ended, _thread
    _phases.clear()
    _ended, _thread = threading.Condition(), None


if hasattr(os, "register_at_fork"):  # Windows cannot fork processes
    os.register_at_fork(after_in_child=_after_fork)
