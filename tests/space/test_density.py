"""What a log density answers that gives its values only, against one that knows its terms."""

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.space.density import Density
from pymc_discrete.space.target import Target


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
    np.testing.assert_allclose(values.differences(x), known.differences(x), atol=1e-12)
    found, expected = values.logdensity_and_differences(x), known.logdensity_and_differences(x)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    y = x.at[0].set(1 - x[0]) if hasattr(x, "at") else jnp.asarray(x).at[0].set(1 - x[0])
    np.testing.assert_allclose(
        values.update(y, values.differences(x), jnp.array([0])), known.differences(y), atol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x", "z", "k"])
def test_conditionals(both, name):
    start, known, values = both
    x = jnp.asarray(start)
    n = [v.name for v in known.space.variables].index(name)
    v, first = known.space.variables[n], known.space.starts[n]
    expected = np.asarray(known.differences(x))[first : first + v.size, : v.K]
    rows = np.arange(v.size)
    np.testing.assert_allclose(values.rows(n, rows)(x), expected, atol=1e-12)
    np.testing.assert_allclose(values.unaries(n, x, np.zeros(len(x), bool)), expected, atol=1e-12)
    for row in rows:
        found = values.row(n, jnp.asarray(row), x, values.carried(x))
        np.testing.assert_allclose(found[0], expected[row], atol=1e-12)
    logits = np.asarray(values.logits(n, rows)(x))
    if v.K == 2:
        np.testing.assert_allclose(logits, expected[:, 1:] - expected[:, :1], atol=1e-12)
    else:
        np.testing.assert_allclose(logits - logits[:, :1], expected - expected[:, :1], atol=1e-12)


@pytest.mark.slow
def test_sites_that_change_together(both):
    start, known, values = both
    x = jnp.asarray(start)
    n = [v.name for v in known.space.variables].index("m")
    now = np.asarray(x)[known.space.starts[n] : known.space.starts[n] + 3]
    sites = np.array([[0, 1], [1, 2]])
    candidates = np.stack(
        [now[sites], now[sites] + [1, -1], now[sites] + [-1, 1], now[sites] + [1, 0]], axis=1
    )
    moves = {n: (sites, jnp.asarray(candidates))}
    expected = known.differences_jointly(x, moves)[n]
    found = values.joint_differences(n, sites, jnp.asarray(candidates), x)
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
    logdensity, differences = target.logdensity_and_differences(x)
    np.testing.assert_allclose(logdensity, known.logdensity(x), atol=1e-12)
    assert (differences == 7.0).all()
