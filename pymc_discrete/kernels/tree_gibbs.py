"""Tree Gibbs: exact joint draws of the sites of a forest."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from pymc_discrete.kernels.block_gibbs import visits_of
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.random import choose, uniforms
from pymc_discrete.kernels.sweeps import sweeping
from pymc_discrete.targets.forests import Forest


def tree_gibbs() -> tuple[Kernel, dict[str, float]]:
    r"""The tree Gibbs kernel: sites that are joined in pairs are drawn together, as many as have no cycle
    among them.

    Given all others, the sites F of a forest have the distribution

    .. math:: p(x_F \mid x_{-F}) \propto \prod_{i \in F} u_i(x_i) \prod_{(i, j) \in F} P_{ij}(x_i, x_j)

    in which the edges that leave the forest are part of the unary terms :math:`u_i`. It is drawn exactly:
    from the leaves to the roots each site is summed out, and from the roots to the leaves each is drawn given
    the one it hangs from (forward filtering, backward sampling). A chain or a tree is one forest, and its
    draws are independent given the rest. Elsewhere forests that cover all sites are taken in turn, from lists
    made before the run, of which one is chosen by a coin that does not look at x. Sites that no table joins
    to another are drawn as by `block_gibbs`. A step reverses its order by a fair coin, as there.

    Returns
    -------
    kernel : Kernel
    params : {}

    References
    ----------
    Hamze and de Freitas 2004, From fields to trees. Carter and Kohn 1994, On Gibbs sampling for
    state space models.
    """

    return sweeping(tree_visits), {}


def tree_visits(target) -> list:
    """The visits that make a sweep: (key, x, backward) -> x after them."""
    joined = np.zeros(target.space.d, bool)
    for forest in target.forests[0]:
        joined |= forest.sites
    return ([visit_forests(target)] if joined.any() else []) + visits_of(target, joined)


def visit_forests(target):
    """Draw every forest of a covering in turn; of several coverings, one by a coin."""
    coverings = target.forests
    many, stacked = max(map(len, coverings)), stacked_up(coverings, target.space.d, len(target.pairs))
    joint = jnp.pad(target.joint(), ((0, 1), (0, 0), (0, 0)))
    padded, width = stacked.node == target.space.d, stacked.node.shape[-1]
    straight = bool((padded | (stacked.column == np.arange(width)))[..., :-1, :].all())

    def one(key, x, forest: Forest):
        return draw_forest(uniforms(key, (target.space.d + 1,)), x, forest, target, joint, straight)

    def visit(key, x, backward):
        if len(coverings) == many == 1:
            return one(key, x, jax.tree.map(lambda a: a[0, 0], stacked))
        key_which, key_draws = jax.random.split(key)
        which = jax.random.randint(key_which, (), 0, len(coverings))

        def body(t, x):
            forest = jax.tree.map(
                lambda a: jnp.asarray(a)[which, jnp.where(backward, many - 1 - t, t)], stacked
            )
            return one(jax.random.fold_in(key_draws, t), x, forest)

        return jax.lax.fori_loop(0, many, body, x)

    return visit


def stacked_up(coverings: list[list[Forest]], d: int, n_pairs: int) -> Forest:
    """All forests in one, arrays (variants, forests, ...), padded; what is no forest holds no site."""
    every = [f for cover in coverings for f in cover]
    many = max(map(len, coverings))
    levels, width = (max(f.node.shape[axis] for f in every) for axis in (0, 1))
    roots = max(len(f.roots) for f in every)
    beyond = max(width, roots)  # no column of a level, and no root
    fill = Forest(False, d, beyond, n_pairs, False, d)
    shapes = Forest((d,), (levels, width), (levels, width), (levels, width), (levels, width), (roots,))

    def table(name: str) -> np.ndarray:
        first = getattr(every[0], name)
        out = np.full((len(coverings), many, *getattr(shapes, name)), getattr(fill, name), first.dtype)
        for v, cover in enumerate(coverings):
            for t, forest in enumerate(cover):
                own = getattr(forest, name)
                if name == "column":
                    own = np.where(forest.node == d, beyond, own)
                # levels are counted from the roots, so what is missing is missing at the deep end
                place = (
                    (slice(levels - own.shape[0], None), slice(own.shape[1]))
                    if own.ndim == 2
                    else (slice(len(own)),)
                )
                out[v, t][place] = own
        return out

    return Forest(*map(table, Forest._fields))


def draw_forest(u, x, forest: Forest, target, joint, straight: bool):
    """x with the sites of a forest drawn given all others.

    Parameters
    ----------
    u : (d + 1,) uniforms
    joint : (E + 1, K, K) nats, tables of the pairs and one of zeros
    straight : whether every site but a root has at most one child, which is in its own column
    """
    space, K = target.space, joint.shape[1]
    weights = jnp.zeros((space.d + 1, K))
    for n in np.unique(np.searchsorted(space.starts, target.pairs, side="right") - 1):
        start, v = space.blocks[n]
        part = jnp.pad(target.unaries(n, x, forest.sites), ((0, 0), (0, K - v.K)), constant_values=-jnp.inf)
        part = jnp.where(forest.sites[start : start + v.size, None], part, 0.0)
        weights = jax.lax.dynamic_update_slice(weights, part, (start, 0))
    tables = joint[forest.edge]
    tables = jnp.where(
        forest.flipped[..., None, None], jnp.swapaxes(tables, -1, -2), tables
    )  # (L, W, K of the site, K of what is above)
    place = filter_and_sample(u, jnp.append(x - space.lower, 0), forest, straight, weights, tables)
    return jnp.where(forest.sites, space.lower + place[:-1], x).astype(x.dtype)


def filter_and_sample(u, place, forest: Forest, straight: bool, weights, tables):
    """(d + 1,) int, places of the sites once those of the forest are drawn.

    In logarithms throughout: a probability lost to 0 on the way up may be all that is left further on, where
    a forbidden transition keeps it from being made up for.

    Parameters
    ----------
    u, place : (d + 1,) uniforms, and the places that the sites have
    weights, tables : (d + 1, K), (L, W, K, K) nats
    """
    K, own, column = weights.shape[1], weights[forest.node], forest.column
    wide, roots = (jnp.zeros((n, K)) for n in (own.shape[1], len(forest.roots)))

    def received(messages, into, column):
        return into.at[column].add(messages, mode="drop") if len(column) else into

    def sent(total, table):
        return logsumexp(total[:, :, None] + table, axis=1)

    def up(messages, level):
        own, table, column = level
        total = own + messages
        messages = sent(total, table)
        return messages if straight else received(messages, wide, column), total

    def drawn(sites, total):
        k = choose(u[sites], total)
        return jnp.where(k < K, k, place[sites])

    def down(above, level):
        sites, column, table, total = level
        above = above if straight else above.at[column].get(mode="clip")
        k = drawn(sites, total + across(table, above))
        return k, k

    def across(table, above):
        return jnp.take_along_axis(table, above[:, None, None], axis=2)[:, :, 0]

    if len(own):  # the last level hangs from the roots
        messages, totals = jax.lax.scan(up, wide, (own[:-1], tables[:-1], column[:-1]))
        total = own[-1] + messages
        roots = received(sent(total, tables[-1]), roots, column[-1])
    k = drawn(forest.roots, weights[forest.roots] + roots)
    new = place.at[forest.roots].set(k)
    if len(own):
        k = drawn(forest.node[-1], total + across(tables[-1], k.at[column[-1]].get(mode="clip")))
        _, ks = jax.lax.scan(down, k, (forest.node[:-1], column[:-1], tables[:-1], totals), reverse=True)
        new = new.at[forest.node].set(jnp.concatenate([ks, k[None]]))
    return new
