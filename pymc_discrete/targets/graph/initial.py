"""A model's initial point, computed without the stack traces that PyTensor keeps of its variables."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.traversal import ancestors


def point_of(model: pm.Model) -> dict[str, np.ndarray]:
    """`model.initial_point()`, see `without_traces`."""
    with without_traces(model):
        return model.initial_point()


@contextmanager
def without_traces(model: pm.Model) -> Iterator[None]:
    """Empty the stack traces of a model's variables, and have PyTensor keep none in the `with` block.

    Where a switch has a constant condition, PyTensor's `local_useless_switch` puts a branch in its place, and
    appends the traces of both to that of the branch, which is one of the two. In a chain of states by
    `pt.switch(z[-1], a, b)` it doubles at each link, and 22 links take 10 GB.
    """
    for v in ancestors([*model.basic_RVs, *model.potentials, *model.deterministics]):
        v.tag.trace = []
    with pytensor.config.change_flags(traceback__limit=0):
        yield
