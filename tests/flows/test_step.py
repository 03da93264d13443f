"""The step of a flow, in pm.sample and in pmd.sample; flows that were fitted."""

import itertools

import arviz as az
import equinox as eqx
import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import pymc_discrete as pmd
from pymc_discrete.engine.discrete import DiscreteBlock
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.storage import CheckpointError
from pymc_discrete.flows.block import space_of
from pymc_discrete.flows.model import FlowModel
from pymc_discrete.flows.networks import Perceptron
from pymc_discrete.sampling.division import steps_of
from tests.tools.keys import collected
from tests.tools.running import QUIET, sample_with_pymc, walk
from tests.tools.statistics import check_proportions

# NUTS itself is tested elsewhere
pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

VALUES = {"a": 2, "b": 2, "z": 3}


@pytest.fixture(scope="module")
def model():
    """Two modes, a = b = 0 and a = b = 1 with z > 0, and a continuous variable beside."""
    with pm.Model() as model:
        a, b = pm.Bernoulli("a", 0.4), pm.Bernoulli("b", 0.5)
        z = pm.Categorical("z", [0.4, 0.3, 0.3])
        mu = pm.Normal("mu", 0, 1)
        pm.Potential("joined", 4.0 * pt.eq(a, b) + 1.5 * a * (z > 0))
        pm.Normal("y", mu + a, 1.0, observed=0.5)
    return model


@pytest.fixture(scope="module")
def posterior(model):
    """(S, 3) the states of a, b and z, and (S,) their probabilities, mu integrated out by hand."""
    states = np.array(list(itertools.product(*map(range, VALUES.values()))))
    a, b, z = states.T
    logp = np.log(np.where(a, 0.4, 0.6)) + np.log(np.array([0.4, 0.3, 0.3])[z])
    logp = logp + 4.0 * (a == b) + 1.5 * a * (z > 0) - (0.5 - a) ** 2 / 4  # y - a ~ N(0, 2)
    return states, np.exp(logp - logsumexp(logp))


def untrained(model, path="quadratic", source="mask"):
    space = space_of(model, None)
    learner = FlowModel(space, Perceptron(space.d, space.K, width=8, key=jax.random.key(3)), path, source)
    return learner.flow(jax.tree.map(lambda a: 3 * a, learner.start(None)), np.linspace(0.0, 1.0, 5))


def without_local(caplog):
    """What was logged of variables that lack a local step."""
    return [r.getMessage() for r in caplog.records if "no local step" in r.getMessage()]


@pytest.mark.parametrize(("turn", "first", "dtype"), [(0.5, True, "float32"), (0.0, False, "float64")])
@pytest.mark.by_default("0.0-False-float64")
def test_in_one_program(turn, first, dtype, model, posterior, caplog):
    with model:
        steps = [pmd.FlowStep(untrained(model), turn=turn), pmd.BlockGibbs()]
        steps = steps if first else steps[::-1]
        idata = pmd.sample(1500, tune=200, chains=4, step=steps, random_seed=3, dtype=dtype, **QUIET)
    check_proportions(idata["posterior"], [*VALUES], *posterior)
    accept = idata["sample_stats"]["flow_accept"]
    assert accept.ndim == 2
    assert 0.05 < accept.mean() < 0.9
    assert not without_local(caplog)


@pytest.mark.slow
def test_alone(model, posterior, caplog):
    """An untrained flow reaches all states by itself."""
    with model:
        step = pmd.FlowStep(untrained(model, "noise", "uniform"))
        idata = pmd.sample(4000, tune=100, chains=4, step=step, random_seed=3, **QUIET)
    check_proportions(idata["posterior"], [*VALUES], *posterior)
    (said,) = without_local(caplog)
    assert said.startswith("FlowStep: no local step moves 'a', 'b', 'z' beside it")
    assert "Add one: pmd.BlockGibbs(['a', 'b', 'z'])" in said


