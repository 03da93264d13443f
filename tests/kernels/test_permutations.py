"""Block Gibbs on permutations, against the enumerated matrix of its sweep."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import block_gibbs, discrete_langevin, loop, tree_gibbs
from pymc_discrete.kernels.block_gibbs import matchings, tournament
from pymc_discrete.structure import dependence
from tests.kernels.test_fixed_sums import sweep_matrices
from tests.tools.enumeration import check_runs, check_sweep, enumerate_target, run_steps
from tests.tools.statistics import g_test

W = np.random.default_rng(4).normal(0, 1.2, (4, 4))


# ---------------------------------------------------------------- small models
def uniform_of_three():
    pmd.Permutation("x", 3)
    return [range(3)] * 3


def uniform_of_four():
    pmd.Permutation("x", 4)
    return [range(4)] * 4


def weighted_of_three():
    pmd.Permutation("x", 3, W[:3, :3])
    return [range(3)] * 3


def weighted_of_four():
    pmd.Permutation("x", 4, W)
    return [range(4)] * 4


def joined():
    """A likelihood that joins places beside each other."""
    x = pmd.Permutation("x", 4)
    pm.Potential("e", pt.as_tensor(W)[x[:-1], x[1:]].sum())
    return [range(4)] * 4


def two_at_once():
    x = pmd.Permutation("x", 3, W[:3, :3], shape=(2, 3))
    pm.Potential("e", 0.4 * x[0, 0] * x[1, 2])
    return [range(3)] * 6


def beside_others():
    """In one block with a free site and with counts."""
    x, b = pmd.Permutation("x", 3), pm.Bernoulli("b", 0.4)
    c = pm.Multinomial("c", 2, np.array([0.2, 0.3, 0.5]))
    pm.Potential("e", 0.7 * b * x[0] + 0.3 * c[0] * x[1])
    return [range(3)] * 3 + [range(2)] + [range(3)] * 3


SMALL = (
    uniform_of_three,
    uniform_of_four,
    weighted_of_three,
    weighted_of_four,
    joined,
    two_at_once,
    beside_others,
)
CASES = [
    *((build, "as it is") for build in SMALL),
    *((build, "scan") for build in (weighted_of_three, joined, two_at_once)),
    (weighted_of_four, "function"),
]
IDS = [f"{build.__name__}-{form}" for build, form in CASES]


@functools.cache
def small(build, form):
    with pm.Model() as model:
        ranges = build()
        if form == "scan":
            together = pt.cumsum(pt.concatenate([v.flatten() for v in model.free_RVs]))
            pm.Potential("dense", -0.1 * pt.sqr(together - 2).sum())
    names = [v.name for v in model.discrete_value_vars]
    with pytest.MonkeyPatch.context() as patch:
        if form == "scan":  # so few sites would not count as dense
            patch.setattr(dependence, "most_sites", lambda d: 0)
        target = pmd.target_from_model(model, names, differences="exact")
    if form == "function":
        target = pmd.target_from_logdensity(target.logdensity, target.space)
    e = enumerate_target(target, ranges)
    return e, *sweep_matrices(e)


def signs(e) -> np.ndarray:
    """(S,) whether the number of inversions of all sites of a state is odd."""
    i, j = np.triu_indices(e.states.shape[1], 1)
    return (e.states[:, i] > e.states[:, j]).sum(axis=1) % 2 == 1


@pytest.mark.parametrize(("build", "form"), CASES, ids=IDS)
@pytest.mark.by_default("weighted_of_four-as it is", "joined-scan", "two_at_once-as it is")
def test_sweep_is_reversible_and_irreducible(build, form):
    e, P, forward = small(build, form)
    assert bool(e.target.interactions.scanned_sets) == (form != "as it is")
    check_sweep(e.pi, P, forward)


@pytest.mark.parametrize("build", [uniform_of_three, uniform_of_four, weighted_of_four, joined])
@pytest.mark.by_default("weighted_of_four")
def test_odd_and_even_permutations_are_reached_from_each_state(build):
    e, P, _ = small(build, "as it is")
    odd = signs(e)
    assert 0 < odd.sum() < len(odd)
    assert (P[:, odd].sum(axis=1) > 1e-6).all()
    assert (P[:, ~odd].sum(axis=1) > 1e-6).all()
    assert (np.diag(P) > 1e-9).all()


# what is compiled differently, once: one permutation and two, an even and an odd number of places, with and
# without terms that join them
COMPILED = [(two_at_once, "as it is"), (beside_others, "as it is"), (joined, "scan")]


@pytest.mark.parametrize(("build", "form"), COMPILED, ids=[f"{b.__name__}-{form}" for b, form in COMPILED])
@pytest.mark.by_default("joined-scan")
def test_compiled_sweeps_do_what_was_enumerated(build, form):
    e, P, _ = small(build, form)
    check_runs(run_steps(e, *block_gibbs(), runs=20_000, seed=CASES.index((build, form))), P)


# ---------------------------------------------------------------- which places meet
@pytest.mark.parametrize("c", range(1, 9))
def test_every_two_sites_are_matched_equally_often(c):
    sites = np.random.default_rng(0).permutation(2 * c).reshape(2, c)
    draw = jax.jit(jax.vmap(lambda key: matchings(key, sites, 1)(0)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), 2000)))
    assert drawn.shape == (2000, c // 2, 2, 2)
    for r, own in enumerate(sites):
        assert np.isin(drawn[:, :, r], own).all()
        assert all(len(np.unique(pairs)) == pairs.size for pairs in drawn[:, :, r])
        counts = [
            (np.sort(drawn[:, :, r]) == sorted(pair)).all(-1).sum() for pair in itertools.combinations(own, 2)
        ]
        assert c == 1 or g_test(np.array(counts), np.full(len(counts), 1 / len(counts))) > 1e-3
        assert c == 1 or sum(counts) == 2000 * (c // 2)
        assert len(counts) == tournament(c) * (c // 2)
        # and the order of the pairs is as probable as its reverse
        first = (drawn[:, 0, r] == own[-1]).any(-1).sum() if c > 3 else 0
        last = (drawn[:, -1, r] == own[-1]).any(-1).sum() if c > 3 else 0
        assert abs(first - last) <= 5 * np.sqrt(first + last)


@pytest.mark.parametrize("c", range(2, 9))
def test_a_full_round_tries_every_pair_once(c):
    sites = np.random.default_rng(0).permutation(2 * c).reshape(2, c)

    def every_turn(key):
        return jnp.stack([matchings(key, sites, tournament(c))(t) for t in range(tournament(c))])

    drawn = np.asarray(jax.jit(jax.vmap(every_turn))(jax.random.split(jax.random.key(2), 200)))
    pairs = np.sort(drawn.transpose(0, 3, 1, 2, 4).reshape(200, 2, -1, 2))  # draw, set, place in the round
    for r, own in enumerate(sites):
        wanted = sorted(itertools.combinations(sorted(own.tolist()), 2))
        assert all(sorted(map(tuple, of_draw.tolist())) == wanted for of_draw in pairs[:, r])
    # the round begins anywhere, goes either way, and not the same way for each set
    assert len(np.unique(pairs[:, 0], axis=0)) == {2: 1, 3: 6}.get(c, 4 * tournament(c))
    assert c == 2 or len({p.tobytes() for p in pairs.reshape(200, -1)}) > 4 * tournament(c)


# ---------------------------------------------------------------- the others
@pytest.mark.parametrize("kernel", [discrete_langevin(), tree_gibbs()])
def test_kernels_that_move_single_sites_refuse(kernel):
    target = small(uniform_of_three, "as it is")[0].target
    with pytest.raises(ValueError, match=r"those of 'x' can only change two at a time.*pmd.BlockGibbs"):
        loop(kernel[0], jax.random.key(0), kernel[0].init(jnp.arange(3), target), target, kernel[1], 1)
