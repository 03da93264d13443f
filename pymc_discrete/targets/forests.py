"""Sets of sites whose own graph has no cycle, and the order in which such a forest is passed through."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

VARIANTS = 4  # coverings of a graph with cycles: which sites a draw leaves out differs from draw to draw


class Forest(NamedTuple):
    """A forest in levels, the deepest first; arrays are padded with site d and edge E.

    Attributes
    ----------
    sites : (d,) bool
    node, parent : (L, W) int, in level l the sites at depth L - l, and what they hang from
    edge : (L, W) int, the tabled pair between the two
    flipped : (L, W) bool, whether the parent is the first of the pair
    roots : (R,) int
    """

    sites: Any
    node: Any
    parent: Any
    edge: Any
    flipped: Any
    roots: Any


def coverings(pairs: np.ndarray, apart: np.ndarray, members: np.ndarray, d: int) -> list[list[Forest]]:
    """Lists of forests that cover `members` together: one list, of one forest, where nothing stands in the way; else `VARIANTS`.

    Parameters
    ----------
    pairs : (E, 2) int, sites that a table joins: the edges
    apart : (A, 2) int, sites that something else joins: not in one forest
    members : (m,) int, sites to cover
    d : number of sites
    """
    near, far = neighbours_of(pairs, d), neighbours_of(apart, d)
    found = []
    for variant in range(VARIANTS):
        rng, left, cover = np.random.default_rng(variant), set(members.tolist()), []
        while left:
            chosen = grown(near, far, members, left, rng)
            cover.append(in_levels(near, chosen, pairs))
            left -= chosen
        found.append(cover)
        if len(cover) == 1:
            return found[-1:]
    return found


def is_forest(pairs: np.ndarray, d: int) -> bool:
    """Whether the pairs (E, 2) of d sites make no cycle."""
    graph = sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(d, d))
    return len(pairs) == d - sparse.csgraph.connected_components(graph, directed=False)[0]


def neighbours_of(links: np.ndarray, d: int) -> list[list[tuple[int, int]]]:
    """For each site [(the site across, the number of the link)]."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(d)]
    for n, (a, b) in enumerate(links.tolist()):
        found[a].append((b, n))
        if a != b:
            found[b].append((a, n))
    return found


def grown(near, far, members: np.ndarray, wanted: set[int], rng: np.random.Generator) -> set[int]:
    """A largest induced forest that greed finds: from random sites along random edges, those `wanted` first."""
    tree = list(range(len(near)))  # union-find

    def root(i: int) -> int:
        while tree[i] != i:
            tree[i] = tree[tree[i]]
            i = tree[i]
        return i

    chosen: set[int] = set()

    def take(i: int) -> bool:
        if any(j in chosen for j, _ in far[i]):
            return False
        roots = [root(j) for j, _ in near[i] if j in chosen]
        if len(set(roots)) < len(roots):  # two edges into one tree, or a pair with two tables
            return False
        chosen.add(i)
        for r in roots:
            tree[r] = i
        return True

    seen: set[int] = set()
    order = rng.permutation(members).tolist()
    for start in sorted(order, key=lambda i: i not in wanted):  # stable: random within the two
        frontier = [start]
        while frontier:
            n = int(rng.integers(len(frontier)))
            frontier[n], frontier[-1] = frontier[-1], frontier[n]
            i = frontier.pop()
            if i in seen:
                continue
            seen.add(i)
            if take(i):
                frontier += [j for j, _ in near[i] if j not in seen and (j in wanted or i not in wanted)]
    return chosen


def in_levels(near, chosen: set[int], pairs: np.ndarray) -> Forest:
    """The forest from its roots down: each tree hangs from the middle of a longest path, which halves its depth."""
    d, roots, seen = len(near), [], set()
    levels: list[list[tuple[int, int, int]]] = []
    for i in sorted(chosen):
        if i in seen:
            continue
        end = walk(near, chosen, i)[-1][0]
        path = walk(near, chosen, end)
        up, line = {site: above for site, above, _ in path}, [path[-1][0]]
        while up[line[-1]] >= 0:
            line.append(up[line[-1]])
        roots.append(line[len(line) // 2])
        depth = {-1: -1}
        for site, above, link in walk(near, chosen, roots[-1]):
            depth[site] = depth[above] + 1
            while len(levels) <= depth[site]:
                levels.append([])
            levels[depth[site]].append((site, above, link))
            seen.add(site)
    levels = levels[:0:-1]  # without the roots, the deepest first
    width = max(map(len, levels), default=0)
    table = np.empty((3, len(levels), width), int)
    table[:] = np.array([d, d, len(pairs)])[:, None, None]
    for n, level in enumerate(levels):
        table[:, n, : len(level)] = np.array(level).T
    node, parent, edge = table
    first = np.append(pairs[:, 0], -1)  # of each pair
    inside = np.zeros(d, bool)
    inside[list(chosen)] = True
    return Forest(inside, node, parent, edge, first[edge] == parent, np.array(roots, int))


def walk(near, chosen: set[int], start: int) -> list[tuple[int, int, int]]:
    """[(site, the one before it or -1, the link between)] of a tree, breadth first."""
    seen, out = {start}, [(start, -1, -1)]
    for site, _, _ in out:
        for j, link in near[site]:
            if j in chosen and j not in seen:
                seen.add(j)
                out.append((j, site, link))
    return out
