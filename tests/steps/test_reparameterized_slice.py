"""The slice sampler as a step, in pm.sample and in pmd.sample."""

import itertools
import math
import pickle

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pytensor.graph import Apply, Op
from scipy import stats

import pymc_discrete as pmd
from tests.tools.running import QUIET

pytestmark = pytest.mark.shares_programs

SIGNIFICANCE = 1e-3  # of all tests of a function together


def mixed():
    """A support that depends on a count, a kink, and labels."""
    n = pm.Poisson("n", 3.0)
    x = pm.Uniform("x", 0.0, 1.0 + n)
    a = pm.Laplace("a", 0.0, 1.0, shape=2)
    z = pm.Bernoulli("z", 0.4, shape=3)
    pm.Normal("y", x + a[z * 1], 0.7, observed=[0.4, 0.8, 1.9])


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mixed()
    return model


def ready(model, tune=20, **options):
    step = pmd.ReparameterizedSlice(model=model, **options)
    step.setup_chain(np.random.default_rng(0), tune=tune, draws=20)
    return step


def walk(step, point, n=5):
    found = []
    for _ in range(n):
        point, [told] = step.step(point)
        found.append({**point, **told})
    return found


def same(a, b):
    return all(np.array_equal(p[k], q[k]) for p, q in zip(a, b, strict=True) for k in p)


@pytest.mark.slow
def test_contract(model):
    point = model.initial_point()
    frozen = {k: np.array(v) for k, v in point.items()}
    for v in frozen.values():
        v.flags.writeable = False
    step = ready(model)
    assert [v.name for v in step.vars] == ["x_interval__", "a"]
    new, [told] = step.step(frozen)
    assert list(new) == list(point)
    assert {k: (v.dtype, v.shape) for k, v in new.items()} == {
        k: (v.dtype, v.shape) for k, v in point.items()
    }
    assert set(told) == set(step.stats_dtypes_shapes)
    np.testing.assert_allclose(told["model_logp"], model.compile_logp(mode="FAST_COMPILE")(new), rtol=1e-6)
    assert all(new[k] == point[k] for k in ("n",))
    assert (new["a"] != point["a"]).all()
    # a new chain begins anew, a saved state goes on, and so does what another process was sent
    first = walk(step, point, 8)
    step.setup_chain(np.random.default_rng(0), tune=20, draws=20)
    step.step(point)
    again = walk(step, point, 8)
    assert same(first, again)
    state = pickle.loads(pickle.dumps(step.sampling_state))
    after = walk(step, point)
    for other in (ready(model), pickle.loads(pickle.dumps(step))):
        other.sampling_state = state
        assert same(walk(other, point), after)


@pytest.mark.slow
def test_frozen_after_tuning(model):
    step = ready(model, tune=4)
    point = walk(step, model.initial_point(), 4)[-1]
    step.stop_tuning()
    learned = step.widths
    assert (learned.axes != 1).all()
    walk(step, {k: point[k] for k in model.initial_point()})
    assert all(np.array_equal(a, b) for a, b in zip(step.widths, learned, strict=True))


def test_not_blocked_and_by_name(model):
    steps = pmd.ReparameterizedSlice(model=model, blocked=False).methods
    assert [[v.name for v in s.vars] for s in steps] == [["x_interval__"], ["a"]]
    assert [v.name for v in pmd.ReparameterizedSlice(model["a"], model=model).vars] == ["a"]


@pytest.mark.slow
def test_changed_data_are_seen():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(3))
        mu = pm.Normal("mu", 0.0, 10.0)
        pm.Normal("y", mu, 0.01, observed=data, shape=data.shape)
        step = ready(model)
        point = model.initial_point()
        near = walk(step, point, 20)[-1]
        assert abs(near["mu"]) < 0.1
        data.set_value(np.full(5, 7.0))
        step.setup_chain(np.random.default_rng(0), tune=20, draws=20)
        assert abs(walk(step, point, 20)[-1]["mu"] - 7) < 0.1


