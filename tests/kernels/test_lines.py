"""Block Gibbs along lines, of A x = y and of counts that limit each other, against its enumerated sweep."""

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
from pymc_discrete.kernels import (
    block_gibbs,
    discrete_langevin,
    gibbs_with_gradients,
    lines,
    loop,
    path_auxiliary,
)
from pymc_discrete.kernels.settle import settle
from pymc_discrete.space import lattice, linear_constraint
from pymc_discrete.space.linear_constraint import LinearConstraint, Lines
from pymc_discrete.structure import dependence
from tests.tools.enumeration import (
    Enumerated,
    check_runs,
    check_sweep,
    enumerate_target,
    run_steps,
)
from tests.tools.statistics import g_test
from tests.tools.transition_matrices import site_matrix

CUBIC = np.array([[3, 2, 1, 0], [0, 1, 2, 3]])


def known(total, number, name="known"):
    pm.Potential(name, pt.switch(pt.all(pt.eq(total, number)), 0.0, -np.inf))


# ---------------------------------------------------------------- small models
def table_2_by_2():
    x = pm.Poisson("x", np.array([[1.0, 2.0], [0.5, 1.5]]))
    known(x.sum(axis=1), [4, 2], "rows")
    known(x.sum(axis=0), [3, 3], "columns")
    return [range(5)] * 2 + [range(3)] * 2


def table_2_by_3():
    x = pm.Binomial("x", n=np.array([[3, 2, 4], [3, 3, 2]]), p=np.array([0.3, 0.5, 0.6]))
    known(x.sum(axis=1), [4, 3], "rows")
    known(x.sum(axis=0), [2, 2, 3], "columns")
    pm.Potential("e", 0.4 * x[0, 0] * x[1, 1] - 0.3 * x[0, 2])
    return [range(4), range(3), range(5), range(4), range(4), range(3)]


def cubic():
    x = pm.Poisson("x", [1.0, 2.0, 1.5, 0.7])
    known(CUBIC @ x, [6, 6])
    return [range(3), range(4), range(4), range(3)]


def two_tables():
    """Two sets that interact, one of two dimensions, beside a free site and one that is in no equation."""
    x = pm.DirichletMultinomial("x", n=3, a=np.array([0.5, 1.0, 2.0]))
    z, b = pm.Poisson("z", [1.0, 2.0, 1.0]), pm.Bernoulli("b", 0.4)
    known(x[0] + x[1], z[0] + 1)
    known(z[1] + 2 * z[2], 4, "other")
    pm.Potential("e", 0.5 * x[0] * z[1] - 0.2 * b * z[0])
    return [*[range(4)] * 4, range(5), range(3), range(2)]


def two_sets():
    """Two sets of one variable, that interact."""
    x = pm.Poisson("x", [2.0, 1.0, 1.0, 2.0])
    known(x[:2] @ [1, 2], 4)
    known(x[2:] @ [1, 2], 5, "other")
    pm.Potential("e", 0.6 * x[0] * x[3])
    return [range(5), range(3), range(6), range(3)]


def sets_at_once():
    """Two sets that do not interact, of two dimensions each."""
    x = pm.Poisson("x", np.array([[1.0, 0.6, 0.8], [0.7, 1.2, 1.0]]))
    known(x @ [1, 1, 2], [3, 2])
    return [*[range(4)] * 2, range(2), *[range(3)] * 2, range(2)]


def unknown_total():
    n = pm.Binomial("n", 3, 0.6)
    pm.DirichletMultinomial("x", n=n, a=[0.5, 1.0, 2.0])
    return [range(4)] * 4


def total_of_a_category():
    """The number of a category is a part of the total."""
    n = pm.Categorical("n", [0.1, 0.2, 0.3, 0.4])
    x = pm.Multinomial("x", n=1 + n, p=[0.5, 0.2, 0.3])
    pm.Potential("e", 0.4 * x[0] * pt.eq(n, 2))
    return [range(4), *[range(5)] * 3]


def only_far_away():
    """Parity: values between two that are possible are impossible."""
    x = pm.Poisson("x", [2.0, 2.0, 2.0])
    known(x.sum(), 6)
    pm.Potential("even", pt.switch(pt.all(pt.eq(x % 2, 0)), 0.0, -np.inf))
    return [range(7)] * 3


def stretches():
    x = pm.DiscreteUniform("x", 0, 300, shape=2)
    known(x.sum(), 300)
    pm.Potential("e", 0.01 * x[0])
    return [range(301)] * 2


