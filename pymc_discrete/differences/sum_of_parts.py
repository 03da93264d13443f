"""A log density as the sum of its parts, as pure JAX functions."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.link.jax.dispatch import jax_funcify

from pymc_discrete.differences.parts.active_columns import ActiveColumns
from pymc_discrete.differences.parts.evaluate import JointMoves
from pymc_discrete.differences.parts.part import BlockState, Factors, Part
from pymc_discrete.differences.plan import Plan
from pymc_discrete.model.untouched import Untouched
from pymc_discrete.runtime.float32 import change, reference
from pymc_discrete.space.density import GivenInputs
from pymc_discrete.space.interactions import Interactions
from pymc_discrete.space.space import masked_differences
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.rebuild import context_inputs
from pymc_discrete.structure.sums import all_summands
from pymc_discrete.structure.terms import Term


class ContextOfModel(NamedTuple):
    """All quantities besides x that the log density needs, evaluated once per draw.

    Attributes
    ----------
    leaves : list of flat arrays
        The values of the density's `leaves`: of the tensors outside the block that terms and parts read.
    untouched : () nats
        The sum of the terms that do not depend on the block and that JAX can compile.
    parts : list
        The context of each part.
    since : list of arrays
        The summands of the log density at one state, which are subtracted from those at any other, so that
        in float32 their change is more accurate; None if nothing is subtracted.
    """

    leaves: list[Any]
    untouched: Any
    parts: list[Any]
    since: list[Any] | None = None


class SumOfParts(GivenInputs):
    """The log density of a graph over a space, where each term belongs to a part.

    Attributes
    ----------
    graph : LogpGraph
    space : Space
    plan : Plan
        The part that computes the differences of each term.
    parts : list of Part
    untouched : Untouched
        The terms that do not depend on the block.
    """

    graph: LogpGraph
    plan: Plan
    parts: list[Part]
    untouched: Untouched

    def _compile(self) -> None:
        """Make JAX functions of the log density, of the leaves (the tensors outside the block that it reads),
        and of those tensors of the block that parts read as a whole.
        """
        terms = [Term(name, t, None).total for name, t in self.graph.terms]
        total = pt.add(*terms) if len(terms) > 1 else (terms[0] if terms else pt.constant(0.0))
        needed = [*context_inputs([total], self.graph.values), *(v for p in self.parts for v in p.leaves)]
        needed += [v for v in self.plan.constant if not isinstance(v, Constant)]
        needed += context_inputs([t.total for t in self.plan.dense], self.graph.values)
        for c in self.graph.conjugate:
            needed += context_inputs(c.posterior, [*self.graph.values, *c.given])
        self.leaves = [v for v in dict.fromkeys(needed) if not self.graph.depends(v)]
        self._values_of_leaves = self.values_of_leaves()
        self._inputs = [*self.graph.values, *self.leaves]
        self._total = jaxify(self._inputs, [total])
        self._tensors: list[Variable] = list(dict.fromkeys(v for p in self.parts for v in p.tensors))
        self._values_of_tensors = jaxify(self._inputs, self._tensors)

    @cached_property
    def _summands(self):
        """A function of the values of `_inputs` that returns tensors whose elements add up to the terms that
        depend on the block.
        """
        return jaxify(self._inputs, [s for _, t in self.graph.terms for s in all_summands(t, self.graph)])

    # ------------------------------------------------------------ a state in a context
    def prepare(self, inputs: Sequence[Any]) -> ContextOfModel:
        return self.with_parts(self.without_parts(inputs))

    def with_parts(self, context: ContextOfModel) -> ContextOfModel:
        """The context with the contexts of the parts, made from one without them (see `without_parts`)."""
        # The context of a part is the same for every x, so the lowest x is passed. Where a part pads its
        # tables of indices, it may read values of x, but what is computed from padding is masked later.
        arrays = self.arrays(jnp.asarray(self.space.lower), context)
        return context._replace(parts=[p.context(arrays) for p in self.parts])

    def values_of_leaves(self, convert: Callable = jax_funcify) -> Callable[..., tuple[Any, ...]]:
        """A JAX function of the inputs of the context, which returns the leaves and the terms that do not
        depend on the block, for `without_parts`.

        Parameters
        ----------
        convert : a function that makes JAX functions of Ops, see `JaxFunction`
        """
        return jaxify(self.graph.others, [*self.leaves, *self.untouched.in_jax], convert)

    def without_parts(
        self, inputs: Sequence[Any], values_of_leaves: Callable | None = None
    ) -> ContextOfModel:
        """The context of the given inputs without the contexts of the parts, which is enough for the log
        density.
        """
        pairs = zip(inputs, self.graph.others, strict=True)
        others = [jnp.asarray(i, jax.dtypes.canonicalize_dtype(v.type.dtype)) for i, v in pairs]
        values = (values_of_leaves or self._values_of_leaves)(*others)
        leaves = [jnp.asarray(v).reshape(-1) for v in values[: len(self.leaves)]]
        untouched = values[len(self.leaves) :]
        return ContextOfModel(leaves, sum((jnp.asarray(t).reshape(()) for t in untouched), jnp.zeros(())), [])

    def _of_variables(self, x) -> list[Any]:
        """x (d,), split into an array for each variable of the block."""
        return [x[start : start + v.size] for start, v in self.space.blocks]

    def arrays(self, x, context: ContextOfModel) -> dict[Variable, Any]:
        """{variable: flat array} for the variables of the block, at x, and all else that the terms read."""
        arrays = dict(zip(self.leaves, context.leaves, strict=True))
        arrays.update(zip(self.graph.values, self._of_variables(x), strict=True))
        return arrays

    def _values(self, x, context: ContextOfModel) -> list[Any]:
        """The values of `_inputs`, which are the variables of the block, at x, and the leaves; in the shapes
        that they have in the graph.
        """
        blocks = zip(self._of_variables(x), self.space.variables, strict=True)
        leaves = zip(self.leaves, context.leaves, strict=True)
        return [
            *(values.reshape(v.shape) for values, v in blocks),
            *(a.reshape(self.graph.shape(v)) for v, a in leaves),
        ]

    def state(self, x, context: ContextOfModel, tensors: Sequence[Any] | None = None) -> BlockState:
        """The state x in a context, with the values of the tensors that parts read as a whole if given."""
        values = {} if tensors is None else dict(zip(self._tensors, tensors, strict=True))
        return BlockState(x, self.arrays(x, context), values)

    def _tensors_at(self, x, context: ContextOfModel) -> tuple[Any, ...]:
        """The values at x of the tensors that depend on the block and that parts read as a whole."""
        return tuple(map(jnp.asarray, self._values_of_tensors(*self._values(x, context))))

    # ------------------------------------------------------------ the log density
    def logdensity(self, x, context: ContextOfModel):
        """() nats, the sum of the terms that depend on the block, -inf where constraints are not met.

        In a centred context, the log density at the state where it is centred is subtracted.
        """
        if context.since is not None:
            total = change(self._summands(*self._values(x, context)), context.since)
        else:
            total = jnp.asarray(self._total(*self._values(x, context))[0]).reshape(())
        # `logp_graph` has removed from the terms the checks of constraints, so x is checked separately
        return jnp.where(self.space.meets_constraints(x), total, -jnp.inf) if self.constrained else total

    def value_of(self, terms: Sequence[Term], convert: Callable = jax_funcify) -> Callable[..., Any]:
        """A function of x (d,) and a context that returns the sum () of some dense terms, in nats.

        Parameters
        ----------
        convert : a function that makes JAX functions of Ops, see `JaxFunction`
        """
        values_of_terms = jaxify(self._inputs, [t.total for t in terms], convert)
        return lambda x, context: sum(
            jnp.asarray(value).reshape(()) for value in values_of_terms(*self._values(x, context))
        )

    def rest(self, context: ContextOfModel):
        return context.untouched

    def centred(self, x, context: ContextOfModel) -> ContextOfModel:
        return context._replace(since=reference(self._summands(*self._values(x, context))))

    # ------------------------------------------------------------ differences
    @property
    def exact(self) -> bool:
        return all(p.exact for p in self.parts)

    @property
    def local(self) -> bool:
        return self.plan.local is not None

    def differences(self, x, context: ContextOfModel):
        """(d, K) nats, the change of the log density when one site goes to one of its neighbours."""
        return self._masked(x, self._unmasked(x, context))

    def differences_alone(self, x, context: ContextOfModel):
        return self._masked(x, self._unmasked(x, context), alone=True)

    def _unmasked(self, x, context: ContextOfModel):
        """(d, K) nats, the differences of all parts added up, before what is impossible becomes -inf."""
        state = self._state_with_tensors(x, context)
        ats = self._ats(state, context)
        blocks = []
        for n, v in enumerate(self.space.variables):
            total = self._sum(n, state, ats, context)
            total = jnp.zeros((v.size, v.K)) if total is None else total
            blocks.append(jnp.pad(total, ((0, 0), (0, self.space.K - v.K))))
        return jnp.concatenate(blocks)

    def _ats(self, state: BlockState, context: ContextOfModel) -> tuple[Any, ...]:
        """For each part what it computes once per state, to find the differences of all moves (`Part.at`)."""
        return tuple(part.at(state, c) for part, c in zip(self.parts, context.parts, strict=True))

    def _state_with_tensors(self, x, context: ContextOfModel) -> BlockState:
        """The state x in a context, with the values of the tensors that parts read as a whole."""
        return self.state(x, context, self._tensors_at(x, context) if self._tensors else None)

    def _sum(
        self,
        n: int,
        state: BlockState,
        ats: Sequence[Any],
        context: ContextOfModel,
        rows=None,
        candidates=None,
    ):
        """(r, K) nats, the differences of sites of variable n, added up over the parts that depend on the
        variable; None if no part does.
        """
        total = None
        for part, at, c in zip(self.parts, ats, context.parts, strict=True):
            if n in part.variables:
                d = part.differences(n, state, at, part.context_of(n, c, rows), rows, candidates)
                total = d if total is None else total + d
        return total

    def factors(self, context: ContextOfModel) -> list[Factors | None]:
        """The factors of every part, None for a part that is not a sum of functions of a few sites."""
        pairs = zip(self.parts, context.parts, strict=True)
        return [part.factors(c, lambda x: self._state_with_tensors(x, context)) for part, c in pairs]

    def _masked(self, x, d, sites=None, alone: bool = False):
        """Differences d (m, K) of some sites, made 0 at current values, and -inf where nan or impossible.

        Parameters
        ----------
        sites : (m,) int; None means all sites
        alone : whether to ignore that some sites change only together
        """
        values, inside = self.space.neighbours(x, sites, alone)
        now = x if sites is None else x[sites]
        return masked_differences(d, values, inside, now)

    def touched(self, sites):
        """(L, m) int, the sites whose differences change with each of `sites` (L,), padded with d."""
        neighbourhoods = [
            np.where(rows < v.size, start + rows, self.space.d)
            for (start, v), rows in zip(self.space.blocks, self.plan.local, strict=True)
        ]
        touched = jnp.asarray(np.concatenate(neighbourhoods, axis=1))
        return touched.at[sites].get(mode="fill", fill_value=self.space.d)

    def update(self, x, differences, sites, context: ContextOfModel):
        state, local = self.state(x, context), self.plan.local
        assert local is not None
        for n, ((start, v), neighbourhoods) in enumerate(zip(self.space.blocks, local, strict=True)):
            if neighbourhoods.shape[1] == 0:
                continue
            rows = jnp.asarray(neighbourhoods).at[sites].get(mode="fill", fill_value=v.size).reshape(-1)
            # In the place of padding, the differences of the last site are computed, and dropped afterwards.
            clipped = jnp.minimum(rows, v.size - 1)
            d = self._sum(n, state, [()] * len(self.parts), context, clipped)
            d = jnp.zeros((rows.shape[0], v.K)) if d is None else d
            d = jnp.pad(d, ((0, 0), (0, self.space.K - v.K)))
            d = self._masked(x, d, start + clipped)
            where = jnp.where(rows < v.size, start + rows, self.space.d)
            differences = differences.at[where].set(d, mode="drop")
        return differences

    # ------------------------------------------------------------ conditionals of some sites
    @property
    def interactions(self) -> Interactions:
        return self.plan.interactions

    def rows(self, n: int, rows, context: ContextOfModel):
        rows = self._shortened(n, rows)
        contexts = [part.context_of(n, c, rows) for part, c in self._sparse(n, context)]

        def differences_at(x, candidates=None):
            state, total = self.state(x, context), None
            for (part, _), c in zip(self._sparse(n, context), contexts, strict=True):
                d = part.differences(n, state, (), c, rows, candidates)
                total = d if total is None else total + d
            return self._masked_rows(n, x, total, rows, candidates)

        return differences_at

    def logits(self, n: int, rows, context: ContextOfModel):
        v, rows = self.space.variables[n], self._shortened(n, rows)
        tables = self.plan.tables
        if any(part is not tables for part, _ in self._sparse(n, context)):
            return super().logits(n, np.arange(v.size) if rows is None else rows, context)
        return tables.logits(n, rows, context.parts[self.parts.index(tables)])

    def joint(self, context: ContextOfModel):
        tables = self.plan.tables
        joint = tables.joint(context.parts[self.parts.index(tables)])
        return jnp.where(jnp.isnan(joint), -jnp.inf, joint)

    def unaries(self, n: int, x, inside, context: ContextOfModel):
        v, state, total = self.space.variables[n], self.state(x, context), None
        for part, c in self._sparse(n, context):
            w = part.log_weights(n, state, (), part.context_of(n, c, None), inside)
            total = w if total is None else total if w is None else total + w
        total = jnp.zeros((v.size, v.K)) if total is None else total
        return jnp.where(jnp.isnan(total) | (np.arange(v.K) >= v.counts[:, None]), -jnp.inf, total)

    def _sparse(self, n: int, context: ContextOfModel) -> list[tuple[Part, Any]]:
        """The parts that depend on variable n and in which not all sites interact, with their contexts."""
        pairs = zip(self.parts, context.parts, strict=True)
        return [(part, c) for part, c in pairs if n in part.variables and not part.mixing]

    def _shortened(self, n: int, rows):
        """The sites `rows` of variable n, or None if these are all of its sites.

        For None, parts read their tables with slices in place of a gather.
        """
        size = self.space.variables[n].size
        return None if isinstance(rows, np.ndarray) and np.array_equal(rows, np.arange(size)) else rows

    def _masked_rows(self, n: int, x, d, rows, candidates):
        """Differences d (r, K) of some sites of variable n, made 0 at current values, and -inf where nan or
        outside of the support.

        Parameters
        ----------
        d : the differences; None means that all are 0
        rows : (r,) int, the sites, counted within the variable; None means all
        candidates : (r, K) int, the values that the sites go to; None means their neighbours
        """
        values, inside, now = self.space.neighbours_of(x, n, rows, candidates)
        return masked_differences(jnp.zeros(values.shape) if d is None else d, values, inside, now)

    # ------------------------------------------------------------ one site at a time
    def carried(self, x, context: ContextOfModel) -> tuple[Any, ...]:
        return self._carried(x, self._tensors_at(x, context), context)

    def _carried(self, x, tensors: tuple[Any, ...], context: ContextOfModel) -> tuple[Any, ...]:
        """What a sweep hands from site to site: the tensors that parts read as a whole, and what each part
        computes once per state.
        """
        state = self.state(x, context, tensors)
        return tensors, self._ats(state, context)

    def row(self, n: int, site, x, carried, context: ContextOfModel, candidates=None):
        return self._carried_rows(n, site[None], x, carried, context, candidates)

    def _carried_rows(self, n: int, rows, x, carried, context: ContextOfModel, candidates=None):
        tensors, ats = carried
        total = self._sum(n, self.state(x, context, tensors), ats, context, rows, candidates)
        return self._masked_rows(n, x, total, rows, candidates)

    def all_at_once(self, n: int) -> bool:
        of_n = [part for part in self.parts if n in part.variables]
        mixing = [part for part in of_n if part.mixing]
        return bool(mixing) and all(isinstance(part, ActiveColumns) for part in mixing)

    def all_rows(self, n: int, x, carried, context: ContextOfModel):
        return self._carried_rows(n, None, x, carried, context)

    @cached_property
    def few_of(self) -> np.ndarray | None:
        gates = [part.sites for part in self.parts if isinstance(part, ActiveColumns)]
        return np.isin(np.arange(self.space.d), np.concatenate(gates)) if gates else None

    def carried_after(self, n: int, site, value, x, carried, context: ContextOfModel) -> tuple[Any, ...]:
        tensors, ats = carried
        before = self.state(x, context, tensors)
        then = dict(before.tensors)
        for part in self.parts:
            if n in part.variables:
                then.update(part.tensors_after(n, before, site[None], value[None]))
        after = before._replace(tensors=then)
        known = zip(self.parts, ats, context.parts, strict=True)
        return tuple(then.values()), tuple(
            part.at_after(n, site[None], before, after, at, c) for part, at, c in known
        )

    # ------------------------------------------------------------ sites that change together
    @property
    def constrained(self) -> bool:
        """Whether the space has sites that change only together with others."""
        return bool(self.space.constrained.any())

    def joint_differences(self, n: int, sites, values, x, context: ContextOfModel, carried=None):
        if carried is None:
            state, ats = self.state(x, context), [()] * len(self.parts)
        else:
            tensors, ats = carried
            state = self.state(x, context, tensors)
        v, total = self.space.variables[n], jnp.zeros(values.shape[:2])
        lower, upper = (jnp.asarray(bound)[sites][:, None] for bound in (v.lower, v.upper))
        # Terms need not be defined at values beyond the bounds, so such values are clipped; the differences
        # are masked afterwards.
        moves = JointMoves(sites, jnp.clip(values, lower, upper))
        for part, at, c in zip(self.parts, ats, context.parts, strict=True):
            if n in part.variables and not (part.mixing and carried is None):
                total = total + part.joint_differences(n, state, at, c, moves)
        return self.masked_jointly(n, sites, values, x, total)

    # ------------------------------------------------------------ description
    def cost(self, one_site: bool, stretches: bool = False) -> float:
        """Counted operations of one transition, see `Plan.cost`."""
        return self.plan.cost(one_site, stretches)

    def cost_of_value(self, n: int) -> float:
        return self.plan.cost_of_value(n)

    def describe(self) -> dict[str, dict[str, Any]]:
        return self.plan.describe()
