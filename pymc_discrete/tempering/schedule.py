"""The schedule of replicas: their inverse temperatures, and their number."""

from typing import Any

import jax.numpy as jnp
from jax import Array

# each round of tuning is twice as long as the round before; the last round ends at half of the tuning draws
ROUNDS_OF_TUNING = 6
# before the first round of tuning the inverse temperatures are (k / (n - 1)) ** CROWDING_OF_RUNGS for n rungs
# k = 0..n-1: close together near the prior, where the log likelihood varies most
CROWDING_OF_RUNGS = 4
FIRST_RUNGS = 8  # the number of replicas before the first round, if their number is chosen automatically
FEWEST_RUNGS = 3


def first_schedule(rungs: int, replicas: int) -> Array:
    """(R,) float, the inverse temperatures of `rungs` rungs, from 0 to 1; 1 beyond the last rung."""
    return jnp.minimum(jnp.arange(replicas) / (rungs - 1), 1.0) ** CROWDING_OF_RUNGS


def ends_round(t: Any, tune: Any) -> Any:
    """Whether a round of tuning ends before iteration t, given the number of tuning draws."""
    k = jnp.arange(1, ROUNDS_OF_TUNING + 1)
    return ((t > 0) & (t == tune * (2**k - 1) // (2 * (2**ROUNDS_OF_TUNING - 1)))).any()


def barrier(rejections: Array) -> Array:
    """(R,) float, the communication barrier between the prior and each rung.

    Parameters
    ----------
    rejections : (R - 1,) float, the mean probabilities that the replicas of neighbouring rungs do not swap; 0
        beyond the last rung

    References
    ----------
    Syed et al. 2022, the communication barrier, estimated by sums of rejection rates.
    """
    return jnp.append(jnp.zeros(1), jnp.cumsum(rejections))


def equal_rejections(betas: Array, rejections: Array, rungs: Any, wanted: Any) -> Array:
    """(R,) float, inverse temperatures at which swaps of all neighbouring rungs are rejected equally often; 1
    beyond the last rung.

    Parameters
    ----------
    betas : (R,) float, the inverse temperatures of `rungs` rungs
    rejections : (R - 1,) float, the mean probabilities that the replicas of neighbouring rungs do not swap
    wanted : () int, the number of rungs that there will be

    References
    ----------
    Syed et al. 2022, the schedule with equal rejection rates, with the barrier interpolated linearly.
    """
    k = jnp.arange(len(betas))
    # A rejection rate that was observed as 0 is taken as 1e-6, so that the barrier between two rungs is never
    # 0.
    seen = jnp.where(jnp.arange(len(rejections)) < rungs - 1, jnp.maximum(rejections, 1e-6), 0.0)
    lengths = barrier(seen)
    found = jnp.interp(lengths[-1] * k / (wanted - 1), lengths, betas)
    return jnp.where(k == 0, betas[0], jnp.where(k >= wanted - 1, 1.0, found))


def rungs_for(length: Any, most: int) -> Any:
    """() int, the number of rungs for a communication barrier of the given length; `most` at most.

    References
    ----------
    Syed et al. 2022: with about 2 Lambda + 1 rungs, round trips take the least work.
    """
    return jnp.clip(jnp.ceil(2 * length).astype(int) + 1, FEWEST_RUNGS, most)
