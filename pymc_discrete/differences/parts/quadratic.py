r"""Exact differences of a quadratic function of a linear map, such as a Gaussian likelihood.

Let :math:`r(u) = \sum_n (a_n + b_n u_n + h_n u_n^2 / 2)` be the term as a function of the map's output u. The
move of site i to its k-th neighbour adds :math:`\delta_{ik}` times a column :math:`c_i` of the map's matrix
to u, and changes the term by exactly

.. math:: d_{ik} = \delta_{ik} \, c_i^T \nabla r(u) + \delta_{ik}^2 \, (c_i^2)^T h / 2
"""

from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_discrete.differences.parts.evaluate import JointMoves
from pymc_discrete.differences.parts.incremental import Frontier, Incremental, frontier_of
from pymc_discrete.differences.parts.part import BlockState
from pymc_discrete.space.space import Space
from pymc_discrete.structure.degree import is_separable_quadratic
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.rebuild import context_inputs, rebuild, rewritten
from pymc_discrete.structure.terms import Term


class Quadratic(Incremental):
    """A term that is a separable quadratic function of one vector-valued linear map.

    Each site changes one element of the tensor to which the map is applied. The differences cost two products
    with the matrix of the map.
    """

    @staticmethod
    def holds(total: Variable, frontier: list[Frontier], dependence: Dependence) -> bool:
        """Whether a term with the given frontier is a quadratic function of one linear map."""
        if len(frontier) != 1:
            return False
        f = frontier[0]
        one_each = all(r.index.shape[1] == 1 and r.mask.all() for r in f.elements.values())
        if getattr(f.update, "columns", None) is None or not one_each:
            return False
        return is_separable_quadratic(total, f.var, dependence.graph.size)

    @cached_property
    def _u(self) -> Variable:
        """A float variable in place of the linear map's output, since with respect to integers the gradient
        would be 0.
        """
        return pt.tensor(shape=self.frontier[0].var.type.shape, dtype=pytensor.config.floatX)

    @cached_property
    def _derivatives(self) -> list[Variable]:
        """The gradient of the term with respect to the linear map's output, and the Hessian's diagonal."""
        (total,) = rebuild([self.total], {self.frontier[0].var: self._u})
        slope = pytensor.grad(total, self._u)
        return rewritten([slope, pytensor.grad(slope.sum(), self._u, disconnected_inputs="ignore")])

    @cached_property
    def _inputs(self) -> list[Variable]:
        return context_inputs(self._derivatives, [self._u])

    @cached_property
    def _slope(self):
        return jaxify([self._u, *self._inputs], self._derivatives[:1])

    @cached_property
    def _curvature(self):
        return jaxify([self._u, *self._inputs], self._derivatives[1:])

    def _columns(self, n: int, arrays: dict[Variable, Any]):
        """(sites, |u|), the column of the linear map's matrix for each site of variable n.

        A site changes one element of the map's input. The column is the change of the map's output u when
        this element grows by 1.
        """
        f = self.frontier[0]
        columns = f.update.columns(self._operands(f, arrays))
        index = f.elements[n].index[:, 0]
        in_order = len(columns) == len(index) and (index == np.arange(len(index))).all()
        return columns if in_order else columns[index]

    def context(self, arrays: dict[Variable, Any]) -> dict[int, Any]:
        """{variable number: (sites,)}, half of the term's second derivative along each site's column.

        The column of a site is that of the linear map's matrix. The derivative is the same at every x.
        """
        h = self._curvatures(arrays)
        return {n: 0.5 * self._columns(n, arrays) ** 2 @ h for n in self.frontier[0].elements}

    def _curvatures(self, arrays: dict[Variable, Any]):
        """(|u|,), the second derivative of the term by each element of the map's output; equal at every x."""
        shape = self.graph.shape(self.frontier[0].var)
        h = jnp.asarray(self._curvature(jnp.zeros(shape), *self._input_values(arrays))[0])
        return jnp.broadcast_to(h, shape).reshape(-1)

    def at(self, state: BlockState, context: Any) -> Any:
        return ()

    def _moves(self, n: int, state: BlockState, at: Any, context: dict[int, Any], rows, candidates):
        f, inputs = self.frontier[0], self._input_values(state.arrays)
        delta = self._source_change(f, n, state, rows, candidates)[:, 0]
        columns, half_curvature = self._columns(n, state.arrays), context[n]
        if rows is not None:
            columns, half_curvature = jnp.asarray(columns)[rows], half_curvature[rows]
        u = state.tensors[f.var].astype(self._u.type.dtype)
        slope = jnp.asarray(self._slope(u, *inputs)[0]).reshape(-1)
        return delta * (columns @ slope)[:, None] + delta**2 * half_curvature[:, None]

    def _of_joint_moves(self, n: int, state: BlockState, at: Any, moves: JointMoves):
        f, inputs = self.frontier[0], self._input_values(state.arrays)
        columns = jnp.asarray(self._columns(n, state.arrays))[moves.sites]
        delta = self._joint_change(f, n, state, moves).reshape(*moves.sites.shape, -1)
        # du (r, C, |u|) is the change of the map's output by all sites of a row together
        du = jnp.einsum("rmc,rmu->rcu", delta, columns)
        u = state.tensors[f.var].astype(self._u.type.dtype)
        slope = jnp.asarray(self._slope(u, *inputs)[0]).reshape(-1)
        return du @ slope + 0.5 * du**2 @ self._curvatures(state.arrays)

    @cached_property
    def cost_of_all(self) -> float:
        return 2.0 * sum(self.space.variables[n].size for n in self.variables) * self.row_elements


def incremental(term: Term, dependence: Dependence, space: Space) -> Incremental:
    """The part with exact differences for a term that joins many sites: `Quadratic` if possible, or
    `Incremental`.
    """
    total = term.total
    frontier = frontier_of(total, dependence, space)
    kind = Quadratic if Quadratic.holds(total, frontier, dependence) else Incremental
    return kind(term, total, frontier, dependence, space)
