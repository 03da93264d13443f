"""Coefficients of many columns, integrated out without matrices of them: `X @ (gamma * beta)`.

All is compared with integrals of PyMC's own log density, on models of few columns, for which this way is
forced.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logit, softmax

import pymc_discrete as pmd
from pymc_discrete.collapse import integrated as choice
from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.differences.parts import active_columns
from pymc_discrete.differences.parts.active_columns import ActiveColumns
from pymc_discrete.differences.parts.swept import Swept
from pymc_discrete.differences.sum_of_parts import SumOfParts
from pymc_discrete.integrals import active, columns
from pymc_discrete.integrals.active import PredictorForm, value_and_moments
from pymc_discrete.integrals.integrated_out import drawn_coefficients
from pymc_discrete.kernels.block_gibbs import visits_of
from pymc_discrete.sampling.division import steps_of
from pymc_discrete.starts.start import dispersed
from tests.integrals import models, test_augmented
from tests.integrals.models import X, Y
from tests.integrals.test_integrals import error_after_many_moves, exact, integral, jittered
from tests.kernels.test_every_kernel import KERNELS
from tests.tools.enumeration import check_kernel, enumerate_target
from tests.tools.running import QUIET
from tests.tools.statistics import LARGEST_Z, z_of_moments, zs_of_proportions

WIDE = np.random.default_rng(31).normal(size=(4, 6))


pytestmark = pytest.mark.shares_programs


@pytest.fixture(autouse=True, scope="module")
def forced():
    """This way for few columns, of which two are taken together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MOST_IN_TABLEAU", 0)
        patch.setattr(columns, "MOST_ROWS", np.inf)
        patch.setattr(active, "ACTIVE_AT_ONCE", 2)
        yield


def beside_others():
    """A flat intercept, and two coefficients more without a gate; the scales are unknown."""
    with pm.Model() as model:
        s, tau = pm.HalfNormal("s", 1.0), pm.HalfNormal("tau", 1.0)
        a, c = pm.Flat("a"), pm.Normal("c", 0.3, tau, shape=2)
        g, b = pm.Bernoulli("g", 0.3, shape=3), pm.Normal("b", 0.4, tau * np.array([1.0, 2, 3]), shape=3)
        pm.Normal("y", a + X[:, 3:5] @ c + pt.dot(g * b, X[:, :3].T) * 1.5, s, observed=Y)
    return model, ["g"], ["a", "c", "b"]


def some_rows_do_not_count():
    """Rows of weight 0, further terms of the predictor, and columns in another order than their gates."""
    weights = np.where(np.arange(9) % 3, 1.0, 0.0)
    order = np.array([2, 0, 3, 1])
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", -0.2, 1.5, shape=4)
        eta = X[:, :4] @ (g * b)[order]
        pm.Potential("y", -0.5 * weights * (Y - eta) ** 2)
        pm.Potential("z", (0.3 * eta).sum())
    return model, ["g"], ["b"]


def more_columns_than_rows():
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.5, shape=6), pm.Normal("b", 0.0, 3.0, shape=6)
        pm.Normal("y", WIDE @ (g * b) + pm.Normal("a"), 0.5, observed=Y[:4])
    return model, ["g"], ["a", "b"]


BUILDS = (
    models.multiples,
    models.switched,
    beside_others,
    some_rows_do_not_count,
    more_columns_than_rows,
)
each_model = pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)


@functools.cache
def prepared(build):
    """A model, its target, ..., which are made once: what the tests of a model trace of it is shared, too."""
    model, names, coefficients = build()
    point = jittered(model, coefficients)
    target = pmd.target_from_model(model, names, integrate=coefficients).at(point)[1]
    axes = [range(a, b + 1) for a, b in zip(target.space.lower, target.space.upper, strict=True)]
    return model, coefficients, target, point, np.array(list(itertools.product(*axes)))


