"""A continuous block of a compiled chain that slice sampling moves."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels import slice as slices
from pymc_discrete.sampling.points import Points
from pymc_discrete.sampling.storage import on_host
from pymc_discrete.steps.reparameterized_slice import ReparameterizedSlice
from pymc_discrete.steps.standing import Leaving
from pymc_discrete.targets.summands import narrow


class SliceBlock:
    """A `ReparameterizedSlice` inside a compiled chain.

    Parameters
    ----------
    step : its density and options
    tune : number of tuning draws
    points : how a chain holds its values

    Attributes
    ----------
    stats : {name of a statistic: its type}
    """

    stats: ClassVar[dict[str, type]] = {
        "lp": float,
        "slice_expansions": float,
        "slice_shrinkages": float,
        "slice_stayed": float,
    }

    def __init__(self, step: ReparameterizedSlice, tune: int, points: Points):
        self.step, self.tune, self.points = step, tune, points
        self.density = (
            step.fresh_density() if narrow() else step.density
        )  # what it keeps has the width of its first use
        self.density.untouched.check_in_jax()
        self.sweeps = 1 if step.asked_sweeps == "auto" else int(step.asked_sweeps)
        self._due = np.append(slices.renewals(tune), False)

    def described(self) -> str:
        """The step, its variables and its options, in a line."""
        return self.step.described()

    def named(self) -> str:
        """What it is and its variables, for a message."""
        return self.step.named()

    def start(self) -> slices.Widths:
        return slices.start(self.density.size)

    def logdensity(self, point: dict[str, Any]):
        """() float, nats, of the whole model."""
        return self.density.logdensity(self.points.by_name(point))

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:
        self.step.check_start(points[0])

    def draw(self, key, t, point: dict[str, Any], widths: slices.Widths):
        """(point, widths, statistics) after draw t."""
        others, q = self.density.others(self.points.by_name(point)), self.density.ravel(point)
        due = jnp.asarray(self._due)[jnp.minimum(t, self.tune)]
        q, widths, info = slices.draw(
            key, q, self.density.near(q, others), widths, t < self.tune, due, self.sweeps
        )
        stats = {
            "lp": self.density.block(q, others) + self.density.rest(others),
            "slice_expansions": info.expansions,
            "slice_shrinkages": info.shrinkages,
            "slice_stayed": info.stayed,
        }
        return self.density.joined(q, point), widths, stats

    def complaints(self, state: slices.Widths) -> list[list[str]]:
        learned = jax.tree.map(on_host, state)
        return [
            self.step.complaints(learned._replace(stayed=float(stayed)), self.tune)
            for stayed in learned.stayed
        ]

    def conclusions(self, state: Any, points: dict[str, np.ndarray], transitions: int) -> list[str]:
        return []  # their draws say it

    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        return {}
