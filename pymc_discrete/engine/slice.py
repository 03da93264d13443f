"""The block of a compiled chain in which slice sampling moves continuous variables."""

from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from pymc_discrete.engine.block import TUNE, BlockOfStep
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.statistic import MEAN, Statistic
from pymc_discrete.engine.storage import on_host
from pymc_discrete.kernels import slice as slices
from pymc_discrete.runtime.float32 import floats_are_32_bit

STATISTICS_OF_SLICES = dict.fromkeys(
    ("slice_expansions", "slice_shrinkages", "slice_stayed"), Statistic(float, MEAN)
)


class SliceBlock(BlockOfStep):
    """The slice sampler of a step inside a compiled chain.

    Parameters
    ----------
    step : a `steps.reparameterized_slice.ReparameterizedSlice`, with the density and the options
    tune : number of tuning draws
    points : which of its discrete variables a chain keeps together in one vector
    """

    stats: Mapping[str, Statistic] = {"lp": Statistic(float), **STATISTICS_OF_SLICES}

    def __init__(self, step: Any, tune: int, points: Points):
        self.step, self.tune, self.points = step, tune, points
        # A density keeps functions compiled for the precision of its first use, so float32 needs a new one.
        self.density, self.numbers = step.fresh_density() if floats_are_32_bit() else step.density_and_numbers
        self.density.untouched.check_in_jax()
        self.sweeps = 1 if step.asked_sweeps == "auto" else int(step.asked_sweeps)
        self.settings = {TUNE: np.asarray(tune)}

    @property
    def key(self) -> Hashable:
        return (type(self), self.density, self.described())

    def start(self, point: dict[str, np.ndarray]) -> slices.Widths:
        return slices.initial_widths(self.density.size)

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        return float(self.density.compiled("logdensity")(point | self.numbers))

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:
        self.step.check_start(points[0])

    def draw(self, key, t, point: dict[str, Any], widths: slices.Widths):
        others, q = self.density.others(self.points.by_name(point)), self.density.ravel(point)
        tune = point[TUNE]
        q, widths, info = slices.slice_draw(
            key, q, self.density.near(q, others), widths, t < tune, slices.renewal_due(t, tune), self.sweeps
        )
        lp = self.density.block(q, others) + self.density.rest(others)
        stats = {"lp": lp, **dict(zip(STATISTICS_OF_SLICES, info, strict=True))}
        return self.density.joined(q, point), widths, stats

    def complaints(self, state: slices.Widths) -> list[list[str]]:
        learned = jax.tree.map(on_host, state)
        return [
            self.step.complaints(learned._replace(stayed=float(stayed)), self.tune)
            for stayed in learned.stayed
        ]
