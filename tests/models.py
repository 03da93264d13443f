"""Models that several tests share. Those that are to be enumerated return the values of each site, and the
options of the target.
"""

import functools
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt


@functools.cache
def model_of(build):
    """The model that a function writes."""
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's own, where it imputes
        build()
    return model


# ---------------------------------------------------------------- small models of every kind of site
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


def visited():
    """Counts of which each is seen several times."""
    n = pm.Poisson("n", [2.0, 3.0], shape=2)
    pm.Potential("bound", pt.switch(n > 6, -np.inf, 0.0))
    pm.Binomial("y", n=n[:, None], p=0.4, observed=[[1, 0, 2], [1, 2, 1]])
    return [range(7)] * 2, {"window": 3}


def quadratic():
    r = np.random.default_rng(8)
    g = pm.Bernoulli("g", 0.3, shape=6)
    pm.Normal("y", pt.dot(r.normal(size=(7, 6)), g * r.normal(size=6)), 1.0, observed=r.normal(size=7))
    return [range(2)] * 6, {}


def softplus():
    r = np.random.default_rng(9)
    g, k = pm.Bernoulli("g", 0.3, shape=4), pm.DiscreteUniform("k", 1, 3, shape=2)
    pm.Potential("e", pt.softplus(pt.dot(r.normal(size=(5, 4)), g) + pt.dot(r.normal(size=(5, 2)), k)).sum())
    return [range(2)] * 4 + [range(1, 4)] * 2, {}


def totals():
    """Counts with windows that all meet in a linear map."""
    n = pm.Poisson("n", [1.0, 0.7, 1.4, 1.1, 0.8], shape=5)
    pm.Potential("bound", pt.switch(n > 2, -np.inf, 0.0))
    r = np.random.default_rng(3)
    pm.Normal("y", pt.dot(r.normal(size=(9, 5)), n), 2.0, observed=r.normal(size=9))
    return [range(3)] * 5, {"window": 2}


SMALL = (binary, categorical, bounded, windowed, geometric, mixed)
DENSE = (quadratic, softplus, totals)


# ---------------------------------------------------------------- models with too many states to enumerate
def ising():
    x = pm.Bernoulli("x", np.full((6, 7), 0.5), shape=(6, 7))
    s = 2 * x - 1
    pm.Potential("e", 0.4 * ((s[:, 1:] * s[:, :-1]).sum() + (s[1:] * s[:-1]).sum()))


def hidden_markov():
    r = np.random.default_rng(1)
    z = pm.Categorical("z", p=np.ones(3) / 3, shape=30)
    pm.Potential("chain", pt.log(pt.as_tensor(r.dirichlet(np.ones(3), 3)))[z[:-1], z[1:]].sum())
    pm.Normal("y", pm.Normal("mu", 0, 2, shape=3)[z], 0.8, observed=r.normal(size=30))


def mixture():
    z = pm.Categorical("z", p=pm.Dirichlet("w", np.ones(3)), shape=30)
    pm.Normal("y", pm.Normal("mu", 0, 2, shape=3)[z], 0.8, observed=np.random.default_rng(2).normal(size=30))


def n_mixture():
    r = np.random.default_rng(3)
    y = r.binomial(r.poisson(6.0, 26)[:, None], 0.45, size=(26, 3))
    N = pm.Poisson("N", pm.Gamma("lam", 2, 0.5), shape=26, initval=y.max(1) + 3)
    pm.Binomial("y", n=N[:, None], p=pm.Beta("p", 1, 1), observed=y)


def labels_and_count():
    with pm.Model() as model:
        mu = pm.Normal("mu", [-1.0, 1.0], 1.0, shape=2)
        z = pm.Categorical("z", [0.3, 0.7], shape=6)
        n = pm.Poisson("n", 3.0)
        pm.Normal("y", mu[z] + 0.1 * n, 1.0, observed=np.array([-2.0, -1.2, 0.1, 0.9, 1.8, 2.5]))
    return model


def spin_chain():
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full(8, 0.4))
        pm.Potential("e", 0.5 * (x[1:] * x[:-1]).sum())
    return model
