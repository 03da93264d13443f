"""The step of a whole model, whose draws one program makes ahead."""

import logging
from collections.abc import Sequence
from typing import Any

import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.state import WithSamplingState
from pymc.util import get_random_generator
from pytensor.graph.basic import Variable

from pymc_discrete.engine.nuts_options import OfNuts
from pymc_discrete.model.in_tensors import values_by_name
from pymc_discrete.runtime.names import shown
from pymc_discrete.steps.ahead import NUTS_STATISTICS
from pymc_discrete.steps.draws_ahead import DrawsAhead, WhatMoves
from pymc_discrete.steps.nuts_in_jax import NutsInJax

_log = logging.getLogger("pymc.discrete")


class WholeModel(DrawsAhead, CompoundStep):
    """Several steps that together move a whole model, and make their draws ahead.

    Parameters
    ----------
    methods : steps of `pymc_discrete`
    by_nuts : names of the continuous value variables that none of these steps moves, and NUTS moves
    of_nuts : options of NUTS
    """

    sampling_state = WithSamplingState.sampling_state

    def __init__(self, methods: Sequence[Any], by_nuts: Sequence[str], of_nuts: OfNuts):
        super().__init__(methods)
        self.model: pm.Model = methods[0].model
        self.by_nuts, self.of_nuts = list(by_nuts), of_nuts
        self.settings = f"{self.named()}; {of_nuts}"
        before = [NUTS_STATISTICS] if by_nuts else []
        if by_nuts:
            _log.info(f"{self.who}: NUTS moves {shown(by_nuts)} in the same program.")
        self.declare(*before, *(m.stats_dtypes_shapes for m in self.methods))
        self.start_ahead()

    @property
    def who(self) -> str:
        return "AutoStep"

    def named(self) -> str:
        """The steps and their variables, as messages name them."""
        return "; ".join(m.named() for m in self.methods)

    def moves(self) -> WhatMoves:
        steps: list[Any] = []
        summed: list[str] = []
        moved = [*self.by_nuts]
        slots = [0]  # slots[0]: the place of NUTS's statistics, 0 unless a step runs NUTS
        instead = None
        for n, m in enumerate(self.methods, int(bool(self.by_nuts))):
            if isinstance(m, NutsInJax):
                of_method = m.moves()
                summed += of_method.summed
                moved += of_method.by_nuts
                instead = of_method.instead
                slots[0] = n
            own = of_method.steps if isinstance(m, NutsInJax) else [m]
            steps += own
            slots += [n] * len(own)
        return WhatMoves(steps, summed, moved, self.of_nuts, slots, instead)

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[Any], dict[str, list[Any]]]:
        self.expect_chains(n_chains)
        columns, values = super()._progressbar_config(n_chains)
        if not self.by_nuts:
            return columns, values
        of_nuts, values_of_nuts = pm.NUTS._progressbar_config(n_chains)
        return [*of_nuts, *columns], {**values_of_nuts, **values}

    def _make_progressbar_update_functions(self) -> list[Any]:
        of_nuts = pm.NUTS._make_progressbar_update_functions() if self.by_nuts else ()
        return [*of_nuts, *super()._make_progressbar_update_functions()]

    @property
    def vars(self) -> list[Variable]:
        values = values_by_name(self.model)
        own = [var for m in self.methods for var in m.vars]
        return [*own, *(values[name] for name in self.by_nuts)]

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        rng = get_random_generator(rng, copy=False)
        super().setup_chain(rng, tune, draws)
        self.ahead.set_up(rng, tune, draws)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        return self.ahead.step(point)

    def stop_tuning(self) -> None:
        for m in self.methods:
            m.tune = False
        self.ahead.stop_tuning()
