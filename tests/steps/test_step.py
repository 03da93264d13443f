"""PyMC's step contract: everything that pm.sample asks of a step and gives to one."""

import pickle
import re
from collections import OrderedDict

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pymc.sampling.mcmc import instantiate_steppers
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import CompoundStep

import pymc_discrete as pmd
from tests.tools.processes import forkserver
from tests.tools.running import (
    FAST,
    draws_of,
    equal_walks,
    logp_of,
    lp_of,
    same_draws,
    sample_with_pymc,
    walk,
)

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


@pytest.fixture(scope="module")
def discrete():
    """Binary, categorical and unbounded sites, all discrete."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.array([[0.3, 0.6], [0.55, 0.2]]))
        z = pm.Categorical("z", np.array([0.2, 0.5, 0.3]))
        k = pm.Poisson("k", 2.0)
        pm.Potential("e", 1.1 * x[0, 0] * x[0, 1] + 0.2 * k * x[1, 0] - 0.3 * k * pt.eq(z, 1))
    return model


@pytest.fixture(scope="module")
def small():
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.55]))
        pm.Poisson("k", 1.0 + x.sum())
    return model


@pytest.fixture(scope="module")
def compiled(discrete):
    """One step that several tests share; `setup_chain` sets it back."""
    return pmd.GibbsWithGradients(model=discrete)


@pytest.fixture
def fresh(compiled):
    compiled.setup_chain(np.random.default_rng(0), tune=5, draws=5)
    return compiled


@pytest.fixture(scope="module")
def mixed():
    """Two discrete variables, an unconstrained and a transformed continuous one."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.55]))
        z = pm.Categorical("z", np.array([0.2, 0.5, 0.3]))
        mu, s = pm.Normal("mu"), pm.HalfNormal("s", 1.0)
        pm.Normal("y", mu + x.sum() + z, s + 0.5, observed=1.5)
    return model


def ready(model, seed=0, **options):
    step = pmd.GibbsWithGradients(model=model, **options)
    step.setup_chain(np.random.default_rng(seed), tune=5, draws=5)
    return step


# ---------------------------------------------------------------- what it is built from
@pytest.mark.parametrize(
    "vars",
    [
        lambda m: None,
        lambda m: ["x", "z", "k"],
        lambda m: ("x", "z", "k"),
        lambda m: [m["x"], m["z"], m["k"]],
        lambda m: [m.rvs_to_values[m[n]] for n in "xzk"],
        lambda m: [m["x"], "z", m.rvs_to_values[m["k"]]],
    ],
    ids=["None", "names", "tuple", "RVs", "values", "mixture"],
)
def test_vars(discrete, vars):
    step = pmd.GibbsWithGradients(vars(discrete), model=discrete)
    assert [v.name for v in step.vars] == ["x", "z", "k"]
    assert all(v in discrete.value_vars for v in step.vars)
    assert step.target.space.d == 6


@pytest.mark.parametrize(
    "var", [lambda m: "k", lambda m: m["k"], lambda m: m.rvs_to_values[m["k"]]], ids=["name", "RV", "value"]
)
@pytest.mark.parametrize("keyword", [False, True])
def test_one_variable(discrete, var, keyword):
    var = var(discrete)
    step = (
        pmd.GibbsWithGradients(vars=var, model=discrete)
        if keyword
        else pmd.GibbsWithGradients(var, model=discrete)
    )
    assert [v.name for v in step.vars] == ["k"]


def test_vars_of_the_model_in_the_context(mixed):
    with mixed:
        step = pmd.GibbsWithGradients()
    assert step.own_variables == ["x", "z"]
    assert [v.name for v in step.vars] == ["x", "z", "mu", "s_log__"]  # NUTS moves these in its program


@pytest.mark.slow
def test_not_blocked(small):
    step = pmd.GibbsWithGradients(model=small, blocked=False)
    assert isinstance(step, CompoundStep)
    assert [[v.name for v in m.vars] for m in step.methods] == [["x"], ["k"]]
    assert isinstance(pmd.GibbsWithGradients("x", model=small, blocked=False), pmd.GibbsWithGradients)
    idata = sample_with_pymc(small, step, draws=20, tune=5)
    assert np.allclose(lp_of(idata), logp_of(small, idata))
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    assert [[v.name for v in m.vars] for m in copy.methods] == [["x"], ["k"]]


