"""Sums that are compared with a threshold which they may equal exactly, so that rounding decides.

A sum that is updated term by term is rounded differently from a sum that is computed anew. At a threshold,
the same state could be beyond the threshold by one sum and not by the other: the state would be possible when
a chain leaves it, and impossible when a chain enters it. Such sums are therefore computed anew for each
change.
"""

from collections.abc import Callable

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort

from pymc_discrete.structure.bounds import is_whole
from pymc_discrete.structure.derivatives import decides, steps
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.numbers import NeedsValues, Number, numbers_in

# Sums and products of a few numbers are exact if all numbers are multiples of FINEST and smaller than
# LARGEST_SUMMAND.
FINEST, LARGEST_SUMMAND = 2.0**-8, 2.0**16


def decided_by_rounding(total: Variable, graph: LogpGraph) -> Callable[[Variable], bool]:
    """A function that says whether the rounding of a tensor may decide a comparison that `total`, a log
    density, is computed from.

    The function raises `NeedsValues` if the answer depends on the values of numbers.
    """
    ties = that_may_tie(total, graph)
    return lambda var: var in ties and is_rounded(var, graph)


def that_may_tie(total: Variable, graph: LogpGraph) -> set[Variable]:
    """The tensors that enter a comparison or a step-like function which no continuous unknown enters.

    In some states such a tensor may equal a threshold exactly. If a continuous unknown enters a comparison, a
    tie has probability 0.
    """
    found: set[Variable] = set()
    continuous = {v for v in graph.others if not (is_whole(v) or isinstance(v, Number))}
    for node in toposort([total], blockers=graph.values):
        compared = [i for j, i in enumerate(node.inputs) if steps(node) or decides(node, j)]
        if any(map(graph.depends, compared)):
            below = set(ancestors(compared, blockers=graph.values))
            if below.isdisjoint(continuous):
                found |= below
    return found


def is_rounded(var: Variable, graph: LogpGraph) -> bool:
    """Whether rounding makes a sum depend on the order of its summands.

    Sums of integers, or of short binary fractions such as 3/8, are exact in every order.

    Raises
    ------
    NeedsValues
        If the answer depends on the values of numbers.
    """
    if is_whole(var):
        return False
    leaves = [v for v in ancestors([var], blockers=graph.values) if v.owner is None and not is_whole(v)]
    if numbers := numbers_in(leaves):
        raise NeedsValues({str(v.name) for v in numbers})
    floats = [v.data for v in leaves if isinstance(v, Constant) and hasattr(v.type, "dtype")]
    return not all(
        (a == np.round(a / FINEST) * FINEST).all() and (abs(a) < LARGEST_SUMMAND).all() for a in floats
    )
