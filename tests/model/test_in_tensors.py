"""Models of `pymc.dims`: the same in plain tensors, and what is done with them."""

import gc
import itertools
import weakref
from functools import cache

import numpy as np
import pymc as pm
import pytest
import xarray
from arviz_base import from_dict
from pymc import dims
from pymc.dims import as_xtensor
from pymc.dims.distributions.transforms import DimTransform
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete.model.in_tensors import in_tensors, values_by_name
from tests.model.pairs import (
    PAIRS,
    Y,
    changepoint,
    hidden_states,
    ising,
    mixture,
    model_with,
    other_order,
)
from tests.tools.oracle import RNG, compare, oracle, random_points, unrewritten
from tests.tools.running import QUIET, sample_with_pymc

# NUTS itself is tested elsewhere
pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

ONE_SEED = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 3}
WAYS = {
    "pmd.sample": lambda model: pmd.sample(model=model, **QUIET, **ONE_SEED),
    "AutoStep": lambda model: sample_with_pymc(model, pmd.AutoStep, **ONE_SEED),
    "collapse": lambda model: pmd.sample(model=model, collapse=True, **QUIET, **ONE_SEED),
}


def equal_draws(make, models):
    """The draws that are made of two models, which are equal up to the rounding of their densities."""
    a, b = (make(model) for model in models)
    assert list(a.children) == list(b.children)
    for group in {"posterior", "probabilities", "observed_data", "constant_data"} & {*a.children}:
        xarray.testing.assert_allclose(a[group].to_dataset(), b[group].to_dataset(), atol=1e-6)
    return a


# ---------------------------------------------------------------- densities
@pytest.mark.by_default("mixture_by_group", "other_order", "hidden_states")
@pytest.mark.parametrize("write", PAIRS, ids=lambda write: write.__name__)
def test_differences_are_those_of_pymc_s_density_with_dims(write):
    named, plain = write()
    with pytest.MonkeyPatch.context() as patch:  # PyMC's density is compiled once for both
        patch.setattr("tests.tools.oracle.oracle", cache(oracle))
        target, _, _ = compare(named)
        points, logp = random_points(named, target, RNG(2))
    assert target.describe() == pmd.target_from_model(plain).describe()
    without = oracle(plain)
    np.testing.assert_allclose([logp(p) for p in points], [without(p) for p in points], rtol=1e-12)


@pytest.mark.slow
def test_operations():
    """What can be done with dims, each in a term of its own."""
    with model_with(a=2, b=3) as model:
        x = dims.Bernoulli("x", 0.3, dims=("a", "b"))
        n = dims.Binomial("n", 3, 0.4, dims="b")
        table = as_xtensor(np.linspace(-1, 1, 8).reshape(2, 4), dims=("c", "m"))
        w = as_xtensor(np.linspace(0.3, 1.7, 6).reshape(2, 3), dims=("a", "b"))
        stacked = x.stack({"ab": ("a", "b")})
        terms = {
            "any": x.any("a"),
            "backwards": x.isel(b=slice(None, None, -1)) * w,
            "clip": n.clip(1, 2) * 0.7,
            "concat": dims.concat([n, x.sum("a")], dim="b").diff("b") ** 2 * 0.1,
            "dot": x.dot(w, dim="a"),
            "expand": n.expand_dims(extra=2) * 0.1,
            "head": n.head(b=2) * 0.2,
            "inc": w.isel(b=[0, 2]).inc(x.isel(b=[0, 1])).prod("b"),
            "indexed by both": table.isel(c=x, m=n),
            "indexed by data": x.isel(b=as_xtensor([0, 2, 2, 1], dims="row")) * 0.4,
            "like": n.broadcast_like(x) * w,
            "mean": x.mean("b"),
            "rename": x * x.rename({"b": "other"}) * 0.3,
            "set": w.isel(a=0).set(n).std("b"),
            "softmax": dims.math.softmax(n * 0.3, dim="b") ** 2,
            "squeeze": n.expand_dims("one").squeeze("one") * 0.3,
            "stack": stacked.cumsum("ab") * 0.1,
            "unstack": stacked.unstack({"ab": {"a": 2, "b": 3}}).max("b"),
            "where": dims.math.where(dims.math.gt(n, 1), w, -w),
            "where of a variable": x.where(w > 0.8, 0.3),
        }
        for name, term in terms.items():
            dims.Potential(name, term.sum())
    target, _, _ = compare(model)
    assert target.exact


def test_a_factor_graph_as_a_term():
    graph = pmd.FactorGraph.from_model(ising()[0])
    with model_with(row=3, column=4) as model:
        x = dims.Bernoulli("x", 0.4, dims=("row", "column"))
        pm.Potential("graph", graph.potential({"x": x.values}))
    compare(model)


