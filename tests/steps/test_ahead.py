"""Draws that a step makes ahead of PyMC's loop: which they are, where other steps move too, what resumes."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import BlockedStep

import pymc_discrete as pmd
from pymc_discrete.engine import course
from pymc_discrete.steps.ahead import Ahead
from tests.tools.running import draws_of, same_draws, sample_with_pymc

pytestmark = pytest.mark.shares_programs(patched=True)

Y = np.array([0.4, 1.9, 1.1, 2.2])
PRIOR = np.array([0.5, 0.3, 0.2])


def regimes():
    """A mean that depends on k, of which the continuous part can be integrated out by hand."""
    with pm.Model() as model:
        k = pm.Categorical("k", PRIOR)
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("y", mu + k, 1.0, observed=Y)
    return model


def exact():
    """P(k) and E[mu | k]: y | k is Gaussian with covariance I + 4, and mu | y, k is conjugate."""
    cov = np.eye(len(Y)) + 4.0
    logp = [np.log(p) - 0.5 * (Y - k) @ np.linalg.solve(cov, Y - k) for k, p in enumerate(PRIOR)]
    weights = np.exp(logp - np.max(logp))
    means = [(Y - k).sum() / (len(Y) + 0.25) for k in range(3)]
    return weights / weights.sum(), np.array(means)


class ExactMean(BlockedStep):
    """Draws mu given k, as somebody else's step would."""

    name = "exact_mean"

    def __init__(self, vars, **options):
        self.vars, self.rng = [pm.modelcontext(None).rvs_to_values[v] for v in vars], np.random.default_rng(0)

    def step(self, point):
        mean, variance = (Y - point["k"]).sum() / (len(Y) + 0.25), 1 / (len(Y) + 0.25)
        return {**point, "mu": np.asarray(self.rng.normal(mean, variance**0.5))}, [{}]


def furthest(model, steps, draws, tune):
    """The largest distance of P(k) and E[mu 1(k)] from the exact values, in Monte Carlo errors."""
    found = draws_of(sample_with_pymc(model, steps, draws, tune))
    share, means = exact()
    off = []
    for k in range(3):
        inside = 1.0 * (found["k"] == k)
        for values, wanted in ((inside, share[k]), (found["mu"] * inside, share[k] * means[k])):
            off.append(abs(values.mean() - wanted) / float(az.mcse(values)))
    return max(off)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "tune"), [(pmd.AutoStep, 0), (pmd.GibbsWithGradients, 300)], ids=["without tuning", "tuned"]
)
def test_beside_a_step_that_moves_the_same(step, tune, walks):
    """From the first draw on after tuning, or left to the other step while the chain tunes."""
    model = regimes()
    assert furthest(model, lambda: [step(), ExactMean([model["mu"]])], 1500, tune) < 4.5


@pytest.mark.slow
def test_a_foreign_move_that_is_not_seen_is_found(monkeypatch):
    """The planted error: draws that were made before another step moved are handed out all the same."""
    seen = []

    def only_the_first(self, changed, point, moved=Ahead._moved_by_others):
        if not seen:
            moved(self, changed, point)
        seen.append(changed)

    model = regimes()
    monkeypatch.setattr(Ahead, "_moved_by_others", only_the_first)
    assert furthest(model, lambda: [pmd.BlockGibbs(), ExactMean([model["mu"]])], 300, 20) > 8


@pytest.mark.slow
def test_the_lengths_of_chunks_do_not_matter(monkeypatch):
    model = regimes()
    usual = sample_with_pymc(model, pmd.BlockGibbs, 120, 70)
    monkeypatch.setattr(course, "CHUNK_SECONDS", 1e-9)  # chunks of one draw
    assert same_draws(usual, sample_with_pymc(model, pmd.BlockGibbs, 120, 70))
    chains = draws_of(usual)["mu"]
    assert (chains[0] != chains[1]).all()
    assert (np.diff(chains) != 0).mean() > 0.8


def made_beside(monkeypatch, cores, **options):
    """Draws of four chains in one process that may use some cores, and the order of each foreseen chain."""
    foreseen, begin = [], course.Course.begin

    def note(self, order, point):
        if self._begun is not None:
            foreseen.append(order)
        return begin(self, order, point)

    monkeypatch.setattr(course, "cores", lambda: cores)
    monkeypatch.setattr(course.Course, "begin", note)
    tree = sample_with_pymc(regimes(), pmd.BlockGibbs, 120, 70, chains=4, **options)
    monkeypatch.undo()
    return tree, foreseen


