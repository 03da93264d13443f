"""Sums and draws by elimination, against the sum over all states."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pymc_discrete.collapse import elimination as module
from pymc_discrete.collapse.cavities import cavities
from pymc_discrete.collapse.elimination import Elimination, EliminationOrder, TooDear, logsumexp
from pymc_discrete.runtime.model_settings import model_settings
from tests.tools.interpreted import interpreted
from tests.tools.statistics import g_test

pytestmark = pytest.mark.shares_programs


def random_tables(seed, d=6, pairs=6, triples=1, forbidden=0.15):
    """(counts, scopes, tables) of random factors; some entries are -inf, tables are wider than needed."""
    r = np.random.default_rng(seed)
    counts = r.integers(1, 4, size=d)
    scopes, tables = [np.arange(d)[:, None]], [r.normal(size=(d, 3))]
    for J, E in ((2, pairs), (3, triples), (1, 3)):
        sites = np.stack([r.permutation(d)[:J] for _ in range(E)])
        table = r.normal(size=(E, *[3] * J))
        scopes.append(sites)
        tables.append(np.where(r.random(table.shape) < forbidden, -np.inf, table) if J == 2 else table)
    return counts, scopes, tables


def by_brute_force(counts, scopes, tables):
    """(states (S, d), log weight of each)"""
    states = np.array(list(itertools.product(*map(range, counts))))
    total = np.zeros(len(states))
    for sites, table in zip(scopes, tables, strict=True):
        for scope, values in zip(sites, table, strict=True):
            total += values[tuple(states[:, scope].T)]
    return states, total


@pytest.mark.parametrize("seed", range(6))
def test_the_sum_is_that_over_all_states(seed):
    counts, scopes, tables = random_tables(seed)
    _, weights = by_brute_force(counts, scopes, tables)
    got, _ = interpreted(Elimination(counts, scopes).joined)(list(map(jnp.asarray, tables)))
    assert float(got) == pytest.approx(np.logaddexp.reduce(weights), abs=1e-5)


def test_a_table_that_is_left_out_is_noticed():
    counts, scopes, tables = random_tables(1)
    _, weights = by_brute_force(counts, scopes, tables)
    tables[1][0] = 0.0
    got, _ = interpreted(Elimination(counts, scopes).joined)(list(map(jnp.asarray, tables)))
    assert abs(float(got) - np.logaddexp.reduce(weights)) > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_the_probability_of_every_entry(seed):
    counts, scopes, tables = random_tables(seed)
    states, weights = by_brute_force(counts, scopes, tables)
    p = np.exp(weights - np.logaddexp.reduce(weights))
    elimination = Elimination(counts, scopes)
    slope_of = interpreted(jax.grad(lambda tables: elimination.joined(tables)[0]))
    slopes = slope_of(list(map(jnp.asarray, tables)))
    for sites, slope in zip(scopes, slopes, strict=True):
        want = np.zeros(slope.shape)
        for n, scope in enumerate(sites):
            np.add.at(want[n], tuple(states[:, scope].T), p)
        np.testing.assert_allclose(slope, want, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_draws_have_the_probabilities_of_all_states(seed):
    counts, scopes, tables = random_tables(seed, d=4, pairs=4)
    states, weights = by_brute_force(counts, scopes, tables)
    elimination = Elimination(counts, scopes)

    def draw(key):
        _, stages = elimination.joined(list(map(jnp.asarray, tables)))
        return elimination.draw(jax.random.uniform(key, (len(counts),)), stages)

    x = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(seed), 50_000)))
    got = np.array([(x == state).all(1).sum() for state in states])
    p = np.exp(weights - np.logaddexp.reduce(weights))
    assert got.sum() == len(x)
    assert (got[p == 0] == 0).all()
    assert g_test(got[p > 0], p[p > 0]) > 1e-3


def tree_of_paths(seed, K=2):
    """(counts, scopes, tables): two paths of different lengths meet at a site with a leaf; one is alone."""
    r = np.random.default_rng(seed)
    paths = [[0, 1, 2, 3, 4, 5], [10, 9, 8, 7, 6, 5], [11, 5], [12, 13, 14, 15, 16], [5, 17]]
    pairs = np.array([edge for path in paths for edge in itertools.pairwise(path)])
    d = int(pairs.max()) + 1
    pairs[::3] = pairs[::3, ::-1]
    counts = np.full(d, K)
    counts[17] = 1
    tables = [r.normal(size=(d, K)), r.normal(size=(len(pairs), K, K)), r.normal(size=(3, K, K))]
    tables[1][4, 0, 1] = -np.inf
    return counts, [np.arange(d)[:, None], pairs, pairs[[1, 1, 7]]], tables


def test_paths_are_summed_one_site_after_another_and_halved_on_an_accelerator():
    d = 64
    path = np.stack([np.arange(d - 1), np.arange(1, d)], 1)
    elimination = Elimination(np.full(d, 3), [path])
    paths, last = elimination.order.stages
    assert [g.sites.shape for g in (*paths, *last)] == [(d - 1, 1, 1), (1, 1)]
    assert elimination.order.entries == (d - 1) * 9 + 3
    assert len(elimination._for_accelerators.stages) <= 2 + np.log2(d)
    star = np.stack([np.zeros(d - 1, int), np.arange(1, d)], 1)
    elimination = Elimination(np.full(d, 3), [star])
    assert [sum(len(g.sites) for g in stage) for stage in elimination.order.stages] == [d - 1, 1]
    counts, scopes, _ = tree_of_paths(0)
    assert [g.sites.shape for g in Elimination(counts, scopes).order.stages[0]] == [(5, 3, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_sums_and_draws_along_paths(device, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    counts, scopes, tables = tree_of_paths(3)
    states, weights = by_brute_force(counts, scopes, tables)
    p = np.exp(weights - np.logaddexp.reduce(weights))
    elimination = Elimination(counts, scopes)
    tables = list(map(jnp.asarray, tables))
    total, slopes = interpreted(jax.value_and_grad(lambda tables: elimination.joined(tables)[0]))(tables)
    assert float(total) == pytest.approx(np.logaddexp.reduce(weights), abs=1e-5)
    for sites, slope in zip(scopes, slopes, strict=True):
        want = np.zeros(slope.shape)
        for n, scope in enumerate(sites):
            np.add.at(want[n], tuple(states[:, scope].T), p)
        np.testing.assert_allclose(slope, want, atol=1e-5)

    def draw(key):
        return elimination.draw(jax.random.uniform(key, (len(counts),)), elimination.joined(tables)[1])

    x = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 20_000)))
    # sums over the neighbours of where paths meet, and over pairs of sites of the longest one
    for sites in ([4, 5, 6, 11], [0, 5, 10], [8, 9, 10], [12, 13, 16]):
        place = np.ravel_multi_index(states[:, sites].T, counts[sites])
        got = np.bincount(np.ravel_multi_index(x[:, sites].T, counts[sites]), minlength=place.max() + 1)
        want = np.bincount(place, p)
        assert g_test(got[want > 0], want[want > 0]) > 1e-3


def test_a_sum_that_is_too_dear_is_refused():
    d = 24
    everyone = np.array([(i, j) for i in range(d) for j in range(i)])
    with pytest.raises(TooDear) as error:
        Elimination(np.full(d, 3), [everyone])
    assert error.value.entries > 2**20
    assert len(error.value.sites) > 1


def test_what_is_impossible_has_gradient_zero():
    value, slope = jax.value_and_grad(lambda a: logsumexp(a, 0))(jnp.full(3, -jnp.inf))
    assert value == -jnp.inf
    assert (slope == 0).all()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.by_default("0-cpu")
def test_a_cavity_is_the_sum_over_all_else_of_all_other_tables_also_where_its_own_is_zero(
    seed, device, monkeypatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    counts, scopes, tables = random_tables(seed, forbidden=0.3)
    # several tables of one site
    scopes.append(np.array([[0], [0], [1], [0]]))
    tables.append(np.random.default_rng(seed).normal(size=(4, 3)))
    tables[-1][1, 0] = -np.inf
    states, _ = by_brute_force(counts, scopes, tables)
    of_rows = [(n, row) for n, table in enumerate(tables) for row in range(len(table))]
    elimination = Elimination(counts, scopes)
    component = elimination.components()
    assert [len(set(component[scope])) for sites in scopes for scope in sites] == [1] * len(of_rows)
    with model_settings():
        got = interpreted(lambda tables: cavities(elimination, tables))(list(map(jnp.asarray, tables)))
        got = [np.asarray(a) for a in got]
    for n, row in of_rows:
        own = scopes[n][row]
        rest = np.zeros(len(states))
        for m, other in of_rows:
            if (m, other) != (n, row) and component[scopes[m][other][0]] == component[own[0]]:
                rest += tables[m][other][tuple(states[:, scopes[m][other]].T)]
        fixed = component != component[own[0]]  # sites of other components are not summed
        rest = np.where((states[:, fixed] == 0).all(1), rest, -np.inf)
        for values in itertools.product(*(range(counts[i]) for i in own)):
            want = np.logaddexp.reduce(np.where((states[:, own] == values).all(1), rest, -np.inf))
            np.testing.assert_allclose(got[n][(row, *values)], want, atol=1e-10)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.by_default("cpu")
def test_cavities_along_paths_and_sums_over_components(device, monkeypatch):
    """The cavity of a table is the sum with that table replaced by one that allows one entry only."""
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    counts, scopes, tables = tree_of_paths(3)
    elimination, entries = Elimination(counts, scopes), []
    for n, sites in enumerate(scopes):
        for row, scope in enumerate(sites):
            entries += [(n, row, *v) for v in itertools.product(*(range(counts[i]) for i in scope))]
    replaced = [np.repeat(table[None], len(entries), axis=0) for table in tables]
    for m, (n, row, *values) in enumerate(entries):
        replaced[n][m, row] = -np.inf
        replaced[n][(m, row, *values)] = 0.0

    def sums(tables):
        total, stages = elimination.joined(tables)
        return total, elimination.roots(stages)

    with model_settings():
        got = interpreted(lambda tables: cavities(elimination, tables))(list(map(jnp.asarray, tables)))
        got = [np.asarray(a) for a in got]
        totals, roots = map(np.asarray, interpreted(jax.vmap(sums))(list(map(jnp.asarray, replaced))))
    np.testing.assert_allclose(totals, roots.sum(1), atol=1e-10)
    component = elimination.components()
    assert set(component[[0, 10, 5, 11, 17]]) != set(component[12:17])
    for m, (n, row, *values) in enumerate(entries):
        want = roots[m, component[scopes[n][row, 0]]]
        np.testing.assert_allclose(got[n][(row, *values)], want, atol=1e-10)


def random_single_sites(rng):
    """Counts, scopes and rows of tables of sites that no table joins, some of them alike."""
    d = int(rng.integers(1, 12))
    counts = rng.choice([1, 2, 3, 5, 64, 128], d) if rng.random() < 0.7 else np.full(d, rng.integers(1, 4))
    scopes, rows = [np.arange(d)[:, None]], [rng.integers(0, 2, d) if rng.random() < 0.5 else np.arange(d)]
    for _ in range(rng.choice([1, 1, 2, 3])):
        n = int(rng.integers(0, 15))
        scopes.insert(0, rng.integers(0, d, (n, 1)))
        rows.insert(
            0, rng.integers(0, rng.choice([2, n // 2 + 1]), n) if rng.random() < 0.6 else np.arange(n)
        )
    return counts, scopes, rows


@pytest.mark.parametrize("short", [module.SHORT_SEQUENCE, 2])
def test_sites_that_nothing_joins_have_the_stages_that_are_found_one_by_one(monkeypatch, short):
    monkeypatch.setattr(module, "SHORT_SEQUENCE", short)
    rng = np.random.default_rng(0)
    for _ in range(400):
        counts, scopes, rows = random_single_sites(rng)
        at_once = EliminationOrder(counts, scopes, True, False, 1e9, rows)
        with monkeypatch.context() as patched:
            patched.setattr(module, "none_joined", lambda scopes: False)
            one_by_one = EliminationOrder(counts, scopes, True, False, 1e9, rows)
        assert at_once.entries == one_by_one.entries
        assert [*map(len, at_once.stages)] == [*map(len, one_by_one.stages)]
        for group, wanted in zip(
            *map(itertools.chain.from_iterable, (at_once.stages, one_by_one.stages)), strict=True
        ):
            assert group.shape == wanted.shape
            np.testing.assert_array_equal(group.sites, wanted.sites)
            np.testing.assert_array_equal(group.tables, wanted.tables)
            assert len(group.sources) == len(wanted.sources)
            for source, same in zip(group.sources, wanted.sources, strict=True):
                assert (source.batch, source.axes) == (same.batch, same.axes)
                np.testing.assert_array_equal(source.rows, same.rows)
                np.testing.assert_array_equal(source.into, same.into)


def test_too_much_is_refused_also_where_nothing_joins_sites():
    with pytest.raises(TooDear):
        EliminationOrder(np.full(50, 4), [np.arange(50)[:, None]], True, False, 199, [np.arange(50)])