# ---------------------------------------------------------------- densities and differences
@each_model
@pytest.mark.by_default("beside_others", "some_rows_do_not_count")
def test_the_log_density_and_differences_are_those_of_the_integral(build):
    model, coefficients, target, point, states = prepared(build)
    assert [type(p) for p in target.density.parts if p.mixing] == [ActiveColumns]
    for x in (states[0], states[-1], states[np.random.default_rng(0).integers(len(states))]):
        values, inside = target.space.neighbours(x)
        d = np.asarray(target.differences(x))
        moves = [(i, k) for i, k in np.argwhere(inside)]
        there = np.array([np.where(np.arange(len(x)) == i, values[i, k], x) for i, k in moves])
        want = exact(model, coefficients, target, point, np.vstack([x, there]))
        got = np.array([float(target.logdensity(y)) for y in [x, *there]])
        assert np.ptp(got - want) < 1e-9
        np.testing.assert_allclose([d[i, k] for i, k in moves], want[1:] - want[0], atol=1e-9)
        assert np.abs(d[inside & (values != x[:, None])]).min() > 1e-6


def after_moves(target, states, number, seed=1):
    """Differences that are carried along some random moves, and at the state itself."""
    move = jax.jit(target.carried_after, static_argnums=0)
    rows_of = jax.jit(target.all_rows, static_argnums=0)
    x, carried = jnp.asarray(states[0]), target.carried(states[0])
    r = np.random.default_rng(seed)
    worst = 0.0
    for t in range(number):
        site = int(r.integers(len(x)))
        value = int(r.integers(target.space.lower[site], target.space.upper[site] + 1))
        carried = move(0, jnp.asarray(site), jnp.asarray(value), x, carried)
        x = x.at[site].set(value)
        if t % 4 == 3:
            errors = np.asarray(rows_of(0, x, carried)) - np.asarray(target.differences(x))
            worst = max(worst, np.abs(errors).max())
    return worst


@pytest.mark.parametrize(
    "build",
    [models.multiples, beside_others, some_rows_do_not_count, more_columns_than_rows],
    ids=lambda build: build.__name__,
)
@pytest.mark.by_default("more_columns_than_rows")
def test_what_is_carried_along_is_that_of_the_state(build, monkeypatch):
    """Each move by itself: nothing is made anew."""
    monkeypatch.setattr(active_columns, "LARGEST_ERROR", np.inf)
    _, _, target, _, states = prepared(build)
    assert after_moves(target, states, 16) < 1e-9


@each_model
@pytest.mark.by_default("multiples")
def test_sound_moves_are_not_made_anew(build, monkeypatch):
    _, _, target, _, states = prepared(build)
    density, x = target.density, jnp.asarray(states[-1])
    (part,) = [p for p in density.parts if p.mixing]
    context = target.ready()
    of_part = context.parts[density.parts.index(part)]
    state = density._state_with_tensors(x, context)
    at = part.at(state, of_part)
    gates = part._gates(state)
    wrong = jax.jit(lambda at, j: part._is_wrong(at, gates, j, of_part))
    for j in range(part.p):
        assert not wrong(at, j)
    # a change of any of what is kept is noticed
    j = int(np.flatnonzero(np.asarray(gates))[0])
    for n, leaf in enumerate(leaves := jax.tree.leaves(at)):
        changed = leaf.at[j if leaf.shape == (part.p,) else 1].multiply(1 + 1e-5)
        moved = jax.tree.unflatten(jax.tree.structure(at), [*leaves[:n], changed, *leaves[n + 1 :]])
        assert wrong(moved, j), n


@pytest.mark.slow
def test_rounding_errors_are_noticed(monkeypatch):
    assert error_after_many_moves() < 1e-4
    monkeypatch.setattr(active_columns, "LARGEST_ERROR", np.inf)
    assert error_after_many_moves() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "build"),
    [("block gibbs", models.multiples), ("path auxiliary", models.gated)],
    ids=["block gibbs-numbers", "path auxiliary-gates"],
)
def test_kernels_leave_the_target_as_it_is(name, build):
    _, _, target, _, _ = prepared(build)
    ranges = [range(a, b + 1) for a, b in zip(target.space.lower, target.space.upper, strict=True)]
    check_kernel(enumerate_target(target, ranges), *KERNELS[name])


