"""PyMC models that are factor graphs, and one that is none."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def ising():
    s = 2 * pm.Bernoulli("x", 0.5, shape=(4, 5)) - 1
    pm.Potential("energy", 0.4 * (s * pt.roll(s, 1, 0)).sum() + 0.4 * (s * pt.roll(s, 1, 1)).sum())


def potts():
    x = pm.Categorical("x", np.ones(3) / 3, shape=(4, 4))
    pm.Potential("energy", 0.8 * pt.eq(x[1:], x[:-1]).sum() + 0.8 * pt.eq(x[:, 1:], x[:, :-1]).sum())


def boltzmann():
    r = np.random.default_rng(2)
    v, h = pm.Bernoulli("v", 0.5, shape=8), pm.Bernoulli("h", 0.4, shape=5)
    pm.Potential("energy", pt.dot(pt.dot(v, r.normal(size=(8, 5))), h))


def neural():
    r = np.random.default_rng(6)
    x = pm.Bernoulli("x", 0.5, shape=8)
    pm.Potential("network", pt.softplus(pt.dot(r.normal(size=(4, 8)), x)).sum())
