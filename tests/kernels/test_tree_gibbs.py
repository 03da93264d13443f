"""Tree Gibbs against enumeration: the sweep's own matrix, what the compiled sweep does, and the forests it
draws.
"""

import functools

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete.kernels import tree_gibbs
from pymc_discrete.space.forests import COVERINGS, coverings
from tests.tools.enumeration import check_runs, enumerate_target, run_steps
from tests.tools.transition_matrices import groups_of, site_matrix


# ---------------------------------------------------------------- models
def chain():
    """Hidden states, one transition impossible, and a second table over the same pairs."""
    r = np.random.default_rng(0)
    A = r.dirichlet(np.ones(3), 3)
    A[0, 1] = 0
    z = pm.Categorical("z", p=np.ones(3) / 3, shape=5)
    pm.Potential("steps", pt.log(pt.as_tensor(A / A.sum(1, keepdims=True)))[z[:-1], z[1:]].sum())
    pm.Potential("equal", 0.3 * pt.eq(z[1:], z[:-1]).sum())
    pm.Normal("y", pt.as_tensor([-1.0, 0.0, 1.0])[z], 1.0, observed=r.normal(size=5))
    return [range(3)] * 5, {}


def torus():
    x = pm.Bernoulli("x", 0.4, shape=(3, 3))
    pm.Potential("e", 0.7 * (x * pt.roll(x, 1, 0)).sum() - 0.5 * (x * pt.roll(x, 1, 1)).sum())
    return [range(2)] * 9, {}


def several():
    """Variables of several widths, an element of three sites, a loop, and a count with a window."""
    b, c = (
        pm.Bernoulli("b", [0.3, 0.6, 0.5, 0.4], shape=4),
        pm.DiscreteUniform("c", [1, 1, 2], [2, 3, 3], shape=3),
    )
    k = pm.Poisson("k", 1.5)
    pm.Potential("bound", pt.switch(k > 1, -np.inf, 0.0))
    pm.Potential("three", 0.6 * b[0] * b[1] * b[2] + 0.2 * k * b[3])
    pm.Potential(
        "two", 0.8 * b[0] * c[0] - 0.5 * (c[1:] * b[1:3]).sum() + 0.3 * pt.eq(b[3], c[2]) + 0.4 * c[0] * c[1]
    )
    return [range(2)] * 4 + [range(1, 3), range(1, 4), range(2, 4), range(2)], {"window": 2}


def hard_core():
    """A path on which no two neighbours are both on."""
    x = pm.Bernoulli("x", 0.4, shape=5)
    pm.Potential("e", pt.switch(pt.eq(x[1:] + x[:-1], 2), -np.inf, 0.0).sum())
    return [range(2)] * 5, {}


def complete():
    """Every pair joined: a forest holds two sites, and five sites take three."""
    x = pm.Bernoulli("x", 0.5, shape=5)
    a, b = np.triu_indices(5, 1)
    pm.Potential("e", (np.random.default_rng(1).normal(size=10) * x[a] * x[b]).sum())
    return [range(2)] * 5, {}


def partly_dense():
    """A chain that hangs on a site of a dense term, and two more of such sites."""
    z, g = pm.Bernoulli("z", 0.3, shape=4), pm.Bernoulli("g", 0.5, shape=3)
    pm.Potential("chain", 0.9 * pt.eq(z[1:], z[:-1]).sum() + 0.7 * z[3] * g[0])
    pm.Potential("dense", -0.4 * pt.sqr(pt.cumsum(g) - 1).sum())
    return [range(2)] * 7, {}


def contradicted():
    """What sites ask for and what their pairs do, 800 nats each: beyond what a probability can hold."""
    z = pm.Categorical("z", p=np.ones(3) / 3, shape=4)
    alone = np.array([[0.0, 0, 0], [800, 0, -1], [0, 0, 0], [0.3, 0, 800]])
    pm.Potential("alone", pt.as_tensor(alone)[np.arange(4), z].sum())
    pm.Potential(
        "pairs",
        pt.as_tensor(np.array([[-900.0, -899, -901], [-800, 0, 1], [-800, -1, 0.5]]))[z[:-1], z[1:]].sum(),
    )
    return [range(3)] * 4, {}


MODELS = (chain, torus, several, hard_core, complete, partly_dense, contradicted)


# ---------------------------------------------------------------- the sweep, enumerated
def forest_matrix(e, sites: np.ndarray) -> np.ndarray:
    """(S, S): the sites (d,) bool drawn together given the others."""
    others = np.unique(e.states[:, ~sites], axis=0, return_inverse=True)[1].reshape(-1)
    P = np.where(others[:, None] == others, e.pi, 0.0)
    return P / P.sum(1, keepdims=True)


def product(matrices, S: int) -> np.ndarray:
    return functools.reduce(np.matmul, matrices, np.eye(S))


@functools.cache
def enumerated(build):
    with pm.Model() as model:
        ranges, options = build()
    return enumerate_target(pmd.target_from_model(model, **options), ranges)


