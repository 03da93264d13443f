"""Latent counts of which sums are known, in pm.sample and pmd.sample: draws, starts, choices."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict
from pymc.exceptions import SamplingError
from scipy import stats

import pymc_discrete as pmd
from pymc_discrete.diagnostics.checks.ties import ties_of_run
from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.differences.parts.in_place import InPlace
from pymc_discrete.space.linear_constraint import LinearConstraint
from pymc_discrete.starts.start import check_start, dispersed, solved
from tests.posteriors import probabilities
from tests.tools.running import QUIET, sample_with_pymc
from tests.tools.statistics import check_proportions

pytestmark = pytest.mark.shares_programs


def known(total, number, name="known"):
    pm.Potential(name, pt.switch(pt.all(pt.eq(total, number)), 0.0, -np.inf))


# ---------------------------------------------------------------- against enumeration
def table():
    x = pm.Poisson("x", np.array([[1.0, 2.0, 0.5], [1.5, 0.7, 1.1]]))
    known(x.sum(axis=0), [2, 3, 1], "columns")
    known(x.sum(axis=1), [4, 2], "rows")
    return {"x": [range(3), range(4), range(2)] * 2}


def several_variables():
    x = pm.Multinomial("x", 3, np.array([0.3, 0.2, 0.5]))
    k, b = pm.Poisson("k", [2.0, 1.0]), pm.Bernoulli("b", 0.4)
    known(x[0] + k.sum(), 4)
    pm.Normal("y", k[0] - x[1] + b, 1.5, observed=0.7)
    return {"x": [range(4)] * 3, "k": [range(5)] * 2, "b": [range(2)]}


def an_unbounded_total():
    """n is a sum, and what is seen of it leaves few values."""
    a, b = pm.Poisson("a", 2.0), pm.Geometric("b", 0.5)
    pm.DirichletMultinomial("x", n=a + 2 * b, a=[1.0, 2.0])
    pm.Normal("y", a + 2 * b, 0.5, observed=4.5)
    return {"a": [range(7)], "b": [range(1, 5)], "x": [range(9)] * 2}


def parts_of_a_poisson_total():
    """Two of three counts with a Poisson total are seen, each unit with probability 1/2."""
    N = pm.Poisson("N", 1.5)
    x = pm.Multinomial("x", n=N, p=np.array([0.5, 0.3, 0.2]))
    pm.Binomial("y", x[:2], 0.5, observed=[1, 0])
    return {"N": [range(8)], "x": [range(7), range(6), range(5)]}


def totals_in_a_batch():
    """Vectors with totals of their own, of which one is the sum of two unknown counts; a part is measured."""
    a, b = pm.Bernoulli("a", [0.4, 0.7]), pm.Bernoulli("b", 0.5)
    x = pm.DirichletMultinomial("x", n=a + b, a=np.array([1.0, 2.0]), shape=(2, 2))
    pm.Normal("y", x[:, 0] - b, 0.8, observed=[1.0, 2.0])
    return {"a": [range(2)] * 2, "b": [range(2)], "x": [range(3)] * 4}


WAYS = {
    "AutoStep": lambda model: sample_with_pymc(
        model, lambda: pmd.AutoStep(), draws=2000, tune=100, random_seed=4
    ),
    "pmd.sample": lambda model: pmd.sample(3000, tune=100, chains=2, model=model, random_seed=5, **QUIET),
}


# AutoStep draws with BlockGibbs, as the test below shows; of more models tests/kernels/test_lines.py has the
# exact transition matrices
@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "way"),
    [
        (several_variables, "AutoStep"),
        (table, "pmd.sample"),
        (an_unbounded_total, "pmd.sample"),
        (parts_of_a_poisson_total, "AutoStep"),
        (totals_in_a_batch, "pmd.sample"),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_against_enumeration(build, way):
    with pm.Model() as model:
        values = build()
    check_proportions(WAYS[way](model)["posterior"], list(values), *probabilities(model, values))


@pytest.mark.slow
def test_the_parts_of_a_poisson_total_are_poisson():
    """What is enumerated above, by hand: each part is what was seen of it, and a Poisson number of others."""
    with pm.Model() as model:
        values = parts_of_a_poisson_total()
    states, prob = probabilities(model, values)
    means = 1.5 * np.array([0.5, 0.3, 0.2]) * [0.5, 0.5, 1.0]
    for site, (seen, mean) in enumerate(zip([1, 0, 0], means, strict=True), start=1):
        share = np.bincount(states[:, site], prob)
        want = stats.poisson(mean).pmf(np.arange(len(share)) - seen)
        np.testing.assert_allclose(share, want, atol=1e-3)


# ---------------------------------------------------------------- what is chosen
def test_what_auto_step_chooses(caplog):
    caplog.set_level("INFO", logger="pymc.discrete")
    with pm.Model() as model:
        several_variables()
        steps = pmd.AutoStep().methods
    assert [[v.name for v in s.vars] for s in steps] == [["b"], ["x", "k"]]
    assert all(isinstance(s, pmd.BlockGibbs) for s in steps)
    assert any("'x', 'k': elements change together" in r.getMessage() for r in caplog.records)
    # no other step moves along lines, and the comparison is one of the terms of its log density
    with pm.Model() as model:
        table()
    target = pmd.GibbsWithGradients(model=model).target
    assert not target.space.constrained.any()
    assert "rows" in str(target.density.graph.terms)


@pytest.mark.slow
def test_totals_are_a_part_of_what_is_kept():
    """Models that differ by y share no density, and a change of data is seen."""
    totals = []
    for y in (3, 5):
        with pm.Model():
            known(pm.Poisson("x", 2.0, shape=3).sum(), y)
            totals.append(pmd.BlockGibbs().target.space.variables[0].constraint.totals.tolist())
    assert totals == [[3], [5]]
    with pm.Model() as model:
        y = pm.Data("y", 4)
        known(pm.Poisson("x", 2.0, shape=3).sum(), y)
        step = pmd.BlockGibbs()
        y.set_value(7)
        point, _ = step.step(model.initial_point())
    assert point["x"].sum() == 7


@pytest.mark.parametrize(
    ("total", "message"),
    [
        (lambda n: n * n, "no linear function of counts"),
        (lambda n: n + pt.round(pm.HalfNormal("m")).astype(int), "depends on 'n', 'm'"),
        (lambda n: n * pm.Bernoulli("b", 0.5), "no linear function of counts"),
    ],
    ids=["square", "continuous", "product"],
)
def test_totals_that_change_by_unknown_amounts(total, message):
    with pm.Model():
        pm.Multinomial("x", total(pm.Poisson("n", 3.0)), [0.3, 0.7])
        with pytest.raises(ValueError, match=message):
            pmd.BlockGibbs()


def test_one_possible_value(caplog):
    caplog.set_level("INFO", logger="pymc.discrete")
    with pm.Model() as model:
        x = pm.Poisson("x", 2.0, shape=2)
        known(pt.stack([x.sum(), x[0] - x[1]]), [5, 1])
        point, _ = pmd.BlockGibbs().step(model.initial_point())
    assert point["x"].tolist() == [3, 2]
    assert any("'x' has one value that meets" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("seen", [True, False])
def test_counts_of_which_the_sum_is_known_are_not_reported_as_tied(seen):
    """Two of three counts take turns: their own sum is known, or that of all three and one stays."""
    with pm.Model() as model:
        x = pm.Multinomial("x", 150, [0.4, 0.4, 0.2])
        if seen:
            known(x[0] + x[1], 120)
    draws = np.zeros((2, 400, 3), int)
    draws[..., 0] = 60 + np.cumsum(np.random.default_rng(1).integers(-1, 2, (2, 400)), axis=1)
    draws[..., 1], draws[..., 2] = 120 - draws[..., 0], 30
    tree = from_dict({"posterior": {"x": draws}, "sample_stats": {"lp": np.zeros((2, 400))}})
    facts = Facts(tree, model)
    assert (facts.per_chain["x"] < 50).tolist() == [True, True, False]
    assert ties_of_run(facts) == []


def test_counts_can_be_summed_out_all_the_same():
    with pm.Model() as model:
        x = pm.Binomial("x", [3, 2], pm.Beta("p", 1, 1))
        known(x.sum(), 2)
        left = pmd.marginalize(model, "x")
    assert [v.name for v in left.free_RVs] == ["p"]


# ---------------------------------------------------------------- starts
def test_starts_meet_the_equations(caplog):
    caplog.set_level("INFO", logger="pymc.discrete")
    with pm.Model() as model:
        table()
        step = pmd.BlockGibbs()
    x, target = step.target.at(model.initial_point())
    constraint = target.space.variables[0].constraint
    assert isinstance(constraint, LinearConstraint)
    assert not constraint.met(x).all()
    rng, starts = np.random.default_rng(0), []
    for _ in range(20):
        starts.append(dispersed(solved(target.space, x), target, rng))
        assert float(target.logdensity(starts[-1])) > -np.inf
    assert len(np.unique(starts, axis=0)) > 3  # of 5
    point, _ = step.step(model.initial_point())
    assert constraint.met(point["x"].reshape(-1)).all()
    assert any("start of 'x' was impossible, and was moved" in r.getMessage() for r in caplog.records)


def test_a_start_that_breaks_them():
    """It is moved to the nearest one, unless it was asked for in pmd.sample."""
    with pm.Model() as model:
        known(pm.Poisson("x", 2.0, shape=3).sum(), 7)
        target = pmd.BlockGibbs().target
    assert solved(target.space, np.array([4, 3, 1])).sum() == 7
    assert np.abs(solved(target.space, np.array([4, 3, 1])) - [4, 3, 1]).sum() == 1
    with pytest.raises(SamplingError, match=r"'known' is 8 at the start, and must be 7. Leave 'x' out"):
        pmd.sample(5, tune=5, model=model, initvals={"x": [4, 3, 1]}, **QUIET)


def test_wrong_differences_along_lines_are_found_at_the_start(monkeypatch):
    with pm.Model() as model:
        x = pm.Poisson("x", 2.0, shape=3)
        known(x.sum(), 7)
        pm.Potential("e", 0.3 * x[0] * x[1])
        target = pmd.BlockGibbs().fresh_target()
    right = InPlace.joint_differences
    monkeypatch.setattr(InPlace, "joint_differences", lambda *a: 1.1 * right(*a))
    point = model.initial_point()
    with pytest.raises(SamplingError, match="'x' were taken for exact"):
        check_start(target, point, solved(target.space, target.space.ravel(point)))
