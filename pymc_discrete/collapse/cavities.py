"""Cavities: for each table of a product, the sum over all sites of the product of all other tables.

As a function of the sites of the table, that is what the other tables say about them: the cavity distribution
of belief propagation. It is found for all tables at once, by a pass over the stages of an elimination in
reverse. No table is divided by: where a table is 0, its cavity is as exact as elsewhere.
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
    """The cavities of all tables, within the component of connected sites that each belongs to.

    Parameters
    ----------
    tables : [(E, K1, ..., KJ) nats], one for each of the elimination's `scopes`

    Returns
    -------
    [(E, K1, ..., KJ) nats]; -inf for values that a site does not have
    """
    arrays, groups = list(tables), [group for stage in elimination.stages() for group in stage]
    arriving: dict[int, Any] = {}  # {index of the array that paths add: the messages along them}
    for group in groups:
        if isinstance(group, Paths):
            arriving[len(arrays)], last = messages(*tables_along(group, arrays))
            left = at_ends(group, last)
        else:
            left, _ = sites_summed_out(group, arrays)
        arrays.append(left)
    found = [jnp.full(jnp.shape(a), -jnp.inf) for a in arrays]
    for number, group in reversed([*enumerate(groups, len(tables))]):
        # what all other tables of the component say about the sites that the group's sum depends on
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
    """The cavities [(G, K)] of the sites of paths and [(G, K, K1, ..., Kw)] of each and the next ones.

    There is one of each for every step of a round.

    Parameters
    ----------
    arriving : [(L, B, K, M) nats], the messages from the start of the paths
    end : (B, K1, ..., Kw) nats, what comes from beyond the end of each path
    """

    def round_of(after, given):
        of_sites, of_pairs = [], []
        for own, pair, before in [*zip(*given, strict=True)][::-1]:
            after = after.reshape(pair[:, 0].shape)
            # the message to the sites before this step, from all sites that follow
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
    """Write the cavities of all tables that the tables of a group are the sums of into `found`.

    Parameters
    ----------
    outer : (G, *shape) nats, or what broadcasts to it, the cavities of the group's tables
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
        # the axes are those of the group in increasing order; each table has its own order
        cavity = cavity.transpose(0, *(1 + np.argsort(np.argsort(source.axes))))
        here = (source.rows, *(slice(n) for n in cavity.shape[1:]))
        found[source.batch] = found[source.batch].at[here].set(cavity)


def sums_of_other_arrays(arrays: list[Any]) -> list[Any]:
    """For each of several arrays that broadcast, the sum of all others."""
    zero = jnp.zeros(())
    before = [*accumulate(arrays[:-1], add, initial=zero)]
    after = [*accumulate(arrays[:0:-1], add, initial=zero)][::-1]
    return [a + b for a, b in zip(before, after, strict=True)]


def sums_of_other_rows(a, member: np.ndarray):
    """(r, ...) for each row of an array (r, ...), the sum of the other rows of its member.

    They are added up and not subtracted from a total, because entries may be -inf.

    Parameters
    ----------
    member : (r,) int
    """
    if len(np.unique(member)) == len(member):
        return jnp.zeros_like(a)
    order = np.argsort(member, kind="stable")
    new = np.diff(member[order], prepend=-1) != 0
    last = np.append(new[1:], True)
    found = sums_before(a[order], new) + sums_before(a[order][::-1], last[::-1])[::-1]
    return found[np.argsort(order)]


def sums_before(a, first: np.ndarray):
    """(r, ...) the sum of the rows before each row, in segments whose first rows are marked, (r,) bool."""
    tail = (1,) * (a.ndim - 1)
    first = jnp.asarray(first.reshape(-1, *tail))
    shifted = jnp.where(first, 0.0, jnp.concatenate([jnp.zeros_like(a[:1]), a[:-1]]))

    def joined(left, right):
        (sum_left, any_left), (sum_right, any_right) = left, right
        return jnp.where(any_right, sum_right, sum_left + sum_right), any_left | any_right

    return jax.lax.associative_scan(joined, (shifted, first))[0]
