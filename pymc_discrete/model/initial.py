"""The initial point of a model, and faster compilation of PyMC's functions of long chains of variables."""

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

from pymc_discrete.model.identity import key_of_object
from pymc_discrete.model.structure_of_model import key_of_model
from pymc_discrete.runtime.reuse import MODELS, Kept

_kept: Kept[dict[str, np.ndarray]] = Kept(MODELS, "initial points")


def point_of(model: pm.Model) -> dict[str, np.ndarray]:
    """`model.initial_point()`, also for models with long chains of variables, see `for_long_chains`.

    PyMC compiles a function for each call, so the point is kept where starting values are numbers, and not
    random or computed from other variables.

    Raises
    ------
    ValueError
        If PyMC cannot write the starting value of a variable, such as a batch of `DiscreteMarkovChain`s.
    """
    given = [model.rvs_to_initial_values.get(rv) for rv in model.free_RVs]
    if not all(value is None or isinstance(value, int | float | np.ndarray | np.generic) for value in given):
        return made_point(model)
    kept = _kept.get((key_of_model(model), key_of_object(given)), lambda: made_point(model))
    return {name: np.array(value) for name, value in kept.items()}


def made_point(model: pm.Model) -> dict[str, np.ndarray]:
    """The point of `point_of`, made by PyMC."""
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
    """Whether PyMC can write the support point of a random variable, its default starting value."""
    try:
        support_point(rv)
    except Exception:  # a distribution may raise any error
        return False
    return True


@contextmanager
def for_long_chains(model: pm.Model) -> Iterator[None]:
    """A context in which PyTensor compiles functions of a long chain of variables in short time.

    A variable of PyTensor keeps a traceback of its creation. Where both branches of a switch are the same
    variable, the rewrite `local_useless_switch` appends the tracebacks of the switch's three inputs to the
    traceback of this variable, which is itself two of the inputs. In a chain of states, each written as
    `pt.switch(z[-1], a, b)`, the tracebacks treble at each link, and 22 links take 10 GB. So this context
    drops tracebacks.

    For counts out of what other counts leave, n - x - y - ..., the mode FAST_COMPILE writes one sum of all
    earlier counts, which has another length for each count. A sum of more than 31 terms gets C code of its
    own, which takes two seconds to compile. So sums and products stay as they are written.
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
