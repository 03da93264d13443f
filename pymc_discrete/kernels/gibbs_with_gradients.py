"""Gibbs-With-Gradients (Grathwohl et al. 2021) for binary, categorical and integer sites."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from pymc_discrete.kernels.balancing import BALANCING, log_weights
from pymc_discrete.kernels.kernel import Kernel, State
from pymc_discrete.kernels.local_moves import log_density_after
from pymc_discrete.kernels.method import Method, kernel_function
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from pymc_discrete.kernels.pair_moves import moves_of_space, refuse_estimates
from pymc_discrete.kernels.path_length import PathLength
from pymc_discrete.kernels.random import draw_categorical, uniforms
from pymc_discrete.runtime.checks import check_choice
from pymc_discrete.space.space import Space

LARGEST_TUNED = 100


@dataclass(frozen=True)
class GibbsWithGradients(Method):
    """Gibbs-With-Gradients for discrete variables: moves weighted by the change of the log density.

    With one move, Algorithm 1 (Eq. 3 to 6). With more, the multi-sample variant (App. D.2, Eq. 27): L moves
    are drawn independently from q(. | x) and made together; L is random with mean `n_flips`, and a site may
    be drawn more than once.

    Parameters
    ----------
    n_flips : float or "adapt", default 1
        Mean number of moves in a proposal, at least 1; above 1 the multi-sample variant (App. D.2, Eq. 27).
        "adapt" tunes it to an acceptance of 0.574 (Sun, Dai and Schuurmans 2022).
    balancing : {"sqrt", "barker", "min", "max"}
        How a probability ratio t becomes a weight: sqrt(t) (the paper's), t/(1+t), min(1, t), max(1, t).

    Notes
    -----
    Sampler statistics of its own: `discrete_n_flips`.

    References
    ----------
    Grathwohl, Swersky, Hashemi, Duvenaud and Maddison 2021, Oops I Took A Gradient: Scalable
    Sampling for Discrete Distributions.
    """

    reported: ClassVar[dict[str, str]] = {"discrete_n_flips": "n_flips"}
    constrained: ClassVar[bool] = True
    n_flips: float | str = 1
    balancing: str = "sqrt"

    def __post_init__(self) -> None:
        check_choice("balancing", self.balancing, BALANCING)
        self.lengths  # noqa: B018 the property is read so that it raises an error for a wrong number

    @property
    def lengths(self) -> PathLength:
        """The distribution of the number of moves in a proposal, and how it is tuned."""
        return PathLength("n_flips", self.n_flips, LARGEST_TUNED)

    def check(self, target: Any) -> None:
        refuse_estimates(target)

    @property
    def moves_one_site(self) -> bool:
        return self.n_flips == 1

    def expected_moves(self, space: Space, params: dict[str, Any]) -> float:
        return params["n_flips"]

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        lengths, balancing = self.lengths, self.balancing

        def log_probs(state: State, moves, active):
            # Grathwohl et al. 2021, Eq. 5 and 6: the log probability of the drawn moves
            d = state.differences.reshape(-1)[moves]
            logw = log_weights(d, jnp.zeros_like(d, bool), balancing)
            return jnp.where(active, logw - state.carry.log_scale, 0.0).sum()

        def propose(key, target, state: State, params) -> Proposed:
            moves = moves_of_space(target.space)
            L = lengths.most(target.space)
            u = uniforms(key, (L + 2,)) if L > 1 else uniforms(key, (1,))
            drawn = draw_categorical(u[:L], state.carry.weights.reshape(-1))
            active = (
                jnp.arange(L) < lengths.draw(u[L], u[L + 1], params["n_flips"])
                if L > 1
                else jnp.ones(1, bool)
            )
            y, back = moves.made(state.x, drawn, active)
            by_difference = L == 1 and target.exact
            known = log_density_after(target, state, y, drawn[0]) if by_difference else None
            proposed = moves.arrive(target, state, y, drawn, active, balancing, known)
            # Grathwohl et al. 2021, Eq. 27: the probability of a proposal is a product over its moves. The
            # probability of their number, L, does not depend on x and cancels. Swaps do not commute, so the
            # reverse proposal makes the inverse moves in reverse order, which leaves its product unchanged.
            forward = log_probs(state, drawn, active)
            log_forward = jnp.where(jnp.isfinite(state.carry.log_scale), forward, jnp.inf)
            return Proposed(proposed, log_forward, log_probs(proposed, back, active), active.sum())

        def at(x, target):
            return moves_of_space(target.space).at(x, target)

        def carry(x, differences, space: Space):
            return moves_of_space(space).weights(x, differences, balancing)

        return metropolis(propose, carry, lengths.tuned, at=at), {"n_flips": lengths.start}


gibbs_with_gradients = kernel_function(GibbsWithGradients)
