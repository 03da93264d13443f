"""Block Gibbs on vectors with fixed sums, against the enumerated matrix of its sweep."""

import functools
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.from_logdensity import FunctionDensity
from pymc_discrete.kernels import block_gibbs, discrete_langevin, loop, tree_gibbs
from pymc_discrete.kernels.block_gibbs import ALL_SPLITS_EVERY, MANY_SPLITS, NEAR_SPLITS
from pymc_discrete.structure import dependence
from tests.tools.enumeration import (
    Enumerated,
    check_runs,
    check_sweep,
    enumerate_target,
    run_steps,
)
from tests.tools.transition_matrices import site_matrix


# ---------------------------------------------------------------- small models
def two_cells():
    pm.Multinomial("x", 6, np.array([0.3, 0.7]))
    return [range(7)] * 2, {}


def three_cells():
    x = pm.Multinomial("x", 5, np.array([0.2, 0.3, 0.5]))
    pm.Potential("e", 0.2 * x[0] * x[1] - 0.3 * x[1] * x[2])
    return [range(6)] * 3, {}


def four_cells():
    """Pairs interact with each other in two of the three matchings."""
    x = pm.DirichletMultinomial("x", n=4, a=np.array([0.5, 1.0, 2.0, 0.7]))
    pm.Potential("e", 0.6 * (x[0] * x[1] + x[2] * x[3]))
    return [range(5)] * 4, {}


def one_way():
    """Four cells that do not interact, so that both pairs of a matching are drawn together."""
    pm.Multinomial("x", 3, np.array([0.1, 0.2, 0.3, 0.4]))
    return [range(4)] * 4, {}


def vectors():
    """Sums of 0, 2 and 3, of which the last two interact."""
    x = pm.DirichletMultinomial("x", n=np.array([0, 2, 3]), a=np.array([0.5, 1.0]), shape=(3, 2))
    pm.Potential("e", 0.4 * x[1, 0] * x[2, 1])
    return [range(1)] * 2 + [range(3)] * 2 + [range(4)] * 2, {}


def bounded():
    pm.Multinomial("x", 4, np.array([0.2, 0.3, 0.5]))
    return [range(3), range(2), range(1, 4)], {"support": {"x": (np.array([0, 0, 1]), np.array([2, 1, 3]))}}


def beside_free_sites():
    x = pm.Multinomial("x", 3, np.array([0.2, 0.3, 0.5]))
    b = pm.Bernoulli("b", 0.4)
    pm.Potential("e", 0.9 * b * x[0] - 0.4 * b * x[1] * x[2])
    return [range(4)] * 3 + [range(2)], {}


def only_by_two():
    """States between two that are possible are impossible."""
    x = pm.Multinomial("x", 4, np.array([0.3, 0.3, 0.4]), initval=[1, 1, 2])
    pm.Potential("e", pt.switch(pt.eq(x[0], x[1]) | pt.eq(x[0] + x[1], 2), 0.0, -np.inf))
    return [range(5)] * 3, {}


def one_of_four():
    """Indicators of one of four categories, of which one is impossible, beside a free site."""
    x = pm.Multinomial("x", 1, np.array([0.4, 0.3, 0.1, 0.2]))
    b = pm.Bernoulli("b", 0.4)
    pm.Potential("e", 0.9 * b * x[0] - 0.4 * x[1] * x[2] + pt.switch(pt.eq(x[3], 1), -np.inf, 0.3 * x[2] * b))
    return [range(2)] * 5, {}


