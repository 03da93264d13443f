"""Samplers that the papers compare with: (kernel, params) with the package's interface, on finite sites.

As in the papers they use only the log density of a target. So they run on every model at the cost that the
papers state: a number of log densities per step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels import Info, Kernel, State

BATCH = 256  # neighbours evaluated at once by the locally balanced sampler


def random_walk():
    """Metropolis-Hastings: one site and another of its values, both uniform. One log density per step."""

    def step(key, state, target, params):
        key_site, key_value, key_accept = jax.random.split(key, 3)
        site = jax.random.randint(key_site, (), 0, target.space.d)
        y = shifted(target.space, state.x, site, jax.random.uniform(key_value))
        density = target.logdensity(y)
        accept = jnp.exp(jnp.minimum(density - state.logdensity, 0.0))
        proposed = State(y, density, ())
        accepted = jax.random.uniform(key_accept) < accept
        return chosen(accepted, proposed, state), Info(accept, accepted, jnp.ones((), int))

    return simple(step), {}


def gibbs(block=1, scan="random"):
    """Gibbs sampling of `block` sites at a time, jointly: K^block log densities per step.

    scan : "random" draws a site for each step (block=1 only); "shuffled" visits all sites in an order that is
        drawn for each pass, as in the papers' code; "systematic" visits them by their numbers
    """

    def step(key, state, target, params):
        key_block, key_draw = jax.random.split(key)
        block_state, sites = next_block(key_block, state.carry, target.space, block, scan)
        values = corners(target.space, sites)
        x, density, moved = resample(key_draw, state.x, sites, values, target)
        return State(x, density, (), block_state), Info(jnp.ones(()), jnp.ones((), bool), moved)

    return simple(step, lambda target: Blocks.start(target.space.d)), {}


def hamming_ball(block=10, radius=1, rows=None):
    """The Hamming ball sampler (Titsias and Yau 2017) of radius 1, HB-block-1.

    It takes at most 2 block (K - 1) + 2 log densities per step.

    Given x, u is uniform in the ball around x_B; given u, x_B is drawn from p restricted to the ball around
    u. The ball is symmetric and its size constant, so both are exact conditionals of p(x) Uniform(u;
    ball(x)).

    rows : (n, block) int, blocks that exploit structure (all factors of one time), of which one is drawn
        uniformly for each step; None visits all sites in an order that is drawn for each pass
    """
    if radius != 1:
        raise ValueError(f"Only radius 1 is implemented, got {radius}.")

    def step(key, state, target, params):
        key_block, key_u, key_draw = jax.random.split(key, 3)
        if rows is None:
            block_state, sites = next_block(key_block, state.carry, target.space, block, "shuffled")
        else:
            row = jax.random.randint(key_block, (), 0, len(rows))
            block_state, sites = state.carry, jnp.asarray(rows)[row]
        around_x = ball(target.space, sites, state.x[sites])
        u = around_x[jax.random.randint(key_u, (), 0, around_x.shape[0])]
        x, density, moved = resample(key_draw, state.x, sites, ball(target.space, sites, u), target)
        return State(x, density, (), block_state), Info(jnp.ones(()), jnp.ones((), bool), moved)

    return simple(step, lambda target: Blocks.start(target.space.d)), {}


def locally_balanced():
    """The locally balanced sampler (Zanella 2020) with g = sqrt, every neighbour evaluated: d (K - 1) log
    densities per step.
    """

    def log_proposal(x, density, target):
        """(d, K - 1) float, log q(. | x): the other values of each site, by their cyclic shift."""
        space = target.space
        site, shift = (a.reshape(-1) for a in np.indices((space.d, space.K - 1)))
        neighbour = lambda e: target.logdensity(cycled(space, x, e[0], e[1] + 1))
        densities = jax.lax.map(neighbour, (site, shift), batch_size=BATCH)
        exists = shift + 1 <= (space.upper - space.lower)[site]
        return jax.nn.log_softmax(jnp.where(exists, (densities - density) / 2, -jnp.inf))

    def init(x, target):
        x, density = jnp.asarray(x), target.logdensity(x)
        return State(x, density, (), log_proposal(x, density, target))

    def step(key, state, target, params):
        space = target.space
        key_draw, key_accept = jax.random.split(key)
        entry = jax.random.categorical(key_draw, state.carry)
        site, shift = entry // (space.K - 1), entry % (space.K - 1) + 1
        y = cycled(space, state.x, site, shift)
        density = target.logdensity(y)
        proposed = State(y, density, (), log_proposal(y, density, target))
        reverse = site * (space.K - 1) + (jnp.asarray(space.upper - space.lower + 1)[site] - shift) - 1
        ratio = density - state.logdensity + proposed.carry[reverse] - state.carry[entry]
        accept = jnp.exp(jnp.minimum(ratio, 0.0))
        accepted = jax.random.uniform(key_accept) < accept
        return chosen(accepted, proposed, state), Info(accept, accepted, jnp.ones((), int))

    return Kernel(init, step, lambda state, target: init(state.x, target)), {}


# ---------------------------------------------------------------- parts
def simple(step, carry=lambda target: ()):
    """A kernel whose state holds the log density at x and a carry of its own, but no differences."""

    def init(x, target):
        return State(jnp.asarray(x), target.logdensity(x), (), carry(target))

    return Kernel(init, step, lambda state, target: state._replace(logdensity=target.logdensity(state.x)))


def chosen(accepted, proposed, current):
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), proposed, current)


def cycled(space, x, site, shift):
    """x with one site moved cyclically within its support."""
    lower, count = jnp.asarray(space.lower)[site], jnp.asarray(space.upper - space.lower + 1)[site]
    return x.at[site].set((lower + (x[site] - lower + shift) % count).astype(x.dtype))


def shifted(space, x, site, uniform):
    """x with one site at another of its values, uniform."""
    others = jnp.asarray(space.upper - space.lower)[site]
    return cycled(space, x, site, 1 + jnp.floor(uniform * others).astype(int))


class Blocks(NamedTuple):
    """The progress of a pass over the sites: order (d,) int; position () int, number of the next block."""

    order: jax.Array
    position: jax.Array

    @classmethod
    def start(cls, d):
        return cls(jnp.arange(d), jnp.zeros((), int))


def next_block(key, blocks, space, size, scan):
    """(Blocks, sites (size,) int), all of them different and chosen without looking at x."""
    if scan == "random":
        if size != 1:
            raise ValueError("scan='random' draws single sites; use 'shuffled' for blocks.")
        return blocks, jax.random.randint(key, (1,), 0, space.d)
    order = blocks.order
    if scan == "shuffled":
        order = jax.lax.cond(
            blocks.position == 0, lambda o: jax.random.permutation(key, o), lambda o: o, order
        )
    # the last block of a pass is filled up with sites of the first one
    sites = order[(blocks.position * size + jnp.arange(size)) % space.d]
    return Blocks(order, (blocks.position + 1) % (-(-space.d // size))), sites


def corners(space, sites):
    """(K^size, size) int, every joint value of the sites.

    For a site with fewer than K values this includes values above its support; the caller masks them.
    """
    grid = np.indices((space.K,) * sites.shape[0]).reshape(sites.shape[0], -1).T
    return jnp.asarray(space.lower)[sites] + grid


def ball(space, sites, values):
    """(1 + size (K - 1), size) int, the values and those that differ from them at one site.

    The supports of all sites must have the same size.
    """
    n, others = sites.shape[0], space.K - 1
    site, shift = (a.reshape(-1) for a in np.indices((n, others)))
    lower = jnp.asarray(space.lower)[sites]
    moved = jnp.zeros((n * others, n), int).at[np.arange(n * others), site].set(shift + 1)
    return jnp.concatenate([values[None], lower + (values - lower + moved) % space.K])


def resample(key, x, sites, values, target):
    """(x, its log density, sites moved): x[sites] drawn from the target restricted to `values` (n, size)."""
    inside = (values <= jnp.asarray(target.space.upper)[sites]).all(1)
    densities = jax.vmap(lambda v: target.logdensity(x.at[sites].set(v.astype(x.dtype))))(values)
    pick = jax.random.categorical(key, jnp.where(inside, densities, -jnp.inf))
    y = x.at[sites].set(values[pick].astype(x.dtype))
    return y, densities[pick], (y[sites] != x[sites]).sum()
