"""Chains whose start is impossible: a possible one is found, and what is possible stays as it is."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pymc_discrete as pmd
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.engine.program import Program
from pymc_discrete.engine.shares import RunningChains
from pymc_discrete.space.target import Target
from pymc_discrete.starts import possible_start as module
from pymc_discrete.starts.not_finite import impossible
from pymc_discrete.starts.possible_start import possible_start
from pymc_discrete.starts.softened import PENALTY, SHARE, softened
from tests.tools.running import QUIET

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


def counted():
    """Counts of sites far above the prior, each site visited three times."""
    N = pm.Poisson("N", 4.0, shape=3)
    pm.Binomial("y", N[:, None], 0.4, observed=[[70, 60, 2], [0, 1, 0], [3000, 90, 5]])


def survivors():
    """Only the last count is above what the first may be: all earlier ones have to be raised first."""
    N = pm.Poisson("N", 3.0)
    for t in range(4):
        N = pm.Binomial(f"S{t}", N, 0.9, initval=2)
    pm.Binomial("y", N, 0.5, observed=90)


def hypergeometric():
    """Of N animals 60 are marked, 50 were caught, 21 of these marked."""
    N = pm.DiscreteUniform("N", 1, 5000, initval=20)
    pm.HyperGeometric("y", N=N, k=60, n=50, observed=21)


def total():
    """One value only is possible."""
    N = pm.Poisson("N", 5.0)
    pm.Multinomial("y", n=N, p=[0.2, 0.3, 0.5], observed=[20, 31, 46])


def from_above():
    N = pm.Poisson("N", 800.0, shape=2)
    pm.Potential("cap", pt.switch(N <= 3, 0.0, -np.inf))


def pair():
    """Equal and odd: no single site can be changed from a possible state to another."""
    z = pm.Categorical("z", np.ones(6) / 6, shape=2)
    pm.Potential("equal", pt.switch(pt.eq(z[0], z[1]), 0.0, -np.inf))
    pm.Potential("odd", pt.switch(pt.eq(z.sum(), 6), 0.0, -np.inf))


def dense():
    N = pm.Poisson("N", 1.0, shape=6)
    pm.Binomial("y", N.sum(), 0.5, observed=200)


def tanks():
    N = pm.DiscreteUniform("N", 1, 10_000, initval=500)
    pm.DiscreteUniform("y", 1, N, observed=[4321, 2, 870])


MODELS = [counted, survivors, hypergeometric, total, from_above, pair, dense, tanks]


def block_of(build):
    with pm.Model() as model:
        build()
    return model, pmd.target_from_model(model, differences="exact")


@pytest.mark.slow
@pytest.mark.parametrize("build", MODELS, ids=lambda f: f.__name__)
def test_a_possible_start_is_found(build):
    model, target = block_of(build)
    x, _ = target.at(model.initial_point())
    assert float(target.logdensity(x)) == -np.inf
    for seed in range(5):
        y = possible_start(target.density, x, target.density.default_inputs(), np.random.default_rng(seed))
        assert float(target.logdensity(y)) > -np.inf
        assert (np.asarray(target.differences(y)).max(axis=1) < 40).all(), "far from the bulk"


@pytest.mark.slow
def test_counts_that_change_together_start_near_the_bulk():
    """Parts of a Multinomial of unknown total are seen, more than its prior lets expect."""
    with pm.Model() as model:
        N = pm.Poisson("N", 10.0)
        x = pm.Multinomial("x", n=N, p=np.full(4, 0.25))
        pm.Binomial("y", x[:3], 0.5, observed=[30, 0, 12])
        step = pmd.BlockGibbs()
    x, target = step.target.at(model.initial_point())
    assert float(target.logdensity(x)) == -np.inf
    for seed in range(5):
        inputs = step.density.default_inputs()
        point = target.point(possible_start(step.density, x, inputs, np.random.default_rng(seed)))
        assert point["x"].sum() == point["N"]
        assert (point["x"][:3] >= [30, 0, 12]).all()
        assert point["N"] < 150


def test_the_softened_density_counts_what_is_impossible():
    model, target = block_of(survivors)
    density = target.density
    assert isinstance(density, ModelDensity)
    soft = softened(density)
    x, _ = target.at(model.initial_point())
    at = lambda x, share, penalty: float(
        Target(soft)
        .with_inputs([*density.default_inputs(), np.float64(share), np.float64(penalty)])
        .logdensity(x)
    )
    assert [v.name for v in soft.graph.others[-2:]] == [SHARE, PENALTY]
    assert at(x, 0, 1) == -1  # y
    assert at(np.array([3, 5, 2, 4, 1]), 0, 7) == -3 * 7  # S0 > N, S2 > S1, y
    possible = np.array([200, 190, 180, 170, 160])
    assert at(possible, 0, 1) == 0
    assert np.isclose(at(possible, 1, 1), float(target.logdensity(possible)), rtol=1e-12)
    assert np.isclose(at(possible, 0.5, 1), 0.5 * float(target.logdensity(possible)), rtol=1e-12)


def test_a_possible_start_is_left_alone(monkeypatch):
    _, target = block_of(counted)
    monkeypatch.setattr(module, "searching", None)  # what would be called otherwise
    x, rng = np.array([100, 7, 4000]), np.random.default_rng(3)
    assert possible_start(target.density, x, target.density.default_inputs(), rng) is x
    assert rng.integers(10**9) == np.random.default_rng(3).integers(10**9)


def test_what_no_start_makes_possible_stays_where_it_is():
    def never():
        x = pm.Poisson("x", 3.0)
        pm.Potential("never", pt.switch(x >= 0, -np.inf, 0.0))

    _, target = block_of(never)
    x = np.array([3])
    assert possible_start(target.density, x, target.density.default_inputs(), np.random.default_rng(3)) is x


def abundance():
    with pm.Model() as model:
        lam, p = pm.Exponential("lam", 1.0), pm.Beta("p", 2, 2)
        N = pm.Poisson("N", lam, shape=2)
        pm.Binomial("y", N[:, None], p, observed=[[90, 81], [210, 190]])
    return model


@pytest.fixture
def start_alone(monkeypatch):
    """The program of the chains, which compiles while starts are looked for, is not: there are none."""
    monkeypatch.setattr(RunningChains, "begin", lambda *_: None)


@pytest.fixture
def started(monkeypatch):
    """A function of a model and options: the points at which `pmd.sample` begins its chains."""

    class Begun(Exception):
        pass

    def begin(*args):
        raise Begun

    def points_of(model, **options):
        points, of_program = [], Program.start
        with monkeypatch.context() as patch:
            patch.setattr(
                Program, "start", lambda self, p, *exact: points.append(p) or of_program(self, p, *exact)
            )
            patch.setattr(RunningChains, "begin", lambda *_: None)
            patch.setattr("pymc_discrete.sampling.sample.ChainsRun", begin)
            with pytest.raises(Begun):
                pmd.sample(10, tune=10, model=model, random_seed=1, **options, **QUIET)
        return points[-1]

    return points_of


@pytest.mark.slow
def test_both_samplers_start(started, caplog):
    """A chain of pm.sample and those of pmd.sample, whose searches are one program."""
    caplog.set_level("INFO", logger="pymc")
    model = abundance()
    step = pmd.BlockGibbs(model=model)
    step.setup_chain(np.random.default_rng(1), 10, 10)
    point, (stats,) = step.step(model.initial_point())
    assert np.isfinite(stats["model_logp"])
    assert (point["N"] >= [90, 210]).all()
    caplog.clear()
    points, logp = started(model, chains=2, step=step), model.compile_logp(mode="FAST_COMPILE")
    assert len(points) == 2
    assert all((point["N"] >= [90, 210]).all() and np.isfinite(logp(point)) for point in points)
    assert sum("The start of 'N' was impossible" in r.getMessage() for r in caplog.records) == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", ["z", "N"])
def test_a_start_that_another_step_will_mend(first):
    """PyMC's NUTS comes last; the step of labels leaves the impossible count to the step of counts."""
    with pm.Model() as model:
        z, N = pm.Bernoulli("z", 0.5, shape=2), pm.Poisson("N", 1.0)
        pm.Normal("w", pm.Normal("mu") + z, 1.0, observed=[0.0, 2.0])
        pm.Binomial("y", N, 0.5, observed=5)
        steps = [pmd.BlockGibbs([name]) for name in (first, {"z": "N", "N": "z"}[first])]
        drawn = pm.sample(5, tune=5, chains=1, cores=1, step=steps, **QUIET)
        assert (drawn.posterior["N"] >= 5).all()
        of_labels = pmd.BlockGibbs(["z"], model=model)
        of_labels.setup_chain(np.random.default_rng(1), 0, 5)
        with pytest.raises(SamplingError, match="the start of 'N' is impossible"):
            of_labels.step(model.initial_point())


