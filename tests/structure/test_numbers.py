"""Data and constants as inputs of a density, which models share that differ by them only."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences import from_model
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.model.structure_of_model import structure_of, with_numbers
from pymc_discrete.structure.numbers import Derivation, Number, decided, hoisted, numbers_in, values_of_graphs
from tests.tools.oracle import compare, densities_and_differences
from tests.tools.running import QUIET


@pytest.fixture(autouse=True)
def targets_with_numbers(monkeypatch):
    """Targets have numbers as those of steps do."""
    made = from_model.target_of

    def with_numbers(*args, **options):
        return made(*args, **{**options, "with_numbers": True})

    monkeypatch.setattr(from_model, "target_of", with_numbers)


def rng(seed):
    return np.random.default_rng(seed)


def mixture(seed):
    r = rng(seed)
    mu = pm.Normal("mu", 0.0, r.uniform(2, 5), shape=3)
    z = pm.Categorical("z", p=r.dirichlet(np.ones(3)), shape=4)
    pm.Normal("y", mu[z], r.uniform(0.5, 2), observed=r.normal(size=4))


def latent_counts(seed):
    r = rng(seed)
    rate = pm.Gamma("rate", 2.0, 0.2)  # the scale of the prior decides how far moves reach
    N = pm.Poisson("N", rate, shape=3, initval=np.full(3, 9))
    pm.Binomial("y", n=N[:, None], p=r.uniform(0.2, 0.8), observed=r.integers(0, 5, (3, 2)))


def regression(seed):
    r = rng(seed)
    g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", 0.0, 2.0, shape=4)
    pm.Normal("y", pt.dot(r.normal(size=(7, 4)), g * b), 1.5, observed=r.normal(size=7))


def couplings(seed):
    r = rng(seed)
    s = 2 * pm.Bernoulli("s", 0.5, shape=(3, 3)) - 1
    pm.Potential("e", (s * r.normal(size=(3, 3))).sum() + (r.normal(size=(2, 3)) * s[1:] * s[:-1]).sum())


def quadratic(seed):
    r = rng(seed)
    s = pm.Bernoulli("s", 0.5, shape=5)
    pm.Potential("e", pt.dot(s, pt.dot(r.normal(size=(5, 5)), s)))


def missing_and_zero_inflated(seed):
    """Some observed counts are 0: conditions on the data that differ between elements."""
    r = rng(seed)
    psi, w = pm.Beta("psi", 2.0, 3.0), pm.Bernoulli("w", 0.4, shape=5)
    pm.ZeroInflatedPoisson("y", psi, 1.0 + 2.0 * w, observed=np.append(0, r.integers(1, 4, 4)))


def changepoint(seed):
    r = rng(seed)
    k, rate = pm.DiscreteUniform("k", 0, 5), pm.Exponential("rate", r.uniform(0.5, 2), shape=2)
    pm.Poisson("y", pt.switch(k >= np.arange(6), rate[0], rate[1]), observed=r.integers(0, 6, 6))


def separate_scalars(seed):
    """A list of variables, written as one, each with numbers of its own."""
    r = rng(seed)
    z = [pm.Bernoulli(f"z{n}", r.uniform(0.2, 0.8)) for n in range(5)]
    for n, one in enumerate(z):
        pm.Normal(f"y{n}", 2.0 * one, r.uniform(0.5, 2), observed=r.normal())


def shared_data(seed):
    y = pm.Data("y", rng(seed).normal(size=4))
    z = pm.Bernoulli("z", 0.3, shape=4)
    pm.Normal("seen", 3.0 * z, 1.5, observed=y)


def table_of_answers(seed):
    """Observed labels are an index into what depends on the block."""
    r = rng(seed)
    z = pm.Categorical("z", p=[0.2, 0.3, 0.5], shape=3)
    pm.Categorical("y", p=pt.as_tensor(r.dirichlet(np.ones(3), size=3))[z], observed=r.permutation(3))


def raters(seed):
    """Answers are right, or guessed (Hovy et al. 2013)."""
    looks, guess = pm.Beta("looks", 1.0, 1.0, shape=2), pm.Dirichlet("guess", np.ones((2, 3)))
    truth = pm.Categorical("truth", p=np.full(3, 1 / 3), shape=3)
    honest = pm.Bernoulli("honest", p=looks, shape=(3, 2))
    p = pt.switch(honest[:, :, None], pt.eye(3)[truth][:, None, :], guess[None, :, :])
    pm.Categorical("y", p=p, observed=rng(seed).integers(0, 3, (3, 2)))


def observed_words(seed):
    """The topics of words (Blei et al. 2003)."""
    topics = pm.Dirichlet("topics", np.ones((2, 4)))
    z = pm.Categorical("z", p=[0.4, 0.6], shape=5)
    pm.Categorical("words", p=topics[z], observed=rng(seed).integers(0, 4, 5))


def transposed_answers(seed):
    p = pm.Dirichlet("p", np.ones((2, 3)))
    z = pm.Bernoulli("z", 0.4, shape=4)
    by_column = pt.switch(z[None, :], p[0][:, None], p[1][:, None])
    pm.Categorical("y", p=by_column.T, observed=rng(seed).integers(0, 3, 4))


def logits_of_answers(seed):
    """The probability of an answer depends on the logits of all: the answers' values are needed."""
    a, z = pm.Normal("a", shape=3), pm.Bernoulli("z", 0.4, shape=4)
    y = rng(seed).permutation([0, 1, 2, 1])
    pm.Categorical("y", logit_p=a * z[:, None], observed=y)


