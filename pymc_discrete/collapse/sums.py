"""The log density of a model with the sites of a block summed out, and exact draws of these sites."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.collapse.elements import Sparse
from pymc_discrete.collapse.elimination import Elimination, TooDear
from pymc_discrete.kernels.random import uniforms
from pymc_discrete.targets.density import Context, ModelDensity
from pymc_discrete.targets.names import shown


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
    ValueError
        Where a site has no bounds and no number of values, or the sum is too large.
    """

    def __init__(self, density: ModelDensity, counts: np.ndarray | None = None):
        self.density, space = density, density.space
        if counts is None:
            counts = np.concatenate([np.full(v.size, v.counts.max(initial=1)) for v in space.variables])
        self.counts = np.asarray(counts)
        self.elements = Sparse(density, self.counts)
        try:
            # the last array has the support of each site
            scopes = [*(g.sites for g in self.elements.groups), np.arange(space.d)[:, None]]
            self.elimination = Elimination(self.counts, scopes)
        except TooDear as error:
            names = shown(list(dict.fromkeys(space.sites[i][0] for i in error.sites)))
            values = ", ".join(str(k) for k in self.counts[error.sites][:8])
            raise ValueError(
                f"{shown(density.names)} cannot be summed out: sites of {names} interact with so many others "
                f"that a sum over {len(error.sites)} of them ({values}{', ...' * (len(error.sites) > 8)} "
                f"values) has {error.entries:.2g} entries. Sum out fewer variables, and sample the others by "
                "a discrete step."
            ) from None

    # ------------------------------------------------------------ pure JAX functions
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
        return self.elimination.joined(self.tables(context, lowest))[0] + self.elements.constant(context)

    def total_and_draw(self, key, context: Context, lowest: Any = None):
        """`logdensity`, and (d,) int, the sites, drawn exactly given everything else."""
        total, stages = self.elimination.joined(self.tables(context, lowest))
        return self._with_draw(key, context, lowest, total, stages)

    def total_draw_and_probabilities(self, key, context: Context, lowest: Any = None):
        """As `total_and_draw`, and (d, K) the probability of each site's values given everything else."""
        *tables, support = self.tables(context, lowest)

        def joined(support):
            return self.elimination.joined([*tables, support])

        # d log Z / d u_i(k) = p(z_i = k), where u_i is a table of site i alone
        (total, stages), probabilities = jax.value_and_grad(joined, has_aux=True)(support)
        return *self._with_draw(key, context, lowest, total, stages), probabilities

    def _with_draw(self, key, context: Context, lowest: Any, total, stages: list[list[Any]]):
        x = self._lowest(lowest) + self.elimination.draw(uniforms(key, (len(self.counts),)), stages)
        return total + self.elements.constant(context), x
