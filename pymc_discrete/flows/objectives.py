r"""Objectives that the training of a flow minimises, for `pymc_discrete.learning.fit`.

`DFM` and `CVM` take the data as draws of the target. With `weights=` :math:`e^{f(x)} / q(x)` of draws x of a
distribution q, they fit a flow to a target that is known only by its log density f: `fit` draws its
observations by the weights, normalised over all data. In the thesis on discrete flow samplers the objectives
with weights are ECVM of Eq. 3.13 and EDFM of Eq. 3.15, where a minus sign is missing, and, if q is an earlier
density that is known only by its log density, too, the starred objectives of Eq. 4.3.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from pymc_discrete.flows.model import FlowModel
from pymc_discrete.flows.paths import FROM_TARGET
from pymc_discrete.learning.data import Batch
from pymc_discrete.learning.objectives import Loss

LATEST = 0.999  # the largest time that is trained, since velocities are infinite at 1
LARGEST_TIME_WEIGHT = 20.0  # the largest weight of a time in `DFM(bound=True)`


@dataclass(frozen=True)
class FlowObjective:
    """The base class of `DFM` and `CVM`: each observation is noised to a random time of the path."""

    def begin(self, key: Any, model: FlowModel, params: Any) -> None:
        return None

    def loss(
        self, key: Any, model: FlowModel, params: Any, batch: Batch, kept: None, *features: Any
    ) -> tuple[Loss, None]:
        """The objective as a function of the weights; `features` have a row for each observation."""
        key_time, key_noise = jax.random.split(key)
        x = (batch.x - jnp.asarray(model.space.lower)).astype(int)
        # The times are one in each of equal intervals, in random order, so that each time is distributed
        # uniformly.
        n = len(x)
        u = (jnp.arange(n) + jax.random.uniform(key_time, (n,))) / n
        t = LATEST * jax.random.permutation(key_noise, u)
        keys = jax.random.split(jax.random.fold_in(key_noise, 1), n)
        x_t, hidden = jax.vmap(model.noised)(keys, x, t)

        def loss(params: Any) -> Any:
            log_p = jax.vmap(lambda *a: model.posterior(params, *a))(x_t, t, *features)
            each = jax.vmap(self.of_sites, (None, 0, 0, 0))(model, log_p, x, t)
            return batch.weights @ jnp.where(hidden, each, 0.0).sum(axis=1)

        return loss, None

    def of_sites(self, model: FlowModel, log_p: Any, x: Any, t: Any) -> Any:
        """(d,) float, the loss of each site, from log probabilities (d, K) of its values at time 1, and its
        value x (d,) at time 1.
        """
        raise NotImplementedError("An objective says what the loss of a site is.")


@dataclass(frozen=True)
class DFM(FlowObjective):
    r"""Discrete flow matching: the cross-entropy of the values at time 1, given the values at a random time.

    .. math:: -\mathrm E_t \sum_i \lambda_t \log p_\theta(x_1^i \mid x_t)

    Parameters
    ----------
    bound : bool
        With True, :math:`\lambda_t = \dot\kappa_t / (1 - \kappa_t)`, at most 20; for the source of masks the
        objective is then an upper bound of :math:`-\log p_\theta(x_1)`, and draws are better for as many
        steps. With False, :math:`\lambda_t = 1`, as in Gat et al. and in the thesis.

    References
    ----------
    Gat et al. 2024, Discrete flow matching; the thesis on discrete flow samplers, Eq. 2.45. Shi et al. 2024,
    Simplified and generalized masked diffusion for discrete data, for the bound.
    """

    bound: bool = False

    def of_sites(self, model: FlowModel, log_p: Any, x: Any, t: Any) -> Any:
        rate = jnp.minimum(model.path.velocity(t)[0][FROM_TARGET], LARGEST_TIME_WEIGHT) if self.bound else 1.0
        return -rate * jnp.take_along_axis(log_p, x[:, None], axis=1)[:, 0]


@dataclass(frozen=True)
class CVM(FlowObjective):
    r"""Conditional velocity matching: the squared error of the velocity, given the values at time 1.

    .. math:: \mathrm E_t (1 - t) \sum_i \sum_z \bigl(u^\theta_t(z, x_t) - u_t(z, x_t \mid x_1)\bigr)^2

    The velocity is computed from the network's posterior (thesis, Eq. 3.14), so that the error of the
    velocity is the error of the posterior times the coefficient of the target.

    References
    ----------
    The thesis on discrete flow samplers, Eq. 3.12, with its weight 1 - t.
    """

    def of_sites(self, model: FlowModel, log_p: Any, x: Any, t: Any) -> Any:
        a = model.path.velocity(t)[0][FROM_TARGET]
        error = jnp.exp(log_p) - (x[:, None] == jnp.arange(log_p.shape[1]))
        return (1 - t) * a**2 * (error**2).sum(axis=1)
