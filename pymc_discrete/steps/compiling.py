"""A line in the log where a program takes long to compile."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("pymc.discrete")

SECONDS = 2.0  # of compiling without a word


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Log that `what` is compiled, if what is done inside takes longer than `SECONDS`."""
    timer = threading.Timer(SECONDS, _log.info, [f"Compiling {what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def announcing(function: Callable, what: str) -> Callable:
    """A jitted function whose first call, which compiles it, is announced."""
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
