"""Sweeps: kernels that visit groups of sites in turn and draw each group exactly, given all other sites."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.kernel import Info, Kernel, State, evaluate
from pymc_discrete.runtime.jax_settings import default_settings


def sweep_kernel(sweeper: Callable, step: Callable | None = None) -> Kernel:
    """The kernel of a sweeper, a transition whose next state depends on x alone.

    Parameters
    ----------
    sweeper : (target) -> (key, x, params) -> (x, Info), the transition, which leaves the target invariant
    step : (key, x, target) -> (x, Info), a single transition; None stands for one sweep
    """

    @default_settings()
    def init(x, target) -> State:
        return evaluate(jnp.asarray(x), target)

    @default_settings()
    def transition(key, state: State, target, params: Any) -> tuple[State, Info]:
        x, info = sweeper(target)(key, state.x, params) if step is None else step(key, state.x, target)
        return init(x, target), info

    def refresh(state: State, target) -> State:
        return init(state.x, target)

    return Kernel(init, transition, refresh, sweeper=sweeper)


def sweeping(visits_of: Callable) -> Kernel:
    """The kernel of sweeps that make one visit after another.

    A step reverses the order of its visits with probability 1/2, which makes it reversible and not only
    invariant. The sweeps of a draw (`Kernel.sweeper`) keep one order.

    Parameters
    ----------
    visits_of : (target) -> list of (key, x, backward) -> x
        The visits. Each draws some of the sites exactly, given all other sites.

    Raises
    ------
    ValueError
        When a step is traced on a target whose differences are not exact.
    """

    def visits(target) -> list:
        refuse_gradients(target)
        return visits_of(target)

    def sweeper(target):
        in_order = visits(target)

        def sweep(key, x, params):
            for t, visit in enumerate(in_order):
                x = visit(jax.random.fold_in(key, t), x, False)
            return x, always_accepted(target.space)

        return sweep

    def step(key, x, target):
        return forward_or_backward(key, x, visits(target)), always_accepted(target.space)

    return sweep_kernel(sweeper, step)


def draw_in_turn(target, n: int, count: Any, draw: Callable, x) -> tuple[Any, Any]:
    """Draw single sites of variable n one after another; `Target.carried` is updated after each change.

    Parameters
    ----------
    count : () int, the number of draws
    draw : (t, x, carried) -> (site (), value (), number ())
        The t-th draw: a site, its new value and a number that is added to the total, given `carried` as
        `Target.carried` returns it.
    x : (d,) int

    Returns
    -------
    x : (d,) int, after all draws
    total : () float, the sum of the numbers of all draws
    """
    start = target.space.starts[n]

    def search(found):
        """One step of a search for the next site that changes."""
        t, _, _, _, x, carried, total = found
        site, value, number = draw(t, x, carried)
        return t + 1, site, value, value != x[start + site], x, carried, total + number

    def to_next_change(state):
        t, x, carried, total = state
        first = (t, jnp.zeros_like(t), x[start], jnp.zeros((), bool), x, carried, total)
        going_on = lambda found: (found[0] < count) & ~found[3]
        t, site, value, _, x, carried, total = jax.lax.while_loop(going_on, search, first)
        # If no further site changes, the last site is set to the value that it already has. The barrier keeps
        # XLA from copying x, whose old values are read before.
        after = target.carried_after(n, site, value, x, carried)
        carried, x = jax.lax.optimization_barrier((after, x))
        return t, x.at[start + site].set(value), carried, total

    # An inner loop looks for the next change and an outer loop makes it. With one loop and a condition in it,
    # XLA copies the carried arrays in every iteration.
    start_of_all = (jnp.zeros((), int), x, target.carried(x), jnp.zeros(()))
    _, x, _, total = jax.lax.while_loop(lambda state: state[0] < count, to_next_change, start_of_all)
    return x, total


def refuse_gradients(target) -> None:
    """Refuse a target whose differences are not exact.

    Raises
    ------
    ValueError
    """
    if not target.exact:
        raise ValueError(
            "Gibbs sampling needs exact conditionals, and this target has first-order differences. Make "
            "it with differences='auto', or use another kernel."
        )


def forward_or_backward(key, x, visits: list):
    """x after a sweep of the visits, forward or backward, each with probability 1/2.

    The loop passes through the visits 0, ..., n - 1, ..., 0. A forward sweep makes the visits up to n - 1, a
    backward sweep makes the visits from n - 1 on. All chains of a batch are thus at the same visit at the
    same time, whichever order each chain has drawn.
    """
    key_coin, key_visits = jax.random.split(key)
    backward, last = jax.random.bernoulli(key_coin), len(visits) - 1

    def visit(t, x):
        in_this_half = (t == last) | ((t > last) == backward)
        branches = [lambda x, v=v: v(jax.random.fold_in(key_visits, t), x, backward) for v in visits]
        return jax.lax.cond(
            in_this_half, lambda x: jax.lax.switch(last - jnp.abs(t - last), branches, x), lambda x: x, x
        )

    return jax.lax.fori_loop(0, 2 * last + 1, visit, x) if last else visits[0](key_visits, x, backward)


def always_accepted(space) -> Info:
    """The information about a sweep, in which no draw is rejected."""
    return Info(accept=jnp.ones(()), accepted=jnp.ones(()), n_moves=jnp.asarray(space.d))
