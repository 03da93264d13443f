"""The log density of a model with the sites of a block summed out, and exact draws of these sites."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.collapse.derivatives import differentiable
from pymc_discrete.collapse.elements import Sparse
from pymc_discrete.collapse.elimination import MOST_ENTRIES, Elimination, TooDear
from pymc_discrete.collapse.labels import first_alike
from pymc_discrete.collapse.repeats import Repeats
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.sum_of_parts import ContextOfModel
from pymc_discrete.kernels.random import uniforms
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.numbers import NeedsValues, Number

# If data are a part of the program, more elements may have the same table, such as all equal answers to one
# question, but other data need another program. Data are made a part of it if that saves half of the entries
# of all tables, and at least MANY_SAVED entries, for which a gradient takes about a millisecond.
MANY_SAVED = 2**14
# For the probability of each value, every site needs a table of its own. Probabilities are computed if all
# such tables have at most this many times the entries of the tables that sites share.
MUCH_MORE = 16


class SumTooLarge(ValueError):
    """Sites interact with so many others that the tables of their elimination would be too large."""


class Sums:
    """The sum of a block's density over its sites.

    Parameters
    ----------
    density : ModelDensity
    counts : (d,) int, optional
        The number of consecutive values of each site that are summed; by default all of its support.
    most : largest number of entries of all tables
    shared : whether a table that several elements have in common is computed once

    Attributes
    ----------
    elements : Sparse, the terms of the block as tables of a few sites each
    elimination : Elimination of all sites from these tables

    Raises
    ------
    NotImplementedError
        Where a term joins too many sites.
    SumTooLarge
    ValueError
        Where a site has no bounds and no number of values.
    """

    elimination: Elimination

    def __init__(
        self,
        density: ModelDensity,
        counts: np.ndarray | None = None,
        most: float = MOST_ENTRIES,
        shared: bool = False,
    ):
        self.density, self.most, self.shared = density, most, shared
        if counts is None:
            blocks = density.space.variables
            counts = np.concatenate([np.full(v.size, v.counts.max(initial=1)) for v in blocks])
        self.counts = np.asarray(counts)
        self.elements = self._sparse()
        self._arrange()

    def _sparse(self) -> Sparse:
        return Sparse(self.density, self.counts, shared=self.shared)

    def _arrange(self) -> None:
        """Find the order in which sites are eliminated."""
        space = self.density.space
        try:
            self.elimination = self._arranged(True)
        except TooDear as error:
            names = shown(space.names_at(error.sites))
            values = ", ".join(str(k) for k in self.counts[error.sites][:8])
            raise SumTooLarge(
                f"{shown(self.density.names)} cannot be summed out: sites of {names} interact with so many "
                f"others that a sum over {len(error.sites)} of them ({values}"
                f"{', ...' * (len(error.sites) > 8)} values) has {error.entries:.2g} entries. Sum out fewer "
                "variables, and sample the others by a discrete step."
            ) from None

    def _arranged(self, alike: bool) -> Elimination:
        """The `Elimination` of all sites.

        Parameters
        ----------
        alike : whether sites with the same values and bounds may share a table
        """
        groups, d = self.elements.groups, len(self.counts)
        # the last array of tables restricts each site to its support
        scopes = [*(g.sites for g in groups), np.arange(d)[:, None]]
        of_support = first_alike(self.elements.alike()) if self.shared and alike else np.arange(d)
        tables = [*(g.tables for g in groups), of_support]
        return Elimination(self.counts, scopes, most=self.most, tables=tables)

    @cached_property
    def apart(self) -> Elimination | None:
        """The elimination in which every site has its own table; None if its tables have too many entries.

        The derivatives of the logarithm of the sum with respect to the tables of single sites are the
        probabilities of the sites' values.
        """
        try:
            found = self._arranged(False)
        except TooDear:
            return None
        return found if found.order.entries <= MUCH_MORE * self.entries else None

    @property
    def entries(self) -> float:
        """The number of entries of all tables of the elimination."""
        return self.elimination.order.entries

    @property
    def gives_probabilities(self) -> bool:
        """Whether the probabilities of the sites' values can be found as well as the sum."""
        return self.apart is not None

    @property
    def work(self) -> float:
        """The number of entries of all tables, of the elements and of the elimination."""
        return self.entries + self.elements.entries

    @cached_property
    def repeats(self) -> Repeats | None:
        """The sum over the sites with less work, if many groups of connected sites have equal sums; else
        None.
        """
        return Repeats.of(self.elements)

    def check_numbers(self) -> None:
        """Raise an error if data and constants should be a part of the program, and not its inputs.

        Raises
        ------
        NeedsValues
            If so many tables, or sums, are equal for the present data that a program for these data alone
            pays.
        """
        numbers = [v for v in self.density.graph.others if isinstance(v, Number)]
        entries = self.elements.entries
        if self.repeats is not None or not self.shared or entries < MANY_SAVED:
            return
        # To find which elements have equal tables takes seconds for a million sites, and finds few if hardly
        # two numbers are equal, as in measurements.
        if all(2 * len(np.unique(v.value)) > np.size(v.value) for v in numbers):
            return
        saved = entries - sum(g.entries for g in self.elements.with_shared_tables(by_value=True))
        if saved >= max(MANY_SAVED, entries / 2):
            raise NeedsValues({str(v.name) for v in numbers})

    @property
    def places(self) -> int:
        """The length of the vector `stretches`, which tells the methods which values of each site
        are summed."""
        return 2 * len(self.counts) * self.elements.longest

    # ------------------------------------------------------------ pure JAX functions
    def within(self, stretches: Any):
        """(d,) bool, the sites that are summed out if `stretches` says over which values sites are summed."""
        return jnp.ones(len(self.counts), bool)

    def summed_values(self, stretches: Any = None) -> tuple[Any, Any]:
        """The values of each site that are summed, and how often each of them counts.

        Parameters
        ----------
        stretches : (places,) int, optional
            The values of all sites, and then the logarithms to base 2 of how often each counts. Only the
            elements of sites that are summed over stretches are read. Other sites, and by default all sites,
            are summed over consecutive values from their lower bound.

        Returns
        -------
        values, doublings : (d, K) int, each value counts 2**doublings times
        """
        whole = self.elements.first[:, None] + np.arange(self.counts.max(initial=1))
        moving = self.elements.moving[:, None]
        if stretches is None or not moving.any():
            return whole, np.broadcast_to(0, whole.shape)
        values, doublings = stretches[: 2 * whole.size].reshape(2, *whole.shape)
        return jnp.where(moving, values, whole), jnp.where(moving, doublings, 0)

    def tables(self, context: ContextOfModel, stretches: Any = None) -> list[Any]:
        """The tables of the elements, and (d, K) nats, the logarithm of how often each value counts.

        Parameters
        ----------
        stretches : (places,) int, optional
            Over which values sites are summed; by default over consecutive values from the lower bound.
        """
        space = self.density.space
        values, doublings = self.summed_values(stretches)
        inside = (values >= space.lower[:, None]) & (values <= space.upper[:, None])
        if not isinstance(inside, np.ndarray):
            support = jnp.where(inside, np.log(2) * doublings, -jnp.inf)
        elif (inside == inside[:1]).all():
            # the program has one row, and not a constant of as many rows as there are sites
            support = jnp.broadcast_to(jnp.where(inside[:1], 0.0, -jnp.inf), inside.shape)
        else:
            support = jnp.where(inside, 0.0, -jnp.inf)
        return [*self.elements.tables(context, values), support]

    @cached_property
    def _values_of_leaves(self):
        return self.density.values_of_leaves(differentiable)

    def logdensity(self, context: ContextOfModel, stretches: Any = None):
        """() nats, the log of the sum, over all states of the sites, of exp of the terms that the sites
        enter.
        """
        return self._of(log_total, self.tables(context, stretches), stretches) + self._rest(
            context, stretches
        )

    def logdensity_of(self, inputs: Sequence[Any], stretches: Any = None):
        """() nats, the log density summed over the sites, at values of the other variables, with derivatives
        that are finite wherever the log density is.

        The derivative of x log(mu) at mu = 0, in the log density of a Poisson count x, is nan also where x
        is 0 and the term has no influence; such derivatives are taken as 0.
        """
        if self.repeats is not None:
            return self.repeats.logdensity(inputs)
        return self.logdensity(self.density.without_parts(inputs, self._values_of_leaves), stretches)

    def total_and_draw(self, key, context: ContextOfModel, stretches: Any = None):
        """() nats, the log density summed over the sites; and (d,) int, an exact draw of the sites given
        everything else.
        """
        u = uniforms(key, (len(self.counts),))
        found, index = self._of(total_and_draw, self.tables(context, stretches), stretches, u)
        return found + self._rest(context, stretches), self._at(index, stretches)

    def total_draw_and_probabilities(self, key, context: ContextOfModel, stretches: Any = None):
        """() nats, the log density summed over the sites; (d,) int, an exact draw of the sites given
        everything else; and (d, K), the probability of each site's values given everything else.

        This needs `gives_probabilities` to be true.
        """
        u = uniforms(key, (len(self.counts),))
        tables = self.tables(context, stretches)
        found, index, probabilities = self._of(total_draw_and_probabilities, tables, stretches, u)
        return found + self._rest(context, stretches), self._at(index, stretches), probabilities

    def most_probable(self, context: ContextOfModel):
        """The most probable state of all sites together, given everything else, and the logarithm of the sum.

        This needs `gives_probabilities` to be true, and sites that are summed over their whole support.

        Returns
        -------
        total : () nats, the logarithm of the sum over the sites, without terms that no site enters
        log_probability : () nats, the log probability of the state
        x : (d,) int, the state
        probabilities : (d, K), the probabilities of each site's values, whatever the other sites are
        """
        tables, elimination = self.tables(context), self.apart
        assert elimination is not None
        total, _, probabilities = total_draw_and_probabilities(
            elimination, tables, jnp.zeros(len(self.counts))
        )
        largest, index = elimination.most_probable(tables)
        return total, largest - total, self._at(index, None), probabilities

    def _rest(self, context: ContextOfModel, stretches: Any):
        """() nats, the terms that no summed site enters."""
        return self.elements.constant(context)

    def _of(self, function: Callable, tables: list[Any], stretches: Any, *inputs: Any) -> Any:
        """The result of a function (elimination, tables, *inputs); only probabilities need the elimination in
        which no two sites share a table.
        """
        apart = function is total_draw_and_probabilities
        return function(self.apart if apart else self.elimination, tables, *inputs)

    def _at(self, index, stretches: Any):
        """(d,) int, the values of the sites; `index` (d,) is the position of each value on the axis of its
        site.
        """
        if stretches is None or not self.elements.moving.any():
            return jnp.asarray(self.elements.first) + index
        values, _ = self.summed_values(stretches)
        return jnp.take_along_axis(jnp.asarray(values), index[:, None], axis=1)[:, 0]


def log_total(elimination: Elimination, tables: list[Any]):
    """() nats, the logarithm of the sum over all sites of the product of the tables."""
    return elimination.joined(tables)[0]


def total_and_draw(elimination: Elimination, tables: list[Any], uniforms):
    """() nats, the logarithm of the sum over all sites of the product of the tables; and (d,) int, the index
    of each site's value, drawn exactly given the tables.
    """
    found, stages = elimination.joined(tables)
    return found, elimination.draw(uniforms, stages)


def total_draw_and_probabilities(elimination: Elimination, tables: list[Any], uniforms):
    """() nats, the logarithm of the sum over all sites of the product of the tables; (d,) int, the index of
    each site's value, drawn exactly given the tables; and (d, K), the probability of each value of a site.
    """
    *others, support = tables

    def joined(support):
        return elimination.joined([*others, support])

    # d log Z / d u_i(k) = p(z_i = k), where u_i is a table of site i alone
    (found, stages), probabilities = jax.value_and_grad(joined, has_aux=True)(support)
    return found, elimination.draw(uniforms, stages), probabilities
