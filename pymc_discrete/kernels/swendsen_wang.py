"""Swendsen-Wang: clusters of sites that have the values their pairs prefer move together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.block_gibbs import BlockGibbs, visits_of
from pymc_discrete.kernels.components import component_finder
from pymc_discrete.kernels.kernel import Kernel, refuse_constrained
from pymc_discrete.kernels.method import kernel_function
from pymc_discrete.kernels.random import choose, uniforms
from pymc_discrete.kernels.scatter import added_at
from pymc_discrete.kernels.sweeps import always_accepted, refuse_gradients, sweep_kernel
from pymc_discrete.runtime.checks import is_number, is_word
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.density import difference_from

# The cost of a cluster sweep in additions, as `Method.operations` estimates it. WAITING is the cost of each
# computation that waits for the one before it. OF_ROUND is the cost of a round of the search for clusters,
# for each site and each pair. In addition, each pair costs OF_PAIR, and each value of a site OF_VALUE.
WAITING, OF_ROUND, OF_PAIR, OF_VALUE = 5000.0, 3.2, 20.0, 13.0
# the number of computations of a cluster sweep that run one after another, besides the rounds of the search
# for clusters
IN_TURN = 7
# tables of pairs with at most this many elements in all are prepared once, and not in each draw
FEW_ENTRIES = 2**16
# Cluster sweeps may take this many times as long as their counted cost predicts, relative to Gibbs sweeps.
# Measured were 0.6 times as long on 400 sites, and 1.6 times on 100,000 sites.
MISCOUNTED = 1.6
FEW_ROUNDS = 6  # the number of rounds of the search for clusters that is assumed before the first sweep
# This value of the parameter "clusters", the share of transitions with a cluster sweep, stands for the share
# that `share_of_tuning` returns.
OF_TUNING = 2.0
# below this mean size of a site's cluster, the log says that clusters are hardly more than single sites
SINGLE = 2.0
# What remains of a table after its bond and its unary terms are subtracted counts as 0 if it is at most this
# many machine epsilons of the largest element of the table, times its number of values.
ROUNDING_OF_TABLES = 64


@dataclass(frozen=True)
class SwendsenWang(BlockGibbs):
    r"""Swendsen-Wang for discrete variables: clusters of sites that agree move together.

    Where pairs of sites prefer equal values, or, of two values, prefer equal or different ones, every change
    of single sites is slow near a phase transition, and a cold lattice does not turn over at all. A cluster
    sweep puts a bond on a pair that has what it prefers, with probability :math:`1 - e^{-J}` for a preference
    of J nats. Sites that bonds connect form a cluster, and each cluster draws a common move from its exact
    conditional: a new value, or, of two values, whether all of its sites take the other one. The conditional
    contains the sum of what the sites of the cluster prefer alone, and the pairs that prefer something other
    than equal values; clusters joined by such pairs are drawn in turn. A transition is a sweep of
    `BlockGibbs`, for all sites, and a cluster sweep.

    Parameters
    ----------
    clusters : "auto" or float
        The share of transitions that make a cluster sweep. With "auto" cluster sweeps have as many counted
        operations as Gibbs sweeps while tuning; then the share is fixed by how much the sweeps have changed
        for their counted cost. The share is 0 where cluster sweeps do not change clearly more than Gibbs
        sweeps, and the log says so.
    differences : {"auto", "exact"}
        Where the conditionals come from, as for `BlockGibbs`.

    Raises
    ------
    ValueError
        Where a conditional is not exact, and where no pair of sites may have a bond.

    Notes
    -----
    How much a sweep changes is measured by the sum, over the clusters that move, of the squared number of
    sites. This is the mean squared change of a sum over all sites, the quantity that changes slowest where
    pairs prefer equal values. A site that moves alone counts 1.

    References
    ----------
    Swendsen and Wang 1987, Nonuniversal critical dynamics in Monte Carlo simulations. Edwards and Sokal 1988,
    Generalization of the Fortuin-Kasteleyn-Swendsen-Wang representation and Monte Carlo algorithm. Higdon
    1998, Auxiliary variable methods for Markov chain Monte Carlo with applications.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.5, shape=(8, 8))
    ...     equal = pt.eq(z[1:], z[:-1]).sum() + pt.eq(z[:, 1:], z[:, :-1]).sum()
    ...     pm.Potential("pairs", 0.9 * equal)
    ...     idata = pm.sample(step=pmd.SwendsenWang())  # doctest: +SKIP
    """

    clusters: str | float = "auto"

    def __post_init__(self) -> None:
        if not is_word(self.clusters, "auto") and not (is_number(self.clusters) and 0 < self.clusters <= 1):
            raise ValueError(
                "clusters must be 'auto' or a number above 0 and up to 1, the share of transitions that make "
                f"a cluster sweep, got {self.clusters!r}."
            )

    constrained: ClassVar[bool] = False
    equations: ClassVar[bool] = False

    def check(self, target: Any) -> None:
        super().check(target)
        refuse_no_bonds(target)

    def operations(self, target: Any) -> float:
        return super().operations(target) + operations_of_clusters(target, FEW_ROUNDS)

    def chosen(self, target: Any) -> Callable[[Any, Any], dict[str, Any]] | None:
        return (lambda measured, xp: {"clusters": self._share(target, measured, xp)}) if self._tunes else None

    def remark(self, target: Any, measured: Any, variables: str) -> str | None:
        share = float(self._share(target, measured, np)) if self._tunes else 1.0
        if share >= 1:
            return None
        size, n = measured.size / measured.swept, int(target.interactions.in_pairs.sum())
        if share > 0:
            return (
                f"SwendsenWang: {variables}: from now on a cluster sweep in {share:.0%} of the transitions."
            )
        why = "for its counted cost a cluster sweep changes hardly more than a Gibbs sweep, or less"
        if size < SINGLE:
            why += ", since clusters are hardly more than single sites"
        elif size > n / 2:
            why += ", since a cluster holds most of the sites and hardly moves"
        mean = f"a site's cluster has {size:.3g} of {n} sites on average"
        return f"SwendsenWang: {variables}: no more cluster sweeps, {why} ({mean})."

    @property
    def _tunes(self) -> bool:
        return is_word(self.clusters, "auto")

    def _share(self, target: Any, measured: "ChangeBySweeps", xp: Any) -> Any:
        """The share of transitions that make a cluster sweep, fixed at the end of tuning.

        Let g be the change by a Gibbs sweep for each counted operation, and c the change by a cluster sweep.
        The share is 0 where c is not above g by the factor `MISCOUNTED`, by which counted costs may be
        wrong. Else all cluster sweeps take c / g times the time of all Gibbs sweeps, with at most one in each
        transition. If tuning was so short that it made no cluster sweep, the share stays as it was while
        tuning.
        """
        tiny = np.finfo(np.float32).tiny
        rounds = measured.rounds / xp.maximum(measured.swept, tiny)
        cost = operations_of_gibbs(target) / operations_of_clusters(target, rounds)
        # If single sites change nothing, the ratio is huge, so that cluster sweeps are chosen if they change
        # anything.
        ahead = cost * measured.clusters / xp.maximum(measured.gibbs, tiny)
        share = xp.where(ahead < MISCOUNTED, 0.0, xp.minimum(ahead * cost, 1.0))
        return xp.where(measured.swept > 0, share, OF_TUNING)

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        share = OF_TUNING if self._tunes else float(self.clusters)
        return sweep_kernel(alternating)._replace(measured=NOTHING), {"clusters": share}


swendsen_wang = kernel_function(SwendsenWang)


class ChangeBySweeps(NamedTuple):
    """What a transition with a cluster sweep changed and cost; all are zeros for a transition without one.

    Attributes
    ----------
    swept : 1, whether there was a cluster sweep
    gibbs : number of sites in pairs that the Gibbs sweep changed
    clusters : sum of the squared sizes of the clusters that the cluster sweep moved
    size : the mean size of the cluster of a site
    rounds : number of rounds in which clusters were found
    """

    swept: Any
    gibbs: Any
    clusters: Any
    size: Any
    rounds: Any


NOTHING = ChangeBySweeps(0.0, 0.0, 0.0, 0.0, 0.0)


class PairsWithTables(NamedTuple):
    """The pairs of sites that interact through tables only.

    Attributes
    ----------
    sites : (d,) bool, the sites of the pairs
    ends : (E, 2) int, the sites of each pair
    number : (E,) int, the index of the table of each pair in `Target.joint`
    alike : (E,) bool, whether both sites have the same values, or two values each
    """

    sites: np.ndarray
    ends: np.ndarray
    number: np.ndarray
    alike: np.ndarray


class Decomposed(NamedTuple):
    """Tables f(a, b) of pairs, written as J [b = g(a)] + u(a) + v(b) + r(a, b) for indices a and b of values.

    Attributes
    ----------
    strength : (E,) nats, J >= 0
    flip : (E,) bool, whether g exchanges the two values, else it is the identity
    first, second : (E, K) nats, u and v
    rest : (E, K, K) nats, r
    joined : (E,) bool, whether r is not 0
    """

    strength: Any
    flip: Any
    first: Any
    second: Any
    rest: Any
    joined: Any


def operations_of_gibbs(target):
    """Counted operations of a Gibbs sweep, with the cost of computations that wait for one another."""
    return BlockGibbs().operations(target) + WAITING * BlockGibbs().computations(target)


def share_of_tuning(target) -> float:
    """The share of transitions with a cluster sweep at which all cluster sweeps cost as much as all Gibbs
    sweeps, at most 1.
    """
    return min(1.0, operations_of_gibbs(target) / operations_of_clusters(target, FEW_ROUNDS))


def operations_of_clusters(target, rounds):
    """Counted operations of a cluster sweep, given the number of `rounds` in which clusters are found."""
    space, pairs = target.space, pairs_with_tables(target)
    values = (space.upper - space.lower + 1)[pairs.sites].sum()
    of_round = WAITING + OF_ROUND * (space.d + len(pairs.ends))
    return IN_TURN * WAITING + rounds * of_round + OF_PAIR * len(pairs.ends) + OF_VALUE * values


def refuse_no_bonds(target) -> None:
    """Refuse a target in which no pair may have a bond.

    Raises
    ------
    ValueError
    """
    if not pairs_with_tables(target).alike.any():
        names = shown([m.name for m in target.space.members])
        raise ValueError(
            "SwendsenWang needs pairs of sites that interact through tables of the two alone and have the "
            f"same values, and there are none in {names}. Use pmd.BlockGibbs."
        )


def pairs_with_tables(target) -> PairsWithTables:
    """The pairs of the sites of a target, or of a density, that interact through tables only."""
    space, sites = target.space, target.interactions.in_pairs
    number = np.flatnonzero(sites[target.interactions.pairs].all(axis=1))
    ends = target.interactions.pairs[number]
    counts, lower = (space.upper - space.lower + 1)[ends], space.lower[ends]
    alike = (counts[:, 0] == counts[:, 1]) & ((counts[:, 0] == 2) | (lower[:, 0] == lower[:, 1]))
    return PairsWithTables(sites, ends, number, alike)


def decomposed(tables, counts: np.ndarray, alike: np.ndarray) -> Decomposed:
    """Each table of pairs split into a bond, unary terms and a rest, with as much as possible in the first
    two.

    Let n be the number of values of the sites, and let the two-way interaction of a table be what remains of
    it without its main effects. There are three kinds of tables.

    - The interaction is J (1[a = b] - 1 / n), with J >= 0 or n = 2. The table is then the sum of J 1[a = b]
      and unary terms. If J < 0, which needs n = 2, the bond has the strength -J and joins different values.
    - Only equal values are possible, or, with n = 2, only different values. The bond has the strength inf.
    - In all other tables J is the smallest element at equal values less the largest one at different values,
      or 0 if this is negative or not finite. What is left of the table is its rest.

    Pairs that may have no bond are of the third kind, with J = 0.

    Parameters
    ----------
    tables : (E, K, K) nats
    counts : (E, 2) int, the numbers of values of the two sites
    alike : (E,) bool, which pairs may have a bond
    """
    K = tables.shape[1]
    exists = np.arange(K) < counts[:, :, None]
    within, equal = exists[:, 0, :, None] & exists[:, 1, None, :], np.eye(K, dtype=bool)
    n, two = counts[:, 0], counts[:, 0] == 2
    possible = jnp.isfinite(tables) & within
    f = jnp.where(possible, tables, 0.0)
    u, v = f.sum(axis=2) / counts[:, 1, None], f.sum(axis=1) / counts[:, 0, None]
    interaction = f - u[:, :, None] - v[:, None, :] + (u.sum(axis=1) / n)[:, None, None]
    strength = jnp.where(within & equal, interaction, 0.0).sum(axis=(1, 2)) / (n - 1)
    left = jnp.where(within, interaction - strength[:, None, None] * (equal - 1 / n[:, None, None]), 0.0)
    epsilon = ROUNDING_OF_TABLES * K * jnp.finfo(f.dtype).eps
    simple = jnp.abs(left).max(axis=(1, 2)) <= epsilon * jnp.abs(f).max(axis=(1, 2))
    simple &= (possible == within).all(axis=(1, 2)) & (two | (strength >= 0)) & alike
    # Sites that must be equal, or that have two values and must be different, always have a bond.
    always_equal = (possible == (within & equal)).all(axis=(1, 2)) & alike
    always_different = (possible == (within & ~equal)).all(axis=(1, 2)) & alike & two
    always = always_equal | always_different
    # Other pairs have bonds if all elements of their table at equal values are larger than all elements at
    # different values.
    least = jnp.where(within & equal, tables, jnp.inf).min(axis=(1, 2))
    least -= jnp.where(within & ~equal, tables, -jnp.inf).max(axis=(1, 2))
    partial = jnp.where(jnp.isfinite(least) & alike, jnp.maximum(least, 0.0), 0.0)
    joined = ~(simple | always)
    rest = tables - jnp.where(equal, partial[:, None, None], 0.0)
    return Decomposed(
        jnp.where(always, jnp.inf, jnp.where(simple, jnp.abs(strength), partial)),
        always_different | (simple & (strength < 0)),
        # Where there is always a bond, each value of the first site leaves one possible value to the second
        # site, so that the table is a unary term of the first site.
        jnp.where(simple[:, None], u, jnp.where(always[:, None], f.sum(axis=2), 0.0)),
        jnp.where(simple[:, None], v, 0.0),
        jnp.where(joined[:, None, None], jnp.where(jnp.isnan(rest), -jnp.inf, rest), 0.0),
        joined,
    )


# ---------------------------------------------------------------- the sweeps
def alternating(target) -> Callable:
    """(key, x, params) -> (x, Info): a Gibbs sweep and, in a share of the transitions, a cluster sweep."""
    refuse_constrained(target.space)
    refuse_gradients(target)
    refuse_no_bonds(target)
    visits, of_tuning = visits_of(target), share_of_tuning(target)
    # Sums of small tables are computed once, outside of the loop over draws. With large tables, they are left
    # to the cluster sweep that needs them.
    few = len(target.interactions.pairs) * target.space.K**2 <= FEW_ENTRIES
    prepared = cluster_sweep(target) if few else None
    nothing = jax.tree.map(jnp.asarray, NOTHING)

    def clusters(key, before, x):
        changed = ((x != before) & target.interactions.in_pairs).sum().astype(float)
        x, of_clusters = (prepared or cluster_sweep(target))(key, x)
        return x, ChangeBySweeps(jnp.ones(()), changed, *of_clusters)

    def at_times(key, share, before, x):
        key_share, key_clusters = jax.random.split(jax.random.fold_in(key, len(visits)))
        now = uniforms(key_share, ()) < share
        return jax.lax.cond(now, clusters, lambda key, before, x: (x, nothing), key_clusters, before, x)

    def sweep(key, x, params):
        y, share = x, jnp.where(params["clusters"] > 1, of_tuning, params["clusters"])
        for t, visit in enumerate(visits):
            y = visit(jax.random.fold_in(key, t), y, False)
        y, measured = jax.lax.cond(
            share > 0, at_times, lambda key, share, before, x: (x, nothing), key, share, x, y
        )
        return y, always_accepted(target.space)._replace(measured=measured)

    return sweep


def cluster_sweep(target) -> Callable:
    """The cluster sweep, a function (key, x) -> (x, (changed, size, rounds)).

    `changed` is the sum of the squared sizes of the clusters that moved, `size` the mean size of the cluster
    of a site, and `rounds` the number of rounds in which clusters were found.
    """
    space, pairs = target.space, pairs_with_tables(target)
    counts = np.where(pairs.sites, space.upper - space.lower + 1, 1)
    lower = np.where(pairs.sites, space.lower, 0)
    tables = target.joint()[pairs.number]
    parts = decomposed(tables, counts[pairs.ends], pairs.alike)
    components, share = component_finder(pairs.ends, space.d), -jnp.expm1(-parts.strength)
    a, b = pairs.ends.T

    def sweep(key, x):
        key_bonds, key_moves, key_order = jax.random.split(key, 3)
        index = jnp.where(pairs.sites, x - lower, 0)
        # Edwards and Sokal 1988: given x, a bond where the pair has what it prefers
        preferred = (index[a] == index[b]) != parts.flip
        labels, rounds = components(preferred & (uniforms(key_bonds, (len(a),)) < share))
        # The unary terms are summed inside of the sweep and not before it, so that transitions without a
        # cluster sweep need not wait for the sums.
        own = added_at(a, parts.first, space.d) + added_at(b, parts.second, space.d)
        unaries = own + unaries_of(target, x, pairs.sites, tables.shape[1])
        weights = weights_of_moves(index, unaries, counts)
        weights = jnp.append(weights, jnp.asarray(pairs.sites, weights.dtype)[:, None], axis=1)
        sums = added_at(labels, weights, space.d)
        sums, squared = sums[:, :-1], jnp.square(sums[:, -1])
        u = uniforms(key_moves, (space.d,))
        new, move = jax.lax.cond(
            parts.joined.any(),
            lambda: moved_in_turn(
                u, uniforms(key_order, (space.d,)), index, labels, sums, counts, pairs, parts
            ),
            lambda: moved(drawn_moves(u, sums), index, labels, counts),
        )
        changed, size = jnp.where(move > 0, squared, 0.0).sum(), squared.sum() / pairs.sites.sum()
        return jnp.where(pairs.sites, lower + new, x).astype(x.dtype), (changed, size, rounds.astype(float))

    return sweep


def unaries_of(target, x, sites: np.ndarray, K: int):
    """(d, K) nats, log conditional probabilities of the values of `sites` (d,) bool, up to a constant per
    site.

    The tables of pairs of which both sites are among `sites` are left out.
    """
    space, blocks = target.space, []
    for n, (start, v) in enumerate(space.blocks):
        inside = sites[start : start + v.size, None]
        if inside.any():
            unary = jnp.where(inside, target.unaries(n, x, sites), 0.0)
            blocks.append(jnp.pad(unary, ((0, 0), (0, K - v.K)), constant_values=-jnp.inf))
        else:
            blocks.append(jnp.zeros((v.size, K)))
    return jnp.concatenate(blocks)


def weights_of_moves(index, unaries, counts: np.ndarray):
    """(d, K - 1) nats: the term that each site adds to the log weights of the moves of its cluster.

    Move m shifts every site of a cluster cyclically by m places in its support. Sites of a cluster have equal
    values, so that the move gives them a new common value; if they have two values, it exchanges the two.

    Parameters
    ----------
    index : (d,) int, the places of the current values
    unaries : (d, K) nats, log conditional probabilities of the values of each site
    counts : (d,) int, the number of values of each site
    """
    moves = np.arange(unaries.shape[1])
    at = places_after(index, moves, counts)
    at = jnp.take_along_axis(unaries, at, axis=1, mode="promise_in_bounds")
    return jnp.where(moves[1:] < counts[:, None], difference_from(at[:, 1:], at[:, :1]), -jnp.inf)


def places_after(index, moves: np.ndarray, counts: np.ndarray):
    """(r, K) int, the places after each move of sites at the places `index` (r,)."""
    return (index[:, None] + moves) % counts[:, None]


def drawn_moves(u, sums):
    """(d,) int, the move of each cluster, drawn by uniforms u (d,) from the sums (d, K - 1) nats over its
    sites.
    """
    # A site at an impossible value and a site with no other possible value give inf - inf: their cluster
    # stays.
    sums = jnp.where(jnp.isnan(sums), -jnp.inf, sums)
    return choose(u, jnp.pad(sums, ((0, 0), (1, 0))))


def moved(move, index, labels, counts: np.ndarray):
    """The places (d,) of the values of all sites after clusters have made their moves (d,), and the moves."""
    return (index + move[labels]) % counts, move


def moved_in_turn(
    u, order, index, labels, sums, counts: np.ndarray, pairs: PairsWithTables, parts: Decomposed
):
    """As `moved`, where r, the rest of a table, depends on the moves of two clusters.

    In each round a cluster moves if its number in `order` is lower than the numbers of all clusters that have
    not moved yet and that a table joins to it. So no two clusters that move in a round are joined (Luby
    1986). The order does not depend on x.

    Parameters
    ----------
    u : (d,) uniforms, by which the moves of the clusters are drawn
    order : (d,) uniforms, the numbers of the clusters, by which they move in turn
    index : (d,) int, the places of the current values
    labels : (d,) int, the cluster of each site, by the lowest site in it
    sums : (d, K - 1) nats, the sums of the unary weights of the moves of each cluster
    """
    d, K = len(index), parts.rest.shape[1]
    (a, b), moves = pairs.ends.T, np.arange(K)
    rest = parts.rest.reshape(len(a), K * K)
    root_a, root_b = labels[a], labels[b]
    beside = parts.joined & (root_a != root_b)
    first = (order[root_a] < order[root_b]) | ((order[root_a] == order[root_b]) & (root_a < root_b))
    later = jnp.where(first, root_b, root_a)

    def changes(index, a_moves: bool, b_moves: bool):
        """(E, K - 1) nats, the change of r, the rest of a table, by each move of one or both sites."""
        at_a = places_after(index[a], moves * a_moves, counts[a])
        at_b = places_after(index[b], moves * b_moves, counts[b])
        at = jnp.take_along_axis(rest, at_a * K + at_b, axis=1, mode="promise_in_bounds")
        return difference_from(at[:, 1:], at[:, :1])

    inside = jnp.where(parts.joined & (root_a == root_b), root_a, d)
    sums += added_at(inside, changes(index, True, True), d)

    def in_round(carried):
        index, move, left = carried
        waits = jnp.where(beside & left[root_a] & left[root_b], later, d)
        goes = left & (added_at(waits, jnp.ones_like(waits), d) == 0)
        total = sums + added_at(jnp.where(beside, root_a, d), changes(index, True, False), d)
        total += added_at(jnp.where(beside, root_b, d), changes(index, False, True), d)
        now = jnp.where(goes, drawn_moves(u, total), 0)
        return (index + now[labels]) % counts, move + now, left & ~goes

    start = index, jnp.zeros(d, int), labels == np.arange(d)
    index, move, _ = jax.lax.while_loop(lambda carried: carried[2].any(), in_round, start)
    return index, move