@pytest.mark.slow
def test_a_scan_from_change_to_change_draws_what_a_scan_by_sites_does(monkeypatch):
    _, _, target, _, states = prepared(more_columns_than_rows)
    found = []
    for _ in range(2):
        (visit,) = visits_of(target)
        visit = jax.jit(visit, static_argnums=2)
        found.append(np.array([visit(jax.random.key(k), states[5 * k], True) for k in range(12)]))
        monkeypatch.setattr(SumOfParts, "all_at_once", lambda self, n: False)
    np.testing.assert_array_equal(*found)
    assert (found[0] != states[:60:5]).sum() > 10


# ---------------------------------------------------------------- the coefficients, given the sites
def in_matrices(form: PredictorForm):
    """A and b of all coefficients, those with a gate first."""
    design = form.columns.T * form.gates
    A = np.block(
        [
            [design.T * form.weights @ design + np.diag(form.precision), design.T @ form.cross],
            [form.cross.T @ design, form.own],
        ]
    )
    return A, np.concatenate([design.T @ form.slope + form.linear, form.own_slope])


def form_of(p=7, n=4, m=2, closed=3, seed=0):
    r = np.random.default_rng(seed)
    others, weights = r.normal(size=(n, m)), np.abs(r.normal(size=n)) + 0.1
    weights[0] = 0.0
    own = others.T * weights @ others + 0.3 * np.eye(m)
    gates = np.where(np.arange(p) < closed, 0.0, r.normal(size=p))
    slope, columns = r.normal(size=n), r.normal(size=(p, n))
    precision = np.abs(r.normal(size=p)) + 0.1
    cross = weights[:, None] * others
    return PredictorForm(
        gates, columns, weights, slope, cross, own, r.normal(size=m), precision, r.normal(size=p)
    )


@pytest.mark.parametrize("closed", [0, 3, 7])
@pytest.mark.by_default("3")
def test_values_and_moments_are_those_of_matrices(closed):
    """In JAX and in NumPy, and with more active columns than rows."""
    form = form_of(closed=closed)
    A, b = in_matrices(form)
    C, design = np.linalg.inv(A), np.hstack([form.columns.T * form.gates, np.zeros((4, 2))])
    mean, eta = C @ b, design @ C @ b
    value = 0.5 * b @ mean - 0.5 * np.linalg.slogdet(A)[1] + 0.5 * len(b) * np.log(2 * np.pi)
    square = C + np.outer(mean, mean)
    want = [value, eta, np.diag(design @ C @ design.T), mean[:7], np.diag(square)[:7]]
    want += [mean[7:], square[7:, 7:], design @ C[:, 7:] + np.outer(eta, mean[7:])]
    for found in (value_and_moments(*form), active._on_host(*form)):
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.slow
def test_drawn_coefficients_have_the_mean_and_the_covariance_of_matrices():
    form = form_of()
    A, b = in_matrices(form)
    draws = 40_000
    keys = jax.random.split(jax.random.key(3), draws)
    inputs = PredictorForm(*map(jnp.asarray, form))
    beta, a, logdensity = jax.jit(jax.vmap(lambda key: drawn_coefficients(key, inputs)))(keys)
    x = np.hstack([beta, a])
    whitened = (x - np.linalg.solve(A, b)) @ np.linalg.cholesky(A)
    assert np.abs(whitened.mean(axis=0)).max() < LARGEST_Z / np.sqrt(draws)
    assert np.abs(whitened.T @ whitened / draws - np.eye(len(b))).max() < LARGEST_Z * np.sqrt(2 / draws)
    want = -0.5 * (whitened**2).sum(axis=1) + 0.5 * np.linalg.slogdet(A / 2 / np.pi)[1]
    np.testing.assert_allclose(logdensity, want, atol=1e-9)


