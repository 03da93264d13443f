"""The models of the papers' experiments, as PyMC models; what they leave open is said here.

Both papers write an energy; here everything is a log density, up is better.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def ising_coupling(p, theta):
    """Grathwohl et al. 2021, Eq. 10: log p = theta s'Js on a cyclic p x p lattice, s of -1, 1.

    J is symmetric, so that every edge counts twice: in the usual parameter the coupling is 2 theta, critical at
    theta = 0.2203.
    """
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(p, p))
        s = 2 * x - 1
        pm.Potential("energy", 2 * theta * ((s * pt.roll(s, 1, 0)).sum() + (s * pt.roll(s, 1, 1)).sum()))
    return model


def ising_field(p, coupling=1.0, mu=2.0, width=3.0, seed=0):
    """Sun et al. 2022, Eq. 10 and App. B.1: free boundary, log p = sum alpha_i s_i + coupling sum_edges s_i s_j.

    alpha_i = mu + Z_i in the centre, -mu + Z_i elsewhere, Z_i ~ Uniform(-width, width). "The centre" is the disc that
    holds half of the lattice, as in the authors' code.
    """
    i, j = np.indices((p, p)) / p - 0.5
    sign = np.where(i**2 + j**2 < 0.5 / np.pi, 1.0, -1.0)
    alpha = sign * mu + np.random.default_rng(seed).uniform(-width, width, (p, p))
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(p, p))
        s = 2 * x - 1
        pair = (s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()
        pm.Potential("energy", (alpha * s).sum() + coupling * pair)
    return model


def rbm(W, b, c):
    """Grathwohl et al. 2021, Eq. 29, hidden units summed out: log p = b'x + sum softplus(x W + c).

    W : (visible, hidden), b : (visible,), c : (hidden,)
    """
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=len(b))
        pm.Potential("energy", pt.dot(x, b) + pt.softplus(pt.dot(x, W) + c).sum())
    return model


def fhmm_data(N=1000, K=10, start=0.05, stay=0.85, sigma=0.5, seed=0):
    """Sun et al. 2022, Eq. 11 and App. B.2 (sigma^2 = 0.25): (w (K,), b (), x (N, K), y (N,)).

    The chain of every factor runs over time; the paper's indices of Eq. 11 read as if it ran over factors.
    """
    r = np.random.default_rng(seed)
    w, b = r.normal(size=K), r.normal()
    flip = np.vstack([r.random((1, K)) < start, r.random((N - 1, K)) >= stay])
    x = np.cumsum(flip, axis=0) % 2
    return w, b, x, x @ w + b + sigma * r.normal(size=N)


def fhmm(w, b, y, start=0.05, stay=0.85, sigma=0.5):
    """The posterior of x given y, its parameters known; y as `fhmm_data` draws it."""
    N, K = len(y), len(w)
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(N, K))  # flat; the prior is in the two potentials
        pm.Potential("first", (x[0] * np.log(start / (1 - start))).sum())
        pm.Potential("chain", (pt.eq(x[1:], x[:-1]) * np.log(stay / (1 - stay))).sum())
        pm.Normal("y", pt.dot(x, w) + b, sigma, observed=y)
    return model


def parity(p, U):
    """Sun et al. 2022, Eq. 8: a state with an odd number of ones has energy U, log density -U; the mean of x is 1/2."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=p)
        pm.Potential("parity", -float(U) * (x.sum() % 2))
    return model
