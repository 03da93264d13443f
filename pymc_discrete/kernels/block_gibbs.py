"""Block Gibbs: exact conditionals, colour by colour or site by site."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import LARGEST_DIFFERENCE
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.random import choose, uniforms
from pymc_discrete.kernels.sweeps import sweeping
from pymc_discrete.targets.indexing import picked
from pymc_discrete.targets.space import Variable

UNROLLED = 8  # colours of one variable that are compiled one by one; more are looped over


def block_gibbs() -> tuple[Kernel, dict[str, float]]:
    r"""The block Gibbs kernel: one step draws every site from its conditional.

    Sites that do not interact are drawn together, one colour of the interaction graph after another; sites of
    a dense term are scanned one by one. A site with a window instead of a full support is drawn from its
    conditional on a stretch of values at random,

    .. math:: \{x + s (j - i) : j = 0, \dots, w\}, \qquad i \sim U\{0, \dots, w\},
        \quad s \sim U(\text{strides})

    which is as probable from each of its values as from x, so that nothing is to be accepted.

    A step reverses the order of its sweep by a fair coin, so that it is reversible and not only invariant.
    The sweeps of a draw (`sweeper`) keep one order: after a reversal the same sites are drawn twice running,
    and the first time is lost.

    Returns
    -------
    kernel : Kernel
    params : {}

    References
    ----------
    Geman and Geman 1984, Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of images.
    """

    return sweeping(visits_of), {}


def visits_of(target, without: np.ndarray | None = None) -> list:
    """The visits that make a sweep: (key, x, backward) -> x after them; of all sites but those `without` (d,)
    bool.
    """
    visits = []
    for n, start in enumerate(target.space.starts):
        own = [sites for m, sites in target.colours if m == n]
        if without is not None:
            own = [left for sites in own if len(left := sites[~without[start + sites]])]
        visits += (
            [visit_colour(target, n, sites) for sites in own]
            if len(own) <= UNROLLED
            else [visit_colours(target, n, own)]
        )
    return visits + [scan(target, n, sites) for n, sites in target.scanned]


def visit_colour(target, n: int, sites: np.ndarray):
    """Draw the sites of one colour together."""
    start, v = target.space.blocks[n]
    of = (target.logits if v.finite else target.rows)(n, sites)
    every = len(sites) == v.size
    place = np.zeros(v.size, int)
    place[sites] = np.arange(len(sites))
    mine = np.isin(np.arange(v.size), sites)

    def visit(key, x, backward):
        now = x[start : start + v.size] if every else x[start + sites]
        # a select by static places: scattering is slow; and behind a barrier, or XLA draws anew for every
        # site it puts
        values = jax.lax.optimization_barrier(
            draw(numbers(key, v, len(sites)), v, sites, now, lambda *candidates: of(x, *candidates))
        )
        block = values if every else jnp.where(mine, values[place], x[start : start + v.size])
        return jax.lax.dynamic_update_slice(x, block, (start,))

    return visit


def visit_colours(target, n: int, colours: list[np.ndarray]):
    """Draw many colours in turn, in a loop over a padded table of their sites."""
    start, v = target.space.blocks[n]
    width = max(map(len, colours))
    table = np.stack([np.pad(sites, (0, width - len(sites)), mode="edge") for sites in colours])
    last = np.array([len(sites) - 1 for sites in colours])
    colour, place = np.full(v.size, -1), np.zeros(v.size, int)
    for c, sites in enumerate(colours):
        colour[sites], place[sites] = c, np.arange(len(sites))

    def visit(key, x, backward):
        def body(t, x):
            c = jnp.where(backward, len(colours) - 1 - t, t)
            sites = jnp.asarray(table)[c]
            of = (target.logits if v.finite else target.rows)(n, sites)
            # what pads the table repeats its last site: the same numbers, or several draws of one site would
            # meet
            u = numbers(jax.random.fold_in(key, t), v, width)[
                :, jnp.minimum(np.arange(width), jnp.asarray(last)[c])
            ]
            values = draw(u, v, sites, x[start + sites], lambda *candidates: of(x, *candidates))
            values = jax.lax.optimization_barrier(values)
            block = jnp.where(colour == c, values[place], x[start : start + v.size])
            return jax.lax.dynamic_update_slice(x, block, (start,))

        return jax.lax.fori_loop(0, len(colours), body, x)

    return visit


def scan(target, n: int, sites: np.ndarray):
    """Draw single sites in turn, carrying what they mix in."""
    start, v = target.space.blocks[n]

    def visit(key, x, backward):
        def body(t, carried):
            x, u = carried
            t = jnp.where(backward, len(sites) - 1 - t, t)
            site = t if len(sites) == v.size else jnp.asarray(sites)[t]
            now = x[start + site]
            of = functools.partial(target.row, n, site, x, u)
            (value,) = draw(numbers(jax.random.fold_in(key, t), v, 1), v, site[None], now[None], of)

            def moved():
                return x.at[start + site].set(value), target.carried_after(n, site, value, x, u)

            return jax.lax.cond(value == now, lambda: (x, u), moved)

        return jax.lax.fori_loop(0, len(sites), body, (x, target.carried(x)))[0]

    return visit


def numbers(key, v: Variable, r: int):
    """(1 or 3, r) uniforms that `draw` takes for r sites."""
    return uniforms(key, (1 if v.finite else 3, r))


def draw(u, v: Variable, rows, now, differences):
    """(r,) int, new values of sites of one variable, given all others.

    Parameters
    ----------
    u : `numbers`
    v : the variable
    rows : (r,) int, the sites, counted within it
    now : (r,) int, their values
    differences : () -> (r, K) nats, for finite variables up to a constant a site, or (r, 1) the log odds of
        the upper of two values;
        (candidates (r, K)) -> (r, K) nats, for windowed ones, whose differences from `now` these are
    """
    if not v.finite:
        # computed once, though read several times
        values = jax.lax.optimization_barrier(stretch(u[1:], v, now))
        d = jax.lax.optimization_barrier(jnp.minimum(differences(values), LARGEST_DIFFERENCE))
        k = choose(u[0], d)[:, None]
        return jnp.where(
            k < values.shape[1], jnp.take_along_axis(values, k, axis=1, mode="clip"), now[:, None]
        )[:, 0]
    d = jax.lax.optimization_barrier(differences())
    if (v.counts == 2).all():
        odds = d[:, 0] if d.shape[1] == 1 else d[:, 1] - d[:, 0]
        return (picked(v.lower, rows) + (u[0] < jax.nn.sigmoid(odds))).astype(now.dtype)
    k = choose(u[0], d)
    return jnp.where(k < v.K, picked(v.lower, rows) + k, now).astype(now.dtype)


def stretch(u, v: Variable, now):
    """(r, w + 1) int, for every site equally spaced values, at random (`u` (2, r)) among those stretches that
    hold its own.
    """
    width, strides = v.stretches
    place = (u[0] * (width + 1)).astype(now.dtype)
    stride = jnp.asarray(strides, now.dtype)[(u[1] * len(strides)).astype(int)]
    return now[:, None] + stride[:, None] * (np.arange(width + 1, dtype=now.dtype) - place[:, None])
