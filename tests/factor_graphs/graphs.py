"""Factor graphs with every kind of factor, trees and graphs with cycles, each from a random generator."""

import numpy as np

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
)


def space(**sizes) -> pmd.Space:
    """Binary x and y, ternary z, and k of 1 to 4, of some elements the upper bounds lower."""
    sizes = {"x": 4, "z": 3, "k": 2, "y": 3} | sizes
    bounds = {"x": (0, 1), "z": (0, 2), "k": (1, [4, 3, 4, 2][: sizes["k"]]), "y": (0, 1)}
    return pmd.Space.build(bounds, shapes={name: (size,) for name, size in sizes.items()})


def numbers(s: pmd.Space):
    """The binary sites, of both variables, the ternary ones, and k's."""
    return np.concatenate([s.numbers("x"), s.numbers("y")]), s.numbers("z"), s.numbers("k")


def unaries(s: pmd.Space, r) -> dict[str, np.ndarray]:
    return {v.name: r.normal(size=(*v.shape, v.K)) for v in s.variables}


def chain(r):
    s = space()
    x, z, k = numbers(s)
    factors = [Pairwise(x[:-1], x[1:], r.normal(size=(6, 2, 2))), Pairwise(x[:3], z, r.normal(size=(2, 3)))]
    return FactorGraph(s, [*factors, Pairwise(k, z[:2], r.normal(size=(2, 4, 3)))], unaries(s, r))


def hard_table(r):
    s = space()
    x, z, k = numbers(s)
    table = np.where(r.random((2, 2, 3, 4)) < 0.3, -np.inf, r.normal(size=(2, 2, 3, 4)))
    return FactorGraph(
        s,
        [Table((x[:2], x[2:4], z[:2], k), table), Pairwise(x[4], x[5:], r.normal(size=(2, 2)))],
        unaries(s, r),
    )


def one_pair(r):
    s = space()
    x, z, _ = numbers(s)
    return FactorGraph(
        s,
        [
            Quadratic(x[:2], [[3.0, 1.3], [1.3, -2.0]], values=(-1, 1)),
            Pairwise(x[1:4], z, r.normal(size=(2, 3))),
        ],
        unaries(s, r),
    )


def star(r):
    s = space()
    x, *_ = numbers(s)
    return FactorGraph(
        s,
        [
            Bipartite(x[:1], x[1:5], r.normal(size=(1, 4)), values=(-1, 1)),
            Bipartite(x[5:], x[4:5], r.normal(size=(2, 1))),
        ],
        unaries(s, r),
    )


def gates(r):
    s = space()
    x, z, _ = numbers(s)
    return FactorGraph(
        s,
        [
            LogicalOr([x[:3], x[3:4]], [x[3], x[5]]),
            LogicalAnd([x[[4, 5]]], [x[6]]),
            Pairwise(x[2], z[0], r.normal(size=(2, 3))),
        ],
        unaries(s, r),
    )


def counted(r):
    s = space()
    x, z, _ = numbers(s)
    exactly_two = np.where(np.arange(5) == 2, 0.0, -np.inf)
    return FactorGraph(
        s,
        [
            Cardinality(x[None, :4], exactly_two),
            Cardinality(x[None, 3:], r.normal(size=5)),
            Pairwise(x[0], z, r.normal(size=(2, 3))),
        ],
        unaries(s, r),
    )


def held_sites(r):
    x, y = np.ma.masked_array([1, 0, 0, 0], mask=[0, 1, 1, 1]), np.ma.masked_array([0, 0, 1], mask=[1, 1, 0])
    return gates(r).clamp({"x": x, "y": y, "z": np.ma.masked_array([0, 2, 0], mask=[1, 0, 1])})


def random_tree(r):
    """A factor of any kind on one of the sites there are and on some new ones, until there are no more."""
    s = space()
    all_x, all_z, all_k = numbers(s)
    values = {int(i): n for sites, n in ((all_x, 2), (all_z, 3), (all_k, 4)) for i in sites}
    x, z, k = ([int(i) for i in r.permutation(sites)] for sites in (all_x, all_z, all_k))
    tree, factors, kinds = [x.pop()], [], []
    while x or z or k:
        kind = r.choice(["pair", "table", "quadratic", "bipartite", "or", "and", "cardinality"])
        new = [left.pop() for left in (x,) * int(r.integers(1, 4)) if left]
        binary = [i for i in tree if values[i] == 2]
        at = int(r.choice(binary))
        if kind in ("pair", "table"):
            x += new
            left = [pool for pool in (x, z, k) if pool]
            new = [left[r.integers(len(left))].pop()] + ([z.pop()] if kind == "table" and z else [])
            at = int(r.choice(tree))
            table = r.normal(size=[values[i] for i in (at, *new)])
            factors.append(
                Table(
                    tuple(np.array([i]) for i in (at, *new)),
                    np.where(r.random(table.shape) < 0.1, -np.inf, table),
                )
            )
        elif not new:
            continue
        elif kind == "quadratic":
            x += new[1:]
            factors.append(Quadratic([at, new[0]], r.normal() * np.ones((2, 2)), values=(-1, 1)))
            new = new[:1]
        elif kind == "bipartite":
            factors.append(Bipartite([at], new, 2 * r.normal(size=(1, len(new)))))
        elif kind == "cardinality":
            weights = r.normal(size=len(new) + 2)
            weights[r.integers(len(weights))] = -np.inf
            factors.append(Cardinality([[at, *new]], weights))
        else:
            gate, child = (LogicalOr if kind == "or" else LogicalAnd), bool(r.random() < 0.5)
            factors.append(gate([new], [at]) if child else gate([[at, *new[1:]]], [new[0]]))
        tree += new
        kinds.append(kind)
    return FactorGraph(s, factors, unaries(s, r)), kinds


TREES = (chain, hard_table, one_pair, star, gates, counted, held_sites)


def loops(r):
    """Every kind of factor, and cycles through all of them."""
    s = space(x=6, z=4, k=3)
    x, z, k = numbers(s)
    w = r.normal(size=(4, 4))
    factors = [
        Pairwise(x, np.roll(x, 1), r.normal(size=(9, 2, 2))),
        Pairwise(z, np.roll(z, 1), r.normal(size=(3, 3))),
        Table((x[:3], z[:3], k), r.normal(size=(3, 2, 3, 4))),
        Quadratic(x[2:6], w + w.T, values=(-1, 1)),
        Quadratic(x[5:9], w + w.T),
        Bipartite(x[:3], x[4:8], r.normal(size=(3, 4)), values=(-1, 1)),
        LogicalOr([x[:4], x[5:7]], [x[6], x[8]]),
        LogicalAnd([x[[1, 3, 5]], x[[7]]], [x[7], x[2]]),
        Cardinality(x[[[0, 2, 4, 6], [1, 3, 5, 7]]], r.normal(size=(2, 5))),
        Cardinality(x[None, 3:8], np.where(np.arange(6) < 4, 0.0, -np.inf)),
    ]
    return FactorGraph(s, factors, unaries(s, r))
