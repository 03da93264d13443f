"""Comparisons that bounds decide, and indices of data within bounds: what is left out of a density."""

import itertools

import jax
import numpy as np
import pymc as pm
import pytensor.scalar.basic as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import Elemwise

import pymc_discrete as pmd
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.runtime.reuse import forget
from pymc_discrete.starts.possible_start import possible_start
from pymc_discrete.structure.bounds import IntegerBounds
from pymc_discrete.structure.numbers import numbers_in
from pymc_discrete.structure.ops import elementwise
from pymc_discrete.structure.ops.elementwise import SCALAR_RULES
from tests.tools.oracle import compare, oracle

COMPARISONS = {
    ps.EQ: (pt.eq, np.equal),
    ps.NEQ: (pt.neq, np.not_equal),
    ps.LT: (pt.lt, np.less),
    ps.LE: (pt.le, np.less_equal),
    ps.GT: (pt.gt, np.greater),
    ps.GE: (pt.ge, np.greater_equal),
}
INTERVALS = [(float(low), float(high)) for low in range(-1, 3) for high in range(low, 3)]


def wrongly_decided(op, function, compares):
    """Pairs of intervals of integers for which a comparison is not what it is for all of their values."""
    a, b = pt.lvector(), pt.lvector()
    node = function(pt.specify_shape(a, 1), pt.specify_shape(b, 1)).owner
    for of_a, of_b in itertools.product(INTERVALS, repeat=2):
        bounds = IntegerBounds({a: of_a, b: of_b})
        found = SCALAR_RULES[op].simpler(node, node.inputs, bounds)
        values = [np.arange(low, high + 1) for low, high in (of_a, of_b)]
        outcomes = set(compares.outer(*values).ravel().tolist())
        expected = outcomes if len(outcomes) == 1 else set()
        if expected != (set() if found is None else set(found.data.tolist())):
            yield of_a, of_b, found


@pytest.mark.parametrize("op", COMPARISONS)
def test_integers_are_compared_as_all_of_their_values_are(op):
    assert not [*wrongly_decided(op, *COMPARISONS[op])]


@pytest.mark.parametrize("op", COMPARISONS)
def test_a_comparison_that_is_decided_too_early_is_found(op, monkeypatch):
    less = lambda a, b, whole: a[1] <= b[0]
    equal = lambda a, b, whole: a[0] == b[0]
    rule = {
        ps.EQ: (equal, elementwise.surely_different),
        ps.NEQ: (elementwise.surely_different, equal),
        ps.LT: (less, elementwise.of_second_and_first(elementwise.surely_at_most)),
        ps.LE: (elementwise.surely_at_most, elementwise.of_second_and_first(less)),
        ps.GT: (elementwise.of_second_and_first(less), elementwise.surely_at_most),
        ps.GE: (elementwise.of_second_and_first(elementwise.surely_at_most), less),
    }[op]
    planted = SCALAR_RULES[op]._replace(simpler=elementwise.decided_by_bounds(*rule))
    monkeypatch.setitem(SCALAR_RULES, op, planted)
    assert [*wrongly_decided(op, *COMPARISONS[op])]


@pytest.mark.parametrize(
    ("build", "decided"),
    [
        (lambda p: p <= 1, True),
        (lambda p: p[pt.as_tensor([0, 1, 0])] >= 0, True),
        (lambda p: 1 - p * p >= 0, True),
        (lambda p: 0.3 * p > 0.31, False),
        (lambda p: p < 1, None),  # which a probability that is rounded to 1 is not
        (lambda p: p + 0.1 <= 1.1, None),  # 1 + 0.1 is rounded
        (lambda p: pt.log(p) <= 0, None),  # its bounds are not known
        (lambda p: pt.exp(3 * p - 2) >= 0, True),
        (lambda p: pt.exp(pt.log(p)) >= 0, None),  # of what may be infinite
        (lambda p: pt.clip(p, 0.1, 0.9) >= 0, True),
        (lambda p: pt.clip(p / (p + 2), 0.1, 0.9) >= 0, True),
        (lambda p: pt.clip(p / p, 0.1, 0.9) >= 0, None),  # 0 / 0 is nan, and nan clipped is nan
        (lambda p: pt.minimum(pt.maximum(pt.log(p - 1), 0), 1) <= 2, None),
        (lambda p: pt.sigmoid(pt.log(p - 1)) <= 1, None),
        (lambda p: pt.sigmoid(p @ np.array([0.5, -2.0])) <= 1, True),
        (lambda p: pt.sigmoid(p @ np.array([0.5, np.inf])) <= 1, None),
        (lambda p: pt.exp(pt.log(p)) * p >= 0, None),  # may be 0 times infinity
    ],
)
def test_floats_are_compared_by_bounds_that_hold_after_rounding(build, decided):
    comparison = build(pt.sigmoid(pt.specify_shape(pt.dvector(), 2))).owner
    found = SCALAR_RULES[type(comparison.op.scalar_op)].simpler(
        comparison, comparison.inputs, IntegerBounds({})
    )
    assert (None if found is None else {*np.ravel(found.data).tolist()}) == (
        None if decided is None else {decided}
    )


