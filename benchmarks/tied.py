"""Models in which discrete unknowns are tied to continuous ones, or only their sums matter."""

import numpy as np

from benchmarks.models import ModelSpec


# ---------------------------------------------------------------- A': selection among correlated columns
def selection_data(n=200, p=300, correlation=0.9):
    """Blocks of five columns that are correlated with one another; one column of six blocks matters."""
    r = np.random.default_rng(11)
    common = np.repeat(r.normal(size=(n, p // 5)), 5, axis=1)
    X = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * r.normal(size=(n, p))
    effects = np.zeros(p)
    effects[2 : 2 + 6 * 25 : 25] = 1.0
    return X, X @ effects + r.normal(size=n)


def selection():
    import pymc as pm

    X, y = selection_data()
    with pm.Model() as model:
        share, sd = pm.Beta("share", 1, 20), pm.HalfNormal("sd", 1)
        tau = pm.HalfNormal("tau", 1)
        g = pm.Bernoulli("g", share, shape=X.shape[1])
        b = pm.Normal("b", 0, tau, shape=X.shape[1])
        pm.Normal("y", X @ (g * b), sd, observed=y)
    return model, ["g"]


def selection_summaries(a):
    return {"active": a["g"].sum(1), "sd": a["sd"], "tau": a["tau"]}


# ---------------------------------------------------------------- HMM with unknown transitions
def hidden(T=1000, K=5):
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(7)
    P, means, state = np.where(np.eye(K) > 0, 0.9, 0.1 / (K - 1)), 2.0 * np.arange(K) - 4, [0]
    for _ in range(T - 1):
        state.append(r.choice(K, p=P[state[-1]]))
    with pm.Model() as model:
        P = pm.Dirichlet("P", np.ones((K, K)))
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0, 5, shape=K, transform=ordered, initval=means)
        z = pm.Categorical("z", p=np.ones(K) / K, shape=T)
        pm.Potential("transitions", pt.log(P)[z[:-1], z[1:]].sum())
        pm.Normal("y", mu[z], 1, observed=means[state] + r.normal(size=T))
    return model, ["z"]


def hidden_summaries(a):
    stay = np.einsum("dkk->dk", a["P"])
    each = {f"mean {k}": a["mu"][:, k] for k in range(5)} | {f"stay {k}": stay[:, k] for k in range(5)}
    return each | {f"time in {k}": (a["z"] == k).sum(1) for k in range(5)}


# ---------------------------------------------------------------- a mixture with unknown weights and scales
def weighted():
    import pymc as pm

    r = np.random.default_rng(8)
    z = r.choice(3, p=[0.5, 0.3, 0.2], size=500)
    y = np.array([-3.0, 0.0, 3.0])[z] + np.array([1.0, 0.6, 1.4])[z] * r.normal(size=500)
    with pm.Model() as model:
        w, sd = pm.Dirichlet("w", np.ones(3)), pm.HalfNormal("sd", 2, shape=3)
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0, 5, shape=3, transform=ordered, initval=[-3.0, 0.0, 3.0])
        z = pm.Categorical("z", w, shape=500)
        pm.Normal("y", mu[z], sd[z], observed=y)
    return model, ["z"]


def weighted_summaries(a):
    return {f"{name} {k}": a[name][:, k] for name in ("w", "mu", "sd") for k in range(3)}


# ---------------------------------------------------------------- sites that are colonised and left again
def dynamic(sites=200, seasons=7, visits=3):
    import pymc as pm

    r = np.random.default_rng(9)
    z = [r.random(sites) < 0.5]
    for _ in range(seasons - 1):
        z.append(np.where(z[-1], r.random(sites) < 0.8, r.random(sites) < 0.25))
    y = np.array(z)[:, :, None] & (r.random((seasons, sites, visits)) < 0.4)
    with pm.Model() as model:
        first, comes, stays, seen = (pm.Beta(name, 1, 1) for name in ("first", "comes", "stays", "seen"))
        states = []
        for t in range(seasons):
            p = states[-1] * stays + (1 - states[-1]) * comes if t else first
            states.append(pm.Bernoulli(f"z{t}", p, shape=sites, initval=np.ones(sites, int)))
            pm.Bernoulli(f"y{t}", states[-1][:, None] * seen, observed=y[t].astype(int))
    return model, [f"z{t}" for t in range(seasons)]


def dynamic_summaries(a):
    each = {name: a[name] for name in ("first", "comes", "stays", "seen")}
    return each | {"occupied at the end": a["z6"].sum(1)}


# ---------------------------------------------------------------- four that mixed worst
def waterbuck():
    """Raftery 1988; with this prior the mean of N is 552.0 and its standard deviation 383."""
    import pymc as pm

    with pm.Model() as model:
        N, p = pm.DiscreteUniform("N", 72, 1500), pm.Uniform("p")
        pm.Binomial("y", N, p, observed=[53, 57, 66, 67, 72])
    return model, ["N"]


def cheaters():
    """Answers to a question after a coin; p has mean 0.225 and standard deviation 0.120."""
    import pymc as pm

    with pm.Model() as model:
        p = pm.Uniform("p")
        truth = pm.Bernoulli("truth", p, shape=100)
        first, second = pm.Bernoulli("first", 0.5, shape=100), pm.Bernoulli("second", 0.5, shape=100)
        said = (first * truth + (1 - first) * second).sum()
        pm.Binomial("yes", 100, said / 100, observed=35)
    return model, ["truth", "first", "second"]


def overdispersed(sites=80, visits=4):
    import pymc as pm

    r = np.random.default_rng(10)
    x, w = r.normal(size=sites), r.normal(size=(sites, visits))
    mean = np.exp(1.2 + 0.5 * x)
    N = r.negative_binomial(2.0, 2.0 / (2.0 + mean))
    y = r.binomial(N[:, None], 1 / (1 + np.exp(0.2 - 0.5 * w)))
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1.5, shape=2), pm.Normal("b", 0, 1.5, shape=2)
        alpha = pm.Gamma("alpha", 2, 1)
        N = pm.NegativeBinomial(
            "N", mu=pm.math.exp(a[0] + a[1] * x), alpha=alpha, shape=sites, initval=y.max(1)
        )
        pm.Binomial("y", N[:, None], pm.math.invlogit(b[0] + b[1] * w), observed=y)
    return model, ["N"]


