"""Which step moves which variables of a model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import CompoundStep

from pymc_discrete.sampling.block import Block
from pymc_discrete.sampling.discrete import DiscreteBlock
from pymc_discrete.sampling.nuts import NutsBlock
from pymc_discrete.sampling.points import Points
from pymc_discrete.sampling.slice import SliceBlock
from pymc_discrete.steps.auto import AutoStep
from pymc_discrete.steps.base import JaxStep
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.targets.blocks import CONTINUOUS, DISCRETE, refuse_counts_as_floats
from pymc_discrete.targets.names import shown

# what moves the variables of a step inside a compiled chain
BLOCKS: dict[str, Callable[..., Block]] = {DISCRETE: DiscreteBlock, CONTINUOUS: SliceBlock}


def steps_of(model: pm.Model, step: Any, point: dict[str, np.ndarray]) -> list[JaxStep]:
    """The steps given, the continuous ones first, and `AutoStep` for the discrete variables, of the shapes in
    `point`, that they leave.
    """
    refuse_counts_as_floats(model, [str(v.name) for v in model.value_vars])
    asked = [] if step is None else list(step) if isinstance(step, list | tuple) else [step]
    flat = [s for given in asked for s in (given.methods if isinstance(given, CompoundStep) else [given])]
    for s in flat:
        if isinstance(s, type):
            raise TypeError(f"{s.__name__} is the class of a step, not a step: call it, step={s.__name__}().")
        if not isinstance(s, JaxStep):
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
    return sorted(flat, key=lambda s: s.kind != CONTINUOUS)


def blocks_of(
    model: pm.Model,
    steps: list[JaxStep],
    point: dict[str, np.ndarray],
    tune: int,
    target_accept: float,
    nuts: dict[str, Any],
) -> tuple[list[Block], Points]:
    """The blocks of a chain, in the order in which they move, and how the chain holds its values.

    Continuous variables that no step names are moved by NUTS, first of all.
    """
    for s in steps:
        s.renew()
    held = Points(s.target.space for s in steps if isinstance(s, DiscreteStep))
    blocks: list[Block] = [BLOCKS[s.kind](s, tune, held) for s in steps]
    named = {v.name for s in steps for v in s.vars}
    left = [str(v.name) for v in model.value_vars if v.name not in named]
    if left:
        blocks.insert(0, NutsBlock(model, left, point, held, tune, target_accept, **nuts))
    if not blocks:
        raise ValueError("The model has no free variable: there is nothing to sample.")
    return blocks, held
