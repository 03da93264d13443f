"""Factor graphs of PyMC models, and of targets: the same log density as the model's own."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.factor_graphs import Bipartite, Pairwise, Quadratic, Table
from pymc_discrete.factor_graphs.from_model import Extraction
from tests.factor_graphs.graphs import counted, gates, hard_table, loops, star
from tests.factor_graphs.models import boltzmann, ising, neural, potts
from tests.models import hidden_markov, mixture
from tests.tools.enumeration import evaluate
from tests.tools.interpreted import interpreted

pytestmark = pytest.mark.shares_programs


def spike_and_slab():
    r = np.random.default_rng(4)
    g, b = pm.Bernoulli("g", 0.3, shape=7), pm.Normal("b", 0, 1, shape=7)
    pm.Normal("y", pt.dot(r.normal(size=(12, 7)), g * b), 1.0, observed=r.normal(size=12))


def few_of_many():
    """A matrix with few entries, in a form that is dense."""
    r = np.random.default_rng(5)
    W = np.where(r.random((30, 30)) < 0.03, r.normal(size=(30, 30)), 0.0)
    x = pm.Bernoulli("x", 0.5, shape=30)
    pm.Potential("energy", pt.dot(x, pt.dot(W + W.T, x)))


def several():
    """Uneven supports, an element of three sites, a dense form of three values, and one between two
    variables.
    """
    b, c = (
        pm.Bernoulli("b", [0.3, 0.6, 0.5, 0.4], shape=4),
        pm.DiscreteUniform("c", [1, 1, 2], [3, 4, 3], shape=3),
    )
    h = pm.Categorical("h", p=[0.2, 0.5, 0.3], shape=6)
    pm.Potential("three", 0.6 * b[0] * b[1] * b[2] + 0.3 * b[3] * c[0] * h[0])
    pm.Potential("all", -0.2 * pt.sqr(h.sum() + b.sum() - 5))
    pm.Potential("never", pt.switch(pt.eq(c[1:], c[:-1]), -np.inf, 0.1).sum())


def counted_squared():
    z = pm.Categorical("z", np.ones(3) / 3, shape=6)
    pm.Potential("half", -0.3 * pt.sqr(pt.eq(z, 1).sum() - 3))


MODELS = {
    counted_squared: [Pairwise],
    ising: [Pairwise],
    potts: [Pairwise],
    hidden_markov: [Pairwise],
    boltzmann: [Bipartite],
    mixture: [],
    spike_and_slab: [Quadratic],
    few_of_many: [Pairwise],
    several: [Table, Table, Quadratic, Pairwise, Pairwise, Pairwise],
}


logdensity = interpreted(jax.vmap(lambda graph, x: graph.logdensity(x), (None, 0)))


def random_points(model, space, n, seed=0):
    r, initial = np.random.default_rng(seed), model.initial_point()
    for _ in range(n):
        x = r.integers(space.lower, space.upper + 1)
        point = {k: v + r.normal(size=v.shape) if v.dtype.kind == "f" else v for k, v in initial.items()}
        for start, v in space.blocks:
            point[v.name] = x[start : start + v.size].reshape(v.shape)
        yield x, point


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
@pytest.mark.by_default("ising", "mixture", "spike_and_slab")
def test_factors_add_up_to_the_model(build):
    """At random points of all variables, against PyMC's own log density."""
    with pm.Model() as model:
        build()
    logp = model.compile_logp(mode="FAST_COMPILE")
    names = [v.name for v in model.discrete_value_vars]
    target = pmd.target_from_model(model, differences="exact")
    extraction = Extraction.of(target.density)
    for _, context in random_points(model, target.space, 2):
        graph = extraction.graph(target.at(context)[1])
        assert sorted(type(f).__name__ for f in graph.wiring.factors) == sorted(
            f.__name__ for f in MODELS[build]
        )
        got, want = [], []
        for x, point in random_points(model, target.space, 20, seed=1):
            got.append(x)
            want.append(float(logp({**context, **{name: point[name] for name in names}})))
        got, want = np.asarray(logdensity(graph, np.array(got))), np.array(want)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
        difference = got[np.isfinite(want)] - want[np.isfinite(want)]
        assert len(difference)
        np.testing.assert_allclose(difference, difference[0], atol=1e-9)


