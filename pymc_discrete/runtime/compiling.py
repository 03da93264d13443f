"""What is being compiled: for the progress bar, and in the log when it takes long."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymc_discrete.runtime.waiting import watched

_log = logging.getLogger("pymc.discrete")

LOGGED_AFTER = 2.0  # seconds of compilation after which a line says what is being compiled
# PyTensor's mode for functions that run a few times, in which it optimises little
QUICKLY_COMPILED = "FAST_COMPILE"

# what is being compiled now, in any thread, and when each compilation began
_now: dict[object, tuple[str, float]] = {}


def being_compiled() -> str | None:
    """A line that says what is being compiled and for how long; None if nothing is being compiled."""
    if not (now := [*_now.values()]):
        return None
    what, since = now[0]
    more = f" and {len(now) - 1} more" if len(now) > 1 else ""
    return f"compiling {what}{more}, {time.perf_counter() - since:.0f} s"


@contextmanager
def announced(what: str, logged: threading.Event | None = None) -> Iterator[threading.Event]:
    """Note that `what` is being compiled, and log it if the `with` block takes longer than `LOGGED_AFTER`.

    The block gets an event that is set once the line is logged. If the event of an earlier block is passed as
    `logged`, the line is logged only once for both blocks.
    """
    logged = logged or threading.Event()

    def log() -> None:
        if not logged.is_set():
            logged.set()
            _log.info(f"Compiling {what} ...")

    timer = threading.Timer(LOGGED_AFTER, log)
    timer.daemon = True
    timer.start()
    token = object()
    _now[token] = (what, time.perf_counter())
    try:
        with watched(f"Compiling {what}"):
            yield logged
    finally:
        del _now[token]
        timer.cancel()


def announcing(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The jitted `function`, whose first call is announced, since the first call compiles it."""
    compiled = False

    def call(*args: Any) -> Any:
        nonlocal compiled
        if compiled:
            return function(*args)
        with announced(what):
            result = function(*args)
        compiled = True
        return result

    return call
