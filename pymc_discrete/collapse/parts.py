"""Parts: sets of sites that can be summed out given the values of all other sites, in tables of bounded size.

Sites are summed out one after another, the ones with the smallest tables first. Where every remaining table
has too many entries, one of the sites of the smallest table is given up: it is not in the part, and the
tables that it shares with other sites are read at its current value. The sites outside of a part are a cutset
(Bidyuk and Dechter 2007, Cutset sampling for Bayesian networks).
"""

from collections.abc import Sequence

import numpy as np

MOST_PARTS = 8  # the largest number of parts, each of which is compiled to a program of its own
# The limits that are tried for the number of entries of a table, the smallest first: a program with
# tables of pairs compiles in seconds, a program with tables of many sites in minutes.
LIMITS = [2**k for k in range(2, 17, 2)]


def affordable_parts(counts: np.ndarray, scopes: Sequence[np.ndarray]) -> np.ndarray | None:
    """Parts that together contain every site, with tables as small as possible.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site
    scopes : a list of (E, J) int, the sites of the tables of each array

    Returns
    -------
    (V, d) bool, the sites of each of at most `MOST_PARTS` parts; None if so many parts cannot contain all
    sites
    """
    around = neighbours(len(counts), scopes)
    pair = min(int(counts.max(initial=1)) ** 2, LIMITS[-1])
    for limit in (limit for limit in LIMITS if limit >= pair):
        parts: list[np.ndarray] = []
        left = np.ones(len(counts), bool)
        while left.any() and len(parts) < MOST_PARTS:
            parts.append(affordable_part(counts, around, limit, left, np.random.default_rng(len(parts))))
            left &= ~parts[-1]
        if not left.any():
            return np.stack(parts)
    return None


def neighbours(d: int, scopes: Sequence[np.ndarray]) -> list[set[int]]:
    """The sites that share a table with each of d sites."""
    around: list[set[int]] = [set() for _ in range(d)]
    for sites in scopes:
        for scope in sites.tolist():
            for i in scope:
                around[i].update(scope)
    for i, near in enumerate(around):
        near.discard(i)
    return around


def affordable_part(
    counts: np.ndarray, around: list[set[int]], limit: int, wanted: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A part whose sites can be summed out with tables of at most `limit` entries.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site
    around : for each site the sites that share a table with it
    limit : the largest number of entries of a table
    wanted : (d,) bool, the sites that are in no part yet; where there is a choice, other sites are given up

    Returns
    -------
    (d,) bool, the sites of the part
    """
    bits, largest = np.log2(np.maximum(counts, 1)), np.log2(limit) + 1e-9
    near = {i: set(sites) for i, sites in enumerate(around)}
    size = np.array([bits[[i, *near[i]]].sum() for i in range(len(counts))])
    luck, inside = rng.random(len(counts)), np.ones(len(counts), bool)
    while near:
        i = int(size.argmin())
        fits = size[i] <= largest
        # If even the smallest table is too large, one of its sites is left out of the part: one that another
        # part contains, if there is one, and of these the one that shares tables with the most sites.
        if not fits:
            i = min((i, *near[i]), key=lambda j: (wanted[j], -len(near[j]), luck[j]))
            inside[i] = False
        others = near.pop(i)
        size[i] = np.inf
        for j in others:
            near[j].discard(i)
            size[j] -= bits[i]
            if fits:
                size[j] += bits[list(others - near[j] - {j})].sum()
                near[j] |= others - {j}
    return inside
