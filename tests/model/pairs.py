"""Models written twice, with the dims of PyMC and without: functions that return (with, without)."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc import dims
from pymc.dims import as_xtensor

Y = np.array([-2.1, -1.5, 0.2, 2.1, 2.3, 1.8])
GROUP = np.array([0, 0, 1, 1, 1, 0])
PAIRS = []


def pair(function):
    PAIRS.append(function)
    return function


def model_with(**lengths):
    return pm.Model(coords={name: [f"{name}{n}" for n in range(size)] for name, size in lengths.items()})


def mixture():
    with model_with(kind=3, item=6) as named:
        w = dims.Dirichlet("w", as_xtensor(np.full(3, 1.3), dims="kind"), core_dims="kind")
        mu = dims.Normal("mu", 0, 3, dims="kind")
        s = dims.HalfNormal("s", 1)
        z = dims.Categorical("z", p=w, core_dims="kind", dims="item")
        dims.Normal("y", mu.isel(kind=z), s, observed=as_xtensor(Y, dims="item"))
        dims.Deterministic("size", dims.math.eq(z, 0).sum("item"))
    with model_with(kind=3, item=6) as plain:
        w = pm.Dirichlet("w", np.full(3, 1.3), dims="kind")
        mu = pm.Normal("mu", 0, 3, dims="kind")
        s = pm.HalfNormal("s", 1)
        z = pm.Categorical("z", p=w, dims="item")
        pm.Normal("y", mu[z], s, observed=Y, dims="item")
        pm.Deterministic("size", pt.eq(z, 0).sum())
    return named, plain


@pair
def mixture_by_group():
    """An index of two dims, one of them data, and observed data whose dims are in another order."""
    values = np.stack([Y, Y[::-1]], axis=1)
    with model_with(kind=2, group=2, item=6, time=2) as named:
        group = dims.Data("group_of", GROUP, dims="item")
        y = dims.Data("values", values, dims=("item", "time"))
        mu = dims.Normal("mu", 0, 3, dims=("group", "kind"))
        z = dims.Bernoulli("z", 0.3, dims="item")
        dims.Normal("y", mu.isel(group=group, kind=z), 1, observed=y, dims=("time", "item"))
    with model_with(kind=2, group=2, item=6, time=2) as plain:
        group = pm.Data("group_of", GROUP, dims="item")
        y = pm.Data("values", values, dims=("item", "time"))
        mu = pm.Normal("mu", 0, 3, dims=("group", "kind"))
        z = pm.Bernoulli("z", 0.3, dims="item")
        pm.Normal("y", mu[group, z], 1, observed=y.T, dims=("time", "item"))
    return named, plain


@pair
def inclusion():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(8, 4))
    y = X @ np.array([1.0, 0.0, -2.0, 0.0]) + 0.1 * rng.normal(size=8)
    with model_with(item=8, feature=4) as named:
        gamma = dims.Bernoulli("gamma", 0.4, dims="feature")
        beta = dims.Normal("beta", 0, 2, dims="feature")
        s = dims.HalfNormal("s", 1)
        mean = (as_xtensor(X, dims=("item", "feature")) * gamma * beta).sum("feature")
        dims.Normal("y", mean, s, observed=as_xtensor(y, dims="item"))
    with model_with(item=8, feature=4) as plain:
        gamma = pm.Bernoulli("gamma", 0.4, dims="feature")
        beta = pm.Normal("beta", 0, 2, dims="feature")
        s = pm.HalfNormal("s", 1)
        pm.Normal("y", (X * gamma * beta).sum(axis=1), s, observed=y, dims="item")
    return named, plain


@pair
def changepoint():
    y = np.array([4, 5, 3, 6, 0, 1, 0, 1, 2])
    with model_with(year=9) as named:
        years = as_xtensor(np.arange(9), dims="year")
        when = dims.Categorical("when", p=as_xtensor(np.full(9, 1 / 9), dims="year"), core_dims="year")
        before, after = dims.Exponential("before", 0.7), dims.Exponential("after", 0.7)
        rate = dims.math.where(years < when, before, after)
        dims.Poisson("y", rate, observed=as_xtensor(y, dims="year"))
    with model_with(year=9) as plain:
        when = pm.Categorical("when", p=np.full(9, 1 / 9))
        before, after = pm.Exponential("before", 0.7), pm.Exponential("after", 0.7)
        pm.Poisson("y", pt.switch(np.arange(9) < when, before, after), observed=y, dims="year")
    return named, plain


@pair
def hidden_states():
    """`pymc.dims` has no Markov chain: its transitions are a potential."""
    logT = np.log([[0.9, 0.1], [0.2, 0.8]])
    with model_with(time=6, state=2) as named:
        mu = dims.Normal("mu", 0, 2, dims="state")
        x = dims.Bernoulli("x", 0.4, dims="time")
        before, after = x.isel(time=slice(None, -1)), x.isel(time=slice(1, None))
        steps = as_xtensor(logT, dims=("from", "to")).isel({"from": before, "to": after})
        dims.Potential("transitions", steps.sum())
        dims.Normal("y", mu.isel(state=x), 1, observed=as_xtensor(Y, dims="time"))
    with model_with(time=6, state=2) as plain:
        mu = pm.Normal("mu", 0, 2, dims="state")
        x = pm.Bernoulli("x", 0.4, dims="time")
        pm.Potential("transitions", pt.as_tensor(logT)[x[:-1], x[1:]].sum())
        pm.Normal("y", mu[x], 1, observed=Y, dims="time")
    return named, plain


@pair
def ising():
    with model_with(row=3, column=4) as named:
        x = dims.Bernoulli("x", 0.4, dims=("row", "column"))
        s = 2 * x - 1
        for name in ("row", "column"):
            ahead, behind = s.isel({name: slice(1, None)}), s.isel({name: slice(None, -1)})
            dims.Potential(f"along {name}", 0.4 * (ahead * behind).sum())
    with model_with(row=3, column=4) as plain:
        x = pm.Bernoulli("x", 0.4, dims=("row", "column"))
        s = 2 * x - 1
        pm.Potential("along row", 0.4 * (s[1:] * s[:-1]).sum())
        pm.Potential("along column", 0.4 * (s[:, 1:] * s[:, :-1]).sum())
    return named, plain


@pair
def other_order():
    """Unknowns of two dims, which are not in the order of those of their parameters."""
    p = np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])
    rates = np.array([1.1, 2.3])
    with model_with(group=2, item=3, kind=3) as named:
        of_group = as_xtensor(p, dims=("group", "kind"))
        z = dims.Categorical("z", p=of_group, core_dims="kind", dims=("group", "item"))
        n = dims.Poisson("n", as_xtensor(rates, dims="group"), dims=("group", "item"))
        b = dims.Binomial("b", 3, p=of_group.isel(kind=0).expand_dims(item=3), dims=("group", "item"))
        dims.Normal("y", (z + n - b).sum("group"), 1.3, observed=as_xtensor(Y[:3], dims="item"))
    with model_with(group=2, item=3, kind=3) as plain:
        z = pm.Categorical("z", p=p[:, None], dims=("group", "item"))
        n = pm.Poisson("n", rates[:, None], dims=("group", "item"))
        b = pm.Binomial("b", 3, p=p[:, :1], dims=("group", "item"))
        pm.Normal("y", (z + n - b).sum(0), 1.3, observed=Y[:3], dims="item")
    return named, plain


@pair
def missing_counts():
    """Some counts are missing: what has them is a distribution without dims, in a model with dims."""
    y = np.ma.masked_array([1, 2, 0, 3], [False, True, False, False])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's own, that it imputes
        with model_with(item=4) as named:
            rate = dims.Gamma("rate", 2, 0.7, dims="item")
            n = pm.Poisson("n", rate.values, observed=y, dims="item")
            total = as_xtensor(n, dims="item").sum("item")
            dims.Normal("total", total, 1.3, observed=7.1)
        with model_with(item=4) as plain:
            rate = pm.Gamma("rate", 2, 0.7, dims="item")
            n = pm.Poisson("n", rate, observed=y, dims="item")
            pm.Normal("total", n.sum(), 1.3, observed=7.1)
    return named, plain