@functools.cache
def small(build):
    """The target; (S, S) a sweep in order or in reverse by a fair coin; (S, S) one in order."""
    e = enumerated(build)
    S, target = len(e.states), e.target
    joined = functools.reduce(np.logical_or, (f.sites for f in target.interactions.forests[0]))
    others = [product([site_matrix(e, i) for i in group if not joined[i]], S) for group in groups_of(target)]
    covers = [[forest_matrix(e, f.sites) for f in cover] for cover in target.interactions.forests]
    forward = np.mean([product([*cover, *others], S) for cover in covers], axis=0)
    backward = np.mean([product([*others[::-1], *cover[::-1]], S) for cover in covers], axis=0)
    return e, (forward + backward) / 2, forward


@pytest.mark.parametrize("build", [build for build in MODELS if build is not torus])
@pytest.mark.by_default("contradicted", "hard_core", "chain")
def test_sweep_is_reversible_and_irreducible(build):
    e, P, forward = small(build)
    flow = e.pi[:, None] * P
    assert np.abs(flow - flow.T).max() <= 1e-10 * flow.max()
    for matrix in (P, forward):
        assert np.abs(e.pi @ matrix - e.pi).max() <= 1e-12
        assert (np.abs(np.linalg.eigvals(matrix) - 1) < 1e-9).sum() == 1


# several coverings and one, sites beside them, and weights beyond what a probability can hold
@pytest.mark.parametrize("build", [complete, several, contradicted])
@pytest.mark.by_default("complete")
def test_compiled_sweeps_do_what_was_enumerated(build):
    e, P, _ = small(build)
    check_runs(run_steps(e, *tree_gibbs(), seed=MODELS.index(build)), P)


def test_a_spanning_forest_would_be_seen():
    """A tree that ignores edges of the torus has another distribution."""
    e = enumerated(torus)
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.4, shape=(3, 3))
        pm.Potential("e", 0.7 * (x[1:] * x[:-1]).sum() - 0.5 * (x[:, 1:] * x[:, :-1]).sum())
    other = enumerate_target(pmd.target_from_model(model), [range(2)] * 9)
    assert (
        np.abs(other.pi @ forest_matrix(e, e.target.interactions.forests[0][0].sites) - other.pi).sum() > 1e-2
    )


def one_way():
    """What the first sites make all but certain, 1200 nats in steps of 100, the next contradict, and no
    transition leads back.
    """
    z = pm.Bernoulli("z", 0.5, shape=70)
    alone, pairs = np.zeros((70, 2)), np.array([[-0.03, -3.5], [-np.inf, 0.0]])
    alone[:12, 1], alone[12:26, 0] = 100, 100
    pm.Potential("alone", pt.as_tensor(alone)[np.arange(70), z].sum())
    pm.Potential("pairs", pt.as_tensor(pairs)[z[:-1], z[1:]].sum())
    return alone, [(i, i + 1, pairs) for i in range(69)]


def broom():
    """The bristles make a site all but certain, 100 nats each, and the stick, whose sites all have its value,
    contradicts them.
    """
    z, stick = pm.Bernoulli("z", 0.5, shape=13), pm.Bernoulli("stick", 0.5, shape=60)
    bristles = np.array([[-100.0, -100.5], [0.0, 0.4]])
    same = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    pm.Potential("bristles", pt.as_tensor(bristles)[z[0], z[1:]].sum())
    equal = pt.as_tensor(same)
    pm.Potential("same", equal[z[0], stick[0]] + equal[stick[:-1], stick[1:]].sum())
    alone = np.zeros((73, 2))
    alone[13:37, 0], alone[72, 1] = 60.0, 236.0
    pm.Potential("alone", pt.as_tensor(alone[13:])[np.arange(60), stick].sum())
    pairs = [(0, i, bristles) for i in range(1, 13)] + [(0, 13, same)]
    return alone, pairs + [(i, i + 1, same) for i in range(13, 72)]


def marginals_of_tree(alone, pairs):
    """(d, K) the probability of each value of each site of a tree, by messages in logarithms.

    Parameters
    ----------
    alone : (d, K) nats
    pairs : [(i, j, (K, K) nats)], the edges
    """
    tables = {(i, j): table for i, j, table in pairs} | {(j, i): table.T for i, j, table in pairs}
    beside = [[j for i, j in tables if i == site] for site in range(len(alone))]

    @functools.cache
    def message(i, j):
        return logsumexp(at(i, j)[:, None] + tables[i, j], axis=0)

    def at(i, without=None):
        return alone[i] + sum(message(j, i) for j in beside[i] if j != without)

    logp = np.array([at(i) for i in range(len(alone))])
    return np.exp(logp - logsumexp(logp, axis=1, keepdims=True))


