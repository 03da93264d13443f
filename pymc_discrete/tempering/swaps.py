"""Swaps of the replicas of neighbouring rungs, and what their statistics say of the path from the prior to
the posterior.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# the end of the ladder that a replica visited last: none yet, the prior, or the posterior after the prior
NOWHERE, FROM_PRIOR, FROM_POSTERIOR = 0, 1, 2


class Traffic(NamedTuple):
    """Statistics of the swaps of a chain's replicas, which begin anew with `fresh`.

    Attributes
    ----------
    iterations : () int, the number of iterations
    rejections : (R - 1,) float, the sums of the probabilities that the replicas of neighbouring rungs do not
        swap
    up, down : (R - 1,) float, the logarithms of the sums of exp(d L / 2) at the lower of two neighbouring
        rungs, and of exp(-d L / 2) at the upper one, d being the difference of their inverse temperatures,
        and L, in nats, the log likelihood
    heading : (R,) int, for each replica the end of the ladder that it visited last
    round_trips : () int, how often a replica came back from the posterior to the prior
    """

    iterations: Any
    rejections: Any
    up: Any
    down: Any
    heading: Any
    round_trips: Any

    @classmethod
    def fresh(cls, replicas: int) -> "Traffic":
        """The statistics before any iteration."""
        pairs, zero = jnp.zeros(replicas - 1), jnp.zeros((), int)
        return cls(zero, pairs, pairs - jnp.inf, pairs - jnp.inf, jnp.zeros(replicas, int), zero)


def acceptance(betas: Array, likelihoods: Array, rungs: Array) -> Array:
    """(R - 1,) float, the probabilities that the replicas of neighbouring rungs swap; 0 beyond the last rung.

    Parameters
    ----------
    betas : (R,) float, inverse temperatures
    likelihoods : (R,) float, nats, the log likelihoods of the replicas at these rungs
    rungs : () int, the number of rungs

    References
    ----------
    Syed, Bouchard-Cote, Deligiannidis and Doucet 2022, Non-reversible parallel tempering, where V is the
    negative log likelihood.
    """
    rise = jnp.diff(betas) * (likelihoods[:-1] - likelihoods[1:])
    # Replicas that both have likelihood 0 give nan, and do not swap.
    accepted = jnp.where(jnp.isnan(rise), 0.0, jnp.exp(jnp.minimum(rise, 0.0)))
    return jnp.where(jnp.arange(len(rise)) < rungs - 1, accepted, 0.0)


def swapped(uniform: Array, t: Array, replica_at: Array, accept: Array) -> Array:
    """(R,) int, the replica at each rung after the swaps of iteration t.

    Rungs 0 and 1, 2 and 3, ... swap in even iterations, 1 and 2, 3 and 4, ... in odd ones.

    Parameters
    ----------
    uniform : (R - 1,) float, uniform random numbers
    replica_at : (R,) int, the replica at each rung before the swaps
    accept : (R - 1,) float, the probabilities that the replicas of neighbouring rungs swap

    References
    ----------
    Syed et al. 2022: deterministic even-odd swaps, with which replicas do not go back and forth at random.
    """
    pairs = jnp.arange(len(accept))
    swaps = (pairs % 2 == t % 2) & (uniform < accept)
    above, below = jnp.append(swaps, False), jnp.append(False, swaps)
    return jnp.where(above, jnp.roll(replica_at, -1), jnp.where(below, jnp.roll(replica_at, 1), replica_at))


def observed(traffic: Traffic, betas: Array, likelihoods: Array, accept: Array) -> Traffic:
    """The statistics after one more iteration, given the replicas before they swap.

    Parameters
    ----------
    betas : (R,) float, inverse temperatures
    likelihoods : (R,) float, nats, the log likelihoods of the replicas at these rungs
    accept : (R - 1,) float, the probabilities that the replicas of neighbouring rungs swap
    """
    half = jnp.diff(betas) / 2
    weighed = lambda a: jnp.where(half > 0, half * a, 0.0)  # no nan where betas are equal and a is infinite
    return traffic._replace(
        iterations=traffic.iterations + 1,
        rejections=traffic.rejections + (1 - accept),
        up=jnp.logaddexp(traffic.up, weighed(likelihoods[:-1])),
        down=jnp.logaddexp(traffic.down, weighed(-likelihoods[1:])),
    )


def arrived(traffic: Traffic, replica_at: Array, rungs: Array) -> Traffic:
    """The statistics after a swap, which may have brought a replica to the prior or the posterior."""
    first, last = replica_at[0], replica_at[rungs - 1]
    heading, come = traffic.heading, traffic.heading[first] == FROM_POSTERIOR
    from_prior = heading[last] == FROM_PRIOR
    heading = heading.at[last].set(jnp.where(from_prior, FROM_POSTERIOR, heading[last]))
    heading = heading.at[first].set(FROM_PRIOR)
    return traffic._replace(heading=heading, round_trips=traffic.round_trips + come)


def uniforms_of_swaps(key: Array, replicas: int) -> Array:
    """(R - 1,) float, the random numbers of one iteration's swaps."""
    return jax.random.uniform(key, (replicas - 1,))
