"""Says in the log what is going on, wherever nothing was logged for a while."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("pymc.discrete")

FIRST = 5.0  # seconds without a line in the log, after which what is going on is named
NEXT = 10.0  # seconds between its later lines


class Phase:
    """Something that may take long.

    Attributes
    ----------
    what : what it is, or a function that says so; None if it shows elsewhere how far it is
    since : when it began
    named : whether the log has named it
    """

    def __init__(self, what: str | Callable[[], str] | None):
        self.what, self.since, self.named = what, time.perf_counter(), False

    def line(self) -> str:
        """The line for the log: what takes long, and for how long so far."""
        what = self.what() if callable(self.what) else self.what
        return f"{what}: {time.perf_counter() - self.since:.0f} s so far."


_phases: list[Phase] = []  # those that are going on, in all threads, in the order of their begin
_ended = threading.Condition()
_thread: threading.Thread | None = None
_logged = 0.0  # when the last line was logged


@contextmanager
def watched(what: str | Callable[[], str] | None) -> Iterator[None]:
    """Name `what` in the log while the `with` block goes on and nothing else is logged.

    Of blocks within each other the innermost one is named. In one with None, which has a bar that shows how
    far it is, nothing is.
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
            _phases[:] = [p for p in _phases if p is not phase]  # a fork in the meantime has emptied the list
            over = None if _phases else _thread
            if over:
                _thread = None
                _ended.notify_all()
        # a process that is forked next must have no other thread
        if over and over is not threading.current_thread():
            over.join()


def _watch() -> None:
    """Log what goes on, until nothing does."""
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
    """A forked process has none of the threads."""
    global _ended, _thread
    _phases.clear()
    _ended, _thread = threading.Condition(), None


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
