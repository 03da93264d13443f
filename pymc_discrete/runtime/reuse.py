"""Keeps what was analysed and compiled, to use it again for the same work: a dictionary of bounded size."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

MODELS = 32  # number of log densities that are kept, as they were analysed
PROGRAMS = 16  # number of compiled samplers that are kept


class Kept[T]:
    """What was made for the latest keys.

    Parameters
    ----------
    most : the number of keys; beyond it, what was not used for the longest time is dropped
    """

    def __init__(self, most: int):
        self.most, self._things = most, OrderedDict[Hashable, T]()
        self._lock = threading.Lock()
        _all.append(self)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made for a key; if there is nothing, it is made now."""
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
                return self._things[key]
        with collection_paused():
            made = make()  # without the lock: it takes long, and may itself ask for another key
        with self._lock:
            self._things[key] = made
            while len(self._things) > self.most:
                self._things.popitem(last=False)
        return made

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._things.clear()


_all: list[Kept] = []


def forget() -> None:
    """Drop all that is kept in this process."""
    for kept in _all:
        kept.clear()


@contextmanager
def collection_paused() -> Iterator[None]:
    """A context, or a decorator, without garbage collection.

    Graphs are analysed and traced by making many small objects, few of which become garbage. Python's
    collector would look through all of them again and again, a sixth of the time until the first draw.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
