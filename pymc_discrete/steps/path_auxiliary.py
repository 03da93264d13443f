"""The path auxiliary step."""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from pymc.step_methods.state import dataclass_state

from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.pair_moves import refuse_estimates
from pymc_discrete.kernels.path_auxiliary import path_auxiliary
from pymc_discrete.steps.discrete import DiscreteStep, DiscreteStepState


@dataclass_state
class PathAuxiliaryState(DiscreteStepState):
    path_length: float | str | tuple[int, int] = field(metadata={"frozen": True})
    recompute: bool = field(metadata={"frozen": True})
    backtrack: bool = field(metadata={"frozen": True})
    balancing: str = field(metadata={"frozen": True})


class PathAuxiliary(DiscreteStep):
    """The path auxiliary samplers PAFS and PAS: a path of single-site moves, accepted or rejected as a whole.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable.
    path_length : "adapt", float or (lower, upper), default "adapt"
        The mean X of a path's length, which is uniform on 1..2X-1, or the range of the length. "adapt" tunes
        the mean to an acceptance of 0.574 (Sun, Dai and Schuurmans 2022).
    recompute : bool, default False
        False is PAFS, which computes differences at the two ends of a path. True is PAS, which computes them
        at each of its points. That is worth its price only if a move changes few of the differences, or if it
        changes them so much that the differences at the start mislead the path (parity constraints).
    backtrack : bool, default True
        Whether a path may change a site more than once. If not, long paths are rejected more often, and cost
        less on an accelerator.
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

    Notes
    -----
    Sampler statistics: those of `GibbsWithGradients`, and `discrete_path_length`, the mean length.

    References
    ----------
    Sun, Dai, Xia and Ramamurthy 2022, Path Auxiliary Proposal for MCMC in Discrete Space, Algorithm 1.
    """

    name = "path_auxiliary"
    constrained = True
    _state_class = PathAuxiliaryState
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        **DiscreteStep.stats_dtypes_shapes,
        "discrete_path_length": (np.float64, []),
    }
    reported: ClassVar[dict[str, str]] = {"discrete_path_length": "path_length"}

    def __init__(
        self,
        vars: Any = None,
        *,
        path_length: float | str | tuple[int, int] = "adapt",
        recompute: bool = False,
        backtrack: bool = True,
        balancing: str = "sqrt",
        **options: Any,
    ):
        self.path_length, self.recompute, self.backtrack, self.balancing = (
            path_length,
            recompute,
            backtrack,
            balancing,
        )
        super().__init__(vars, **options)

    def check_density(self) -> None:
        if self.recompute:
            refuse_estimates(self.target)

    def _make_kernel(self) -> tuple[Kernel, dict[str, float]]:
        return path_auxiliary(self.path_length, self.recompute, self.backtrack, self.balancing)

    def expected_moves(self) -> float:
        return self.tuner.params["path_length"]