# ---------------------------------------------------------------- counts that limit each other
def cohort():
    """A chain, in which lines are at most as long as the counts are large."""
    left = pm.Binomial("n0", 4, 0.6)
    left = pm.Binomial("n1", left, 0.7)
    pm.Binomial("n2", left, 0.5)
    return [range(5)] * 3


def epidemic():
    well, ill = 3, 1
    for t in range(2):
        infections = pm.Binomial(f"infections{t}", well, 1 - pt.exp(-0.8 * ill))
        removals = pm.Binomial(f"removals{t}", ill, 0.4)
        well, ill = well - infections, ill + infections - removals
    pm.Binomial("seen", infections + removals, 0.5, observed=1)
    return [range(4), range(2), range(4), range(5)]


def two_cohorts():
    """Two sets that interact, beside a free site and counts with a known sum."""
    left = pm.Binomial("n0", 3, 0.6, shape=2)
    later = pm.Binomial("n1", left, 0.7, shape=2)
    x, b = pm.Poisson("x", [1.0, 2.0]), pm.Bernoulli("b", 0.4)
    known(x.sum(), 2)
    pm.Potential("e", 0.3 * left[0] * left[1] - 0.2 * b * later[0] + 0.1 * x[0] * later[1])
    return [*[range(4)] * 4, *[range(3)] * 2, range(2)]


def cohorts_at_once():
    """Two sets that do not interact."""
    pm.Binomial("n1", pm.Binomial("n0", 2, 0.6, shape=2), [0.7, 0.4])
    return [range(3)] * 4


def large_cohort():
    """Lines with more values than one draw looks at, here."""
    pm.Binomial("n1", pm.DiscreteUniform("n0", 0, 10), 0.5)
    return [range(11)] * 2


def cohort_of_two():
    pm.Binomial("n1", pm.Binomial("n0", 3, 0.6), 0.7)
    return [range(4)] * 2


SMALL = (table_2_by_3, two_tables, sets_at_once, only_far_away, unknown_total)
LIMITED = (cohort, epidemic, cohorts_at_once, cohort_of_two)
AS_IT_IS = [(build, "as it is") for build in (*SMALL, epidemic, cohorts_at_once, stretches, large_cohort)]
CASES = AS_IT_IS + [(build, "scan") for build in (cubic, two_sets, cohort_of_two)]
CASES.append((total_of_a_category, "as it is"))
IDS = [f"{build.__name__}-{form}" for build, form in CASES]


NEAR = 4


@pytest.fixture(autouse=True)
def few_values_at_once(monkeypatch):
    """So that a small model has lines with more, of which a draw looks at some."""
    monkeypatch.setattr(lines, "LONGEST_WHOLE_LINE", 10)
    monkeypatch.setattr(sys.modules["pymc_discrete.kernels.block_gibbs"], "NEAR_SPLITS", NEAR)


