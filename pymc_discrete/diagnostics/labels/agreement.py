"""The orders in which chains, and draws, have their labels: permutations that make them agree."""

import numpy as np

from pymc_discrete.diagnostics.labels.matching import by_agreement, matched
from pymc_discrete.diagnostics.thresholds import (
    CHAINS_AGREE,
    EQUAL_MEANS_ERRORS,
    EQUAL_MEANS_NATS,
    FEWEST_SITES,
    FEWEST_SITES_PER_LABEL,
    LEFT_BY_PERMUTATION,
)

# Labels are compared at up to SITES sites in up to DRAWS draws of each chain, evenly spaced.
SITES, DRAWS = 1000, 1000
IN_ALL = 2000  # the largest number of draws of all chains that are permuted


def orders_of(variables: list[np.ndarray], lp: np.ndarray) -> np.ndarray | None:
    """The permutations of labels that make chains agree; None unless chains differ by permutations only.

    The permutations match how often each site has each label. The result is also None for few sites, where
    some permutation fits by chance.

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
    if len(x) < 2 or not may_be_labels(x, K):
        return None
    return permutations(np.stack([(x == k).mean(axis=1) for k in range(K)], axis=2), lp)


def in_one_order(draws: np.ndarray, lp: np.ndarray) -> np.ndarray | None:
    """Some of the draws with their labels in one order; None unless draws differ by this order only.

    Each draw is permuted such that most sites agree, as in `pmd.relabel`. Permuting makes draws of any
    variable somewhat more alike, so it must halve the probability that two draws of a site differ, and draws
    that are permuted must be as probable as the other draws.

    Parameters
    ----------
    draws : (chains, draws, ...) int
    lp : (chains, draws) float, log densities, nats

    Returns
    -------
    (chains, n, m) int
    """
    every = -(-draws.shape[1] // min(DRAWS, max(IN_ALL // len(draws), 1)))
    x = thinned([draws[:, ::every]]).astype(int)
    K = 1 + int(x.max(initial=0))
    if not may_be_labels(x, K):
        return None
    given = x.reshape(-1, x.shape[2])
    to_new, _ = matched(given, by_agreement(given, K), K)
    found = np.take_along_axis(to_new, given, axis=1)
    same = (to_new == to_new[0]).all(axis=1)
    if same.all() or unlike(found, K) > LEFT_BY_PERMUTATION * unlike(given, K):
        return None
    lp = np.broadcast_to(lp[:, ::every], x.shape[:2])
    ordered = same.reshape(lp.shape)
    # The draws whose labels are in the order of the first draw, and the other draws, are each centred at
    # their own mean. Otherwise a chain that seldom changes the order would have few effective draws.
    share = effective_share(lp - np.where(ordered, lp[ordered].mean(), lp[~ordered].mean()))
    if not as_probable(lp[ordered], lp[~ordered], share):
        return None
    return found.reshape(x.shape)


def may_be_labels(x: np.ndarray, K: int) -> bool:
    """Whether x (chains, draws, sites) can be K labels, of enough sites to find the order of the labels."""
    enough = max(FEWEST_SITES, FEWEST_SITES_PER_LABEL * K)
    return K > 1 and x.shape[2] >= enough and bool(x.min(initial=0) >= 0)


def orders_of_draws(draws: np.ndarray) -> np.ndarray:
    """(chains, draws, K) int, the permutations with which `in_one_order` makes draws agree."""
    x = thinned([draws], most=draws.shape[1]).astype(int)
    K = 1 + int(x.max(initial=0))
    flat = x.reshape(-1, x.shape[2])
    reference = by_agreement(flat[:: -(-len(flat) // IN_ALL)], K)
    return matched(flat, reference, K)[0].reshape(*x.shape[:2], K)


def unlike(draws: np.ndarray, K: int) -> float:
    """The probability that a site has different labels in two draws (n, sites), averaged over sites."""
    shares = np.stack([(draws == k).mean(axis=0) for k in range(K)])
    return 1.0 - float((shares**2).sum(axis=0).mean())


def effective_share(lp: np.ndarray) -> float:
    """The effective sample size of the mean of log densities (chains, draws), as a share of the number of
    draws.

    The share is found for each chain alone and averaged, so that differences between chains do not lower it.
    """
    from arviz_stats.base import array_stats  # imported only here, since the import takes long

    draws = lp.shape[1]
    sizes = np.array([array_stats.ess(of_chain[None], method="mean") for of_chain in lp])
    # the effective sample size of a constant is not defined, and all its draws count
    known = np.where(np.isfinite(sizes), sizes, draws)
    return float(np.clip(known.mean() / draws, 1 / draws, 1.0))


def equally_probable(lp: np.ndarray) -> bool:
    """Whether the means of lp (chains, draws), nats, of all chains differ only by chance."""
    lowest, highest = lp[lp.mean(axis=1).argmin()], lp[lp.mean(axis=1).argmax()]
    return as_probable(lowest, highest, effective_share(lp))


def as_probable(a: np.ndarray, b: np.ndarray, share: float) -> bool:
    """Whether mean log densities, nats, of two sets of draws differ only by chance.

    The argument `share` is the share of the draws that are effective, in each of the sets.
    Modes that are the same up to their labels have the same mean.
    """
    error = np.sqrt((a.var() / len(a) + b.var() / len(b)) / share)
    return bool(abs(a.mean() - b.mean()) <= EQUAL_MEANS_ERRORS * error + EQUAL_MEANS_NATS)


def thinned(variables: list[np.ndarray], most: int = DRAWS) -> np.ndarray:
    """(chains, n, m), at most `most` draws of at most `SITES` sites of variables (chains, draws, ...)."""
    draws = variables[0].shape[1]
    sizes = [int(np.prod(a.shape[2:], dtype=int)) for a in variables]
    parts = []
    for a, size in zip(variables, sizes, strict=True):
        kept = np.arange(0, size, -(-sum(sizes) // SITES))
        index = np.unravel_index(kept, a.shape[2:]) if a.ndim > 2 else (None,)
        parts.append(a[:, :: -(-draws // most)][(slice(None), slice(None), *index)])
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
    from scipy.optimize import linear_sum_assignment  # imported only here, since the import takes long

    first, K = frequencies[0], frequencies.shape[2]
    orders, share = np.tile(np.arange(K), (len(frequencies), 1)), effective_share(lp)
    for chain, other in enumerate(frequencies[1:], start=1):
        distance = total_variation(first, other)
        if distance <= CHAINS_AGREE:
            continue
        # the K x K table counts how often a site has one label in this chain and another in chain 0
        of_chain, of_first = linear_sum_assignment(-(other.T @ first))
        left = total_variation(first[:, of_first], other[:, of_chain])
        if left > min(CHAINS_AGREE, LEFT_BY_PERMUTATION * distance) or not as_probable(
            lp[0], lp[chain], share
        ):
            return None
        orders[chain, of_chain] = of_first
    return orders if (orders != np.arange(K)).any() else None


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """The total variation distance between the frequencies (sites, K) of two chains, as a mean over the
    sites.
    """
    return float(np.abs(a - b).sum(axis=1).mean() / 2)


def relabelled(orders: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(chains, elements), each chain's `labels` replaced by the corresponding labels of chain 0, which are in
    `orders` (chains, K); values that are no labels stay.
    """
    known = (labels >= 0) & (labels < orders.shape[1])
    first = np.take_along_axis(orders, np.where(known, labels, 0).astype(int), axis=1)
    return np.where(known, first, labels)