SHARED = [
    mixture, latent_counts, regression, couplings, quadratic, missing_and_zero_inflated, changepoint,
    separate_scalars, shared_data, table_of_answers, raters, observed_words, transposed_answers,
]  # fmt: skip


def built(build, seed):
    with pm.Model() as model:
        build(seed)
    return model


@pytest.mark.parametrize("build", [*SHARED, logits_of_answers], ids=lambda build: build.__name__)
@pytest.mark.by_default("mixture", "regression")
def test_differences_are_those_of_each_model(build):
    """Densities and differences of a model and of another are compared with PyMC's log density. A model like
    the first then has what the first had, at a point at which the other has not.
    """
    models = [built(build, seed) for seed in (1, 2, 1)]
    r, start = rng(3), models[0].initial_point()
    point = {n: v + 0.3 * r.normal(size=np.shape(v)) if v.dtype.kind == "f" else v for n, v in start.items()}
    targets, found = [], []
    for n, model in enumerate(models):
        targets.append(compare(model)[0] if n < 2 else pmd.target_from_model(model))
        x, at = targets[-1].at(point)
        densities, differences = densities_and_differences(at, x)
        found.append(np.append(densities, differences))
    first, other, again = found
    np.testing.assert_allclose(again, first, rtol=1e-12)
    assert not np.allclose(other, first)
    if build in SHARED:
        assert all(t.density == targets[0].density for t in targets)


def test_a_planted_error_is_found(monkeypatch):
    """A density that keeps the numbers of the first model is not that of the second."""
    model = built(mixture, 1)
    compare(model)
    first, kept = structure_of(model).numbers, ModelDensity.for_model

    def with_numbers_of_the_first(self, point, numbers):
        return kept(self, point, first)

    monkeypatch.setattr(ModelDensity, "for_model", with_numbers_of_the_first)
    with pytest.raises(AssertionError):
        compare(built(mixture, 2))


