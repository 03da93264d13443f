r"""Exact differences for many columns whose coefficients are integrated out, of which few are active.

Where each of p coefficients has a gate :math:`g_k`, a function of one site, differences follow from the
diagonal :math:`T_{kk}` and the column :math:`t_k` of the tableau that the part `Swept` keeps: the precision
matrix and the linear term of all coefficients, swept on the active ones. This part keeps the diagonal and the
column only. All other elements of the tableau follow from the covariance K (n, n) of the linear predictor,
whose quadratic form has the matrix :math:`P_0` (`integrals.active`). A move needs one row of the tableau, and
computes it from the columns x of the design matrix:

.. math:: T_{jk} = f_k x_k^T P_0 z_j, \qquad z_j = x_j - K P_0 x_j

where :math:`f_k` is the prior variance :math:`g_k^2 / D_k` of an active coefficient k, with :math:`D_k` the
prior precision before the gate multiplies the coefficient, and 1 for an inactive one; for an active j the row
is multiplied by :math:`f_j`. So a move costs n (p + n) operations and stores no p x p array, and any number
of coefficients may become active. In each new context the k active columns are entered several at a time,
which costs k n (p + n) operations.

Rounding errors grow with the ratio of prior to posterior variances. After each move, the equations of the
coefficient whose gate has changed are checked (`_is_wrong`). If they do not hold, K, the mean of the linear
predictor, the diagonal and the column are computed anew.
"""

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from pytensor.graph.basic import Constant, Variable

from pymc_discrete.differences.parts.part import BlockState
from pymc_discrete.differences.parts.swept import GatedPrior, OfGates, Tableau
from pymc_discrete.integrals.active import (
    Predictor,
    PredictorForm,
    Rest,
    elements_or,
    entering,
    over_active,
    prior_variances,
    with_entered,
)
from pymc_discrete.space.space import Space
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.logp_graph import Integral
from pymc_discrete.structure.rebuild import context_inputs

# the largest rounding error that is tolerated: of variances, relative; of means, in standard deviations
LARGEST_ERROR = 1e-8


class ColumnsContext(NamedTuple):
    """What `ActiveColumns` computes once per context, since it does not depend on the gates.

    Attributes
    ----------
    form : PredictorForm, the log density as a quadratic form in the linear predictor, with all gates 0
    rest : Rest, the same form after the coefficients without a gate are integrated out
    diagonal, column : (p,) each, the diagonal and the column of the tableau where no coefficient is active
    """

    form: PredictorForm
    rest: Rest
    diagonal: Any
    column: Any

    @property
    def prior(self) -> GatedPrior:
        return GatedPrior(self.form.precision, self.form.linear)


class SweptColumns(NamedTuple):
    """What `ActiveColumns` keeps of a state, and updates when coefficients become active or inactive.

    Attributes
    ----------
    predictor : Predictor, the mean and covariance of the linear predictor with these coefficients active
    diagonal, column : (p,) each, the diagonal and the column of the tableau swept on the active coefficients
    """

    predictor: Predictor
    diagonal: Any
    column: Any


