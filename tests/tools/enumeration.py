"""Targets and factor graphs on all of their states, what a transition matrix must satisfy, and what compiled
steps do from every state.
"""

import functools
import itertools
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pymc as pm

import pymc_discrete as pmd
from pymc_discrete.kernels import loop
from tests.tools.statistics import g_test


class Enumerated(NamedTuple):
    """A target on all of its states.

    states (S, d), pi (S,) normalised, logp (S,) nats, differences (S, d, K) nats, values (S, d, K), inside
    (S, d, K)
    """

    target: object
    states: np.ndarray
    pi: np.ndarray
    logp: np.ndarray
    differences: np.ndarray
    values: np.ndarray
    inside: np.ndarray

    def index(self, x):
        """(...,) the number of each state x (..., d), -1 where the density is zero."""
        low, high = self.states.min(0), self.states.max(0)
        within = ((x >= low) & (x <= high)).all(-1)
        shape = tuple(high - low + 1)
        number = np.full(shape, -1)
        number[tuple((self.states - low).T)] = np.arange(len(self.states))
        return np.where(within, number[tuple(np.moveaxis(np.clip(x, low, high) - low, -1, 0))], -1)


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def evaluate(target, x):
    """Log density, differences and neighbours of states (n, d), in one program."""
    return target.logdensity(x), target.differences(x), *target.space.neighbours(x)


def enumerate_target(target, ranges) -> Enumerated:
    """Evaluate a target on the product of `ranges`, one per site, that must hold all of its mass."""
    x = np.array(list(itertools.product(*ranges)))
    every = [np.asarray(a) for a in evaluate(target, x)]
    logp, differences, values, inside = (a[every[0] > -np.inf] for a in every)
    x, p = x[every[0] > -np.inf], np.exp(logp - logp.max())
    return Enumerated(target, x, p / p.sum(), logp, differences, values, inside)


@functools.cache
def small(build, how):
    """The enumerated target of a model."""
    with pm.Model() as model:
        ranges, options = build()
    return enumerate_target(pmd.target_from_model(model, differences=how, **options), ranges)


def states_of_graph(graph):
    """(S, d) all states of positive density, (S,) their log densities."""
    x = np.array(
        list(
            itertools.product(
                *(range(a, b + 1) for a, b in zip(graph.space.lower, graph.space.upper, strict=True))
            )
        )
    )
    logp = np.asarray(jax.jit(jax.vmap(graph.logdensity))(x))
    return x[logp > -np.inf], logp[logp > -np.inf]


# ---------------------------------------------------------------- what a transition matrix must satisfy
def check_matrix(P, pi, proposed) -> None:
    """Proposals sum to 1, flows are equal both ways, and pi is the only stationary distribution."""
    # sums of up to 3000 positive numbers below 1: rounding stays below 3000 eps < 1e-12
    assert np.abs(proposed - 1).max() <= 1e-12
    assert (P >= -1e-13).all()
    flow = pi[:, None] * P
    assert np.abs(flow - flow.T).max() <= 1e-10 * flow.max()
    assert np.abs(pi @ P - pi).max() <= 1e-12
    assert (np.abs(np.linalg.eigvals(P) - 1) < 1e-9).sum() == 1


def run_steps(e: Enumerated, kernel, params, runs: int = 100_000, seed: int = 0):
    """(S, n) numbers of the states in which the compiled, vmapped step ends from every state."""
    each = runs // len(e.states)

    @jax.jit
    def many(keys, xs, target):
        def several(keys, x):
            state = kernel.init(x, target)
            return jax.vmap(lambda key: kernel.step(key, state, target, params)[0].x)(keys)

        return jax.vmap(several)(keys, xs)

    return e.index(
        np.asarray(many(jax.random.split(jax.random.key(seed), (len(e.states), each)), e.states, e.target))
    )


def check_runs(ends, P) -> None:
    """Runs from every state against the rows of P: a G-test each, Bonferroni over the rows."""
    assert (ends >= 0).all(), "a step reached a state of density zero"
    p_values = []
    for row, there in zip(P, ends, strict=True):
        got = np.bincount(there, minlength=len(row))
        assert got[row < 1e-13].sum() == 0, "a step did what the enumeration cannot do"
        p_values.append(g_test(got, row))
    # seeds are fixed, so a right kernel passes always or never; over all the cases together 1e-4 fails a
    # right one in 1 of 100 suites
    assert min(p_values) * len(p_values) > 1e-4, f"row {int(np.argmin(p_values))}: p = {min(p_values):.2g}"


def check_kernel(e: Enumerated, kernel, params, runs: int = 100_000, seed: int = 0) -> None:
    """What every kernel must satisfy: it leaves pi as it is, and reaches every state that is not rare.

    Invariance: states drawn from pi are distributed as pi after one compiled step, and after a draw of two
    transitions, if the kernel has a `sweeper`, which makes them in a way of its own. Reachability: walks from
    8 states, of 200 steps for each state of the target (or 100 draws of two transitions), come to all states
    with a tenth of the mean probability.
    """
    rng = np.random.default_rng(seed)
    starts = e.states[rng.choice(len(e.states), runs, p=e.pi)]

    def step(key, x, target):
        return kernel.step(key, kernel.init(x, target), target, params)[0].x

    def draw(key, x, target):
        return loop(kernel, key, kernel.init(x, target), target, params, 2)[0].x

    moves = (step, draw) if kernel.sweeper else (step,)
    for n, move in enumerate(moves):
        keys = jax.random.split(jax.random.key(seed + n), runs)
        ends = e.index(np.asarray(jax.jit(jax.vmap(move, (0, 0, None)))(keys, starts, e.target)))
        assert (ends >= 0).all(), f"a {move.__name__} reached a state of density zero"
        p = g_test(np.bincount(ends, minlength=len(e.pi)), e.pi)
        assert p > 1e-4, f"states after a {move.__name__} are not distributed as those before it: p = {p:.2g}"

    def walk(key, x, target, move, moves):
        def go(x, key):
            x = move(key, x, target)
            return x, x

        return jax.lax.scan(go, x, jax.random.split(key, moves * len(e.states)))[1]

    wanted = np.flatnonzero(e.pi > 0.1 / len(e.pi))
    firsts = e.states[rng.permutation(wanted)[:8]]
    keys = jax.random.split(jax.random.key(seed + 2), len(firsts))
    for move in moves:
        walks = jax.vmap(partial(walk, move=move, moves=200 if move is step else 100), (0, 0, None))
        for first, path in zip(firsts, np.asarray(jax.jit(walks)(keys, firsts, e.target)), strict=True):
            missing = np.setdiff1d(wanted, e.index(path))
            assert not len(missing), (
                f"a walk of {move.__name__}s from {first} never comes to {e.states[missing]}"
            )
