"""Log likelihoods with discrete variables summed out, against sums over all states."""

import itertools
import logging

import arviz_base
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.stats

import pymc_discrete as pmd
from pymc_discrete.collapse.log_likelihood import LogLikelihood
from pymc_discrete.collapse.marginalize import without_transforms
from tests.collapse.models import MODELS, Y
from tests.tools.running import QUIET

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("interpreted_sums")]


def silent_states():
    """A chain of states, of which one cannot emit what is observed at all."""
    with pm.Model() as model:
        P, q = pm.Dirichlet("P", np.ones((3, 3))), pm.Beta("q", 2, 2)
        z = pm.Categorical("z", p=[0.2, 0.3, 0.5], shape=4)
        pm.Potential("transitions", pt.log(P)[z[:-1], z[1:]].sum())
        pm.Bernoulli("seen", pt.stack([0.0, q, 1.0])[z], observed=[1, 0, 1, 0])
    return model, {"z": (0, 2)}


def nested():
    """Labels within classes, two kinds of observations, and one that reads no label."""
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=2), pm.Normal("b", shape=(2, 2))
        c = pm.Categorical("c", p=[0.4, 0.6], shape=2)
        d = pm.Categorical("d", p=pt.stack([[0.2, 0.8], [0.6, 0.4]])[c[[0, 0, 1]]], shape=3)
        pm.Normal("first", b[c[[0, 0, 1]], d], 0.8, observed=Y[:3])
        pm.Poisson("second", pt.exp(a[c]), observed=[1, 4])
        pm.Normal("third", a, 1.0, observed=Y[3:])
    return model, {"c": (0, 1), "d": (0, 1)}


def in_a_loop():
    """Each observation is a variable of its own."""
    with pm.Model() as model:
        mu, z = pm.Normal("mu", shape=2), pm.Bernoulli("z", 0.3, shape=4)
        for t in range(4):
            pm.Normal(f"y{t}", mu[z[t]] + z[max(t - 1, 0)], 1.0, observed=Y[t])
    return model, {"z": (0, 1)}


# components of observations, {observed variable: elements}
COMPONENTS = {
    "labels": [{"y": [i]} for i in range(5)],
    "occupancy": [{"seen": [2 * i, 2 * i + 1]} for i in range(4)],
    "silent_states": [{"seen": [0, 1, 2, 3]}],
    "nested": [{"first": [0, 1], "second": [0]}, {"first": [2], "second": [1]}],
    "captures": [{f"seen{t}": [i] for t in range(3)} for i in range(2)],
}
OF_SUMS = ("labels", "occupancy", "captures", "joined_by_a_sum", "mediator", "partly_labelled")
CASES = {name: MODELS[name] for name in OF_SUMS}
CASES |= {f.__name__: f for f in (silent_states, nested, in_a_loop)}


DRAWS = 2
# numbers that a variable may have, by its distribution
NUMBERS = {
    "normal": lambda r, shape: r.normal(size=shape),
    "halfnormal": lambda r, shape: r.uniform(0.5, 2.0, shape),
    "beta": lambda r, shape: r.uniform(0.1, 0.9, shape),
    "dirichlet": lambda r, shape: r.dirichlet(np.ones(shape[-1]), shape[:-1]),
    "categorical": lambda r, shape: r.integers(2, size=shape),
}


def of_all_states(model, support, posterior):
    """Of each draw the log density of each state without the observations, and {observed: (S, n)} of each
    observation.
    """
    plain = without_transforms(model)
    rest = [v for v in [*plain.free_RVs, *plain.potentials]]
    outs = [
        sum(t.sum() for t in plain.logp(vars=rest, sum=False)),
        *plain.logp(vars=plain.observed_RVs, sum=False),
    ]
    f = plain.compile_fn(outs, inputs=plain.value_vars, on_unused_input="ignore", mode="FAST_COMPILE")
    start = plain.initial_point()
    sizes = {name: np.shape(start[name]) for name in support}
    axes = [range(a, b + 1) for name, (a, b) in support.items() for _ in range(int(np.prod(sizes[name])))]
    states = []
    for state in itertools.product(*axes):
        at, full = 0, {}
        for name, shape in sizes.items():
            size = int(np.prod(shape))
            full[name] = np.reshape(state[at : at + size], shape).astype(int)
            at += size
        states.append(full)
    of_draws = []
    for draw in range(DRAWS):
        point = {name: values[0, draw] for name, values in posterior.items()}
        found = [[np.ravel(a) for a in f(point | state)] for state in states]
        base, *each = (np.stack(a) for a in zip(*found, strict=True))
        each = {str(rv.name): a for rv, a in zip(plain.observed_RVs, each, strict=True)}
        of_draws.append((base[:, 0], each))
    return of_draws


