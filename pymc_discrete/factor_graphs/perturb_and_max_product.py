"""Perturb-and-max-product as a kernel for targets that are factor graphs. Its draws are biased."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from pymc_discrete.factor_graphs.compatible import check_compatible
from pymc_discrete.factor_graphs.from_model import Extraction
from pymc_discrete.factor_graphs.max_product import check_sweeps
from pymc_discrete.factor_graphs.perturb_and_map import pmp
from pymc_discrete.kernels.kernel import Info, Kernel
from pymc_discrete.kernels.method import Method, kernel_function
from pymc_discrete.kernels.sweeps import sweep_kernel
from pymc_discrete.space.space import Space

POSSIBLE = 0.9  # If a smaller share of draws ends at a possible configuration, the user is warned.


@dataclass(frozen=True)
class PerturbAndMaxProduct(Method):
    """Perturb-and-max-product (PMP): approximate, nearly independent draws of a discrete factor graph.

    A draw adds Gumbel noise to the log probability of every value of every site, and searches for the most
    probable configuration by max-product message passing. The draws of a block do not depend on one another,
    also where every local sampler gets stuck, but their distribution is not the posterior. Use it where no
    exact method mixes, and compare it with an exact one on a smaller model of the same kind.

    Parameters
    ----------
    n_sweeps : int, default 200
        Number of updates of all messages in a draw.
    damping : float in [0, 1), default 0.5
        The weight of a message's previous value in its update.
    transitions : "auto" or int
        One by default, since a draw does not depend on the previous one.
    differences : {"exact", "auto"}
        Both have the same effect: the factors are the model's own terms.
    integrate : None
        A factor graph has no integrals, which would join all sites.

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

    Where max-product ends at a configuration that the model excludes, the draw is the one before, and
    `accept` and `accepted` are 0. A sampler statistic of this step alone is `discrete_approximate`, which is
    1.

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

    reported: ClassVar[dict[str, str]] = {"discrete_approximate": "approximate"}
    with_numbers: ClassVar[bool] = False  # The factor graph is made once, from the model's constant tables.
    n_sweeps: int = 200
    damping: float = 0.5

    def __post_init__(self) -> None:
        check_sweeps(self.n_sweeps, self.damping)

    def options_of_step(self, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("differences") == "gradient":
            raise ValueError(
                "PerturbAndMaxProduct takes the model's own terms, and no gradient. Leave differences out."
            )
        if options.get("integrate") is not None:
            raise ValueError(
                "PerturbAndMaxProduct needs a factor graph, and an integral joins all sites. Leave out "
                "integrate=, or use pmd.BlockGibbs."
            )
        return {**options, "differences": "exact"}

    @property
    def bias(self) -> str:
        return (
            "PerturbAndMaxProduct is approximate: its draws are biased, by an amount that more sweeps or "
            "draws do not lessen. Use pmd.AutoStep() for draws of the posterior."
        )

    def check(self, target: Any) -> None:
        check_compatible(target.density)

    def expected_moves(self, space: Space, params: dict[str, Any]) -> float:
        return float(space.d)

    def operations(self, target: Any) -> float:
        return math.inf  # A draw makes one transition, since a second one would not depend on the first.

    def complaint(self, accept: float, variables: str) -> str:
        if accept >= POSSIBLE:
            return ""
        return (
            f"PerturbAndMaxProduct: {1 - accept:.0%} of the draws of {variables} were configurations that "
            "the model excludes, and were left out. Raise n_sweeps, or replace hard constraints by large "
            "penalties."
        )

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        n_sweeps, damping = self.n_sweeps, self.damping

        def sweeper(target):
            graph = Extraction.of(target.density).graph(target)

            def sweep(key, x, params):
                y = pmp(key, graph, n_sweeps=n_sweeps, damping=damping).x
                possible = graph.logdensity(y) > -jnp.inf
                accepted = possible + 0.0
                info = Info(accept=accepted, accepted=accepted, n_moves=jnp.asarray(target.space.d))
                return jnp.where(possible, y, x).astype(x.dtype), info

            return sweep

        return sweep_kernel(sweeper), {"approximate": 1.0}


perturb_and_max_product = kernel_function(PerturbAndMaxProduct)
