"""Exact transition matrices of moves of two sites, by enumeration in NumPy: nothing here is shared with the
package's kernels.

A target is used through `space` (which sites its sets have), `logdensity` and, for PAFS, `differences_alone`.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import numpy as np

from tests.tools.enumeration import Enumerated
from tests.tools.interpreted import interpreted
from tests.tools.transition_matrices import G

PENALTY = 5.0  # of a change that is impossible for one site alone


class Move(NamedTuple):
    """A "shift" or "offset" of site i by a step, a "transfer" of units from site j to i, or their "swap"."""

    kind: str
    i: int
    j: int
    step: int


def units_of(v) -> list[int]:
    """How many units a count may gain."""
    if not v.finite:
        return [int(o) for o in v.offsets]
    widest = int((v.upper - v.lower).max())
    units = [2**k for k in range(20) if 2**k <= min(widest, max(8, widest / 4))]
    return [*(-u for u in units[::-1]), *units]


def all_moves(space) -> list[Move]:
    moves = []
    for start, v in space.blocks:
        if v.constraint is None:
            for i in range(v.size):
                kind = "shift" if v.finite else "offset"
                steps = range(1, int(v.counts[i])) if v.finite else v.offsets
                moves += [Move(kind, start + i, start + i, int(s)) for s in steps]
            continue
        for sites in v.constraint.sites:
            for i, j in itertools.combinations(start + sites, 2):
                if v.constraint.swaps:
                    moves.append(Move("swap", int(i), int(j), 0))
                else:
                    moves += [Move("transfer", int(i), int(j), u) for u in units_of(v)]
    return moves


def inverse(space, move: Move) -> Move:
    if move.kind == "shift":
        return move._replace(step=int(space.upper[move.i] - space.lower[move.i]) + 1 - move.step)
    return move._replace(step=-move.step)


def changed(space, move: Move, x):
    """[(site, its values (...) after a move from states x (..., d))]."""
    i, j, step = move.i, move.j, move.step
    if move.kind == "shift":
        low, count = space.lower[i], space.upper[i] - space.lower[i] + 1
        return [(i, low + (x[..., i] + step - low) % count)]
    if move.kind == "offset":
        return [(i, x[..., i] + step)]
    if move.kind == "transfer":
        return [(i, x[..., i] + step), (j, x[..., j] - step)]
    return [(i, x[..., j]), (j, x[..., i])]


def after(space, move: Move, x):
    y = x.copy()
    for site, values in changed(space, move, x):
        y[..., site] = values
    return y


def exact_differences(e: Enumerated, moves):
    """(S, M), -inf where a move leads to an impossible state."""
    out = np.full((len(e.states), len(moves)), -np.inf)
    for m, move in enumerate(moves):
        to = e.index(after(e.target.space, move, e.states))
        out[to >= 0, m] = e.logp[to[to >= 0]] - e.logp[to >= 0]
    return out


@interpreted
@functools.partial(jax.vmap, in_axes=(None, 0))
def differences_alone(target, x):
    """(S, d, K), the changes of single sites of states (S, d), without what ties them to others."""
    return target.differences_alone(x)


def tables(e: Enumerated):
    """(S, d, K), the changes of single sites, those of a set with the penalty instead of -inf."""
    space = e.target.space
    d = differences_alone(e.target, e.states)
    values = np.where(space.windowed[:, None], e.states[..., None], space.lower[:, None]) + space.column
    inside = space.exists & (values >= space.lower[:, None]) & (values <= space.upper[:, None])
    return np.where(space.constrained[:, None] & inside & (d == -np.inf), -PENALTY, d)


@np.errstate(invalid="ignore")
def estimates(e: Enumerated, table, moves, base, z):
    """(P, S, M), of the moves from states z (P, S, d), by the tables at the states `base` (P, S).

    Where z or the base (-1) is impossible they have no meaning.
    """
    space = e.target.space
    out = np.zeros((*base.shape, len(moves)))
    for m, move in enumerate(moves):
        for site, to in changed(space, move, z):
            low, high, now = space.lower[site], space.upper[site], z[..., site]
            if space.windowed[site]:
                first = e.states[base, site]
                steps = space.column[site].tolist()
                k = steps.index(move.step if site == move.i else -move.step)
                change = np.where(now == first, table[base, site, k], -np.inf)
            else:
                at = lambda v, site=site, low=low: table[base, site, np.clip(v - low, 0, space.K - 1)]
                change = at(to) - at(now)
            out[..., m] += np.where((to >= low) & (to <= high), change, -np.inf)
    return out


def matrix_of_pairs(
    e: Enumerated,
    lengths: dict[int, float],
    way: str,
    balancing: str = "sqrt",
    backtrack: bool = True,
    *,
    reverse: bool = True,
    ratio: bool = True,
):
    """Transition matrix (S, S) of sequences of moves, and (S,) the total probability of what is proposed.

    Grathwohl et al. 2021, Eq. 27 ("GWG": all moves are drawn at the start); Sun et al. 2022, section 3.1
    ("PAS") and Eq. 6 ("PAFS").

    Parameters
    ----------
    reverse : whether the way back makes the inverse moves in reverse order; otherwise in the same order, an
        error
    ratio : whether the proposal's probabilities are in the acceptance; leaving them out is an error
    """
    space, S = e.target.space, len(e.states)
    moves = all_moves(space)
    back_of = np.array([moves.index(inverse(space, m)) for m in moves])
    exact = exact_differences(e, moves)
    table = tables(e) if way == "PAFS" else None
    ends = np.array([(m.i, m.j) for m in moves])
    P, proposed, here = np.zeros((S, S)), np.zeros(S), np.arange(S)
    for n, p_n in lengths.items():
        paths = np.array(list(itertools.product(range(len(moves)), repeat=n)))
        if not backtrack:
            apart = [len({*ends[p].ravel()}) == sum(len({*ends[m]}) for m in p) for p in paths]
            paths = paths[apart]
        count = len(paths)
        if not count:
            continue

        def log_q(base, z, chosen, gone, count=count):
            """(P, S) log probability of moves `chosen` (P,) from states z (P, S, d), at states `base`."""
            index = base if way == "GWG" else e.index(z)
            d = estimates(e, table, moves, base, z) if way == "PAFS" else exact[index]
            d = np.where((index >= 0)[..., None] | (way == "PAFS"), d, -np.inf)
            w = np.where(d > -np.inf, G[balancing](np.exp(np.minimum(d, 700))), 0.0)
            w = w * ~(gone[:, ends].any(-1))[:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.log(w[np.arange(count), :, chosen]) - np.log(w.sum(-1))

        def walked(base, x, steps, count=count):
            log_prob, gone = np.zeros((count, S)), np.zeros((count, space.d), bool)
            for step in steps:
                log_prob = log_prob + log_q(base, x, step, gone)
                x = x.copy()
                for m in np.unique(step):
                    x[step == m] = after(space, moves[m], x[step == m])
                if not backtrack:
                    gone[np.arange(count)[:, None], ends[step]] = True
            return x, np.where(np.isnan(log_prob), -np.inf, log_prob)

        x = np.broadcast_to(e.states, (count, S, space.d))
        z, forward = walked(np.broadcast_to(here, (count, S)), x, paths.T)
        y = e.index(z)
        _, back = walked(y, z, back_of[paths].T[::-1] if reverse else back_of[paths].T)
        q = p_n * np.exp(forward)
        proposed += q.sum(0)
        with np.errstate(invalid="ignore"):
            log_ratio = e.logp[y] - e.logp + (back - forward if ratio else 0.0)
        accept = np.exp(np.minimum(np.nan_to_num(log_ratio, nan=-np.inf), 0.0))
        flow = q * np.where((y >= 0) & (q > 0), accept, 0.0)
        np.add.at(P, (np.broadcast_to(here, y.shape), np.maximum(y, 0)), flow)
    P[here, here] += 1 - P.sum(1)
    return P, proposed