def test_elements_of_an_empty_tensor_are_those_that_are_set():
    z = pt.lvector()
    filled = pt.set_subtensor(AllocEmpty("int64")(4)[pt.as_tensor([0, 2])], z)
    assert IntegerBounds({z: (2.0, 5.0)}).of(filled) == (2.0, 5.0)


# ---------------------------------------------------------------- of whole models
def comparisons(model):
    """How many nodes compare in the terms of the discrete variables."""
    target = pmd.target_from_model(model)
    nodes = toposort([t for _, t in target.density.graph.terms])
    scalars = [n.op.scalar_op for n in nodes if isinstance(n.op, Elemwise)]
    return sum(isinstance(op, tuple(COMPARISONS)) for op in scalars)


def detection():
    """Probabilities that are products of sites and parameters."""
    with pm.Model() as model:
        psi, p = pm.Beta("psi", 2, 2), pm.Beta("p", 2, 2, shape=2)
        z = pm.Bernoulli("z", psi, shape=4)
        kind = pm.Categorical("kind", [0.4, 0.6], shape=4)
        pm.Binomial("y", 3, z * p[kind], observed=[0, 2, 0, 1])
    return model


def imputed(categories=3):
    """An index of which some elements are data, and others, here negative, unknown."""
    observed = np.ma.masked_less(np.array([0, 1, -1, 1]), 0)
    with pm.Model() as model, np.errstate(all="ignore"):
        share = pm.Dirichlet("share", np.ones(categories))
        z = pm.Categorical("z", share, observed=observed)
        pm.Normal("y", pm.Normal("mu", shape=3)[z], 1.0, observed=[0.1, 1.2, 0.4, 0.9])
    return model


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(("build", "left"), [(detection, 1), (imputed, 1)])
def test_checks_that_always_hold_are_left_out(build, left, monkeypatch):
    model = build()
    assert comparisons(model) == left
    compare(model)
    for op in COMPARISONS:
        monkeypatch.setitem(SCALAR_RULES, op, SCALAR_RULES[op]._replace(simpler=None))
    forget()
    assert comparisons(model) > left


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_a_program_for_data_within_bounds_is_not_used_for_others():
    """Of five categories three have an entry in a table."""
    described, support = DescribedModel(imputed(categories=5)), {"z_unobserved": (0, 2)}
    target = target_of(described, ["z_unobserved"], support=support, with_numbers=True)
    derivation = target.density.graph.derivation
    numbers = [*numbers_in([v for _, v in target.density.graph.terms]), *derivation._numbers]
    values = {str(v.name): v.value for v in numbers}
    (data,) = (name for name, a in values.items() if a.tolist() == [0, 1, 1])
    assert derivation.of(values | {data: np.array([2, 1, 0])}) is not None
    assert derivation.of(values | {data: np.array([3, 1, 1])}) is None


def ratio():
    """Of two counts, which is 0 / 0 in one of their states, where a probability is then nan."""
    k, s = pm.Binomial("k", 3, 0.1), pm.Binomial("s", 3, 0.1)
    pm.Bernoulli("y", pt.clip(s / k, 0.05, 0.95), observed=[1, 0, 1])


def mean_of_ratio():
    """The density itself is nan there, and not zero as where PyMC checks a parameter."""
    k, s = pm.Binomial("k", 3, 0.1), pm.Binomial("s", 3, 0.1)
    pm.Normal("y", s / k, 1.0, observed=[1.0, 0.3])


@pytest.mark.parametrize(("build", "logdensity"), [(ratio, -np.inf), (mean_of_ratio, np.nan)])
def test_a_state_in_which_a_parameter_is_nan_is_impossible(build, logdensity):
    with pm.Model() as model:
        build()
    target, logp = pmd.target_from_model(model), oracle(model)
    states = np.array(list(itertools.product(range(4), range(4))))
    want = np.array([logp(target.point(x)) for x in states])
    joint = np.asarray(target.joint())[0]
    k, s = (np.asarray(target.unaries(n, states[5], np.ones(2, bool)))[0] for n in (0, 1))
    got = (joint + k[:, None] + s).reshape(-1)
    assert want[0] == -np.inf
    np.testing.assert_equal(float(target.logdensity(states[0])), logdensity)
    np.testing.assert_allclose(got - got[5], want - want[5], atol=1e-12)
    x, at = target.at(target.point(states[0]))
    inputs = at.density.split(at.point(x))[1]
    y = possible_start(target.density, x, inputs, np.random.default_rng(1))
    assert want[4 * y[0] + y[1]] > -np.inf


def test_a_state_beyond_the_supports_is_impossible():
    target = pmd.target_from_model(detection(), ["z"])
    states = np.array([[value, 1, 0, 1] for value in (0, 1, -1, 2)])
    impossible = [False, False, True, True]
    functions = (target.logdensity, lambda x: target.logdensity_and_differences(x)[0])
    for f in functions:
        assert [float(f(x)) == -np.inf for x in states] == impossible
        assert (np.asarray(jax.jit(jax.vmap(f))(states)) == -np.inf).tolist() == impossible
    target.ready()
    assert [float(target.logdensity(x)) == -np.inf for x in states] == impossible