def test_couplings_that_are_zero_at_the_start():
    with pm.Model() as model:
        mu, x = pm.Normal("mu"), pm.Bernoulli("x", 0.5, shape=8)
        W = np.random.default_rng(0).normal(size=(8, 8))
        pm.Potential("couplings", pt.switch(mu > 50, 1.0, 0.0) * pt.dot(x, pt.dot(W, x)))
    target = pmd.target_from_model(model, differences="exact")
    states = np.random.default_rng(1).integers(0, 2, size=(20, 8))
    for at in (0.0, 51.0):
        point = {"mu": np.array(at), "x": states[0]}
        graph, here = pmd.FactorGraph.from_model(model, point=point), target.at(point)[1]
        got, want = logdensity(graph, states), interpreted(jax.vmap(here.logdensity))(states)
        np.testing.assert_allclose(got - got[0], want - want[0], atol=1e-9)


def test_factors_of_one_variable_given_another():
    with pm.Model() as model:
        z, k = pm.Bernoulli("z", 0.4, shape=5), pm.Poisson("k", 3.0)
        pm.Potential("chain", 0.3 * k * pt.eq(z[1:], z[:-1]).sum())
    graph = pmd.FactorGraph.from_model(model, "z", point={"z": np.zeros(5, int), "k": np.array(4)})
    on, alternating = logdensity(graph, np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1]]))
    assert float(on - alternating) == pytest.approx(4.8 + 2 * np.log(0.4 / 0.6), abs=1e-12)


# ---------------------------------------------------------------- refusals
def count():
    pm.Poisson("k", 3.0, shape=3)


def crowd():
    x = pm.Categorical("x", np.ones(10) / 10, shape=4)
    pm.Potential("product", 0.1 * x[0] * x[1] * x[2] * x[3])


def determinant():
    g = pm.Bernoulli("g", 0.3, shape=5)
    X = np.random.default_rng(7).normal(size=(7, 5))
    pm.MvNormal("y", np.zeros(7), cov=pt.eye(7) + pt.dot(X * (4.0 * g), X.T), observed=np.ones(7))


def at_most():
    x = pm.Bernoulli("x", 0.5, shape=40)
    pm.Potential("few", pt.switch(x.sum() > 20, -np.inf, 0.0))


def rarely_impossible():
    x = pm.Bernoulli("x", 0.9, shape=30)
    pm.Potential("cap", pt.switch(x.sum() >= 27, -np.inf, 0.0))


def rarely_dear():
    x = pm.Bernoulli("x", 0.9, shape=30)
    pm.Potential("cap", -5.0 * pt.maximum(x.sum() - 26, 0))


def one_of_many():
    z = pm.Categorical("z", np.ones(30) / 30, shape=3)
    pm.Potential("three", 5.0 * pt.eq(z[0], 7) * pt.eq(z[1], 8) * pt.eq(z[2], 9))


def elsewhere():
    mu, x = pm.Normal("mu"), pm.Bernoulli("x", 0.5, shape=8)
    pm.Potential("product", pt.switch(mu > 1.5, 3.0 * x.prod(), 0.0))


def cut_off():
    x = pm.Bernoulli("x", 0.1, shape=30)
    pm.Potential("steps", pt.cast(0.05 * x.sum(), "int64"))


REFUSED = {
    cut_off: "'steps' is no factor graph",
    rarely_impossible: "'cap' is no factor graph: Ge joins more than two of its sites",
    rarely_dear: "'cap' is no factor graph: Maximum joins more than two of its sites",
    one_of_many: "'three' joins 3 sites in one element, a table of up to 27000 entries",
    elsewhere: "'product' is no factor graph: Prod.* joins more than two",
    neural: r"'network' is no factor graph: .*nats more than their pairs do"
    r".*v @ W @ h with the hidden units h as variables.*AutoStep",
    count: r"'k' has more than 256 values or no bound.*support=\{'k': \(lower, upper\)\}",
    crowd: "'product' joins 4 sites in one element, a table of up to 10000 entries that is no sum over pairs"
    ": a factor graph takes 4096",
    determinant: "'y' is no factor graph",
    at_most: "'few' joins many sites and is infinite or nan at some of their values",
}