def test_variables_without_a_local_step_are_named(model, caplog):
    """In pm.sample by what happened while the chain tuned, in pmd.sample by its steps."""
    flow, local = pmd.FlowStep(untrained(model), model=model), pmd.BlockGibbs(["b"], model=model)

    def said(*others):
        caplog.clear()
        for step in (flow, *others):
            step.setup_chain(np.random.default_rng(0), tune=3, draws=3)
        point = model.initial_point()
        for _ in range(3):
            for step in (flow, *others):
                point = step.step(point)[0]
        flow.stop_tuning()
        return without_local(caplog)

    for others, names in (((), "'a', 'b', 'z'"), ((local,), "'a', 'z'")):
        (line,) = said(*others)
        assert f"no local step moves {names} beside it" in line
        caplog.clear()
        steps_of(model, [*others, flow], model.initial_point())
        assert without_local(caplog) == [line]
    assert not said(pmd.BlockGibbs(["a", "z"], model=model), local)


def test_a_chain_that_stands_still_is_settled_by_the_local_step(model):
    """The acceptance of a flow says nothing of the start."""
    block = DiscreteBlock(pmd.FlowStep(untrained(model), model=model), 10, Points([]))
    point = block.points.packed(model.initial_point())
    stuck = block.tuner.start()
    stuck = stuck._replace(adaptation=stuck.adaptation._replace(still=100))
    assert stuck.adaptation.stuck
    assert block.settled(jax.random.key(0), point, stuck) is point


@pytest.mark.slow
def test_in_pymc(model, posterior, caplog):
    """After the local step; before another one it stands in the next tests."""
    steps = [pmd.BlockGibbs(model=model), pmd.FlowStep(untrained(model), model=model)]
    idata = sample_with_pymc(model, steps, draws=1000, tune=200)
    check_proportions(idata["posterior"], [*VALUES], *posterior)
    assert 0.05 < idata["sample_stats"]["flow_accept"].mean() < 0.9
    assert not without_local(caplog)
    assert not [r for r in caplog.records if "two steps" in r.getMessage()]


@pytest.mark.slow
def test_beside_a_step_that_sums_out(model, posterior, caplog):
    """In one program; in pm.sample they are two steps as any others are."""
    with model:
        steps = [pmd.FlowStep(untrained(model)), pmd.CollapsedNUTS()]
    idata = pmd.sample(1500, tune=300, chains=4, model=model, step=steps, random_seed=3, **QUIET)
    check_proportions(idata["posterior"], [*VALUES], *posterior)
    assert idata["sample_stats"]["flow_accept"].mean() > 0.05
    assert not without_local(caplog)
    assert not [r for r in caplog.records if "two steps" in r.getMessage()]


@pytest.mark.slow
def test_one_of_two_steps_integrates_coefficients_out():
    """It draws them anew, so that the other one, which is given them, leaves the posterior as it is, too.

    The one that is given them comes last: one that integrates would hide what is wrong before it.
    """
    X = np.array([[1.0, 0.9], [0.5, 0.7], [-1.0, -1.2], [0.2, 0.4]])
    y = np.array([1.2, 0.3, -1.4, 0.9])
    with pm.Model() as model:
        g, b = pm.Bernoulli("g", [0.3, 0.6]), pm.Normal("b", 0, 1.5, shape=2)
        c = pm.Normal("c", 0, 0.7)
        pm.Normal("y", c + pt.dot(X, g * b), 1.0, observed=y)
        steps = [pmd.FlowStep(untrained(model), integrate=["b"]), pmd.BlockGibbs("g")]
    idata = pmd.sample(1500, tune=500, chains=4, model=model, step=steps, random_seed=4, **QUIET)
    states = np.array(list(itertools.product((0, 1), repeat=2)))
    logp = np.array(
        [
            multivariate_normal(np.zeros(4), np.eye(4) + 0.49 + 2.25 * (X * x) @ X.T).logpdf(y)
            + np.log(np.where(x, [0.3, 0.6], [0.7, 0.4])).sum()
            for x in states
        ]
    )
    check_proportions(idata["posterior"], ["g"], states, np.exp(logp - logsumexp(logp)))


