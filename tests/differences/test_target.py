"""Targets against PyMC's own log density, over all neighbours of random points."""

import itertools
import warnings
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from tests.models import model_of
from tests.tools.interpreted import interpreted
from tests.tools.oracle import RNG, both, compare, oracle


@pytest.fixture(scope="module", autouse=True)
def one_oracle_of_a_model():
    """No test changes a model: PyMC's density of one that several tests compare is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.tools.oracle.oracle", cache(oracle))
        yield


# ---------------------------------------------------------------- every distribution
def observe(*terms, seed=0):
    """A likelihood that reads all of the variables."""
    total = sum(c * t.sum() for c, t in zip((0.7, -0.4, 0.3, 0.5), terms, strict=False))
    pm.Normal("seen", total, 1.3, observed=0.8)


def bernoulli():
    a = pm.Normal("a")
    observe(pm.Bernoulli("p", [0.2, 0.7]), pm.Bernoulli("logit", logit_p=a, shape=(2, 2)))
    return {"p": (0, 1), "logit": (0, 1)}


def categorical():
    w = pm.Dirichlet("w", np.ones(4))
    observe(
        pm.Categorical("p", p=[[0.1, 0.6, 0.3], [0.5, 0.25, 0.25]]),
        pm.Categorical("w_", p=w, shape=3),
        pm.Categorical("one", logit_p=[0.1, 2.0]),
    )
    return {"p": (0, 2), "w_": (0, 3), "one": (0, 1)}


def uniform():
    observe(
        pm.DiscreteUniform("k", -3, 4),
        pm.DiscreteUniform("each", [1, 5], [3, 5]),
        pm.DiscreteUniform("wide", 10, 400),
    )
    return {"k": (-3, 4), "each": ([1, 5], [3, 5]), "wide": (10, 400)}


def binomial():
    p = pm.Beta("p", 2, 3)
    observe(
        pm.Binomial("each", n=[3, 4, 7], p=p),
        pm.BetaBinomial("beta", alpha=2.0, beta=1.5, n=5),
        pm.Binomial("wide", n=300, p=0.4),
    )
    return {"each": (0, [3, 4, 7]), "beta": (0, 5), "wide": (0, 300)}


def counts():
    mu = pm.Gamma("mu", 3, 1)
    observe(
        pm.Poisson("poisson", mu, shape=2),
        pm.NegativeBinomial("mu_", mu=mu, alpha=1.7),
        pm.NegativeBinomial("n_", n=3, p=0.3),
        pm.Geometric("geometric", 0.3),
    )
    return {"poisson": (0, None), "mu_": (0, None), "n_": (0, None), "geometric": (1, None)}


def hypergeometric():
    observe(pm.HyperGeometric("k", N=10, k=6, n=7), pm.DiscreteWeibull("w", q=0.8, beta=1.3, shape=2))
    return {"k": (3, 6), "w": (0, None)}


def zero_inflated():
    psi = pm.Beta("psi", 3, 2)
    observe(
        pm.ZeroInflatedPoisson("poisson", psi=psi, mu=2.5, shape=2),
        pm.ZeroInflatedBinomial("binomial", psi=0.7, n=5, p=0.4),
        pm.ZeroInflatedNegativeBinomial("negative", psi=0.7, mu=2.0, alpha=1.5),
        pm.HurdlePoisson("hurdle", psi=psi, mu=2.0),
    )
    return {"poisson": (0, None), "binomial": (0, 5), "negative": (0, None), "hurdle": (0, None)}


def ordered():
    eta = pm.Normal("eta")
    observe(
        pm.OrderedLogistic("logistic", eta=eta, cutpoints=[-1.0, 0.3, 1.2], compute_p=False, shape=2),
        pm.OrderedProbit("probit", eta=0.4, cutpoints=[-0.7, 0.9], compute_p=False),
    )
    return {"logistic": (0, 3), "probit": (0, 2)}


def truncated():
    observe(
        pm.Truncated("both", pm.Poisson.dist(3.0), lower=2, upper=6, shape=2),
        pm.Truncated("below", pm.NegativeBinomial.dist(mu=3.0, alpha=2.0), lower=2),
        pm.Censored("censored", pm.Poisson.dist(3.0), lower=1, upper=5),
    )
    return {"both": (2, 6), "below": (2, None), "censored": (1, 5)}


def mixture():
    w = pm.Dirichlet("w", np.ones(2))
    observe(
        pm.Mixture("batched", w=w, comp_dists=pm.Poisson.dist(np.array([1.0, 4.0])), shape=2),
        pm.Mixture(
            "mixed", w=[0.3, 0.7], comp_dists=[pm.Binomial.dist(n=4, p=0.4), pm.DiscreteUniform.dist(2, 6)]
        ),
    )
    return {"batched": (0, None), "mixed": (0, 6)}


def nested():
    """A support that another variable of the block decides."""
    N = pm.Poisson("N", 4.0, initval=5)
    k = pm.Binomial("k", n=N, p=0.6, shape=2)
    u = pm.DiscreteUniform("u", 0, N)
    observe(N, k, u)
    return {"N": (0, None), "k": (0, None), "u": (0, None)}


def imputed():
    r = RNG(3)
    hide = lambda a: np.ma.masked_invalid(np.where(r.random(a.shape) < 0.4, np.nan, a))
    x = pm.Bernoulli("x", pm.Beta("p", 1, 1), observed=hide(r.integers(0, 2, 12)))
    n = pm.Poisson("n", 2.0, observed=hide(r.poisson(2.0, 12)))
    pm.Binomial("b", n=5, p=0.3, observed=hide(r.binomial(5, 0.3, (4, 3))))
    pm.Normal("y", 0.5 * x + 0.3 * n, 1.0, observed=r.normal(size=12))
    return {"x_unobserved": (0, 1), "n_unobserved": (0, None), "b_unobserved": (0, 5)}


DISTRIBUTIONS = (
    bernoulli,
    categorical,
    uniform,
    binomial,
    counts,
    hypergeometric,
    zero_inflated,
    ordered,
    truncated,
    mixture,
    nested,
    imputed,
)


@pytest.mark.parametrize("build", DISTRIBUTIONS)
@pytest.mark.by_default("categorical", "nested", "imputed", "ordered", "hypergeometric")
def test_distributions(build):
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's own, where it imputes
        supports = build()
    # wider where PyMC's own value is no better: an unstable normaliser in truncated, float32 weights and
    # log(1 / 5) in the others
    target, got, _ = compare(model, tolerance=1e-7 if build in (truncated, mixture, zero_inflated) else 1e-9)
    assert target.exact
    assert len(got) > 10
    blocks = {v.name: v for v in target.space.variables}
    assert set(blocks) == set(supports)
    unbounded = np.iinfo(np.int32).max
    for name, (low, high) in supports.items():
        np.testing.assert_array_equal(blocks[name].lower, np.broadcast_to(low, blocks[name].size))
        np.testing.assert_array_equal(
            blocks[name].upper, np.broadcast_to(unbounded if high is None else high, blocks[name].size)
        )
        assert blocks[name].finite == (high is not None)  # of so few sites every value is cheap to look at


def test_custom_distributions_need_a_support():
    with pm.Model() as model:
        k = pm.CustomDist(
            "k",
            0.3,
            logp=lambda v, c: pt.switch((v >= 2) & (v <= 5), c * v, -np.inf),
            dtype="int64",
            shape=2,
            initval=[3, 4],
        )
        observe(k)
    with pytest.raises(ValueError, match="support"):
        pmd.target_from_model(model)
    compare(model, support={"k": (2, 5)})
    compare(model, support={"k": (0, 7)})  # impossible values inside it
    compare(model, support={"k": (2, None)})


# ---------------------------------------------------------------- graphs
def dims_and_data():
    r = RNG(4)
    pm.modelcontext(None).add_coords({"row": range(4), "column": list("abc")})
    shift = pm.Data("shift", r.normal(size=(4, 3)), dims=("row", "column"))
    group = pm.Data("group", np.array([0, 1, 1, 0]), dims="row")
    x = pm.Bernoulli("x", 0.3, dims=("row", "column"))
    c = pm.Categorical("c", p=np.ones(3) / 3, shape=2)
    pm.Normal(
        "y",
        x + pt.as_tensor([-1.0, 0.0, 1.0])[c[group]][:, None] + shift,
        1.0,
        observed=r.normal(size=(4, 3)),
        dims=("row", "column"),
    )
    pm.Potential("scalar", 0.3 * x[0, 1] * c[0])


def pairs():
    x = pm.Bernoulli("x", 0.4, shape=(3, 4))
    z = pm.Categorical("z", p=np.ones(3) / 3, shape=6)
    J = pt.as_tensor(RNG(5).normal(size=(3, 3)))
    pm.Potential("roll", 0.4 * (x * pt.roll(x, 1, axis=1)).sum() - 0.2 * pt.eq(x[1:], x[:-1]).sum())
    pm.Potential("gather", J[z[:-1], z[1:]].sum() + 0.3 * (z[:4].reshape((2, 2)) * x[:2, :2]).sum())


def triples():
    x = pm.Bernoulli("x", 0.4, shape=8)
    k = pm.DiscreteUniform("k", 1, 4, shape=8)
    pm.Potential(
        "three", 0.6 * (x[2:] * k[1:-1] * x[:-2]).sum() + pt.sqr(k.reshape((4, 2)).sum(1) - 4).sum() / -6
    )


def negative_index():
    z = pm.DiscreteUniform("z", -3, 2, shape=4)
    pm.Normal("y", pt.as_tensor([0.1, -1.0, 2.0])[z], 1.0, observed=RNG(6).normal(size=4))


def set_and_stack():
    x = pm.Bernoulli("x", 0.4, shape=4)
    k = pm.Poisson("k", 2.0, shape=3)
    both_ = pt.concatenate([x, k, pt.stack([x[0], k[2]])])
    pm.Normal("y", pt.set_subtensor(pt.zeros(12)[2:11], both_), 1.0, observed=RNG(7).normal(size=12))


def changepoint():
    t = np.arange(40)
    tau = pm.DiscreteUniform("tau", 0, 39)
    rate = pm.math.switch(tau >= t, pm.Exponential("early", 1.0), pm.Exponential("late", 0.5))
    pm.Poisson("y", rate, observed=RNG(15).poisson(2.0, 40))


def changepoints():
    """Conditions of one site and of two, inside one another, joined, mixed with arithmetic, and of a count
    with a window.
    """
    t, r = np.arange(12), RNG(16)
    tau, k = pm.DiscreteUniform("tau", 0, 11, shape=3), pm.Poisson("k", 4.0)
    a, b = pm.Normal("a", shape=12), pm.Gamma("b", 2.0, 1.0, shape=3)
    nested_ = pm.math.switch(tau[0] >= t, b[0], pm.math.switch(tau[1] >= t, b[1], b[2]))
    twice = pm.math.switch(tau[0] >= t, b[0], pm.math.switch(tau[0] + 3 >= t, b[1], a**2 + 0.1))
    joined = pm.math.switch((tau[0] <= t) & (t < tau[1]) | pt.eq(tau[2], t), a, b[2])
    products = b[0] * (tau[0] >= t) + b[1] * (tau[0] < t) + 0.1 * tau[2]
    pm.Normal("y", joined, nested_ + twice, observed=r.normal(size=12))
    pm.Poisson("z", products * pm.math.switch(k > t, b[0], 0.3) + 0.2, observed=r.poisson(2.0, 12))


def narrow_joins():
    """Joined arrays of a type that does not hold the numbers of their elements."""
    k, g = pm.DiscreteUniform("k", 0, 2, shape=90), RNG(17).normal(size=90)
    small = pt.cast(k, "int8")
    joined = pt.concatenate([pt.roll(small, 3) * g, pt.concatenate([small, pt.cast(k > 1, "int8")]), k])
    chosen = pt.switch(pt.concatenate([(k > 1)[2:], pt.eq(k[:2], 1)]), 1.0, pt.stack([small, small[::-1]])[1])
    pm.Normal("y", joined + pt.tile(chosen, 4), 1.0, observed=RNG(18).normal(size=360))


def regression():
    r = RNG(8)
    X = r.normal(size=(20, 5))
    g = pm.Bernoulli("g", 0.3, shape=5)
    b = pm.Normal("b", 0, 2, shape=5)
    pm.Poisson("y", pt.exp(0.3 * pt.dot(X, g * b)), observed=r.poisson(1.5, 20))


def cumulative():
    x = pm.Bernoulli("x", 0.2, shape=20)
    k = pm.Poisson("k", 1.0, shape=20)
    pm.Normal("y", pm.Normal("size") * pt.cumsum(x) + 0.1 * pt.cumsum(k), 1, observed=np.arange(20) / 5)


def indexed():
    """Which element is read is itself in the block."""
    j = pm.Categorical("j", p=np.ones(4) / 4)
    x = pm.Bernoulli("x", [0.2, 0.4, 0.6, 0.8])
    pm.Normal("y", 2.0 * x[j] - 1.0, 0.6, observed=0.4)


def sorted_():
    k = pm.Poisson("k", 2.0, shape=6)
    pm.Normal("y", pt.sort(k), 1.0, observed=np.arange(6))


def largest():
    x = pm.DiscreteUniform("x", 0, 5, shape=20)
    pm.Normal("y", pt.max(x), 0.5, observed=4.2)


def determinant(d=6):
    x = pm.Bernoulli("x", 0.4, shape=d)
    M = RNG(9).normal(size=(d, d))
    pm.Potential("logdet", pt.linalg.slogdet(pt.as_tensor(M @ M.T) + pt.diag(1.0 + x))[1])


def small_determinant():
    determinant(4)


def parity():
    x = pm.Bernoulli("x", 0.4, shape=12)
    pm.Potential("odd", -3.0 * pt.mod(x.sum(), 2))


def network():
    """Two dense layers: the rest of the graph beyond the first linear map costs more than the gradient."""
    r = RNG(10)
    x = pm.Bernoulli("x", 0.4, shape=20)
    pm.Potential(
        "net",
        pt.tanh(pt.dot(r.normal(0, 0.1, (100, 100)), pt.tanh(pt.dot(r.normal(0, 0.3, (100, 20)), x)))).sum(),
    )


def covariance():
    """A Cholesky factor of a matrix in which every site is: too dear at every neighbour."""
    r = RNG(11)
    X = r.normal(size=(80, 30))
    g = pm.Bernoulli("g", 0.3, shape=30)
    pm.MvNormal(
        "y", np.zeros(80), cov=pt.eye(80) + pt.dot(X * (0.05 * g), X.T), observed=1.5 * r.normal(size=80)
    )


WAYS = [
    (dims_and_data, "exact"),
    (pairs, "exact"),
    (triples, "exact"),
    (negative_index, "exact"),
    (set_and_stack, "exact"),
    (changepoint, "exact"),
    (narrow_joins, "exact"),
    (small_determinant, "exact"),
    (changepoints, "exact"),
    (regression, "incremental"),
    (cumulative, "incremental"),
    (parity, "incremental"),
    (indexed, "brute force"),
    (sorted_, "brute force"),
    (largest, "brute force"),
    (determinant, "brute force"),
    (network, "gradient"),
    (covariance, "gradient"),
]


@pytest.mark.parametrize(("build", "way"), WAYS, ids=[b.__name__ for b, _ in WAYS])
@pytest.mark.by_default(
    "changepoints",
    "covariance",
    "pairs",
    "network",
    "sorted_",
    "indexed",
    "triples",
    "parity",
    "negative_index",
)
def test_ways(build, way):
    target, got, want = compare(model_of(build))
    rows = target.describe()
    assert {row["way"] for row in rows.values()} == {way}
    assert target.exact == all(row["exact"] for row in rows.values()) == (way != "gradient")
    assert {v.name: v.K for v in target.space.variables} == {name: row["K"] for name, row in rows.items()}
    assert all(row["reason"] for row in rows.values())
    if way == "gradient":
        # a first-order estimate of smooth terms; what a chain needs is that it ranks the moves
        assert np.corrcoef(got, want)[0, 1] > 0.5


def within_budget(weights, budget, scaled=False):
    """A weighted sum of sites is at most a budget, and in some states equal to it but for rounding."""
    z = pm.Bernoulli("z", 0.5, shape=len(weights))
    total = pt.dot(z, weights) * (pm.HalfNormal("scale", 1.0) if scaled else 1.0)
    pm.Potential("budget", pt.switch(total <= budget, 0.0, -np.inf))


def within_capacities(weights, capacity):
    """As `within_budget`, for the sum of each label."""
    z = pm.Bernoulli("z", 0.5, shape=len(weights))
    totals = pt.inc_subtensor(pt.zeros(2)[z], weights)
    pm.Potential("capacity", pt.switch(totals <= capacity, 0.0, -np.inf).sum())
    pm.Potential("squares", (totals**2).sum())


WEIGHTS = np.array([0.3, 0.6, 0.1, 0.9, 0.2])


@pytest.mark.parametrize(
    ("build", "way"),
    [
        (partial(within_budget, WEIGHTS, 1.2), "brute force"),
        (partial(within_budget, 10 * WEIGHTS, 12.0), "incremental"),
        (partial(within_budget, WEIGHTS, 1.2, scaled=True), "incremental"),  # equal with probability 0
        (partial(within_capacities, WEIGHTS, 1.2), "brute force"),
        (partial(within_capacities, 10 * WEIGHTS, 12.0), "incremental"),
    ],
)
def test_sums_are_computed_anew_where_rounding_decides(build, way):
    with pm.Model() as model:
        build()
    target = pmd.target_from_model(model, ["z"])
    assert target.describe()["z"]["way"] == way
    point = model.initial_point()
    point |= {"scale_log__": np.array(-0.1)} if "scale_log__" in point else {}
    states = np.array(list(itertools.product([0, 1], repeat=5)))
    both_at = interpreted(
        jax.vmap(lambda target, x: (target.logdensity(x), target.differences(x)), (None, 0))
    )
    logdensity, differences = both_at(target.at(point)[1], states)
    possible = logdensity > -np.inf
    assert 0 < possible.sum() < len(states)
    for x, d in zip(states[possible], differences[possible], strict=True):
        there = [x + (1 - 2 * x[i]) * (np.arange(5) == i) for i in range(5)]
        want = possible[np.array(there) @ 2 ** np.arange(5)[::-1]]
        assert ((d[np.arange(5), 1 - x] > -np.inf) == want).all()


def test_what_follows_a_condition_is_computed_for_its_two_sides():
    """And not at each of the 40 values of the changepoint."""
    model = model_of(changepoint)
    x, target = pmd.target_from_model(model, ["tau"]).at(model.initial_point())
    inputs = target.density.split(model.initial_point())[1]
    jaxpr = jax.make_jaxpr(lambda inputs, x: pmd.Target(target.density).with_inputs(inputs).differences(x))(
        inputs, x
    )
    sizes = [
        v.aval.size for e in equations(jaxpr.jaxpr) if e.primitive.name in ("mul", "sub") for v in e.outvars
    ]
    assert sizes
    assert max(sizes) <= 2 * 40


def equations(jaxpr):
    """Those of a program and of all that it calls."""
    for e in jaxpr.eqns:
        yield e
        for inner in jax.tree.leaves(
            list(e.params.values()), is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_exact_never_takes_the_gradient():
    target, *_ = compare(model_of(covariance), how="exact")
    assert target.exact
    assert {row["way"] for row in target.describe().values()} <= {"incremental", "brute force"}


@pytest.mark.parametrize(
    "build",
    [
        bernoulli,
        categorical,
        uniform,
        binomial,
        counts,
        pairs,
        set_and_stack,
        regression,
        cumulative,
        determinant,
    ],
)
@pytest.mark.by_default("binomial", "categorical", "cumulative", "set_and_stack")
def test_gradients_are_alive(build):
    """The estimate varies and points the right way; a grad on the integers themselves would be 0
    everywhere.
    """
    target, got, want = compare(model_of(build), how="gradient")
    assert {row["way"] for row in target.describe().values()} == {"gradient"}
    assert np.ptp(got) > 0.1
    assert np.corrcoef(got, want)[0, 1] > 0.2


@pytest.mark.parametrize("build", [parity, sorted_])
def test_gradients_that_would_be_blind_are_refused_or_alive(build):
    try:
        _, got, want = compare(model_of(build), how="gradient")
    except ValueError as e:
        assert "blind" in str(e)  # noqa: PT017
        return
    assert np.corrcoef(got, want)[0, 1] > 0.2


# ---------------------------------------------------------------- impossible parameters, precision
GUARDS = {
    "too few trials": lambda k: pm.Binomial("y", n=k, p=0.4, observed=3),
    "no probability": lambda k: pm.Bernoulli("y", 0.25 * k - 0.5, observed=[1, 0]),
    "no rate": lambda k: pm.Poisson("y", k - 1.0, observed=[0, 2]),
    "no scale": lambda k: pm.Normal("y", 0, k, observed=[0.3, -1.0]),
    "no covariance": lambda k: pm.Normal("y", 0, pt.sqrt(k - 2.0), observed=0.3),
    "empty range": lambda k: pm.DiscreteUniform("y", 0, k, observed=2),
}


@pytest.mark.parametrize("name", GUARDS)
def test_impossible_parameters_have_density_zero(name):
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 7, initval=4)
        GUARDS[name](k)
    target, *_ = compare(model)
    _, d = both(target, np.array([4]))
    assert 1 <= np.isneginf(np.asarray(d)).sum() <= 6


def test_an_index_out_of_bounds_has_density_zero():
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 5, initval=2)
        pm.Normal("y", pt.as_tensor([0.0, 1.0, 2.0, 3.0])[k], 1, observed=0.4)
    compare(model)


def test_float32_constants_are_promoted():
    """PyTensor makes a Python 0.5 a float32 constant, whose logarithm is good to 7 digits only."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=100)
        pm.Potential("e", 0.5 * (x * pt.log(2.0 + x)).sum())
    target = pmd.target_from_model(model)
    x = RNG(12).integers(0, 2, 100)
    density, d = map(np.asarray, both(target, x))
    assert density.dtype == d.dtype == np.float64
    # 100 terms of order 1 in float64: 1e-14 each
    np.testing.assert_allclose(density, 100 * np.log(0.5) + 0.5 * np.log(3.0) * x.sum(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(d[np.arange(100), 1 - x], 0.5 * np.log(3.0) * (1 - 2 * x), rtol=0, atol=1e-12)


def test_sums_of_float32_constants_are_promoted():
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full((4, 3), 0.5), shape=(4, 3))
        pm.Potential("e", pt.sqr(pt.exp(pt.switch(x, 3.0, 1.0)).sum(axis=1)).sum())
    x = RNG(13).integers(0, 2, 12)
    f = lambda x: np.square(np.exp(np.where(x.reshape(4, 3), 3.0, 1.0)).sum(1)).sum()
    _, d = map(np.asarray, both(pmd.target_from_model(model), x))
    for i in range(12):
        y = np.where(np.arange(12) == i, 1 - x, x)
        np.testing.assert_allclose(d[i, y[i]], f(y) - f(x), rtol=1e-12)


# ---------------------------------------------------------------- targets as objects
def potential(x, w, b):
    return -0.5 * jnp.einsum("i,ij,j", x, w, x) + b @ x


@pytest.mark.parametrize("window", [1, "geometric"])
def test_target_from_logdensity(window):
    """Binary, categorical from 2, and windowed sites in one function; all its neighbours, and
    other inputs.
    """
    space = pmd.Space.build({"b": (np.zeros(3), np.ones(3)), "c": (2, 5), "n": (0, None)}, window=window)
    assert space.sites == [("b", 0), ("b", 1), ("b", 2), ("c", 0), ("n", 0)]
    r = RNG(14)
    inputs = [(r.normal(size=(5, 5)), r.normal(size=5)) for _ in range(2)]
    exact = pmd.target_from_logdensity(potential, space, inputs=inputs[0])
    first_order = pmd.target_from_logdensity(potential, space, differences="gradient", inputs=inputs[0])
    assert exact.exact
    assert not first_order.exact
    assert {row["way"] for row in first_order.describe().values()} == {"gradient"}
    x = np.array([1, 0, 1, 3, 0])  # n at its bound: offsets below leave the support
    values, inside = (np.asarray(a) for a in space.neighbours(x))
    for w, b in inputs:
        f = lambda x, w=w, b=b: -0.5 * x @ w @ x + b @ x
        slope = b - 0.5 * (w + w.T) @ x
        density, d = map(np.asarray, both(exact.with_inputs((w, b)), x))
        _, g = map(np.asarray, both(first_order.with_inputs((w, b)), x))
        np.testing.assert_allclose(density, f(x), rtol=1e-12)
        for i, k in np.ndindex(values.shape):
            if not inside[i, k]:
                assert d[i, k] == g[i, k] == -np.inf
                continue
            y = x.copy()
            y[i] = values[i, k]
            np.testing.assert_allclose(d[i, k], f(y) - f(x), atol=1e-12)
            np.testing.assert_allclose(
                g[i, k], slope[i] * (y[i] - x[i]), atol=1e-12
            )  # Grathwohl et al. 2021, Eq. 3
    default, _ = both(exact, x)
    np.testing.assert_allclose(default, potential(x, *inputs[0]), rtol=1e-12)


def test_points_round_trip():
    model = model_of(set_and_stack)
    target = pmd.target_from_model(model, ["k", "x"])  # the block's order is the caller's
    point = {**model.initial_point(), "x": np.array([1, 0, 1, 1]), "k": np.array([3, 1, 4])}
    x, at = target.at(point)
    np.testing.assert_array_equal(x, [3, 1, 4, 1, 0, 1, 1])
    assert target.space.sites[:4] == [("k", 0), ("k", 1), ("k", 2), ("x", 0)]
    back = at.point(x)
    assert list(back) == list(point)
    for name, value in point.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].dtype == model.initial_point()[name].dtype
        assert back[name].shape == value.shape


