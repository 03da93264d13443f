"""Swaps and schedules, enumerated; a compiled iteration leaves the product of all rungs as it is."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.ladder import Ladder
from pymc_discrete.engine.nuts_options import DEFAULTS
from pymc_discrete.engine.program import Program, recorded
from pymc_discrete.model.initial import point_of
from pymc_discrete.sampling.division import steps_of, steps_on
from pymc_discrete.tempering.schedule import (
    ROUNDS_OF_TUNING,
    ends_round,
    equal_rejections,
    first_schedule,
    rungs_for,
)
from pymc_discrete.tempering.swaps import (
    FROM_POSTERIOR,
    FROM_PRIOR,
    Traffic,
    acceptance,
    arrived,
    observed,
    swapped,
)
from pymc_discrete.tempering.tempered import BETA, tempered
from tests.tools.statistics import g_test

pytestmark = pytest.mark.shares_programs

BETAS = np.array([0.0, 0.3, 1.0])
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
LIKELIHOODS = np.array([0.0, -2.0, 1.5, -np.inf])  # one state is possible under the prior only


def densities(betas: np.ndarray) -> np.ndarray:
    """(rungs, states), the probabilities at each inverse temperature."""
    with np.errstate(invalid="ignore"):
        powers = np.where(betas[:, None] > 0, betas[:, None] * LIKELIHOODS, 0.0)
    p = PRIOR * np.exp(powers)
    return p / p.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------- swaps
@pytest.mark.parametrize("t", [0, 1])
@pytest.mark.parametrize("rungs", [2, 3])
def test_swaps_leave_the_product_of_all_rungs_as_it_is(t, rungs):
    """The matrix of the swaps of one iteration, enumerated over all states of two and three replicas.

    There is a further rung in the arrays, which is not in use.
    """
    betas = np.append(BETAS[-rungs:] if rungs == 3 else BETAS[[0, 2]], 1.0)
    p = densities(betas[:rungs])
    states = [*itertools.product(range(4), repeat=rungs)]
    joint = np.array([np.prod([p[k, x] for k, x in enumerate(s)]) for s in states])
    matrix = np.zeros((len(states), len(states)))
    for n, s in enumerate(states):
        likelihoods = np.append(LIKELIHOODS[list(s)], 0.3)
        accept = np.asarray(acceptance(jnp.asarray(betas), jnp.asarray(likelihoods), rungs))
        for taken in itertools.product([0, 1], repeat=rungs):
            chance = np.prod(np.where(taken, accept, 1 - accept))
            if not chance:  # the last pair has a rung that is not in use
                continue
            at = np.asarray(
                swapped(1.0 - np.array(taken), t, jnp.arange(rungs + 1), jnp.asarray(taken) * 2.0)
            )
            assert sorted(at) == [*range(rungs + 1)]
            assert at[rungs] == rungs
            matrix[n, states.index(tuple(s[k] for k in at[:rungs]))] += chance
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    np.testing.assert_allclose(joint @ matrix, joint, atol=1e-14)
    moves = [(k, k + 1) for k in range(rungs - 1) if k % 2 == t]
    assert (matrix.diagonal()[joint > 0] < 1).any() == bool(moves)


def test_which_neighbours_swap_in_turn():
    every = jnp.zeros(5) + 2.0
    assert swapped(jnp.zeros(5), 0, jnp.arange(6), every).tolist() == [1, 0, 3, 2, 5, 4]
    assert swapped(jnp.zeros(5), 1, jnp.arange(6), every).tolist() == [0, 2, 1, 4, 3, 5]
    assert swapped(jnp.ones(5), 1, jnp.arange(6), every / 4).tolist() == [*range(6)]


def test_neighbours_swap_as_often_as_they_are_accepted():
    accept = jnp.asarray([0.3, 0.0, 0.85])
    grid = (jnp.arange(1000)[:, None] + 0.5) / 1000 * jnp.ones(3)
    at = jax.vmap(lambda u: swapped(u, 0, jnp.arange(4), accept))(grid)
    np.testing.assert_allclose((at != jnp.arange(4)).mean(axis=0), [0.3, 0.3, 0.85, 0.85], atol=1e-3)


def test_round_trips_are_from_the_prior_to_the_posterior_and_back():
    traffic = Traffic.fresh(5)
    # the replica at each of three rungs; 0 goes up, and comes back in the last iteration; two are not in use
    for at, trips in [([0, 1, 2], 0), ([1, 0, 2], 0), ([1, 2, 0], 0), ([1, 0, 2], 0), ([0, 1, 2], 1)]:
        traffic = arrived(traffic, jnp.asarray([*at, 3, 4]), 3)
        assert int(traffic.round_trips) == trips
    assert traffic.heading.tolist() == [FROM_PRIOR, FROM_PRIOR, 0, 0, 0]
    # a replica that begins at the posterior has made no round trip when it comes to the prior
    traffic = arrived(Traffic.fresh(3), jnp.asarray([0, 1, 2]), 3)
    assert int(arrived(traffic, jnp.asarray([2, 1, 0]), 3).round_trips) == 0
    assert int(arrived(traffic, jnp.asarray([2, 1, 0]), 3).heading[0]) == FROM_POSTERIOR


def test_bridges_between_neighbours_are_their_ratios_of_evidence():
    """Weighted by their probabilities, all states give the ratio of normalising constants exactly."""
    betas = np.array([0.0, 0.3, 1.0])
    p, up, down = densities(betas), np.zeros(2), np.zeros(2)
    for s in itertools.product(range(4), repeat=3):
        one = observed(Traffic.fresh(3), jnp.asarray(betas), jnp.asarray(LIKELIHOODS[list(s)]), jnp.zeros(2))
        chance = np.prod([p[k, x] for k, x in enumerate(s)])
        up += chance * np.exp(one.up) if chance else 0.0
        down += chance * np.exp(one.down) if chance else 0.0
    with np.errstate(invalid="ignore"):
        constants = (PRIOR * np.exp(np.where(betas[:, None] > 0, betas[:, None] * LIKELIHOODS, 0))).sum(
            axis=1
        )
    np.testing.assert_allclose(np.log(up / down), np.diff(np.log(constants)))


# ---------------------------------------------------------------- schedules
def test_rounds_double_in_length_and_end_at_half_of_the_tuning_draws():
    ends = np.flatnonzero(jax.vmap(lambda t: ends_round(t, 1000))(jnp.arange(1500)))
    lengths = np.diff([0, *ends])
    assert len(ends) == ROUNDS_OF_TUNING
    assert ends[-1] == 500
    np.testing.assert_allclose(lengths[1:] / lengths[:-1], 2.0, rtol=0.2)
    assert not jax.vmap(lambda t: ends_round(t, 0))(jnp.arange(10)).any()


def test_a_schedule_divides_the_barrier_into_equal_parts():
    betas = jnp.asarray([0.0, 0.1, 0.4, 1.0, 1.0])
    rejections = jnp.asarray([0.6, 0.2, 0.4, 0.0])
    found = np.asarray(equal_rejections(betas, rejections, 4, 5))
    lengths = np.interp(found, [0, 0.1, 0.4, 1.0], [0, 0.6, 0.8, 1.2])
    np.testing.assert_allclose(lengths, np.linspace(0, 1.2, 5), atol=1e-5)
    fewer = np.asarray(equal_rejections(betas, rejections, 4, 3))
    assert (fewer[[0, 2, 3, 4]] == [0, 1, 1, 1]).all()
    none = np.asarray(equal_rejections(betas, jnp.zeros(4), 4, 4))  # nothing was ever rejected
    assert (np.diff(none[:4]) > 0).all()
    assert first_schedule(4, 6)[3:].tolist() == [1.0, 1.0, 1.0]


def test_the_number_of_rungs_follows_the_barrier():
    assert [int(rungs_for(jnp.asarray(length), 64)) for length in (0.1, 4.2, 8.0, 100.0)] == [3, 10, 17, 64]


# ---------------------------------------------------------------- the compiled iteration
def model_of_two_modes() -> pm.Model:
    with pm.Model() as model:
        z = pm.Bernoulli("z", [0.3, 0.6])
        k = pm.Categorical("k", [0.5, 0.3, 0.2])
        pm.Potential("both", 2.0 * pt.eq(z[0], z[1]) - 1.5 * pt.eq(k, 1) * z[0])
    return model


def tempered_program(model: pm.Model, replicas, step=None, tune: int = 0):
    moved = tempered(model)
    point = point_of(moved)
    steps, _ = steps_of(moved, steps_on(moved, model, step), point, False, (BETA,))
    blocks, packing = blocks_of(moved, steps, point, tune, 0.8, DEFAULTS, None, (BETA,))
    ladder = Ladder(moved, packing, replicas, tune)
    return Program(model, blocks, packing, recorded(model, None), [jax.devices()[0]], ladder=ladder), point


def test_a_compiled_iteration_leaves_the_product_of_all_rungs_as_it_is():
    """Replicas that start from the product of their densities have it after one iteration, too."""
    model = model_of_two_modes()
    with model:
        step = pmd.GibbsWithGradients(transitions=1)
    program, point = tempered_program(model, 3, step)
    logp = model.compile_logp(mode="FAST_COMPILE")
    prior = model.compile_logp(vars=model.free_RVs, mode="FAST_COMPILE")
    states = [(np.array([a, b]), np.array(c)) for a in (0, 1) for b in (0, 1) for c in range(3)]
    at = [{"z": z, "k": k} for z, k in states]
    likelihoods = np.array([logp(p) - prior(p) for p in at])
    logs = np.array([prior(p) for p in at]) + BETAS[:, None] * likelihoods
    p = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    n = 20_000
    one = program.start([point])
    packed = [program.points.packed(q) for q in at]

    def begin(x):
        state = jax.tree.map(lambda a: jnp.asarray(a[0]), one)
        points = {name: jnp.asarray(np.stack([q[name] for q in packed]))[x] for name in state.replicas.point}
        replicas = state.replicas._replace(
            point=points, likelihoods=jnp.asarray(likelihoods)[x], betas=jnp.asarray(BETAS)
        )
        return state._replace(replicas=replicas)

    def iteration(t, key, x):
        state, _ = program.transition(key, t, begin(x), program.numbers)
        at = state.replicas.replica_at
        values = program.points.unpacked({k: a[at] for k, a in state.replicas.point.items()}, lead=1)
        codes = (values["z"][:, 0] * 2 + values["z"][:, 1]) * 3 + values["k"]
        shown = program.points.unpacked(state.point)
        top = (shown["z"][0] * 2 + shown["z"][1]) * 3 + shown["k"]
        return codes, top, state.replicas.likelihoods[at]

    together = jax.jit(lambda t, *a: jax.lax.map(lambda b: iteration(t, *b), a))
    expected = np.einsum("a,b,c->abc", *p).ravel()
    for t in (2, 3):
        rng = np.random.default_rng(t)
        chosen = np.stack([rng.choice(12, n, p=q) for q in p], axis=1)
        keys = jax.random.split(jax.random.key(t), n)
        ends, top, of_ends = map(np.asarray, together(jnp.asarray(t), keys, chosen))
        assert (top == ends[:, 2]).all()
        np.testing.assert_allclose(of_ends, likelihoods[ends], atol=1e-12)
        seen = np.bincount(np.ravel_multi_index(ends.T, (12,) * 3), minlength=12**3)
        assert g_test(seen, expected) > 1e-3
        assert (ends != chosen).any(axis=0).all()
