r"""Gaussian integrals over many coefficients, few of which are active, by matrices over the rows of the data.

The coefficients :math:`\beta` of the p columns of X have gates g, and are active where the gate is not 0:
there :math:`\gamma_k = g_k \beta_k` enters a linear predictor :math:`\eta = X \gamma`. The data have the log
density

.. math:: -\tfrac12 \eta^T W \eta + s^T \eta - \eta^T C a - \tfrac12 a^T A a + b^T a

with m further coefficients a, which have no gate, and a diagonal W. No array of p x p elements is made.
Instead, the mean and the covariance K (n, n) of :math:`\eta`, given the data and which coefficients are
active, are stored. When a coefficient with column x becomes active, and its :math:`\gamma_k` has the prior
variance V, the covariance changes, with :math:`P_0 = W - C A^{-1} C^T`, by

.. math:: K \to K + z z^T / (x^T P_0 z + 1 / V), \qquad z = x - K P_0 x

which costs :math:`n^2` operations, however many columns are active. If n is far above p, a p x p matrix is no
larger than the data, and a tableau of all coefficients is used instead (`Gates`, `Swept`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify

ACTIVE_AT_ONCE = 16  # the number of active columns that a step of a loop over all of them takes together


class PredictorForm(NamedTuple):
    """A log density as a quadratic form in a linear predictor eta (n,) and in all coefficients.

    With the coefficients beta (p,), which have gates, and a (m,), which have none, the linear predictor is
    eta = X (gates * beta), and the log density is, up to a constant,

        -eta' W eta / 2 + s' eta - eta' C a - a' A a / 2 + b' a - sum(D beta^2) / 2 + h' beta

    Attributes
    ----------
    gates : (p,)
    columns : (p, n), the transpose of X
    weights, slope : (n,) each, the diagonal of W, and s
    cross : (n, m), C
    own, own_slope : (m, m) and (m,), A and b, which include the prior of a
    precision, linear : (p,) each, D and h, which are the prior of beta
    """

    gates: Any
    columns: Any
    weights: Any
    slope: Any
    cross: Any
    own: Any
    own_slope: Any
    precision: Any
    linear: Any

    @property
    def active(self):
        """(p,) bool, whether each coefficient is active."""
        return self.gates != 0

    def without_others(self) -> "Rest":
        """The quadratic form in the linear predictor after the coefficients without a gate are integrated
        out.
        """
        if self.own_slope.shape[0] == 0:
            return Rest(self.weights, self.cross, self.slope, jnp.zeros(()))
        factor = jnp.linalg.cholesky(self.own)
        half = jax.scipy.linalg.solve_triangular(factor, self.cross.T, lower=True).T
        of_slope = jax.scipy.linalg.solve_triangular(factor, self.own_slope, lower=True)
        value = 0.5 * of_slope @ of_slope - jnp.log(jnp.diagonal(factor)).sum()
        value = value + 0.5 * len(of_slope) * np.log(2 * np.pi)
        return Rest(self.weights, half, self.slope - half @ of_slope, value)


class Rest(NamedTuple):
    """A quadratic form in the linear predictor, after the coefficients without a gate were integrated out.

    The matrix of the form is P0 = diag(weights) - half half', its linear term `slope`, its constant `value`.
    """

    weights: Any
    half: Any
    slope: Any
    value: Any

    def times(self, rows):
        """(c, n), the product of rows (c, n) with the matrix P0 of this quadratic form."""
        return rows * self.weights - (rows @ self.half) @ self.half.T


class Predictor(NamedTuple):
    """The normal distribution of the linear predictor, given the data and which columns are active.

    Attributes
    ----------
    covariance, mean : (n, n) and (n,)
    """

    covariance: Any
    mean: Any

    @classmethod
    def of_none(cls, form: PredictorForm) -> "Predictor":
        """The distribution of the linear predictor if no column is active: it is 0."""
        n = len(form.weights)
        return cls(jnp.zeros((n, n)), jnp.zeros(n))

    def left(self, rows, rest: Rest):
        """(c, n), the part of c columns x that the active columns do not explain: z = x - K P0 x.

        K is the covariance of the linear predictor, and P0 the matrix of its quadratic form.

        Parameters
        ----------
        rows : (c, n), the columns, one in each row
        rest : the quadratic form
        """
        return rows - rest.times(rows) @ self.covariance

    def slope(self, rest: Rest):
        """(n,), the gradient of the data's log density by the linear predictor, at the predictor's mean.

        The coefficients without a gate are integrated out of the log density.
        """
        return rest.slope - rest.times(self.mean[None])[0]


class Entering(NamedTuple):
    """What changes when c columns become active together; zeros where fewer than c columns are left.

    Attributes
    ----------
    root : (c, c), the inverse of the Cholesky factor of the pivot: of the precision matrix of the gated
        coefficients of the c columns, given that the columns that are active already are integrated out
    half, of_column : (c, n) and (c,): the covariance of the linear predictor grows by half' half, and its
        mean by of_column @ half
    gain : () nats, what the c coefficients contribute to the log of the integral once they are active, apart
        from log(2 pi) / 2 for each of them
    """

    root: Any
    half: Any
    of_column: Any
    gain: Any


def entering(index, form: PredictorForm, predictor: Predictor, rest: Rest) -> Entering:
    """What changes if the inactive columns `index` (c,) become active; the index p stands for no column."""
    inside = index < form.gates.shape[0]
    rows = elements_or(form.columns, index, 0.0)
    gates = elements_or(form.gates, index, 1.0)
    share = jnp.where(inside, elements_or(form.precision, index, 1.0) / gates**2, 1.0)
    z = predictor.left(rows, rest)
    pivot = rest.times(z) @ rows.T
    factor = jnp.linalg.cholesky((pivot + pivot.T) / 2 + jnp.diag(share))
    column = rows @ predictor.slope(rest) + jnp.where(
        inside, elements_or(form.linear, index, 0.0) / gates, 0.0
    )
    root = jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(index)), lower=True)
    of_column = root @ column
    gain = 0.5 * of_column @ of_column - jnp.log(jnp.diagonal(factor) * jnp.abs(gates)).sum()
    return Entering(root, root @ z, of_column, gain)


def with_entered(predictor: Predictor, new: Entering) -> Predictor:
    """The distribution of the linear predictor after some columns became active."""
    covariance = predictor.covariance + new.half.T @ new.half
    return Predictor(covariance, predictor.mean + new.of_column @ new.half)


def elements_or(values, index, beyond: float):
    """The elements of an array at an index; `beyond` for indices that are out of bounds."""
    return values.at[index].get(mode="fill", fill_value=beyond)


def over_active(active, step: Callable, carried: Any, really: Any = True):
    """The last `carried` of a loop over the active columns; each step takes `ACTIVE_AT_ONCE` of the columns.

    Parameters
    ----------
    active : (p,) bool
    step : (indices of the columns, padded with p; whether this is the first step; carried) -> carried
    carried : what the first step gets
    really : if true, there is at least one step, even without an active column; if false, no step is taken
    """
    p, c = active.shape[0], ACTIVE_AT_ONCE
    order = jnp.nonzero(active, size=-(-p // c) * c, fill_value=p)[0]
    count = jnp.where(really, jnp.maximum(active.sum(), 1), 0)

    def body(state):
        t, carried = state
        index = jax.lax.dynamic_slice(order, (t,), (c,))
        return t + c, step(index, t == 0, carried)

    return jax.lax.while_loop(lambda state: state[0] < count, body, (jnp.zeros_like(count), carried))[1]


def sum_of_columns(form: PredictorForm, numbers):
    """(n,), the sum of the active columns, each times its element of `numbers` (p,)."""

    def step(index, first, total):
        return total + elements_or(numbers, index, 0.0) @ elements_or(form.columns, index, 0.0)

    return over_active(form.active, step, jnp.zeros(form.columns.shape[1]))


def prior_variances(form: PredictorForm):
    """(p,), the prior variance of each active coefficient times its gate; 0 for an inactive coefficient."""
    return jnp.where(form.active, form.gates**2 / form.precision, 0.0)


def by_priors_alone(form: PredictorForm):
    """(p,) nats, the log of the integral of exp(-D beta^2 / 2 + h beta), the prior alone, over each
    coefficient with a gate.
    """
    return 0.5 * (form.linear**2 / form.precision - jnp.log(form.precision) + np.log(2 * np.pi))


def predictor_and_value(form: PredictorForm, rest: Rest) -> tuple[Predictor, Any]:
    """The distribution of the linear predictor given the data, and the log of the integral over all
    coefficients.
    """

    def step(index, first, carried):
        predictor, value = carried
        new = entering(index, form, predictor, rest)
        return with_entered(predictor, new), value + new.gain

    predictor, gains = over_active(form.active, step, (Predictor.of_none(form), jnp.zeros(())))
    # To the log of the integral an inactive coefficient adds the integral over its prior alone. An active one
    # adds log(2 pi) / 2, and its gain, which is a summand of `gains`.
    priors = jnp.where(form.active, 0.5 * np.log(2 * np.pi), by_priors_alone(form)).sum()
    return predictor, rest.value + priors + gains


class ColumnsIntegral(Op):
    """The Op of the log of an integral over all coefficients, and of the moments that its gradient needs.

    The inputs are the arrays of a quadratic form in a linear predictor and in all coefficients, in the order
    of the attributes of `PredictorForm`. The outputs are the log of the integral; mean and variance (n,)
    of the linear predictor; mean and mean square (p,) of the coefficients with a gate; and, for the
    coefficients a without a gate, the means of a (m,), of a a' (m, m), and of the linear predictor times a'
    (n, m).
    """

    __props__ = ()

    def make_node(self, *inputs):
        inputs = [pt.as_tensor(i) for i in inputs]
        form = PredictorForm(*inputs)
        (p, n), (m,) = form.columns.type.shape, form.own_slope.type.shape
        shapes = ((), (n,), (n,), (p,), (p,), (m,), (m, m), (n, m))
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=shape) for shape in shapes])

    def infer_shape(self, node, shapes):
        (p, n), (m,) = shapes[1], shapes[6]
        return [(), (n,), (n,), (p,), (p,), (m,), (m, m), (n, m)]

    def perform(self, node, inputs, outputs):
        for storage, value in zip(outputs, _on_host(*inputs), strict=True):
            storage[0] = np.asarray(value, "float64")

    def pullback(self, inputs, outputs, cotangents):
        if not all(isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError(
                "An integral over coefficients has no Hessian. Take differences of its gradient."
            )
        _, eta, variance, beta, square, a, aa, eta_a = outputs
        slopes = [-0.5 * (variance + eta**2), eta, -eta_a, -0.5 * aa, a, -0.5 * square, beta]
        return [DisconnectedType()(), DisconnectedType()(), *(cotangents[0] * slope for slope in slopes)]

    def connection_pattern(self, node):
        return [[False] * 8, [False] * 8, *([[True] * 8] * 7)]


def columns_integral(*form):
    """The log of the integral over all coefficients of a `PredictorForm`, whose attributes are the arguments.

    The result is a PyTensor scalar.
    """
    return ColumnsIntegral()(*form)[0]


@jax_funcify.register(ColumnsIntegral)
def _(op, **_):
    return value_and_moments


def value_and_moments(*inputs):
    """The log of the integral over all coefficients, and the moments that its gradient needs, in JAX.

    The inputs are the arrays of a quadratic form, in the order of the attributes of `PredictorForm`.
    """
    form = PredictorForm(*(jnp.asarray(i, float) for i in inputs))
    rest = form.without_others()
    predictor, value = predictor_and_value(form, rest)
    beta, square = moments_under_gates(form, predictor, rest)
    a, aa, eta_a = moments_of_others(form, predictor)
    return value, predictor.mean, jnp.diagonal(predictor.covariance), beta, square, a, aa, eta_a


def moments_under_gates(form: PredictorForm, predictor: Predictor, rest: Rest):
    """The posterior means and mean squares, (p,) each, of the coefficients with a gate."""
    slope, p = predictor.slope(rest), form.gates.shape[0]

    def step(index, first, carried):
        mean, square = carried
        rows = elements_or(form.columns, index, 0.0)
        gates, precision = elements_or(form.gates, index, 1.0), elements_or(form.precision, index, 1.0)
        explained = (rows * rest.times(predictor.left(rows, rest))).sum(axis=1)
        own = (gates * (rows @ slope) + elements_or(form.linear, index, 0.0)) / precision
        variance = (1 - gates**2 * explained / precision) / precision
        return mean.at[index].set(own, mode="drop"), square.at[index].set(variance + own**2, mode="drop")

    mean = jnp.where(form.active, 0.0, form.linear / form.precision)
    square = jnp.where(form.active, 0.0, 1 / form.precision + mean**2)
    return over_active(form.active, step, (mean, square)) if p else (mean, square)


def moments_of_others(form: PredictorForm, predictor: Predictor):
    """For the coefficients a without a gate, the posterior means of a (m,), of a a' (m, m), and of eta a'
    (n, m), with the linear predictor eta.
    """
    m, n = form.own_slope.shape[0], form.weights.shape[0]
    if m == 0:
        return jnp.zeros(0), jnp.zeros((0, 0)), jnp.zeros((n, 0))
    factor = jnp.linalg.cholesky(form.own)
    inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(m))
    mean = inverse @ (form.own_slope - predictor.mean @ form.cross)
    along = form.cross @ inverse
    both = predictor.covariance @ along
    square = inverse + along.T @ both + mean[:, None] * mean
    return mean, square, predictor.mean[:, None] * mean - both


def _on_host(*inputs) -> list[np.ndarray]:
    """The log of the integral over all coefficients, and the moments that its gradient needs, in NumPy, from
    the precision matrix of the active coefficients and the coefficients without a gate.

    All outputs are nan if the integral does not exist.
    """
    form = PredictorForm(*(np.asarray(i, float) for i in inputs))
    (p, n), m = form.columns.shape, len(form.own_slope)
    active = np.flatnonzero(form.active)
    gates, k = form.gates[active], len(active)
    X = np.concatenate([form.columns[active].T * gates, np.zeros((n, m))], axis=1)
    A = np.zeros((k + m, k + m))
    A[:k, :k] = (X[:, :k].T * form.weights) @ X[:, :k] + np.diag(form.precision[active])
    A[:k, k:] = X[:, :k].T @ form.cross
    A[k:, :k], A[k:, k:] = A[:k, k:].T, form.own
    b = np.concatenate([X[:, :k].T @ form.slope + form.linear[active], form.own_slope])
    shapes = ((), (n,), (n,), (p,), (p,), (m,), (m, m), (n, m))
    try:
        factor = np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        return [np.full(shape, np.nan) for shape in shapes]
    covariance = np.linalg.inv(factor)
    covariance = covariance.T @ covariance
    mean = covariance @ b
    value = 0.5 * b @ mean - np.log(np.diag(factor)).sum() + 0.5 * (k + m) * np.log(2 * np.pi)
    with np.errstate(all="ignore"):
        apart = 0.5 * (form.linear**2 / form.precision - np.log(form.precision) + np.log(2 * np.pi))
        beta = form.linear / form.precision
        square = 1 / form.precision + beta**2
    value += np.delete(apart, active).sum()
    beta[active], square[active] = mean[:k], np.diag(covariance)[:k] + mean[:k] ** 2
    eta, both = X @ mean, X @ covariance
    a = mean[k:]
    aa, eta_a = covariance[k:, k:] + a[:, None] * a, both[:, k:] + eta[:, None] * a
    return [np.array(value), eta, (both * X).sum(axis=1), beta, square, a, aa, eta_a]
