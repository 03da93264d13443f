"""Products with constant sparse matrices, written as selections and sums of which every element reads a few
others.
"""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import scipy.sparse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.sparse.math import Dot, StructuredDot
from pytensor.sparse.type import SparseTensorType

from pymc_discrete.targets.graph.analysis import Depends

LARGEST_GROUP = 64  # entries of a row that are added up one by one; a matrix with more becomes a dense one
LARGEST_DENSE = 4_000_000  # entries of a dense one


def is_sparse(var: Variable) -> bool:
    return isinstance(var.type, SparseTensorType)


def without_sparse(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """The product of a constant sparse matrix with a dense tensor, in dense tensors; None for other Ops, and
    where it is not constant.
    """
    if not isinstance(node.op, Dot | StructuredDot) or is_sparse(node.outputs[0]):
        return None
    left, right = inputs
    matrix = known_matrix(left if is_sparse(left) else right)
    if matrix is None:
        return None
    out = product(matrix, right) if is_sparse(left) else product(matrix.T, left.T).T
    return [out.astype(node.outputs[0].type.dtype)]


def known_matrix(var: Variable) -> Any:
    """The sparse matrix that a variable is, or None where it is not constant."""
    if not is_sparse(var) or not all(isinstance(i, Constant) for i in graph_inputs([var])):
        return None
    return var.data if isinstance(var, Constant) else pytensor.function([], var, mode="FAST_COMPILE")()


def product(matrix: Any, x: Variable) -> Variable:
    """`matrix @ x` of a sparse matrix (r, n) and x (n,) or (n, m)."""
    matrix = scipy.sparse.csr_matrix(matrix)
    matrix.sum_duplicates()
    count = np.diff(matrix.indptr)
    width = max(int(count.max(initial=0)), 1)
    if width > LARGEST_GROUP and np.prod(matrix.shape) <= LARGEST_DENSE:
        return pt.dot(pt.constant(matrix.toarray()), x)
    # rows of equal width: what is missing reads the row's first entry once more, or nothing of a row that has
    # none
    place = matrix.indptr[:-1, None] + np.where(np.arange(width) < count[:, None], np.arange(width), 0)
    place = np.minimum(place, max(matrix.nnz - 1, 0))
    live = np.arange(width) < count[:, None]
    column = matrix.indices[place] if matrix.nnz else np.zeros(place.shape, int)
    weight = np.where(live, matrix.data[place] if matrix.nnz else 0, 0).astype(matrix.dtype)
    tail = (1,) * (x.type.ndim - 1)
    terms = pt.constant(weight.reshape(*weight.shape, *tail)) * x[column.astype(int)]
    if not live.all():  # 0 times an infinite entry
        terms = pt.switch(
            pt.constant(live.reshape(*live.shape, *tail)), terms, np.zeros((), terms.type.dtype)
        )
    return terms.sum(axis=1)


def refuse_sparse(terms: list[tuple[str, Variable]], moving: Depends, names: list[str]) -> None:
    """Refuse a sparse matrix that depends on the block, and a sparse one that is not constant beside what
    does.

    Raises
    ------
    ValueError
    """
    for name, term in terms:
        for node in toposort([term]):
            if node.outputs[0] in moving and any(map(is_sparse, [*node.inputs, *node.outputs])):
                raise ValueError(
                    f"{name!r} takes {', '.join(map(repr, names))} through a sparse matrix in a way that is "
                    f"not known here ({node.op}). A constant sparse matrix times a dense tensor is: "
                    "pytensor.sparse.structured_dot(A, x[:, None]). Write it so, or with dense tensors."
                )
