"""One PyMC step for every kernel."""

import logging
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from rich.progress import TextColumn
from rich.table import Column

from pymc_discrete.steps.compiling import announced
from pymc_discrete.steps.fork import refuse_after_fork
from pymc_discrete.steps.not_finite import impossible, raise_not_finite
from pymc_discrete.steps.standing import FEWEST
from pymc_discrete.steps.start import check_start, dispersed
from pymc_discrete.steps.tuning import TunedStep
from pymc_discrete.steps.watch import Watch
from pymc_discrete.targets.in_32_bits import check_in_32_bits
from pymc_discrete.targets.model_settings import model_settings, width_of_models

_log = logging.getLogger("pymc.discrete")


@dataclass_state
class DiscreteStepState(StepMethodState):
    asked_transitions: int | str = field(metadata={"frozen": True})
    start: str = field(metadata={"frozen": True})
    tune: bool
    checked: bool
    tune_draws: int
    adaptation: Any
    sums: Any
    params: dict
    transitions: int


class DiscreteStep(TunedStep):
    """A PyMC step that runs a kernel of `pymc_discrete` on a block of discrete variables.

    A subclass gives `name`, its options and `_make_kernel`, and `reported` for the parameters worth showing.

    Attributes
    ----------
    target : Target
    kernel : Kernel
    params : pytree of the kernel's parameters
    transitions : int, transitions per draw
    """

    name = "discrete_step"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "accept": (np.float64, []),
        "accepted": (np.float64, []),
        "discrete_n_moved": (np.int64, []),
        "model_logp": (np.float64, []),
    }
    _state_class: type = DiscreteStepState
    reported: ClassVar[dict[str, str]] = {}  # sampler statistic: the parameter that it shows

    def _reset(self) -> None:
        super()._reset()
        self.checked = False
        self.watch: Watch | None = None

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.tune, self.tune_draws, self.draws = tune > 0, tune, draws
        self._reset()

    @model_settings()
    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        if not self.checked:
            self._first(point)
        graph = self._density.graph
        x = self.target.space.ravel(point)
        if not self.checked and self.start == "dispersed":
            x = dispersed(x, self.target.at(point)[1], self.rng)
        self.checked = True
        others = [point[v.name] for v in graph.others]
        if self.tune and self.adaptation.stuck:
            x = np.asarray(self._settle(self._seed(), x, others))
        y, summary = self._draw(self._seed(), x, others, self.params, self.transitions)
        y, (logp, accept, accepted, moved, n_moves) = np.asarray(y), np.asarray(summary).tolist()
        logp += self._density.untouched.on_host(others)
        new = dict(point)
        for name, part in self.target.space.unravel(y).items():
            new[name] = part.astype(point[name].dtype, copy=False)
        if not logp < np.inf:
            raise_not_finite(graph, new, logp)
        if self.target.space.windowed.any() and not width_of_models():
            for m in self.target.space.members:
                check_in_32_bits(m.name, new[m.name])
        if logp == -np.inf and not self.tune:
            raise SamplingError(impossible(graph, new, self._names))
        stats = {"accept": accept, "accepted": accepted, "discrete_n_moved": int(moved), "model_logp": logp}
        stats.update({stat: self.params[name] for stat, name in self.reported.items()})
        if self.tune:
            self._adapt(y, accept, n_moves, moved)
        elif self.draws >= FEWEST:
            self._note(y, new)
        return new, [stats]

    @property
    def joint(self) -> bool:
        """Whether all sites are drawn at once, given what is not in the block."""
        return False

    @property
    def complete(self) -> bool:
        """Whether the block has all discrete variables of the model."""
        return len(self.model.discrete_value_vars) == len(self._names)

    def _note(self, x: np.ndarray, point: PointType) -> None:
        """After a draw that counts."""
        if self.watch is not None and self.watch.seen == self.draws:  # more draws than were announced
            return
        if self.watch is None:
            self.watch = Watch(
                self.target.space, self.model, (self.joint, self.complete), self.draws, x, point
            )
        self.watch.note(x, point)
        if self.watch.seen == self.draws:
            for text in self.watch.conclusions(self.target, point):
                _log.warning(text)

    def _first(self, point: PointType) -> None:
        """Before a chain's first draw."""
        refuse_after_fork()
        self.renew()
        with announced(f"{self.named()}: the log density and its differences, to check the start"):
            check_start(self.target, point, self.target.space.ravel(point))

    def renew(self) -> None:
        """Build again where pm.Data changed."""
        if self._density.stale():
            self._initial_point = None  # whose shapes are those of the old data
            self._build()
            self._reset()

    def _seed(self) -> np.ndarray:
        return self.rng.integers(2**32, size=2, dtype=np.uint32)

    def stop_tuning(self) -> None:
        super().stop_tuning()
        self._freeze()
        for complaint in self.complaints(self.adaptation, self.tune_draws):
            _log.warning(complaint)

    @staticmethod
    def _progressbar_config(n_chains: int = 1):
        columns = [
            TextColumn("{task.fields[accept]:0.2f}", table_column=Column("Accept", ratio=1)),
            TextColumn("{task.fields[moved]}", table_column=Column("Moved", ratio=1)),
        ]
        return columns, {"accept": [0.0] * n_chains, "moved": [0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions():
        def update_stats(step_stats):
            return {"accept": step_stats["accept"], "moved": step_stats["discrete_n_moved"]}

        return (update_stats,)
