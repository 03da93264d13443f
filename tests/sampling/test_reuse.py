"""A second call of `pmd.sample` compiles nothing, and draws what it would draw if it were the first."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.runtime import compiled as compiled_methods
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.reuse import Kept, forget
from tests.tools.running import QUIET, assert_same_draws

Y = np.array([1, 2, 0, 3, 5, 4])


def a_model(y=Y, prior=(0.3,) * 6, sd=2.0, initval=None, discrete=False):
    with pm.Model() as model:
        mu = np.array([-1.0, 2.0]) if discrete else pm.Normal("mu", 0.0, sd, shape=2, initval=initval)
        mu = pt.as_tensor(mu)
        z = pm.Bernoulli("z", np.array(prior), shape=6)
        n = pm.Poisson("n", 2.0)
        pm.Normal("y", mu[z] + n, 1.0, observed=y)
        pm.Deterministic("twice", 2 * mu)
    return model


def sampled(model, draws=20, **options):
    usual = {"tune": 30, "chains": 2, "random_seed": 1}
    return pmd.sample(draws, model=model, **usual | options, **QUIET)


# options that are no part of the program
ALIKE = {"draws": 33, "random_seed": 2, "initvals": {"n": 9}, "target_accept": 0.9, "tune": 77}


@pytest.fixture
def compilations(monkeypatch):
    """The programs that XLA compiles, from now on."""
    monkeypatch.setattr(compiled_methods, "jitted", jitted)  # tests/conftest.py interprets some
    names = []
    compiled = jax.stages.Lowered.compile

    def counted(self, *args, **options):
        names.append("ahead")
        return compiled(self, *args, **options)

    def record(event, seconds, **more):
        if event.endswith("backend_compile_duration"):
            names.append(more.get("fun_name", event))

    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    jax.monitoring.register_event_duration_secs_listener(record)
    yield names
    jax.monitoring.unregister_event_duration_listener(record)


def test_a_second_call_compiles_nothing(compilations):
    model = a_model()
    sampled(model)
    assert compilations
    other = a_model(initval=[3.0, -3.0], y=Y + 1, prior=(0.6,) * 6, sd=5.0)
    for again, changed in ((model, {}), (model, ALIKE), (a_model(), {"chains": 3}), (other, {})):
        compilations.clear()
        sampled(again, **changed)
        assert not compilations, changed


# Runs that differ from `sampled(a_model())`, or, where NUTS is not asked, from one without `mu`. Other
# supports, steps and options have other keys: this is tested in tests/runtime/test_programs_on_disk.py.
AGAIN = {
    "numbers and data": lambda: sampled(
        a_model(y=Y + 1, initval=[3.0, -3.0], prior=(0.6,) * 6, sd=3.0),
        draws=33,
        random_seed=5,
        target_accept=0.95,
    ),
    "tuning": lambda: sampled(a_model(), tune=31, nuts={"dense": True}, discard_tuned_samples=False),
    "float32": lambda: sampled(a_model(discrete=True), dtype="float32", var_names=["n"]),
}


@pytest.mark.slow
def test_what_was_kept_does_not_change_the_draws():
    """After other runs, the draws are those of a process that has not run anything."""
    alone = {}
    for name, run in AGAIN.items():
        forget()
        alone[name] = run()
    forget()
    sampled(a_model())
    sampled(a_model(discrete=True))
    for name, run in AGAIN.items():
        assert_same_draws(alone[name], run())


@pytest.mark.slow
def test_data_that_change():
    def build():
        with pm.Model() as model:
            y = pm.Data("data", Y)
            z = pm.Bernoulli("z", 0.3, shape=6)
            pm.Normal("y", 3.0 * z, 1.0, observed=y)
            pm.Deterministic("first", y[0] + z[0])
        return model

    changed, alone = build(), build()
    before = sampled(changed)
    pm.set_data({"data": Y[::-1].copy()}, model=changed)
    pm.set_data({"data": Y[::-1].copy()}, model=alone)
    after = sampled(changed)
    forget()
    assert_same_draws(after, sampled(alone))
    assert not np.array_equal(before["posterior"]["first"], after["posterior"]["first"])


def test_steps_of_pm_sample_share_what_they_compile(compilations):
    def walk(model):
        step = pmd.BlockGibbs(model=model, rng=1)
        step.setup_chain(np.random.default_rng(1), tune=2, draws=2)
        point = model.initial_point()
        for _ in range(4):
            point, _ = step.step(point)
        return point

    with pm.Model() as first:
        pm.Bernoulli("z", 0.3, shape=6)
    with pm.Model() as second:
        pm.Bernoulli("z", 0.3, shape=6)
    one = walk(first)
    assert compilations
    compilations.clear()
    assert {name: v.tolist() for name, v in walk(second).items()} == {n: v.tolist() for n, v in one.items()}
    assert not compilations


def test_data_sets_that_decide_differently():
    """Whether all counts are positive decides what the density computes; each answer is kept."""

    def density(y):
        with pm.Model() as model:
            p, N = pm.Beta("p", 2, 2), pm.Poisson("N", 5.0, shape=len(y), initval=np.full(len(y), 9))
            pm.Binomial("y", n=N, p=p, observed=y)
        return pmd.BlockGibbs("N", model=model).density

    positive, other, some_zero, positive_again = map(density, (Y + 1, Y + 2, Y, Y + 1))
    assert positive == other
    assert positive == positive_again
    assert density(np.roll(Y, 1)) == some_zero
    assert some_zero.numbers != {}


@pytest.mark.slow
def test_a_custom_step_is_compiled_once(compilations):
    def step(key, point, state):
        return {"n": jax.random.poisson(key, 2.0)}, state

    for times in range(2):
        compilations.clear()
        model = a_model(discrete=True)
        sampled(model, step=pmd.CustomStep("n", step, model=model))
        assert bool(compilations) == (times == 0)


def test_functions_of_the_user():
    """A function reads what it likes: a new model with the same one is analysed again."""
    shift = [0.0]

    def logp(value, mu):
        return pt.switch((value >= 0) & (value <= 3), -((value - mu - shift[0]) ** 2), -np.inf)

    def build():
        with pm.Model() as model:
            pm.CustomDist("x", 1.0, logp=logp, dtype="int64")
        return model

    def mean():
        model = build()
        step = pmd.BlockGibbs(support={"x": (0, 3)}, model=model)
        return float(sampled(model, step=step, draws=200)["posterior"]["x"].mean())

    low = mean()
    shift[0] = 2.0
    assert mean() > low + 1


def test_the_longest_unused_is_dropped():
    kept, made = Kept[int](2), []

    def get(key):
        return kept.get(key, lambda: made.append(key) or key)

    for key in (1, 2, 1, 3, 1, 2):
        assert get(key) == key
    assert made == [1, 2, 3, 2]
    forget()
    get(1)
    assert made[-1] == 1


def counts(seed=0, sd=1.3):
    """A model whose counts are summed out, with a Deterministic and with priors that read its numbers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=4)
    y = 1 + rng.binomial(5, 0.4, size=(4, 2))
    with pm.Model() as model:
        a, b, p = pm.Normal("a", 1.1, 2.2), pm.Normal("b", 0.3, sd), pm.Beta("p", 1.7, 1.9)
        pm.Deterministic("weighted", (b * np.linspace(0.5, 3.0, 4)).sum() + a)
        n = pm.Poisson("n", pm.math.exp(pm.Deterministic("eta", a + b * x)), shape=4, initval=y.max(1) + 1)
        pm.Binomial("y", n[:, None], p, observed=y)
    return model


@pytest.mark.slow
def test_counts_that_are_summed_out(compilations, walks):
    model = counts()
    draws = sampled(model, collapse=True)
    other = {"seed": 2, "sd": 0.7}
    compilations.clear()
    again = sampled(counts(**other), collapse=True)
    assert not compilations
    forget()
    assert_same_draws(again, sampled(counts(**other), collapse=True))
    # the names of numbers of a model and of what is left of it, which one program reads, do not collide
    logp = model.compile_logp(mode="FAST_COMPILE")
    posterior = draws["posterior"].to_dataset().stack(all=("chain", "draw"))
    for k in range(0, posterior.sizes["all"], 7):
        one = posterior.isel(all=k)
        p = one["p"].item()
        point = {"p_logodds__": np.log(p / (1 - p)), **{v: one[v].values for v in ("a", "b", "n")}}
        lp = draws["sample_stats"]["lp"].values.reshape(-1)[k]
        np.testing.assert_allclose(lp, logp(point), rtol=1e-7)
        weighted = (one["b"].item() * np.linspace(0.5, 3.0, 4)).sum() + one["a"].item()
        np.testing.assert_allclose(one["weighted"].item(), weighted)
