"""A step that shares its variables with another one: in pm.sample, in pmd.sample, with coefficients
integrated out.
"""

import itertools
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import pymc_discrete as pmd
from tests.tools.running import QUIET, sample_with_pymc
from tests.tools.statistics import check_proportions

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


class Shared(pmd.GibbsWithGradients):
    """Gibbs-With-Gradients beside another step for the same variables."""

    shared = True
    prefix = "share_"
    columns: ClassVar[dict[str, tuple[str, str, object]]] = {}


def scalars():
    """Variables of one kind, which a step of all of them draws as one vector, and one of another kind."""
    a, b = pm.Bernoulli("a", 0.3), pm.Bernoulli("b", 0.6)
    c, z = pm.Bernoulli("c", 0.5), pm.Categorical("z", [0.2, 0.5, 0.3])
    for n, (i, j) in enumerate(((a, b), (b, c), (c, a))):
        pm.Potential(f"p{n}", 0.8 * pt.eq(i, j) - 0.3 * pt.eq(z, i))


def enumerated(model, values):
    """(S, d) states and (S,) probabilities of scalar variables {name: number of values}."""
    f = model.compile_logp(mode="FAST_COMPILE")
    states = np.array(list(itertools.product(*map(range, values.values()))))
    logp = np.array([f(dict(zip(values, map(np.asarray, x), strict=True))) for x in states])
    return states, np.exp(logp - logsumexp(logp))


VALUES = {"a": 2, "b": 2, "c": 2, "z": 3}


@pytest.mark.slow
def test_in_one_program():
    """Beside two steps, each for some of its variables."""
    with pm.Model() as model:
        scalars()
        local = [pmd.BlockGibbs(["a", "b"]), pmd.BlockGibbs(["z", "c"])]
        idata = pmd.sample(1000, tune=100, chains=4, step=[Shared(), *local], random_seed=3, **QUIET)
    check_proportions(idata["posterior"], [*VALUES], *enumerated(model, VALUES))
    stats = idata["sample_stats"]
    assert stats["share_accept"].ndim == 2
    assert 0 < stats["share_accept"].mean() < 1
    assert stats["share_n_moved"].max() > 0


@pytest.mark.slow
def test_alone_in_one_program():
    with pm.Model() as model:
        scalars()
        idata = pmd.sample(1000, tune=100, chains=4, step=Shared(), random_seed=3, **QUIET)
    check_proportions(idata["posterior"], [*VALUES], *enumerated(model, VALUES))


@pytest.mark.slow
def test_in_pymc(caplog):
    with pm.Model() as model:
        scalars()
        steps = [Shared(), pmd.BlockGibbs()]
    idata = sample_with_pymc(model, steps, draws=1000, tune=100)
    check_proportions(idata["posterior"], [*VALUES], *enumerated(model, VALUES))
    assert not [r.getMessage() for r in caplog.records if "two steps" in r.getMessage()]
    assert idata["sample_stats"]["share_accept"].ndim == 2
    other = pmd.BlockGibbs(model=model)
    sample_with_pymc(model, [*steps, other], draws=60, tune=10, chains=1)
    said = [r.getMessage() for r in caplog.records if "two steps" in r.getMessage()]
    assert said
    assert all(line.startswith("BlockGibbs: ") for line in said)


@pytest.mark.slow
def test_coefficients_are_integrated_out_by_both():
    X = np.array([[1.0, 0.9], [0.5, 0.7], [-1.0, -1.2], [0.2, 0.4]])
    y = np.array([1.2, 0.3, -1.4, 0.9])
    with pm.Model():
        g, b = pm.Bernoulli("g", [0.3, 0.6]), pm.Normal("b", 0, 1.5, shape=2)
        pm.Normal("y", pt.dot(X, g * b), 1.0, observed=y)
        steps = [Shared("g", integrate=["b"]), pmd.BlockGibbs("g", integrate=["b"])]
        idata = pmd.sample(1000, tune=300, chains=4, step=steps, random_seed=4, **QUIET)
    states = np.array(list(itertools.product((0, 1), repeat=2)))
    logp = [
        multivariate_normal(np.zeros(4), np.eye(4) + 2.25 * (X * x) @ X.T).logpdf(y)
        + np.log(np.where(x, [0.3, 0.6], [0.7, 0.4])).sum()
        for x in states
    ]
    check_proportions(idata["posterior"], ["g"], states, np.exp(logp - logsumexp(logp)))


def test_coefficients_that_differ_are_refused():
    with pm.Model():
        g, b, c = pm.Bernoulli("g", 0.3), pm.Normal("b"), pm.Normal("c")
        pm.Normal("y", g * b + c, 1.0, observed=0.4)
        steps = [Shared("g", integrate=["b"]), pmd.BlockGibbs("g", integrate=["b", "c"])]
        with pytest.raises(ValueError, match="Only one step can move with 'b', 'c' integrated out"):
            pmd.sample(5, step=steps, **QUIET)
