"""Path auxiliary samplers (Sun, Dai, Xia and Ramamurthy 2022): PAS, its fast version PAFS, and both without
backtracking.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.checks import check_choice, check_switch
from pymc_discrete.kernels.balancing import BALANCING, LARGEST_DIFFERENCE, log_weights
from pymc_discrete.kernels.kernel import Kernel, State
from pymc_discrete.kernels.local_moves import arrive, column_back, per_site, step_of, weights_of, wrapped
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from pymc_discrete.kernels.path_length import PathLength
from pymc_discrete.kernels.random import draw_categorical, pick, running_sum, uniforms, winners
from pymc_discrete.kernels.weight_tree import Sites, put

# The largest mean lengths that "adapt" may take
LARGEST = 1_000
# a move costs a set of differences, and is nearly always accepted: the acceptance says nothing of its price
LARGEST_RECOMPUTED = 20
LARGEST_AT_ONCE = 100  # the work is for the longest path, whatever its length


class Path(NamedTuple):
    """Moves of single sites, one after another.

    Attributes
    ----------
    site, column, before : (L,) int, which site went to which of its neighbours, and from which value
    active : (L,) bool, the first so many count
    """

    site: Any
    column: Any
    before: Any
    active: Any


def path_auxiliary(
    path_length: float | str | tuple[int, int] = "adapt",
    recompute: bool = False,
    backtrack: bool = True,
    balancing: str = "sqrt",
) -> tuple[Kernel, dict[str, float]]:
    """The path auxiliary samplers (Algorithm 1).

    Parameters
    ----------
    path_length : "adapt", float of at least 1, or (lower, upper)
        The mean X of a path's length L ~ Uniform{1..2X-1}, or its range; "adapt" tunes the mean to the
        optimal acceptance.
    recompute : bool
        True is PAS, differences at every point of the path; False is PAFS, differences at its two ends (Eq. 5
        and 6).
    backtrack : bool
        Whether a path may change a site again; without, all sites of a PAFS path are drawn at once (App.
        B.3).
    balancing : {"sqrt", "barker", "min", "max"}

    Returns
    -------
    kernel : Kernel
    params : {"path_length": float}

    References
    ----------
    Sun, Dai, Xia and Ramamurthy 2022, Path Auxiliary Proposal for MCMC in Discrete Space.
    """
    check_choice("balancing", balancing, BALANCING)
    check_switch("recompute", recompute)
    check_switch("backtrack", backtrack)
    largest = LARGEST_RECOMPUTED if recompute else LARGEST if backtrack else LARGEST_AT_ONCE
    lengths = PathLength("path_length", path_length, largest)
    way = along_recomputed if recompute else along_linear if backtrack else at_once

    def propose(key, target, state: State, params) -> Proposed:
        most = lengths.most(target.space)
        most = most if backtrack else min(most, target.space.d)
        key_path, key_more = jax.random.split(key)
        u = uniforms(key_path, (most + 2,))
        L = jnp.minimum(lengths.draw(u[most], u[most + 1], params["path_length"]), most)
        there, forward, back = way(key_more, u[:most], L, target, state, balancing, backtrack)
        return Proposed(there, jnp.where(jnp.isfinite(state.carry.log_scale), forward, jnp.inf), back, L)

    def carry(x, differences, space):
        return weights_of(x, differences, space, balancing)

    return metropolis(propose, carry, lengths.tuned), {"path_length": lengths.start}


# ---------------------------------------------------------------- PAS
def along_recomputed(key, u, L, target, state: State, balancing: str, backtrack: bool):
    """(there, log_forward, log_back) of a path whose differences are computed at each of its points.

    The general acceptance of section 3.1. With exact differences and a balanced g it is min(1, Z(x)/Z(y))
    (Property 1).
    """
    space, most = target.space, u.shape[0]

    def move_of(here: State, site, column):
        step = step_of(space, here.x[site], site, column)
        y = here.x.at[site].set(wrapped(space, site, here.x[site] + step))
        differences, weights = arrive(target, here, y, site[None], balancing)
        return State(y, here.logdensity, differences, weights)

    def log_prob(here: State, site, column, visited):
        weights = here.carry.weights
        total = here.carry.total if visited is None else jnp.where(visited[:, None], 0.0, weights).sum()
        d = here.differences[site, column]
        return log_weights(d, jnp.zeros_like(d, bool), balancing) - here.carry.top - jnp.log(total)

    def forth(at, carried):
        here, visited, forward, back, path = carried
        weights = here.carry.weights if backtrack else jnp.where(visited[:, None], 0.0, here.carry.weights)
        entry = draw_categorical(u[at][None], weights.reshape(-1))[0]
        site, column = entry // space.K, entry % space.K
        forward += log_prob(here, site, column, None if backtrack else visited)
        path = record(path, at, site, column, here.x[site])
        before, here = here.x[site], move_of(here, site, column)
        if backtrack:
            back += log_prob(here, site, column_back(space, site, column, before), None)
        else:
            visited = put(visited, site, True)
        return here, visited, forward, back, path

    zero, nowhere = jnp.zeros(()), jnp.zeros(space.d, bool)
    empty = nothing_yet(most, L)
    there, _, forward, back, path = jax.lax.fori_loop(0, L, forth, (state, nowhere, zero, zero, empty))
    if not backtrack:  # which sites are excluded on the way back is known only now

        def home(n, carried):
            here, visited, back = carried
            at = L - 1 - n
            column = column_back(space, path.site[at], path.column[at], path.before[at])
            back += log_prob(here, path.site[at], column, visited)
            return move_of(here, path.site[at], column), put(visited, path.site[at], True), back

        *_, back = jax.lax.fori_loop(0, L, home, (there, nowhere, zero))
    return there._replace(logdensity=target.logdensity(there.x)), forward, back


# ---------------------------------------------------------------- PAFS
def along_linear(key, u, L, target, state: State, balancing: str, backtrack: bool):
    """(there, log_forward, log_back) of a path on the linearisation at its start, and back on that at its end
    (Eq. 6).
    """
    space, most = target.space, u.shape[0]
    v = uniforms(key, (most,)) if space.K > 2 or space.windowed.any() else u
    empty = nothing_yet(most, L)

    def column_of(at, row):
        if row.shape[0] == 2 and not space.windowed.any():  # one neighbour, the other column
            return (row[1] > -jnp.inf).astype(int)
        return pick(v[at], jnp.exp(row))

    y, forward, path = follow(
        L, state, state.x, target, balancing, lambda at, sites: sites.draw(u[at]), column_of, empty
    )
    differences, weights = arrive(target, state, y, jnp.where(path.active, path.site, space.d), balancing)
    there = State(y, target.logdensity(y), differences, weights)

    home = column_back(space, path.site, path.column, path.before)
    _, back, _ = follow(
        L,
        there,
        y,
        target,
        balancing,
        lambda at, _: path.site[L - 1 - at],
        lambda at, _: home[L - 1 - at],
        None,
    )
    return there, forward, back


def follow(L, state: State, x, target, balancing: str, choose_site, choose_column, path: Path | None):
    """(y, log probability, path) of L moves on the linearisation at `state` (Eq. 5), chosen by
    `choose_site(at, sites)` and `choose_column(at, log weights of the site's moves)`.

    Finite sites re-base, d[i, k] - d[i, current]; a windowed site is visited once.
    """
    space, top = target.space, state.carry.top
    largest = 0.9 * np.log(np.finfo(state.carry.weights.dtype).max)
    differences = jnp.minimum(state.differences, LARGEST_DIFFERENCE)

    def log_row(site, now):
        """(K,) log weights of one site's moves where its value is `now`, divided by exp(top)."""
        d, place = differences[site], now - per_site(space.lower, site)
        windowed = per_site(space.windowed, site)
        current = ~windowed & (jnp.arange(space.K) == place)
        d = d - jnp.where(windowed, 0.0, d[jnp.where(windowed, 0, place)])
        logw = log_weights(d, current, balancing)
        left = windowed & (now != state.x[site])
        return jnp.where(left, -jnp.inf, jnp.minimum(logw - top, largest))

    def body(at, carried):
        x, sites, total, path = carried
        site = choose_site(at, sites)
        site = jax.lax.optimization_barrier(site)
        before = jax.lax.optimization_barrier(
            x[site]
        )  # read once: an array read again beside its update is copied whole
        row = log_row(site, before)
        column = choose_column(at, row)
        total += row[column] - jnp.log(sites.stems.sum())
        if path is not None:
            path = record(path, at, site, column, before)
        after = wrapped(space, site, before + step_of(space, before, site, column))
        return put(x, site, after), sites.put(site, jnp.exp(log_row(site, after)).sum()), total, path

    start = (x, Sites.of(state.carry.weights.sum(axis=1)), jnp.zeros_like(top), path)
    y, _, total, path = jax.lax.fori_loop(0, L, body, start)
    return y, total, path


