"""Exact transition matrices of small targets, by enumeration in NumPy: nothing here is shared with the
package's kernels.

A target is used through `space` (the tables that define its sites), `differences` and `logdensity` only.
"""

import itertools
import math

import numpy as np

from tests.tools.enumeration import Enumerated

G = {  # balancing functions of a ratio t: g(t) = t g(1/t)
    "sqrt": np.sqrt,
    "barker": lambda t: t / (1 + t),
    "min": lambda t: np.minimum(t, 1),
    "max": lambda t: np.maximum(t, 1),
}


# ---------------------------------------------------------------- Gibbs-With-Gradients
def elementary_moves(space):
    """[(site, step)]: cyclic shifts 1..n-1 of finite sites, the window's offsets of the others; and each
    move's inverse.
    """
    count = space.upper - space.lower + 1
    moves = []
    for i in range(space.d):
        steps = space.column[i][space.exists[i]] if space.windowed[i] else range(1, count[i])
        moves += [(i, int(s)) for s in steps]
    inverse = [moves.index((i, -s if space.windowed[i] else int(count[i]) - s)) for i, s in moves]
    return moves, np.array(inverse)


def shifted(space, x, change):
    """x + change: around the circle on finite sites, along the line on the others."""
    count = space.upper - space.lower + 1
    return np.where(space.windowed, x + change, space.lower + (x + change - space.lower) % count)


def log_proposal(e: Enumerated, balancing: str):
    """(S, M) log q(move | x), proportional to g(exp d) over all (site, neighbour) but the current and the
    impossible.

    Grathwohl et al. 2021, Eq. 5 and 6.
    """
    space, (moves, _) = e.target.space, elementary_moves(e.target.space)
    q = np.zeros((len(e.states), len(moves)))
    for m, (i, step) in enumerate(moves):
        change = np.zeros(space.d, int)
        change[i] = step
        to = shifted(space, e.states, change)[:, i]
        for s in range(len(e.states)):
            for k in np.flatnonzero(
                (e.values[s, i] == to[s]) & e.inside[s, i]
            ):  # one, or none beyond the support
                if e.differences[s, i, k] > -np.inf:
                    q[s, m] = G[balancing](np.exp(e.differences[s, i, k]))
    with np.errstate(divide="ignore", invalid="ignore"):
        q = q / q.sum(1, keepdims=True)  # nan where there is nowhere to go
        return np.log(q)


def count_probabilities(n_flips: float) -> dict[int, float]:
    """P(L) of L ~ Uniform{1..2X-1}, X the mean rounded up or down at random so that E L = n_flips."""
    low = math.floor(n_flips)
    out: dict[int, float] = {}
    for X, p in ((low, 1 - (n_flips - low)), (low + 1, n_flips - low)):
        if p > 0:
            for n in range(1, 2 * X):
                out[n] = out.get(n, 0.0) + p / (2 * X - 1)
    return out


def gwg_matrix(e: Enumerated, n_flips: float, balancing: str, proposal_ratio: bool = True):
    """Transition matrix (S, S) of Gibbs-With-Gradients, and (S,) the total probability of what it proposes.

    L independent moves from q(. | x), added up (App. D.2, Eq. 27): all multisets of moves with their
    multiplicity. Reversed: the inverse moves from q(. | y).
    """
    space, S = e.target.space, len(e.states)
    moves, inverse = elementary_moves(space)
    logq = log_proposal(e, balancing)
    P, proposed = np.zeros((S, S)), np.zeros(S)
    here = np.arange(S)
    lost = np.isnan(logq).any(1)  # nowhere to go: stay
    logq[lost] = -np.inf
    proposed[lost] = 1.0
    for n, p_n in count_probabilities(n_flips).items():
        for chosen in itertools.combinations_with_replacement(range(len(moves)), n):
            times = math.factorial(n)
            for repeated in np.bincount(chosen):
                times //= math.factorial(repeated)
            forward = logq[:, chosen].sum(1)
            change = np.zeros(space.d, int)
            for m in chosen:
                change[moves[m][0]] += moves[m][1]
            to = e.index(shifted(space, e.states, change))
            ratio = np.where(to >= 0, e.logp[to] - e.logp, -np.inf)
            if proposal_ratio:
                with np.errstate(invalid="ignore"):
                    ratio = ratio + logq[to][:, inverse[list(chosen)]].sum(1) - forward
            p = times * p_n * np.exp(forward)
            proposed += p
            accept = np.exp(np.minimum(np.where(p > 0, ratio, -np.inf), 0.0))
            np.add.at(P, (here, np.maximum(to, 0)), p * accept)
    P[here, here] += 1 - P.sum(1)
    return P, proposed


# ---------------------------------------------------------------- path auxiliary samplers
def differences_of_moves(e: Enumerated):
    """(S, M) difference of every elementary move, -inf where it leads out of the support."""
    space, (moves, _) = e.target.space, elementary_moves(e.target.space)
    out = np.full((len(e.states), len(moves)), -np.inf)
    for m, (i, step) in enumerate(moves):
        change = np.zeros(space.d, int)
        change[i] = step
        to = shifted(space, e.states, change)[:, i]
        s, k = np.nonzero((e.values[:, i] == to[:, None]) & e.inside[:, i])
        out[s, m] = e.differences[s, i, k]
    return out


