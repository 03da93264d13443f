"""The graph of interacting sites: its links, its neighbourhoods and its colourings.

The sites of one colour do not interact, so they may be drawn together.
"""

from collections import deque
from itertools import pairwise

import numpy as np


def links_of(tables: list[np.ndarray], d: int) -> np.ndarray:
    """(E, 2) int, the pairs of different sites that enter one element of the log density, in both orders,
    sorted.

    Parameters
    ----------
    tables : [(n, J) int]
        The sites that enter each element, padded with -1; one array per tensor of elements.
    d : int
        The number of sites.
    """
    pairs = [np.zeros(0, np.int64)]
    for sites in tables:
        J = sites.shape[1]
        for a in range(J):
            for b in range(J):
                both = (sites[:, a] >= 0) & (sites[:, b] >= 0) & (sites[:, a] != sites[:, b])
                if a != b and both.any():
                    pairs.append(sites[both, a].astype(np.int64) * d + sites[both, b])
    links = np.sort(np.concatenate(pairs))
    links = links[np.diff(links, prepend=-1) > 0]
    return np.stack([links // d, links % d], 1)


def neighbourhoods(links: np.ndarray, blocks: list[tuple[int, int]], d: int) -> list[np.ndarray]:
    """For each block of sites, the sites of the block that each of the d sites is linked to, and the site
    itself.

    Parameters
    ----------
    links : (E, 2) int
        Pairs of linked sites, in both orders.
    blocks : [(start, size)]
        The first site of each block and its number of sites.
    d : int
        The number of sites.

    Returns
    -------
    [(d, width) int]
        For each block the sites, counted from its start and padded with its size.
    """
    linked = np.concatenate([links, np.stack([np.arange(d)] * 2, 1)])
    linked = linked[np.lexsort(linked.T[::-1])]
    tables = []
    for start, size in blocks:
        inside = linked[(linked[:, 1] >= start) & (linked[:, 1] < start + size)]
        counts = np.bincount(inside[:, 0], minlength=d)
        table = np.full((d, int(counts.max(initial=0))), size)
        first = np.concatenate([[0], np.cumsum(counts)])[:-1]
        table[inside[:, 0], np.arange(len(inside)) - first[inside[:, 0]]] = inside[:, 1] - start
        tables.append(table)
    return tables


def colour_classes(links: np.ndarray, members: np.ndarray) -> list[np.ndarray]:
    """Groups of sites without a link inside a group: of two greedy colourings, the one with fewer groups.

    Colouring breadth first gives two groups wherever two suffice (lattices, chains, trees). On other graphs,
    colouring by decreasing degree may need fewer.

    Parameters
    ----------
    links : (E, 2) int
        Pairs of linked sites, in both orders, sorted.
    members : (m,) int
        The sites to colour, sorted.
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
    """All vertices in breadth-first order, each component from its first vertex."""
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
    """(m,) int, colours: each vertex, in the given order, takes the smallest colour that no neighbour has."""
    colour = np.full(len(neighbours), -1).tolist()
    for i in order:
        taken = {colour[j] for j in neighbours[i]}
        c = 0
        while c in taken:
            c += 1
        colour[i] = c
    return np.array(colour, int)
