"""Totals in the place of counts: the same log density, one state for one state."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_discrete.differences.from_model import density_of
from pymc_discrete.model import totals
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.totals import bounds_of_totals, counts_of_totals, totals_in
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.space.target import Target
from tests.tools.interpreted import interpreted

ROUNDING = 1e-6  # PyMC takes the logarithm of 0.5 in 32 bits


def open_population(years=3, sites=2):
    """Survivors and recruits of each year, of which only the sum is read again."""
    with pm.Model() as model:
        N = pm.Poisson("N", 2, shape=sites)
        for t in range(1, years):
            alive = pm.Binomial(f"alive_{t}", N, 0.6, shape=sites)
            N = alive + pm.Poisson(f"new_{t}", 1.5, shape=sites)
        pm.Binomial("seen", N, 0.5, observed=np.arange(sites))
    return model


def nested():
    """A total of a total, and data in it."""
    with pm.Model() as model:
        a = pm.Binomial("a", 4, 0.4, shape=2)
        b = pm.Poisson("b", 1.0, shape=2)
        c = pm.Binomial("c", 3, 0.7, shape=2)
        first = a + b
        pm.Poisson("y", 1.0 + first, observed=[1, 2])
        pm.Binomial("left", first + c + pm.Data("moved", [1, 2]), 0.5, observed=[1, 0])
    return model


def removals():
    """A difference, of which the removals depend on what is there."""
    with pm.Model() as model:
        N = pm.Binomial("N", 6, 0.6)
        gone = pm.Binomial("gone", N, 0.3)
        left = N - gone
        pm.Poisson("y", pt.exp(-left), observed=1)
        pm.Binomial("more", left + 1, 0.5, observed=1)
    return model


def growth_by_head():
    """Recruits whose number depends on last year's population."""
    with pm.Model() as model:
        N = pm.DiscreteUniform("N", 1, 4)
        alive = pm.Binomial("alive", N, 0.5)
        now = alive + pm.Poisson("new", 0.5 * N)
        pm.Deterministic("now", now)
        pm.Poisson("y", now + 0.1, observed=2)
    return model


def with_an_array():
    """A total to which arrays are added, of ones and of data."""
    with pm.Model() as model:
        total = pm.Binomial("a", 3, 0.4) + pm.Poisson("b", 0.5)
        pm.Potential("ones", -0.3 * (total + np.ones(3, int)))
        pm.Potential("twice", -0.1 * (total + pm.Data("more", [1, 2])))
    return model


def mixtures():
    """Parts whose log density has no derivative where they are negative."""
    with pm.Model() as model:
        theta, p = pm.Gamma("theta", 2, 1), pm.Beta("p", 2, 2)
        total = pm.ZeroInflatedPoisson("a", psi=p, mu=theta, shape=2) + pm.Poisson("b", 1.3 * p, shape=2)
        pm.Binomial("y", total, 0.5, observed=[2, 0])
        few = pm.Binomial("c", 3, p) + pm.ZeroInflatedBinomial("d", psi=p, n=2, p=0.3)
        pm.Poisson("z", few + 0.5, observed=1)
    return model


MODELS = {
    "with an array": (with_an_array, {"b": ["a", "b"]}),
    "mixtures": (mixtures, {"b": ["a", "b"], "d": ["c", "d"]}),
    "open population": (open_population, {"new_1": ["alive_1", "new_1"], "new_2": ["alive_2", "new_2"]}),
    "nested": (nested, {"b": ["a", "b"], "c": ["a", "b", "c"]}),
    "removals": (removals, {"gone": ["N", "gone"]}),
    "growth by head": (growth_by_head, {"new": ["alive", "new"]}),
}


def names_of(model):
    return [str(v.name) for v in model.discrete_value_vars]


def found_in(model):
    return totals_in(model, names_of(model), point_of(model))


def density(model, found):
    with model_settings():
        block = DescribedModel(model).block(names_of(model), totals=found)
        return density_of(block, "exact", "auto", False)


@cache
def made(name):
    """A model, the totals in it and its density, which no test changes."""
    model = MODELS[name][0]()
    found = found_in(model)
    return model, found, density(model, found)


@cache
def oracle(name):
    """The log density of a model, by PyMC."""
    return made(name)[0].compile_logp(mode="FAST_COMPILE")


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_as_a_part_of_one_total_alone_is_found(name):
    assert {count: sorted(parts) for count, parts in made(name)[1].items()} == MODELS[name][1]


def test_a_difference_has_signs():
    assert found_in(removals()) == {"gone": {"N": 1, "gone": -1}}


def part_is_read_elsewhere():
    with pm.Model() as model:
        a, b = pm.Poisson("a", 2), pm.Poisson("b", 2)
        pm.Poisson("y", 1.0 + a + b, observed=3)
        pm.Poisson("of a", 1.0 + a, observed=1)
        pm.Poisson("of b", 1.0 + b, observed=1)
    return model


def in_two_totals():
    with pm.Model() as model:
        a, b, c = (pm.Poisson(n, 2) for n in "abc")
        pm.Poisson("y", 1.0 + (a + b), observed=3)
        pm.Poisson("z", 1.0 + (b + c) + (a + c), observed=3)
    return model


