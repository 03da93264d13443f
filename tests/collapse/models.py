"""Small models whose discrete variables can be summed out.

Each function returns the model and {variable: (lower, upper)}.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

R = np.random.default_rng(17)
Y = R.normal(size=5)
SEEN = np.array([[0, 1], [1, 1], [0, 0], [0, 0]])


def labels():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu, sd = pm.Normal("mu", 0, 3, shape=3), pm.HalfNormal("sd", 1.0)
        z = pm.Categorical("z", p=w, shape=5)
        pm.Normal("y", mu[z], sd, observed=Y)
    return model, {"z": (0, 2)}


def chain():
    with pm.Model() as model:
        P, mu = pm.Dirichlet("P", np.ones((2, 2))), pm.Normal("mu", 0, 2, shape=2)
        z = pm.Categorical("z", p=[0.3, 0.7], shape=5)
        pm.Potential("transitions", pt.log(P)[z[:-1], z[1:]].sum())
        pm.Normal("y", mu[z], 1.0, observed=Y)
    return model, {"z": (0, 1)}


def occupancy():
    """The gradient of log(z p) is infinite times 0 at z = 0."""
    with pm.Model(coords={"site": list("abcd")}) as model:
        psi, p = pm.Beta("psi", 1, 1), pm.Beta("p", 2, 1)
        z = pm.Bernoulli("z", psi, dims="site")
        pm.Deterministic("occupied", z.sum())
        pm.Bernoulli("seen", z[:, None] * p, observed=SEEN)
    return model, {"z": (0, 1)}


def captures():
    """A list of vectors, each given the one before."""
    with pm.Model() as model:
        stay, p, z = pm.Beta("stay", 2, 1), pm.Beta("p", 1, 1), []
        for t in range(3):
            z.append(pm.Bernoulli(f"z{t}", 0.9 if t == 0 else z[-1] * stay, shape=2, initval=[1, 1]))
            pm.Bernoulli(f"seen{t}", z[t] * p, observed=[[1, 0], [0, 1], [1, 0]][t])
    return model, {f"z{t}": (0, 1) for t in range(3)}


def open_population():
    """Survivors and recruits, in whose place their totals stand."""
    with pm.Model() as model:
        phi, p = pm.Beta("phi", 2, 2), pm.Beta("p", 4, 4)
        N = pm.Poisson("N", 3, shape=2, initval=[3, 3])
        alive = pm.Binomial("alive", N, phi, shape=2, initval=[2, 2])
        new = pm.Poisson("new", 1.0, shape=2, initval=[1, 1])
        pm.Deterministic("now", alive + new)
        pm.Binomial("seen", pt.stack([N, alive + new]), p, observed=[[2, 0], [1, 1]])
    return model, {"N": (0, 60), "alive": (0, 60), "new": (0, 60)}


def thinned():
    """The bound of one variable is another one, and their pairs have different numbers of values."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=2)
        n = pm.Binomial("n", n=3, p=p[0], shape=2)
        k = pm.Binomial("k", n=n, p=p[1], shape=2)
        pm.Normal("y", k, 0.8, observed=[1.2, 2.1])
    return model, {"n": (0, 3), "k": (0, 3)}


def cycles():
    """A lattice of sites whose values begin at 1, and one label that all of them share."""
    with pm.Model() as model:
        c, h = pm.Normal("c", 0.3, 0.3), pm.Normal("h", 0, 1, shape=2)
        label = pm.Bernoulli("label", 0.4)
        # bounds of 64 bits, since PyMC takes the logarithm of small integers in 32
        x = pm.DiscreteUniform("x", np.int64(1), np.int64(2), shape=(2, 3))
        s = 2 * x - 3
        field = (h[label] * s).sum()
        pm.Potential("e", c * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()) + field)
    return model, {"label": (0, 1), "x": (1, 2)}


def prior_of_a_coefficient():
    """A continuous variable whose prior, with bounds, depends on the gate; data that may change."""
    with pm.Model() as model:
        gate = pm.Bernoulli("gate", 0.3)
        sd = pm.Uniform("sd", 0.5, 2.0)
        slope = pm.Normal("slope", 0, pt.switch(gate, 2.0, 0.1))
        top = pm.Uniform("top", 0, 3)
        late = pm.TruncatedNormal("late", top * gate, 1.0, lower=-1.0, upper=5.0)
        x = pm.Data("x", Y)
        pm.Normal("y", slope * x + late, sd, observed=Y[::-1])
    return model, {"gate": (0, 1)}


