"""The one accept/reject."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.kernel import Info, Kernel, State, evaluate


class Proposal(NamedTuple):
    """How a Metropolis kernel proposes.

    Attributes
    ----------
    draw : (key, target, state, params) -> (move, log_q); log_q is +inf where there is nowhere to go
    log_prob : (target, state, move, params) -> () float, nats
    apply : (target, x, move) -> y
    reverse : (target, x, move) -> the move that leads back from y
    arrive : (target, state, y, move) -> State at y
    carry : (x, differences, space) -> what the proposal keeps in the state
    count : (move) -> () int, how many moves it is made of
    """

    draw: Callable
    log_prob: Callable
    apply: Callable
    reverse: Callable
    arrive: Callable
    carry: Callable
    count: Callable


def metropolis(proposal: Proposal) -> Kernel:
    """The Metropolis-Hastings kernel of a proposal."""

    def init(x, target) -> State:
        return evaluate(jnp.asarray(x), target, proposal.carry)

    def step(key, state: State, target, params: Any) -> tuple[State, Info]:
        key_draw, key_accept = jax.random.split(key)
        move, log_q = proposal.draw(key_draw, target, state, params)
        y = proposal.apply(target, state.x, move)
        there = proposal.arrive(target, state, y, move)
        back = proposal.log_prob(target, there, proposal.reverse(target, state.x, move), params)
        # Grathwohl et al. 2021, Eq. 1: min{1, exp(f(x') - f(x)) q(x | x') / q(x' | x)}
        log_ratio = there.logdensity - state.logdensity + back - log_q
        accept = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accept = jnp.where(jnp.isposinf(there.logdensity), 1.0, accept)  # an error of the model: go there, and it is seen
        # an impossible state (a start, never reached from a possible one) is left wherever it goes
        stuck = jnp.isneginf(state.logdensity) & (log_q < jnp.inf) & ~jnp.isnan(there.logdensity)
        accept = jnp.where(stuck, 1.0, accept)
        space = target.space  # moves that stay inside one by one need not do so together
        accept = jnp.where(jnp.all((y >= space.lower) & (y <= space.upper)), accept, 0.0)
        accepted = jax.random.uniform(key_accept) < accept
        state = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), there, state)
        return state, Info(accept, accepted, proposal.count(move))

    def refresh(state: State, target) -> State:
        return evaluate(state.x, target, proposal.carry)

    return Kernel(init, step, refresh)