def test_what_pymc_passes(discrete):
    """instantiate_steppers passes all of these, and options under the class's name, as
    pm.sample(gibbs_with_gradients={...}).
    """
    assert pmd.GibbsWithGradients.name == "gibbs_with_gradients"
    step = instantiate_steppers(
        discrete,
        steps=[],
        selected_steps={pmd.GibbsWithGradients: list(discrete.value_vars)},
        step_kwargs={"gibbs_with_gradients": {"n_flips": 2}},
        initial_point=discrete.initial_point(),
        compile_kwargs={"mode": "FAST_COMPILE"},
    )
    assert isinstance(step, pmd.GibbsWithGradients)
    assert step.n_flips == 2
    pmd.GibbsWithGradients(
        model=discrete, blocked=True, rng=np.random.default_rng(1), initial_point=None, compile_kwargs=None
    )


def test_automatic_assignment_is_untouched(discrete):
    assert pmd.GibbsWithGradients not in STEP_METHODS
    assert pmd.GibbsWithGradients._competence(discrete.value_vars, [False] * 3) == [0, 0, 0]


# ---------------------------------------------------------------- one draw
def read_only(model, order):
    start = model.initial_point()
    point = OrderedDict((name, np.array(start[name])) for name in order)
    for value in point.values():
        value.flags.writeable = False
    return point


def test_point_in_point_out(discrete, fresh):
    order = ["k", "x", "z"]  # not the block's order
    step, point = fresh, read_only(discrete, order)
    before = {k: v.copy() for k, v in point.items()}
    for new, _ in walk(step, point):
        assert list(new) == order
        assert new is not point
        for name in order:
            assert isinstance(new[name], np.ndarray)
            assert (new[name].dtype, new[name].shape) == (before[name].dtype, before[name].shape)
            assert not np.shares_memory(new[name], point[name])
    assert all(np.array_equal(point[k], before[k]) for k in before)


def test_other_variables_are_passed_on(mixed):
    step, point = ready(mixed, vars="z"), read_only(mixed, ["s_log__", "z", "mu", "x"])
    new, _ = step.step(point)
    assert list(new) == ["s_log__", "z", "mu", "x"]
    assert all(np.array_equal(new[k], point[k]) for k in ("s_log__", "mu", "x"))


def test_statistics(discrete, fresh):
    step = fresh
    declared = step.stats_dtypes_shapes
    point = discrete.initial_point()
    for new, stats in walk(step, point, 20):
        assert stats.keys() == declared.keys()
        for name, (dtype, shape) in declared.items():
            assert shape == []
            assert np.isscalar(stats[name])
            assert np.result_type(type(stats[name])) == np.dtype(dtype)
        assert 0 <= stats["accept"] <= 1
        assert 0 <= stats["accepted"] <= 1
        assert stats["discrete_n_moved"] == sum(int(np.sum(new[k] != point[k])) for k in point)
        point = new
    assert not declared.keys() & {"acceptance_rate", "n_steps", "lp"}  # NUTS's
    assert step.stats_dtypes == [{k: dtype for k, (dtype, _) in declared.items()}]


# ---------------------------------------------------------------- pm.sample
def test_alone(discrete, compiled):
    idata = sample_with_pymc(discrete, compiled)
    for name, shape in {"x": (2, 40, 2, 2), "z": (2, 40), "k": (2, 40)}.items():
        assert idata["posterior"][name].shape == shape
        assert idata["posterior"][name].dtype == np.int64
    stats = idata["sample_stats"]
    assert stats["discrete_n_moved"].dtype == np.int64
    assert {"accept", "accepted", "discrete_n_moved", "lp"} <= set(stats.data_vars)
    assert np.allclose(stats["lp"].values, logp_of(discrete, idata), atol=1e-10)


@pytest.mark.slow
def test_dims_and_imputed():
    with pm.Model(coords={"site": ["a", "b", "c"]}) as model:
        z = pm.Bernoulli("z", 0.4, dims="site")
        y = np.ma.masked_array([0, 0, 2], mask=[False, True, False])
        with pytest.warns(match="impute"):
            pm.Poisson("y", 1.0 + z, observed=y, dims="site")
    posterior = sample_with_pymc(model, pmd.GibbsWithGradients, draws=10, tune=0)["posterior"]
    assert posterior["z"].dims == ("chain", "draw", "site")
    assert list(posterior["z"].coords["site"].values) == ["a", "b", "c"]
    assert posterior["y_unobserved"].dtype == np.int64


