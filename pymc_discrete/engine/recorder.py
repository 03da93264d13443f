"""The recorded variables: computed inside the program, and unpacked on the host."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.engine.points import Points
from pymc_discrete.model.identity import key_of_object
from pymc_discrete.model.in_32_bits import In32Bits, bounds_of_values, check_in_32_bits
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.kept_for_models import KeptForModels
from pymc_discrete.model.masks import Sliced, with_fixed_sizes, with_masks
from pymc_discrete.model.structure_of_model import Structure, with_numbers
from pymc_discrete.model.support import bounds_of_model
from pymc_discrete.runtime.model_settings import width_of_models
from pymc_discrete.structure.bounds import hull
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.numbers import NUMBER, Derivation, hoisted, numbers_in
from pymc_discrete.structure.rebuild import known_size, rebuild
from pymc_discrete.structure.stacking import in_vectors

_kept: KeptForModels["Recorder", Any] = KeptForModels("recorders")


class Recorder:
    """A JAX function of a point {variable or vector: array}, which returns {name: array} of `outputs`.

    A vector of `Points` is returned whole if any of its parts is an output. If integers have 32 bits, an
    output that may exceed 32 bits is returned as two words. `on_host` turns vectors and words back into
    variables of the model.

    Parameters
    ----------
    model : pm.Model
    outputs : variables of the model, in terms of its value variables
    points : which of its discrete variables a chain keeps together in one vector
    dtypes : {variable or vector: type}, for variables that are recorded in another type than in the model
    shapes : the shapes of the model's value variables
    of : a word for what is computed, which is a part of the names of its numbers

    Raises
    ------
    ValueError, NotImplementedError
        If an output draws random numbers, or has a size that differs from draw to draw.
    """

    @classmethod
    def of(
        cls,
        model: pm.Model,
        names: Sequence[str],
        points: Points,
        dtypes: dict[str, Any],
        of: str = "recorded",
    ) -> tuple["Recorder", dict[str, np.ndarray]]:
        """A recorder, and the values of the numbers (data and constants of the model) that it takes as
        arguments.

        Models of the same structure share one recorder. Each point that the recorder gets must have the
        numbers, besides the values of the variables; the argument `of` is a part of their names, so that one
        point can have the numbers of two recorders.
        """

        def make(structure: Structure) -> "Recorder":
            written = with_numbers(model, structure)
            outputs = {str(v.name): v for v in written.unobserved_value_vars}
            return cls(written, [outputs[name] for name in names], points, dtypes, shapes_of(model), of)

        def use(kept: "Recorder", numbers: dict[str, np.ndarray]) -> Any:
            values = kept.derivation.of(numbers)
            return None if values is None else (kept, values)

        return _kept.get(model, (tuple(names), key_of_object([points.names, dtypes]), of), make, use)

    def __init__(
        self,
        model: pm.Model,
        outputs: list[Variable],
        points: Points,
        dtypes: dict[str, Any],
        shapes: dict[str, tuple[int, ...]],
        of: str = "recorded",
    ):
        self._points, self._dtypes, self._wanted = points, dtypes, {str(v.name) for v in outputs}
        self._whole = [
            name for name, members in points.vectors.items() if any(m.name in self._wanted for m in members)
        ]
        typed = {v: pt.TensorType(v.type.dtype, shape=shapes[v.name])(name=v.name) for v in model.value_vars}
        values = {str(v.name): v for v in typed.values()}
        parts = {
            m.name: pt.TensorType(values[m.name].type.dtype, shape=m.shape)(name=m.name)
            for members in points.vectors.values()
            for m in members
        }
        alone = [v for name, v in values.items() if name not in parts]
        rest = [v for v in outputs if v.name not in parts]
        self._names = [str(v.name) for v in rest]
        inputs_of_model = {v: parts.get(str(v.name), value) for v, value in typed.items()}
        graphs = made_in_jax(model, rest, inputs_of_model, [*alone, *parts.values()])
        groups = {name: [parts[m.name] for m in members] for name, members in points.vectors.items()}
        vectors, graphs = in_vectors(graphs, groups)
        graphs, derived = hoisted(graphs, f"{NUMBER}{of}: ")
        read = numbers_in(graphs)
        self.derivation = Derivation(read, derived, [])
        inputs = [*alone, *vectors, *read]
        self._inputs = [str(v.name) for v in inputs]
        self._in_words: set[str] = set()
        self._counts: set[str] = set()
        if not width_of_models():
            graphs = self._in_32_bits(model, inputs, graphs)
        self._graphs = inputs, graphs
        self._compute = jaxify(inputs, graphs)
        self._bytes: int | None = None

    @property
    def identity(self) -> list[Any]:
        """A key of everything that the recorder computes; see `model.identity`."""
        names = [self._names, self._inputs, self._whole, sorted(self._in_words)]
        return [*self._graphs, *names, self._points.vectors, self._dtypes, width_of_models()]

    def _in_32_bits(self, model: pm.Model, inputs: list[Variable], graphs: list[Variable]) -> list[Variable]:
        """The outputs if integers have 32 bits: two words for each output that may exceed 32 bits."""
        known = bounds_of_values(model, {})
        self._counts = set(known)
        bounds = {}
        for v in inputs:
            names = self._points.names.get(str(v.name), [str(v.name)])
            if set(names) <= set(known):
                bounds[v] = hull(*(known[name] for name in names))
        narrow = In32Bits(list(zip(self._names, graphs, strict=True)), bounds)
        wide = [narrow.is_wide(v) for v in graphs]
        self._in_words = {name for name, is_wide in zip(self._names, wide, strict=True) if is_wide}
        return [
            narrow.words(v) if is_wide else narrow.plain(v) for v, is_wide in zip(graphs, wide, strict=True)
        ]

    def __call__(self, point: dict[str, Any]) -> dict[str, Any]:
        values = dict(zip(self._names, self._compute(*(point[name] for name in self._inputs)), strict=True))
        values |= {name: point[name] for name in self._whole}
        return {name: jnp.asarray(a, self._dtypes.get(name)) for name, a in values.items()}

    def bytes_per_draw(self, points: dict[str, Any], numbers: dict[str, Any]) -> int:
        """The number of bytes of a recorded draw of one chain, given the points of all chains."""
        if self._bytes is None:
            chains = len(next(iter(points.values())))
            of_chains = jax.vmap(lambda point: self(point | numbers))
            recorded = jax.tree.leaves(jax.eval_shape(of_chains, points))
            self._bytes = sum(a.size * a.dtype.itemsize for a in recorded) // chains
        return self._bytes

    def on_host(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """{variable of the model: (chains, draws, ...)}, from the recorded {name: (chains, draws, ...)}.

        Raises
        ------
        pymc.exceptions.SamplingError
            If a count comes near the limit of 32-bit integers.
        """
        recorded = {}
        for name, a in self._points.unpacked(draws, lead=2).items():
            if name in self._counts:
                check_in_32_bits(name, a)
            if name in self._wanted:
                recorded[name] = from_words(a) if name in self._in_words else a
        return recorded


def made_in_jax(
    model: pm.Model,
    outputs: list[Variable],
    inputs: dict[Variable, Variable],
    unknown: list[Variable],
) -> list[Variable]:
    """The outputs as graphs that JAX can compile, of inputs with known shapes.

    Parameters
    ----------
    inputs : {value variable of the model: its replacement}
    unknown : the variables among these inputs that a draw changes

    Raises
    ------
    ValueError, NotImplementedError
        If an output draws random numbers, or has a size that differs from draw to draw.
    """
    shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
    if any(not hasattr(v.type, "dtype") for v in shared):
        raise ValueError(
            "A Deterministic draws random numbers of its own, which is not done here. Leave it out with "
            "var_names=, and draw it with pm.sample_posterior_predictive."
        )
    # PyMC copies a graph together with its inputs, so that one `Number` may occur several times with the same
    # name. One copy replaces the others.
    numbers = {str(v.name): v for v in numbers_in(outputs)}
    replaced: dict[Variable, Variable] = {v: pt.constant(v.get_value()) for v in shared}
    replaced |= inputs
    replaced |= {v: numbers[str(v.name)] for v in numbers_in(outputs)}
    by_name = {str(v.name): new for v, new in inputs.items()}
    bounds_of = lambda: {by_name[name]: b for name, b in bounds_of_model(model).items()}
    graphs = with_masks(with_fixed_sizes(rebuild(outputs, replaced, known_size), bounds_of), unknown)
    for output, graph in zip(outputs, graphs, strict=True):
        if isinstance(graph, Sliced):
            raise NotImplementedError(
                f"The Deterministic {output.name!r} has a size that differs from draw to draw. Leave it out "
                "with var_names=, or record it with a value where nothing is selected, pt.switch(z > 0, "
                "x, np.nan)."
            )
    return [graph for graph in graphs if isinstance(graph, Variable)]


def shapes_of(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's value variables, computed where they are not a part of their types."""
    if all(None not in v.type.shape for v in model.value_vars):
        return {str(v.name): v.type.shape for v in model.value_vars}
    return {name: np.shape(value) for name, value in point_of(model).items()}


def from_words(words: np.ndarray) -> np.ndarray:
    """(...) int64, from `words` (..., 2), the lower and the upper 32 bits."""
    low, high = words[..., 0].astype(np.int64), words[..., 1].astype(np.int64)
    return (high << 32) + (low & 0xFFFFFFFF)
