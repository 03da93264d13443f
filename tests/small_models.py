"""Small models of every kind of site, to be enumerated."""

import functools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from exact import enumerate_target

import pymc_discrete as pmd


def binary():
    x = pm.Bernoulli("x", [0.3, 0.6, 0.5, 0.8], shape=4)
    pm.Potential("e", 1.1 * x[0] * x[1] - 0.9 * pt.eq(x[2], x[3]) + 0.7 * x[0] * x[2] * x[3])
    return [range(2)] * 4, {}


def categorical():
    z = pm.Categorical("z", p=[[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], shape=2)
    pm.Potential("e", 0.8 * pt.eq(z[0], z[1]) - 0.3 * z.sum())
    return [range(3)] * 2, {}


def bounded():
    """Integers from 1, a support of its own for each element."""
    k = pm.DiscreteUniform("k", [1, 1, 2], [3, 4, 3], shape=3)
    pm.Normal("y", pt.dot(np.array([1.0, -1.5, 0.7]), k), 1.5, observed=0.3)
    return [range(1, 4), range(1, 5), range(2, 4)], {}


def windowed():
    """Counts that the distribution does not bound, but a potential does: windows, and yet enumerable."""
    n = pm.Poisson("n", [2.0, 1.5], shape=2)
    pm.Potential("bound", pt.switch(n > 4, -np.inf, 0.0))
    pm.Normal("y", n[0] - 0.5 * n[1], 1.2, observed=1.4)
    return [range(5)] * 2, {"window": 2}


def geometric():
    n = pm.Poisson("n", 3.0)
    pm.Potential("bound", pt.switch(n > 9, -np.inf, 0.0))
    pm.Normal("y", n, 1.5, observed=4.4)
    return [range(10)], {"window": "geometric"}


def mixed():
    b = pm.Bernoulli("b", 0.4)
    c = pm.Categorical("c", p=[0.2, 0.5, 0.3])
    k = pm.Poisson("k", 1.5)
    pm.Potential("bound", pt.switch(k > 4, -np.inf, 0.0))
    pm.Normal("y", b * k + pt.as_tensor([-1.0, 0.5, 2.0])[c], 1.1, observed=1.7)
    return [range(2), range(3), range(5)], {"window": 1}


def five():
    """As many sites as a tuned mean of 2.5 moves asks for."""
    x = pm.Bernoulli("x", [0.3, 0.6, 0.5, 0.8], shape=4)
    z = pm.Categorical("z", p=[0.2, 0.5, 0.3])
    pm.Potential("e", 1.1 * x[0] * x[1] - 0.9 * pt.eq(x[2], x[3]) + 0.6 * z * x[3] + 0.7 * x[0] * x[2])
    return [range(2)] * 4 + [range(3)], {}


def wide():
    """More values than one piece of a running sum holds, and mass on both sides of its end."""
    k, b = pm.DiscreteUniform("k", 1, 70), pm.Bernoulli("b", 0.4)
    pm.Normal("y", k + 2.0 * b, 4.0, observed=65.3)
    return [range(1, 71), range(2)], {}


SMALL = (binary, categorical, bounded, windowed, geometric, mixed)


@functools.cache
def small(build, how):
    """The enumerated target of a model."""
    with pm.Model() as model:
        ranges, options = build()
    return enumerate_target(pmd.target_from_model(model, differences=how, **options), ranges)
