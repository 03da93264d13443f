"""Equal parts of a sum, of which one is computed: the same log density and gradient as of all of them."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_discrete.collapse import repeats
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.runtime.model_settings import model_settings
from tests.tools.interpreted import interpreted

pytestmark = pytest.mark.shares_programs

R = np.random.default_rng(5)


def words():
    """Two documents of three words, a topic of each word."""
    document, word = np.repeat([0, 1], 12), R.integers(0, 3, 24)
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones(2), shape=(2, 2))
        phi = pm.Dirichlet("phi", np.ones(3), shape=(2, 3))
        z = pm.Categorical("z", theta[document])
        pm.Categorical("w", phi[z], observed=word)
    return model, 24, 6


def histories():
    """Whether each of 16 places is occupied, and what is there on the two days when it was visited."""
    seen = np.array([[0, 0], [0, 1], [1, 1], [0, 0]])[R.integers(0, 4, 16)]
    with pm.Model() as model:
        psi, p, q = pm.Beta("psi", 1, 1), pm.Beta("p", 2, 1), pm.Beta("q", 2, 1)
        present = pm.Bernoulli("present", psi, shape=16)
        here = pm.Bernoulli("here", present[:, None] * q, shape=(16, 2))
        pm.Bernoulli("seen", 0.01 + 0.9 * here * p, observed=seen)
    return model, 16, 3


def supports():
    """Counts with the same table and different supports, beside what depends on no count."""
    y = R.normal(size=3)[R.integers(0, 3, 20)]
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", shape=4), pm.HalfNormal("sd", [1.0, 2.0])
        k = pm.DiscreteUniform("k", 0, np.tile([2, 3], 10), shape=20)
        pm.Normal("y", pt.concatenate([mu[k], mu[:1]]), sd[0], observed=[*y, 0.3])
        pm.Normal("unrelated", 0, sd[1], observed=y)
    return model, 20, len({(a, n % 2) for n, a in enumerate(y)})


def both(collapsed, seed=0):
    """The log density and its gradient, with all parts and with those that differ."""
    sums = collapsed.sums
    point = collapsed.model.initial_point()
    r = np.random.default_rng(seed)
    point = {name: value + r.normal(size=np.shape(value)) for name, value in point.items()}
    inputs = collapsed.inputs(point)
    moving = [n for n, i in enumerate(inputs) if np.asarray(i).dtype.kind == "f"]

    def of(function):
        def of_floats(*floats):
            given = dict(zip(moving, floats, strict=True))
            return function([given.get(n, i) for n, i in enumerate(inputs)])

        floats = [np.asarray(inputs[n]) for n in moving]
        value, slopes = interpreted(jax.value_and_grad(of_floats, tuple(range(len(floats)))))(*floats)
        return np.concatenate([np.ravel(a) for a in (value, *slopes)])

    def whole(inputs):
        return sums.logdensity(sums.density.without_parts(inputs, sums._values_of_leaves))

    return of(whole), of(sums.repeats.logdensity)


@pytest.mark.parametrize("build", [words, histories, supports])
@pytest.mark.by_default("histories")
def test_the_same_with_fewer_parts(build):
    model, parts, different = build()
    with model_settings():
        collapsed = Collapsed(model, [str(v.name) for v in model.discrete_value_vars])
        found = collapsed.sums.repeats
        assert (found.times.sum(), len(found.times)) == (parts, different)
        np.testing.assert_allclose(*both(collapsed), rtol=1e-10)


def test_planted_constants_that_are_not_compared(monkeypatch):
    model, _, different = words()
    with model_settings():
        collapsed = Collapsed(model, ["z"])
        sums = collapsed.sums
        monkeypatch.setattr(
            repeats.Labels, "at_leaf", lambda self, v: np.zeros(int(np.prod(v.type.shape)), int)
        )
        monkeypatch.setattr(sums, "repeats", repeats.Repeats.of(sums.elements))
        assert len(sums.repeats.times) < different
        whole, wrong = both(collapsed)
    assert abs(whole[0] - wrong[0]) > 0.01


def test_parts_differ_where_anything_does():
    """Covariates, continuous unknowns of each site, and data that a program may be used again for."""
    with pm.Model() as model:
        w, rates, each = pm.Beta("w", 1, 1), pm.HalfNormal("rates", 5, shape=2), pm.Normal("each", shape=20)
        z = pm.Bernoulli("z", w, shape=20)
        a = pm.Bernoulli("a", w, shape=20)
        pm.Poisson("y", rates[z], observed=np.tile([1, 2, 3, 4], 5))
        pm.Normal("of each", a + each, 1, observed=np.ones(20))
    with model_settings():
        collapsed = Collapsed(model, ["z"], with_numbers=True)
        assert collapsed.sums.repeats is None
        assert len(Collapsed(model, ["z"]).sums.repeats.times) == 4
        assert Collapsed(model, ["a"]).sums.repeats is None


def test_many_repeats_are_worth_a_program_of_their_own(monkeypatch):
    monkeypatch.setattr(repeats, "MANY", 40)

    def of(y):
        with pm.Model() as model:
            w, rates = pm.Beta("w", 1, 1), pm.HalfNormal("rates", 5, shape=2)
            z = pm.Bernoulli("z", w, shape=len(y))
            pm.Poisson("y", rates[z], observed=y)
        return Collapsed.of(model, ["z"]).sums.repeats

    assert len(of(np.tile([1, 2, 3, 4], 10)).times) == 4
    assert of(np.tile([1, 2, 3, 4], 9)) is None  # too few
    assert of(np.arange(40)) is None
