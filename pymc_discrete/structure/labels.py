"""Selections by observed labels, moved before elementwise functions.

A Categorical observation y with probabilities p has the density `p[i, y[i]]`. If p depends on the block, the
sites that enter an element of the density seem to depend on y. In fact they do not, if p is an elementwise
function of the block and of other tensors: element i of `switch(z[:, None], a, b)[i, y[i]]` depends on `z[i]`
only, as `switch(z[i], a[i, y[i]], b[i, y[i]])` shows. In this form y may be an input of a program, and a
program is used again for other observations.
"""

import itertools
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.numbers import numbers_in
from pymc_discrete.structure.rebuild import rebuild


def labels_first(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """Graphs in which labels select from tensors that do not depend on `roots`, wherever possible."""
    selections = Selections(Depends(roots))

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if not isinstance(node.op, AdvancedSubtensor):
            return None
        index = indices_from_subtensor(inputs[1:], node.op.idx_list)
        if inputs[0] not in selections.moving or not numbers_in(inputs[1:]):
            return None
        new = selections.of(inputs[0], list(index))
        out = node.outputs[0].type
        if new is None or new.type.dtype != out.dtype or None in out.shape:
            return None
        return [new if new.type.shape == out.shape else pt.alloc(new, *out.shape)]

    return rebuild(outputs, {}, rewrite)


class Selections(NamedTuple):
    """Selects elements of tensors at indices that may be observed labels.

    Attributes
    ----------
    moving : the variables that depend on the block
    anywhere : bool
        Whether labels may also select from tensors that depend on the block: where the selection cannot be
        moved, or where moving it would make more to compute.
    """

    moving: Depends
    anywhere: bool = False

    def of(self, x: Variable, index: list) -> Variable | None:
        """x[index], where labels select from tensors outside the block only; None where this is impossible.

        If `anywhere` is true, the result is None only where the index has a slice or a mask, or where an axis
        of x has no index or no static length.

        Parameters
        ----------
        index : an array of integers for every axis of x
        """
        if len(index) != x.type.ndim or None in x.type.shape:
            return None
        if not all(is_integers(i) for i in index):
            return None
        if not index:
            return x
        ndim = max(i.type.ndim for i in index)
        index = [pt.shape_padleft(i, ndim - i.type.ndim) for i in index]
        if x not in self.moving or not (self.anywhere or numbers_in(index)):
            return x[tuple(index)]
        if not self.anywhere:
            return self._moved(x, index, ndim)
        shapes = [i.type.shape for i in index]
        known = None not in itertools.chain(*shapes)
        fewer = known and np.prod(np.broadcast_shapes(*shapes)) <= np.prod(x.type.shape)
        new = self._moved(x, index, ndim) if fewer else None
        return x[tuple(index)] if new is None else new

    def _moved(self, x: Variable, index: list, ndim: int) -> Variable | None:
        """x[index], computed from selections of what x is computed from; None where this is impossible."""
        node = x.owner
        if node is None or any(i in self.moving for i in index):
            return None
        if isinstance(node.op, Elemwise) and len(node.outputs) == 1:
            return self._of_elementwise(node, index)
        if isinstance(node.op, DimShuffle):
            order, (x,) = list(node.op.new_order), node.inputs
            places = [
                index[order.index(a)] if a in order else index_of_the_only(ndim) for a in range(x.type.ndim)
            ]
            return self.of(x, places) if places else None
        if isinstance(node.op, AdvancedSubtensor):
            return self._of_selection(node, index)
        return None

    def _of_elementwise(self, node: Apply, index: list) -> Variable | None:
        ndim = index[0].type.ndim
        inputs = []
        for i in node.inputs:
            places = zip(index, i.type.shape, strict=True)
            new = self.of(i, [index_of_the_only(ndim) if size == 1 else place for place, size in places])
            if new is None or new.type.ndim != ndim:
                return None
            inputs.append(new)
        return node.op.make_node(*inputs).outputs[0]

    def _of_selection(self, node: Apply, index: list) -> Variable | None:
        """Write `x[i, j][index]` as `x[i[index], j[index]]`, for i and j of any shape; None if impossible."""
        x, *_ = node.inputs
        arrays = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if not all(is_integers(i) for i in arrays):
            return None
        rows = max(i.type.ndim for i in arrays)
        new = []
        for array in arrays:
            of_rows = index[rows - array.type.ndim : rows]
            sizes = zip(of_rows, array.type.shape, strict=True)
            of_rows = [index_of_the_only(index[0].type.ndim) if size == 1 else place for place, size in sizes]
            element = self.of(array, of_rows)
            if element is None:
                return None
            new.append(element)
        return self.of(x, [*new, *index[rows:]])


def is_integers(i: object) -> bool:
    """Whether one index of a selection is an array of integers, and no slice or mask."""
    return isinstance(i, Variable) and hasattr(i.type, "ndim") and i.type.dtype.startswith(("int", "uint"))


def index_of_the_only(ndim: int) -> Variable:
    """An index of `ndim` axes that selects the only element along an axis of length 1."""
    return pt.constant(np.zeros((1,) * ndim, "int64"))
