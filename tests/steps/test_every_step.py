"""What PyMC asks of a step, of every step but the one that test_step.py looks at in detail; and tuning."""

import functools
import pickle
import re
import warnings

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.flows.block import space_of
from pymc_discrete.flows.model import FlowModel
from pymc_discrete.flows.networks import Perceptron
from pymc_discrete.starts.start import ATTEMPTS, dispersed
from tests.tools.methods import others
from tests.tools.running import equal_walks, logp_of, lp_of, same_draws, sample_with_pymc, walk

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


def flow_step(model):
    """The step of a flow that was not trained, of the variables that have bounds."""
    space = space_of(model, [v.name for v in model.discrete_value_vars if v.name != "k"])
    learner = FlowModel(space, Perceptron(space.d, space.K, width=8, depth=1, key=jax.random.key(0)))
    return pmd.FlowStep(learner.flow(learner.start(None), (0.0, 0.4, 1.0)), turn=0.4, model=model)


STEPS = {
    "gwg": functools.partial(pmd.GibbsWithGradients, n_flips="adapt"),
    "pafs": pmd.PathAuxiliary,
    "dmala": pmd.DiscreteLangevin,
    "dlmc": functools.partial(pmd.DiscreteLangevin, proposal="dlmc"),
    "block gibbs": pmd.BlockGibbs,
    "tree gibbs": pmd.TreeGibbs,
    "swendsen-wang": pmd.SwendsenWang,
    "auto": pmd.AutoStep,
    "flow": flow_step,
}
OTHERS = others(*STEPS.values(), pmd.PerturbAndMaxProduct)
STEPS |= OTHERS
# what a step is to PyMC does not depend on these options of its kernel, of which `test_tuning` asks
OF_OPTIONS = ("dlmc",)
# NUTS moves in the same program: beside a kernel that tunes, and steps of other programs. Kernels that do not
# tune are beside it in test_ahead.py and test_auto_not_sampled.py.
BESIDE_NUTS = ("pafs", "flow", *OTHERS)
TUNED = {
    "gwg": "n_flips",
    "pafs": "path_length",
} | dict.fromkeys(("dmala", "dlmc"), "step_size")