def exact_moments():
    """{variable: (its mean, the mean of its square)} of `mixed`, by sums over labels and counts and grids."""
    x, a, seen = np.linspace(0, 16, 801)[1:], np.linspace(-14, 14, 1401), (0.4, 0.8, 1.9)
    of_a, flat = stats.laplace.pdf(a), np.ones((len(x), len(a)))
    each = [stats.norm.pdf(y, x[:, None] + a, 0.7) for y in seen]
    n = np.arange(30)
    of_n = stats.poisson.pmf(n, 3.0) * (x[:, None] < 1 + n) / (1 + n)  # (x, n)
    total, sums = 0.0, {name: np.zeros((2, size)) for name, size in (("x", 1), ("a", 2), ("n", 1), ("z", 3))}
    for z in itertools.product((0, 1), repeat=3):
        share = np.prod(np.where(z, 0.4, 0.6))
        # integrals over each of the two, (x,), of its powers 0, 1 and 2
        powers = [
            [
                (
                    of_a
                    * a**power
                    * math.prod((f for f, own in zip(each, z, strict=True) if own == k), start=flat)
                ).sum(1)
                for power in range(3)
            ]
            for k in (0, 1)
        ]
        of_x = share * powers[0][0] * powers[1][0]
        total += (of_x @ of_n).sum()
        for power in (1, 2):
            sums["x"][power - 1] += (of_x * x**power) @ of_n.sum(1)
            sums["n"][power - 1] += (of_x @ of_n) @ n**power
            sums["z"][power - 1] += (of_x @ of_n).sum() * np.array(z)
            for k in (0, 1):
                sums["a"][power - 1, k] += (share * powers[k][power] * powers[1 - k][0]) @ of_n.sum(1)
    return {name: of / total for name, of in sums.items()}


@pytest.mark.slow
def test_the_posterior(model):
    with model:
        tree = pmd.sample(
            1500,
            tune=500,
            chains=2,
            step=pmd.ReparameterizedSlice(["x", "a"]),
            thin=3,
            random_seed=1,
            **QUIET,
        )
    assert {"slice_expansions", "slice_shrinkages", "slice_stayed", "accept", "lp"} <= set(
        tree["sample_stats"]
    )
    tests, worst = 0, 0.0
    for name, exact in exact_moments().items():
        draws = tree["posterior"][name].values.astype(float)
        draws = draws.reshape(*draws.shape[:2], -1)
        for power in (1, 2):
            error = np.array([float(az.mcse(draws[..., k] ** power)) for k in range(draws.shape[-1])])
            z = ((draws**power).mean((0, 1)) - exact[power - 1]) / error
            worst, tests = max(worst, np.abs(z).max()), tests + z.size
    assert 2 * tests * stats.norm.sf(worst) > SIGNIFICANCE


