"""Cavities: for each table of a product, what all other tables of the product say about the table's sites.

The cavity of a table is the product of all other tables, summed over all sites that the table does not join:
the cavity distribution of belief propagation. The cavities of all tables are found at once, by going back
through the stages of a variable elimination. There is no division by a table, so that a cavity is exact also
where its table is 0.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.collapse.elimination import (
    EliminatedSites,
    Elimination,
    Paths,
    aligned,
    at_ends,
    is_root,
    logsumexp,
    rows_first,
    sites_summed_out,
    sums_by,
    tables_along,
)
from pymc_discrete.collapse.paths import messages


def cavities(elimination: Elimination, tables: Sequence[Any]) -> list[Any]:
    """The cavity of each table: the product of the other tables of its component of connected sites, in
    logarithms, summed over all sites that the table does not join.

    Parameters
    ----------
    tables : [(E, K1, ..., KJ) nats], the arrays of tables of which the elimination sums the product

    Returns
    -------
    [(E, K1, ..., KJ) nats]; -inf for values that a site does not have
    """
    arrays, groups = list(tables), [group for stage in elimination.stages() for group in stage]
    # {index of the array with the tables that remain after a group of paths is summed out: the messages along
    # the paths of this group}
    arriving: dict[int, Any] = {}
    for group in groups:
        if isinstance(group, Paths):
            arriving[len(arrays)], last = messages(*tables_along(group, arrays))
            left = at_ends(group, last)
        else:
            left, _ = sites_summed_out(group, arrays)
        arrays.append(left)
    found = [jnp.full(jnp.shape(a), -jnp.inf) for a in arrays]
    for number, group in reversed([*enumerate(groups, len(tables))]):
        # The sums over the sites of a group leave tables of other sites. The cavities of the tables that are
        # left say what all tables outside of the group say of these other sites.
        outer = found[number]
        if isinstance(group, Paths):
            cavities_of_steps = of_paths(group, arrays, arriving[number], outer)
            for unary, pairs, of_sites, of_pairs in zip(
                group.unary, group.pairs, *cavities_of_steps, strict=True
            ):
                to_sources(unary, of_sites, arrays, found)
                to_sources(pairs, of_pairs, arrays, found)
        else:
            to_sources(group, jnp.zeros(()) if is_root(group) else outer[:, None], arrays, found)
    return found[: len(tables)]


def of_paths(paths: Paths, arrays: list[Any], arriving: list[Any], end: Any) -> tuple[list[Any], list[Any]]:
    """The cavities [(G, K)] of the tables of single sites along paths, and [(G, K, K1, ..., Kw)] of the
    tables of a site and the next w sites.

    The numbers of values of the sites of a path repeat after e sites. Each of the two lists has e arrays: the
    first is of the first of every e sites, the second of the second, and so on. An array has G sites of all
    paths.

    Parameters
    ----------
    arriving : e [(L, B, K, M) nats], for L e sites of each of B paths the message from the sites before it, a
        table of the site's K values and of the M combinations of values of the next w - 1 sites
    end : (B, K1, ..., Kw) nats, the message from the sites beyond the end of each path
    """

    def round_of(after, given):
        of_sites, of_pairs = [], []
        for own, pair, before in [*zip(*given, strict=True)][::-1]:
            after = after.reshape(pair[:, 0].shape)
            # the message that a site, together with the w - 1 sites after it, gets from all later sites
            back = logsumexp(pair + after[:, None], 3)
            of_sites.append(logsumexp(before + back, 2))
            of_pairs.append((before + own[..., None])[..., None] + after[:, None])
            after = own[..., None] + back
        return after.reshape(end.shape), (of_sites[::-1], of_pairs[::-1])

    unary, pairs = tables_along(paths, arrays)
    _, both = jax.lax.scan(round_of, end, (unary, pairs, arriving), reverse=True)
    of_sites, of_pairs = ([a[paths.sites[..., n] >= 0] for n, a in enumerate(of_steps)] for of_steps in both)
    return of_sites, [a.reshape(-1, *g.shape) for a, g in zip(of_pairs, paths.pairs, strict=True)]


def to_sources(group: EliminatedSites, outer: Any, arrays: list[Any], found: list[Any]) -> None:
    """Write into `found` the cavities of all tables whose sums are the tables of a group of sites.

    Parameters
    ----------
    group : sites that are summed out at once, each from a table of the site and its adjacent sites
    outer : nats, broadcast to (G, *shape): the cavities of the tables of the group's G sites
    arrays : the arrays of all tables of the elimination
    found : for each of `arrays` the array of its cavities
    """
    if not group.sources:
        return
    more = [aligned(group, source, arrays) for source in group.sources]
    totals = [
        rows_first(sums_by(jnp.moveaxis(a, 0, -1), s.into, len(group.sites)))
        for a, s in zip(more, group.sources, strict=True)
    ]
    outer = jnp.broadcast_to(outer, (len(group.sites), *group.shape))
    for source, a, others in zip(group.sources, more, sums_of_other_arrays(totals), strict=True):
        cavity = (outer + others)[source.into] + sums_of_other_rows(a, source.into)
        for axis in sorted(set(range(len(group.shape))) - set(source.axes), reverse=True):
            cavity = logsumexp(cavity, 1 + axis)
        # `cavity` has its axes in the order of the sums of tables; each table has its own order of axes
        cavity = cavity.transpose(0, *(1 + np.argsort(np.argsort(source.axes))))
        here = (source.rows, *(slice(n) for n in cavity.shape[1:]))
        found[source.batch] = found[source.batch].at[here].set(cavity)


def sums_of_other_arrays(arrays: list[Any]) -> list[Any]:
    """For each of several arrays, which broadcast against each other, the sum of all other arrays."""
    zero = jnp.zeros(())
    before = [*accumulate(arrays[:-1], add, initial=zero)]
    after = [*accumulate(arrays[:0:-1], add, initial=zero)][::-1]
    return [a + b for a, b in zip(before, after, strict=True)]


def sums_of_other_rows(a, member: np.ndarray):
    """(r, ...), for each row of an array (r, ...) the sum of the other rows of its group.

    No row is subtracted from the sum of its whole group, because elements may be -inf.

    Parameters
    ----------
    member : (r,) int, the index of the group that each row belongs to
    """
    if len(np.unique(member)) == len(member):
        return jnp.zeros_like(a)
    order = np.argsort(member, kind="stable")
    new = np.diff(member[order], prepend=-1) != 0
    last = np.append(new[1:], True)
    found = sums_before(a[order], new) + sums_before(a[order][::-1], last[::-1])[::-1]
    return found[np.argsort(order)]


def sums_before(a, first: np.ndarray):
    """(r, ...), for each row the sum of the rows before it in its segment; `first` (r,) bool marks the rows
    that begin segments.
    """
    tail = (1,) * (a.ndim - 1)
    first = jnp.asarray(first.reshape(-1, *tail))
    shifted = jnp.where(first, 0.0, jnp.concatenate([jnp.zeros_like(a[:1]), a[:-1]]))

    def joined(left, right):
        (sum_left, any_left), (sum_right, any_right) = left, right
        return jnp.where(any_right, sum_right, sum_left + sum_right), any_left | any_right

    return jax.lax.associative_scan(joined, (shifted, first))[0]
