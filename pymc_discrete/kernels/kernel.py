"""What a kernel is: a state, a step, and a loop of steps that runs as one compiled program."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.runtime.jax_settings import default_settings
from pymc_discrete.runtime.names import shown


class State(NamedTuple):
    """A point of a chain and what is known about it.

    Attributes
    ----------
    x : (d,) int
    logdensity : () float, nats
    differences : (d, K) float, nats, 0 at the current value, -inf outside the support
        Where some sites change only together, the differences of the moves of a kernel, see `PairMoves`.
    carry : pytree, further quantities that a kernel keeps to avoid computing them again, such as weights
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
    accepted : () bool, whether the proposal was accepted
    n_moves : () int, number of single-site moves in the proposal
    measured : pytree of floats, what the kernel's own tuning looks at, see `Kernel.measured`
    """

    accept: Any
    accepted: Any
    n_moves: Any
    measured: Any = ()


class Kernel(NamedTuple):
    """A transition of a chain.

    Attributes
    ----------
    init : (x, target) -> State
    step : (key, state, target, params) -> (State, Info)
    refresh : (state, target) -> State, to be called after another block has changed the context
    tuned : the parameter that adapts while tuning, if any
    scaled : (space) -> bool, whether the parameter "scale" is tuned to each site's unit of distance, its
        standard deviation
    sweeper : (target) -> (key, x, params) -> (x, Info), for a kernel whose next state depends on x alone
        A loop runs the sweeper instead of `step`, and evaluates densities and differences at the last state
        only. A sweeper leaves the target invariant and need not be reversible.
    measured : zeros in the structure of the sweeper's `Info.measured`, what the kernel's own tuning looks at
    """

    init: Callable
    step: Callable
    refresh: Callable
    tuned: Tuned | None = None
    scaled: Callable[[Any], bool] = lambda space: False
    sweeper: Callable | None = None
    measured: Any = ()


def nothing_kept(x, differences, space: Any) -> tuple:
    """The `State.carry` of a kernel that keeps nothing."""
    return ()


def evaluate(
    x,
    target,
    carry: Callable = nothing_kept,
    at: Callable = lambda x, target: target.logdensity_and_differences(x),
) -> State:
    """The state at x, with its log density, differences and carried quantities computed from scratch."""
    logdensity, differences = at(x, target)
    return State(x, logdensity, differences, carry(x, differences, target.space))


def refuse_constrained(space: Any) -> None:
    """Refuse a space in which some sites change only together, for kernels that change them one by one.

    Raises
    ------
    ValueError
    """
    if space.constrained.any():
        names = shown(space.names_at(np.flatnonzero(space.constrained)))
        if len(space.tied):
            raise ValueError(
                f"This kernel changes sites one by one, and linear equations tie those of {names}. Use "
                "block_gibbs, the kernel of pmd.BlockGibbs, which moves them along lines."
            )
        raise ValueError(
            f"This kernel changes sites one by one, and those of {names} can only change two at a time. Use "
            "block_gibbs, gibbs_with_gradients or path_auxiliary, the kernels of pmd.BlockGibbs, "
            "pmd.GibbsWithGradients and pmd.PathAuxiliary."
        )


@default_settings()
def loop(kernel: Kernel, key, state: State, target, params, transitions) -> tuple[State, Info]:
    """Run `transitions` steps in one compiled loop; with probability 1/2, one more, unless steps are sweeps.

    On a flat target every proposal is accepted, and an even number of flips never changes the parity of x.
    With a random number of steps both parities are reached. The number is drawn independently of x, so that
    the target stays invariant. Sweeps conserve no parity.

    Returns
    -------
    state : State
    info : Info, means over the transitions; `accepted` is the share of proposals accepted
    """

    if kernel.sweeper is not None:
        x, info = run_sweeps(kernel, target, key, state.x, params, transitions)
        return kernel.init(x, target), info
    key_count, key_steps = jax.random.split(key)
    count = transitions + jax.random.bernoulli(key_count).astype(int)

    def body(t, carried):
        state, total = carried
        state, info = kernel.step(jax.random.fold_in(key_steps, t), state, target, params)
        return state, jax.tree.map(lambda a, b: a + b, total, info)

    zero = Info(accept=jnp.zeros(()), accepted=jnp.zeros((), int), n_moves=jnp.zeros((), int))
    state, total = jax.lax.fori_loop(0, count, body, (state, zero))
    return state, jax.tree.map(lambda a: a / count, total)


def run_sweeps(kernel: Kernel, target, key, x, params, count) -> tuple[Any, Info]:
    """x after `count` sweeps, and the means of their `Info`."""
    assert kernel.sweeper is not None
    sweep = kernel.sweeper(target)

    def body(t, carried):
        x, total = carried
        x, info = sweep(jax.random.fold_in(key, t), x, params)
        return x, jax.tree.map(lambda a, b: a + b, total, info)

    measured = jax.tree.map(jnp.asarray, kernel.measured)
    zero = Info(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), int), measured)
    x, total = jax.lax.fori_loop(0, count, body, (x, zero))
    return x, jax.tree.map(lambda a: a / count, total)
