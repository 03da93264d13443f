"""The order in which the visits of a sweep are made, by visits that only write down that they were made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import loop
from pymc_discrete.kernels.sweeps import sweeping

VISITS = 3


def written(target):
    """Visits, of which each appends its number, from 1, and 5 more if it was told to go backward."""

    def of(number):
        return lambda key, x, backward: x * 10 + number + 5 * jnp.asarray(backward, int)

    return [of(number) for number in range(1, VISITS + 1)]


def with_keys(target):
    """Visits that write down random bits, each to its own place."""

    def of(number):
        return lambda key, x, backward: x.at[number].set(jax.random.bits(key).astype(int))

    return [of(number) for number in range(VISITS)]


@pytest.fixture(scope="module")
def target():
    space = pmd.Space.build({"x": (np.zeros(VISITS), np.full(VISITS, 10**6))})
    return pmd.target_from_logdensity(lambda x: 0.0 * x.sum(), space)


def test_a_step_goes_in_order_or_in_reverse_by_a_fair_coin(target):
    kernel = sweeping(written)
    start = kernel.init(jnp.zeros(VISITS, int), target)
    step = jax.jit(jax.vmap(lambda key: kernel.step(key, start, target, {})[0].x[0]))
    ends = np.asarray(step(jax.random.split(jax.random.key(0), 1000)))
    assert set(ends) == {123, 876}
    assert abs((ends == 123).mean() - 0.5) < 5 * 0.5 / np.sqrt(1000)


def test_the_sweeps_of_a_draw_keep_their_order(target):
    kernel = sweeping(written)
    start = kernel.init(jnp.zeros(VISITS, int), target)
    draw = jax.jit(jax.vmap(lambda key: loop(kernel, key, start, target, {}, 2)[0].x))
    assert (np.asarray(draw(jax.random.split(jax.random.key(0), 20))) == 123_123).all()


def test_every_visit_of_every_sweep_has_a_key_of_its_own(target):
    kernel = sweeping(with_keys)
    start = kernel.init(jnp.zeros(VISITS, int), target)
    draw = jax.jit(jax.vmap(lambda key, n: loop(kernel, key, start, target, {}, n)[0].x, in_axes=(None, 0)))
    one, two = np.asarray(draw(jax.random.key(0), np.array([1, 2])))
    assert len({*one, *two}) == 2 * VISITS
    steps = jax.jit(lambda key: kernel.step(key, start, target, {})[0].x)
    assert len(set(np.asarray(steps(jax.random.key(1))))) == VISITS
