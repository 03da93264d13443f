"""Finds in a graph coefficients that discrete sites multiply: `gamma * beta` or `switch(gamma, beta, 0)`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Mul
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.degree import is_separable_quadratic
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.numbers import AS_WRITTEN, numbers_in
from pymc_discrete.structure.rebuild import rebuild
from pymc_discrete.structure.scalar_ops import applies, is_switch

MOVING_OPS = (
    DimShuffle, Reshape, SpecifyShape, JoinDims, SplitDims, Subtensor, AdvancedSubtensor, Join, MakeVector,
    TensorFromScalar, ScalarFromTensor,
)  # fmt: skip


class Product(NamedTuple):
    """A tensor each of whose elements is one coefficient times a function of discrete sites.

    Attributes
    ----------
    var : the tensor
    places : an array in the shape of `var`, the index of the coefficient that each element is a multiple of
    factor : a tensor in the shape of `var`, for each element the function of sites that multiplies
    """

    var: Variable
    places: np.ndarray
    factor: Variable


def gated_products(
    terms: Sequence[Variable], coefficients: Sequence[Variable], discrete: Depends, graph: LogpGraph
) -> list[Product]:
    """The products of coefficients with functions of discrete sites in the graphs of some terms.

    Only products are found whose inputs depend on coefficients alone or on sites alone, not on both.
    """
    moved = Depends(coefficients)
    found = []
    for node in toposort(terms):
        mixes = [i in moved and i in discrete for i in node.inputs]
        if node.outputs[0] in moved and node.outputs[0] in discrete and not any(mixes):
            product = as_product(node, coefficients, moved, graph)
            found += [product] if product else []
    return found


def products_first(terms: Sequence[Variable], moved: Depends, discrete: Depends) -> list[Variable]:
    """Terms in which coefficients are multiplied by functions of sites before any other operation.

    Equal products, of one coefficient and one function of sites, become one variable.
    """
    made: dict[tuple[Variable, ...], Variable] = {}

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if not applies(node, Mul):
            return None
        own = [i for i in inputs if i in moved and i not in discrete]
        gates = [i for i in inputs if i in discrete and i not in moved]
        rest = [i for i in inputs if i not in moved and i not in discrete]
        if len(own) != 1 or not gates:
            return None
        product = made.setdefault((*own, *gates), node.op(*own, *gates))
        return [node.op(*rest, product) if rest else product]

    return rebuild(list(terms), {}, rewrite)


def as_product(
    node: Apply, coefficients: Sequence[Variable], moved: Depends, graph: LogpGraph
) -> Product | None:
    """The output of a node as a `Product`; None unless each element is a coefficient times a function of
    sites.
    """
    if not applies(node) or len(node.outputs) > 1:
        return None
    own = [n for n, i in enumerate(node.inputs) if i in moved]
    other = next((i for n, i in enumerate(node.inputs) if n > 0 and n not in own), None)
    if is_switch(node):
        linear = own in ([1], [2]) and isinstance(other, Constant) and not np.any(other.data)
    else:
        linear = applies(node, Mul) and len(own) == 1
    if not linear:
        return None
    source = node.inputs[own[0]]
    index = places(source, coefficients, graph)
    if index is None:
        return None
    ones = pt.constant(np.ones(index.shape, source.type.dtype))
    inputs = [ones if n == own[0] else i for n, i in enumerate(node.inputs)]
    out = node.outputs[0]
    return Product(out, np.broadcast_to(index, graph.shape(out)), node.op.make_node(*inputs).outputs[0])


def is_separable(term: Variable, coefficients: Sequence[Variable], moved: Depends, graph: LogpGraph) -> bool:
    """Whether a term is a sum of quadratic functions of single coefficients."""
    total = term.sum()
    pending, found = [total], dict[Variable, np.ndarray]()
    while pending:
        v = pending.pop()
        if v in moved and v not in found:
            index = places(v, coefficients, graph)
            if index is None:
                pending += v.owner.inputs
            else:
                found[v] = index
    if len(found) != 1:
        return False
    ((v, index),) = found.items()
    return len(np.unique(index)) == index.size and is_separable_quadratic(total, v, graph.size)


def places(var: Variable, coefficients: Sequence[Variable], graph: LogpGraph) -> np.ndarray | None:
    """For each element of a tensor, the index of the coefficient that it is equal to.

    The elements of several coefficient variables are indexed one after another. The result is None if an Op
    on the way from the coefficients to the tensor does more than select or rearrange elements.
    """
    nodes = toposort([var], blockers=coefficients)
    if numbers_in([var]) or not all(isinstance(node.op, MOVING_OPS) for node in nodes):
        return None
    starts = np.cumsum([0, *(graph.size(v) for v in coefficients)])
    counted: dict[Variable, Variable] = {
        v: pt.constant(start + np.arange(graph.size(v)).reshape(graph.shape(v)))
        for v, start in zip(coefficients, starts, strict=False)
    }
    (index,) = rebuild([var], counted)
    return np.asarray(pytensor.function([], index, mode=AS_WRITTEN)())
