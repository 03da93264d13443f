"""Block Gibbs against enumeration: the sweep's own matrix, what the compiled sweep does, and the conditionals
it reads.
"""

import functools
import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import block_gibbs, loop
from pymc_discrete.kernels.block_gibbs import stretch
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.space.colours import colour_classes, links_of
from pymc_discrete.space.space import Variable
from pymc_discrete.structure import dependence
from tests.models import (
    binary,
    bounded,
    categorical,
    geometric,
    hidden_markov,
    ising,
    mixed,
    mixture,
    n_mixture,
    quadratic,
    softplus,
    visited,
    windowed,
)
from tests.tools.enumeration import Enumerated, check_runs, enumerate_target, run_steps
from tests.tools.interpreted import interpreted
from tests.tools.oracle import assert_close
from tests.tools.statistics import g_test
from tests.tools.transition_matrices import groups_of, site_matrix


def uneven():
    """Colours of unequal sizes, a term that reads one site often, and two values that do not begin at 0."""
    n = pm.Poisson("n", 1.0, shape=6)
    pm.Potential("bound", pt.switch(n > 1, -np.inf, 0.0))
    b = pm.DiscreteUniform("b", 1, 2)
    pm.Potential("pairs", 0.3 * (n[[0, 0, 1]] * n[[1, 2, 2]]).sum() - 0.5 * b * n[5])
    y = np.append(np.full(80, 0.5), np.linspace(0, 1, 6))
    pm.Normal(
        "y", n[np.append(np.full(80, 3), np.arange(6))], np.append(np.full(80, 9.0), np.ones(6)), observed=y
    )
    return [*[range(2)] * 6, range(1, 3)], {"window": 2}


def far():
    """One count with stretches of four strides."""
    k = pm.DiscreteUniform("k", 0, 299)
    pm.Normal("y", k, 20.0, observed=141.3)
    return [range(300)], {}


SMALL = (binary, categorical, bounded, windowed, geometric, mixed, visited)


# ---------------------------------------------------------------- the sweep, enumerated


def sweep_matrices(e: Enumerated) -> tuple[np.ndarray, np.ndarray]:
    """(S, S) all groups in order or all in reverse, by a fair coin; (S, S) all in order."""
    forward, backward = np.eye(len(e.states)), np.eye(len(e.states))
    for group in groups_of(e.target):
        G = np.eye(len(e.states))
        for i in group:
            P = site_matrix(e, i)
            np.testing.assert_allclose(G @ P, P @ G, atol=1e-13)  # sites of a colour do not interact
            G = G @ P
        forward, backward = forward @ G, G @ backward
    return (forward + backward) / 2, forward


@functools.cache
def small(build, form):
    with pm.Model() as model:
        ranges, options = build()
        if form == "scan":
            together = pt.cumsum(pt.concatenate([v.flatten() for v in model.free_RVs]))
            pm.Potential("dense", -0.2 * pt.sqr(together - 2).sum())
    with pytest.MonkeyPatch.context() as patch:
        if form == "scan":  # so few sites would not count as dense
            patch.setattr(dependence, "most_sites", lambda d: 0)
        target = pmd.target_from_model(model, **options)
    if form == "function":
        target = pmd.target_from_logdensity(target.logdensity, target.space)
    e = enumerate_target(target, ranges)
    return e, *sweep_matrices(e)


CASES = [
    *((build, "as it is") for build in (*SMALL, quadratic, softplus, far, uneven)),
    *((build, "scan") for build in (bounded, windowed)),
    (mixed, "function"),
]
IDS = [f"{build.__name__}-{form}" for build, form in CASES]


@pytest.mark.parametrize(("build", "form"), CASES, ids=IDS)
@pytest.mark.by_default(
    "binary-as it is", "bounded-as it is", "mixed-as it is", "windowed-scan", "quadratic-as it is"
)
def test_sweep_is_reversible_and_irreducible(build, form):
    e, P, forward = small(build, form)
    assert bool(e.target.interactions.scanned) == (
        form in ("scan", "function") or build in (quadratic, softplus)
    )
    flow = e.pi[:, None] * P
    assert np.abs(flow - flow.T).max() <= 1e-10 * flow.max()
    assert np.abs(e.pi @ P - e.pi).max() <= 1e-12
    assert np.abs(e.pi @ forward - e.pi).max() <= 1e-12
    for matrix in (P, forward):
        assert (np.abs(np.linalg.eigvals(matrix) - 1) < 1e-9).sum() == 1


