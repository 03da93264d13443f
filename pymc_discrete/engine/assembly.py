"""The blocks of a compiled chain, made from the steps that move its variables."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.engine.block import Block
from pymc_discrete.engine.collapsed import CollapsedBlock
from pymc_discrete.engine.custom import CustomBlock
from pymc_discrete.engine.discrete import DiscreteBlock
from pymc_discrete.engine.further_variables import FurtherVariables
from pymc_discrete.engine.nuts import NutsBlock
from pymc_discrete.engine.nuts_with_counts import NutsWithCounts
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.slice import SliceBlock
from pymc_discrete.engine.summed import SummedBlock
from pymc_discrete.integrals.augmented import augmented
from pymc_discrete.model.blocks import CONTINUOUS, CUSTOM, DISCRETE
from pymc_discrete.runtime.float32 import floats_are_32_bit
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import collection_paused

_log = logging.getLogger("pymc.discrete")

# {kind of a step: the block that runs the step inside a compiled chain}; blocks move in this order
BLOCKS: dict[str, Callable[..., Block]] = {
    CONTINUOUS: SliceBlock,
    CUSTOM: CustomBlock,
    DISCRETE: DiscreteBlock,
}


def in_order_of_moves(steps: Sequence[Any]) -> list[Any]:
    """The steps in the order in which their blocks move."""
    return sorted(steps, key=lambda s: [*BLOCKS].index(s.kind))


def with_counts(
    model: pm.Model,
    names: list[str],
    point: dict[str, np.ndarray],
    packing: Points,
    tune: int,
    target_accept: float,
    steps: Sequence[Any],
    nuts: dict[str, Any],
) -> NutsWithCounts | None:
    """A NUTS block that moves counts together with continuous variables; None if no step has such counts.

    It is also None if the chains pool their mass matrix, if floats have 32 bits, or if the density has no
    derivative with respect to a count. If there is a block, a line of the log names its counts.

    Parameters
    ----------
    names : continuous value variables that NUTS moves
    packing : which of its discrete variables a chain keeps together in one vector
    """
    found = [s for s in steps if s.kind == DISCRETE and s.along]
    if not found or nuts["pooled"] or floats_are_32_bit():
        return None
    space, counts = found[0].target.space, found[0].along
    try:
        dense = nuts["dense"]
        made = NutsWithCounts(model, names, point, packing, tune, target_accept, space, counts, dense=dense)
        made.smooth.check_in_jax()
    # There is no block if the density takes integers only, or has no derivative with respect to a count.
    except (NotImplementedError, ValueError):
        return None
    _log.info(
        f"NUTS also moves {shown(names)} together with those of {shown(made.of_counts)} that tuning finds "
        "uncertain enough: counts are tied to these variables."
    )
    return made


@collection_paused()
def blocks_of(
    model: pm.Model,
    steps: Sequence[Any],
    point: dict[str, np.ndarray],
    tune: int,
    target_accept: float,
    nuts: dict[str, Any],
    collapsed: Collapsed | None = None,
    fixed: Sequence[str] = (),
    drawn: Collapsed | None = None,
) -> tuple[list[Block], Points]:
    """The blocks of a chain, in the order in which they move, and the vectors in which it keeps its values.

    Continuous variables that no step names are moved by NUTS, before all other blocks, unless they are
    `fixed`.

    Parameters
    ----------
    collapsed : discrete variables of the model that are summed out while NUTS moves
    drawn : the sums by which variables that were removed from the model are drawn, after all other blocks
    """
    for s in steps:
        if s.kind != CUSTOM:
            s.renew()
    # A step with `shared` = True moves variables that another step moves as well: such variables are kept in
    # the vector of the other step.
    spaces = [s.target.space for s in steps if s.kind == DISCRETE and not s.shared]
    packing = Points([*spaces, *(c.density.space for c in (collapsed, drawn) if c)])
    integrating = [s for s in steps if s.kind == DISCRETE and s.integrated]
    integrated = list(dict.fromkeys(name for s in integrating for name in s.integrated))
    # NUTS and all steps move with coefficients integrated out, so that the coefficients are out of date until
    # the steps have drawn them. Steps must therefore integrate out the same coefficients: otherwise a step
    # would read coefficients of another step that are out of date.
    if len({frozenset(s.integrated) for s in integrating}) > 1 or (integrating and collapsed):
        raise ValueError(
            f"Only one step can move with {shown(integrated)} integrated out, since all others see the old "
            "values of what is integrated out. Give these variables to one step, without collapse=."
        )
    # While NUTS and the steps in `integrating` move, some variables are integrated out and keep their values
    # of the previous draw. So NUTS and these steps come first in each draw: the steps end with new values of
    # the integrated variables, which all other blocks read.
    steps = [*integrating, *(s for s in steps if s not in integrating)]
    blocks: list[Block] = [BLOCKS[s.kind](s, tune, packing) for s in steps]
    summed = collapsed.density.names if collapsed else ()
    assigned = {*summed, *(name for s in steps for name in s.own_variables)}
    left = [str(v.name) for v in model.value_vars if v.name not in {*assigned, *fixed}]
    if given := augmented(model, integrated) if integrated else None:
        # Given the further variables, the scale of all coefficients together hardly changes in a draw, and
        # neither does the scale of their prior. So NUTS on the model itself, without further variables, moves
        # all continuous variables once more at the end of each draw.
        last = NutsBlock(model, [*left, *integrated], point, packing, tune, target_accept, **nuts)
        first: list[Block] = [FurtherVariables(last, given)]
        if moved := [name for name in left if name not in given.beside]:
            options = {**nuts, "integrate": integrated}
            first.append(NutsBlock(model, moved, point, packing, tune, target_accept, **options))
        blocks = [*first, *blocks, last]
    elif collapsed:
        alone = not steps and not fixed
        blocks.insert(0, CollapsedBlock(collapsed, left, point, packing, tune, target_accept, alone, **nuts))
    elif left:
        options = {**nuts, "integrate": integrated}
        if nuts["dense"] == "auto" and not integrated:
            # If nothing is summed or integrated out, dense="auto" means a diagonal mass matrix: given the
            # discrete variables, few densities have a ridge, and compiling NUTS for diagonal and dense
            # matrices takes a third longer.
            options["dense"] = False
        by_nuts: list[Block] = [NutsBlock(model, left, point, packing, tune, target_accept, **options)]
        if along := with_counts(model, left, point, packing, tune, target_accept, steps, nuts):
            by_nuts.append(along)
        blocks = [*by_nuts, *blocks]
    if drawn:
        blocks.append(SummedBlock(drawn, packing, point))
    if not blocks:
        raise ValueError("The model has no free variable: there is nothing to sample.")
    return blocks, packing
