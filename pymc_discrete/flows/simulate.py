"""Trajectories of a flow on a grid of times, and the probabilities of their steps in both directions.

All steps are finite (`Path.step`), so that draws have exactly these probabilities at any number of steps.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.flows.paths import FROM_SOURCE, Step
from pymc_discrete.flows.process import Process
from pymc_discrete.flows.sources import Mask, uniform
from pymc_discrete.kernels.random import choose, uniforms


class Trajectory(NamedTuple):
    """The end of a trajectory, and its probability.

    Attributes
    ----------
    x : (d,) int, the values at the end
    log_forward : () float, nats, the log probability of the trajectory's steps forth in time
    log_backward : () float, nats, the log probability of the trajectory's steps back in time
    """

    x: Any
    log_forward: Any
    log_backward: Any


def forward_table(flow: Process, x: Any, t: Any, s: Any) -> Any:
    """(d, K + 1) nats, log probabilities of the values of each site at time s > t, given x (d,) at time t.

    The component of the target is the network's distribution of the values at time 1 given x. If the source
    is the mask and there is no noise, a site that has a value keeps it until time 1.
    """
    step, masked = flow.path.step(t, s), x == flow.K
    target = flow.posterior(x, t)
    if isinstance(flow.source, Mask) and flow.path.uniform is None:
        target = jnp.where(masked[:, None], target, log_of(one_hot_values(x, flow.K)))
    # Forth in time the weight of the source shrinks fastest, and nothing is drawn from the source again.
    drawn = jnp.logaddexp(jnp.log(step.target) + target, jnp.log(step.uniform) + log_of(uniform(flow.space)))
    return kept(x, jnp.pad(drawn, ((0, 0), (0, 1)), constant_values=-jnp.inf), step)


def backward_table(flow: Process, x: Any, t: Any, s: Any) -> Any:
    """(d, K + 1) nats, log probabilities of the values of each site at time s < t, given x (d,) at time t.

    The probabilities do not depend on the network, since the source is known.
    """
    step = flow.path.step(t, s)
    noise = jnp.pad(jnp.asarray(uniform(flow.space)), ((0, 0), (0, 1)))
    if isinstance(flow.source, Mask) and flow.path.uniform is not None:
        # A masked site stays masked, since no step forth masks a value. A site that has a value at time t has
        # a value at time s with some probability: it keeps its value, or is drawn anew.
        is_mask = jnp.arange(flow.K + 1) == flow.K
        share = (1 - flow.path.weights(s)[FROM_SOURCE]) / (1 - flow.path.weights(t)[FROM_SOURCE])
        of_value = jnp.where(is_mask, 1 - share, (share - step.keep) * noise)
        of_value += step.keep * one_hot_values(x, flow.K + 1)
        return log_of(jnp.where((x == flow.K)[:, None], is_mask, of_value))
    source = jnp.asarray(flow.source_probabilities)
    return kept(x, log_of(step.source * source + step.uniform * noise), step)


def kept(x: Any, drawn: Any, step: Step) -> Any:
    """(d, K + 1) nats, log probabilities of the next value of each site: its value x is kept with probability
    `step.keep`, or a value is drawn, with log probabilities `drawn`, whose exponentials sum to the rest.
    """
    here = one_hot_values(x, drawn.shape[1]) > 0
    return jnp.where(here, jnp.logaddexp(drawn, jnp.log(step.keep)), drawn)


def forth(key: Any, flow: Process, x: Any, times: Any) -> Trajectory:
    """The trajectory from x (d,) at the first of increasing times (n,) to the last."""

    def move(carried: Trajectory, k: Any) -> tuple[Trajectory, None]:
        now, (t, s) = carried.x, (times[k], times[k + 1])
        there = forward_table(flow, now, t, s)
        y = drawn_values(jax.random.fold_in(key, k), there)
        back = backward_table(flow, y, s, t)
        return Trajectory(y, carried.log_forward + at(there, y), carried.log_backward + at(back, now)), None

    return trajectory(move, x, len(times) - 1)


def back(key: Any, flow: Process, x: Any, times: Any) -> Trajectory:
    """The trajectory from x (d,) at the last of increasing times (n,) back to the first."""

    def move(carried: Trajectory, k: Any) -> tuple[Trajectory, None]:
        now, (s, t) = carried.x, (times[-2 - k], times[-1 - k])
        there = backward_table(flow, now, t, s)
        y = drawn_values(jax.random.fold_in(key, k), there)
        return_ = forward_table(flow, y, s, t)
        return Trajectory(
            y, carried.log_forward + at(return_, now), carried.log_backward + at(there, y)
        ), None

    return trajectory(move, x, len(times) - 1)


def trajectory(move: Any, x: Any, steps: int) -> Trajectory:
    """The trajectory of `steps` moves from x, with its probability.

    Parameters
    ----------
    move : (Trajectory, index of the move) -> (Trajectory after the move, None)
    """
    start = Trajectory(x.astype(int), jnp.zeros(()), jnp.zeros(()))
    return jax.lax.scan(move, start, jnp.arange(steps))[0]


def drawn_values(key: Any, table: Any) -> Any:
    """(d,) int, a draw of each site's value from log probabilities (d, K + 1)."""
    return choose(uniforms(key, table.shape[:1], table.dtype), table)


def at(table: Any, x: Any) -> Any:
    """() float, the sum of the entries of a table (d, K + 1) at values x (d,)."""
    return jnp.take_along_axis(table, x[:, None], axis=1, mode="clip").sum()


def one_hot_values(x: Any, values: int) -> Any:
    """(d, values) float, 1 in the column of each site's value."""
    return (x[:, None] == jnp.arange(values)).astype(float)


def log_of(p: Any) -> Any:
    """The logarithm of probabilities p, of which some are 0."""
    p = jnp.asarray(p, float)
    return jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, 1.0)), -jnp.inf)
