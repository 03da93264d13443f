"""What is being compiled: for the progress bar, and in the log when it takes long."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymc_discrete.runtime.waiting import watched

_log = logging.getLogger("pymc.discrete")

LOGGED_AFTER = 2.0  # seconds of compilation after which the message is logged
# PyTensor's mode for functions that run a few times: it compiles little
QUICKLY_COMPILED = "FAST_COMPILE"

# what is being compiled now, in any thread, and since when
_now: dict[object, tuple[str, float]] = {}


def being_compiled() -> str | None:
    """What is being compiled and for how long, in a line; None if nothing is."""
    if not (now := [*_now.values()]):
        return None
    what, since = now[0]
    more = f" and {len(now) - 1} more" if len(now) > 1 else ""
    return f"compiling {what}{more}, {time.perf_counter() - since:.0f} s"


@contextmanager
def announced(what: str, logged: threading.Event | None = None) -> Iterator[threading.Event]:
    """Note that `what` is being compiled, and log it if the `with` block takes longer than `LOGGED_AFTER`.

    Gives an event, set once the line was logged. With that of an earlier block as `logged` it is not again.
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
    """`function`, a jitted one, whose first call is announced, since that call compiles it."""
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
