"""What was found out about a model, kept on disk for later processes.

To write the log density of a model, to rewrite it and to choose the steps takes longer than a short run. What
comes of it is kept in a process by `runtime/reuse.py`. This module writes it to a file, whose name is a
digest of the model, its data and all versions, and a later process reads the file before it looks at the same
model. It uses an object of the file where it asks for the object's key, as it uses an object of its own. So
a file under a wrong name would be of no use, and would do no harm.

An object may hold for several data and compute with other rounding than one that was made for the data at
hand: so data are in the name, and a file has only objects that were made for its model. Then draws are the
same with the file and without it.

Nothing of the user's code is in a file, since nobody knows what it reads, and reading the file would run it.
"""

import io
import logging
import pickle
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any

import cloudpickle
import jax
import pymc as pm
import pytensor

from pymc_discrete.model.identity import is_installed, lasting_name
from pymc_discrete.model.structure_of_model import content_of
from pymc_discrete.runtime.checked_files import read_checked, write_checked
from pymc_discrete.runtime.compile_cache import ANALYSES, usable_folder
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.reuse import Kept, Used, collection_paused, used_here

_log = logging.getLogger("pymc.discrete")

LARGEST_FILE = 2**26  # bytes; a larger file is not written
MOST_OBJECTS = 128  # of a file, before those of earlier calls are left out
FILES = 16  # the number of files of which the objects are known, so that these are written again with others
# the options of PyTensor by which graphs are written and rewritten
OPTIONS = ("cast_policy", "floatX", "mode", "optimizer", "optimizer_excluding", "optimizer_including")

_inside: ContextVar[bool] = ContextVar("inside", default=False)
# {name of a file: the objects in it}
_read: Kept[dict[tuple[str, Hashable], Any]] = Kept(FILES)


@contextmanager
def analyses_kept(model: pm.Model) -> Iterator[None]:
    """A context in which a model is analysed: its density written, its steps chosen.

    The file of the model, if an earlier process has written one, is read at the beginning. At the end the
    objects that were made are added to the file.
    """
    name = None if _inside.get() else name_of_analyses(model)
    if name is None:
        yield
        return
    token = _inside.set(True)
    try:
        before = _read.get(name, lambda: load_analyses(name))
        with used_here() as used:
            yield
        of_others = used.things.keys() - used.made - before.keys()  # made outside, maybe for other data
        if used.made and not of_others:
            write_analyses(name, before, used)
    finally:
        _inside.reset(token)


def name_of_analyses(model: pm.Model) -> str | None:
    """The name of the file of a model with its data; None where nothing is kept on disk, or the model has
    functions of the user.
    """
    if usable_folder() is None:
        return None
    options = [str(getattr(pytensor.config, name)) for name in OPTIONS]
    with model_settings():
        return lasting_name(ANALYSES, content_of(model, None)[0], options)


def load_analyses(name: str) -> dict[tuple[str, Hashable], Any]:
    """Keep the objects of a file in this process.

    Returns
    -------
    {(name of the dictionary, key): object}, empty if the file cannot be read
    """
    content = read_checked(name, ANALYSES)
    if content is None:
        return {}
    try:
        with collection_paused():
            of, things = cloudpickle.loads(content)
            if of != name:
                return {}
            found = dict(things)
        for (kept, key), thing in found.items():
            Kept.add(kept, key, thing)
        return found
    except Exception as error:  # an object may raise any error when it is unpickled
        _log.debug(f"The analyses {name} on disk cannot be used, and are made anew: {error!r}")
        return {}


def write_analyses(name: str, before: dict[tuple[str, Hashable], Any], used: Used) -> None:
    """Write the objects that were used, with those that the file had before if there are not too many."""
    if len(before) + len(used.things) > MOST_OBJECTS:
        before.clear()
    before.update(used.things)
    file = Bounded()
    try:
        with collection_paused():
            # a list, since the hashes of a dictionary's keys would be computed before all is unpickled
            Pickler(file).dump((name, [*before.items()]))
        write_checked(name, ANALYSES, file.getbuffer())
    except Exception as error:  # the disk may be full, or an object may be one that cannot be pickled
        _log.debug(f"The analyses {name} are not kept on disk: {error!r}")
        before.clear()  # so that the objects, which may be large, are not kept for longer than others


class Pickler(cloudpickle.Pickler):
    """Refuses arrays of JAX, since to read one would start JAX, which may hang in a process that was forked;
    and functions and classes of the user.
    """

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, jax.Array):
            raise pickle.PicklingError("an array of JAX")
        if isinstance(thing, type | FunctionType) and not is_installed(thing.__module__):
            raise pickle.PicklingError(f"{thing.__qualname__}, which is the user's")
        return super().reducer_override(thing)


class Bounded(io.BytesIO):
    """A file in memory that holds at most `LARGEST_FILE` bytes."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > LARGEST_FILE:
            raise OSError(f"more than {LARGEST_FILE:,} bytes")
        return super().write(data)
