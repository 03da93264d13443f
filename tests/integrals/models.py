"""Small models with coefficients that can be integrated out.

Each function returns the model, the discrete variables, and the coefficients.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

R = np.random.default_rng(23)
X = R.normal(size=(9, 6))
Y = R.normal(size=9)


def gated():
    """A gate for each coefficient; the scales of prior and data are parameters."""
    with pm.Model() as model:
        s, tau = pm.HalfNormal("s", 1.0), pm.HalfNormal("tau", 2.0)
        g = pm.Bernoulli("g", 0.3, shape=4)
        b = pm.Normal("b", 0.4, tau, shape=4)
        pm.Normal("y", pt.dot(X[:, :4], g * b), s, observed=Y)
    return model, ["g"], ["b"]


def groups():
    """Two coefficients for a gate, one without a gate, and an intercept."""
    with pm.Model() as model:
        a, g = pm.Normal("a", 0.0, 5.0), pm.Bernoulli("g", 0.5, shape=2)
        b = pm.Normal("b", 0.2, np.arange(1.0, 6.0), shape=5)
        gates = pt.concatenate([g[np.array([0, 1, 1, 0])], [1]])
        pm.Normal("y", a + pt.dot(X[:, :5], gates * b), 0.7, observed=Y)
    return model, ["g"], ["a", "b"]


def one_of_several():
    """A site chooses which of its coefficients counts."""
    with pm.Model() as model:
        z = pm.Categorical("z", p=[0.2, 0.3, 0.5], shape=2)
        b = pm.Normal("b", 0.3, np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 2.0]]), shape=(2, 3))
        pm.Normal("y", pt.dot(X, (pt.eye(3)[z] * b).ravel()), 0.8, observed=Y)
    return model, ["z"], ["b"]


def multiples():
    """Gates are numbers, 0 among them."""
    with pm.Model() as model:
        z = pm.DiscreteUniform("z", -1, 2, shape=3)
        b = pm.Normal("b", -0.3, 1.5, shape=3)
        pm.Normal("y", pt.dot(X[:, :3], z * b), 0.8, observed=Y)
    return model, ["z"], ["b"]


def switched():
    """The scale of the prior is that of the data, and a gate's probability is unknown."""
    with pm.Model() as model:
        s, a, w = pm.HalfNormal("s", 1.0), pm.Normal("a", 0.0, 10.0), pm.Beta("w", 1, 1)
        g = pm.Bernoulli("g", w, shape=4)
        b = pm.Normal("b", 0.0, 2 * s, shape=4)
        pm.Normal("y", a + X[:, :4] @ pt.switch(g, b, 0), s, observed=Y)
    return model, ["g"], ["a", "b"]


def separate():
    """Scalars that are written one by one."""
    with pm.Model() as model:
        g = [pm.Bernoulli(f"g{n}", 0.2 + 0.2 * n) for n in range(3)]
        b = [pm.Normal(f"b{n}", 0.1 * n, 1.5) for n in range(3)]
        pm.Normal("y", sum(X[:, n] * g[n] * b[n] for n in range(3)), 0.8, observed=Y)
    return model, [v.name for v in g], [v.name for v in b]


def labels():
    """Sites choose rows: means, and the precision of an observation."""
    with pm.Model() as model:
        z = pm.Categorical("z", p=[0.3, 0.3, 0.4], shape=3)
        mu = pm.Normal("mu", 0.0, 3.0, shape=3)
        pm.Normal("y", mu[z], pt.as_tensor([0.6, 1.0, 1.4])[z], observed=Y[:3])
    return model, ["z"], ["mu"]


def scales_of_the_prior():
    """A gate narrows the prior, and does not close (George and McCulloch 1993)."""
    with pm.Model() as model:
        g = pm.Bernoulli("g", 0.4, shape=3)
        b = pm.Normal("b", 0.0, pt.switch(g, 2.0, 0.1), shape=3)
        pm.Normal("y", X[:, :3] @ b, 0.8, observed=Y)
    return model, ["g"], ["b"]


def correlated():
    """The prior of the coefficients under gates has a covariance, and sites move the offset."""
    with pm.Model() as model:
        g, h = pm.Bernoulli("g", 0.4, shape=3), pm.Bernoulli("h", 0.4, shape=2)
        b = pm.MvNormal("b", np.zeros(3), cov=np.eye(3) + 0.5)
        pm.Normal("y", X[:, :3] @ (g * b) + X[:, 3:5] @ h, 0.8, observed=Y)
    return model, ["g", "h"], ["b"]


def a_mean_of_coefficients():
    """The mean of the coefficients is integrated out with them."""
    with pm.Model() as model:
        m, g = pm.Normal("m", 0.0, 1.0), pm.Bernoulli("g", 0.4, shape=3)
        b = pm.Normal("b", m, 1.2, shape=3)
        pm.Normal("y", X[:, :3] @ (g * b), 0.8, observed=Y)
    return model, ["g"], ["b", "m"]


def walk():
    """The coefficients are the states of a random walk, and sites mark outliers."""
    with pm.Model() as model:
        x = pm.GaussianRandomWalk("x", sigma=0.5, init_dist=pm.Normal.dist(0, 1), steps=3)
        outlier = pm.Bernoulli("outlier", 0.2, shape=4)
        pm.Normal("y", x, pt.as_tensor(np.array([0.5, 3.0]))[outlier], observed=Y[:4])
    return model, ["outlier"], ["x"]


def meeting_lines():
    """Two lines that meet at one of the x, where the value and the slopes are unknown."""
    x = np.sort(X[:, 0])
    with pm.Model() as model:
        k, a, b = pm.DiscreteUniform("k", 1, 7), pm.Normal("a", 0.2, 2.0), pm.Normal("b", 0.0, 1.0, shape=2)
        after = pt.cast(np.arange(9) > k, "int64")
        pm.Normal("y", a + b[after] * (x - pt.as_tensor(x)[k]), pm.HalfNormal("s", 1.0), observed=Y)
    return model, ["k"], ["a", "b"]


SWEPT = (gated, groups, one_of_several, multiples, switched, separate)
OTHERS = (labels, scales_of_the_prior, correlated, a_mean_of_coefficients, walk, meeting_lines)
MODELS = {f.__name__: f for f in (*SWEPT, *OTHERS)}
