"""The changes of functions of sums by label, against the difference of their values."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special

from pymc_discrete.differences.parts.by_label import after_adding

SIZES, TOTALS = np.array([1.0, 2.0, 7.0]), np.array([-0.3, 4.0, 2.5])
# The functions of the sizes n of clusters and the totals t of what they hold: as a graph, and in NumPy.
FUNCTIONS = {
    "gammaln": (lambda n, t: pt.gammaln(n), lambda n, t: special.gammaln(n)),
    "minus gammaln": (lambda n, t: -pt.gammaln(n), lambda n, t: -special.gammaln(n)),
    "gammaln of more": (lambda n, t: pt.gammaln(n + 2.5), lambda n, t: special.gammaln(n + 2.5)),
    "gammaln of another": (lambda n, t: pt.gammaln(3 * n), lambda n, t: special.gammaln(3 * n)),
    "sum": (lambda n, t: n + t + 2.0, lambda n, t: n + t + 2.0),
    "less": (lambda n, t: t - n, lambda n, t: t - n),
    "less than a number": (lambda n, t: 5.0 - t, lambda n, t: 5.0 - t),
    "times": (lambda n, t: -1.5 * t, lambda n, t: -1.5 * t),
    "minus times": (lambda n, t: -(2.0 * t + n), lambda n, t: -(2.0 * t + n)),
    "product": (lambda n, t: n * t, lambda n, t: n * t),
    "square": (lambda n, t: t**2 / n, lambda n, t: t**2 / n),
    "more than": (lambda n, t: pt.gt(t, 2.6), lambda n, t: 1.0 * (t > 2.6)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_change_is_the_difference_of_values(name):
    graph, expected = FUNCTIONS[name]
    n, t, added = pt.vector("n", shape=(3,)), pt.vector("t", shape=(3,)), pt.vector("added", shape=(1,))
    for by in (1.0, -1.0):
        change = after_adding(graph(n, t), {n: pt.constant([by]), t: added})
        got = pytensor.function([n, t, added], change, mode="FAST_COMPILE", on_unused_input="ignore")
        sizes = SIZES + (by < 0)
        want = expected(sizes + by, TOTALS + 0.4) - expected(sizes, TOTALS)
        np.testing.assert_allclose(got(sizes, TOTALS, [0.4]), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("by", [1.0, -1.0])
def test_log_gamma_of_large_numbers_changes_accurately(by):
    """log Gamma(n + 1) - log Gamma(n) = log n; subtracted, the two values give 3 digits of it at 1e12."""
    n = pt.vector("n", shape=(1,))
    change = after_adding(-pt.gammaln(n + 2.0), {n: pt.constant([by])})
    got = pytensor.function([n], change, mode="FAST_COMPILE")([1e12])
    np.testing.assert_allclose(got, [-np.log(1e12)] if by == 1.0 else [np.log(1e12)], rtol=1e-11)
