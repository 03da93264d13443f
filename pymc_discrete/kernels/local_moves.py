"""Moves of single sites, and the weights by which a state chooses among them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import log_weights
from pymc_discrete.targets.space import Space


def per_site(array: np.ndarray, site):
    """`array[site]`, the scalar where all entries are the same."""
    flat = array.reshape(-1)
    return flat[0] if (flat == flat[0]).all() else jnp.asarray(array)[site]


def wrapped(space: Space, site, value):
    """A value brought back into a finite site's support; windowed sites as they are."""
    lower, count = per_site(space.lower, site), per_site(space.upper - space.lower + 1, site)
    cyclic = lower + jnp.remainder(value - lower, count)
    if space.windowed.all():
        return value
    return jnp.where(per_site(space.windowed, site), value, cyclic) if space.windowed.any() else cyclic


def step_of(space: Space, now, site, column):
    """(L,) int, the step that takes `site` from value `now` to its neighbour `column`.

    The cyclic shift on a finite site, the offset on a windowed one: steps commute and invert by negation.
    """
    where = jnp.asarray(space.column)[site, column] if space.windowed.any() or (space.K > 1) else column
    shift = jnp.remainder(
        where - (now - per_site(space.lower, site)), per_site(space.upper - space.lower + 1, site)
    )
    return jnp.where(per_site(space.windowed, site), where, shift)


def column_back(space: Space, site, column, before):
    """(L,) int, the neighbour that leads back to the value `before`, for moves that went through `column`."""
    back = before - per_site(space.lower, site)
    if space.windowed.any():
        opposite = jnp.asarray(space.opposite)[site, column]
        back = jnp.where(per_site(space.windowed, site), opposite, back)
    return back


def log_weights_of(x, differences, space: Space, balancing: str, sites=None):
    """(d, K) or (m, K) log g of the differences, -inf at current values and at impossible ones."""
    if sites is None:
        column, windowed, place = space.column, space.windowed, x - space.lower
    else:
        column, windowed = jnp.asarray(space.column)[sites], jnp.asarray(space.windowed)[sites]
        place, differences = x[sites] - per_site(space.lower, sites), differences[sites]
    current = (~windowed)[:, None] & (column == place[:, None])
    return log_weights(differences, current, balancing)


class Weights(NamedTuple):
    """The weights of all moves at a state.

    Attributes
    ----------
    weights : (d, K) float, divided by exp(top)
    top : () float, the largest log weight when all were last computed
    total : () float, the sum of the weights
    """

    weights: Any
    top: Any
    total: Any

    @property
    def log_scale(self):
        """What turns log weights into log probabilities; -inf where there is nowhere to go."""
        return self.top + jnp.log(self.total)


def weights_of(x, differences, space: Space, balancing: str) -> Weights:
    logw = log_weights_of(x, differences, space, balancing)
    top = jnp.max(logw)
    weights = jnp.where(jnp.isneginf(logw), 0.0, jnp.exp(logw - top))
    return Weights(weights, top, weights.sum())


def updated(x, differences, space: Space, balancing: str, before: Weights, touched) -> Weights:
    """The weights at x, those of the `touched` sites computed anew."""
    logw = log_weights_of(x, differences, space, balancing, jnp.minimum(touched, space.d - 1))
    rows = jnp.where(jnp.isneginf(logw), 0.0, jnp.exp(logw - before.top))
    weights = before.weights.at[touched].set(rows, mode="drop")
    total = weights.sum()
    # far from where `top` was taken the weights could overflow or vanish
    limits = jnp.finfo(total.dtype)
    safe = (total > limits.tiny**0.5) & (total < limits.max**0.5)
    return jax.lax.cond(
        safe,
        lambda: Weights(weights, before.top, total),
        lambda: weights_of(x, differences, space, balancing),
    )


def arrive(target, before, y, sites, balancing: str):
    """(differences, weights) at y, which differs from the state `before` at `sites` (L,) at most; a site d is
    none.
    """
    touched = target.touched(sites).reshape(-1) if target.local else None
    if touched is not None and 2 * touched.shape[0] <= target.space.d:
        differences = target.update(y, before.differences, sites)
        return differences, updated(y, differences, target.space, balancing, before.carry, touched)
    differences = target.differences(y)
    return differences, weights_of(y, differences, target.space, balancing)


def log_density_after(target, state, y, site, column):
    """log density at y, one move away: from its difference where that is exact."""
    if not target.exact:
        return target.logdensity(y)
    known = state.logdensity + state.differences[site, column]
    return jax.lax.cond(jnp.isneginf(state.logdensity), lambda: target.logdensity(y), lambda: known)
