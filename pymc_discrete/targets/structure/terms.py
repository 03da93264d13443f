"""The log density as a sum of terms, as sparse as they can be: a sum of everything depends on every site, its
parts do not.
"""

from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_discrete.targets.structure.dependence import Dependence
from pymc_discrete.targets.structure.sums import summands


class Term(NamedTuple):
    """`weight * var.sum()`, of the log density.

    Attributes
    ----------
    name : of the variable or potential of the model that it comes from
    var : a tensor
    weight : a scalar that does not depend on the block, None for 1
    """

    name: str
    var: Variable
    weight: Variable | None

    @property
    def total(self) -> Variable:
        """The scalar."""
        total = self.var.sum() if self.var.type.ndim else self.var
        return total if self.weight is None else total * self.weight


def split(name: str, var: Variable, dependence: Dependence) -> tuple[list[Term], list[Term]]:
    """The terms whose sums add up to that of `var`: those that are sparse, and those that are dense."""
    sparse: list[Term] = []
    dense: list[Term] = []
    graph = dependence.graph

    def take(var: Variable, weight: Variable | None) -> None:
        if not graph.depends(var) or graph.size(var) == 0:
            return
        sites, parts = dependence.of(var), summands(var, graph)
        width = 3 if sites is None else sites.shape[1]
        whole = width <= 1 or (width == 2 and not separates(var, dependence))
        if parts is not None and not whole:
            for part, factor in parts:
                if factor is None:
                    take(part, weight)
                else:
                    take(part, pt.as_tensor(factor) if weight is None else weight * factor)
        else:
            (dense if sites is None else sparse).append(Term(name, var, weight))

    take(var, None)
    return sparse, dense


def separates(var: Variable, dependence: Dependence) -> bool:
    """Whether taking sums apart leaves elements of one site each."""
    if not dependence.graph.depends(var):
        return True
    sites = dependence.of(var)
    if sites is not None and sites.shape[1] <= 1:
        return True
    parts = summands(var, dependence.graph)
    return parts is not None and all(separates(part, dependence) for part, _ in parts)