def rebased(e: Enumerated, single):
    """(S, M, A) difference of every move on the linearisation at a state, by the value (less the least) of
    the site that it moves.

    A finite site re-bases on the value where it is; a windowed one leaves its own value once.
    """
    space, (moves, _) = e.target.space, elementary_moves(e.target.space)
    low = e.states.min(0)
    A = int((e.states.max(0) - low).max()) + 1
    out = np.full((len(e.states), len(moves), A), -np.inf)
    for m, (i, step) in enumerate(moves):
        for s, x in enumerate(e.states):
            if space.windowed[i]:
                out[s, m, x[i] - low[i]] = single[s, m]
                continue
            at = {
                int(v): d
                for v, d, ok in zip(e.values[s, i], e.differences[s, i], e.inside[s, i], strict=True)
                if ok
            }
            n = int(space.upper[i] - space.lower[i]) + 1
            for v in at:
                to = int(space.lower[i]) + (v + step - int(space.lower[i])) % n
                if v >= low[i] and v - low[i] < A and at[v] > -np.inf:
                    out[s, m, v - low[i]] = at[to] - at[v]
    return out


def path_matrix(
    e: Enumerated,
    lengths: dict[int, float],
    recompute: bool,
    backtrack: bool,
    balancing: str,
    ratio: bool = True,
):
    """Transition matrix (S, S) of PAS or PAFS and (S,) the total probability of what it proposes, over all
    paths.

    Sun et al. 2022, section 3.1 and Eq. 6: pi(y) prod Q(back) / pi(x) prod Q(forth).
    """
    space, S = e.target.space, len(e.states)
    moves, inverse = elementary_moves(space)
    site = np.array([i for i, _ in moves])
    change = np.zeros((len(moves), space.d), int)
    change[np.arange(len(moves)), site] = [step for _, step in moves]
    single = differences_of_moves(e)
    table, low = rebased(e, single), e.states.min(0)
    P, proposed, here = np.zeros((S, S)), np.zeros(S), np.arange(S)
    lost = (single == -np.inf).all(1)
    proposed[lost] = 1.0
    for n, p_n in lengths.items():
        n = n if backtrack else min(n, space.d)
        paths = np.array(list(itertools.product(range(len(moves)), repeat=n)))
        if not backtrack:
            paths = paths[[len(set(site[p])) == n for p in paths]]
        count = len(paths)

        def log_q(base, x, chosen, gone, count=count):
            """log probability of move `chosen` (P,) from x (P, S, d) on the differences at states `base` (P,
            S).
            """
            if recompute:
                index = e.index(x)
                d = np.where((index >= 0)[..., None], single[np.maximum(index, 0)], -np.inf)
            else:
                a = np.clip(x - low, 0, table.shape[2] - 1)[..., site]
                inside = (x[..., site] - low[site] >= 0) & (x[..., site] - low[site] < table.shape[2])
                d = np.where(
                    inside & (base >= 0)[..., None],
                    table[np.maximum(base, 0)[..., None], np.arange(len(moves)), a],
                    -np.inf,
                )
            w = np.where(d > -np.inf, G[balancing](np.exp(np.minimum(d, 700))), 0.0) * ~gone[:, None, site]
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.log(w[np.arange(count), :, chosen]) - np.log(w.sum(-1))

        x = np.broadcast_to(e.states, (count, S, space.d)).copy()
        base = np.broadcast_to(here, (count, S))
        forward, gone = np.zeros((count, S)), np.zeros((count, space.d), bool)
        for t in range(n):
            forward = forward + log_q(base, x, paths[:, t], gone)
            x = shifted(space, x, change[paths[:, t]][:, None])
            if not backtrack:
                gone[np.arange(count), site[paths[:, t]]] = True
        y = e.index(x)
        back, gone = np.zeros((count, S)), np.zeros((count, space.d), bool)
        for t in reversed(range(n)):
            back = back + log_q(y, x, inverse[paths[:, t]], gone)
            x = shifted(space, x, change[inverse[paths[:, t]]][:, None])
            if not backtrack:
                gone[np.arange(count), site[paths[:, t]]] = True
        forward = np.where(np.isnan(forward), -np.inf, forward)
        back = np.where(np.isnan(back), -np.inf, back)
        q = p_n * np.exp(forward)
        proposed[~lost] += q.sum(0)[~lost]
        with np.errstate(invalid="ignore"):
            log_ratio = e.logp[y] - e.logp + (back - forward if ratio else 0.0)
        flow = q * np.where(
            (y >= 0) & (q > 0), np.exp(np.minimum(np.nan_to_num(log_ratio, nan=-np.inf), 0.0)), 0.0
        )
        np.add.at(P, (np.broadcast_to(here, y.shape), np.maximum(y, 0)), flow)
    P[here, here] += 1 - P.sum(1)
    return P, proposed


