"""Factor graphs against enumeration, and messages against a direct implementation, factor by factor and value
by value.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import pymc_discrete as pmd
from pymc_discrete.factor_graphs import (
    Bipartite,
    Cardinality,
    FactorGraph,
    LogicalAnd,
    LogicalOr,
    Pairwise,
    Quadratic,
    Table,
    max_product,
    perturb_and_max_product,
    pmp,
)
from pymc_discrete.factor_graphs.semiring import MAX, SUM
from tests.factor_graphs.graphs import TREES, counted, gates, hard_table, held_sites, loops, random_tree
from tests.tools.enumeration import states_of_graph
from tests.tools.interpreted import interpreted

REDUCE = {MAX: np.max, SUM: logsumexp}


# ---------------------------------------------------------------- the direct way
def pieces(factor) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """[(sites, table over their values)] of single factors, written out from what each kind says it is."""
    found = []
    if isinstance(factor, Table):
        table = np.asarray(factor.parameters["table"])
        for f, sites in enumerate(zip(*factor.sites, strict=True)):
            found.append((tuple(map(int, sites)), table[f] if table.ndim > len(factor.sites) else table))
    elif isinstance(factor, Quadratic):
        w, (low, high), sites = np.asarray(factor.parameters["weights"]), factor.values, factor.sites[0]
        for i, j in itertools.combinations(range(len(sites)), 2):
            found += form(int(sites[i]), int(sites[j]), w[i, j], low, high)
    elif isinstance(factor, Bipartite):
        w, (low, high), (a, b) = np.asarray(factor.parameters["weights"]), factor.values, factor.sites
        for i, j in itertools.product(range(len(a)), range(len(b))):
            found += form(int(a[i]), int(b[j]), w[i, j], low, high)
    elif isinstance(factor, LogicalOr):
        rule = all if isinstance(factor, LogicalAnd) else any
        parents = np.split(factor.sites[0], np.cumsum(factor.lengths)[:-1])
        for p, child in zip(parents, factor.sites[1], strict=True):
            table = np.full((2,) * (len(p) + 1), -np.inf)
            for on in itertools.product((0, 1), repeat=len(p)):
                table[(*on, int(rule(on)))] = 0.0
            found.append(((*map(int, p), int(child)), table))
    elif isinstance(factor, Cardinality):
        weights = np.broadcast_to(factor.parameters["weights"], (factor.shape[0], factor.shape[1] + 1))
        for f, sites in enumerate(factor.sites[0].reshape(factor.shape)):
            table = np.array(
                [weights[f, sum(on)] for on in itertools.product((0, 1), repeat=len(sites))]
            ).reshape((2,) * len(sites))
            found.append((tuple(map(int, sites)), table))
    return found


def form(i: int, j: int, w: float, low: float, high: float) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """w v_i v_j of v = low + (high - low) s as what its sites have alone, s = 0 or 1, and what they have
    together.
    """
    alone, together = (
        (high - low) * low * w * np.arange(2),
        (high - low) ** 2 * w * np.outer(np.arange(2), np.arange(2)),
    )
    return [((i,), alone), ((j,), alone), ((i, j), together + low**2 * w)]


class Direct:
    """Every message of every single factor, one after another."""

    def __init__(self, graph: FactorGraph):
        self.unary = [
            np.asarray(u)[: v.counts[i], i]
            for v, u in zip(graph.space.variables, graph.unary, strict=True)
            for i in range(v.size)
        ]
        every = [piece for factor in graph.wiring.factors for piece in pieces(factor)]
        # a table is as wide as the widest site of a variable
        self.factors = [
            (sites, table[tuple(slice(len(self.unary[i])) for i in sites)])
            for sites, table in every
            if len(sites) > 1
        ]
        for sites, table in every:
            if len(sites) == 1:
                self.unary[sites[0]] = self.unary[sites[0]] + table
        self.messages = [[np.zeros(len(self.unary[i])) for i in sites] for sites, _ in self.factors]

    def received(self, site: int, without: tuple[int, int] | None = None) -> np.ndarray:
        total = self.unary[site].copy()
        for f, (sites, _) in enumerate(self.factors):
            for j, i in enumerate(sites):
                if i == site and (f, j) != without:
                    total = total + self.messages[f][j]
        return total

    def sweep(self, semiring, damping: float) -> None:
        new = []
        for f, (sites, table) in enumerate(self.factors):
            incoming = [self.received(i, (f, j)) for j, i in enumerate(sites)]
            mine = []
            for j in range(len(sites)):
                total = table.copy()
                for k, m in enumerate(incoming):
                    if k != j:
                        total = total + m.reshape([-1 if axis == k else 1 for axis in range(len(sites))])
                with np.errstate(divide="ignore"):
                    m = REDUCE[semiring](np.moveaxis(total, j, 0).reshape(len(incoming[j]), -1), axis=1)
                m = m - m.max()
                old = self.messages[f][j]
                both = np.isfinite(m) & np.isfinite(old)
                mine.append(
                    np.where(both, (1 - damping) * np.where(both, m, 0) + damping * np.where(both, old, 0), m)
                )
            new.append(mine)
        self.messages = new


def levelled(field) -> np.ndarray:
    field = np.asarray(field)
    return field - field.max(axis=0)


# ---------------------------------------------------------------- exactness
def run(graph, semiring, **options):
    return interpreted(lambda graph: max_product.run(graph, semiring, **options))(graph)


RANDOM = (1, 3)  # which have factors of every kind


@pytest.mark.parametrize("seed", RANDOM)
@pytest.mark.by_default("3")
def test_random_trees_are_exact(seed):
    check_exact(random_tree(np.random.default_rng(seed))[0])


def test_random_trees_have_every_kind_of_factor():
    assert len({kind for seed in RANDOM for kind in random_tree(np.random.default_rng(seed))[1]}) == 7


@pytest.mark.parametrize("build", TREES, ids=lambda build: build.__name__)
@pytest.mark.by_default("chain", "counted", "hard_table", "held_sites")
def test_trees_are_exact(build):
    check_exact(build(np.random.default_rng(0)))


@interpreted
def solved(graph: FactorGraph):
    """Best configuration, marginals and log partition function, in one program."""
    summed = max_product.run(graph, SUM, tolerance=1e-13)
    return (
        max_product.decode(graph, max_product.run(graph, MAX, tolerance=1e-13)),
        max_product.marginals(graph, summed),
        max_product.bethe_log_partition(graph, summed),
    )


def check_exact(graph: FactorGraph) -> None:
    """What `solved` finds, against enumeration."""
    x, logp = states_of_graph(graph)
    best, found, partition = solved(graph)
    np.testing.assert_array_equal(best, x[logp.argmax()])
    log_partition = logsumexp(logp)
    np.testing.assert_allclose(partition, log_partition, atol=1e-10)
    p = np.exp(logp - log_partition)
    for start, v in graph.space.blocks:
        for i in range(v.size):
            want = np.bincount(x[:, start + i] - v.lower[i], p, minlength=v.K)
            np.testing.assert_allclose(np.asarray(found[v.name])[i], want, atol=1e-10)


@pytest.mark.parametrize("semiring", [MAX, SUM], ids=lambda s: s.name)
@pytest.mark.parametrize(
    "build", [hard_table, gates, counted, held_sites, loops], ids=lambda build: build.__name__
)
@pytest.mark.by_default(
    "gates-sum-product", "gates-max-product", "hard_table-sum-product", "hard_table-max-product"
)
def test_messages_of_every_sweep(build, semiring):
    """What the sites receive, after each of the first sweeps, is what the direct implementation sends."""
    graph = build(np.random.default_rng(1))
    direct, messages = Direct(graph), max_product.uniform_messages(graph)

    @interpreted
    def sweep(graph, messages):
        messages = max_product.damped(max_product.updated_messages(graph, messages, semiring), messages, 0.3)
        return messages, [field.value() for field in max_product.fields(graph, messages)]

    for _ in range(6):
        messages, fields = sweep(graph, messages)
        direct.sweep(semiring, 0.3)
        site = 0
        for field, v in zip(map(np.asarray, fields), graph.space.variables, strict=True):
            for i in range(v.size):
                got, want = levelled(field[: v.counts[i], i]), levelled(direct.received(site))
                np.testing.assert_allclose(got, want, atol=1e-10)
                site += 1


@pytest.mark.parametrize("semiring", [MAX, SUM], ids=lambda s: s.name)
@pytest.mark.parametrize("kind", ["or", "and", "exactly half", "at most half"])
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.by_default(
    "5-and-sum-product", "5-or-max-product", "5-at most half-sum-product", "2-and-sum-product"
)
def test_gates_and_counts_with_sites_that_are_known(n, kind, semiring):
    """Log odds of plus and minus infinity among the incoming, in every arrangement that is not impossible."""
    s = pmd.Space.build({"x": (0, 1)}, shapes={"x": (n + 1,)})
    x, r, count = s.numbers("x"), np.random.default_rng(n), np.arange(n + 2)
    factor = {
        "or": LogicalOr([x[:n]], x[n:]),
        "and": LogicalAnd([x[:n]], x[n:]),
        "exactly half": Cardinality(x[None], np.where(count == (n + 1) // 2, 0.0, -np.inf)),
        "at most half": Cardinality(x[None], np.where(count <= (n + 1) // 2, r.normal(size=n + 2), -np.inf)),
    }[kind]
    ((_, table),), graph = pieces(factor), FactorGraph(s, [factor])
    known = np.array(list(itertools.product((-1, 0, 1), repeat=n + 1)))
    states = np.array(list(itertools.product((0, 1), repeat=n + 1)))
    agree = ((known[:, None] == -1) | (known[:, None] == states)).all(-1) & (table.reshape(-1) > -np.inf)
    known = known[agree.any(axis=1)]
    unary = np.where(
        (known[..., None] == -1) | (known[..., None] == np.arange(2)),
        r.normal(size=(*known.shape, 2)),
        -np.inf,
    )

    def messages(unary):
        there = graph.perturbed([unary.T])
        (found,) = max_product.updated_messages(there, max_product.uniform_messages(there), semiring)
        return jnp.concatenate(found, axis=1).T

    got = interpreted(jax.vmap(messages))(unary)
    for row, one in zip(got, unary, strict=True):
        direct = Direct(graph)
        direct.unary = list(one)
        direct.sweep(semiring, 0.0)
        np.testing.assert_allclose(row, np.stack(direct.messages[0]), atol=1e-10)


# ---------------------------------------------------------------- extremes
def pair_of(weight, kind):
    return (
        [Quadratic([0, 1], np.array([[0, weight], [weight, 0]]))]
        if kind is Quadratic
        else [Bipartite([0], [1], [[weight]])]
    )


@pytest.mark.parametrize("kind", [Quadratic, Bipartite])
@pytest.mark.parametrize(
    "unary", [(2000.0, 900.0, -1000.0), (-2000.0, -10.0, 1500.0), (900.0, 750.0, -800.0), (1e5, -1e5, 1.0)]
)
def test_pairs_of_thousands_of_nats(unary, kind):
    *alone, weight = unary
    space = pmd.Space.build({"x": (0, 1)}, shapes={"x": 2})
    check_exact(FactorGraph(space, pair_of(weight, kind), {"x": np.stack([np.zeros(2), alone], axis=1)}))


@pytest.mark.parametrize(
    "odds",
    [
        (-1000.0, -1100.0, 1050.0),
        (5.0, -100.0, 150.0),
        (0.0, -60.0, 100.0),
        (20.0, -30.0, 60.0),
        (900.0, 800.0, -2000.0),
    ],
)
@pytest.mark.parametrize("kind", [LogicalOr, LogicalAnd])
def test_gates_of_thousands_of_nats(kind, odds):
    space = pmd.Space.build({"x": (0, 1)}, shapes={"x": 3})
    odds = np.array(odds) * (1 if kind is LogicalOr else -1)
    check_exact(FactorGraph(space, [kind([[0, 1]], [2])], {"x": np.stack([np.zeros(3), odds], axis=1)}))


def test_outside_the_support_is_impossible():
    graph = FactorGraph(grid())
    states = np.array(
        [[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 2, 0, 0, 0], [0, 0, 0, 0, 0, -1, 0], [0, 0, 0, 0, 0, 0, 3]]
    )
    np.testing.assert_array_equal(jax.vmap(graph.logdensity)(states), [0, -np.inf, -np.inf, -np.inf])


def test_a_graph_says_what_it_is():
    assert repr(loops(np.random.default_rng(0))).startswith("FactorGraph(x: ")
    assert repr(FactorGraph(grid())) == "FactorGraph(x: (2, 2) of 2 values, z: (3,) of 3 values; no factors)"


# ---------------------------------------------------------------- refusals
def grid() -> pmd.Space:
    return pmd.Space.build({"x": (0, 1), "z": (0, 2)}, shapes={"x": (2, 2), "z": (3,)})


REFUSED = {
    "an unknown site": (
        lambda: FactorGraph(grid(), [Pairwise([0], [9], np.zeros((2, 2)))]),
        "names site 9, and the space has sites 0 to 6",
    ),
    "mixed variables": (
        lambda: FactorGraph(grid(), [Pairwise([0, 4], [1, 2], np.zeros((2, 2)))]),
        r"mixes sites of 'x' \(2 values\), 'z' \(3 values\)",
    ),
    "a table's shape": (
        lambda: FactorGraph(grid(), [Pairwise([0], [4], np.zeros((2, 2)))]),
        r"shape \(2, 2\).*ask for \(2, 3\)",
    ),
    "nan": (
        lambda: FactorGraph(grid(), [Pairwise([0], [1], np.full((2, 2), np.nan))]),
        "The table of Pairwise hold nan",
    ),
    "a large table": (
        lambda: FactorGraph(
            pmd.Space.build({"k": (0, 99)}, shapes={"k": (2,)}), [Pairwise([0], [1], np.zeros((100, 100)))]
        ),
        "at most 4096",
    ),
    "three values": (
        lambda: FactorGraph(grid(), [Quadratic([4, 5], np.zeros((2, 2)))]),
        "takes variables of two values, and some sites of 'z' have 3",
    ),
    "a site twice": (
        lambda: FactorGraph(grid(), [Quadratic([0, 0], np.zeros((2, 2)))]),
        "names a site twice",
    ),
    "asymmetry": (lambda: FactorGraph(grid(), [Quadratic([0, 1], [[0, 1], [2, 0]])]), "not symmetric"),
    "both sides": (
        lambda: FactorGraph(grid(), [Bipartite([0, 1], [1, 2], np.zeros((2, 2)))]),
        "no site in common",
    ),
    "unary's name": (
        lambda: FactorGraph(grid(), unary={"y": np.zeros(2)}),
        "names 'y', which is no variable of the space: x, z",
    ),
    "unary's shape": (
        lambda: FactorGraph(grid(), unary={"z": np.zeros((3, 2))}),
        r"'z' have shape \(3, 2\).*\(3, 3\)",
    ),
    "unary nan": (
        lambda: FactorGraph(grid(), unary={"z": np.full((3, 3), np.inf)}),
        "unary terms of 'z' hold nan or",
    ),
    "weights by count": (
        lambda: FactorGraph(grid(), [Cardinality([[0, 1]], np.zeros(2))]),
        r"give \(3,\) or \(1, 3\)",
    ),
    "children": (
        lambda: FactorGraph(grid(), [LogicalOr([[0, 1]], [2, 3])]),
        "1 lists of parents and 2 children",
    ),
    "no bound": (
        lambda: FactorGraph(pmd.Space.build({"k": (0, None)})),
        "'k' has more than 256 values or no bound",
    ),
    "no space": (lambda: FactorGraph({"x": 2}), "space must be a Space, got dict"),
    "no sweep": (
        lambda: max_product.run(FactorGraph(grid()), MAX, n_sweeps=0),
        "n_sweeps must be a positive integer, got 0",
    ),
    "no parents": (
        lambda: FactorGraph(grid(), [LogicalOr([[0, 1], []], [2, 3])]),
        "Factor 1 of LogicalOr has no parents",
    ),
    "a site twice in a table": (
        lambda: FactorGraph(grid(), [Pairwise([0, 1], [2, 1], np.zeros((2, 2)))]),
        r"Factor 1 of Pairwise names a site twice: \[1, 1\]",
    ),
    "clamp's name": (
        lambda: FactorGraph(grid()).clamp({"y": 1}),
        "names 'y', which is no variable of the graph",
    ),
    "clamp's shape": (
        lambda: FactorGraph(grid()).clamp({"x": np.zeros(4, int)}),
        r"array of shape \(4,\); its shape is \(2, 2\)",
    ),
    "half a site": (
        lambda: Pairwise([0.9], [1.0], np.zeros((2, 2))),
        "Pairwise takes the numbers of sites, .* got an array of float64",
    ),
    "a mask": (
        lambda: Quadratic([True, False], np.zeros((2, 2))),
        "integers as space.numbers.name. gives them, got an array of bool",
    ),
    "a name": (lambda: Pairwise("x", "z", np.zeros((2, 3))), "got 'x'"),
    "sites that do not pair": (
        lambda: Pairwise([0, 1], [1, 2, 3], np.zeros((2, 2))),
        r"have the shapes \(2,\), \(3,\), which do not go",
    ),
    "no sites": (lambda: Table((), np.zeros(())), "Table has no sites"),
    "one row": (
        lambda: Cardinality([0, 1, 2], np.zeros(4)),
        r"takes sites \(F, n\), a row for each factor, got the shape \(3,\)",
    ),
    "parents of none": (lambda: LogicalOr(0, 1), "takes a list of parents for each factor"),
    "not a list": (
        lambda: FactorGraph(grid(), Pairwise([0], [1], np.zeros((2, 2)))),
        "must be a list of factors, got a Pairwise",
    ),
    "infinite weights": (
        lambda: FactorGraph(grid(), [Quadratic([0, 1], np.full((2, 2), -np.inf))]),
        "weights of Quadratic must be finite",
    ),
    "infinite weights between": (
        lambda: FactorGraph(grid(), [Bipartite([0], [1], [[-np.inf]])]),
        "weights of Bipartite must be finite",
    ),
    "values alike": (
        lambda: Quadratic([0, 1], np.zeros((2, 2)), (1, 1)),
        r"values of Quadratic must be two different numbers",
    ),
    "x too long": (
        lambda: FactorGraph(grid()).logdensity(np.zeros(8, int)),
        r"x has the shape \(8,\); the values of all sites have \(7,\)",
    ),
    "x of floats": (
        lambda: FactorGraph(grid()).logdensity(np.zeros(7)),
        "x must be an array of integers, .* 7 sites .* got float64",
    ),
    "x by name": (
        lambda: FactorGraph(grid()).logdensity({"x": 1}),
        "x must be an array of integers, .* got dict",
    ),
    "damping": (
        lambda: max_product.run(FactorGraph(grid()), MAX, damping=1.0),
        "damping must be at least 0 and below 1, got 1.0",
    ),
    "semiring": (
        lambda: max_product.run(FactorGraph(grid()), "max"),
        "semiring must be pmd.factor_graphs.MAX or SUM, got 'max'",
    ),
    "messages of another": (
        lambda: max_product.run(
            FactorGraph(grid()), MAX, messages=max_product.uniform_messages(loops(np.random.default_rng(0)))
        ),
        "messages are of another graph",
    ),
    "marginals of maxima": (
        lambda: max_product.marginals(FactorGraph(grid()), max_product.run(FactorGraph(grid()), MAX)),
        "these messages are of max-product: run.graph, SUM",
    ),
    "messages alone": (
        lambda: max_product.decode(FactorGraph(grid()), []),
        "Pass what run.* returned, got list",
    ),
    "arguments swapped": (
        lambda: pmp(FactorGraph(grid()), jax.random.key(0)),
        "takes a key and a FactorGraph, in this order",
    ),
    "correlation with none": (
        lambda: pmp(jax.random.key(0), FactorGraph(grid()), correlation=0.5),
        "pass it, persistent=draw",
    ),
    "correlation": (
        lambda: pmp(jax.random.key(0), FactorGraph(grid()), correlation=1.5),
        "between 0 and 1, got 1.5",
    ),
    "no factor": (lambda: FactorGraph(grid(), [3]), "factors holds 3, which is no factor"),
    "unary": (lambda: FactorGraph(grid(), unary=3), "unary must be a dictionary .* got int"),
    "nothing possible": (
        lambda: FactorGraph(grid(), unary={"z": np.full((3, 3), -np.inf)}),
        "exclude every value of element 0",
    ),
    "complex numbers": (
        lambda: FactorGraph(grid(), unary={"z": np.zeros((3, 3), complex)}),
        "'z' must be numbers, got complex128",
    ),
    "counted sites": (lambda: Cardinality(np.zeros((1, 0), int), np.zeros(1)), "Cardinality counts no sites"),
    "clamp of a number": (lambda: FactorGraph(grid()).clamp(3), "values must be a dictionary .* got int"),
    "way": (
        lambda: FactorGraph(grid()).to_target("best"),
        "differences must be one of 'auto', 'exact', 'gradient', got 'best'",
    ),
    "a draw before": (
        lambda: pmp(jax.random.key(0), FactorGraph(grid()), persistent=3),
        "persistent must be the draw before",
    ),
    "tolerance": (
        lambda: max_product.run(FactorGraph(grid()), MAX, tolerance=-1),
        "tolerance must not be negative, got -1",
    ),
    "damping by name": (
        lambda: max_product.run(FactorGraph(grid()), MAX, damping="a"),
        "damping must be at least 0 and below 1",
    ),
    "a kernel's sweeps": (lambda: perturb_and_max_product(0), "n_sweeps must be a positive integer, got 0"),
    "an empty space": (lambda: pmd.Space.build({}), "needs at least one variable"),
    "a list of supports": (
        lambda: pmd.Space.build([(0, 1)]),
        r"supports must be a dictionary \{name: \(lower, upper\)\}",
    ),
    "half a support": (
        lambda: pmd.Space.build({"x": 3}),
        r"support of 'x' must be \(lower, upper\), both inclusive, got 3",
    ),
    "an unknown name": (
        lambda: pmd.Space.build({"x": (0, 1)}, nominal=["y"]),
        "nominal names 'y', which is no variable of the block: x",
    ),
    "one name": (
        lambda: pmd.Space.build({"x": (0, 1)}, nominal="x"),
        "nominal must be a list of names, got 'x'",
    ),
    "one input": (
        lambda: pmd.target_from_logdensity(lambda x: 0.0, grid(), inputs=3),
        "inputs must be a tuple of arrays",
    ),
    "an unknown shape": (
        lambda: pmd.Space.build({"x": (0, 1)}, shapes={"y": 2}),
        "shapes names 'y', which is no variable of the block: x",
    ),
    "half a shape": (
        lambda: pmd.Space.build({"x": (0, 1)}, shapes={"x": 2.5}),
        "shape of 'x' must be integers .* got 2.5",
    ),
    "clamp in halves": (
        lambda: FactorGraph(grid()).clamp({"z": np.array([0, 0.5, 0])}),
        "element 1 of 'z' at 0.5, which is no integer. Mask",
    ),
    "clamp with nan": (
        lambda: FactorGraph(grid()).clamp({"z": np.array([0, 1, np.nan])}),
        "element 2 of 'z' at nan, which is no integer",
    ),
    "clamp by names": (
        lambda: FactorGraph(grid()).clamp({"z": np.array(["a", "b", "c"])}),
        "clamp holds 'z' at <U.*. Give the values",
    ),
    "clamps that contradict": (
        lambda: FactorGraph(grid()).clamp({"z": np.array([0, 1, 0])}).clamp({"z": np.array([0, 2, 0])}),
        "leaves element 1 of 'z' no value",
    ),
    "clamp's value": (
        lambda: FactorGraph(grid()).clamp({"z": np.array([0, 3, 0])}),
        "element 1 of 'z' at 3, outside its support",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    build, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=message):
        build()
