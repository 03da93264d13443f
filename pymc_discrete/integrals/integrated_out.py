"""Coefficients that are integrated out while others move: whether their integral exists, and their draws."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from pymc.exceptions import SamplingError
from pytensor.graph.basic import Variable

from pymc_discrete.integrals.families import family
from pymc_discrete.integrals.gaussian_integral import gaussian_draw
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.logp_graph import Conjugate, Integral


class IntegratedOut(Protocol):
    """What is integrated out of a log density while others move, given all else."""

    def check(self, values: Sequence[Any]) -> None:
        """Refuse an integral that does not exist, or would not with other gates.

        Raises
        ------
        pymc.exceptions.SamplingError
        """

    def draw(self, key: Any, values: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """A draw {name: array} of the values of the variables, and its log density () in nats.

        Parameters
        ----------
        values : of the inputs of the graphs
        """


class ConjugateParameters:
    """Parameters that were integrated out each in closed form, see `IntegratedOut`.

    Parameters
    ----------
    conjugate : list of Conjugate, each after those that it is given
    inputs : of its graphs
    """

    def __init__(self, conjugate: Sequence[Conjugate], inputs: Sequence[Variable]):
        self._conjugate = list(conjugate)
        self._posteriors = [jaxify([*inputs, *c.given], c.posterior) for c in conjugate]

    def check(self, values: Sequence[Any]) -> None:
        """Nothing to refuse: with a proper prior there is a proper distribution."""

    def draw(self, key: Any, values: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        drawn, logdensity = dict[str, Any](), jnp.zeros(())
        for n, (c, posterior) in enumerate(zip(self._conjugate, self._posteriors, strict=True)):
            own = map(jnp.asarray, posterior(*values, *(drawn[str(v.name)] for v in c.given)))
            value, density = family(c.family).draw(jax.random.fold_in(key, n), *own)
            drawn[c.name] = value.reshape(c.shape)
            logdensity = logdensity + density.sum()
        return drawn, logdensity


class JointCoefficients:
    """Coefficients that were integrated out together, see `IntegratedOut`.

    Parameters
    ----------
    integral : Integral
    inputs : of its graphs
    """

    def __init__(self, integral: Integral, inputs: Sequence[Variable]):
        self._integral, self._inputs = integral, list(inputs)

    @cached_property
    def _quadratic_form(self) -> Any:
        return jaxify(self._inputs, [self._integral.precision, self._integral.linear, self._integral.coupled])

    @cached_property
    def _prior_precision(self) -> Any:
        assert self._integral.gates is not None
        return jaxify(self._inputs, [self._integral.gates.prior_precision])

    def check(self, values: Sequence[Any]) -> None:
        """Refuse an integral that does not exist, or would not with other gates.

        Raises
        ------
        pymc.exceptions.SamplingError
        """
        precision, *_ = map(np.asarray, self._quadratic_form(*values))
        why = "the prior and the data leave some direction open"
        improper = bool((np.linalg.eigvalsh(precision) <= 0).any())
        if self._integral.gates is not None and not improper:
            (prior,) = map(np.asarray, self._prior_precision(*values))
            improper = bool((np.diagonal(prior)[self._integral.gates.gated] <= 0).any())
            why = "of a coefficient whose gate is closed, nothing but a flat prior is known"
        if improper:
            names = ", ".join(map(repr, self._integral.shapes))
            raise SamplingError(
                f"{names} cannot be integrated out: {why}, and the integral is infinite. Give it a proper "
                "prior, such as pm.Normal, or leave it out of integrate=."
            )

    def draw(self, key: Any, values: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """A draw of the coefficients {name: array}, and its log density () in nats."""
        precision, linear, coupled = map(jnp.asarray, self._quadratic_form(*values))
        normals = jax.random.normal(key, linear.shape, linear.dtype)
        vector, logdensity = gaussian_draw(normals, precision, linear, coupled)
        drawn, start = {}, 0
        for name, shape in self._integral.shapes.items():
            size = int(np.prod(shape))
            drawn[name] = vector[start : start + size].reshape(shape)
            start += size
        return drawn, logdensity