# ---------------------------------------------------------------- discrete Langevin
def langevin_rows(
    e: Enumerated, s: int, i: int, proposal: str, h: float, scale, balancing: str, nominal
) -> dict[int, float]:
    """{value: probability} of site i in state s.

    Zhang et al. 2022, and the two-state or uniformised chain run for a time h.
    """
    now = int(e.states[s, i])
    d = {
        int(v): a
        for v, a, ok in zip(e.values[s, i], e.differences[s, i], e.inside[s, i], strict=True)
        if ok and v != now
    }
    d = {v: a for v, a in d.items() if a > -np.inf}
    g = {v: float(G[balancing](np.exp(a))) for v, a in d.items()}
    if proposal == "dlp":
        distance = {
            v: 1.0 if nominal[i] else ((v - now) / np.broadcast_to(scale, e.states.shape[1:])[i]) ** 2
            for v in d
        }
        w = {v: g[v] * np.exp(-distance[v] / (2 * h)) for v in d}
        w[now] = float(G[balancing](1.0))
        return {v: a / sum(w.values()) for v, a in w.items()}
    if not d:
        return {now: 1.0}
    p = {now: 1.0} | {v: np.exp(a) for v, a in d.items()}
    if e.target.space.K == 2 and not e.target.space.windowed.any():
        ((v, rate),) = g.items()
        back = float(G[balancing](1 / p[v]))
        flip = (1 - np.exp(-(rate + back) * h)) * rate / (rate + back)
        return {v: flip, now: 1 - flip}
    mode = max(p, key=lambda v: p[v])
    rate = sum(float(G[balancing](p[v] / p[mode])) for v in p if v != mode) / (1 - p[mode] / sum(p.values()))
    jump = 1 - np.exp(-rate * h)
    out = {v: jump * a / sum(p.values()) for v, a in p.items() if v != now}
    out[now] = 1 - sum(out.values())
    return out


def langevin_matrix(
    e: Enumerated,
    proposal: str,
    h: float,
    balancing: str = "sqrt",
    scale=1.0,
    nominal=None,
    adjusted: bool = True,
    ratio: bool = True,
):
    """Transition matrix (S, S) of all sites moving at once, and (S,) the total probability of what it
    proposes.

    A windowed site returns by the negated offset, so a value reached through a table is left through one.
    """
    S = len(e.states)
    nominal = np.zeros(e.states.shape[1], bool) if nominal is None else nominal
    q, proposed = np.zeros((S, S)), np.zeros(S)
    for s in range(S):
        rows = [
            langevin_rows(e, s, i, proposal, h, scale, balancing, nominal) for i in range(e.states.shape[1])
        ]
        for choice in itertools.product(*(r.items() for r in rows)):
            p = float(np.prod([c[1] for c in choice]))
            proposed[s] += p
            to = e.index(np.array([c[0] for c in choice]))
            if to >= 0:
                q[s, to] += p
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = e.logp[None] - e.logp[:, None] + (np.log(q.T) - np.log(q) if ratio else 0.0)
    accept = np.exp(np.minimum(np.nan_to_num(log_ratio, nan=-np.inf), 0.0)) if adjusted else np.ones((S, S))
    P = q * accept
    P[np.arange(S), np.arange(S)] = 0.0
    P[np.arange(S), np.arange(S)] = 1 - P.sum(1)
    return P, proposed


# ---------------------------------------------------------------- block Gibbs
def site_matrix(e: Enumerated, i: int) -> np.ndarray:
    """(S, S): site i drawn given the others; where it has a window, on each stretch that holds its value, by
    turns.
    """
    S, p, space = len(e.states), np.exp(e.logp - e.logp.max()), e.target.space
    if not space.windowed[i]:
        near = [np.unique(np.append(e.values[s, i][e.inside[s, i]], e.states[s, i])) for s in range(S)]
        return mean_of([near], e, i, p)
    steps = space.column[i][space.exists[i] & (space.column[i] > 0)]
    width, strides = (
        (steps[-1], [1])
        if set(steps) == set(range(1, steps[-1] + 1))
        else (8, [s for s in steps if 8 * s <= steps[-1]])
    )
    stretches = [s * (np.arange(width + 1) - place) for s in strides for place in range(width + 1)]
    return mean_of([[e.states[s, i] + stretch for s in range(S)] for stretch in stretches], e, i, p)


def mean_of(choices, e: Enumerated, i: int, p: np.ndarray) -> np.ndarray:
    """(S, S): site i drawn by p among the values that each of `choices` has for a state, averaged
    over them.
    """
    P = np.zeros((len(p), len(p)))
    for near in choices:
        for s, values in enumerate(near):
            y = np.repeat(e.states[s][None], len(values), axis=0)
            y[:, i] = values
            to = e.index(y)
            to = to[to >= 0]
            P[s, to] += p[to] / p[to].sum() / len(choices)
    return P


def groups_of(target) -> list[list[int]]:
    """Sites drawn together, in the order of a forward sweep."""
    starts = target.space.starts
    colours = [(starts[n] + sites).tolist() for n, sites in target.interactions.colours]
    return colours + [[starts[n] + int(i)] for n, sites in target.interactions.scanned for i in sites]
