"""Coefficients that are integrated out: densities and differences against integrals of PyMC's log density."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.parts import swept
from tests.integrals.models import MODELS, SWEPT, X, Y, groups
from tests.kernels.test_every_kernel import KERNELS
from tests.tools.enumeration import check_kernel, enumerate_target
from tests.tools.running import FAST, QUIET
from tests.tools.statistics import LARGEST_Z, z_of_moments, zs_of_proportions

pytestmark = pytest.mark.shares_programs


def integral(logp, point, names):
    """The log of the integral over coefficients, in which `logp` is quadratic: found from values of it."""
    sizes = [np.size(point[n]) for n in names]
    ends = np.cumsum(sizes)

    def at(v):
        parts = {
            n: v[e - s : e].reshape(np.shape(point[n])) for n, s, e in zip(names, sizes, ends, strict=True)
        }
        return float(logp({**point, **parts}))

    p = ends[-1]
    e = np.eye(p)
    zero, plus, minus = at(np.zeros(p)), np.array([at(v) for v in e]), np.array([at(-v) for v in e])
    A = np.array([[plus[i] + plus[j] - zero - at(e[i] + e[j]) for j in range(p)] for i in range(p)])
    b = (plus - minus) / 2
    # the diagonal, by the values on both sides
    A[np.diag_indices(p)] = 2 * zero - plus - minus
    return (
        zero + 0.5 * b @ np.linalg.solve(A, b) - 0.5 * np.linalg.slogdet(A)[1] + 0.5 * p * np.log(2 * np.pi)
    )


def jittered(model, coefficients, seed=1):
    r = np.random.default_rng(seed)
    return {
        k: v + 0.4 * r.normal(size=np.shape(v)) if v.dtype.kind == "f" and k not in coefficients else v
        for k, v in model.initial_point().items()
    }


def exact(model, coefficients, target, point, states):
    """(S,) nats, the log density of the states of a target, with the coefficients integrated out."""
    logp = model.compile_logp(mode="FAST_COMPILE")
    return np.array(
        [integral(logp, target.point(x) | {n: point[n] for n in coefficients}, coefficients) for x in states]
    )


def prepared(name):
    model, names, coefficients = MODELS[name]()
    point = jittered(model, coefficients)
    target = pmd.target_from_model(model, names, integrate=coefficients).at(point)[1]
    axes = [range(a, b + 1) for a, b in zip(target.space.lower, target.space.upper, strict=True)]
    states = np.array(list(itertools.product(*axes)))
    return model, coefficients, target, point, states


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.by_default("one_of_several", "separate")
def test_the_log_density_is_the_integral_and_differences_are_alive(name):
    model, coefficients, target, point, states = prepared(name)
    integral = target.density.graph.integral
    assert bool(integral and integral.gates) == (name in {f.__name__ for f in SWEPT})
    assert target.exact
    r = np.random.default_rng(0)
    x = states[r.integers(len(states))]
    values, inside = target.space.neighbours(x)
    d = np.asarray(target.differences(x))
    changed = inside & (values != x[:, None])
    assert (d[inside & ~changed] == 0).all()
    moves = [(i, k) for i, k in np.argwhere(changed)]
    there = np.array([np.where(np.arange(len(x)) == i, values[i, k], x) for i, k in moves])
    want = exact(model, coefficients, target, point, np.vstack([x, there]))
    got = np.array([float(target.logdensity(y)) for y in [x, *there]])
    assert np.ptp(got - want) < 1e-9  # up to the terms that do not depend on the sites
    np.testing.assert_allclose([d[i, k] for i, k in moves], want[1:] - want[0], atol=1e-9)
    assert np.abs(d[changed]).min() > 1e-6


@pytest.mark.slow
def test_a_group_as_a_sum_of_singles_is_noticed(monkeypatch):
    _, _, target, _, states = prepared("groups")
    monkeypatch.setattr(swept.Tableau, "activated", lambda self, k, gate, prior: self)
    fresh = prepared("groups")[2]
    x = states[0]
    there = np.array([1, *x[1:]])
    want = float(target.logdensity(there)) - float(target.logdensity(x))
    assert abs(float(fresh.differences(x)[0, 1]) - want) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups", "one_of_several", "multiples", "separate"])
def test_a_tableau_that_is_carried_along_stays_that_of_the_state(name):
    """After several moves of sites, one of which returns."""
    _, _, target, _, states = prepared(name)
    # of each variable one program, since what is not compiled would trace its loops at every call
    move = jax.jit(target.carried_after, static_argnums=0)
    row_of = jax.jit(lambda n, site, x, carried: target.row(n, site, x, carried)[0], static_argnums=0)
    x, carried = jnp.asarray(states[0]), target.carried(states[0])
    r = np.random.default_rng(1)
    for _ in range(8):
        n = r.integers(len(target.space.variables))
        start, v = target.space.blocks[n]
        site, value = r.integers(v.size), r.integers(v.lower.min(), v.upper.max() + 1)
        carried = move(int(n), jnp.asarray(site), jnp.asarray(value), x, carried)
        x = x.at[start + site].set(value)
    want = np.asarray(target.differences(x))
    for n, (start, v) in enumerate(target.space.blocks):
        for site in range(v.size):
            row = np.asarray(row_of(n, jnp.asarray(site), x, carried))
            np.testing.assert_allclose(row, want[start + site, : v.K], atol=1e-9)


def error_after_many_moves():
    """Of differences, in nats, after 60 moves and back, with columns that are equal in pairs."""
    columns = np.repeat(np.random.default_rng(4).normal(size=(9, 5)), 2, axis=1)
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=10), pm.Normal("b", 0.0, 100.0, shape=10)
        pm.Normal("y", pt.dot(columns, g * b), 0.01, observed=Y)
    target = pmd.target_from_model(model, ["g"], integrate=["b"]).at(model.initial_point())[1]
    move = jax.jit(lambda site, x, carried: target.carried_after(0, site, 1 - x[site], x, carried))
    x = jnp.asarray(np.arange(10) % 2)
    carried, sites = target.carried(x), np.random.default_rng(1).integers(10, size=60)
    for site in [*sites, *sites[::-1]]:
        carried, x = move(jnp.asarray(site), x, carried), x.at[site].set(1 - x[site])
    row_of = jax.jit(lambda site: target.row(0, site, x, carried)[0])
    rows = np.array([row_of(jnp.asarray(n)) for n in range(10)])
    return np.abs(rows - np.asarray(target.differences(x))).max()


@pytest.mark.slow
def test_a_tableau_with_rounding_errors_is_made_anew(monkeypatch):
    assert error_after_many_moves() < 1e-9
    monkeypatch.setattr(swept, "TABLEAU_ERROR", np.inf)
    assert error_after_many_moves() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("build", ["gated", "labels"])
def test_a_kernel_that_reads_rows_in_turn_leaves_the_target_as_it_is(build):
    _, _, target, _, _ = prepared(build)
    ranges = [range(a, b + 1) for a, b in zip(target.space.lower, target.space.upper, strict=True)]
    check_kernel(enumerate_target(target, ranges), *KERNELS["block gibbs"])


# ---------------------------------------------------------------- draws
def known_scale():
    with pm.Model() as model:
        a, g = pm.Normal("a", 0.0, 2.0), pm.Bernoulli("g", 0.3, shape=3)
        b = pm.Normal("b", 0.5, 1.5, shape=3)
        pm.Normal("y", a + pt.dot(X[:, :3], g * b), 0.9, observed=Y)
    return model


def exact_posterior():
    """The states of `g`, their probabilities, and mean and sd of (a, b) given all else."""
    states, logp, moments = np.array(list(itertools.product([0, 1], repeat=3))), [], []
    prior = np.diag(1 / np.array([2.0, 1.5, 1.5, 1.5]) ** 2)
    mean = np.array([0.0, 0.5, 0.5, 0.5])
    for g in states:
        M = np.column_stack([np.ones(9), X[:, :3] * g])
        A = prior + M.T @ M / 0.81
        b = prior @ mean + M.T @ Y / 0.81
        m, C = np.linalg.solve(A, b), np.linalg.inv(A)
        logp.append(0.5 * b @ m - 0.5 * np.linalg.slogdet(A)[1] + g.sum() * np.log(0.3 / 0.7))
        moments.append((m, np.diag(C) + m**2))
    p = np.exp(logp - np.logaddexp.reduce(logp))
    first, second = (p @ np.array(m) for m in zip(*moments, strict=True))
    return states, p, first, np.sqrt(second - first**2)


def test_draws_are_those_of_the_exact_posterior():
    model = known_scale()
    with model:
        step = pmd.BlockGibbs(["g"], integrate="auto")
        assert [v.name for v in step.vars] == ["g", "a", "b"]
        tree = pm.sample(800, tune=20, chains=2, cores=1, step=step, random_seed=1, **QUIET, **FAST)
    posterior = {k: v.values for k, v in tree["posterior"].items()}
    states, p, mean, sd = exact_posterior()
    assert np.abs(zs_of_proportions(posterior["g"], states, p)).max() < LARGEST_Z
    draws = np.concatenate([posterior["a"][..., None], posterior["b"]], axis=2)
    for n in range(4):
        assert np.abs(z_of_moments(draws[..., n], mean[n], sd[n])).max() < LARGEST_Z
    logp = model.compile_logp(mode="FAST_COMPILE")
    recorded = tree["sample_stats"]["lp"].values[:, -1]
    for c in range(2):
        last = {k: v[c, -1] for k, v in posterior.items()}
        assert recorded[c] == pytest.approx(float(logp(last)), abs=1e-6)


# ---------------------------------------------------------------- bad input
def with_flat_prior():
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=3, initval=np.ones(3, int)), pm.Flat("b", shape=3)
        pm.Normal("y", pt.dot(X[:, :3], g * b), 0.9, observed=Y)
    return model


def with_counts():
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", 0.3, shape=3), pm.Normal("b", shape=3)
        pm.Uniform("u")
        pm.Poisson("y", pt.exp(pt.dot(X[:, :3], g * b)), observed=np.arange(9))
    return model


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"integrate": ["b"]}, r"'b' cannot be integrated out: .*'y' is none \(.*Exp.*\)"),
        ({"integrate": "auto"}, "finds nothing to integrate out"),
        ({"integrate": ["u"]}, "'u' cannot be integrated out: its values have bounds"),
        ({"integrate": ["g"]}, "'g' is discrete"),
        ({"integrate": ["nothing"]}, "no variable 'nothing'"),
        ({"integrate": []}, "integrate is empty"),
        ({"integrate": ["nope"]}, r"continuous free variables: 'b', 'u'\."),
    ],
    ids=["not quadratic", "auto", "bounded", "discrete", "unknown", "empty", "known"],
)
def test_what_cannot_be_integrated_is_named_with_a_remedy(options, words):
    with with_counts(), pytest.raises(ValueError, match=words):
        pmd.BlockGibbs(["g"], **options).target  # noqa: B018


@pytest.mark.slow
def test_a_flat_prior_under_a_gate_is_refused():
    with with_flat_prior(), pytest.raises(pm.exceptions.SamplingError, match="nothing but a flat prior"):
        pmd.sample(5, tune=5, chains=1, step=pmd.BlockGibbs(["g"], integrate=["b"]), **QUIET)


def test_a_factor_graph_has_no_integrals():
    model, names, coefficients = groups()
    with model, pytest.raises(ValueError, match="an integral joins all sites"):
        pmd.PerturbAndMaxProduct(names, integrate=coefficients)


@pytest.mark.slow
def test_the_automatic_step_integrates():
    model, names, coefficients = groups()
    with model:
        step = pmd.AutoStep(integrate="auto")
    assert isinstance(step, pmd.BlockGibbs)
    assert [v.name for v in step.vars] == [*names, *coefficients]
    assert step.density.graph.integral is not None


def test_only_one_step_moves_with_integrals():
    with groups()[0] as model:
        pm.Bernoulli("h", 0.3, shape=2)
        steps = [pmd.BlockGibbs(["g"], integrate=["b"]), pmd.BlockGibbs(["h"], integrate=["a"])]
        with pytest.raises(ValueError, match="Only one step"):
            pmd.sample(5, tune=5, chains=1, step=steps, model=model, **QUIET)


@pytest.mark.slow
def test_integrals_need_64_bits():
    with groups()[0], pytest.raises(ValueError, match='dtype="float64"'):
        pmd.sample(5, tune=5, chains=1, dtype="float32", step=pmd.BlockGibbs(["g"], integrate=["b"]), **QUIET)
