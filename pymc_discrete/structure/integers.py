"""The logarithm of the gamma function of integers, by a table and a series."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.math import GammaLn
from pytensor.tensor.type import TensorType

from pymc_discrete.structure.scalar_ops import applies

TABLE = 4096  # the number of integers in the table of log Gamma
ALWAYS_COMPUTED = 16  # so few integers are looked up, and computed for large ones, whichever they are
INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


@functools.cache
def table_of(dtype: np.dtype) -> np.ndarray:
    """(TABLE,) float, log Gamma of 0, 1, ...; one array for all calls, which a program has once."""
    # SciPy's function is imported when the first table is made: the import is slow, and most models need no
    # table
    from scipy.special import gammaln

    return gammaln(np.arange(TABLE)).astype(dtype)


def log_gamma(n):
    """log Gamma(n) of integers n, +inf for n <= 0.

    The values of integers less than `TABLE` are looked up. Those of the others are the first terms of
    Stirling's series (Abramowitz and Stegun 1964, 6.1.41), whose next term is less than 1e-13, beside values
    of more than 1e4. If n has more than `ALWAYS_COMPUTED` elements, the series is only computed where some
    are large. JAX's own log Gamma takes ten times as long as the table, and has a hundred operations, which
    take long to compile.
    """
    n, dtype = jnp.asarray(n, int), np.dtype(jnp.result_type(float))

    def looked_up(n):
        return jnp.take(table_of(dtype), jnp.maximum(n, 0), mode="clip")

    def computed(n):
        x = jnp.maximum(n, TABLE).astype(dtype)
        series = (x - 0.5) * jnp.log(x) - x + 0.5 * np.log(2 * np.pi) + 1 / (12 * x)
        return jnp.where(n < TABLE, looked_up(n), series)

    if n.size <= ALWAYS_COMPUTED:
        return computed(n)
    return jax.lax.cond(jnp.all(n < TABLE), looked_up, computed, n)


def is_integer_log_gamma(node: Apply) -> bool:
    """Whether a node computes log Gamma of integers."""
    return applies(node, GammaLn) and node.inputs[0].type.dtype in INTEGERS


class IntegerLogGamma(Op):
    """`log_gamma` as a PyTensor Op, which returns the dtype that PyTensor gives to log Gamma."""

    __props__ = ("dtype",)

    def __init__(self, dtype: str):
        self.dtype = dtype

    def make_node(self, n: Variable) -> Apply:
        return Apply(self, [n], [TensorType(self.dtype, shape=n.type.shape)()])

    def perform(self, node, inputs, outputs):
        from scipy.special import gammaln

        outputs[0][0] = np.asarray(gammaln(inputs[0]), self.dtype)


@jax_funcify.register(IntegerLogGamma)
def _(op, **_):
    return lambda n: log_gamma(n).astype(jax.dtypes.canonicalize_dtype(op.dtype))


def with_integer_log_gamma(fgraph: FunctionGraph) -> None:
    """Replace log Gamma of integer tensors in a graph by `IntegerLogGamma`, in place."""
    for node in fgraph.toposort():
        if is_integer_log_gamma(node):
            (out,) = node.outputs
            fgraph.replace(out, IntegerLogGamma(out.type.dtype)(node.inputs[0]), import_missing=True)
