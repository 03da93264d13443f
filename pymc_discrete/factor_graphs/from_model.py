"""Converts discrete variables of a PyMC model to a factor graph.

The tables of the factor graph are those from which exact differences of the log density are computed.
"""

import weakref
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.differences.parts.part import Factors
from pymc_discrete.differences.sum_of_parts import ContextOfModel
from pymc_discrete.factor_graphs.compatible import EXACT_STEP, check_compatible, perturbed_point, random_state
from pymc_discrete.factor_graphs.dense import Bipartite, Quadratic
from pymc_discrete.factor_graphs.factor import Factor
from pymc_discrete.factor_graphs.graph import SumOfFactors
from pymc_discrete.factor_graphs.tables import Pairwise, Table
from pymc_discrete.model.blocks import model_of
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.space.target import Target
from pymc_discrete.structure.rounding import room

STATES_COMPARED = 32  # the number of random states at which the factors are compared with the model
# Two variables become a dense factor if more than DENSE_SHARE of their pairs of sites interact, and a list of
# pairs otherwise.
DENSE_SHARE = 1 / 8

_extractions: weakref.WeakKeyDictionary[ModelDensity, "Extraction"] = weakref.WeakKeyDictionary()


def from_model(model: Any, vars: Any, support: Any, point: dict[str, Any] | None) -> SumOfFactors:
    """The factor graph of a block; see `FactorGraph.from_model`."""
    with model_settings():
        described = DescribedModel(model_of(model, vars), point)
        target = target_of(described, vars, differences="exact", support=support, with_numbers=False)
        density = cast(ModelDensity, target.density)
        graph = Extraction.of(density).graph(target.at(density.start)[1])
    # The log potentials get the precision to which JAX is set.
    return jax.tree.map(lambda a: jnp.asarray(a, jax.dtypes.canonicalize_dtype(a.dtype)), graph)


class Extraction:
    """Makes the factor graph of a block for given values of the model's other variables.

    Parameters
    ----------
    density : ModelDensity, with exact differences

    Raises
    ------
    ValueError
        If the log density is no sum of tables, or the factors do not add up to it.
    """

    @classmethod
    def of(cls, density: ModelDensity) -> "Extraction":
        """The `Extraction` of a density, which is made at first use and kept."""
        if density not in _extractions:
            # This may be called while JAX traces a program. The extraction outlives that program, so it is
            # computed outside of the trace (`eval_context`): otherwise it would hold the program's tracers.
            with jax.core.eval_context():
                _extractions[density] = cls(density)
        return _extractions[density]

    def __init__(self, density: ModelDensity):
        check_compatible(density)
        self.density, self.space = density, density.space
        variables = self.space.variables
        self.variable_of = np.repeat(np.arange(len(variables)), [v.size for v in variables])
        totals = [part.total for part in density.plan.incremental]
        self.constant = not set(density.graph.others) & set(ancestors(totals))
        rng = np.random.default_rng(1)
        others = [perturbed_point(density, rng) for _ in range(2)]
        contexts = [density.compiled("prepare")(values) for values in others]
        blocks = jax.tree.map(np.asarray, jax.jit(lambda c: summed_pairs(self._factors(c)))(contexts[0]))
        # If the tables of pairs differ between contexts, a pair that does not interact in one context may
        # interact in another, so that all pairs count as interacting.
        interact = {key: np.any(b != 0, axis=(1, 3)) | (not self.constant) for key, b in blocks.items()}
        self.interact = {key: pairs for key, pairs in interact.items() if pairs.any()}
        self.kept = {key: blocks[key] for key in self.interact} if self.constant else {}
        x = np.stack([random_state(self.space, rng) for _ in range(STATES_COMPARED)])
        graph_and_model = jax.jit(
            lambda c: jax.vmap(lambda x: (self._graph(c).logdensity(x), density.logdensity(x, c)))(x)
        )
        names = [str(v.name) for v in density.graph.others]
        for context, values in zip(contexts, others, strict=True):
            points = [density.join(state, dict(zip(names, values, strict=True))) for state in x]
            of_graph, of_model = map(np.asarray, graph_and_model(context))
            compare(of_graph, of_model, density, points)
        self._compiled = jax.jit(self._graph)

    def graph(self, target: Target) -> SumOfFactors:
        """The factor graph for the values of other variables in the target's context; JAX can trace it."""
        return self._compiled(target.ready())

    def _factors(self, context: ContextOfModel) -> list[Factors]:
        factors = self.density.factors(context)
        assert None not in factors  # `check_compatible` has refused log densities without factors.
        return cast(list[Factors], factors)

    def _graph(self, context: ContextOfModel) -> SumOfFactors:
        variables, of_parts = self.space.variables, self._factors(context)
        unary = [jnp.zeros((v.size, v.K)) for v in variables]
        pairs = PairTables(self)
        factors: list[Factor] = []
        for of_part in of_parts:
            for n, table in of_part.unary.items():
                unary[n] = unary[n] + table
            for sites, table in of_part.tables:
                if sites.shape[1] == 2:
                    pairs.add(sites, table)
                else:
                    factors.append(Table(tuple(sites.T), self.without_nan(table, sites)))
        blocks = self.kept if self.constant else summed_pairs(of_parts)
        for (n, m), interact in self.interact.items():
            block = jnp.asarray(blocks[n, m])
            a, b = (self.space.starts[i] + np.arange(variables[i].size) for i in (n, m))
            dense = interact.mean() * (2 if n == m else 1) > DENSE_SHARE
            if dense and (variables[n].counts == 2).all() and (variables[m].counts == 2).all():
                weights = block[:, 0, :, 0]
                factors.append(Quadratic(a, weights + weights.T) if n == m else Bipartite(a, b, weights))
            else:
                i, j = np.nonzero(interact)
                table = jnp.pad(block[i, :, j, :], ((0, 0), (1, 0), (1, 0)))
                pairs.add(np.stack([a[i], b[j]], 1), table)
        exists = [np.arange(v.K) < v.counts[:, None] for v in variables]
        by_name = {
            v.name: jnp.where(e, u, 0.0).reshape(*v.shape, v.K)
            for v, u, e in zip(variables, unary, exists, strict=True)
        }
        by_name = {name: jnp.where(jnp.isnan(u), -jnp.inf, u) for name, u in by_name.items()}
        return SumOfFactors(self.space, pairs.factors() + factors, by_name)

    def without_nan(self, table: Any, sites: np.ndarray) -> Any:
        """`table` (E, K1, ..., Kn) with -inf for nan, and 0 for values that a site does not have."""
        exists = np.ones((len(sites), *[1] * sites.shape[1]), bool)
        for j in range(sites.shape[1]):
            shape = [len(sites), *[1] * sites.shape[1]]
            shape[j + 1] = table.shape[j + 1]
            values = self.space.lower + np.arange(table.shape[j + 1])[:, None]
            exists = exists & (values <= self.space.upper)[:, sites[:, j]].T.reshape(shape)
        return jnp.where(exists, jnp.where(jnp.isnan(table), -jnp.inf, table), 0.0)


