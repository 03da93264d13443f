"""Small models whose posteriors are enumerated, one for each kind of support."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt


class Case(NamedTuple):
    """A small model, the values of every site in it, and the support that the step is told."""

    build: Callable[[], None]
    values: dict[str, list[range]]
    support: dict[str, tuple[int, int]] | None = None


def bernoulli_binomial():
    x = pm.Bernoulli("x", np.array([0.3, 0.6]))
    n = pm.Binomial("n", n=np.array([4, 2]), p=0.55)
    b = pm.BetaBinomial("b", n=5, alpha=1.5, beta=2.0)
    pm.Normal("y", x.sum() - n.sum() + b * x[0], 1.5, observed=0.4)


def categorical():
    z = pm.Categorical("z", np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]))
    c = pm.Categorical("c", logit_p=np.array([0.3, 0.1, -1.0, 0.8]))
    pm.Potential("e", 0.8 * pt.eq(z[0], z[1]) - 0.4 * c * z[0] + pt.as_tensor([0.5, -0.5, 0.0])[z[1]])


def ordered():
    a = pm.OrderedLogistic("a", eta=0.4, cutpoints=np.array([-1.0, 0.5, 2.0]), compute_p=False)
    b = pm.OrderedProbit("b", eta=-0.2, cutpoints=np.array([-0.7, 0.9]), compute_p=False)
    pm.Normal("y", a * b - 1.0, 1.2, observed=1.1)


def counts():
    k = pm.Poisson("k", np.array([1.5, 0.7]))
    g = pm.Geometric("g", 0.55)
    pm.Normal("y", k[0] - k[1] * g, 1.0, observed=0.8)


def overdispersed():
    k = pm.NegativeBinomial("k", mu=1.5, alpha=2.0)
    w = pm.DiscreteWeibull("w", q=0.7, beta=1.4)
    pm.Normal("y", k + 0.5 * w, 0.8, observed=2.2)


def bounded():
    u = pm.DiscreteUniform("u", np.array([-3, 1]), np.array([2, 4]))
    h = pm.HyperGeometric("h", N=10, k=6, n=7)
    d = pm.DiracDelta("d", 2)
    pm.Normal("y", u.sum() - 0.5 * h * d, 1.5, observed=-2.0)


def zero_inflated():
    p = pm.ZeroInflatedPoisson("p", psi=0.6, mu=1.5)
    b = pm.ZeroInflatedBinomial("b", psi=0.5, n=4, p=0.6)
    pm.Normal("y", p - b, 1.2, observed=0.5)


def hurdles():
    n = pm.ZeroInflatedNegativeBinomial("n", psi=0.7, mu=1.2, alpha=3.0)
    h = pm.HurdlePoisson("h", psi=0.6, mu=1.4)
    pm.Normal("y", n + h, 0.9, observed=2.3)


def hurdle_negative_binomial():
    h = pm.HurdleNegativeBinomial("h", psi=0.5, mu=1.5, alpha=2.0)
    m = pm.Mixture(
        "m", w=np.array([0.3, 0.7]), comp_dists=[pm.Binomial.dist(2, 0.3), pm.DiscreteUniform.dist(1, 5)]
    )
    pm.Normal("y", h - m, 1.3, observed=-0.4)


def cut():
    t = pm.Truncated("t", pm.Poisson.dist(2.0), lower=1, upper=4)
    c = pm.Censored("c", pm.Poisson.dist(1.5), lower=None, upper=3)
    g = pm.Truncated("g", pm.NegativeBinomial.dist(mu=2.0, alpha=1.5), upper=np.array([2, 4]), shape=2)
    pm.Normal("y", t - c * g.sum(), 2.0, observed=-1.5)


def given_support():
    def logp(value, rate):
        return pt.switch(pt.abs(value) <= 3, -rate * pt.abs(value), -np.inf)

    w = pm.CustomDist(
        "w",
        0.4,
        logp=logp,
        random=lambda rate, rng=None, size=None: np.zeros(size, "int64"),
        dtype="int64",
        shape=2,
    )
    pm.Potential("e", 0.5 * w[0] * w[1] - 0.1 * w[0])


def support_of_another():
    """The support of one variable is the value of another."""
    n = pm.DiscreteUniform("n", 1, 5, initval=4)
    k = pm.Binomial("k", n=n, p=0.4, initval=1)
    pm.Normal("y", k, 0.7, observed=1.6)


CASES = [
    Case(bernoulli_binomial, {"x": [range(2)] * 2, "n": [range(5), range(3)], "b": [range(6)]}),
    Case(categorical, {"z": [range(3)] * 2, "c": [range(4)]}),
    Case(ordered, {"a": [range(4)], "b": [range(3)]}),
    Case(counts, {"k": [range(13), range(10)], "g": [range(1, 16)]}),
    Case(overdispersed, {"k": [range(16)], "w": [range(14)]}),
    Case(bounded, {"u": [range(-3, 3), range(1, 5)], "h": [range(3, 7)], "d": [range(2, 3)]}),
    Case(zero_inflated, {"p": [range(15)], "b": [range(5)]}),
    Case(hurdles, {"n": [range(14)], "h": [range(14)]}),
    Case(hurdle_negative_binomial, {"h": [range(22)], "m": [range(6)]}),
    Case(cut, {"t": [range(1, 5)], "c": [range(4)], "g": [range(3), range(5)]}),
    Case(given_support, {"w": [range(-3, 4)] * 2}, {"w": (-3, 3)}),
    Case(support_of_another, {"n": [range(1, 6)], "k": [range(6)]}),
]


def probabilities(model, values):
    """(n, sites) int, all states, and (n,) their probabilities."""
    f, point = model.compile_logp(mode="FAST_COMPILE"), model.initial_point()
    states = np.array(list(itertools.product(*itertools.chain.from_iterable(values.values()))))
    logp = np.empty(len(states))
    for row, state in enumerate(states):
        start = 0
        for name, sites in values.items():
            point[name] = state[start : start + len(sites)].reshape(np.shape(point[name]))
            start += len(sites)
        with np.errstate(all="ignore"):
            try:
                logp[row] = f(point)
            except pm.logprob.utils.ParameterValueError:
                logp[row] = -np.inf
    weight = np.exp(logp - logp.max())
    return states, weight / weight.sum()
