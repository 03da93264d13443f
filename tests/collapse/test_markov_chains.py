"""Markov chains are drawn at once, exactly: of several lags, in batches, with tables that vary."""

import itertools
from importlib.metadata import version

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from packaging.version import Version

import pymc_discrete as pmd
from pymc_discrete.collapse import elimination
from pymc_discrete.collapse.at_once import sums_at_once
from pymc_discrete.collapse.elimination import Paths
from tests.tools.statistics import g_test

pytestmark = pytest.mark.shares_programs
pmx = pytest.importorskip("pymc_extras")  # which warns when it is imported

R = np.random.default_rng(5)


def two_lags_in_a_batch():
    """Two chains, each state given the two before it, with one step that is impossible."""
    P = R.dirichlet(np.ones(2), size=(2, 2))
    P[0, 1] = [1.0, 0.0]
    first = pm.Categorical.dist(np.array([[0.3, 0.7], [0.6, 0.4]]))
    start = np.zeros((2, 5), int)
    z = pmx.DiscreteMarkovChain("z", P=P, init_dist=first, n_lags=2, shape=(2, 5), initval=start)
    pm.Normal("y", pt.as_tensor([-0.5, 0.8])[z], 1.0, observed=R.normal(size=(2, 5)))
    return {"z": ((2, 5), range(2))}, {}


def three_lags():
    """The probabilities depend on an unknown number, and one state is known."""
    b = pm.Normal("b")
    P = pm.math.softmax(b * R.normal(size=(2, 2, 2, 2)), axis=-1)
    first = pm.Categorical.dist([0.4, 0.6])
    z = pmx.DiscreteMarkovChain("z", P=P, init_dist=first, n_lags=3, shape=(8,))
    pm.Potential("known", pt.switch(pt.eq(z[4], 1), 0.0, -np.inf))
    return {"z": ((8,), range(2))}, {"b": np.array(1.3)}


def tables_that_vary():
    """Each step has its own probabilities, by a covariate, given the two states before."""
    slope, x = pm.Normal("slope"), R.normal(size=4)
    logits = R.normal(size=(3, 3, 3)) + slope * x[:, None, None, None] * R.normal(size=(3, 3, 3))
    z = pm.Categorical("z", np.full(3, 1 / 3), shape=6)
    log_P = pt.special.log_softmax(logits, axis=-1)
    pm.Potential("steps", log_P[np.arange(4), z[:-2], z[1:-1], z[2:]].sum())
    seen = np.array([0, 2, 4, 5])
    pm.Normal("y", z[seen].astype(float), 1.2, observed=[0.1, 1.8, 0.4, 1.0])
    return {"z": ((6,), range(3))}, {"slope": np.array(0.7)}


def states_with_durations():
    """A hidden semi-Markov chain: how many times each state is still to be repeated is counted down."""
    K, D, T = 2, 3, 4
    change, lasts = 1 - np.eye(K), R.dirichlet(np.ones(D), K)
    # z' given z and d; d' given d and z'
    to_state = np.where(np.arange(D)[None, :, None] > 0, np.eye(K)[:, None], change[:, None])
    to_duration = np.broadcast_to(lasts, (D, K, D)).copy()
    to_duration[1:] = np.eye(D)[:-1, None]
    z, d = pm.Categorical("z", np.full(K, 1 / K), shape=T), pm.Categorical("d", np.full(D, 1 / D), shape=T)
    with np.errstate(divide="ignore"):
        pm.Potential("states", pt.as_tensor(np.log(to_state))[z[:-1], d[:-1], z[1:]].sum())
        pm.Potential("durations", pt.as_tensor(np.log(to_duration))[d[:-1], z[1:], d[1:]].sum())
    pm.Normal("y", pt.as_tensor([-1.0, 1.0])[z], 1.0, observed=R.normal(size=T))
    return {"z": ((T,), range(K)), "d": ((T,), range(D))}, {}


