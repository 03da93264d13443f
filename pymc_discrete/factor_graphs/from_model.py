"""The factor graph of discrete variables of a PyMC model: its tables are those that exact differences are
made of.
"""

import itertools
import weakref
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_discrete.factor_graphs.compatible import REMEDY, check, jittered, random_state
from pymc_discrete.factor_graphs.dense import Bipartite, Quadratic
from pymc_discrete.factor_graphs.factor import Factor
from pymc_discrete.factor_graphs.graph import FactorGraph
from pymc_discrete.factor_graphs.tables import Pairwise, Table
from pymc_discrete.targets.elements import Moves, Reader
from pymc_discrete.targets.from_model import ModelDensity, target_from_model
from pymc_discrete.targets.model_settings import model_settings
from pymc_discrete.targets.rounding import room
from pymc_discrete.targets.tables import SparseTerm, weighted
from pymc_discrete.targets.target import Target

STATES = 32  # at random, at which the factors are compared with the model
CROWDED = 1 / 8  # of the pairs of a dense block interact: with fewer it is kept as a list of pairs

_known: weakref.WeakKeyDictionary[ModelDensity, "Extraction"] = weakref.WeakKeyDictionary()


class Group(NamedTuple):
    """Elements of a sparse term that depend on as many sites, of the same variables.

    sites (E, J), numbers of the J variables; pairwise: whether a sum over pairs of these says it all
    """

    term: SparseTerm
    elements: np.ndarray
    sites: np.ndarray
    variables: tuple[int, ...]
    pairwise: bool


def from_model(model: Any, vars: Any, support: Any, point: dict[str, Any] | None) -> FactorGraph:
    """The factor graph of a block; see `FactorGraph.from_model`."""
    with model_settings():
        target = target_from_model(model, vars, differences="exact", support=support, initial_point=point)
        density = cast(ModelDensity, target.density)
        graph = Extraction.of(density).graph(target.at(density.start)[1])
    return jax.tree.map(
        lambda a: jnp.asarray(a, jax.dtypes.canonicalize_dtype(a.dtype)), graph
    )  # as wide as JAX is set