def nothing_yet(most: int, L) -> Path:
    none = jnp.zeros(most, int)
    return Path(none, none, none, jnp.arange(most) < L)


def record(path: Path, at, site, column, before) -> Path:
    return path._replace(
        site=put(path.site, at, site),
        column=put(path.column, at, column),
        before=put(path.before, at, before),
    )


# ---------------------------------------------------------------- PAFS without backtracking
def at_once(key, u, L, target, state: State, balancing: str, backtrack: bool):
    """(there, log_forward, log_back) of a path that changes no site twice: all its sites in one draw (App.
    B.3).
    """
    space, most = target.space, u.shape[0]
    active = jnp.arange(most) < L

    def log_prob(here: State, site, column, active):
        # the ordered draw: each move's weight by the weights of all that is left, by sums only, so that a
        # small remainder keeps its digits
        rows = here.carry.weights.sum(axis=1)
        rest = rows.at[jnp.where(active, site, space.d)].set(0.0, mode="drop").sum()
        chosen = jnp.where(active, rows[site], 0.0)
        remaining = rest + running_sum(chosen[::-1])[::-1]
        d = here.differences[site, column]
        logw = log_weights(d, jnp.zeros_like(d, bool), balancing) - here.carry.top
        return jnp.where(active, logw - jnp.log(remaining), 0.0).sum()

    site = winners(key, state.carry.weights.sum(axis=1), most)
    column = jax.vmap(pick)(u, state.carry.weights[site])
    before = state.x[site]
    after = wrapped(space, site, before + step_of(space, before, site, column))
    y = state.x.at[jnp.where(active, site, space.d)].set(after, mode="drop")
    differences, weights = arrive(target, state, y, jnp.where(active, site, space.d), balancing)
    there = State(y, target.logdensity(y), differences, weights)
    forward = log_prob(state, site, column, active)
    back = log_prob(there, site[::-1], column_back(space, site, column, before)[::-1], active[::-1])
    return there, forward, back
