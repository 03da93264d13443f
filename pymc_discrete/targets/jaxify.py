"""PyTensor graphs to JAX functions."""

from collections.abc import Callable, Sequence

import jax

# importing the PyTensor dispatch does not start a JAX backend
import pytensor.link.jax.dispatch  # noqa: F401
from pytensor.compile import mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.jax.dispatch import jax_funcify

from pymc_discrete.targets.integers import with_integer_log_gamma


def jaxify(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable:
    """A JAX function of the inputs that returns the tuple of outputs, after PyTensor's rewrites for JAX.

    The graph is rewritten now and turned into JAX at the first call: that puts its constants on the device, which starts JAX. Numbers
    have the width that JAX has at the call (`jax.enable_x64`), whatever the graph says.
    """
    if not outputs:
        return lambda *_: ()
    fgraph = FunctionGraph(list(inputs), list(outputs), clone=True)
    mode.JAX.optimizer.rewrite(fgraph)
    with_integer_log_gamma(fgraph)
    made: dict[bool, Callable] = {}

    def function(*args):
        wide = bool(jax.config.jax_enable_x64)
        if wide not in made:
            with jax.ensure_compile_time_eval():  # constants must outlive the trace that asked first
                made[wide] = jax_funcify(fgraph)
        return made[wide](*args)

    return function
