r"""Exact differences where coefficients that the sites gate are integrated out, from a swept tableau.

With effective coefficients :math:`\gamma_k = g_k \beta_k`, where the gate :math:`g_k` is a function of one
site, the data's part of the log density is :math:`-\gamma^T Q \gamma / 2 + q^T \gamma`, and the prior's
:math:`-D_k \beta_k^2 / 2 + h_k \beta_k`. A coefficient is active where its gate is not 0. The matrix
:math:`A = Q + \mathrm{diag}(D_k / g_k^2)` and the column :math:`b = q + h / g` are kept *swept* on the active
coefficients S, as a *tableau* T, t with inactive coefficients R (Dempster 1969; Goodnight 1979, A tutorial on
the sweep operator):

.. math:: T_{SS} = -A_{SS}^{-1}, \quad T_{RS} = A_{RS} A_{SS}^{-1}, \quad
    T_{RR} = Q_{RR} - A_{RS} A_{SS}^{-1} A_{SR}, \quad t_S = A_{SS}^{-1} b_S, \quad
    t_R = q_R - A_{RS} A_{SS}^{-1} b_S

For an inactive coefficient k, :math:`T_{kk}` and :math:`t_k` are the precision and the linear term that the
data give it, with all active coefficients integrated out. Activating the coefficient changes the log density
by

.. math:: \frac{t^2}{2 d} - \frac{\log d}{2} - \frac{\log g_k^2}{2} - \frac{h_k^2}{2 D_k}
    + \frac{\log D_k}{2}, \qquad d = T_{kk} + D_k / g_k^2, \quad t = t_k + h_k / g_k

A coefficient that is active already is first unswept, in a copy of its own element of the tableau. For a site
that gates several coefficients, a square of the tableau takes the place of the element. A move of one site
costs a sweep, p^2 operations. Rounding errors of sweeps add up where columns of A are nearly the same: after
each move, two equations of the coefficients whose gates have changed are checked, which costs p operations,
and the tableau is computed anew if they do not hold.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Constant, Variable

from pymc_discrete.differences.parts.elements import SiteElements, after_moves, elements_per_variable
from pymc_discrete.differences.parts.part import BlockState, Part
from pymc_discrete.space.space import Space
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.logp_graph import Integral
from pymc_discrete.structure.rebuild import context_inputs

# the largest error of a tableau that is tolerated: of a variance, relative; of a mean, in standard deviations
TABLEAU_ERROR = 1e-8


class GatedPrior(NamedTuple):
    """The log prior -D_k b_k^2 / 2 + h_k b_k of each coefficient b_k with a gate.

    Attributes
    ----------
    precision, linear : (p,), D and h; for coefficients without a gate any numbers
    """

    precision: Any
    linear: Any

    def of(self, index) -> "GatedPrior":
        """The prior of the coefficients at some indices."""
        return GatedPrior(self.precision[index], self.linear[index])


class Tableau(NamedTuple):
    """A precision matrix and a linear term of coefficients (the column), swept on the active ones.

    Attributes
    ----------
    matrix : (p, p)
    column : (p,)
    """

    matrix: Any
    column: Any

    def swept(self, k, sign) -> "Tableau":
        """The tableau swept (sign 1) or unswept (sign -1) on coefficient k; unchanged for sign 0."""
        row, pivot = self.matrix[k], self.matrix[k, k]
        ratio = jnp.where(sign == 0, 0.0, row / jnp.where(sign == 0, 1.0, pivot))
        edge = jnp.where(sign == 0, row, sign * ratio)
        edge = edge.at[k].set(jnp.where(sign == 0, pivot, -1.0 / pivot))
        matrix = self.matrix - ratio[:, None] * row[None, :]
        matrix = matrix.at[k, :].set(edge).at[:, k].set(edge)
        column = self.column - ratio * self.column[k]
        return Tableau(matrix, column.at[k].set(jnp.where(sign == 0, 1.0, sign / pivot) * self.column[k]))

    def activated(self, k, gate, prior: GatedPrior) -> "Tableau":
        """The tableau after inactive coefficient k becomes active; unchanged where its gate is 0."""
        diagonal, column = prior_shares(gate, prior)
        more = Tableau(self.matrix.at[k, k].add(diagonal), self.column.at[k].add(column))
        return more.swept(k, jnp.where(gate != 0, 1.0, 0.0))

    def deactivated(self, k, gate, prior: GatedPrior) -> "Tableau":
        """The tableau with coefficient k made inactive; unchanged if its gate is 0, since it is already
        inactive.
        """
        diagonal, column = prior_shares(gate, prior)
        less = self.swept(k, jnp.where(gate != 0, -1.0, 0.0))
        return Tableau(less.matrix.at[k, k].add(-diagonal), less.column.at[k].add(-column))


def prior_shares(gate, prior: GatedPrior) -> tuple[Any, Any]:
    """What the prior of an active coefficient adds to the diagonal and to the column of a tableau; 0 for an
    inactive one.
    """
    safe = jnp.where(gate != 0, gate, 1.0)
    return jnp.where(gate != 0, prior.precision / safe**2, 0.0), jnp.where(
        gate != 0, prior.linear / safe, 0.0
    )


def inactive(tableau: Tableau, gates, prior: GatedPrior) -> Tableau:
    """The part (m, m) of the tableau for the coefficients of one site, after making them inactive, given
    their gates (m,).
    """
    for j in range(gates.shape[0]):
        tableau = tableau.deactivated(j, gates[j], prior.of(j))
    return tableau


def gain(tableau: Tableau, gates, prior: GatedPrior):
    """() nats, the log density with the gates (m,) of a site less the log density with all of them 0.

    Parameters
    ----------
    tableau : the part (m, m) of the tableau for the coefficients of the site, all inactive, see `inactive`
    """
    total = jnp.zeros(())
    for j in range(gates.shape[0]):
        active, one = gates[j] != 0, prior.of(j)
        diagonal, column = prior_shares(gates[j], one)
        # the precision that the data give a coefficient is clipped at 0, since rounding may make it negative
        d, t = diagonal + jnp.maximum(tableau.matrix[j, j], 0.0), column + tableau.column[j]
        safe, d = jnp.where(active, gates[j], 1.0), jnp.where(active, d, 1.0)
        data = 0.5 * (t**2 / d - jnp.log(d * safe**2))
        prior_alone = 0.5 * (one.linear**2 / one.precision - jnp.log(one.precision))
        total = total + jnp.where(active, data - prior_alone, 0.0)
        if j + 1 < gates.shape[0]:
            tableau = tableau.activated(j, gates[j], one)
    return total


class SweptContext(NamedTuple):
    """What `Swept` computes once per context, since it does not depend on the gates.

    Attributes
    ----------
    prior : GatedPrior, the prior of the coefficients with a gate
    unswept : Tableau, without the priors of the coefficients with a gate
    tableau : Tableau, `unswept` after it is swept on the coefficients without a gate
    """

    prior: GatedPrior
    unswept: Tableau
    tableau: Tableau


class OfGates(Part):
    """The base class of parts that integrate over coefficients with gates, in a tableau or without one.

    Parameters
    ----------
    integral : Integral, over the coefficients that the gates multiply, and possibly others
    gates : (p,), a variable of the graph, each element of which depends on one site at most

    Attributes
    ----------
    elements : {variable number: the gates that depend on each of its sites}
    p : the number of gates
    """

    mixing = True

    def __init__(self, integral: Integral, gates: Variable, dependence: Dependence, space: Space):
        super().__init__(dependence, space)
        self.integral, self.of_gates, self.p = integral, gates, self.graph.size(gates)
        self.elements: dict[int, SiteElements] = elements_per_variable(
            dependence.sparse(gates), space, pad=True
        )

    @staticmethod
    def is_gated(gates: Variable, others: Sequence[Variable], dependence: Dependence) -> bool:
        """Whether the block enters an integral through gates alone, each of which depends on one site.

        Parameters
        ----------
        gates : the gates
        others : all other variables that the integral is computed from
        """
        if not dependence.graph.depends(gates):
            return False
        sites = dependence.of(gates)
        return (
            sites is not None and sites.shape[1] <= 1 and not any(dependence.graph.depends(v) for v in others)
        )

    # ------------------------------------------------------------ sites and variables that enter the integral
    @cached_property
    def sites(self) -> np.ndarray:
        return np.unique(np.concatenate([e.site[e.mask.any(axis=1)] for e in self.elements.values()]))

    @property
    def tensors(self) -> list[Variable]:
        return [self.of_gates]

    def _gates(self, state: BlockState):
        """(p,) float, the values of all gates at a state."""
        return state.tensors[self.of_gates].astype(float)

    def tensors_after(self, n: int, state: BlockState, site: Any, value: Any) -> dict[Variable, Any]:
        if n not in self.elements:
            return {}
        then = self._gates_after(n, state, site, value[:, None])[0, :, 0]
        elements = self.elements[n]
        where = jnp.asarray(np.where(elements.mask, elements.index, self.p))[site[0]]
        gates = state.tensors[self.of_gates]
        return {self.of_gates: gates.at[where].set(then.astype(gates.dtype), mode="drop")}

    # ------------------------------------------------------------ differences
    def _gates_after(self, n: int, state: BlockState, rows, candidates=None):
        """(r, m, K), the gates that depend on each site, at each value of the site."""
        return after_moves(
            self.of_gates, self.elements[n], n, state, self.dependence, self.space, rows, candidates
        )

    def differences(
        self, n: int, state: BlockState, at: Any, context: Any, rows: Any = None, candidates: Any = None
    ):
        elements = self.elements[n]
        index, mask = ((a if rows is None else jnp.asarray(a)[rows]) for a in (elements.index, elements.mask))
        now = jnp.where(mask, self._gates(state)[index], 0.0)
        then = jnp.where(mask[..., None], self._gates_after(n, state, rows, candidates).astype(float), 0.0)
        own = self._own(at, index)
        prior = context.prior.of(index)
        alone = jax.vmap(inactive)(own, now, prior)
        before = jax.vmap(gain)(alone, now, prior)
        after = jax.vmap(jax.vmap(gain, (None, 1, None)))(alone, then, prior)
        return self.space.by_value(state.x, n, after - before[:, None], rows, candidates)

    @abstractmethod
    def _own(self, at: Any, index) -> Tableau:
        """The elements (r, m, m) of the matrix and (r, m) of the column of the tableau for the coefficients
        that each of r sites gates.

        Parameters
        ----------
        at : what the part keeps of a state
        index : (r, m) int, the coefficients of each site
        """

    # ------------------------------------------------------------ cost
    def cost(self, share: float, values: list[int]) -> float:
        return self.cost_of_all

    @property
    @abstractmethod
    def cost_of_all(self) -> float:
        """Counted operations of all differences."""

    def cost_of_value(self, n: int) -> float:
        if n not in self.elements:
            return 0.0
        return self.space.variables[n].size * float(self.elements[n].index.shape[1]) ** 3


class Swept(OfGates):
    """An integral over coefficients with gates, by a tableau that is kept swept on the active coefficients.

    Parameters
    ----------
    integral : Integral, over coefficients some of which have a gate
    """

    def __init__(self, integral: Integral, dependence: Dependence, space: Space):
        assert integral.gates is not None
        self.gates = integral.gates
        super().__init__(integral, self.gates.gates, dependence, space)

    @staticmethod
    def holds(integral: Integral, dependence: Dependence) -> bool:
        """Whether the block enters an integral through gates only, each of which depends on one site."""
        gates = integral.gates
        return gates is not None and OfGates.is_gated(gates.gates, gates.variables[1:], dependence)

    @cached_property
    def leaves(self) -> list[Variable]:
        read = [v for v in self.gates.variables[1:] if not isinstance(v, Constant)]
        return [*read, *context_inputs([self.of_gates], self.graph.values)]

    # ------------------------------------------------------------ the tableau
    def context(self, arrays: dict[Variable, Any]) -> SweptContext:
        p, gated = self.p, self.gates.gated
        matrix, column, precision, linear = (
            jnp.asarray(v.data if isinstance(v, Constant) else arrays[v], float).reshape(shape)
            for v, shape in zip(self.gates.variables[1:], [(p, p), (p,)] * 2, strict=True)
        )
        together = ~gated[:, None] & ~gated[None, :]
        matrix = matrix + jnp.where(together, precision, 0.0)
        column = column + jnp.where(gated, 0.0, linear)
        prior = GatedPrior(jnp.where(gated, jnp.diagonal(precision), 1.0), jnp.where(gated, linear, 0.0))
        unswept = tableau = Tableau(matrix, column)
        always = np.flatnonzero(~gated)
        if len(always):
            tableau = jax.lax.fori_loop(
                0, len(always), lambda t, tableau: tableau.swept(jnp.asarray(always)[t], 1.0), tableau
            )
        return SweptContext(prior, unswept, tableau)

    def at(self, state: BlockState, context: SweptContext) -> Tableau:
        return self._made_anew(context.tableau, self._gates(state), context, True)

    def _made_anew(self, tableau: Tableau, gates, context: SweptContext, really) -> Tableau:
        """A tableau swept on all coefficients whose gate (p,) is not 0; `tableau` itself unless `really`.

        It is computed by a loop that has no iterations unless `really`. A conditional would be simpler, but
        XLA would copy the tableau for it.
        """

        def next_active(carried: tuple[Any, Any, Tableau]) -> tuple[Any, Any, Tableau]:
            begun, left, tableau = carried
            tableau = jax.tree.map(lambda old, new: jnp.where(begun, old, new), tableau, context.tableau)
            k = jnp.argmax(left)
            gate = jnp.where(left[k], gates[k], 0.0)
            return jnp.array(True), left.at[k].set(False), tableau.activated(k, gate, context.prior.of(k))

        left = jnp.asarray(self.gates.gated) & (gates != 0) & really
        begun = ~jnp.asarray(really)
        return jax.lax.while_loop(
            lambda carried: ~carried[0] | carried[1].any(), next_active, (begun, left, tableau)
        )[2]

    def at_after(
        self, n: int, site: Any, before: BlockState, after: BlockState, at: Tableau, context: SweptContext
    ) -> Tableau:
        if n not in self.elements:
            return at
        now, then = self._gates(before), self._gates(after)
        index = jnp.asarray(self.elements[n].index)[site[0]]
        # Sweeps leave out padding, and coefficients whose gates the move does not change.
        moves = jnp.asarray(self.elements[n].mask)[site[0]] & (now[index] != then[index])
        for j in range(index.shape[0]):
            k = index[j]
            at = at.deactivated(k, jnp.where(moves[j], now[k], 0.0), context.prior.of(k))
        for j in range(index.shape[0]):
            k = index[j]
            at = at.activated(k, jnp.where(moves[j], then[k], 0.0), context.prior.of(k))
        return self._made_anew(at, then, context, self._is_wrong(at, then, index, context))

    def _is_wrong(self, at: Tableau, gates, index, context: SweptContext):
        """() bool, whether rounding has made a tableau disagree with the equations of coefficients `index`
        (m,).

        Let A and b be the matrix and the column before they are swept on the active coefficients S, and T and
        t after it. The equations of an active coefficient k are row k of A_SS (A_SS^-1) = 1 and of A_SS t_S =
        b_S. The equations of an inactive one are the definitions of T_kk and t_k by T_kS and t_S, and T_kk is
        not negative.
        """
        active = (gates != 0) | ~jnp.asarray(self.gates.gated)
        diagonal, linear = prior_shares(jnp.where(self.gates.gated, gates, 0.0), context.prior)
        precision = context.prior.precision
        negative = ~active & (jnp.diagonal(at.matrix) < -TABLEAU_ERROR * precision)
        row = context.unswept.matrix[index].at[jnp.arange(len(index)), index].add(diagonal[index])
        of_mean = context.unswept.column[index] + linear[index] - row @ jnp.where(active, at.column, 0.0)
        of_variance = -(row * jnp.where(active, at.matrix[index], 0.0)).sum(axis=1)
        own, on = at.matrix[index, index], active[index]
        scale = jnp.where(on, -1 / own, own + precision[index])
        of_mean = (of_mean - jnp.where(on, 0.0, at.column[index])) / jnp.sqrt(scale)
        of_variance = jnp.where(on, of_variance - 1, (row[:, index].diagonal() + of_variance - own) / scale)
        errors = jnp.abs(jnp.concatenate([of_mean, of_variance]))
        return negative.any() | ~(errors <= TABLEAU_ERROR).all()  # `<=` is false for an error that is nan

    def _own(self, at: Tableau, index) -> Tableau:
        return Tableau(at.matrix[index[:, :, None], index[:, None, :]], at.column[index])

    # ------------------------------------------------------------ cost
    @property
    def cost_of_all(self) -> float:
        """Counted operations of all differences, if half of the coefficients are active."""
        each = sum(
            self.space.variables[n].size * self.space.variables[n].moves * e.index.shape[1] ** 3
            for n, e in self.elements.items()
        )
        return float(self.p) ** 3 + each
