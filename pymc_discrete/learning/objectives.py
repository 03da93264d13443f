"""Objectives that learning minimises: minus the (pseudo-)likelihood, or the energy discrepancy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from pymc_discrete.learning.data import Batch
from pymc_discrete.learning.models import Model
from pymc_discrete.learning.samplers import Sampler
from pymc_discrete.runtime.checks import check_count, check_not_negative, is_number
from pymc_discrete.space.space import Space

Loss = Callable[[Any], Any]


@runtime_checkable
class Objective(Protocol):
    """An objective, with a state that it keeps between iterations."""

    def begin(self, key: Any, model: Any, params: Any) -> Any:
        """The state before the first iteration."""

    def loss(self, key: Any, model: Any, params: Any, batch: Batch, kept: Any) -> tuple[Loss, Any]:
        """A function of the parameters whose gradient at `params` is descended, and the new state."""


@dataclass(frozen=True)
class Likelihood:
    r"""Minus the log likelihood, whose gradient needs draws of the model.

    .. math:: \nabla \log p(x) = \nabla f(x) - \mathbb E_p \nabla f

    Parameters
    ----------
    sampler : Sampler
    chains : int, number of draws in an iteration
    energy_l2 : float, strength of the penalty on the squares of the energies of data and draws, 1/nats

    References
    ----------
    Grathwohl et al. 2021, Eq. 12. Du and Mordatch 2019 for the penalty.
    """

    sampler: Sampler
    chains: int
    energy_l2: float = 0.0

    def begin(self, key: Any, model: Model, params: Any) -> Any:
        return self.sampler.begin(key, model.density(params), self.chains)

    def loss(self, key: Any, model: Model, params: Any, batch: Batch, kept: Any) -> tuple[Loss, Any]:
        draws, kept = self.sampler.draw(key, model.density(params), kept, self.chains, batch)

        def loss(params: Any) -> Any:
            """() float; its gradient estimates the gradient of the objective, its value estimates nothing."""
            logdensity = jax.vmap(model.density(params).logdensity)
            of_data, of_draws = logdensity(batch.x), logdensity(draws)
            penalty = batch.weights @ of_data**2 + (of_draws**2).mean() if self.energy_l2 else 0.0
            return of_draws.mean() - batch.weights @ of_data + self.energy_l2 * penalty

        return loss, kept


@dataclass(frozen=True)
class PseudoLikelihood:
    r"""Minus the log pseudo-likelihood, which adds up each site's log probability given all other sites.

    .. math:: -\sum_i \log p(x_i | x_{-i}) = \sum_i \log \sum_k e^{d_{ik}}

    with :math:`d_{ik}` the exact difference of site i at value k, 0 at the site's own value. No draws are
    needed.

    References
    ----------
    Besag 1975, Statistical Analysis of Non-Lattice Data.
    """

    def begin(self, key: Any, model: Model, params: Any) -> None:
        if model.space.windowed.any():
            raise ValueError(
                "The pseudo-likelihood sums over all values of a site, and "
                f"{', '.join(map(repr, model.space.names_at(model.space.windowed.nonzero()[0])))} has no "
                "finite support. Bound it, or learn by objective='likelihood'."
            )

    def loss(self, key: Any, model: Model, params: Any, batch: Batch, kept: None) -> tuple[Loss, None]:
        return lambda params: -batch.weights @ log_pseudo_likelihoods(model, params, batch.x), None


@dataclass(frozen=True)
class EnergyDiscrepancy:
    r"""The energy discrepancy of the model from the data, estimated with perturbed data and no draws.

    .. math:: \frac1N \sum_i \log\Bigl(w + \sum_{j \le M} e^{E(x_i) - E(\tilde x_{ij})}\Bigr) - \log M

    Each observation is perturbed once, and the perturbed state M times again: with probability `noise` a site
    takes one of its other values, all equally likely. The estimate is consistent because the M negatives
    share the first perturbation; for a finite M the estimate has a bias of order 1/M.

    Parameters
    ----------
    noise : float in (0, 1), probability that a site is changed
    negatives : int, M
    w : float, at least 0; a positive w bounds the logarithm from below

    References
    ----------
    Schroeder, Ou, Li and Duncan 2023, Training Discrete Energy-Based Models with Energy Discrepancy.
    """

    noise: float = 0.1
    negatives: int = 32
    w: float = 1.0

    def __post_init__(self) -> None:
        if not (is_number(self.noise) and 0 < self.noise < 1):
            raise ValueError(f"noise must be a probability between 0 and 1, got {self.noise!r}.")
        check_count("negatives", self.negatives, 1)
        check_not_negative("w", self.w)

    def begin(self, key: Any, model: Model, params: Any) -> None:
        if model.space.windowed.any() or model.space.constrained.any():
            raise ValueError(
                "The energy discrepancy perturbs every site to any of its other values, and needs finite "
                "supports of sites that change alone. Use objective='likelihood'."
            )

    def loss(self, key: Any, model: Model, params: Any, batch: Batch, kept: None) -> tuple[Loss, None]:
        negatives = self.perturbed_twice(key, model.space, batch.x)

        def loss(params: Any) -> Any:
            logdensity = model.density(params).logdensity
            # The energy E is minus the log density f, so that E(x) - E(x~) = f(x~) - f(x).
            ratios = jax.vmap(jax.vmap(logdensity))(negatives) - jax.vmap(logdensity)(batch.x)[:, None]
            bounded = jnp.concatenate([ratios, jnp.full((len(ratios), 1), jnp.log(self.w))], axis=1)
            each = jax.scipy.special.logsumexp(bounded if self.w else ratios, axis=1)
            return batch.weights @ each - jnp.log(self.negatives)

        return loss, None

    def perturbed_twice(self, key: Any, space: Space, x: Any) -> Any:
        """(S, M, d) int, states x (S, d) perturbed once, and then M times again."""
        key_once, key_again = jax.random.split(key)
        once = perturbed(key_once, space, x, self.noise)
        many = jnp.broadcast_to(once[:, None], (len(x), self.negatives, space.d))
        return perturbed(key_again, space, many, self.noise)


OBJECTIVES = {"pseudo-likelihood": PseudoLikelihood, "energy discrepancy": EnergyDiscrepancy}


def perturbed(key: Any, space: Space, x: Any, noise: float) -> Any:
    """(..., d) int, x with every site changed to a uniform other value with probability `noise`.

    The probability from x to y is equal to the probability from y to x.
    """
    key_whether, key_shift = jax.random.split(key)
    count = space.upper - space.lower + 1
    changes = jax.random.bernoulli(key_whether, noise, x.shape)
    shift = jnp.where(changes, jax.random.randint(key_shift, x.shape, 1, jnp.maximum(count, 2)), 0)
    return space.lower + (x - space.lower + shift) % count


def log_pseudo_likelihoods(model: Model, params: Any, x: Any) -> Any:
    """(S,) float, nats, the log pseudo-likelihoods of states x (S, d) int; needs exact differences."""
    target = model.target(params, "exact")
    return jax.vmap(lambda x: -jax.scipy.special.logsumexp(target.differences(x), axis=1).sum())(x)
