"""Forests: sets of sites whose tables of pairs make no cycle, and the order in which they are traversed."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

# If one forest cannot hold all sites, this number of coverings by several forests is made; each draw uses
# one of them, chosen at random.
COVERINGS = 4


class Forest(NamedTuple):
    """A forest of rooted trees in L levels, the deepest first.

    Attributes
    ----------
    sites : (d,) bool
        Which sites are in the forest.
    node : (L, W) int
        In row l the sites at depth L - l, padded with d. Where possible, the first child of a site is in the
        column of the site.
    column : (L, W) int
        The column of each site's parent in the next row, padded with W; in the last row, whose parents are
        the roots, the index of the root, padded with R.
    edge : (L, W) int
        The pair of each site and its parent, as an index of the E tables, padded with E.
    flipped : (L, W) bool
        Whether the parent is the first site of the pair.
    roots : (R,) int
        The root of each tree.
    """

    sites: Any
    node: Any
    column: Any
    edge: Any
    flipped: Any
    roots: Any


def coverings(pairs: np.ndarray, apart: np.ndarray, members: np.ndarray, d: int) -> list[list[Forest]]:
    """Coverings of sites: lists of forests that together contain every one of the sites.

    There is one covering if a single forest contains all of the sites, else there are `COVERINGS`.

    Parameters
    ----------
    pairs : (E, 2) int
        Sites that a table joins: the edges of the forests.
    apart : (A, 2) int
        Pairs of sites that interact in another way than by a table, and must not be in one forest.
    members : (m,) int
        The sites to cover.
    d : int
        The number of sites.
    """
    near, far = neighbours_of(pairs, d), neighbours_of(apart, d)
    variants = []
    for variant in range(COVERINGS):
        rng, left, cover = np.random.default_rng(variant), set(members.tolist()), []
        while left:
            chosen = greedy_forest(near, far, members, left, rng)
            cover.append(in_levels(near, chosen, pairs))
            left -= chosen
        variants.append(cover)
        if len(cover) == 1:
            return variants[-1:]
    return variants


def is_forest(pairs: np.ndarray, d: int) -> bool:
    """Whether the pairs (E, 2) of d sites make no cycle."""
    graph = sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(d, d))
    return len(pairs) == d - sparse.csgraph.connected_components(graph, directed=False)[0]


def neighbours_of(links: np.ndarray, d: int) -> list[list[tuple[int, int]]]:
    """For each site its `links` (n, 2), as [(the site at the other end, the index of the link)]."""
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(d)]
    for n, (a, b) in enumerate(links.tolist()):
        neighbours[a].append((b, n))
        if a != b:
            neighbours[b].append((a, n))
    return neighbours


def greedy_forest(near, far, members: np.ndarray, wanted: set[int], rng: np.random.Generator) -> set[int]:
    """The sites of a forest to which none can be added without a cycle, grown along random edges.

    Parameters
    ----------
    near, far : lists of [(site at the other end, index of the pair)], one for each site
        The edges at each site, and the pairs at each site whose two sites must not be in the same forest.
    members : (m,) int
        The sites that may be in the forest.
    wanted : set of int
        The sites that are tried first.
    """
    # union-find: `root` returns the representative of the tree that contains a site
    tree = list(range(len(near)))

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
        if len(set(roots)) < len(roots):  # two edges to one tree would close a cycle
            return False
        chosen.add(i)
        for r in roots:
            tree[r] = i
        return True

    seen: set[int] = set()
    order = rng.permutation(members).tolist()
    # sites in `wanted` come before all others, and each of the two parts is in random order
    for start in sorted(order, key=lambda i: i not in wanted):
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
    """The forest of the chosen sites, each tree rooted in the middle of a longest path.

    Such a root makes the depth as small as it can be.
    """
    d, roots, seen = len(near), [], set()
    levels: list[list[tuple[int, int, int]]] = []  # (site, parent, edge), from the roots to the leaves
    for i in sorted(chosen):
        if i in seen:
            continue
        end = walk(near, chosen, i)[-1][0]
        path = walk(near, chosen, end)
        parents, longest = {site: parent for site, parent, _ in path}, [path[-1][0]]
        while parents[longest[-1]] >= 0:
            longest.append(parents[longest[-1]])
        roots.append(longest[len(longest) // 2])
        depth = {-1: -1}
        for site, parent, edge in walk(near, chosen, roots[-1]):
            depth[site] = depth[parent] + 1
            while len(levels) <= depth[site]:
                levels.append([])
            levels[depth[site]].append((site, parent, edge))
            seen.add(site)
    levels, width = levels[1:], max(map(len, levels[1:]), default=0)
    above = {root: r for r, root in enumerate(roots)}
    table = np.empty((3, len(levels), width), int)
    table[:] = np.array([d, width, len(pairs)])[:, None, None]
    table[1, :1] = len(roots)
    for n, level in enumerate(levels):
        columns = in_columns(level, above if n else {})
        for (site, parent, edge), column in zip(level, columns, strict=True):
            table[:, n, column] = site, above[parent], edge
        above = {site: column for (site, *_), column in zip(level, columns, strict=True)}
    node, column, edges = table[:, ::-1]
    inside = np.zeros(d, bool)
    inside[list(chosen)] = True
    # A pair is flipped where the site itself is second in it, since then its parent is first.
    second = np.append(pairs[:, 1], -1)
    return Forest(inside, node, column, edges, second[edges] == node, np.array(roots, int))


def in_columns(level: list[tuple[int, int, int]], above: dict[int, int]) -> list[int]:
    """A column for each site of a level: the first child of a parent gets the parent's column.

    All other sites get free columns.

    Parameters
    ----------
    level : list of (site, parent, link)
    above : {parent: its column}; a parent that is left out passes on no column
    """
    taken: dict[int, int] = {}
    for n, (_, parent, _) in enumerate(level):
        if parent in above:
            taken.setdefault(above[parent], n)
    inherited = {n: column for column, n in taken.items()}
    free = (column for column in itertools.count() if column not in taken)
    return [inherited[n] if n in inherited else next(free) for n in range(len(level))]


def walk(near, chosen: set[int], start: int) -> list[tuple[int, int, int]]:
    """[(site, its predecessor or -1, the link between)] of the tree around a site, breadth first."""
    seen, out = {start}, [(start, -1, -1)]
    for site, _, _ in out:
        for j, link in near[site]:
            if j in chosen and j not in seen:
                seen.add(j)
                out.append((j, site, link))
    return out
