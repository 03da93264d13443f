"""Marginalised models: log densities, gradients and probabilities against sums over all states."""

import itertools
import logging
import re
from functools import cache

import arviz_base
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse.recover import variables_to_recover
from tests.collapse.models import MODELS, TRUNCATED, Y, counts, labels, prior_of_a_coefficient
from tests.tools.running import saved_and_loaded
from tests.tools.statistics import g_test

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("interpreted_sums")]


def as_tree(posterior):
    return arviz_base.from_dict({"posterior": posterior})


def states_of(start, support):
    """[{variable: value}] of all states of the summed variables, with the shapes of a point."""
    axes = [range(a, b + 1) for name, (a, b) in support.items() for _ in range(np.size(start[name]))]
    states = []
    for values in itertools.product(*axes):
        state, at = {}, 0
        for name in support:
            size = np.size(start[name])
            state[name] = np.reshape(values[at : at + size], np.shape(start[name]))
            at += size
        states.append(state)
    return states


def options_of(name, support):
    return {"truncate": {n: support[n] for n in TRUNCATED[name]}} if name in TRUNCATED else {}


counted = cache(counts)  # of which no test changes the model


@cache
def built(name):
    """A model, its support, and the model without its discrete variables, which no test changes."""
    model, support = MODELS[name]()
    return model, support, pmd.marginalize(model, list(support), **options_of(name, support))


def jittered(point, support, seed):
    r = np.random.default_rng(seed)
    return {
        k: np.asarray(v, float) + 0.4 * r.normal(size=np.shape(v))
        for k, v in point.items()
        if k not in support
    }


@pytest.mark.filterwarnings("ignore:.*float32:UserWarning", "ignore:Data in k contains missing values")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.by_default("occupancy", "effects_of_a_shape", "mediator")
def test_the_log_density_and_its_gradient_are_those_of_the_sum(name):
    model, support, marginal = built(name)
    assert not {v.name for v in marginal.free_RVs} & set(support)
    logp = model.compile_logp(mode="FAST_COMPILE")
    theirs, slope = (f(mode="FAST_COMPILE") for f in (marginal.compile_logp, marginal.compile_dlogp))
    start = model.initial_point()
    states = states_of(start, support)

    def summed(rest):
        return np.logaddexp.reduce([logp({**rest, **state}) for state in states])

    rest = jittered(start, support, 1)
    assert float(theirs(rest)) == pytest.approx(summed(rest), rel=1e-8)
    r, h = np.random.default_rng(2), 1e-4
    direction = {v.name: r.normal(size=np.shape(rest[v.name])) for v in marginal.continuous_value_vars}
    up, down = ({k: rest[k] + s * h * direction[k] for k in rest} for s in (1, -1))
    want = (summed(up) - summed(down)) / (2 * h)
    got = slope(rest) @ np.concatenate([direction[v.name].ravel() for v in marginal.continuous_value_vars])
    assert float(got) == pytest.approx(want, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "rate", [lambda z, b: z * pm.math.exp(b), lambda z, b: pm.math.switch(z, pm.math.exp(b), 0.0)]
)
def test_the_gradient_where_a_rate_is_0(rate):
    """Of mu = 0 the logarithm is infinite, and without influence: a count of 0 is then certain."""
    with pm.Model() as model:
        z, b, p = pm.Bernoulli("z", 0.5, shape=2), pm.Normal("b"), pm.Beta("p", 1, 1)
        pm.Binomial("y", pm.Poisson("N", rate(z, b)), p, observed=[0, 3])
    found = pmd.marginalize(model, vars=["N"], truncate={"N": (0, 40)})
    gradient = found.compile_dlogp(mode="FAST_COMPILE")
    start = {"b": np.array(0.3), "p_logodds__": np.array(-0.4)}
    share, mean = 1 / (1 + np.exp(0.4)), np.exp(0.3)
    for states, rates in (([1, 1], 2), ([0, 1], 1)):  # y is Poisson with the mean z p exp(b)
        by_b = 3 - rates * share * mean - 0.3
        by_p = 3 * (1 - share) - rates * mean * share * (1 - share) + 1 - 2 * share
        np.testing.assert_allclose(gradient({"z": np.array(states), **start}), [by_b, by_p], rtol=1e-8)


