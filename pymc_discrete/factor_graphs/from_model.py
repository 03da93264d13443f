"""The factor graph of discrete variables of a PyMC model: its tables are those that exact differences are
made of.
"""

import weakref
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_discrete.factor_graphs.compatible import REMEDY, check, jittered, random_state
from pymc_discrete.factor_graphs.dense import Bipartite, Quadratic
from pymc_discrete.factor_graphs.factor import Factor
from pymc_discrete.factor_graphs.graph import SumOfFactors
from pymc_discrete.factor_graphs.tables import Pairwise, Table
from pymc_discrete.targets.density import Context, ModelDensity
from pymc_discrete.targets.from_model import target_from_model
from pymc_discrete.targets.graph.rounding import room
from pymc_discrete.targets.model_settings import model_settings
from pymc_discrete.targets.parts.part import Factors
from pymc_discrete.targets.target import Target

STATES = 32  # at random, at which the factors are compared with the model
CROWDED = 1 / 8  # of the pairs of a dense block interact: with fewer it is kept as a list of pairs

_known: weakref.WeakKeyDictionary[ModelDensity, "Extraction"] = weakref.WeakKeyDictionary()


def from_model(model: Any, vars: Any, support: Any, point: dict[str, Any] | None) -> SumOfFactors:
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
        check(density)
        self.density, self.space = density, density.space
        variables = self.space.variables
        self.variable_of = np.repeat(np.arange(len(variables)), [v.size for v in variables])
        totals = [part.total for part in density.plan.incremental]
        self.constant = not set(density.graph.others) & set(ancestors(totals))
        r = np.random.default_rng(1)
        others = [jittered(density, r) for _ in range(2)]
        contexts = [density.prepare(values) for values in others]
        blocks = jax.tree.map(np.asarray, jax.jit(lambda c: joined(self._factors(c)))(contexts[0]))
        # pairs that do not interact here may do so in another context
        interact = {key: np.any(b != 0, axis=(1, 3)) | (not self.constant) for key, b in blocks.items()}
        self.interact = {key: pairs for key, pairs in interact.items() if pairs.any()}
        self.kept = {key: blocks[key] for key in self.interact} if self.constant else {}
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

    def graph(self, target: Target) -> SumOfFactors:
        """The factor graph in the target's context; traceable."""
        return self._compiled(target.ready())

    def _factors(self, context: Context) -> list[Factors]:
        factors = self.density.factors(context)
        assert None not in factors  # `check` has refused those that are none
        return cast(list[Factors], factors)

    def _graph(self, context: Context) -> SumOfFactors:
        variables, every = self.space.variables, self._factors(context)
        unary = [jnp.zeros((v.size, v.K)) for v in variables]
        pairs = Pairs(self)
        factors: list[Factor] = []
        for of_part in every:
            for n, table in of_part.unary.items():
                unary[n] = unary[n] + table
            for sites, table in of_part.tables:
                if sites.shape[1] == 2:
                    pairs.add(sites, table)
                else:
                    factors.append(Table(tuple(sites.T), self.readable(table, sites)))
        blocks = self.kept if self.constant else joined(every)
        for (n, m), which in self.interact.items():
            block = jnp.asarray(blocks[n, m])
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
        return SumOfFactors(self.space, pairs.factors() + factors, given)

    def readable(self, table, sites: np.ndarray):
        """(E, K1, ..., Kn), 0 beyond the values of a site, where nothing looks, and -inf where the model
        is nan.
        """
        exists = np.ones((len(sites), *[1] * sites.shape[1]), bool)
        for j in range(sites.shape[1]):
            shape = [len(sites), *[1] * sites.shape[1]]
            shape[j + 1] = table.shape[j + 1]
            values = self.space.lower + np.arange(table.shape[j + 1])[:, None]
            exists = exists & (values <= self.space.upper)[:, sites[:, j]].T.reshape(shape)
        return jnp.where(exists, jnp.where(jnp.isnan(table), -jnp.inf, table), 0.0)


def joined(factors: list[Factors]) -> dict[tuple[int, int], Any]:
    """{(n, m): (size of n, K - 1, size of m, K - 1)} nats, the `pairs` of all parts added up.

    0 where there is nothing but rounding.
    """
    total: dict[tuple[int, int], Any] = {}
    largest = [jnp.zeros(())]
    for of_part in factors:
        if of_part.pairs:
            largest += [jnp.abs(alone).max() for alone in of_part.unary.values()]
        for key, block in of_part.pairs.items():
            total[key] = total[key] + block if key in total else block
    top = jnp.max(jnp.array(largest))
    rounding = 1e3 * jnp.finfo(top.dtype).eps * jnp.maximum(1.0, top)
    return {key: jnp.where(jnp.abs(block) > rounding, block, 0.0) for key, block in total.items()}


class Pairs:
    """Tables over pairs of sites, added up where two are of the same pair."""

    def __init__(self, extraction: Extraction):
        self.extraction = extraction
        self.found: dict[tuple[int, int], list[tuple[np.ndarray, Any]]] = {}

    def add(self, sites: np.ndarray, table: Any) -> None:
        """`table` (E, Ka, Kb) of `sites` (E, 2), which are of one variable on either side."""
        n, m = self.extraction.variable_of[sites[0]].tolist()
        swapped = sites[:, 0] > sites[:, 1]  # variables are in the order of their sites
        table = self.extraction.readable(table, sites)
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
