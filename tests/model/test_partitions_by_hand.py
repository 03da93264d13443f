"""Functions of labels that look like a Chinese restaurant process are named, and no others."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_discrete.model.partitions_by_hand import partitions_by_hand

N = K = 6
SIZES = {
    "comparisons": lambda z: pt.eq(z[:, None], np.arange(K)).sum(0),
    "one by one": lambda z: pt.stack([pt.eq(z, k).sum() for k in range(K)]),
    "bincount": lambda z: pt.bincount(z, minlength=K),
    "increments": lambda z: pt.zeros(K)[z].inc(1),
    "indicators": lambda z: pt.eye(K)[z].sum(0),
    "rows": lambda z: pt.constant(np.eye(K))[z].sum(axis=0),
    "floats": lambda z: pt.cast(pt.eq(z[:, None], np.arange(K)), "float64").sum(0),
}
PROCESSES = {
    "switch": lambda n: pt.switch(n > 0, pt.gammaln(pt.maximum(n, 1)), 0).sum(),
    "maximum": lambda n: pt.gammaln(pt.maximum(n, 1)).sum(),
    "clip": lambda n: pt.gammaln(pt.clip(n, 1, N)).sum(),
    "factorial": lambda n: pt.switch(n > 0, pm.math.logaddexp(-np.inf, pt.gammaln((n - 1) + 1)), 0).sum(),
    "discount": lambda n: pt.switch(n > 0, pt.gammaln(n - 0.3), 0).sum(),
    "unknown discount": lambda n: pt.switch(n > 0, pt.gammaln(n - pm.Beta("d", 1, 1)), 0).sum(),
}
OTHERS = {
    "weights integrated out": lambda n: pt.gammaln(n + 0.5).sum(),
    "unknown concentration": lambda n: pt.gammaln(n + pm.Gamma("a", 1, 1)).sum(),
    "factorials": lambda n: -pt.gammaln(n + 1).sum(),
    "subtracted": lambda n: pt.gammaln(N + 1 - n).sum(),
    "of something else": lambda n: pt.gammaln(pt.exp(-n) - pm.Beta("d", 1, 1)).sum(),
    "no gamma function": lambda n: pt.log(pt.maximum(n, 1)).sum(),
}


def with_potential(sizes, function):
    with pm.Model() as model:
        z = pm.Categorical("z", np.ones(K) / K, shape=N)
        pm.Bernoulli("b", 0.5)
        pm.Potential("c", function(sizes(z)))
    return model


def in_turn(functions):
    """Each function with three of the ways to write sizes, and so each way with two functions or three."""
    return [(f, list(SIZES)[(n + k) % len(SIZES)]) for n, f in enumerate(functions) for k in (0, 2, 4)]


@pytest.mark.parametrize(("process", "sizes"), in_turn(PROCESSES))
def test_a_process_is_named(process, sizes):
    model = with_potential(SIZES[sizes], PROCESSES[process])
    (text,) = partitions_by_hand(model, ["z", "b"])
    assert text.startswith("'c' looks like a Chinese restaurant process of the labels 'z': it has")
    assert partitions_by_hand(model, ["b"]) == []


# each way with one of the first three, where a positive number is added
@pytest.mark.parametrize(("other", "sizes"), in_turn(OTHERS))
def test_other_functions_are_not(other, sizes):
    assert partitions_by_hand(with_potential(SIZES[sizes], OTHERS[other]), ["z", "b"]) == []


def test_a_custom_distribution_is_named():
    def logp(z, a):
        n = pt.eq(z[:, None], np.arange(K)).sum(0)
        return pt.gammaln(pt.maximum(n, 1)).sum() + pt.sum(n > 0) * pt.log(a)

    with pm.Model() as model:
        pm.CustomDist("z", pm.Gamma("a", 1, 1), logp=logp, dtype="int64", shape=N)
        pm.Poisson("y", 1, observed=[0, 2])
    (text,) = partitions_by_hand(model, ["z"])
    assert text.startswith("'z' looks like")