def summed_pairs(factors: list[Factors]) -> dict[tuple[int, int], Any]:
    """{(n, m): (size of n, K - 1, size of m, K - 1)} nats, the interaction of each site of variable n with
    each site of variable m, added up over the parts of the log density.

    Entries that may be due to rounding alone are set to 0.
    """
    total: dict[tuple[int, int], Any] = {}
    largest = [jnp.zeros(())]
    for of_part in factors:
        if of_part.pairs:
            largest += [jnp.abs(u).max() for u in of_part.unary.values()]
        for key, block in of_part.pairs.items():
            total[key] = total[key] + block if key in total else block
    top = jnp.max(jnp.array(largest))
    rounding = 1e3 * jnp.finfo(top.dtype).eps * jnp.maximum(1.0, top)
    return {key: jnp.where(jnp.abs(block) > rounding, block, 0.0) for key, block in total.items()}


class PairTables:
    """Collects tables over pairs of sites, and adds up the tables that belong to one pair."""

    def __init__(self, extraction: Extraction):
        self.extraction = extraction
        self.by_variables: dict[tuple[int, int], list[tuple[np.ndarray, Any]]] = {}

    def add(self, sites: np.ndarray, table: Any) -> None:
        """Add `table` (E, Ka, Kb) of `sites` (E, 2); each column holds sites of a single variable."""
        n, m = self.extraction.variable_of[sites[0]].tolist()
        # The lower site of each pair comes first. The sites of a variable have consecutive numbers, so either
        # all pairs of two different variables are swapped or none is; within one variable some may be.
        swapped = sites[:, 0] > sites[:, 1]
        table = self.extraction.without_nan(table, sites)
        if swapped.all():
            n, m, table = m, n, table.swapaxes(1, 2)
        elif swapped.any():
            table = jnp.where(swapped[:, None, None], table.swapaxes(1, 2), table)
        self.by_variables.setdefault((n, m), []).append((np.sort(sites, axis=1), table))

    def factors(self) -> list[Factor]:
        """One `Pairwise` factor object for every pair of variables."""
        factors: list[Factor] = []
        for added in self.by_variables.values():
            repeated = np.concatenate([sites for sites, _ in added])
            table = jnp.concatenate([t for _, t in added])
            sites, merge = np.unique(repeated, axis=0, return_inverse=True)
            factors.append(
                Pairwise(
                    sites[:, 0],
                    sites[:, 1],
                    jax.ops.segment_sum(table, jnp.asarray(merge.reshape(-1)), len(sites)),
                )
            )
        return factors


def compare(
    graph: np.ndarray, model: np.ndarray, density: ModelDensity, points: list[dict[str, np.ndarray]]
) -> None:
    """Refuse if the log densities (S,) of graph and model differ by more than a constant and rounding."""
    finite = np.isfinite(model)
    if (finite != np.isfinite(graph)).any():
        raise ValueError(
            "The factors found for this model are infinite where it is not, or the other way round. "
            f"{EXACT_STEP} Please report it."
        )
    if finite.any():
        residual, eps = np.ptp(graph[finite] - model[finite]), np.finfo(model.dtype).eps
        if residual > np.sqrt(eps) * max(1.0, np.abs(model[finite]).max()) and residual > 2 * room(
            max(map(density.rounding, points)), eps
        ):
            raise ValueError(
                f"The factors found for this model differ from it by up to {residual:.2g} nats. {EXACT_STEP} "
                "Please report it."
            )
