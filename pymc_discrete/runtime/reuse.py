"""A dictionary of bounded size in the memory of a process, for analysed graphs and compiled programs."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

MODELS = 32  # the number of analysed log densities that are kept
PROGRAMS = 16  # the number of compiled samplers that are kept


class Kept[T]:
    """The keys that were used last, each with the object that was made for it.

    Parameters
    ----------
    most : the largest number of keys; the key that was not used for the longest time is dropped first
    """

    def __init__(self, most: int):
        self.most, self._things = most, OrderedDict[Hashable, T]()
        self._lock = threading.Lock()
        _all.append(self)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The object that was made for a key; if there is none, it is made now."""
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
                return self._things[key]
        with collection_paused():
            # The object is made while the lock is free: to make it takes long, and may need an object of
            # another key.
            made = make()
        with self._lock:
            self._things[key] = made
            while len(self._things) > self.most:
                self._things.popitem(last=False)
        return made

    def clear(self) -> None:
        """Drop all keys."""
        with self._lock:
            self._things.clear()


_all: list[Kept] = []


def forget() -> None:
    """Drop everything that is kept in this process."""
    for kept in _all:
        kept.clear()


@contextmanager
def collection_paused() -> Iterator[None]:
    """A context, or a decorator, without garbage collection.

    Graphs are analysed and traced by making many small objects, few of which become garbage. Python's
    collector would look through all of these objects again and again, which takes a sixth of the time until
    the first draw.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
