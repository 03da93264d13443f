"""Where the warm-up of NUTS begins and its schedule, which are blackjax's."""

import jax
import numpy as np
import pytest
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import dual_averaging_adaptation

from pymc_discrete.engine.warm_up import first_mass, first_step_size, schedule


@pytest.mark.parametrize("tune", [*range(0, 200, 7), 19, 20, 149, 150, 151, 500, 1000, 1001, 2048, 3333])
def test_the_schedule_is_blackjaxs(tune):
    np.testing.assert_array_equal(schedule(tune), np.reshape(build_schedule(tune), (-1, 2)))


@pytest.mark.parametrize("dense", [False, True])
def test_the_first_states_are_blackjaxs(dense):
    for ours, theirs in (
        (first_mass(3, dense), mass_matrix_adaptation(not dense)[0](3)),
        (first_step_size(), dual_averaging_adaptation(0.8)[0](1.0)),
    ):
        assert type(ours)._fields == type(theirs)._fields
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype.kind == np.asarray(b).dtype.kind
