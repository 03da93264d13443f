"""PyTensor graphs to JAX functions."""

from collections.abc import Callable, Sequence

# importing the PyTensor dispatch does not start a JAX backend
import pytensor.link.jax.dispatch  # noqa: F401
from pytensor.compile import mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.jax.dispatch import jax_funcify


def jaxify(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable:
    """A JAX function of the inputs that returns the tuple of outputs, after PyTensor's rewrites for JAX."""
    if not outputs:
        return lambda *_: ()
    fgraph = FunctionGraph(list(inputs), list(outputs), clone=True)
    mode.JAX.optimizer.rewrite(fgraph)
    return jax_funcify(fgraph)
