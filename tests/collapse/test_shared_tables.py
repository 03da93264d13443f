"""Tables that several elements have are computed once, and change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_discrete.collapse import elements, paths, sums
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.collapse.elimination import Elimination, Paths
from pymc_discrete.collapse.labels import colours
from pymc_discrete.collapse.marginalize import density_to_sum, without_transforms
from pymc_discrete.collapse.paths import messages, messages_in_common
from pymc_discrete.collapse.sums import Sums
from pymc_discrete.engine.precision import precision
from pymc_discrete.runtime.model_settings import model_settings
from tests.collapse.test_elimination import by_brute_force
from tests.tools.interpreted import interpreted
from tests.tools.statistics import g_test

pytestmark = pytest.mark.shares_programs


def shared_tables(seed, d=6, K=3):
    """(counts, scopes, tables, rows): random factors of a few different tables; some entries are -inf."""
    r = np.random.default_rng(seed)
    scopes = [np.stack([r.permutation(d)[:J] for _ in range(E)]) for J, E in ((1, d), (2, 7), (3, 2))]
    rows = [r.integers(0, 2, len(s)) for s in scopes]
    tables = [r.normal(size=(2, *[K] * s.shape[1])) for s in scopes]
    tables[1][r.random(tables[1].shape) < 0.1] = -np.inf
    return np.full(d, K), scopes, tables, rows


def of_one_chain_each(seed, L=6, B=8, K=3):
    """As `shared_tables`, of paths that go through the same tables, and a table of its own for each site."""
    r = np.random.default_rng(seed)
    sites = np.arange(L * B).reshape(B, L)
    pairs = np.stack([sites[:, :-1], sites[:, 1:]], -1).reshape(-1, 2)
    rows = np.tile(np.arange(L - 1) % 2, B)
    alone = r.normal(size=(L * B, K))
    scopes = [np.arange(L * B)[:, None], pairs]
    return np.full(L * B, K), scopes, [alone, r.normal(size=(2, K, K))], [np.arange(L * B), rows]


def both(counts, scopes, tables, rows):
    """The sum and its derivatives by the different tables, with each table once and with all."""

    def shared(tables):
        return Elimination(counts, scopes, tables=rows).joined(tables)[0]

    def apart(tables):
        return Elimination(counts, scopes).joined([t[row] for t, row in zip(tables, rows, strict=True)])[0]

    with model_settings():
        arrays = list(map(jnp.asarray, tables))
        return [interpreted(jax.value_and_grad(f))(arrays) for f in (shared, apart)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("build", [shared_tables, of_one_chain_each])
@pytest.mark.by_default("of_one_chain_each-0")
def test_sums_and_slopes_are_those_of_all_tables(build, seed):
    (total, slopes), (want, wanted) = both(*build(seed))
    assert float(total) == pytest.approx(float(want), abs=1e-10)
    for slope, each in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(slope, each, atol=1e-10)


@pytest.mark.slow
def test_a_table_of_another_is_noticed():
    counts, scopes, tables, rows = shared_tables(0)
    wrong = [rows[0], np.zeros_like(rows[1]), rows[2]]
    (total, _), _ = both(counts, scopes, tables, wrong)
    _, (want, _) = both(counts, scopes, tables, rows)
    assert abs(float(total) - float(want)) > 1e-3


def test_paths_with_the_same_tables_take_products():
    counts, scopes, _, rows = of_one_chain_each(0)
    groups = [g for stage in Elimination(counts, scopes, tables=rows).order.stages for g in stage]
    assert [g.common is not None for g in groups if isinstance(g, Paths)] == [True]
    groups = [g for stage in Elimination(counts, scopes).order.stages for g in stage]
    assert [g.common is not None for g in groups if isinstance(g, Paths)] == [False]


def test_paths_go_with_those_of_the_same_tables():
    counts, scopes, _, rows = of_one_chain_each(0)
    rows[1] = np.where(np.arange(len(rows[1])) < 4 * 5, rows[1], 1 - rows[1])  # four paths of the other kind
    groups = [g for stage in Elimination(counts, scopes, tables=rows).order.stages for g in stage]
    assert [g.sites.shape[1] for g in groups if isinstance(g, Paths)] == [4, 4]


def test_what_is_shared_is_less_work():
    for counts, scopes, _, rows in (of_one_chain_each(0), of_three_sites_each()):
        shared, apart = Elimination(counts, scopes, tables=rows), Elimination(counts, scopes)
        assert shared.order.entries < apart.order.entries


def of_three_sites_each(E=20, K=4):
    """As `shared_tables`, of sites in threes, of which the last is in no other table."""
    r = np.random.default_rng(0)
    sites = np.arange(3 * E).reshape(E, 3)
    alone = r.normal(size=(2 * E, K))
    scopes = [sites[:, :2].reshape(-1, 1), sites]
    return (
        np.full(3 * E, K),
        scopes,
        [alone, r.normal(size=(1, K, K, K))],
        [np.arange(2 * E), np.zeros(E, int)],
    )


def test_what_sites_share_is_summed_out_first():
    counts, scopes, tables, rows = of_three_sites_each()
    first = Elimination(counts, scopes, tables=rows).order.stages[0]
    assert [(g.sites[:, 0] % 3).tolist() for g in first] == [[2] * 20]
    assert [g.different for g in first] == [1]
    (total, _), (want, _) = both(counts, scopes, tables, rows)
    assert float(total) == pytest.approx(float(want), abs=1e-9)


@pytest.mark.parametrize("build", [shared_tables, of_one_chain_each])
def test_draws_have_the_probabilities_of_all_states(build):
    few = {"d": 4} if build is shared_tables else {"L": 5, "B": 2, "K": 2}
    counts, scopes, tables, rows = build(1, **few)
    states, weights = by_brute_force(counts, scopes, [t[row] for t, row in zip(tables, rows, strict=True)])
    elimination = Elimination(counts, scopes, tables=rows)

    def draw(key):
        _, stages = elimination.joined(list(map(jnp.asarray, tables)))
        return elimination.draw(jax.random.uniform(key, (len(counts),)), stages)

    x = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 50_000)))
    number = np.ravel_multi_index(tuple(x.T), tuple(counts))
    got = np.bincount(number, minlength=len(states))
    assert g_test(got, np.exp(weights - np.logaddexp.reduce(weights))) > 1e-3


@pytest.mark.parametrize("seed", range(2))
def test_components_have_their_own_sums(seed):
    counts, scopes, tables, rows = of_one_chain_each(seed, L=5, B=4)
    tables[0][5:10] = tables[0][:5]
    rows[0] = np.concatenate([np.arange(5), np.arange(5), np.arange(10, 20)])
    with model_settings():
        shared, apart = Elimination(counts, scopes, tables=rows), Elimination(counts, scopes)
        arrays = list(map(jnp.asarray, tables))
        each = [t[row] for t, row in zip(arrays, rows, strict=True)]
        got, want = (
            interpreted(lambda tables, e=e: e.roots(e.joined(tables)[1]))(given)[e.components()]
            for e, given in ((shared, arrays), (apart, each))
        )
    np.testing.assert_allclose(got, want, atol=1e-10)
    assert len(np.unique(np.round(got, 9))) == 3


# ---------------------------------------------------------------- products that are too small for a float
def steep(far, width, L=4, B=3, K=5):
    """Tables along paths whose probabilities fall by `far` nats from one value to the next."""
    r = np.random.default_rng(0)
    unary = r.normal(size=(L, B, K)) - far * np.arange(K)
    apart = np.abs(np.arange(K)[:, None, None] + np.arange(K) - K + 1)
    pairs = r.normal(size=(2, K, K ** (width - 1), K)) - far * apart
    pairs[0, 2, :, 1:] = -np.inf
    pairs[1, ..., 3] = -np.inf
    return jnp.asarray(unary), jnp.asarray(pairs), jnp.asarray(np.arange(L) % 2)


def in_both_ways(far, width, dtype="float64"):
    with precision(dtype):
        unary, pairs, common = steep(far, width)

        def weighed(last):  # values that nothing leads to have no influence
            return jnp.where(last > -jnp.inf, last, 0.0) @ jnp.arange(1.0, 6.0)

        def products(unary, pairs):
            (arriving,), last = messages_in_common([unary], [pairs], [common])
            return weighed(last).sum() + jnp.where(arriving > -jnp.inf, arriving, 0.0).sum(), last

        def one_by_one(unary, pairs):
            each = jnp.broadcast_to(pairs[common][:, None], (*unary.shape, *pairs.shape[2:]))
            (arriving,), last = messages([unary], [each])
            return weighed(last).sum() + jnp.where(arriving > -jnp.inf, arriving, 0.0).sum(), last

        return [
            interpreted(jax.value_and_grad(f, argnums=(0, 1), has_aux=True))(unary, pairs)
            for f in (products, one_by_one)
        ]


@pytest.mark.parametrize(
    ("far", "width"), [(0.0, 1), (30.0, 1), (150.0, 1), (1000.0, 1), (0.0, 2), (150.0, 2), (1000.0, 2)]
)
def test_sums_of_very_different_weights(far, width):
    ((_, last), slopes), ((_, want), wanted) = in_both_ways(far, width)
    np.testing.assert_allclose(last, want, rtol=1e-12)
    assert np.isneginf(last).any()
    assert np.isfinite(last).any()
    for slope, each in zip(slopes, wanted, strict=True):
        assert np.isfinite(slope).all()
        np.testing.assert_allclose(slope, each, atol=1e-9)


@pytest.mark.parametrize("far", [30.0, 150.0])
def test_sums_of_very_different_weights_in_32_bits(far):
    """Here a product loses what is 88 nats below its largest summand, in place of 700."""
    ((_, last), slopes), ((_, want), wanted) = in_both_ways(far, 1, "float32")
    assert last.dtype == np.float32
    np.testing.assert_allclose(last, want, rtol=1e-5)
    for slope, each in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(slope, each, atol=1e-3)


@pytest.mark.parametrize(("dtype", "far"), [("float64", 1000.0), ("float32", 150.0)])
def test_products_alone_would_lose_them(monkeypatch, dtype, far):
    monkeypatch.setattr(paths, "SMALLEST_PRODUCT", {dtype: 0.0})
    ((_, last), _), ((_, want), _) = in_both_ways(far, 1, dtype)
    assert (np.isneginf(last) & np.isfinite(want)).any()


# ---------------------------------------------------------------- which tables are the same
def chain():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        z = pm.Binomial("z", 3, 0.5, shape=6)
        pm.Potential("pairs", -p * (z[1:] - 2 * z[:-1]) ** 2)
        pm.Poisson("y", 1.0 + z[::2], observed=[2, 2, 5])
    return model


def both_ways_round():
    """Elements that are the same function of their sites, but for which of them is which."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        z = pm.Binomial("z", 2, 0.5, shape=4)
        pm.Potential("pairs", p * z[[0, 1, 2, 3]] ** 2 * z[[1, 0, 3, 2]])
    return model