class Extraction:
    """How the factors of a block are made from its context, anew for every value of the model's other
    variables.

    Parameters
    ----------
    density : with exact differences

    Raises
    ------
    ValueError
        Where the log density is no sum of tables, or the factors do not add up to it.
    """

    @classmethod
    def of(cls, density: ModelDensity) -> "Extraction":
        if density not in _known:
            with jax.ensure_compile_time_eval():
                _known[density] = cls(density)
        return _known[density]

    def __init__(self, density: ModelDensity):
        pairwise = check(density)
        self.plan, self.space, self.evaluate = density.plan, density.space, density._evaluate
        self.number = np.repeat(np.arange(len(self.space.variables)), [v.size for v in self.space.variables])
        self.groups = [
            g
            for entry, pairs in zip(self.plan.in_place, pairwise, strict=True)
            for g in self._groups(*entry, pairs)
        ]
        self.dense = sorted({n for t in self.plan.rows for n in t.variables})
        self.constant = not set(density.graph.others) & set(ancestors([t.total for t in self.plan.rows]))
        r = np.random.default_rng(1)
        others = [jittered(density, r) for _ in range(2)]
        contexts = [density.prepare(values) for values in others]
        found = jax.jit(self._second)(contexts[0]) if self.dense else {}
        # pairs that do not interact here may do so in another context
        joined = {
            key: np.any(np.asarray(f) != 0, axis=(1, 3)) | (not self.constant) for key, f in found.items()
        }
        self.joined = {key: pairs for key, pairs in joined.items() if pairs.any()}
        self.kept = {key: np.asarray(found[key]) for key in self.joined} if self.constant else {}
        x = np.stack([random_state(self.space, r) for _ in range(STATES)])
        both = jax.jit(
            lambda c: jax.vmap(lambda x: (self._graph(c).logdensity(x), density.logdensity(x, c)))(x)
        )
        names = [str(v.name) for v in density.graph.others]
        for context, values in zip(contexts, others, strict=True):
            points = [density.join(state, dict(zip(names, values, strict=True))) for state in x]
            of_graph, of_model = map(np.asarray, both(context))
            compare(of_graph, of_model, density, points)
        self._compiled = jax.jit(self._graph)

    def graph(self, target: Target) -> FactorGraph:
        """The factor graph in the target's context; traceable."""
        return self._compiled(target._ready())

    def _graph(self, context: dict[str, Any]) -> FactorGraph:
        variables, state = self.space.variables, self.evaluate.state(jnp.asarray(self.space.lower), context)
        unary = [context["unary"].get(n, jnp.zeros((v.size, v.K))) for n, v in enumerate(variables)]
        pairs = Pairs(self)
        factors: list[Factor] = []
        for (*_, p), table in zip(self.plan.pairs, context["joint"], strict=True):
            pairs.add(p.pairs, table)
        for group in self.groups:
            if not group.pairwise:
                factors.append(
                    Table(tuple(group.sites.T), self._readable(self._tabulated(group, state), group.sites))
                )
                continue
            alone, together = self._in_pairs(group, state)
            for i, sites, table in zip(group.variables, group.sites.T, alone, strict=True):
                unary[i] = unary[i].at[sites - self.space.starts[i]].add(table)
            for (j, k), table in together.items():
                pairs.add(group.sites[:, [j, k]], table)
        if self.dense:
            for n, field in zip(self.dense, self._first(jnp.asarray(self.space.lower), context), strict=True):
                unary[n] = unary[n] + field
            second = self.kept if self.constant else self._second(context)
            for (n, m), which in self.joined.items():
                block = jnp.asarray(second[n, m])
                a, b = (self.space.starts[i] + np.arange(variables[i].size) for i in (n, m))
                crowded = which.mean() * (2 if n == m else 1) > CROWDED
                if crowded and (variables[n].counts == 2).all() and (variables[m].counts == 2).all():
                    weights = block[:, 0, :, 0]
                    factors.append(Quadratic(a, weights + weights.T) if n == m else Bipartite(a, b, weights))
                else:
                    ends = np.nonzero(which)
                    table = jnp.pad(block[ends[0], :, ends[1], :], ((0, 0), (1, 0), (1, 0)))
                    pairs.add(np.stack([a[ends[0]], b[ends[1]]], 1), table)
        exists = [np.arange(v.K) < v.counts[:, None] for v in variables]
        given = {
            v.name: jnp.where(e, u, 0.0).reshape(*v.shape, v.K)
            for v, u, e in zip(variables, unary, exists, strict=True)
        }
        given = {name: jnp.where(jnp.isnan(u), -jnp.inf, u) for name, u in given.items()}
        return FactorGraph(self.space, pairs.factors() + factors, given)

    # ------------------------------------------------------------ sparse terms
    def _groups(
        self, term: SparseTerm, elements: np.ndarray, sites: np.ndarray, pairwise: bool
    ) -> list[Group]:
        """Elements sorted by the variables of their sites."""
        found: dict[tuple[int, ...], list[int]] = {}
        for e, row in enumerate(sites):
            found.setdefault(tuple(self.number[row[row >= 0]].tolist()), []).append(e)
        own = {key: np.stack([sites[e][sites[e] >= 0] for e in rows]) for key, rows in found.items()}
        return [Group(term, elements[rows], own[key], key, pairwise) for key, rows in found.items() if key]

    def _readable(self, table, sites: np.ndarray):
        """(E, K1, ..., Kn), 0 beyond the values of a site, where nothing looks, and -inf where the model is
        nan.
        """
        exists = np.ones((len(sites), *[1] * sites.shape[1]), bool)
        for j in range(sites.shape[1]):
            shape = [len(sites), *[1] * sites.shape[1]]
            shape[j + 1] = table.shape[j + 1]
            exists = exists & (self.space.lower + np.arange(table.shape[j + 1])[:, None] <= self.space.upper)[
                :, sites[:, j]
            ].T.reshape(shape)
        return jnp.where(exists, jnp.where(jnp.isnan(table), -jnp.inf, table), 0.0)

    def _at(self, group: Group, state: dict[Any, Any], places: np.ndarray):
        """(E, C) nats, the elements with their sites at `places` (J, C), counted from the lowest values."""
        candidates = [
            jnp.asarray(self.space.lower[group.sites[:, j], None] + places[j]) for j in range(len(places))
        ]
        reader = Reader(self.plan.dependence, state, moves=Moves(list(group.sites.T), candidates))
        values = weighted(reader.read(group.term.var, group.elements[:, None]), group.term, state)[:, 0]
        return jnp.broadcast_to(values, (len(group.elements), places.shape[1]))

    def _tabulated(self, group: Group, state: dict[Any, Any]):
        """(E, K1, ..., Kn) nats, the elements at all values of their sites."""
        widths = [self.space.variables[n].K for n in group.variables]
        return self._at(group, state, np.indices(widths).reshape(len(widths), -1)).reshape(-1, *widths)

    def _in_pairs(self, group: Group, state: dict[Any, Any]) -> tuple[list[Any], dict[tuple[int, int], Any]]:
        """[(E, K)] of each site with the others at their lowest values, and {(j, k): (E, Kj, Kk)} what two of
        them add to that.
        """
        widths = [self.space.variables[n].K for n in group.variables]
        if len(widths) == 2:
            table = self._tabulated(group, state)
            return [jnp.zeros((len(group.sites), k)) for k in widths], {(0, 1): table}
        alone = []
        for j, width in enumerate(widths):
            places = np.zeros((len(widths), width), int)
            places[j] = np.arange(width)
            alone.append(self._at(group, state, places))
        together, lowest = {}, alone[0][:, :1]
        for j, k in itertools.combinations(range(len(widths)), 2):
            places = np.zeros((len(widths), widths[j] * widths[k]), int)
            places[[j, k]] = np.indices((widths[j], widths[k])).reshape(2, -1)
            table = self._at(group, state, places).reshape(-1, widths[j], widths[k])
            together[j, k] = table - alone[j][:, :, None] - alone[k][:, None] + lowest[:, :, None]
        return alone, together

    # ---------------------------------------------- dense terms, from the state of all lowest values
    def _first(self, x, context) -> list[Any]:
        """[(n, K)] nats, what the dense terms change by from x, for the variables that enter them."""
        return [self.evaluate.dense_rows(n, x, context) for n in self.dense]

    def _second(self, context) -> dict[tuple[int, int], Any]:
        """{(n, m): (sites of n, K - 1, sites of m, K - 1)} nats: how the effect of one site depends on
        another.
        """
        x, found = jnp.asarray(self.space.lower), {}
        alone = self._first(x, context)
        rounding = (
            1e3
            * jnp.finfo(alone[0].dtype).eps
            * jnp.maximum(1.0, jnp.max(jnp.array([jnp.abs(a).max() for a in alone])))
        )
        for m in self.dense:
            start, v = self.space.blocks[m]
            own = self.dense[: self.dense.index(m) + 1]
            flips = np.stack(
                np.meshgrid(start + np.arange(v.size), np.arange(1, v.K), indexing="ij"), -1
            ).reshape(-1, 2)

            def effects(flip, own=own):
                there = self._first(x.at[flip[0]].add(flip[1]), context)
                return [(there[j] - alone[j])[:, 1:] for j in range(len(own))]

            for n, part in zip(own, jax.lax.map(effects, jnp.asarray(flips)), strict=True):
                u = self.space.variables[n]
                part = jnp.moveaxis(part.reshape(v.size, v.K - 1, u.size, u.K - 1), (0, 1), (2, 3))
                upper = np.triu(np.ones((u.size, u.size), bool), 1)[:, None, :, None] if n == m else True
                found[n, m] = jnp.where(upper & (jnp.abs(part) > rounding), part, 0.0)
        return found


