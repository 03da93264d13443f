"""Rewrites quadratic forms of a constant matrix with few nonzeros, such as an adjacency matrix, as sums over
pairs.

    x' A y = sum of A_ij x_i y_j over the nonzero elements of A

An element of this sum depends on the sites of x_i and y_j only; the product x_i (A y)_i depends on the sites
of all y_j for which A_ij is not 0.
"""

from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Cast, Mul
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape

from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.scalar_ops import computed_by

# A matrix has few nonzeros if at most this many elements of a row are nonzero on average, and if at most half
# of all elements are nonzero.
ENTRIES = 8


def sum_of_products(factors: Sequence[Variable], moving: Depends) -> Variable:
    """The sum of the elementwise product of vectors.

    If one of the vectors is a constant matrix with few nonzeros times a vector that depends on the block, the
    sum is written over the nonzero elements of the matrix.

    Parameters
    ----------
    factors : vectors of one length
    moving : the variables that depend on the block
    """
    for n, factor in enumerate(factors):
        found = matrix_and_vector(factor, moving)
        if found is not None:
            A, y = found
            rows, columns = np.nonzero(A)
            weights = pt.constant(A[rows, columns])
            others = [f[rows] for f in (*factors[:n], *factors[n + 1 :])]
            return pt.mul(weights, y[columns], *others).sum()
    return pt.mul(*factors).sum() if len(factors) > 1 else factors[0].sum()


def factors_of(v: Variable) -> list[Variable]:
    """Vectors of the same length whose elementwise product is a vector; the vector itself, if it is no
    product.
    """
    if not computed_by(v, Mul):
        return [v]
    vectors = [i for i in v.owner.inputs if i.type.shape == v.type.shape]
    scalars = [i for i in v.owner.inputs if i.type.shape != v.type.shape]
    found = [f for i in vectors for f in factors_of(i)]
    if any(set(i.type.shape) > {1} for i in scalars) or not vectors:
        return [v]
    return [*found, *(pt.broadcast_to(i, v.shape) for i in scalars)]


def matrix_and_vector(v: Variable, moving: Depends) -> tuple[np.ndarray, Variable] | None:
    """A constant matrix A (n, m) with few nonzeros, and y (m,) that depends on the block, such that v (n,) is
    A y.
    """
    while v.owner is not None and (
        isinstance(v.owner.op, DimShuffle | JoinDims | Reshape | SpecifyShape | SplitDims)
        or computed_by(v, Cast)
    ):
        v = v.owner.inputs[0]
    if v.owner is None or not isinstance(v.owner.op, Dot):
        return None
    left, right = v.owner.inputs
    A, y = (left, right) if isinstance(left, Constant) else (right, left)
    if not isinstance(A, Constant) or A.type.ndim != 2 or y not in moving:
        return None
    data = np.asarray(A.data if A is left else A.data.T)
    n, entries = len(data), np.count_nonzero(data)
    if v.type.shape not in ((n,), (n, 1), (1, n)) or not 0 < entries <= min(ENTRIES * n, data.size / 2):
        return None
    return data, y.reshape((-1,))
