r"""Weights of trajectories, and the estimates that they give for a target and for the flow.

For a trajectory :math:`x_0, \dots, x_n` that was drawn forth in time from the source,

.. math:: w = \frac{e^{f(x_n)} \prod_k B(x_{k-1} \mid x_k)}{p_0(x_0) \prod_k F(x_k \mid x_{k-1})},
    \qquad \mathrm E_F w = \sum_x e^{f(x)},

with F and B the probabilities of steps forth and back in time. The expectation holds since the probabilities
of all trajectories back from a state add up to 1, and each of these can be drawn forth in time, too.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from pymc_discrete.evidence.estimate import forward_estimate
from pymc_discrete.flows.process import Process
from pymc_discrete.flows.simulate import Trajectory, back, forth

FEWEST_IN_TAIL = 50  # the least number of weights to whose tail a distribution is fitted
# the least log of a weight divided by the largest weight, since the fit of a tail takes exponentials
SMALLEST_LOG_WEIGHT = -100.0
UNSEEN_MODES = "A mode that neither the draws it was fitted to nor those of the flow have seen stays unseen."


class FlowWeights(NamedTuple):
    """Weighted draws of a flow, and the estimate of log Z that they give.

    Attributes
    ----------
    value : float, nats, the logarithm of the mean weight, which is unbiased for Z
    error : float, nats, the standard error of `value`
    ess : float, the effective sample size of the weights, between 1 and their number
    khat : float
        The shape of the tail of the weights (Vehtari, Simpson, Gelman, Yao and Gabry 2024): below 0.7 the
        weights can be trusted. The shape says nothing of modes that the flow never draws.
    log_weights : (n,) float, nats
    x : (n, d) int, the draws, in the values of the space
    """

    value: float
    error: float
    ess: float
    khat: float
    log_weights: np.ndarray
    x: np.ndarray

    def __str__(self) -> str:
        n = len(self.log_weights)
        return (
            f"log Z = {self.value:.3f} ± {self.error:.3f} nats, ESS {self.ess:.0f} of {n}, k-hat "
            f"{self.khat:.2f}. {UNSEEN_MODES}"
        )


def weighted_draws(flow: Process, target: Any, n: int, key: Any) -> FlowWeights:
    """Draws of a flow with their weights for a target; see `Flow.log_partition`."""
    runs = weighed(flow, jax.random.split(key, n))
    x = flow.values(runs.x)
    log_f = np.asarray(densities(target, x))
    wrong = np.isnan(log_f) | (log_f == np.inf)
    if wrong.any():
        raise ValueError(
            f"The log density of the target is {log_f[wrong][0]} at {x[wrong][0]}. It must be finite, or "
            "-inf where the density is 0."
        )
    log_weights = log_f + np.asarray(runs.log_backward) - np.asarray(runs.log_forward)
    estimate = forward_estimate(log_weights)
    return FlowWeights(estimate.value, estimate.error, estimate.ess, khat(log_weights), log_weights, x)


def log_probability(flow: Process, x: Any, n: int, key: Any) -> np.ndarray:
    """(m,) nats, estimates of the log probabilities of states (m, d); see `Flow.log_probability`."""
    sites = jnp.asarray(x - flow.space.lower)
    keys = jax.random.split(key, (len(sites), n))
    found = np.asarray(ratios(flow, keys, sites))
    return logsumexp(found, axis=1) - np.log(n)


def khat(log_weights: np.ndarray) -> float:
    """The shape of the tail of weights (n,), by Pareto smoothing; infinite if no tail can be fitted."""
    from arviz_stats.base import array_stats  # ArviZ is slow to import.

    largest = log_weights.max()
    if len(log_weights) < FEWEST_IN_TAIL or not np.isfinite(largest):
        return np.inf
    # All weights that are far smaller than the largest one, 0 too, count as equal. No tail can be fitted to
    # equal weights, which are therefore made unequal by a negligible amount.
    relative = np.maximum(log_weights - largest, SMALLEST_LOG_WEIGHT)
    relative += 1e-9 * np.random.default_rng(0).random(len(relative))
    # ArviZ takes log likelihoods, which are minus its log weights.
    shape = float(array_stats.psislw(-relative)[1])
    return np.inf if np.isnan(shape) else shape


@jax.jit
def densities(target: Any, x: Any) -> Any:
    """(n,) nats, the log density of a target at states (n, d)."""
    return jax.vmap(target.logdensity)(x)


@jax.jit
def weighed(flow: Process, keys: Any) -> Trajectory:
    """Trajectories from the source to time 1, one for each key; `log_forward` includes the log probability of
    the start under the source.
    """

    def one(key: Any) -> Trajectory:
        key_start, key_run = jax.random.split(key)
        x = flow.source.draw(key_start, flow.space)
        run = forth(key_run, flow, x, jnp.asarray(flow.times))
        return run._replace(log_forward=run.log_forward + flow.log_source(x))

    return jax.vmap(one)(keys)


@jax.jit
def ratios(flow: Process, keys: Any, x: Any) -> Any:
    """(m, n) nats, for trajectories back in time from x (m, d), drawn with keys (m, n), the log of their
    probability if drawn forth from the source, less the log of their probability as drawn.
    """

    def one(key: Any, x: Any) -> Any:
        run = back(key, flow, x, jnp.asarray(flow.times))
        return flow.log_source(run.x) + run.log_forward - run.log_backward

    return jax.vmap(jax.vmap(one, (0, None)))(keys, x)
