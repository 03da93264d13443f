"""Terms that make the density zero where an index is out of bounds, since JAX silently clamps the index."""

from collections.abc import Mapping

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Add, Cast, Identity, Sub
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.bounds import REARRANGING, IntegerBounds, is_whole
from pymc_discrete.structure.numbers import Decision, Number, numbers_in
from pymc_discrete.structure.scalar_ops import applies


def index_guards(
    terms: list[tuple[str, Variable]],
    moving: Depends,
    bounds: IntegerBounds,
    uniform: set[Variable],
    derived: Mapping[str, Variable],
) -> tuple[list[tuple[str, Variable]], list[tuple[str, str]], list[Decision]]:
    """Terms that are -inf where an index that depends on the block is out of bounds.

    PyTensor raises an error for such an index, and JAX clamps the index without an error. Data that are a
    part of an index need no term where they are within bounds, such as the observed elements of a vector
    whose other elements are imputed.

    Parameters
    ----------
    terms : [(name, tensor)] of the log density
    moving : the variables of the graph that depend on the block
    bounds : the bounds of the tensors of the graph, each for all elements of a tensor
    uniform : the variables each of whose elements has the bounds of the whole variable; an element of another
        variable may have tighter bounds, so that no warning is given for it
    derived : {name of a number: the graph that computes it from the model's own numbers}

    Returns
    -------
    guards : [(name, term)]
    warnings : [(variable, message)] for variables that are an index and whose support exceeds the bounds
    decisions : the conditions on numbers under which no further guard is needed
    """
    guards: list[tuple[str, Variable]] = []
    decisions: dict[tuple[Number, int], list[Decision]] = {}
    warnings: list[tuple[str, str]] = []
    seen = set()
    for name, term in terms:
        for node in toposort([term]):
            reads = isinstance(node.op, Subtensor | AdvancedSubtensor)
            writes = isinstance(node.op, IncSubtensor | AdvancedIncSubtensor)
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
                    if (numbers := within_if_numbers_are(index, size, bounds)) is not None:
                        for v in numbers:
                            decisions[v, size] = entries_exist(derived.get(str(v.name), v), size)
                        continue
                    i = pt.as_tensor(index) if hasattr(index.type, "ndim") else pt.tensor_from_scalar(index)
                    guards.append((name, pt.switch((i >= -size) & (i < size), 0.0, -np.inf)))
                    if (
                        np.isfinite([low, high]).all()
                        and (variable := indexing_variable(index)) is not None
                        and variable in uniform
                    ):
                        of = str(variable.name)
                        said = (
                            f"{of!r} gives an index from {low:g} to {high:g} into {size} entries in "
                            f"{name!r}: values without an entry count as impossible. Give the table as many "
                            "entries as there are values, and count from 0."
                        )
                        warnings.append((of, said))
    return guards, list(dict.fromkeys(warnings)), [d for both in decisions.values() for d in both]


def within_if_numbers_are(index: Variable, size: int, bounds: IntegerBounds) -> list[Number] | None:
    """The numbers that an index reads, if the index is within 0, ..., size - 1 whenever all these numbers
    are; else None.
    """
    numbers = [v for v in numbers_in([index]) if is_whole(v)]
    if not numbers or any(v.value.size and not 0 <= v.value.min() <= v.value.max() < size for v in numbers):
        return None
    low, high = bounds.given(dict.fromkeys(numbers, (0.0, size - 1.0))).of(index)
    return numbers if low >= 0 and high < size else None


def entries_exist(var: Variable, size: int) -> list[Decision]:
    """The conditions under which all elements of a tensor of numbers are indices from 0 to size - 1."""
    return [Decision(pt.ge(var, 0), True), Decision(pt.lt(var, size), True)]


def indexing_variable(index: Variable) -> Variable | None:
    """The variable z of an index such as z, z[3], z.T or z - 1; None for any other index.

    The values of such an index are the values of one variable, rearranged or shifted by a constant.
    """
    for node in toposort([index]):
        shifted = applies(node, Add, Sub, Cast, Identity)
        if not shifted and type(node.op) not in REARRANGING:
            return None
    leaves = {v for v in ancestors([index]) if v.owner is None and not isinstance(v, Constant)}
    return leaves.pop() if len(leaves) == 1 else None
