"""A message in the log when a program takes long to compile."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("pymc.discrete")

SECONDS = 2.0  # compile time after which the message is logged


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Log that `what` is being compiled, if the `with` block takes longer than `SECONDS`."""
    timer = threading.Timer(SECONDS, _log.info, [f"Compiling {what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def announcing(function: Callable, what: str) -> Callable:
    """`function`, a jitted one, whose first call is announced, since that call compiles it."""
    compiled = False

    def call(*args):
        nonlocal compiled
        if compiled:
            return function(*args)
        with announced(what):
            result = function(*args)
        compiled = True
        return result

    return call
