"""Permutations of labels by which draws are matched, by equal labels or by probabilities of labels."""

import numpy as np

from pymc_discrete.diagnostics.labels.draws_of_labels import chunks

CANDIDATES = 10  # the number of draws of which the best is where the iterations of `by_agreement` begin


def by_agreement(draws: np.ndarray, K: int) -> np.ndarray:
    """(n,) int, the commonest label of each site, once the labels of all draws (draws, n) are matched.

    Draws are matched with the commonest labels, and these found again, in turn (Papastamoulis and Iliopoulos
    2010), from the one among a few draws with which all draws agree most.
    """
    candidates = np.unique(np.linspace(0, len(draws) - 1, CANDIDATES).astype(int))
    reference = max((draws[i] for i in candidates), key=lambda one: matched(draws, one, K)[1])
    to_new, agreed = matched(draws, reference, K)
    while True:
        commonest = commonest_labels(draws, to_new)
        to_new, now = matched(draws, commonest, K)
        if now <= agreed:  # an iteration never lowers the number of sites that agree
            return reference
        reference, agreed = commonest, now


def matched(draws: np.ndarray, reference: np.ndarray, K: int) -> tuple[np.ndarray, float]:
    """The permutations with which most sites of each draw (draws, n) agree with `reference` (n,).

    If several permutations are equally good, as for labels that no site has, the one nearest to the identity
    is taken.

    Returns
    -------
    to_new : (draws, K) int, the new label of each label
    agreed : the number of sites that agree, summed over draws, plus less than 1 per draw
    """
    # the number of sites that have one label in the draw and another in the reference
    tables = np.empty((len(draws), K, K))
    for rows in chunks(*draws.shape):
        cells = (np.arange(rows.stop - rows.start)[:, None] * K + draws[rows]) * K + reference
        size = (rows.stop - rows.start) * K**2
        tables[rows] = np.bincount(cells.reshape(-1), minlength=size).reshape(-1, K, K)
    # The counts in `tables` are whole numbers. Less than 1 in all is added for labels that stay as they are,
    # so that a permutation changes no more labels than it must in a tie.
    return assigned(tables + np.eye(K) / (K + 1))


def assigned(scores: np.ndarray) -> tuple[np.ndarray, float]:
    """For each draw the assignment (K,) of columns to the rows of `scores` (draws, K, K) with the largest
    sum of scores, and this sum over all draws.
    """
    from scipy.optimize import linear_sum_assignment  # imported only here, since the import takes long

    to_new = np.array([linear_sum_assignment(one, maximize=True)[1] for one in scores])
    return to_new, float(np.take_along_axis(scores, to_new[:, :, None], axis=2).sum())


def commonest_labels(draws: np.ndarray, to_new: np.ndarray) -> np.ndarray:
    """(n,) int, the commonest label of each site, over draws (draws, n) whose labels are permuted first."""
    n, K = draws.shape[1], to_new.shape[1]
    counts = np.zeros(n * K, int)
    for rows in chunks(*draws.shape):
        cells = np.take_along_axis(to_new[rows], draws[rows], axis=1) + np.arange(n) * K
        counts += np.bincount(cells.reshape(-1), minlength=n * K)
    return counts.reshape(n, K).argmax(axis=1)


def by_probabilities(p: np.ndarray, to_new: np.ndarray) -> np.ndarray:
    """(draws, K) int, the new labels by the algorithm of Stephens 2000, starting from a first guess.

    Parameters
    ----------
    p : (draws, n, K) float, the probabilities of the labels of each site in each draw
    to_new : (draws, K) int, the first guess: the new label of each label
    """
    best = -np.inf
    while True:
        to_old = np.argsort(to_new, axis=1)
        q = np.zeros(p.shape[1:])
        scores = np.empty((len(p), *q.shape[1:] * 2))
        batches = list(chunks(len(p), q.size))
        for rows in batches:
            q += np.take_along_axis(p[rows], to_old[rows][:, None, :], axis=2).sum(axis=0)
        # A label of mean probability 0 has the probability 0 in every draw. The logarithm of the mean is
        # multiplied by this 0, and must be finite.
        log_q = np.log(np.maximum(q / len(p), np.finfo(float).tiny))
        for rows in batches:
            scores[rows] = p[rows].transpose(0, 2, 1) @ log_q
        better, total = assigned(scores)
        # rounding must not keep the iteration going for ever
        if total <= best + 1e-9 * abs(total):
            return to_new
        to_new, best = better, total


def as_most_draws(to_new: np.ndarray) -> np.ndarray:
    """(K,) int, for each new label the label that it has in the draws with the commonest permutation."""
    kinds, counts = np.unique(to_new, axis=0, return_counts=True)
    return np.argsort(kinds[counts.argmax()])
