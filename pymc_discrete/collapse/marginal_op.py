"""The PyTensor Op of a sum over discrete variables, which JAX computes."""

import functools
import warnings
from collections.abc import Hashable
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
from pymc_discrete.model.identity import key_of_object
from pymc_discrete.runtime.fork import refuse_after_fork
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.structure.numbers import Number


class SummedOut(Op):
    """The log density of some terms of a model with discrete variables summed out, and its gradient.

    The inputs are, in this order: the variables that are not summed out and the numbers that the terms read;
    a vector that says over which values sites are summed, if these change from draw to draw; and the data of
    the model that the terms read. Where these data differ from `data`, the log density is nan. The outputs
    are the log density and its derivative with respect to every float variable.

    Parameters
    ----------
    sums : Sums, the sums over the discrete variables
    stretched : whether an input, the vector of stretches, says over which values sites are summed
    data : the values of the data when the Op is made
    """

    takes_numbers = True  # constants among the inputs may be arguments of a program instead of parts of it

    def __init__(self, sums: Sums, stretched: bool, data: list[np.ndarray]):
        self.sums, self.stretched, self.data = sums, stretched, data
        others = sums.density.graph.others
        self.others = len(others)
        self._variables = [n for n, v in enumerate(others) if not isinstance(v, Number)]
        self._compiled: Any = None

    @property
    def _key(self) -> Hashable:
        return (self.sums, self.stretched, key_of_object(self.data))

    @property
    def identity(self) -> list[Any]:
        """A key of everything that the Op computes, by which a compiled program is found again on disk:
        graphs, summed sites and their values.
        """
        graph, space = self.sums.density.graph, self.sums.density.space
        terms = [*graph.values, *graph.others, *(term for _, term in graph.terms)]
        sites = [type(self.sums), self.sums.counts, space.lower, space.upper]
        return [terms, sites, self.stretched, self.data]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SummedOut) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def make_node(self, *inputs):
        inputs = [pt.as_tensor(i) for i in inputs]
        slopes = [pt.tensor(dtype="float64", shape=inputs[n].type.shape) for n in self._moving(inputs)]
        return Apply(self, inputs, [pt.dscalar(), *slopes])

    def infer_shape(self, node, shapes):
        return [(), *(shapes[n] for n in self._moving(node.inputs))]

    def _moving(self, inputs) -> list[int]:
        """The indices of the inputs for which the Op has a derivative: float variables, and neither numbers
        nor data.
        """
        dtypes = {n: getattr(inputs[n], "dtype", None) or inputs[n].type.dtype for n in self._variables}
        return [n for n, dtype in dtypes.items() if str(dtype).startswith("float")]

    # ------------------------------------------------------------ in JAX
    def value(self, *inputs):
        """() nats, the log density of the terms with the discrete variables summed out."""
        end = self.others + self.stretched
        others, data = inputs[: self.others], inputs[end:]
        stretches = inputs[self.others] if self.stretched else None
        value = self.sums.logdensity_of(others, stretches)
        same = [jnp.array_equal(a, b) for a, b in zip(data, self.data, strict=True)]
        return jnp.where(jnp.stack(same).all(), value, jnp.nan) if same else value

    def value_and_slopes(self, *inputs):
        """The log density with the discrete variables summed out, and its derivatives with respect to all
        float variables.
        """
        moving = self._moving(inputs)

        def of_floats(*floats):
            given = dict(zip(moving, floats, strict=True))
            return self.value(*(given.get(n, i) for n, i in enumerate(inputs)))

        value, backward = jax.vjp(of_floats, *(jnp.asarray(inputs[n], float) for n in moving))
        return value, *backward(jnp.ones_like(value))

    # ------------------------------------------------------------ in PyTensor
    def perform(self, node, inputs, outputs):
        refuse_after_fork()
        with model_settings():
            if self._compiled is None:
                self._compiled = jitted(self.value_and_slopes)
            for storage, value in zip(outputs, self._compiled(*inputs), strict=True):
                storage[0] = np.asarray(value, np.float64)

    def pullback(self, inputs, outputs, cotangents):
        _, *slopes = outputs
        if not all(isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError(
                "A sum over discrete variables has no Hessian. Take differences of its gradient."
            )
        found = [DisconnectedType()() for _ in inputs]
        for n, slope in zip(self._moving(inputs), slopes, strict=True):
            found[n] = cotangents[0] * slope
        return found

    def connection_pattern(self, node):
        moving = self._moving(node.inputs)
        return [[n in moving] * len(node.outputs) for n in range(len(node.inputs))]

    def __getstate__(self):
        known_to_numba = bool(call_from_numba_quietly.cache_info().currsize)
        return {**self.__dict__, "_compiled": None, "known_to_numba": known_to_numba}

    def __setstate__(self, state):
        if state.pop("known_to_numba"):
            call_from_numba_quietly()
        self.__dict__.update(state)


@jax_funcify.register(SummedOut)
def _(op, **_):
    return op.value_and_slopes


@functools.cache
def call_from_numba_quietly() -> None:
    """Let PyTensor compile this Op by Numba, its default, without a warning.

    The warning says that Numba calls Python for the Op, which costs little compared with the sum. To import
    Numba takes a third as long as to import PyMC, so this is called only when a model with the Op is given to
    PyMC.
    """
    from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify

    @numba_funcify.register(SummedOut)
    def _(op, node=None, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return generate_fallback_impl(op, node=node, **options)
