"""A dictionary of bounded size in the memory of a process, for analysed graphs and compiled programs."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

MODELS = 32  # the number of analysed log densities that are kept
PROGRAMS = 16  # the number of compiled samplers that are kept


class Used:
    """The objects that were asked for in a context, of the dictionaries that have a name.

    Attributes
    ----------
    things : {(name of the dictionary, key): the object}
    made : the names and keys of those objects that were made in the context
    """

    def __init__(self) -> None:
        self.things: dict[tuple[str, Hashable], Any] = {}
        self.made: set[tuple[str, Hashable]] = set()


_used: ContextVar[Used | None] = ContextVar("used", default=None)


@contextmanager
def used_here() -> Iterator[Used]:
    """A context, which gives the objects that are asked for in it."""
    used = Used()
    token = _used.set(used)
    try:
        yield used
    finally:
        _used.reset(token)


class Kept[T]:
    """The keys that were used last, each with the object that was made for it.

    Parameters
    ----------
    most : the largest number of keys; the key that was not used for the longest time is dropped first
    name : a name for the dictionary, if its keys and objects may be pickled and used in another process;
        "" if not
    """

    def __init__(self, most: int, name: str = ""):
        self.most, self.name, self._things = most, name, OrderedDict[Hashable, T]()
        self._lock = threading.Lock()
        _all.append(self)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The object that was made for a key; if there is none, it is made now."""
        used = _used.get() if self.name else None
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
                if used is not None:
                    used.things[self.name, key] = self._things[key]
                return self._things[key]
        with collection_paused():
            # The object is made while the lock is free: to make it takes long, and may need an object of
            # another key.
            made = make()
        self._add(key, made)
        if used is not None:
            used.things[self.name, key] = made
            used.made.add((self.name, key))
        return made

    def _add(self, key: Hashable, thing: T) -> None:
        with self._lock:
            self._things[key] = thing
            while len(self._things) > self.most:
                self._things.popitem(last=False)

    @classmethod
    def add(cls, name: str, key: Hashable, thing: Any) -> None:
        """Add an object of another process to the dictionary with the given name, unless it has the key."""
        for kept in _all:
            if kept.name == name and key not in kept._things:
                kept._add(key, thing)

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
