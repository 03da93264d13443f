"""A model's initial point, and other functions of long chains of variables that PyMC compiles."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pymc as pm
import pytensor
from pymc.distributions.distribution import support_point
from pytensor.compile import mode
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors


def point_of(model: pm.Model) -> dict[str, np.ndarray]:
    """`model.initial_point()`, see `for_long_chains`.

    Raises
    ------
    ValueError
        If PyMC cannot write where a variable starts, as that of a batch of `DiscreteMarkovChain`s.
    """
    try:
        with for_long_chains(model):
            return model.initial_point()
    except Exception as error:
        for rv in model.free_RVs:
            if model.rvs_to_initial_values.get(rv) is None and not has_start(rv):
                shape = "its shape" if None in rv.type.shape else f"the shape {rv.type.shape}"
                raise ValueError(
                    f"The distribution of {rv.name!r} has no start of its own for these parameters: its "
                    f"support point fails in PyMC, before any sampling. Pass initval=, an array of {shape} "
                    f"with possible values, when you make {rv.name!r}."
                ) from error
        raise


def has_start(rv: Variable) -> bool:
    """Whether the support point of a random variable can be written."""
    try:
        support_point(rv)
    except Exception:  # whatever its distribution raises
        return False
    return True


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