class Squares(DimTransform):
    """A transform of a user's own."""

    name = "squares"

    def forward(self, value, *inputs):
        return dims.math.sqrt(value)

    def backward(self, value, *inputs):
        return value**2

    def log_jac_det(self, value, *inputs):
        return dims.math.log(2 * dims.math.abs(value))


def test_every_transform():
    """Of PyMC's own, each in a dim that has a parameter; the density is that of PyMC."""
    with model_with(a=2, b=3) as model:
        low, up = (as_xtensor(np.array(ends), dims="a") for ends in ([-0.6, 0.2], [1.1, 2.3]))
        dims.Uniform("array", low, up)
        dims.Uniform("numbers", -1, 2, dims="a")
        dims.TruncatedNormal("below", 0.0, 1, upper=2.2, dims="a")
        dims.TruncatedNormal("no end", 0.0, 1, dims="a")
        dims.Pareto("above", 2.1, up)
        dims.Beta("unit", 2.1, 1.3, dims="a")
        dims.VonMises("circle", 0.3, 1.7, dims="b")
        dims.ZeroSumNormal("sum", core_dims="b", dims=("a", "b"))
        dims.ZeroSumNormal("sums", core_dims=("b", "a"), dims=("a", "b"))
        dims.ZeroSumNormal("columns", core_dims="a", dims=("a", "b"))
        of_each = as_xtensor(np.full((2, 3), 1.3), dims=("a", "b"))
        dims.Dirichlet("shares", of_each, core_dims="b")
        dims.Dirichlet("columns of shares", of_each, core_dims="b", dims=("b", "a"))
        dims.Gamma("squared", 2.1, 1.3, dims="a", default_transform=None, transform=Squares())
        z = dims.Bernoulli("z", 0.3, dims="a")
        dims.Normal("y", z * model["circle"], 1.3, observed=as_xtensor(Y.reshape(2, 3), dims=("a", "b")))
    plain, start, r = in_tensors(model), model.initial_point(), RNG(1)
    logp, in_plain = unrewritten(model), unrewritten(plain)
    for _ in range(3):
        point = {k: v if k == "z" else v + 0.3 * r.normal(size=v.shape) for k, v in start.items()}
        assert np.isfinite(logp(point))
        np.testing.assert_allclose(in_plain(point), logp(point), rtol=1e-12)


def test_summed_out_and_recovered():
    """Against the sum of PyMC's density with dims over all states."""
    named, _ = mixture()
    (z,) = (str(v.name) for v in named.discrete_value_vars)
    left = pmd.marginalize(named)
    assert z not in left.named_vars
    target, logp = pmd.target_from_model(named), oracle(named)
    (point, *_), _ = random_points(named, target, RNG(3))
    places = itertools.product(range(target.space.K), repeat=target.space.d)
    states = [np.reshape(place, np.shape(point[z])) for place in places]
    logps = np.array([logp(point | {z: state}) for state in states])
    total = oracle(left)({k: v for k, v in point.items() if k != z})
    np.testing.assert_allclose(total, logsumexp(logps), rtol=1e-10)

    given = {str(rv.name): rv for rv in named.free_RVs if rv.name != z}
    f = named.compile_fn(
        named.replace_rvs_by_values([rv.values for rv in given.values()]),
        inputs=named.continuous_value_vars,
        mode="FAST_COMPILE",
        point_fn=True,
    )
    values = dict(zip(given, f({k: v for k, v in point.items() if k != z}), strict=True))
    idata = from_dict({"posterior": {k: np.asarray(v)[None, None] for k, v in values.items()}})
    found = pmd.recover(idata, named, random_seed=1)
    weights = np.exp(logps - logsumexp(logps))
    indicators = np.array(states)[..., None] == np.arange(target.space.K)
    exact = np.tensordot(weights, indicators, 1)
    np.testing.assert_allclose(found["probabilities"][z].values[0], exact, atol=1e-10)
    assert found["posterior"][z].dims[2:] == named.named_vars_to_dims.get(z, ())


@pytest.mark.slow
def test_evidence():
    x = np.array(list(itertools.product((0, 1), repeat=12))).reshape(-1, 3, 4)
    s, on = 2 * x - 1, x.sum((1, 2))
    pairs = (s[:, 1:] * s[:, :-1]).sum((1, 2)) + (s[:, :, 1:] * s[:, :, :-1]).sum((1, 2))
    exact = logsumexp(0.4 * pairs + on * np.log(0.4) + (12 - on) * np.log(0.6))
    found = pmd.log_evidence(ising()[0], chains=50, temperatures=50, random_seed=1, progressbar=False)
    assert abs(found.value - exact) < 4 * found.error