@pytest.mark.parametrize("kind", ["MT19937", "Philox", "PCG64DXSM"])
@pytest.mark.by_default("Philox")
def test_generators_of_any_kind(monkeypatch, kind):
    """The states of some are dictionaries of arrays."""
    seed = lambda: np.random.Generator(getattr(np.random, kind)(5))
    alone, _ = made_beside(monkeypatch, 1, random_seed=seed())
    beside, foreseen = made_beside(monkeypatch, 8, random_seed=seed())
    assert len(foreseen) == 3
    assert same_draws(alone, beside)


def test_draws_that_wait_to_be_handed_out_have_a_limit(monkeypatch):
    kept, hand_out = [], course.Course.begin

    def note(self, order, point):
        kept.append(self._kept)
        return hand_out(self, order, point)

    alone, _ = made_beside(monkeypatch, 1)
    monkeypatch.setattr(course, "cores", lambda: 4)
    monkeypatch.setattr(course, "MOST_FORESEEN", 100)
    monkeypatch.setattr(course, "CHUNK_SECONDS", 1e-9)  # chunks of one draw, of two numbers
    monkeypatch.setattr(course.Course, "begin", note)
    beside = sample_with_pymc(regimes(), pmd.BlockGibbs, 120, 70, chains=4)
    assert 0 < max(kept) <= 100 + 16
    assert same_draws(alone, beside)


@pytest.mark.parametrize("cores", [2, 8])
def test_chains_are_made_beside_the_one_that_is_handed_out(monkeypatch, cores):
    alone, nothing = made_beside(monkeypatch, 1)
    beside, foreseen = made_beside(monkeypatch, cores)
    assert not nothing
    assert len({order.seed for order in foreseen}) == 3
    assert same_draws(alone, beside)


@pytest.mark.parametrize("when", [0, 50])
@pytest.mark.by_default("50")
def test_a_foreseen_chain_of_data_that_have_changed_is_made_anew(monkeypatch, when):
    """As by a callback, which may change the data while a chain runs, and after its first draw."""

    def drawn(cores):
        with pm.Model() as model:
            data = pm.Data("data", np.full(50, 2))
            pm.Poisson("y", 1.0 + pm.DiscreteUniform("k", 0, 40), observed=data)
            pm.Multinomial("m", 3, [0.5, 0.5])  # has a step of its own
        monkeypatch.setattr(course, "cores", lambda: cores)

        def change(trace, draw):
            if draw.chain == 0 and draw.draw_idx == when:
                data.set_value(np.full(50, 30, "int32"))

        return draws_of(sample_with_pymc(model, pmd.AutoStep, 40, 30, callback=change))["k"]

    alone, beside = drawn(1), drawn(4)
    np.testing.assert_array_equal(alone, beside)
    assert alone[1].mean() > 20


def test_chains_that_begin_elsewhere_are_made_anew(monkeypatch):
    starts = [{"mu": value} for value in (0.0, 1.0, 1.0, 2.0)]
    alone, _ = made_beside(monkeypatch, 1, initvals=starts)
    beside, foreseen = made_beside(monkeypatch, 8, initvals=starts)
    assert not foreseen
    assert same_draws(alone, beside)


@pytest.mark.slow
def test_a_foreseen_chain_is_not_further_than_the_one_before(monkeypatch):
    """So that nothing computes for hours after a run that was stopped."""
    courses, made, make = [], [], course.Course._make

    def note(self, limit=None):
        made.append(self)
        return make(self, limit)

    def stop(trace, draw):
        if draw.draw_idx == 60:
            raise ValueError("enough")

    monkeypatch.setattr(course, "cores", lambda: 2)
    monkeypatch.setattr(course, "CHUNK_SECONDS", 1e-9)  # chunks of one draw
    monkeypatch.setattr(course.Course, "_make", note)
    with pytest.raises(ValueError, match="enough"):
        sample_with_pymc(regimes(), pmd.BlockGibbs, 5000, 5000, chains=2, callback=stop)
    courses = list(dict.fromkeys(made))
    for each in courses[1:]:
        each._thread.shutdown()  # waits for what it was told to make
        assert each._done <= 62
    assert len(courses) == 2