class Pairs:
    """Tables over pairs of sites, added up where two are of the same pair."""

    def __init__(self, extraction: Extraction):
        self.extraction = extraction
        self.found: dict[tuple[int, int], list[tuple[np.ndarray, Any]]] = {}

    def add(self, sites: np.ndarray, table: Any) -> None:
        """`table` (E, Ka, Kb) of `sites` (E, 2), which are of one variable on either side."""
        n, m = self.extraction.number[sites[0]].tolist()
        swapped = sites[:, 0] > sites[:, 1]  # variables are in the order of their sites
        table = self.extraction._readable(table, sites)
        if swapped.all():
            n, m, table = m, n, table.swapaxes(1, 2)
        elif swapped.any():  # of one variable
            table = jnp.where(swapped[:, None, None], table.swapaxes(1, 2), table)
        self.found.setdefault((n, m), []).append((np.sort(sites, axis=1), table))

    def factors(self) -> list[Factor]:
        out: list[Factor] = []
        for parts in self.found.values():
            every, table = (
                np.concatenate([sites for sites, _ in parts]),
                jnp.concatenate([t for _, t in parts]),
            )
            sites, merge = np.unique(every, axis=0, return_inverse=True)
            out.append(
                Pairwise(
                    sites[:, 0],
                    sites[:, 1],
                    jax.ops.segment_sum(table, jnp.asarray(merge.reshape(-1)), len(sites)),
                )
            )
        return out


def compare(
    graph: np.ndarray, model: np.ndarray, density: ModelDensity, points: list[dict[str, np.ndarray]]
) -> None:
    """Refuse where log densities (S,), at as many points, differ by more than a constant and
    their rounding.
    """
    finite = np.isfinite(model)
    if (finite != np.isfinite(graph)).any():
        raise ValueError(
            "The factors found for this model are infinite where it is not, or the other way round. "
            f"{REMEDY} Please report it."
        )
    if finite.any():
        residual, eps = np.ptp(graph[finite] - model[finite]), np.finfo(model.dtype).eps
        if residual > np.sqrt(eps) * max(1.0, np.abs(model[finite]).max()) and residual > 2 * room(
            max(map(density.rounding, points)), eps
        ):
            raise ValueError(
                f"The factors found for this model differ from it by up to {residual:.2g} nats. {REMEDY} "
                "Please report it."
            )
