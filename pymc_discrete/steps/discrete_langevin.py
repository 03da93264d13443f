"""The discrete Langevin step."""

import warnings
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from pymc.step_methods.state import dataclass_state

from pymc_discrete.kernels.discrete_langevin import discrete_langevin
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.steps.step import DiscreteStep, DiscreteStepState, check_options

SMALLEST_SCALE = 0.5


@dataclass_state
class DiscreteLangevinState(DiscreteStepState):
    proposal: str = field(metadata={"frozen": True})
    step_size: float | str = field(metadata={"frozen": True})
    adjusted: bool = field(metadata={"frozen": True})
    balancing: str = field(metadata={"frozen": True})
    sums: Any


class DiscreteLangevin(DiscreteStep):
    """Discrete Langevin samplers: all sites move at once, each on its own, accepted or rejected together.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable that is no constrained vector.
    proposal : {"dlp", "dlmc"}
        "dlp" is the discrete Langevin proposal (DMALA); "dlmc" the continuous-time form, usually the better one.
    step_size : "adapt" or positive float, default "adapt"
        alpha of "dlp", the time h of "dlmc". "adapt" tunes it to an acceptance of 0.574 (Sun, Dai and Schuurmans 2022).
    adjusted : bool, default True
        False accepts every proposal: fast, and biased, by more the larger the step; `accept` in the sampler statistics is what the
        acceptance would have been.
    balancing : {"sqrt", "barker", "min", "max"}
        How a probability ratio t becomes a weight: sqrt(t) (the paper's), t/(1+t), min(1, t), max(1, t).
    differences, transitions, support, window, start, model, blocked, rng, initial_point, compile_kwargs
        As in `GibbsWithGradients`.

    Raises
    ------
    ValueError
        For variables or options that cannot be sampled so, each with the reason and the remedy.

    Warns
    -----
    UserWarning
        With adjusted=False: the draws are biased.

    Notes
    -----
    Distances of "dlp" are 1 between categories and squared between ordered values, whose unit is the standard deviation of the site in
    the first half of tuning (its prior guess before), or 1 where there are but two.

    Sampler statistics: those of `GibbsWithGradients`, and `discrete_step_size`.

    References
    ----------
    Zhang, Liu and Liu 2022, A Langevin-like Sampler for Discrete Distributions.
    Sun, Dai, Dai, Zhou and Schuurmans 2023, Discrete Langevin Samplers via Wasserstein Gradient Flow.
    """

    name = "discrete_langevin"
    _state_class = DiscreteLangevinState
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {**DiscreteStep.stats_dtypes_shapes, "discrete_step_size": (np.float64, [])}
    reported: ClassVar[dict[str, str]] = {"discrete_step_size": "step_size"}

    def __init__(
        self,
        vars: Any = None,
        *,
        proposal: str = "dlp",
        step_size: float | str = "adapt",
        adjusted: bool = True,
        balancing: str = "sqrt",
        **options: Any,
    ):
        check_options(type(self), options)
        self.proposal, self.step_size, self.adjusted, self.balancing = proposal, step_size, adjusted, balancing
        super().__init__(vars, **options)
        if not adjusted:
            warnings.warn(
                "DiscreteLangevin(adjusted=False) samples a biased distribution; the bias falls with step_size. Leave adjusted=True for "
                "draws of the posterior.",
                UserWarning,
                stacklevel=2,
            )

    def _make_kernel(self) -> tuple[Kernel, dict[str, Any]]:
        return discrete_langevin(self.proposal, self.step_size, self.adjusted, self.balancing)

    # ------------------------------------------------------------ the unit of distance of each ordered site
    def _reset(self) -> None:
        super()._reset()
        space = self.target.space
        self.sums = np.zeros((3, space.d))  # of 1, x and x^2, less the start
        if self._preconditioned:
            self._set("scale", self._guess())

    @property
    def _preconditioned(self) -> bool:
        space = self.target.space
        ordered = ~space.nominal & (space.windowed | (space.upper - space.lower > 1))
        return self.proposal == "dlp" and bool(ordered.any())

    def _guess(self) -> np.ndarray:
        """A uniform's standard deviation on a finite support, a Poisson's where there is a window."""
        space = self.target.space
        x = np.abs(np.concatenate([np.ravel(self._density.start[v.name]) for v in space.variables]))
        uniform = np.sqrt(np.maximum((np.minimum(space.upper - space.lower, 1e6) + 1.0) ** 2 - 1, 1) / 12)
        return self._units(np.where(space.windowed, np.sqrt(x), uniform))

    def _units(self, sd: np.ndarray) -> np.ndarray:
        """Standard deviations as units, 1 where there are but two values."""
        space = self.target.space
        return np.where(space.windowed | (space.upper - space.lower > 1), np.maximum(sd, SMALLEST_SCALE), 1.0)

    def _adapt(self, x: np.ndarray, accept: float, n_moves: float, moved: float) -> None:
        super()._adapt(x, accept, n_moves, moved)
        if not self._preconditioned:
            return
        seen = self.adaptation.seen
        if seen <= self.tune_draws / 2:
            self.sums = self.sums + np.stack([np.ones_like(x), x, x**2]).astype(float)
        if seen in (self.tune_draws // 4, self.tune_draws // 2) and seen >= 20:
            count, total, squares = self.sums
            sd = np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0))
            self._set("scale", self._units(sd))
            self.sums = np.zeros_like(self.sums)
