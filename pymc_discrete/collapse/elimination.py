"""Variable elimination: the sum of a product of tables over all of its sites, and draws of the sites.

Sites are summed out in stages. The sites of a stage share no table, so that they are summed out at once; each
leaves a table of its *adjacent* sites, which are the sites that shared a table with it. The order is found
once, from the sites that the tables join: the sites whose tables with their adjacent sites have the fewest
entries come next. So a tree loses its leaves first. A long path, also one in which a site interacts with the
few that follow it, is summed from one end to the other on a CPU; on an accelerator it is halved in every
stage.
"""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.collapse.paths import assigned_backward, largest_along, messages, messages_in_common
from pymc_discrete.kernels.random import choose
from pymc_discrete.space.indexing import unique_pairs

# The largest number of entries of the table of one site that is summed out; its axes are this site and all
# sites that share a table with it.
MOST_ENTRIES_OF_SITE = 2**20
MOST_ENTRIES = 2**27  # the largest number of entries of all tables of an elimination together
# A stage of an elimination sums out sites whose tables have at most this many times the entries of the
# smallest table. A lower ratio means less work in all, but more stages, which run one after another.
STAGE_RATIO = 64
SHORTEST_PATH = 4  # a path is summed one site after another if at least this many of its sites are summed out
WIDEST_PATH = 4  # a site of a path may interact with at most this many of the sites that follow it
# a path in which a site interacts with several of the sites that follow it is summed one site after another
# if at least this many of its sites are summed out
SHORTEST_WIDE_PATH = 16
# To sum an entry of a table in logarithms takes as long as this many multiplications in a matrix product.
PRODUCTS = 16
# `equal_sequences` compares sequences of at most this many items all at once, item by item; it looks at
# longer sequences one after another.
SHORT_SEQUENCE = 32
# Paths with equal tables are put in one group, whose tables are computed once, if such groups have at least
# this many paths on average.
FEWER_GROUPS = 4


class TooDear(Exception):
    """A sum over sites would take too many operations.

    Attributes
    ----------
    sites : the sites in the table that is too large
    entries : the number of entries of this table
    """

    def __init__(self, sites: Sequence[int], entries: float):
        super().__init__(f"a table of {entries:.2g} entries")
        self.sites, self.entries = list(sites), entries


class AddedTables(NamedTuple):
    """Tables of one array that are summands of the tables of a group, whose sites are summed out at once.

    Attributes
    ----------
    batch : the index of the array
    rows : (r,) int, the rows of the array with the tables that are added
    into : (r,) int, the index of the group's table to which each table is added
    axes : for each axis of an added table, the axis of the group's tables that it belongs to
    """

    batch: int
    rows: np.ndarray
    into: np.ndarray
    axes: tuple[int, ...]


class EliminatedSites(NamedTuple):
    """G sites that are summed out at once; each shares tables with m adjacent sites.

    The table of a site and its adjacent sites is a sum of tables. Sites with equal summands share a table.
    All tables have the same shape.

    Attributes
    ----------
    sites : (G, 1 + m) int, each site and its adjacent sites
    shape : 1 + m int, the numbers of values of a site and of its adjacent sites
    sources : the tables that are added up to the U different tables (U, *shape)
    tables : (G,) int, the index of each site's table among the U tables
    """

    sites: np.ndarray
    shape: tuple[int, ...]
    sources: list[AddedTables]
    tables: np.ndarray

    @property
    def different(self) -> int:
        """The number of different tables of the group."""
        return int(self.tables.max(initial=-1)) + 1


class Paths(NamedTuple):
    """Paths that are summed out at once, each from its first site up to its last w sites, which stay.

    A site interacts with at most the next w sites. The numbers of values of the sites repeat after e sites. A
    round sums out e sites of each path in e steps, one after another.

    Attributes
    ----------
    sites : (L, B, e) int, the sites of the L rounds of each of B paths; shorter paths begin with -1
    ends : (B, w) int, the sites at the end of each path, which stay
    unary : e EliminatedSites, for each step of a round the tables of single sites, round by round; a -1 in
        `sites` has none
    pairs : e EliminatedSites, for each step of a round the tables of a site with the next w sites
    common : e (L,) int, the index of the table of `pairs` that all paths have in each round; None where paths
        have different tables
    """

    sites: np.ndarray
    ends: np.ndarray
    unary: list[EliminatedSites]
    pairs: list[EliminatedSites]
    common: list[np.ndarray] | None

    @property
    def counts(self) -> list[int]:
        """The numbers of values of the sites of a path, up to where these numbers repeat."""
        return [group.shape[0] for group in self.pairs]

    @property
    def entries(self) -> float:
        """The work of the sums, counted as entries of tables."""
        rounds = self.sites.shape[0] * self.sites.shape[1]
        return float(sum(self._entries(group, rounds) for group in self.pairs))

    def _entries(self, group: EliminatedSites, rounds: int) -> float:
        each = math.prod(group.shape)
        return rounds * each if self.common is None else (group.different + rounds / PRODUCTS) * each