@pytest.mark.parametrize("build", REFUSED, ids=lambda build: build.__name__)
def test_refused(build):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=REFUSED[build]):
        pmd.FactorGraph.from_model(model)


# ---------------------------------------------------------------- the other way
@pytest.mark.parametrize("build", [hard_table, gates, counted], ids=lambda build: build.__name__)
@pytest.mark.by_default("counted")
def test_target_and_potential_are_the_graph(build):
    """Log densities, exact differences, and the same from a potential inside a model."""
    graph, r = build(np.random.default_rng(0)), np.random.default_rng(1)
    target, space = graph.to_target(), graph.space
    x = r.integers(space.lower, space.upper + 1, size=(4000, space.d))
    x = x[np.asarray(logdensity(graph, x)) > -np.inf][:10]
    assert len(x) == 10
    density, differences, values, inside = map(np.asarray, evaluate(target, x))
    near = np.repeat(x, space.d * space.K, axis=0).reshape(*values.shape, space.d)
    np.put_along_axis(
        near,
        np.broadcast_to(np.arange(space.d)[:, None, None], (10, space.d, space.K, 1)),
        values[..., None],
        axis=3,
    )
    near = np.where(inside[..., None], near, x[:, None, None]).reshape(-1, space.d)
    # as many states as above, so that the program is the same
    every = np.asarray(logdensity(graph, np.resize(np.concatenate([x, near]), (4000, space.d))))
    own, changed = every[:10], every[10 : 10 + len(near)].reshape(values.shape)
    there = changed - own[:, None, None]
    assert all(row["exact"] for row in target.describe().values())
    np.testing.assert_allclose(differences, np.where(inside, there, -np.inf), atol=1e-10)
    np.testing.assert_allclose(density, own, atol=1e-10)
    with pm.Model() as model:
        tensors = {
            v.name: pm.DiscreteUniform(v.name, v.lower, v.upper, shape=v.shape) for v in space.variables
        }
        pm.Potential("graph", graph.potential(tensors))
    if build is loops:
        with pytest.raises(ValueError, match="'graph' joins many sites and is infinite"):
            pmd.FactorGraph.from_model(model)
        return
    again = pmd.FactorGraph.from_model(model)
    difference = np.asarray(logdensity(again, x)) - own
    np.testing.assert_allclose(difference, difference[0], atol=1e-9)


def test_gradient_is_the_difference_of_two_valued_sites():
    graph, r = star(np.random.default_rng(0)), np.random.default_rng(1)
    x = r.integers(graph.space.lower, graph.space.upper + 1, size=(5, graph.space.d))
    exact, gradient = (
        interpreted(jax.vmap(graph.to_target(way).differences))(x) for way in ("exact", "gradient")
    )
    np.testing.assert_allclose(gradient, exact, atol=1e-10)


def test_potential_refuses():
    graph = gates(np.random.default_rng(0))
    with pytest.raises(ValueError, match="potential needs a tensor for each of x, z, k, y; got x"):
        graph.potential({"x": pt.lvector()})
    with pytest.raises(
        ValueError,
        match=r"'z' has shape \(3,\) in the graph, and the tensor given for it has shape \(None, None\)",
    ):
        graph.potential({"x": pt.lvector(), "z": pt.lmatrix(), "k": pt.lvector(), "y": pt.lvector()})
    (first, *_), given = graph.space.variables, [pt.zeros(v.shape, int) for v in graph.space.variables]
    tensors = dict(zip((v.name for v in graph.space.variables), given, strict=True))
    tensors[first.name] = pm.Poisson.dist(1.0, shape=first.shape)
    with pytest.raises(ValueError, match=f"the variable given for it may have other values.*{first.name}"):
        graph.potential(tensors)
