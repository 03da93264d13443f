"""Cluster sweeps against enumeration: the matrix of Edwards and Sokal's bonds and clusters, and what the
compiled sweep does.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import pymc_discrete as pmd
from pymc_discrete.kernels import components
from pymc_discrete.kernels.sweeps import always_accepted, sweep_kernel
from pymc_discrete.kernels.swendsen_wang import cluster_sweep, decomposed
from tests.tools.enumeration import check_runs, enumerate_target, run_steps
from tests.tools.interpreted import interpreted
from tests.tools.transition_matrices import groups_of, site_matrix

# ---------------------------------------------------------------- models
# Each returns the values of its sites, and the pairs that may have a bond: (a, b, J, whether the values are
# to be different), written down by hand.
SQUARE = ((0, 1), (2, 3), (0, 2), (1, 3))


def fields():
    """Spins with a field each, that is as strong as the couplings."""
    x = pm.Bernoulli("x", [0.3, 0.6, 0.5, 0.8, 0.4])
    s = 2 * x - 1
    pm.Potential("e", 0.45 * sum(s[a] * s[b] for a, b in SQUARE) + 0.7 * s[3] * s[4])
    return [range(2)] * 5, [(a, b, 0.9, False) for a, b in SQUARE] + [(3, 4, 1.4, False)]


def flips():
    """A frustrated square in 0 and 1, whose tables have unary parts of their own, and a site of 2 and 3."""
    x, k = pm.Bernoulli("x", [0.3, 0.6, 0.5, 0.7]), pm.DiscreteUniform("k", 2, 3)
    pm.Potential("e", 1.8 * x[0] * x[1] + 1.1 * x[2] * x[3] - 1.5 * x[0] * x[2] + 0.8 * x[1] * x[3])
    pm.Potential("f", -0.6 * k * x[3])
    of_pairs = [(0, 1, 0.9, False), (2, 3, 0.55, False), (0, 2, 0.75, True), (1, 3, 0.4, False)]
    return [range(2)] * 4 + [range(2, 4)], [*of_pairs, (3, 4, 0.3, True)]


def potts():
    """Three colours that are not equally probable, a cycle and an end."""
    z = pm.Categorical("z", p=[[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4], [0.1, 0.3, 0.6]])
    pm.Potential("e", sum(0.8 * pt.eq(z[a], z[b]) for a, b in ((0, 1), (1, 2), (0, 2))) + pt.eq(z[2], z[3]))
    return [range(3)] * 4, [(0, 1, 0.8, False), (1, 2, 0.8, False), (0, 2, 0.8, False), (2, 3, 1.0, False)]


def ordered():
    """Distances, a pair whose equal values are not alike, and one that prefers different values."""
    k = pm.DiscreteUniform("k", 1, 3, shape=4)
    pm.Potential("near", -0.9 * sum(pt.abs(k[a] - k[b]) for a, b in ((0, 1), (1, 2), (0, 2))))
    pm.Potential("e", -0.7 * pt.eq(k[2], k[3]) + 0.3 * k[0] * pt.eq(k[0], k[1]))
    return [range(1, 4)] * 4, [(0, 1, 1.2, False), (1, 2, 0.9, False), (0, 2, 0.9, False)]


def impossible():
    """Sites of which no two neighbours are both 1, two that are equal, two that differ, and a spin beside."""
    x = pm.Bernoulli("x", [0.4, 0.6, 0.3, 0.7, 0.2, 0.55])
    pm.Potential("both", pt.switch(pt.eq(x[:2] + x[1:3], 2), -np.inf, 0.0).sum())
    pm.Potential("equal", pt.switch(pt.eq(x[2], x[3]), 0.4 * x[2], -np.inf))
    pm.Potential("differ", pt.switch(pt.eq(x[3], x[4]), -np.inf, 0.0) + 1.2 * pt.eq(x[4], x[5]))
    return [range(2)] * 6, [(2, 3, np.inf, False), (3, 4, np.inf, True), (4, 5, 1.2, False)]


def beside():
    """Spins beside sites of other kinds: some with which they interact, and two of an element of three."""
    x, z = pm.Bernoulli("x", [0.3, 0.6, 0.5, 0.4, 0.6]), pm.Categorical("z", p=[0.2, 0.5, 0.3])
    pm.Potential("e", 1.4 * x[0] * x[1] + 1.1 * x[1] * x[2] - 0.8 * z * x[2] + 0.7 * x[2] * x[3])
    pm.Potential("three", 0.9 * x[3] * x[4] * pt.eq(z, 1))
    return [range(2)] * 5 + [range(3)], [(0, 1, 0.7, False), (1, 2, 0.55, False)]


MODELS = (fields, flips, potts, ordered, impossible, beside)


@functools.cache
def enumerated(build):
    with pm.Model() as model:
        ranges, pairs = build()
    return enumerate_target(pmd.target_from_model(model), ranges), pairs


# ---------------------------------------------------------------- the sweep, enumerated
def agree(e, pairs):
    """(S, E) bool, whether the pairs have what they prefer."""
    low = e.states.min(0)
    return np.stack(
        [((e.states - low)[:, a] == (e.states - low)[:, b]) != flip for a, b, _, flip in pairs], 1
    )


def clusters_of(on, pairs, d):
    """(d,) int, the cluster of each site."""
    return labels_of(*np.array([(a, b) for a, b, *_ in pairs])[on].T, d)


def labels_of(a, b, d):
    """(d,) int, the component of each site, by SciPy, where edges join the sites a to the sites b."""
    return connected_components(coo_array((np.ones(len(a)), (a, b)), shape=(d, d)), directed=False)[1]


def cluster_matrix(e, pairs, bonds_of=lambda J: 1 - np.exp(-J), spent=1.0):
    """(S, S) of a sweep: bonds, then each cluster from its conditional given the others, in random order.

    Given bonds the density is that of the model without the J of pairs that have what they prefer: of a bond
    the factor e^J - 1 is the same after every common move, without one the factor is 1.

    Parameters
    ----------
    bonds_of : J -> the probability of a bond
    spent : the share of J that does not count without a bond
    """
    S, d = e.states.shape
    J, agreed = np.array([J for *_, J, _ in pairs]), agree(e, pairs)
    counts, low = e.states.max(0) - e.states.min(0) + 1, e.states.min(0)
    # a pair that must have what it prefers always has a bond, and the same J at all states that are possible
    rest = e.logp - agreed @ np.where(np.isinf(J), 0.0, spent * J)
    movable = e.target.interactions.in_pairs
    P = np.zeros((S, S))
    for configuration in itertools.product([False, True], repeat=len(pairs)):
        on = np.array(configuration)
        p = np.where(agreed, np.where(on, bonds_of(J), 1 - bonds_of(J)), ~on).prod(1)
        if p.max() == 0:
            continue
        labels = clusters_of(on, pairs, d)
        each = [np.flatnonzero(labels == c) for c in np.unique(labels[movable])]
        draws = []
        for sites in each:
            Q = np.zeros((S, S))
            for m in range(counts[sites[0]]):
                there = e.states.copy()
                there[:, sites] = low[sites] + (there[:, sites] - low[sites] + m) % counts[sites]
                to = e.index(there)
                Q[np.arange(S), np.maximum(to, 0)] += np.where(to >= 0, np.exp(rest[to] - rest.max()), 0.0)
            draws.append(Q / Q.sum(1, keepdims=True))
        orders = [*itertools.permutations(draws)]
        P += p[:, None] * np.mean([functools.reduce(np.matmul, order) for order in orders], axis=0)
    return P


@functools.cache
def matrix_of(build):
    return cluster_matrix(*enumerated(build))


@pytest.mark.parametrize("build", MODELS)
def test_the_matrix_leaves_the_target_as_it_is(build):
    e, P = enumerated(build)[0], matrix_of(build)
    assert np.abs(P.sum(1) - 1).max() <= 1e-12
    assert np.abs(e.pi @ P - e.pi).max() <= 1e-12
    flow = e.pi[:, None] * P
    assert np.abs(flow - flow.T).max() <= 1e-10 * flow.max()
    gibbs = functools.reduce(np.matmul, (site_matrix(e, i) for group in groups_of(e.target) for i in group))
    assert (np.abs(np.linalg.eigvals(gibbs @ P)) > 1 - 1e-9).sum() == 1


@pytest.mark.parametrize("build", [fields, potts])
def test_wrong_bonds_and_weights_would_be_seen(build):
    e, pairs = enumerated(build)
    for wrong in ({"bonds_of": lambda J: 1 - np.exp(-2 * J)}, {"spent": 0.0}):
        assert np.abs(e.pi @ cluster_matrix(e, pairs, **wrong) - e.pi).sum() > 1e-2


def clusters_alone():
    """A kernel that makes cluster sweeps only."""

    def sweeper(target):
        sweep = cluster_sweep(target)
        return lambda key, x, params: (sweep(key, x)[0], always_accepted(target.space))

    return sweep_kernel(sweeper), {}


# pairs of two values that prefer to be equal and to differ, distances, certain bonds, and other sites
@pytest.mark.parametrize("build", [flips, ordered, impossible, beside])
@pytest.mark.by_default("flips", "ordered", "impossible")
def test_compiled_sweeps_do_what_was_enumerated(build):
    check_runs(run_steps(enumerated(build)[0], *clusters_alone(), seed=MODELS.index(build)), matrix_of(build))


# ---------------------------------------------------------------- tables, components
def test_tables_are_taken_apart():
    """Whatever the form, the parts add up to the table, and bonds take as much as they can."""
    r = np.random.default_rng(3)
    u, v = r.normal(size=(2, 3))
    potts = 0.7 * np.eye(3) + u[:, None] + v
    unequal = np.array([[0.3, 2.1], [1.7, -0.4]])
    spins = np.pad(unequal, (0, 1), constant_values=-np.inf)
    tables = [potts, potts - 1.4 * np.eye(3), r.normal(size=(3, 3)), spins]
    counts = np.array([[3, 3]] * 3 + [[2, 2]])
    parts = decomposed(jnp.asarray(tables), counts, np.ones(4, bool))
    assert np.asarray(parts.joined).tolist() == [False, True, True, False]
    assert np.asarray(parts.flip).tolist() == [False, False, False, True]
    S = (spins[0, 0] + spins[1, 1] - spins[0, 1] - spins[1, 0]) / 2
    least = np.diag(tables[2]).min() - tables[2][~np.eye(3, dtype=bool)].max()
    np.testing.assert_allclose(parts.strength, [0.7, 0.0, max(least, 0.0), -S], atol=1e-12)
    for n, (table, count) in enumerate(zip(tables, counts[:, 0], strict=True)):
        bond = np.pad([[0.0, 1.0], [1.0, 0.0]], (0, 1)) if parts.flip[n] else np.eye(3)
        again = parts.strength[n] * bond + parts.first[n][:, None] + parts.second[n] + parts.rest[n]
        gap = (np.asarray(again) - table)[:count, :count]
        np.testing.assert_allclose(gap, gap[0, 0], atol=1e-12)  # up to a constant


@pytest.mark.parametrize("padding", [0, components.MOST_PADDING], ids=["a list of edges", "a table"])
def test_components(padding, monkeypatch):
    monkeypatch.setattr(components, "MOST_PADDING", padding)
    r = np.random.default_rng(0)
    side = np.arange(144).reshape(12, 12)
    beside = ((side[:, :-1], side[:, 1:]), (side[:-1], side[1:]))
    lattice = np.concatenate([np.stack(ends, -1).reshape(-1, 2) for ends in beside])
    path = r.permutation(144)
    for pairs, p in ((lattice, 0.5), (np.stack([path[:-1], path[1:]], 1), 0.97)):
        on = r.random(len(pairs)) < p
        wanted = labels_of(*pairs[on].T, 144)
        labels, rounds = interpreted(components.component_finder(pairs, 144))(on)
        lowest = [np.flatnonzero(wanted == c)[0] for c in wanted]
        np.testing.assert_array_equal(labels, lowest)
        assert rounds <= 12
