"""The path auxiliary samplers PAS and PAFS (Sun, Dai, Xia and Ramamurthy 2022)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import BALANCING, LARGEST_DIFFERENCE, log_weights
from pymc_discrete.kernels.kernel import Kernel, State
from pymc_discrete.kernels.local_moves import arrive, column_back, per_site, step_to, wrapped_value
from pymc_discrete.kernels.method import Method, kernel_function
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from pymc_discrete.kernels.pair_moves import PairMoves, moves_of_space, refuse_estimates
from pymc_discrete.kernels.path_length import PathLength
from pymc_discrete.kernels.random import draw_categorical, pick, running_sum, uniforms, winners
from pymc_discrete.kernels.weight_tree import Sites, put
from pymc_discrete.runtime.checks import check_choice, check_switch
from pymc_discrete.space.space import Space

# the largest mean path length that "adapt" may choose for PAFS with backtracking
LARGEST_MEAN_LENGTH = 1_000
# The largest mean path length that "adapt" may choose for PAS (recompute=True). Each move of a path computes
# all differences again, and nearly every path is accepted, however long it is. If only the acceptance rate
# were tuned, paths would become so long that a draw takes too much time.
LARGEST_RECOMPUTED = 20
# The largest mean path length that "adapt" may choose for PAFS without backtracking, where a draw costs as
# much as the longest possible path, whatever length is drawn.
LARGEST_AT_ONCE = 100


class MovePath(NamedTuple):
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


@dataclass(frozen=True)
class PathAuxiliary(Method):
    """The path auxiliary samplers PAFS and PAS: a path of single-site moves, accepted or rejected as a whole.

    Parameters
    ----------
    path_length : "adapt", float or (lower, upper), default "adapt"
        The mean X of a path's length L ~ Uniform{1..2X-1}, or the range of the length. "adapt" tunes the mean
        to an acceptance of 0.574 (Sun, Dai and Schuurmans 2022).
    recompute : bool, default False
        False is PAFS, which computes differences at the two ends of a path (Eq. 5 and 6). True is PAS, which
        computes them at each of its points. PAS pays only if a move changes few of the differences, or if it
        changes them so much that the differences at the start mislead the path (parity constraints).
    backtrack : bool, default True
        Whether a path may change a site more than once. If not, all sites of a PAFS path are drawn at once
        (App. B.3); long paths are rejected more often, and cost less on an accelerator.
    balancing : {"sqrt", "barker", "min", "max"}
        How a probability ratio t becomes a weight: sqrt(t) (the paper's), t/(1+t), min(1, t), max(1, t).

    Notes
    -----
    Sampler statistics of its own: `discrete_path_length`, the mean length.

    References
    ----------
    Sun, Dai, Xia and Ramamurthy 2022, Path Auxiliary Proposal for MCMC in Discrete Space, Algorithm 1.
    """

    reported: ClassVar[dict[str, str]] = {"discrete_path_length": "path_length"}
    constrained: ClassVar[bool] = True
    path_length: float | str | tuple[int, int] = "adapt"
    recompute: bool = False
    backtrack: bool = True
    balancing: str = "sqrt"

    def __post_init__(self) -> None:
        check_choice("balancing", self.balancing, BALANCING)
        check_switch("recompute", self.recompute)
        check_switch("backtrack", self.backtrack)
        self.lengths  # noqa: B018 the property is read so that it raises an error for a wrong length

    @property
    def lengths(self) -> PathLength:
        """The distribution of the length of a path, and how its mean is tuned."""
        largest = LARGEST_MEAN_LENGTH if self.backtrack else LARGEST_AT_ONCE
        largest = LARGEST_RECOMPUTED if self.recompute else largest
        return PathLength("path_length", self.path_length, largest)

    def check(self, target: Any) -> None:
        if self.recompute:
            refuse_estimates(target)

    def expected_moves(self, space: Space, params: dict[str, Any]) -> float:
        return params["path_length"]

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        lengths, recompute, backtrack, balancing = (
            self.lengths,
            self.recompute,
            self.backtrack,
            self.balancing,
        )

        def by_table(space: Space) -> bool:
            """Whether the weights of the moves come from a table of the changes by single sites."""
            return bool(space.constrained.any()) and not recompute

        def draw_path(space: Space) -> Callable:
            if by_table(space):
                return pafs_of_pairs
            return pas if recompute else pafs if backtrack else pafs_without_backtracking

        def propose(key, target, state: State, params) -> Proposed:
            most = lengths.most(target.space)
            most = most if backtrack else max(min(most, moves_of_space(target.space).longest), 1)
            key_path, key_more = jax.random.split(key)
            u = uniforms(key_path, (most + 2,))
            L = jnp.minimum(lengths.draw(u[most], u[most + 1], params["path_length"]), most)
            draw = draw_path(target.space)
            end, forward, back = draw(key_more, u[:most], L, target, state, balancing, backtrack)
            return Proposed(end, jnp.where(jnp.isfinite(state.carry.log_scale), forward, jnp.inf), back, L)

        def at(x, target):
            moves = moves_of_space(target.space)
            return moves.by_table(x, target) if by_table(target.space) else moves.at(x, target)

        def carry(x, differences, space: Space):
            of_moves = differences[1] if by_table(space) else differences
            return moves_of_space(space).weights(x, of_moves, balancing)

        kernel = metropolis(propose, carry, lengths.tuned, at=at)
        return kernel, {"path_length": lengths.start}


path_auxiliary = kernel_function(PathAuxiliary)


# ---------------------------------------------------------------- PAS
def pas(key, u, L, target, start: State, balancing: str, backtrack: bool):
    """A path whose differences are computed at each of its points, as (end, log_forward, log_back).

    The result is the end state, and the log probabilities of the path and of the reverse path.

    The acceptance probability of a path from x to y is the general one of Sun et al. 2022, section 3.1. With
    exact differences and a balancing function it is min(1, Z(x)/Z(y)) (Property 1), where Z is the sum of the
    weights of all moves.

    Parameters
    ----------
    u : (most,) uniforms, one for each move of the longest path
    L : () int, number of moves
    start : State at x
    """
    moves, most, one = moves_of_space(target.space), u.shape[0], np.ones(1, bool)

    def made(state: State, move):
        """The state after a move, and the move that undoes it."""
        # The log density is computed at the end of the path only; until then the state keeps the value at the
        # start.
        y, back = moves.made(state.x, move[None], one)
        return moves.arrive(target, state, y, move[None], one, balancing, state.logdensity), back[0]

    def allowed(state: State, visited):
        weights = state.carry.weights
        return weights if backtrack else jnp.where(moves.of_visited(visited), 0.0, weights)

    def log_prob(state: State, move, visited):
        total = state.carry.total if backtrack else allowed(state, visited).sum()
        d = state.differences.reshape(-1)[move]
        return log_weights(d, jnp.zeros_like(d, bool), balancing) - state.carry.top - jnp.log(total)

    def move_forward(t, carried):
        state, visited, forward, back, moves_back = carried
        move = draw_categorical(u[t][None], allowed(state, visited).reshape(-1))[0]
        forward += log_prob(state, move, visited)
        state, move_back = made(state, move)
        if backtrack:
            back += log_prob(state, move_back, visited)
        else:
            visited = moves.visit(visited, move)
        return state, visited, forward, back, put(moves_back, t, move_back)

    zero, none_visited = jnp.zeros(()), jnp.zeros(target.space.d, bool)
    end, _, forward, back, moves_back = jax.lax.fori_loop(
        0, L, move_forward, (start, none_visited, zero, zero, jnp.zeros(most, int))
    )
    if not backtrack:
        # A path excludes the sites that it has changed. The reverse path excludes them in the opposite order,
        # known only once the path is complete, which is therefore walked again from its end to its start.

        def move_back(n, carried):
            state, visited, back = carried
            move = moves_back[L - 1 - n]
            back += log_prob(state, move, visited)
            return made(state, move)[0], moves.visit(visited, move), back

        *_, back = jax.lax.fori_loop(0, L, move_back, (end, none_visited, zero))
    return end._replace(logdensity=target.logdensity(end.x)), forward, back


# ---------------------------------------------------------------- PAFS
def pafs(key, u, L, target, start: State, balancing: str, backtrack: bool):
    """A path that is drawn with the differences at its start, as (end, log_forward, log_back).

    The result is the end state, and the log probabilities of the path and of the reverse path. The
    probability of the reverse path follows from the differences at the end of the path (Sun et al. 2022,
    Eq. 5 and 6).

    Parameters
    ----------
    u : (most,) uniforms, one for each move of the longest path
    L : () int, number of moves
    start : State at x
    """
    space, most = target.space, u.shape[0]
    v = uniforms(key, (most,)) if space.K > 2 or space.windowed.any() else u

    def draw_column(t, logw):
        # with two values, the only neighbour is the other value
        if logw.shape[0] == 2 and not space.windowed.any():
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


def follow(L, state: State, x, target, balancing: str, choose_site, choose_column, path: MovePath | None):
    """A path of L moves, all with the weights of the differences at its start (Sun et al. 2022, Eq. 5).

    The result is the end y of the path, the log probability of the moves, and the path as recorded.

    After a move, the differences of a finite site are taken relative to its new value, d[i, k] - d[i, new]. A
    windowed site is visited at most once, since its differences are known for its first value only.

    Parameters
    ----------
    L : () int, number of moves
    state : State, at which the differences are taken
    x : (d,) int, where the path starts
    choose_site : (t, weights of all sites) -> () int, the site of move t
    choose_column : (t, (K,) log weights of the site's moves) -> () int, the neighbour that the site goes to
    path : where the moves are recorded, or None
    """
    space, top = target.space, state.carry.top
    largest = 0.9 * np.log(np.finfo(state.carry.weights.dtype).max)
    differences = jnp.minimum(state.differences, LARGEST_DIFFERENCE)

    def log_weights_at(site, now):
        """(K,) log weights of the moves of one site from the value `now`, less the largest one, `top`."""
        d, index = differences[site], now - per_site(space.lower, site)
        windowed = per_site(space.windowed, site)
        current = ~windowed & (jnp.arange(space.K) == index)
        d = d - jnp.where(windowed, 0.0, d[jnp.where(windowed, 0, index)])
        logw = log_weights(d, current, balancing)
        visited = windowed & (now != state.x[site])
        return jnp.where(visited, -jnp.inf, jnp.minimum(logw - top, largest))

    def body(t, carried):
        x, sites, log_prob, path = carried
        # The barriers make XLA read x once, before x is updated. Otherwise it copies the whole array.
        site = jax.lax.optimization_barrier(choose_site(t, sites))
        before = jax.lax.optimization_barrier(x[site])
        logw = log_weights_at(site, before)
        column = choose_column(t, logw)
        log_prob += logw[column] - jnp.log(sites.stems.sum())
        if path is not None:
            path = record(path, t, site, column, before)
        after = wrapped_value(space, site, before + step_to(space, before, site, column))
        sites = sites.put(site, jnp.exp(log_weights_at(site, after)).sum())
        return put(x, site, after), sites, log_prob, path

    initial = (x, Sites.of(state.carry.weights.sum(axis=1)), jnp.zeros_like(top), path)
    y, _, log_prob, path = jax.lax.fori_loop(0, L, body, initial)
    return y, log_prob, path


def empty_path(most: int, L) -> MovePath:
    """A path of at most `most` moves, of which the first L will be recorded."""
    none = jnp.zeros(most, int)
    return MovePath(none, none, none, jnp.arange(most) < L)


def record(path: MovePath, t, site, column, before) -> MovePath:
    """The path with its move t filled in."""
    return path._replace(
        site=put(path.site, t, site),
        column=put(path.column, t, column),
        before=put(path.before, t, before),
    )


# ---------------------------------------------------------------- PAFS without backtracking
def pafs_without_backtracking(key, u, L, target, start: State, balancing: str, backtrack: bool):
    """A path that changes no site twice (Sun et al. 2022, App. B.3), as (end, log_forward, log_back).

    All sites of the path are drawn at once, ordered and without replacement. The result is the end state, and
    the log probabilities of the path and of the reverse path.

    Parameters
    ----------
    u : (most,) uniforms, one for each move of the longest path
    L : () int, number of moves
    start : State at x
    """
    space, most = target.space, u.shape[0]
    active = jnp.arange(most) < L

    def log_prob(state: State, site, column, active):
        # The weight of each move is divided by the sum of the weights of all sites not drawn before it. These
        # weights are added up and never subtracted from the total, so that a small remainder loses no digits.
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
    after = wrapped_value(space, site, before + step_to(space, before, site, column))
    y = start.x.at[jnp.where(active, site, space.d)].set(after, mode="drop")
    end = arrive(target, start, y, jnp.where(active, site, space.d), balancing)
    forward = log_prob(start, site, column, active)
    back = log_prob(end, site[::-1], column_back(space, site, column, before)[::-1], active[::-1])
    return end, forward, back


# ---------------------------------------------------------------- PAFS on moves of two sites
def pafs_of_pairs(key, u, L, target, start: State, balancing: str, backtrack: bool):
    """A path of moves of pairs and of single sites, as (end, log_forward, log_back).

    The result is the end state, and the log probabilities of the path and of the reverse path.

    The weights of the moves at each point of the path are estimates. They come from a table, made at the
    start of the path, of the changes of the log density if single sites change. The weights of the reverse
    path come from such a table made at the end of the path (as in Eq. 5 and 6 of Sun et al. 2022). Without
    backtracking no move changes a site that has changed before.

    Parameters
    ----------
    u : (most,) uniforms, one for each move of the longest path
    L : () int, number of moves
    start : State at x, whose `differences` are a pair: the table at x, and the estimates at x of all moves
    """
    moves, most = PairMoves(target.space), u.shape[0]
    largest = 0.9 * np.log(np.finfo(start.carry.weights.dtype).max)

    def walk(state: State, choose: Callable):
        """The end of L moves from a state, the log probability of the moves, and the inverse of each move."""
        table, at_state = state.differences

        def scaled(estimates):
            """Log weights from estimated differences, less the largest at `state`, capped so that `exp` stays
            finite.
            """
            return jnp.minimum(log_weights(estimates, False, balancing) - state.carry.top, largest)

        def body(t, carried):
            z, logw, weights, log_prob, moves_back = carried
            move = choose(t, weights)
            log_prob += logw[move] - jnp.log(weights.sum())
            # The barrier makes XLA read the weights before it changes them. Otherwise it copies the array of
            # weights.
            move, log_prob = jax.lax.optimization_barrier((move, log_prob))
            z = moves.after(z, move)
            # only the moves of sites that have just moved have new weights
            rows = moves.rows_with(moves.sites_of(move))
            new = scaled(moves.estimates(table, state.x, z, rows)) if backtrack else -jnp.inf
            where = moves.numbers(rows)
            logw = logw.at[where].set(new, mode="drop")
            weights = weights.at[where].set(jnp.exp(new), mode="drop")
            return z, logw, weights, log_prob, put(moves_back, t, moves.inverse(move))

        weights, zero = state.carry.weights, jnp.zeros_like(state.carry.top)
        initial = (state.x, scaled(at_state), weights, zero, jnp.zeros(most, int))
        z, _, _, log_prob, moves_back = jax.lax.fori_loop(0, L, body, initial)
        return z, log_prob, moves_back

    y, forward, moves_back = walk(start, lambda t, weights: draw_categorical(u[t][None], weights)[0])
    logdensity, differences = moves.by_table(y, target)
    end = State(y, logdensity, differences, moves.weights(y, differences[1], balancing))
    _, back, _ = walk(end, lambda t, _: moves_back[L - 1 - t])
    return end, forward, back
