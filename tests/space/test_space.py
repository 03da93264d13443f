"""The neighbours of sites without a finite support."""

import numpy as np
import pytest

from pymc_discrete.space.space import offsets_of


@pytest.mark.parametrize("window", ["auto", "geometric"])
@pytest.mark.parametrize(("reach", "largest"), [(1.0, 1), (2.0, 2), (5.0, 4), (8.0, 8), (100.0, 64)])
def test_offsets_are_all_powers_of_two_up_to_the_reach(window, reach, largest):
    """Also the largest: draws are right without it, and take long to cross a support."""
    powers = [2**n for n in range(8) if 2**n <= largest]
    assert offsets_of("k", window, reach).tolist() == [*(-p for p in powers[::-1]), *powers]


def test_a_window_has_all_offsets_up_to_its_width():
    np.testing.assert_array_equal(offsets_of("k", 3, 100.0), [-3, -2, -1, 1, 2, 3])
