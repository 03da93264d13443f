"""The bounds of each distribution against PyMC's own log density at all values, and of its parameters too."""

import itertools
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.censored import CensoredRV
from pymc.distributions.discrete import DiscreteUniformRV, DiscreteWeibullRV
from pymc.distributions.distribution import DiracDeltaRV, PartialObservedRV
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.random import basic as prb

import pymc_discrete as pmd
from pymc_discrete.distributions.partition import PartitionRV
from pymc_discrete.distributions.permutation import UniformPermutationRV, WeightedPermutationRV
from pymc_discrete.model import support
from pymc_discrete.model.support import bounds_of, rule_of

GENERALIZED_POISSON = "pymc_extras.distributions.discrete.GeneralizedPoissonRV"
MARKOV_CHAIN = "pymc_extras.distributions.timeseries.DiscreteMarkovChainRV"
VALUES = range(-8, 20)
# values of the elements of vectors; the log density of a Markov chain fails beyond its table
VECTORS = {"DiscreteMarkovChainRV": range(3)}


def parent(low, high):
    return pm.DiscreteUniform.dist(low, high)


def extras(name):
    module, _, distribution = name.rpartition(".")
    return getattr(pytest.importorskip(module), distribution.removesuffix("RV"))


def poisson(**limits):
    return lambda *_: pm.Censored.dist(pm.Poisson.dist(2.0), **limits)


def cut(**limits):
    return lambda *_: pm.Truncated.dist(pm.Poisson.dist(2.0), **limits)


