"""First-order estimates of differences: a gradient times the change that each move makes.

The estimates are Eq. 3 and 4 of Grathwohl et al. 2021. The gradient is not taken with respect to the sites
themselves. Ops that only select, compare or rearrange values (`mu[z]`, `z == 1`) are evaluated exactly at
each move. The results of these Ops become float inputs of the rest of the graph, and PyTensor differentiates
the rest with respect to the inputs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedInputError
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.differences.parts.elements import elements_per_variable, sum_in_order
from pymc_discrete.differences.parts.evaluate import Reader
from pymc_discrete.differences.parts.in_place import Pointwise
from pymc_discrete.differences.parts.part import BlockState, Part
from pymc_discrete.space.space import Space
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.derivatives import decides, is_guard, steps, users_of
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.rebuild import context_inputs, remade, rewritten
from pymc_discrete.structure.scalar_ops import is_switch
from pymc_discrete.structure.terms import Term


@dataclass
class SlopedElements(Pointwise):
    """Elements whose changes are multiplied by the gradient of the rest of the graph with respect to them.

    Attributes
    ----------
    stand_in : Variable
        The float that takes the place of the tensor in the rest of the graph. `BlockState.arrays` has the
        gradient with respect to the float as its value.
    linear : bool
        Whether the rest of the graph is linear in the elements, so that the differences are exact.
    """

    stand_in: Variable
    linear: bool

    def change(self, then, now, state: BlockState, positions):
        # Grathwohl et al. 2021, Eq. 3 and 4: the gradient times the change of the elements, the step
        slopes = Reader(self.dependence, {self.stand_in: state.arrays[self.stand_in]}, positions)
        slope = slopes.read(self.stand_in, self.elements.index)
        step = then.astype(slope.dtype) - now.astype(slope.dtype)
        # A slope of 0 times an infinite step is no change. Elsewhere the product stays a product, so that its
        # derivative with respect to a slope of 0, from which learning starts, is the step.
        change = jnp.where((slope == 0) & ~jnp.isfinite(step), 0.0, slope * step)
        if self.linear:
            return change
        # At an edge of the density's domain the slope may be infinite or nan, which could exclude neighbours
        # that are possible. With an estimated difference of 0 these neighbours can still be proposed.
        return jnp.where(jnp.isfinite(change), change, 0.0)


class Gradient(Part):
    """The first-order estimate of the differences of some terms.

    Attributes
    ----------
    blind : str
        The reason why the gradient does not approximate the change of the density when a site moves; "" if
        there is none.
    """

    exact = False
    mixing = True

    def __init__(self, terms: list[Term], dependence: Dependence, space: Space):
        super().__init__(dependence, space)
        total = pt.add(*(t.total for t in terms)) if len(terms) > 1 else terms[0].total
        self.blind = ""
        # {tensor that is evaluated exactly: the float variable that takes its place in the rest of the graph}
        self._floats: dict[Variable, Variable] = {}
        self._slopes: list[Variable] = []
        rest = self._with_floats(total)
        if not self.blind and self._floats:
            try:
                floats = list(self._floats.values())
                slopes = pytensor.grad(rest, floats, disconnected_inputs="ignore", return_disconnected="zero")
                self._slopes = rewritten(slopes)
            except (NotImplementedError, TypeError, ValueError, DisconnectedInputError) as e:
                self._note_blind(f"PyTensor cannot differentiate it ({str(e).splitlines()[0][:120]})")
        moving = Depends([*self.graph.values, *self._floats.values()])
        each: list[Any] = self._slopes or [None] * len(self._floats)
        self.pointwise = [
            SlopedElements(Term("", var, None), elements, n, dependence, space, stand_in, linear)
            for (var, stand_in), slope in zip(self._floats.items(), each, strict=True)
            for linear in [slope is None or slope not in moving]
            for n, elements in elements_per_variable(dependence.sparse(var), space).items()
        ]

    @cached_property
    def sites(self) -> np.ndarray:
        return np.unique(np.concatenate([np.zeros(0, int), *(p.elements.site for p in self.pointwise)]))

    @property
    def choosing(self) -> np.ndarray:
        """Sites that select among values (`mu[z]`, `switch(z, a, b)`) in the tensors that are evaluated
        exactly.
        """
        sites = [np.zeros(0, int)]
        for p in self.pointwise:
            for node in toposort([p.term.var]):
                moving = [self.graph.depends(i) for i in node.inputs]
                gathers = isinstance(node.op, AdvancedSubtensor | Subtensor) and any(moving[1:])
                if gathers or (is_switch(node) and moving[0]):
                    sites.append(p.elements.site)
                    break
        return np.unique(np.concatenate(sites))

    def _note_blind(self, why: str) -> None:
        """Set `blind` to a reason, unless it has one already."""
        self.blind = self.blind or why

    def _float(self, var: Variable) -> Variable:
        """The float variable that takes the place of a tensor where the gradient is taken by the tensor."""
        if var not in self._floats:
            self._floats[var] = pt.tensor(shape=self.graph.shape(var), dtype=pytensor.config.floatX)
        return self._floats[var]

    def _passes(self, node: Apply) -> bool:
        """Whether a node only selects, compares, rearranges or relabels integers by the values of sites."""
        sites = self.dependence.of(node.outputs[0])
        if sites is None:
            return False
        if is_switch(node):
            return not any(self.graph.depends(i) for i in node.inputs[1:])
        relabels = (
            isinstance(node.op, Elemwise)
            and node.outputs[0].type.dtype.startswith("int")
            and sites.shape[1] <= 1
        )
        rule = self.dependence.rule(node)
        return rule is not None and (rule.passes or relabels)

    def _with_floats(self, total: Variable) -> Variable:
        """The graph of `total`, with float variables in place of those tensors whose changes are evaluated
        exactly, and by which the gradient is taken.

        Such tensors are sites, and what Ops that only select, compare or rearrange make of sites.
        """
        exact = set(self.graph.values)
        copies: dict[Variable, Variable] = {}
        for node in toposort([total]):
            moving = [i for i in node.inputs if self.graph.depends(i)]
            if not moving:
                continue
            if all(i in exact for i in moving) and self._passes(node):
                exact.update(node.outputs)
                continue
            inputs = []
            for j, i in enumerate(node.inputs):
                if i in exact and self.graph.depends(i):
                    inputs.append(i if decides(node, j) else self._float(i))
                else:
                    inputs.append(copies.get(i, i))
            try:
                outputs = node.outputs if inputs == list(node.inputs) else remade(node, inputs)
            except (TypeError, ValueError, NotImplementedError):
                self._note_blind(f"{node.op} takes no float in place of a site")
                return total
            copies.update(zip(node.outputs, outputs, strict=True))
        rest = self._float(total) if total in exact else copies.get(total, total)
        self._check_leaves(rest)
        return rest

    def _check_leaves(self, rest: Variable) -> None:
        """Set `blind` if one of the float variables affects the density only through Ops without a useful
        derivative.

        A float variable that only decides where the density is 0 needs no derivative.
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

        for leaf in self._floats.values():
            if not reaches(leaf, set()) and not only_guards(leaf):
                hiding = next((n for n in toposort([rest]) if steps(n) or (n.inputs and decides(n, 0))), None)
                self._note_blind(f"{hiding.op if hiding else 'an Op'} hides how the density changes")

    # ------------------------------------------------------------ differences
    @cached_property
    def _slope_inputs(self) -> list[Variable]:
        """The variables outside of the block that the graphs of the gradients read."""
        return context_inputs(self._slopes, [*self.graph.values, *self._floats.values()])

    @cached_property
    def _slopes_of(self):
        return jaxify([*self.graph.values, *self._floats.values(), *self._slope_inputs], self._slopes)

    @property
    def leaves(self) -> list[Variable]:
        return [*self._slope_inputs, *context_inputs(self.tensors, self.graph.values)]

    @property
    def tensors(self) -> list[Variable]:
        return list(self._floats)

    def at(self, state: BlockState, context: Any) -> dict[Variable, Any]:
        """{float variable that stands in for a tensor: (n,), gradient of the terms by this variable}."""
        blocks = zip(self.space.blocks, self.graph.values, strict=True)
        xs = [state.arrays[value].reshape(v.shape) for (_, v), value in blocks]
        floats = [state.tensors[v].astype(pytensor.config.floatX) for v in self._floats]
        inputs = [state.arrays[i].reshape(self.graph.shape(i)) for i in self._slope_inputs]
        slopes = self._slopes_of(*xs, *floats, *inputs)
        return {f: jnp.asarray(s).reshape(-1) for f, s in zip(self._floats.values(), slopes, strict=True)}

    def differences(self, n: int, state: BlockState, at: Any, context: Any, rows=None, candidates=None):
        state = state._replace(arrays={**state.arrays, **at})
        total = sum_in_order(p.moves(state, rows, candidates) for p in self.pointwise if p.n == n)
        return self.space.by_value(state.x, n, total, rows, candidates)

    def cost(self, share: float, values: list[int]) -> float:
        moves = [v.moves for v in self.space.variables]
        return sum(20.0 * p.elements.index.size * moves[p.n] for p in self.pointwise)
