"""Targets and factor graphs on all of their states, what a transition matrix must satisfy, and what compiled
steps do from every state.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

import pymc_discrete as pmd
from pymc_discrete.kernels import loop
from tests.tools.interpreted import interpreted
from tests.tools.statistics import g_test, pooled_test

LEAST_LANES, MOST_LANES = 8, 16  # chains that `check_kernel` runs side by side


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


@interpreted
@functools.partial(jax.vmap, in_axes=(None, 0))
def evaluate(target, x):
    """Log density, differences and neighbours of states (n, d), in one program."""
    return target.logdensity(x), target.differences(x), *target.space.neighbours(x)


def enumerate_target(target, ranges) -> Enumerated:
    """Evaluate a target on the product of `ranges`, one per site, that must hold all of its mass."""
    x = np.array(list(itertools.product(*ranges)))
    every = evaluate(target, x)
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
    logp = interpreted(jax.vmap(graph.logdensity))(x)
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


def check_sweep(pi, P, forward) -> None:
    """Check the matrices of a sweep that is reversed with probability 1/2, and of one that is not.

    Both leave pi invariant, reach every state from every other and have no period, and the former is
    reversible.
    """
    flow = pi[:, None] * P
    assert np.abs(P.sum(1) - 1).max() <= 1e-12
    assert np.abs(flow - flow.T).max() <= 1e-10 * flow.max()
    assert np.abs(pi @ forward - pi).max() <= 1e-12
    for matrix in (P, forward):
        # one stationary distribution, and no other eigenvalue of size 1
        assert (np.abs(np.linalg.eigvals(matrix)) > 1 - 1e-9).sum() == 1


def run_steps(e: Enumerated, kernel, params, runs: int = 50_000, seed: int = 0, level: int = 0):
    """(S, n) numbers of the states in which the compiled, vmapped step ends from every state.

    XLA optimises the program up to `level`: at 1 a long step compiles half as long again, and takes half the
    time.
    """
    each = runs // len(e.states)

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": level})
    def many(keys, xs, target):
        def several(keys, x):
            state = kernel.init(x, target)
            return jax.vmap(lambda key: kernel.step(key, state, target, params)[0].x)(keys)

        return jax.vmap(several)(keys, xs)

    return e.index(
        np.asarray(many(jax.random.split(jax.random.key(seed), (len(e.states), each)), e.states, e.target))
    )


def check_runs(ends, P) -> None:
    """Runs from every state against the rows of P: a G-test each, Bonferroni over the rows, and all rows
    together, which sees what is a little wrong in every row.
    """
    assert (ends >= 0).all(), "a step reached a state of density zero"
    rows = [(np.bincount(there, minlength=len(row)), row) for row, there in zip(P, ends, strict=True)]
    for got, row in rows:
        assert got[row < 1e-13].sum() == 0, "a step did what the enumeration cannot do"
    p_values = [g_test(*of_row) for of_row in rows]
    # seeds are fixed, so a right kernel passes always or never; over all the cases together 1e-4 fails a
    # right one in 1 of 100 suites
    assert min(p_values) * len(p_values) > 1e-4, f"row {int(np.argmin(p_values))}: p = {min(p_values):.2g}"
    assert (p := pooled_test(rows)) > 1e-4, f"every row, taken together: p = {p:.2g}"


def check_kernel(e: Enumerated, kernel, params, seed: int = 0) -> None:
    """What every kernel must satisfy: it leaves pi as it is, and reaches every state that is not rare.

    Invariance: states drawn from pi are distributed as pi after one compiled step, and after a draw of two
    transitions, if the kernel has a `sweeper`, which makes them in a way of its own. Reachability: walks from
    as many states as there are lanes, of 200 moves or more for each state of the target, come to all states
    with a tenth of the mean probability. There are so many lanes that walks of this length make 50,000 moves
    together, which is what takes the least time.
    """
    rng = np.random.default_rng(seed)
    number = int(np.clip(250 // len(e.states), LEAST_LANES, MOST_LANES))
    moves = max(200 * len(e.states), 50_000 // number)
    drawn = e.states[rng.choice(len(e.states), (number, moves), p=e.pi)]
    wanted = np.flatnonzero(e.pi > 0.1 / len(e.pi))
    firsts = e.states[rng.choice(wanted, number)]
    of_walks = np.broadcast_to(firsts[:, None], drawn.shape)

    def step(key, x, target):
        return kernel.step(key, kernel.init(x, target), target, params)[0].x

    def draw(key, x, target):
        return loop(kernel, key, kernel.init(x, target), target, params, 2)[0].x

    for n, move in enumerate((step, draw) if kernel.sweeper else (step,)):

        def lane(key, starts, target, walks, move=move):
            """(moves, d), where moves end: from `starts`, or from where the one before ended."""

            def go(x, given):
                start, key = given
                x = move(key, jnp.where(walks, x, start), target)
                return x, x

            return jax.lax.scan(go, starts[0], (starts, jax.random.split(key, moves)))[1]

        # one program for both, since to compile it takes longer than to run it
        lanes = jax.jit(jax.vmap(lane, (0, 0, None, None)))
        keys = jax.random.split(jax.random.key(seed + n), number)
        ends = e.index(np.asarray(lanes(keys, drawn, e.target, False)).reshape(-1, e.states.shape[1]))
        assert (ends >= 0).all(), f"a {move.__name__} reached a state of density zero"
        p = g_test(np.bincount(ends, minlength=len(e.pi)), e.pi)
        assert p > 1e-4, f"states after a {move.__name__} are not distributed as those before it: p = {p:.2g}"
        for first, path in zip(firsts, np.asarray(lanes(keys, of_walks, e.target, True)), strict=True):
            missing = np.setdiff1d(wanted, e.index(path))
            assert not len(missing), (
                f"a walk of {move.__name__}s from {first} never comes to {e.states[missing]}"
            )
