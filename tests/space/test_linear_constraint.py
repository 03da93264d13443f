"""Spaces of integers with A x = y: bounds, sets, values, and differences along lines against the model's own
log density.
"""

import functools
import itertools

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.parts import in_place
from pymc_discrete.runtime.names import made_name
from pymc_discrete.space.linear_constraint import LinearConstraint, range_along
from pymc_discrete.starts.start import dispersed, solved
from tests.space.test_fixed_sums import differences_of
from tests.tools.oracle import oracle


def known(*pairs):
    """A potential for each (sum, number)."""
    for n, (total, number) in enumerate(pairs):
        pm.Potential(f"known{n}", pt.switch(pt.all(pt.eq(total, number)), 0.0, -np.inf))


# ---------------------------------------------------------------- models
def table():
    x = pm.Poisson("x", np.array([[1.0, 2.0, 0.5], [1.5, 0.7, 1.1]]))
    known((x.sum(axis=0), [2, 3, 1]), (x.sum(axis=1), [4, 2]))
    pm.Potential("e", 0.3 * x[0, 0] * x[1, 1] - 0.2 * x[0, 1] * x[1, 2] * x[0, 0])


def tables():
    """Several sets, of which some interact."""
    x = pm.NegativeBinomial("x", mu=np.linspace(0.5, 3, 12).reshape(3, 2, 2), alpha=1.2)
    known(
        (x.sum(axis=1), np.array([[3, 2], [1, 4], [2, 2]])),
        (x.sum(axis=2), np.array([[4, 1], [2, 3], [3, 1]])),
    )
    pm.Potential("e", 0.1 * x[0, 0, 0] * x[1, 0, 0] - 0.2 * x[1, 0, 1] * x[1, 1, 0])


def several_variables():
    x = pm.Multinomial("x", 6, np.array([0.3, 0.2, 0.5]))
    k, n = pm.Poisson("k", 2.0, shape=2), pm.Binomial("n", 5, 0.4)
    b = pm.Bernoulli("b", 0.4)
    known((x[0] + k.sum(), 5), (k[0] + 2 * n, 6 - x[1]))
    pm.Potential("e", 0.5 * b * k[0] - 0.1 * k[1] * x[2] * n)


def with_signs():
    x = pm.DiscreteUniform("x", -3, 4, shape=4)
    known((np.array([[1, -1, 2, 0], [0, 1, 1, -3]]) @ x, [1, 2]))
    pm.Potential("e", -0.1 * pt.sqr(x[1:] + x[:-1]).sum())


def linear_map():
    r = np.random.default_rng(2)
    x = pm.Poisson("x", 2.0, shape=8)
    known((x[:4].sum(), 7), (x[4:].sum(), 5), (x[::2].sum(), 6))
    pm.Poisson("y", pt.exp(pt.dot(0.1 * r.normal(size=(12, 8)), x)), observed=r.poisson(2, 12))


def quadratic():
    r = np.random.default_rng(3)
    x = pm.Poisson("x", 2.0, shape=8)
    known((x.reshape((2, 4)).sum(axis=1), [7, 5]))
    pm.Normal("y", pt.dot(r.normal(size=(12, 8)), x), 1.5, observed=r.normal(size=12))


def dense_without_a_map():
    x = pm.Poisson("x", 2.0, shape=6)
    known((x[:3].sum() - x[3:].sum(), 1), (x.sum(), 9))
    pm.Potential("e", -pt.log1p(pt.sqr(x).sum()) + 0.1 * pt.max(x))


def wide():
    x = pm.Poisson("x", [300.0, 500.0, 200.0])
    known((x.sum(), 1000))
    pm.Normal("y", x[0] - x[2], 5.0, observed=80)


def without_bounds():
    x = pm.Poisson("x", [3.0, 5.0, 2.0])
    known((x[0] - x[1], 1))


MODELS = (
    table,
    tables,
    several_variables,
    with_signs,
    linear_map,
    quadratic,
    dense_without_a_map,
    wide,
    without_bounds,
)


