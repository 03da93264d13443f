"""The elements of coefficients as one vector, and quadratic forms in this vector."""

from collections.abc import Callable, Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph

from pymc_discrete.integrals.scalars import scalars_first
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.numbers import Number
from pymc_discrete.structure.rebuild import opened, rebuild, rewritten


class Coefficients:
    """The elements of several coefficients, one after another in a vector of p elements.

    Parameters
    ----------
    variables : the coefficients
    graph : the graph whose variables they are
    """

    def __init__(self, variables: Sequence[Variable], graph: LogpGraph):
        self.variables, self.graph = list(variables), graph
        sizes = [graph.size(v) for v in variables]
        self.p = sum(sizes)
        self._starts = np.cumsum([0, *sizes])

    def of(self, vector: Variable) -> dict[Variable, Variable]:
        """{coefficient: its elements}, from a vector with the elements of all coefficients."""
        return {
            v: vector[start : start + self.graph.size(v)].reshape(self.graph.shape(v))
            for v, start in zip(self.variables, self._starts, strict=False)
        }

    def places(self, var: Variable) -> np.ndarray:
        """(size,) int, the indices of the elements of a coefficient in a vector of the elements of all."""
        start = self._starts[self.variables.index(var)]
        return np.arange(start, start + self.graph.size(var))


def linear_and_precision(
    terms: Sequence[Variable], replaced: Callable[[Variable], dict[Variable, Variable]], p: int
) -> tuple[Variable, Variable]:
    """b (p,) and A (p, p) with which the sum of some terms is b' v - v' A v / 2, plus a constant, for a
    vector v (p,).

    Parameters
    ----------
    replaced : (v) -> {variable that the terms read: the elements of v that take its place}
    p : the length of v
    """
    dtype = pytensor.config.floatX
    vector, direction = (pt.tensor(name, shape=(p,), dtype=dtype) for name in ("vector", "direction"))
    nothing = float_constant(np.zeros((p, p)))
    if not terms:
        return float_constant(np.zeros(p)), nothing
    total = pt.add(pt.constant(0.0), *rebuild([t.sum() for t in terms], replaced(vector)))
    (slope,) = pytensor.grad(total, [vector], disconnected_inputs="ignore")
    (curved,) = pytensor.grad((slope * direction).sum(), [vector], disconnected_inputs="ignore")
    slope, curved = rebuild([slope, curved], {vector: float_constant(np.zeros(p))})
    slope, curved = rewritten(rebuild([slope, curved], {}, opened))
    if curved not in Depends([direction]):
        return slope, nothing
    hessian = vectorize_graph(curved, {direction: float_constant(np.eye(p))})
    return tuple(scalars_first(rewritten([slope, -hessian])))


def float_constant(values: np.ndarray) -> Variable:
    """A constant of PyTensor with the float type that models have."""
    return pt.constant(values.astype(pytensor.config.floatX))


def is_discrete(v: Variable) -> bool:
    """Whether an input of a graph is a discrete variable of the model."""
    return not v.type.dtype.startswith("float") and not isinstance(v, Number)
