"""A log density over a space: what a kernel asks of it, and where it gets the values of everything else."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from pymc_discrete.runtime.compiled import CompiledMethods
from pymc_discrete.runtime.jax_settings import REPEATED, SELDOM, default_settings
from pymc_discrete.space.interactions import Interactions
from pymc_discrete.space.space import Space, masked_differences

# Starts of up to this number of sites are checked by a program that is compiled with few optimisations,
# which takes less time in all; more sites take long to evaluate.
FEW_SITES = 100_000


class Density(CompiledMethods, ABC):
    """A log density as pure JAX functions of x and of a prepared context: all that a kernel asks.

    A subclass defines `logdensity`. Every other answer is found by evaluating `logdensity` at each neighbour,
    and overridden where there is a cheaper way. Functions without a docstring are described in `Target`,
    under the same name.

    Attributes
    ----------
    space : Space
    """

    space: Space

    @cached_property
    def exact(self) -> bool:
        return True

    @cached_property
    def local(self) -> bool:
        return False

    def running(self, traced: bool) -> AbstractContextManager[Any]:
        """A context manager that sets JAX up for a call of the density's functions.

        Parameters
        ----------
        traced : bool
            Whether the functions are called inside a program that JAX traces.
        """
        return default_settings()

    @property
    def few_of(self) -> np.ndarray | None:
        """(d,) bool, sites of which a random start should change only a few, as the gates of many columns, of
        which few are active; None if there are none.
        """
        return None

    # ------------------------------------------------------------ the log density and its differences
    @abstractmethod
    def logdensity(self, x: Array, context: Any) -> Array: ...

    def centred(self, x: Array, context: Any) -> Any:
        """A context with which `logdensity` returns the log density less the log density at x.

        The difference is found as the sum of the changes of the log density's summands, which is more exact
        in float32. Where the summands are not known, `context` itself is returned.
        """
        return context

    def alone(self, x: Array, context: Any) -> Array:
        """() nats, the log density at x, whether or not x meets the constraints of the space."""
        return self.logdensity(x, context)

    def differences(self, x: Array, context: Any) -> Array:
        return self._at(x, context, self.logdensity, *self.space.neighbours(x))[1]

    def logdensity_and_differences(self, x: Array, context: Any) -> tuple[Array, Array]:
        return self.logdensity(x, context), self.differences(x, context)

    def differences_alone(self, x: Array, context: Any) -> Array:
        return self._at(x, context, self.alone, *self.space.neighbours(x, alone=True))[1]

    def _at(
        self, x: Array, context: Any, logdensity: Callable[..., Array], values: Any, inside: Any
    ) -> tuple[Array, Array]:
        """`logdensity` at x, and (d, K) its change when one site goes to each of its `values` (d, K).

        The change is -inf where `inside` (d, K) is false.
        """
        sites = np.repeat(np.arange(self.space.d), self.space.K)
        now = logdensity(x, context)
        then = jax.vmap(lambda i, v: logdensity(x.at[i].set(v), context))(sites, values.reshape(-1))
        return now, differences_from(values, inside, x, then.reshape(values.shape), now)

    def touched(self, sites: Array) -> Array:
        return jnp.broadcast_to(jnp.arange(self.space.d), (*sites.shape, self.space.d))

    def update(self, x: Array, differences: Array, sites: Array, context: Any) -> Array:
        return self.differences(x, context)

    # ------------------------------------------------------------ conditionals: one site at a time
    @cached_property
    def interactions(self) -> Interactions:
        """Which sites may be drawn together; by default every site interacts with every other."""
        return Interactions(np.zeros((0, 2), int), [], np.ones(self.space.d, bool), self.space)

    def carried(self, x: Array, context: Any) -> Any:
        return ()

    def row(
        self, n: int, site: Array, x: Array, carried: Any, context: Any, candidates: Array | None = None
    ) -> Array:
        values, inside, now = self.space.neighbours_of(x, n, site[None], candidates)
        at = self.space.starts[n] + site
        then = jax.vmap(lambda v: self.logdensity(x.at[at].set(v), context))(
            jnp.append(jnp.asarray(values[0], x.dtype), now)
        )
        return differences_from(values, inside, now, then[None, :-1], then[-1])

    def carried_after(self, n: int, site: Array, value: Array, x: Array, carried: Any, context: Any) -> Any:
        return ()

    def all_at_once(self, n: int) -> bool:
        """Whether the differences of all sites of variable n take less time than one update of `carried`.

        `carried` is what is handed from site to site, and is updated after a site has changed.
        """
        return False

    def all_rows(self, n: int, x: Array, carried: Any, context: Any) -> Array:
        sites = jnp.arange(self.space.variables[n].size)
        return jax.vmap(lambda site: self.row(n, site, x, carried, context)[0])(sites)

    def joint_differences(
        self, n: int, sites: Array, values: Array, x: Array, context: Any, carried: Any = None
    ) -> Array:
        numbers = self.space.starts[n] + sites
        at = lambda row, new: self.logdensity(x.at[row].set(new), context)
        then = jax.vmap(jax.vmap(at, (None, 0)))(numbers, values)
        return self.masked_jointly(n, sites, values, x, difference_from(then, self.logdensity(x, context)))

    def masked_jointly(self, n: int, sites: Array, values: Array, x: Array, d: Array) -> Array:
        """Differences d (r, C) of joint moves of sites, 0 at the current values and -inf where impossible."""
        now = x[self.space.starts[n] + sites]
        inside = self.space.inside_jointly(n, sites, values, now)
        d = jnp.where(inside & ~jnp.isnan(d), d, -jnp.inf)
        return jnp.where(inside & (values == now[:, None]).all(axis=-1), 0.0, d)

    # ------------------------------------------------------------ conditionals of sites that do not interact
    def rows(self, n: int, rows: ArrayLike, context: Any) -> Callable[..., Any]:
        each = jnp.asarray(rows)
        return lambda x, candidates=None: jax.vmap(
            lambda site, c: self.row(n, site, x, (), context, None if c is None else c[None])[0],
            (0, None if candidates is None else 0),
        )(each, candidates)

    def logits(self, n: int, rows: ArrayLike, context: Any) -> Callable[..., Any]:
        differences_at = self.rows(n, rows, context)
        binary = bool((self.space.variables[n].counts == 2).all())
        return lambda x: log_odds(differences_at(x)) if binary else differences_at(x)

    def joint(self, context: Any) -> Array:
        return jnp.zeros((0, self.space.K, self.space.K))

    def unaries(self, n: int, x: Array, inside: ArrayLike, context: Any) -> Array:
        return self.rows(n, np.arange(self.space.variables[n].size), context)(x)

    def cost_of_value(self, n: int) -> float:
        """Counted operations of evaluating all sites of variable n at one more value; infinite if unknown."""
        return np.inf

    @abstractmethod
    def describe(self) -> dict[str, dict[str, Any]]: ...


class GivenInputs(Density):
    """A density whose context is prepared from inputs: the values of all that it reads besides x."""

    @abstractmethod
    def split(self, point: dict[str, Any]) -> tuple[np.ndarray, Any, dict[str, Any]]:
        """The sites x (d,) at a point, the inputs of the context, and all values, {name: array}."""

    @abstractmethod
    def join(self, x: np.ndarray, point: dict[str, Any] | None) -> dict[str, np.ndarray]:
        """The values of all variables, {name: array}, with the block at x and the others as in `point`."""

    @abstractmethod
    def default_inputs(self) -> Any:
        """The inputs from which the context is prepared if a target is created without a context."""

    @abstractmethod
    def prepare(self, inputs: Any) -> Any:
        """The context from its inputs: everything that does not depend on x."""

    # ------------------------------------------------------------ on the host
    def level_of(self, name: str) -> Any:
        on_host = name in ("evaluated", "evaluated_jointly")
        return SELDOM if on_host and self.space.d <= FEW_SITES else REPEATED

    def rest(self, context: Any) -> Array:
        """() nats, the part of the log density that does not depend on x."""
        return jnp.zeros(())

    def evaluated(self, inputs: Any, x: Array, with_differences: ArrayLike) -> tuple[Array, Array, Array]:
        """The sum of the terms that depend on x, the differences at x, and the sum of the other terms.

        One program computes these values for the host, because to compile several would take longer. Without
        `with_differences` the differences are 0 and take no time.
        """
        context = self.prepare(inputs)
        zeros = jnp.zeros((self.space.d, self.space.K))
        differences = jax.lax.cond(
            with_differences, lambda: jnp.asarray(self.differences(x, context), zeros.dtype), lambda: zeros
        )
        return self.logdensity(x, context), differences, self.rest(context)

    def evaluated_jointly(
        self, inputs: Any, x: Array, moves: dict[int, tuple[Array, Array]]
    ) -> dict[int, Array]:
        """{variable number: (r, C) nats}, the change of the log density when several sites move together.

        Parameters
        ----------
        moves : {variable number: (sites (r, m), values (r, C, m))}, in each row the sites that move, and C
            choices of the values that they move to
        """
        context = self.prepare(inputs)
        carried = self.carried(x, context)
        return {n: self.joint_differences(n, *of_n, x, context, carried) for n, of_n in moves.items()}


def differences_from(values: Array, inside: Array, now: Array, then: Array, logp: Array) -> Array:
    """(r, K) differences from the log densities at the neighbours, 0 at current values, -inf if impossible.

    Parameters
    ----------
    values : (r, K) int
        The neighbours.
    inside : (r, K) bool
        Whether the neighbours are in the support.
    now : (r,) int
        The current values.
    then : (r, K) float
        The log density at each neighbour.
    logp : () float
        The log density at the current values.
    """
    return masked_differences(difference_from(then, logp), values, inside, now)


def difference_from(then: Array, now: Array) -> Array:
    """Log densities less the log density `now`: 0 where both are -inf, inf where only the current state has
    -inf.
    """
    return jnp.where(jnp.isneginf(now), jnp.where(jnp.isneginf(then), 0.0, jnp.inf), then - now)


def log_odds(values: Any, axis: int = 1) -> Array:
    """The log density at the upper of two values less the log density at the lower, 0 where both are
    impossible.

    The axis of the values is kept, with length 1.
    """
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    lower, upper = jnp.split(values, 2, axis=axis)
    # Equal finite values are subtracted as well, and not replaced by 0, so that derivatives of the result are
    # right.
    return jnp.where((lower == upper) & jnp.isinf(lower), 0.0, upper - lower)
