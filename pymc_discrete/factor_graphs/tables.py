"""Factors given by tables of log potentials."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs.factor import Edges, has_impossible, refuse_repeated_sites, site_numbers
from pymc_discrete.factor_graphs.semiring import SUM, Semiring

MOST_TABLE_ENTRIES = 4096  # the largest number of entries of one table, since every sweep reads all entries


class Table(Edges):
    r"""Tables over the values of several sites.

    .. math:: \log\phi_f(x_{f1}, \dots, x_{fn}) = T_f[x_{f1}, \dots, x_{fn}]

    Parameters
    ----------
    sites : (F, n) int, or n arrays (F,): the sites of each factor
    table : (K1, ..., Kn) nats, for all factors, or (F, K1, ..., Kn); -inf where impossible
        K is the largest number of values of a site of the variable; entries for values that a site does not
        have are not read.

    Raises
    ------
    ValueError
        For a table of another shape, with nan or +inf, or with more than 4096 entries.
    """

    def __init__(self, sites: Any, table: Any):
        kind = type(self).__name__
        columns = sites if isinstance(sites, tuple) else np.moveaxis(np.atleast_1d(sites), -1, 0)
        numbers = [site_numbers(kind, c) for c in columns]
        try:
            self.sites = [c.reshape(-1) for c in np.broadcast_arrays(*numbers)]
        except ValueError:
            shapes = ", ".join(str(n.shape) for n in numbers)
            raise ValueError(
                f"The sites of {kind} have the shapes {shapes}, which do not go together: one for each "
                "factor."
            ) from None
        if not self.sites:
            raise ValueError(
                f"{kind} has no sites. A term of none is a constant, which changes nothing: leave it out."
            )
        self.parameters = {"table": table}
        self.hard = has_impossible(table)

    def check(self, widths: list[int]) -> None:
        shape, factors = np.shape(self.parameters["table"]), len(self.sites[0])
        want = tuple(widths)
        if shape not in (want, (factors, *want)):
            raise ValueError(
                f"A table of {factors} factors has shape {shape}; the values of their variables ask for "
                f"{want} or {(factors, *want)}."
            )
        each = np.stack(self.sites, axis=1)
        refuse_repeated_sites(
            type(self).__name__, np.repeat(np.arange(factors), each.shape[1]), each.reshape(-1)
        )
        if math.prod(want) > MOST_TABLE_ENTRIES:
            raise ValueError(
                f"A table of shape {want} has {math.prod(want)} entries, and a sweep visits them all: at "
                f"most {MOST_TABLE_ENTRIES}. Use LogicalOr, LogicalAnd, Cardinality or Quadratic where one "
                "of them says the same, or split the factor."
            )

    def _whole(self, parameters: dict[str, Any]):
        """The tables (K1, ..., Kn, F), or (K1, ..., Kn, 1) if all factors have the same one."""
        table = parameters["table"]
        return jnp.moveaxis(table, 0, -1) if table.ndim > len(self.sites) else table[..., None]

    def logdensity(self, parameters: dict[str, Any], places: list[Any], xp: Any):
        table = parameters["table"]
        return (
            table[np.arange(len(self.sites[0])), *places] if table.ndim > len(self.sites) else table[*places]
        ).sum()

    def send(self, parameters: dict[str, Any], cavities: list[Any], semiring: Semiring) -> list[Any]:
        # The messages of a factor are those of Lazaro-Gredilla et al. 2021, section 2.3 (sum-product, beta =
        # 1) and section 2.4 (max-product).
        return [
            eliminated(self._whole(parameters), cavities, keep, semiring) for keep in range(len(cavities))
        ]

    def total(self, parameters: dict[str, Any], cavities: list[Any]):
        return SUM.over(eliminated(self._whole(parameters), cavities, 0, SUM) + cavities[0], axis=0).sum()


def eliminated(table, cavities: list[Any], keep: int, semiring: Semiring):
    """(K_keep, F), from tables (K1, ..., Kn, F): the sum or maximum over all arguments except `keep`.

    Before the elimination, the messages `cavity_fields` of these arguments are added to the tables.
    """
    for axis in reversed(range(len(cavities))):
        if axis != keep:
            shape = [1] * (table.ndim - 1)
            shape[axis] = cavities[axis].shape[0]
            table = semiring.over(table + cavities[axis].reshape(*shape, -1), axis=axis)
            table = jnp.expand_dims(table, axis)
    return table.reshape(cavities[keep].shape[0], -1)


class Pairwise(Table):
    r"""Tables over pairs of sites, :math:`\log\phi_e(x_a, x_b) = T_e[x_a, x_b]`.

    Parameters
    ----------
    a, b : (E,) int, or broadcastable, the sites of each pair
    table : (Ka, Kb) nats, for all pairs, or (E, Ka, Kb)
    """

    def __init__(self, a: Any, b: Any, table: Any):
        super().__init__((a, b), table)
