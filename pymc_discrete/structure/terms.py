"""Splits a log density into terms whose elements depend on as few sites as possible.

The total log density depends on every site, but each of its terms may depend on a few sites only.
"""

from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.sums import Summands, distributed, summands


class Term(NamedTuple):
    """A term `weight * var.sum()` of the log density.

    Attributes
    ----------
    name : the name of the variable or potential of the model that the term comes from
    var : a tensor
    weight : a scalar that does not depend on the block, None for 1
    """

    name: str
    var: Variable
    weight: Variable | None

    @property
    def total(self) -> Variable:
        """The value of the term, a scalar."""
        total = self.var.sum() if self.var.type.ndim else self.var
        return total if self.weight is None else total * self.weight


def split(name: str, var: Variable, dependence: Dependence) -> tuple[list[Term], list[Term], list[Term]]:
    """Terms that add up to the sum of `var`, split as far as splitting makes their elements depend on fewer
    sites.

    Returns
    -------
    sparse : terms whose elements depend on few sites each
    dense : terms whose elements depend on too many sites, or on sites that are not known (see `Dependence`)
    constant : terms that do not depend on the block
    """
    sparse: list[Term] = []
    dense: list[Term] = []
    constant: list[Term] = []
    graph = dependence.graph

    def add(var: Variable, weight: Variable | None) -> None:
        if graph.size(var) == 0:
            return
        if not graph.depends(var):
            constant.append(Term(name, var, weight))
            return
        sites, parts = dependence.of(var), summands(var, graph)
        width = 3 if sites is None else sites.shape[1]
        if parts is None and sites is not None and width > 2:
            parts = narrower(distributed(var, graph), width, dependence)
        whole = width <= 1 or (width == 2 and not separates(var, dependence))
        if parts is not None and not whole:
            for part, factor in parts:
                if factor is None:
                    add(part, weight)
                else:
                    add(part, pt.as_tensor(factor) if weight is None else weight * factor)
        else:
            (dense if sites is None else sparse).append(Term(name, var, weight))

    add(var, None)
    return sparse, dense, constant


def narrower(parts: Summands | None, width: int, dependence: Dependence) -> Summands | None:
    """The parts of a term, if the elements of each part depend on fewer than `width` sites; else None."""
    of_parts = [dependence.of(part) for part, _ in parts or () if dependence.graph.depends(part)]
    return parts if all(sites is not None and sites.shape[1] < width for sites in of_parts) else None


def separates(var: Variable, dependence: Dependence) -> bool:
    """Whether the sum over a tensor can be split until each element of each part depends on one site only."""
    if not dependence.graph.depends(var):
        return True
    sites = dependence.of(var)
    if sites is not None and sites.shape[1] <= 1:
        return True
    parts = summands(var, dependence.graph)
    return parts is not None and all(separates(part, dependence) for part, _ in parts)
