"""Where a derivative by an input says nothing of how an output jumps with it."""

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import (
    Ceil,
    Floor,
    IntDiv,
    Mod,
    RoundHalfAwayFromZero,
    RoundHalfToEven,
    Sign,
    Trunc,
)
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All, Argmax
from pytensor.tensor.math import Any as AnyOp
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.targets.structure.reads import is_switch

# what a derivative of these says about a jump of a site has nothing to do with the jump
STEPS = (Mod, Floor, Ceil, Trunc, RoundHalfToEven, RoundHalfAwayFromZero, IntDiv, Sign)


def is_guard(node: Apply) -> bool:
    """`switch(condition, density, -inf)`: the condition only says where the density is zero."""
    return is_switch(node) and any(
        isinstance(b, Constant) and np.isneginf(b.data).all() for b in node.inputs[1:]
    )


def users_of(total: Variable) -> dict[Variable, list[tuple[Apply, int]]]:
    users: dict[Variable, list[tuple[Apply, int]]] = {}
    for node in toposort([total]):
        for j, i in enumerate(node.inputs):
            users.setdefault(i, []).append((node, j))
    return users


def decides(node: Apply, j: int) -> bool:
    """Whether input j is only compared, or chooses a branch or an element: nothing to differentiate."""
    if isinstance(node.op, Elemwise):
        return node.outputs[0].type.dtype == "bool" or (is_switch(node) and j == 0)
    return isinstance(node.op, All | AnyOp | Argmax) or (
        isinstance(node.op, AdvancedSubtensor | Subtensor) and j > 0
    )


def steps(node: Apply) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, STEPS)
