"""The log density of a model over a block of its continuous variables."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable

from pymc_discrete.differences.invariants import separated
from pymc_discrete.integrals.augmented import augmented
from pymc_discrete.integrals.conjugate import read_from, without_conjugate
from pymc_discrete.integrals.integrate import integrated
from pymc_discrete.model.identity import key_of_object, lasting_name
from pymc_discrete.model.in_32_bits import narrowed
from pymc_discrete.model.kept_for_models import KeptForModels
from pymc_discrete.model.logp import logp_graph
from pymc_discrete.model.selections import without_selections
from pymc_discrete.model.structure_of_model import Structure, with_numbers
from pymc_discrete.model.switches import added_up, pulled_out
from pymc_discrete.model.untouched import Untouched, refusal_of_term
from pymc_discrete.runtime.compiled import CompiledMethods
from pymc_discrete.runtime.float32 import change, floats_are_32_bit, reference
from pymc_discrete.runtime.jax_settings import REPEATED, SELDOM
from pymc_discrete.runtime.model_settings import width_of_models
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure import costs
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.numbers import NUMBER
from pymc_discrete.structure.sums import all_summands

_kept: KeptForModels["ContinuousDensity", Any] = KeptForModels("densities of continuous variables")

# The method of `ContinuousDensity` that is compiled with little optimisation, since it runs seldom: only to
# check the points at which chains start.
CHECKED = "_value_and_slopes"


class ContinuousDensity(CompiledMethods):
    """The log density over a block of continuous value variables, ravelled into one vector q.

    Parameters
    ----------
    model : pm.Model
    names : list of str
        Value variables of the block.
    point : {value variable name: array}
        A point that gives the shapes of all value variables.
    vectors : {name: names of value variables}, optional
        Variables outside the block that are passed as parts of one vector, whose name is the key.
    structure : Structure, optional
        The structure of the model, if its numbers are inputs of the density and no constants in it.
    slopes : bool
        Whether the gradient is needed.
    integrate : names of value variables outside the block that are integrated out
    counts : lists of names of integer variables that belong to the block as real numbers; the variables of a
        list with several names are one vector, whose value `point` then has, too

    Attributes
    ----------
    size : int
        The number of coordinates of q.

    Raises
    ------
    ValueError
        If PyTensor cannot differentiate the density, and the gradient is needed.
    """

    def __init__(
        self,
        model: pm.Model,
        names: list[str],
        point: dict[str, np.ndarray],
        vectors: dict[str, list[str]] | None = None,
        structure: Structure | None = None,
        slopes: bool = True,
        integrate: Sequence[str] = (),
        counts: Sequence[Sequence[str]] = (),
    ):
        super().__init__()
        of_counts = [name for members in counts for name in members]
        self.names = [*names, *of_counts]
        written = model if structure is None else with_numbers(model, structure)
        terms, conjugate = without_conjugate(written, integrate, point)
        self.graph = logp_graph(
            written,
            self.names,
            point,
            dict.fromkeys(self.names, (None, None)),
            vectors=vectors,
            united=[list(members) for members in counts if len(members) > 1],
            counts=of_counts,
            terms=terms,
        )
        if conjugate:
            self.graph = read_from(self.graph, conjugate, f"{NUMBER}for draws with {shown(self.names)}: ")
        if not width_of_models():
            self.graph = narrowed(self.graph, model, {})
        if together := [name for name in integrate if name not in {c.name for c in conjugate}]:
            self.graph = integrated(self.graph, together)
        self._terms = pulled_out(without_selections([t for _, t in self.graph.terms], self.graph), self.graph)
        self._sum = pt.add(pt.constant(0.0), *map(added_up, self._terms))
        # NUTS evaluates the gradient far more often than anything else, so the tensors that the gradient
        # needs of the data, such as the transpose of a matrix, are made once.
        self._gradient = gradient(self._sum, self.graph.values) if slopes else []
        made_for = f"{NUMBER}for the gradient by {shown(self.names)}: "
        self._gradient = self.graph.hoist(self._gradient, made_for)
        self.untouched = Untouched(self.graph)
        rest = pt.add(pt.constant(0.0), *self.untouched.in_jax)
        self._inputs = [*self.graph.values, *self.graph.others]
        self._total, self._rest = jaxify(self._inputs, [self._sum]), jaxify(self.graph.others, [rest])
        self._rest_graph = rest
        self._shapes = [np.shape(point[v.name]) for v in self.graph.values]
        self._ends = np.cumsum([np.prod(s, dtype=int) for s in self._shapes])
        self.size = int(self._ends[-1])

    @property
    def identity(self) -> list[Any]:
        """A key: densities with equal keys compute the same, and share compiled programs."""
        graphs = [self._inputs, self._sum, self._gradient, self._rest_graph, *self._terms]
        of_values = [self.graph.groups[v] for v in self.graph.values]
        return [graphs, of_values, self._shapes, self.graph.integral, self.graph.conjugate, width_of_models()]

    def lasting_name(self) -> str | None:
        return lasting_name(type(self), self)

    @classmethod
    def of(
        cls,
        model: pm.Model,
        names: list[str],
        point: dict[str, np.ndarray],
        vectors: dict[str, list[str]] | None = None,
        slopes: bool = True,
        integrate: Sequence[str] = (),
        counts: Sequence[Sequence[str]] = (),
    ) -> tuple["ContinuousDensity", dict[str, np.ndarray]]:
        """A density, and the values of the numbers (data and constants of the model) that it takes as
        arguments.

        Models of the same structure share one density. Each point at which the density is evaluated must have
        the numbers, besides the values of the variables.
        """
        start = dict[str, np.ndarray]()
        if integrate and (given := augmented(model, integrate)):
            model, start, point = given.model, given.start, point | given.start
        shapes = tuple((name, np.shape(value)) for name, value in point.items())

        def make(structure: Structure) -> "ContinuousDensity":
            return cls(model, names, point, vectors, structure, slopes, integrate, counts)

        def use(kept: "ContinuousDensity", numbers: dict[str, np.ndarray]) -> Any:
            values = kept.graph.derivation.of(numbers)
            return None if values is None else (kept, values | start)

        asked = (tuple(names), shapes, key_of_object(vectors), slopes, tuple(integrate))
        return _kept.get(model, (*asked, tuple(map(tuple, counts))), make, use)

    def level_of(self, name: str) -> Any:
        return SELDOM if name == CHECKED else REPEATED

    def check_in_jax(self) -> None:
        """Raise NotImplementedError where JAX has no version of an Op of the density or its gradient."""
        for refusal in filter(None, map(refusal_of_term, [self._sum, *self._gradient])):
            raise refusal

    @functools.cached_property
    def cost(self) -> float:
        """Counted operations of one evaluation."""
        return costs.of_graph(self._terms, self.graph, set(self.graph.values))

    # ------------------------------------------------------------ points and vectors
    @property
    def slices(self) -> dict[str, slice]:
        """{variable or vector of the block: the slice of q with its elements}."""
        starts = [0, *self._ends[:-1]]
        return {
            str(v.name): slice(int(start), int(end))
            for v, start, end in zip(self.graph.values, starts, self._ends, strict=True)
        }

    def ravel(self, point: Mapping[str, Any], xp=jnp) -> Any:
        """q (size,), the coordinates of the block at a point; `xp` is the array library."""
        return xp.concatenate([xp.asarray(point[v.name], float).reshape(-1) for v in self.graph.values])

    def parts(self, q) -> list[Any]:
        """The values of the block's variables, in the order of the graph's inputs, from q (size,)."""
        return [
            q[end - int(np.prod(s, dtype=int)) : end].reshape(s)
            for end, s in zip(self._ends, self._shapes, strict=True)
        ]

    def others(self, point: Mapping[str, Any]) -> list[Any]:
        """The values of the variables outside the block at a point, in the order of the graph's inputs."""
        return [point[v.name] for v in self.graph.others]

    def joined(self, q, point: dict[str, Any]) -> dict[str, Any]:
        """The point, with the block's variables at q; the order of its keys stays the same."""
        new = dict(point)
        for v, part in zip(self.graph.values, self.parts(q), strict=True):
            new[v.name] = part.astype(point[v.name].dtype)
        return new

    # ------------------------------------------------------------ densities, nats
    def block(self, q, others: list[Any]):
        """() float, the sum of the terms that depend on the block."""
        return jnp.asarray(self._total(*self.parts(q), *others)[0], float).reshape(())

    def rest(self, others: list[Any]):
        """() float, the sum of the terms that do not depend on the block and that JAX can compile."""
        return jnp.asarray(self._rest(*others)[0], float).reshape(())

    def logdensity(self, point: Mapping[str, Any]):
        """() float, the log density of the whole model, without the terms that JAX cannot compile."""
        values = [jnp.asarray(point[v.name]) for v in self._inputs]
        block = jnp.asarray(self._total(*values)[0], float).reshape(())
        return block + self.rest(values[len(self.graph.values) :])

    def near(self, start, others: list[Any]) -> Callable:
        """The sum of the terms that depend on the block, as a function of q.

        In float32 the value at `start` is subtracted, summand by summand, which makes rounding errors
        smaller.
        """
        if not floats_are_32_bit():
            return lambda q: self.block(q, others)
        at_start = reference(self._summands(*self.parts(start), *others))
        return lambda q: change(self._summands(*self.parts(q), *others), at_start)

    def differentiable(self, start, others: list[Any]) -> Callable:
        """The sum of the terms that depend on the block, as `near` returns it: a function of q.

        Its derivative in JAX is PyTensor's gradient. JAX's own gradient of `where(ok, f(q), -inf)` is nan
        where the gradient of f is not finite, even if `ok` is False.
        """
        values, evaluate = separated(self.value_and_slope(start, others), start)
        # `values` is what the density needs and does not depend on q. NUTS also evaluates the density once
        # outside of its loops, at the start of a draw. Without a barrier, XLA would compute `values` again
        # for this evaluation, in every loop over elements that reads some of them.
        values = jax.lax.optimization_barrier(values)
        # A jitted function that a jitted function calls is compiled with the latter. `jit` is used only so
        # that JAX traces the density once, and not for each of its uses.
        traced_once = jax.jit(evaluate)
        evaluate = functools.partial(traced_once, values)

        @jax.custom_vjp
        def logdensity(q):
            return evaluate(q)[0]

        logdensity.defvjp(evaluate, lambda slope, cotangent: (cotangent * slope,))
        return logdensity

    def value_and_slope(self, start, others: list[Any]) -> Callable:
        """A function of q that returns what the function from `near` returns, and the gradient (size,)."""
        n = len(self.graph.values)
        at_start = reference(self._summands(*self.parts(start), *others)) if floats_are_32_bit() else None

        def function_of(q):
            function = self._with_slopes if at_start is None else self._summands_with_slopes
            outputs = function(*self.parts(q), *others)
            value = outputs[0] if at_start is None else change(outputs[:-n], at_start)
            return jnp.asarray(value, float).reshape(()), jnp.concatenate(
                [jnp.reshape(s, -1) for s in outputs[-n:]]
            ).astype(q.dtype)

        return function_of

    def value_and_slopes(self, point: dict[str, np.ndarray]) -> tuple[Any, dict[str, np.ndarray]]:
        """The value of `logdensity` at a point, and its gradient {value variable: array}.

        The program that computes them is compiled at the first call.
        """
        value, rest, slopes = self.compiled(CHECKED)([np.asarray(point[v.name]) for v in self._inputs])
        slopes = {v.name: np.asarray(s) for v, s in zip(self.graph.values, slopes, strict=True)}
        return np.asarray(value) + np.asarray(rest), slopes

    def at(self, point: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(), the sum of the terms that depend on the block at a point, and its gradient (size,), in NumPy.

        The sum and the gradient are computed by the program of `value_and_slopes`, so that no other program
        is compiled for them.
        """
        value, _, slopes = self.compiled(CHECKED)([np.asarray(point[v.name]) for v in self._inputs])
        return np.asarray(value), np.concatenate([np.ravel(s) for s in slopes])

    def _value_and_slopes(self, inputs: list[Any]):
        value, *slopes = self._with_slopes(*inputs)
        return value.reshape(()), self.rest(inputs[len(self.graph.values) :]), slopes

    @functools.cached_property
    def _with_slopes(self) -> Callable:
        return jaxify(self._inputs, [self._sum, *self._gradient])

    @functools.cached_property
    def _parts_of_sum(self) -> list[Variable]:
        """Tensors whose elements add up to the sum of the terms that depend on the block."""
        return [p for t in self._terms for p in all_summands(t, self.graph)]

    @functools.cached_property
    def _summands(self) -> Callable:
        return jaxify(self._inputs, self._parts_of_sum)

    @functools.cached_property
    def _summands_with_slopes(self) -> Callable:
        return jaxify(self._inputs, [*self._parts_of_sum, *self._gradient])


def gradient(total: Variable, values: list[Variable]) -> list[Variable]:
    """The gradient of a log density with respect to value variables.

    Raises
    ------
    ValueError
        If PyTensor cannot differentiate the log density.
    """
    try:
        return pytensor.grad(total, values, disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError) as error:
        names = shown(v.name for v in values)
        why = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"The gradient of the log density by {names} is needed, and PyTensor has none: {why}. Sample "
            "what has no gradient with step=pmd.ReparameterizedSlice([...])."
        ) from error
