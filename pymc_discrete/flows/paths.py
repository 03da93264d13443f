r"""Paths from a source to a target (the thesis on discrete flow samplers, Table 3.1).

At time t in [0, 1] a site has, given its value at time 1, the distribution

.. math:: p_t = \kappa_t^{\rm target} \delta_{x_1} + \kappa_t^{\rm uniform} \mathcal U
    + \kappa_t^{\rm source} p_0,

with weights that are (0, 0, 1) at t = 0 and (1, 0, 0) at t = 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

FROM_TARGET, FROM_UNIFORM, FROM_SOURCE = 0, 1, 2


class Step(NamedTuple):
    """How a site moves from one time to another: it keeps its value, or is drawn anew from a component.

    Attributes
    ----------
    keep : () float, the probability to keep the value
    target, uniform, source : () float, the probabilities of a draw from the target, from the uniform
        distribution and from the source
    """

    keep: Any
    target: Any
    uniform: Any
    source: Any


@dataclass(frozen=True)
class Path:
    r"""A path from a source to a target, given by the weights of three components.

    Parameters
    ----------
    name : str
    target, uniform : t -> () float
        The weights of the target and of the uniform distribution; the source has the remaining weight.
    """

    name: str
    target: Callable[[Any], Any]
    uniform: Callable[[Any], Any] | None = None

    def weights(self, t: Any) -> Any:
        """(3,) float, the weights of target, uniform distribution and source at time t."""
        t = jnp.asarray(t, float)
        uniform = jnp.zeros_like(t) if self.uniform is None else self.uniform(t)
        return jnp.stack([self.target(t), uniform, 1 - self.target(t) - uniform])

    def step(self, t: Any, s: Any) -> Step:
        r"""The step from time t to time s, before or after it.

        .. math:: x_s \sim r \delta_{x_t} + \sum_j (\kappa_s^j - r \kappa_t^j) w^j,
            \qquad r = \min_{j: \kappa_t^j > 0} \kappa_s^j / \kappa_t^j

        with w^j the component j: target, uniform distribution or source. If x_t has the distribution of time
        t, then x_s has the distribution of time s: the weights of the components are not negative, and add up
        to 1 - r. For s near t the probabilities of jumps are s - t times the rates that `velocity` gives.
        """
        now, then = self.weights(t), self.weights(s)
        ratios = jnp.where(now > 0, then / jnp.where(now > 0, now, 1.0), jnp.inf)
        keep = ratios.min()
        rest = jnp.where(jnp.arange(3) == ratios.argmin(), 0.0, jnp.maximum(then - keep * now, 0.0))
        return Step(keep, *rest)

    def velocity(self, t: Any, forward: bool = True) -> tuple[Any, Any]:
        r"""The coefficients (a, b) of the velocity of a site at time t in (0, 1).

        The thesis on discrete flow samplers, Eq. 3.7 and 3.8, has

        .. math:: u_t = \sum_j a_t^j w^j + b_t \delta_{x_t}, \qquad b = \dot\kappa^l / \kappa^l,
            \qquad a^j = \dot\kappa^j - \kappa^j b,

        with w^j the component j, and l the component that shrinks fastest, forward in time or backward. The
        signs of the backward velocity are those for time that runs forward, so that its a is negative.

        Returns
        -------
        a : (3,) float, the coefficients of target, uniform distribution and source
        b : () float, the coefficient of the present value
        """
        kappa, slope = jax.jvp(self.weights, (jnp.asarray(t, float),), (jnp.ones(()),))
        rate = jnp.where(kappa > 0, slope / jnp.where(kappa > 0, kappa, 1.0), jnp.nan)
        b = jnp.nanmin(rate) if forward else jnp.nanmax(rate)
        return slope - kappa * b, b


PATHS = {
    path.name: path
    for path in (
        Path("linear", lambda t: t),
        Path("quadratic", lambda t: t**2),
        Path("cubic", lambda t: 2 * t**3 - 3 * t**2 + 2 * t),
        Path("noise", lambda t: t**2, lambda t: t - t**2),
    )
}