@pytest.mark.slow
def test_keys(model):
    with collected() as keys:
        step = pmd.FlowStep(untrained(model), model=model)
        step.setup_chain(np.random.default_rng(0), tune=0, draws=4)
        walk(step, model.initial_point(), 4)
    keys.check(least=4 * 8)


def test_flows_that_differ_do_not_share_programs(model):
    one, other = untrained(model), untrained(model, "linear")
    assert pmd.FlowStep(one, model=model).described() != pmd.FlowStep(other, model=model).described()


def test_a_flow_that_does_not_fit_says_so(model):
    step = pmd.FlowStep(untrained(model), model=model)
    low = step.learned._replace(adaptation=step.learned.adaptation._replace(accept=0.001))
    (said,) = step.complaints(low, 200)
    assert "fewer than one in a hundred proposals of 'a', 'b', 'z' was accepted" in said
    assert not step.complaints(step.learned._replace(adaptation=low.adaptation._replace(accept=0.2)), 200)


# ---------------------------------------------------------------- fitted
@pytest.mark.slow
def test_a_fitted_flow_joins_modes():
    """Eight sites that agree or not at all: the local step does not cross, and the flow does."""
    states = np.array(list(itertools.product((0, 1), repeat=8)))
    logp = 3.0 * (states == np.roll(states, 1, axis=1)).sum(axis=1) + 0.5 * states[:, 0] - 8 * np.log(2)
    p = np.exp(logp - logsumexp(logp))
    drawn = states[np.random.default_rng(2).choice(len(states), (8, 400), p=p)]
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=8)
        pm.Potential("cold", 3.0 * pt.eq(x, pt.roll(x, 1)).sum() + 0.5 * x[0])
        network = Perceptron(8, 2, width=64, depth=2, key=jax.random.key(1))
        options = {"network": network, "steps": 16, "iterations": 500, "progressbar": False}
        flow = pmd.fit_flow(draws=az.from_dict({"posterior": {"x": drawn}}), random_seed=2, **options)
        steps = [pmd.FlowStep(flow), pmd.BlockGibbs(transitions=1)]
        both = pmd.sample(1000, tune=50, step=steps, random_seed=2, **QUIET)
    check_proportions(both["posterior"], ["x"], states, p)
    assert both["sample_stats"]["flow_accept"].mean() > 0.3
    found = flow.log_partition(pmd.target_from_model(model), 2000, seed=1)
    assert found.ess > 400
    assert abs(found.value - logsumexp(logp)) < 5 * found.error


@pytest.mark.slow
def test_checkpoint_and_seed(model, tmp_path):
    draws = az.from_dict({"posterior": {n: np.arange(20)[None] % k for n, k in VALUES.items()}})
    options = {"draws": draws, "iterations": 4, "batch": 8, "steps": 3, "progressbar": False}

    def params(seed, **more):
        flow = pmd.fit_flow(model, ["a", "z"], random_seed=seed, **options, **more)
        assert flow.names == ["a", "z"]
        return np.concatenate([np.ravel(a) for a in jax.tree.leaves(flow.params)])

    first = params(1, checkpoint=tmp_path / "fit.npz")
    assert np.array_equal(first, params(1, checkpoint=tmp_path / "fit.npz"))
    with pytest.raises(CheckpointError, match="holds a fit with seed=1, and this one has seed=2"):
        params(2, checkpoint=tmp_path / "fit.npz")


def test_a_network_of_ones_own(model):
    draws = az.from_dict({"posterior": {n: np.arange(20)[None] % k for n, k in VALUES.items()}})

    class Independent(eqx.Module):
        logits: jax.Array

        def __call__(self, encoded, t):
            return self.logits

    options = {"draws": draws, "iterations": 5, "steps": 2, "random_seed": 1, "progressbar": False}
    network = Independent(jax.numpy.zeros((3, 3)))
    flow = pmd.fit_flow(model, ["a", "b", "z"], network=network, **options)
    assert set(flow.sample(20)) == {"a", "b", "z"}
