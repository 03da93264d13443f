"""Permutations in pm.sample and pmd.sample, and what is said of them."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pymc_discrete as pmd
from pymc_discrete.differences.parts.in_place import InPlace
from pymc_discrete.model.without_jax import variables_without_jax
from pymc_discrete.starts.start import check_start, dispersed
from tests.posteriors import probabilities
from tests.tools.running import QUIET, sample_with_pymc
from tests.tools.statistics import LARGEST_Z, check_proportions, z_of_moments, zs_of_proportions

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

W = np.random.default_rng(3).normal(0, 1, (4, 4))


# ---------------------------------------------------------------- against enumeration
def beside_others():
    """Two permutations, an indicator and counts, joined by data."""
    x = pmd.Permutation("x", 3, shape=(2, 3))
    b = pm.Bernoulli("b", 0.3)
    c = pm.Multinomial("c", 2, np.array([0.3, 0.7]))
    pm.Normal("y", x[:, 0] + 2 * b * x[:, 1] - c, 1.0, observed=[2.5, 0.4])
    return {"x": [range(3)] * 6, "b": [range(2)], "c": [range(3)] * 2}


def dense():
    """Plackett-Luce: each choice among all that are left."""
    x = pmd.Permutation("x", 4)
    theta = pt.as_tensor(W[0])[x]
    pm.Potential("e", (theta - pt.log(pt.cumsum(pt.exp(theta)[::-1]))[::-1]).sum())
    return {"x": [range(4)] * 4}


WAYS = {
    "AutoStep": lambda model: sample_with_pymc(
        model, lambda: pmd.AutoStep(), draws=2000, tune=100, random_seed=4
    ),
    "pmd.sample": lambda model: pmd.sample(3000, tune=100, chains=2, model=model, random_seed=5, **QUIET),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "way"),
    [(beside_others, "pmd.sample"), (dense, "AutoStep")],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_against_enumeration(build, way):
    with pm.Model() as model:
        values = build()
    check_proportions(WAYS[way](model)["posterior"], list(values), *probabilities(model, values))


@pytest.mark.slow
def test_beside_nuts():
    """The order of four items and the probability that the better one wins, by quadrature."""
    wins = np.array([[0, 3, 4, 5], [2, 0, 3, 4], [1, 2, 0, 3], [0, 1, 2, 0]])
    i, j = np.triu_indices(4, 1)
    with pm.Model() as model:
        x = pmd.Permutation("x", 4)
        p = pm.Uniform("p", 0.5, 1.0)
        right, wrong = (pt.as_tensor(wins)[a, b] for a, b in ((x[i], x[j]), (x[j], x[i])))
        pm.Potential("won", (right * pt.log(p) + wrong * pt.log1p(-p)).sum())
    orders = np.array(list(itertools.permutations(range(4))))
    grid = np.linspace(0.5, 1.0, 4001)[1:-1]
    for_it = wins[orders[:, i], orders[:, j]].sum(axis=1)[:, None]
    logp = for_it * np.log(grid) + (wins.sum() - for_it) * np.log1p(-grid)
    weight = np.exp(logp - logp.max())
    weight /= weight.sum()
    tree = pmd.sample(4000, tune=500, chains=2, model=model, random_seed=7, **QUIET)
    mean = (weight * grid).sum()
    sd = np.sqrt((weight * (grid - mean) ** 2).sum())
    assert np.abs(z_of_moments(tree["posterior"]["p"].values, mean, sd)).max() < LARGEST_Z
    zs = zs_of_proportions(tree["posterior"]["x"].values, orders, weight.sum(axis=1))
    assert np.abs(zs).max() < LARGEST_Z


# ---------------------------------------------------------------- what is chosen
def test_what_auto_step_chooses(caplog):
    caplog.set_level("INFO", logger="pymc.discrete")
    with pm.Model() as model:
        z = pm.Categorical("z", p=[0.4, 0.6], shape=6)
        pm.Potential("chain", 0.5 * pt.eq(z[1:], z[:-1]).sum())
        pmd.Permutation("x", 4)
        steps = pmd.AutoStep().methods
    assert [type(s) for s in steps] == [pmd.TreeGibbs, pmd.BlockGibbs]
    assert [[v.name for v in s.vars] for s in steps] == [["z"], ["x"]]
    assert any("elements change together" in r.getMessage() for r in caplog.records)
    with pmd.registered(), model:
        _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert {v.name for v in chosen[pmd.AutoStep]} == {"z", "x"}


def test_the_cost_of_a_sweep_does_not_count_values_that_are_not_looked_at():
    with pm.Model() as model:
        pmd.Permutation("x", 100, np.zeros((100, 100)))
        density = pmd.BlockGibbs(model=model).density
    assert density.cost(False, stretches=True) < 0.1 * density.cost(False)


# ---------------------------------------------------------------- starts
def test_dispersed_starts_are_permutations():
    with pm.Model() as model:
        pmd.Permutation("x", 5, shape=(2, 5))
        pm.Bernoulli("b", 0.3, shape=4)
    x, target = pmd.BlockGibbs(model=model).target.at(model.initial_point())
    rng, starts = np.random.default_rng(0), []
    for _ in range(20):
        starts.append(dispersed(x, target, rng))
        assert float(target.logdensity(starts[-1])) > -np.inf
    assert len(np.unique(starts, axis=0)) > 10


def test_starts_that_are_no_permutation():
    with pm.Model() as model:
        pmd.Permutation("x", 3, shape=(2, 3))
        step = pmd.BlockGibbs()
    message = r"'x' starts outside its support: vector 1, \[0, 2, 2\], is no permutation of 0, ..., 2"
    with pytest.raises(SamplingError, match=message):
        step.step({"x": np.array([[1, 2, 0], [0, 2, 2]])})
    with pytest.raises(SamplingError, match=message):
        pmd.sample(5, tune=5, model=model, initvals={"x": [[1, 2, 0], [0, 2, 2]]}, **QUIET)


@pytest.mark.slow
def test_wrong_differences_of_swaps_are_found_at_the_start(monkeypatch):
    with pm.Model() as model:
        pmd.Permutation("x", 4, W)
        target = pmd.BlockGibbs().fresh_target()
    right = InPlace.joint_differences
    monkeypatch.setattr(InPlace, "joint_differences", lambda *a: 1.1 * right(*a))
    point = model.initial_point()
    with pytest.raises(SamplingError, match="'x' were taken for exact"):
        check_start(target, point, target.space.ravel(point))


# ---------------------------------------------------------------- draws
@pytest.mark.slow
def test_summary_has_the_values_of_each_place():
    with pm.Model():
        pmd.Permutation("x", 3, np.eye(3))
        step = pmd.BlockGibbs(transitions=5)
        tree = pmd.sample(1000, tune=50, chains=2, step=step, random_seed=1, **QUIET)
    table = pmd.summary(tree)
    assert table.index.tolist() == ["x[0]", "x[1]", "x[2]"]
    assert table["mode"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(table[["P(0)", "P(1)", "P(2)"]].sum(axis=1), 1.0)
    assert (table["verdict"] == "ok").all()


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("step", "options", "message"),
    [
        *(
            (step, {"vars": vars}, r"'x' is a permutation.*pmd.BlockGibbs or pmd.AutoStep")
            for step in ("DiscreteLangevin", "TreeGibbs")
            for vars in (None, "x")
        ),
        ("PerturbAndMaxProduct", {}, r"'x' is a permutation.*pmd.BlockGibbs or pmd.AutoStep"),
        ("BlockGibbs", {"support": {"x": (0, 1)}}, r"'x' holds permutations of 0, ..., 2.*support= out"),
        ("AutoStep", {"integrate": "auto"}, r"integrate= does not go with 'x'.*pmd.BlockGibbs"),
    ],
)
def test_refused(step, options, message):
    with pm.Model() as model:
        pmd.Permutation("x", 3)
    with pytest.raises(ValueError, match=message):
        getattr(pmd, step)(model=model, **options)


def test_permutations_are_not_summed_out():
    with pm.Model() as model:
        pmd.Permutation("x", 3)
        mu = pm.Normal("mu")
        pm.Normal("y", mu + pm.Bernoulli("b", 0.4), 1.0, observed=0.3)
    with pytest.raises(ValueError, match="'x' is a permutation"):
        pmd.marginalize(model, "x")
    assert {v.name for v in pmd.marginalize(model).free_RVs} == {"x", "mu"}


def test_no_step_of_pymc_is_left_to_move_them():
    """A term that JAX cannot run would leave other variables to PyMC's own steps."""
    with pm.Model() as model:
        x = pmd.Permutation("x", 3)
        pm.Potential("e", pt.kv(0.5, 1.0 + x[0]))
    with pytest.raises(NotImplementedError, match=r"depends on 'x' has an Op without.*jax_funcify\.$"):
        pmd.AutoStep(model=model)


def test_counts_of_known_length_can_run_in_jax():
    """The length of counts by `pt.bincount` is constant where no value is above its `minlength=`."""
    with pm.Model() as model:
        x = pmd.Permutation("x", 3)
        pm.Potential("e", pt.bincount(pt.argsort(x), pt.as_tensor([0.3, 1.2, 2.1]), minlength=3)[0])
    assert variables_without_jax(model, ["x"]) == {}