# ---------------------------------------------------------------- draws
@pytest.mark.by_default("other_order-pmd.sample")
@pytest.mark.parametrize(
    ("write", "way"),
    [(other_order, "pmd.sample"), (mixture, "AutoStep"), (changepoint, "collapse")],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_draws_are_those_without_dims(write, way):
    """Of each sampler; beside AutoStep, PyMC's NUTS moves the rest of the user's model.

    On more kinds of unknowns densities and differences are compared, above.
    """
    named, plain = write()
    found = equal_draws(WAYS[way], (named, plain))["posterior"]
    for name, axes in named.named_vars_to_dims.items():
        if name in found:
            assert found[name].dims[2:] == tuple(axes)
            assert all([*found[dim].values] == [*named.coords[dim]] for dim in axes)


@pytest.mark.slow
def test_a_step_that_sums_out():
    """In pm.sample, where it is the only step."""
    equal_draws(lambda m: sample_with_pymc(m, lambda: pmd.CollapsedNUTS()), mixture())


def test_steps_have_the_variables_that_pymc_knows():
    named, plain = hidden_states()
    assert pmd.AutoStep.competence(named["x"], False) == pmd.AutoStep.competence(plain["x"], False)
    with named:
        steps = [
            pmd.BlockGibbs(named["x"]),
            pmd.BlockGibbs("x"),
            pmd.BlockGibbs([named.rvs_to_values[named["x"]]]),
            pmd.AutoStep(),
            pmd.CollapsedNUTS(),
        ]
    for step in steps:
        assert all(any(v is mine for mine in named.value_vars) for v in step.vars)
    with pytest.raises(ValueError, match="belongs to another model"):
        pmd.BlockGibbs(hidden_states()[0]["x"], model=named)


# ---------------------------------------------------------------- one model, which may change
@pytest.fixture
def little_to_collect():
    """The garbage collector leaves alone what earlier tests have made: to look in it would take seconds."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("little_to_collect")
def test_a_model_has_one_in_tensors():
    named, plain = mixture()
    made = in_tensors(named)
    assert [in_tensors(m) for m in (named, made, plain)] == [made, made, plain]
    assert {n: v.name for n, v in values_by_name(made).items()} == {v.name: v.name for v in named.value_vars}
    gone = weakref.ref(named)
    del named
    gc.collect()
    assert gone() is None


def test_what_is_added_and_set_later_counts():
    with model_with(item=3) as model:
        y = dims.Data("y", np.zeros(3), dims="item")
        z = dims.Bernoulli("z", 0.4, dims="item")
        dims.Normal("seen", 2.2 * z, 1, observed=y)
        step = pmd.BlockGibbs()
        pm.set_data({"y": [0.3, 1.6, -0.2]})
        compare(model)
        dims.Potential("p", 50.0 * z.sum())
        pm.set_data({"y": [1.3, 2.1, -0.4, 0.9]}, coords={"item": [*"abcd"]})
    found = sample_with_pymc(model, step)  # before anything else sees the model
    compare(model)
    assert [*found["posterior"]["item"].values] == [*"abcd"]
    assert (found["posterior"]["z"] == 1).all()


def test_starts():
    with model_with(a=2, b=3) as model:
        x = dims.Normal("x", 0, 1, dims=("a", "b"), initval=np.arange(6.0).reshape(2, 3))
        z = dims.Bernoulli("z", logit_p=x, initval=np.ones((2, 3), int))
    for name, value in in_tensors(model).initial_point().items():
        np.testing.assert_array_equal(value, model.initial_point()[name])
    far = 100.0 * np.arange(6).reshape(3, 2)  # PyMC adds up to 1
    start = xarray.DataArray(np.array([[0, 1], [0, 0], [1, 0]]), dims=("b", "a"))
    found = pmd.sample(
        1,
        tune=0,
        chains=1,
        model=model,
        initvals={z: start, x: as_xtensor(far, dims=("b", "a"))},
        step=pmd.CustomStep([x, z], lambda key, point, state: (point, state), model=model),
        **QUIET,
    )["posterior"]
    np.testing.assert_array_equal(found["z"].values[0, 0], start.values.T)
    np.testing.assert_allclose(found["x"].values[0, 0], far.T, atol=1)


# ---------------------------------------------------------------- what is refused
def nan_observed():
    dims.Normal("y", dims.Bernoulli("z", 0.3, dims="a"), 1, observed=as_xtensor([np.nan, 1.0], dims="a"))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (nan_observed, ValueError, "1 of the 2 observed values of 'y' are nan"),
    ],
)
def test_refused(build, error, message):
    with model_with(a=2, b=3) as model:
        build()
    with pytest.raises(error, match=message):
        pmd.target_from_model(model)