@pytest.mark.parametrize("scale", [-1.0, 0.0, 2.0, np.inf])
def test_parameters_outside_their_domain(scale):
    """The outcome of a check of the numbers is a part of the density: another outcome, another density."""

    def build(scale):
        with pm.Model() as model:
            z = pm.Bernoulli("z", 0.3, shape=2)
            pm.Normal("y", 1.0 * z, scale, observed=[0.3, 2.5])
        return model

    def logp(model):
        x, target = pmd.target_from_model(model).at(model.initial_point())
        return target.total(x)

    first = logp(build(1.5))
    model = build(scale)
    point, f = model.initial_point(), model.compile_logp(mode="FAST_COMPILE")
    try:
        expected = float(f(point))
    except pm.logprob.utils.ParameterValueError:
        expected = -np.inf
    found = logp(model)
    assert np.isclose(found, expected, equal_nan=True) or (np.isneginf(found) and np.isnan(expected))
    assert np.isclose(logp(build(1.5)), first)


def test_constants_where_numbers_cannot_be():
    """The gradient by a site that selects from a table needs the table."""
    with pm.Model() as model:
        a = pm.OrderedLogistic("a", eta=0.2, cutpoints=[-1.0, 0.0, 1.0])
        pm.Normal("y", a, 1.2, observed=0.7)
    target = pmd.target_from_model(model, differences="gradient")
    assert not target.density.numbers
    assert target.describe()["a"]["way"] == "gradient"


def chosen_places(seed):
    """The size of a tensor follows from constants."""
    k = pt.constant(rng(seed).permutation([1.0, 2.0, 0.0]))
    z = pm.Bernoulli("z", 0.3, shape=3)
    pm.Potential("e", (z[(k > 0).nonzero()[0]] * 1.0).mean())


def interpolated(seed):
    """PyMC reads the values of the table when it writes the log density."""
    z = pm.Bernoulli("z", 0.3)
    x = pm.Interpolated("x", np.linspace(0, 1, 6), rng(seed).uniform(1, 2, 6))
    pm.Normal("y", x + z, 1.5, observed=0.7)


def taken_names(seed):
    a, z = pm.Normal("~number 0", 0.0, 1.5), pm.Bernoulli("z", 0.3)
    pm.Normal("y", a + z, 2.5, observed=rng(seed).normal(size=2))


@pytest.mark.parametrize("build", [chosen_places, interpolated, taken_names], ids=lambda b: b.__name__)
def test_constants_where_the_model_needs_them(build):
    for seed in (1, 2):
        compare(built(build, seed))


@pytest.mark.slow
def test_shapes_that_follow_from_numbers(walks):
    """A recorded mean over the elements that are not 0, of which the next model has fewer."""
    for c in ([1.0, 2.0, 0.0], [3.0, 0.0, 0.0]):
        with pm.Model():
            z, a, k = pm.Bernoulli("z", 0.3), pm.Normal("a"), pt.constant(np.array(c))
            pm.Deterministic("p", (a * k[k.nonzero()]).mean())
            pm.Deterministic("q", (a * k[k > 0]).mean())
            pm.Normal("y", a + z, 1.5, observed=c[0])
            draws = pmd.sample(5, tune=5, chains=1, random_seed=1, **QUIET)["posterior"]
        mean = np.mean([v for v in c if v])
        np.testing.assert_allclose(draws["p"] / draws["a"], mean)
        np.testing.assert_allclose(draws["q"] / draws["a"], mean)


def test_derived_numbers_of_another_shape_are_refused():
    a = Number.of("a", np.array([1.0, 0.0]))
    count = pt.ones((pt.neq(a, 0).sum(),))
    derivation = Derivation([Number.of("made", np.ones(1))], {"made": pt.specify_shape(count, (1,))}, [])
    assert derivation.of({"a": np.array([0.0, 3.0])}) is not None
    wrong = Derivation([Number.of("made", np.ones(1))], {"made": count}, [])
    assert wrong.of({"a": np.array([2.0, 3.0])}) is None


