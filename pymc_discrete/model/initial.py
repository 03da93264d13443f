"""A model's initial point, and other functions of long chains of variables that PyMC compiles."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile import mode
from pytensor.graph.traversal import ancestors


def point_of(model: pm.Model) -> dict[str, np.ndarray]:
    """`model.initial_point()`, see `for_long_chains`."""
    with for_long_chains(model):
        return model.initial_point()


@contextmanager
def for_long_chains(model: pm.Model) -> Iterator[None]:
    """Have PyTensor compile functions of a long chain of variables in short time in the `with` block.

    Where both branches of a switch are the same variable, PyTensor's `local_useless_switch` appends the
    traces of all inputs, of which it is two, to its own. In a chain of states by `pt.switch(z[-1], a, b)`
    these treble at each link, and 22 links take 10 GB. So there are no traces.

    Of counts that are left of counts, n - x - y - ..., mode FAST_COMPILE makes a sum with all of them, of a
    length of its own for each count. One of more than 31 has C code of its own, which takes two seconds to
    compile. So sums and products stay as they are written.
    """
    for v in ancestors([*model.basic_RVs, *model.potentials, *model.deterministics]):
        v.tag.trace = []
    as_written = mode.FAST_COMPILE.excluding("local_add_canonizer", "local_mul_canonizer")
    with (
        patch.object(mode, "FAST_COMPILE", as_written),
        patch.dict(mode.predefined_modes, FAST_COMPILE=as_written),
        pytensor.config.change_flags(traceback__limit=0),
    ):
        yield
