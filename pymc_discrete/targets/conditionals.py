"""The conditionals of a block's sites: which sites may be drawn together, and the differences of some sites
only.

Sites that only sparse terms read are coloured, and a colour's sites are drawn together. Sites that a dense
term reads all interact: they are scanned one at a time, and what the sites mix in (`u = X @ (gamma * beta)`)
is carried along and moved by one column.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.targets.colours import colour_classes, links_of
from pymc_discrete.targets.differences import Differences
from pymc_discrete.targets.forests import Forest, coverings, is_forest
from pymc_discrete.targets.space import picked


class Conditionals:
    """Parts of the differences of a block.

    Parameters
    ----------
    differences : Differences, without a gradient

    Attributes
    ----------
    colours : [(variable number, (r,) int sites counted within it)]
        Groups of sites of one variable that do not interact; together all sites that no dense term reads.
    scanned : [(variable number, (r,) int sites counted within it)]
        The other sites.
    """

    def __init__(self, differences: Differences):
        self.differences = differences
        self.plan, self.space = differences.plan, differences.space

    @functools.cached_property
    def _dense(self) -> np.ndarray:
        """(d,) bool, sites that a dense term reads."""
        dense = np.zeros(self.space.d, bool)
        for r in self.plan.rows:
            dense[r.sites] = True
        return dense

    @functools.cached_property
    def colours(self) -> list[tuple[int, np.ndarray]]:
        found = []
        for n, (start, v) in enumerate(self.space.blocks):
            members = start + np.flatnonzero(~self._dense[start : start + v.size])
            found += [(n, sites - start) for sites in colour_classes(self.plan.links, members)]
        return found

    @functools.cached_property
    def scanned(self) -> list[tuple[int, np.ndarray]]:
        own = [
            (n, np.flatnonzero(self._dense[start : start + v.size]))
            for n, (start, v) in enumerate(self.space.blocks)
        ]
        return [(n, sites) for n, sites in own if len(sites)]

    # ------------------------------------------------------------ forests
    @functools.cached_property
    def _merged(self) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Pairs (E, 2), the lower site first; which of them every table is of; for each `Pair`, which of its
        tables are to be flipped.
        """
        every = np.concatenate([np.zeros((0, 2), int), *(p.pairs for *_, p in self.plan.pairs)])
        flipped = every[:, 0] > every[:, 1]
        pairs, merge = np.unique(np.sort(every, axis=1), axis=0, return_inverse=True)
        return (
            pairs,
            merge.reshape(-1),
            np.split(flipped, np.cumsum([len(p.pairs) for *_, p in self.plan.pairs])[:-1]),
        )

    @property
    def pairs(self) -> np.ndarray:
        """(E, 2) int, the sites that tables join, the lower first."""
        return self._merged[0]

    def joint(self, context):
        """(E, K, K) nats, the tables of `pairs`, padded with -inf to the widest."""
        pairs, merge, flipped = self._merged
        K, whole = max(max(p.va.K, p.vb.K) for *_, p in self.plan.pairs), []
        for table, flip in zip(context["joint"], flipped, strict=True):
            wide = jnp.pad(
                table, ((0, 0), (0, K - table.shape[1]), (0, K - table.shape[2])), constant_values=-jnp.inf
            )
            whole.append(
                jnp.where(flip[:, None, None], wide.transpose(0, 2, 1), wide) if flip.any() else wide
            )
        tables = jnp.concatenate(whole)
        return (
            tables
            if np.array_equal(merge, np.arange(len(pairs)))
            else jax.ops.segment_sum(tables, merge, len(pairs))
        )

    @functools.cached_property
    def tree(self) -> bool:
        """Whether the sites that tables join are one forest."""
        inside = np.isin(np.arange(self.space.d), self._joined)
        pairs, apart = (links[inside[links].all(axis=1)] for links in (self.pairs, self._apart))
        return len(pairs) > 0 and len(apart) == 0 and is_forest(pairs, self.space.d)

    @property
    def _joined(self) -> np.ndarray:
        """Sites that a table joins to another, but for those of dense terms."""
        return np.setdiff1d(self.pairs, np.flatnonzero(self._dense))

    @functools.cached_property
    def _apart(self) -> np.ndarray:
        """(A, 2) int, sites that elements evaluated in place join."""
        return links_of([sites for *_, sites in self.plan.in_place], self.space.d)

    @functools.cached_property
    def forests(self) -> list[list[Forest]]:
        """Coverings of all sites that a table joins to another, but for those of dense terms; each covers
        every one of them.
        """
        return coverings(self.pairs, self._apart, self._joined, self.space.d)

    def unaries(self, n: int, x, inside, context):
        """(n, K) log conditional probabilities of a finite variable's sites, up to a constant a site, without
        pairs `inside` (d,) bool.
        """
        v, state = self.space.variables[n], self.differences.state(x, context)
        fields = self.differences.fields(n, x, self.differences.tables(n, context), inside)
        moves = self.differences.in_place(n, x, state)
        total = sum((part for part in (fields, moves) if part is not None), jnp.zeros((v.size, v.K)))
        return jnp.where(jnp.isnan(total) | (np.arange(v.K) >= v.counts[:, None]), -jnp.inf, total)

    # ------------------------------------------------------------ colours
    def rows(self, n: int, rows, context):
        """(x, candidates=None) -> (r, K) differences of the sites `rows` (r,) of variable n; only their terms
        are evaluated.

        Windowed sites go to `candidates` (r, K), or else to the neighbours.
        """
        rows = self._shortened(n, rows)
        tables = self.differences.tables(n, context, rows)

        def at(x, candidates=None):
            state = self.differences.state(x, context)
            found = self.differences.sparse_rows(n, x, context, state, rows, tables, candidates)
            return self._masked(n, x, found, rows, candidates)

        return at

    def logits(self, n: int, rows, context):
        """(x) -> (r, K) log conditional probabilities of the sites `rows` (r,) of a finite variable n, up to
        a constant a site.

        Where every site has two values (r, 1), the log odds of the upper one: their tables are subtracted
        once, not at every x.
        """
        v, rows = self.space.variables[n], self._shortened(n, rows)
        binary = bool((v.counts == 2).all())
        if any(m == n for m, _ in self.plan.pointwise):
            of = self.rows(n, np.arange(v.size) if rows is None else rows, context)
            return lambda x: log_odds(of(x)) if binary else of(x)
        unary, pairs = self.differences.tables(n, context, rows)
        if binary:
            unary = None if unary is None else log_odds(unary)
            pairs = [(p, side, at, log_odds(table, p.values_axis(at))) for p, side, at, table in pairs]
        exists = np.arange(v.K) < v.counts[:, None]

        def at(x):
            fields = self.differences.fields(n, x, (unary, pairs))
            if fields is None:
                fields = jnp.zeros((v.size if rows is None else rows.shape[0], 1 if binary else v.K))
            # nan: every value is impossible, and none more than the others
            if binary:
                return jnp.where(jnp.isnan(fields), 0.0, fields)
            fields = jnp.where(jnp.isnan(fields), -jnp.inf, fields)
            fields = jnp.where((fields == -jnp.inf).all(axis=1, keepdims=True), 0.0, fields)
            return fields if exists.all() else jnp.where(picked(exists, rows), fields, -jnp.inf)

        return at

    def _shortened(self, n: int, rows):
        """None, which means slices instead of gathers, where `rows` are all the sites of the variable."""
        every = isinstance(rows, np.ndarray) and np.array_equal(rows, np.arange(self.space.variables[n].size))
        return None if every else rows

    def _masked(self, n: int, x, d, rows, candidates):
        values, inside, now = self.space.neighbours_of(x, n, rows, candidates)
        d = jnp.zeros(values.shape) if d is None else d
        d = jnp.where(inside & ~jnp.isnan(d), d, -jnp.inf)
        return jnp.where(inside & (values == now[:, None]), 0.0, d)

    # ------------------------------------------------------------ one site at a time
    def carried(self, x, context) -> tuple[Any, ...]:
        """The tensors in which the sites mix, at x, and the dense terms there."""
        return self._with_terms(
            map(jnp.asarray, self.differences.currents(*self.differences.inputs(x, context))), x, context
        )

    def _with_terms(self, tensors, x, context) -> tuple[Any, ...]:
        state, tensors = self.differences.state(x, context), tuple(tensors)
        currents = dict(zip(self.differences.frontier, tensors, strict=True))
        return tensors, tuple(r.rest(state, currents) for r in self.plan.rows)

    def row(self, n: int, site, x, carried, context, candidates=None):
        """(1, K) differences of site `site` () of variable n, where windowed also to `candidates` (1, K)."""
        state, rows = self.differences.state(x, context), site[None]
        tensors, terms = carried
        currents = dict(zip(self.differences.frontier, tensors, strict=True))
        total = self.differences.sparse_rows(n, x, context, state, rows, None, candidates)
        for r, c, now in zip(self.plan.rows, context["rows"], terms, strict=True):
            if n in r.variables:
                part = self.differences.by_value(
                    x, n, r.moves(n, x, state, currents, c, rows, now, candidates), rows
                )
                total = part if total is None else total + part
        return self._masked(n, x, total, rows, candidates)

    def moved(self, n: int, site, value, x, carried, context) -> tuple[Any, ...]:
        """`carried` after site `site` () of variable n went from x to `value` (): by one column of a linear
        map.
        """
        state, currents = (
            self.differences.state(x, context),
            dict(zip(self.differences.frontier, carried[0], strict=True)),
        )
        then = dict(currents)
        for r in self.plan.rows:
            if n in r.variables:
                then.update(r.moved(n, x, state, currents, site[None], value[None]))
        return self._with_terms(then.values(), x, context)


def log_odds(values, axis: int = 1):
    """Log density at the upper of two values less that at the lower, the axis kept; 0 where both are
    impossible.
    """
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    lower, upper = jnp.split(values, 2, axis=axis)
    return jnp.where(lower == upper, 0.0, upper - lower)