@pytest.fixture(scope="module")
def discrete():
    """Binary, categorical, bounded and unbounded sites, all discrete."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.array([[0.3, 0.6], [0.55, 0.2]]))
        z = pm.Categorical("z", np.array([0.2, 0.5, 0.3]))
        k = pm.Poisson("k", 2.0)
        b = pm.DiscreteUniform("b", 1, 4, shape=6)
        pm.Potential(
            "e",
            1.1 * x[0, 0] * x[0, 1]
            + 0.2 * k * x[1, 0]
            - 0.3 * k * pt.eq(z, 1)
            + 0.1 * (b[1:] * b[:-1]).sum(),
        )
    return model


@pytest.fixture(scope="module")
def mixed():
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.55]))
        z = pm.Categorical("z", np.array([0.2, 0.5, 0.3]))
        mu = pm.Normal("mu")
        pm.Normal("y", mu + x.sum() + z, 0.7, observed=1.5)
    return model


@pytest.fixture(scope="module", params=[name for name in STEPS if name not in OF_OPTIONS])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def step(kind, discrete):
    return STEPS[kind](model=discrete)


@pytest.mark.by_default("auto", "flow", *OTHERS)
def test_draws_and_statistics(kind, step, discrete):
    step.setup_chain(np.random.default_rng(0), tune=5, draws=5)
    before = discrete.initial_point()
    kept = {k: v.copy() for k, v in before.items()}
    for point, stats in walk(step, before):
        assert list(point) == list(before)
        assert all(point[k].dtype == before[k].dtype and point[k].shape == before[k].shape for k in before)
        assert stats.keys() == step.stats_dtypes_shapes.keys()
        assert 0 <= stats[step.named_here("accept")] <= 1
    assert all(np.array_equal(kept[k], before[k]) for k in kept)


@pytest.mark.by_default("auto", "flow", *OTHERS)
def test_setup_chain_starts_anew(step, discrete):
    def chain(seed, tune):
        step.setup_chain(np.random.default_rng(seed), tune=tune, draws=5)
        tuned = walk(step, discrete.initial_point(), 10)
        step.stop_tuning()
        return tuned + walk(step, tuned[-1][0])

    first = chain(0, 10)
    chain(1, 10)
    assert equal_walks(first, chain(0, 10))


@pytest.mark.by_default("auto", "flow", *OTHERS)
def test_saved_and_sent(step, discrete):
    step.setup_chain(np.random.default_rng(0), tune=20, draws=5)
    point = walk(step, discrete.initial_point(), 8)[-1][0]
    state = pickle.loads(pickle.dumps(step.sampling_state))
    sent = pickle.loads(pickle.dumps(step))
    rest = walk(step, point)
    assert equal_walks(rest, walk(sent, point))
    step.sampling_state = state
    assert equal_walks(rest, walk(step, point))


@pytest.mark.slow
@pytest.mark.parametrize("name", TUNED)
def test_tuning(name, discrete):
    """The acceptance goes where it should, the value stays where it was put, and the statistics say so."""
    step = STEPS[name](model=discrete)
    param = TUNED[name]
    lower, upper = step.kernel.tuned.bounds(step.target.space)
    step.setup_chain(np.random.default_rng(0), tune=200, draws=200)
    tuned = walk(step, discrete.initial_point(), 200)
    step.stop_tuning()
    drawn = walk(step, tuned[-1][0], 200)
    shown = [stats[f"discrete_{param}"] for _, stats in drawn]
    assert len(set(shown)) == 1
    assert lower <= shown[0] <= upper
    assert len({stats[f"discrete_{param}"] for _, stats in tuned}) > 2
    accept = np.mean([stats["accept"] for _, stats in drawn])
    at_bound = shown[0] < 1.1 * lower or shown[0] > 0.9 * upper
    # 200 draws of several transitions: a standard error below 0.02; Robbins-Monro over 200 draws leaves as
    # much
    assert at_bound or abs(accept - 0.574) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("name", BESIDE_NUTS)
def test_beside_nuts(name, mixed):
    step = STEPS[name](model=mixed)
    idata = sample_with_pymc(mixed, step, draws=30, tune=30, progressbar=True)
    # float64 sums of a few terms
    np.testing.assert_allclose(lp_of(idata), logp_of(mixed, idata), rtol=1e-10) if lp_of(
        idata
    ).any() else None
    assert step.named_here("accept") in idata["sample_stats"]
    assert same_draws(idata, sample_with_pymc(mixed, STEPS[name](model=mixed), draws=30, tune=30))


@pytest.mark.slow
def test_unadjusted_warns(discrete):
    with pytest.warns(UserWarning, match="biased"):
        step = pmd.DiscreteLangevin(adjusted=False, model=discrete)
    step.setup_chain(np.random.default_rng(0), tune=0, draws=5)
    stats = [s for _, s in walk(step, discrete.initial_point(), 20)]
    assert all(s["accepted"] == 1 for s in stats)
    assert any(s["accept"] < 1 for s in stats)


@pytest.mark.slow
def test_below_target_at_the_lower_bound_says_so_once(caplog):
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=4)
        pm.Potential("parity", -6.0 * pt.mod(x.sum(), 2))
    step = pmd.PathAuxiliary(model=model)
    for seed in range(2):
        step.setup_chain(np.random.default_rng(seed), tune=100, draws=5)
        walk(step, model.initial_point(), 100)
        caplog.clear()
        step.stop_tuning()
        assert sum("lower bound" in r.message for r in caplog.records) == 1


@pytest.mark.slow
def test_a_chain_that_stands_still_says_so(caplog):
    r = np.random.default_rng(1)
    x = np.linspace(-2, 2, 30)
    y = 1 + 2 * x + r.normal(size=30)
    y[[5, 20]] += 40
    with pm.Model() as model:
        outlier = pm.Bernoulli("outlier", 0.1, shape=30)
        pm.Normal("y", 1 + 2 * x, pm.math.switch(outlier, 10.0, 1.0), observed=y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = pmd.GibbsWithGradients(differences="gradient", model=model)
        step.setup_chain(np.random.default_rng(0), tune=100, draws=5)
        point = walk(step, model.initial_point(), 100)[-1][0]
        step.stop_tuning()
    # 1,600 nats up, where no move of the step itself leads
    assert {5, 20} <= set(np.flatnonzero(point["outlier"]))
    assert any(
        "fewer than one in a hundred moves of 'outlier' was accepted" in r.message for r in caplog.records
    )


def of_two(kind, **options):
    """A step of four sites, of which hardly another number than two is 1."""
    with pm.Model():
        z = pm.Bernoulli("z", 0.3, shape=4, initval=[1, 1, 0, 0])
        pm.Potential("two", -100.0 * (z.sum() - 2) ** 2)
        return kind(**options)


@pytest.mark.parametrize(
    ("kind", "options", "said", "not_said"),
    [
        (pmd.GibbsWithGradients, {}, "pmd.BlockGibbs .* try balancing='barker'", "exact'"),
        (
            pmd.PathAuxiliary,
            {"balancing": "barker"},
            r"pmd.BlockGibbs moves several along .*constraints.md\)\.$",
            "try",
        ),
        (
            pmd.GibbsWithGradients,
            {"differences": "gradient"},
            "misleads it: try differences='exact' or balancing='barker'",
            "pmd",
        ),
        (
            pmd.DiscreteLangevin,
            {"differences": "gradient", "balancing": "barker"},
            r"differences='exact'\.$",
            "barker",
        ),
        (pmd.BlockGibbs, {}, "BlockGibbs moves several along known sums, where", "pmd.BlockGibbs|barker"),
    ],
)
def test_what_is_tried_where_nothing_is_accepted(kind, options, said, not_said):
    step = of_two(kind, **options)
    (complaint, *_) = step.complaints(
        step.learned._replace(adaptation=step.learned.adaptation._replace(accept=0.0)), 200
    )
    remedy = complaint.partition("Either only one value is possible, or ")[2]
    assert re.search(said, remedy)
    assert not re.search(not_said, remedy)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (
            pmd.DiscreteLangevin,
            {},
            r"Try pmd\.BlockGibbs, or, where several sites must change together, pmd\.PathAuxiliary\(",
        ),
        (
            pmd.DiscreteLangevin,
            {"differences": "gradient"},
            r"Try pmd\.BlockGibbs\(differences='exact'\), or",
        ),
        (pmd.PathAuxiliary, {"recompute": True}, r"Try pmd\.BlockGibbs\.$"),
    ],
)
def test_what_is_tried_where_the_smallest_moves_are_rejected(kind, options, said):
    step = of_two(kind, **options)
    low = step.learned.adaptation._replace(accept=0.2, seen=100.0, mean=np.log(step.tuner.bounds[0]))
    (complaint,) = step.complaints(step.learned._replace(adaptation=low), 200)
    assert "is at its lower bound" in complaint
    assert re.search(said, complaint)


@pytest.mark.slow
def test_starts_are_dispersed_where_most_values_are_impossible(monkeypatch):
    seen = np.arange(40) % 2
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5, shape=40)
        pm.Bernoulli("y", 0.9 * z, observed=seen)
    step = pmd.BlockGibbs(start="dispersed", model=model)
    x, target = step.target.at({"z": np.ones(40, int)})
    evaluated = []
    logdensity = type(target).logdensity
    monkeypatch.setattr(
        type(target), "logdensity", lambda self, x: evaluated.append(1) or logdensity(self, x)
    )
    y = dispersed(x, target, np.random.default_rng(0))
    assert (y[seen == 1] == 1).all()
    assert 3 < (y[seen == 0] == 0).sum() < 17  # of 20, each with probability 1/2
    assert len(evaluated) == ATTEMPTS + 2  # those from the whole support, x, and one that is possible
    impossible = np.zeros(40, int)
    assert np.array_equal(dispersed(impossible, target, np.random.default_rng(0)), impossible)


@pytest.mark.slow
def test_dispersed_starts():
    with pm.Model() as model:
        x = pm.DiscreteUniform("x", 0, 9, shape=20)
        pm.Potential("impossible", pt.switch(x[0] < 3, -np.inf, 0.0))
    step = pmd.GibbsWithGradients(start="dispersed", transitions=1, model=model)
    point = {"x": np.full(20, 5)}
    starts = []
    for seed in (0, 1, 0):
        step.setup_chain(np.random.default_rng(seed), tune=0, draws=1)
        starts.append(step.step(point)[0]["x"])
    assert np.array_equal(starts[0], starts[2])
    assert (starts[0] != starts[1]).sum() > 10
    assert (starts[0] != 5).sum() > 10
    assert np.min(starts, axis=0)[0] >= 3
