"""`CollapsedNUTS` in `pm.sample`."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.collapse.stretches import FarOut
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.steps import collapsed_nuts
from tests.collapse.models import counts, labels, occupancy, open_population
from tests.collapse.transitions import logps
from tests.tools.running import FAST, QUIET, lp_of

# NUTS itself is tested elsewhere
pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

RUN = {"chains": 2, "cores": 1, "random_seed": 1, **QUIET}


def check(model, logp, point, stats):
    """A draw has the log density that is recorded, and the types of the model's initial point."""
    assert stats["model_logp"] == pytest.approx(float(logp(point)), rel=1e-6)
    assert {name: (v.shape, v.dtype) for name, v in point.items()} == {
        name: (np.shape(v), np.asarray(v).dtype) for name, v in model.initial_point().items()
    }


@pytest.mark.slow
def test_a_draw_has_the_log_density_that_is_recorded():
    model, _ = open_population()
    logp, point = model.compile_logp(mode="FAST_COMPILE"), model.initial_point()
    with model:
        step = pmd.CollapsedNUTS()
    step.setup_chain(np.random.default_rng(1), tune=3, draws=3)
    for n in range(6):
        if n == 3:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        check(model, logp, point, stats)


@pytest.mark.slow
def test_it_steps_before_a_chain_is_announced():
    model, _ = labels()
    logp, point = model.compile_logp(mode="FAST_COMPILE"), model.initial_point()
    step = pmd.CollapsedNUTS(model=model, rng=1)
    for n in range(30):
        if n == 20:
            step.stop_tuning()
        point, (stats,) = step.step(point)
    check(model, logp, point, stats)


@pytest.mark.slow
def test_another_step_for_its_discrete_variables_is_noticed(caplog):
    model, _ = labels()
    name = str(model.discrete_value_vars[0].name)
    step, point = pmd.CollapsedNUTS(model=model), model.initial_point()
    step.setup_chain(np.random.default_rng(1), tune=6, draws=0)
    for n in range(6):
        point, _ = step.step(point)
        if n > 2:
            point = {**point, name: 1 - point[name]}
    said = [r.getMessage() for r in caplog.records if "two steps" in r.getMessage()]
    assert [line.partition(" to two steps")[0] for line in said] == [f"CollapsedNUTS: {name!r} belongs"]


def test_it_stands_beside_other_steps(monkeypatch):
    """There it draws by itself, after the step for `b`, with another seed for each thing that it draws; what
    it records is of the whole draw.
    """
    seeds = []

    def noting(function):
        draw = jitted(function)
        return lambda seed, *args: (seeds.append(seed.tobytes()), draw(seed, *args))[1]

    monkeypatch.setattr(collapsed_nuts, "jitted", noting)
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", 0, 2, shape=2), pm.HalfNormal("sd")
        a, b = pm.Bernoulli("a", 0.4, shape=3), pm.Bernoulli("b", 0.6, shape=3)
        pm.Normal("y", mu[a] + mu[b], sd, observed=[0.1, -1.0, 2.0])
        steps = [pmd.BlockGibbs([b]), pmd.CollapsedNUTS([mu, "sd", a])]
        idata = pm.sample(20, tune=20, step=steps, **RUN, **FAST)
    assert set(idata["posterior"].data_vars) == {"mu", "sd", "a", "b"}
    np.testing.assert_allclose(lp_of(idata), logps(model, idata), rtol=1e-6)
    assert len(set(seeds)) == len(seeds) >= 4 * 40  # sites and stretches of two chains


def test_it_travels_to_another_process():
    model, _ = labels()
    with model:
        step = pmd.CollapsedNUTS(target_accept=0.9)
    other = cloudpickle.loads(cloudpickle.dumps(step))
    for one in (step, other):
        one.setup_chain(np.random.default_rng(3), tune=0, draws=2)
    ends = [one.step(model.initial_point())[0] for one in (step, other)]
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name])


@pytest.mark.parametrize(
    ("vars", "words"),
    [(["mu"], "no discrete"), (["z"], "no continuous"), (["y"], "y is no|'y'"), (["nothing"], "nothing")],
)
def test_bad_variables_are_named(vars, words):
    with labels()[0], pytest.raises((ValueError, KeyError, TypeError), match=words):
        pmd.CollapsedNUTS(vars)