def without(base, each, left_out):
    """The log of the sum over all states without some observations, {observed: elements}."""
    total = base.copy()
    for name, values in each.items():
        kept = np.delete(np.arange(values.shape[1]), left_out.get(name, []))
        total = total + values[:, kept].sum(1)
    return np.logaddexp.reduce(total)


def draws_about(model, support):
    """{variable: (1, DRAWS, ...)} values of the variables that are not summed, inside of their support."""
    r = np.random.default_rng(5)
    kept = [rv for rv in model.free_RVs if rv.name not in support]
    return {str(v.name): NUMBERS[v.owner.op.name](r, (1, DRAWS, *v.type.shape)) for v in kept}


def tree_of(posterior):
    return arviz_base.from_dict({"posterior": posterior})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*float32:UserWarning", "ignore:Data in k contains missing values")
@pytest.mark.parametrize("name", CASES)
def test_each_observation_given_the_others_and_each_component_are_those_of_sums_over_all_states(name):
    model, support = CASES[name]()
    posterior = draws_about(model, support)
    got = LogLikelihood(model, list(support), "marginal").of(tree_of(posterior))
    assert set(got.data_vars) == {str(rv.name) for rv in model.observed_RVs}
    for draw, (base, each) in enumerate(of_all_states(model, support, posterior)):
        whole = without(base, each, {})
        assert np.isfinite(whole)
        for y, values in each.items():
            if y in got:
                want = [whole - without(base, each, {y: [j]}) for j in range(values.shape[1])]
                np.testing.assert_allclose(got[y].values[0, draw].ravel(), want, atol=1e-9)
    if name in COMPONENTS:
        got = LogLikelihood(model, list(support), "component").of(tree_of(posterior))["components"]
        want = [whole - without(base, each, left_out) for left_out in COMPONENTS[name]]
        np.testing.assert_allclose(got.values[0, 1], want, atol=1e-9)


@pytest.mark.slow
def test_counts_without_a_bound_are_summed_as_far_as_is_needed():
    """Without its only observation, a count is known by its prior, whose tail is long."""
    seen = np.array([[2, -1], [3, 4]])
    with pm.Model() as model:
        mu, p = pm.Gamma("mu", 2, 0.5), pm.Beta("p", 2, 2)
        N = pm.NegativeBinomial("N", mu=mu, alpha=0.8, shape=2, initval=[6, 6])
        for t in range(2):
            y = seen[seen[:, t] >= 0, t]
            pm.Binomial(f"seen{t}", n=N[seen[:, t] >= 0], p=p, observed=y)
    posterior = {"mu": np.array([[4.0, 3.0]]), "p": np.array([[0.4, 0.7]])}
    posterior["N"] = np.array([[[5, 6], [4, 5]]])
    found = pmd.recover(tree_of(posterior), model, log_likelihood="marginal")
    np.testing.assert_array_equal(found["posterior"]["N"], posterior["N"])
    np.testing.assert_allclose(found["probabilities"]["N"].sum("N value"), 1.0, atol=1e-10)
    n = np.arange(20_000)
    for draw in range(2):
        mu, p = posterior["mu"][0, draw], posterior["p"][0, draw]
        prior = scipy.stats.nbinom.logpmf(n, 0.8, 0.8 / (0.8 + mu))
        each = scipy.stats.binom.logpmf(seen[..., None], n, p)
        lse = np.logaddexp.reduce
        want = [
            lse(prior + each[0, 0]),
            lse(prior + each[1].sum(0)) - lse(prior + each[1, 1]),
            lse(prior + each[1].sum(0)) - lse(prior + each[1, 0]),
        ]
        y0, y1 = (found["log_likelihood"][f"seen{t}"].values[0, draw] for t in range(2))
        np.testing.assert_allclose([*y0, *y1], want, atol=1e-9)


