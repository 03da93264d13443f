"""Moves of single sites, and the weights by which a state chooses among them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import log_weights
from pymc_discrete.kernels.kernel import State
from pymc_discrete.kernels.weight_tree import put
from pymc_discrete.space.space import Space


def per_site(array: np.ndarray, site):
    """`array[site]`; a scalar, which needs no gather, where all entries of `array` are equal."""
    flat = array.reshape(-1)
    return flat[0] if (flat == flat[0]).all() else jnp.asarray(array)[site]


def wrapped_value(space: Space, site, value):
    """`value`, wrapped around cyclically into a finite site's support; unchanged for windowed sites."""
    lower, count = per_site(space.lower, site), per_site(space.upper - space.lower + 1, site)
    cyclic = lower + jnp.remainder(value - lower, count)
    if space.windowed.all():
        return value
    return jnp.where(per_site(space.windowed, site), value, cyclic) if space.windowed.any() else cyclic


def step_to(space: Space, now, site, column):
    """(L,) int, the step that takes `site` from value `now` to its neighbour `column`.

    A step is a cyclic shift on a finite site and an offset on a windowed site. Steps commute, and the
    negative of a step undoes it.
    """
    # the index of the neighbour in a finite support, or its offset for a site with a window
    neighbour = jnp.asarray(space.column)[site, column] if space.windowed.any() or (space.K > 1) else column
    shift = jnp.remainder(
        neighbour - (now - per_site(space.lower, site)), per_site(space.upper - space.lower + 1, site)
    )
    return jnp.where(per_site(space.windowed, site), neighbour, shift)


def column_back(space: Space, site, column, before):
    """(L,) int, the column of the neighbour by which a move through `column` is undone.

    Parameters
    ----------
    site, column : (L,) int
    before : (L,) int, values of the sites before the moves
    """
    back = before - per_site(space.lower, site)
    if space.windowed.any():
        opposite = jnp.asarray(space.opposite)[site, column]
        back = jnp.where(per_site(space.windowed, site), opposite, back)
    return back


def log_weights_of(x, differences, space: Space, balancing: str, sites=None):
    """(d, K), the log weights of moves: log g at their differences, where g is the balancing function.

    The log weight is -inf at current values and at impossible values. For `sites` (m,) the result is (m, K).
    """
    if sites is None:
        column, windowed, index = space.column, space.windowed, x - space.lower
    else:
        column, windowed = jnp.asarray(space.column)[sites], jnp.asarray(space.windowed)[sites]
        index, differences = x[sites] - per_site(space.lower, sites), differences[sites]
    current = (~windowed)[:, None] & (column == index[:, None])
    return log_weights(differences, current, balancing)


class Weights(NamedTuple):
    """The weights of all moves at a state.

    Attributes
    ----------
    weights : (d, K) float, divided by exp(top); (size,) for `PairMoves`
    top : () float, the largest log weight when all weights were last computed
    total : () float, the sum of the weights
    """

    weights: Any
    top: Any
    total: Any

    @property
    def log_scale(self):
        """() float, the log of the normalising constant of the moves; -inf where no move is possible."""
        return self.top + jnp.log(self.total)


def weights_of(x, differences, space: Space, balancing: str) -> Weights:
    """The weights of all moves from x (d,), computed from their differences (d, K)."""
    return scaled(log_weights_of(x, differences, space, balancing))


def scaled(logw) -> Weights:
    """The weights of all moves, computed from their logarithms, an array of any shape."""
    top = jnp.max(logw)
    weights = jnp.where(jnp.isneginf(logw), 0.0, jnp.exp(logw - top))
    return Weights(weights, top, weights.sum())


