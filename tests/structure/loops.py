"""Models as users write them in loops: lists of variables, sums of terms. Each takes a length and returns the
names of the block.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

RNG = np.random.default_rng


def LargerOf(a, b):
    return pt.maximum(a, b) * 0.3


def chain(T, vector=False):
    """The states of a hidden Markov model."""
    y = RNG(1).normal(size=T)
    P, mu = pm.Dirichlet("P", np.ones((3, 3))), pm.Normal("mu", 0, 2, shape=3)
    if vector:
        z = pm.Categorical("z", p=np.ones(3) / 3, shape=T)
        pm.Potential("chain", pt.log(P[z[:-1], z[1:]]).sum() + (T - 1) * np.log(3))
        pm.Normal("y", mu[z], 1.0, observed=y)
        return ["z"]
    z = []
    for t in range(T):
        z.append(pm.Categorical(f"z{t}", p=np.ones(3) / 3 if t == 0 else P[z[-1]]))
    pm.Normal("y", mu[pt.stack(z)], 1.0, observed=y)
    return [f"z{t}" for t in range(T)]


def captures(T):
    """A capture-recapture model: vectors over animals, one for each occasion."""
    S = 5
    phi, p = pm.Beta("phi", 2, 2), pm.Beta("p", 2, 2)
    seen = RNG(2).integers(0, 2, (T, S))
    alive = [pm.Bernoulli("z0", 0.9, shape=S)]
    for t in range(1, T):
        alive.append(pm.Bernoulli(f"z{t}", alive[-1] * phi + 0.01))
    for t in range(T):
        pm.Bernoulli(f"y{t}", alive[t] * p + 0.02, observed=seen[t])
    return [f"z{t}" for t in range(T)]


def edges(n):
    """A ring of spins, its energy summed in a loop."""
    z = [pm.Bernoulli(f"z{k}", 0.4) for k in range(n)]
    pm.Potential("ring", sum(0.7 * pt.eq(z[k], z[(k + 1) % n]) for k in range(n)))
    return [f"z{k}" for k in range(n)]


def places_of_a_vector(n):
    """A loop over the elements of one vector."""
    z = pm.Categorical("z", p=np.ones(3) / 3, shape=n)
    W = pm.Normal("W", 0, 1, shape=(3, 3))
    pm.Potential("chain", sum(W[z[k], z[k - 1]] for k in range(1, n)) - 0.5 * pt.sqr(z[0] - 1.0))
    return ["z"]


def with_own_parameters(n):
    """Each variable has a mean and a scale of its own; every second one another transition."""
    P, Q = pm.Dirichlet("P", np.ones((2, 2))), pm.Dirichlet("Q", np.ones((2, 2)))
    z, means = [], []
    for k in range(n):
        z.append(pm.Categorical(f"z{k}", p=[0.5, 0.5] if k == 0 else (P if k % 2 else Q)[z[-1]]))
        means.append(pm.Normal(f"mu{k}", k, 1.0))
    pm.Normal(
        "y",
        pt.stack([m * s for m, s in zip(means, z, strict=True)]),
        1.0 + np.arange(n),
        observed=RNG(3).normal(size=n),
    )
    return [f"z{k}" for k in range(n)]


def counts(n):
    """Latent counts without a bound, each seen twice."""
    lam = pm.Gamma("lam", 3, 1)
    N = [pm.Poisson(f"N{k}", lam) for k in range(n)]
    for k in range(n):
        pm.Binomial(f"y{k}", n=N[k], p=0.4, observed=[k % 3, 1])
    return [f"N{k}" for k in range(n)]


def blocks_joined(n):
    """Vectors joined to one, the first of them of another kind of term."""
    mu = pm.Normal("mu", 0, 1, shape=2)
    z = [pm.Bernoulli(f"z{k}", 0.2 + 0.1 * k, shape=3) for k in range(n)]
    first = pm.Bernoulli("first", 0.5, shape=3)
    whole = pt.concatenate([first, *z])
    pm.Normal("y", mu[whole], 1.0, observed=RNG(4).normal(size=3 * (n + 1)))
    return ["first", *(f"z{k}" for k in range(n))]


LOOPS = [
    chain,
    captures,
    edges,
    places_of_a_vector,
    with_own_parameters,
    counts,
    blocks_joined,
]
