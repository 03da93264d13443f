"""Sums and minima by an index, in turn and by XLA's scatter."""

import numpy as np
import pytest

from pymc_discrete.kernels import scatter
from tests.tools.interpreted import interpreted


@pytest.mark.parametrize("few", [0, scatter.IN_TURN_UP_TO], ids=["scatter", "in turn"])
def test_sums_and_minima(few, monkeypatch):
    monkeypatch.setattr(scatter, "IN_TURN_UP_TO", few)
    r = np.random.default_rng(0)
    index, values = r.integers(0, 6, 20), r.integers(-9, 9, (20, 2))  # 5 is beyond the end
    sums = [values[index == i].sum(0) for i in range(5)]
    np.testing.assert_array_equal(interpreted(lambda v: scatter.added_at(index, v, 5))(values), sums)
    start, index = r.integers(-9, 9, 5), np.minimum(index, 3)
    least = [min([start[i], *values[index == i, 0]]) for i in range(5)]
    found = interpreted(lambda s, v: scatter.lowest_at(s, index, v))(start, values[:, 0])
    np.testing.assert_array_equal(found, least)
