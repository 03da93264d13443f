"""The perturb-and-max-product step."""

import warnings
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from pymc.step_methods.state import dataclass_state

from pymc_discrete.factor_graphs.compatible import check
from pymc_discrete.factor_graphs.kernel import perturb_and_max_product
from pymc_discrete.factor_graphs.max_product import check_sweeps
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.tuning import Learned
from pymc_discrete.steps.discrete import DiscreteStep, DiscreteStepState
from pymc_discrete.targets.names import shown

POSSIBLE = 0.9  # if a smaller share of draws ends at a possible configuration, the user is warned


@dataclass_state
class PerturbAndMaxProductState(DiscreteStepState):
    n_sweeps: int = field(metadata={"frozen": True})
    damping: float = field(metadata={"frozen": True})


class PerturbAndMaxProduct(DiscreteStep):
    """Perturb-and-max-product (PMP): approximate, nearly independent draws of a discrete factor graph.

    A draw adds Gumbel noise to the log probability of every value of every site, and searches for the most
    probable configuration by max-product message passing. The draws of a block do not depend on one another,
    also where every local sampler gets stuck, but their distribution is not the posterior. Use it where no
    exact method mixes, and compare it with an exact one on a smaller model of the same kind.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable that is not a constrained vector.
    n_sweeps : int, default 200
        Number of updates of all messages in a draw.
    damping : float in [0, 1), default 0.5
        The weight of a message's previous value in its update.
    transitions : "auto" or int
        One by default, since a draw does not depend on the previous one.
    differences : {"exact", "auto"}
        Both have the same effect: the factors are the model's own terms.
    support, window, start, model, blocked, rng, initial_point, compile_kwargs
        As in `BlockGibbs`.

    Raises
    ------
    ValueError
        Where the log density of the block is not a sum of tables over a few sites and of quadratic forms, as
        with neural potentials (the message names the term), and for variables without bounds.

    Warns
    -----
    UserWarning
        Always: the draws are biased.

    Notes
    -----
    Exact where no two sites interact. Elsewhere the bias does not fall with `n_sweeps` or with the
    number of draws.

    Sampler statistics: `accepted` (0 where max-product ended at a configuration that the model excludes: the
    draw is the one before), `discrete_n_moved`, `lp`, and `discrete_approximate`, 1.

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, Perturb-and-max-product: Sampling and learning in
    discrete energy-based models, Algorithm 1.

    Examples
    --------
    >>> with pm.Model():
    ...     s = 2 * pm.Bernoulli("x", 0.5, shape=(10, 10)) - 1
    ...     pm.Potential("energy", 0.3 * (s * pt.roll(s, 1, 0)).sum() + 0.3 * (s * pt.roll(s, 1, 1)).sum())
    ...     idata = pm.sample(step=pmd.PerturbAndMaxProduct())  # doctest: +SKIP
    """

    name = "perturb_and_max_product"
    with_numbers = False  # its factor graph is made once, of constant tables where the model has them
    _state_class = PerturbAndMaxProductState
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        **DiscreteStep.stats_dtypes_shapes,
        "discrete_approximate": (np.float64, []),
    }
    reported: ClassVar[dict[str, str]] = {"discrete_approximate": "approximate"}

    def __init__(self, vars: Any = None, *, n_sweeps: int = 200, damping: float = 0.5, **options: Any):
        check_sweeps(n_sweeps, damping)
        if options.get("differences") == "gradient":
            raise ValueError(
                "PerturbAndMaxProduct takes the model's own terms, and no gradient. Leave differences out."
            )
        if options.get("integrate") is not None:
            raise ValueError(
                "PerturbAndMaxProduct needs a factor graph, and an integral joins all sites. Leave out "
                "integrate=, or use pmd.BlockGibbs."
            )
        options["differences"] = "exact"
        self.n_sweeps, self.damping = n_sweeps, damping
        super().__init__(vars, **options)
        warnings.warn(
            "PerturbAndMaxProduct is approximate: its draws are biased, by an amount that more sweeps or "
            "draws do not lessen. Use pmd.AutoStep() for draws of the posterior.",
            UserWarning,
            stacklevel=2,
        )

    def check_density(self) -> None:
        check(self.density)

    def _make_kernel(self) -> tuple[Kernel, dict[str, float]]:
        return perturb_and_max_product(self.n_sweeps, self.damping)

    def expected_moves(self) -> float:
        return float(self.target.space.d)

    def _auto_transitions(self, n_moves: float) -> int:
        return 1

    def complaints(self, learned: Learned, tune_draws: int) -> list[str]:
        share = learned.adaptation.accept
        if tune_draws < 100 or share >= POSSIBLE:
            return []
        return [
            f"PerturbAndMaxProduct: {1 - share:.0%} of the draws of {shown(self._names)} were "
            "configurations that the model excludes, and were left out. Raise n_sweeps, or replace hard "
            "constraints by large penalties."
        ]
