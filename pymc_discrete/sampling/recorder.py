"""The variables that are recorded: computed inside the program, and unpacked on the host."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.reuse import MODELS, Kept
from pymc_discrete.sampling.points import Points
from pymc_discrete.targets.graph.bounds import hull
from pymc_discrete.targets.graph.in_32_bits import In32Bits, bounds_of_values, check_in_32_bits
from pymc_discrete.targets.graph.jaxify import jaxify
from pymc_discrete.targets.graph.masks import Sliced, with_masks
from pymc_discrete.targets.graph.stacking import in_vectors
from pymc_discrete.targets.model_settings import width_of_models
from pymc_discrete.targets.structure_of_model import key_of_model, key_of_object

_kept: Kept["Recorder"] = Kept(MODELS)


class Recorder:
    """A JAX function (packed point) -> {name: array} that computes `outputs`.

    A vector of `Points` is returned whole if any of its parts is an output. If integers have 32 bits, one
    that may exceed them is returned as two words. `on_host` turns both back into variables of the model.

    Parameters
    ----------
    model : pm.Model
    outputs : variables of the model, in terms of its value variables
    points : how a chain packs its values
    dtypes : {variable or vector: type}, for those that are not recorded in the type that the model gives them

    Raises
    ------
    ValueError, NotImplementedError
        If an output draws random numbers, or has a size that differs from draw to draw.
    """

    @classmethod
    def of(
        cls, model: pm.Model, outputs: list[Variable], points: Points, dtypes: dict[str, Any]
    ) -> "Recorder":
        """A recorder, the same one for models with equal keys."""
        names = tuple(str(v.name) for v in outputs)
        key = (key_of_model(model), names, key_of_object([points.names, dtypes]), width_of_models())
        return _kept.get(key, lambda: cls(model, outputs, points, dtypes))

    def __init__(self, model: pm.Model, outputs: list[Variable], points: Points, dtypes: dict[str, Any]):
        shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
        if any(not hasattr(v.type, "dtype") for v in shared):
            raise ValueError(
                "A Deterministic draws random numbers of its own, which is not done here. Leave it out with "
                "var_names=, and draw it with pm.sample_posterior_predictive."
            )
        values = {str(v.name): v for v in model.value_vars}
        parts = {
            m.name: pt.tensor(m.name, shape=m.shape, dtype=values[m.name].type.dtype)
            for members in points.vectors.values()
            for m in members
        }
        self._points, self._dtypes, self._wanted = points, dtypes, {str(v.name) for v in outputs}
        self._whole = [
            name for name, members in points.vectors.items() if any(m.name in self._wanted for m in members)
        ]
        rest = [v for v in outputs if v.name not in parts]
        self._names = [str(v.name) for v in rest]
        replaced = {v: pt.constant(v.get_value()) for v in shared} | {
            values[name]: v for name, v in parts.items()
        }
        groups = {name: [parts[m.name] for m in members] for name, members in points.vectors.items()}
        unknown = [*(v for name, v in values.items() if name not in parts), *parts.values()]
        made_in_jax = with_masks(clone_replace(rest, replaced), unknown)
        for name, graph in zip(self._names, made_in_jax, strict=True):
            if isinstance(graph, Sliced):
                raise NotImplementedError(
                    f"The Deterministic {name!r} has a size that differs from draw to draw. Leave it out "
                    "with var_names=, or record it with a value where nothing is selected, pt.switch(z > 0, "
                    "x, np.nan)."
                )
        vectors, graphs = in_vectors([graph for graph in made_in_jax if isinstance(graph, Variable)], groups)
        inputs = [*(v for name, v in values.items() if name not in parts), *vectors]
        self._inputs = [str(v.name) for v in inputs]
        self._in_words: set[str] = set()
        self._counts: set[str] = set()
        if not width_of_models():
            known = bounds_of_values(model, {})
            made_of = {v: points.names.get(str(v.name), [str(v.name)]) for v in inputs}
            bounds = {
                v: hull(*(known[name] for name in names))
                for v, names in made_of.items()
                if set(names) <= set(known)
            }
            in_32_bits = In32Bits(list(zip(self._names, graphs, strict=True)), bounds)
            self._in_words = {
                name for name, v in zip(self._names, graphs, strict=True) if in_32_bits.is_wide(v)
            }
            self._counts = set(known)
            graphs = [in_32_bits.words(v) if in_32_bits.is_wide(v) else in_32_bits.plain(v) for v in graphs]
        self._compute = jaxify(inputs, graphs)
        self._bytes: int | None = None

    def __call__(self, point: dict[str, Any]) -> dict[str, Any]:
        values = dict(zip(self._names, self._compute(*(point[name] for name in self._inputs)), strict=True))
        values |= {name: point[name] for name in self._whole}
        return {name: jnp.asarray(a, self._dtypes.get(name)) for name, a in values.items()}

    def bytes_per_draw(self, points: dict[str, Any]) -> int:
        """The bytes that a recorded draw of one chain takes, given packed points (chains, ...)."""
        if self._bytes is None:
            chains = len(next(iter(points.values())))
            recorded = jax.tree.leaves(jax.eval_shape(jax.vmap(self), points))
            self._bytes = sum(a.size * a.dtype.itemsize for a in recorded) // chains
        return self._bytes

    def on_host(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """{variable of the model: (chains, draws, ...)} of the recorded {name: (chains, draws, ...)}.

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
                recorded[name] = together(a) if name in self._in_words else a
        return recorded


def together(words: np.ndarray) -> np.ndarray:
    """(...) int64, from `words` (..., 2), the lower and the upper 32 bits."""
    low, high = words[..., 0].astype(np.int64), words[..., 1].astype(np.int64)
    return (high << 32) + (low & 0xFFFFFFFF)