def of_other_bounds():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        z = pm.DiscreteUniform("z", [0, 1, 0, 1], [2, 3, 3, 4], shape=4)
        pm.Potential("pairs", p * z[:2] * z[2:])
        pm.Potential("alone", p * pt.cos(z))
    return model


def with_covariates():
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        p = pm.math.sigmoid(a[[0, 1, 0, 1]])
        N = pm.Binomial("N", 3, p)
        pm.Binomial("n", N, 0.5, observed=[1, 0, 1, 0])
        left = pm.Binomial("left", N, p[::-1])
        pm.Binomial("m", left, 0.3, observed=[0, 0, 1, 1])
    return model


MODELS = {
    "chain": (chain, 14, 6),
    "both ways round": (both_ways_round, 8, 4),
    "other bounds": (of_other_bounds, 10, 10),
    "covariates": (with_covariates, 16, 8),
}


def of_model(build, shared):
    model = without_transforms(build())
    with model_settings():
        names = [str(v.name) for v in model.discrete_value_vars]
        density = density_to_sum(model, names, None)
        return density, Sums(density, shared=shared)


def tables_of(density, sums):
    with model_settings():
        context = density.without_parts([np.asarray(i) for i in density.default_inputs()])
        of_groups = interpreted(lambda: sums.tables(context)[:-1])()
        return [np.asarray(t)[g.tables] for t, g in zip(of_groups, sums.elements.groups, strict=True)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.by_default("both ways round")
def test_elements_with_one_table_are_equal(name):
    build, *_ = MODELS[name]
    shared, apart = (tables_of(*of_model(build, s)) for s in (True, False))
    for got, want in zip(shared, apart, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_how_many_tables_there_are(name):
    build, all_of_them, different = MODELS[name]
    for shared, expected in ((False, all_of_them), (True, different)):
        _, sums = of_model(build, shared)
        assert sum(len(g.first) for g in sums.elements.groups) == expected


def test_without_colours_they_would_not_be(monkeypatch):
    monkeypatch.setattr(elements, "colours", lambda d, scopes: np.zeros(d, int))
    shared, apart = (tables_of(*of_model(both_ways_round, s)) for s in (True, False))
    assert any(not np.allclose(a, b) for a, b in zip(shared, apart, strict=True))


def test_colours_differ_where_sites_share_a_table():
    r = np.random.default_rng(0)
    scopes = [r.permutation(8)[:3][None] for _ in range(6)] + [np.arange(8)[:, None]]
    found = colours(8, scopes)
    assert all(len({*found[s[0]].tolist()}) == s.shape[1] for s in scopes)


def answers(y):
    """Persons with an ability each and two skills; an item asks for one skill or for both."""
    with pm.Model() as model:
        ability = pm.Normal("ability", shape=len(y))
        s, g = pm.Beta("s", 1, 4, shape=3), pm.Beta("g", 1, 4, shape=3)
        has = pm.Bernoulli("has", logit_p=ability[:, None], shape=(len(y), 2))
        able = pt.stack([has[:, 1], has[:, 0], has[:, 0] * has[:, 1]], axis=1)
        pm.Bernoulli("y", pt.switch(pt.eq(able, 1), 1 - s, g), observed=y)
    return model


ANSWERS = (np.arange(30)[:, None] >> np.arange(3)) % 2  # each of the eight, three or four times


def test_equal_answers_share_a_table_where_that_pays(monkeypatch):
    """Then answers are compared by their values; as the program's inputs they are all different."""

    def of(y, ability):
        with model_settings():
            collapsed = Collapsed.of(answers(y), ["has"])
            point = collapsed.model.initial_point()
            point |= {name: np.asarray(value) for name, value in collapsed.density.numbers.items()}

            def logp(ability):
                return collapsed.sums.logdensity_of(collapsed.inputs(point | {"ability": ability}))

            value, slopes = interpreted(jax.value_and_grad(logp))(ability)
            different = [len(g.first) for g in collapsed.sums.elements.groups if g.term.name == "y"]
            return len(collapsed.density.numbers) > 0, different, float(value), slopes

    ability = np.linspace(-1, 1, 30)
    saved = 60 * 2 + 30 * 4 - (4 * 2 + 2 * 4)  # entries of all answers, less those of the different ones
    monkeypatch.setattr(sums, "MANY_SAVED", saved + 1)
    as_inputs, different, value, slopes = of(ANSWERS, ability)
    assert as_inputs
    assert different == [60, 30]
    monkeypatch.setattr(sums, "MANY_SAVED", saved)
    as_inputs, different, *same = of(ANSWERS[::-1], ability[::-1])  # other data, as models are kept
    assert not as_inputs
    assert different == [4, 2]
    assert same[0] == pytest.approx(value, abs=1e-10)
    np.testing.assert_allclose(same[1][::-1], slopes, atol=1e-10)


@pytest.mark.slow
def test_probabilities_are_those_of_each_site():
    for build in (chain, with_covariates):
        density, shared = of_model(build, True)
        _, apart = of_model(build, False)
        with model_settings():
            inputs = [np.asarray(i) for i in density.default_inputs()]

            def found(sums, inputs=inputs):
                context = sums.density.without_parts(inputs)
                return sums.total_draw_and_probabilities(jax.random.key(0), context)

            (a, _, p), (b, _, q) = (interpreted(lambda sums=sums: found(sums))() for sums in (shared, apart))
        assert float(a) == pytest.approx(float(b), abs=1e-10)
        np.testing.assert_allclose(p, q, atol=1e-10)


def test_probabilities_are_left_out_where_they_are_too_dear(monkeypatch):
    _, sums = of_model(chain, True)
    assert sums.gives_probabilities
    _, sums = of_model(chain, True)
    monkeypatch.setattr("pymc_discrete.collapse.sums.MUCH_MORE", 0.5)
    assert not sums.gives_probabilities