def labels():
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5]) + pm.Bernoulli("b", 0.3)
        pm.Poisson("y", 1.0 + z, observed=3)
    return model


def of_other_shapes():
    with pm.Model() as model:
        z = pm.Poisson("a", 2, shape=3) + pm.Poisson("b", 2)
        pm.Poisson("y", 1.0 + z, observed=[3, 2, 1])
    return model


def twice_a_count():
    with pm.Model() as model:
        z = 2 * pm.Poisson("a", 2) + 3 * pm.Poisson("b", 2)
        pm.Poisson("y", 1.0 + z, observed=3)
    return model


def counts_of_a_limit_that_is_random():
    with pm.Model() as model:
        a, b = pm.Poisson("a", 2), pm.Poisson("b", 2)
        pm.Poisson("y", 1.0 + (a + b + pm.math.floor(pm.Normal("x")).astype("int64")), observed=3)
    return model


def with_an_array_of_zeros():
    """The total of two scalars, three times."""
    with pm.Model() as model:
        total = np.zeros(3, int) + pm.Poisson("a", 2) + pm.Poisson("b", 2)
        pm.Poisson("y", 1.0 + total, observed=[3, 2, 1])
    return model


@pytest.mark.parametrize(
    "build",
    [part_is_read_elsewhere, in_two_totals, labels, of_other_shapes, twice_a_count, with_an_array_of_zeros],
)
def test_what_is_read_in_another_way_stays_as_it_is(build):
    assert found_in(build()) == {}


def test_a_total_of_counts_alone_may_be_a_part_of_a_random_sum():
    assert found_in(counts_of_a_limit_that_is_random()) == {"b": {"a": 1, "b": 1}}


def at_random(density, n=40, seed=0):
    """Points of the model about its support, some of them impossible."""
    r, start = np.random.default_rng(seed), [(k, np.asarray(v)) for k, v in density.start.items()]
    return [
        {name: value if value.dtype.kind == "f" else r.integers(-1, 6, value.shape) for name, value in start}
        for _ in range(n)
    ]


def largest_difference(logp, of):
    inputs = [np.asarray(i) for i in of.default_inputs()]

    @interpreted
    def ours(x, inputs):
        target = Target(of).with_inputs(inputs)
        return target.logdensity(x) + of.rest(target.context)

    worst, possible = 0.0, 0
    for point in at_random(of):
        want = float(logp(point))
        got = float(ours(of.space.ravel(point), inputs))
        assert (got == -np.inf) == (want == -np.inf)
        if want > -np.inf:
            worst, possible = max(worst, abs(got - want)), possible + 1
    assert possible >= 3
    return worst


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.by_default("growth by head", "nested")
def test_the_log_density_is_that_of_the_model(name):
    with model_settings():
        assert largest_difference(oracle(name), made(name)[2]) < ROUNDING


def test_a_sign_that_is_wrong_is_noticed(monkeypatch):
    monkeypatch.setattr(
        totals,
        "counts_of_totals",
        lambda found: {k: {p: abs(c) for p, c in v.items()} for k, v in counts_of_totals(found).items()},
    )
    model = removals()
    logp, of = model.compile_logp(mode="FAST_COMPILE"), density(model, found_in(model))
    with model_settings(), pytest.raises(AssertionError):
        assert largest_difference(logp, of) < ROUNDING


@pytest.mark.parametrize("name", MODELS)
def test_sites_and_values_are_one_for_one(name):
    _, _, of = made(name)
    for point in at_random(of, 5):
        back = of.space.unravel(of.space.ravel(point))
        assert all((back[n] == value).all() for n, value in point.items() if n in back)


def test_chains_of_sites_are_replaced_at_once():
    space = made("nested")[2].space
    values = np.random.default_rng(0).integers(0, 9, (3, 4, space.d))
    sites = space.of_values(values)
    each = np.stack([space.of_values(v) for v in values.reshape(-1, space.d)])
    assert (sites.reshape(-1, space.d) == each).all()
    assert (space.values_at(sites) == values).all()
    assert not (sites == values).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.by_default("growth by head", "open population")
def test_bounds_hold_all_totals_that_are_possible(name):
    model, found, of = made(name)
    logp = oracle(name)
    bounds = bounds_of_totals(model, found)
    for point in at_random(of, 200):
        if logp(point) > -np.inf:
            x = of.space.ravel(point)
            assert (x >= of.space.lower).all()
            assert (x <= of.space.upper).all()
    assert {
        count: [None if b is None else int(np.max(b)) for b in ends] for count, ends in bounds.items()
    } == {
        "with an array": {"b": [0, None]},
        "mixtures": {"b": [0, None], "d": [0, 5]},
        "open population": {"new_1": [0, None], "new_2": [0, None]},
        "nested": {"b": [0, None], "c": [0, None]},
        "removals": {"gone": [0, 6]},
        "growth by head": {"new": [0, None]},
    }[name]


def test_terms_read_one_site_where_they_read_two():
    model, _, of = made("open population")
    for each, most in ((density(model, {}), 3), (of, 2)):
        plan = each.plan
        widths = [plan.dependence.sparse(term.var).shape[1] for term in plan.sparse]
        assert max(widths) == most
