"""The graph of which sites interact: its links, its neighbourhoods, and its colourings, groups of sites that
may be drawn together.
"""

from collections import deque
from itertools import pairwise

import numpy as np


def links_of(tables: list[np.ndarray], d: int) -> np.ndarray:
    """(E, 2) int, the pairs of different sites that share an element, both ways round, sorted.

    Parameters
    ----------
    tables : [(n, J) int], the sites of each element, -1 for none
    d : number of sites
    """
    found = [np.zeros(0, np.int64)]
    for sites in tables:
        J = sites.shape[1]
        for a in range(J):
            for b in range(J):
                both = (sites[:, a] >= 0) & (sites[:, b] >= 0) & (sites[:, a] != sites[:, b])
                if a != b and both.any():
                    found.append(np.unique(sites[both, a].astype(np.int64) * d + sites[both, b]))
    pairs = np.unique(np.concatenate(found))
    return np.stack([pairs // d, pairs % d], 1)


def neighbourhoods(links: np.ndarray, blocks: list[tuple[int, int]], d: int) -> list[np.ndarray]:
    """[(d, width) int] of each block (start, size): which of its sites a site is linked to or is, counted
    from start, `size` for none.
    """
    linked = np.concatenate([links, np.stack([np.arange(d)] * 2, 1)])
    linked = linked[np.lexsort(linked.T[::-1])]
    tables = []
    for start, size in blocks:
        mine = linked[(linked[:, 1] >= start) & (linked[:, 1] < start + size)]
        counts = np.bincount(mine[:, 0], minlength=d)
        table = np.full((d, int(counts.max(initial=0))), size)
        first = np.concatenate([[0], np.cumsum(counts)])[:-1]
        table[mine[:, 0], np.arange(len(mine)) - first[mine[:, 0]]] = mine[:, 1] - start
        tables.append(table)
    return tables


def colour_classes(links: np.ndarray, members: np.ndarray) -> list[np.ndarray]:
    """`members` (m,), sorted, in as few groups without a link inside as two greedy colourings find.

    Breadth first gives two groups wherever two suffice (lattices, chains, trees); elsewhere the largest
    degree first may do better.
    """
    inside = np.isin(links, members).all(1)
    a, b = np.searchsorted(members, links[inside]).T
    starts = np.searchsorted(a, np.arange(len(members) + 1))
    neighbours = [b[i:j].tolist() for i, j in pairwise(starts)]
    colour = greedy(neighbours, breadth_first(neighbours))
    if colour.max(initial=0) > 1:
        other = greedy(neighbours, np.argsort(-np.diff(starts), kind="stable").tolist())
        colour = other if other.max() < colour.max() else colour
    return [members[colour == c] for c in range(colour.max(initial=-1) + 1)]


def breadth_first(neighbours: list[list[int]]) -> list[int]:
    """All vertices, each component from its first."""
    seen, order = [False] * len(neighbours), []
    for root in range(len(neighbours)):
        if seen[root]:
            continue
        seen[root], queue = True, deque([root])
        while queue:
            i = queue.popleft()
            order.append(i)
            for j in neighbours[i]:
                if not seen[j]:
                    seen[j] = True
                    queue.append(j)
    return order


def greedy(neighbours: list[list[int]], order: list[int]) -> np.ndarray:
    """(m,) int, each vertex in turn the smallest colour that no neighbour has."""
    colour = np.full(len(neighbours), -1).tolist()
    for i in order:
        taken = {colour[j] for j in neighbours[i]}
        c = 0
        while c in taken:
            c += 1
        colour[i] = c
    return np.array(colour, int)
