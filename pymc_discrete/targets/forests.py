"""Sets of sites whose own graph has no cycle, and the order in which such a forest is passed through."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

VARIANTS = 4  # coverings of a graph with cycles: which sites a draw leaves out differs from draw to draw


class Forest(NamedTuple):
    """A forest in levels, the deepest first; arrays are padded with site d and edge E.

    Attributes
    ----------
    sites : (d,) bool
    node : (L, W) int, in level l the sites at depth L - l; a site's first child is in its own column,
        wherever it can
    column : (L, W) int, the column, one level up, of what they hang from; of the last level, the number of
        the root; W or R where padded
    edge : (L, W) int, the tabled pair between the two
    flipped : (L, W) bool, whether the site above is the first of the pair
    roots : (R,) int
    """

    sites: Any
    node: Any
    column: Any
    edge: Any
    flipped: Any
    roots: Any


def coverings(pairs: np.ndarray, apart: np.ndarray, members: np.ndarray, d: int) -> list[list[Forest]]:
    """Lists of forests that cover `members` together: one list, of one forest, where nothing stands in the
    way; else `VARIANTS`.

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
    """A largest induced forest that greed finds: from random sites along random edges, those
    `wanted` first.
    """
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
    """The forest from its roots down: each tree hangs from the middle of a longest path, which halves its
    depth.
    """
    d, roots, seen = len(near), [], set()
    levels: list[list[tuple[int, int, int]]] = []  # (site, what it hangs from, link), from the roots down
    for i in sorted(chosen):
        if i in seen:
            continue
        end = walk(near, chosen, i)[-1][0]
        path = walk(near, chosen, end)
        up, line = {site: parent for site, parent, _ in path}, [path[-1][0]]
        while up[line[-1]] >= 0:
            line.append(up[line[-1]])
        roots.append(line[len(line) // 2])
        depth = {-1: -1}
        for site, parent, link in walk(near, chosen, roots[-1]):
            depth[site] = depth[parent] + 1
            while len(levels) <= depth[site]:
                levels.append([])
            levels[depth[site]].append((site, parent, link))
            seen.add(site)
    levels, width = levels[1:], max(map(len, levels[1:]), default=0)
    above = {root: r for r, root in enumerate(roots)}
    table = np.empty((3, len(levels), width), int)
    table[:] = np.array([d, width, len(pairs)])[:, None, None]
    table[1, :1] = len(roots)
    for n, level in enumerate(levels):
        columns = in_columns(level, above if n else {})
        for (site, parent, link), column in zip(level, columns, strict=True):
            table[:, n, column] = site, above[parent], link
        above = {site: column for (site, *_), column in zip(level, columns, strict=True)}
    node, column, edge = table[:, ::-1]
    inside = np.zeros(d, bool)
    inside[list(chosen)] = True
    # the site itself is the second of its pair where the other is the first
    second = np.append(pairs[:, 1], -1)
    return Forest(inside, node, column, edge, second[edge] == node, np.array(roots, int))


def in_columns(level: list[tuple[int, int, int]], above: dict[int, int]) -> list[int]:
    """A column for each site of a level: that of what it hangs from, for the first to ask, and the first free
    one.
    """
    taken: dict[int, int] = {}
    for n, (_, parent, _) in enumerate(level):
        if parent in above:
            taken.setdefault(above[parent], n)
    given = {n: column for column, n in taken.items()}
    free = (column for column in itertools.count() if column not in taken)
    return [given[n] if n in given else next(free) for n in range(len(level))]


def walk(near, chosen: set[int], start: int) -> list[tuple[int, int, int]]:
    """[(site, the one before it or -1, the link between)] of a tree, breadth first."""
    seen, out = {start}, [(start, -1, -1)]
    for site, _, _ in out:
        for j, link in near[site]:
            if j in chosen and j not in seen:
                seen.add(j)
                out.append((j, site, link))
    return out
