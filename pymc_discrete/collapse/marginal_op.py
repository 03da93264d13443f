"""The PyTensor Op of a sum over discrete variables, which JAX computes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify

from pymc_discrete.collapse.sums import Sums
from pymc_discrete.fork import refuse_after_fork
from pymc_discrete.targets.model_settings import model_settings


class SummedOut(Op):
    """The log density of some terms of a model with discrete variables summed out.

    The inputs are the other variables that the terms read, in the order of the density's, and then the data
    of the model that they read, which must be what they were.

    Parameters
    ----------
    sums : Sums
    data : values of the data
    """

    def __init__(self, sums: Sums, data: list[np.ndarray]):
        self.sums, self.data = sums, data
        self._compiled: Any = None

    def make_node(self, *inputs):
        return Apply(self, [pt.as_tensor(i) for i in inputs], [pt.dscalar()])

    def infer_shape(self, fgraph, node, shapes):
        return [()]

    def value(self, *inputs):
        """() nats, in JAX."""
        others = inputs[: len(inputs) - len(self.data)]
        context = self.sums.density.without_parts(others)
        same = [jnp.array_equal(a, b) for a, b in zip(inputs[len(others) :], self.data, strict=True)]
        value = self.sums.logdensity(context)
        return jnp.where(jnp.stack(same).all(), value, jnp.nan) if same else value

    def value_and_slopes(self, *inputs):
        """The value, and its derivative by every input of floats."""
        floats = [n for n in range(len(inputs) - len(self.data)) if moves(inputs[n])]

        def of_floats(*values):
            given = dict(zip(floats, values, strict=True))
            return self.value(*(given.get(n, i) for n, i in enumerate(inputs)))

        value, backward = jax.vjp(of_floats, *(inputs[n] for n in floats))
        return value, backward(jnp.ones_like(value))

    def perform(self, node, inputs, outputs):
        refuse_after_fork()
        with model_settings():
            if self._compiled is None:
                self._compiled = jax.jit(self.value)
            outputs[0][0] = np.asarray(self._compiled(*inputs), np.float64)

    def pullback(self, inputs, outputs, cotangents):
        slopes = iter(Slopes(self)(*inputs, return_list=True))
        count = len(inputs) - len(self.data)
        return [
            cotangents[0] * next(slopes) if n < count and moves(i) else DisconnectedType()()
            for n, i in enumerate(inputs)
        ]

    def connection_pattern(self, node):
        count = len(node.inputs) - len(self.data)
        return [[n < count and moves(i)] for n, i in enumerate(node.inputs)]


class Slopes(Op):
    """The gradient of a `SummedOut` by its inputs of floats."""

    __props__ = ("of",)

    def __init__(self, of: SummedOut):
        self.of = of
        self._compiled: Any = None

    def make_node(self, *inputs):
        inputs = [pt.as_tensor(i) for i in inputs]
        floats = [i for i in inputs[: len(inputs) - len(self.of.data)] if moves(i)]
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=i.type.shape) for i in floats])

    def perform(self, node, inputs, outputs):
        refuse_after_fork()
        with model_settings():
            if self._compiled is None:
                self._compiled = jax.jit(lambda *inputs: self.of.value_and_slopes(*inputs)[1])
            for storage, slope in zip(outputs, self._compiled(*inputs), strict=True):
                storage[0] = np.asarray(slope, np.float64)


def moves(a: Any) -> bool:
    """Whether an input has a derivative: floats do."""
    return str(getattr(a, "dtype", None) or a.type.dtype).startswith("float")


@jax_funcify.register(SummedOut)
def _(op, **_):
    return op.value


@jax_funcify.register(Slopes)
def _(op, **_):
    return lambda *inputs: tuple(op.of.value_and_slopes(*inputs)[1])
