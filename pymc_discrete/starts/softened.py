"""Makes a log density without impossible states of one that has such states.

A search that climbs the softened log density finds a state that is possible in the original.
"""

import copy
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.plan import Plan
from pymc_discrete.model.untouched import Untouched
from pymc_discrete.runtime.compiled import Programs
from pymc_discrete.runtime.model_settings import width_of_models
from pymc_discrete.space.space import Space
from pymc_discrete.space.space import Variable as Sites
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.sums import all_summands

# the names of the two inputs that a softened density has after the inputs of the density it is made from
SHARE, PENALTY = "/share", "/penalty"
# attributes that a density computes from its terms at first use, which a copy with other terms must not
# inherit
COMPUTED = {
    name for kind in ModelDensity.__mro__ for name, a in vars(kind).items() if isinstance(a, cached_property)
}
# In a search for a possible state, all values up to this distance from the current value of an integer site
# are its neighbours, since a single one of them may make the state possible.
NEAR = 16
# the largest offset from the value of a site to a neighbour in a search for a possible state; where integers
# have 32 bits, the largest offset is the square root of this number
FARTHEST_NEIGHBOUR = 2**30


def softened(density: ModelDensity) -> ModelDensity:
    r"""A log density in which every impossible element costs a penalty instead.

    The log density is a sum of elements :math:`e_j(x)`, and it is :math:`-\infty` where one of the elements
    is. The softened density is

    .. math:: \sum_j \begin{cases} s \, e_j(x) & \text{where } e_j(x) \text{ is finite} \\
        -p & \text{elsewhere} \end{cases}

    with two more inputs, the share s and the penalty p. With s = 0 and p = 1 the softened density is minus
    the number of impossible elements, which says how far from possible a state is. Differences of the
    softened density are exact. The neighbours of a site with a window are at distances 1, 2, ..., `NEAR`, and
    1, 2, 4, ... up to `FARTHEST_NEIGHBOUR`, to both sides.

    Raises
    ------
    pymc_discrete.structure.numbers.NeedsValues, NotImplementedError, ValueError
        Where the differences cannot be computed exactly.
    """
    share, penalty = (pt.scalar(name, dtype=pytensor.config.floatX) for name in (SHARE, PENALTY))
    graph = density.graph
    parts = [(name, part) for name, term in graph.terms for part in all_summands(term, graph)]
    terms = [(name, without_impossible(part, share, penalty)) for name, part in parts if has_floats(part)]
    soft = copy.copy(density)
    soft.__dict__ = {k: a for k, a in soft.__dict__.items() if k not in COMPUTED} | {"_programs": Programs()}
    soft.graph = replace(
        graph,
        others=[*graph.others, share, penalty],
        groups={**graph.groups, share: [SHARE], penalty: [PENALTY]},
        terms=terms,
        untouched=[],
        start={**graph.start, SHARE: np.zeros(()), PENALTY: np.ones(())},
    )
    space = density.space
    soft.space = Space([with_far_neighbours(v) for v in space.variables], space.members)
    soft.plan = Plan(Dependence(soft.graph, soft.space.starts, soft.space.d), soft.space, "exact")
    soft.parts = soft.plan.parts
    soft.untouched = Untouched(soft.graph)
    soft._compile()
    return soft


def without_impossible(part: Variable, share: Variable, penalty: Variable) -> Variable:
    """A tensor with its finite elements times `share`, and minus the penalty in place of its other
    elements."""
    return pt.switch(pt.isnan(part) | pt.isinf(part), -penalty, share * part)


def has_floats(part: Variable) -> bool:
    """Whether a tensor has floats, since only floats can be infinite."""
    return part.type.dtype.startswith("float")


def with_far_neighbours(v: Sites) -> Sites:
    """The sites of a variable, where a site with a window gets other neighbours.

    The offsets are ±1, ±2, ±3, ... up to `NEAR`, and farther away ± powers of 2 up to `FARTHEST_NEIGHBOUR`.
    """
    if v.finite or not v.size:
        return v
    farthest = FARTHEST_NEIGHBOUR if width_of_models() else int(FARTHEST_NEIGHBOUR**0.5)
    widest = min(int((v.upper - v.lower).max()), farthest)
    steps = np.union1d(np.arange(1, min(NEAR, widest) + 1), 2 ** np.arange(int(np.log2(widest)) + 1))
    return replace(v, offsets=np.concatenate([-steps[::-1], steps]).astype(np.int64))
