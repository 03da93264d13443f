"""Posterior inclusion probabilities of twelve columns against enumeration."""

import functools
import itertools

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special

import pymc_discrete as pmd
from tests.tools.running import FAST, QUIET
from tests.tools.statistics import LARGEST_Z

P = 12
R = np.random.default_rng(8)
X = R.normal(size=(40, P)) + 1.2 * R.normal(size=(40, 1))
Y = X[:, 0] - 0.5 * X[:, 3] + 0.3 * X[:, 4] + R.normal(size=40)


def regression():
    """The noise, of variance s2, and the inclusion probability w are unknown."""
    with pm.Model() as model:
        s2, w = pm.InverseGamma("s2", 3.0, 2.0), pm.Beta("w", 2.0, 4.0)
        g = pm.Bernoulli("g", w, shape=P)
        b = pm.Normal("b", 0.0, 0.8 * pt.sqrt(s2), shape=P)
        pm.Normal("y", pt.dot(X, g * b), pt.sqrt(s2), observed=Y)
    return model


@functools.cache
def enumerated(normalised=True):
    """(12,) probabilities that columns count, the means of s2 and w, and (12,) those of the effects g * b.

    normalised : whether the prior of the coefficients is, as it should be
    """
    logp, s2, effects = [], [], []
    states = np.array(list(itertools.product([0, 1], repeat=P)))
    for g in states:
        M = X[:, g == 1]
        # with b ~ N(0, 0.64 s2), y ~ N(0, s2 V), and s2 ~ InverseGamma(3, 2) is integrated out
        A = M.T @ M + np.eye(M.shape[1]) / 0.64
        mean = np.linalg.solve(A, M.T @ Y)
        squares = Y @ Y - Y @ M @ mean
        log_det = np.linalg.slogdet(A)[1] + M.shape[1] * np.log(0.64) * normalised
        shape, rate = 3.0 + len(Y) / 2, 2.0 + squares / 2
        logp.append(special.betaln(2 + g.sum(), 4 + P - g.sum()) - 0.5 * log_det - shape * np.log(rate))
        s2.append(rate / (shape - 1))
        effects.append(np.zeros(P))
        effects[-1][g == 1] = mean
    p = special.softmax(logp)
    w = (2 + states.sum(1)) / (6 + P)
    return p @ states, p @ np.array(s2), p @ w, p @ np.array(effects)


def drawn(native, draws):
    run = {"chains": 2, "random_seed": 3, **QUIET}
    with regression():
        if native:
            step = pmd.BlockGibbs(["g"], integrate=["b"])
            return pmd.sample(4 * draws, tune=500, step=step, **run)["posterior"]
        step = pmd.CollapsedNUTS(integrate=["b"])
        return pm.sample(draws, tune=500, cores=1, step=step, **run, **FAST)["posterior"]


def zs(posterior, truth):
    """z of every mean, in Monte Carlo errors, which are 0 where a column is in all draws or in none."""
    g, b = posterior["g"].values.astype(float), posterior["b"].values
    p, s2, w, effects = truth
    pairs = [(g[..., n], p[n]) for n in range(P)] + [((g * b)[..., n], effects[n]) for n in range(P)]
    pairs += [(posterior["s2"].values, s2), (posterior["w"].values, w)]
    errors = [1e-4 if np.ptp(v) == 0 else float(az.mcse(v)) for v, _ in pairs]
    return np.array([(v.mean() - mean) / e for (v, mean), e in zip(pairs, errors, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, False], ids=["pmd.sample", "pm.sample"])
def test_inclusion_probabilities_are_the_enumerated_ones(native, walks):
    """And not those that a prior without its normaliser would have."""
    posterior = drawn(native, 2000)
    assert np.abs(zs(posterior, enumerated())).max() < LARGEST_Z
    assert np.abs(zs(posterior, enumerated(normalised=False))).max() > LARGEST_Z
