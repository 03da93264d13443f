"""Compiles PyTensor graphs to JAX functions."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Importing PyTensor's dispatch for JAX starts no backend of JAX, which would hang in some forked processes.
import pytensor.link.jax.dispatch  # noqa: F401 the import registers PyTensor's conversions
import pytensor.tensor as pt
from pytensor.compile import mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.dispatch.basic import jax_typify
from pytensor.link.utils import fgraph_to_python
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import Repeat

from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.integers import with_integer_log_gamma

# PyTensor's rewriters and compiled functions hold state while they work. Programs are traced, and models
# sampled, in several threads: only the thread that holds this lock may call them.
PYTENSOR = threading.RLock()


ONCE = (
    "An increment with ignore_duplicates=True adds to an element once however often it is selected, and "
    "PyTensor's version for JAX adds each time. Write x[index].set(x[index] + y)."
)

# the errors that JAX, or PyTensor's conversion of an Op to JAX, raises where a size is not a constant
FAILURES = (TypeError, IndexError, AttributeError)


def refusal_of_jax(outputs: Sequence[Variable]) -> NotImplementedError | None:
    """PyTensor's error for the first Op of a graph that has no JAX version; None if all Ops have one.

    No JAX backend is started.
    """
    for node in toposort(list(outputs)):
        # CheckAndRaise needs no JAX version: PyTensor's conversion leaves it out, with a warning
        if isinstance(node.op, CheckAndRaise):
            continue
        if adds_once(node.op):
            return NotImplementedError(ONCE)
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
        except FAILURES:
            return not_run(node, list(graph_inputs(outputs)))
    return None


def adds_once(op: Op) -> bool:
    """Whether an Op, or an Op in its inner graph, adds to an element only once if its index is repeated."""
    if isinstance(op, Blockwise):
        return adds_once(op.core_op)
    if isinstance(op, HasInnerGraph):
        return any(adds_once(node.op) for node in toposort(op.inner_outputs))
    return getattr(op, "ignore_duplicates", False) and not op.set_instead_of_inc  # type: ignore[attr-defined]


def not_run(node: Apply, inputs: Sequence[Variable]) -> NotImplementedError:
    """The error, with one text for all errors of JAX, for an Op that JAX does not run with its inputs.

    Parameters
    ----------
    inputs : the inputs of the graph, whose names say where the Op is
    """
    above = set(ancestors(node.outputs))
    names = [str(v.name) for v in inputs if v in above and v.name and not str(v.name).startswith("~")]
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    return NotImplementedError(
        f"JAX does not run the Op {op}{f' of what {shown(names)} enter' if names else ''}: sizes, lengths "
        "and the ends of slices must be constants"
    )


def without_batches_of_sizes(graph: FunctionGraph) -> None:
    """Replace Ops that are applied to a batch, and take constant sizes, by Ops on tensors with one axis more.

    JAX must know sizes when it compiles, but would trace the sizes of an Op that is applied to a batch.
    """
    for node in graph.toposort():
        if not isinstance(node.op, Blockwise) or not isinstance(node.op.core_op, Split | Repeat):
            continue
        x, sizes = node.inputs
        batch = node.op.batch_ndim(node)
        if isinstance(sizes, Constant) and set(sizes.data.shape[:batch]) <= {1}:
            core, sizes = node.op.core_op, pt.constant(sizes.data.reshape(sizes.data.shape[batch:]))
            axis = core.axis + batch
            op = Split(core.len_splits, axis) if isinstance(core, Split) else Repeat(axis)
            new = op.make_node(x, sizes).outputs
            graph.replace_all(list(zip(node.outputs, new, strict=True)))


class JaxFunction:
    """A JAX function of the inputs of a graph that returns the tuple of outputs.

    The graph is rewritten for JAX when the function is made, and converted at the first call: the conversion
    puts its constants on the device, which starts JAX. Numbers have the width that JAX is set to at the call
    (`jax.enable_x64`), whatever the dtypes in the graph. NumPy arrays among the arguments become arrays of
    JAX, since a value that JAX traces cannot be an index into a NumPy array.

    Parameters
    ----------
    convert : a function that makes JAX functions of Ops, with the arguments of PyTensor's `jax_funcify`

    Raises
    ------
    NotImplementedError
        For an increment that adds to an element only once if its index is repeated: PyTensor's version of the
        increment for JAX adds each time.
    """

    def __init__(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], convert: Callable = jax_funcify
    ):
        self._convert = convert
        with PYTENSOR:
            self._graph = FunctionGraph(list(inputs), list(outputs), clone=True)
            if any(adds_once(node.op) for node in self._graph.apply_nodes):
                raise NotImplementedError(ONCE)
            mode.JAX.optimizer.rewrite(self._graph)
            without_batches_of_sizes(self._graph)
            with_integer_log_gamma(self._graph)
        self._converted: dict[bool, Callable] = {}  # {whether numbers have 64 bits: the converted function}

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        x64 = bool(jax.config.jax_enable_x64)
        args = tuple(jnp.asarray(a) if isinstance(a, np.ndarray | np.generic) else a for a in args)
        try:
            with PYTENSOR:
                if x64 not in self._converted:
                    # The conversion creates the constants of the graph as JAX arrays, which are kept for
                    # later calls. If JAX is tracing a program now, these arrays must not become tracers of
                    # the program.
                    with jax.core.eval_context():
                        self._converted[x64] = fgraph_to_python(
                            self._graph, self._convert, type_conversion_fn=placed, fgraph_name="function"
                        )
            return self._converted[x64](*args)
        except FAILURES as error:
            raise self._refusal(args) from error

    def _refusal(self, args: Sequence[Any]) -> NotImplementedError:
        """The error for the first Op that JAX does not run when the graph is called with `args`."""
        values = dict(zip(self._graph.inputs, args, strict=True))
        for node in self._graph.toposort():
            inputs = [values[i] if i in values else placed(i.data) for i in node.inputs]  # type: ignore
            try:
                outputs = self._convert(node.op, node=node)(*inputs)
            except FAILURES:
                return not_run(node, self._graph.inputs)
            outputs = outputs if isinstance(outputs, tuple | list) else [outputs]
            values.update(zip(node.outputs, outputs, strict=True))
        return NotImplementedError("JAX does not run the graph, though it runs each of its Ops")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_converted": {}}


def jaxify(
    inputs: Sequence[Variable], outputs: Sequence[Variable], convert: Callable = jax_funcify
) -> Callable[..., tuple[Any, ...]]:
    """A JAX function of the inputs that returns the tuple of outputs, see `JaxFunction`."""
    return JaxFunction(inputs, outputs, convert) if outputs else returns_nothing


def returns_nothing(*args: Any) -> tuple[Any, ...]:
    """The JAX function of a graph without outputs, which returns an empty tuple."""
    return ()


def placed(data: Any, dtype: Any = None, **options: Any) -> Any:
    """A constant of a graph in the form that JAX takes.

    PyTensor's own conversion copies every array with a program, which JAX has to compile.
    """
    if isinstance(data, np.ndarray) and data.ndim and not isinstance(data, np.ma.MaskedArray):
        return jax.device_put(np.asarray(data, dtype))
    return jax_typify(data, dtype, **options)