@pytest.mark.slow
@pytest.mark.parametrize("build", [one_way, broom])
def test_what_seems_impossible_on_the_way_may_be_all_that_is_left(build):
    """Marginals against sum-product, which is in logarithms throughout."""
    draws = 4000
    with pm.Model() as model:
        p = marginals_of_tree(*build())[:, 1]
    target, (kernel, params) = pmd.target_from_model(model), tree_gibbs()
    start = np.ones(len(p), int)
    draw = jax.jit(jax.vmap(lambda key: kernel.step(key, kernel.init(start, target), target, params)[0].x))
    share = np.asarray(draw(jax.random.split(jax.random.key(0), draws))).mean(0)
    assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / draws) + 1 / draws).all()


@pytest.mark.parametrize("build", [chain, hard_core, contradicted])
def test_a_chain_is_one_independent_draw(build):
    e, P, _ = small(build)
    assert [len(cover) for cover in e.target.interactions.forests] == [1]
    np.testing.assert_allclose(P, np.broadcast_to(e.pi, P.shape), atol=1e-14)


# ---------------------------------------------------------------- forests
def graphs():
    r = np.random.default_rng(0)
    side = np.arange(36).reshape(6, 6)
    yield (
        "torus",
        np.concatenate([np.stack([side.ravel(), np.roll(side, 1, axis).ravel()], 1) for axis in (0, 1)]),
        [],
    )
    yield "path", np.stack([np.arange(40), np.arange(1, 41)], 1), []
    yield "star", np.stack([np.zeros(40, int), np.arange(1, 41)], 1), []
    yield "tree", np.array([(int(r.integers(i)), i) for i in range(1, 60)]), []
    for p in (0.03, 0.1, 0.3):
        links = np.argwhere(np.triu(r.random((40, 40)) < p, 1))
        yield f"random {p}", links, np.argwhere(np.triu(r.random((40, 40)) < 0.02, 1))
    yield "pairs joined twice, apart", np.array([[0, 1], [1, 2]]), np.array([[0, 1]])


@pytest.mark.parametrize(("name", "pairs", "apart"), [pytest.param(*g, id=g[0]) for g in graphs()])
def test_forests_are_induced_without_cycles_and_cover_all(name, pairs, apart):
    d, apart = 70, np.reshape(apart, (-1, 2)).astype(int)
    members = np.unique(pairs)
    found = coverings(np.sort(pairs, axis=1), apart, members, d)
    assert len(found) == (1 if name in ("path", "star", "tree") else COVERINGS)
    for cover in found:
        assert set(members) == set(np.flatnonzero(np.any([f.sites for f in cover], axis=0)))
        for forest in cover:
            inside = forest.sites[pairs].all(axis=1)
            assert not forest.sites[apart].all(axis=1).any()
            # as many trees as sites less edges: no cycle; and every edge of the induced graph is used once
            edges = forest.edge[forest.edge < len(pairs)]
            assert forest.sites.sum() - inside.sum() == len(forest.roots)
            assert sorted(edges) == sorted(np.flatnonzero(inside))
            depth, above = dict.fromkeys(forest.roots.tolist(), 0), forest.roots
            for node, column, edge, flipped in zip(*(a[::-1] for a in forest[1:5]), strict=True):
                for i, c, e, f in zip(node, column, edge, flipped, strict=True):
                    if i < d:
                        j = above[c]
                        assert set(np.sort(pairs, axis=1)[e]) == {i, j}
                        assert f == (np.sort(pairs, axis=1)[e][0] == j)
                        assert i not in depth
                        depth[int(i)] = depth[int(j)] + 1
                above = node
            assert set(depth) == set(np.flatnonzero(forest.sites))


def test_a_path_hangs_from_its_middle():
    ((forest,),) = coverings(
        np.stack([np.arange(40), np.arange(1, 41)], 1), np.zeros((0, 2), int), np.arange(41), 41
    )
    assert forest.node.shape == (20, 2)
    np.testing.assert_array_equal(forest.column[:-1], np.broadcast_to([0, 1], (19, 2)))


# ---------------------------------------------------------------- the step
@pytest.mark.parametrize(
    ("build", "kind"),
    [(chain, "TreeGibbs"), (torus, "TreeGibbs"), (several, "BlockGibbs"), (partly_dense, "TreeGibbs")],
)
def test_auto_step_takes_it_where_sites_are_drawn_at_once(build, kind):
    with pm.Model():
        _, options = build()
        assert type(pmd.AutoStep(**options)).__name__ == kind


def test_auto_step_looks_at_exact_variables_alone():
    with pm.Model():
        z, x = pm.Bernoulli("z", 0.3, shape=4), pm.Categorical("x", p=np.ones(5) / 5, shape=5)
        pm.Potential("chain", pt.eq(z[1:], z[:-1]).sum())
        r = np.random.default_rng(12)
        a, b = r.normal(size=(100, 5)), r.normal(size=(100, 100)) / 10
        pm.Potential("energy", pt.tanh(b @ pt.tanh(b @ pt.tanh(0.3 * a @ (x - 2)))).sum())
        steps = pmd.AutoStep().methods
    assert [(type(s).__name__, [v.name for v in s.vars]) for s in steps] == [
        ("TreeGibbs", ["z"]),
        ("DiscreteLangevin", ["x"]),
    ]
