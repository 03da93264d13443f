"""PyTensor graphs to JAX functions."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import jax
import numpy as np

# importing the PyTensor dispatch does not start a JAX backend
import pytensor.link.jax.dispatch  # noqa: F401
from pytensor.compile import mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.jax.dispatch import jax_funcify


def jaxify(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable:
    """A JAX function of the inputs that returns the tuple of outputs, after PyTensor's rewrites for JAX.

    The graph is rewritten now and turned into JAX at the first call: that puts its constants on the device, which starts JAX. Numbers
    have the width that JAX has at the call (`jax.enable_x64`), whatever the graph says.
    """
    if not outputs:
        return lambda *_: ()
    fgraph = FunctionGraph(list(inputs), list(outputs), clone=True)
    mode.JAX.optimizer.rewrite(fgraph)
    made: dict[bool, Callable] = {}

    def function(*args):
        wide = bool(jax.config.jax_enable_x64)
        with width(wide):
            if wide not in made:
                if not wide:
                    check_fits(fgraph)
                with jax.ensure_compile_time_eval():  # constants must outlive the trace that asked first
                    made[wide] = jax_funcify(fgraph)
            return made[wide](*args)

    return function


@contextmanager
def width(wide: bool) -> Iterator[None]:
    """Without a word for each 64-bit constant and cast of the graph that JAX makes one of 32 bits."""
    with warnings.catch_warnings():
        if not wide:
            warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        yield


def check_fits(fgraph: FunctionGraph) -> None:
    """Refuse integers that 32 bits do not hold."""
    largest = np.iinfo(np.int32).max
    for v in fgraph.variables:
        if isinstance(v, Constant) and getattr(v.type, "dtype", "").startswith(("int", "uint")) and np.size(v.data):
            top = np.abs(np.asarray(v.data, float)).max()
            if top > largest:
                raise ValueError(f"The model has the integer {top:.0f}, which 32 bits do not hold. Pass dtype='float64'.")
