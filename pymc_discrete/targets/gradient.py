"""First-order differences: the gradient where sites enter arithmetic, contracted with what each move changes
there.

Grathwohl et al. 2021, Eq. 3 and 4. Ops that only select, compare or move carry the sites' tables; the tensors
that leave them become float leaves, PyTensor differentiates the rest of the graph there, and the change of a
leaf at each move is exact.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedInputError
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import (
    Ceil,
    Floor,
    IntDiv,
    Mod,
    RoundHalfAwayFromZero,
    RoundHalfToEven,
    Sign,
    Trunc,
)
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Argmax
from pytensor.tensor.math import Any as AnyOp
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.targets.dense import DenseTerm
from pymc_discrete.targets.dependence import Dependence
from pymc_discrete.targets.graph import context_inputs, dependent_variables, mark_dependent, remade, rewritten
from pymc_discrete.targets.jaxify import jaxify
from pymc_discrete.targets.rules import is_switch
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.tables import Pointwise, SparseTerm, rows_per_variable

# what a derivative of these says about a jump of a site has nothing to do with the jump
STEPS = (Mod, Floor, Ceil, Trunc, RoundHalfToEven, RoundHalfAwayFromZero, IntDiv, Sign)


def is_guard(node: Apply) -> bool:
    """`switch(condition, density, -inf)`: the condition only says where the density is zero."""
    return is_switch(node) and any(
        isinstance(b, Constant) and np.isneginf(b.data).all() for b in node.inputs[1:]
    )


def users_of(total: Variable) -> dict[Variable, list[tuple[Apply, int]]]:
    users: dict[Variable, list[tuple[Apply, int]]] = {}
    for node in toposort([total]):
        for j, i in enumerate(node.inputs):
            users.setdefault(i, []).append((node, j))
    return users


def decides(node: Apply, j: int) -> bool:
    """Whether input j is only compared, or chooses a branch or an element: nothing to differentiate."""
    if isinstance(node.op, Elemwise):
        return node.outputs[0].type.dtype == "bool" or (is_switch(node) and j == 0)
    return isinstance(node.op, All | AnyOp | Argmax) or (
        isinstance(node.op, AdvancedSubtensor | Subtensor) and j > 0
    )


def steps(node: Apply) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, STEPS)


class Gradient:
    """The first-order estimate of the differences of some terms.

    Attributes
    ----------
    blind : str, why the gradient does not see a site's moves, "" where it does
    """

    def __init__(self, terms: list[DenseTerm], dependence: Dependence, space: Space):
        self.dependence, self.space, self.graph = dependence, space, dependence.graph
        total = pt.add(*(t.total for t in terms)) if len(terms) > 1 else terms[0].total
        mark_dependent(total, self.graph)
        self.blind = ""
        self.leaves: dict[Variable, Variable] = {}  # tensor of tables -> the float that takes its place
        self.slopes: list[Variable] = []
        rest = self._with_float_leaves(total)
        if not self.blind and self.leaves:
            try:
                leaves = list(self.leaves.values())
                self.slopes = rewritten(
                    pytensor.grad(rest, leaves, disconnected_inputs="ignore", return_disconnected="zero")
                )
            except (NotImplementedError, TypeError, ValueError, DisconnectedInputError) as e:
                self._hide(f"PyTensor cannot differentiate it ({str(e).splitlines()[0][:120]})")
        self.pointwise: list[tuple[int, Pointwise]] = []
        moving = dependent_variables(self.slopes, [*self.graph.values, *self.leaves.values()])
        slopes = self.slopes if self.slopes else [None] * len(self.leaves)
        for (var, leaf), slope in zip(self.leaves.items(), slopes, strict=True):
            for n, rows in rows_per_variable(dependence.sparse(var), space).items():
                start, v = space.blocks[n]
                self.pointwise.append(
                    (n, Pointwise(SparseTerm("", var, None), rows, start, v, leaf, slope not in moving))
                )

    @property
    def sites(self) -> np.ndarray:
        """Numbers of the sites that it sees."""
        return np.concatenate([p.rows.site for _, p in self.pointwise])

    @property
    def choosing(self) -> np.ndarray:
        """Numbers of the sites that choose among values (`mu[z]`, `switch(z, a, b)`) before a gradient is
        taken.
        """
        found = [np.zeros(0, int)]
        for _, p in self.pointwise:
            for node in toposort([p.term.var]):
                moving = [i in self.graph.dependent for i in node.inputs]
                gathers = isinstance(node.op, AdvancedSubtensor | Subtensor) and any(moving[1:])
                if gathers or (is_switch(node) and moving[0]):
                    found.append(p.rows.site)
                    break
        return np.unique(np.concatenate(found))

    @property
    def variables(self) -> set[int]:
        return {n for n, _ in self.pointwise}

    def _hide(self, why: str) -> None:
        self.blind = self.blind or why

    def _leaf(self, var: Variable) -> Variable:
        if var not in self.leaves:
            self.leaves[var] = pt.tensor(shape=self.graph.shape(var), dtype=pytensor.config.floatX)
        return self.leaves[var]

    def _passes(self, node: Apply) -> bool:
        """Whether sites only select, compare or move here, or are one integer relabelled as another."""
        sites = self.dependence.sites(node.outputs[0])
        if sites is None:
            return False
        if is_switch(node):
            return not any(i in self.graph.dependent for i in node.inputs[1:])
        relabels = (
            isinstance(node.op, Elemwise)
            and node.outputs[0].type.dtype.startswith("int")
            and sites.shape[1] <= 1
        )
        rule = self.dependence.rule(node)
        return rule is not None and (rule.passes or relabels)

    def _with_float_leaves(self, total: Variable) -> Variable:
        tabled = set(self.graph.values)
        copies: dict[Variable, Variable] = {}
        for node in toposort([total]):
            moving = [i for i in node.inputs if i in self.graph.dependent]
            if not moving:
                continue
            if all(i in tabled for i in moving) and self._passes(node):
                tabled.update(node.outputs)
                continue
            inputs = []
            for j, i in enumerate(node.inputs):
                if i in tabled and i in self.graph.dependent:
                    inputs.append(i if decides(node, j) else self._leaf(i))
                else:
                    inputs.append(copies.get(i, i))
            try:
                made = node.outputs if inputs == list(node.inputs) else remade(node, inputs)
            except (TypeError, ValueError, NotImplementedError):
                self._hide(f"{node.op} takes no float in place of a site")
                return total
            copies.update(zip(node.outputs, made, strict=True))
        rest = self._leaf(total) if total in tabled else copies.get(total, total)
        self._look(rest)
        return rest

    def _look(self, rest: Variable) -> None:
        """Every leaf needs a way to the density along which derivatives mean something, or must only guard
        its support.
        """
        users = users_of(rest)

        def reaches(var: Variable, seen: set[Variable]) -> bool:
            if var is rest:
                return True
            if var in seen:
                return False
            seen.add(var)
            return any(
                not decides(n, j) and not steps(n) and reaches(n.outputs[0], seen)
                for n, j in users.get(var, [])
            )

        def only_guards(var: Variable) -> bool:
            for n, j in users.get(var, []):
                passed_on = (decides(n, j) or isinstance(n.op, DimShuffle)) and not is_switch(n)
                if not (is_guard(n) and j == 0) and not (passed_on and only_guards(n.outputs[0])):
                    return False
            return True

        for leaf in self.leaves.values():
            if not reaches(leaf, set()) and not only_guards(leaf):
                hiding = next((n for n in toposort([rest]) if steps(n) or (n.inputs and decides(n, 0))), None)
                self._hide(f"{hiding.op if hiding else 'an Op'} hides how the density changes")

    def prepare(self) -> list[Variable]:
        """Build the JAX function of the slopes; returns the context that it reads."""
        roots = [*self.graph.values, *self.leaves.values()]
        self._inputs = context_inputs(self.slopes, roots)
        self._slopes = jaxify([*roots, *self._inputs], self.slopes)
        return self._inputs

    def evaluate(
        self, xs: list[Any], state: dict[Variable, Any], currents: dict[Variable, Any]
    ) -> dict[Variable, Any]:
        """{float leaf: slope (n,)} at the current state."""
        floats = [currents[v].astype(pytensor.config.floatX) for v in self.leaves]
        inputs = [state[i].reshape(self.graph.shape(i)) for i in self._inputs]
        slopes = self._slopes(*xs, *floats, *inputs)
        return {
            leaf: jnp.asarray(s).reshape(-1) for leaf, s in zip(self.leaves.values(), slopes, strict=True)
        }