@pytest.mark.slow
def test_nuts_moves_on_the_integral():
    """The log density at two points, and its gradient, against the integral and its differences."""
    model, _, coefficients = beside_others()
    point = jittered(model, coefficients, seed=2)
    point["g"] = np.array([1, 0, 1, 1])[: len(point["g"])]
    moved = [str(v.name) for v in model.continuous_value_vars if v.name not in coefficients]
    density, numbers = ContinuousDensity.of(model, moved, point, integrate=coefficients)
    assert density.graph.integral.columns is not None
    logp = model.compile_logp(mode="FAST_COMPILE")
    value = lambda at: integral(logp, at, coefficients)
    here = density.value_and_slopes(point | numbers)
    other = point | {moved[0]: point[moved[0]] + 0.3}
    there = density.value_and_slopes(other | numbers)
    assert float(there[0] - here[0]) == pytest.approx(value(other) - value(point), abs=1e-8)
    for name in moved:
        h = 1e-5
        change = value(point | {name: point[name] + h}) - value(point | {name: point[name] - h})
        np.testing.assert_allclose(here[1][name], change / 2 / h, atol=1e-4)
    # PyTensor's own functions, which `pm.sample` calls, have the Op in NumPy
    inputs = [*density.graph.values, *density.graph.others]
    function = pytensor.function(
        inputs, [density._sum, *density._gradient], mode="FAST_COMPILE", on_unused_input="ignore"
    )
    values = function(*(np.asarray((point | numbers)[v.name], v.type.dtype) for v in inputs))
    for v, slope in zip(density.graph.values, values[1:], strict=True):
        np.testing.assert_allclose(slope, here[1][v.name], atol=1e-9)


def unknown_scales():
    with pm.Model() as model:
        s, w = pm.HalfNormal("s", 2.0), pm.Beta("w", 2, 2)
        g = pm.Bernoulli("g", 0.4, shape=3)
        b = pm.Normal("b", 0.0, 0.5 + w, shape=3)
        pm.Normal("y", pt.dot(X[:, :3], g * b), s, observed=Y)
    return model


def of_unknown_scales():
    """States of `g`, their probabilities, and {name: mean and sd} of all else, by the midpoint rule."""
    states = np.array(list(itertools.product([0, 1], repeat=3)))
    s, w = np.meshgrid(np.linspace(0.1, 6.0, 300), (np.arange(60) + 0.5) / 60, indexing="ij")
    prior = stats.halfnorm.logpdf(s, 0, 2) + stats.beta.logpdf(w, 2, 2)
    logp, means, squares = [], [], []
    for g in states:
        M = X[:, :3] * g
        A = M.T @ M / s[..., None, None] ** 2 + np.eye(3) / (0.5 + w[..., None, None]) ** 2
        C = np.linalg.inv(A)
        mean = C @ (M.T @ Y) / s[..., None] ** 2
        fit = 0.5 * (mean @ (M.T @ Y) - Y @ Y) / s**2 - 9 * np.log(s)
        fit += 0.5 * np.linalg.slogdet(C)[1] - 3 * np.log(0.5 + w)
        logp.append(prior + fit + stats.bernoulli.logpmf(g, 0.4).sum())
        means.append(mean)
        squares.append(mean**2 + np.diagonal(C, axis1=-2, axis2=-1))
    p = softmax(logp)
    mean_of = lambda values: (p * values).sum()
    of = {"s": (mean_of(s), mean_of(s**2)), "w": (mean_of(w), mean_of(w**2))}
    of |= {f"b{n}": tuple(mean_of(np.array(v)[..., n]) for v in (means, squares)) for n in range(3)}
    return (
        states,
        p.sum((1, 2)),
        {k: (first, np.sqrt(second - first**2)) for k, (first, second) in of.items()},
    )


