"""Chains of categories whose autocorrelation is known."""

import numpy as np


def markov(rng, P, sites, chains, draws):
    """(chains, draws, sites) int, stationary Markov chains with the transition matrix P."""
    P = np.asarray(P)
    to = P.cumsum(axis=1)[:, :-1]
    shares = np.linalg.matrix_power((P + np.eye(len(P))) / 2, 4096)  # half a step at a time, it has no period
    z = np.empty((chains, draws, sites), np.int8)
    z[:, 0] = rng.choice(len(P), size=(chains, sites), p=shares[0] / shares[0].sum())
    for t in range(1, draws):
        z[:, t] = (rng.random((chains, sites, 1)) > to[z[:, t - 1]]).sum(axis=2)
    return z


def dar(phi, p):
    """The transition matrix of chains that stay with probability phi and else draw from p (DAR(1))."""
    return phi * np.eye(len(p)) + (1 - phi) * np.asarray(p)


def walk(states=5):
    """The transition matrix of a random walk that stays where it would leave."""
    P = np.zeros((states, states))
    for i in range(states):
        P[i, min(i + 1, states - 1)] += 0.5
        P[i, max(i - 1, 0)] += 0.5
    return P


def rotation(states=5, forward=0.9):
    """The transition matrix of chains that go to the next state around a circle, or stay: not reversible."""
    return (1 - forward) * np.eye(states) + forward * np.roll(np.eye(states), 1, axis=1)


def two_states(rho):
    """The transition matrix of two equally probable states with autocorrelation rho at lag 1."""
    return np.array([[1 + rho, 1 - rho], [1 - rho, 1 + rho]]) / 2


def following_theta(rng, rho, sites, chains, draws):
    """(chains, draws, sites) int, Bernoulli with log odds 2 theta, theta an autoregression of variance 1."""
    theta = rng.normal(size=(chains, sites))
    z = np.empty((chains, draws, sites), np.int8)
    for t in range(draws):
        theta = rho * theta + np.sqrt(1 - rho**2) * rng.normal(size=theta.shape)
        z[:, t] = rng.random(theta.shape) < 1 / (1 + np.exp(-2 * theta))
    return z
