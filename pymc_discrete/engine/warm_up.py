"""The initial adaptation state of Stan's staged warm-up of NUTS, and its schedule.

blackjax has both, but takes long to import. Here they are written in NumPy, with the same values, so that a
run whose compiled program is found on disk does not import blackjax.
"""

from typing import Any, NamedTuple

import numpy as np

FEWEST = 20  # the number of tuning draws below which the mass matrix is not adapted
BEFORE_WINDOWS, AFTER_WINDOWS = 75, 50  # the numbers of draws before and after the windows of the mass matrix
# The mass matrix is estimated afresh from each window of tuning draws. The first window has this number of
# draws, each further one twice as many.
WINDOW = 25


class StepSize(NamedTuple):
    """The state of blackjax's `dual_averaging_adaptation`."""

    log_step_size: Any
    log_step_size_avg: Any
    step: Any
    avg_error: Any
    mu: Any


class Moments(NamedTuple):
    """The state of blackjax's `welford_algorithm`."""

    mean: Any
    m2: Any
    sample_size: Any


class Mass(NamedTuple):
    """The state of blackjax's `mass_matrix_adaptation`."""

    inverse_mass_matrix: Any
    wc_state: Moments

    @classmethod
    def of(cls, inverse_mass_matrix: Any, wc_state: Any) -> "Mass":
        return cls(inverse_mass_matrix, Moments(*wc_state))


def first_step_size() -> StepSize:
    """The adaptation state of the step size before any draw, at a step size of 1."""
    one = np.asarray(1.0)
    return StepSize(np.log(one), np.zeros(()), np.asarray(1), np.zeros(()), np.log(10 * one))


def first_mass(size: int, dense: bool) -> Mass:
    """The adaptation state of the mass matrix before any draw: an identity matrix with `size` rows.

    If not `dense`, the state has the diagonal of the matrix only.
    """
    if dense:
        return Mass(np.eye(size), Moments(np.zeros(size), np.zeros((size, size)), np.asarray(0)))
    return Mass(np.ones(size), Moments(np.zeros(size), np.zeros(size), np.asarray(0)))


def schedule(tune: int) -> np.ndarray:
    """(tune, 2) int: for each tuning draw, whether the mass matrix is estimated from it, and whether a window
    ends.

    The schedule is Stan's, see the section on warm-up of its reference manual: draws before the windows,
    windows of doubling length, where the last window takes the draws that are too few for another one, and
    draws after the windows. At the end of a window, its estimate comes into use.
    """
    found = np.zeros((tune, 2), int)
    if tune < FEWEST:
        return found
    first, last, length = BEFORE_WINDOWS, AFTER_WINDOWS, WINDOW
    if first + length + last > tune:
        first, last = int(0.15 * tune), int(0.1 * tune)
        length = tune - first - last
    start, end = first, tune - last
    while start < end:
        stop = start + length if 3 * length <= end - start else end
        found[start:stop, 0], found[stop - 1, 1] = 1, 1
        start, length = stop, 2 * length
    return found
