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

    Where both branches of a switch are the same variable, PyTensor's `local_useless_switch` appends the
    traces of all inputs, of which it is two, to its own. In a chain of states by `pt.switch(z[-1], a, b)` it
    trebles at each link, and 22 links take 10 GB.
    """
    for v in ancestors([*model.basic_RVs, *model.potentials, *model.deterministics]):
        v.tag.trace = []
    with pytensor.config.change_flags(traceback__limit=0):
        yield
