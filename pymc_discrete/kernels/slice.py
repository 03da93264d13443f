"""Slice sampling along the axes and along directions of the target's own shape; the univariate update is
blackjax's.

Every update leaves any density exactly invariant: the direction is drawn without looking at the point, and
along it Neal's stepping out and shrinkage (2003, Fig. 3 and 5) are reversible, whatever the number of pieces
of the slice. The search of Zoltowski et al. 2021 (App. E) is not: it finds *a* root, which need not be the
same one from every point of the interval that it returns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FRAMES = range(2, 501)  # numbers of coordinates; a frame of d directions costs d^3 operations
EXPANSIONS, SHRINKAGES = 100, 200  # at most, of one update; 200 halvings lead from 1e8 to 1e-52
ROUNDINGS = 16.0  # a shorter way is taken for none
SPREADS = 3.0  # two uniform points of an interval are a third of it apart, in the mean
PRIOR = 5.0  # draws that the diagonal counts for beside the covariance of a window, as in Stan's warm-up


class Widths(NamedTuple):
    """How long the first interval along a direction is, and what is learned about it.

    Attributes
    ----------
    axes : (d,) float, widths along the axes
    factor : (d, d) float, by which an orthonormal frame is multiplied; (0, 0) where d has none (`FRAMES`)
    way, ways : (d,) float, the sum of the distances gone along each axis in this window, and their number
    count : () float, points seen in this window
    mean : (d,) float, of them
    scatter : (d, d) float, sum of squares about it; (0, 0) as `factor`
    stayed : () float, the share of updates that went nowhere in this window
    """

    axes: Any
    factor: Any
    way: Any
    ways: Any
    count: Any
    mean: Any
    scatter: Any
    stayed: Any


class SliceInfo(NamedTuple):
    """What the updates of a draw did, per update.

    Attributes
    ----------
    expansions : () float, intervals stepped out
    shrinkages : () float, points tried
    stayed : () float, the share that went nowhere
    """

    expansions: Any
    shrinkages: Any
    stayed: Any


def start(d: int) -> Widths:
    """Before anything is known, as NumPy arrays."""
    n = d if d in FRAMES else 0
    return Widths(np.ones(d), np.eye(n) / SPREADS, *window(d, np))


def window(d: int, xp=jnp) -> tuple[Any, ...]:
    """The sums of a window that has just begun."""
    n = d if d in FRAMES else 0
    return xp.zeros(d), xp.zeros(d), xp.zeros(()), xp.zeros(d), xp.zeros((n, n)), xp.zeros(())


def renewals(tune: int) -> np.ndarray:
    """(tune,) bool, the tuning draws after which the widths are renewed: windows that double, since a width
    grows a hundredfold at most.
    """
    due = np.zeros(tune, bool)
    ends = 2 ** np.arange(max(int(tune).bit_length() - 1, 0)) - 1
    due[ends] = True
    due[tune - 1 :] = True
    return due


def draw(key, x, logdensity: Callable, widths: Widths, learn, due, sweeps) -> tuple[Any, Widths, SliceInfo]:
    """`sweeps` passes over as many directions as x has coordinates.

    Parameters
    ----------
    x : (d,) float
    logdensity : (d,) -> () float, nats, up to a constant; -inf or nan outside the support
    learn, due : () bool, whether to learn from the draw, and whether the widths are renewed after it
    sweeps : () int

    Returns
    -------
    x, widths, info
    """

    def body(n, carried):
        x, widths, total = carried
        x, way, axes, info = sweep(jax.random.fold_in(key, n), x, logdensity, widths)
        seen = widths._replace(way=widths.way + jnp.where(axes, way, 0.0), ways=widths.ways + axes)
        widths = jax.tree.map(lambda a, b: jnp.where(learn, a, b), seen, widths)
        return x, widths, jax.tree.map(jnp.add, total, info)

    zero = SliceInfo(*jnp.zeros(3))
    x, widths, total = jax.lax.fori_loop(0, sweeps, body, (x, widths, zero))
    info = jax.tree.map(lambda a: a / sweeps, total)
    widths = jax.lax.cond(learn, lambda w: learned(w, x, info, logdensity(x) > -jnp.inf), lambda w: w, widths)
    return x, jax.lax.cond(due, renewed, lambda w: w, widths), info


def sweep(key, x, logdensity: Callable, widths: Widths):
    """(x, distances along the axes (d,), whether the directions were the axes, info) after one update along
    each of d directions.

    A coin chooses between the axes in random order (Gibbs) and a random orthonormal frame times the Cholesky
    factor of the target's covariance as tuning saw it (MacKay 2002, Chapter 29.7, for a target made round).
    """
    from blackjax.mcmc.slice import SliceState, build_kernel, stepping_out  # importing it starts JAX

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
        here, way, total = carried
        axis = order[n]
        direction = jnp.where(jnp.arange(d) == axis, widths.axes, 0.0)
        if framed:
            direction = jnp.where(axes, direction, frame[n])

        def proposal(key, position, logdensity):
            def line(t):
                there = position + t * direction
                value = logdensity(there)
                return SliceState(
                    there, value
                ), value > -jnp.inf  # a height of log(0) would let in what is impossible

            return line

        there, info = update(jax.random.fold_in(key_updates, n), here, logdensity, proposal, 1.0)
        gone = jnp.abs(there.position - here.position)
        stayed = jnp.all(gone <= ROUNDINGS * jnp.finfo(x.dtype).eps * jnp.abs(here.position))
        own = SliceInfo(*(jnp.asarray(a, float) for a in (info.num_expansions, info.num_shrink, stayed)))
        return there, way.at[axis].set(gone[axis]), jax.tree.map(jnp.add, total, own)

    begin = SliceState(x, jnp.asarray(logdensity(x), x.dtype)), jnp.zeros_like(x), SliceInfo(*jnp.zeros(3))
    there, way, total = jax.lax.fori_loop(0, d, along, begin)
    return there.position, way, axes, jax.tree.map(lambda a: a / d, total)


def orthonormal(key, d: int):
    """(d, d) float, its columns a uniformly distributed frame."""
    q, r = jnp.linalg.qr(jax.random.normal(key, (d, d)))
    return q * jnp.sign(jnp.diagonal(r))


def learned(widths: Widths, x, info: SliceInfo, possible) -> Widths:
    """The sums of the window with one point more (Welford 1962); a chain that has found nothing possible yet
    looks farther away.
    """
    farther = jnp.where(possible, 1.0, 10.0)
    count = widths.count + 1
    away = x - widths.mean
    mean = widths.mean + away / count
    scatter = widths.scatter
    if scatter.shape[0]:
        scatter = scatter + jnp.outer(away, x - mean)
    stayed = widths.stayed + (info.stayed - widths.stayed) / count
    return widths._replace(
        axes=farther * widths.axes,
        factor=farther * widths.factor,
        count=count,
        mean=mean,
        scatter=scatter,
        stayed=stayed,
    )


def renewed(widths: Widths) -> Widths:
    """The widths that a window teaches, and the next window."""
    d = widths.axes.shape[0]
    far = SPREADS * widths.way / jnp.maximum(widths.ways, 1)
    axes = jnp.where((far > 0) & jnp.isfinite(far), far, widths.axes)
    factor = widths.factor
    if factor.shape[0]:
        new = shaped(widths.scatter / jnp.maximum(widths.count - 1, 1), widths.count, axes / SPREADS)
        factor = jnp.where(jnp.isfinite(new).all(), new, factor)
    stayed = widths.stayed
    return Widths(axes, factor, *window(d))._replace(stayed=stayed)


def shaped(covariance, count, spread):
    """(d, d) float, the Cholesky factor of a covariance (d, d) of `count` points, shrunk to its diagonal.

    Of correlations, so that units from 1e-8 to 1e8 beside one another do no harm; `spread` (d,) stands in for
    what did not move.
    """
    sd = jnp.sqrt(jnp.diagonal(covariance))
    sd = jnp.where(sd > 0, sd, spread)
    share = count / (count + PRIOR)
    correlation = share * covariance / jnp.outer(sd, sd)
    correlation = jnp.where(jnp.eye(len(sd), dtype=bool), 1.0, correlation)
    return sd[:, None] * jnp.linalg.cholesky(correlation)
