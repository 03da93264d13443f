"""Slice sampling along the axes and along directions scaled by the covariance of the target.

The univariate update is that of blackjax. Every update leaves any density exactly invariant: the direction is
drawn independently of the point, and Neal's stepping out and shrinkage along it (2003) are reversible, also
where the slice consists of several intervals. The search of Zoltowski et al. 2021 (App. E) is not reversible:
it finds *a* root, and from different points of the interval that it returns it may find different roots.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# the numbers of coordinates d for which updates also go along random orthonormal frames; a frame of d
# directions costs d^3 operations
FRAMES = range(2, 501)
# largest numbers of expansions and of shrinkages of the interval in one update; 200 halvings reduce an
# interval from a length of 1e8 to one of 1e-52
EXPANSIONS, SHRINKAGES = 100, 200
# An update counts as staying in place if it changes no coordinate by more than this many machine epsilons,
# relative to the coordinate.
STAYING_EPSILONS = 16.0
# The width of the initial interval is this many times the mean distance that updates move: two points drawn
# uniformly from an interval are on average a third of its length apart.
SPREADS = 3.0
# The covariance of n draws is shrunk towards its diagonal with the weight PRIOR / (n + PRIOR), as in Stan's
# warm-up.
PRIOR = 5.0


class Widths(NamedTuple):
    """Lengths of the initial interval along each direction, and the statistics they are tuned from.

    The statistics are those of the current window: consecutive tuning draws, after which the widths are
    renewed.

    Attributes
    ----------
    axes : (d,) float, widths along the axes
    factor : (d, d) float, Cholesky factor that scales a random frame; (0, 0) where d is not in `FRAMES`
    distance_sum : (d,) float, sum of the distances moved along each axis
    distance_count : (d,) float, number of these distances
    count : () float, number of points
    mean : (d,) float, mean of the points
    scatter : (d, d) float, sum of squares and products about the mean; (0, 0) where `factor` is
    stayed : () float, share of updates that stayed in place
    """

    axes: Any
    factor: Any
    distance_sum: Any
    distance_count: Any
    count: Any
    mean: Any
    scatter: Any
    stayed: Any


class SliceInfo(NamedTuple):
    """What the updates of a draw did, on average over its updates.

    Attributes
    ----------
    expansions : () float, expansions of the interval
    shrinkages : () float, shrinkages of the interval
    stayed : () float, share of updates that stayed in place
    """

    expansions: Any
    shrinkages: Any
    stayed: Any


def initial_widths(d: int) -> Widths:
    """The widths before the first draw, as NumPy arrays."""
    n = d if d in FRAMES else 0
    return Widths(np.ones(d), np.eye(n) / SPREADS, *empty_window(d, np))


def empty_window(d: int, xp=jnp) -> tuple[Any, ...]:
    """The statistics of `Widths` at the beginning of a window."""
    n = d if d in FRAMES else 0
    return xp.zeros(d), xp.zeros(d), xp.zeros(()), xp.zeros(d), xp.zeros((n, n)), xp.zeros(())


def renewal_due(t, tune):
    """() bool, whether the widths are renewed after draw t of a chain with `tune` tuning draws.

    The first window is one draw and each next one is twice as long, since a width can grow at most a
    hundredfold in a window.
    """
    n = t + 1
    return ((n & t) == 0) & (2 * n <= tune) | (n == tune)


def slice_draw(
    key, x, logdensity: Callable, widths: Widths, learn, due, sweeps
) -> tuple[Any, Widths, SliceInfo]:
    """`sweeps` passes over as many directions as x has coordinates.

    Parameters
    ----------
    x : (d,) float
    logdensity : (d,) -> () float, nats, up to a constant; -inf or nan outside the support
    widths : Widths
    learn : () bool, whether the draw enters the statistics of the window
    due : () bool, whether the widths are renewed after the draw
    sweeps : () int

    Returns
    -------
    x, widths, info
    """

    def body(n, carried):
        x, widths, total = carried
        x, distances, axes, info = sweep(jax.random.fold_in(key, n), x, logdensity, widths)
        updated = widths._replace(
            distance_sum=widths.distance_sum + jnp.where(axes, distances, 0.0),
            distance_count=widths.distance_count + axes,
        )
        widths = jax.tree.map(lambda a, b: jnp.where(learn, a, b), updated, widths)
        return x, widths, jax.tree.map(jnp.add, total, info)

    zero = SliceInfo(*jnp.zeros(3))
    x, widths, total = jax.lax.fori_loop(0, sweeps, body, (x, widths, zero))
    info = jax.tree.map(lambda a: a / sweeps, total)
    widths = jax.lax.cond(learn, lambda w: learned(w, x, info, logdensity(x) > -jnp.inf), lambda w: w, widths)
    return x, jax.lax.cond(due, renewed, lambda w: w, widths), info


def sweep(key, x, logdensity: Callable, widths: Widths):
    """One update along each of d directions.

    The directions are, with probability 1/2 each, the axes in random order, or a random orthonormal frame
    times the Cholesky factor of the covariance of the tuning draws (MacKay 2002, Chapter 29.7, after a
    transformation that makes the target isotropic).

    Returns
    -------
    x : (d,) float
    distances : (d,) float, distances moved, by axis; without meaning along a frame
    axes : () bool, whether the directions were the axes
    info : SliceInfo
    """
    from blackjax.mcmc.slice import SliceState, build_kernel, stepping_out  # importing blackjax starts JAX

    d, framed = x.shape[0], widths.factor.shape[0] > 0
    key_coin, key_frame, key_order, key_updates = jax.random.split(key, 4)
    axes = jax.random.bernoulli(key_coin) if framed else jnp.asarray(True)
    order = jax.random.permutation(key_order, d)
    if framed:
        frame = jax.lax.cond(
            axes,
            lambda: jnp.zeros((d, d), x.dtype),
            lambda: SPREADS * orthonormal(key_frame, d).T @ widths.factor.T,
        )
    update = build_kernel(stepping_out, EXPANSIONS, SHRINKAGES)

    def along(n, carried):
        state, distances, total = carried
        axis = order[n]
        direction = jnp.where(jnp.arange(d) == axis, widths.axes, 0.0)
        if framed:
            direction = jnp.where(axes, direction, frame[n])

        def proposal(key, position, logdensity):
            def line(t):
                point = position + t * direction
                value = logdensity(point)
                # If the height of the slice is log(0), a comparison with it would admit impossible points.
                return SliceState(point, value), value > -jnp.inf

            return line

        new, info = update(jax.random.fold_in(key_updates, n), state, logdensity, proposal, 1.0)
        distance = jnp.abs(new.position - state.position)
        stayed = jnp.all(distance <= STAYING_EPSILONS * jnp.finfo(x.dtype).eps * jnp.abs(state.position))
        of_update = (info.num_expansions, info.num_shrink, stayed)
        total = jax.tree.map(jnp.add, total, SliceInfo(*(jnp.asarray(a, float) for a in of_update)))
        return new, distances.at[axis].set(distance[axis]), total

    initial = SliceState(x, jnp.asarray(logdensity(x), x.dtype)), jnp.zeros_like(x), SliceInfo(*jnp.zeros(3))
    state, distances, total = jax.lax.fori_loop(0, d, along, initial)
    return state.position, distances, axes, jax.tree.map(lambda a: a / d, total)


def orthonormal(key, d: int):
    """(d, d) float, an orthogonal matrix drawn from the uniform (Haar) distribution."""
    q, r = jnp.linalg.qr(jax.random.normal(key, (d, d)))
    return q * jnp.sign(jnp.diagonal(r))


def learned(widths: Widths, x, info: SliceInfo, possible) -> Widths:
    """The statistics of the window with one more point (Welford 1962).

    While x is not `possible`, that is while the chain has not reached a point of positive density, the widths
    grow tenfold, so that the next draw searches farther away.
    """
    growth = jnp.where(possible, 1.0, 10.0)
    count = widths.count + 1
    deviation = x - widths.mean
    mean = widths.mean + deviation / count
    scatter = widths.scatter
    if scatter.shape[0]:
        scatter = scatter + jnp.outer(deviation, x - mean)
    stayed = widths.stayed + (info.stayed - widths.stayed) / count
    return widths._replace(
        axes=growth * widths.axes,
        factor=growth * widths.factor,
        count=count,
        mean=mean,
        scatter=scatter,
        stayed=stayed,
    )


def renewed(widths: Widths) -> Widths:
    """New widths from the statistics of a window, with the statistics of an empty next window."""
    d = widths.axes.shape[0]
    new_axes = SPREADS * widths.distance_sum / jnp.maximum(widths.distance_count, 1)
    axes = jnp.where((new_axes > 0) & jnp.isfinite(new_axes), new_axes, widths.axes)
    factor = widths.factor
    if factor.shape[0]:
        new = shaped(widths.scatter / jnp.maximum(widths.count - 1, 1), widths.count, axes / SPREADS)
        factor = jnp.where(jnp.isfinite(new).all(), new, factor)
    # the share of updates that stayed in place is kept for a warning after tuning
    stayed = widths.stayed
    return Widths(axes, factor, *empty_window(d))._replace(stayed=stayed)


def shaped(covariance, count, spread):
    """(d, d) float, the Cholesky factor of a covariance that is shrunk towards its diagonal.

    The correlation matrix is factored, so that coordinates may have scales from 1e-8 to 1e8.

    Parameters
    ----------
    covariance : (d, d) float, of `count` points
    count : number of points
    spread : (d,) float, standard deviations for coordinates that did not change
    """
    sd = jnp.sqrt(jnp.diagonal(covariance))
    sd = jnp.where(sd > 0, sd, spread)
    share = count / (count + PRIOR)
    correlation = share * covariance / jnp.outer(sd, sd)
    correlation = jnp.where(jnp.eye(len(sd), dtype=bool), 1.0, correlation)
    return sd[:, None] * jnp.linalg.cholesky(correlation)
