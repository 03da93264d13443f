"""The one accept/reject."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.kernels.kernel import Info, Kernel, State, evaluate
from pymc_discrete.targets.jax_settings import default_settings


class Proposed(NamedTuple):
    """Where a proposal leads.

    Attributes
    ----------
    there : State at y
    log_forward : () float, nats, log q(y | x); +inf where there is nowhere to go
    log_back : () float, nats, log q(x | y)
    n_moves : () int, how many moves it is made of
    """

    there: State
    log_forward: Any
    log_back: Any
    n_moves: Any


def metropolis(
    propose: Callable, carry: Callable, tuned: Tuned | None = None, adjusted: bool = True
) -> Kernel:
    """The Metropolis-Hastings kernel of a proposal.

    Parameters
    ----------
    propose : (key, target, state, params) -> Proposed
    carry : (x, differences, space) -> what the proposal keeps in the state
    tuned : the parameter that adapts
    adjusted : accept with the Metropolis-Hastings probability; else always, within the support (biased)
    """

    @default_settings()
    def init(x, target) -> State:
        return evaluate(jnp.asarray(x), target, carry)

    @default_settings()
    def step(key, state: State, target, params: Any) -> tuple[State, Info]:
        key_draw, key_accept = jax.random.split(key)
        there, log_forward, log_back, n_moves = propose(key_draw, target, state, params)
        # Grathwohl et al. 2021, Eq. 1: min{1, exp(f(x') - f(x)) q(x | x') / q(x' | x)}
        log_ratio = there.logdensity - state.logdensity + log_back - log_forward
        # where a probability is lost to underflow, the path is refused both ways
        unknown = jnp.isnan(log_ratio) | ~jnp.isfinite(log_forward) | jnp.isposinf(log_back)
        accept = jnp.where(unknown, 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accept = jnp.where(
            jnp.isposinf(there.logdensity), 1.0, accept
        )  # an error of the model: go there, and it is seen
        # an impossible state (a start, never reached from a possible one) is left wherever it goes
        stuck = jnp.isneginf(state.logdensity) & (log_forward < jnp.inf) & ~jnp.isnan(there.logdensity)
        accept = jnp.where(stuck, 1.0, accept)
        space = target.space  # moves that stay inside one by one need not do so together
        accept = jnp.where(jnp.all((there.x >= space.lower) & (there.x <= space.upper)), accept, 0.0)
        if adjusted:
            accepted = jax.random.uniform(key_accept) < accept
        else:
            accepted = stuck | (there.logdensity > -jnp.inf)
        state = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), there, state)
        return state, Info(accept, accepted, n_moves)

    @default_settings()
    def refresh(state: State, target) -> State:
        return evaluate(state.x, target, carry)

    return Kernel(init, step, refresh, tuned)