# What is compiled differently, once: sites of each kind, all sites of a variable and some, bounds of their
# own, strides; colours in a loop; sites in turn, in a linear map and in other terms. What is read of a
# function, and of colours of unequal sizes, is compared with differences below.
COMPILED = [
    (mixed, "as it is"),
    (binary, "as it is"),
    (far, "as it is"),
    (quadratic, "as it is"),
    (uneven, "loop of colours"),
    (bounded, "loop of colours"),
    (bounded, "scan"),
    (windowed, "scan"),
]


@pytest.mark.parametrize(("build", "form"), COMPILED, ids=[f"{b.__name__}-{form}" for b, form in COMPILED])
@pytest.mark.by_default("mixed-as it is", "windowed-scan")
def test_compiled_sweeps_do_what_was_enumerated(build, form, monkeypatch):
    if form == "loop of colours":
        monkeypatch.setattr(importlib.import_module("pymc_discrete.kernels.block_gibbs"), "UNROLLED", 0)
    e, P, _ = small(build, "as it is" if form == "loop of colours" else form)
    check_runs(run_steps(e, *block_gibbs(), runs=20_000, seed=COMPILED.index((build, form))), P)


def test_the_checks_see_a_window_about_the_value():
    e, P, _ = small(windowed, "as it is")
    Q = np.exp(e.logp)[None] * (np.abs(e.states[:, None] - e.states[None]).max(-1) <= 2)
    assert np.abs(e.pi @ (Q / Q.sum(1, keepdims=True)) - e.pi).max() > 1e-3
    assert np.abs(e.pi @ P - e.pi).max() <= 1e-12


def test_stretches_have_every_stride_and_the_value_in_every_place():
    (v,) = pmd.Space.build({"k": (0, 1000)}, window="geometric").variables
    width, strides = v.stretches
    assert len(strides) > 3
    n = 20_000
    u = np.random.default_rng(0).random((2, n))
    values = np.asarray(jax.jit(lambda u: stretch(u, v, jnp.full(n, 500)))(u))
    apart = np.diff(values, axis=1)
    assert (apart == apart[:, :1]).all()
    place = (500 - values[:, 0]) // apart[:, 0]
    assert (values[np.arange(n), place] == 500).all()
    assert set(apart[:, 0]) <= set(strides.tolist())
    cells = np.searchsorted(strides, apart[:, 0]) * (width + 1) + place
    count = len(strides) * (width + 1)
    assert g_test(np.bincount(cells, minlength=count), np.full(count, 1 / count)) > 1e-4


# ---------------------------------------------------------------- colours


def partly_dense():
    """One variable in a linear map, half of another in a sum, and one that no dense term reads."""
    r = np.random.default_rng(4)
    g, h = pm.Bernoulli("g", 0.3, shape=6), pm.Categorical("h", p=[0.2, 0.5, 0.3], shape=8)
    k = pm.Poisson("k", 3.0, shape=5)
    pm.Normal(
        "y", pt.dot(r.normal(size=(9, 6)), g * pm.Normal("b", 0, 1, shape=6)), 1.0, observed=r.normal(size=9)
    )
    pm.Potential("sum", -0.1 * pt.sqr(h[:4].sum() - 3) - 0.3 * pt.eq(h[1:], h[:-1]).sum())
    pm.Normal("w", k + h[:5], 1.5, observed=r.normal(3, 1, 5))


def logistic():
    r = np.random.default_rng(5)
    g, k = pm.Bernoulli("g", 0.3, shape=7), pm.Poisson("k", 2.0, shape=2)
    eta = pt.dot(r.normal(size=(12, 7)), g) + 0.3 * pt.dot(r.normal(size=(12, 2)), k)
    pm.Bernoulli("y", logit_p=eta, observed=r.integers(0, 2, 12))


def hub():
    """A count that 80 others read: too uneven to pad."""
    r = np.random.default_rng(6)
    k = pm.Poisson("k", 4.0, shape=81)
    pm.Normal("y", k[1:] * k[0], 5.0, observed=r.normal(12, 5, 80))


