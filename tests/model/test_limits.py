"""Counts that limit each other, and the pairs of them that are drawn along lines."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.model import limits
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.limits import limits_between


def found(model):
    names = [str(v.name) for v in model.discrete_value_vars]
    return limits_between(model, names, point_of(model))


def pairs(model):
    """[{(variable, element): step}] of all lines of a model."""
    described = DescribedModel(model)
    point, each = described.point, []
    for names, lines in described.lines(described.discrete).items():
        sites = [(name, i) for name in names for i in range(np.size(point[name]))]
        for r, number in enumerate(lines.number):
            for k in range(number):
                ends = zip(lines.sites[r, k].tolist(), lines.steps[r, k].tolist(), strict=True)
                each.append({sites[i]: step for i, step in ends})
    return each


def epidemic(weeks, population=400):
    with pm.Model() as model:
        well, ill = population - 2, 2
        for t in range(weeks):
            infections = pm.Binomial(f"infections{t}", well, 1 - pt.exp(-ill / population))
            removals = pm.Binomial(f"removals{t}", ill, 0.3)
            pm.Binomial(f"seen{t}", infections, 0.5, observed=1)
            well, ill = well - infections, ill + infections - removals
    return model


def test_coefficients_of_all_kinds_of_limits():
    with pm.Model() as model:
        a = pm.Poisson("a", 3, shape=(2, 3))
        b = pm.Binomial("b", a[:, ::2] + 1, 0.5)
        pm.Binomial("c", pt.cumsum(a[0]), 0.5)
        pm.BetaBinomial("y", alpha=1, beta=1, n=2 * b.sum(axis=1), observed=[1, 2])
        pm.Poisson("alone", 2)
        # neither a product of counts nor labels are pursued
        z = pm.Categorical("z", [0.5, 0.5])
        pm.Binomial("product", a[0, 0] * a[0, 1], 0.5)
        pm.Binomial("labelled", 1 + z, 0.5)
    (joined,) = found(model)
    assert set(joined.names) == {"a", "b", "c"}
    rng = np.random.default_rng(1)
    x = {"a": rng.integers(0, 5, (2, 3)), "b": rng.integers(0, 5, (2, 2)), "c": rng.integers(0, 5, 3)}
    by_limit = joined.coefficients @ np.concatenate([x[name].reshape(-1) for name in joined.names])
    starts = dict(zip(joined.names, np.cumsum([0, *(x[name].size for name in joined.names)]), strict=False))
    for name, value in (("b", x["a"][:, ::2]), ("c", np.cumsum(x["a"][0]))):
        own = (joined.limited >= starts[name]) & (joined.limited < starts[name] + value.size)
        assert by_limit[own].tolist() == value.reshape(-1).tolist()
    assert by_limit[joined.limited < 0].tolist() == (2 * x["b"].sum(axis=1)).tolist()


def test_limits_of_which_none_is_linear_give_no_lines():
    with pm.Model() as model:
        a = pm.Poisson("a", 3)
        pm.Binomial("b", a % 2, 0.5)
        pm.Binomial("c", a**2, 0.5)
    assert found(model) == []


def test_an_event_moves_to_another_week_and_whoever_falls_ill_recovers():
    each = pairs(epidemic(6))
    assert {("infections2", 0): 1, ("infections3", 0): -1} in each
    assert {("removals2", 0): 1, ("removals3", 0): -1} in each
    assert {("infections2", 0): 1, ("removals3", 0): 1} in each


def test_no_pairs_are_looked_for_among_too_many(monkeypatch):
    assert pairs(epidemic(3))
    monkeypatch.setattr(limits, "MOST_PRODUCTS", 50)
    assert not pairs(epidemic(3))


def test_each_element_of_a_vector_has_lines_of_its_own():
    with pm.Model() as model:
        first = pm.Poisson("first", 5, shape=3)
        survivors = pm.Binomial("survivors", first, 0.5, shape=3)
        recruits = pm.Poisson("recruits", 2, shape=3)
        pm.Binomial("seen", survivors + recruits, 0.5, observed=[1, 2, 3])
    each = pairs(model)
    assert len(each) == 6
    for i in range(3):
        assert {("first", i): 1, ("survivors", i): 1} in each
        assert {("survivors", i): 1, ("recruits", i): -1} in each


@pytest.mark.parametrize("made", [lambda: pmd.AutoStep(), lambda: pmd.BlockGibbs()])
def test_they_are_drawn_by_default(made):
    with epidemic(2):
        step = made()
    assert type(step) is pmd.BlockGibbs
    assert step.target.interactions.scanned_lines or step.target.interactions.coloured_lines
    assert not step.target.space.constrained.any()


def test_other_steps_and_chains_that_are_drawn_at_once_have_none():
    with epidemic(2):
        step = pmd.GibbsWithGradients()
    assert not step.target.interactions.scanned_lines
    assert not step.target.interactions.coloured_lines
    with pm.Model():
        pm.Binomial("n1", pm.Binomial("n0", 5, 0.5), 0.5)
        assert type(pmd.AutoStep()) is pmd.TreeGibbs