def counts():
    with pm.Model() as model:
        lam, p = pm.Gamma("lam", 3, 1), pm.Beta("p", 2, 2)
        N = pm.Poisson("N", lam, shape=2, initval=[4, 4])
        pm.Binomial("seen", n=N[:, None], p=p, observed=[[3, 2], [1, 2]])
    return model, {"N": (0, 14)}


def joined_by_a_sum():
    """A term that joins all sites, of which there are few states."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=4)
        z = pm.Bernoulli("z", 0.4, shape=4)
        pm.Normal("y", pt.exp((b * z).sum()), 1.0, observed=0.7)
    return model, {"z": (0, 1)}


def shifted_states():
    """In a loop, the first observation reads a state that is a constant, and a slice is empty."""
    with pm.Model() as model:
        mu, z = pm.Normal("mu"), pm.Bernoulli("z", 0.3, shape=3)
        before = pt.concatenate([[0.0], z[:-1]])
        for t in range(3):
            pm.Normal(f"y{t}", mu * before[t] + z[:t].sum(), 1.0, observed=Y[t])
        pm.Potential("p", -(mu**2) * z.size)
    return model, {"z": (0, 1)}


def effects_of_a_shape():
    """A prior is written in terms of a variable that does not change it."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=3)
        e = pm.Normal("e", 0.0 * z[0], 0.5, shape=z.shape[0])
        pm.Normal("y", 3.0 * z + e, 1.0, observed=Y[:3])
    return model, {"z": (0, 1)}


def joined_with_constants():
    """Some elements of what is joined depend on no site."""
    with pm.Model() as model:
        c, z = pm.Normal("c"), pm.Bernoulli("z", 0.3, shape=4)
        pm.Potential("l", pt.concatenate([[-(c**4)], [(c * z[1:] * z[:-1]).sum()]]))
        pm.Normal("y", c * pt.concatenate([[0.0], z]), 1.0, observed=Y)
    return model, {"z": (0, 1)}


def mediator():
    """What is observed of one variable enters another one."""
    with pm.Model() as model:
        mu, z, x = pm.Normal("mu"), pm.Bernoulli("z", 0.3, shape=2), pm.Data("x", Y[:2])
        x = pm.Normal("seen", mu + 3.0 * z, 1.0, observed=x)
        pm.Normal("y", mu * x, 1.0, observed=Y[2:4])
    return model, {"z": (0, 1)}


def partly_labelled():
    """Some labels are observed."""
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=3)
        k = pm.Categorical("k", p=[0.2, 0.3, 0.5], observed=np.ma.masked_equal([0, -1, 2, -1], -1))
        pm.Normal("y", mu[k], 1.0, observed=Y[:4])
    return model, {"k_unobserved": (0, 2)}


def sums_that_are_joined():
    """A vector whose elements are sums; its first one moves."""
    with pm.Model() as model:
        c, z = pm.Normal("c"), pm.Bernoulli("z", 0.3, shape=5)
        pairs = [(c * z[k:] * z[:-k]).sum() for k in (1, 2)]
        pm.Potential("l", pt.concatenate([pairs[0][None], 0.5 * pairs[1][None]]))
    return model, {"z": (0, 1)}


def ordered_changes():
    """A change comes after another one, and survivors are at most as many as a truncated count."""
    with pm.Model() as model:
        level, stay = pm.Normal("level", 0, 1, shape=3), pm.Beta("stay", 2, 1)
        first = pm.DiscreteUniform("first", 0, 4)
        second = pm.DiscreteUniform("second", first, 5)
        t = np.arange(5)
        pm.Normal("y", level[(t >= first) * 1 + (t >= second)], 1.0, observed=Y)
        N = pm.Poisson("N", 2.0, initval=3)
        survivors = pm.Binomial("survivors", n=N, p=stay)
        pm.Normal("seen", survivors, 1.0, observed=1.2)
    return model, {"first": (0, 4), "second": (0, 5), "N": (0, 4), "survivors": (0, 4)}


MODELS = {
    f.__name__: f
    for f in (
        labels,
        chain,
        occupancy,
        captures,
        thinned,
        cycles,
        prior_of_a_coefficient,
        counts,
        joined_by_a_sum,
        shifted_states,
        effects_of_a_shape,
        joined_with_constants,
        mediator,
        partly_labelled,
        sums_that_are_joined,
        ordered_changes,
    )
}
TRUNCATED = {"counts": ["N"], "ordered_changes": ["N"]}
