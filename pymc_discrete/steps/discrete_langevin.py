"""The discrete Langevin step."""

import warnings
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from pymc.step_methods.state import dataclass_state

from pymc_discrete.kernels.discrete_langevin import discrete_langevin
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.steps.discrete import DiscreteStep, DiscreteStepState


@dataclass_state
class DiscreteLangevinState(DiscreteStepState):
    proposal: str = field(metadata={"frozen": True})
    step_size: float | str = field(metadata={"frozen": True})
    adjusted: bool = field(metadata={"frozen": True})
    balancing: str = field(metadata={"frozen": True})


class DiscreteLangevin(DiscreteStep):
    """Discrete Langevin samplers: all sites move independently at once, accepted or rejected as a whole.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable that is not a constrained vector.
    proposal : {"dlp", "dlmc"}
        "dlp" is the discrete Langevin proposal (DMALA); "dlmc" the continuous-time form, usually the better
        one.
    step_size : "adapt" or positive float, default "adapt"
        alpha of "dlp", the time h of "dlmc". "adapt" tunes it to an acceptance of 0.574 (Sun, Dai and
        Schuurmans 2022).
    adjusted : bool, default True
        False accepts every proposal: fast and biased, with a bias that grows with the step size. `accept` in
        the sampler statistics is then what the acceptance probability would have been.
    balancing : {"sqrt", "barker", "min", "max"}
        How a probability ratio t becomes a weight: sqrt(t) (the paper's), t/(1+t), min(1, t), max(1, t).
    differences, transitions, support, window, start, integrate, target_accept, nuts
        As in `GibbsWithGradients`.
    model, blocked, rng, initial_point, compile_kwargs
        As in `GibbsWithGradients`.

    Raises
    ------
    ValueError
        For variables or options that this step cannot take. The message gives the reason and the remedy.

    Warns
    -----
    UserWarning
        With adjusted=False: the draws are biased.

    Notes
    -----
    The squared distance of "dlp" is 1 between categories and (k - x)^2 / s^2 between ordinal values. The unit
    s is the standard deviation of the site in the first half of tuning, before that a guess from the support;
    for sites with two values it is 1.

    Sampler statistics: those of `GibbsWithGradients`, and `discrete_step_size`.

    References
    ----------
    Zhang, Liu and Liu 2022, A Langevin-like Sampler for Discrete Distributions.
    Sun, Dai, Dai, Zhou and Schuurmans 2023, Discrete Langevin Samplers via Wasserstein Gradient Flow.
    """

    name = "discrete_langevin"
    _state_class = DiscreteLangevinState
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        **DiscreteStep.stats_dtypes_shapes,
        "discrete_step_size": (np.float64, []),
    }
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
        self.proposal, self.step_size, self.adjusted, self.balancing = (
            proposal,
            step_size,
            adjusted,
            balancing,
        )
        super().__init__(vars, **options)
        if not adjusted:
            warnings.warn(
                "DiscreteLangevin(adjusted=False) samples a biased distribution; the bias falls with "
                "step_size. Leave adjusted=True for draws of the posterior.",
                UserWarning,
                stacklevel=2,
            )

    def _make_kernel(self) -> tuple[Kernel, dict[str, Any]]:
        return discrete_langevin(self.proposal, self.step_size, self.adjusted, self.balancing)