@pytest.mark.slow
def test_draws_are_those_of_the_exact_posterior(walks):
    model = unknown_scales()
    with model:
        tree = pmd.sample(8000, tune=500, random_seed=1, **QUIET)
    posterior = {k: v.values for k, v in tree["posterior"].items()}
    states, p, of = of_unknown_scales()
    assert np.abs(zs_of_proportions(posterior["g"], states, p)).max() < LARGEST_Z
    draws = {"s": posterior["s"], "w": posterior["w"]} | {f"b{n}": posterior["b"][..., n] for n in range(3)}
    for name, (mean, sd) in of.items():
        assert np.abs(z_of_moments(draws[name], mean, sd)).max() < LARGEST_Z, name
    logp = model.compile_logp(mode="FAST_COMPILE")
    recorded = tree["sample_stats"]["lp"].values[:, -1]
    for c in range(2):
        last = {k: v[c, -1] for k, v in posterior.items()}
        point = {
            "g": last["g"],
            "b": last["b"],
            "s_log__": np.log(last["s"]),
            "w_logodds__": logit(last["w"]),
        }
        assert recorded[c] == pytest.approx(float(logp(point)), abs=1e-6)


@pytest.mark.slow
def test_draws_of_a_logistic_model_are_those_of_the_exact_posterior(walks):
    with test_augmented.with_gates(test_augmented.bernoulli):
        posterior = pmd.sample(8000, tune=200, random_seed=2, **QUIET).posterior
    test_augmented.check(posterior, test_augmented.of_bernoulli())


# ---------------------------------------------------------------- sizes
def many(p=400, n=12):
    r = np.random.default_rng(1)
    with pm.Model() as model:
        s, g = pm.HalfNormal("s"), pm.Bernoulli("g", 0.01, shape=p)
        b = pm.Normal("b", 0.0, 2 * s, shape=p)
        pm.Normal("y", pm.Normal("a") + r.normal(size=(n, p)) @ (g * b), s, observed=r.normal(size=n))
    return model


def test_no_array_has_a_number_for_each_pair_of_columns():
    model, p = many(), 400
    with model:
        step = pmd.BlockGibbs(["g"], integrate=["a", "b"])
    density = step.density
    graph, sizes = density.graph, lambda v: getattr(v.type, "shape", ())
    for term in [*(t for _, t in graph.terms), *graph.integral.columns.form]:
        below = [v for node in toposort_of(term) for v in [*node.inputs, *node.outputs]]
        assert not [v for v in below if sizes(v).count(p) > 1]
    x, inputs, _ = density.split(model.initial_point())

    def draw(key, x, inputs):
        target = step.target.with_inputs(inputs)
        for visit in visits_of(target):
            x = visit(key, x, False)
        return target.logdensity(x), density.draw_integrated(key, x, target.context)

    with density.running(traced=False):
        text = str(jax.make_jaxpr(draw)(jax.random.key(0), jnp.asarray(x), list(map(jnp.asarray, inputs))))
    assert f"f64[{p},12]" in text
    assert f"[{p},{p}" not in text
    moved = ["s_log__"]
    nuts, _ = ContinuousDensity.of(model, moved, model.initial_point(), integrate=["a", "b"])
    values = [
        jnp.asarray(nuts.graph.start.get(v.name, model.initial_point().get(v.name))) for v in nuts._inputs
    ]
    with density.running(traced=False):
        text = str(jax.make_jaxpr(nuts._with_slopes)(*values))
    assert f"[{p},{p}" not in text


def toposort_of(v):
    from pytensor.graph.traversal import toposort

    return toposort([v])


@pytest.mark.slow
def test_all_of_many_columns_may_be_active(monkeypatch):
    """Far more than rows, with differences by another way: a matrix of the columns."""
    model = many(60, 5)
    found = []
    x = np.ones(60, int)
    for most in (0, 1000):
        monkeypatch.setattr(columns, "MOST_IN_TABLEAU", most)
        density_of = pmd.target_from_model(model, ["g"], integrate=["a", "b"])
        target = density_of.at(model.initial_point())[1]
        found.append((float(target.logdensity(x)), np.asarray(target.differences(x))))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-8)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-8)


