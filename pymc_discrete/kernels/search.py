"""A search for a possible state, for chains that start where all neighbours are impossible as well."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.block_gibbs import draw_conditional, visits_of
from pymc_discrete.kernels.random import choose
from pymc_discrete.space.space import Space, Variable

SEARCHING = 300  # the largest number of sweeps until a possible state is found
# the number of sweeps from a possible state to the bulk of the target, each of which at least halves the
# distance
RETURNING = 40
# The penalties of an impossible element of the log density, in nats. With the high penalty, the number of
# impossible elements practically never increases. One sweep in PERIOD has the low penalty, with which the
# number may increase, since some states are reached only by a detour.
HIGH_PENALTY, LOW_PENALTY, PERIOD = 30.0, 1.5, 4
# The penalty of an impossible element once a possible state is found, on the way to the bulk of the target.
# It is larger than any difference of finite log densities, so that no element becomes impossible again.
PROHIBITIVE = 1e9


def search(key, x, target_of: Callable[[Any, Any], Any]):
    """(d,) int, a possible state near the bulk of the target, and whether one was found.

    The search begins at x, or at x with all windowed sites at the same value, 0, 1, 2, 4, ..., whichever has
    the fewest impossible elements of the log density: counts of which each is at most another count can only
    be raised together. Sites are then drawn in turn from neighbours at all distances, at first so that fewer
    and fewer elements are impossible; once a state is possible, by the log density itself. The search is
    no transition of a chain: it leaves no distribution invariant.

    Parameters
    ----------
    x : (d,) int
    target_of : (share, penalty) -> Target of a `softened` density, the log density times `share` less the
        penalties
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
    best = jnp.argmax(possible)  # argmax takes the first of several equally good states
    first = (starts[best], jnp.zeros((), int), jnp.full((), RETURNING), possible[best] > -0.5)
    x, _, _, found = jax.lax.while_loop(going_on, sweep, first)
    return x, found


def at_levels(space: Space, x):
    """(n, d) int: x, and x with all windowed sites at 0, 1, 2, 4, ..., or at the nearest possible value."""
    widest = int(np.max(space.column, where=space.windowed[:, None], initial=1))
    levels = np.concatenate([[0], 2 ** np.arange(int(np.log2(widest)) + 1)])
    at_level = np.clip(levels[:, None], space.lower, space.upper)
    free = space.windowed & ~space.constrained
    return jnp.concatenate([x[None], jnp.where(free, at_level, x)]).astype(x.dtype)


def among_neighbours(u, v: Variable, rows, now, differences):
    """(r,) int, new values of sites of one variable; the arguments are those of `draw_conditional`.

    A site with a window is drawn from its neighbours at all distances and its current value, and so are sites
    that change together along a line. The weight of a neighbour at distance s is divided by 1 + s, so that
    sites go no farther than they must.
    """
    if v.finite:
        return draw_conditional(u, v, rows, now, differences)
    values, log_weights = at_all_distances(u, v, now)
    k = choose(u[0], differences(values) + log_weights)[:, None]
    moved = jnp.take_along_axis(values, jnp.minimum(k, values.shape[1] - 1), axis=1)
    return jnp.where(k < values.shape[1], moved, now[:, None])[:, 0]


def at_all_distances(u, v: Variable, now):
    """(r, K + 1) int, r values and their neighbours at all distances, and (K + 1,) the logarithms of their
    weights.
    """
    offsets = np.concatenate([[0], np.asarray(v.offsets)])
    return now[:, None] + jnp.asarray(offsets, now.dtype), -np.log1p(np.abs(offsets))