@functools.cache
def built(build):
    with pm.Model() as model:
        build()
        return model, pmd.BlockGibbs(differences="exact").target


def check(build, made=built):
    """Along short vectors, and along combinations of a basis with all sites."""
    model, target = made(build)
    logp, rng = oracle(model), np.random.default_rng(1)
    x, at = target.at(model.initial_point())
    (n,) = (n for n, v in enumerate(target.space.variables) if isinstance(v.constraint, LinearConstraint))
    start, v = target.space.blocks[n]
    moving = np.array([s for s, basis in enumerate(v.constraint.bases) if len(basis)])
    short, whole = v.constraint.lines(moving), v.constraint.lattices(moving)
    mixed = np.einsum(
        "rk,rkm->rm", rng.integers(-1, 2, whole.number.shape + whole.steps.shape[1:2]), whole.steps
    )
    directions = [
        *((short.sites[r, k], short.steps[r, k]) for r in range(len(moving)) for k in range(short.number[r])),
        *((whole.sites[r, 0], mixed[r]) for r in range(len(moving))),
    ]
    differences, live, t = differences_of(n), 0, np.array([-3, -2, -1, 0, 1, 2, 5])
    for _ in range(4):
        x = dispersed(solved(target.space, x), at, rng)
        base = logp(at.point(x))
        assert np.isfinite(base)
        for sites, steps in (directions[i] for i in rng.permutation(len(directions))[:6]):
            values = x[start + sites] + t[:, None] * steps
            got = differences(at, sites[None], values[None], x)[0]
            for k, d in enumerate(got):
                y = x.copy()
                y[start + sites] = values[k]
                want = logp(at.point(y)) - base if target.space.contains(y).all() else -np.inf
                np.testing.assert_allclose(
                    d, want, atol=1e-9 * (1 + abs(base)), rtol=1e-9, err_msg=f"{x} -> {y}"
                )
                live += np.isfinite(want) and want != 0
                assert not np.isfinite(want) or target.space.meets_constraints(y)
    assert live > 10


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
@pytest.mark.by_default("table", "linear_map")
def test_differences_along_lines_are_those_of_the_model(build):
    check(build)


def test_the_check_sees_elements_that_count_twice(monkeypatch):
    monkeypatch.setattr(
        in_place,
        "counted_once",
        lambda var, elements, n, *rest: jax.numpy.asarray(elements.mask)[rest[-1].each],
    )
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(table, made=built.__wrapped__)


def test_comparisons_join_no_counts():
    """They are left out, so that prior terms have one count each."""
    _, target = built(tables)
    assert not target.interactions.scanned_sets
    assert not target.interactions.colours
    assert [s.sets.tolist() for s in target.interactions.coloured_sets] == [[0, 2], [1]]
    _, target = built(several_variables)
    (members,) = (v.name for v in target.space.variables if isinstance(v.constraint, LinearConstraint))
    assert members == made_name(["x", "k", "n"])
    assert set(target.describe()) == {"x", "k", "n", "b"}


def test_logdensity_is_that_of_the_model():
    model, target = built(table)
    x, at = target.at(model.initial_point())
    y = solved(target.space, x)
    assert np.isclose(float(at.logdensity(y)), oracle(model)(at.point(y)))
    y[0] += 1
    assert float(at.logdensity(y)) == -np.inf


# ---------------------------------------------------------------- bounds, sets, values
def constraint(matrix, totals, lower, upper):
    return LinearConstraint.build("x", np.array(matrix), totals, np.array(lower), np.array(upper))


def solutions(matrix, totals, lower, upper):
    box = np.array(list(itertools.product(*(range(a, b + 1) for a, b in zip(lower, upper, strict=True)))))
    return box[(box @ np.array(matrix).T == totals).all(axis=1)]


