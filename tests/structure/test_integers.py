"""log Gamma of integers, against SciPy's."""

import jax
import numpy as np
import pytest
from scipy.special import gammaln

from pymc_discrete.structure.integers import ALWAYS_COMPUTED, TABLE, log_gamma

BEYOND = np.array([TABLE - 1, TABLE, TABLE + 1, 5000, 99_999, 10**6, 10**9, 2**30])
NUMBERS = [
    np.arange(1, ALWAYS_COMPUTED),
    BEYOND,
    np.arange(1, TABLE),
    np.concatenate([np.arange(1, TABLE + 300), BEYOND]),
]


@pytest.mark.parametrize("n", NUMBERS, ids=["few", "few and large", "in the table", "beyond the table"])
@pytest.mark.parametrize(("wide", "error"), [(True, 4e-16), (False, 2.5e-7)])
def test_log_gamma_is_that_of_scipy(n, wide, error):
    with jax.enable_x64(wide):
        found = np.asarray(log_gamma(n))
        in_rows = np.asarray(jax.vmap(log_gamma)(n[:, None]))[:, 0]
    assert found.dtype == (np.float64 if wide else np.float32)
    expected = gammaln(n)
    for each in (found, in_rows):
        assert (abs(each - expected) <= error * np.maximum(expected, 1)).all()


def test_numbers_beyond_32_bits():
    n = np.array([2**31, 2**40 + 1, 2**62])
    np.testing.assert_allclose(log_gamma(n), gammaln(n), rtol=4e-16)


@pytest.mark.parametrize("length", [1, ALWAYS_COMPUTED + 1])
def test_it_is_infinite_where_there_is_no_value(length):
    n = -np.arange(length)
    assert (np.asarray(log_gamma(n)) == np.inf).all()
