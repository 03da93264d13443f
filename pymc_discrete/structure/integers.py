"""The logarithm of the gamma function of integers, by a table."""

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
INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def log_gamma(n):
    """log Gamma(n) of integers n, +inf for n <= 0.

    Where all n are less than `TABLE`, the values are looked up: computing log Gamma takes ten times as long.
    """
    # SciPy's function is imported when the first table is made: the import is slow, and most models need no
    # table
    from scipy.special import gammaln

    n = jnp.asarray(n, int)
    table = gammaln(np.arange(TABLE))

    def looked_up(n):
        return jnp.asarray(table, jnp.result_type(float)).at[jnp.maximum(n, 0)].get(mode="clip")

    def computed(n):
        return jax.lax.lgamma(jnp.maximum(n, 0).astype(jnp.result_type(float)))

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
