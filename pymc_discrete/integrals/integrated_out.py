"""Variables that are integrated out while others move: a check that their integral exists, and
their draws."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from pymc.exceptions import SamplingError
from pytensor.graph.basic import Variable

from pymc_discrete.integrals.active import (
    PredictorForm,
    elements_or,
    over_active,
    predictor_and_value,
    prior_variances,
    sum_of_columns,
)
from pymc_discrete.integrals.families import family
from pymc_discrete.integrals.gaussian_integral import gaussian_draw
from pymc_discrete.runtime.jax_settings import SELDOM, jitted
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.logp_graph import Columns, Conjugate, Integral


class IntegratedOut(Protocol):
    """Variables that are integrated out of a log density while others move, given all else."""

    def check(self, values: Sequence[Any]) -> None:
        """Refuse an integral that does not exist, or would not exist if gates had other values.

        Raises
        ------
        pymc.exceptions.SamplingError
        """

    def draw(self, key: Any, values: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """A draw {name: array} of the values of the variables, and its log density () in nats.

        Parameters
        ----------
        values : the values of the inputs of the graphs by which the distribution of the variables is known
        """


class ConjugateParameters:
    """Parameters that were each integrated out of a log density in closed form, and their draws.

    Parameters
    ----------
    conjugate : list of Conjugate, each parameter after those that its distribution depends on
    inputs : the inputs of the graphs of their posteriors
    """

    def __init__(self, conjugate: Sequence[Conjugate], inputs: Sequence[Variable]):
        self._conjugate = list(conjugate)
        self._posteriors = [jaxify([*inputs, *c.given], c.posterior) for c in conjugate]

    def check(self, values: Sequence[Any]) -> None:
        """Nothing is refused: conjugate priors are proper, so that all integrals exist."""

    def draw(self, key: Any, values: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        drawn, logdensity = dict[str, Any](), jnp.zeros(())
        for n, (c, posterior) in enumerate(zip(self._conjugate, self._posteriors, strict=True)):
            own = map(jnp.asarray, posterior(*values, *(drawn[str(v.name)] for v in c.given)))
            value, density = family(c.family).draw(jax.random.fold_in(key, n), *own)
            drawn[c.name] = value.reshape(c.shape)
            logdensity = logdensity + density.sum()
        return drawn, logdensity


class JointCoefficients:
    """Coefficients that were integrated out of a log density together, and their draws.

    Parameters
    ----------
    integral : Integral, the normal density of the coefficients given all else, as graphs
    inputs : the inputs of the graphs in `integral`
    """

    def __init__(self, integral: Integral, inputs: Sequence[Variable]):
        self._integral, self._inputs = integral, list(inputs)

    @cached_property
    def _quadratic_form(self) -> Any:
        form = [self._integral.precision, self._integral.linear, self._integral.coupled]
        return jaxify(self._inputs, [v for v in form if v is not None])

    @cached_property
    def _prior_precision(self) -> Any:
        assert self._integral.gates is not None
        return jaxify(self._inputs, [self._integral.gates.prior_precision])

    def check(self, values: Sequence[Any]) -> None:
        """Refuse an integral that does not exist, or would not exist if gates had other values.

        Raises
        ------
        pymc.exceptions.SamplingError
        """
        # `jitted` makes one program of the quadratic form; without it JAX would compile each operation
        precision, *_ = map(np.asarray, jitted(self._quadratic_form, SELDOM)(*values))
        why = "the prior and the data leave some direction open"
        improper = bool((np.linalg.eigvalsh(precision) <= 0).any())
        if self._integral.gates is not None and not improper:
            (prior,) = map(np.asarray, self._prior_precision(*values))
            improper = bool((np.diagonal(prior)[self._integral.gates.gated] <= 0).any())
            why = "of a coefficient whose gate is closed, nothing but a flat prior is known"
        if improper:
            raise infinite(self._integral, why)

    def draw(self, key: Any, values: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """A draw of the coefficients {name: array}, and its log density () in nats."""
        precision, linear, coupled = map(jnp.asarray, self._quadratic_form(*values))
        normals = jax.random.normal(key, linear.shape, linear.dtype)
        vector, logdensity = gaussian_draw(normals, precision, linear, coupled)
        return elements_by_name(vector, self._integral), logdensity


class ColumnCoefficients:
    """Coefficients of many columns that were integrated out of a log density together, and their draws.

    Parameters
    ----------
    integral : Integral, the normal density of the coefficients given all else, as a quadratic form in a
        linear predictor
    inputs : the inputs of the graphs in `integral`
    """

    def __init__(self, integral: Integral, inputs: Sequence[Variable]):
        assert integral.columns is not None
        self._integral, self._columns, self._inputs = integral, integral.columns, list(inputs)

    @cached_property
    def _form(self) -> Any:
        return jaxify(self._inputs, self._columns.form)

    @cached_property
    def _to_check(self) -> Any:
        form = PredictorForm(*self._columns.form)
        return jaxify(self._inputs, [form.weights, form.own, form.precision])

    def check(self, values: Sequence[Any]) -> None:
        """Refuse an integral that does not exist, or would not exist if gates had other values.

        Raises
        ------
        pymc.exceptions.SamplingError
        """
        weights, own, precision = map(np.asarray, self._to_check(*values))
        if (precision <= 0).any():
            why = "of a coefficient whose gate is closed, nothing but a flat prior is known"
            raise infinite(self._integral, why)
        if (weights < 0).any() or (own.size and (np.linalg.eigvalsh(own) <= 0).any()):
            raise infinite(self._integral, "the prior and the data leave some direction open")

    def draw(self, key: Any, values: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """A draw of the coefficients {name: array}, and its log density () in nats."""
        form = PredictorForm(*(jnp.asarray(v, float) for v in self._form(*values)))
        beta, a, logdensity = drawn_coefficients(key, form)
        return elements_by_name(in_one_vector(beta, a, self._columns), self._integral), logdensity


def drawn_coefficients(key, form: PredictorForm) -> tuple[Any, Any, Any]:
    """A draw of the coefficients with a gate (p,), a draw of those without one (m,), and its log density ().

    An inactive coefficient is drawn from its prior. The active coefficients and those without a gate have a
    precision matrix Q and a linear term b, and are drawn as Q^-1 (b + e), where e is normal with covariance
    Q: a sum of independent normal vectors, each times the root of a summand of Q. (Bhattacharya, Chakraborty
    and Mallick 2016, Fast sampling with Gaussian scale mixture priors in high-dimensional regression.)
    """
    (p, n), m = form.columns.shape, len(form.own_slope)
    of_prior, of_data, of_others = (
        jax.random.normal(k, (size,)) for k, size in zip(jax.random.split(key, 3), (p, n, m), strict=True)
    )
    rest, active = form.without_others(), form.active
    predictor, value = predictor_and_value(form, rest)
    gates, prior = jnp.where(active, form.gates, 1.0), prior_variances(form)

    # The normal vector e, whose covariance is the precision matrix of the coefficients, has summands from the
    # data, by the linear predictor, from the coefficients without a gate, and from the priors of the
    # coefficients with one.
    roots = jnp.sqrt(form.weights)
    e, own = roots * of_data, jnp.zeros(0)
    slope = form.slope + e
    if m:
        known = jnp.where(roots > 0, 1 / jnp.where(roots > 0, roots, 1.0), 0.0)[:, None] * form.cross
        left, vectors = jnp.linalg.eigh(form.own - known.T @ known)
        own = form.own_slope + of_data @ known + vectors @ (jnp.sqrt(jnp.maximum(left, 0.0)) * of_others)
        slope = slope - form.cross @ jnp.linalg.solve(form.own, own)
    linear = (form.linear + jnp.sqrt(form.precision) * of_prior) / gates
    linear = jnp.where(active, linear, 0.0)

    def along_active(vector):
        """(p,), the products of the active columns with a vector (n,)."""

        def step(index, first, found):
            return found.at[index].set(elements_or(form.columns, index, 0.0) @ vector, mode="drop")

        return over_active(active, step, jnp.zeros(p))

    def solved(right):
        """(p,), the solution gamma of P gamma = right, with P the precision matrix of the active coefficients
        times their gates; 0 for inactive coefficients.
        """
        scaled = prior * right
        seen = rest.times(predictor.left(sum_of_columns(form, scaled)[None], rest))[0]
        return scaled - prior * along_active(seen)

    right = along_active(slope) + linear
    gamma = solved(right)
    precision = jnp.where(active, 1 / jnp.where(active, prior, 1.0), 0.0)
    # The linear equations for the active coefficients are solved once more, for what the first solution
    # leaves of their right side, which corrects rounding errors of the first solution.
    missing = right - precision * gamma - along_active(rest.times(sum_of_columns(form, gamma)[None])[0])
    gamma = gamma + solved(jnp.where(active, missing, 0.0))
    beta = jnp.where(
        active, gamma / gates, form.linear / form.precision + of_prior / jnp.sqrt(form.precision)
    )
    eta, a = sum_of_columns(form, gamma), jnp.zeros(0)
    if m:
        a = jnp.linalg.solve(form.own, own - eta @ form.cross)
    return beta, a, joint_logdensity(form, beta, a, eta) - value


def joint_logdensity(form: PredictorForm, beta, a, eta):
    """() nats, the log density that `form` describes at given coefficients, up to a constant.

    Parameters
    ----------
    form : the log density as a quadratic form in the linear predictor and in the coefficients
    beta, a : (p,) and (m,), the coefficients with a gate and without one
    eta : (n,), the linear predictor of beta
    """
    of_data = -0.5 * form.weights @ eta**2 + form.slope @ eta - eta @ form.cross @ a
    of_others = -0.5 * a @ form.own @ a + form.own_slope @ a
    return of_data + of_others + (form.linear * beta - 0.5 * form.precision * beta**2).sum()


def in_one_vector(beta, a, columns: Columns):
    """(p + m,), the coefficients beta (p,) with a gate and a (m,) without one, in the order of the model."""
    vector = jnp.zeros(len(columns.places) + len(columns.others))
    return vector.at[columns.places].set(beta).at[columns.others].set(a)


def elements_by_name(vector, integral: Integral) -> dict[str, Any]:
    """{coefficient: its elements}, from a vector with the elements of all coefficients."""
    drawn, start = {}, 0
    for name, shape in integral.shapes.items():
        size = int(np.prod(shape))
        drawn[name] = vector[start : start + size].reshape(shape)
        start += size
    return drawn


def infinite(integral: Integral, why: str) -> SamplingError:
    """The error for coefficients whose integral does not exist, with the reason `why`."""
    names = ", ".join(map(repr, integral.shapes))
    return SamplingError(
        f"{names} cannot be integrated out: {why}, and the integral is infinite. Give it a proper "
        "prior, such as pm.Normal, or leave it out of integrate=."
    )
