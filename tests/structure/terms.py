"""Terms of 20 binary sites in which a change of a site is not what it seems: each was once wrong here."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
from scipy import sparse

R = np.random.default_rng(0)


X = R.normal(size=(7, 20))


BAND = np.tri(20, 20, 1, bool) & ~np.tri(20, 20, -1, bool)


COUNTS = R.integers(0, 3, size=(7, 20))


ASKED = pt.constant(np.eye(4, 5, dtype=int) + np.eye(4, 5, 1, dtype=int))


SPARSE = sparse.csr_matrix(
    np.where(BAND, R.normal(size=(20, 20)), 0) * (np.arange(20) != 3)[:, None]
)  # a row of zeros


FULL = sparse.csr_matrix(np.tile(X, 4))


binary = lambda n=20: pm.Bernoulli("x", 0.4, shape=n)


add = lambda term: pm.Potential("p", term)


as_float = lambda v: pt.cast(v, "float64")


def in_steps(step, x):
    """A Scan over the numbers 0, 1, 2 and 3, whose steps do not depend on one another."""
    return pytensor.scan(step, sequences=[np.arange(4.0)], non_sequences=[x], return_updates=False)


GRAPHS = {
    "steps that are all the same": lambda x: in_steps(lambda t, x: 0.3 * x[:3], x).sum(),
    "steps of which one of two outputs is the same": lambda x: sum(
        a.sum() for a in in_steps(lambda t, x: (t * x[0], 0.3 * x[1]), x)
    ),
    "positions in a sorted vector": lambda x: (
        as_float(pt.searchsorted(pt.constant([0, 1, 2]), x[:5] + x[5:10], side="right")) ** 2
    ).sum(),
    "booleans add by OR": lambda x: 2.0 * as_float(pt.eq(x[0], 1) + pt.eq(x[1], 1) + pt.eq(x[2], 1)),
    "narrow integers wrap": lambda x: 0.01 * as_float(sum(pt.cast(x[i] * 90, "int8") for i in range(3))),
    "a dot of booleans is an OR": lambda x: (
        1.3 * as_float(pt.dot(pt.constant(np.ones((2, 20), bool)), pt.eq(x, 1))).sum()
    ),
    "a sparse dot of booleans": lambda x: as_float(pt.dot(pt.constant(BAND), pt.eq(x, 1))).sum(),
    "a dot of bytes wraps": lambda x: (
        as_float(pt.dot(pt.constant(np.full((2, 20), 40, "uint8")), pt.cast(x, "uint8"))).sum() * 0.1
    ),
    "an integer map, squared": lambda x: -0.5 * pt.sqr(pt.dot(pt.constant(COUNTS), x) - 3.0).sum(),
    "a map cast to integers": lambda x: as_float(pt.cast(pt.dot(pt.constant(X), x), "int64")).sum(),
    "a map cast to booleans": lambda x: (
        -as_float(pt.cast(pt.dot(pt.constant(COUNTS * 1.0), x), "bool")).sum()
    ),
    "an infinite source": lambda x: 3 * pt.sigmoid(pt.log(as_float(x)).sum() + 2),
    "a source that spans 20 orders": lambda x: pt.log(pt.dot(pt.constant(np.r_[1e17, np.ones(19)]), x) + 1),
    "a matrix of sites": lambda x: pt.tanh(pt.dot(pt.constant(X[:, :10]), x.reshape((10, 2)))).sum(),
    "a map of part of the source": lambda x: pt.softplus(
        pt.dot(pt.constant(X), pt.concatenate([[1.0], x[1:]]))
    ).sum(),
    "a map of each of two parts": lambda x: (
        -pt.sqr(pt.dot(pt.constant(X[:, :10]), x[:10]) - pt.dot(pt.constant(X[:, 10:]), x[10:])).sum()
    ),
    "log Gamma of large integers": lambda x: pt.sqrt(1 + pt.gammaln(1 + 3000 * x.sum())),
    "a log of a sum of exponentials": lambda x: pm.math.logsumexp(x * X[0]),
    "the order of each column": lambda x: (
        pt.constant(X[0])[pt.argsort(x.reshape((4, 5)), axis=0, stable=True)] * X[:4, :5]
    ).sum(),
    "counts of values": lambda x: pt.tanh(0.3 * pt.bincount(x + 2 * x[0], minlength=4)).sum(),
    "exponents and factors of 0": lambda x: pt.tanh(
        0.3 * pt.prod(x.reshape((1, 4, 5)) ** ASKED, axis=-1)
        + pt.prod(1 - ASKED + ASKED * x[:5], axis=-1)
        + pt.switch(ASKED, x[5:10], -1).max(axis=-1)
        + pt.any(pt.or_(pt.eq(x[10:15], 1), pt.eq(ASKED, 0)), axis=-1)
        + 0.7 * pt.log(as_float(x[15:]) * ASKED + ASKED).max(axis=-1)
    ).sum(),
    "a sparse matrix": lambda x: pt.tanh(ps.structured_dot(SPARSE, as_float(x)[:, None])).sum(),
    "a sparse matrix of integers, from the right": lambda x: (
        -pt.sqr(ps.dot(x[None], SPARSE.astype(int).T) - 1.0).sum()
    ),
    "a sparse matrix with full rows": lambda x: pt.softplus(
        ps.structured_dot(FULL, pt.tile(as_float(x), 4)[:, None])
    ).sum(),
    "a sparse matrix of logarithms": lambda x: pt.exp(
        ps.structured_dot(abs(SPARSE), pt.log(as_float(x))[:, None])
    ).sum(),
}