@pytest.mark.slow
def test_data_that_change_twice():
    """After the step was made, and between chains: each begins with its own data."""
    with pm.Model() as model:
        y, p = pm.Data("y", [7, 9, 6]), pm.Beta("p", 2, 2)
        pm.Binomial("seen", pm.Poisson("N", 20.0, initval=40), p, observed=y)
        step = pmd.CollapsedNUTS()
    for data in ([1, 2, 3], [17, 19, 16]):
        pm.set_data({"y": data}, model=model)
        step.setup_chain(np.random.default_rng(1), 5, 5)
        point, stats = step.step(model.initial_point())
        assert stats[0]["model_logp"] == pytest.approx(
            model.compile_logp(mode="FAST_COMPILE")(point), abs=1e-5
        )


def test_a_tail_beyond_the_stretches_is_said():
    with counts()[0] as model:
        collapsed = Collapsed.of(model, ["N"])
    seldom, often = np.array([0, 10]), np.array([0, 200])
    assert collapsed.too_short(FarOut(seldom, seldom, seldom), 10_000) is None
    said = collapsed.too_short(FarOut(often, seldom, seldom), 10_000)
    assert "'N' comes to the far end of the stretch" in said
    assert "in up to 2.00% of the draws, and in up to 10 draws in a row" in said
    # 118 of 160,000 draws are few, and one visit
    said = collapsed.too_short(FarOut(seldom + 108, seldom, seldom + 108), 160_000)
    assert "in up to 0.07% of the draws, and in up to 118 draws in a row" in said


@pytest.mark.slow
@pytest.mark.parametrize("with_pymc", [False, True], ids=["pmd.sample", "pm.sample"])
def test_runs_beyond_the_stretches_are_counted(with_pymc, monkeypatch, caplog):
    """Without tuning, stretches of three values about the start 4: the message says what the draws say."""
    for name, value in {"SHORTEST_STRETCH": 3, "LONGEST_STRETCH": 3, "FAR_SHARE": 1.0, "FAR_RUN": 5}.items():
        monkeypatch.setattr(f"pymc_discrete.collapse.collapsed.{name}", value)
    with pm.Model() as model:
        pm.Poisson("N", pm.LogNormal("mean", 2, 1), initval=4)
        if with_pymc:
            idata = pm.sample(300, tune=0, step=pmd.CollapsedNUTS(), **RUN, **FAST)
        else:
            options = {"compute_convergence_checks": True, "progressbar": False, "random_seed": 1}
            idata = pmd.sample(300, tune=0, chains=2, collapse=True, **options)
    out = Collapsed.of(model, ["N"]).stretches.far_out(idata["posterior"]["N"].values[..., None], [4.0], np)
    said = [r.getMessage() for r in caplog.records if "far end of the stretch" in r.getMessage()]
    expected = [longest_run(chain) for chain in out[..., 0]]
    # each chain of pm.sample speaks of itself
    expected = [n for n in expected if n > 5] if with_pymc else [max(expected)]
    assert [int(text.partition("draws, and in up to ")[2].split()[0]) for text in said] == expected != []


def longest_run(there):
    return max(len(run) for run in "".join("x" if t else " " for t in there).split())


def test_32_bits_are_refused():
    model, _ = occupancy()
    with model, pytensor.config.change_flags(floatX="float32"), pytest.raises(ValueError, match="64 bits"):
        pmd.CollapsedNUTS()


def test_its_variables_are_moved_together():
    with labels()[0], pytest.raises(ValueError, match="leave out blocked"):
        pmd.CollapsedNUTS(blocked=False)


@pytest.mark.slow
def test_a_start_outside_of_the_support_is_refused():
    model, _ = labels()
    with model:
        step = pmd.CollapsedNUTS()
    step.setup_chain(np.random.default_rng(3), tune=0, draws=2)
    with pytest.raises(pm.exceptions.SamplingError, match="z"):
        step.step({**model.initial_point(), "z": np.array([0, 1, 2, 7, 0])})
