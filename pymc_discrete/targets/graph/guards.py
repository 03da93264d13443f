"""Where an index runs out of bounds the density is zero: JAX would clamp it in silence."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Add, Cast, Identity, Sub
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_discrete.targets.graph.analysis import Depends
from pymc_discrete.targets.graph.bounds import MOVING, IntegerBounds, extent


def index_guards(
    terms: list[tuple[str, Variable]],
    moving: Depends,
    supports: dict[Variable, tuple[Any, Any]],
    uniform: set[Variable],
) -> tuple[list[tuple[str, Variable]], list[str]]:
    """Terms that are -inf where an index that depends on the block is out of bounds: PyTensor raises there,
    JAX clamps in silence.

    Parameters
    ----------
    moving : whether a variable depends on the block
    supports : {variable: (lower, upper)}, the widest bounds of its elements
    uniform : the variables whose elements all have these bounds: of the others, an element in question may
        have narrower ones

    Returns
    -------
    guards : [(name, term)]
    warnings : what to say of variables whose own values are an index and reach out of bounds
    """
    found: list[tuple[str, Variable]] = []
    warnings: list[str] = []
    seen = set()
    bounds = IntegerBounds({v: extent(support) for v, support in supports.items()})
    for name, term in terms:
        for node in toposort([term]):
            reads, writes = (
                isinstance(node.op, Subtensor | AdvancedSubtensor),
                isinstance(node.op, IncSubtensor | AdvancedIncSubtensor),
            )
            if node in seen or not (reads or writes):
                continue
            seen.add(node)
            x, flat = node.inputs[0], node.inputs[1 if reads else 2 :]
            for dim, index in enumerate(indices_from_subtensor(flat, node.op.idx_list)):
                size = x.type.shape[dim]
                if (
                    not isinstance(index, Variable)
                    or index not in moving
                    or index.type.dtype == "bool"
                    or size is None
                ):
                    continue
                low, high = bounds.of(index)
                if low < -size or high >= size:
                    i = pt.as_tensor(index) if hasattr(index.type, "ndim") else pt.tensor_from_scalar(index)
                    found.append((name, pt.switch((i >= -size) & (i < size), 0.0, -np.inf)))
                    if (
                        np.isfinite([low, high]).all()
                        and (variable := moved(index)) is not None
                        and variable in uniform
                    ):
                        warnings.append(
                            f"{str(variable.name)!r} gives an index from {low:g} to {high:g} into {size} "
                            f"entries in {name!r}: values without an entry count as impossible. Give the "
                            "table as many entries as there are values, and count from 0."
                        )
    return found, list(dict.fromkeys(warnings))


def moved(index: Variable) -> Variable | None:
    """The variable z of an index such as z, z[3], z.T or z - 1: its values moved or shifted by a constant.
    None for any other index.
    """
    for node in toposort([index]):
        shifted = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Add | Sub | Cast | Identity)
        if not shifted and type(node.op) not in MOVING:
            return None
    leaves = {v for v in ancestors([index]) if v.owner is None and not isinstance(v, Constant)}
    return leaves.pop() if len(leaves) == 1 else None
