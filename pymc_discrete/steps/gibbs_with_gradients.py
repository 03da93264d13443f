"""The Gibbs-With-Gradients step."""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from pymc.step_methods.state import dataclass_state

from pymc_discrete.kernels.gibbs_with_gradients import gibbs_with_gradients
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.pair_moves import refuse_estimates
from pymc_discrete.steps.discrete import DiscreteStep, DiscreteStepState


@dataclass_state
class GibbsWithGradientsState(DiscreteStepState):
    n_flips: float | str = field(metadata={"frozen": True})
    balancing: str = field(metadata={"frozen": True})


class GibbsWithGradients(DiscreteStep):
    """Gibbs-With-Gradients for discrete variables: moves weighted by the change of the log density.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable and, in `pm.sample`, those continuous ones
        that PyMC would give to NUTS: one program then makes the draws of the whole model ahead.
    n_flips : float or "adapt", default 1
        Mean number of moves in a proposal, at least 1; above 1 the multi-sample variant (App. D.2, Eq. 27).
        "adapt" tunes it to an acceptance of 0.574 (Sun, Dai and Schuurmans 2022).
    balancing : {"sqrt", "barker", "min", "max"}
        How a probability ratio t becomes a weight: sqrt(t) (the paper's), t/(1+t), min(1, t), max(1, t).
    differences : {"auto", "exact", "gradient"}
        Where the local differences come from; see `target_from_model`.
    transitions : "auto" or int
        Transitions per draw; by default at least one pass over the sites. A draw makes one transition more
        with probability 1/2, because an even number of flips never changes the parity on a flat target.
    support : {name: (lower, upper)}, optional
        Inclusive bounds of variables whose distribution does not determine them.
    window : "auto", "geometric", int or {name: one of these}
        Neighbours of integers without bounds, or with more than 256 values where evaluating all of them is
        too expensive.
    start : {"point", "dispersed"}
        Where a chain starts: at PyMC's initial point (the same for every chain of a mixed model), or at a
        random state of positive density.
    integrate : None, "auto", or a list of variables or names
        Continuous variables in which, given all else, the log density is a quadratic form, such as the
        coefficients of a regression with Normal priors and errors. They are integrated out while the discrete
        variables move, and drawn at the end of each draw. "auto" takes all of them that share a term with the
        block. In `sample`, NUTS moves the other continuous variables with them integrated out, too.
    target_accept : float, default 0.8
        Acceptance that the step size of NUTS is tuned to, where the step moves continuous variables.
    nuts : dict, optional
        "max_treedepth" (10) and "dense" ("auto") of that NUTS, as in `sample`, which takes both itself.
    model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs` has no effect, since this step compiles through JAX.

    Attributes
    ----------
    target : Target
    kernel : Kernel
    params : {"n_flips": float}
    transitions : int

    Raises
    ------
    ValueError
        For variables or options that this step cannot take. The message gives the reason and the remedy.

    Notes
    -----
    Sampler statistics: `accept` (mean acceptance probability over a draw's transitions), `accepted`
    (share accepted), `discrete_n_moved` (sites that ended the draw at another value), `discrete_n_flips`,
    `lp`.

    References
    ----------
    Grathwohl, Swersky, Hashemi, Duvenaud and Maddison 2021, Oops I Took A Gradient: Scalable
    Sampling for Discrete Distributions.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.3, shape=10)
    ...     idata = pm.sample(step=pmd.GibbsWithGradients())  # doctest: +SKIP
    """

    name = "gibbs_with_gradients"
    constrained = True
    _state_class = GibbsWithGradientsState
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        **DiscreteStep.stats_dtypes_shapes,
        "discrete_n_flips": (np.float64, []),
    }
    reported: ClassVar[dict[str, str]] = {"discrete_n_flips": "n_flips"}

    def __init__(
        self, vars: Any = None, *, n_flips: float | str = 1, balancing: str = "sqrt", **options: Any
    ):
        self.n_flips, self.balancing = n_flips, balancing
        super().__init__(vars, **options)

    def check_density(self) -> None:
        refuse_estimates(self.target)

    def _make_kernel(self) -> tuple[Kernel, dict[str, float]]:
        return gibbs_with_gradients(self.n_flips, self.balancing)

    @property
    def _moves_one_site(self) -> bool:
        return self.n_flips == 1

    def expected_moves(self) -> float:
        return self.tuner.params["n_flips"]
