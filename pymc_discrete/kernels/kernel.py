"""What a kernel is: a state, a step, and a loop of steps that runs as one compiled program."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.targets.jax_settings import default_settings


class State(NamedTuple):
    """A point of a chain and what is known about it.

    Attributes
    ----------
    x : (d,) int
    logdensity : () float, nats
    differences : (d, K) float, nats, 0 at the current value, -inf outside the support
    carry : pytree, what a kernel keeps beside (weights it need not compute again)
    """

    x: Any
    logdensity: Any
    differences: Any
    carry: Any = ()


class Info(NamedTuple):
    """What a transition did.

    Attributes
    ----------
    accept : () float, acceptance probability
    accepted : () bool
    n_moves : () int, moves proposed
    """

    accept: Any
    accepted: Any
    n_moves: Any


class Kernel(NamedTuple):
    """A transition of a chain.

    Attributes
    ----------
    init : (x, target) -> State
    step : (key, state, target, params) -> (State, Info)
    refresh : (state, target) -> State, after another block moved the context
    tuned : the parameter that adapts while tuning, if any
    scaled : (space) -> bool, whether its parameter "scale" is to be each site's unit of distance (see
        `spread`)
    sweeper : (target) -> (key, x, params) -> (x, Info), for a kernel whose next state depends on x alone: a
        loop runs it instead of
        `step`, and evaluates densities and differences only where it ends; invariant, and not always
        reversible
    """

    init: Callable
    step: Callable
    refresh: Callable
    tuned: Tuned | None = None
    scaled: Callable[[Any], bool] = lambda space: False
    sweeper: Callable | None = None


def evaluate(x, target, carry: Callable) -> State:
    """The state at x, everything computed anew."""
    differences = target.differences(x)
    return State(x, target.logdensity(x), differences, carry(x, differences, target.space))


@default_settings()
def loop(kernel: Kernel, key, state: State, target, params, transitions) -> tuple[State, Info]:
    """`transitions` steps in one compiled loop; of proposals, one more at random.

    A proposal that is always accepted alternates: on a flat target an even number of flips never changes the
    parity of x. The coin does not look at x, so every draw is still one of the target's. A sweep has no such
    parity.

    Returns
    -------
    state : State
    info : Info, means over the transitions; `accepted` is the share accepted
    """

    if kernel.sweeper is not None:
        x, info = swept(kernel.sweeper(target), key, state.x, params, transitions)
        return kernel.init(x, target), info
    key_count, key_steps = jax.random.split(key)
    count = transitions + jax.random.bernoulli(key_count).astype(int)

    def body(t, carried):
        state, total = carried
        state, info = kernel.step(jax.random.fold_in(key_steps, t), state, target, params)
        return state, jax.tree.map(lambda a, b: a + b, total, info)

    zero = Info(jnp.zeros(()), jnp.zeros((), int), jnp.zeros((), int))
    state, total = jax.lax.fori_loop(0, count, body, (state, zero))
    return state, jax.tree.map(lambda a: a / count, total)


def swept(sweep: Callable, key, x, params, count) -> tuple[Any, Info]:
    """x after `count` sweeps, and means over them."""

    def body(t, carried):
        x, total = carried
        x, info = sweep(jax.random.fold_in(key, t), x, params)
        return x, jax.tree.map(lambda a, b: a + b, total, info)

    zero = Info(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), int))
    x, total = jax.lax.fori_loop(0, count, body, (x, zero))
    return x, jax.tree.map(lambda a: a / count, total)
