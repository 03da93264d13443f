"""The order in which chains have their labels: permutations that make chains agree."""

import numpy as np

AGREE = 0.1  # two chains agree if the mean total variation distance of their labels is at most this
# smallest numbers of sites, and of sites per label, from which a permutation is estimated
FEWEST, EACH = 10, 3
SITES, DRAWS = 1000, 1000  # largest numbers of sites and of draws that are compared; they are evenly spaced


def orders_of(variables: list[np.ndarray], lp: np.ndarray) -> np.ndarray | None:
    """The permutations of the labels of variables that share them; None unless chains differ by these only.

    They match how often each site has each label. There are none of few sites, where some permutation fits
    by chance.

    Parameters
    ----------
    variables : [(chains, draws, ...) int]
    lp : (chains, draws) float, log densities, nats, in which the chains must agree too

    Returns
    -------
    (chains, K) int, the label in chain 0 of each label of a chain
    """
    x = thinned(variables)
    K = 1 + int(x.max(initial=0))
    if len(x) < 2 or K < 2 or x.min(initial=0) < 0 or x.shape[2] < max(FEWEST, EACH * K):
        return None
    return permutations(np.stack([(x == k).mean(axis=1) for k in range(K)], axis=2), lp)


def thinned(variables: list[np.ndarray]) -> np.ndarray:
    """(chains, n, m), at most `DRAWS` draws of at most `SITES` sites of variables (chains, draws, ...)."""
    draws = variables[0].shape[1]
    sizes = [int(np.prod(a.shape[2:], dtype=int)) for a in variables]
    parts = []
    for a, size in zip(variables, sizes, strict=True):
        kept = np.arange(0, size, -(-sum(sizes) // SITES))
        index = np.unravel_index(kept, a.shape[2:]) if a.ndim > 2 else (None,)
        parts.append(a[:, :: -(-draws // DRAWS)][(slice(None), slice(None), *index)])
    return np.concatenate(parts, axis=2)


def permutations(frequencies: np.ndarray, lp: np.ndarray) -> np.ndarray | None:
    """(chains, K) int, the label in chain 0 of each label of a chain.

    None if all chains have their labels in the order of chain 0, or if some chain differs from chain 0 in
    more than the order of its labels.

    Parameters
    ----------
    frequencies : (chains, sites, K) float, how often each site has each label
    lp : (chains, draws) float, log densities, nats
    """
    from scipy.optimize import linear_sum_assignment  # imported only here, as that takes long

    first, K = frequencies[0], frequencies.shape[2]
    orders = np.tile(np.arange(K), (len(frequencies), 1))
    spread, mean = lp.std(axis=1), lp.mean(axis=1)
    for chain, other in enumerate(frequencies[1:], start=1):
        distance = total_variation(first, other)
        if distance <= AGREE:
            continue
        # the K x K table counts how often a site has one label in this chain and the other in chain 0
        of_chain, of_first = linear_sum_assignment(-(other.T @ first))
        as_probable = abs(mean[chain] - mean[0]) <= spread[chain] + spread[0] + 0.1
        left = total_variation(first[:, of_first], other[:, of_chain])
        if left > min(AGREE, distance / 2) or not as_probable:
            return None
        orders[chain, of_chain] = of_first
    return orders if (orders != np.arange(K)).any() else None


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """The total variation distance of the frequencies (sites, K) of two chains, averaged over the sites."""
    return float(np.abs(a - b).sum(axis=1).mean() / 2)


def relabelled(orders: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(chains, elements), the labels of all chains replaced by those of chain 0."""
    known = (labels >= 0) & (labels < orders.shape[1])
    first = np.take_along_axis(orders, np.where(known, labels, 0).astype(int), axis=1)
    return np.where(known, first, labels)
