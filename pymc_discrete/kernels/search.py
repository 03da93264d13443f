"""A search for a possible state, for chains that start where all neighbours are impossible too."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.block_gibbs import draw_conditional, visits_of
from pymc_discrete.kernels.random import choose
from pymc_discrete.space.space import Space, Variable

SEARCHING = 300  # most sweeps until a possible state is found
RETURNING = 40  # sweeps from that state to the bulk of the target: each at least halves the distance
# The penalties of an impossible element, in nats. With the high one their number practically never increases.
# One sweep in PERIOD has the low one, with which it may, since some states are reached only by a detour.
HIGH_PENALTY, LOW_PENALTY, PERIOD = 30.0, 1.5, 4
# The penalty once a possible state is found, on the way to the bulk of the target: larger than any
# difference of finite log densities, so that no element becomes impossible again.
PROHIBITIVE = 1e9


def search(key, x, target_of: Callable[[Any, Any], Any]):
    """(d,) int, a possible state near the bulk of the target, and whether one was found.

    The search begins at x, or with all sites that have a window at one level, 0, 1, 2, 4, ..., whichever has
    the fewest impossible elements: where each count is at most another one, they can only be raised together.
    Sites are then drawn in turn from all scales of neighbours, first such that fewer and fewer elements of
    the log density are impossible, and from a possible state on by the log density itself. This is no
    transition of a chain: it leaves no distribution as it is.

    Parameters
    ----------
    x : (d,) int
    target_of : (share, penalty) -> Target of a `softened` density
    """

    def going_on(carried):
        _, tried, left, found = carried
        return jnp.where(found, left > 0, tried < SEARCHING)

    def sweep(carried):
        x, tried, left, found = carried
        searching = jnp.where((tried + 1) % PERIOD == 0, LOW_PENALTY, HIGH_PENALTY)
        target = target_of(jnp.where(found, 1.0, 0.0), jnp.where(found, PROHIBITIVE, searching))
        key_sweep = jax.random.fold_in(key, tried + RETURNING - left)
        for n, visit in enumerate(visits_of(target, None, among_neighbours, at_all_distances)):
            x = visit(jax.random.fold_in(key_sweep, n), x, False)
        # In the search for a possible state the log density of `target` is minus the penalty times the number
        # of impossible elements: 0 at a possible state, and at most -LOW_PENALTY at any other.
        possible = found | (target.logdensity(x) > -LOW_PENALTY / 2)
        return x, tried + ~found, left - found, possible

    counting = target_of(jnp.zeros(()), jnp.ones(()))
    starts = at_levels(counting.space, jnp.asarray(x))
    possible = jax.lax.map(counting.logdensity, starts)
    best = jnp.argmax(possible)  # the first one of several that are equally good
    first = (starts[best], jnp.zeros((), int), jnp.full((), RETURNING), possible[best] > -0.5)
    x, _, _, found = jax.lax.while_loop(going_on, sweep, first)
    return x, found


def at_levels(space: Space, x):
    """(n, d) int: x, and x with its windowed sites at 0, 1, 2, 4, ..., or the nearest possible value."""
    widest = int(np.max(space.column, where=space.windowed[:, None], initial=1))
    levels = np.concatenate([[0], 2 ** np.arange(int(np.log2(widest)) + 1)])
    at_level = np.clip(levels[:, None], space.lower, space.upper)
    free = space.windowed & ~space.constrained
    return jnp.concatenate([x[None], jnp.where(free, at_level, x)]).astype(x.dtype)


def among_neighbours(u, v: Variable, rows, now, differences):
    """(r,) int, new values of sites of one variable: arguments as of `draw_conditional` for Gibbs sampling.

    A site with a window is drawn from its neighbours at all distances and its current value, and so are sites
    that change together along a line. A neighbour at distance s has 1 / (1 + s) of the weight, so that sites
    go no farther than they must.
    """
    if v.finite:
        return draw_conditional(u, v, rows, now, differences)
    values, log_weights = at_all_distances(u, v, now)
    k = choose(u[0], differences(values) + log_weights)[:, None]
    moved = jnp.take_along_axis(values, jnp.minimum(k, values.shape[1] - 1), axis=1)
    return jnp.where(k < values.shape[1], moved, now[:, None])[:, 0]


def at_all_distances(u, v: Variable, now):
    """(r, K + 1) int, each of r values and its neighbours at all distances, and (K + 1,) the logarithms of
    their weights.
    """
    offsets = np.concatenate([[0], np.asarray(v.offsets)])
    return now[:, None] + jnp.asarray(offsets, now.dtype), -np.log1p(np.abs(offsets))
