"""Learning: the toy of section 5.1 of Lazaro-Gredilla et al. 2021, exact gradients, and models whose
parameters come back.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp, softmax

import pymc_discrete as pmd
from pymc_discrete import learning
from pymc_discrete.factor_graphs import FactorGraph, Quadratic, pmp
from pymc_discrete.kernels import block_gibbs
from tests.tools.enumeration import states_of_graph
from tests.tools.interpreted import interpreted


class Tied(learning.GraphModel):
    """Four spins, every two with the same coupling."""

    space = pmd.Space.build({"x": (0, 1)}, shapes={"x": (4,)})

    def start(self, key):
        return jnp.zeros(())

    def graph(self, params):
        return FactorGraph(self.space, [Quadratic(np.arange(4), params * (1 - np.eye(4)), values=(-1, 1))])

    def interactions(self, params):
        return params


SPINS = np.array(list(itertools.product((0, 1), repeat=4)))


def tied_probabilities(theta: float) -> np.ndarray:
    s = 2 * SPINS - 1
    return softmax(theta * 0.5 * (s.sum(1) ** 2 - 4))


@pytest.mark.slow
def test_toy_of_section_5_1():
    """theta = 0.5 of the data; learned 0.331, which samples nearly the same distribution.

    With 1000 chains: with the paper's 100 the last iterate has a standard deviation of 0.007.
    """
    p = tied_probabilities(0.5)
    found = learning.fit(
        Tied(), {"x": SPINS}, sampler=learning.PMP(100), iterations=200, chains=1000, batch=None, weights=p
    )
    assert found.mismatch.shape == (200,)
    theta = float(found.params)
    assert theta == pytest.approx(0.331, abs=0.01)
    n = 100_000
    graph = Tied().graph(jnp.asarray(theta))
    x = np.asarray(
        jax.jit(jax.vmap(lambda key: pmp(key, graph, n_sweeps=100).x))(jax.random.split(jax.random.key(1), n))
    )
    q = np.bincount(x @ [8, 4, 2, 1], minlength=16) / n
    assert (p * np.log(p / q)).sum() < 0.02
    # as a Gibbs distribution it is far off
    assert (p * np.log(p / tied_probabilities(theta))).sum() > 0.1


# ---------------------------------------------------------------- exact learning
class Exact:
    """A sampler that draws by enumeration, each state as often as it is probable, to a draw."""

    def begin(self, key, graph, chains):
        return None

    def draw(self, key, graph, kept, chains, batch=None):
        x = np.array(
            list(
                itertools.product(
                    *(range(a, b + 1) for a, b in zip(graph.space.lower, graph.space.upper, strict=True))
                )
            )
        )
        p = jax.nn.softmax(jax.vmap(graph.logdensity)(jnp.asarray(x)))
        # at equal distances: for all chains together as good as without error, and for one a draw
        places = (jnp.arange(chains) + jax.random.uniform(key)) / chains
        return jnp.asarray(x)[jnp.searchsorted(jnp.cumsum(p)[:-1], places, side="right")], None

    def conditional(self, key, graph, kept=None):
        return self.draw(key, graph, None, 1)[0][0]


def likelihood(model, params, data, hidden=False) -> float:
    """Mean log likelihood of rows of all visible sites, by enumeration."""
    graph = model.graph(params)
    x, logp = states_of_graph(graph)
    d = data.shape[1]
    totals = {row: logsumexp(logp[(x[:, :d] == row).all(1)]) for row in map(tuple, np.unique(data, axis=0))}
    return float(np.mean([totals[tuple(row)] for row in data]) - logsumexp(logp))


MODELS = {"ising": learning.Ising(5), "potts": learning.Potts(3, 3), "rbm": learning.RBM(4, 2)}


def moved(model, amount: float):
    """Parameters away from the start."""
    return jax.tree.map(lambda a: a * amount, model.start(jax.random.key(7)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.by_default("potts")
def test_gradient_is_that_of_the_likelihood(name):
    """Many exact draws, one step of gradient ascent: the step is the enumerated gradient, the hidden units
    summed out.
    """
    model, r = MODELS[name], np.random.default_rng(0)
    visible = model.space.variables[0]
    data = r.integers(visible.lower, visible.upper + 1, size=(6, visible.size))
    params = moved(model, 5.0)
    # the draws are without error, but those of hidden units
    n, error = (200_000, 5 / np.sqrt(200_000) * 2) if name == "rbm" else (12_000, 1e-2)
    rows = np.repeat(data, n // 6, axis=0)
    found = learning.fit(
        model,
        {visible.name: rows},
        sampler=Exact(),
        optimizer=optax.sgd(1.0),
        iterations=1,
        chains=n,
        batch=None,
        params=params,
    )
    step = jax.tree.map(lambda a, b: np.asarray(a - b), found.params, params)
    x, _ = states_of_graph(model.graph(params))
    compatible = jnp.asarray((x[None, :, : visible.size] == data[:, None]).all(-1))

    def exact(params):
        logp = jax.vmap(model.graph(params).logdensity)(jnp.asarray(x))
        of_rows = jax.scipy.special.logsumexp(jnp.where(compatible, logp, -jnp.inf), axis=1)
        return of_rows.mean() - jax.scipy.special.logsumexp(logp)

    wanted = interpreted(jax.grad(exact))(params)
    for got, want in zip(jax.tree.leaves(step), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(got, want, atol=error)


def test_l1_is_on_the_interactions_alone():
    model = learning.Ising(4)
    data = np.random.default_rng(0).integers(0, 2, size=(50, 4))
    params = moved(model, 1.0)
    steps = []
    for l1 in (0.0, 0.3):
        found = learning.fit(
            model, {"x": data}, sampler=Exact(), optimizer=optax.sgd(1.0), iterations=1, l1=l1, params=params
        )
        steps.append(found.params)
    difference = jax.tree.map(lambda a, b: np.asarray(b - a), *steps)
    np.testing.assert_allclose(
        difference["weights"], -0.3 * np.sign(np.asarray(params["weights"])), atol=1e-12
    )
    np.testing.assert_array_equal(difference["bias"], 0.0)


SAMPLERS = {
    "persistent pmp": learning.PersistentPMP(20, correlation=0.5),
    "reset gibbs": learning.ContrastiveDivergence(*block_gibbs(), transitions=3, start="uniform"),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.by_default("reset gibbs")
def test_every_sampler_matches_the_statistics_of_the_data(name):
    """Pairs of spins of the model, drawn by the sampler it was learned with, agree with the data's."""
    model, true = (
        learning.Ising(4),
        {"weights": np.triu(0.6 * np.ones((4, 4)), 1) * [[1, 1, -1, 1]], "bias": np.array([0.3, 0, 0, -0.2])},
    )
    x, logp = states_of_graph(model.graph(jax.tree.map(jnp.asarray, true)))
    p, s = softmax(logp), 2 * x - 1
    sampler = SAMPLERS[name]
    found = learning.fit(
        model, {"x": x}, sampler=sampler, iterations=400, chains=200, batch=None, weights=p, l1=0.0
    )
    draws, _ = interpreted(
        lambda kept: sampler.draw(jax.random.key(1), model.graph(found.params), kept, 200)
    )(found.kept)
    t = 2 * np.asarray(draws) - 1
    want, got = (s * p[:, None]).T @ s, t.T @ t / 200
    # an adam of 0.01 wanders by about as much as 200 draws do
    assert np.abs(want - got).max() < 6 / np.sqrt(200)


