"""The log density of a model with the sites of a block summed out, and exact draws of these sites."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.collapse.elements import Sparse
from pymc_discrete.collapse.elimination import Elimination, TooDear
from pymc_discrete.kernels.random import uniforms
from pymc_discrete.targets.density import Context, ModelDensity
from pymc_discrete.targets.names import shown


class SumTooLarge(ValueError):
    """Sites interact with so many others that they cannot be summed out one after another."""


class Sums:
    """The sum of a block's density over its sites.

    Parameters
    ----------
    density : ModelDensity
    counts : (d,) int, optional
        The number of consecutive values of each site that are summed; by default all of its support.

    Raises
    ------
    NotImplementedError
        Where a term joins too many sites.
    SumTooLarge
    ValueError
        Where a site has no bounds and no number of values.
    """

    elimination: Elimination

    def __init__(self, density: ModelDensity, counts: np.ndarray | None = None):
        self.density = density
        if counts is None:
            blocks = density.space.variables
            counts = np.concatenate([np.full(v.size, v.counts.max(initial=1)) for v in blocks])
        self.counts = np.asarray(counts)
        self.elements = Sparse(density, self.counts)
        self._arrange()

    def _arrange(self) -> None:
        """Find the order of the elimination."""
        space = self.density.space
        try:
            # the last array has the support of each site
            scopes = [*(g.sites for g in self.elements.groups), np.arange(space.d)[:, None]]
            self.elimination = Elimination(self.counts, scopes)
        except TooDear as error:
            names = shown(list(dict.fromkeys(space.sites[i][0] for i in error.sites)))
            values = ", ".join(str(k) for k in self.counts[error.sites][:8])
            raise SumTooLarge(
                f"{shown(self.density.names)} cannot be summed out: sites of {names} interact with so many "
                f"others that a sum over {len(error.sites)} of them ({values}"
                f"{', ...' * (len(error.sites) > 8)} values) has {error.entries:.2g} entries. Sum out fewer "
                "variables, and sample the others by a discrete step."
            ) from None

    @property
    def entries(self) -> int:
        """The number of entries of all tables of the elimination."""
        return self.elimination.order.entries

    @property
    def places(self) -> int:
        """The length of the vector that says where sums begin: `lowest` of the methods."""
        return len(self.counts)

    # ------------------------------------------------------------ pure JAX functions
    def within(self, lowest: Any):
        """(d,) bool, the sites that are summed out."""
        return jnp.ones(len(self.counts), bool)

    def _lowest(self, lowest: Any):
        """(d,) int, the first value of each site: its lower bound if it is None or all values are summed."""
        lower, moving = self.density.space.lower, self.elements.moving
        return lower if lowest is None or not moving.any() else jnp.where(moving, lowest, lower)

    def tables(self, context: Context, lowest: Any = None) -> list[Any]:
        """The tables of the elements, and (d, K) that is 0 in the support of each site and -inf elsewhere.

        Parameters
        ----------
        lowest : (d,) int
            The value from which each site is summed; None means its lower bound.
        """
        space = self.density.space
        lowest = self._lowest(lowest)
        values = lowest[:, None] + np.arange(self.counts.max(initial=1))
        inside = (values >= space.lower[:, None]) & (values <= space.upper[:, None])
        return [*self.elements.tables(context, lowest), jnp.where(inside, 0.0, -jnp.inf)]

    def logdensity(self, context: Context, lowest: Any = None):
        """() nats, the log of the sum of exp of the terms that depend on the block."""
        return self._of(total, self.tables(context, lowest), lowest) + self.elements.constant(context)

    def total_and_draw(self, key, context: Context, lowest: Any = None):
        """`logdensity`, and (d,) int, the sites, drawn exactly given everything else."""
        u = uniforms(key, (len(self.counts),))
        found, index = self._of(total_and_draw, self.tables(context, lowest), lowest, u)
        return found + self.elements.constant(context), self._values(index, lowest)

    def total_draw_and_probabilities(self, key, context: Context, lowest: Any = None):
        """As `total_and_draw`, and (d, K) the probability of each site's values given everything else."""
        u = uniforms(key, (len(self.counts),))
        tables = self.tables(context, lowest)
        found, index, probabilities = self._of(total_draw_and_probabilities, tables, lowest, u)
        return found + self.elements.constant(context), self._values(index, lowest), probabilities

    def _of(self, function: Callable, tables: list[Any], lowest: Any, *inputs: Any) -> Any:
        """What a function (elimination, tables, *inputs) gives."""
        return function(self.elimination, tables, *inputs)

    def _values(self, index, lowest: Any):
        """(d,) int, the values of the sites, of which each is the index-th of its table."""
        return self._lowest(lowest) + index


def total(elimination: Elimination, tables: list[Any]):
    """() nats, the logarithm of the sum over all sites."""
    return elimination.joined(tables)[0]


def total_and_draw(elimination: Elimination, tables: list[Any], uniforms):
    """The `total`, and (d,) int, the index of each site's value, drawn exactly given the tables."""
    found, stages = elimination.joined(tables)
    return found, elimination.draw(uniforms, stages)


def total_draw_and_probabilities(elimination: Elimination, tables: list[Any], uniforms):
    """As `total_and_draw`, and (d, K) the probability of each index."""
    *others, support = tables

    def joined(support):
        return elimination.joined([*others, support])

    # d log Z / d u_i(k) = p(z_i = k), where u_i is a table of site i alone
    (found, stages), probabilities = jax.value_and_grad(joined, has_aux=True)(support)
    return found, elimination.draw(uniforms, stages), probabilities
