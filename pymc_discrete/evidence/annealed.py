"""The densities between a base distribution of independent sites and a target."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from pymc_discrete.runtime.names import shown
from pymc_discrete.space.density import Density
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target


class AnnealedContext(NamedTuple):
    """The context of an `Annealed` density.

    Attributes
    ----------
    target : the context of the target
    beta : () float, the inverse temperature, in (0, 1]
    base : (d, K) float, nats, the log probabilities of the values of each site in the base; 0 for values that
        a site lacks
    """

    target: Any
    beta: Any
    base: Any


class Annealed(Density):
    r"""The log density at an inverse temperature between a base and a target.

    .. math:: f_\beta(x) = \beta f(x) + (1 - \beta) \log p_0(x)

    Whatever is linear in the log density, such as its differences, is beta times what the target has plus 1 -
    beta times what the base has.

    Parameters
    ----------
    density : the density of the target, whose sites are finite and each change alone

    References
    ----------
    Grathwohl et al. 2021, Eq. 35.
    """

    def __init__(self, density: Density):
        super().__init__()
        self.inner, self.space = density, density.space
        self.exact, self.local, self.interactions = density.exact, density.local, density.interactions

    def at(self, target: Target, beta: Any, base: Any) -> Target:
        """The target at an inverse temperature."""
        return Target(self, AnnealedContext(target.ready(), beta, base))

    # ------------------------------------------------------------ methods that only call the target's
    def running(self, traced: bool) -> AbstractContextManager[Any]:
        return self.inner.running(traced)

    def touched(self, sites: Array) -> Array:
        return self.inner.touched(sites)

    def describe(self) -> dict[str, dict[str, Any]]:
        return self.inner.describe()

    def carried(self, x: Array, context: AnnealedContext) -> Any:
        return self.inner.carried(x, context.target)

    def carried_after(
        self, n: int, site: Array, value: Array, x: Array, carried: Any, context: AnnealedContext
    ) -> Any:
        return self.inner.carried_after(n, site, value, x, carried, context.target)

    # ------------------------------------------------------------ sums of beta * target and (1 - beta) * base
    def logdensity(self, x: Array, context: AnnealedContext) -> Array:
        return self._sum(
            self.inner.logdensity(x, context.target), log_base(context.base, x, self.space), context
        )

    def differences(self, x: Array, context: AnnealedContext) -> Array:
        return self._sum(self.inner.differences(x, context.target), self._rises(x, context), context)

    def logdensity_and_differences(self, x: Array, context: AnnealedContext) -> tuple[Array, Array]:
        logdensity, differences = self.inner.logdensity_and_differences(x, context.target)
        return (
            self._sum(logdensity, log_base(context.base, x, self.space), context),
            self._sum(differences, self._rises(x, context), context),
        )

    def update(self, x: Array, differences: Array, sites: Array, context: AnnealedContext) -> Array:
        changed = self.touched(sites).reshape(-1)
        fresh = self.inner.update(x, differences, sites, context.target)
        rows = self._sum(fresh, self._rises(x, context), context).at[changed].get(mode="clip")
        return differences.at[changed].set(rows, mode="drop")

    def rows(self, n: int, rows: ArrayLike, context: AnnealedContext) -> Callable[..., Any]:
        of_target = self.inner.rows(n, rows, context.target)
        return lambda x: self._sum(of_target(x), self._rises(x, context, n, rows), context)

    def row(
        self,
        n: int,
        site: Array,
        x: Array,
        carried: Any,
        context: AnnealedContext,
        candidates: Array | None = None,
    ) -> Array:
        of_target = self.inner.row(n, site, x, carried, context.target, candidates)
        return self._sum(of_target, self._rises(x, context, n, site[None]), context)

    def logits(self, n: int, rows: ArrayLike, context: AnnealedContext) -> Callable[..., Any]:
        of_target, base = self.inner.logits(n, rows, context.target), self._tables(context, n, rows)
        odds = base[:, 1:2] - base[:, :1]

        def of_both(x: Array) -> Array:
            logits = of_target(x)
            return self._sum(logits, odds if logits.shape[1] == 1 else base, context)

        return of_both

    def unaries(self, n: int, x: Array, inside: ArrayLike, context: AnnealedContext) -> Array:
        of_target = self.inner.unaries(n, x, inside, context.target)
        return self._sum(of_target, self._tables(context, n), context)

    def joint(self, context: AnnealedContext) -> Array:
        return context.beta * self.inner.joint(context.target)

    # ------------------------------------------------------------ the base
    def _sum(self, of_target: Any, of_base: Any, context: AnnealedContext) -> Any:
        return context.beta * of_target + (1 - context.beta) * of_base

    def _tables(self, context: AnnealedContext, n: int | None = None, rows: Any = None) -> Any:
        """(r, K) nats, log probabilities of the base, for all sites or for some sites of variable n."""
        if n is None:
            return context.base
        start, v = self.space.blocks[n]
        table = context.base[start : start + v.size, : v.K]
        return table if rows is None else table[rows]

    def _rises(self, x: Array, context: AnnealedContext, n: int | None = None, rows: Any = None) -> Any:
        """(r, K) nats, the differences of the base, for all sites or for some sites of variable n."""
        table = self._tables(context, n, rows)
        places = x - self.space.lower
        if n is not None:
            start, v = self.space.blocks[n]
            places = places[start : start + v.size]
            places = places if rows is None else places[rows]
        return table - jnp.take_along_axis(table, places[:, None], axis=1)


def log_base(base: Any, x: Any, space: Space) -> Any:
    """() nats, the log probability of x (d,) under independent sites with the log probabilities `base`."""
    return jnp.take_along_axis(base, (x - space.lower)[:, None], axis=1).sum()


def draw_base(key: Any, base: Any, space: Space) -> Any:
    """(d,) int, a draw of independent sites."""
    places = jax.random.categorical(key, jnp.where(space.exists, base, -jnp.inf), axis=1)
    return (space.lower + places).astype(int)


def base_of(space: Space, probabilities: dict[str, Any] | None) -> np.ndarray:
    """(d, K) float, nats, the log probabilities of independent sites, 0 beyond the values of a site.

    Parameters
    ----------
    space : Space
    probabilities : {name: (*shape, K)}, not necessarily normalised; uniform for variables that
        `probabilities` leaves out

    Raises
    ------
    TypeError, ValueError
        If no base of independent sites is possible on the space, or the probabilities do not fit the space,
        or one is not positive.
    """
    if space.windowed.any() or space.constrained.any():
        names = shown(space.names_at(np.flatnonzero(space.windowed | space.constrained)))
        raise ValueError(
            f"The base is a product of independent sites with a few values each, and {names} has more than "
            "256, or a fixed sum. The constant of a PyMC model is estimated by pmd.log_evidence, from its "
            "prior."
        )
    if not isinstance(probabilities, dict | None):
        raise TypeError(
            f"base must be a dictionary {{name: probabilities (*shape, K)}}, got {probabilities!r}."
        )
    given, known = probabilities or {}, {m.name: m for m in space.members}
    table = space.exists.astype(float)
    for name, p in given.items():
        if name not in known:
            raise ValueError(f"base names {name!r}, which is no variable of the target: {shown(known)}.")
        m, p = known[name], np.asarray(p, float)
        sites = slice(m.start, m.start + m.size)
        K = int(space.exists[sites].sum(axis=1).max(initial=1))
        if p.shape != (*m.shape, K):
            raise ValueError(f"base[{name!r}] must have the shape {(*m.shape, K)}, got {p.shape}.")
        table[sites, :K] = p.reshape(m.size, K)
    possible = np.isfinite(table) & (table > 0)
    if bad := space.names_at(np.flatnonzero((space.exists & ~possible).any(axis=1))):
        raise ValueError(
            f"The base must give every value of {shown(bad)} a positive probability, or the estimate leaves "
            "out what it cannot reach. Mix it with a uniform one, as 0.98 * p + 0.01."
        )
    table = np.where(space.exists, table, 0.0)
    return np.log(np.where(space.exists, table / table.sum(axis=1, keepdims=True), 1.0))