def test_a_block_leaves_the_rest_as_context():
    """Half of the discrete variables in the block: the other half are the context, and x comes back among
    them.
    """
    model = model_of(dims_and_data)
    compare(model, ["c"])
    target, *_ = compare(model, ["x"])
    point = model.initial_point()
    other = {**point, "c": np.array([2, 0])}
    x, at = target.at(point)
    _, at_other = target.at(other)
    assert np.abs(np.asarray(both(at, x)[1])[:, 1] - np.asarray(both(at_other, x)[1])[:, 1]).max() > 0.1
    assert (at_other.point(x)["c"] == other["c"]).all()


def test_targets_are_pytrees():
    """One compilation serves every context, and contexts stack."""
    model = model_of(regression)
    target = pmd.target_from_model(model, ["g"])
    traces = []

    @jax.jit
    def f(target, x):
        traces.append(1)
        return target.differences(x)

    r, x = RNG(15), np.array([1, 0, 1, 0, 0])
    targets = [target.at({**model.initial_point(), "b": r.normal(size=5)})[1] for _ in range(3)]
    alone = np.stack([f(t, x) for t in targets])
    assert len(traces) == 1
    assert np.ptp(alone, axis=0).max() > 0.1
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *targets)
    np.testing.assert_allclose(jax.vmap(f, (0, None))(stacked, x), alone, rtol=1e-12, atol=1e-12)
    leaves, tree = jax.tree.flatten(targets[0])
    np.testing.assert_array_equal(f(jax.tree.unflatten(tree, leaves), x), alone[0])


