"""Tree Gibbs: exact joint draws of the sites of a forest."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from pymc_discrete.kernels.block_gibbs import visits_of
from pymc_discrete.kernels.kernel import Kernel, refuse_constrained
from pymc_discrete.kernels.random import choose, uniforms
from pymc_discrete.kernels.sweeps import sweeping
from pymc_discrete.space.forests import Forest


def tree_gibbs(at_once: Callable[[Any], Any] = lambda density: None) -> tuple[Kernel, dict[str, float]]:
    r"""The tree Gibbs kernel: exact joint draws of sites whose pairwise interactions form a forest.

    Given all other sites, the sites F of a forest have the distribution

    .. math:: p(x_F \mid x_{-F}) \propto \prod_{i \in F} u_i(x_i) \prod_{(i, j) \in F} P_{ij}(x_i, x_j)

    in which the edges that leave the forest are part of the unary terms :math:`u_i`. It is drawn exactly by
    forward filtering and backward sampling: each site is summed out from the leaves to the roots, and then
    drawn given its parent from the roots to the leaves. A chain or a tree is one forest, and its draws are
    independent given the rest of the model. A graph with cycles is covered by several forests, which are
    drawn in turn. The coverings are lists of forests made before the run, and a step chooses one of them at
    random, independently of x. Sites that no table joins to another are drawn as by `block_gibbs`, and a
    step reverses the order of its sweep with probability 1/2, as a step of `block_gibbs` does.

    Parameters
    ----------
    at_once : (density) -> the `Sums` that draw all sites of the density together, in place of forests; None
        where there are none

    Returns
    -------
    kernel : Kernel
    params : {}

    References
    ----------
    Hamze and de Freitas 2004, From fields to trees. Carter and Kohn 1994, On Gibbs sampling for
    state space models.
    """

    def visits(target) -> list:
        sums = at_once(target.density)
        return tree_visits(target) if sums is None else [visit_all(target, sums)]

    return sweeping(visits), {}


def visit_all(target, sums):
    """A visit that draws all sites together, from their joint conditional as `sums` has it."""
    context = target.ready()

    def visit(key, x, backward):
        total, new = sums.total_and_draw(key, context)
        # Given the values of other variables at an impossible start, no state may be possible; then the sites
        # stay as they are.
        return jnp.where(jnp.isfinite(total), new, x).astype(x.dtype)

    return visit


def tree_visits(target) -> list:
    """List of the visits that make up a sweep, each (key, x, backward) -> x."""
    refuse_constrained(target.space)
    joined = np.zeros(target.space.d, bool)
    for forest in target.interactions.forests[0]:
        joined |= forest.sites
    return ([visit_forests(target)] if joined.any() else []) + visits_of(target, joined)


def visit_forests(target):
    """A visit that draws every forest of a covering in turn; the covering is chosen uniformly at random."""
    coverings = target.interactions.forests
    n_forests, stacked = (
        max(map(len, coverings)),
        stack_forests(coverings, target.space.d, len(target.interactions.pairs)),
    )
    # the last table, of zeros, is for the edges that only pad a forest
    joint = jnp.pad(target.joint(), ((0, 1), (0, 0), (0, 0)))
    padded, width = stacked.node == target.space.d, stacked.node.shape[-1]
    straight = bool((padded | (stacked.column == np.arange(width)))[..., :-1, :].all())

    def draw_one(key, x, forest: Forest):
        return draw_forest(uniforms(key, (target.space.d + 1,)), x, forest, target, joint, straight)

    def visit(key, x, backward):
        if len(coverings) == n_forests == 1:
            return draw_one(key, x, jax.tree.map(lambda a: a[0, 0], stacked))
        key_covering, key_draws = jax.random.split(key)
        covering = jax.random.randint(key_covering, (), 0, len(coverings))

        def body(t, x):
            number = jnp.where(backward, n_forests - 1 - t, t)
            forest = jax.tree.map(lambda a: jnp.asarray(a)[covering, number], stacked)
            return draw_one(jax.random.fold_in(key_draws, t), x, forest)

        return jax.lax.fori_loop(0, n_forests, body, x)

    return visit


def stack_forests(coverings: list[list[Forest]], d: int, n_pairs: int) -> Forest:
    """All forests as one `Forest`, whose arrays have two leading axes (coverings, forests).

    A covering is a list of forests that together contain every site that a table joins to another. Smaller
    forests are padded to the shape of the largest, and shorter coverings with forests of no sites.
    """
    all_forests = [forest for covering in coverings for forest in covering]
    n_forests = max(map(len, coverings))
    levels, width = (max(forest.node.shape[axis] for forest in all_forests) for axis in (0, 1))
    roots = max(len(forest.roots) for forest in all_forests)
    # an index that is neither a column of a level nor a root, so that messages sent to it are dropped
    beyond = max(width, roots)
    fill = Forest(False, d, beyond, n_pairs, False, d)
    shapes = Forest((d,), (levels, width), (levels, width), (levels, width), (levels, width), (roots,))

    def table(name: str) -> np.ndarray:
        dtype = getattr(all_forests[0], name).dtype
        out = np.full((len(coverings), n_forests, *getattr(shapes, name)), getattr(fill, name), dtype)
        for c, covering in enumerate(coverings):
            for t, forest in enumerate(covering):
                array = getattr(forest, name)
                if name == "column":
                    array = np.where(forest.node == d, beyond, array)
                # The last level holds the sites just below the roots. A forest with fewer levels is padded in
                # front, at the deepest levels.
                position = (
                    (slice(levels - array.shape[0], None), slice(array.shape[1]))
                    if array.ndim == 2
                    else (slice(len(array)),)
                )
                out[c, t][position] = array
        return out

    return Forest(*map(table, Forest._fields))


def draw_forest(u, x, forest: Forest, target, joint, straight: bool):
    """x with the sites of a forest drawn together, given all other sites.

    Parameters
    ----------
    u : (d + 1,) uniforms, one for each site and one for padding
    x : (d,) int
    joint : (E + 1, K, K) nats, tables of the pairs and one of zeros
    straight : whether every site but a root has at most one child, which is in its parent's column of
        `Forest.node`
    """
    space, K = target.space, joint.shape[1]
    weights = jnp.zeros((space.d + 1, K))
    for n in np.unique(np.searchsorted(space.starts, target.interactions.pairs, side="right") - 1):
        start, v = space.blocks[n]
        unary = jnp.pad(target.unaries(n, x, forest.sites), ((0, 0), (0, K - v.K)), constant_values=-jnp.inf)
        unary = jnp.where(forest.sites[start : start + v.size, None], unary, 0.0)
        weights = jax.lax.dynamic_update_slice(weights, unary, (start, 0))
    tables = joint[forest.edge]
    # for the W sites of each of L levels, (L, W, K values of the site, K values of its parent)
    tables = jnp.where(forest.flipped[..., None, None], jnp.swapaxes(tables, -1, -2), tables)
    index = filter_and_sample(u, jnp.append(x - space.lower, 0), forest, straight, weights, tables)
    return jnp.where(forest.sites, space.lower + index[:-1], x).astype(x.dtype)


def filter_and_sample(u, index, forest: Forest, straight: bool, weights, tables):
    """(d + 1,) int, index of each site's value in its support, after the sites of the forest were drawn.

    All messages are logarithms, because a probability that underflows to 0 may still be needed: closer to the
    root, a forbidden transition may exclude all other values.

    Parameters
    ----------
    u : (d + 1,) uniforms, one for each site and one for padding
    index : (d + 1,) int, index of each site's current value in its support
    straight : whether every site but a root has at most one child, which is in its parent's column of
        `Forest.node`
    weights : (d + 1, K) nats, unary terms
    tables : (L, W, K, K) nats, pairwise terms of the W sites of each of L levels with their parents
    """
    K, unary, column = weights.shape[1], weights[forest.node], forest.column
    no_messages, to_roots = (jnp.zeros((n, K)) for n in (unary.shape[1], len(forest.roots)))

    def received(messages, into, column):
        """What each parent receives: `into` (..., K), plus the sum of its children's `messages` (W, K)."""
        return into.at[column].add(messages, mode="drop") if len(column) else into

    def sent(total, table):
        """(W, K) nats, the message of each site of a level to its parent: the site summed out."""
        return logsumexp(total[:, :, None] + table, axis=1)

    def up(messages, level):
        unary, table, column = level
        total = unary + messages
        messages = sent(total, table)
        return messages if straight else received(messages, no_messages, column), total

    def drawn(sites, total):
        k = choose(u[sites], total)
        return jnp.where(k < K, k, index[sites])

    def down(parents, level):
        sites, column, table, total = level
        parents = parents if straight else parents.at[column].get(mode="clip")
        k = drawn(sites, total + given_parents(table, parents))
        return k, k

    def given_parents(table, parents):
        return jnp.take_along_axis(table, parents[:, None, None], axis=2)[:, :, 0]

    # The last level, of the children of roots, is treated apart: its `column` holds indices of roots, and not
    # columns of another level.
    if len(unary):
        messages, totals = jax.lax.scan(up, no_messages, (unary[:-1], tables[:-1], column[:-1]))
        total = unary[-1] + messages
        to_roots = received(sent(total, tables[-1]), to_roots, column[-1])
    k = drawn(forest.roots, weights[forest.roots] + to_roots)
    new = index.at[forest.roots].set(k)
    if len(unary):
        k = drawn(forest.node[-1], total + given_parents(tables[-1], k.at[column[-1]].get(mode="clip")))
        _, ks = jax.lax.scan(down, k, (forest.node[:-1], column[:-1], tables[:-1], totals), reverse=True)
        new = new.at[forest.node].set(jnp.concatenate([ks, k[None]]))
    return new
