"""A target from a plain JAX log density."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pymc_discrete.runtime.checks import check_switch, check_way
from pymc_discrete.space.density import GivenInputs
from pymc_discrete.space.space import LARGEST_SUPPORT, Space, masked_differences
from pymc_discrete.space.target import Target


class FunctionDensity(GivenInputs):
    """A log density over a space, given by a JAX function.

    Parameters
    ----------
    function : callable
        (x, *inputs) -> () float, nats.
    space : Space
    how : {"auto", "exact", "gradient"}
        Whether differences are computed exactly, which "auto" means, too, or estimated from the gradient.
    one_hot : bool
        Whether the function takes the one-hot encoding (d, K) of x.
    inputs : sequence of pytrees
        The default inputs.
    """

    def __init__(self, function: Callable[..., Any], space: Space, how: str, one_hot: bool, inputs: Any):
        super().__init__()
        self.function, self.space, self.how, self.one_hot = function, space, how, one_hot
        self._inputs = inputs
        self.exact = how != "gradient"

    def prepare(self, inputs: Any) -> Any:
        return inputs

    def default_inputs(self) -> Any:
        return self._inputs

    def split(self, point: dict[str, Any]) -> tuple[np.ndarray, Any, dict[str, Any]]:
        return self.space.ravel(point), self._inputs, dict(point)

    def join(self, x: np.ndarray, point: dict[str, Any] | None) -> dict[str, np.ndarray]:
        return {**(point or {}), **self.space.unravel(x)}

    def argument(self, x: Array) -> Array:
        """The argument of the function at x (d,) int: x itself, or its one-hot encoding (d, K) float."""
        if not self.one_hot:
            return x
        return jnp.asarray(np.arange(self.space.K) == (x - self.space.lower)[:, None], float)

    def allowed(self, x: Array, value: Array) -> Array:
        """() float, `value` where x meets the constraints of the space, else -inf."""
        if not self.space.constrained.any():
            return value
        return jnp.where(self.space.meets_constraints(x), value, -jnp.inf)

    def alone(self, x: Array, context: Any) -> Array:
        """() nats, the function at x, whether or not x meets the constraints of the space."""
        return jnp.asarray(self.function(self.argument(x), *context)).reshape(())

    def logdensity(self, x: Array, context: Any) -> Array:
        return self.allowed(x, self.alone(x, context))

    def logdensity_and_differences(self, x: Array, context: Any) -> tuple[Array, Array]:
        return self._at(x, context, self.logdensity, *self.space.neighbours(x))

    def _at(
        self, x: Array, context: Any, logdensity: Callable[..., Array], values: Any, inside: Any
    ) -> tuple[Array, Array]:
        """`logdensity` at x, and the differences (d, K) to the values (d, K), -inf where `inside` (d, K) is
        false.
        """
        if self.exact:
            return super()._at(x, context, logdensity, values, inside)
        value, slope = jax.value_and_grad(lambda a: jnp.asarray(self.function(a, *context)).reshape(()))(
            self.argument(x).astype(float)
        )
        if self.one_hot:
            # Grathwohl et al. 2021, Eq. 4: the slope in the column of the neighbour less the slope in the
            # column of the current value
            d = slope - jnp.take_along_axis(slope, (x - self.space.lower)[:, None], axis=1, mode="clip")
        else:
            # Grathwohl et al. 2021, Eq. 3, for every kind of site: the slope times the step
            d = slope[:, None] * (values - x[:, None])
        # Where the slope is infinite or nan, a possible neighbour could count as impossible. With an
        # estimated difference of 0 the neighbour can still be proposed.
        d = jnp.where(jnp.isfinite(d), d, 0.0)
        return self.allowed(x, value), masked_differences(d, values, inside, x)

    def describe(self) -> dict[str, dict[str, Any]]:
        way, reason = (
            ("brute force", "every neighbour is evaluated") if self.exact else ("gradient", "asked for")
        )
        return {
            v.name: {"way": way, "exact": self.exact, "K": v.K, "reason": reason}
            for v in self.space.variables
        }


def target_from_logdensity(
    fn: Callable[..., Any],
    space: Space,
    *,
    differences: str = "auto",
    one_hot: bool = False,
    inputs: tuple[Any, ...] = (),
) -> Target:
    r"""A target from a JAX function.

    Parameters
    ----------
    fn : callable
        `fn(x, *inputs)` -> () float, nats, with x (d,) int; with differences="gradient" it is also called
        with float x and differentiated. With `one_hot`, x is (d, K) float in both cases.
    space : Space
        `pmd.Space.build({"x": (np.zeros(d), np.ones(d))})` for binary sites, and so on.
    differences : {"auto", "exact", "gradient"}
        "exact", which is also "auto", evaluates every neighbour; "gradient" takes one gradient: the slope
        times the step (Eq. 3), or with `one_hot`

        .. math:: d_{ij} = \nabla_{x_{ij}} f - x_i^\top \nabla_{x_i} f

        (Eq. 4), which is exact where f is linear in the row of each site.
    one_hot : bool
        Whether `fn` takes the one-hot encoding of x: row i has a 1 in the column of the value of site i,
        counted from its lower bound. All supports must be finite.
    inputs : tuple of pytrees of arrays
        Weights, data, a temperature: the leaves of the target, exchanged by `target.with_inputs(inputs)`.

    Returns
    -------
    Target

    Raises
    ------
    TypeError, ValueError
        For arguments of a wrong type or value; for a one-hot encoding of a site with a window; for a slope
        with respect to a site whose values have no order, since it says nothing about other values.

    References
    ----------
    Grathwohl, Swersky, Hashemi, Duvenaud and Maddison 2021, Oops I Took A Gradient, Eq. 3 and 4.
    """
    if not callable(fn):
        raise TypeError(
            f"fn must be a function of x (d,) that returns a scalar log density, got {type(fn).__name__}."
        )
    if not isinstance(space, Space):
        raise TypeError(f"space must be a Space, got {type(space).__name__}. Build one with pmd.Space.build.")
    check_way(differences)
    if not isinstance(inputs, tuple | list):
        raise TypeError(
            f"inputs must be a tuple of arrays, which fn takes after x, got {type(inputs).__name__}. One is "
            "(weights,)."
        )
    check_switch("one_hot", one_hot)
    if one_hot and space.windowed.any():
        raise ValueError(
            f"one_hot=True needs finite supports of at most {LARGEST_SUPPORT} values, and "
            f"{', '.join(map(repr, space.names_at(np.flatnonzero(space.windowed))))} has none. Write fn as a "
            "function of x (d,)."
        )
    labels = np.flatnonzero(space.nominal & (space.upper - space.lower > 1))
    if differences == "gradient" and not one_hot and len(labels):
        raise ValueError(
            f"The values of {', '.join(map(repr, space.names_at(labels)))} have no order, and the slope of "
            "fn in x (d,) says nothing of the others. Write fn as a function of the one-hot encoding (d, "
            "K), and pass one_hot=True."
        )
    return Target(FunctionDensity(fn, space, differences, one_hot, tuple(inputs)))
