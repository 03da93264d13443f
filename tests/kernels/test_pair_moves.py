"""Gibbs-With-Gradients and path auxiliary samplers on moves of two sites, against enumeration over all
sequences of moves.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import gibbs_with_gradients, loop, path_auxiliary
from pymc_discrete.kernels.pair_moves import PairMoves
from pymc_discrete.kernels.settle import settle
from pymc_discrete.structure import dependence
from tests.tools.enumeration import check_matrix, check_runs, enumerate_target, run_steps
from tests.tools.interpreted import interpreted
from tests.tools.pair_matrices import after, all_moves, estimates, exact_differences, matrix_of_pairs, tables
from tests.tools.transition_matrices import count_probabilities

BALANCINGS = ("sqrt", "barker", "min", "max")


# ---------------------------------------------------------------- small models
def two_cells():
    pm.Multinomial("x", 6, np.array([0.3, 0.7]))
    return [range(7)] * 2, {}


def three_cells():
    x = pm.Multinomial("x", 4, np.array([0.2, 0.3, 0.5]))
    pm.Potential("e", 0.4 * x[0] * x[1] - 0.6 * x[1] * x[2])
    return [range(5)] * 3, {}


def bounded():
    x = pm.Multinomial("x", 4, np.array([0.2, 0.3, 0.5]))
    pm.Potential("e", 0.5 * x[0] * x[2])
    return [range(3), range(2), range(1, 4)], {"support": {"x": (np.array([0, 0, 1]), np.array([2, 1, 3]))}}


def four_cells():
    x = pm.DirichletMultinomial("x", n=2, a=np.array([0.5, 1.0, 2.0, 0.7]))
    pm.Potential("e", 0.6 * (x[0] * x[1] - x[2] * x[3]))
    return [range(3)] * 4, {}


def vectors():
    """Sums of 0, 2 and 3, of which the last two interact."""
    x = pm.DirichletMultinomial("x", n=np.array([0, 2, 3]), a=np.array([0.5, 1.0]), shape=(3, 2))
    pm.Potential("e", 0.4 * x[1, 0] * x[2, 1])
    return [range(1)] * 2 + [range(3)] * 2 + [range(4)] * 2, {}


def beside_free_sites():
    x = pm.Multinomial("x", 2, np.array([0.2, 0.3, 0.5]))
    b = pm.Bernoulli("b", 0.4)
    k = pm.Categorical("k", p=np.array([0.3, 0.5, 0.2]))
    pm.Potential("e", 0.9 * b * x[0] - 0.4 * b * x[1] * x[2] + 0.3 * k * x[0])
    return [range(3)] * 3 + [range(2), range(3)], {}


def only_by_two():
    """States between two that are possible are impossible."""
    x = pm.Multinomial("x", 3, np.array([0.3, 0.3, 0.4]), initval=[1, 1, 1])
    pm.Potential("e", pt.switch(pt.eq(x[0], x[1]) | pt.eq(x[0] + x[1], 1), 0.0, -np.inf))
    return [range(4)] * 3, {}


def dense():
    x = pm.Multinomial("x", 3, np.array([0.2, 0.3, 0.5]))
    pm.Potential("e", -0.4 * pt.sqr(pt.cumsum(x) - 1).sum())
    return [range(4)] * 3, {}


def windowed():
    pm.Multinomial("x", 300, np.array([0.4, 0.6]))
    return [range(301)] * 2, {"window": 3}


W = np.random.default_rng(4).normal(0, 1.2, (4, 4))


def weighted_of_three():
    pmd.Permutation("x", 3, W[:3, :3])
    return [range(3)] * 3, {}


def joined():
    """Four places, of which those beside each other interact."""
    x = pmd.Permutation("x", 4)
    pm.Potential("e", pt.as_tensor(W)[x[:-1], x[1:]].sum())
    return [range(4)] * 4, {}


def beside_counts():
    """A permutation, counts with a fixed sum and bounds of their own, and a free site."""
    x = pmd.Permutation("x", 3, W[:3, :3])
    n = pm.Multinomial("n", 3, np.array([0.4, 0.6]))
    k = pm.Categorical("k", p=np.array([0.3, 0.5, 0.2]))
    pm.Potential("e", 0.5 * x[0] * n[0] - 0.4 * k * x[1] * n[1])
    support = {"n": (np.array([0, 1]), np.array([2, 3]))}
    return [range(3)] * 3 + [range(3), range(1, 4)] + [range(3)], {"support": support}


def everything():
    """Those, and a count with a window."""
    (*ranges,), options = beside_counts()
    w = pm.Poisson("w", 1.0)
    pm.Potential("bound", pt.switch(w > 2, -np.inf, 0.3 * w))
    return [*ranges, range(3)], {**options, "window": 1}


SUMS = (two_cells, three_cells, bounded, four_cells, vectors, beside_free_sites, only_by_two, dense)
MODELS = (*SUMS, weighted_of_three, joined, beside_counts)


@functools.cache
def small(build):
    with pm.Model() as model:
        ranges, options = build()
    names = [v.name for v in model.discrete_value_vars]
    with pytest.MonkeyPatch.context() as patch:
        if build is dense:  # so few sites would not count as dense
            patch.setattr(dependence, "most_sites", lambda d: 0)
        target = pmd.target_from_model(model, names, differences="exact", **options)
    assert (build is dense) == any(part.mixing for part in target.density.parts if len(part.sites))
    return enumerate_target(target, ranges)


# ---------------------------------------------------------------- the moves
# units of several sizes, bounds, several sets, terms that join all sites, swaps, and moves of every kind
MOVED = (two_cells, bounded, vectors, dense, joined, beside_counts)


@pytest.mark.parametrize("build", MOVED, ids=lambda build: build.__name__)
@pytest.mark.by_default("beside_counts")
def test_moves_and_their_exact_differences(build):
    """All moves, in any order of numbering: where they lead, what they change, and that they are undone."""
    e = small(build)
    moves, wanted = PairMoves(e.target.space), all_moves(e.target.space)

    @interpreted
    @functools.partial(jax.vmap, in_axes=(0, None))
    def run(x, target):
        every = jnp.arange(moves.size)
        ends = jax.vmap(moves.after, (None, 0))(x, every)
        return ends, jax.vmap(moves.after)(ends, moves.inverse(every)), moves.differences(x, target)

    ends, again, differences = (np.asarray(a) for a in run(e.states, e.target))
    assert (again == e.states[:, None]).all()
    assert np.isfinite(differences).any()
    exact = exact_differences(e, wanted)
    for s, x in enumerate(e.states):
        got = {tuple(y): d for y, d in zip(ends[s], differences[s], strict=True) if d > -np.inf}
        want = {
            tuple(after(e.target.space, m, x)): d
            for m, d in zip(wanted, exact[s], strict=True)
            if d > -np.inf
        }
        assert got.keys() == want.keys()
        np.testing.assert_allclose([got[y] for y in want], list(want.values()), atol=1e-10)


@pytest.mark.parametrize(
    "build", [everything, bounded, only_by_two, windowed], ids=lambda build: build.__name__
)
@pytest.mark.by_default("everything")
def test_estimates_are_sums_of_changes_of_single_sites(build):
    """Of all moves and of some rows of them, along paths from several states, against the table in NumPy."""
    e, near = small(build), 8
    moves, wanted = PairMoves(e.target.space), all_moves(e.target.space)
    table = tables(e)

    @interpreted
    def run(x, zs, target):
        table, every = moves.table(x, target), jnp.arange(moves.size)

        def at(z):
            rows = moves.rows_with(moves.sites_of(every[:: max(moves.size // 4, 1)]).reshape(-1))
            numbers, some = moves.numbers(rows), moves.estimates(table, x, z, rows)
            return jax.vmap(moves.after, (None, 0))(z, every), moves.estimates(table, x, z), numbers, some

        return jax.vmap(at)(zs)

    for base in (0, len(e.states) // 2, len(e.states) - 1):
        first = max(0, min(base - near, len(e.states) - 2 * near))
        zs = e.states[first : first + 2 * near]
        exact = estimates(e, table, wanted, np.full((1, len(zs)), base), zs[None])[0]
        for z, want, ends, got, numbers, some in zip(
            zs, exact, *run(e.states[base], zs, e.target), strict=True
        ):
            want = {tuple(after(e.target.space, m, z)): d for m, d in zip(wanted, want, strict=True)}
            assert len(want) == len(ends)
            np.testing.assert_allclose(got, [want[tuple(y)] for y in ends], atol=1e-10)
            known = numbers < moves.size
            np.testing.assert_array_equal(some[known], got[numbers[known]])
            assert known.any()


def test_estimates_of_elements_of_one_count_are_exact():
    """Of a sum of functions of single counts, at every state of a path, from the table at its start."""
    e = small(two_cells)
    moves = PairMoves(e.target.space)

    @interpreted
    @jax.vmap
    def at(z):
        table = moves.table(jnp.asarray(e.states[2]), e.target)
        return moves.estimates(table, jnp.asarray(e.states[2]), z), moves.differences(z, e.target)

    np.testing.assert_allclose(*at(e.states), atol=1e-10)


# ---------------------------------------------------------------- Gibbs-With-Gradients
# enumeration is over (moves)^L sequences
FEW_MOVES = (two_cells, bounded, vectors, only_by_two, weighted_of_three, joined)


def lengths_of(build, case):
    """(mean number of moves, balancing): one move, and several; the balancings in turn."""
    several = 2 if build in FEW_MOVES else 1.5
    return [(1, BALANCINGS[case % 4]), (several, BALANCINGS[(case + 1) % 4])]


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
@pytest.mark.by_default("bounded", "joined")
def test_matrix_of_gibbs_with_gradients(build):
    e = small(build)
    for n_flips, balancing in lengths_of(build, MODELS.index(build)):
        P, proposed = matrix_of_pairs(e, count_probabilities(n_flips), "GWG", balancing)
        check_matrix(P, e.pi, proposed)


# one move and several; of one kind, and of all kinds with bounds. What moves do and change, on windows and in
# dense terms too, is tested above.
FLIPS = [(vectors, 1, "min"), (beside_counts, 1.5, "min")]


@pytest.mark.slow
@pytest.mark.parametrize(("build", "n_flips", "balancing"), FLIPS, ids=[c[0].__name__ for c in FLIPS])
def test_compiled_steps_of_gibbs_with_gradients(build, n_flips, balancing):
    e = small(build)
    case = FLIPS.index((build, n_flips, balancing))
    ends = run_steps(e, *gibbs_with_gradients(n_flips, balancing), seed=case)
    P, proposed = matrix_of_pairs(e, count_probabilities(n_flips), "GWG", balancing)
    check_matrix(P, e.pi, proposed)
    check_runs(ends, P)
    if n_flips > 1:  # and the test sees a missing proposal ratio
        with pytest.raises(AssertionError):
            check_runs(
                ends, matrix_of_pairs(e, count_probabilities(n_flips), "GWG", balancing, ratio=False)[0]
            )


# ---------------------------------------------------------------- path auxiliary samplers
# each way of making paths with swaps, with several sets or bounds, and with all kinds of moves
WAYS = [
    *(("PAFS", True, build) for build in (bounded, joined, beside_counts)),
    *(("PAFS", False, build) for build in (vectors, joined, beside_counts)),
    *(("PAS", True, build) for build in (three_cells, only_by_two, joined)),
    *(("PAS", False, build) for build in (bounded, four_cells, beside_counts)),
]


@pytest.mark.parametrize(
    ("way", "backtrack", "build"), WAYS, ids=[f"{way}-{back}-{build.__name__}" for way, back, build in WAYS]
)
@pytest.mark.by_default("PAFS-True-bounded", "PAFS-False-vectors", "PAS-False-bounded", "PAFS-True-joined")
def test_matrix_of_paths(way, backtrack, build):
    e = small(build)
    for length, balancing in lengths_of(build, WAYS.index((way, backtrack, build))):
        lengths = truncated(e, count_probabilities(length), backtrack)
        check(e, *matrix_of_pairs(e, lengths, way, balancing, backtrack), backtrack)


def check(e, P, proposed, backtrack):
    # a path that may change no site twice, as on a window, may have nowhere to go: then it stays
    assert proposed.max() <= 1 + 1e-12
    may_run_out = not backtrack or e.target.space.windowed.any()
    check_matrix(P, e.pi, np.ones(len(P)) if may_run_out else proposed)


def truncated(e, lengths, backtrack):
    """The lengths of paths without backtracking: no longer than moves of different sites there are."""
    longest = PairMoves(e.target.space).longest
    out = {}
    for n, p in lengths.items():
        n = n if backtrack else min(n, longest)
        out[n] = out.get(n, 0.0) + p
    return out


# PAFS has programs of its own for pairs, with moves of all kinds; PAS makes a path of them as of single sites
PATHS = [
    (vectors, "PAS", False, 1.5, "barker"),
    (vectors, "PAFS", False, 1.5, "max"),
    (beside_counts, "PAFS", True, 1.5, "min"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "way", "backtrack", "length", "balancing"),
    PATHS,
    ids=["-".join([c[0].__name__, *(str(v) for v in c[1:])]) for c in PATHS],
)
def test_compiled_paths(build, way, backtrack, length, balancing):
    e = small(build)
    case = PATHS.index((build, way, backtrack, length, balancing))
    ends = run_steps(e, *path_auxiliary(length, way == "PAS", backtrack, balancing), seed=case)
    lengths = truncated(e, count_probabilities(length), backtrack)
    P, proposed = matrix_of_pairs(e, lengths, way, balancing, backtrack)
    check(e, P, proposed, backtrack)
    check_runs(ends, P)


def test_bounds_of_a_tuned_length():
    longest = [PairMoves(small(build).target.space).longest for build in (joined, vectors, beside_counts)]
    assert longest == [2, 3, 3]
    assert path_auxiliary("adapt")[0].tuned.bounds(small(four_cells).target.space) == (1.5, 2.0)


# ---------------------------------------------------------------- planted errors
def test_the_checks_see_a_way_back_in_the_wrong_order():
    """Swaps do not commute: the inverse moves in the order of the path lead elsewhere."""
    e = small(joined)
    P, proposed = matrix_of_pairs(e, {2: 0.5, 3: 0.5}, "PAFS", reverse=False)
    with pytest.raises(AssertionError):
        check_matrix(P, e.pi, proposed)


# ---------------------------------------------------------------- many sets, longer paths
def table():
    """Six vectors, each with a field of its own, beside labels that interact with them."""
    r = np.random.default_rng(2)
    x = pm.Multinomial("x", r.integers(2, 5, 6), r.dirichlet(np.ones(3), 6))
    z = pm.Categorical("z", p=np.array([0.2, 0.5, 0.3]), shape=6)
    pm.Potential("e", 0.2 * (z * x[:, 2]).sum())


KERNELS = {
    "GWG": gibbs_with_gradients(1),
    "GWG several": gibbs_with_gradients(3),
    **{
        f"{'PAS' if r else 'PAFS'}{'' if b else ' NB'}": path_auxiliary(4, recompute=r, backtrack=b)
        for r, b in itertools.product((True, False), repeat=2)
    },
}


# PAFS computes the end of any path afresh, several moves at once change so much here that all is computed,
# and PAS arrives as one move does
@pytest.mark.slow
def test_no_stale_cache():
    """After some transitions all that a state carries equals what is computed afresh."""
    with pm.Model() as model:
        table()
    x, target = pmd.target_from_model(model, ["x", "z"]).at(model.initial_point())
    moves = PairMoves(target.space)
    touched = moves.rows_with(target.touched(jnp.zeros(2, int)).reshape(-1))
    rows = sum(len(group.sites) for _, group in moves.groups)
    assert 2 * sum(len(of_group) for of_group in touched) <= rows  # so a move computes only some differences
    kernel, params = KERNELS["GWG"]

    @interpreted
    def run(seed, x, target):
        key = jax.random.key(seed)
        state, info = loop(kernel, key, kernel.init(x, target), target, params, 30)
        return state, kernel.refresh(state, target), info

    state, fresh, info = run(3, x, target)
    assert float(info.accepted) > 0.05
    assert (state.x != x).sum() >= 5
    np.testing.assert_allclose(state.logdensity, fresh.logdensity, rtol=1e-10)
    np.testing.assert_array_equal(np.isfinite(state.differences), np.isfinite(fresh.differences))
    finite = np.isfinite(fresh.differences)
    np.testing.assert_allclose(state.differences[finite], fresh.differences[finite], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.carry.log_scale, fresh.carry.log_scale, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(*(s.carry.weights / s.carry.total for s in (state, fresh)), atol=1e-9)


# ---------------------------------------------------------------- the edges
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.by_default("GWG several", "PAS NB", "PAFS")
def test_nowhere_to_go(name):
    """Vectors of one count, and of counts whose bounds leave one value."""
    space = pmd.Space.build(
        {"x": (0, 3), "y": (1, np.array([1, 4]))}, {"x": (2, 1), "y": 2}, sums={"x": 3, "y": 2}
    )
    target = pmd.target_from_logdensity(lambda x: 0.1 * x.sum(), space)
    kernel, params = KERNELS[name]
    x = np.array([3, 3, 1, 1])
    run = interpreted(
        lambda x: loop(kernel, jax.random.key(0), kernel.init(x, target), target, params, 3)[0].x
    )
    assert (run(x) == x).all()


@pytest.mark.slow
def test_settling_keeps_the_sums():
    """Far from the bulk of the target, moves uphill are accepted."""
    space = pmd.Space.build({"x": (0, 30)}, {"x": 3}, sums={"x": 30})
    target = pmd.target_from_logdensity(lambda x: -10.0 * jnp.square(x - jnp.array([3, 6, 21])).sum(), space)

    @interpreted
    def run(x):
        keys = jax.random.split(jax.random.key(0), 20)
        return jax.lax.scan(lambda x, key: (settle(key, x, target), None), x, keys)[0]

    x = run(np.array([30, 0, 0]))
    assert x.sum() == 30
    assert np.abs(x - [3, 6, 21]).max() < 3


@pytest.mark.slow
def test_estimates_are_refused_where_exact_differences_weight_the_moves():
    space = pmd.Space.build({"x": (0, 4)}, {"x": 2}, sums={"x": 4})
    target = pmd.target_from_logdensity(lambda x: 0.1 * (x[0] * x[1]), space, differences="gradient")
    x = jnp.array([1, 3])
    for kernel, _ in (gibbs_with_gradients(), path_auxiliary(recompute=True)):
        with pytest.raises(ValueError, match=r"'x' change together.*asked for.*pmd.PathAuxiliary"):
            kernel.init(x, target)
    kernel, params = path_auxiliary(2)
    run = interpreted(
        lambda x: loop(kernel, jax.random.key(0), kernel.init(x, target), target, params, 20)[0].x
    )
    assert run(x).sum() == 4
