"""The models of the papers' experiments, as PyMC models, with the choices that the papers leave open.

The papers write energies; here everything is a log density, so that larger is more probable.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def ising_coupling(p, theta):
    """Grathwohl et al. 2021, Eq. 10: log p = theta s'Js on a cyclic p x p lattice, s of -1, 1.

    J is symmetric, so that every edge counts twice: in the usual parameter the coupling is 2 theta, critical
    at theta = 0.2203.
    """
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(p, p))
        s = 2 * x - 1
        pm.Potential("energy", 2 * theta * ((s * pt.roll(s, 1, 0)).sum() + (s * pt.roll(s, 1, 1)).sum()))
    return model


def ising_field(p, mu=2.0, width=3.0, seed=0):
    """Sun et al. 2022, App. B.1: alpha (p, p), mu + Z_i in the centre, -mu + Z_i elsewhere, Z_i ~
    Uniform(-width, width).

    "The centre" is the disc that holds half of the lattice, as in the authors' code.
    """
    i, j = np.indices((p, p)) / p - 0.5
    sign = np.where(i**2 + j**2 < 0.5 / np.pi, 1.0, -1.0)
    return sign * mu + np.random.default_rng(seed).uniform(-width, width, (p, p))


def ising_in_field(alpha, coupling=1.0):
    """Sun et al. 2022, Eq. 10: free boundary, log p = sum alpha_i s_i + coupling sum_edges s_i s_j, s of -1,
    1.
    """
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=alpha.shape)
        s = 2 * x - 1
        pair = (s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()
        pm.Potential("energy", (alpha * s).sum() + coupling * pair)
    return model


def ising_in_field_draws(alpha, draws, coupling=1.0, sweeps=500, seed=0):
    """(draws, d) int, 0 or 1, each the state after `sweeps` sweeps of Gibbs sampling by colours.

    The chains of single moves start there: 100,000 moves hardly pass twice over 200 x 200 sites.
    """
    r, p = np.random.default_rng(seed), len(alpha)
    s = np.pad(r.choice([-1.0, 1.0], (draws, p, p)), ((0, 0), (1, 1), (1, 1)))
    s[:, [0, -1]] = s[:, :, [0, -1]] = 0.0
    colour = np.indices((p, p)).sum(0) % 2
    for sweep in range(2 * sweeps):
        field = alpha + coupling * (s[:, :-2, 1:-1] + s[:, 2:, 1:-1] + s[:, 1:-1, :-2] + s[:, 1:-1, 2:])
        new = np.where(r.random((draws, p, p)) < 1 / (1 + np.exp(-2 * field)), 1.0, -1.0)
        inner = s[:, 1:-1, 1:-1]
        inner[...] = np.where(colour == sweep % 2, new, inner)
    return (s[:, 1:-1, 1:-1] > 0).astype(int).reshape(draws, -1)


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
    """Sun et al. 2022, Eq. 8: a state with an odd number of ones has energy U, log density -U; the mean of x
    is 1/2.
    """
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=p)
        pm.Potential("parity", -float(U) * (x.sum() % 2))
    return model
