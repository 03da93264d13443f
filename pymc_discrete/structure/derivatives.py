"""Inputs of Ops whose derivative does not approximate the change of the density when a site moves."""

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All, Argmax
from pytensor.tensor.math import Any as AnyOp
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.structure.ops.elementwise import rules_of
from pymc_discrete.structure.scalar_ops import is_switch


def is_guard(node: Apply) -> bool:
    """Whether a node is `switch(condition, density, -inf)`: the condition says where the density is zero."""
    return is_switch(node) and any(
        isinstance(b, Constant) and np.isneginf(b.data).all() for b in node.inputs[1:]
    )


def users_of(total: Variable) -> dict[Variable, list[tuple[Apply, int]]]:
    """{variable: [(a node that reads it, the index of this input of the node)]} in the graph of `total`."""
    users: dict[Variable, list[tuple[Apply, int]]] = {}
    for node in toposort([total]):
        for j, i in enumerate(node.inputs):
            users.setdefault(i, []).append((node, j))
    return users


def decides(node: Apply, j: int) -> bool:
    """Whether input j of a node only enters a comparison or selects a branch or an element: it has no
    derivative.
    """
    if isinstance(node.op, Elemwise):
        return node.outputs[0].type.dtype == "bool" or (is_switch(node) and j == 0)
    return isinstance(node.op, All | AnyOp | Argmax) or (
        isinstance(node.op, AdvancedSubtensor | Subtensor) and j > 0
    )


def steps(node: Apply) -> bool:
    """Whether a node applies a step-like function, whose derivative does not approximate any difference."""
    return isinstance(node.op, Elemwise) and rules_of(node.op.scalar_op).step_like