def test_threads_get_the_values_of_their_own_numbers():
    """PyTensor's functions keep their arguments while they run: two at once would exchange them."""
    a = Number.of("a", np.ones(2000))
    graph = pt.exp(pt.sin(a) + pt.cos(a)).sum() + a[0]
    derivation = Derivation([Number.of("made", np.array(1.0))], {"made": graph}, [])

    def several(value):
        array = np.full(2000, value)
        expected = 2000 * np.exp(np.sin(value) + np.cos(value)) + value
        return [derivation.of({"a": array})["made"] / expected for _ in range(300)]

    with ThreadPoolExecutor(4) as threads:
        for ratios in threads.map(several, [0.1, 0.9, 1.7, 2.5]):
            np.testing.assert_allclose(ratios, 1.0)


# ---------------------------------------------------------------- what is a number
def test_what_is_a_number():
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 5, shape=3)  # the mean 0 and the size are not
        g = pm.Gamma("g", 2.0, 0.5)
        u = pm.Uniform("u", 0.0, 7.5)
        n = pm.Binomial("n", n=12, p=0.25)  # the support of a latent count is not
        x = a[np.array([0, 1, 1, 2])] * np.array([0.5, 1.5, 2.5, 3.5])  # the index is not
        # nor the exponent; the scale 1 is, since another scale is
        pm.Normal("y", x + g + u * n**2.0, 1.0, observed=[1.0, 2.0, 3.0, np.pi])
        pm.Bernoulli("seen", 0.4, observed=[0, 1, 1])
        pm.Potential("huge", g * np.array([1e9, 2e9]).sum())
    found = sorted(structure_of(model).numbers.values(), key=lambda a: (a.size, a.sum()))
    values = [a.tolist() for a in found]
    assert [0, 1, 1] in values
    assert [0.5, 1.5, 2.5, 3.5] in values
    assert [1.0, 2.0, 3.0, np.pi] in values
    assert {v for v in values if not isinstance(v, list)} == {5.0, 1.0, 2.0, 0.5, 7.5, 0.25, 0.4}


def test_numbers_leave_the_log_density_as_it_is():
    model = built(mixture, 1)
    structure = structure_of(model)
    written = with_numbers(model, structure)
    assert [v.name for v in written.value_vars] == [v.name for v in model.value_vars]
    terms, other = written.logp(sum=False), model.logp(sum=False)
    point = model.initial_point()
    value = {v.name: v for v in written.value_vars}
    from pytensor import function

    inputs = [value[name] for name in point]
    numbers = numbers_in(terms)
    f = function([*inputs, *numbers], [t.sum() for t in terms], on_unused_input="ignore", mode="FAST_COMPILE")
    g = function(
        [{v.name: v for v in model.value_vars}[name] for name in point],
        [t.sum() for t in other],
        on_unused_input="ignore",
        mode="FAST_COMPILE",
    )
    got = f(*point.values(), *(structure.numbers[n.name] for n in numbers))
    np.testing.assert_allclose(got, g(*point.values()), rtol=1e-6)


# ---------------------------------------------------------------- graphs of numbers
def test_comparisons_with_one_outcome_are_decided():
    a, x = Number.of("a", np.array([1.0, 2.0, 3.0])), pt.dvector("x")
    graph = pt.switch(a > 0, x, 0.0) + pt.switch(a > 2, x, 0.0) + pt.switch(x > 0, a, 0.0)
    (out,), decisions = decided([graph])
    assert [d.outcome for d in decisions] == [True]
    np.testing.assert_array_equal(out.eval({x: np.arange(3.0), a: a.value}), [0.0, 3.0, 7.0])


def test_what_is_computed_from_numbers_is_computed_once():
    a, b, x = Number.of("a", np.array([1.0, 2.0])), Number.of("b", np.array(3.0)), pt.dvector("x")
    (out,), derived = hoisted([x * pt.exp(a + b) + a], "made: ")
    assert list(derived) == ["made: 0"]
    assert {v.name for v in numbers_in([out])} == {"a", "made: 0"}
    (value,) = values_of_graphs(list(derived.values()), {"a": a.value, "b": b.value})
    np.testing.assert_allclose(value, np.exp(a.value + 3))
