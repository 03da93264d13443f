"""Ties: counts that can only move together with another quantity.

If N is drawn given p, p is drawn given N, and either nearly determines the other, the two move along a ridge
in small steps, even though each conditional draw is exact. The draws show this: the effective sample size is
small, and the two are correlated.

A *series* is a scalar quantity followed along the draws.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_discrete.runtime.names import element

CORRELATED = 0.9  # correlation above which two series are tied
FEWEST = 100  # a series is slow with fewer effective draws per chain, as in PyMC's own checks
LARGEST_RHAT = 1.01  # a series is slow with a larger R-hat
MOST = 50  # largest number of series of each kind that are compared with one another
NAMED_IN_SUM = 6  # largest number of counts in a weighted sum that is looked for
NAMED = 3  # largest number of series that a message names as tied to a count
PAGE = "See 'Ties' in docs/which_sampler.md."
FIXED_SUM = (
    "two counts are drawn at a time, given their sum and all else, so that they go along a ridge in small "
    "steps. If it is tied to probabilities with a Dirichlet prior that nothing else reads, "
    "pm.DirichletMultinomial is the same model without them."
)
FIXED_SUMS_PAGE = "See 'When it mixes poorly' in docs/fixed_sums.md."


class Tie(NamedTuple):
    """The names of series that are tied to one another, and the message about them."""

    names: tuple[str, ...]
    text: str


def called(name: str, labels: Sequence[Sequence[Any]], i: int | None = None) -> str:
    """The name of a series in a message: the sum of a variable, or its element with the flat index i.

    Parameters
    ----------
    labels : of each axis of the variable, those of its entries
    """
    if not labels:
        return repr(name)
    if i is None:
        return f"the sum of {name!r}"
    return repr(element(name, labels, np.unravel_index(i, [len(of_axis) for of_axis in labels])))


def effective(draws: np.ndarray) -> np.ndarray:
    """(series,) float, effective sample sizes over all chains, of draws (chains, draws, series)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        from arviz_stats.base import array_stats  # slow to import, and not needed while sampling

        return np.asarray(array_stats.ess(draws, chain_axis=0, draw_axis=1))


def is_slow(draws: np.ndarray, ess: np.ndarray) -> np.ndarray:
    """(series,) bool, whether series mix slowly, by draws (chains, draws, series) and `ess` (series,)."""
    few = ess < FEWEST * len(draws)
    if len(draws) == 1:
        return few
    with np.errstate(divide="ignore", invalid="ignore"):
        from arviz_stats.base import array_stats

        return few | (np.asarray(array_stats.rhat(draws, chain_axis=0, draw_axis=1)) > LARGEST_RHAT)


def correlations(draws: np.ndarray) -> np.ndarray:
    """(series, series) float, correlations within chains, of draws (chains, draws, series).

    Each is that of the values or that of the ranks, whichever is farther from 0.
    """
    from scipy.stats import rankdata  # slow to import, and not needed while sampling

    def pearson(a: np.ndarray) -> np.ndarray:
        centred = (a - a.mean(axis=1, keepdims=True)).reshape(-1, a.shape[-1])
        scale = np.sqrt((centred**2).sum(axis=0))
        scaled = centred / np.where(scale == 0, np.inf, scale)
        return scaled.T @ scaled

    of_values, of_ranks = pearson(draws), pearson(rankdata(draws, axis=1))
    return np.where(np.abs(of_ranks) > np.abs(of_values), of_ranks, of_values)


def fixed_total(draws: np.ndarray) -> tuple[list[int], float]:
    """The series of draws (chains, draws, series) whose total has the least variance, relative to their own.

    They are found greedily, from the best pair.

    Returns
    -------
    chosen : list of int, numbers of the series
    share : variance of their total within chains, divided by the sum of their variances
    """
    centred = (draws - draws.mean(axis=1, keepdims=True)).reshape(-1, draws.shape[-1])
    cov = centred.T @ centred

    def share(chosen: list[int]) -> float:
        return float(cov[np.ix_(chosen, chosen)].sum() / np.diag(cov)[chosen].sum())

    numbers = range(len(cov))
    chosen = min(([i, j] for i in numbers for j in range(i)), key=share)
    while len(chosen) < len(cov):
        with_one_more = min(([*chosen, i] for i in numbers if i not in chosen), key=share)
        if share(with_one_more) >= share(chosen):
            break
        chosen = with_one_more
    return sorted(chosen), share(chosen)


