"""Long sums of scalars as products with a vector: equal values, and terms that are written as one."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_discrete as pmd
from pymc_discrete.model.long_sums import with_long_sums
from tests.tools.oracle import compare


def epidemic(weeks):
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 1.0)
        well, ill = 12, 2
        for t in range(weeks):
            infections = pm.Binomial(f"infections{t}", well, 1 - pt.exp(-rate * ill / 14), initval=1)
            removals = pm.Binomial(f"removals{t}", ill, 0.3, initval=1)
            pm.Binomial(f"seen{t}", infections, 0.5, observed=1)
            well, ill = well - infections, ill + infections - removals
    return model


def test_values_are_the_same():
    values = [pt.lscalar(f"x{i}") for i in range(9)]
    other, table = pt.lvector("other"), pt.as_tensor(np.arange(40.0))
    a = 3 - values[0]
    terms = []
    for x in values[1:]:
        a = 2 * (a + x) - x
        terms += [
            pt.log(pt.abs(a) + 1.5),
            table[a % 40] * values[0],
            (a - other[None]) * 0.5,
            pt.exp(-pt.sqr(a)),
        ]
    new = with_long_sums(terms, values)
    assert all(old is not now for old, now in zip(terms, new, strict=True))
    f = pytensor.function([*values, other], terms + new, mode=Mode("py", None))
    rng = np.random.default_rng(1)
    for _ in range(20):
        found = f(*rng.integers(-9, 9, 9), rng.integers(-9, 9, 2))
        for old, now in zip(found[: len(terms)], found[len(terms) :], strict=True):
            np.testing.assert_array_equal(old, now)


def test_terms_of_sums_of_all_lengths_are_written_as_one():
    target = pmd.target_from_model(epidemic(12), ["infections0", *(f"removals{t}" for t in range(12))])
    graph = target.density.graph
    assert len(graph.terms) < 8


@pytest.mark.slow
def test_differences_are_exact():
    target, *_ = compare(epidemic(4))
    assert target.describe()["infections2"]["exact"]


def test_sums_of_few_of_many_counts_stay():
    values = [pt.lscalar(f"x{i}") for i in range(80)]
    terms = [pt.exp(sum(values[i : i + 8], pt.as_tensor(0))) for i in range(0, 80, 8)]
    assert with_long_sums(terms, values) is terms
    short = [pt.exp(values[0] + values[1])]
    assert with_long_sums(short, values) is short