def test_python_floats_have_64_bits():
    """PyMC takes the logarithm of a standard deviation 0.5 in 32 bits, and is 4e-9 off here."""
    from scipy.stats import norm

    with pm.Model() as model:
        z, mu = pm.Bernoulli("z", np.float64(0.3)), pm.Normal("mu", np.float64(0), np.float64(1))
        pm.Normal("y", mu + z, 0.5, observed=[1.0, 2.0])
    ours = pmd.marginalize(model).compile_logp(mode="FAST_COMPILE")({"mu": np.array(0.2)})
    terms = [np.log(p) + norm.logpdf([1, 2], 0.2 + k, 0.5).sum() for k, p in enumerate((0.7, 0.3))]
    assert float(ours) == pytest.approx(norm.logpdf(0.2) + np.logaddexp(*terms), abs=1e-12)


@pytest.mark.slow
def test_steps_of_a_scan_are_terms_of_their_own():
    """A chain with more states than are summed one by one, its transitions in a loop of PyTensor."""

    def chain(total):
        with pm.Model() as model:
            P = pm.Dirichlet("P", np.ones((2, 2)), initval=[[0.2, 0.8], [0.6, 0.4]])
            z = pm.Categorical("z", p=[0.3, 0.7], shape=14)
            pm.Potential("transitions", total(P, z))
            pm.Normal("y", z, 1.0, observed=np.resize(Y, 14))
        marginal = pmd.marginalize(model)
        return float(marginal.compile_logp(mode="FAST_COMPILE")(marginal.initial_point()))

    def in_a_loop(P, z):
        given = {"sequences": [z[:-1], z[1:]], "non_sequences": [P], "return_updates": False}
        return pytensor.scan(lambda a, b, P: pt.log(P[a, b]), **given).sum()

    written_at_once = chain(lambda P, z: pt.log(P)[z[:-1], z[1:]].sum())
    assert chain(in_a_loop) == pytest.approx(written_at_once, rel=1e-12)


def test_names_transforms_dimensions_and_start_values_stay():
    model, _ = prior_of_a_coefficient()
    marginal = pmd.marginalize(model)
    assert [v.name for v in marginal.value_vars] == [v.name for v in model.value_vars if v.name != "gate"]
    assert "x" in marginal.named_vars
    model, support = counts()
    model.set_initval(model["lam"], 2.5)
    kept = pmd.marginalize(model, truncate=support)
    assert kept.rvs_to_initial_values[kept["lam"]] == 2.5
    assert "occupied" not in built("occupancy")[2].named_vars


def test_data_that_have_changed_give_no_number():
    with pm.Model() as model:
        x, b = pm.Data("x", Y), pm.Normal("b")
        pm.Normal("y", b * pm.Bernoulli("gate", 0.3) * x, 1.0, observed=Y[::-1])
    marginal = pmd.marginalize(model)
    logp, point = marginal.compile_logp(mode="FAST_COMPILE"), marginal.initial_point()
    assert np.isfinite(logp(point))
    with marginal:
        pm.set_data({"x": Y + 1})
    assert np.isnan(logp(point))


@pytest.mark.slow
def test_pymc_samples_the_model_and_draws_come_back(caplog, tmp_path):
    model, _, marginal = built("occupancy")
    with marginal:
        idata = pm.sample(
            400,
            tune=300,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="pymc.discrete"):
        both = pmd.recover(saved_and_loaded(idata, tmp_path), model, random_seed=2)
    assert not caplog.records
    saved_and_loaded(both, tmp_path)
    observed = {str(rv.name): model.rvs_to_values[rv].eval() for rv in model.observed_RVs}
    assert set(both["observed_data"].data_vars) == set(observed)
    for name, values in observed.items():
        np.testing.assert_array_equal(both["observed_data"][name], values)
    z, p = both["posterior"]["z"], both["probabilities"]["z"]
    assert z.dims == ("chain", "draw", "site")
    assert list(z.coords["site"].values) == list("abcd")
    assert p.dims == ("chain", "site", "z value")
    np.testing.assert_allclose(p.sum("z value"), 1.0)
    np.testing.assert_array_equal(both["posterior"]["occupied"], z.sum("site"))
    np.testing.assert_allclose(p.sel({"site": ["a", "b"], "z value": 1}), 1.0)
    # of each chain, the mean of independent draws given theta
    shares, expected = z.mean("draw"), p.sel({"z value": 1})
    assert (abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / 400) + 1e-12).all()


