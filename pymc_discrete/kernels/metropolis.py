"""The Metropolis-Hastings acceptance test; no other file of the package has one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.kernels.kernel import Info, Kernel, State, evaluate, nothing_kept, refuse_constrained
from pymc_discrete.runtime.jax_settings import default_settings


class Proposed(NamedTuple):
    """A proposed state y and the probabilities of the proposal q from the current state x.

    Attributes
    ----------
    state : State at y
    log_forward : () float, nats, log q(y | x); +inf where no move from x is possible
    log_back : () float, nats, log q(x | y)
    n_moves : () int, how many single-site moves the proposal is made of
    """

    state: State
    log_forward: Any
    log_back: Any
    n_moves: Any


def of_single_sites(x, target):
    """The log density at x (d,), and the differences (d, K) of changing single sites, nats.

    Raises
    ------
    ValueError
        Where some sites change only together.
    """
    refuse_constrained(target.space)
    return target.logdensity_and_differences(x)


def metropolis(
    propose: Callable,
    carry: Callable = nothing_kept,
    tuned: Tuned | None = None,
    adjusted: bool = True,
    at: Callable = of_single_sites,
) -> Kernel:
    """The Metropolis-Hastings kernel of a proposal.

    Parameters
    ----------
    propose : (key, target, state, params) -> Proposed
    carry : (x, differences, space) -> `State.carry`, what the proposal keeps; by default nothing
    tuned : the parameter that adapts
    adjusted : whether to accept with the Metropolis-Hastings probability; otherwise every proposal of
        positive density is accepted, which biases the chain
    at : (x, target) -> the log density at x, and what `State.differences` holds
    """

    @default_settings()
    def init(x, target) -> State:
        return evaluate(jnp.asarray(x), target, carry, at)

    @default_settings()
    def step(key, state: State, target, params: Any) -> tuple[State, Info]:
        key_draw, key_accept = jax.random.split(key)
        proposed, log_forward, log_back, n_moves = propose(key_draw, target, state, params)
        # Grathwohl et al. 2021, Eq. 1: min{1, exp(f(x') - f(x)) q(x | x') / q(x' | x)}
        log_ratio = proposed.logdensity - state.logdensity + log_back - log_forward
        # A path whose probability underflowed is rejected, in both directions, so that the chain stays exact.
        unknown = jnp.isnan(log_ratio) | ~jnp.isfinite(log_forward) | jnp.isposinf(log_back)
        accept = jnp.where(unknown, 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        # A log density of +inf is an error of the model. Accepting it lets a later check report it.
        accept = jnp.where(jnp.isposinf(proposed.logdensity), 1.0, accept)
        # Only a start can be impossible, since an impossible state is never reached from a possible one. From
        # an impossible state every move is accepted.
        stuck = jnp.isneginf(state.logdensity) & (log_forward < jnp.inf) & ~jnp.isnan(proposed.logdensity)
        accept = jnp.where(stuck, 1.0, accept)
        # A proposal outside the support is rejected: several moves, each of which alone stays inside, may
        # lead there together.
        space = target.space
        accept = jnp.where(jnp.all((proposed.x >= space.lower) & (proposed.x <= space.upper)), accept, 0.0)
        if adjusted:
            accepted = jax.random.uniform(key_accept) < accept
        else:
            accepted = stuck | (proposed.logdensity > -jnp.inf)
        state = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), proposed, state)
        return state, Info(accept=accept, accepted=accepted, n_moves=n_moves)

    @default_settings()
    def refresh(state: State, target) -> State:
        return evaluate(state.x, target, carry, at)

    return Kernel(init, step, refresh, tuned)