def updated(before: Weights, touched, logw, all_log_weights: Callable) -> Weights:
    """The weights of all moves after one move, computed from the weights before it.

    Parameters
    ----------
    touched : (m,) int, the rows of weights that change, padded with the number of rows
    logw : (m, ...), the new log weights of these rows
    all_log_weights : () -> log weights of all moves
    """
    of_touched = jnp.where(jnp.isneginf(logw), 0.0, jnp.exp(logw - before.top))
    weights = before.weights.at[touched].set(of_touched, mode="drop")
    total = weights.sum()
    # The weights are still divided by exp(`before.top`), but the largest log weight may have changed since.
    # If their sum therefore comes close to overflow or underflow, all weights are computed again.
    limits = jnp.finfo(total.dtype)
    safe = (total > limits.tiny**0.5) & (total < limits.max**0.5)
    return jax.lax.cond(
        safe,
        lambda: Weights(weights, before.top, total),
        lambda: scaled(all_log_weights()),
    )


def arrive(target, before: State, y, sites, balancing: str, logdensity=None) -> State:
    """The state at y, whose carried quantities are the weights of its moves.

    Parameters
    ----------
    before : State, which differs from y at no site except `sites`
    y : (d,) int
    sites : (L,) int; the number d stands for no site
    logdensity : () float, the log density at y if it is known; None computes it
    """
    touched = target.touched(sites).reshape(-1) if target.local else None
    if touched is not None and 2 * touched.shape[0] <= target.space.d:
        differences = target.update(y, before.differences, sites)
        weights = updated(
            before.carry,
            touched,
            log_weights_of(y, differences, target.space, balancing, jnp.minimum(touched, target.space.d - 1)),
            lambda: log_weights_of(y, differences, target.space, balancing),
        )
        return State(y, target.logdensity(y) if logdensity is None else logdensity, differences, weights)
    if logdensity is None:
        logdensity, differences = target.logdensity_and_differences(y)
    else:
        differences = target.differences(y)
    return State(y, logdensity, differences, weights_of(y, differences, target.space, balancing))


def log_density_after(target, state, y, move):
    """() float, log density at y, one move away from `state`, by the exact difference of the move."""
    after = state.logdensity + state.differences.reshape(-1)[move]
    return jax.lax.cond(jnp.isneginf(state.logdensity), lambda: target.logdensity(y), lambda: after)


class SingleSites:
    """The moves of single sites, numbered: move i K + k takes site i to its k-th neighbour.

    Attributes
    ----------
    longest : the largest number of moves that change different sites
    """

    def __init__(self, space: Space):
        self.space, self.longest = space, space.d

    def at(self, x, target):
        """The log density at x (d,), and the differences (d, K) of all moves from x, nats."""
        return target.logdensity_and_differences(x)

    def weights(self, x, differences, balancing: str) -> Weights:
        """The weights of all moves from x (d,), computed from their differences."""
        return weights_of(x, differences, self.space, balancing)

    def made(self, x, moves, active):
        """(d,) int, x after those of `moves` (L,) for which `active` (L,) is true; (L,) int, the moves that
        undo them.
        """
        site, column = moves // self.space.K, moves % self.space.K
        step = step_to(self.space, x[site], site, column)
        if moves.shape[0] == 1:
            y = x.at[site[0]].set(wrapped_value(self.space, site[0], x[site[0]] + step[0]))
        else:
            change = jnp.zeros_like(x).at[site].add(jnp.where(active, step, 0))
            y = wrapped_value(self.space, np.arange(self.space.d), x + change)
        back = column_back(self.space, site, column, wrapped_value(self.space, site, y[site] - step))
        return y, site * self.space.K + back

    def arrive(self, target, before: State, y, moves, active, balancing: str, logdensity=None) -> State:
        """The state at y, where `moves`, of which some are `active`, have led from the state `before`.

        Only the weights of sites whose differences the moves change are computed again; see the function
        `arrive`.
        """
        sites = jnp.where(active, moves // self.space.K, self.space.d)
        return arrive(target, before, y, sites, balancing, logdensity)

    def visit(self, visited, move):
        """`visited` (d,) bool, with the site of a move () marked as well."""
        return put(visited, move // self.space.K, True)

    def of_visited(self, visited):
        """(d, 1) bool, whether the moves of each site change a site for which `visited` (d,) is true."""
        return visited[:, None]
