"""Split and merge: a cluster of a partition becomes two, or two become one (Jain and Neal 2004).

Draws of single sites divide a cluster only through states in which it is divided badly, which are improbable.
This move chooses two sites i and j at random. If both are in one cluster, it is split, else their clusters
are merged. In the split state, i has one label and j the other. The other sites are divided between the two
labels at random, and then by some Gibbs scans that are restricted to these two labels: the launch state. A
last scan from the launch state proposes the split. For a merge the same launch state is made; the probability
of the reverse move is the probability that a last scan leads from the launch state to the two clusters as
they are. So a split is accepted with the probability min(1, p(split) / p(merged) / q), and a merge with
min(1, p(merged) / p(split) q), where q is the probability that i gets its label, times the probability of the
last scan.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.random import choose, uniforms
from pymc_discrete.kernels.sweeps import draw_in_turn
from pymc_discrete.space.space import Variable

# The number of Gibbs scans, restricted to two labels, that divide a cluster before the last scan. Only the
# probability of the last scan enters the acceptance probability.
RESTRICTED_SCANS = 5
# A sweep tries as many splits and merges as take about as long as its draws of single sites, up to this
# number.
MOST_TRIES = 4


def splits_and_merges(target, n: int):
    """A visit that makes all splits and merges of variable n in a sweep."""
    visit, tries = split_or_merge(target, n), number_of_tries(target.space.variables[n])
    if tries == 1:
        return visit
    return lambda key, x, backward: jax.lax.fori_loop(
        0, tries, lambda t, x: visit(jax.random.fold_in(key, t), x, backward), x
    )


def number_of_tries(v: Variable) -> int:
    """How many splits and merges a sweep tries.

    A draw of a single site looks at `drawn_among` other values; a split or merge draws a site of its clusters
    as often as there are scans, looking at one other value.
    """
    return int(np.clip(v.drawn_among // (RESTRICTED_SCANS + 1), 1, MOST_TRIES))


def split_or_merge(target, n: int):
    """A visit that splits a cluster of variable n, a partition, or merges two.

    The move is reversible. Labels without sites may differ, for example where means of clusters are not
    integrated out, so the label of the new cluster is drawn by how well it fits its first site, one of the
    two sites that are chosen at random.
    """
    start, v = target.space.blocks[n]
    labels = np.arange(v.lower.min(), v.upper.max() + 1)

    def visit(key, x, backward):
        key_pair, key_launch, key_scans = jax.random.split(key, 3)
        u = uniforms(key_pair, (4,))
        i, j = two_sites(u[0], u[1], v.size)
        now = x[start : start + v.size]
        split = now[i] == now[j]  # whether a split is proposed
        of_two = (now == now[i]) | (now == now[j])
        own = now[j]  # the label of j, and of the merged cluster
        merged = jax.lax.dynamic_update_slice(x, jnp.where(of_two, own, now), (start,))

        # The label of site i in the split state. If a split is proposed, it is drawn among the labels that no
        # site of the merged state has.
        fit = target.row(n, i, merged, target.carried(merged), labels[None].astype(x.dtype))
        in_use = (labels[:, None] == merged[start : start + v.size]).any(axis=1)
        fit = jnp.where(in_use, -jnp.inf, fit)
        drawn = jnp.minimum(choose(u[2][None], fit)[0], len(labels) - 1)
        other = jnp.where(split, jnp.asarray(labels, x.dtype)[drawn], now[i])
        log_q = jax.nn.log_softmax(fit[0])[other - labels[0]]

        # the state from which the scans start, the same one for a split and for the merge that undoes it
        free = of_two & (np.arange(v.size) != i) & (np.arange(v.size) != j)
        launch = jnp.where(
            free & (uniforms(key_launch, (v.size,)) < 0.5), other, merged[start : start + v.size]
        )
        launch = launch.at[i].set(other)
        (sites,) = jnp.nonzero(free, size=v.size, fill_value=0)
        count = free.sum()
        of_draws = uniforms(key_scans, ((RESTRICTED_SCANS + 1) * v.size,))
        pair = jnp.stack([own, other])[None]

        def draw(t, y, carried):
            """Draw t of the Gibbs scans: one of the two labels for a site.

            Where a merge is proposed, the last scan is made to end in the two clusters as they are.
            """
            site, last = sites[t % count], t >= RESTRICTED_SCANS * count
            d = target.row(n, site, y, carried, pair)[0]
            odds = d[1] - d[0]
            to_other = of_draws[t] < jax.nn.sigmoid(odds)
            to_other = jnp.where(last & ~split, now[site] == other, to_other)
            log_p = jax.nn.log_sigmoid(jnp.where(to_other, odds, -odds))
            return site, jnp.where(to_other, other, own), jnp.where(last, log_p, 0.0)

        y = jax.lax.dynamic_update_slice(x, launch, (start,))
        y, log_scan = draw_in_turn(target, n, (RESTRICTED_SCANS + 1) * count, draw, y)

        proposal, log_q = jnp.where(split, y, merged), log_q + log_scan
        log_ratio = target.centred(x).logdensity(proposal) + jnp.where(split, -log_q, log_q)
        of_sites = proposal[start : start + v.size]
        within = ((of_sites >= v.lower) & (of_sites <= v.upper)).all()
        # Where no label is free, the ratio is nan and nothing is split.
        return jnp.where(within & (jnp.log1p(-u[3]) < log_ratio), proposal, x)

    return visit


def draws_in_turn(v: Variable) -> int:
    """An estimate of how many draws of a site, between two labels, a sweep makes one after another.

    The estimate assumes that half of all sites are in the two clusters.
    """
    return number_of_tries(v) * (RESTRICTED_SCANS + 1) * v.size // 2


def two_sites(u, w, size: int):
    """Two different sites among `size`, each ordered pair equally probable, from two uniform numbers."""
    i = jnp.minimum((u * size).astype(int), size - 1)
    between = jnp.minimum((w * (size - 1)).astype(int), size - 2)
    return i, (i + 1 + between) % size
