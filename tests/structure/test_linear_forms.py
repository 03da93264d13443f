"""Bounds of sums of counts that limit each other, against enumeration of all values that are possible."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_discrete.model.support import bounds_of, parameter_bound


def random_counts(seed):
    """(a linear form of counts that limit each other, all its values): each count is binomial.

    The number of trials of each is a form of those before it, no less than 0.
    """
    rng = np.random.default_rng(seed)
    counts = [pm.DiscreteUniform.dist(0, 2), pm.DiscreteUniform.dist(0, 1)]
    states = [(a, b) for a in range(3) for b in range(2)]

    def form():
        return rng.integers(-1, 2, len(counts)), int(rng.integers(0, 4))

    for _ in range(3):
        coefficients, constant = form()
        least = min(constant + int(np.dot(coefficients, x)) for x in states)
        constant -= min(least, 0)
        n = written(counts, coefficients, constant)
        counts.append(pm.Binomial.dist(n, 0.5))
        states = [(*x, k) for x in states for k in range(constant + int(np.dot(coefficients, x)) + 1)]
    coefficients, constant = form()
    values = [constant + int(np.dot(coefficients, x)) for x in states]
    return written(counts, coefficients, constant), min(values), max(values)


def written(counts, coefficients, constant):
    total = pt.as_tensor(np.int64(constant))
    for v, c in zip(counts, coefficients, strict=True):
        total = total - v if c == -1 else total + int(c) * v
    return total


def ends(var):
    return [int(parameter_bound(var, largest)) for largest in (False, True)]


@pytest.mark.parametrize("seed", range(40))
def test_all_values_are_within(seed):
    total, least, most = random_counts(seed)
    low, high = ends(total)
    assert low <= least
    assert high >= most


def test_an_error_of_one_would_be_found():
    found = {0: 0, 1: 0}
    for seed in range(40):
        total, *extremes = random_counts(seed)
        for end, (claimed, attained) in enumerate(zip(ends(total), extremes, strict=True)):
            found[end] += claimed == attained
    assert min(found.values()) > 20  # so many bounds are attained


def epidemic(weeks, population=500, first=5, shape=()):
    with pm.Model() as model:
        well, ill = population - first, first
        for t in range(weeks):
            infections = pm.Binomial(f"infections{t}", well, 0.1, shape=shape)
            removals = pm.Binomial(f"removals{t}", ill, 0.3, shape=shape)
            well, ill = well - infections, ill + infections - removals
    return model


@pytest.mark.parametrize("shape", [(), (3,)], ids=["scalar", "vector"])
def test_removals_never_exceed_the_population(shape):
    model = epidemic(52, shape=shape)
    for rv in model.free_RVs:
        if rv.name.startswith("infections"):
            assert bounds_of(rv) == (0, 495)
        else:
            assert bounds_of(rv) == (0, 5 if rv.name == "removals0" else 500)


def test_elements_that_are_rearranged_do_not_cancel():
    a = pm.DiscreteUniform.dist(0, 3, shape=(2,))
    b = pm.Binomial.dist(a, 0.5)
    assert ends(a - b) == [0, 3]
    assert ends(a[::-1] - b) == [-3, 3]
    square = pm.DiscreteUniform.dist(0, 3, shape=(2, 2))
    part = pm.Binomial.dist(square, 0.5)
    assert ends(square - part) == [0, 3]
    assert ends(square.T - part) == [-3, 3]
    assert ends(a[:, None] - b[None]) == [-3, 3]
    assert ends(a[None] - pm.Binomial.dist(a, 0.5, shape=(3, 2))) == [0, 3]
