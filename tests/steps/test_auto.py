"""AutoStep: which step it takes for which variables, and its registration with PyMC."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from tests.tools.running import sample_with_pymc

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


@pytest.fixture(scope="module")
def mixed():
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.55]))
        z = pm.Categorical("z", np.array([0.2, 0.5, 0.3]))
        mu = pm.Normal("mu")
        pm.Normal("y", mu + x.sum() + z, 0.7, observed=1.5)
    return model


def partly_dense():
    r = np.random.default_rng(11)
    X = r.normal(size=(80, 30))
    g = pm.Bernoulli("g", 0.3, shape=30)
    pm.MvNormal(
        "y", np.zeros(80), cov=pt.eye(80) + pt.dot(X * (0.05 * g), X.T), observed=1.5 * r.normal(size=80)
    )
    z = pm.Bernoulli("z", 0.4, shape=5)
    pm.Normal("w", z, 1.0, observed=np.linspace(-1, 2, 5))


@pytest.mark.slow
def test_what_is_chosen(mixed, caplog):
    with caplog.at_level("INFO", "pymc.discrete"):
        step = pmd.AutoStep(model=mixed)
    assert isinstance(step, pmd.TreeGibbs)
    assert any(r.message.startswith("AutoStep: TreeGibbs for 'x', 'z': ") for r in caplog.records)
    only = pmd.AutoStep("z", model=mixed, transitions=3)
    assert [v.name for v in only.vars] == ["z"]
    assert only.transitions == 3
    with pm.Model() as model:
        partly_dense()
    steps = pmd.AutoStep(model=model, window={"g": 1}).methods
    assert [type(s) for s in steps] == [pmd.BlockGibbs, pmd.DiscreteLangevin]
    assert [[v.name for v in s.vars] for s in steps] == [["z"], ["g"]]
    with pytest.raises(TypeError, match="AutoStep has no option 'n_flips'"):
        pmd.AutoStep(model=mixed, n_flips=2)
    with pytest.raises(ValueError, match="'mu' is continuous"):
        pmd.AutoStep("mu", model=mixed)


@pytest.mark.slow
def test_registered(mixed):
    from pymc.step_methods import STEP_METHODS

    before = list(STEP_METHODS)
    _, kept = pm.sampling.mcmc.assign_step_methods(mixed)
    with pmd.registered():
        assert STEP_METHODS[0] is pmd.AutoStep
        with mixed:
            ours = sample_with_pymc(mixed, None, draws=20, tune=20)
    assert list(STEP_METHODS) == before
    assert "discrete_n_moved" in ours["sample_stats"]
    assert pmd.AutoStep not in kept
    pmd.register()
    pmd.register()
    assert STEP_METHODS.count(pmd.AutoStep) == 1
    with pmd.registered():
        pass
    assert pmd.AutoStep in STEP_METHODS
    pmd.unregister()
    assert list(STEP_METHODS) == before


def test_registered_leaves_what_it_cannot_take():
    with pm.Model() as model:
        pm.Bernoulli("x", 0.3)
        pm.Multinomial("counts", n=pm.Poisson("k", 5.0), p=np.ones(3) / 3)
    with pmd.registered(), model:
        _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert {c.__name__: [v.name for v in vs] for c, vs in chosen.items()} == {
        "AutoStep": ["x", "k"],
        "Metropolis": ["counts"],
    }


def lines_of(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "pymc.discrete"]


def test_what_is_logged_is_said_once(mixed, caplog):
    caplog.set_level("INFO", logger="pymc.discrete")
    pmd.AutoStep(model=mixed)
    reasons = [line for line in lines_of(caplog) if "every element" in line]
    assert all(line.startswith("TreeGibbs: ") for line in reasons)


@pytest.mark.slow
def test_a_variable_of_two_steps_is_noticed(mixed, caplog):
    """As `CompoundStep` runs them, which tells no step of another."""
    gibbs, other = pmd.BlockGibbs(["z", "x"], model=mixed), pmd.GibbsWithGradients(["z"], model=mixed)
    rng = np.random.default_rng(3)
    for step in (gibbs, other):
        step.setup_chain(rng.spawn(1)[0], 20, 20)
    point = mixed.initial_point()
    for _ in range(20):
        point, _ = gibbs.step(point)
    assert not [line for line in lines_of(caplog) if "two steps" in line]
    for _ in range(20):
        for step in (gibbs, other):
            point, _ = step.step(point)
    said = [line for line in lines_of(caplog) if "two steps" in line]
    assert sorted(line.partition(" to two steps")[0] for line in said) == [
        "BlockGibbs: 'z' belongs",
        "GibbsWithGradients: 'z' belongs",
    ]
