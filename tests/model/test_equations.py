"""Which comparisons in a model are linear equations between its counts, and what is said of others."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.model.equations import equations_of

A, y = np.array([[1, 1, 0, 0], [0, 0, 1, 2]]), np.array([3, 4])


def counts():
    return pm.Poisson("x", 2.0, shape=4)


def of(build):
    with pm.Model() as model:
        build(counts())
    return model, equations_of(model, [str(v.name) for v in model.discrete_value_vars])


def potential(term):
    pm.Potential("seen", term)


WRITTEN = {
    "all": lambda x: potential(pt.switch(pt.all(pt.eq(A @ x, y)), 0.0, -np.inf)),
    "method": lambda x: potential(pm.math.switch(pm.math.eq(pm.math.dot(A, x), y).all(), 0, -np.inf)),
    "where": lambda x: potential(pt.where(pt.eq(y, A @ x), 0.0, -np.inf)),
    "summed": lambda x: potential(pt.switch(pt.eq(A @ x - y, 0), 0.0, -np.inf).sum()),
    "any": lambda x: potential(pt.switch(pt.any(pt.neq(A @ x, y)), -np.inf, 0.0)),
    "floats": lambda x: potential(pt.switch(pt.all(pt.eq(A.astype(float) @ x, y)), 0.0, -np.inf)),
    "data": lambda x: potential(pt.switch(pt.all(pt.eq(pm.Data("A", A) @ x, pm.Data("y", y))), 0.0, -np.inf)),
    "and": lambda x: potential(pt.switch(pt.eq(x[0] + x[1], 3) & pt.eq(x[2] + 2 * x[3], 4), 0.0, -np.inf)),
    "stack": lambda x: potential(pt.switch(pt.eq(pt.stack([x[0] + x[1], x[2] + 2 * x[3]]), y), 0.0, -np.inf)),
    "added": lambda x: potential(
        pt.switch(pt.eq(x[:2].sum(), 3), 0.0, -np.inf)
        + pt.switch(pt.eq((x[2:] * [1, 2]).sum(), 4), -0.5, -np.inf)
    ),
    "logarithm": lambda x: potential(pt.log(pt.eq(A @ x, y))),
    "logarithm of a float": lambda x: potential(pt.log(pt.all(pt.eq(A @ x, y)).astype("float64"))),
    "observed": lambda x: pm.DiracDelta("seen", A @ x, observed=y),
    "times": lambda x: potential(
        pm.HalfNormal("power", 1.0) * 2.0 * pt.switch(pt.all(pt.eq(A @ x, y)), 0.0, -np.inf)
    ),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_ways_to_write_it(way):
    _, found = of(WRITTEN[way])
    assert {e.name for e in found} == {"seen"}
    np.testing.assert_array_equal(np.concatenate([e.coefficients["x"] for e in found]), A)
    np.testing.assert_array_equal(np.concatenate([e.totals for e in found]), y)


LEFT = {
    "or": lambda x: potential(pt.switch(pt.eq(x[0], x[1]) | pt.eq(x[2], 1), 0.0, -np.inf)),
    "product": lambda x: potential(pt.switch(pt.eq(x[0] * x[1], 2), 0.0, -np.inf)),
    "remainder": lambda x: potential(pt.switch(pt.eq(x.sum() % 2, 0), 0.0, -np.inf)),
    "penalty": lambda x: potential(pt.switch(pt.eq(x.sum(), 4), 0.0, -9.0)),
    "order": lambda x: potential(pt.switch(x[0] <= x[1], 0.0, -np.inf)),
    "weighted": lambda x: potential(-pt.switch(pt.eq(x.sum(), 4), 0.0, -np.inf)),
    "times a negative number": lambda x: potential(-2.0 * pt.switch(pt.eq(x.sum(), 4), 0.0, -np.inf)),
    "times a logarithm": lambda x: potential(-pt.log(pt.eq(x.sum(), 4))),
    "logarithm of a sum": lambda x: potential(pt.log(0.5 + pt.eq(x.sum(), 4))),
    "single sites": lambda x: potential(pt.switch(pt.all(pt.eq(x[:2], [1, 3])), 0.0, -np.inf)),
    "labels": lambda x: potential(
        pt.switch(pt.eq(*pm.Categorical("z", [0.2, 0.3, 0.5], shape=2)), 0.0, -np.inf)
    ),
}


@pytest.mark.parametrize("way", LEFT)
def test_what_is_left_as_it_is(way):
    assert not of(LEFT[way])[1]


def test_single_sites_beside_others():
    _, found = of(lambda x: potential(pt.switch(pt.eq(pt.stack([x.sum(), 3 * x[0]]), [6, 3]), 0.0, -np.inf)))
    (equations,) = found
    assert equations.coefficients["x"].tolist() == [[1, 1, 1, 1], [3, 0, 0, 0]]
    assert equations.labels == ["element 0 of 'seen'", "element 1 of 'seen'"]


def test_several_variables():
    def build(x):
        z = pm.Binomial("z", 4, 0.3)
        potential(pt.switch(pt.eq(x[:2].sum(), z + 2), 0.0, -np.inf))

    _, (equations,) = of(build)
    assert {v: a.tolist() for v, a in equations.coefficients.items()} == {"x": [[1, 1, 0, 0]], "z": [[-1]]}
    assert equations.totals.tolist() == [2]
    assert equations.labels == ["'seen'"]


BAD = {
    "fractions": (
        lambda x: potential(pt.switch(pt.eq(x.sum() / 3, 2), 0.0, -np.inf)),
        "'seen' compares sums of 'x' with a coefficient of 0.33.*no integer. Multiply",
    ),
    "fraction": (
        lambda x: potential(pt.switch(pt.eq(x.sum(), 2.5), 0.0, -np.inf)),
        "'seen' compares sums of 'x' with a total of 2.5, which is no integer",
    ),
    "nan": (
        lambda x: potential(pt.switch(pt.eq(x.sum(), np.nan), 0.0, -np.inf)),
        "a total of nan, which is no integer",
    ),
    "shape": (
        lambda x: potential(pt.switch(pt.all(pt.eq(A @ x, pm.Data("y", np.ones(3, int)))), 0.0, -np.inf)),
        r"comparison in 'seen' have the shapes \(2,\) and \(3,\). Give one number for each sum",
    ),
    "continuous": (
        lambda x: potential(pt.switch(pt.eq(x.sum(), pt.round(pm.Normal("mu"))), 0.0, -np.inf)),
        "'seen' compares 'x' with something of 'mu'.*likelihood",
    ),
    "impossible": (
        lambda x: potential(pt.switch(pt.eq(x.sum(), -1), 0.0, -np.inf)),
        "'seen' cannot be -1: the bounds of its counts allow 0 to inf",
    ),
    "element": (
        lambda x: potential(
            pt.switch(pt.eq(pt.stack([x.sum(), pm.Binomial("n", 3, 0.5) + x[0]]), [4, -2]), 0.0, -np.inf)
        ),
        "element 1 of 'seen' cannot be -2: the bounds of its counts allow 0 to inf",
    ),
    "parity": (
        lambda x: potential(pt.switch(pt.eq(2 * x.sum(), 5), 0.0, -np.inf)),
        r"No values of 'x' that are integers between its bounds.*\('seen'\): there are none",
    ),
}


@pytest.mark.parametrize(("step", "way"), [*(("BlockGibbs", way) for way in BAD), ("AutoStep", "element")])
def test_bad_input(way, step):
    build, message = BAD[way]
    with pm.Model() as model:
        build(counts())
    with pytest.raises(ValueError, match=message):
        getattr(pmd, step)(model=model)


def test_a_variable_of_another_step():
    with pm.Model() as model:
        x, z = counts(), pm.Poisson("z", 9.0)
        potential(pt.switch(pt.eq(x.sum(), z), 0.0, -np.inf))
    with pytest.raises(ValueError, match=r"'seen' compares 'x' with something of 'z'.*one step"):
        pmd.BlockGibbs("x", model=model)
    assert {v.name for v in pmd.BlockGibbs(model=model).vars} == {"x", "z"}
