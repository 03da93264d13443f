"""The blocks of a compiled chain, made from the steps that move its variables."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
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
from pymc_discrete.integrals.augmented import AugmentedModel, augmented
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


def steps_that_integrate(steps: Sequence[Any], collapses: bool) -> tuple[list[Any], list[str]]:
    """The steps that move with continuous variables integrated out, and the names of these variables.

    Parameters
    ----------
    collapses : whether discrete variables are summed out while NUTS moves

    Raises
    ------
    ValueError
        If another step, or NUTS with variables summed out, would read variables that these steps integrate
        out, whose values are out of date until the steps have drawn them.
    """
    found = [s for s in steps if s.kind == DISCRETE and s.integrated]
    integrated = list(dict.fromkeys(name for s in found for name in s.integrated))
    if len({frozenset(s.integrated) for s in found}) > 1 or (found and collapses):
        raise ValueError(
            f"Only one step can move with {shown(integrated)} integrated out, since all others see the old "
            "values of what is integrated out. Give these variables to one step, without collapse=."
        )
    return found, integrated


def augmented_by(
    given: AugmentedModel,
    for_nuts: Callable[..., NutsBlock],
    names: list[str],
    integrated: list[str],
    nuts: dict[str, Any],
    others: list[Block],
) -> list[Block]:
    """All blocks of a model whose coefficients are integrated out given further variables.

    Given the further variables, the scale of all coefficients together hardly changes in a draw, and neither
    does the scale of their prior. So NUTS on the model itself, without further variables, moves all
    continuous variables once more at the end of each draw.

    Parameters
    ----------
    for_nuts : makes the block in which NUTS moves the variables with given names
    names : continuous variables that no step moves
    others : the blocks of the steps
    """
    last = for_nuts([*names, *integrated], **nuts)
    first: list[Block] = [FurtherVariables(last, given)]
    if moved := [name for name in names if name not in given.beside]:
        first.append(for_nuts(moved, **nuts, integrate=integrated))
    return [*first, *others, last]


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
    integrating, integrated = steps_that_integrate(steps, collapsed is not None)
    # While NUTS and the steps in `integrating` move, some variables are integrated out and keep their values
    # of the previous draw. So NUTS and these steps come first in each draw: the steps end with new values of
    # the integrated variables, which all other blocks read.
    steps = [*integrating, *(s for s in steps if s not in integrating)]
    blocks: list[Block] = [BLOCKS[s.kind](s, tune, packing) for s in steps]
    summed = collapsed.density.names if collapsed else ()
    assigned = {*summed, *(name for s in steps for name in s.own_variables)}
    left = [str(v.name) for v in model.value_vars if v.name not in {*assigned, *fixed}]
    for_nuts = partial(NutsBlock, model, point=point, points=packing, tune=tune, target_accept=target_accept)
    if given := augmented(model, integrated) if integrated else None:
        blocks = augmented_by(given, for_nuts, left, integrated, nuts, blocks)
    elif collapsed:
        alone = not steps and not fixed
        blocks.insert(0, CollapsedBlock(collapsed, left, point, packing, tune, target_accept, alone, **nuts))
    elif left:
        # If nothing is summed or integrated out, dense="auto" means a diagonal mass matrix: given the
        # discrete variables, few densities have a ridge, and compiling NUTS for diagonal and dense matrices
        # takes a third longer.
        diagonal = {"dense": False} if nuts["dense"] == "auto" and not integrated else {}
        by_nuts: list[Block] = [for_nuts(left, **(nuts | diagonal), integrate=integrated)]
        if along := with_counts(model, left, point, packing, tune, target_accept, steps, nuts):
            by_nuts.append(along)
        blocks = [*by_nuts, *blocks]
    if drawn:
        blocks.append(SummedBlock(drawn, packing, point))
    if not blocks:
        raise ValueError("The model has no free variable: there is nothing to sample.")
    return blocks, packing
