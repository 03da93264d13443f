"""Connected components of a graph of which some edges are on, inside a compiled program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.scatter import lowest_at

# The edges of each site are read from a table, in which every site is padded to the largest number of edges,
# if the table has at most this many times as many entries as there are ends of edges.
MOST_PADDING = 4


def component_finder(pairs: np.ndarray, d: int) -> Callable[[Any], tuple[Any, Any]]:
    """A function that returns the components of the sites, given which edges are on, (E,) bool.

    Every site has a label, at first its own index. The root of a site is the site whose index is its label.
    In a round each site looks at the labels of its neighbours, and each root takes the lowest label that any
    site with this root sees. Then every site takes the label of its root (pointer jumping). So components
    merge as wholes, in about log d rounds; without the step at the root, labels would travel along edges
    only, one edge in a round.

    Parameters
    ----------
    pairs : (E, 2) int, the sites of each edge
    d : the number of sites

    Returns
    -------
    callable
        (on (E,) bool) -> (labels (d,) int, the lowest site in the component of each site; the number of
        rounds)

    References
    ----------
    Shiloach and Vishkin 1982, An O(log n) parallel connectivity algorithm. Zhang, Azad and Hu 2020, FastSV: a
    distributed-memory connected component algorithm with fast convergence.
    """
    own = np.arange(d, dtype=np.int32)
    first, second = pairs.astype(np.int32).T
    degrees = np.bincount(pairs.ravel(), minlength=d)
    padded = d * degrees.max(initial=0) <= MOST_PADDING * 2 * len(pairs)
    across, edge = beside(pairs, degrees) if padded else (None, None)

    def lowest_beside(on):
        """labels -> (d,) int, the lowest label among each site and the sites that an edge joins to it."""
        if padded:
            seen = jnp.where(jnp.append(on, False)[edge], across, own)
            return lambda labels: jnp.minimum(labels, labels[seen].min(axis=0))

        def of_edges(labels):
            seen = lowest_at(labels, first, jnp.where(on, labels[second], d))
            return lowest_at(seen, second, jnp.where(on, labels[first], d))

        return of_edges

    def components(on):
        lowest = lowest_beside(on)

        def in_round(carried):
            labels, _, rounds = carried
            seen = lowest(labels)
            # Zhang, Azad and Hu 2020, stochastic hooking: each root takes the lowest label that its
            # component's sites see
            hooked = jnp.minimum(seen, lowest_at(labels, labels, seen))
            new = hooked[hooked]
            return new, (new != labels).any(), rounds + 1

        labels, _, rounds = jax.lax.while_loop(
            lambda carried: carried[1], in_round, (jnp.asarray(own), jnp.asarray(True), jnp.asarray(0))
        )
        return labels, rounds

    return components


def beside(pairs: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each site its neighbours in the graph, and the edges to them.

    Parameters
    ----------
    pairs : (E, 2) int, the sites of each edge
    degrees : (d,) int, the number of edges of each site, at most D

    Returns
    -------
    across : (D, d) int32, the site at the other end of each edge of a site, padded with the site itself
    edge : (D, d) int32, the index of each edge of a site, padded with E
    """
    d = len(degrees)
    across = np.tile(np.arange(d, dtype=np.int32), (degrees.max(initial=0), 1))
    edge = np.full(across.shape, len(pairs), np.int32)
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    order = np.argsort(ends[:, 0], kind="stable")
    site = ends[order, 0]
    rank = np.arange(len(order)) - (np.cumsum(degrees) - degrees)[site]
    across[rank, site], edge[rank, site] = ends[order, 1], order % max(len(pairs), 1)
    return across, edge