@pytest.mark.slow
def test_hidden_units_raise_the_likelihood():
    """An RBM learns two patterns that independent pixels cannot."""
    data = np.array([[1, 1, 0, 0], [0, 0, 1, 1]] * 20)
    model = learning.RBM(4, 2)
    sampler = learning.ContrastiveDivergence(*block_gibbs(), transitions=3)
    found = learning.fit(model, {"v": data}, sampler=sampler, optimizer=optax.adam(0.05), iterations=400)
    x, _ = interpreted(lambda kept: sampler.draw(jax.random.key(1), model.graph(found.params), kept, 500))(
        found.kept
    )
    patterns = (np.asarray(x)[:, None, :4] == np.unique(data, axis=0)).all(-1).any(-1)
    assert patterns.mean() > 0.7


REFUSED = {
    "no variable": (
        {"y": np.zeros((3, 4), int)},
        {},
        r"data must name variables of the model \(v, h\), got y",
    ),
    "rows": (
        {"v": np.zeros((3, 4), int), "h": np.zeros((2, 2), int)},
        {},
        "data must hold as many rows of every variable",
    ),
    "shape": (
        {"v": np.zeros((3, 5), int)},
        {},
        r"rows of 'v' have shape \(5,\) in data, and \(4,\) in the model",
    ),
    "values": ({"v": np.full((3, 4), 2)}, {}, "data of 'v' must be from 0 to 1, got 2 to 2"),
    "floats": ({"v": np.zeros((3, 4))}, {}, "data of 'v' must be integers, got float64"),
    "masked": ({"v": np.ma.masked_equal(np.eye(4, dtype=int), 1)}, {}, "data of 'v' have masked values"),
    "weights": ({"v": np.zeros((3, 4), int)}, {"weights": [1, 2]}, "weights must be 3 numbers"),
    "a negative weight": (
        {"v": np.zeros((3, 4), int)},
        {"weights": [-1, 1, 2]},
        "none negative and not all 0",
    ),
    "an array": (np.zeros((3, 4), int), {}, "data must be a dictionary"),
    "a number": ({"v": 1}, {}, "data must be a dictionary .* a row for each observation"),
    "chains": ({"v": np.zeros((3, 4), int)}, {"chains": 0}, "chains must be an integer of at least 1, got 0"),
    "batch": (
        {"v": np.zeros((3, 4), int)},
        {"batch": 1.5},
        "batch must be an integer of at least 1, got 1.5",
    ),
    "iterations": (
        {"v": np.zeros((3, 4), int)},
        {"iterations": -1},
        "iterations must be an integer of at least 1, got -1",
    ),
    "l1": ({"v": np.zeros((3, 4), int)}, {"l1": -0.1}, "l1 must not be negative, got -0.1"),
    "an infinite l1": ({"v": np.zeros((3, 4), int)}, {"l1": np.inf}, "l1 must be a number, got inf"),
    "sampler": (
        {"v": np.zeros((3, 4), int)},
        {"sampler": "pmp"},
        r"sampler must be one of pmd.learning \(PMP, .* got 'pmp'",
    ),
    "optimizer": (
        {"v": np.zeros((3, 4), int)},
        {"optimizer": "adam"},
        "optimizer must be an optimiser of optax, .* got 'adam'",
    ),
    "seed": ({"v": np.zeros((3, 4), int)}, {"seed": 1.5}, "seed must be an integer of at least 0, got 1.5"),
    "params": (
        {"v": np.zeros((3, 4), int)},
        {"params": {"v": np.zeros(4)}},
        r"params must be arrays of the shapes \{'h': \(2,\)",
    ),
}
GIBBS = block_gibbs()
# refused when made: the exception's message
MADE = {
    "no spins": (lambda: learning.Ising(0), "n must be an integer of at least 1, got 0"),
    "a spread below 0": (lambda: learning.Ising(3, -0.1), "spread must not be negative, got -0.1"),
    "a spread that is nan": (lambda: learning.Ising(3, np.nan), "spread must be a number, got nan"),
    "no sites": (lambda: learning.Potts(0, 2), "n must be an integer of at least 1, got 0"),
    "one value": (lambda: learning.Potts(3, 1), "K must be an integer of at least 2, got 1"),
    "tables too large": (lambda: learning.Potts(3, 65), r"A table of shape \(65, 65\) has 4225 entries"),
    "an edge to nowhere": (
        lambda: learning.Potts(3, 2, [[0, 5]]),
        "Pairwise names site 5, and the space has sites 0 to 2",
    ),
    "an edge from nowhere": (
        lambda: learning.Potts(3, 2, [[-1, 0]]),
        "Pairwise names site -1, and the space has sites 0 to 2",
    ),
    "an edge to itself": (lambda: learning.Potts(3, 2, [[0, 0]]), r"names a site twice: \[0, 0\]"),
    "one edge": (lambda: learning.Potts(3, 2, [0, 1]), r"pairs must be integers \(E, 2\).* of shape \(2,\)"),
    "half an edge": (
        lambda: learning.Potts(3, 2, [[0, 1.5]]),
        r"pairs must be integers \(E, 2\).* array of float64",
    ),
    "nothing visible": (lambda: learning.RBM(0, 2), "visible must be an integer of at least 1, got 0"),
    "nothing hidden": (lambda: learning.RBM(2, 0), "hidden must be an integer of at least 1, got 0"),
    "no sweeps": (lambda: learning.PMP(0), "n_sweeps must be a positive integer, got 0"),
    "all stays": (lambda: learning.PersistentPMP(damping=1), "damping must be at least 0 and below 1, got 1"),
    "correlation": (
        lambda: learning.PersistentPMP(correlation=2),
        "correlation must be between 0 and 1, got 2",
    ),
    "a pair for a kernel": (
        lambda: learning.ContrastiveDivergence(GIBBS, {}),
        r"kernel must be a kernel of pmd.kernels, got tuple",
    ),
    "no transitions": (
        lambda: learning.ContrastiveDivergence(*GIBBS, 0),
        "transitions must be an integer of at least 1, got 0",
    ),
    "no start": (
        lambda: learning.ContrastiveDivergence(*GIBBS, start="zeros"),
        "start must be one of 'data', 'persistent', 'uniform', got 'zeros'",
    ),
    "no chains": (
        lambda: learning.ReplayBuffer(*GIBBS, size=0),
        "size must be an integer of at least 1, got 0",
    ),
    "conditional": (
        lambda: learning.ContrastiveDivergence(*GIBBS, conditional_transitions=0),
        "conditional_transitions must be .* got 0",
    ),
    "differences": (
        lambda: learning.ContrastiveDivergence(*GIBBS, differences="best"),
        "differences must be one of 'auto', .* got 'best'",
    ),
    "no model": (
        lambda: learning.fit(3, {}),
        r"model must be one of pmd.learning \(Ising, Potts, RBM, Neural\) .* got 3",
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_refused_when_made(name):
    make, message = MADE[name]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    data, options, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=message):
        learning.fit(learning.RBM(4, 2), data, **options)