@pytest.mark.slow
def test_draws_given_the_rest_have_the_probabilities_of_all_states():
    model, support = labels()
    names = [v.name for v in model.continuous_value_vars]
    point = model.initial_point()
    inverse = model.compile_fn(
        model.replace_rvs_by_values([model[n] for n in ("w", "mu", "sd")]),
        inputs=model.value_vars,
        point_fn=True,
        on_unused_input="ignore",
        mode="FAST_COMPILE",
    )
    point["mu"] = np.array([-1.0, 0.3, 1.0])
    assert set(names) < set(point)
    values = dict(zip(("w", "mu", "sd"), inverse(point), strict=True))
    draws = 20_000
    posterior = {k: np.broadcast_to(v, (1, draws, *np.shape(v))) for k, v in values.items()}
    z = pmd.recover(as_tree(posterior), model, random_seed=3)["posterior"]["z"].values[0]
    states = states_of(point, support)
    logp = model.compile_logp(mode="FAST_COMPILE")
    weights = np.array([logp({**point, **state}) for state in states])
    p = np.exp(weights - np.logaddexp.reduce(weights))
    got = np.array([(z == state["z"]).all(1).sum() for state in states])
    often = p * draws >= 5
    assert g_test(np.append(got[often], got[~often].sum()), np.append(p[often], p[~often].sum())) > 1e-3


@pytest.mark.slow
def test_a_truncated_sum_that_leaves_out_mass_is_said(caplog):
    model, _ = counted()
    posterior = {"lam": np.full((1, 3), 6.0), "p": np.full((1, 3), 0.4)}
    with caplog.at_level(logging.WARNING, logger="pymc.discrete"):
        pmd.recover(as_tree(posterior), model, truncate={"N": (0, 8)})
        assert "leaves out" in caplog.text
        assert re.search(r"above 8 in some draw, and \S+ in the mean over draws", caplog.text)
        caplog.clear()
        pmd.recover(as_tree(posterior), model, truncate={"N": (0, 60)})
        assert not caplog.text


# ---------------------------------------------------------------- bad input
def dense(n=40):
    with pm.Model() as model:
        b = pm.Normal("b", shape=n)
        z = pm.Bernoulli("z", 0.4, shape=n)
        pm.Normal("y", pm.math.exp((b * z).sum()), 1.0, observed=0.7)
    return model


def nested():
    with pm.Model() as model:
        c = pm.Bernoulli("c", 0.4)
        pm.Categorical("d", p=pm.math.stack([[0.2, 0.8], [0.6, 0.4]])[c], shape=3)
        pm.Normal("x")
    return model


@pytest.mark.parametrize(
    ("build", "options", "error", "words"),
    [
        (lambda: counted()[0], {}, ValueError, r"'N' .* no bound.*truncate=\{'N': \(0, 200\)\}"),
        (lambda: counted()[0], {"truncate": {"M": (0, 3)}}, ValueError, "truncate names 'M'"),
        (lambda: counted()[0], {"truncate": {"N": (0, 1)}}, ValueError, r"'N' .*zero.*'N': \(\.\.\., 3\)"),
        (lambda: counted()[0], {"truncate": {"N": 50}}, ValueError, r"truncate\['N'\] must be .* got 50"),
        (
            lambda: counted()[0],
            {"truncate": {"N": (50, 0)}},
            ValueError,
            r"truncate\['N'\] must be .*\(50, 0",
        ),
        (lambda: counted()[0], {"truncate": [("N", 0, 3)]}, TypeError, "truncate must be a dictionary"),
        (dense, {}, NotImplementedError, "the term 'y' joins too many .*states"),
        (nested, {"vars": ["c"]}, NotImplementedError, "Sum out 'd' too"),
    ],
    ids=[
        "no bound",
        "unknown name",
        "too narrow",
        "no pair",
        "wrong order",
        "no dictionary",
        "dense",
        "discrete child",
    ],
)
def test_what_cannot_be_summed_is_named_with_a_remedy(build, options, error, words):
    with pytest.raises(error, match=words):
        pmd.marginalize(build(), **options)