def parts_of(model, integrate):
    target = pmd.target_from_model(model, ["g"], integrate=integrate)
    return [type(part) for part in target.density.parts if part.mixing]


@pytest.mark.parametrize(
    ("most", "rows", "way"), [(399, 2.0, ActiveColumns), (401, 2.0, Swept), (9, 0.01, Swept)]
)
@pytest.mark.by_default("399-2.0-ActiveColumns")
def test_few_columns_or_many_rows_have_a_matrix(most, rows, way, monkeypatch):
    monkeypatch.setattr(columns, "MOST_IN_TABLEAU", most)
    monkeypatch.setattr(columns, "MOST_ROWS", rows)
    assert parts_of(many(), ["a", "b"]) == [way]


def in_groups():
    return models.groups()[0]


def two_products():
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", shape=4)
        pm.Normal("y", X[:, :2] @ (g * b)[:2] + X[:, 2:4] @ (g * b)[2:], 0.9, observed=Y)
    return model


def neighbours_count():
    """No diagonal form: rows that are next to each other share an error."""
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", shape=4)
        left = Y - X[:, :4] @ (g * b)
        pm.Potential("y", -0.5 * (left[1:] - 0.5 * left[:-1]).dot(left[1:] - 0.5 * left[:-1]))
    return model


def an_unknown_matrix():
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", shape=4)
        pm.Normal("y", (X[:, :4] * pm.HalfNormal("u")) @ (g * b), 0.9, observed=Y)
    return model


@pytest.mark.parametrize(
    "build", [in_groups, two_products, neighbours_count, an_unknown_matrix], ids=lambda build: build.__name__
)
@pytest.mark.by_default("neighbours_count")
def test_other_forms_have_a_matrix(build):
    model = build()
    integrate = ["a", "b"] if build is in_groups else ["b"]
    assert parts_of(model, integrate) == [Swept]


# ---------------------------------------------------------------- by default
@pytest.mark.parametrize(
    ("most_bytes", "wanted"), [(2.0**32, ["a", "b"]), (1e4, [])], ids=["small", "too large"]
)
def test_many_columns_are_integrated_out_by_default(most_bytes, wanted, monkeypatch, caplog):
    caplog.set_level("INFO", "pymc.discrete")
    monkeypatch.setattr(choice, "MOST_BYTES", most_bytes)
    model = many()
    steps, _ = steps_of(model, None, model.initial_point(), "auto")
    assert sorted(name for s in steps for name in s.integrated) == wanted
    said = [m for m in caplog.messages if m.startswith("Not integrated out while 'g' moves: 'b', 'a'")]
    said += [m for m in caplog.messages if m.startswith("Not integrated out while 'g' moves: 'a', 'b'")]
    assert bool(said) == (not wanted)
    if said:
        assert "400 columns and 12 rows would take 0.0 GiB" in said[0]


def test_a_random_start_changes_few_of_many_gates():
    model = many()
    target = pmd.target_from_model(model, ["g"], integrate=["a", "b"]).at(model.initial_point())[1]
    sizes = [dispersed(np.zeros(400, int), target, np.random.default_rng(k)).sum() for k in range(8)]
    assert min(sizes) > 0
    assert max(sizes) < 32


@pytest.mark.slow
def test_a_flat_prior_under_a_gate_is_refused():
    with pm.Model():
        g, b = pm.Bernoulli("g", 0.3, shape=3), pm.Flat("b", shape=3)
        pm.Normal("y", pt.dot(X[:, :3], g * b), 0.9, observed=Y)
        with pytest.raises(pm.exceptions.SamplingError, match="nothing but a flat prior"):
            pmd.sample(5, tune=5, chains=1, step=pmd.BlockGibbs(["g"], integrate=["b"]), **QUIET)
