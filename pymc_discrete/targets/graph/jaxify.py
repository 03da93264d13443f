"""Compiles PyTensor graphs to JAX functions."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# importing the PyTensor dispatch does not start a JAX backend
import pytensor.link.jax.dispatch  # noqa: F401
from pytensor.compile import mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import toposort
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.dispatch.basic import jax_typify
from pytensor.link.utils import fgraph_to_python
from pytensor.raise_op import CheckAndRaise

from pymc_discrete.targets.graph.integers import with_integer_log_gamma

# PyTensor's rewriters and compiled functions keep what they are working on. Programs are traced, and models
# sampled, in several threads: only the thread that holds this lock may call them.
PYTENSOR = threading.RLock()


def refusal_of_jax(outputs: Sequence[Variable]) -> NotImplementedError | None:
    """PyTensor's error for the first Op of a graph that has no JAX version, or None.

    No JAX backend is started.
    """
    for node in toposort(list(outputs)):
        if isinstance(node.op, CheckAndRaise):  # PyTensor leaves these out, with a warning
            continue
        try:
            has_rule = jax_funcify.dispatch(type(node.op)) is not jax_funcify.dispatch(object)
            if not (isinstance(node.op, HasInnerGraph) and has_rule):
                jax_funcify(node.op, node=node)
            # an inner graph is checked Op by Op: converting it as a whole would put its constants on the
            # device, which starts JAX
            elif (refusal := refusal_of_jax(node.op.inner_outputs)) is not None:
                return refusal
        except NotImplementedError as error:
            return error
    return None


class JaxFunction:
    """A JAX function of the inputs of a graph that returns the tuple of outputs.

    The graph is rewritten for JAX when the function is made, and converted at the first call: the conversion
    puts its constants on the device, which starts JAX. Numbers have the width that JAX is set to at the call
    (`jax.enable_x64`), whatever the dtypes in the graph. NumPy arrays may be passed beside values that JAX
    traces, which do not index NumPy's own arrays.

    Parameters
    ----------
    convert : makes JAX functions of Ops, called as PyTensor's `jax_funcify`
    """

    def __init__(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], convert: Callable = jax_funcify
    ):
        self._convert = convert
        with PYTENSOR:
            self._graph = FunctionGraph(list(inputs), list(outputs), clone=True)
            mode.JAX.optimizer.rewrite(self._graph)
            with_integer_log_gamma(self._graph)
        self._converted: dict[bool, Callable] = {}  # by whether numbers have 64 bits

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        x64 = bool(jax.config.jax_enable_x64)
        with PYTENSOR:
            if x64 not in self._converted:
                # The conversion creates the constants of the graph as JAX arrays, which are kept for later
                # calls. If JAX is tracing a program now, they must not become tracers of that program.
                with jax.core.eval_context():
                    self._converted[x64] = fgraph_to_python(
                        self._graph, self._convert, type_conversion_fn=placed, fgraph_name="function"
                    )
        return self._converted[x64](
            *(jnp.asarray(a) if isinstance(a, np.ndarray | np.generic) else a for a in args)
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_converted": {}}


def jaxify(
    inputs: Sequence[Variable], outputs: Sequence[Variable], convert: Callable = jax_funcify
) -> Callable[..., tuple[Any, ...]]:
    """A JAX function of the inputs that returns the tuple of outputs, see `JaxFunction`."""
    return JaxFunction(inputs, outputs, convert) if outputs else nothing


def nothing(*args: Any) -> tuple[Any, ...]:
    """What a function without outputs returns."""
    return ()


def placed(data: Any, dtype: Any = None, **options: Any) -> Any:
    """A constant of a graph as JAX takes it.

    PyTensor's own conversion copies every array with a program, which JAX has to compile.
    """
    if isinstance(data, np.ndarray) and data.ndim and not isinstance(data, np.ma.MaskedArray):
        return jax.device_put(np.asarray(data, dtype))
    return jax_typify(data, dtype, **options)
