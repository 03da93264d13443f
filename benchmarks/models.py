"""The benchmark models: in PyMC, in NumPyro and THRML where they can run them, and the summaries that are
compared.

The PyMC models A to E and their data are those of the acceptance tests (same seeds, same numbers). A summary
is a scalar per draw; a run's score is the minimum ESS over its model's summaries.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import lattices

COAL_CSV = Path(__file__).parents[1] / "examples" / "data" / "coal_mining_disasters.csv"


@dataclass(frozen=True)
class ModelSpec:
    name: str
    title: str
    pymc: Callable  # () -> (pm.Model, names of its discrete free variables)
    summaries: Callable  # {variable: (draws, ...)} -> {summary: (draws,)}
    numpyro: Callable | None = None  # () -> NumPyro model function
    thrml: Callable | None = None  # () -> (THRML's sampling program, its blocks)
    sites: int = 0  # number of sites of a lattice; 0 for other models
    start_values: dict = field(default_factory=dict)  # for samplers whose version of the model has none
    numpyro_missing: str = ""  # why there is no NumPyro model
    continuous: bool = True  # whether the model has continuous variables, which NUTS samples
    tune: int = 1000  # draws of tuning
    complete: Callable | None = None  # (arrays, rng) -> arrays with a marginalised variable drawn exactly


# ---------------------------------------------------------------- A: spike-and-slab regression
def spike_and_slab_data(n=200, p=100):
    r = np.random.default_rng(1)
    X = r.normal(size=(n, p))
    gamma, beta = r.random(p) < 0.1, r.normal(0, 2, p)
    return X, X @ (gamma * beta) + r.normal(size=n)


def spike_and_slab():
    import pymc as pm
    import pytensor.tensor as pt

    X, y = spike_and_slab_data()
    with pm.Model() as model:
        g = pm.Bernoulli("gamma", 0.1, shape=X.shape[1])
        b = pm.Normal("beta", 0, 2, shape=X.shape[1])
        pm.Normal("y", pt.dot(X, g * b), 1, observed=y)
    return model, ["gamma"]


def spike_and_slab_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    X, y = map(jnp.asarray, spike_and_slab_data())

    def model():
        g = numpyro.sample("gamma", dist.Bernoulli(jnp.full(X.shape[1], 0.1)))
        b = numpyro.sample("beta", dist.Normal(jnp.zeros(X.shape[1]), 2.0))
        numpyro.sample("y", dist.Normal(X @ (g * b), 1.0), obs=y)

    return model


def spike_and_slab_summaries(a):
    X, y = spike_and_slab_data()
    residual = y - (a["gamma"] * a["beta"]) @ X.T
    loglik = -0.5 * (residual**2 + np.log(2 * np.pi)).sum(1)
    return {"number active": a["gamma"].sum(1), "log likelihood": loglik}


# ---------------------------------------------------------------- logistic regression with indicators
# true columns and their neighbours of which it is not clear whether they count
UNCLEAR = [52, 76, 80, 81]


def logistic_selection_data(n=500, p=100):
    """X (n, p), columns correlated 0.6 with their neighbours, and y (n,); five columns count."""
    r = np.random.default_rng(2)
    normal = r.normal(size=(n, p))
    X = normal.copy()
    for j in range(1, p):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * normal[:, j]
    b = np.zeros(p)
    b[::20] = [1.0, -1.0, 0.7, -0.7, 0.5]
    return X, r.binomial(1, 1 / (1 + np.exp(-(0.3 + X @ b))))


def thousands_data(n=500, p=10_000):
    """X (n, p), columns correlated 0.6 with their neighbours, and y (n,); ten columns count."""
    r = np.random.default_rng(3)
    X = r.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * X[:, j]
    b = np.zeros(p)
    b[:: p // 10] = [1.0, -1.0, 0.8, -0.8, 0.6, -0.6, 0.5, -0.5, 0.4, -0.4]
    return X, X @ b + r.normal(size=n)


def thousands(p=10_000):
    """A regression on p columns, of which ten are expected to count; the noise is unknown."""
    import pymc as pm
    import pytensor.tensor as pt

    X, y = thousands_data(p=p)
    with pm.Model() as model:
        g, s = pm.Bernoulli("gamma", 10 / p, shape=p), pm.HalfNormal("sigma", 2)
        b = pm.Normal("beta", 0, 1, shape=p)
        pm.Normal("y", pt.dot(X, g * b), s, observed=y)
    return model, ["gamma"]


def logistic_selection():
    import pymc as pm
    import pytensor.tensor as pt

    X, y = logistic_selection_data()
    with pm.Model() as model:
        w, tau = pm.Beta("w", 1, 9), pm.HalfNormal("tau", 1)
        g = pm.Bernoulli("gamma", w, shape=X.shape[1])
        a, b = pm.Normal("a", 0, 2), pm.Normal("beta", 0, tau, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=a + pt.dot(X, g * b), observed=y)
    return model, ["gamma"]


def mixed_selection_data(n=1000, groups=100):
    """X (n, 4), the group of each row (n,) and y (n,); one column counts, one hardly."""
    r = np.random.default_rng(4)
    X, group = r.normal(size=(n, 4)), np.arange(n) % groups
    eta = -0.5 + X @ [0.8, 0.15, 0.0, 0.0] + r.normal(0, 0.9, groups)[group]
    return X, group, r.binomial(1, 1 / (1 + np.exp(-eta)))


def mixed_selection():
    """A logistic regression with an effect of each of 100 groups, and indicators of four columns."""
    import pymc as pm
    import pytensor.tensor as pt

    X, group, y = mixed_selection_data()
    with pm.Model() as model:
        g, tau = pm.Bernoulli("gamma", 0.5, shape=4), pm.HalfNormal("tau", 1)
        a, b = pm.Normal("a", 0, 2), pm.Normal("beta", 0, 1, shape=4)
        u = pm.Normal("u", 0, tau, shape=int(group.max()) + 1)
        pm.Bernoulli("y", logit_p=a + pt.dot(X, g * b) + u[group], observed=y)
    return model, ["gamma"]


def item_bias_data(persons=200, items=20):
    """The group of each person (persons,) and answers (persons, items); three items differ by group."""
    r = np.random.default_rng(5)
    group, bias = np.arange(persons) % 2, np.zeros(items)
    bias[:3] = [1.2, -0.8, 0.5]
    eta = r.normal(size=(persons, 1)) - r.normal(size=items) + group[:, None] * bias
    return group, r.binomial(1, 1 / (1 + np.exp(-eta)))


def item_bias():
    """A Rasch model, in which an indicator says of each item whether it is easier for one group."""
    import pymc as pm

    group, y = item_bias_data()
    persons, items = y.shape
    with pm.Model() as model:
        w, tau = pm.Beta("w", 1, 4), pm.HalfNormal("tau", 2)
        g = pm.Bernoulli("gamma", w, shape=items)
        b = pm.Normal("beta", 0, 1, shape=items)
        ability, difficulty = pm.Normal("u", 0, tau, shape=persons), pm.Normal("a", 0, 2, shape=items)
        pm.Bernoulli("y", logit_p=ability[:, None] - difficulty + group[:, None] * (g * b), observed=y)
    return model, ["gamma"]


def logistic_selection_summaries(a):
    g = a["gamma"]
    found = {"number active": g.sum(-1)} | {f"column {j}": g[..., j] for j in UNCLEAR}
    return found | {name: a[name] for name in ("w", "tau", "a")}


def logistic_selection_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    X, y = map(jnp.asarray, logistic_selection_data())

    def model():
        w = numpyro.sample("w", dist.Beta(1.0, 9.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        g = numpyro.sample("gamma", dist.Bernoulli(w).expand([X.shape[1]]))
        a = numpyro.sample("a", dist.Normal(0.0, 2.0))
        b = numpyro.sample("beta", dist.Normal(0.0, tau).expand([X.shape[1]]))
        numpyro.sample("y", dist.Bernoulli(logits=a + X @ (g * b)), obs=y)

    return model


# ---------------------------------------------------------------- B: Gaussian mixture
def mixture_data(n=500):
    r = np.random.default_rng(2)
    return np.array([-3.0, 0.0, 3.5])[r.choice(3, n, p=[0.3, 0.4, 0.3])] + r.normal(size=n)


def mixture():
    import pymc as pm

    y = mixture_data()
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=3, transform=ordered, initval=[-3.0, 0.0, 3.0])
        z = pm.Categorical("z", p=np.ones(3) / 3, shape=len(y))
        pm.Normal("y", mu[z], 1, observed=y)
    return model, ["z"]


def mixture_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y = jnp.asarray(mixture_data())

    def model():  # iid Normal(0, 5) restricted to increasing means, as with PyMC's ordered transform
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,)))
        numpyro.factor("mu_prior", dist.Normal(0.0, 5.0).log_prob(mu).sum())
        z = numpyro.sample("z", dist.Categorical(jnp.full((y.shape[0], 3), 1 / 3)))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    return model


def mixture_draw_z(a, rng):
    """Adds z, drawn exactly given mu: argmax_k (log p(y_i | mu_k) + Gumbel)."""
    logp = -0.5 * (mixture_data()[:, None] - a["mu"][:, None, :]) ** 2
    return {**a, "z": (logp + rng.gumbel(size=logp.shape)).argmax(-1)}


def mixture_summaries(a):
    sizes = {f"size {k}": (a["z"] == k).sum(1) for k in range(3)}
    return sizes | {f"mean {k}": a["mu"][:, k] for k in range(3)}


# ---------------------------------------------------------------- D: coal mining disasters, two years missing
def coal_data():
    years, disasters = np.genfromtxt(COAL_CSV, delimiter=",", skip_header=1).T
    return years.astype(int), disasters


def coal_mining():
    import pymc as pm

    years, disasters = coal_data()
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore")  # PyMC warns that it imputes missing values
        tau = pm.DiscreteUniform("switchpoint", years.min(), years.max())
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        pm.Poisson("disasters", pm.math.switch(tau >= years, early, late), observed=disasters)
    return model, ["switchpoint", "disasters_unobserved"]


def coal_mining_numpyro():
    """The two missing counts, unbounded Poisson variables, are left out.

    This does not change the posterior of what is compared. The switchpoint is an index from 0, as NumPyro's
    discrete Gibbs proposes 0..K-1 whatever the support.
    """
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    years, disasters = coal_data()
    observed = np.isfinite(disasters)
    offset, counts = jnp.asarray(years[observed] - years.min()), jnp.asarray(disasters[observed].astype(int))

    def model():
        tau = numpyro.sample("switchpoint_index", dist.DiscreteUniform(0, len(years) - 1))
        early = numpyro.sample("early", dist.Exponential(1.0))
        late = numpyro.sample("late", dist.Exponential(1.0))
        numpyro.sample("disasters", dist.Poisson(jnp.where(tau >= offset, early, late)), obs=counts)

    return model


def coal_summaries(a):
    tau = a["switchpoint"] if "switchpoint" in a else a["switchpoint_index"] + coal_data()[0].min()
    return {"switchpoint": tau, "early": a["early"], "late": a["late"]}


# ---------------------------------------------------------------- E: N-mixture, repeated counts
def n_mixture(sites=50, visits=4):
    import pymc as pm

    r = np.random.default_rng(5)
    y = r.binomial(r.poisson(6.0, sites)[:, None], 0.45, size=(sites, visits))
    with pm.Model() as model:
        lam, p = pm.Gamma("lam", 2, 0.5), pm.Beta("p", 1, 1)
        N = pm.Poisson("N", lam, shape=sites, initval=y.max(1) + 3)
        pm.Binomial("y", n=N[:, None], p=p, observed=y)
    return model, ["N"]


def n_mixture_summaries(a):
    return {"total N": a["N"].sum(1), "lam": a["lam"], "p": a["p"]}


SPECS = [
    ModelSpec(
        name="A",
        title="spike-and-slab regression, n=200, p=100",
        pymc=spike_and_slab,
        summaries=spike_and_slab_summaries,
        numpyro=spike_and_slab_numpyro,
    ),
    ModelSpec(
        name="B",
        title="Gaussian mixture, 500 points, 3 clusters",
        pymc=mixture,
        summaries=mixture_summaries,
        numpyro=mixture_numpyro,
        start_values={"mu": np.array([-3.0, 0.0, 3.0])},
        complete=mixture_draw_z,
    ),
    ModelSpec(
        name="C",
        title="Ising 20x20, coupling 0.4",
        pymc=lattices.ising,
        summaries=lattices.ising_summaries,
        numpyro=lattices.ising_numpyro,
        thrml=lattices.ising_thrml,
        sites=lattices.SIDE**2,
        continuous=False,
        tune=500,
    ),
    ModelSpec(
        name="D",
        title="coal mining changepoint, 2 missing counts",
        pymc=coal_mining,
        summaries=coal_summaries,
        numpyro=coal_mining_numpyro,
    ),
    ModelSpec(
        name="E",
        title="N-mixture, 50 sites, 4 visits",
        pymc=n_mixture,
        summaries=n_mixture_summaries,
        numpyro_missing="N is Poisson: NumPyro's discrete kernels need a finite static support",
    ),
    ModelSpec(
        name="F",
        title="Potts 30x30, 4 colours, coupling 0.9",
        pymc=lattices.potts,
        summaries=lattices.potts_summaries,
        numpyro=lattices.potts_numpyro,
        thrml=lattices.potts_thrml,
        sites=lattices.POTTS_SIDE**2,
        continuous=False,
        tune=500,
    ),
    ModelSpec(
        name="I",
        title="Ising 50x50, coupling 0.4",
        pymc=partial(lattices.ising, lattices.LARGE_SIDE),
        summaries=lattices.ising_summaries,
        numpyro=partial(lattices.ising_numpyro, lattices.LARGE_SIDE),
        thrml=partial(lattices.ising_thrml, lattices.LARGE_SIDE),
        sites=lattices.LARGE_SIDE**2,
        continuous=False,
        tune=500,
    ),
]
MODELS = {spec.name: spec for spec in SPECS}
