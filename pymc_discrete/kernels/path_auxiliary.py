"""The path auxiliary samplers PAS and PAFS (Sun, Dai, Xia and Ramamurthy 2022)."""

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

# the largest mean path length that "adapt" may choose for PAFS with backtracking
LARGEST = 1_000
# The same for PAS. Every move computes a set of differences, and nearly every path is accepted, so tuning to
# an acceptance rate would not keep paths short enough to be affordable.
LARGEST_RECOMPUTED = 20
# The same for PAFS without backtracking, where a draw costs as much as the longest possible path, whatever
# length is drawn.
LARGEST_AT_ONCE = 100


class Path(NamedTuple):
    """Moves of single sites, one after another.

    Attributes
    ----------
    site : (L,) int, the site that moves
    column : (L,) int, which of its neighbours it goes to
    before : (L,) int, its value before the move
    active : (L,) bool, whether the move belongs to the path; the arrays have the longest path's length
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
        Whether a path may change a site more than once. If not, all sites of a PAFS path are drawn at once
        (App. B.3).
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
    draw_path = pas if recompute else pafs if backtrack else pafs_without_backtracking

    def propose(key, target, state: State, params) -> Proposed:
        most = lengths.most(target.space)
        most = most if backtrack else min(most, target.space.d)
        key_path, key_more = jax.random.split(key)
        u = uniforms(key_path, (most + 2,))
        L = jnp.minimum(lengths.draw(u[most], u[most + 1], params["path_length"]), most)
        end, forward, back = draw_path(key_more, u[:most], L, target, state, balancing, backtrack)
        return Proposed(end, jnp.where(jnp.isfinite(state.carry.log_scale), forward, jnp.inf), back, L)

    def carry(x, differences, space):
        return weights_of(x, differences, space, balancing)

    return metropolis(propose, carry, lengths.tuned), {"path_length": lengths.start}


# ---------------------------------------------------------------- PAS
def pas(key, u, L, target, start: State, balancing: str, backtrack: bool):
    """(end, log_forward, log_back) of a path whose differences are computed at each of its points.

    The acceptance probability is the general one of section 3.1. With exact differences and a balanced g it
    is min(1, Z(x)/Z(y)) (Property 1).

    Parameters
    ----------
    u : (most,) uniforms, one for each move of the longest path
    L : () int, number of moves
    start : State at x
    """
    space, most = target.space, u.shape[0]

    def after_move(state: State, site, column):
        # the log density is computed at the end of the path only; until then it is that of the start
        step = step_of(space, state.x[site], site, column)
        y = state.x.at[site].set(wrapped(space, site, state.x[site] + step))
        return arrive(target, state, y, site[None], balancing, state.logdensity)

    def log_prob(state: State, site, column, visited):
        weights = state.carry.weights
        total = state.carry.total if visited is None else jnp.where(visited[:, None], 0.0, weights).sum()
        d = state.differences[site, column]
        return log_weights(d, jnp.zeros_like(d, bool), balancing) - state.carry.top - jnp.log(total)

    def move_forward(t, carried):
        state, visited, forward, back, path = carried
        weights = state.carry.weights if backtrack else jnp.where(visited[:, None], 0.0, state.carry.weights)
        entry = draw_categorical(u[t][None], weights.reshape(-1))[0]
        site, column = entry // space.K, entry % space.K
        forward += log_prob(state, site, column, None if backtrack else visited)
        path = record(path, t, site, column, state.x[site])
        before, state = state.x[site], after_move(state, site, column)
        if backtrack:
            back += log_prob(state, site, column_back(space, site, column, before), None)
        else:
            visited = put(visited, site, True)
        return state, visited, forward, back, path

    zero, none_visited = jnp.zeros(()), jnp.zeros(space.d, bool)
    path = empty_path(most, L)
    end, _, forward, back, path = jax.lax.fori_loop(
        0, L, move_forward, (start, none_visited, zero, zero, path)
    )
    if not backtrack:
        # The reverse path excludes sites in the opposite order, which is known only once the path is
        # complete: it is walked again from its end to its start.

        def move_back(n, carried):
            state, visited, back = carried
            t = L - 1 - n
            column = column_back(space, path.site[t], path.column[t], path.before[t])
            back += log_prob(state, path.site[t], column, visited)
            return after_move(state, path.site[t], column), put(visited, path.site[t], True), back

        *_, back = jax.lax.fori_loop(0, L, move_back, (end, none_visited, zero))
    return end._replace(logdensity=target.logdensity(end.x)), forward, back


# ---------------------------------------------------------------- PAFS
def pafs(key, u, L, target, start: State, balancing: str, backtrack: bool):
    """(end, log_forward, log_back) of a path drawn with the differences at its start (Eq. 5).

    The reverse path has the probability that follows from the differences at its end (Eq. 6).

    Parameters
    ----------
    u : (most,) uniforms, one for each move of the longest path
    L : () int, number of moves
    start : State at x
    """
    space, most = target.space, u.shape[0]
    v = uniforms(key, (most,)) if space.K > 2 or space.windowed.any() else u

    def draw_column(t, logw):
        if logw.shape[0] == 2 and not space.windowed.any():  # the only neighbour is the other value
            return (logw[1] > -jnp.inf).astype(int)
        return pick(v[t], jnp.exp(logw))

    y, forward, path = follow(
        L,
        start,
        start.x,
        target,
        balancing,
        lambda t, sites: sites.draw(u[t]),
        draw_column,
        empty_path(most, L),
    )
    end = arrive(target, start, y, jnp.where(path.active, path.site, space.d), balancing)

    columns_back = column_back(space, path.site, path.column, path.before)
    _, back, _ = follow(
        L,
        end,
        y,
        target,
        balancing,
        lambda t, _: path.site[L - 1 - t],
        lambda t, _: columns_back[L - 1 - t],
        None,
    )
    return end, forward, back


def follow(L, state: State, x, target, balancing: str, choose_site, choose_column, path: Path | None):
    """(y, log probability, path) of L moves whose weights come from the differences at `state` (Eq. 5).

    After a move, the differences of a finite site are taken relative to its new value, d[i, k] - d[i, new]. A
    windowed site is visited once at most, since its differences are those of its first value only.

    Parameters
    ----------
    L : () int, number of moves
    state : State, at which the differences are taken
    x : (d,) int, where the path starts
    choose_site : (t, weights of all sites) -> () int, the site of move t
    choose_column : (t, (K,) log weights of the site's moves) -> () int, the neighbour it goes to
    path : where the moves are recorded, or None
    """
    space, top = target.space, state.carry.top
    largest = 0.9 * np.log(np.finfo(state.carry.weights.dtype).max)
    differences = jnp.minimum(state.differences, LARGEST_DIFFERENCE)

    def log_weights_at(site, now):
        """(K,) log weights, less `top`, of the moves of one site from the value `now`."""
        d, index = differences[site], now - per_site(space.lower, site)
        windowed = per_site(space.windowed, site)
        current = ~windowed & (jnp.arange(space.K) == index)
        d = d - jnp.where(windowed, 0.0, d[jnp.where(windowed, 0, index)])
        logw = log_weights(d, current, balancing)
        visited = windowed & (now != state.x[site])
        return jnp.where(visited, -jnp.inf, jnp.minimum(logw - top, largest))

    def body(t, carried):
        x, sites, log_prob, path = carried
        site = choose_site(t, sites)
        site = jax.lax.optimization_barrier(site)
        # The barrier makes XLA read x once, before x is updated. Otherwise it copies the whole array.
        before = jax.lax.optimization_barrier(x[site])
        logw = log_weights_at(site, before)
        column = choose_column(t, logw)
        log_prob += logw[column] - jnp.log(sites.stems.sum())
        if path is not None:
            path = record(path, t, site, column, before)
        after = wrapped(space, site, before + step_of(space, before, site, column))
        sites = sites.put(site, jnp.exp(log_weights_at(site, after)).sum())
        return put(x, site, after), sites, log_prob, path

    initial = (x, Sites.of(state.carry.weights.sum(axis=1)), jnp.zeros_like(top), path)
    y, _, log_prob, path = jax.lax.fori_loop(0, L, body, initial)
    return y, log_prob, path


def empty_path(most: int, L) -> Path:
    """A path of at most `most` moves, of which the first L will be recorded."""
    none = jnp.zeros(most, int)
    return Path(none, none, none, jnp.arange(most) < L)


def record(path: Path, t, site, column, before) -> Path:
    """The path with its move t filled in."""
    return path._replace(
        site=put(path.site, t, site),
        column=put(path.column, t, column),
        before=put(path.before, t, before),
    )


# ---------------------------------------------------------------- PAFS without backtracking
def pafs_without_backtracking(key, u, L, target, start: State, balancing: str, backtrack: bool):
    """(end, log_forward, log_back) of a path that changes no site twice (App. B.3).

    All its sites are drawn at once, ordered and without replacement.

    Parameters
    ----------
    u : (most,) uniforms, one for each move of the longest path
    L : () int, number of moves
    start : State at x
    """
    space, most = target.space, u.shape[0]
    active = jnp.arange(most) < L

    def log_prob(state: State, site, column, active):
        # Each move's weight is divided by the weights of all sites not drawn before it. These are summed up
        # and never subtracted from the total, so that a small remainder loses no digits.
        site_weights = state.carry.weights.sum(axis=1)
        never_drawn = site_weights.at[jnp.where(active, site, space.d)].set(0.0, mode="drop").sum()
        chosen = jnp.where(active, site_weights[site], 0.0)
        remaining = never_drawn + running_sum(chosen[::-1])[::-1]
        d = state.differences[site, column]
        logw = log_weights(d, jnp.zeros_like(d, bool), balancing) - state.carry.top
        return jnp.where(active, logw - jnp.log(remaining), 0.0).sum()

    site = winners(key, start.carry.weights.sum(axis=1), most)
    column = jax.vmap(pick)(u, start.carry.weights[site])
    before = start.x[site]
    after = wrapped(space, site, before + step_of(space, before, site, column))
    y = start.x.at[jnp.where(active, site, space.d)].set(after, mode="drop")
    end = arrive(target, start, y, jnp.where(active, site, space.d), balancing)
    forward = log_prob(start, site, column, active)
    back = log_prob(end, site[::-1], column_back(space, site, column, before)[::-1], active[::-1])
    return end, forward, back
