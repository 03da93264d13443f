"""Elements of a tensor, grouped by the sites that they depend on, and sums of the elements' changes."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Constant, Variable

from pymc_discrete.differences.parts.evaluate import JointMoves, Moves, Reader
from pymc_discrete.differences.parts.part import BlockState
from pymc_discrete.space.indexing import picked
from pymc_discrete.space.space import Space
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.rebuild import context_inputs
from pymc_discrete.structure.terms import Term


@dataclass
class SiteElements:
    """The elements of a tensor that depend on each site of one variable, as a table with R rows, called
    entries.

    Attributes
    ----------
    site : (R,) int
        The site of each entry, as an index into x.
    local : (R,) int
        The site of each entry, counted within the variable.
    index : (R, m) int
        Flat indices of the elements.
    mask : (R, m) bool
        False where `index` is padding.
    complete : bool
        Whether entry r belongs to site r of the variable, for all of its sites.
    unique : bool
        Whether no site has two entries.
    """

    site: np.ndarray
    local: np.ndarray
    index: np.ndarray
    mask: np.ndarray
    complete: bool
    unique: bool

    @classmethod
    def build(
        cls, sites: np.ndarray, elements: np.ndarray, start: int, size: int, pad: bool = False
    ) -> "SiteElements":
        order = np.lexsort((elements, sites))
        sites, elements = sites[order], elements[order]
        owner, first, counts = np.unique(sites, return_index=True, return_counts=True)
        m = int(counts.max())
        if pad:  # every site gets one row of the table, however few elements depend on it
            present, owner = owner - start, np.arange(start, start + size)
            first, counts = (np.bincount(present, a, size).astype(int) for a in (first, counts))
        elif len(owner) * m > 4 * len(sites) + 64:
            # Each element gets a row of the table: with a row for each site, it would be mostly padding.
            no_padding = np.ones((len(sites), 1), bool)
            return cls(sites, sites - start, elements[:, None], no_padding, False, False)
        mask = np.arange(m) < counts[:, None]
        position = np.minimum(first[:, None] + np.arange(m), len(sites) - 1)
        index = np.where(mask, elements[position], elements[first][:, None])
        return cls(owner, owner - start, index, mask, len(owner) == size, True)

    def positions(self, rows, size: int):
        """(r,) int, the row of the table for each of the sites `rows`, -1 for none.

        No site may have two rows (`unique`). The result is a NumPy array if `rows` is one.

        Parameters
        ----------
        rows : (r,) int
            Sites, counted within the variable.
        size : int
            The number of sites of the variable.
        """
        if self.complete:
            return rows
        position = np.full(size + 1, -1)
        position[self.local] = np.arange(len(self.local))
        return picked(position, rows)

    def add(self, total, values):
        """The total (n, k) of the n sites of a variable, plus the values (R, k) of the R rows of the table.

        The values of a row are added to the total of the row's site.
        """
        if self.complete:
            return total + values
        return total.at[self.local].add(values, unique_indices=self.unique, indices_are_sorted=True)


def elements_per_variable(
    sites: np.ndarray, space: Space, elements=None, pad: bool = False
) -> dict[int, SiteElements]:
    """{variable number: the elements that depend on each of its sites}.

    Parameters
    ----------
    sites : (n, J) int
        The sites that each element depends on, -1 for none.
    elements : (n,) int
        Flat indices of the elements; by default 0, ..., n - 1.
    pad : bool
        Whether every site of a variable gets exactly one entry, a row of `SiteElements`, though few elements
        depend on it. Where sites of the variable move together, each gets one in any case.
    """
    elements = np.arange(len(sites)) if elements is None else elements
    owner, element = sites[sites >= 0], np.repeat(elements, (sites >= 0).sum(1))
    by_variable = {}
    for n, (start, v) in enumerate(space.blocks):
        of_variable = (owner >= start) & (owner < start + v.size)
        if of_variable.any():
            # If several sites move together, the row of a site in `SiteElements` is found by the site's
            # number, so each site must have exactly one row.
            padded = pad or v.constraint is not None or v.lines is not None
            by_variable[n] = SiteElements.build(
                owner[of_variable], element[of_variable], start, v.size, padded
            )
    return by_variable


def after_moves(
    var: Variable,
    elements: SiteElements,
    n: int,
    state: BlockState,
    dependence: Dependence,
    space: Space,
    rows: Any = None,
    candidates: Any = None,
):
    """(r, m, moves), for each site of a variable the values, after each move of the site, of the m elements
    of a tensor that depend on the site.

    Parameters
    ----------
    elements : the elements that depend on each site of variable n
    rows : (r,) int
        Sites, counted within the variable; None means all.
    candidates : (r, moves) int
        The values to move to; None means the neighbours.
    """
    start, v = space.blocks[n]
    candidates = space.values_of(state.x, start, v, rows) if candidates is None else candidates
    reader = Reader(dependence, state.arrays, rows, Moves([elements.site], [candidates]))
    values = reader.read(var, elements.index)
    return jnp.broadcast_to(values, (candidates.shape[0], elements.index.shape[1], candidates.shape[1]))


def after_joint_moves(
    var: Variable,
    elements: SiteElements,
    n: int,
    state: BlockState,
    dependence: Dependence,
    space: Space,
    moves: JointMoves,
):
    """(r m, k, C), for each site the values, after joint moves, of the k elements that depend on the site.

    In a joint move all m sites of a row move. There are r rows, and C joint moves for each row.

    Parameters
    ----------
    elements : the k elements that depend on each site of variable n, one entry for every site
    """
    jointly = (dependence.graph.values[n], moves)
    reader = Reader(
        dependence, state.arrays, moves.each, Moves([elements.site], [moves.values_of_each], jointly)
    )
    values = reader.read(var, elements.index)
    shape = (moves.sites.size, elements.index.shape[1], moves.values.shape[1])
    return jnp.broadcast_to(values, shape)


def counted_once(
    var: Variable, elements: SiteElements, n: int, dependence: Dependence, space: Space, moves: JointMoves
):
    """(r m, k) bool, for each site of a row the elements that depend on no earlier site of the row.

    Each element that depends on a site of a row is thus selected exactly once. Padding is False.
    """
    m = moves.sites.shape[1]
    mask = jnp.asarray(elements.mask)[moves.each] & moves.first[:, None]
    sites = dependence.sparse(var)[elements.index]
    if sites.shape[-1] < 2:
        return mask
    before = np.tile(np.tri(m, k=-1, dtype=bool), (moves.sites.shape[0], 1))
    earlier = jnp.where(before, jnp.repeat(space.starts[n] + moves.sites, m, axis=0), -2)
    depends = jnp.asarray(sites)[moves.each][..., None] == earlier[:, None, None]
    return mask & ~depends.any(axis=(-2, -1))


@dataclass
class TermElements:
    """The elements of a term that depend on one variable, grouped by the sites of this variable.

    Attributes
    ----------
    term : Term
    elements : SiteElements
        The elements that depend on each site.
    n : int
        The number of the variable.
    dependence : Dependence
        Which elements of the graph's variables depend on which sites.
    space : Space
        The sites of the block.
    """

    term: Term
    elements: SiteElements
    n: int
    dependence: Dependence
    space: Space


def weighted_values(values, term: Term, arrays):
    """Values of elements of a term as floats, multiplied by the weight of the term."""
    values = values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(jnp.result_type(float))
    if term.weight is None:
        return values
    weight = term.weight.data if hasattr(term.weight, "data") else arrays[term.weight]
    return values * jnp.asarray(weight).reshape(())


def masked_sum(values, mask):
    """(r, k), the sum of values (r, m, k) over m where `mask` (r, m) is True."""
    if not (isinstance(mask, np.ndarray) and mask.all()):
        values = jnp.where(mask[..., None], values, 0.0)
    elif values.shape[1] < mask.shape[1]:
        values = jnp.broadcast_to(values, (*values.shape[:1], mask.shape[1], values.shape[2]))
    return values.sum(axis=1)


def difference(then, now):
    """The change of a log density from `now` to `then`, where nan counts as -inf.

    The change is -inf where only `then` is -inf, and 0 where `then` and `now` are both -inf.
    """
    then = jnp.where(jnp.isnan(then), -jnp.inf, then)
    # Equal finite values are subtracted as well, and not replaced by 0, so that derivatives of the result are
    # right.
    change = jnp.where((then == now) & jnp.isinf(now), 0.0, then - now)
    return jnp.where(jnp.isneginf(then), jnp.where(jnp.isneginf(now), 0.0, -jnp.inf), change)


def sum_in_order(arrays):
    """The sum of one or more arrays, added in the given order."""
    first, *others = arrays
    return sum(others, first)


def leaves_of(terms: list[Term], values: list[Variable]) -> list[Variable]:
    """The inputs of the graphs of some terms: tensors outside the block that must be known to evaluate the
    terms.

    The inputs are the weights of the terms that are no constants, and all tensors that enter the graphs from
    outside the block, such as data and the values of continuous variables.
    """
    weights = [t.weight for t in terms if t.weight is not None and not isinstance(t.weight, Constant)]
    return [*weights, *context_inputs([t.var for t in terms], values)] if terms else []