def cells(n):
    """Counts of a fixed or an unknown total, a label, and a level that the label chooses."""
    with pm.Model() as model:
        pm.Multinomial("x", n(), [0.3, 0.7])
        pm.Normal("u", pm.Bernoulli("z", 0.3))
    return model


@pytest.mark.parametrize(
    ("n", "left", "said"),
    [
        (lambda: 4, ["x"], "Not summed out: 'x' is a constrained vector (Multinomial): its counts"),
        (lambda: pm.DiscreteUniform("n", 1, 3), ["n", "x"], "; 'n' enters the distribution of 'x'."),
        (lambda: pm.Poisson("m", 2.0) + pm.Poisson("n", 2.0), ["m", "n", "x"], "; 'm' enters the"),
    ],
)
def test_what_is_left_in_is_named(n, left, said, caplog):
    caplog.set_level(logging.INFO, logger="pymc.discrete")
    model = cells(n)
    summed = pmd.marginalize(model)
    assert [v.name for v in summed.free_RVs] == [*left, "u"]
    (line,) = [line for line in caplog.messages if "Not summed out" in line]
    assert said in line
    caplog.clear()
    assert variables_to_recover(model, None, "recover") == ["z"]
    assert line in caplog.messages
    with pytest.raises(ValueError, match="There is nothing that can be summed out: 'x' is a constrained"):
        pmd.marginalize(pmd.marginalize(model))


def test_a_total_is_not_to_be_summed_out_with_counts_that_cannot_be():
    with pytest.raises(NotImplementedError, match=r"'x' is a constrained vector.*whose n depends") as error:
        pmd.marginalize(cells(lambda: pm.DiscreteUniform("n", 1, 3)), ["n"])
    assert "Sum out" not in str(error.value)


def test_draws_for_which_nothing_is_possible_are_refused():
    with pm.Model() as model:
        lam = pm.Gamma("lam", 3, 0.3)
        pm.Binomial("y", n=pm.Poisson("N", lam), p=0.3, observed=5)
    with pytest.raises(ValueError, match=r"No value of 'N' is possible in 4 of 4 .*wider bounds"):
        pmd.recover(as_tree({"lam": np.full((1, 4), 8.0)}), model, truncate={"N": (0, 3)})


def test_draws_that_the_posterior_holds_already_stay():
    model, *_ = built("occupancy")
    posterior = {"psi": np.full((1, 50), 0.4), "p": np.full((1, 50), 0.3)}
    once = pmd.recover(as_tree(posterior), model, random_seed=1)
    twice = pmd.recover(once, model, random_seed=2)
    for name in ("z", "occupied"):
        np.testing.assert_array_equal(twice["posterior"][name], once["posterior"][name])
    np.testing.assert_array_equal(twice["probabilities"]["z"], once["probabilities"]["z"])


def test_a_marginalised_model_travels_to_another_process():
    marginal = built("occupancy")[2]
    point = marginal.initial_point()
    want = marginal.compile_logp(mode="FAST_COMPILE")(point)
    again = cloudpickle.loads(cloudpickle.dumps(marginal))
    assert again.compile_logp()(point) == want


def test_a_posterior_without_a_variable_is_refused():
    model, *_ = built("occupancy")
    with pytest.raises(ValueError, match="has no 'psi'"):
        pmd.recover(as_tree({"p": np.full((1, 3), 0.4)}), model)
