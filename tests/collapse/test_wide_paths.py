"""Sums, draws and most probable states along paths in which a site interacts with several that follow it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pymc_discrete.collapse import elimination as module
from pymc_discrete.collapse.cavities import cavities
from pymc_discrete.collapse.elimination import Elimination, Paths, TooDear
from pymc_discrete.runtime.model_settings import model_settings
from tests.collapse.test_elimination import by_brute_force, random_tables
from tests.tools.interpreted import interpreted
from tests.tools.statistics import g_test

pytestmark = pytest.mark.shares_programs


def second_order(r):
    """Two chains of different lengths, with tables of triples, of neighbours and of sites two apart."""
    chains = [np.arange(8), np.arange(8, 14)]
    triples = np.concatenate([np.stack([c[:-2], c[2:], c[1:-1]], 1) for c in chains])
    pairs = np.array([(0, 1), (3, 2), (9, 8), (10, 12)])
    tables = [r.normal(size=(len(triples), 2, 2, 2)), r.normal(size=(len(pairs), 2, 2))]
    tables[0][3, 1, :, 0] = -np.inf
    return np.full(14, 2), [triples, pairs], tables, None


def third_order(r):
    """One chain, of which all steps have the same table."""
    d = 10
    steps = np.stack([np.arange(n, d - 3 + n) for n in range(4)], 1)
    table = r.normal(size=(1, 2, 2, 2, 2))
    table[0, 1, 0, 1, 1] = -np.inf
    return np.full(d, 2), [steps], [table], [np.zeros(len(steps), int)]


def states_and_durations(r):
    """A hidden semi-Markov chain: z0, d0, z1, d1, ..., with 3 states, 2 durations and two tables in turn."""
    T = 4
    z, d = np.arange(0, 2 * T, 2), np.arange(1, 2 * T, 2)
    of_states, of_durations = (
        np.stack([*step], 1) for step in ((z[:-1], d[:-1], z[1:]), (d[:-1], z[1:], d[1:]))
    )
    tables = [r.normal(size=(2, 3, 2, 3)), r.normal(size=(1, 2, 3, 2))]
    return np.tile([3, 2], T), [of_states, of_durations], tables, [np.array([0, 1, 0]), np.zeros(3, int)]


def ends_at_others(r):
    """A second-order chain whose end meets a site that others join, and one of their own table."""
    d = 9
    triples = np.stack([np.arange(n, 5 + n) for n in range(3)], 1)
    pairs = np.array([(6, 7), (6, 8), (5, 8), (7, 8), (4, 5)])
    counts = np.full(d, 2)
    counts[8] = 3
    return counts, [triples, pairs], [r.normal(size=(5, 2, 2, 2)), r.normal(size=(5, 2, 3))], None


CASES = [second_order, third_order, states_and_durations, ends_at_others]


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def case(request, monkeypatch):
    """(counts, scopes, tables, the same with one for each scope, elimination), with a table of each site."""
    monkeypatch.setattr(module, "SHORTEST_WIDE_PATH", 2)
    r = np.random.default_rng(4)
    counts, scopes, tables, rows = request.param(r)
    scopes, tables = [*scopes, np.arange(len(counts))[:, None]], [*tables, r.normal(size=(len(counts), 3))]
    rows = None if rows is None else [*rows, np.arange(len(counts))]
    elimination = Elimination(counts, scopes, tables=rows)
    paths = [g for stage in elimination.order.stages for g in stage if isinstance(g, Paths)]
    assert any(p.ends.shape[1] > 1 for p in paths)
    assert any(p.common is not None for p in paths) == (rows is not None)
    each = tables if rows is None else [t[row] for t, row in zip(tables, rows, strict=True)]
    with model_settings():
        tables = list(map(jnp.asarray, tables))
    return counts, scopes, tables, each, elimination


def test_sums_and_their_gradients(case):
    counts, scopes, tables, each, elimination = case
    states, weights = by_brute_force(counts, scopes, each)
    p = np.exp(weights - np.logaddexp.reduce(weights))
    with model_settings():
        found, slopes = interpreted(jax.value_and_grad(lambda t: elimination.joined(t)[0]))(tables)
    assert float(found) == pytest.approx(np.logaddexp.reduce(weights), abs=1e-10)
    for sites, table, slope in zip(scopes, each, slopes, strict=True):
        want = np.zeros(table.shape)
        for n, scope in enumerate(sites):
            np.add.at(want[n], tuple(states[:, scope].T), p)
        if len(slope) < len(want):  # tables that are shared have the sum
            row = np.array([0, 1, 0])[: len(want)] if len(slope) == 2 else np.zeros(len(want), int)
            want = np.stack([want[row == u].sum(0) for u in range(len(slope))])
        np.testing.assert_allclose(slope, want, atol=1e-10)


@pytest.mark.by_default("second_order", "states_and_durations")
def test_the_most_probable_states(case):
    counts, scopes, tables, each, elimination = case
    states, weights = by_brute_force(counts, scopes, each)
    with model_settings():
        largest, index = interpreted(elimination.most_probable)(tables)
    assert float(largest) == pytest.approx(weights.max(), abs=1e-10)
    np.testing.assert_array_equal(index, states[weights.argmax()])


@pytest.mark.by_default("third_order", "states_and_durations")
def test_draws(case):
    counts, scopes, tables, each, elimination = case
    states, weights = by_brute_force(counts, scopes, each)
    p = np.exp(weights - np.logaddexp.reduce(weights))

    def draw(key):
        u = jax.random.uniform(key, (len(counts),))
        return elimination.draw(u, elimination.joined(tables)[1])

    with model_settings():
        x = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 20_000)))
    d = len(counts)
    for sites in ([0, 1, 2, 3], [0, d // 2, d - 1], [d - 3, d - 2, d - 1], [2, 4, 5]):
        place = np.ravel_multi_index(states[:, sites].T, counts[sites])
        got = np.bincount(np.ravel_multi_index(x[:, sites].T, counts[sites]), minlength=place.max() + 1)
        want = np.bincount(place, p)
        assert (got[want == 0] == 0).all()
        assert g_test(got[want > 0], want[want > 0]) > 1e-3


@pytest.mark.parametrize("case", [second_order, ends_at_others], indirect=True, ids=lambda c: c.__name__)
@pytest.mark.by_default("ends_at_others")
def test_cavities(case):
    """The cavity of a table is the sum with that table replaced by one that allows one entry only."""
    counts, scopes, tables, _, elimination = case
    entries = [
        (n, row, *values)
        for n, sites in enumerate(scopes)
        for row, scope in enumerate(sites)
        for values in itertools.product(*(range(counts[i]) for i in scope))
    ]
    replaced = [np.repeat(np.asarray(table)[None], len(entries), axis=0) for table in tables]
    for m, (n, row, *values) in enumerate(entries):
        replaced[n][m, row] = -np.inf
        replaced[n][(m, row, *values)] = 0.0
    with model_settings():
        got = [np.asarray(a) for a in interpreted(lambda t: cavities(elimination, t))(tables)]
        sums = interpreted(jax.vmap(lambda t: elimination.roots(elimination.joined(t)[1])))
        roots = np.asarray(sums(list(map(jnp.asarray, replaced))))
    component = elimination.components()
    for m, (n, row, *values) in enumerate(entries):
        np.testing.assert_allclose(got[n][(row, *values)], roots[m, component[scopes[n][row, 0]]], atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_the_most_probable_states_of_any_graph(seed):
    counts, scopes, tables = random_tables(seed)
    states, weights = by_brute_force(counts, scopes, tables)
    with model_settings():
        largest, index = interpreted(Elimination(counts, scopes).most_probable)(tables)
    assert float(largest) == pytest.approx(weights.max(), abs=1e-10)
    np.testing.assert_array_equal(index, states[weights.argmax()])


def test_a_long_path_takes_as_much_work_as_it_has_sites():
    d, K = 500, 4
    triples = np.stack([np.arange(n, d - 2 + n) for n in range(3)], 1)
    order = Elimination(np.full(d, K), [triples]).order
    assert order.entries <= d * K**3
    assert len(order.stages) == 3
    # of 64 values, four sites have too many states together for one table
    with pytest.raises(TooDear):
        Elimination(np.full(d, 64), [np.stack([np.arange(n, d - 3 + n) for n in range(4)], 1)])
    # short ones are summed as any graph is, all sites that share no table at once
    short = Elimination(np.full(8, K), [triples[:6]]).order
    assert not any(isinstance(g, Paths) for stage in short.stages for g in stage)
