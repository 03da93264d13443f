"""Ties: a count that can only move together with something else.

Where N is drawn given p, p is drawn given N, and each is all but a function of the other, the two go along a
ridge in small steps, however well each is drawn. The draws show it: few are effective, and the two are
correlated.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats
from scipy.stats import rankdata

CORRELATED = 0.9
FEWEST = 100  # effective draws a chain below which a series is slow, as in PyMC's own checks
LARGEST_RHAT = 1.01
MOST = 50  # series of each kind that are compared with one another
NAMED = 3  # of what a count is tied to
PAGE = "See 'Ties' in docs/which_sampler.md."


class Tie(NamedTuple):
    """Series that are tied to one another, and what to say of them."""

    names: tuple[str, ...]
    text: str


def called(name: str, shape: tuple[int, ...], i: int | None = None) -> str:
    """What a message calls the total of a variable, or element i of it, counted flat."""
    if not shape:
        return repr(name)
    if i is None:
        return f"the sum of {name!r}"
    return repr(f"{name}[{', '.join(str(k) for k in np.unravel_index(i, shape))}]")


def effective(draws: np.ndarray) -> np.ndarray:
    """(series,) effective draws of all chains together, of draws (chains, draws, series)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(array_stats.ess(draws, chain_axis=0, draw_axis=1))


def is_slow(draws: np.ndarray, ess: np.ndarray) -> np.ndarray:
    """(series,) bool, of draws (chains, draws, series) and what `effective` says of them."""
    few = ess < FEWEST * len(draws)
    if len(draws) == 1:
        return few
    with np.errstate(divide="ignore", invalid="ignore"):
        return few | (np.asarray(array_stats.rhat(draws, chain_axis=0, draw_axis=1)) > LARGEST_RHAT)


def correlations(draws: np.ndarray) -> np.ndarray:
    """(series, series) within chains, of draws (chains, draws, series) or of their ranks, whichever is
    farther from 0.
    """

    def of(a: np.ndarray) -> np.ndarray:
        centred = (a - a.mean(axis=1, keepdims=True)).reshape(-1, a.shape[-1])
        scale = np.sqrt((centred**2).sum(axis=0))
        scaled = centred / np.where(scale == 0, np.inf, scale)
        return scaled.T @ scaled

    plain, ranked = of(draws), of(rankdata(draws, axis=1))
    return np.where(np.abs(ranked) > np.abs(plain), ranked, plain)


def fixed_total(draws: np.ndarray) -> tuple[list[int], float]:
    """Which series (chains, draws, series) have the total that varies least beside them.

    Returns
    -------
    chosen : list of int
    share : the variance of their total within chains, as a share of the sum of theirs
    """
    centred = (draws - draws.mean(axis=1, keepdims=True)).reshape(-1, draws.shape[-1])
    cov = centred.T @ centred

    def share(chosen: list[int]) -> float:
        return float(cov[np.ix_(chosen, chosen)].sum() / np.diag(cov)[chosen].sum())

    every = range(len(cov))
    chosen = min(([i, j] for i in every for j in range(i)), key=share)
    while len(chosen) < len(cov):
        more = min(([*chosen, i] for i in every if i not in chosen), key=share)
        if share(more) >= share(chosen):
            break
        chosen = more
    return sorted(chosen), share(chosen)


def ties(counts: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> list[Tie]:
    """Among counts, {what a message calls it: (chains, draws)}, that mix slowly, and of these to continuous
    others.
    """
    counts = {name: draws for name, draws in counts.items() if (draws != draws[:, :1]).any(axis=1).all()}
    if not counts:
        return []
    together = np.stack([np.asarray(a, float) for a in counts.values()], axis=-1)
    ess = effective(together)
    slow = np.flatnonzero(is_slow(together, ess))
    slow = slow[np.argsort(ess[slow])][:MOST]
    if not len(slow):
        return []
    names, ess, together = [[*counts][i] for i in slow], ess[slow], together[..., slow]
    beside = dict([*others.items()][:MOST])
    every = np.concatenate([together, *(np.asarray(a, float)[..., None] for a in beside.values())], axis=-1)
    table, total = correlations(every), every.shape[0] * every.shape[1]
    reported: list[Tie] = []
    tied: set[str] = set()
    for name, effects, row in zip(names, ess, table, strict=False):
        own = {
            other: float(r) for other, r in zip([*names, *beside], row, strict=True) if abs(r) > CORRELATED
        }
        own.pop(name)
        if name in tied or not own:
            continue
        strongest = sorted(own, key=lambda other: -abs(own[other]))[:NAMED]
        shown = " and ".join(f"{other} (correlation {own[other]:.2f})" for other in strongest)
        two_valued = all(
            other in counts and len(np.unique(counts[other])) <= 2 for other in [name, *strongest]
        )
        why = (
            "one can hardly change while the others stay. Where labels may swap or groups of sites turn "
            "together, pmd.PathAuxiliary(path_length=5, recompute=True) changes several at once."
            if two_valued
            else "each is drawn given the others, so that they go along a ridge in small steps."
        )
        text = (
            f"{name[0].upper()}{name[1:]} is tied to {shown}, and has {effects:.0f} effective draws of "
            f"{total}: {why} {PAGE}"
        )
        reported.append(Tie((name, *own), text))
        tied.update(reported[-1].names)
    free = [i for i, name in enumerate(names) if name not in tied]
    if len(free) > 1:
        chosen, share = fixed_total(together[..., free])
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
