"""Bases of integer lattices and their short vectors, against enumeration."""

import itertools

import numpy as np
import pytest

from pymc_discrete.space.lattice import basis_of, reduced, short_vectors


def margins(rows, columns):
    """(rows + columns, rows columns), the sums of a table."""
    across = np.kron(np.eye(rows, dtype=int), np.ones(columns, int))
    down = np.kron(np.ones(rows, int), np.eye(columns, dtype=int))
    return np.concatenate([across, down])


MATRICES = {
    "cubic": np.array([[3, 2, 1, 0], [0, 1, 2, 3]]),
    "table": margins(2, 3),
    "one sum": np.ones((1, 5), int),
    "multiples": np.array([[2, 4, 6], [1, 2, 3]]),
    "no unit": np.array([[6, 10, 15]]),
    "difference": np.array([[1, -1, 0, 2], [0, 0, 1, -1]]),
    "nothing left": np.array([[1, 1], [1, -1]]),
    "empty": np.zeros((0, 3), int),
}


@pytest.mark.parametrize("name", MATRICES)
def test_every_vector_is_an_integer_combination(name):
    matrix = MATRICES[name]
    basis = basis_of(matrix)
    assert basis.shape == (
        matrix.shape[1] - np.linalg.matrix_rank(matrix.reshape(-1, matrix.shape[1])),
        matrix.shape[1],
    )
    assert not (matrix @ basis.T).any()
    box = np.array(list(itertools.product(range(-3, 4), repeat=matrix.shape[1])))
    inside = box[~(box @ matrix.T).any(axis=1)]
    if not len(basis):
        assert not inside.any()
        return
    coefficients = np.linalg.lstsq(basis.T.astype(float), inside.T.astype(float), rcond=None)[0]
    assert np.abs(coefficients - np.round(coefficients)).max() < 1e-8
    np.testing.assert_array_equal(np.round(coefficients).T.astype(int) @ basis, inside)


def test_the_check_sees_a_sublattice():
    """Twice a vector of the basis: half of the lattice is missing."""
    basis = basis_of(MATRICES["table"])
    basis[0] *= 2
    v = basis[0] // 2
    coefficients = np.linalg.lstsq(basis.T.astype(float), v.astype(float), rcond=None)[0]
    assert np.abs(coefficients - np.round(coefficients)).max() > 0.4


def test_large_coefficients_are_exact():
    """With 64 bits their products would be wrong."""
    a, b, c = 1_000_000_007, 999_999_937, 998_244_353
    basis = basis_of(np.array([[a, b, c], [b, c, a]])).astype(object)
    assert basis.shape == (1, 3)
    (v,) = basis.tolist()
    assert a * v[0] + b * v[1] + c * v[2] == 0
    assert b * v[0] + c * v[1] + a * v[2] == 0
    assert any(v)


def test_reduction_shortens():
    basis = basis_of(MATRICES["cubic"])
    tangled = np.array([[1, 0], [7, 1]]) @ basis
    assert sorted((reduced(tangled) ** 2).sum(axis=1)) == sorted((basis**2).sum(axis=1))
    # of the three short vectors of this lattice, the shortest is in the basis
    assert (basis**2).sum(axis=1).min() == 4


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 3), (4, 3)])
def test_short_vectors_of_a_table_are_the_moves_of_two_rows_and_two_columns(rows, columns):
    vectors = short_vectors(basis_of(margins(rows, columns)), np.random.default_rng(0))
    of_four = [v for v in vectors.tolist() if np.abs(v).sum() == 4]
    assert len(of_four) == len(set(map(tuple, of_four))) == rows * (rows - 1) * columns * (columns - 1) // 4
    assert not (margins(rows, columns) @ vectors.T).any()