BOXES = [
    ([[1, 1, 0, 0], [0, 1, 1, 1]], [3, 4], [0, 0, 0, 1], [5, 2, 5, 5]),
    ([[2, -1, 0], [0, 1, -3]], [1, 2], [-4, -4, -4], [4, 4, 4]),
    ([[3, 2, 1, 0], [0, 1, 2, 3]], [6, 6], [0] * 4, [6] * 4),
]


@pytest.mark.parametrize("box", BOXES)
def test_bounds_and_values_are_those_of_the_solutions(box):
    every, c = solutions(*box), constraint(*box)
    assert (c.lower <= every.min(axis=0)).all()
    assert (c.upper >= every.max(axis=0)).all()
    assert (c.upper <= np.array(box[3])).all()
    rng, seen = np.random.default_rng(0), set()
    for _ in range(60):
        x = c.random(c.lower, c.upper, rng)
        assert c.met(x).all()
        seen.add(tuple(x))
    assert seen <= set(map(tuple, every))
    assert len(seen) > min(len(every), 4) / 2
    for wanted in every[::3] + 1:
        distance = np.abs(every - wanted).sum(axis=1)
        assert np.abs(c.nearest(wanted) - wanted).sum() == distance.min()


def test_single_equations_make_bounds_tight():
    c = constraint([[1, 1, 1]], [6], [0, 1, 0], [9, 2, 3])
    assert c.lower.tolist() == [1, 1, 0]
    assert c.upper.tolist() == [5, 2, 3]
    c = constraint([[1, -1, 0], [0, 1, 2]], [0, 5], [0] * 3, [2**31 - 1] * 3)
    assert c.upper.tolist() == [5, 5, 2]


def test_sets_are_what_equations_join():
    c = constraint([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]], [3, 0], [0] * 5, [5] * 5)
    assert [s.tolist() for s in c.sites] == [[0, 1], [2], [3], [4]]
    assert [len(basis) for basis in c.bases] == [1, 0, 0, 0]
    free = constraint([[1, 1, 0]], [3], [0] * 3, [5] * 3)
    assert [basis.tolist() for basis in free.bases][1] == [[1]]


def test_range_along_a_line():
    x, v = np.array([1, 2, 0]), np.array([1, -2, 0])
    assert range_along(x, v, np.zeros(3, int), np.array([4, 9, 0])) == (-1, 1)


def test_one_value():
    """All is fixed: nothing to draw."""
    space = pmd.Space.build({"x": (0, 9)}, {"x": 2}, equations={("x",): ([[1, 1], [1, -1]], [5, 1])})
    c = space.variables[0].constraint
    assert [len(basis) for basis in c.bases] == [0]
    assert len(c.lines(c.moving).sites) == 0
    assert solved(space, np.zeros(2, int)).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("equations", "message"),
    [
        (([[1, 1]], [9]), "equation 0 of 'x' cannot be 9: the bounds of its counts allow 0 to 8"),
        (([[2, 2, 4]], [5]), "No values of 'x' that are integers.*equation 0 of 'x'.*there are none"),
        (([[1, 1], [1, 0]], [2, 4]), "equation 0 of 'x' cannot be 2 together with the other equations"),
        (([[1, 1]], [2, 3]), r"need A of shape \(m, 2\) and y of shape \(m,\), got \(1, 2\) and \(2,\)"),
        (([[1, 0.5]], [2]), "coefficients of the equations of 'x' must be integers"),
        (([[1, 1]], [np.nan]), "totals of the equations of 'x' must be integers"),
    ],
)
def test_bad_equations(equations, message):
    with pytest.raises(ValueError, match=message):
        pmd.Space.build({"x": (0, 4)}, {"x": np.shape(equations[0])[1]}, equations={("x",): equations})


def test_equations_of_an_unknown_variable():
    with pytest.raises(ValueError, match="equations names 'z', which is no variable of the block"):
        pmd.Space.build({"x": (0, 4)}, {"x": 2}, equations={("x", "z"): ([[1, 1, 1]], [2])})