def of_all_states(model, values, point):
    """(S,) the probability of each state, by PyMC's log density."""
    sizes = [int(np.prod(shape)) for shape, _ in values.values()]
    ranges = [[of] * size for size, (_, of) in zip(sizes, values.values(), strict=True)]
    states = np.array([*itertools.product(*itertools.chain(*ranges))])
    logp = model.compile_logp(mode="FAST_COMPILE")
    found = np.empty(len(states))
    for n, state in enumerate(states):
        parts = zip(values.items(), np.split(state, np.cumsum(sizes)[:-1]), strict=True)
        found[n] = logp({**point, **{name: part.reshape(shape) for (name, (shape, _)), part in parts}})
    p = np.exp(found - found.max())
    return p / p.sum()


@pytest.mark.parametrize(
    "build",
    [two_lags_in_a_batch, three_lags, tables_that_vary, states_with_durations],
    ids=lambda b: b.__name__,
)
@pytest.mark.by_default("two_lags_in_a_batch")
def test_draws_are_exact(build, monkeypatch):
    """Draws from one start, each a single transition of the compiled kernel, against all states."""
    monkeypatch.setattr(elimination, "SHORTEST_WIDE_PATH", 2)
    with pm.Model() as model:
        values, point = build()
        step = pmd.AutoStep(list(values))
    assert isinstance(step, pmd.TreeGibbs)
    groups = [g for stage in sums_at_once(step.density).elimination.order.stages for g in stage]
    assert any(isinstance(g, Paths) and g.ends.shape[1] > 1 for g in groups)
    p = of_all_states(model, values, point)
    start = {name: np.zeros(shape, int) for name, (shape, _) in values.items()}
    x, target = step.target.at({**point, **start})
    order = np.concatenate([target.space.numbers(name).ravel() for name in values])
    with step.density.running(traced=False):
        keys = jax.random.split(jax.random.key(1), 50_000)
        draws = jax.jit(jax.vmap(lambda key: step.kernel.sweeper(target)(key, x, step.params)[0]))(keys)
    counts = [len(of) for shape, of in values.values() for _ in range(int(np.prod(shape)))]
    index = np.ravel_multi_index(np.asarray(draws)[:, order].T, counts)
    got = np.bincount(index, minlength=len(p))
    assert (got[p == 0] == 0).all()
    assert g_test(got[p > 0], p[p > 0]) > 1e-4


@pytest.mark.parametrize(("lags", "K"), [(2, 10), (3, 5)])
def test_long_chains_are_drawn_at_once(lags, K):
    """That sums of a chain with one table of steps are cheap, as one table is made for all of them."""
    T, P = 300, np.random.default_rng(0).dirichlet(np.ones(K), size=(K,) * lags)
    with pm.Model() as model:
        z = pm.Categorical("z", np.full(K, 1 / K), shape=T)
        steps = [z[n : T - lags + n] for n in range(lags + 1)]
        pm.Potential("steps", pt.log(pt.as_tensor(P))[tuple(steps)].sum())
        pm.Normal("y", z.astype(float), 1.0, observed=np.zeros(T))
    sums = sums_at_once(pmd.target_from_model(model).density)
    assert sums is not None
    assert sum(g.entries for g in sums.elements.groups) < 2 * K ** (lags + 1) + T * K


@pytest.mark.skipif(
    Version(version("pymc-extras")) >= Version("0.13.1"), reason="the distribution has a start of a batch"
)
def test_a_batch_of_chains_needs_a_start_that_pymc_cannot_give():
    P, first = np.array([[0.9, 0.1], [0.2, 0.8]]), pm.Categorical.dist([0.5, 0.5])
    with pm.Model():
        pmx.DiscreteMarkovChain("z", P=P, init_dist=first, shape=(2, 4))
        with pytest.raises(ValueError, match=r"distribution of 'z' has no start of its own.*Pass initval="):
            pmd.AutoStep()