def units_and_more():
    """Two vectors with one unit that interact, one of them above its bounds, and one with two."""
    lower = np.array([[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    x = pm.Multinomial("x", np.array([1, 2, 2]), np.array([0.2, 0.3, 0.5]), shape=(3, 3))
    pm.Potential("e", 0.7 * x[0, 0] * x[1, 2] - 0.5 * x[1, 1] * x[2, 0])
    ranges = [range(low, 3) for low in lower.flatten()]
    return ranges, {"support": {"x": (lower, np.full((3, 3), 2))}}


def stretches():
    pm.Multinomial("x", 300, np.array([0.4, 0.6]))
    return [range(301)] * 2, {"window": "geometric"}


def long():
    """Splits that only a draw that looks at all of them joins."""
    x = pm.Multinomial("x", 70, np.array([0.4, 0.6]), initval=[10, 60])
    pm.Potential("e", pt.switch((x[0] < 15) | (x[0] > 55), 0.02 * pt.sqr(x[0] - 35), -np.inf))
    return [range(71)] * 2, {}


SMALL = (
    two_cells,
    three_cells,
    four_cells,
    one_way,
    vectors,
    bounded,
    beside_free_sites,
    only_by_two,
    one_of_four,
    units_and_more,
)
CASES = [
    *((build, "as it is") for build in (*SMALL, long, stretches)),
    *((build, "scan") for build in (four_cells, vectors, one_of_four, units_and_more)),
    (beside_free_sites, "function"),
    (one_of_four, "function"),
]
IDS = [f"{build.__name__}-{form}" for build, form in CASES]


# ---------------------------------------------------------------- the sweep, enumerated
def pair_matrix(e: Enumerated, a: int, b: int) -> np.ndarray:
    """(S, S): sites a and b drawn given their sum and all others, on stretches where they have a window.

    Of many splits most draws look at those on consecutive values only; then no two pairs are drawn at once.
    """
    space, others = e.target.space, [i for i in range(e.states.shape[1]) if i not in (a, b)]
    same = (e.states[:, None, others] == e.states[None][..., others]).all(-1)
    if not space.windowed[a]:
        P = all_splits(e, a, b)
        (v,) = (v for start, v in space.blocks if start <= a < start + v.size)
        near = on_stretches(e, a, same, NEAR_SPLITS + 1, [1]) if v.K > MANY_SPLITS else P
        return (P + (ALL_SPLITS_EVERY - 1) * near) / ALL_SPLITS_EVERY
    steps = space.column[a][space.exists[a] & (space.column[a] > 0)]
    strides = [s for s in steps if 8 * s <= steps[-1]]
    return on_stretches(e, a, same, 9, strides)


def all_splits(e: Enumerated, a: int, b: int) -> np.ndarray:
    """(S, S): sites a and b drawn given their sum and all others."""
    others = [i for i in range(e.states.shape[1]) if i not in (a, b)]
    same = (e.states[:, None, others] == e.states[None][..., others]).all(-1)
    P = np.where(same, e.pi, 0.0)
    return P / P.sum(1, keepdims=True)


def on_stretches(e: Enumerated, a: int, same: np.ndarray, length: int, strides) -> np.ndarray:
    """(S, S): site a drawn on `length` values at random strides; the `same` (S, S) are other sites."""
    total = np.zeros_like(same, float)
    for stride, place in itertools.product(strides, range(length)):
        stretch = e.states[:, a][:, None] + stride * (np.arange(length) - place)
        near = (e.states[None, :, a, None] == stretch[:, None]).any(-1)
        P = np.where(same & near, e.pi, 0.0)
        total += P / P.sum(1, keepdims=True) / (length * len(strides))
    return total


def orders_of_set(sites: np.ndarray, turns: int) -> list[list[list[tuple[int, int]]]]:
    """The pairs of each turn, in all equally probable orders, for a set of two to four sites.

    Up to four sites have no other matchings than the rounds of a tournament, and any order of up to three
    rounds goes round the circle one way or the other.
    """
    *circle, last = sites
    if len(sites) == 4:
        rounds = [[(circle[t - 2], circle[t - 1]), (circle[t], last)] for t in range(3)]
    else:
        rounds = [[pair] for pair in itertools.combinations(sites, 2)]
    each = itertools.product(itertools.permutations(rounds, turns), (1, -1))
    return [[matched[::step] for matched in order] for order, step in each]


def sets_matrix(e: Enumerated, sets: list[np.ndarray], turns: int) -> np.ndarray:
    """(S, S): the sets matched in some turns, one set after another in each turn."""
    orders, total = [orders_of_set(sites, turns) for sites in sets], 0.0
    for order in itertools.product(*orders):
        pairs = [pair for t in range(turns) for of_set in order for pair in of_set[t]]
        total = total + functools.reduce(np.matmul, [pair_matrix(e, *pair) for pair in pairs])
    return total / np.prod([len(of_set) for of_set in orders])


def unit_matrix(e: Enumerated, sites: np.ndarray) -> np.ndarray:
    """(S, S): the sites of a set drawn together, given all others."""
    others = np.setdiff1d(np.arange(e.states.shape[1]), sites)
    P = np.where((e.states[:, None, others] == e.states[None][..., others]).all(-1), e.pi, 0.0)
    return P / P.sum(1, keepdims=True)


def set_matrices(e: Enumerated, n: int, sets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """[(forward, backward)] of the visits to some sets of variable n: those with one unit, and the others."""
    v, start, c = e.target.space.variables[n], e.target.space.starts[n], None
    units, others, visits = [], [], []
    for s in sets:
        sites = v.constraint.sites[s]
        c = len(sites)
        alone = not v.swaps and c > 2 and v.constraint.totals[s] - v.lower[sites].sum() == 1
        (units if alone else others).append(start + sites)
    if units:
        each = [unit_matrix(e, sites) for sites in units]
        visits.append((functools.reduce(np.matmul, each), functools.reduce(np.matmul, each[::-1])))
    if others:
        # what a function costs is not known: then each set is matched once
        turns = 1 if isinstance(e.target.density, FunctionDensity) else c - 1 + c % 2
        visits.append((sets_matrix(e, others, turns), sets_matrix(e, others[::-1], turns)))
    return visits


def sweep_matrices(e: Enumerated) -> tuple[np.ndarray, np.ndarray]:
    """(S, S) a sweep in either order, by a fair coin; (S, S) a sweep in order."""
    target, starts = e.target, e.target.space.starts

    def of_sites(groups):
        return [(site_matrix(e, starts[n] + int(i)),) * 2 for n, sites in groups for i in sites]

    def of_sets(groups):
        return [visit for n, sets, _ in groups for visit in set_matrices(e, n, sets)]

    # in the order of a sweep
    parts = [*of_sites(target.interactions.colours), *of_sets(target.interactions.coloured_sets)]
    parts += [*of_sites(target.interactions.scanned), *of_sets(target.interactions.scanned_sets)]
    forward = functools.reduce(np.matmul, [there for there, _ in parts])
    backward = functools.reduce(np.matmul, [back for _, back in parts[::-1]])
    return (forward + backward) / 2, forward


@functools.cache
def small(build, form):
    with pm.Model() as model:
        ranges, options = build()
        if form == "scan":
            together = pt.cumsum(pt.concatenate([v.flatten() for v in model.free_RVs]))
            pm.Potential("dense", -0.1 * pt.sqr(together - 2).sum())
    names = [v.name for v in model.discrete_value_vars]
    with pytest.MonkeyPatch.context() as patch:
        if form == "scan":  # so few sites would not count as dense
            patch.setattr(dependence, "most_sites", lambda d: 0)
        target = pmd.target_from_model(model, names, differences="exact", **options)
    if form == "function":
        target = pmd.target_from_logdensity(target.logdensity, target.space)
    e = enumerate_target(target, ranges)
    return e, *sweep_matrices(e)


@pytest.mark.parametrize(("build", "form"), CASES, ids=IDS)
@pytest.mark.by_default("three_cells-as it is", "vectors-as it is", "four_cells-scan", "units_and_more-scan")
def test_sweep_is_reversible_and_irreducible(build, form):
    e, P, forward = small(build, form)
    assert bool(e.target.interactions.scanned_sets) == (form != "as it is")
    check_sweep(e.pi, P, forward)


# what is compiled differently, once: one set and several, an even and an odd number of counts, bounds of
# their own, at once and in turn, all values of a pair and some; units and pairs drawn together are below
COMPILED = [
    *((build, "as it is") for build in (four_cells, bounded, stretches)),
    (vectors, "scan"),
    (units_and_more, "scan"),
    (beside_free_sites, "function"),
]


@pytest.mark.parametrize(("build", "form"), COMPILED, ids=[f"{b.__name__}-{form}" for b, form in COMPILED])
@pytest.mark.by_default("units_and_more-scan")
def test_compiled_sweeps_do_what_was_enumerated(build, form):
    e, P, _ = small(build, form)
    check_runs(run_steps(e, *block_gibbs(), runs=20_000, seed=COMPILED.index((build, form))), P)


@pytest.mark.slow
def test_vectors_of_one_unit_are_drawn_in_batches(monkeypatch):
    """Three vectors, two at a time."""
    with pm.Model() as model:
        x = pm.Multinomial("x", 1, np.array([0.2, 0.3, 0.5]), shape=(3, 3))
        b = pm.Bernoulli("b", 0.4)
        pm.Potential("e", (0.8 * b * x[:, 0] * np.array([1.0, -1.0, 2.0])).sum())
    e = enumerate_target(pmd.target_from_model(model, ["x", "b"]), [range(2)] * 10)
    of_kernel = sys.modules["pymc_discrete.kernels.block_gibbs"]
    cost = of_kernel.cost_of_draws(e.target, e.target.space.variables.index(of_units(e)), 3, 2)
    monkeypatch.setattr(of_kernel, "AT_ONCE", 2.5 * cost)
    check_runs(run_steps(e, *block_gibbs(), runs=5_000, seed=3), sweep_matrices(e)[0])


def of_units(e: Enumerated):
    """The variable of the space whose sites change together."""
    (v,) = (v for v in e.target.space.variables if v.constraint is not None)
    return v


@pytest.mark.slow
def test_pairs_that_look_at_near_splits_are_drawn_apart(monkeypatch):
    """Two pairs in one draw, of which both look at all splits or none does; each has uniforms of its own."""
    of_kernel, near, whole = sys.modules["pymc_discrete.kernels.block_gibbs"], 2, 3
    for name, value in (("MANY_SPLITS", 4), ("NEAR_SPLITS", near), ("ALL_SPLITS_EVERY", whole)):
        monkeypatch.setattr(of_kernel, name, value)
    with pm.Model() as model:
        pm.Multinomial("x", 5, np.array([0.1, 0.2, 0.3, 0.4]))
    e = enumerate_target(pmd.target_from_model(model, ["x"]), [range(6)] * 4)

    def near_matrix(a, b):
        others = [i for i in range(4) if i not in (a, b)]
        same = (e.states[:, None, others] == e.states[None][..., others]).all(-1)
        return on_stretches(e, a, same, near + 1, [1])

    turns = [
        (all_splits(e, a, b) @ all_splits(e, c, d) + (whole - 1) * near_matrix(a, b) @ near_matrix(c, d))
        / whole
        for a, b, c, d in ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))
    ]
    P = sum(functools.reduce(np.matmul, order) for order in itertools.permutations(turns)) / 6
    check_runs(run_steps(e, *block_gibbs(), runs=20_000, seed=77), P)


# ---------------------------------------------------------------- planted errors
def test_the_checks_see_a_matching_that_looks_at_the_state(monkeypatch):
    """The two largest counts together: the next state would be matched in another way."""
    e, P, _ = small(one_way, "as it is")
    Q = np.zeros_like(P)
    for s, state in enumerate(e.states):
        a, b, *rest = np.argsort(-state, kind="stable")
        Q[s] = (pair_matrix(e, a, b) @ pair_matrix(e, *rest))[s]
    assert np.abs(e.pi @ Q - e.pi).max() > 1e-3
    assert np.abs(e.pi @ P - e.pi).max() <= 1e-12


# ---------------------------------------------------------------- the others
@pytest.mark.parametrize("kernel", [discrete_langevin(), tree_gibbs()])
def test_kernels_that_move_single_sites_refuse(kernel):
    target = small(two_cells, "as it is")[0].target
    with pytest.raises(ValueError, match=r"those of 'x' can only change two at a time.*pmd.BlockGibbs"):
        loop(kernel[0], jax.random.key(0), kernel[0].init(jnp.array([2, 4]), target), target, kernel[1], 1)