def two_sites_of_many():
    """Elements of three sites, bounds of their own, and sites that only some elements read."""
    k = pm.DiscreteUniform("k", np.arange(12) % 3, 3 + np.arange(12) % 2, shape=12)
    pm.Potential("three", 0.1 * (k[:4] * k[4:8] * k[8:]).sum() - 0.2 * pt.sqr(k[2:5] - 1).sum())


CONDITIONALS = (
    binary,
    ising,
    hidden_markov,
    mixture,
    n_mixture,
    mixed,
    partly_dense,
    logistic,
    hub,
    two_sites_of_many,
)


@functools.cache
def target_of(build):
    """(target in a context of its own, a start of positive density)."""
    with pm.Model() as model:
        build()
    r = np.random.default_rng(7)
    point = {
        k: v + 0.3 * r.normal(size=v.shape) if v.dtype.kind == "f" else v
        for k, v in model.initial_point().items()
    }
    x, target = pmd.target_from_model(model, [v.name for v in model.discrete_value_vars]).at(point)
    return target, x


@pytest.mark.parametrize(
    ("build", "number"), [(mixture, 1), (n_mixture, 1), (hidden_markov, 2), (ising, 2), (hub, 2)]
)
def test_number_of_colours(build, number):
    target, _ = target_of(build)
    assert len(target.interactions.colours) == number
    assert not target.interactions.scanned


@pytest.mark.parametrize("build", CONDITIONALS)
def test_every_site_is_drawn_once(build):
    target, _ = target_of(build)
    assert sorted(itertools.chain(*groups_of(target))) == list(range(target.space.d))


@pytest.mark.parametrize(
    "edges",
    [
        [(0, 1), (1, 2), (2, 0)],
        [(i, j) for i in range(5) for j in range(i)],
        [],
        [(0, 3), (3, 1), (1, 4), (4, 2)],
    ],
)
def test_colours_have_no_link_inside(edges):
    links = links_of([np.array(edges, int).reshape(-1, 2)], 6)
    classes = colour_classes(links, np.arange(6))
    assert sorted(np.concatenate(classes)) == list(range(6))
    colour = {int(i): c for c, sites in enumerate(classes) for i in sites}
    assert all(colour[a] != colour[b] for a, b in links.tolist())


@pytest.mark.parametrize("build", CONDITIONALS)
@pytest.mark.by_default("hidden_markov")
def test_conditionals_equal_differences(build):
    """Colour by colour from static and from traced sites, site by site with what is carried, moving on the
    way.
    """
    target, x = target_of(build)
    want = interpreted(lambda target, x: target.differences(x))
    for n, sites in target.interactions.colours:
        start, v = target.space.blocks[n]

        @interpreted
        def of_colour(target, x, at, n=n, sites=sites, v=v):
            logits = target.logits(n, sites)(x) if v.finite else jnp.zeros(())
            return target.rows(n, sites)(x), target.rows(n, at)(x), logits

        static, traced, logits = of_colour(target, x, sites)
        fresh = want(target, x)[start + sites, : v.K]
        assert_close(static, fresh)
        assert_close(traced, fresh)
        if v.finite and logits.shape[1] == 1:
            assert_close(logits, fresh[:, 1:] - fresh[:, :1])
        elif v.finite:
            assert_close(logits - logits.max(1, keepdims=True), fresh - fresh.max(1, keepdims=True))
        values, inside = target.space.neighbours(x)
        x = x.copy()
        differences = want(target, x)
        for i in start + sites[::2]:
            possible = np.flatnonzero(inside[i] & (differences[i] > -np.inf))
            x[i] = values[i, possible[-1]]
    carried = interpreted(lambda target, x: target.carried(x))(target, x)
    for n, sites in target.interactions.scanned:
        start, v = target.space.blocks[n]
        row = interpreted(lambda target, site, x, carried, n=n: target.row(n, site, x, carried))
        moved = interpreted(
            lambda target, site, value, x, carried, n=n: target.carried_after(n, site, value, x, carried)
        )
        for i in sites:
            assert_close(row(target, i, x, carried), want(target, x)[start + i, : v.K][None])
            values, inside = target.space.neighbours(x)
            value = values[start + i, np.flatnonzero(inside[start + i])[-1]]
            carried = moved(target, i, value, x, carried)
            x = x.copy()
            x[start + i] = value


