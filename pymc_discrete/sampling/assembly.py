"""Which step moves which variables of a model."""

from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import CompoundStep

from pymc_discrete.steps.auto import AutoStep
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.steps.reparameterized_slice import ReparameterizedSlice
from pymc_discrete.targets.blocks import refuse_counts_as_floats
from pymc_discrete.targets.names import shown


def steps_of(
    model: pm.Model, step: Any, point: dict[str, np.ndarray]
) -> list[DiscreteStep | ReparameterizedSlice]:
    """The steps given, the continuous ones first, and `AutoStep` for the discrete variables, of the shapes in
    `point`, that they leave.
    """
    refuse_counts_as_floats(model, [str(v.name) for v in model.value_vars])
    asked = [] if step is None else list(step) if isinstance(step, list | tuple) else [step]
    flat = [s for given in asked for s in (given.methods if isinstance(given, CompoundStep) else [given])]
    for s in flat:
        if isinstance(s, type):
            raise TypeError(f"{s.__name__} is the class of a step, not a step: call it, step={s.__name__}().")
        if not isinstance(s, DiscreteStep | ReparameterizedSlice):
            raise TypeError(
                f"pmd.sample takes the steps of pymc_discrete, got {getattr(type(s), '__name__', s)}. "
                "Continuous variables get NUTS here (see nuts=), or pmd.ReparameterizedSlice; pm.sample "
                "takes all steps."
            )
        if s.model is not model:
            raise ValueError(
                f"{type(s).__name__} was made for another model. Make it in the context of the model that is "
                "sampled."
            )
    named = [v.name for s in flat for v in s.vars]
    twice = sorted({n for n in named if named.count(n) > 1})
    if twice:
        raise ValueError(
            f"{shown(twice)} {'belongs' if len(twice) == 1 else 'belong'} to two steps. Name each variable "
            "once."
        )
    left = [str(v.name) for v in model.discrete_value_vars if v.name not in named and np.size(point[v.name])]
    if left:
        made = AutoStep(left, model=model, initial_point=point, _all_in_jax=True)
        flat += getattr(made, "methods", [made])
    return sorted(flat, key=lambda s: not isinstance(s, ReparameterizedSlice))
