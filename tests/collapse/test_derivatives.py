"""Derivatives are 0, and not nan, where the result of an elementwise Op has no influence."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.math import Max, Min

import pymc_discrete as pmd
from pymc_discrete.collapse import derivatives
from pymc_discrete.collapse.derivatives import WITH_FINITE_DERIVATIVES, differentiable
from pymc_discrete.runtime.model_settings import model_settings

INF = np.inf
# {name: (a function of tensors, values at which the chain rule may multiply 0 by infinity)}
CASES = {
    "logarithm": (pt.log, [0.0]),
    "log1p": (pt.log1p, [-1.0]),
    "log Gamma": (pt.gammaln, [0.0]),
    "root": (pt.sqrt, [0.0]),
    "exponential": (pt.exp, [INF]),
    "product": (pt.mul, [0.0, INF]),
    "quotient": (pt.true_div, [1.0, 0.0]),
    "power": (pt.pow, [0.0, -1.0]),
    "sum": (pt.add, [INF, -INF]),
    "difference": (pt.sub, [INF, INF]),
    "negative": (pt.neg, [INF]),
    "selection": (lambda a, b: pt.switch(np.array([True]), a, b), [INF, np.nan]),
    "cast": (lambda a: pt.cast(a, "float32"), [INF]),
}


def slopes(name):
    """The derivatives of a case by its floats, where the result has influence 0."""
    write, values = CASES[name]
    inputs = [pt.dvector() for _ in values]
    node = write(*inputs).owner
    with model_settings():
        function = differentiable(node.op, node)
        known = iter([jnp.array([v]) for v in values])
        given = [next(known) if i in inputs else jnp.asarray(i.data) for i in node.inputs]
        floats = [n for n, i in enumerate(node.inputs) if i in inputs]

        def of_floats(*new):
            return function(*(new[floats.index(n)] if n in floats else a for n, a in enumerate(given)))

        out, back = jax.vjp(of_floats, *(given[n] for n in floats))
        return [np.asarray(s) for s in back(jnp.zeros_like(out))]


@pytest.mark.parametrize("name", CASES)
def test_no_influence_no_derivative(name):
    for slope in slopes(name):
        np.testing.assert_array_equal(slope, [0.0])


def test_every_op_without_a_guard_is_among_the_cases():
    ops = {
        type(write(*(pt.dvector() for _ in values)).owner.op.scalar_op) for write, values in CASES.values()
    }
    bare = {op for op in WITH_FINITE_DERIVATIVES if not any(issubclass(found, op) for found in ops)}
    assert {op.__name__ for op in bare} == {"Identity"}  # which PyTensor writes for a copy


@pytest.mark.parametrize("name", ["logarithm", "log1p", "root", "exponential", "product", "quotient"])
def test_without_a_guard_it_would_be_nan(name, monkeypatch):
    monkeypatch.setattr(derivatives, "may_be_undefined", lambda op: False)
    assert any(np.isnan(slope).any() for slope in slopes(name))


@pytest.mark.parametrize("op", [Max, Min])
@pytest.mark.parametrize("axes", [(0, 1, 2), (0,), (0, 2)])
def test_a_maximum_has_its_derivative_by_one_element(op, axes):
    """Also where several elements are equal, so that nothing is divided by their number."""
    a = np.random.default_rng(1).permutation(24).reshape(2, 3, 4) / 5.0
    a[0, 0], a[1, 1] = 9.0, -9.0
    x = pt.tensor3(dtype="float64")
    node = op(axis=axes).make_node(x)
    with model_settings():
        function = differentiable(node.op, node)
        out, back = jax.vjp(function, jnp.asarray(a))
        np.testing.assert_array_equal(out, node.outputs[0].eval({x: a}))
        (slope,) = back(jnp.ones_like(out))
    assert set(np.unique(slope)) == {0.0, 1.0}
    np.testing.assert_array_equal(np.sum(slope, axes), np.ones(np.shape(out)))
    np.testing.assert_array_equal(np.sum(slope * a, axes), out)


def test_no_derivative_is_divided_by_the_number_of_largest_elements():
    """Compiled, a largest element that is computed twice may be equal to none: the derivative was 0 / 0."""
    with pm.Model() as model:
        f = pm.Beta("f", 5, 5)
        z = pm.Bernoulli("z", 0.5, shape=2)
        b = pm.Binomial("b", z, f)
        pm.Binomial("y", 12, 0.2 + 0.6 * b, observed=[0, 9])
    summed = pmd.marginalize(model)
    logp, slope = summed.compile_logp(), summed.compile_dlogp()
    at = lambda x: {"f_logodds__": np.array(x)}
    for x in (-0.2, 0.2, 0.5):
        by_differences = (logp(at(x + 1e-5)) - logp(at(x - 1e-5))) / 2e-5
        np.testing.assert_allclose(slope(at(x)), by_differences, rtol=1e-6)