WINDOWED = [
    *((b, "as it is") for b in (n_mixture, partly_dense, hub, logistic, visited, mixed)),
    *((b, "function") for b in (partly_dense, visited)),
]


@pytest.mark.parametrize(("build", "form"), WINDOWED)
@pytest.mark.by_default("mixed-as it is", "partly_dense-function", "visited-function")
def test_differences_at_candidates_equal_changes_of_the_log_density(build, form):
    """Any values, also the present one, one twice and some outside the support; static and traced sites,
    drawn together and scanned.
    """
    target, x = target_of(build)
    target = pmd.target_from_logdensity(target.logdensity, target.space) if form == "function" else target
    logdensity, r = interpreted(jax.vmap(target.logdensity)), np.random.default_rng(11)
    base = logdensity(x[None])[0]

    def asked(n, sites):
        """((r, K) candidates, (r, K) brute force)"""
        start, v = target.space.blocks[n]
        candidates = (
            x[start + sites][:, None]
            + np.array([-9, -1, 0, 0, 2, 2, 3, 40])
            + r.integers(-1, 2, (len(sites), 1))
        )
        y = np.repeat(np.repeat(x[None, None], len(sites), 0), candidates.shape[1], 1)
        y[np.arange(len(sites)), :, start + sites] = candidates
        change = logdensity(y.reshape(-1, len(x))).reshape(candidates.shape) - base
        within = (candidates >= v.lower[sites][:, None]) & (candidates <= v.upper[sites][:, None])
        return candidates, np.where(within, change, -np.inf)

    checked = 0
    for n, sites in target.interactions.colours:
        if target.space.variables[n].finite:
            continue
        candidates, brute = asked(n, sites)

        @interpreted
        def both(target, x, c, at, n=n, sites=sites):
            return target.rows(n, sites)(x, c), target.rows(n, at)(x, c)

        for got in both(target, x, candidates, sites):
            assert_close(got, brute)
        checked += len(sites)
    carried = interpreted(lambda target, x: target.carried(x))(target, x)
    for n, sites in target.interactions.scanned:
        if target.space.variables[n].finite:
            continue
        row = interpreted(lambda target, site, x, c, carried, n=n: target.row(n, site, x, carried, c))
        for i, c, want in zip(sites, *asked(n, sites), strict=True):
            assert_close(row(target, i, x, c[None], carried), want[None])
            checked += 1
    assert checked == target.space.windowed.sum() > 0


@pytest.mark.parametrize("build", [ising, partly_dense])
@pytest.mark.by_default("ising")
def test_no_stale_cache(build):
    target, x = target_of(build)
    kernel, params = block_gibbs()

    @interpreted
    def run(seed, target):
        key = jax.random.key(seed)
        state, info = loop(kernel, key, kernel.init(x, target), target, params, 10)
        again, _ = kernel.step(key, state, target, params)
        return [(s, kernel.refresh(s, target)) for s in (state, again)], info

    pairs, info = run(3, target)
    assert 0.3 < float(info.accept) <= 1
    for state, fresh in pairs:
        assert (np.asarray(state.x) != x).sum() > 1
        assert_close(state.logdensity, fresh.logdensity)
        assert_close(state.differences, fresh.differences)


# ---------------------------------------------------------------- starts, refusals
@pytest.mark.parametrize(("top", "together"), [(4, False), (4, True), (400, True)])
@pytest.mark.by_default("4-False")
def test_an_impossible_start_is_left(top, together):
    with pm.Model() as model:
        x = pm.DiscreteUniform("x", 0, top, shape=3)
        pm.Potential(
            "e", pt.switch(x.sum() < 8, -np.inf, 0.0) if together else pt.switch(x < 3, -np.inf, 0.0).sum()
        )
    target = pmd.target_from_model(model).at(model.initial_point())[1]
    kernel, params = block_gibbs()

    def sweep(state, key):
        state, _ = kernel.step(key, state, target, params)
        return state, state.logdensity

    @interpreted
    def run(x):
        return jax.lax.scan(sweep, kernel.init(x, target), jax.random.split(jax.random.key(0), 40))[1]

    possible = run(np.zeros(3, int)) > -np.inf
    assert possible[-1]
    assert (np.diff(possible.astype(int)) >= 0).all()  # and never entered again


