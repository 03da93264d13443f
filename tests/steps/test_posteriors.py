"""pm.sample with GibbsWithGradients against enumeration, and against the same model with its discrete
variable summed out; and AutoStep where it takes the gradient.
"""

import functools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_discrete as pmd
from tests.posteriors import CASES, probabilities
from tests.tools.running import sample_with_pymc
from tests.tools.statistics import LARGEST_Z, z_of_moments, zs_of_proportions

# bounded sites, and a support that the step is told
SAMPLED = [case for case in CASES if case.build.__name__ in ("bounded", "given_support")]


@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.build.__name__)
@pytest.mark.by_default("bounded")
def test_against_enumeration(case):
    with pm.Model() as model:
        case.build()
    step = functools.partial(pmd.GibbsWithGradients, support=case.support)
    idata = sample_with_pymc(model, step, draws=2000, tune=200, random_seed=3)
    states, prob = probabilities(model, case.values)
    draws = np.concatenate(
        [idata["posterior"][name].values.reshape(2, 2000, -1) for name in case.values], axis=2
    )
    assert (draws.min((0, 1)) >= states.min(0)).all()
    zs = zs_of_proportions(draws, states, prob)
    assert len(zs) >= states.shape[1]
    assert np.abs(zs).max() < LARGEST_Z


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.build.__name__)
@pytest.mark.by_default("bernoulli_binomial", "cut")
def test_differences_and_supports(case):
    """What each kind of support is to the kernel: which values there are, and how the log density changes."""
    with pm.Model() as model:
        case.build()
        step = pmd.GibbsWithGradients(support=case.support, differences="exact")
    states, prob = probabilities(model, case.values)
    weight = {tuple(state): p for state, p in zip(states, prob, strict=True)}
    _, target = step.target.at(model.initial_point())
    space = target.space
    first = dict(zip((v.name for v in space.variables), space.starts, strict=True))
    # the sites of the enumerated states, in their order
    order = np.concatenate([first[name] + np.arange(len(sites)) for name, sites in case.values.items()])
    assert sorted(order) == [*range(space.d)]
    for state in states[np.random.default_rng(0).choice(len(states), 6, p=prob)]:
        x = np.zeros(space.d, int)
        x[order] = state
        values, inside = map(np.asarray, space.neighbours(x, np.arange(space.d)))
        differences = np.asarray(target.differences(x))
        for column, site in enumerate(order):

            def probability(value, state=state, column=column):
                return weight.get((*state[:column], value, *state[column + 1 :]))

            seen = values[site][inside[site]].tolist()
            for value in np.unique(states[:, column]):
                beyond = space.windowed[site] and value not in values[site]
                assert value in seen or beyond or not probability(value)
            for value, difference in zip(seen, differences[site][inside[site]], strict=True):
                to = probability(value)
                if to is not None:  # else it is beyond what is enumerated, and hardly possible
                    want = np.log(to / probability(state[column])) if to else -np.inf
                    np.testing.assert_allclose(difference, want, atol=1e-6)


def network():
    """Few states, and yet dear enough for the gradient: 20 moves through dense layers."""
    r = np.random.default_rng(12)
    a, b, c = r.normal(size=(100, 5)), r.normal(size=(100, 100)) / 10, r.normal(size=(100, 100)) / 10
    x = pm.Categorical("x", p=[0.1, 0.2, 0.3, 0.25, 0.15], shape=5)
    pm.Potential("energy", 0.5 * pt.tanh(c @ pt.tanh(b @ pt.tanh(0.3 * a @ (x - 2)))).sum())


@pytest.mark.slow
def test_automatic_choice_by_gradient():
    with pm.Model():
        network()
        step = pmd.AutoStep()
        assert isinstance(step, pmd.DiscreteLangevin)
        assert step.proposal == "dlmc"
        assert step.target.describe()["x"]["way"] == "gradient"


# ---------------------------------------------------------------- beside NUTS
def mixture():
    r = np.random.default_rng(2)
    y = np.array([-2.0, 2.0])[r.choice(2, 40, p=[0.4, 0.6])] + r.normal(size=40)
    mu = pm.Normal("mu", 0, 4, shape=2, transform=pm.distributions.transforms.ordered, initval=[-2.0, 2.0])
    pm.Normal("y", mu[pm.Categorical("z", p=[0.4, 0.6], shape=len(y))], 1, observed=y)
    return y


@pytest.mark.slow
@pytest.mark.usefixtures("walks")
def test_against_the_marginalised_mixture():
    """The means of a mixture whose labels are drawn, against sums over a grid."""
    with pm.Model() as model:
        y = mixture()
    draws = sample_with_pymc(model, pmd.GibbsWithGradients, draws=1500, tune=500, random_seed=4)
    draws = draws["posterior"]["mu"].values
    grid = np.linspace(-5, 5, 401)
    prior, each = stats.norm.logpdf(grid, 0, 4), stats.norm.logpdf(y[:, None], grid)
    logp = prior[:, None] + prior
    logp = logp + sum(np.logaddexp(np.log(0.4) + of[:, None], np.log(0.6) + of) for of in each)
    p = np.where(grid[:, None] < grid, np.exp(logp - logp.max()), 0.0)
    p /= p.sum()
    for k in (0, 1):
        own = p.sum(1 - k)
        mean = own @ grid
        zs = z_of_moments(draws[..., k], mean, np.sqrt(own @ (grid - mean) ** 2))
        assert np.abs(zs).max() < LARGEST_Z
