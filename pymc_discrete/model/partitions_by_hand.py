"""Finds terms of a model that look like the probability of a partition, written by the user for labels."""

from collections.abc import Collection, Iterator

import numpy as np
import pymc as pm
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import EQ, Add, Cast, Clip, Maximum, Sub, Switch
from pytensor.scalar.math import GammaLn
from pytensor.tensor.basic import Eye, Join, MakeVector, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pymc_discrete.model.logp import terms_of
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.scalar_ops import computed_by


def partitions_by_hand(model: pm.Model, names: Collection[str]) -> list[str]:
    """Warnings about Potentials and CustomDists that look like a Chinese restaurant process of labels.

    A term looks like this process if it takes the log gamma function of the number of sites with each label,
    or of this number less a constant. If a positive constant is added to the number, there is no warning:
    such a term is the density of labels of components whose weights are integrated out.

    Parameters
    ----------
    names : value variables, some of which may be labels
    """
    labels = [v for v in model.value_vars if v.name in names]
    moving = Depends(labels)
    found = []
    for name, term in terms_by_hand(model):
        nodes = toposort([term]) if term in moving else ()
        if any(computed_by(node.outputs[0], GammaLn) and of_sizes(node.inputs[0], moving) for node in nodes):
            whose = shown([str(v.name) for v in labels if term in Depends([v])])
            found.append(
                f"{name!r} looks like a Chinese restaurant process of the labels {whose}: it has log Gamma "
                "of how many elements each label has. K labels name a partition into k clusters in "
                "K! / (K - k)! ways, by which its probability must be divided; this is easily left out. "
                "A pmd.Partition does it, and its clusters are split and merged."
            )
    return found


def terms_by_hand(model: pm.Model) -> Iterator[tuple[str, Variable]]:
    """The (name, log density) of each Potential and CustomDist."""
    rvs = [*model.free_RVs, *model.observed_RVs]
    if not model.potentials and not any(is_custom(rv) for rv in rvs):
        return
    terms = terms_of(model)
    for rv, term in zip(rvs, terms[: len(rvs)], strict=True):
        if is_custom(rv):
            yield str(rv.name), term
    for potential, term in zip(model.potentials, terms[len(rvs) :], strict=True):
        yield str(potential.name), term


def is_custom(rv: Variable) -> bool:
    """Whether a random variable is a CustomDist."""
    return isinstance(rv.owner.op, CustomDistRV | CustomSymbolicDistRV)


def of_sizes(v: Variable, moving: Depends, added: float = 0.0) -> bool:
    """Whether a tensor is the number of sites with each label, with no positive constant added to it.

    Parameters
    ----------
    moving : the variables that depend on the labels
    added : the sum of constants that have been added so far
    """
    node = v.owner
    if node is None or v not in moving:
        return False
    rest = [i for i in node.inputs if i not in moving]
    others = [i for i in node.inputs if i in moving]
    if computed_by(v, Switch, Maximum, Clip, Cast) or isinstance(
        node.op, DimShuffle | MakeVector | Join | TensorFromScalar
    ):
        return any(of_sizes(i, moving, added) for i in others)
    if computed_by(v, Add, Sub) and len(others) == 1:
        sign = 1.0 if isinstance(node.op.scalar_op, Add) else -1.0
        if others[0] is not node.inputs[0] and sign < 0:
            return False
        return of_sizes(others[0], moving, added + sign * sum(map(largest_value, rest)))
    if added > 0:
        return False
    if isinstance(node.op, AdvancedIncSubtensor):
        return any(i in moving for i in node.inputs[2:])
    if not isinstance(node.op, Sum):
        return False
    summed = node.inputs[0]
    while computed_by(summed, Cast):
        summed = summed.owner.inputs[0]
    one_of_each = summed.owner is not None and isinstance(summed.owner.op, AdvancedSubtensor)
    return computed_by(summed, EQ) or (one_of_each and is_identity(summed.owner.inputs[0]))


def largest_value(v: Variable) -> float:
    """The largest element of a constant; inf for a tensor of unknown value, such as the discount of a
    process.
    """
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        v = v.owner.inputs[0]
    return float(v.data.max()) if isinstance(v, Constant) else np.inf


def is_identity(v: Variable) -> bool:
    """Whether a tensor is an identity matrix, or a constant each of whose rows has one element 1.

    The rows that labels select from an identity matrix add up to the number of sites with each label.
    """
    if v.owner is not None:
        return isinstance(v.owner.op, Eye)
    return isinstance(v, Constant) and v.data.ndim == 2 and bool(((v.data == 1).sum(1) == 1).all())