NUTS = lambda m: pm.NUTS([m["mu"], m["s"]], **FAST)
GWG = pmd.GibbsWithGradients
BLOCKS = {
    "then NUTS": lambda m: GWG(),  # PyMC adds NUTS after the steps that it is given
    "Slice and two of ours": lambda m: [pm.Slice([m["mu"], m["s"]], **FAST), GWG("x"), GWG("z")],
    "between": lambda m: [GWG("x"), NUTS(m), GWG("z", n_flips=2)],
    "PyMC's discrete": lambda m: [
        pm.Slice([m["mu"], m["s"]], **FAST),
        pm.BinaryGibbsMetropolis([m["x"]], **FAST),
        GWG("z"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    BLOCKS.values(),
    ids=BLOCKS,
)
def test_beside_other_steps(mixed, steps, capsys):
    idata = sample_with_pymc(mixed, lambda: steps(mixed), draws=25, tune=15, progressbar=True)
    assert re.search(r"Acc\S*\s+Mov", "".join(capsys.readouterr()))
    assert np.allclose(lp_of(idata), logp_of(mixed, idata), atol=1e-10)
    for name, values in draws_of(idata).items():
        assert np.isfinite(values).all()
        assert (values != values[:, :1]).any(), f"{name} never moved"


def test_progress_bar(discrete, compiled, capsys):
    sample_with_pymc(discrete, compiled, progressbar=True)
    shown = "".join(capsys.readouterr())
    assert re.search(r"Acc\S*\s+Mov", shown)
    columns, start = compiled._progressbar_config(2)
    assert [c.get_table_column().header for c in columns] == ["Accept", "Moved"]
    (update,) = compiled._make_progressbar_update_functions()
    _, stats = walk(compiled, discrete.initial_point(), 1)[0]
    assert update(stats).keys() == start.keys()


# ---------------------------------------------------------------- chains, state, processes
def test_setup_chain_starts_anew(discrete, fresh):
    step, point = fresh, discrete.initial_point()
    first = walk(step, point)
    step.stop_tuning()
    assert not step.tune
    step.setup_chain(np.random.default_rng(0), tune=5, draws=5)
    assert step.tune
    assert not step.checked
    assert equal_walks(first, walk(step, point))
    step.setup_chain(np.random.default_rng(1), tune=0, draws=5)
    assert not step.tune
    assert not equal_walks(first, walk(step, point))


def test_chains_are_what_their_seeds_promise(discrete, compiled):
    both = sample_with_pymc(discrete, compiled, random_seed=7)
    assert same_draws(
        both, sample_with_pymc(discrete, compiled, random_seed=7)
    )  # nothing is left of the chains before
    two, one = (
        draws_of(both),
        draws_of(sample_with_pymc(discrete, pmd.GibbsWithGradients, chains=1, random_seed=7)),
    )
    assert all(np.array_equal(two[k][:1], one[k]) for k in two)
    assert not same_draws({k: v[0] for k, v in two.items()}, {k: v[1] for k, v in two.items()})


def test_sampling_state(discrete, fresh):
    step, point = fresh, discrete.initial_point()
    point = walk(step, point)[-1][0]
    state = pickle.loads(pickle.dumps(step.sampling_state))
    rest = walk(step, point)
    other = ready(discrete, seed=99)
    other.sampling_state = state
    assert other.sampling_state == state
    assert equal_walks(rest, walk(other, point))
    step.sampling_state = state  # rewound
    assert equal_walks(rest, walk(step, point))


@pytest.mark.parametrize("options", [{"n_flips": 2}, {"balancing": "barker"}, {"transitions": 3}], ids=str)
@pytest.mark.parametrize("vars", [None, ["x", "z"]])
def test_sampling_state_of_another_step(discrete, options, vars):
    state = pmd.GibbsWithGradients(vars, model=discrete).sampling_state
    with pytest.raises(ValueError, match="frozen"):
        pmd.GibbsWithGradients(vars, model=discrete, **options).sampling_state = state


def test_sampling_state_of_other_variables(discrete):
    """Some of them are drawn in turn, and all ahead."""
    state = pmd.GibbsWithGradients(["x", "z"], model=discrete).sampling_state
    with pytest.raises(ValueError, match="frozen"):
        pmd.GibbsWithGradients(["x", "k"], model=discrete).sampling_state = state
    with pytest.raises(AssertionError, match="state class"):
        pmd.GibbsWithGradients(model=discrete).sampling_state = state


def test_cloudpickle(small):
    step, point = ready(small, n_flips=2, balancing="barker", transitions=3), small.initial_point()
    walk(step, point)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    assert not {"target", "_draw"} & copy.__dict__.keys()
    assert copy.model is not small
    assert (copy.n_flips, copy.balancing, copy.transitions) == (2, "barker", 3)
    assert [v.name for v in copy.vars] == ["x", "k"]
    assert all(v in copy.model.value_vars for v in copy.vars)
    assert equal_walks(walk(step, point), walk(copy, point))
    assert copy.sampling_state == step.sampling_state


@pytest.mark.slow
def test_parallel_chains_equal_sequential_ones(small):
    """Of workers of a server of forks; tests/steps/test_served.py has the other ways to start them."""
    one = sample_with_pymc(small, pmd.GibbsWithGradients, random_seed=5)
    two = sample_with_pymc(small, pmd.GibbsWithGradients, random_seed=5, cores=2, mp_ctx=forkserver())
    assert same_draws(one, two)
    assert np.array_equal(one["sample_stats"]["lp"].values, two["sample_stats"]["lp"].values)


# ---------------------------------------------------------------- data that change
def with_data():
    with pm.Model(coords={"site": range(3)}) as model:
        y = pm.Data("y_data", np.zeros(3), dims="site")
        n = pm.Data("n", np.array(2))
        x = pm.Bernoulli("x", 0.5, dims="site")
        k = pm.Binomial("k", n=n, p=0.9)
        pm.Normal("y", 10 * x - 5 + 0.01 * k, 1, observed=y, dims="site")
    return model


@pytest.mark.slow
def test_changed_data_are_seen():
    """By the same step, and where shapes have changed, too, by a new one."""
    model = with_data()
    step = pmd.GibbsWithGradients(model=model)
    for data, n, x in [([-5, -5, -5], 2, 0), ([5, 5, 5], 9, 1), ([-5, -5, -5, -5, -5], 4, 0)]:
        pm.set_data(
            {"y_data": np.array(data, float), "n": np.array(n)},
            model=model,
            coords={"site": range(len(data))},
        )
        new = [pmd.GibbsWithGradients(model=model)] if len(data) == 5 else []
        for one in [step, *new]:
            idata = sample_with_pymc(model, one)
            posterior = idata["posterior"]
            assert posterior["x"].shape == (2, 40, len(data))
            assert (posterior["x"] == x).all()
            assert posterior["k"].max() == n
            assert np.allclose(lp_of(idata), logp_of(model, idata))


@pytest.mark.slow
def test_transitions_follow_the_data():
    with pm.Model() as model:
        y = pm.Data("data", np.zeros(3))
        pm.Normal("y", pm.Bernoulli("x", 0.5, shape=y.shape), 1, observed=y)
    step = ready(model)
    step.step(model.initial_point())
    pm.set_data({"data": np.zeros(300)}, model=model)
    step.setup_chain(np.random.default_rng(0), tune=0, draws=1)
    step.step(model.initial_point())
    assert step.transitions == pmd.GibbsWithGradients(model=model).transitions >= 300


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_transitions_do_not_count_what_is_tabulated_once():
    found = []
    for n in (40, 400):
        with pm.Model() as model:
            tau = pm.DiscreteUniform("tau", 0, 20)
            rate = pt.switch(tau >= np.arange(n), 1.0, 2.0)
            pm.Poisson("y", rate, observed=np.ma.array(np.ones(n, int), mask=np.arange(n) == 5))
        found.append(pmd.GibbsWithGradients(model=model).transitions)
    assert found[0] == found[1] > 2


# ---------------------------------------------------------------- where a chain may start
def n_mixture():
    y = np.array([4, 7, 0, 25])
    with pm.Model() as model:
        lam = pm.Gamma("lam", 2, 0.2)
        N = pm.Poisson("N", lam, shape=len(y), initval=y + 3)
        pm.Binomial("y", n=N, p=0.5, observed=y)
    return model


@pytest.mark.parametrize("start", [[0, 0, 0, 0], [3, 7, 5, 24], [10, 6, 0, 90]], ids=str)
@pytest.mark.by_default("[10, 6, 0, 90]")
def test_an_impossible_start_is_left(start):
    model = n_mixture()
    step, f = ready(model, vars="N"), model.compile_logp(mode="FAST_COMPILE")
    walked = walk(step, {**model.initial_point(), "N": np.array(start)}, 20)
    with np.errstate(all="ignore"):
        assert np.allclose([s["model_logp"] for _, s in walked], [f(p) for p, _ in walked])
    point, stats = walked[-1]
    assert np.isfinite(stats["model_logp"])
    assert (point["N"] >= [4, 7, 0, 25]).all()


@pytest.mark.slow
def test_initvals(discrete):
    idata = sample_with_pymc(
        discrete, lambda: pmd.GibbsWithGradients(transitions=1), draws=3, tune=0, initvals={"k": 90}
    )
    chains = np.hstack([np.full((2, 1), 90), idata["posterior"]["k"]])
    assert (np.abs(np.diff(chains)) <= 16).all()  # the farthest of the neighbours
    with pytest.raises(SamplingError, match="z"):
        sample_with_pymc(discrete, pmd.GibbsWithGradients, initvals={"z": 3})


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.inf, r"'guilty' \(inf\)"), (np.nan, r"of shape \(\) that it reads holds nan")],
)
def test_infinite_density_names_its_term(value, message):
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full(3, 0.4))
        pm.Potential("fine", x.sum() * 0.1)
        pm.Potential("guilty", pt.switch(x.sum() > 2, value, 0.0))
    with pytest.raises(SamplingError, match=message) as raised:
        ready(model).step({"x": np.ones(3, int)})
    assert "fine" not in str(raised.value)