def ties(
    counts: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    advice: Callable[[Sequence[str], bool], str],
    of_fixed_sums: Mapping[str, Hashable] | None = None,
) -> list[Tie]:
    """The ties of slowly mixing counts to one another and to continuous series.

    Parameters
    ----------
    counts : {name in a message: (chains, draws)}, series that count something
    others : {name in a message: (chains, draws)}, continuous series
    advice : what to do about a tie of series of some names, of two values each or not, as a sentence
    of_fixed_sums : {name: its vector}, of those counts that are parts of vectors with fixed sums, between
        which there is a correlation by construction
    """
    of_fixed_sums = of_fixed_sums or {}
    counts = {name: draws for name, draws in counts.items() if (draws != draws[:, :1]).any(axis=1).all()}
    if not counts:
        return []
    draws = np.stack([np.asarray(a, float) for a in counts.values()], axis=-1)
    ess = effective(draws)
    slow = np.flatnonzero(is_slow(draws, ess))
    slow = slow[np.argsort(ess[slow])][:MOST]
    if not len(slow):
        return []
    names, ess, draws = [[*counts][i] for i in slow], ess[slow], draws[..., slow]
    others = dict([*others.items()][:MOST])
    all_draws = np.concatenate([draws, *(np.asarray(a, float)[..., None] for a in others.values())], axis=-1)
    total = all_draws.shape[0] * all_draws.shape[1]
    reported: list[Tie] = []
    tied: set[str] = set()
    # the rows of the counts come first in the matrix of correlations, those of other series are not needed
    for name, ess_of_name, correlation in zip(names, ess, correlations(all_draws), strict=False):
        partners = {
            other: float(r)
            for other, r in zip([*names, *others], correlation, strict=True)
            if abs(r) > CORRELATED
            and (name not in of_fixed_sums or of_fixed_sums[name] != of_fixed_sums.get(other))
        }
        partners.pop(name, None)
        if name in tied or not partners:
            continue
        strongest = sorted(partners, key=lambda other: -abs(partners[other]))[:NAMED]
        shown = " and ".join(f"{other} (correlation {partners[other]:.2f})" for other in strongest)
        two_valued = all(
            other in counts and len(np.unique(counts[other])) <= 2 for other in [name, *strongest]
        )
        why = (
            f"one can hardly change while the others stay. {advice([name, *strongest], True)}"
            if two_valued
            else FIXED_SUM
            if name in of_fixed_sums
            else "each is drawn given the others, so that they go along a ridge in small steps. "
            f"{advice([name, *strongest], False)}"
        )
        text = (
            f"{name[0].upper()}{name[1:]} is tied to {shown}, and has {ess_of_name:.0f} effective draws of "
            f"{total}: {why} {FIXED_SUMS_PAGE if why is FIXED_SUM else PAGE}"
        )
        reported.append(Tie((name, *partners), text))
        tied.update(reported[-1].names)
    free = [i for i, name in enumerate(names) if name not in tied and name not in of_fixed_sums]
    if len(free) > 1:
        chosen, share = fixed_total(draws[..., free])
        parts = [free[i] for i in chosen]
        if share < 1 - CORRELATED:
            group = tuple(name for name in counts if name in {names[i] for i in parts})
            shown = ", ".join(group)
            text = (
                f"{shown[0].upper()}{shown[1:]} are tied to one another: their total varies little (its "
                f"variance is {share:.0%} of that of its parts), and they have as few as "
                f"{ess[parts].min():.0f} effective draws of {total}, since none goes far while the others "
                f"stay. {PAGE}"
            )
            reported.append(Tie(group, text))
    return reported


def weighted_sums(
    counts: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    advice: Callable[[Sequence[str], bool], str],
) -> list[Tie]:
    """The ties of slowly mixing continuous series to weighted sums of counts.

    The weights are those of a regression on up to `NAMED_IN_SUM` counts, found one by one. It is counted how
    many the effective draws allow: of series that move slowly, some sum fits by chance.

    Parameters
    ----------
    counts, others, advice : as in `ties`
    """
    moving = {name: a for name, a in counts.items() if (a != a[:, :1]).any(axis=1).all()}
    names = [*moving][:MOST]
    if len(names) < 2 or not others:
        return []
    x = centred(np.stack([moving[name] for name in names], axis=-1))
    series = np.stack([np.asarray(a, float) for a in [*others.values()][:MOST]], axis=-1)
    ess = effective(series)
    found = []
    for i in np.flatnonzero(is_slow(series, ess)):
        y = centred(series[..., i : i + 1])[:, 0]
        chosen, share = regression(x, y, NAMED_IN_SUM)
        freedom = ess[i] - len(chosen) - 1
        adjusted = 1.0 - (1.0 - share) * (ess[i] - 1) / freedom if freedom > 0 else 0.0
        if adjusted > CORRELATED**2:
            other, parts = [*others][i], [names[k] for k in chosen]
            several = f"a weighted sum of {', '.join(parts[:-1])} and {parts[-1]}"
            partner = several if len(parts) > 1 else parts[0]
            text = (
                f"{other[0].upper()}{other[1:]} is tied to {partner} (correlation {np.sqrt(share):.2f}), and "
                f"has {ess[i]:.0f} effective draws of {series[..., i].size}: each is drawn given the "
                "others, so that they go along a ridge in small steps. "
                f"{advice([other, *parts], False)} {PAGE}"
            )
            found.append(Tie((other, *parts), text))
    return found


def centred(draws: np.ndarray) -> np.ndarray:
    """(chains * draws, series), each less its mean within the chain."""
    a = np.asarray(draws, float)
    return (a - a.mean(axis=1, keepdims=True)).reshape(-1, a.shape[-1])


def regression(x: np.ndarray, y: np.ndarray, most: int) -> tuple[list[int], float]:
    """The columns of x (n, m) that together explain most of y (n,), found one by one, and their share of it.

    No more are taken than are needed for a correlation above `CORRELATED`.
    """
    chosen: list[int] = []
    left, share = y, 0.0
    norms = np.sqrt((x**2).sum(axis=0))
    while len(chosen) < min(most, x.shape[1]) and share <= CORRELATED**2:
        fit = np.abs(x.T @ left) / np.where(norms == 0, np.inf, norms)
        fit[chosen] = -1.0
        chosen.append(int(fit.argmax()))
        weights = np.linalg.lstsq(x[:, chosen], y, rcond=None)[0]
        left = y - x[:, chosen] @ weights
        share = 1.0 - float(left @ left) / max(float(y @ y), 1e-300)
    return chosen, share