class EliminationOrder:
    """The stages in which sites are summed out.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site
    scopes : a list of (E, J) int, for each array of tables the sites that each table joins
    sequential : whether paths are summed one site after another
    compact : whether all paths that are summed out at once are padded to the longest
    most : largest number of entries of all tables
    tables : a list of (E,) int, for each row of `scopes` the row of the array with its table

    Attributes
    ----------
    stages : for each stage a list of EliminatedSites and Paths
    entries : the number of entries of all different tables

    Raises
    ------
    TooDear
    """

    def __init__(
        self,
        counts: np.ndarray,
        scopes: Sequence[np.ndarray],
        sequential: bool,
        compact: bool,
        most: float,
        tables: Sequence[np.ndarray],
    ):
        self.counts, self.entries, self._compact, self._most = counts, 0.0, compact, most
        self.stages: list[list[EliminatedSites | Paths]] = []
        self._shares = any(len(np.unique(t)) < len(t) for t in tables)
        # the number of arrays of tables: each group of sites that is summed out leaves one more
        self._arrays = len(scopes)
        if none_joined(scopes):
            self._each_alone(scopes, tables)
            return
        # A table is identified by (array, n): it is table n of the tables whose entries are in the array. The
        # dictionary has {site that is not summed out yet: the tables that depend on it}.
        self._tables: dict[int, set[tuple[int, int]]] = {i: set() for i in range(len(counts))}
        self._scope: dict[tuple[int, int], tuple[int, ...]] = {}  # the sites that each table depends on
        # the row of the array with the entries of each table; equal tables may share a row
        self._row: dict[tuple[int, int], int] = {}
        for array, (sites, rows) in enumerate(zip(scopes, tables, strict=True)):
            for n, (scope, row) in enumerate(zip(sites.tolist(), rows.tolist(), strict=True)):
                self._keep((array, n), tuple(scope), row)
        while self._tables:
            around = {i: self._neighbours(i) for i in self._tables}
            widths = range(1, WIDEST_PATH + 1 if sequential else 1)
            paths = filter(None, (self._paths(around, width) for width in widths))
            self.stages.append(next(paths, []) or self._stage(around))

    def _each_alone(self, scopes: Sequence[np.ndarray], tables: Sequence[np.ndarray]) -> None:
        """Find all stages at once if no table joins two sites; `_stage` would find the stages one by one."""
        d = len(self.counts)
        site = np.concatenate([s[:, 0] for s in scopes])
        array = np.repeat(np.arange(len(scopes)), [len(s) for s in scopes])
        row = np.concatenate(tables)
        order = np.argsort(site, kind="stable")  # all tables, sorted by their sites
        site, array, row = site[order], array[order], row[order]
        first = np.searchsorted(site, np.arange(d + 1))
        by_row = np.lexsort((row, array, site))
        made_of = equal_sequences(first, array[by_row], row[by_row]) if self._shares else np.arange(d)
        left = np.arange(d)
        while len(left):
            size = self.counts[left].astype(float)
            # a table that n sites share is computed once, so that each site costs 1 / n of the table's
            # entries
            if self._shares:
                _, kind = unique_pairs(np.stack([made_of[left], self.counts[left]], axis=1))
                size = size / np.bincount(kind)[kind]
            by_size = np.lexsort((left, size))
            chosen = left[by_size[size[by_size] <= max(size.min() * STAGE_RATIO, 1)]]
            counts, begins = np.unique(self.counts[chosen], return_index=True)
            stage: list[EliminatedSites | Paths] = []
            for count in counts[np.argsort(begins)]:
                sites = chosen[self.counts[chosen] == count]
                _, shown_first, of_sites = np.unique(made_of[sites], return_index=True, return_inverse=True)
                number = np.argsort(np.argsort(shown_first))[of_sites]
                new = sites[np.sort(shown_first)]
                # `new` has one site for each different sum of tables; the tables of these sums are listed
                # site by site
                many = first[new + 1] - first[new]
                into = np.repeat(np.arange(len(new)), many)
                places = np.arange(len(into)) - np.repeat(np.cumsum(many) - many, many) + first[new][into]
                arrays, at = np.unique(array[places], return_index=True)
                sources = []
                for a in arrays[np.argsort(at)]:
                    mine = array[places] == a
                    sources.append(AddedTables(int(a), row[places][mine], into[mine], (0,)))
                group = EliminatedSites(sites[:, None], (int(count),), sources, number)
                self._count([(int(sites[0]),)], group.shape, group.different * int(count))
                stage.append(group)
                self._arrays += 1
            self.stages.append(stage)
            left = np.setdiff1d(left, chosen)

    def _keep(self, table: tuple[int, int], scope: tuple[int, ...], row: int) -> None:
        self._scope[table], self._row[table] = scope, row
        for i in scope:
            self._tables[i].add(table)

    def _neighbours(self, i: int) -> list[int]:
        return sorted({j for table in self._tables[i] for j in self._scope[table]} - {i})

    def _stage(self, around: dict[int, list[int]]) -> list[EliminatedSites | Paths]:
        """Choose the sites of the next stage, and the tables that are added up for each.

        Parameters
        ----------
        around : {site: the sites that share a table with it}
        """
        size: dict[int, float] = {
            i: math.prod(map(int, self.counts[[i, *near]])) for i, near in around.items()
        }
        # a table that n sites share is computed once, so that each of the n sites costs 1 / n of its entries
        if self._shares:
            made_of = {i: (self._made_of((i, *near), self._tables[i]), size[i]) for i, near in around.items()}
            times = Counter(made_of.values())
            size = {i: size[i] / times[made_of[i]] for i in size}
        order = sorted(size, key=lambda i: (size[i], i))
        limit = max(size[order[0]] * STAGE_RATIO, 1)
        chosen: list[int] = []
        blocked: set[int] = set()
        for i in order:
            if size[i] > limit:
                break
            if i not in blocked:
                chosen.append(i)
                blocked.update(around[i])
        groups: dict[Any, list[int]] = defaultdict(list)
        for i in chosen:
            groups[tuple(self.counts[[i, *around[i]]].tolist())].append(i)
        return [self._group(shape, sites, around) for shape, sites in groups.items()]

    def _group(
        self, shape: tuple[int, ...], sites: list[int], around: dict[int, list[int]]
    ) -> EliminatedSites:
        scopes = [(i, *around[i]) for i in sites]
        group = self._sums(scopes, shape, [sorted(self._tables[i]) for i in sites])
        self._count(scopes, shape, group.different * math.prod(shape))
        for n, i in enumerate(sites):
            del self._tables[i]
            if around[i]:
                self._keep((self._arrays, n), tuple(around[i]), int(group.tables[n]))
        self._arrays += 1
        return group

    def _count(self, scopes: list[tuple[int, ...]], shape: tuple[int, ...], entries: float) -> None:
        self.entries += entries
        if math.prod(shape) > MOST_ENTRIES_OF_SITE or self.entries > self._most:
            raise TooDear(scopes[0], max(self.entries, math.prod(shape)))

    def _made_of(self, sites: tuple[int, ...], tables: Iterable[tuple[int, int]]) -> Hashable:
        """A key of the tables that are added up to a table of some sites; equal keys mean equal sums.

        For each table that is added, the key has its array, its row in the array, and the axis of each of its
        sites.
        """
        place = {j: axis for axis, j in enumerate(sites)}
        return tuple(sorted((t[0], self._row[t], tuple(place[j] for j in self._scope[t])) for t in tables))

    def _sums(
        self, scopes: list[tuple[int, ...]], shape: tuple[int, ...], tables: list[list[tuple[int, int]]]
    ) -> EliminatedSites:
        """The group of sites whose tables are the sums of the given tables, which are taken from the tables
        that are left to sum.

        Parameters
        ----------
        scopes : the sites of each member of the group
        shape : the numbers of values of these sites, the same for all members
        tables : the tables that are added up for each member
        """
        found: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = defaultdict(list)
        number: dict[Hashable, int] = {}  # {key of the tables that are added up: index of their sum}
        of_members = []
        for sites, mine in zip(scopes, tables, strict=True):
            made_of = self._made_of(sites, mine) if self._shares else len(number)
            new = made_of not in number
            of_members.append(number.setdefault(made_of, len(number)))
            place = {j: axis for axis, j in enumerate(sites)}
            for table in mine:
                scope = self._scope.pop(table)
                if new:
                    axes = tuple(place[j] for j in scope)
                    found[table[0], axes].append((self._row[table], of_members[-1]))
                for j in scope:
                    self._tables[j].discard(table)
        sources = []
        for (array, axes), pairs in found.items():
            rows, into = np.array(pairs).T
            sources.append(AddedTables(array, rows, into, axes))
        return EliminatedSites(np.array(scopes), shape, sources, np.array(of_members))

    # ------------------------------------------------------------ paths
    def _paths(self, around: dict[int, list[int]], width: int) -> list[EliminatedSites | Paths]:
        """The paths that can be summed out next, in groups of about equal lengths; a site of such a path
        interacts with at most the next `width` sites.
        """
        groups: dict[tuple[int, tuple[int, ...]], list[list[int]]] = defaultdict(list)
        passed: set[int] = set()
        inside: set[int] = set()  # the sites that the paths found so far sum out
        held: set[int] = set()  # the sites in `inside`, and the sites at the ends of the paths, which stay
        shortest = SHORTEST_WIDE_PATH if width > 1 else 1 if self._compact else SHORTEST_PATH
        for i in sorted(around):
            if 0 < len(around[i]) <= width and i not in passed:
                path, period = self._path(i, around, width, inside, held)
                passed.update(path)
                rounds = (len(path) - width) // period
                if rounds * period >= shortest and self._affordable(path, width, period):
                    inside.update(path[: rounds * period])
                    held.update(path[: rounds * period + width])
                    about = 0 if self._compact else rounds.bit_length()
                    counts = tuple(self.counts[path[:period]].tolist())
                    groups[about, counts].append(path[: rounds * period + width])
        return [
            self._of_paths(paths, width, len(counts))
            for (_, counts), some in groups.items()
            for paths in self._with_same(some, width)
        ]

    def _with_same(self, paths: list[list[int]], width: int) -> list[list[list[int]]]:
        """Paths in groups with equal tables, if there are few such groups; else all paths in one group."""
        if not self._shares:
            return [paths]
        groups: dict[Hashable, list[list[int]]] = defaultdict(list)
        for path in paths:
            made_of = (self._made_of(s, t) for s, t in zip(*self._joining(path, width), strict=True))
            groups[tuple(made_of)].append(path)
        return [*groups.values()] if FEWER_GROUPS * len(groups) <= len(paths) else [paths]

    def _joining(
        self, path: list[int], width: int
    ) -> tuple[list[tuple[int, ...]], list[list[tuple[int, int]]]]:
        """The scopes and tables by which the sites of a path are summed out in order, except its last `width`
        sites.

        Returns
        -------
        scopes : for each site, the site and the `width` sites after it
        tables : for each site, the tables that join it to sites after it
        """
        scopes, tables = [], []
        taken: set[tuple[int, int]] = set()
        for n, i in enumerate(path[:-width]):
            scopes.append(tuple(path[n : n + width + 1]))
            tables.append(sorted(t for t in self._tables[i] - taken if len(self._scope[t]) > 1))
            taken.update(tables[-1])
        return scopes, tables

    def _path(
        self, first: int, around: dict[int, list[int]], width: int, inside: set[int], held: set[int]
    ) -> tuple[list[int], int]:
        """The sites of the path that begins at `first`, and the period after which their numbers of values
        repeat.

        With w the width of the path, each site but the last w interacts with sites of the path before it,
        with the next w sites, and with no others.

        Parameters
        ----------
        inside : the sites that other paths sum out
        held : all sites of other paths, also the sites at their ends, which these paths do not sum out
        """
        path, periods, n = [first], [*range(1, width + 1)], 0
        placed = {first}
        while n < len(path):
            new = [j for j in around[path[n]] if j not in placed]
            # Of the sites that join the path at this step, the ones that share tables with the fewest sites
            # outside of it come first.
            new.sort(key=lambda j: (len(placed.union(around[j], new)), j))
            longer = [*path, *new]
            left = [e for e in periods if self._repeats(longer, len(path), e)]
            apart = path[n] not in held and not inside.intersection(new)
            if len(longer) - 1 > n + width or not left or not apart:
                break
            path, periods, n = longer, left, n + 1
            placed.update(new)
        # A path ends at most w sites after the last site that it can sum out: sites further on may share
        # tables with sites outside of the path.
        return path[: n + width], periods[0]

    def _affordable(self, path: list[int], width: int, period: int) -> bool:
        """Whether the tables of each site of a path with the sites that follow it are small enough."""
        sizes = self.counts[path[: period + width]].tolist()
        return all(math.prod(sizes[n : n + width + 1]) <= MOST_ENTRIES_OF_SITE for n in range(period))

    def _repeats(self, path: list[int], start: int, period: int) -> bool:
        """Whether each site from `start` on has as many values as the site one period before it."""
        return all(
            n < period or self.counts[path[n]] == self.counts[path[n - period]]
            for n in range(start, len(path))
        )

    def _of_paths(self, paths: list[list[int]], width: int, period: int) -> Paths:
        longest = max(map(len, paths)) - width
        sites = np.full((longest, len(paths)), -1)
        for n, path in enumerate(paths):
            sites[longest + width - len(path) :, n] = path[:-width]
        joining = [zip(*self._joining(path, width), strict=True) for path in paths]
        # The numbers of values of the sites of a path repeat after `period` sites, which are a round. For
        # each place in a round there is one list over all rounds and, within a round, over all paths: of the
        # scopes (a site with the sites that follow it), and of the tables that are added up for each scope.
        scopes: list[list[tuple[int, ...]]] = [[] for _ in range(period)]
        tables: list[list[list[tuple[int, int]]]] = [[] for _ in range(period)]
        for n, row in enumerate(sites):
            for left, i in zip(joining, row, strict=True):
                if i >= 0:
                    scope, mine = next(left)
                    scopes[n % period].append(scope)
                    tables[n % period].append(mine)
        unary, pairs = [], []
        for of_step, of_pairs in zip(scopes, tables, strict=True):
            shape = tuple(self.counts[[*of_step[0]]].tolist())
            alone = [sorted(t for t in self._tables[s[0]] if len(self._scope[t]) == 1) for s in of_step]
            unary.append(self._sums([s[:1] for s in of_step], shape[:1], alone))
            pairs.append(self._sums(of_step, shape, of_pairs))
        found = Paths(
            sites.reshape(-1, period, len(paths)).swapaxes(1, 2),
            np.array([path[-width:] for path in paths]),
            unary,
            pairs,
            self._in_common(pairs, longest // period, len(paths)),
        )
        self._count(scopes[0], max((g.shape for g in pairs), key=math.prod), found.entries)
        for i in (i for of_step in scopes for i, *_ in of_step):
            del self._tables[i]
        for n, path in enumerate(paths):
            self._keep((self._arrays, n), tuple(path[-width:]), n)
        self._arrays += 1
        return found

    @staticmethod
    def _in_common(pairs: list[EliminatedSites], rounds: int, n_paths: int) -> list[np.ndarray] | None:
        """For each array in `pairs` (rounds,) int: in every round, the index of the one table that all paths
        have for the site that is summed out.

        None unless all paths have the same tables, and several sites share a table.

        Parameters
        ----------
        pairs : the tables of sites with the sites that follow them; the first of `pairs` has the first site
            of every round of a path, the second has the second site, and so on
        """
        if any(len(group.sites) < rounds * n_paths or group.different == len(group.sites) for group in pairs):
            return None
        tables = [group.tables.reshape(rounds, n_paths) for group in pairs]
        return [t[:, 0] for t in tables] if all((t == t[:, :1]).all() for t in tables) else None


class Elimination:
    """The logarithm of the sum of a product of tables over all sites, and draws of the sites.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site
    scopes : a list of (E, J) int, for each array of tables the sites that each table joins
    compact : whether all paths that are summed out at once are padded to the longest: this is more work, but
        a smaller program, which compiles in less time
    most : largest number of entries of all tables
    tables : a list of (E,) int, for each row of `scopes` the row of the array with its table; by default each
        row of `scopes` has its own table

    Attributes
    ----------
    order : EliminationOrder, the order for a CPU

    Raises
    ------
    TooDear
    """

    def __init__(
        self,
        counts: np.ndarray,
        scopes: Sequence[np.ndarray],
        compact: bool = False,
        most: float = MOST_ENTRIES,
        tables: Sequence[np.ndarray] | None = None,
    ):
        self.counts, self.scopes = np.asarray(counts), [np.asarray(s) for s in scopes]
        self._options = compact, most, tables or [np.arange(len(s)) for s in self.scopes]
        self.order = EliminationOrder(self.counts, self.scopes, True, *self._options)

    @functools.cached_property
    def _for_accelerators(self) -> EliminationOrder:
        try:
            return EliminationOrder(self.counts, self.scopes, False, *self._options)
        except TooDear:
            return self.order

    def stages(self) -> list[list[EliminatedSites | Paths]]:
        """The stages, in the order that suits the device that JAX uses."""
        return (self.order if jax.default_backend() == "cpu" else self._for_accelerators).stages

    # ------------------------------------------------------------ pure JAX functions
    def joined(self, tables: Sequence[Any]) -> tuple[Any, list[list[Any]]]:
        """The logarithm of the sum, over all sites, of the product of the tables.

        Parameters
        ----------
        tables : [(E, K1, ..., KJ) nats], an array for each of `scopes`, with one row for each different table

        Returns
        -------
        () nats, and the tables of every group of every stage, which `draw` reads
        """
        return self._passed(tables, summed_along, sites_summed_out)

    def _passed(
        self, tables: Sequence[Any], along: Callable[..., Any], out: Callable[..., Any]
    ) -> tuple[Any, list[list[Any]]]:
        """The logarithm of the sum over all sites, and for each group of each stage the arrays that are kept,
        since draws of the sites need them.

        Parameters
        ----------
        along, out : functions for `Paths` and for `EliminatedSites`: each takes a group and all arrays of
            tables so far, and returns the array of tables that the group leaves, and the arrays that are kept
        """
        arrays, total, stages = list(tables), jnp.zeros(()), []
        for stage in self.stages():
            results = [(along if isinstance(group, Paths) else out)(group, arrays) for group in stage]
            arrays += [left for left, _ in results]
            roots = [
                take_rows(left, group.tables).sum()
                for group, (left, _) in zip(stage, results, strict=True)
                if isinstance(group, EliminatedSites) and is_root(group)
            ]
            total += sum(roots, jnp.zeros(()))
            stages.append([kept for _, kept in results])
        return total, stages

    def roots(self, stages: list[list[Any]]):
        """(n,) nats, the logarithm of the sum over each component of sites that tables connect.

        Parameters
        ----------
        stages : the tables of every group of every stage, which `joined` returns
        """
        pairs = zip(self.stages(), stages, strict=True)
        ends = [(g, t) for groups, tables in pairs for g, t in zip(groups, tables, strict=True)]
        last = [(g, t) for g, t in ends if isinstance(g, EliminatedSites) and is_root(g)]
        return jnp.concatenate([take_rows(logsumexp(table, 1), group.tables) for group, table in last])

    def components(self) -> np.ndarray:
        """(d,) int, for each site the index in `roots` of the component of connected sites that it is in."""
        found, groups = np.zeros(len(self.counts), int), [g for stage in self.stages() for g in stage]
        roots = [i for g in groups if not isinstance(g, Paths) and is_root(g) for i in g.sites[:, 0]]
        found[roots] = np.arange(len(roots))
        for group in groups[::-1]:
            if isinstance(group, Paths):
                ends = np.broadcast_to(group.ends[:, :1], group.sites.shape)
                found[group.sites[group.sites >= 0]] = found[ends[group.sites >= 0]]
            elif not is_root(group):
                found[group.sites[:, 0]] = found[group.sites[:, 1]]
        return found

    def draw(self, uniforms, stages: list[list[Any]]):
        """(d,) int, the index of each site's value, drawn exactly given the tables.

        Parameters
        ----------
        uniforms : (d,), random numbers, uniform in [0, 1)
        stages : the tables of every group of every stage, which `joined` returns
        """
        return self._assigned(choose, uniforms, stages)

    def most_probable(self, tables: Sequence[Any]) -> tuple[Any, Any]:
        """The log of the largest product of the tables, and (d,) int, the index of each site's value at which
        it occurs.

        This is `joined` followed by `draw`, with the largest entry in place of each sum (Viterbi 1967; Dawid
        1992).
        """
        largest, stages = self._passed(tables, largest_of_paths, largest_of_sites)
        return largest, self._assigned(
            lambda _, weights: weights.argmax(-1), np.zeros(len(self.counts)), stages
        )

    def _assigned(self, pick: Callable[..., Any], given: Any, stages: list[list[Any]]) -> Any:
        """(d,) int, the index of each site's value, which the function `pick` chooses. The sites that were
        summed out last get their values first.

        Parameters
        ----------
        pick : (given, weights) -> int, the index of the value that a site gets, such as a draw
        given : (d,), the first argument of `pick` for each site, such as a random number
        stages : for each group of each stage the tables before the sum over the group's sites
        """
        index, given = jnp.zeros(len(self.counts), int), jnp.asarray(given)
        for groups, kept in zip(self.stages()[::-1], stages[::-1], strict=True):
            for group, tables in zip(groups, kept, strict=True):
                if isinstance(group, Paths):
                    weights, pairs, common = tables
                    steps = [*np.moveaxis(group.sites, -1, 0)]
                    chosen = assigned_backward(
                        pick,
                        [given[s] for s in steps],
                        weights,
                        pairs,
                        index[group.ends],
                        group.counts,
                        common,
                    )
                    for sites, found in zip(steps, chosen, strict=True):
                        index = index.at[sites[sites >= 0]].set(found[sites >= 0])
                    continue
                near = [index[column] for column in group.sites[:, 1:].T]
                weights = tables[
                    (group.tables[:, None], np.arange(group.shape[0]), *(k[:, None] for k in near))
                ]
                index = index.at[group.sites[:, 0]].set(pick(given[group.sites[:, 0]], weights))
        return index


def none_joined(scopes: Sequence[np.ndarray]) -> bool:
    """Whether no table joins two sites."""
    return all(sites.shape[1] == 1 for sites in scopes)


def equal_sequences(first: np.ndarray, *parts: np.ndarray) -> np.ndarray:
    """(m,) int, the same number for equal sequences among m sequences, which are stored one after another.

    Parameters
    ----------
    first : (m + 1,) int, the index at which each sequence begins, and the end of the last one
    parts : several (n,) int, whose elements together are the items of the sequences
    """
    lengths = np.diff(first)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    short = lengths <= SHORT_SEQUENCE
    found = np.where(short, lengths, 0)
    place = np.arange(len(owner)) - first[owner]
    for n in range(int(lengths[short].max(initial=0))):
        here = short[owner] & (place == n)
        for part in parts:
            column = np.full(len(lengths), -1)
            column[owner[here]] = part[here]
            # Sequences whose first n items are equal stay in one class if their next items are equal, too.
            _, values = np.unique(column, return_inverse=True)
            _, found = np.unique(found * (values.max(initial=0) + 1) + values, return_inverse=True)
    # the few long sequences are compared as wholes
    together, numbers = np.stack(parts, 1), dict[bytes, int]()
    for i in np.flatnonzero(~short):
        key = together[first[i] : first[i + 1]].tobytes()
        found[i] = len(lengths) + numbers.setdefault(key, len(numbers))
    return found


def is_root(group: EliminatedSites | Paths) -> bool:
    """Whether the sites of a group share no table with a site that is still to be summed out, so that each is
    the last of its component of connected sites.
    """
    return isinstance(group, EliminatedSites) and len(group.shape) == 1


def sites_summed_out(group: EliminatedSites, arrays: list[Any]):
    """The tables, nats, that remain once a group's sites are summed out; and the tables before the sum."""
    table = joint(group, arrays)
    return rows_first(logsumexp(table, 0)), rows_first(table)


def largest_of_sites(group: EliminatedSites, arrays: list[Any]):
    """The tables, nats, that remain if sums over a group's sites are replaced by their largest summands; and
    the tables before.
    """
    table = joint(group, arrays)
    return rows_first(table.max(0)), rows_first(table)


def summed_along(paths: Paths, arrays: list[Any]):
    """(B, K1, ..., Kw) nats, the tables that the sums along B paths leave for the w sites at the end of each;
    and the arrays that draws of the sites need.
    """
    if paths.common is None:
        return passed_along(messages, paths, *tables_along(paths, arrays))
    pairs = [at_steps(rows_first(joint(group, arrays)), len(group.shape) - 1) for group in paths.pairs]
    common = [jnp.asarray(tables) for tables in paths.common]
    return passed_along(messages_in_common, paths, unary_along(paths, arrays), pairs, common)


def largest_of_paths(paths: Paths, arrays: list[Any]):
    """(B, K1, ..., Kw) nats, for each of B paths a table of its last w sites: the largest logarithm of the
    product of the path's tables over the values of all sites before them; and the arrays by which these
    sites get the values at which it occurs.
    """
    return passed_along(largest_along, paths, *tables_along(paths, arrays))


def passed_along(
    passed: Callable[..., Any], paths: Paths, unary: list[Any], pairs: list[Any], common: Any = None
):
    """The tables that remain for the sites at the ends of paths after `passed` has sent messages along the
    paths; and the arrays that draws of the sites need.
    """
    arriving, last = passed(unary, pairs) if common is None else passed(unary, pairs, common)
    weights = [a + own[..., None] for a, own in zip(arriving, unary, strict=True)]
    return at_ends(paths, last), (weights, pairs, common)


def at_ends(paths: Paths, last):
    """(B, K1, ..., Kw), the messages (B, M, N) at the ends of paths, with one axis for each of the last w
    sites.
    """
    counts = [paths.counts[n % len(paths.counts)] for n in range(paths.ends.shape[1])]
    return last.reshape(-1, *counts)


def at_steps(tables, width: int):
    """(..., K, M, N), tables of a site and the next `width` sites, as three axes: of the site, of all sites
    between it and the last one together, and of the last one.
    """
    *first, K = tables.shape[:-width]
    return tables.reshape(*first, K, -1, tables.shape[-1])


def unary_along(paths: Paths, arrays: list[Any]) -> list[Any]:
    """[(L, B, K) nats], the tables of the single sites of paths."""
    return [
        in_rounds(paths, take_rows(rows_first(joint(g, arrays)), g.tables), n, 0.0)
        for n, g in enumerate(paths.unary)
    ]


def tables_along(paths: Paths, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
    """[(L, B, K)] and [(L, B, K, M, N)] nats, the tables of the single sites of paths, and of each site with
    the next w sites.
    """
    pairs = []
    for n, group in enumerate(paths.pairs):
        rows = take_rows(rows_first(joint(group, arrays)), group.tables)
        rows = at_steps(rows, len(group.shape) - 1)
        # Of paths that are summed together, a shorter one starts at a later step. At earlier steps it has
        # sites of which only one value is possible, with the log weight 0, so that its message stays 0.
        first = np.where(np.arange(group.shape[0]) == 0, 0.0, -np.inf)[:, None, None]
        pairs.append(in_rounds(paths, rows, n, first))
    return unary_along(paths, arrays), pairs


def in_rounds(paths: Paths, rows, step: int, missing: Any):
    """(L, B, ...), for each of L rounds of B paths the table of the site that the given step of the round
    sums out: the next of the `rows` (r, ...), or `missing` where a shorter path has not begun yet.
    """
    present = paths.sites[..., step] >= 0
    if not present.all():
        rows = jnp.concatenate([jnp.broadcast_to(missing, (1, *rows.shape[1:])), rows])
        rows = rows[np.where(present, np.cumsum(present.reshape(-1)).reshape(present.shape), 0).reshape(-1)]
    return rows.reshape(*present.shape, *rows.shape[1:])


def joint(group: EliminatedSites, arrays: list[Any]):
    """(*shape, U) nats, the U different tables of a group, each the sum of its `sources`.

    The last axis is the index of the table. It is the longest axis, and XLA vectorises over the last axis.
    """
    table = jnp.zeros((*group.shape, group.different))
    # {shape of added tables: pairs of tables and, for each table, which of the U tables it is added to}; the
    # tables of one shape are added up in one operation
    together: dict[tuple[int, ...], list[tuple[Any, np.ndarray]]] = {}
    for source in group.sources:
        more = jnp.moveaxis(aligned(group, source, arrays), 0, -1)
        if np.array_equal(source.into, np.arange(group.different)):
            table = table + more
        elif is_even(source.into, group.different):
            table = table + sums_by(more, source.into, group.different)
        else:
            together.setdefault(more.shape[:-1], []).append((more, source.into))
    for sources in together.values():
        tables, into = zip(*sources, strict=True)
        more = jnp.concatenate(tables, axis=-1) if len(tables) > 1 else tables[0]
        table = table + sums_by(more, np.concatenate(into), group.different)
    return table


def rows_first(a):
    """(U, ...), the array a (..., U) with its last axis in the first place."""
    return jnp.moveaxis(a, -1, 0)


def aligned(group: EliminatedSites, source: AddedTables, arrays: Sequence[Any]):
    """The tables (r, ...) that `source` names, which are added up to the tables of a group of sites, with
    their axes in the order of the axes of the sums; axes that a table lacks have length 1.
    """
    more = take_rows(arrays[source.batch], source.rows)
    order = np.argsort(source.axes)
    more = more.transpose(0, *(1 + order))
    # an array of tables may be as wide as the site with the most values: columns for values that a site lacks
    # are cut off
    more = more[(slice(None), *(slice(group.shape[a]) for a in sorted(source.axes)))]
    missing = [a for a in range(len(group.shape)) if a not in source.axes]
    return jnp.expand_dims(more, [1 + a for a in missing])


def take_rows(a, rows: np.ndarray):
    """The rows of an array with the given indices (r,).

    Evenly spaced rows, even if each is repeated, are taken by a slice, since gathers are slow in XLA.
    """
    steps = np.diff(rows)
    step = int(steps[0]) if len(steps) else 1
    if step > 0 and (steps == step).all():
        return jax.lax.slice_in_dim(a, int(rows[0]), int(rows[-1]) + 1, step)
    times = int(np.argmax(rows != rows[0])) if (rows != rows[0]).any() else len(rows)
    if times > 1 and np.array_equal(rows, np.repeat(rows[::times], times)):
        each = take_rows(a, rows[::times])
        return jnp.broadcast_to(each[:, None], (len(each), times, *a.shape[1:])).reshape(-1, *a.shape[1:])
    return a[rows]


def sums_by(a, member: np.ndarray, members: int):
    """(..., members), for each of several groups the sum of the elements of a (..., r) that belong to the
    group.

    Parameters
    ----------
    member : (r,) int, the index of the group that each element along the last axis belongs to
    members : the number of groups
    """
    if not is_even(member, members):
        numbers = jax.lax.ScatterDimensionNumbers(tuple(range(a.ndim - 1)), (a.ndim - 1,), (a.ndim - 1,))
        zeros = jnp.zeros((*a.shape[:-1], members), a.dtype)
        return jax.lax.scatter_add(zeros, member[:, None], a, numbers, mode="promise_in_bounds")
    if (np.diff(member) < 0).any():
        a = a[..., np.argsort(member, kind="stable")]
    return a.reshape(*a.shape[:-1], members, len(member) // members).sum(-1)


def is_even(member: np.ndarray, members: int) -> bool:
    """Whether all of `members` groups have equally many elements; `member` has the group of each element."""
    each = np.bincount(member, minlength=members)
    return bool(each.min() == each.max())


def logsumexp(a, axis: int):
    """log of the sum of exp(a) along an axis; -inf, with gradient 0, where all are -inf.

    The derivatives by the largest element that is subtracted and added cancel, so that none is taken. JAX
    would divide by the number of elements that are equal to the largest, and this number may be 0 in a
    compiled program, which computes the elements again in another way, with another rounding.
    """
    largest = jax.lax.stop_gradient(a).max(axis, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    total = jnp.exp(a - largest).sum(axis)
    possible = total > 0
    return jnp.where(possible, jnp.log(jnp.where(possible, total, 1.0)), -jnp.inf) + largest.squeeze(axis)