# ---------------------------------------------------------------- the sweep, enumerated
def line_matrix(e: Enumerated, sites, v) -> np.ndarray:
    """(S, S): the sites drawn from their conditional on x + t v; on stretches where they have a window."""
    space = e.target.space
    v = np.bincount(sites, v, space.d).astype(int)
    if not v.any():
        return np.eye(len(e.states))
    apart = e.states[None] - e.states[:, None]
    t = apart[..., np.flatnonzero(v)[0]] // v[np.flatnonzero(v)[0]]
    on_line = (apart == t[..., None] * v).all(axis=-1)
    if not space.windowed[sites[0]] and e.states.max() < lines.LONGEST_WHOLE_LINE:
        P = np.where(on_line, e.pi, 0.0)
        return P / P.sum(1, keepdims=True)
    steps = space.column[sites[0]][space.exists[sites[0]] & (space.column[sites[0]] > 0)]
    width = 8 if space.windowed[sites[0]] else NEAR
    strides = [s for s in steps if 8 * s <= steps[-1]] if space.windowed[sites[0]] else [1]
    total = np.zeros_like(on_line, float)
    for stride, place in itertools.product(strides, range(width + 1)):
        P = np.where(
            on_line & (t % stride == 0) & (t // stride >= -place) & (t // stride <= width - place), e.pi, 0.0
        )
        total += P / P.sum(1, keepdims=True) / ((width + 1) * len(strides))
    return total


def turn_by_turn(turns: list[list[np.ndarray]]) -> np.ndarray:
    """(S, S): of each turn the matrices of all sets, one after another."""
    return functools.reduce(np.matmul, [P for turn in turns for P in turn])


def short_matrices(e: Enumerated, c: LinearConstraint, start: int, sets) -> tuple[np.ndarray, np.ndarray]:
    """(S, S) each: short lines of some sets in random order, forward and backward."""
    found = c.lines(np.array(sets))
    return in_any_order(e, found, start, int(found.number.max()))


def in_any_order(e: Enumerated, found: Lines, start: int, turns: int) -> tuple[np.ndarray, np.ndarray]:
    """(S, S) each: lines of some sets in random order, averaged over all orders; the same backward."""
    each = [
        [line_matrix(e, start + found.sites[r, k], once(found, r, k)) for k in range(found.number[r])]
        for r in range(len(found.number))
    ]
    orders = [itertools.permutations(of_set, min(turns, len(of_set))) for of_set in each]
    forward, backward, number = 0.0, 0.0, 0
    for order in itertools.product(*orders):
        drawn = [[of_set[t % len(of_set)] for of_set in order] for t in range(turns)]
        forward = forward + turn_by_turn(drawn)
        backward = backward + turn_by_turn([turn[::-1] for turn in drawn[::-1]])
        number += 1
    return forward / number, backward / number


def once(found, r, k):
    """The steps of a line, 0 where its first site is repeated as padding."""
    repeated = np.arange(found.sites.shape[-1]) > 0
    return np.where(repeated & (found.sites[r, k] == found.sites[r, k, 0]), 0, found.steps[r, k])


def combined_matrix(e: Enumerated, c: LinearConstraint, start: int, s: int) -> np.ndarray:
    """(S, S): a random integer combination of the basis of a set; one that is longer than the space stays."""
    basis, sites = c.bases[s], start + c.sites[s]
    p, far = min(0.5, 2.0 / len(basis)), 9
    weights: dict[tuple[int, ...], float] = {}
    for coefficients in itertools.product(range(-far, far + 1), repeat=len(basis)):
        a = np.abs(np.array(coefficients))
        weight = float(np.prod(np.where(a > 0, p / 2 * 2.0**-a, 1 - p)))
        v = tuple((np.array(coefficients) @ basis).tolist())
        v = min(v, tuple(-a for a in v))
        weights[v] = weights.get(v, 0.0) + weight
    span = np.ptp(e.states, axis=0)[sites]
    total = np.zeros((len(e.states),) * 2)
    for v, weight in weights.items():
        total += weight * (
            line_matrix(e, sites, np.array(v)) if (np.abs(v) <= span).all() else np.eye(len(total))
        )
    return total + (1 - sum(weights.values())) * np.eye(len(total))


def sweep_matrices(e: Enumerated) -> tuple[np.ndarray, np.ndarray]:
    """(S, S) a sweep in either order, by a fair coin; (S, S) a sweep in order."""
    target, starts = e.target, e.target.space.starts
    visits = []  # [(forward, backward)], in the order of a sweep
    for groups, sets_of_groups in (
        (target.interactions.colours, target.interactions.coloured_sets),
        (target.interactions.scanned, target.interactions.scanned_sets),
    ):
        visits += [(site_matrix(e, starts[n] + int(i)),) * 2 for n, sites in groups for i in sites]
        for n, sets, _ in sets_of_groups:
            visits += set_matrices(e, n, sets)
    for n, sets, _ in [*target.interactions.coloured_lines, *target.interactions.scanned_lines]:
        found = target.space.variables[n].lines.of(sets)
        visits.append(in_any_order(e, found, starts[n], found.turns))
    forward = functools.reduce(np.matmul, [there for there, _ in visits])
    backward = functools.reduce(np.matmul, [back for _, back in visits[::-1]])
    return (forward + backward) / 2, forward


def set_matrices(e: Enumerated, n: int, sets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """[(forward, backward)] of the two visits to some sets of variable n."""
    c, start = e.target.space.variables[n].constraint, e.target.space.starts[n]
    moving = [s for s in sets if len(c.bases[s])]
    several = [combined_matrix(e, c, start, s) for s in moving if len(c.bases[s]) > 1]
    visits = [short_matrices(e, c, start, moving)] if moving else []
    return visits + ([(turn_by_turn([several]), turn_by_turn([several[::-1]]))] if several else [])


@functools.cache
def small(build, form="as it is"):
    return enumerate_target(*target_of(build, form))


def target_of(build, form="as it is"):
    """The target, and the ranges of its sites."""
    with pm.Model() as model:
        ranges = build()
        if form == "scan":
            together = pt.cumsum(pt.concatenate([v.flatten() for v in model.free_RVs]))
            pm.Potential("dense", -0.1 * pt.sqr(together - 2).sum())
        options = {"window": "geometric"} if build is stretches else {}
        with pytest.MonkeyPatch.context() as patch:
            if form == "scan":  # so few sites would not count as dense
                patch.setattr(dependence, "most_sites", lambda d: 0)
            return pmd.BlockGibbs(differences="exact", **options).target, ranges


@functools.cache
def matrices(build, form):
    return sweep_matrices(small(build, form))


@pytest.mark.parametrize(("build", "form"), CASES, ids=IDS)
@pytest.mark.by_default(
    "table_2_by_3-as it is",
    "two_tables-as it is",
    "cubic-scan",
    "unknown_total-as it is",
    "total_of_a_category-as it is",
)
def test_sweep_is_reversible_and_irreducible(build, form):
    e, (P, forward) = small(build, form), matrices(build, form)
    scanned = (
        e.target.interactions.scanned_lines
        if build in (*LIMITED, large_cohort)
        else e.target.interactions.scanned_sets
    )
    assert bool(scanned) == (form != "as it is")
    check_sweep(e.pi, P, forward)


# What is compiled differently, once: one set and several, drawn at once and in turn, with one dimension and
# several, of one variable and of two, with all values of a line and some of them.
RUN = [
    (sets_at_once, "as it is"),
    (two_sets, "scan"),  # its sets interact: an order that the way back does not reverse is seen
    (stretches, "as it is"),
    (cohort_of_two, "scan"),
    (large_cohort, "as it is"),
]


@pytest.mark.parametrize(("build", "form"), RUN, ids=[f"{build.__name__}-{form}" for build, form in RUN])
@pytest.mark.by_default("sets_at_once-as it is")
def test_compiled_sweeps_do_what_was_enumerated(build, form):
    e, (P, _) = small(build, form), matrices(build, form)
    # 20,000 sweeps, since more would take longer than to compile them; w, the root of the mean of squared
    # relative errors, is found in all rows together from w^2 = 4 sqrt(2 S C) / 20,000 on, of S rows with C
    # cells each: 0.1 for 50 rows of 10 cells
    check_runs(run_steps(e, *block_gibbs(), runs=20_000, seed=CASES.index((build, form))), P)


# ---------------------------------------------------------------- which vectors are needed
def cut_off():
    x = pm.Poisson("x", np.ones(4))
    known(CUBIC @ x, [3, 3])
    return [range(4)] * 4


@pytest.mark.slow
def test_vectors_of_a_basis_alone_do_not_connect_all_tables(monkeypatch):
    """(1, 0, 0, 1) and (0, 1, 1, 0) have the same sums, and no vector of this basis leads to the other."""
    basis = np.array([[1, -2, 1, 0], [0, 1, -2, 1]])
    assert not (CUBIC @ basis.T).any()
    monkeypatch.setattr(linear_constraint, "basis_of", lambda matrix: basis)
    monkeypatch.setattr(linear_constraint, "short_vectors", lambda basis, rng: basis)
    with pm.Model():
        cut_off()
        e = enumerate_target(pmd.BlockGibbs().target, [range(4)] * 4)
    assert e.states.tolist() == [[0, 1, 1, 0], [1, 0, 0, 1]]
    c = e.target.space.variables[0].constraint
    short, _ = short_matrices(e, c, 0, [0])
    np.testing.assert_array_equal(short, np.eye(2))
    combined = combined_matrix(e, c, 0, 0)
    assert combined[0, 1] > 0
    assert combined[1, 0] > 0


def test_the_short_vectors_hold_what_connects_them():
    assert (1, -1, -1, 1) in map(
        tuple, lattice.short_vectors(lattice.basis_of(CUBIC), np.random.default_rng(0)).tolist()
    )


# ---------------------------------------------------------------- the directions that are drawn
def draws_of(directions, n=20_000):
    """(n, T, R, m) the steps, after the sites were looked at."""
    return np.asarray(
        jax.jit(jax.vmap(lambda key: directions(key)[1]))(jax.random.split(jax.random.key(0), n))
    )


def test_combinations_have_coefficients_of_either_sign_and_any_size():
    lattices = Lines(
        np.zeros((2, 2, 3), int), np.array([[[1, 0, 2], [0, 1, 3]], [[0, 1, 1], [1, 0, 5]]]), np.array([2, 2])
    )
    steps = draws_of(lines.random_combinations(lattices))[:, 0]
    drawn = np.stack([steps[:, 0, :2], steps[:, 1, 1::-1]], axis=1)  # (n, R, K)
    assert (steps == np.einsum("nrk,rkm->nrm", drawn, lattices.steps)).all()
    sizes = np.append(0, np.repeat(np.arange(1, 6), 2))
    each = np.where(sizes == 0, 0.5, 0.25 * 2.0**-sizes)  # of 0, 1, -1, 2, -2, ...
    number = np.where(drawn > 0, 2 * drawn - 1, -2 * drawn)
    for coefficient in number.reshape(len(number), -1).T:
        got = np.bincount(coefficient, minlength=len(each))[: len(each)]
        rest = len(coefficient) - got.sum()
        assert g_test(np.append(got, rest), np.append(each, 1 - each.sum())) > 1e-4
    together = np.bincount(
        np.ravel_multi_index(np.minimum(number, 2).reshape(-1, 4).T, (3,) * 4), minlength=81
    )
    p = functools.reduce(np.kron, [[0.5, 0.125, 0.375]] * 4)
    assert g_test(together, p) > 1e-4


def test_lines_come_in_any_order_of_each_set_and_no_padding():
    found = Lines(np.zeros((2, 3, 1), int), np.array([[1, 2, 3], [1, 2, 0]])[..., None], np.array([3, 2]))
    turns = draws_of(lines.in_random_order(found, 3))[..., 0]  # (n, T, R)
    wanted = [
        (*one, *other, other[0])
        for one, other in itertools.product(itertools.permutations([1, 2, 3]), [(1, 2), (2, 1)])
    ]
    got = [(np.concatenate([turns[..., 0], turns[..., 1]], axis=1) == w).all(axis=1).sum() for w in wanted]
    assert sum(got) == len(turns)
    assert g_test(np.array(got), np.full(12, 1 / 12)) > 1e-4


# ---------------------------------------------------------------- planted errors
def test_the_checks_see_directions_that_look_at_the_state():
    """The vector along which most values are possible: the next state would have another one."""
    e = small(table_2_by_3)
    c = e.target.space.variables[0].constraint
    (s,) = (s for s, basis in enumerate(c.bases) if len(basis))
    found = c.lines(np.array([s]))
    each = [line_matrix(e, found.sites[0, k], once(found, 0, k)) for k in range(found.number[0])]
    Q = np.zeros_like(each[0])
    for state in range(len(Q)):
        Q[state] = max((P[state] for P in each), key=np.count_nonzero)
    assert np.abs(e.pi @ Q - e.pi).max() > 1e-3
    P = np.mean(each, axis=0)
    assert np.abs(e.pi @ P - e.pi).max() <= 1e-12


@pytest.mark.slow
def test_sets_of_lines_that_interact_are_not_drawn_at_once():
    found = target_of(two_cohorts)[0].interactions
    assert [len(sets) for _, sets, _ in found.coloured_lines] == [1, 1]
    assert not found.scanned_lines
    assert [len(sets) for _, sets, _ in small(cohorts_at_once).target.interactions.coloured_lines] == [2]
    assert [len(sets) for _, sets, _ in small(sets_at_once).target.interactions.coloured_sets] == [2]


# ---------------------------------------------------------------- the others
@pytest.mark.parametrize("kernel", [gibbs_with_gradients(), path_auxiliary(), discrete_langevin()])
def test_kernels_that_move_one_or_two_sites_refuse(kernel):
    e, (kernel, params) = small(table_2_by_2), kernel
    with pytest.raises(ValueError, match=r"'x'.*pmd.BlockGibbs"):
        loop(kernel, jax.random.key(0), kernel.init(jnp.asarray(e.states[0]), e.target), e.target, params, 1)


def test_settling_leaves_them_as_they_are():
    """It is traced for all blocks of a chain where one of them is stuck."""
    e = small(table_2_by_2)
    assert settle(jax.random.key(0), e.states[0], e.target).tolist() == e.states[0].tolist()
