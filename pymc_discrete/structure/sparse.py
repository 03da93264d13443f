"""Rewrites products with constant sparse matrices as selections and sums.

Each element of such a product then reads only a few elements of the dense factor.
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

from pymc_discrete.structure.analysis import Depends

# A sparse matrix becomes dense where a row has more nonzero elements than this, since the sum over every row
# would be padded to the longest row.
LARGEST_GROUP = 64
LARGEST_DENSE = 4_000_000  # the largest number of elements of a matrix that becomes dense


def is_sparse(var: Variable) -> bool:
    return isinstance(var.type, SparseTensorType)


def without_sparse(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """A product of a constant sparse matrix and a dense tensor, written with dense tensors.

    None for other Ops, and where the matrix is not constant.
    """
    if not isinstance(node.op, Dot | StructuredDot) or is_sparse(node.outputs[0]):
        return None
    left, right = inputs
    matrix = known_matrix(left if is_sparse(left) else right)
    if matrix is None:
        return None
    out = sparse_product(matrix, right) if is_sparse(left) else sparse_product(matrix.T, left.T).T
    return [out.astype(node.outputs[0].type.dtype)]


def known_matrix(var: Variable) -> Any:
    """The value of a constant sparse variable, or None for other variables."""
    if not is_sparse(var) or not all(isinstance(i, Constant) for i in graph_inputs([var])):
        return None
    return var.data if isinstance(var, Constant) else pytensor.function([], var, mode="FAST_COMPILE")()


def sparse_product(matrix: Any, x: Variable) -> Variable:
    """`matrix @ x` of a sparse SciPy matrix (r, n) and a tensor x of shape (n,) or (n, m)."""
    matrix = scipy.sparse.csr_matrix(matrix)
    matrix.sum_duplicates()
    count = np.diff(matrix.indptr)
    width = max(int(count.max(initial=0)), 1)
    if width > LARGEST_GROUP and np.prod(matrix.shape) <= LARGEST_DENSE:
        return pt.dot(pt.constant(matrix.toarray()), x)
    # All rows of the matrix are padded to the length of the longest. Padding repeats the first element of a
    # row, with weight 0; in an empty row it reads some other element of the matrix.
    place = matrix.indptr[:-1, None] + np.where(np.arange(width) < count[:, None], np.arange(width), 0)
    place = np.minimum(place, max(matrix.nnz - 1, 0))
    live = np.arange(width) < count[:, None]
    column = matrix.indices[place] if matrix.nnz else np.zeros(place.shape, int)
    weight = np.where(live, matrix.data[place] if matrix.nnz else 0, 0).astype(matrix.dtype)
    tail = (1,) * (x.type.ndim - 1)
    terms = pt.constant(weight.reshape(*weight.shape, *tail)) * x[column.astype(int)]
    if not live.all():  # padding must add 0 even where x is infinite
        terms = pt.switch(
            pt.constant(live.reshape(*live.shape, *tail)), terms, np.zeros((), terms.type.dtype)
        )
    return terms.sum(axis=1)


def refuse_sparse(terms: list[tuple[str, Variable]], moving: Depends, names: list[str]) -> None:
    """Refuse sparse Ops that depend on the block and that `without_sparse` could not replace.

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