@pytest.mark.slow
def test_a_range_that_leaves_out_mass_is_said(caplog):
    model, _ = MODELS["counts"]()
    posterior = {"lam": np.full((1, 2), 6.0), "p": np.full((1, 2), 0.4)}
    with caplog.at_level(logging.WARNING, logger="pymc.discrete"):
        LogLikelihood(model, ["N"], "marginal", {"N": (0, 8)}).of(tree_of(posterior))
        assert "leaves out" in caplog.text
        assert "above 8" in caplog.text
        caplog.clear()
        LogLikelihood(model, ["N"], "marginal", {"N": (0, 60)}).of(tree_of(posterior))
        assert not caplog.text


@pytest.mark.slow
def test_variables_that_are_not_summed_out_are_conditioned_on_and_named(caplog):
    model, _ = nested()
    posterior = draws_about(model, {"d": (0, 1)})
    with caplog.at_level(logging.INFO, logger="pymc.discrete"):
        got = LogLikelihood(model, ["d"], "marginal").of(tree_of(posterior))
    assert "given the draws of 'c'" in caplog.text
    for draw, (base, each) in enumerate(of_all_states(model, {"d": (0, 1)}, posterior)):
        want = [without(base, each, {}) - without(base, each, {"first": [j]}) for j in range(3)]
        np.testing.assert_allclose(got["first"].values[0, draw], want, atol=1e-9)
        np.testing.assert_allclose(got["second"].values[0, draw], each["second"][0], atol=1e-9)


@pytest.mark.slow
def test_sample_and_recover_give_the_same(walks):
    model, _ = MODELS["occupancy"]()
    options = {"tune": 20, "chains": 3, "model": model, "collapse": True, "random_seed": 4, **QUIET}
    idata = pmd.sample(20, idata_kwargs={"log_likelihood": "marginal"}, **options)
    assert idata["log_likelihood"]["seen"].dims == ("chain", "draw", "seen_dim_0", "seen_dim_1")
    bare = idata.copy()
    del bare["log_likelihood"]
    again = pmd.recover(bare, model, log_likelihood="marginal")
    np.testing.assert_array_equal(idata["log_likelihood"]["seen"], again["log_likelihood"]["seen"])
    grouped = pmd.recover(bare, model, log_likelihood="component")["log_likelihood"]["components"]
    assert list(grouped["component"].values) == ["z[0]", "z[1]", "z[2]", "z[3]"]
    # the chain rule: both observations of a site, by one and then the other
    psi, p = (idata["posterior"][name] for name in ("psi", "p"))
    np.testing.assert_allclose(grouped[..., 1], np.log(psi * p**2), atol=1e-9)
    np.testing.assert_allclose(grouped[..., 2], np.log(psi * (1 - p) ** 2 + 1 - psi), atol=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"idata_kwargs": {"log_likelihood": "marginl"}}, "one of 'marginal', 'component', got 'marginl'"),
        ({"idata_kwargs": {"log_likelihood": "marginal"}, "var_names": ["p"]}, "needs the draws of 'psi'"),
    ],
    ids=["unknown word", "not recorded"],
)
def test_what_cannot_be_computed_is_refused_before_anything_is_sampled(options, words):
    model, _ = MODELS["occupancy"]()
    with pytest.raises(ValueError, match=words):
        pmd.sample(5, tune=5, chains=1, model=model, **options, **QUIET)


def test_sums_that_are_too_large_are_refused_with_a_remedy():
    with pm.Model() as model:
        b, z = pm.Normal("b", shape=40), pm.Bernoulli("z", 0.4, shape=40)
        pm.Normal("y", pm.math.exp((b * z).sum()), 1.0, observed=[0.7, 0.2])
    with pytest.raises(NotImplementedError, match=r"log_likelihood='marginal' cannot be computed.*'y'"):
        LogLikelihood(model, ["z"], "marginal")
