"""Sweeps: kernels that visit groups of sites in turn and draw each exactly, given all others."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.kernel import Info, Kernel, State, evaluate
from pymc_discrete.targets.jax_settings import default_settings


def sweep_kernel(sweeper: Callable, step: Callable | None = None) -> Kernel:
    """The kernel of a sweeper (see `Kernel`); its step, (key, x, target) -> (x, Info), is one sweep where
    none is given.
    """

    @default_settings()
    def init(x, target) -> State:
        return evaluate(jnp.asarray(x), target, lambda x, differences, space: ())

    @default_settings()
    def one(key, state: State, target, params: Any) -> tuple[State, Info]:
        x, info = sweeper(target)(key, state.x, params) if step is None else step(key, state.x, target)
        return init(x, target), info

    def refresh(state: State, target) -> State:
        return init(state.x, target)

    return Kernel(init, one, refresh, sweeper=sweeper)


def sweeping(visits_of: Callable) -> Kernel:
    """The kernel of visits, (target) -> [(key, x, backward) -> x].

    A step reverses its order by a fair coin, so that it is reversible and not only invariant. The sweeps of a
    draw keep one order.
    """

    def visits(target) -> list:
        if not target.exact:
            raise ValueError(
                "Gibbs sampling needs exact conditionals, and this target has first-order differences. Make "
                "it with differences='auto', or use another kernel."
            )
        return visits_of(target)

    def sweeper(target):
        every = visits(target)

        def sweep(key, x, params):
            for t, visit in enumerate(every):
                x = visit(jax.random.fold_in(key, t), x, False)
            return x, always_accepted(target.space)

        return sweep

    def step(key, x, target):
        return forward_or_backward(key, x, visits(target)), always_accepted(target.space)

    return sweep_kernel(sweeper, step)


def forward_or_backward(key, x, visits: list):
    """x after a sweep in either order, by a fair coin."""
    key_coin, key_visits = jax.random.split(key)
    backward, backs = jax.random.bernoulli(key_coin), len(visits) - 1

    def visit(t, x):
        # there and back, where one of the two does nothing: all chains of a batch make the same visit,
        # whatever their coins
        on = (t == backs) | ((t > backs) == backward)
        branches = [lambda x, v=v: v(jax.random.fold_in(key_visits, t), x, backward) for v in visits]
        return jax.lax.cond(
            on, lambda x: jax.lax.switch(backs - jnp.abs(t - backs), branches, x), lambda x: x, x
        )

    return jax.lax.fori_loop(0, 2 * backs + 1, visit, x) if backs else visits[0](key_visits, x, backward)


def always_accepted(space) -> Info:
    return Info(jnp.ones(()), jnp.ones(()), jnp.asarray(space.d))
