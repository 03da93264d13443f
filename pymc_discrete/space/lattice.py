"""Integer vectors v with A v = 0: a basis of the lattice that they form, and short ones among them."""

import numpy as np

# integers below this limit have 64 bits; larger ones are Python's, so that no product overflows
EXACT = 2**24
LARGEST_LIST = 400  # the largest number of vectors that `short_vectors` returns
TRIED = 20_000  # most sums and differences that a round of the search for short vectors looks at
REDUCTIONS = 3
PASSES = 20  # most passes of the reduction of a basis


def basis_of(matrix: np.ndarray) -> np.ndarray:
    """(k, n) int, a basis of the lattice of integer vectors v (n,) with A v = 0, reduced to short vectors.

    Row operations with integer coefficients and determinant 1 bring the rows of [A', I] to echelon form, so
    that every integer vector remains an integer combination of the right part (Cohen 1993, section 2.4.3).
    Where the left part of a row is 0, the right part is a vector of the basis.

    Parameters
    ----------
    matrix : (m, n) int, A

    References
    ----------
    Cohen 1993, A course in computational algebraic number theory.
    """
    m, n = matrix.shape
    rows = narrow(np.concatenate([matrix.T.astype(object), np.eye(n, dtype=int)], axis=1))
    for column in range(m):
        while (rest := np.flatnonzero(rows[:, column])).size:
            # The pivot is the smallest coefficient; of several equal ones, it is the one in the row with most
            # zeros.
            sizes = np.abs(rows[rest, column]).astype(float)
            filled = np.count_nonzero(rows[rest], axis=1)
            pivot = rest[np.lexsort((filled, sizes))[0]]
            others = rest[rest != pivot]
            if not len(others):
                rows = np.delete(rows, pivot, axis=0)
                break
            quotients = rows[others, column] // rows[pivot, column]
            rows = wide(rows, quotients)
            rows[others] -= quotients[:, None] * rows[pivot]
            rows = narrow(rows)
    return reduced(rows[:, m:])


def wide(rows: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """`rows` as Python's integers, if a product with one of `factors` may be too large for 64 bits."""
    if rows.dtype != object and np.abs(factors).max(initial=0) * np.abs(rows).max(initial=0) < EXACT:
        return rows
    return rows.astype(object)


def narrow(rows: np.ndarray) -> np.ndarray:
    """`rows` as 64-bit integers, if all elements are so small that their products surely fit into 64 bits."""
    if rows.dtype == object and np.abs(rows).max(initial=0) < EXACT:
        return rows.astype(np.int64)
    return rows


def reduced(basis: np.ndarray) -> np.ndarray:
    """(k, n) int, a basis of the lattice that `basis` spans.

    No vector of the result can be shortened by adding a multiple of another one.

    Each pair of vectors is reduced as by Gauss and Lagrange (Nguyen and Stehle 2009, section 1).

    References
    ----------
    Nguyen and Stehle 2009, Low-dimensional lattice basis reduction revisited.
    """
    for _ in range(PASSES):
        before = basis
        for j in range(len(basis)):
            products = basis @ basis[j]
            quotients = nearest_quotients(products, products[j])
            quotients[j] = 0
            # the vectors b_i that b_i - q b_j shortens: its square is |b_i|^2 - 2 q (b_i . b_j) + q^2 |b_j|^2
            shorter = np.flatnonzero(quotients * (quotients * products[j] - 2 * products) < 0)
            if len(shorter):
                basis = wide(basis, quotients).copy()
                basis[shorter] -= quotients[shorter, None] * basis[j]
                basis = narrow(basis)
        if basis is before:
            break
    return basis


def nearest_quotients(a: np.ndarray, b: int) -> np.ndarray:
    """The integers nearest to a / b, for b > 0."""
    return (2 * a + b) // (2 * b)


def short_vectors(basis: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(M, n) int, the vectors of a basis, then others of the lattice that are no longer than the longest.

    The others are sums and differences of vectors already found, each once up to its sign, until there are
    `LARGEST_LIST`. For a contingency table with given margins, the result has the moves that change two rows
    in two columns.
    """
    longest = max((int(np.abs(b).sum()) for b in basis), default=0)
    known = {signless(b): None for b in basis}
    for _ in range(REDUCTIONS if len(basis) > 1 else 0):
        vectors = np.array(list(known), dtype=basis.dtype)
        pairs = np.stack(np.triu_indices(len(vectors), 1), axis=1)
        if len(pairs) > TRIED:
            pairs = pairs[rng.permutation(len(pairs))[:TRIED]]
        for sign in (1, -1):
            new = vectors[pairs[:, 0]] + sign * vectors[pairs[:, 1]]
            length = np.abs(new).sum(axis=1)
            for v in new[(length > 0) & (length <= longest)]:
                known.setdefault(signless(v))
        if len(known) >= LARGEST_LIST or len(known) == len(vectors):
            break
    return np.array(list(known)[:LARGEST_LIST], dtype=np.int64).reshape(-1, basis.shape[1])


def signless(v: np.ndarray) -> tuple[int, ...]:
    """The vector v or -v, whichever has a positive number as its first element that is not 0."""
    first = next((a for a in v if a), 0)
    return tuple((v if first >= 0 else -v).tolist())
