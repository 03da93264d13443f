"""Where chains start: the jitter shrinks until a start is possible, and what is possible at once stays."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn

import pymc_discrete as pmd
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.engine.starts import HALVINGS, RETRIES, by_name, possible_together, starts
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.space.space import UNBOUNDED, Space
from pymc_discrete.starts.start import dispersed

pytestmark = pytest.mark.shares_programs

QUIET = {"progressbar": False, "compute_convergence_checks": False}


def judging(model, gradient=lambda point: True, space=None):
    """A block that moves nothing, and says what the log density is."""
    logp = model.compile_logp(mode="FAST_COMPILE")
    seen = []

    def logdensity(point):
        seen.append(point)
        return float(logp(point))

    return SimpleNamespace(
        seen=seen,
        space=space,
        start_program=False,
        leaves_impossible=False,
        logdensity=logdensity,
        dispersed=lambda point, known, rng: point,
        possible=lambda point, rng: point,
        gradient_is_finite=gradient,
        check_starts=lambda points: None,
        named=lambda: "a judge",
    )


def started(model, block, chains=4, initvals=None, seed=1, **options):
    return starts(model, [block], None, initvals, chains, np.random.SeedSequence(seed), **options)


def steep(scale, observed=(0, 1)):
    """Beyond |a| = 1 / scale a probability is 0 or 1 and what was observed is impossible."""
    with pm.Model() as model:
        a, _ = pm.Normal("a", 0, 1), pm.HalfNormal("b")
        pm.Bernoulli("y", pt.clip(0.5 + 0.5 * scale * a, 0, 1), observed=list(observed))
    return model


def test_starts_that_are_possible_at_once_are_those_of_pymc():
    model = steep(0.1)
    jittered = make_initial_point_fn(model=model, jitter_rvs=set(model.free_RVs))
    for point, child in zip(started(model, judging(model)), np.random.SeedSequence(1).spawn(4), strict=True):
        expected = jittered(int(np.random.default_rng(child).integers(2**30)))
        assert all(np.array_equal(point[name], value) for name, value in expected.items())


@pytest.mark.parametrize("scale", [5, 200, 1e9])
@pytest.mark.parametrize("initvals", [None, {"a": 0.0}, [{"b": 3.0}] * 4])
def test_the_jitter_shrinks_until_a_start_is_possible(scale, initvals):
    model = steep(scale)
    block = judging(model)
    points = started(model, block, initvals=initvals)
    assert all(abs(scale * point["a"]) < 1 for point in points)
    assert len({float(point["b_log__"]) for point in points}) == 4 or scale == 1e9  # there without jitter
    # each jitter is half of the one before
    block.seen.clear()
    started(model, block, chains=1, initvals=initvals[:1] if isinstance(initvals, list) else initvals)
    for n, point in enumerate(block.seen):
        width = 0.5 ** (n // (RETRIES + 2)) if n < (HALVINGS + 1) * (RETRIES + 2) else 0.0
        assert abs(point["a"]) <= width


def test_a_start_has_a_gradient():
    model = steep(0.1)
    block = judging(model, gradient=lambda point: abs(point["a"]) < 0.01)
    assert max(abs(point["a"]) for point in started(model, block)) > 0.01
    assert max(abs(point["a"]) for point in started(model, block, with_gradient=True)) < 0.01


def test_the_term_is_named_where_nothing_is_jittered():
    model = steep(114, observed=(0, 2))
    block = judging(model)
    with pytest.raises(SamplingError, match=r"through 'y' \(element \[1\], observed as 2\)"):
        started(model, block)
    assert block.seen[-1]["a"] == 0
    assert len(block.seen) <= (HALVINGS + 1) * (RETRIES + 2) + 2


def counts_of_rate(rate):
    """A model of two unbounded counts, the support of a count of such a rate, and the space of the counts."""
    with pm.Model() as model:
        pm.Poisson("N", rate(pm.Normal("b")) * np.ones(2), shape=2)
    return model, Space.build({"N": (0, None)}, {"N": (2,)})


def test_the_jitter_shrinks_until_counts_are_inside_their_support():
    """With b above 0.05 a count is too large for an integer of 32 bits, or even of 64."""
    model, space = counts_of_rate(lambda b: pt.exp(400 * b))
    points = started(model, judging(model, space=space), chains=20)
    assert all((point["N"] >= 0).all() and (point["N"] < UNBOUNDED).all() for point in points)
    assert len({float(point["b"]) for point in points}) == 20


def test_a_count_is_named_that_is_outside_its_support_without_jitter():
    model, space = counts_of_rate(lambda b: 1e12 * pt.exp(b))
    with pytest.raises(
        SamplingError, match=r"'N' .* support: element 0 is 1000000000000, .* less than \d+ from 0"
    ):
        started(model, judging(model, space=space))


def test_a_search_that_ends_where_a_count_can_go_no_further_has_found_no_start():
    model, space = counts_of_rate(lambda b: pt.exp(0 * b))
    block = judging(model, space=space)
    block.dispersed = lambda point, known, rng: point | {"N": np.array([-1, 1])}
    block.possible = lambda point, rng: point | {"N": np.array([2, UNBOUNDED])}
    block.logdensity = lambda point: 0.0 if (point["N"] > 0).all() else -np.inf
    with pytest.raises(SamplingError, match="'N' starts outside its support: element 0 is -1"):
        started(model, block)
    block.dispersed = lambda point, known, rng: point | {"N": np.array([0, 1])}
    with pytest.raises(SamplingError, match=f"'N' .* support: element 1 is {UNBOUNDED}"):
        started(model, block)


def test_a_count_that_is_too_large_is_not_moved_to_the_largest_one():
    with pm.Model() as model:
        pm.Poisson("N", 5.0, shape=3)
    target = target_of(DescribedModel(model), ["N"], with_numbers=False)
    y = dispersed(np.array([10**12, 3, 3]), target, np.random.default_rng(0))
    assert y[0] == 10**12
    assert (y[1:] != 3).any()


@pytest.mark.parametrize("collapse", [pytest.param(True, marks=pytest.mark.slow), False])
def test_occupancy_with_days_that_are_not_scaled(collapse):
    """Jittered, a probability of detection is 1 at most visits of most chains, or its gradient is nan."""
    rng = np.random.default_rng(2)
    days = rng.integers(13, 114, (20, 3))
    seen = rng.integers(0, 2, (20, 1)) * rng.integers(0, 2, (20, 3))
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2, shape=2)
        z = pm.Bernoulli("z", pm.math.invlogit(a), shape=20)
        pm.Bernoulli("y", z[:, None] * pm.math.invlogit(b[0] + b[1] * days), observed=seen)
    for seed in range(4):
        idata = pmd.sample(5, tune=5, model=model, collapse=collapse, random_seed=seed, **QUIET)
        assert np.isfinite(idata["sample_stats"]["lp"]).all()


def test_values_that_no_chain_starts_from_are_left_out():
    """None stands for PyMC's own start; `pm.find_MAP` and draws have Deterministics, too."""
    model = steep(1)
    with model:
        pm.Deterministic("twice", 2 * model["a"])
    given = {"a": None, model["b"]: 3.0, "twice": 1.0}
    assert by_name(model, given) == {"b": 3.0}
    assert by_name(model, [given, None]) == [{"b": 3.0}, None]


def test_variables_of_two_blocks_that_must_move_together():
    with pm.Model() as model:
        reported, n = pm.Bernoulli("reported", 0.5, shape=3), pm.Poisson("n", 6, shape=3)
        seen = pt.switch(reported, 5 * (n // 5), n)
        pm.Potential("y", pt.switch(pt.eq(seen, [10, 5, 10]) & pt.eq(reported, n % 2), 0.0, -np.inf))
    logp = model.compile_logp()
    point = {"reported": np.array([0, 0, 1]), "n": np.array([6, 6, 6])}
    block = judging(model, space=object())
    found = possible_together(model, [block, block], point, np.random.default_rng(0))
    assert np.isfinite(logp(found))
    assert possible_together(model, [block], point, np.random.default_rng(0)) is point
    assert possible_together(model, [block, block], found, np.random.default_rng(0)) is found
