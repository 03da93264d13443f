"""Which sites are certain whatever the rest of the model is, and which something holds at their value."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.diagnostics.known.leaving import leaving
from pymc_discrete.diagnostics.watch import Watch
from pymc_discrete.engine.discrete import DiscreteBlock
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.summed import SummedBlock

pytestmark = pytest.mark.shares_programs

COUNTS = np.random.default_rng(0).poisson(18, 20)


def found(model, point, names=None, complete=True):
    """{variable: Leaving} where a chain that steps in the variables `names` ended at a point."""
    point = model.initial_point() | {name: np.asarray(value) for name, value in point.items()}
    return leaving(pmd.target_from_model(model, names), model, [point, point], joint=False, complete=complete)


def animals():
    """Those that were seen are there, whatever the probability of detection is."""
    psi, p = pm.Beta("psi", 1, 1), pm.Beta("p", 1, 1)
    z = pm.Bernoulli("z", psi, shape=4)
    pm.Bernoulli("y", z[:, None] * p, observed=[[1, 0], [0, 1], [0, 0], [0, 0]])
    return {"z": [1, 1, 0, 1]}, {"z": [True, True, False, False]}


def counts_that_are_all_seen():
    N = pm.Poisson("N", pm.Gamma("rate", 2, 0.2), shape=3)
    pm.Binomial("y", N, np.array([1.0, 0.5, 1.0]), observed=[3, 4, 5])
    return {"N": [3, 6, 5]}, {"N": [True, False, True]}


def multiples_of_three():
    """None of the values that a step tries is possible, and others are."""
    N = pm.Poisson("N", pm.Gamma("rate", 2, 0.2))
    pm.Potential("three", pt.switch(pt.eq(N % 3, 0), 0.0, -np.inf))
    return {"N": 3}, {"N": [False]}


def captures():
    """Alive at the last capture, and so before; after it, who knows."""
    z = pm.Bernoulli("z0", 1.0, initval=1)
    phi, certain = pm.Beta("phi", 1, 1), {}
    for t in range(1, 7):
        z = pm.Bernoulli(f"z{t}", phi * z, initval=1)
        pm.Bernoulli(f"y{t}", 0.4 * z, observed=int(t == 4))
        certain[f"z{t}"] = [t <= 4]
    return {}, certain


def improbable_whatever_else():
    pm.Bernoulli("z", [1e-12, 0.3])
    pm.Poisson("N", 1e-12)
    return {"z": [0, 0], "N": 0}, {"z": [True, False], "N": [True]}


def alike(size, hard=True):
    """All have the same value: each is held by the others."""
    z = pm.Bernoulli("z", 0.5, shape=size)
    pm.Potential("alike", pt.switch(pt.eq(z[1:], z[:-1]), 0.0, -np.inf if hard else -40.0).sum())
    return {"z": np.ones(size, int)}, {"z": [False] * size}


def alike_in_all_pairs():
    z = pm.Bernoulli("z", 0.5, shape=9)
    i, j = np.triu_indices(9, 1)
    pm.Potential("alike", pt.switch(pt.eq(z[i], z[j]), 0.0, -np.inf).sum())
    return {"z": np.ones(9, int)}, {"z": [False] * 9}


def a_sum():
    z = pm.Categorical("z", np.full(8, 1 / 8), shape=4)
    pm.Potential("ten", pt.switch(pt.eq(z.sum() % 16, 10), 0.0, -np.inf))
    return {"z": [3, 3, 3, 1]}, {"z": [False] * 4}


def an_exact_sum_of_nothing():
    """Only one state has the sum, which no site knows alone: it is not said to be certain."""
    z = pm.Categorical("z", np.full(3, 1 / 3), shape=3)
    pm.Normal("y", z.sum(), 0.01, observed=0.0)
    return {"z": [0, 0, 0]}, {"z": [False] * 3}


def a_cut():
    """A continuous variable that stands where one value is impossible, and may go elsewhere."""
    x = pm.Normal("x", 0, 100)
    z = pm.Bernoulli("z", 0.5)
    pm.Potential("cut", pt.switch((x > 50) & pt.eq(z, 0), -np.inf, 0.0))
    return {"x": 150.0, "z": 1}, {"z": [False]}


def models():
    k, mu = pm.Bernoulli("k", 0.5), pm.Uniform("mu", 0, 5000, shape=2)
    pm.Poisson("y", pt.switch(k, mu[1], mu[0]), observed=COUNTS)
    return {"k": 1, "mu_interval__": np.array([0.0, np.log(18 / 4982)])}, {"k": [False]}


@pytest.mark.parametrize(
    "build",
    [
        animals,
        counts_that_are_all_seen,
        multiples_of_three,
        captures,
        improbable_whatever_else,
        partial(alike, 2),
        partial(alike, 6),
        partial(alike, 6, hard=False),
        alike_in_all_pairs,
        a_sum,
        an_exact_sum_of_nothing,
        a_cut,
        models,
    ],
)
@pytest.mark.by_default("a_cut", "alike_in_all_pairs", "animals", "a_sum")
def test_certain_is_what_nothing_can_change(build):
    with pm.Model() as model:
        point, certain = build()
    of = found(model, point)
    assert {name: of[name].is_certain.tolist() for name in certain} == certain


def test_an_edge_of_probability_0_has_one_value():
    with pm.Model() as model:
        P = np.array([[0.0, 0.5], [0.3, 1.0]])
        G = pm.Bernoulli("G", P)
        c = pm.Categorical("c", np.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]))
        pm.Normal("s", G.sum() + c.sum(), 1, observed=2.0)
    of = found(model, {"G": [[0, 1], [0, 1]], "c": [1, 1]})
    assert of["G"].several.tolist() == [False, True, True, False]
    assert of["c"].several.tolist() == [False, True]


def summed_out(model, point, names):
    """As `found`, of variables that are summed out."""
    collapsed = Collapsed.of(model, names)
    return SummedBlock(collapsed, Points([collapsed.density.space]), {}).leaving([point, point])


@pytest.mark.parametrize("known_of", [partial(found, complete=False), summed_out])
def test_what_no_term_of_a_site_reads_cannot_hold_it(known_of):
    """Neither a discrete variable of another step, nor the one that this depends on."""
    with pm.Model() as model:
        state, certain = animals()
        pm.Bernoulli("w", pm.Beta("rate", 1, 1))
    point = model.initial_point() | {name: np.asarray(value) for name, value in state.items()}
    assert known_of(model, point, ["z"])["z"].is_certain.tolist() == certain["z"]


def test_what_another_step_draws_may_hold_a_site():
    with pm.Model() as model:
        a, b = pm.Bernoulli("a", 0.5), pm.Bernoulli("b", 0.5)
        pm.Potential("alike", -50.0 * pt.neq(a, b))
    of = found(model, {"a": 1, "b": 1}, ["a"], complete=False)
    assert not of["a"].is_certain.any()
    assert not of["a"].joint


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [(pmd.BlockGibbs, {"k": True, "n": False}), (pmd.GibbsWithGradients, {"k": False, "n": False})],
)
def test_independent_sites_are_drawn_exactly_by_conditionals_only(kind, drawn):
    """Of n, which has no bound, a draw looks at some values; a step that may reject draws nothing exactly."""
    with pm.Model() as model:
        pm.DiscreteUniform("k", 0, 5, shape=3)
        pm.Poisson("n", 4.0)
        step = kind()
    block = DiscreteBlock(step, 0, Points([step.target.space]))
    of = block.leaving([model.initial_point()])
    assert {name: known.joint for name, known in of.items()} == drawn


def test_an_index_of_models_and_what_it_holds():
    """Of two indices each has parameters of its own; of labels, which share theirs, none holds them alone."""
    with pm.Model(coords={"side": ["left", "right"]}) as model:
        k = pm.Bernoulli("k", 0.5, shape=2)
        mu = pm.Normal("mu", 0, 100, dims="side")
        other = pm.Normal("other", 0, 100, shape=2)
        z = pm.Bernoulli("z", 0.5, shape=6)
        pm.Normal("x", pt.switch(k, mu, other), 1.0, observed=[3.0, 5.0])
        pm.Normal("y", mu[z], 0.01, observed=[3.0, 3.0, 3.0, 5.0, 5.0, 5.0])
    state = {"k": [1, 1], "mu": [3.0, 5.0], "other": [77.0, -33.0], "z": [0, 0, 0, 1, 1, 1]}
    of = found(model, state)
    assert of["k"].is_alone.tolist() == [True, True]
    assert not of["z"].is_alone.any()
    assert set(of["k"].by) == {"mu", "other"}
    assert of["k"].unused == ("other[0]", "other[1]")
    assert not of["k"].is_certain.any()
    assert of["k"].joint
    assert of["z"].joint


def test_models_that_each_have_parameters_of_their_own():
    """Another value of the index begins to use one parameter, and ends to use the other."""
    with pm.Model() as model:
        state, _ = models()
    of = found(model, state)["k"]
    assert of.is_among_models.tolist() == [True]
    assert of.unused == ("mu[0]",)


def said_of_visits(build, visits):
    """What a chain of `pm.sample` says of `k`, whose draws are 1 in some stretches (begin, end)."""
    with pm.Model() as model:
        state = build()
    state = state[0] if isinstance(state, tuple) else state
    point = model.initial_point() | {name: np.asarray(value) for name, value in state.items()}
    target = pmd.target_from_model(model)
    k = np.full(1000, state["k"])
    for begin, end in visits:
        k[begin:end] = 1 - state["k"]
    watch = Watch(target.space, model, False, True, len(k), k[:1], point)
    for value in k:
        watch.note(np.array([value]), point)
    return [line for line in watch.conclusions(target, point) if "'k'" in line]


def test_a_chain_says_that_it_hardly_visits_other_models():
    (line,) = said_of_visits(models, [(100, 102), (400, 405), (800, 801)])
    assert line.startswith(
        "'k' changed only 6 times in the 1000 draws of a chain, and where it ended it cannot: whatever R-hat"
    )
    assert "'mu[0]' does not enter the likelihood" in line
    assert "pmd.log_evidence" in line


@pytest.mark.parametrize("visits", [[], [(n, n + 1) for n in range(0, 1000, 3)]])
def test_a_chain_that_stays_or_moves_often_does_not(visits):
    assert not [line for line in said_of_visits(models, visits) if "changed only" in line]


def test_a_chain_does_not_say_it_of_what_is_no_index_of_models():
    assert not said_of_visits(a_coefficient_and_its_indicator, [(100, 102)])


def a_coefficient_and_its_indicator():
    """A model without the coefficient has no parameter that the other has not."""
    k, beta = pm.Bernoulli("k", 0.5), pm.Normal("beta", 0, 10)
    pm.Normal("y", k * beta, 0.01, observed=np.zeros(20))
    return {"k": 0, "beta": 7.0}


def an_empty_component():
    """Any point may join it: none of them holds its mean, and the mean holds none."""
    z, mu = pm.Bernoulli("z", 0.5, shape=3), pm.Normal("mu", 0, 100, shape=2)
    pm.Normal("y", mu[z], 1.0, observed=np.zeros(3))
    return {"z": [0, 0, 0], "mu": [0.0, 90.0]}


def a_change_in_the_middle():
    tau, mu = pm.DiscreteUniform("tau", 0, 30), pm.Normal("mu", 0, 100, shape=2)
    pm.Normal("y", mu[pt.ge(np.arange(30), tau).astype(int)], 1.0, observed=np.repeat([0.0, 60.0], 15))
    return {"tau": 15, "mu": [0.0, 60.0]}


@pytest.mark.parametrize(
    "build", [a_coefficient_and_its_indicator, an_empty_component, a_change_in_the_middle]
)
@pytest.mark.by_default("an_empty_component")
def test_what_does_not_choose_among_such_models(build):
    with pm.Model() as model:
        state = build()
    (of,) = found(model, state).values()
    assert not of.is_among_models.any()


def in_a_prior_beside_data():
    x = pm.Normal("x", 0, 1)
    pm.Normal("y", x**2, 0.1, observed=4.0)
    return x


def in_a_prior_alone():
    return pm.Normal("x", 0, 1)


def of_another_parameter():
    x = pm.Normal("x", 0, 1)
    pm.Normal("y", pm.Normal("mu", x, 1.0), 0.1, observed=2.0)
    return x


@pytest.mark.by_default("found-in_a_prior_beside_data", "known_of1-of_another_parameter")
@pytest.mark.parametrize("build", [in_a_prior_beside_data, in_a_prior_alone, of_another_parameter])
@pytest.mark.parametrize("known_of", [found, partial(summed_out, names=["z"])])
def test_what_a_prior_reads_is_no_parameter_of_a_model(build, known_of):
    """At x = 2 the prior is so sure of z that x changes it by nothing."""
    with pm.Model() as model:
        pm.Bernoulli("z", pm.math.sigmoid(50 * build()))
    of = known_of(model, model.initial_point() | {"x": np.array(2.0), "z": np.array(1)})["z"]
    assert of.by == ("x",)
    assert of.unused == ()


def test_what_is_unused_where_any_chain_ended():
    """The first chain is in the model that has the parameter, and may leave it; the other is held."""
    with pm.Model() as model:
        k, b = pm.Bernoulli("k", 0.5), pm.HalfNormal("b", 500.0)
        pm.Normal("y", pt.switch(k, b, 4.99), 1.0, observed=np.full(30, 5.0))
    ends = [{"k": 1, "b_log__": np.log(5.0)}, {"k": 0, "b_log__": np.log(500.0)}]
    points = [{name: np.asarray(value) for name, value in end.items()} for end in ends]
    target = pmd.target_from_model(model)
    of = leaving(target, model, points, joint=False, complete=True)["k"]
    assert of.probability[0] > 1e-3 > of.probability[1]
    assert of.unused == ("b",)


def test_values_without_parameters_of_their_own_hold_what_they_share():
    """Twice the rate, or the rate: there is no unused parameter, and two modes all the same."""
    with pm.Model() as model:
        k, rate = pm.Bernoulli("k", 0.5), pm.Uniform("rate", 0, 5000)
        pm.Poisson("y", rate * (1 + k), observed=np.tile(COUNTS, 20))
        pm.Normal("effects", shape=100)  # many others change nothing
        pm.Normal("seen", model["effects"], 1.0, observed=np.zeros(100))
    of = found(model, {"k": 1, "rate_interval__": np.log(9 / 4991)})
    assert of["k"].is_alone.tolist() == [True]
    assert of["k"].by == ("rate_interval__",)
    assert of["k"].unused == ()