HALF = [0.5, 0.5]
# {Op: [(distribution given its parents, the ranges of these, whether all bounds are attained)]}
CASES = {
    prb.BernoulliRV: [(lambda: pm.Bernoulli.dist(0.3), [], True)],
    prb.PoissonRV: [(lambda: pm.Poisson.dist(2.0), [], True)],
    prb.NegBinomialRV: [(lambda: pm.NegativeBinomial.dist(mu=2.0, alpha=1.0), [], True)],
    DiscreteWeibullRV: [(lambda: pm.DiscreteWeibull.dist(0.8, 1.0), [], True)],
    GENERALIZED_POISSON: [(lambda: extras(GENERALIZED_POISSON).dist(2.0, 0.1), [], True)],
    prb.GeometricRV: [(lambda: pm.Geometric.dist(0.3), [], True)],
    prb.BinomialRV: [
        (lambda: pm.Binomial.dist([0, 3, 5], 0.5), [], True),
        (lambda n: pm.Binomial.dist(n, 0.5), [(0, 4)], True),
        (lambda a, b: pm.Binomial.dist(2 * a - b, 0.5), [(1, 2), (-1, 1)], True),
        (lambda a: pm.Binomial.dist(pt.clip(a, 5, 8), 0.5), [(0, 3)], True),
        (lambda a: pm.Binomial.dist(pt.abs(a - 3) // 2, 0.5), [(0, 3)], True),
        (lambda a, b: pm.Binomial.dist(pt.stack([a, b]), 0.5), [(1, 4), (0, 6)], False),
        (lambda a, b: pm.Binomial.dist(pt.abs(a**b), 0.5), [(-2, 1), (2, 4)], False),
        (lambda a: pm.Binomial.dist(pt.bincount(pt.stack([a, a, 0]), minlength=2)[0], 0.5), [(0, 1)], True),
        (lambda a: pm.Binomial.dist(pm.Binomial.dist(a, 0.5) + 1, 0.5), [(0, 4)], False),
    ],
    prb.BetaBinomialRV: [
        (lambda: pm.BetaBinomial.dist(n=[2, 5], alpha=1.0, beta=2.0), [], True),
        (lambda n: pm.BetaBinomial.dist(n=n + 1, alpha=1.0, beta=2.0), [(0, 4)], True),
    ],
    DiscreteUniformRV: [
        (lambda: pm.DiscreteUniform.dist([-2, 0], [0, 3]), [], True),
        (lambda a, b: pm.DiscreteUniform.dist(-a, a + b), [(1, 2), (-1, 3)], True),
        (lambda a: pm.DiscreteUniform.dist(a * 0.75, a * 1.5), [(0, 5)], True),
    ],
    prb.HyperGeometricRV: [
        (lambda: pm.HyperGeometric.dist(np.array([5, 6]), np.array([2, 4]), np.array([4, 3])), [], True),
        (lambda n: pm.HyperGeometric.dist(N=6, k=4, n=n), [(2, 5)], True),
        (lambda k: pm.HyperGeometric.dist(N=6, k=k, n=3), [(4, 6)], True),
        (lambda N: pm.HyperGeometric.dist(N=N, k=3, n=4), [(4, 6)], True),
    ],
    prb.CategoricalRV: [
        (lambda: pm.Categorical.dist([0.2, 0.3, 0.5]), [], True),
        (lambda a: pm.Categorical.dist(logit_p=pt.stack([a, 0, 1])), [(0, 2)], True),
        (lambda a: pm.OrderedLogistic.dist(eta=a, cutpoints=[-1.0, 1.0], compute_p=False), [(0, 1)], True),
        (lambda a: pm.OrderedProbit.dist(eta=a, cutpoints=[-1.0, 0.0], compute_p=False), [(0, 1)], True),
    ],
    DiracDeltaRV: [
        (lambda: pm.DiracDelta.dist(np.array([2, -3])), [], True),
        (lambda a: pm.DiracDelta.dist(2 - a), [(0, 3)], True),
    ],
    _BaseMixtureRV: [
        (lambda: pm.ZeroInflatedPoisson.dist(0.5, 2.0), [], True),
        (lambda n: pm.ZeroInflatedBinomial.dist(0.5, n, 0.4), [(1, 4)], True),
        (lambda: pm.ZeroInflatedNegativeBinomial.dist(psi=0.5, mu=2.0, alpha=1.0), [], True),
        (lambda: pm.HurdlePoisson.dist(0.5, 2.0), [], True),
        (lambda: pm.HurdleNegativeBinomial.dist(psi=0.5, mu=2.0, alpha=1.0), [], True),
        (lambda: pm.Mixture.dist(HALF, [pm.Binomial.dist(3, 0.5), pm.Geometric.dist(0.5)]), [], True),
        (lambda: pm.Mixture.dist(HALF, [pm.Binomial.dist([3, 1], 0.5), pm.Binomial.dist(2, 0.5)]), [], True),
        (lambda: pm.Mixture.dist(HALF, pm.Binomial.dist([[3, 1], [5, 2], [0, 0]], 0.5)), [], True),
        (lambda: pm.Mixture.dist(HALF, pm.DiscreteUniform.dist([[-2], [1]], [3, 4])), [], True),
        (
            lambda a, b: pm.Mixture.dist(HALF, [pm.DiracDelta.dist(a), pm.Binomial.dist(b, 0.5)]),
            [(-2, 1), (0, 5)],
            True,
        ),
        (lambda k: pm.Mixture.dist(HALF, pm.Binomial.dist(pt.stack([k, 2]), 0.5)), [(1, 3)], True),
    ],
    TruncatedRV: [
        (cut(lower=2, upper=6), [], True),
        (cut(lower=1.5, upper=6.5), [], True),
        (cut(lower=-2), [], True),
        (lambda a: pm.Truncated.dist(pm.Poisson.dist(2.0), lower=a, upper=a + 3), [(1, 3)], True),
        (lambda n: pm.Truncated.dist(pm.Binomial.dist(n, 0.5), lower=1), [(2, 4)], True),
        (lambda a: pm.Truncated.dist(pm.Geometric.dist(0.5), upper=a), [(2, 5)], True),
    ],
    CensoredRV: [
        (poisson(lower=2, upper=6), [], True),
        (poisson(lower=-3, upper=None), [], True),
        (poisson(lower=None, upper=-1), [], True),
        (lambda: pm.Censored.dist(pm.Binomial.dist(3, 0.5), lower=5, upper=8), [], True),
        (lambda: pm.Censored.dist(pm.Binomial.dist([1, 4], 0.5), lower=2, upper=8), [], True),
        (lambda a: pm.Censored.dist(pm.Binomial.dist(3, 0.5), lower=a, upper=9), [(1, 5)], True),
        (lambda n, u: pm.Censored.dist(pm.Binomial.dist(n, 0.5), lower=1, upper=u), [(2, 6), (2, 4)], True),
    ],
    prb.MultinomialRV: [
        (lambda: pm.Multinomial.dist(3, [0.5, 0.2, 0.3]), [], True),
        (lambda n: pm.Multinomial.dist(n, [0.5, 0.2, 0.3]), [(1, 3)], True),
    ],
    DirichletMultinomialRV: [
        (lambda: pm.DirichletMultinomial.dist(3, [1.0, 0.2, 0.3]), [], True),
        (lambda n: pm.DirichletMultinomial.dist(n, [1.0, 0.2, 0.3]), [(1, 3)], True),
    ],
    PartitionRV: [
        (lambda: pmd.Partition.dist("crp", concentration=1.0, shape=3), [], True),
        (lambda: pmd.Partition.dist("crp", concentration=1.0, shape=3, max_clusters=2), [], True),
        (lambda: pmd.Partition.dist("mfm", components=[0.5, 0.5], shape=3), [], True),
    ],
    UniformPermutationRV: [(lambda: pmd.Permutation.dist(3), [], True)],
    WeightedPermutationRV: [(lambda: pmd.Permutation.dist(3, np.eye(3) + 1), [], True)],
    MARKOV_CHAIN: [
        (
            lambda: extras(MARKOV_CHAIN).dist(
                P=np.full((3, 3), 1 / 3), init_dist=pm.Categorical.dist(np.full(3, 1 / 3)), shape=(2,)
            ),
            [],
            True,
        )
    ],
    # see `test_a_partly_observed_variable`
    PartialObservedRV: [],
}  # fmt: skip


def name_of(key):
    return key.rpartition(".")[2] if isinstance(key, str) else key.__name__


@cache
def possible(build, ranges):
    """(*shape, values) bool: the values of each element that are possible at some values of the parents."""
    leaves = [pt.scalar(dtype="int64") for _ in ranges]
    rv = build(*leaves)
    value = rv.type()
    shape, vectors = rv.type.shape, rv.owner.op.ndim_supp
    if None in shape:
        shape = tuple(int(n) for n in pytensor.function([], rv.shape, mode=Mode("py", None))())
    logp = pm.logp(rv, value)
    states = (
        np.array(
            list(itertools.product(VECTORS.get(name_of(type(rv.owner.op)), range(-1, 5)), repeat=shape[0]))
        )
        if vectors
        else np.broadcast_to(np.reshape(VALUES, (-1, *[1] * len(shape))), (len(VALUES), *shape))
    )
    ends = [np.arange(low, high + 1) for low, high in ranges]
    rows = [g.ravel() for g in np.meshgrid(*ends, np.arange(len(states)), indexing="ij")]
    batches = [pt.vector(dtype="int64") for _ in leaves]
    many = pt.tensor(dtype="int64", shape=(None, *shape))
    total = vectorize_graph(logp, {value: many} | dict(zip(leaves, batches, strict=True)))
    f = pytensor.function([*batches, many], total, mode=Mode("py", None), on_unused_input="ignore")
    with np.errstate(all="ignore"):
        p = f(*rows[:-1], states[rows[-1]])
    found = np.zeros((*shape, len(VALUES)), bool)
    for x, at in zip(states[rows[-1]], p > -np.inf, strict=True):
        for i in np.ndindex(*shape):
            found[(*i, int(x[i]) - VALUES[0])] |= at if vectors else at[i]
    return found


def faults(case, bounds=bounds_of):
    """What contradicts the bounds of a distribution: values beyond them that are possible; or wide bounds."""
    build, ranges, attained = case
    inside = possible(build, tuple(ranges))
    low, high = (
        np.broadcast_to(np.inf * sign if b is None else b, inside.shape[:-1])
        for sign, b in zip((-1, 1), bounds(build(*(parent(*r) for r in ranges))), strict=True)
    )
    found = []
    for i in np.ndindex(*inside.shape[:-1]):
        values = np.array(VALUES)[inside[i]]
        top = np.inf if values[-1] == VALUES[-1] else values[-1]
        if low[i] > values[0] or high[i] < values[-1] or (attained and (low[i], high[i]) != (values[0], top)):
            found.append((i, (low[i], high[i]), (values[0], top)))
    return found


@pytest.mark.parametrize("key", CASES, ids=name_of)
def test_bounds_are_those_of_the_log_density(key):
    for case in CASES[key]:
        assert faults(case) == []


def test_every_rule_is_compared_with_the_log_density():
    of_tests = {key for key in support._rules if getattr(key, "__module__", "").startswith("tests")}
    assert support._rules.keys() - of_tests == CASES.keys()
    for key, cases in CASES.items():
        for build, ranges, _ in cases if not isinstance(key, str) else []:
            assert rule_of(build(*(parent(*r) for r in ranges))) is support._rules[key]


@pytest.mark.filterwarnings("ignore:.*missing values")
def test_a_partly_observed_variable():
    with pm.Model() as model:
        n = pm.DiscreteUniform("n", 2, 4)
        y = np.ma.masked_array([1, 0, 2], [True, False, True])
        pm.Binomial("y", pt.stack([2 * n, n, 3]), 0.5, observed=y)
        pm.Binomial("x", np.array([5, 3, 2]), 0.5, observed=y)
    bounds = {rv.name: bounds_of(rv) for rv in model.free_RVs}
    assert bounds["y_unobserved"] == (0, 8)
    low, high = bounds["x_unobserved"]
    assert low == 0
    assert list(high) == [5, 2]


@pytest.mark.parametrize("end", [0, 1], ids=["lower", "upper"])
@pytest.mark.parametrize("key", [key for key in CASES if CASES[key]], ids=name_of)
def test_a_support_that_is_too_tight_by_one_is_found(key, end):
    def planted(rv):
        low, high = bounds_of(rv)
        return (low + 1, high) if end == 0 else (low, VALUES[-1] - 1 if high is None else high - 1)

    assert faults(CASES[key][0], planted)


def test_other_data_give_other_bounds():
    with pm.Model():
        n = pm.Data("n", 3)
        k = pm.Binomial("k", n + pm.Bernoulli("b", 0.5), 0.5)
        z = pm.Binomial("z", k, 0.5)
        assert [bounds_of(v) for v in (k, z)] == [(0, 4), (0, 4)]
        pm.set_data({"n": 7})
    assert [bounds_of(v) for v in (k, z)] == [(0, 8), (0, 8)]


def test_long_chains_of_counts():
    """Each variable is asked once, and none waits in Python's stack for all of those before it."""
    n = pm.DiscreteUniform.dist(2, 20)
    for _ in range(400):
        n = pm.Binomial.dist(n, 0.9)
    assert bounds_of(n) == (0, 20)


def selected():
    with pm.Model() as model:
        g = pm.Categorical("g", [0.5, 0.3, 0.2], shape=4)
        pm.Binomial("s", pt.zeros(3, dtype="int64")[g].inc(1)[0], 0.5)
    return model


def counted():
    with pm.Model() as model:
        g = pm.Categorical("g", [0.5, 0.3, 0.2], shape=4)
        pm.Binomial("s", pt.bincount(g, minlength=3)[0], 0.5)
    return model


def clipped(least, most):
    with pm.Model() as model:
        N = pm.DiscreteUniform("N", 10, 12) if least == 0 else pm.DiscreteUniform("N", 0, 3)
        pm.Binomial("z", pt.clip(N, least, most), 0.5)
    return model


def raised():
    with pm.Model() as model:
        a, b = pm.DiscreteUniform("a", -3, 1), pm.DiscreteUniform("b", 2, 4)
        pm.DiscreteUniform("z", a**b, 90)
    return model


def censored():
    with pm.Model() as model:
        pm.Censored("z", pm.Binomial.dist(3, 0.5), lower=5, upper=8)
    return model


@pytest.mark.parametrize(
    ("model", "low", "high"),
    [
        (selected(), 0, 4),
        (counted(), 0, 4),
        (clipped(5, 10), 0, 5),
        (clipped(0, 4), 0, 4),
        (raised(), -27, 90),
        (censored(), 5, 5),
    ],
    ids=["selected", "counted", "clipped below", "clipped above", "raised", "censored"],
)
def test_what_counts_are_made_of(model, low, high):
    rv = model.free_RVs[-1]
    assert bounds_of(rv) == (low, high)


@pytest.mark.parametrize("model", [selected(), clipped(5, 10)], ids=["selected", "clipped"])
def test_sums_over_all_values_are_one(model):
    summed = pmd.marginalize(model)
    total = float(summed.compile_logp(mode=Mode("py", None))(summed.initial_point()))
    assert total == pytest.approx(0.0, abs=1e-10)