class NoGradient(Op):
    """A square, of which PyTensor knows no gradient; JAX does it."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.as_tensor(x).type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] ** 2


def test_what_nuts_refuses_is_sampled():
    from pytensor.link.jax.dispatch import jax_funcify

    jax_funcify.register(NoGradient)(lambda op, **_: lambda x: x**2)
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Potential("p", -0.5 * NoGradient()(x))
        with pytest.raises(ValueError, match=r"PyTensor has none.*ReparameterizedSlice"):
            pmd.sample(**QUIET)
        idata = pmd.sample(
            4000, tune=200, chains=2, step=pmd.ReparameterizedSlice(), random_seed=1, thin=3, **QUIET
        )
    draws = idata["posterior"]["x"].values
    assert model.free_RVs
    assert abs(draws.mean()) * np.sqrt(float(az.ess(draws, method="mean"))) < 4.5
    squares = draws**2
    assert abs(squares.mean() - 1) / np.sqrt(2 / float(az.ess(squares, method="mean"))) < 4.5


@pytest.mark.slow
def test_float32_of_a_million_nats():
    """Differences of a log density of a million nats, which 32 bits know to a tenth of a nat."""
    y = 13.6 * np.random.default_rng(0).normal(size=10_000) + 0.3
    with pm.Model():
        mu = pm.Flat("mu")
        pm.Normal("y", mu, 1.0, observed=y)
        idata = pmd.sample(
            600, tune=200, chains=2, step=pmd.ReparameterizedSlice(), random_seed=1, dtype="float32", **QUIET
        )
    draws = idata["posterior"]["mu"].values.astype(float)
    assert idata["posterior"]["mu"].dtype == np.float32
    sd = 10_000**-0.5
    assert abs(draws.mean() - y.mean()) / (sd / np.sqrt(float(az.ess(draws, method="mean")))) < 4.5
    squares = (draws - y.mean()) ** 2
    assert abs(squares.mean() - sd**2) / (sd**2 * np.sqrt(2 / float(az.ess(squares, method="mean")))) < 4.5


# ---------------------------------------------------------------- refusals
def refused_models():
    x = pm.Normal("x")
    pm.Bernoulli("b", 0.5)
    pm.Dirichlet("w", np.ones(3), default_transform=None)
    pm.Normal("y", x, 1, observed=0.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vars": "b"}, ValueError, "'b' is discrete .*AutoStep"),
        ({"vars": "q"}, ValueError, "no variable 'q'.*continuous free variables: 'x'"),
        ({"vars": "y"}, ValueError, "'y' is observed"),
        ({"vars": ["x", "x"]}, ValueError, "named twice"),
        ({"vars": []}, ValueError, "at least one continuous"),
        (
            {"vars": "w"},
            ValueError,
            "'w' is a constrained array .Dirichlet. without its transform.*default_transform",
        ),
        ({"vars": 3}, TypeError, "vars must be"),
        ({"vars": "x", "sweeps": 0}, ValueError, "sweeps must be 'auto' or an integer of at least 1.*0"),
        ({"vars": "x", "sweeps": True}, ValueError, "sweeps must be"),
        ({"vars": "x", "sweeps": "many"}, ValueError, "sweeps must be"),
        ({"vars": "x", "w": 2.0}, TypeError, "no option 'w'.*sweeps"),
        ({"vars": "x", "initial_point": {}}, ValueError, "initial_point has no value for x"),
    ],
)
def test_refusals(options, error, message):
    with pm.Model() as model:
        refused_models()
    with pytest.raises(error, match=message):
        pmd.ReparameterizedSlice(options.pop("vars"), model=model, **options)


def test_positional_options_are_refused(model):
    with pytest.raises(TypeError, match="in one list"):
        pmd.ReparameterizedSlice("x", "a", model=model)


def test_nothing_continuous():
    with pm.Model() as model:
        pm.Bernoulli("b", 0.5)
    with pytest.raises(ValueError, match="no continuous free variable"):
        pmd.ReparameterizedSlice(model=model)


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "shape .. that it reads holds nan"), (np.inf, "'bad' .inf")]
)
def test_infinite_density_names_its_term(value, message):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("bad", pt.switch(x > 100, 0.0, value))
    step = ready(model)
    with pytest.raises(SamplingError, match=message):
        step.step(model.initial_point())


@pytest.mark.slow
def test_an_impossible_start_is_left():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 5)
        pm.Potential("p", pt.switch(x > 3.0, 0.0, -np.inf))
        idata = pmd.sample(50, tune=50, chains=2, step=pmd.ReparameterizedSlice(), random_seed=1, **QUIET)
    assert (idata["posterior"]["x"] > 3).all()
    with pm.Model() as model:
        x = pm.Normal("x", 0, 5)
        pm.Potential("p", pt.switch(x > 1e9, 0.0, -np.inf))
    step = ready(model, tune=3)
    point = walk(step, model.initial_point(), 3)[-1]
    step.stop_tuning()
    with pytest.raises(SamplingError, match=r"'x' is impossible.*initvals"):
        step.step({"x": point["x"]})


@pytest.mark.slow
def test_a_chain_that_stands_still_says_so(caplog):
    with pm.Model() as model:
        pm.Normal("x", 1.0, 1e-18)
    step = ready(model, tune=100)
    point = {"x": np.array(1.0)}
    walk(step, point, 100)
    step.stop_tuning()
    assert "'x' all but stands still" in caplog.text
