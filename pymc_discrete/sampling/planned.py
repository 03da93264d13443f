"""The plan of a call of `pmd.sample`, made before anything is compiled."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.block import Block
from pymc_discrete.engine.counts import CountsOfValues
from pymc_discrete.engine.ladder import Ladder
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.program import recorded
from pymc_discrete.engine.starts import starts, without_starts_of
from pymc_discrete.model.initial import point_of
from pymc_discrete.sampling.division import steps_of, steps_on, summed_on_path
from pymc_discrete.sampling.options import collapse_by_names
from pymc_discrete.sampling.results import OF_DRAWS, log_likelihood_of
from pymc_discrete.tempering.path import path
from pymc_discrete.tempering.tempered import BETA, check_proper


class PlannedRun(NamedTuple):
    """The plan of a call of `pmd.sample`: the model that it samples, the blocks that move, the recorded
    variables.

    Attributes
    ----------
    model : the user's model
    moved : the model that is sampled, which is tempered if the user asks for it
    still : variables of `moved` that no block moves
    drawn : the sums by which variables of `model` that were summed out of `moved` are drawn, or None
    point : {value variable: array}, the default start, of `model` and of `moved`
    steps : the steps of the variables
    blocks : the blocks of a chain, in the order in which they move
    packing : which discrete variables a chain keeps together in one vector
    ladder : the replicas of a chain, None without tempering
    likelihood : the log likelihood with variables summed out, if the user asks for it
    outputs : the variables that are recorded in each draw
    counted : the variables of which only counts of values are recorded
    """

    model: pm.Model
    moved: pm.Model
    still: list[str]
    drawn: Collapsed | None
    point: dict[str, np.ndarray]
    steps: list[Any]
    blocks: list[Block]
    packing: Points
    ladder: Ladder | None
    likelihood: Any
    outputs: list[Any]
    counted: CountsOfValues

    @classmethod
    def of(
        cls,
        model: pm.Model,
        step: Any,
        collapse: Any,
        replicas: int | str | None,
        tune: int,
        target_accept: float,
        nuts: dict[str, Any],
        var_names: Sequence[str] | None,
        idata_kwargs: dict[str, Any],
    ) -> "PlannedRun":
        """Plan a call of `sample` from its arguments, and log how each variable is moved.

        The argument `replicas` is the number of replicas of each chain, or "auto"; None without tempering.
        """
        moved, still, drawn = model, list[str](), None
        if replicas is not None:
            check_proper(model)
            moved, drawn = path(model, summed_on_path(model, step, collapse))
            step, still = steps_on(moved, model, step), [BETA]
            collapse = False if drawn else collapse_by_names(collapse)
        point = point_of(moved) if drawn is None else point_of(model) | point_of(moved)
        steps, collapsed = steps_of(moved, step, point, collapse, still)
        summed = [name for sums in (collapsed, drawn) if sums for name in sums.density.names]
        likelihood = log_likelihood_of(model, idata_kwargs, summed, var_names)
        blocks, packing = blocks_of(moved, steps, point, tune, target_accept, nuts, collapsed, still, drawn)
        ladder = None if replicas is None else Ladder(moved, packing, replicas, tune)
        outputs, counted = recorded(model, var_names), CountsOfValues()
        if var_names is None and not any(idata_kwargs.get(group) for group in OF_DRAWS):
            counted = CountsOfValues.of(blocks, packing, tune, names_of(model))
            outputs = [v for v in outputs if v.name not in counted.names]
        return cls(
            model, moved, still, drawn, point, steps, blocks, packing, ladder, likelihood, outputs, counted
        )

    def starts(
        self, initvals: Any, points: int, seed: np.random.SeedSequence, with_gradient: bool
    ) -> list[dict[str, np.ndarray]]:
        """The starting points of the chains, found by `engine.starts.starts`."""
        given = initvals if self.drawn is None else without_starts_of(initvals, self.drawn.density.names)
        return starts(self.moved, self.blocks, self.packing, given, points, seed, with_gradient, self.still)


def names_of(model: pm.Model) -> set[str]:
    """All names that a result of the model may have: of variables, of dims, of coordinates."""
    dims = {str(d) for axes in model.named_vars_to_dims.values() for d in axes}
    return {*map(str, model.named_vars), *dims, *map(str, model.coords)}
