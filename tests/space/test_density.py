"""What a log density answers that gives its values only, against one that knows its terms."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.space.density import Density
from pymc_discrete.space.target import Target
from tests.tools.interpreted import interpreted


class ValuesOnly(Density):
    """The log density of a target, which says nothing of its terms."""

    def __init__(self, target):
        super().__init__()
        self.inner, self.space = target.density, target.space

    def running(self, traced):
        return self.inner.running(traced)

    def logdensity(self, x, context):
        return self.inner.logdensity(x, context)

    def describe(self):
        return {}


@pytest.fixture(scope="module")
def both():
    with pm.Model() as model:
        x = pm.Bernoulli("x", [0.3, 0.6])
        z = pm.Categorical("z", [0.2, 0.5, 0.3])
        k = pm.Binomial("k", 3, 0.4)
        m = pm.Multinomial("m", 3, np.array([0.2, 0.3, 0.5]))
        pm.Normal("y", x[0] * x[1] + 0.5 * z - x[1] * k + m[0] * z, 1.0, observed=0.7)
    known = pmd.target_from_model(model, ["x", "z", "k", "m"])
    start, known = known.at(model.initial_point())
    return start, known, Target(ValuesOnly(known), known.ready())


def test_differences(both):
    x, known, values = both
    assert values.exact
    assert not values.local

    @interpreted
    def answers(x, y):
        of_each = [
            (target.differences(x), target.logdensity_and_differences(x), target.differences(y))
            for target in (values, known)
        ]
        return *of_each, values.update(y, values.differences(x), jnp.array([0]))

    y = np.array(x)
    y[0] = 1 - y[0]
    found, expected, updated = answers(np.array(x), y)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, expected)
    np.testing.assert_allclose(updated, expected[-1], atol=1e-12)


@pytest.mark.parametrize("name", ["x", "k"])
@pytest.mark.by_default("k")
def test_conditionals(both, name):
    x, known, values = both
    n = [v.name for v in known.space.variables].index(name)
    v, first = known.space.variables[n], known.space.starts[n]
    rows = np.arange(v.size)

    @interpreted
    def answers(x):
        unaries = values.unaries(n, x, np.zeros(len(x), bool))
        each = [values.row(n, jnp.asarray(row), x, values.carried(x)) for row in rows]
        return values.rows(n, rows)(x), unaries, each, values.logits(n, rows)(x), known.differences(x)

    together, unaries, each, logits, differences = answers(np.array(x))
    expected = differences[first : first + v.size, : v.K]
    np.testing.assert_allclose(together, expected, atol=1e-12)
    np.testing.assert_allclose(unaries, expected, atol=1e-12)
    for row, found in zip(rows, each, strict=True):
        np.testing.assert_allclose(found[0], expected[row], atol=1e-12)
    if v.K == 2:
        np.testing.assert_allclose(logits, expected[:, 1:] - expected[:, :1], atol=1e-12)
    else:
        np.testing.assert_allclose(logits - logits[:, :1], expected - expected[:, :1], atol=1e-12)


def test_sites_that_change_together(both):
    x, known, values = both
    n = [v.name for v in known.space.variables].index("m")
    now = np.asarray(x)[known.space.starts[n] : known.space.starts[n] + 3]
    sites = np.array([[0, 1], [1, 2]])
    candidates = np.stack(
        [now[sites], now[sites] + [1, -1], now[sites] + [-1, 1], now[sites] + [1, 0]], axis=1
    )
    expected = known.differences_jointly(x, {n: (sites, candidates)})[n]
    found = interpreted(lambda x, c: values.joint_differences(n, sites, c, x))(np.array(x), candidates)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.isneginf(found[:, 3]).all()  # it breaks the sum
    assert np.isfinite(found).any()


def test_every_site_interacts_with_every_other(both):
    _, _, values = both
    graph = values.interactions
    assert not graph.colours
    assert sum(len(sites) for _, sites in graph.scanned) == 4
    assert not len(graph.pairs)
    assert values.joint().shape[0] == 0


def test_differences_of_its_own_are_read_with_the_values(both):
    """As kernels do, where differences are estimates by a gradient, say."""

    class Estimated(ValuesOnly):
        def differences(self, x, context):
            return jnp.full((self.space.d, self.space.K), 7.0)

    x, known, _ = both
    target = Target(Estimated(known), known.ready())
    (logdensity, differences), expected = interpreted(
        lambda x: (target.logdensity_and_differences(x), known.logdensity(x))
    )(np.array(x))
    np.testing.assert_allclose(logdensity, expected, atol=1e-12)
    assert (differences == 7.0).all()