def test_a_target_that_a_trace_closes_over_can_be_used_again():
    target = pmd.target_from_model(model_of(pairs))
    x = np.zeros(target.space.d, int)
    within = jax.jit(lambda x: target.logdensity(x))(x)
    np.testing.assert_allclose(target.logdensity(x), within)


# ---------------------------------------------------------------- some sites at a time
@pytest.mark.parametrize("sites", [[0, 1], [1, 2], [0, 2], [2, 1, 0], [1]], ids=str)
def test_rows_of_some_sites_are_those_of_all(sites):
    """Also where a table of pairs has some of them and not others, whose place in it is none."""
    with pm.Model() as model:
        x, y = pm.Bernoulli("x", [0.2, 0.4, 0.7]), pm.Categorical("y", [0.2, 0.5, 0.3])
        pm.Potential("pair", pt.switch(pt.eq(y, 1), 0.9 * x[0], -0.4 * x[0]) + 1.3 * x[1] * x[2])
    target = pmd.target_from_model(model)
    n = next(n for n, v in enumerate(target.space.variables) if v.name == "x")
    start, point = target.space.starts[n], np.ones(target.space.d, int)
    prepared = target.at(target.point(point))[1]
    prepared.ready()
    expected = np.asarray(prepared.differences(point))[start : start + 3, :2][sites]
    known = interpreted(lambda x: prepared.rows(n, np.array(sites))(x))(point)
    np.testing.assert_allclose(known, expected, atol=1e-12)
    later = interpreted(lambda x, rows: prepared.rows(n, rows)(x))(point, np.array(sites))
    np.testing.assert_allclose(later, expected, atol=1e-12)