@pytest.mark.parametrize("offsets", [None, np.array([-1, 1])], ids=["all values", "window"])
def test_a_site_stays_where_nothing_is_possible(offsets):
    v = Variable("k", (5,), np.zeros(5, int), np.full(5, 3), offsets)
    module = importlib.import_module("pymc_discrete.kernels.block_gibbs")

    def impossible(*candidates):
        return jnp.full(candidates[0].shape if candidates else (5, v.K), -jnp.inf)

    @interpreted
    def draw(now):
        u = module.uniforms_for(jax.random.key(0), v, 5)
        return module.draw_conditional(u, v, np.arange(5), now, impossible)

    np.testing.assert_array_equal(draw(np.ones(5, int)), 1)


def cholesky():
    X = np.random.default_rng(17).normal(size=(80, 60))
    g = pm.Bernoulli("g", 0.3, shape=60)
    pm.MvNormal("y", np.zeros(80), cov=pt.eye(80) + pt.dot(X * (4.0 * g), X.T), observed=np.zeros(80))


def test_refuses_estimates():
    with pm.Model() as model:
        cholesky()
    with pytest.raises(
        ValueError,
        match=r"BlockGibbs needs exact conditionals, and those of 'g' are not: 'y' is dense \(.*\)"
        r".*PathAuxiliary.*exact",
    ):
        pmd.BlockGibbs(model=model)
    assert pmd.BlockGibbs(model=model, differences="exact").target.exact
    with pytest.raises(ValueError, match=r"BlockGibbs needs exact conditionals.*gradient"):
        pmd.BlockGibbs(model=model, differences="gradient")
    with pytest.raises(TypeError, match=r"BlockGibbs has no option 'n_flips'"):
        pmd.BlockGibbs(model=model, n_flips=2)
    kernel, params = block_gibbs()
    with pm.Model() as model:
        binary()
    target = pmd.target_from_model(model, differences="gradient")
    with pytest.raises(ValueError, match=r"exact conditionals"):
        kernel.step(jax.random.key(0), kernel.init(np.zeros(4, int), target), target, params)


# ---------------------------------------------------------------- many labels
@pytest.mark.parametrize("now", [0, 3])
def test_labels_with_a_window_are_tried_from_anywhere(now):
    """Draws of many sites that do not interact, from a likely and from an impossible value, against the mean
    over all pairs of values that may be tried beside it.
    """
    p, sites = np.array([0.1, 0.05, 0.3, 0.0, 0.2, 0.35]), 100_000
    ends = np.zeros(sites, int), np.full(sites, 5)
    v = Variable("z", (sites,), *ends, np.array([-2, -1, 1, 2]), nominal=True)
    assert v.drawn_among == 2
    expected = np.zeros(6)
    for tried in itertools.product(range(6), repeat=2):
        values = np.array([now, *tried])
        weights = p[values] if p[values].sum() else np.array([1.0, 0.0, 0.0])
        np.add.at(expected, values, weights / weights.sum() / 36)

    def differences(values):
        return jnp.log(p)[values] - (np.log(p[now]) if p[now] else 0.0)

    with model_settings():
        module = importlib.import_module("pymc_discrete.kernels.block_gibbs")
        u = module.uniforms_for(jax.random.key(1), v, sites)
        draw = lambda u: module.draw_conditional(u, v, np.arange(sites), jnp.full(sites, now), differences)
        drawn = jax.jit(draw)(u)
    assert g_test(np.bincount(np.asarray(drawn), minlength=6), expected) > 1e-4


def test_many_labels_are_tried_by_the_dozen():
    """Cells of a map: as many as are cheap, and at least 16."""
    with pm.Model():
        z = pm.Categorical("z", p=np.full(400, 1 / 400), shape=300)
        distance = np.random.default_rng(0).random((400, 30))
        pm.Bernoulli("y", pt.as_tensor(distance)[z], observed=np.zeros((300, 30), int))
        step = pmd.BlockGibbs()
    (v,) = step.target.space.variables
    assert not v.finite
    assert v.drawn_among == 16
