"""A step that was made before the model was complete samples the model that is sampled."""

import functools
import logging

import numpy as np
import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.nuts_options import nuts_options
from pymc_discrete.model.without_jax import all_in_jax
from pymc_discrete.sampling.division import steps_of
from tests.tools.running import QUIET

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

E = np.exp(3.0)


def a_model():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5, shape=2)
        x = pm.Normal("x", pm.Data("d", 0.0), 1.0)
        pm.Normal("y", x * z[0], 1.0, observed=0.5)
    return model


def with_potential(model):
    with model:
        pm.Potential("added", 3.0 * model["z"].sum() + model["x"])


STEPS = {
    "gwg": pmd.GibbsWithGradients,
    "pafs": pmd.PathAuxiliary,
    "dmala": pmd.DiscreteLangevin,
    "block gibbs": pmd.BlockGibbs,
    "tree gibbs": pmd.TreeGibbs,
    "auto": functools.partial(pmd.AutoStep, ["z"]),
    "slice": pmd.ReparameterizedSlice,
    "collapsed": pmd.CollapsedNUTS,
    "integrated": functools.partial(pmd.CollapsedNUTS, integrate=["x"]),
}


# the kernels of discrete sites are renewed by the same code, of which one is asked
@pytest.mark.parametrize("kind", ["block gibbs", "auto", "slice", "collapsed", "integrated"])
@pytest.mark.by_default("auto", "slice")
def test_a_potential_that_is_added_later(kind, caplog):
    model = a_model()
    step = STEPS[kind](model=model)
    with_potential(model)
    rng = np.random.default_rng(0)
    with caplog.at_level(logging.INFO, "pymc.discrete"):
        step.setup_chain(rng, tune=0, draws=3)
        point, stats = step.step(model.initial_point())
    assert "was made before 'added' was added to the model, and is built anew" in caplog.text
    # PyTensor keeps some constants of PyMC's log densities in 32 bits
    np.testing.assert_allclose(
        stats[-1]["model_logp"], model.compile_logp(mode="FAST_COMPILE")(point), rtol=1e-7
    )


def test_of_an_unchanged_model_nothing_is_built_anew():
    step = pmd.BlockGibbs(model=a_model())
    density = step.density
    for _ in range(2):
        step.setup_chain(np.random.default_rng(0), tune=0, draws=3)
        step.renew()
    assert step.density is density


ALL_STEPS = [*dict.fromkeys(getattr(step, "func", step) for step in STEPS.values()), pmd.PerturbAndMaxProduct]


@pytest.mark.parametrize("step", [*ALL_STEPS, functools.partial(pmd.CustomStep, step=lambda *args: args)])
def test_a_step_without_a_model(step):
    """The error says that it is the step's call that lacks it, also where pmd.sample has model=."""
    name = getattr(step, "func", step).__name__
    message = (
        rf"no model for pmd.{name}: .*pmd.{name}\(..., model=model\).* model= of pm.sample or pmd.sample"
    )
    with pytest.raises(TypeError, match=message):
        pmd.sample(model=a_model(), step=step(["z"]))


def new_variable(model):
    with model:
        pm.Normal("w", model["z"].sum(), 1.0)


def new_observations(model):
    with model:
        pm.Normal("more", model["z"].sum(), 1.0, observed=2.0)


def new_data(model):
    pm.set_data({"d": 1.5}, model=model)


@pytest.mark.parametrize("change", [with_potential, new_variable, new_observations, new_data])
def test_in_one_program(change):
    """The blocks of pmd.sample are those of the model as it is now."""
    model = a_model()
    steps = [pmd.BlockGibbs("z", model=model), pmd.ReparameterizedSlice("x", model=model)]
    change(model)
    point = model.initial_point()
    logp = model.compile_logp(mode="FAST_COMPILE")(point)
    with all_in_jax():
        blocks, _ = blocks_of(model, steps_of(model, steps, point)[0], point, 10, 0.8, nuts_options(None))
        for block in blocks:
            np.testing.assert_allclose(block.logdensity(point), logp, rtol=1e-7)


def test_the_posterior():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5)
        step = pmd.BlockGibbs([z])
        pm.Potential("p", 3.0 * z)
        idata = pmd.sample(1000, tune=0, chains=4, step=step, random_seed=1, **QUIET)
    # draws are independent: four standard errors
    probability = E / (1 + E)
    error = np.sqrt(probability * (1 - probability) / 4000)
    assert abs(idata["posterior"]["z"].mean() - probability) < 4 * error
    assert model is step.model