def overdispersed_summaries(a):
    each = {f"{name} {k}": a[name][:, k] for name in "ab" for k in range(2)}
    return each | {"alpha": a["alpha"], "total N": a["N"].sum(1)}


def topics(documents=12, words=40, vocabulary=20, K=3):
    import pymc as pm

    r = np.random.default_rng(12)
    theta, phi = r.dirichlet(np.full(K, 0.3), size=documents), r.dirichlet(np.full(vocabulary, 0.2), size=K)
    document = np.repeat(np.arange(documents), words)
    z = np.array([r.choice(K, p=theta[d]) for d in document])
    seen = np.array([r.choice(vocabulary, p=phi[k]) for k in z])
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.full((documents, K), 0.5))
        phi = pm.Dirichlet("phi", np.full((K, vocabulary), 0.3))
        z = pm.Categorical("z", theta[document], shape=len(document))
        pm.Categorical("w", phi[z], observed=seen)
    return model, ["z"]


def topics_summaries(a):
    """Topics have no names: summaries that do not depend on them."""
    return {"theta squared": (a["theta"] ** 2).sum((1, 2)), "phi squared": (a["phi"] ** 2).sum((1, 2))}


SPECS = {
    spec.name: spec
    for spec in (
        ModelSpec(
            "A'",
            "spike-and-slab, 200 rows, 300 columns in correlated fives; sd, tau, share of active unknown",
            selection,
            selection_summaries,
        ),
        ModelSpec("HMM, P", "HMM, 1000 times, 5 states, unknown transition matrix", hidden, hidden_summaries),
        ModelSpec(
            "B, w", "Gaussian mixture, 500 points, weights and sds unknown", weighted, weighted_summaries
        ),
        ModelSpec("dynamic", "dynamic occupancy, 200 sites, 7 seasons, 3 visits", dynamic, dynamic_summaries),
        ModelSpec(
            "waterbuck",
            "Raftery's N and p; the exact mean of N is 552.0, its sd 383",
            waterbuck,
            lambda a: {"N": a["N"], "p": a["p"]},
        ),
        ModelSpec(
            "cheaters",
            "three vectors of 100 Bernoullis of which a sum matters; exact mean of p 0.225, sd 0.120",
            cheaters,
            lambda a: {"p": a["p"], "guilty": a["truth"].sum(1)},
        ),
        ModelSpec(
            "NegBin",
            "N-mixture, negative binomial, 80 sites, 4 visits, a covariate on each level",
            overdispersed,
            overdispersed_summaries,
        ),
        ModelSpec("LDA", "topics: 12 documents of 40 words, 3 topics", topics, topics_summaries),
    )
}