class ActiveColumns(OfGates):
    """The integral over coefficients of many columns, each of which has a gate.

    Parameters
    ----------
    integral : Integral, over coefficients that each multiply one column of a design matrix
    """

    def __init__(self, integral: Integral, dependence: Dependence, space: Space):
        assert integral.columns is not None
        self.columns = integral.columns
        super().__init__(integral, self.columns.gates, dependence, space)

    @staticmethod
    def holds(integral: Integral, dependence: Dependence) -> bool:
        """Whether the block enters an integral through gates only, each of which depends on one site."""
        of = integral.columns
        return of is not None and OfGates.is_gated(of.gates, of.form[1:], dependence)

    @cached_property
    def leaves(self) -> list[Variable]:
        read = [v for v in self.columns.form[1:] if not isinstance(v, Constant)]
        return [*read, *context_inputs([self.of_gates], self.graph.values)]

    # ------------------------------------------------------------ what is kept per context and per state
    def context(self, arrays: dict[Variable, Any]) -> ColumnsContext:
        form = PredictorForm(
            jnp.zeros(self.p),
            *(
                jnp.asarray(v.data if isinstance(v, Constant) else arrays[v], float).reshape(
                    self.graph.shape(v)
                )
                for v in self.columns.form[1:]
            ),
        )
        rest = form.without_others()
        # The diagonal of X' P0 X, with X the design matrix and P0 the matrix of the quadratic form in the
        # linear predictor, written such that no array of all squares of X, which is as large as the data, is
        # stored.
        diagonal = (form.columns**2 * rest.weights).sum(axis=1) - ((form.columns @ rest.half) ** 2).sum(
            axis=1
        )
        return ColumnsContext(form, rest, diagonal, form.columns @ rest.slope)

    def at(self, state: BlockState, context: ColumnsContext) -> SweptColumns:
        none = SweptColumns(Predictor.of_none(context.form), context.diagonal, context.column)
        return self._made_anew(none, self._gates(state), context, True)

    def _made_anew(self, at: SweptColumns, gates, context: ColumnsContext, really) -> SweptColumns:
        """The `SweptColumns` with all coefficients active whose gate (p,) is not 0, computed anew.

        The computation starts with no coefficient active, and makes several active at a time. If `really` is
        False, `at` is returned as it is.
        """
        form = context.form._replace(gates=gates)
        none = SweptColumns(Predictor.of_none(form), context.diagonal, context.column)

        def step(index, first, carried: tuple[SweptColumns, Any]) -> tuple[SweptColumns, Any]:
            at, entered = carried
            at = jax.tree.map(lambda old, new: jnp.where(first, new, old), at, none)
            new = entering(index, form, at.predictor, context.rest)
            scale = jnp.where(entered, prior_variances(form), 1.0)
            # the rows of the tableau for coefficients that become active, times their inverse pivot's root
            rows = (form.columns @ context.rest.times(new.half).T).T * scale
            diagonal = at.diagonal - (rows**2).sum(axis=0)
            column = at.column - new.of_column @ rows
            diagonal = diagonal.at[index].set(-(new.root**2).sum(axis=0), mode="drop")
            column = column.at[index].set(new.of_column @ new.root, mode="drop")
            after = SweptColumns(with_entered(at.predictor, new), diagonal, column)
            return after, entered.at[index].set(True, mode="drop")

        return over_active(gates != 0, step, (at, jnp.zeros(self.p, bool)), really)[0]

    def at_after(
        self,
        n: int,
        site: Any,
        before: BlockState,
        after: BlockState,
        at: SweptColumns,
        context: ColumnsContext,
    ) -> SweptColumns:
        if n not in self.elements:
            return at
        index = jnp.asarray(self.elements[n].index)[site[0], 0]
        mask = jnp.asarray(self.elements[n].mask)[site[0], 0]
        gates, then = self._gates(before), self._gates(after)
        moves = mask & (gates[index] != then[index])
        # A coefficient whose gate changes goes through two stages. Stage 0 makes it inactive, and is skipped
        # if it is inactive already. Stage 1 makes it active with its new gate, and is skipped if this is 0.
        first = jnp.where(gates[index] != 0, 0, 1)
        last = jnp.where(then[index] != 0, 2, 1)
        stage, end = jnp.where(moves, first, 0), jnp.where(moves, last, 0)

        def step(carried):
            stage, at = carried
            return stage + 1, self._swept(at, index, jnp.where(stage == 0, gates, then), stage == 0, context)

        _, at = jax.lax.while_loop(lambda carried: carried[0] < end, step, (stage, at))
        wrong = moves & self._is_wrong(at, then, index, context)
        return self._made_anew(at, then, context, wrong)

    def _swept(self, at: SweptColumns, j, gates, leaves, context: ColumnsContext) -> SweptColumns:
        """The `SweptColumns` after coefficient j has become active, or inactive if `leaves` is true.

        Parameters
        ----------
        gates : (p,), the gates of all coefficients while j is active, so that the gate of j is not 0
        """
        form = context.form._replace(gates=gates)
        others = prior_variances(form)
        own, gate = others[j], gates[j]
        share = form.linear[j] / gate
        z = at.predictor.left(form.columns[j][None], context.rest)[0] * jnp.where(leaves, own, 1.0)
        row = (form.columns @ context.rest.times(z[None])[0]) * jnp.where(gates != 0, others, 1.0)
        pivot = at.diagonal[j] + jnp.where(leaves, 0.0, 1 / own)
        value = at.column[j] + jnp.where(leaves, 0.0, share)
        diagonal = (at.diagonal - row**2 / pivot).at[j].set(-1 / pivot - jnp.where(leaves, 1 / own, 0.0))
        column = (
            (at.column - row * (value / pivot))
            .at[j]
            .set(jnp.where(leaves, -value / pivot - share, value / pivot))
        )
        covariance = at.predictor.covariance + z[:, None] * (z / pivot)[None, :]
        mean = at.predictor.mean + z * (value / pivot)
        return SweptColumns(Predictor(covariance, mean), diagonal, column)

    def _is_wrong(self, at: SweptColumns, gates, j, context: ColumnsContext):
        """() bool, whether rounding has made what is kept for coefficient j disagree with its equations.

        Let K and m be the covariance and the mean of the linear predictor, P0 the matrix of its quadratic
        form, u the slope of its log density at m, and z_j = x_j - K P0 x_j. With V the prior variances and
        h / g the linear terms of the active coefficients S, the equations are K P0 x_j = X_S V X_S' P0 z_j,
        m = X_S V (X_S' u + h / g), and the definitions of elements j of the diagonal by z_j and of the column
        by u.
        """
        form, rest = context.form._replace(gates=gates), context.rest
        others, x = prior_variances(form), form.columns[j]
        on, own = gates[j] != 0, others[j]
        safe = jnp.where(on, own, 1.0)
        explained = rest.times(x[None])[0] @ at.predictor.covariance
        seen, slope = rest.times((x - explained)[None])[0], at.predictor.slope(rest)

        def step(index, first, carried):
            of_z, of_mean = carried
            rows, V = elements_or(form.columns, index, 0.0), elements_or(others, index, 0.0)
            linear = elements_or(form.linear, index, 0.0) / elements_or(gates, index, 1.0)
            return of_z + (V * (rows @ seen)) @ rows, of_mean + (V * (rows @ slope + linear)) @ rows

        zeros = jnp.zeros_like(x)
        of_z, of_mean = over_active(gates != 0, step, (zeros, zeros))
        norm = lambda v: jnp.sqrt(jnp.maximum(v @ rest.times(v[None])[0], 0.0))
        of_z = norm(of_z - explained) / norm(x)
        of_mean = norm(of_mean - at.predictor.mean) / (1 + norm(at.predictor.mean))
        tracked, scale = at.diagonal[j], at.diagonal[j] + form.precision[j]
        of_diagonal = jnp.where(on, own * (x @ seen) - tracked / safe - 1, (x @ seen - tracked) / scale)
        gate = jnp.where(on, gates[j], 1.0)
        residual = x @ slope + jnp.where(on, form.linear[j] / gate, 0.0) - at.column[j] / safe
        residual = jnp.where(on, residual, x @ slope - at.column[j])
        of_column = residual * jnp.where(on, jnp.sqrt(-tracked), 1 / jnp.sqrt(scale))
        errors = jnp.abs(jnp.array([of_z, of_mean, of_diagonal, of_column]))
        negative = jnp.where(gates != 0, -at.diagonal, at.diagonal) < -LARGEST_ERROR * form.precision
        return negative.any() | ~(errors <= LARGEST_ERROR).all()  # `<=` is false for an error that is nan

    def _own(self, at: SweptColumns, index) -> Tableau:
        return Tableau(at.diagonal[index][..., None], at.column[index])

    # ------------------------------------------------------------ cost
    @property
    def cost_of_all(self) -> float:
        """Counted operations of all differences, if the active coefficients are a tenth as many as the
        rows of the design matrix.
        """
        p, n = self.graph.shape(self.columns.form[1])
        return float(n) * (n + p) * (1 + n / 10) + 16.0 * p
