"""PyTensor graphs to JAX functions."""

from collections.abc import Callable, Sequence

import jax

# importing the PyTensor dispatch does not start a JAX backend
import pytensor.link.jax.dispatch  # noqa: F401
from pytensor.compile import mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import toposort
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.raise_op import CheckAndRaise

from pymc_discrete.targets.graph.integers import with_integer_log_gamma


def refusal_of_jax(outputs: Sequence[Variable]) -> NotImplementedError | None:
    """What PyTensor says of the first Op of a graph that has no JAX version, or None; found without starting
    JAX.
    """
    for node in toposort(list(outputs)):
        if isinstance(node.op, CheckAndRaise):  # left out, with a warning
            continue
        try:
            if not isinstance(node.op, HasInnerGraph) or jax_funcify.dispatch(
                type(node.op)
            ) is jax_funcify.dispatch(object):
                jax_funcify(node.op, node=node)
            elif (
                refusal := refusal_of_jax(node.op.inner_outputs)
            ) is not None:  # whose constants would start JAX
                return refusal
        except NotImplementedError as error:
            return error
    return None


def jaxify(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable:
    """A JAX function of the inputs that returns the tuple of outputs, after PyTensor's rewrites for JAX.

    The graph is rewritten now and turned into JAX at the first call: that puts its constants on the device,
    which starts JAX. Numbers have the width that JAX has at the call (`jax.enable_x64`), whatever the graph
    says.
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