def test_what_was_discarded_leaves_no_trace():
    """A step that puts the same point elsewhere and back changes no later draw."""
    model = regimes()

    def walked(disturbed):
        step = pmd.BlockGibbs(model=model)
        step.setup_chain(np.random.default_rng(3), tune=30, draws=30)
        point, out = model.initial_point(), []
        for n in range(60):
            if n == 30:
                step.stop_tuning()
            point, _ = step.step(point)
            out.append(point["mu"])
            if n in disturbed:
                ahead = step.ahead
                ahead._take(ahead._source.moved(ahead._used, {**point}, []))
        return np.array(out)

    np.testing.assert_array_equal(walked([]), walked([1, 7, 8, 33, 50]))


@pytest.mark.slow
def test_draws_are_those_of_pmd_sample_in_distribution_and_start():
    """All of the model moves, from a jittered start, and NUTS says what it does."""
    model = regimes()
    tree = sample_with_pymc(model, pmd.GibbsWithGradients, 20, 0, discard_tuned_samples=False)
    assert {"tree_depth", "step_size", "diverging", "accept", "lp"} <= set(tree["sample_stats"].data_vars)
    assert len(np.unique(draws_of(tree)["mu"][:, 0])) == 2
    logp = model.compile_logp(mode="FAST_COMPILE")
    found = draws_of(tree) | {"lp": tree["sample_stats"]["lp"].values}
    for k, mu, lp in zip(*(np.ravel(found[name]) for name in ("k", "mu", "lp")), strict=True):
        assert lp == pytest.approx(float(logp({"k": k, "mu": mu})), rel=1e-9)


def test_a_chain_that_does_not_tune_goes_on_with_what_was_learned():
    model = regimes()
    step = pmd.BlockGibbs(model=model)
    step.setup_chain(np.random.default_rng(0), tune=60, draws=5)
    point = model.initial_point()
    for _ in range(60):
        point, (stats,) = step.step(point)
    step.stop_tuning()
    point, (stats,) = step.step(point)
    kept = step.sampling_state
    for start in (step, pmd.BlockGibbs(model=model)):
        start.sampling_state = kept
        start.setup_chain(np.random.default_rng(1), tune=0, draws=3)
        new, (now,) = start.step({**point, "mu": np.asarray(7.0)})
        assert now["step_size"] == stats["step_size"]
        assert np.array_equal(new["mu"], pytest.approx(new["mu"]))
    step.sampling_state = None if False else kept
    with pytest.raises(ValueError, match="frozen"):
        pmd.GibbsWithGradients(model=model).sampling_state = kept


@pytest.mark.parametrize("options", [{"draws": 1}, {"tune": 0}, {"draws": 1, "tune": 0}], ids=str)
@pytest.mark.by_default("{'draws': 1, 'tune': 0}")
def test_short_runs(options):
    options = {"draws": 3, "tune": 2, **options}
    draws = draws_of(sample_with_pymc(regimes(), pmd.BlockGibbs, chains=1, **options))
    assert draws["mu"].shape == (1, options["draws"])


def test_a_loop_of_ones_own(caplog):
    """Without `setup_chain`, and with an end of tuning that nobody announced."""
    model = regimes()
    with caplog.at_level("INFO", "pymc.discrete"):
        step = pmd.BlockGibbs(model=model)
    assert "BlockGibbs: NUTS moves 'mu' in the same program." in caplog.messages
    point = model.initial_point()
    for n in range(40):
        if n == 20:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        assert n < 20 or stats["step_size"] == stats["step_size_bar"]
    elsewhere = {**point, "mu": np.asarray(3.0), "k": np.asarray(2)}
    new, _ = step.step(elsewhere)
    assert list(new) == list(elsewhere)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_a_callback_that_raises(raised):
    model, seen = regimes(), []

    def stop(trace, draw):
        seen.append(draw.chain)
        if len(seen) == 5:
            raise raised

    step = pmd.BlockGibbs(model=model)
    if raised is RuntimeError:
        with pytest.raises(RuntimeError):
            sample_with_pymc(model, step, 10, 5, callback=stop)
    else:
        sample_with_pymc(model, step, 10, 5, callback=stop)
    draws = draws_of(sample_with_pymc(model, step, 10, 5))
    assert same_draws(draws, draws_of(sample_with_pymc(model, pmd.BlockGibbs, 10, 5)))
