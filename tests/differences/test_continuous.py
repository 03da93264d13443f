"""The log density of continuous variables, rewritten to be evaluated fast, against PyMC's own."""

import functools

import jax
import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_discrete.differences.continuous import ContinuousDensity
from tests.tools.interpreted import interpreted

Y = np.random.default_rng(0).integers(3, size=(12, 4))


def occupancy():
    """Sites that are occupied (z) and visited; a Bernoulli variable by p, and one by its logit."""
    a, b = pm.Normal("a", 0, 1, shape=2), pm.Normal("b", 0, 1)
    z = pm.Bernoulli("z", logit_p=a[0] + a[1] * np.linspace(-1, 1, 12), shape=12, initval=np.ones(12, int))
    pm.Bernoulli("y", p=(z * pm.math.sigmoid(b))[:, None] * np.linspace(0.2, 0.9, 4), observed=Y > 0)


def raters():
    """Labels select from probabilities that a switch puts together."""
    guess = pm.Dirichlet("guess", np.ones((4, 3)))
    z = pm.Bernoulli("z", 0.3, shape=(12, 4), initval=np.zeros((12, 4), int))
    pm.Categorical("y", p=pt.switch(z[:, :, None], np.ones(3) / 3, guess[None]), observed=Y)


def tables():
    """Observed and drawn labels select from a vector and a matrix; -1 is the last."""
    mu, P = pm.Normal("mu", 0, 1, shape=3), pm.Dirichlet("P", np.ones((3, 3)))
    z = pm.Categorical("z", np.ones(3) / 3, shape=12, initval=Y[:, 0])
    pm.Potential("moves", pt.log(P[z[:-1], z[1:]]).sum())
    pm.Normal("x", mu[z] + mu[Y[:, 1] - 1] + P[Y[:, 2], Y[:, 3] - 3], 1.0, observed=Y[:, 0])


def densities(build):
    """The model, a point, the continuous density there, and its inputs."""
    with pm.Model() as model:
        build()
    point = model.initial_point()
    names = [v.name for v in model.continuous_value_vars]
    r = np.random.default_rng(1)
    point |= {name: np.asarray(r.normal(size=np.shape(point[name]))) for name in names}
    density, numbers = ContinuousDensity.of(model, names, point)
    return model, point, density, point | numbers


@pytest.mark.parametrize("build", [occupancy, raters, tables], ids=lambda f: f.__name__)
@pytest.mark.by_default("raters")
def test_value_and_gradient(build):
    model, point, density, full = densities(build)
    q, others = density.ravel(full), density.others(full)
    value, slope, rest = interpreted(
        lambda q: (*density.value_and_slope(q, others)(q), density.rest(others))
    )(q)
    total = float(value) + float(rest)
    compiled = {"mode": "FAST_COMPILE"}
    np.testing.assert_allclose(total, model.compile_logp(**compiled)(point), rtol=1e-12)
    by_pymc = model.compile_dlogp(**compiled)(point)
    np.testing.assert_allclose(slope, by_pymc, rtol=1e-10, atol=1e-12)


def used(density, of=Elemwise):
    nodes = {v.owner for v in ancestors(density._terms) if v.owner is not None}
    return [node for node in nodes if isinstance(node.op, of)]


def test_one_logarithm_per_observation():
    """And not one of p and another one of 1 - p."""
    _, _, density, _ = densities(occupancy)
    functions = [(n.op.scalar_op, n.outputs[0].type.shape) for n in used(density)]
    large = [f for f, shape in functions if f in (ps.log, ps.log1p) and shape == (12, 4)]
    assert large == [ps.log]
    assert sum(isinstance(f, ps.Softplus) for f, _ in functions) == 1


@pytest.mark.parametrize("build", [raters, tables], ids=lambda f: f.__name__)
def test_no_scatter_of_observations(build):
    """Labels are compared with the few values that they have."""
    _, _, density, _ = densities(build)
    moving = [n for n in used(density, AdvancedSubtensor) if density.graph.depends(n.inputs[0])]
    assert all(density.graph.size(n.outputs[0]) <= 4 for n in moving if build is raters)
    assert all(n.inputs[0].type.ndim > 1 for n in moving)


@pytest.mark.parametrize(
    ("p", "y", "logp"), [(0.0, 0, 0.0), (0.0, 1, -np.inf), (1.0, 1, 0.0), (1.0, 0, -np.inf)]
)
def test_probabilities_of_0_and_1(p, y, logp):
    with pm.Model() as model:
        a = pm.Flat("a")
        pm.Bernoulli("y", p=p * pt.switch(a > 0, 1.0, 0.0), observed=[y])
    density, numbers = ContinuousDensity.of(model, ["a"], {"a": np.array(1.0)})
    others = density.others({"a": np.array(1.0)} | numbers)
    value, slope = jax.jit(lambda q: density.value_and_slope(q, others)(q))(np.ones(1))
    assert float(value) + float(density.rest(others)) == logp
    assert not np.isnan(slope).any()


def test_a_check_fails_where_one_element_does():
    with pm.Model() as model:
        a = pm.Flat("a")
        pm.Potential("above", pt.switch(a > np.array([0.0, 1.0]), 0.0, -np.inf))
    for at, logp in ((0.5, -np.inf), (1.5, 0.0)):
        density, numbers = ContinuousDensity.of(model, ["a"], {"a": np.array(at)})
        assert float(density.block(np.array([at]), density.others({"a": np.array(at)} | numbers))) == logp


def any_number(r, pool, depth=2):
    """A random vector: a sum, product, join or maximum of one to four others."""
    if depth == 0:
        return pool[r.integers(len(pool))]
    parts = [any_number(r, pool, depth - 1) for _ in range(r.integers(1, 5))]
    combine = [
        lambda *v: pt.add(*v) if len(v) > 1 else v[0],
        lambda *v: pt.mul(*v) if len(v) > 1 else pt.log1p(pt.exp(v[0])),
        lambda *v: functools.reduce(pt.maximum, v),
        lambda *v: pt.concatenate([u[:2] for u in v])[-3:].sum() + v[0],
        lambda *v: pt.stack([u[0] for u in v]).sum() * v[-1],
    ]
    return combine[r.integers(len(combine))](*parts)


def of_any_number_of_inputs():
    """Switches between sums, products and joins of different numbers of inputs."""
    r = np.random.default_rng(3)
    a, b = pm.Normal("a", 0, 1, shape=4), pm.Normal("b", 0, 1)
    z = [pm.Bernoulli(f"z{n}", 0.5, shape=4) for n in range(4)]
    pool = [a, b * np.ones(4), a * z[0], pt.constant(np.linspace(-1, 1, 4)), pt.sigmoid(a)]
    for n in range(16):
        sides = [pt.log1p(pt.exp(any_number(r, pool))), pt.log1p(pt.exp(any_number(r, pool)))]
        if n % 2:
            sides = [any_number(r, pool), any_number(r, pool)]
        pm.Potential(f"p{n}", 0.1 * pt.tanh(pt.switch(z[n % 4], *sides)))


@pytest.mark.slow
def test_operations_of_any_number_of_inputs():
    model, point, density, full = densities(of_any_number_of_inputs)
    terms = [*density._terms, *(t for _, t in density.graph.untouched)]
    each = function(
        density._inputs, [pt.sum(t) for t in terms], mode="FAST_COMPILE", on_unused_input="ignore"
    )
    by_pymc = model.compile_logp(sum=False, mode="FAST_COMPILE")(point)
    total = sum(each(*density.graph.arguments(full)))
    np.testing.assert_allclose(total, sum(np.sum(a) for a in by_pymc))