def counted_wrongly():
    """The count of -1 is impossible whatever N is; at the start of N that of 90 is, too."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        N = pm.Poisson("N", 3.0, shape=3)
        pm.Binomial("y", N[:, None], p, observed=[[3, 4], [-1, 90], [5, 5]])
    return model


def drawn_wrongly():
    with pm.Model() as model:
        pm.Normal("w", pm.Normal("mu", 0, 5), 1, observed=[1.0, 2.0])
        a = pm.Bernoulli("z", 0.4, shape=4) * 0.5
        pm.Uniform("y", a, a + 1, observed=np.array([0.3, 0.6, 4.0, -7.0]))
    return model


OF_COUNTS = r"through 'y' \(element \[1, 0\], observed as -1\): the start of 'N' .* every other value of 'N'"
OF_DRAWS = r"through 'y' \(elements \[2\], \[3\], observed as 4, -7\): the start of 'z' .* value of 'z'"
# where counts are summed out, which needs no search, and where labels are drawn; below pmd.sample searches
# for counts
WRONG = [
    (pmd.CollapsedNUTS, counted_wrongly, OF_COUNTS),
    (pmd.GibbsWithGradients, drawn_wrongly, OF_DRAWS),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model_of", "message"), WRONG, ids=lambda v: getattr(v, "__name__", "") or None
)
def test_data_that_no_value_makes_possible_are_named(kind, model_of, message, request):
    if kind is pmd.CollapsedNUTS:  # the start is refused; other steps leave it to tuning
        request.getfixturevalue("start_alone")
    model = model_of()
    step = kind(model=model)
    step.setup_chain(np.random.default_rng(1), 10, 10)
    with pytest.raises(SamplingError, match=message):
        step.step(model.initial_point())


@pytest.mark.slow
@pytest.mark.parametrize("collapse", ["auto", False])
def test_pmd_sample_names_data_that_no_value_makes_possible(collapse, request):
    if collapse == "auto":
        request.getfixturevalue("start_alone")
    with pytest.raises(SamplingError, match=OF_COUNTS):
        pmd.sample(10, tune=10, chains=1, model=counted_wrongly(), collapse=collapse, **QUIET)


@pytest.mark.slow
def test_impossible_coefficients_are_named():
    """NUTS for the variance meets the start before the indicators are drawn."""
    with pm.Model() as model:
        sigma, b = pm.HalfNormal("sigma"), pm.Normal("b", shape=3)
        z = pm.Bernoulli("z", 0.3, shape=3)
        pm.Normal("y", (np.eye(3) @ (b * z)), sigma, observed=np.ones(3))
        pm.Poisson("n", 3.0, observed=[2, -5])
    step = pmd.CollapsedNUTS(integrate="auto", model=model)
    step.setup_chain(np.random.default_rng(1), 10, 10)
    with pytest.raises(SamplingError, match=r"through 'n' \(element \[1\], observed as -5\)"):
        step.step(model.initial_point())


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (5.0, r"'y' \(observed as 5\):"),
        (np.full(5, 5.0), r"'y' \(all 5 elements, observed as 5, 5, 5\):"),
        (
            np.r_[0.5, np.arange(2.0, 7)],
            r"'y' \(elements \[1\], \[2\], \[3\] and 2 more, observed as 2, 3, 4\):",
        ),
    ],
)
def test_few_of_many_impossible_elements_are_listed(observed, message):
    with pm.Model() as model:
        pm.Bernoulli("z", 0.4)
        pm.Uniform("y", 0, 1, observed=observed)
    assert re.search(message, impossible(model, model.initial_point(), ["z"]))


def test_a_start_that_contradicts_the_data_is_told_from_data_that_are_impossible():
    with pm.Model() as model:
        pm.Binomial("y", pm.Poisson("N", 3.0), 0.5, observed=9)
        mu = pt.as_tensor([0.0, 1.0])
        pm.Normal("w", mu[pm.Categorical("z", p=np.ones(2) / 2)], 1, observed=0.2)
    point = model.initial_point()
    assert "Either the start contradicts the data" in impossible(model, point, ["N"])
    # a value beyond the end of a table counts as impossible
    assert "'w'" in impossible(model, {**point, "N": np.array(20), "z": np.array(7)}, ["z"])


@pytest.mark.parametrize(("entries", "first"), [(3, 0), (4, 1)])
def test_indices_of_a_permutation_that_are_out_of_bounds_are_named(entries, first):
    with pm.Model() as model:
        o = pmd.Permutation("o", 4)
        pm.Normal("y", pt.as_tensor(np.arange(float(entries)))[o + first], 1, observed=np.arange(4.0))
    assert re.search(
        r"through 'y' \(an index into a table is out of bounds\): .* every other value of 'o' that was tried",
        impossible(model, model.initial_point(), ["o"]),
    )


def test_counts_are_not_blamed_for_a_permutation():
    with pm.Model() as model:
        o = pmd.Permutation("o", 4)
        pm.Potential("last", pt.switch(pt.eq(o[0], 3) & pt.eq(o[1], 3), 0.0, -np.inf))
        pm.Potential("first", pt.switch(pt.eq(o[0], 3), 0.0, -np.inf))
    said = impossible(model, model.initial_point(), ["o"])
    assert "through 'last': the start of 'o'" in said
    assert "every other value of 'o'" in said
    with pm.Model() as model:
        pm.Potential("first", pt.switch(pt.eq(pmd.Permutation("o", 4)[0], 3), 0.0, -np.inf))
    said = impossible(model, model.initial_point(), ["o"])
    assert "Either the start contradicts the data: pass initvals=" in said
    assert "count" not in said
    assert "collapse" not in said


def test_what_is_said_of_continuous_variables_needs_some():
    with pm.Model() as model:
        pm.Binomial("y", pm.Poisson("N", 3.0), 0.5, observed=-9)
    assert "continuous" not in impossible(model, model.initial_point(), ["N"])
    with model:
        pm.Normal("mu")
    assert "continuous variable is to blame" in impossible(model, model.initial_point(), ["N"])


def test_a_start_outside_the_support_is_refused_before_anything_is_compiled(monkeypatch):
    with pm.Model() as model:
        pm.Normal("y", pm.Bernoulli("z", 0.3, shape=3), 1, observed=np.ones(3))
        pm.Multinomial("x", 2, np.array([0.2, 0.3, 0.5]))
        pm.Normal("w", pm.Normal("mu") * pm.Poisson("N", 3.0), 1, observed=2.0)
    monkeypatch.setattr("pymc_discrete.sampling.sample.Program", None)
    # a value, a sum, and a count that is summed out
    for start, collapse, message in (
        ({"z": np.array([0, 2, 1])}, False, "'z' starts outside its support: element 1 is 2"),
        ([{}, {"x": np.array([1, 1, 1])}], False, r"'x' .* support: \[1, 1, 1\] adds up to 3, and n is 2"),
        ({"N": -1}, ["N"], "'N' starts outside its support: element 0 is -1"),
    ):
        with pytest.raises(SamplingError, match=message):
            pmd.sample(10, tune=10, chains=2, model=model, initvals=start, collapse=collapse, **QUIET)


@pytest.mark.usefixtures("start_alone")
def test_nan_in_a_covariate_is_named():
    with pm.Model() as model:
        x = np.array([0.1, np.nan, 0.3])
        N = pm.Poisson("N", pt.exp(pm.Normal("b") * x))
        pm.Binomial("y", N, 0.5, observed=[0, 1, 2])
    with pytest.raises(SamplingError, match=r"an array of shape \(3,\) that it reads holds nan"):
        pmd.sample(10, tune=10, model=model, collapse=False, **QUIET)


@pytest.mark.slow
def test_summed_out_counts_start(started):
    """The stretches of the sum hold nothing possible where they are first laid."""
    with pm.Model() as model:
        lam, p = pm.Exponential("lam", 1.0), pm.Beta("p", 2, 2)
        pm.Binomial("y", pm.Poisson("N", lam), p, observed=[900, 810])
    (point,) = started(model, chains=1, collapse=True)
    assert point["N"] >= 900


def test_the_only_state_of_a_chain_is_drawn(monkeypatch):
    """Each state follows from the one before, and the last is known: a draw of the whole chain finds it."""
    monkeypatch.setattr("pymc_discrete.starts.possible_start.softened", None)  # nothing is searched
    with pm.Model() as model:
        z = pm.Categorical("z", np.ones(5) / 5, shape=12)
        follows = pt.eq(z[1:], (z[:-1] + 1) % 5)
        pm.Potential("steps", pt.switch(follows, 0.0, -np.inf).sum())
        pm.Potential("end", pt.switch(pt.eq(z[-1], 2), 0.0, -np.inf))
    density = pmd.target_from_model(model).density
    x, inputs, _ = density.split(model.initial_point())
    found = possible_start(density, x, inputs, np.random.default_rng(0))
    np.testing.assert_array_equal(found, (np.arange(12) + 1) % 5)
