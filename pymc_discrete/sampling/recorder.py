"""What is recorded of a point: computed in the program, and made whole again on the host."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.targets.in_32_bits import In32Bits, bounds_of_values, check_in_32_bits
from pymc_discrete.targets.jaxify import jaxify
from pymc_discrete.targets.model_settings import width_of_models


class Recorder:
    """A JAX function of a model's value variables that returns the tuple of `outputs`.

    Where numbers have 32 bits, an integer that may leave them comes as two words, which `on_host` puts together.

    Parameters
    ----------
    model : pm.Model
    outputs : variables of the model, in terms of its value variables
    """

    def __init__(self, model: pm.Model, outputs: list[Variable]):
        shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
        if any(not hasattr(v.type, "dtype") for v in shared):
            raise ValueError(
                "A Deterministic draws random numbers of its own, which is not done here. Leave it out with var_names=, and draw it with "
                "pm.sample_posterior_predictive."
            )
        names = [str(v.name) for v in outputs]
        outputs = clone_replace(outputs, {v: pt.constant(v.get_value()) for v in shared})
        self._in_words: set[str] = set()
        self._counts: set[str] = set()
        if not width_of_models():
            known = bounds_of_values(model, {})
            made = In32Bits(list(zip(names, outputs, strict=True)), {v: known[str(v.name)] for v in model.discrete_value_vars})
            self._in_words = {name for name, v in zip(names, outputs, strict=True) if made.is_wide(v)}
            self._counts = set(known)
            outputs = [made.words(v) if made.is_wide(v) else made.plain(v) for v in outputs]
        self._compute = jaxify(model.value_vars, outputs)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        return self._compute(*values)

    def on_host(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The draws {name: (chains, draws, ...)} as the model means them.

        Raises
        ------
        pymc.exceptions.SamplingError
            Where a count comes near the end of 32 bits.
        """
        found = {}
        for name, a in draws.items():
            if name in self._counts:
                check_in_32_bits(name, a)
            found[name] = together(a) if name in self._in_words else a
        return found


def together(words: np.ndarray) -> np.ndarray:
    """(...) int64 of their lower and upper 32 bits (..., 2)."""
    low, high = words[..., 0].astype(np.int64), words[..., 1].astype(np.int64)
    return (high << 32) + (low & 0xFFFFFFFF)
